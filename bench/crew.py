"""Counting the bodies of tools on their way in and out, whoever runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

import attrs


@final
@attrs.define(eq=False)
class Crew:
    """What the tools of one run did. Threads may count, too: each number is changed in one step."""

    expected: int
    """After so many starts, :attr:`on_all` is called."""
    on_all: Callable[[], object] = lambda: None
    started: list[int] = attrs.field(factory=list)
    """The arguments of the bodies that were entered, in their order."""
    unwound: list[float] = attrs.field(factory=list)
    """When each body was left, by ``time.perf_counter()``."""
    completed: list[int] = attrs.field(factory=list)
    """The arguments of the bodies that came to their own end."""
    dismissed: bool = False
    """What was to be seen has been seen: nobody resists any more."""
    requests: int = 0
    """How often the model was asked."""

    def enter(self, index: int) -> None:
        """A body begins."""
        self.started.append(index)
        if len(self.started) == self.expected:
            self.on_all()

    def complete(self, index: int) -> str:
        """A body is about to return; the value it returns."""
        self.completed.append(index)
        return f"value-{index}"

    def leave(self) -> None:
        """A body is over, however."""
        self.unwound.append(time.perf_counter())

    @property
    def alive(self) -> int:
        """Bodies that were entered and not left: orphans, if the call is over."""
        return len(self.started) - len(self.unwound)

    def last_unwound(self, since: float) -> float:
        """Seconds from a moment until the last body was left; 0 if none was."""
        return max(0.0, max(self.unwound, default=since) - since)
