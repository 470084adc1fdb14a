"""One run of an explored host: a virtual clock, an order of tasks, and acts at their places."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, final

import attrs
import trio
import trio.testing

from trio_agent import UsageError, _messages
from trio_agent.testing._scheduler import (
    StallGuard,
    about_to_get,
    interrupt_task,
    is_shielded,
    priority_scheduler,
    seeded_scheduler,
)

from ._acts import REASON, perform
from ._case import ACTS, Case, Place, PlaceKind, PlannedAct
from ._checks import Violation, check_run, leaves, prompted_again
from ._log import Done, RunLog, Span
from ._probe import Probe
from ._wrap import LoopWatch

if TYPE_CHECKING:
    from ._keys import Lines

Host: TypeAlias = Callable[[Probe], Awaitable[object]]
"""What is explored: an async function of a :class:`Probe`."""

Watcher: TypeAlias = Callable[[trio.lowlevel.Task, str], None]
"""Sees every step before it is made, and every place, with its label; a step has none."""

MAX_STEPS = 50_000
"""Steps after which a run counts as endless; fifty times what scenarios need."""


@final
@attrs.frozen
class Outcome:
    """What came of one run."""

    case: Case
    steps: int
    """How many steps of the scheduler it had."""
    labels: Sequence[str]
    """What happened at each place of the kind ``at``, in order."""
    call_ids: Sequence[str]
    """The calls of the first agent that was watched."""
    label: str
    """What happened at the place of the first act, if it was done."""
    watched: bool
    """Whether the host had anything watched."""
    loop_only: bool
    """Whether the first that was watched is a loop without an agent."""
    has_block: bool
    """Whether the host marks a block that can be left."""
    acted: bool
    """Whether all acts were done: a run may be over before it comes to a place."""
    violations: Sequence[Violation]


@final
class Moments(trio.abc.Instrument):
    """Counts the places of a run, and acts where the case says so."""

    def __init__(
        self,
        case: Case,
        scope: trio.CancelScope,
        guard: StallGuard,
        watcher: Watcher | None,
        acted: Callable[[str], object] | None,
    ) -> None:
        self.probe = Probe(case, self)
        self.steps = 0
        self.labels: list[str] = []
        self.running = False
        """Whether the host runs; nothing is counted before and behind."""
        self.crash: Exception | None = None
        """What an act raised that should raise nothing."""
        self._scope = scope
        self._guard = guard
        self._watcher = watcher
        self._acted = acted
        self._plan = list(case.acts)
        self._due: tuple[PlaceKind | None, int] = (None, 0)
        self._rounds: list[Done] = []
        self._keys: list[Done] = []
        self._sampled = -1.0
        if self._plan:
            place = self._plan[0].place
            if place is None:
                raise UsageError(f"{case}: the first act needs a place of its own")
            self._due = (place.kind, place.number)

    # -------------------------------------------------------------- places

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Called by Trio."""
        if not self.running:
            return
        self.steps += 1
        if self._watcher is not None:
            self._watcher(task, "")
        try:
            if self._due == ("step", self.steps):
                self._act("step", self.steps, f"step {self.steps}", None)
            if self.probe.done:
                self._follow(task)
        except Exception as error:  # Trio would only log it
            self.crash = self.crash or error
        if self.steps > MAX_STEPS:
            self._guard.stop(f"it has made {MAX_STEPS} steps")

    def after_io_wait(self, timeout: float) -> None:
        """Called by Trio once in every round; deadlines that have passed cancel right behind it."""
        self._rounds = [done for done in self.probe.done if done.planned.act == "deadline" and done.landed is None]

    def reach(self, label: str, span: Span | None) -> None:
        """A place of the kind ``at`` is reached; raises what is to be raised there."""
        if not self.running:
            return
        self.labels.append(label)
        number = len(self.labels)
        if self._watcher is not None:
            self._watcher(trio.lowlevel.current_task(), label)
        if self._due == ("at", number):
            raised = self._act("at", number, label, span)
            if raised is not None and raised.error is not None:
                raise raised.error

    def _act(self, kind: PlaceKind, number: int, label: str, span: Span | None) -> Done | None:
        """Do everything that is due here; gives the one that has something to raise."""
        raising: Done | None = None
        while self._plan and self._due == (kind, number):
            planned = self._plan.pop(0)
            if self._acted is not None:
                self._acted(f"{planned} ({ACTS[planned.act]})")
            done = perform(self.probe, planned, self._scope, label, span)
            if done.error is not None and kind == "at":
                raising = raising or done
            elif planned.act == "key":
                self._keys.append(done)
            self._due = self._next(kind, number)
        return raising

    def _next(self, kind: PlaceKind, number: int) -> tuple[PlaceKind | None, int]:
        if not self._plan:
            return None, 0
        planned: PlannedAct = self._plan[0]
        place = planned.place or Place(kind, number + planned.after)
        return place.kind, place.number

    @property
    def finished(self) -> bool:
        """Whether all acts were done."""
        return not self._plan

    # ------------------------------------------------ what comes of an act

    def _follow(self, task: trio.lowlevel.Task) -> None:
        for done in self._rounds:
            done.landed, done.landed_time = self.probe.note(), trio.current_time()
        self._rounds = []
        self.probe._waited = self.probe._waited or trio.current_time() > self.probe.done[0].time
        for done in self.probe.done:
            here = done.run is not None and done.run.task is task
            if here and done.landed is None and isinstance(about_to_get(task), KeyboardInterrupt):
                done.landed, done.landed_time = self.probe.note(), trio.current_time()
        for done in tuple(self._keys):
            self._deliver_key(done)
        for watch in self.probe.watches:
            run = watch.run
            if run is not None:
                if run.task is task and getattr(about_to_get(task), "reason", None) == REASON:
                    run.got_cancelled = True
                self._sample(run)

    def _deliver_key(self, done: Done) -> None:
        run = done.run
        if run is None or not run.active or done.landed is not None:
            self._keys.remove(done)
        elif not isinstance(about_to_get(run.task), KeyboardInterrupt):
            interrupt_task(run.task)

    def press(self, where: str) -> None:
        """SIGINT is about to come, by itself."""
        watch = self.probe.watches[0] if self.probe.watches else None
        done = Done(PlannedAct("key"), self.probe.note(), trio.current_time(), watch.run if watch else None, where)
        self.probe.done.append(done)

    def _sample(self, run: RunLog) -> None:
        """Time goes on in a run that was cut: what keeps it?"""
        now = trio.current_time()
        cut = next(
            (done for done in self.probe.done if done.landed is not None and cuts_run(done) and done.run is run), None
        )
        if cut is None or now <= cut.landed_time or now == self._sampled or run.late is not None:
            return
        self._sampled = now
        open_spans = [span for span in run.spans if span.ended is None]
        for span in open_spans:
            if span.preparing and span.began < (cut.landed or 0) and not is_shielded(span.task):
                run.late = f"{span} was not cut, {now - cut.landed_time:g} s of virtual time after {cut.planned.act}"
        if not open_spans and not run.telling and run.end_told is None:
            run.late = f"nothing is left to wait for, but the run goes on {now - cut.landed_time:g} s after the cut"


