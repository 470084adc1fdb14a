"""Everything of Trio that is private or real: the order of its tasks, and noticing that a run is stuck.

Under an autojump clock a run whose tasks all wait for events spins for ever: no deadline is left to
jump to. :class:`StallGuard` sees that from outside and cancels the run.

Trio has no public way to say which of several tasks runs next, to deliver a KeyboardInterrupt to a
task that is not the main one, or to look at the cancel scopes of a task. What is used for these
stands here and nowhere else; :func:`check_trio` says clearly when a release of Trio has it elsewhere.
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
_OF_TASKS = ("_abort_func", "_attempt_abort", "_cancel_status", "_next_send", "_next_send_fn")

FAIR_SHARE = 200
"""Steps in a row after which a task that could always go on lets the others have a turn."""


def check_trio() -> None:
    """Look whether this release of Trio has what is used of it in private.

    Raises:
      SchedulerError: it has not; the text says what is missing.
    """
    missing = [f"_core._run.{name}" for name, kind in _PRIVATE.items() if not isinstance(_found(name), kind)]
    fields = dir(trio.lowlevel.Task)
    missing += [f"Task.{name}" for name in _OF_TASKS if name not in fields]
    if missing:
        raise SchedulerError(
            f"Trio {trio.__version__} has no {', '.join(missing)}, which the testing kit needs to order and cut tasks"
        )


def _found(name: str) -> Any:
    return getattr(_trio_run, name, None)


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
    with _scheduler_random(random.Random(seed)):  # noqa: S311 - no secret
        yield


@contextmanager
def _scheduler_random(wanted: random.Random) -> Generator[None]:
    for name, kind in _PRIVATE.items():
        if not isinstance(_found(name), kind):
            raise SchedulerError(
                f"Trio {trio.__version__} has no trio._core._run.{name}, by which its scheduler is seeded; "
                "run without a seed"
            )
    saved = {name: _found(name) for name in _PRIVATE}
    try:
        setattr(_trio_run, "_r", wanted)  # noqa: B010 - Trio declares both as final
        setattr(_trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010
        yield
    finally:
        for name, value in saved.items():
            setattr(_trio_run, name, value)


@contextmanager
def priority_scheduler(seed: int, steps: int, changes: int = 3) -> Generator[None]:
    """Let the task of the highest priority go first, always, inside the block (PCT).

    Each task gets a random priority when it is first seen; at a few random steps the one that runs
    falls behind all others. A fault that needs ``d`` changes of order shows with a probability of at
    least ``1 / (tasks * steps ** (d - 1))`` (Burckhardt et al., "A randomized scheduler with
    probabilistic guarantees of finding bugs", 2010). Since a task that only yields would keep the
    others from running for ever, it falls behind, too, after two hundred steps in a row.

    Args:
      seed: where priorities and change points come from.
      steps: about how many steps the run has.
      changes: how many change points there are.

    Raises:
      SchedulerError: this release of Trio has its hooks elsewhere.
    """
    with _scheduler_random(_Priorities(seed, steps, changes)):
        yield


@final
class _Priorities(random.Random):
    """Stands in for the scheduler's random numbers: of each batch only the first task is let through."""

    def __init__(self, seed: int, steps: int, changes: int) -> None:
        super().__init__(seed)
        self._changes = {self.randrange(1, max(2, steps)) for _ in range(changes)}
        self._priorities: dict[Any, float] = {}
        self._lowest = 0.0
        self._step = 0
        self._last: tuple[Any, int] = (None, 0)

    def shuffle(self, x: Any) -> None:
        """Called by Trio with the tasks that may run; those left in ``x`` run before it asks again."""
        if not x:
            return
        for task in x:
            if task not in self._priorities:
                self._priorities[task] = 1 + self.random()
        self._step += 1
        first = max(x, key=self._priorities.__getitem__)
        last, times = self._last
        self._last = (first, times + 1 if first is last else 1)
        if self._step in self._changes or self._last[1] >= FAIR_SHARE:
            self._lowest -= 1
            self._priorities[first] = self._lowest
            first = max(x, key=self._priorities.__getitem__)
        _trio_run.GLOBAL_RUN_CONTEXT.runner.runq.extend([task for task in x if task is not first])
        x[:] = [first]


# ------------------------------------------------------------------ tasks


def interrupt_task(task: trio.lowlevel.Task) -> bool:
    """Raise KeyboardInterrupt in a task where it waits, as Trio does in its main task.

    Returns:
      False if the task is about to run, or waits where nothing can be raised; try at its next step.
    """
    if task._abort_func is None:
        return False

    def raise_interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    task._attempt_abort(raise_interrupt)
    return True


def about_to_get(task: trio.lowlevel.Task) -> BaseException | None:
    """The exception with which the step that a task is about to make begins."""
    error = getattr(task._next_send, "error", None)
    return error if isinstance(error, BaseException) else None


def is_shielded(task: trio.lowlevel.Task) -> bool:
    """Whether a task stands in a shield, or cannot be cancelled where it waits (a thread)."""
    in_thread = task._abort_func is None and task._next_send_fn is None
    return in_thread or any(scope.shield for scope in _scopes(task, None))


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
            self.stop("every task waits for another one and nothing is due")
        computed = time.process_time()
        if computed - self._began > CPU_SECONDS:
            self._began = computed
            self.stop(f"it has computed for {CPU_SECONDS:g} seconds")

    def stop(self, reason: str) -> None:
        """Cancel the run."""
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


def _scopes(task: trio.lowlevel.Task, outermost: trio.CancelScope | None) -> Iterator[trio.CancelScope]:
    """The cancel scopes that a task is in, up to one; Trio has no public way to see them."""
    status: Any = getattr(task, "_cancel_status", None)
    while status is not None:
        scope = getattr(status, "_scope", None)
        if not isinstance(scope, trio.CancelScope) or scope is outermost:
            return
        yield scope
        status = getattr(status, "_parent", None)
