"""What all tests share with pytest: failures of async tests come out bare; a SIGINT that works."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Unwrap the group of one that pytest-trio makes of each failure, one level and no more.

    Without this the failing line is lost in the report, and ``xfail(raises=...)`` never matches.
    """
    try:
        return (yield)
    except BaseExceptionGroup as group:
        if len(group.exceptions) != 1 or pyfuncitem.get_closest_marker("trio") is None:
            raise
        failure = group.exceptions[0]
    raise failure


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's own handler of SIGINT, which Trio builds on; a shell starts background jobs without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
