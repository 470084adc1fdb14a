"""How calls wait for their turn: the limiter of a tool, the slots of a batch, the worker threads.

A limiter of Trio's lets its caller through one step of the scheduler before that goes on, and in
between the call may be cut. So each of them is waited for through a gate that looks again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import cast, final

import attrs
import trio

THREADS = 40
"""Worker threads for tools at each depth; Trio's own default."""

_held: ContextVar[tuple[trio.CapacityLimiter, ...]] = ContextVar("trio_agent_held_limiters", default=())
"""The limiters that the calls around the current one hold."""


@final
@attrs.frozen(eq=False)
class Gate:
    """A limiter that looks again once it has let a call through."""

    limiter: trio.CapacityLimiter

    @trio.lowlevel.enable_ki_protection
    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a token; cancelled, also at the last moment, none is held."""
        await self.limiter.acquire_on_behalf_of(borrower)
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self.limiter.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        """Give the token back."""
        self.limiter.release_on_behalf_of(borrower)


_threads: trio.lowlevel.RunVar[dict[int, Gate]] = trio.lowlevel.RunVar("trio_agent_threads")
"""One limiter of threads for each nesting depth, so that nested calls cannot starve each other."""


def thread_gate(depth: int) -> trio.CapacityLimiter:
    """Where calls of a depth wait for a worker thread."""
    try:
        gates = _threads.get()
    except LookupError:
        gates = {}
        _threads.set(gates)
    if depth not in gates:
        gates[depth] = Gate(trio.CapacityLimiter(THREADS))
    # Trio takes anything with these two methods, and says so in its reference but not in its types.
    return cast("trio.CapacityLimiter", gates[depth])


def would_wait_for_itself(limiter: trio.CapacityLimiter | None) -> bool:
    """Whether a call that waits for a limiter would wait for one of the calls around it."""
    return limiter is not None and limiter in _held.get() and limiter.available_tokens < 1


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def turn(
    limiter: trio.CapacityLimiter | None, slots: trio.CapacityLimiter | None, call: object
) -> AsyncGenerator[None]:
    """Hold the limiters around the body of a call, the tool's own first."""
    gates: list[Gate] = []
    token = _held.set((*_held.get(), limiter)) if limiter is not None else None
    try:
        for each in (limiter, slots):
            if each is not None:
                await Gate(each).acquire_on_behalf_of(call)
                gates.append(Gate(each))
        yield
    finally:
        if token is not None:
            _held.reset(token)
        for gate in reversed(gates):
            gate.release_on_behalf_of(call)
