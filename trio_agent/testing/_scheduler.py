"""Everything of Trio that is private or real: seeding its scheduler, and noticing that a run is stuck.

Under an autojump clock a run whose tasks all wait for events spins for ever: no deadline is left to
jump to. :class:`StallGuard` sees that from outside and cancels the run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, final

import trio
import trio._core._run as _trio_run

from ._errors import SchedulerError

__all__ = ["StallGuard", "seeded_scheduler"]

STALL_SECONDS = 0.2
"""Real seconds in which nothing may run and nothing may be due; more than a worker thread needs to report."""

CPU_SECONDS = 30.0
"""Seconds that a run may compute; a thousand times what scenarios take.

Counted in the time of the processor: a machine that was busy or suspended is no fault of the run.
"""

_PRIVATE = {"_r": random.Random, "_ALLOW_DETERMINISTIC_SCHEDULING": bool}


@contextmanager
def seeded_scheduler(seed: int | None) -> Generator[None]:
    """Let Trio's scheduler take its order of tasks from a seed, inside the block.

    Two runs of the same program with the same seed then go the same way. Trio has no public way for
    this; it has the hooks for Hypothesis, which are used here and put back.

    Args:
      seed: the seed; None leaves the scheduler as it is.

    Raises:
      SchedulerError: this release of Trio has its hooks elsewhere.
    """
    if seed is None:
        yield
        return
    saved = {}
    for name, kind in _PRIVATE.items():
        saved[name] = getattr(_trio_run, name, None)
        if not isinstance(saved[name], kind):
            raise SchedulerError(
                f"Trio {trio.__version__} has no trio._core._run.{name}, by which its scheduler is seeded; "
                "run without a seed"
            )
    wanted = {"_r": random.Random(seed), "_ALLOW_DETERMINISTIC_SCHEDULING": True}  # noqa: S311 - no secret
    try:
        for name, value in wanted.items():
            setattr(_trio_run, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(_trio_run, name, value)


@final
class StallGuard(trio.abc.Instrument):
    """Cancels a run on the virtual clock that will never end.

    It knows two cases: every task waits and no deadline is left; or the run computes on and on.
    The tasks are cancelled inside their shields too, because what they wait for will not come.

    Attributes:
      reason: what was noticed; None while all is well.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._nursery: trio.Nursery | None = None
        self._began = time.process_time()
        self._still_since: float | None = None

    def watch(self, nursery: trio.Nursery) -> None:
        """Say what is cancelled if the run is stuck."""
        self._nursery = nursery

    def after_io_wait(self, timeout: float) -> None:
        """Called by Trio once in every round of its loop."""
        now = time.perf_counter()
        statistics = trio.lowlevel.current_statistics()
        still = (
            statistics.tasks_runnable == 0
            and statistics.run_sync_soon_queue_size == 0
            and statistics.seconds_to_next_deadline == float("inf")
        )
        if not still:
            self._still_since = None
        elif self._still_since is None:
            self._still_since = now
        elif now - self._still_since > STALL_SECONDS:
            self._still_since = None
            self._stop("every task waits for another one and nothing is due")
        computed = time.process_time()
        if computed - self._began > CPU_SECONDS:
            self._began = computed
            self._stop(f"it has computed for {CPU_SECONDS:g} seconds")

    def _stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        nursery = self._nursery
        if nursery is None:
            return
        nursery.cancel_scope.cancel(reason=reason)
        for task in (nursery.parent_task, *_tasks(nursery)):
            for scope in _scopes(task, nursery.cancel_scope):
                scope.shield = False


def _tasks(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    for task in nursery.child_tasks:
        yield task
        for inner in task.child_nurseries:
            yield from _tasks(inner)


def _scopes(task: trio.lowlevel.Task, outermost: trio.CancelScope) -> Iterator[trio.CancelScope]:
    """The cancel scopes that a task is in, up to one; Trio has no public way to see them."""
    status: Any = getattr(task, "_cancel_status", None)
    while status is not None:
        scope = getattr(status, "_scope", None)
        if not isinstance(scope, trio.CancelScope) or scope is outermost:
            return
        yield scope
        status = getattr(status, "_parent", None)
