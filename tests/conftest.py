"""What all tests share with pytest: a SIGINT that works, and pytest's own fixture for tests of plugins."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

pytest_plugins = ["pytester"]

# Where one of these is set pytest prints its summary without limits. The tests that run pytest, here or in a process,
# compare what it prints on a terminal of 80 columns.
for name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)


@pytest.fixture
def sigint() -> Iterator[None]:
    """Python's own handler of SIGINT, which Trio builds on; a shell starts background jobs without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
