"""What all tests share with pytest: a SIGINT that works, and pytest's own fixture for tests of plugins."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's own handler of SIGINT, which Trio builds on; a shell starts background jobs without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