def cuts_run(done: Done) -> bool:
    """Whether an act ends the run that it is done to."""
    return done.planned.act in ("abort", "cancel", "deadline", "key", "leave")


class _Ticks:
    """Stands in for the real time of messages: no two are of the same millisecond, and runs repeat."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1_700_000_000_000)

    def time(self) -> float:
        return next(self._ticks) / 1000


@contextmanager
def _ticking() -> Generator[None]:
    before = getattr(_messages, "time")  # noqa: B009
    setattr(_messages, "time", _Ticks())  # noqa: B010 - a module of another type, as far as mypy can see
    try:
        yield
    finally:
        setattr(_messages, "time", before)  # noqa: B010


def run_case(
    host: Host,
    case: Case,
    *,
    invariants: Sequence[Callable[[Probe], object]] = (),
    watcher: Watcher | None = None,
    acted: Callable[[str], object] | None = None,
    lines: Lines | None = None,
) -> Outcome:
    """Run a host once, do what the case says, and check everything.

    Starts a Trio run of its own.

    Raises:
      UsageError: it was called from inside of Trio, or the case makes no sense.

    Args:
      host: what is run.
      case: what is done, and in which order tasks run.
      invariants: called with the probe after the run; what they raise is a violation.
      watcher: sees every step and place.
      acted: is told each act that is done.
      lines: lets SIGINT come at a line.
    """
    if trio.lowlevel.in_trio_run():
        raise UsageError(
            "exploring starts Trio runs of its own: call it from a plain function, not from inside of Trio"
        )
    scope = trio.CancelScope()
    guard = StallGuard()
    moments = Moments(case, scope, guard, watcher, acted)
    probe = moments.probe
    raised: list[BaseException] = []
    again: list[Violation] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            guard.watch(nursery)
            moments.running = True
            with scope, lines.watching(moments.press) if lines is not None else nullcontext():
                try:
                    await host(probe)
                except trio.Cancelled:
                    raise
                except BaseException as error:  # noqa: ASYNC103 - judged by the checks
                    raised.append(error)
                finally:
                    moments.running = False
                    probe._over = True
            raised.extend(await _late_interrupt())
            again.extend(await prompted_again(probe))

    stopped = False
    order = priority_scheduler(case.seed, case.steps) if case.steps else seeded_scheduler(case.seed)
    clock = trio.testing.MockClock(autojump_threshold=0)
    with order, _ticking():
        try:
            trio.run(main, clock=clock, instruments=[moments, guard])
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            stopped = True
    pressed = any(isinstance(leaf, KeyboardInterrupt) for error in raised for leaf in leaves(error))
    if stopped or (pressed and not any(done.planned.act == "key" for done in probe.done)):
        raise KeyboardInterrupt  # a real one: somebody wants to stop
    violations = list(check_run(probe, raised, guard.reason))
    if moments.crash is not None:
        violations.append(Violation("Acts", f"the act raised {moments.crash!r}", moments.crash))
    if guard.reason is None:
        violations.extend(again)
        violations.extend(_own(probe, invariants))
    watch = probe.watches[0] if probe.watches else None
    return Outcome(
        case,
        moments.steps,
        moments.labels,
        tuple(watch.call_ids) if watch else (),
        probe.done[0].label if probe.done else "",
        watch is not None,
        isinstance(watch, LoopWatch),
        probe._has_block,
        moments.finished,
        violations,
    )


async def _late_interrupt() -> list[BaseException]:
    """A key interrupt that came when the host had no checkpoint any more."""
    try:
        await trio.lowlevel.checkpoint()
    except KeyboardInterrupt as error:
        return [error]
    return []


def _own(probe: Probe, invariants: Sequence[Callable[[Probe], object]]) -> list[Violation]:
    """The invariants of the host's own."""
    found = []
    named = [(getattr(one, "__name__", "invariant"), lambda one=one: one(probe)) for one in invariants]
    for name, check in (*named, *probe._checks):
        try:
            check()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: ASYNC103 - pytest.fail() raises one; nothing is awaited here
            found.append(Violation(name, str(error) or repr(error), error))
    return found
