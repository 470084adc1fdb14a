"""Abort: the soft cancel, as cancel scopes.

An Abort is a flag, a reason and the pieces of work that are live. Whoever cuts a piece writes down
the cause first and cancels its scope then, so that the one who unwinds can say why.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, TypeAlias, cast, final

import attrs
import trio

CutCause: TypeAlias = Literal["abort", "interrupt", "cancel_tool", "timeout"]

_VERBS = {"abort": "aborted", "interrupt": "interrupted", "cancel_tool": "cancelled", "timeout": "timed out"}


@final
@attrs.frozen
class Cut:
    """Why a piece of work was cut."""

    cause: CutCause
    reason: str | None = None

    def text(self, noun: str, when: str = "") -> str:
        """A sentence that says it, without its full stop."""
        sentence = f"{noun} {_VERBS[self.cause]}{when}"
        return f"{sentence}: {self.reason}" if self.reason else sentence


class WorkCut(Exception):
    """Raised where the normal course ends because the run, or its current work, was cut."""


@attrs.define(eq=False)
class Piece:
    """A piece of work that can be cut by itself: a response, a call, a hook.

    Used as a context manager it is the piece's scope, registered with the Abort while it is open.
    """

    abort: Abort
    cut: Cut | None = attrs.field(default=None, init=False)
    scope: trio.CancelScope | None = attrs.field(default=None, init=False)
    timed: bool = attrs.field(default=False, init=False)
    """The scope has a deadline of its own."""

    def cut_off(self, cut: Cut) -> None:
        """Write down why, and cancel the scope if there is one. The first cause stands."""
        if self.cut is None:
            if self.timed and self.scope is not None and trio.current_time() >= self.scope.deadline:
                # The deadline came first, though its task has not noticed yet.
                self.cut = Cut("timeout")
            else:
                self.cut = cut
        if self.scope is not None:
            self.scope.cancel(reason=cut.text("work"))

    def __enter__(self) -> trio.CancelScope:
        self.scope = scope = trio.CancelScope()
        self.abort._pieces[self] = None
        if self.cut is None and self.abort.requested:
            self.cut = self.abort.cut
        if self.cut is not None:
            scope.cancel(reason=self.cut.text("work"))
        return scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        scope = cast("trio.CancelScope", self.scope)
        del self.abort._pieces[self]
        caught = scope.__exit__(kind, error, trace)
        self.left(scope)
        return caught

    def left(self, scope: trio.CancelScope) -> None:
        """The scope was left: if it was its deadline that cut the work, that is why."""
        self.scope = None
        if self.timed and self.cut is None and scope.cancel_called:
            self.cut = Cut("timeout")


@final
class Abort:
    """Ends a run softly: the run closes in order and its call returns.

    The loop functions take one; an Agent makes one for each run. Hooks and listeners are given it.
    """

    __slots__ = ("_event", "_pieces", "reason", "requested")

    def __init__(self) -> None:
        self.requested = False
        """Whether the run was aborted."""
        self.reason: str | None = None
        """What the first request gave as its reason."""
        # In the order in which they were opened, so that cuts come in source order.
        self._pieces: dict[Any, None] = {}  # a Piece each, or a Batch of them, of a module above this one
        self._event: trio.Event | None = None

    @trio.lowlevel.enable_ki_protection
    def request(self, reason: str | None = None) -> None:
        """Abort. Not a checkpoint; a second request changes nothing.

        Args:
          reason: goes into the results of what was cut and into the record of the run.
        """
        if self.requested:
            return
        self.requested = True
        self.reason = reason
        cut = Cut("abort", reason)
        for piece in tuple(self._pieces):
            piece.cut_off(cut)
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait until the run is aborted. Always a checkpoint; a cancellation changes nothing."""
        if self._event is None:
            self._event = trio.Event()
            if self.requested:
                self._event.set()
        await self._event.wait()

    @property
    def cut(self) -> Cut:
        """The cause that the abort stands for."""
        return Cut("abort", self.reason)

    def __repr__(self) -> str:
        state = f"requested, {self.reason!r}" if self.requested else "not requested"
        return f"<trio_agent.Abort: {state}>"
