"""What all tests share with pytest: failures of async tests come out bare."""

from __future__ import annotations

from collections.abc import Generator

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
