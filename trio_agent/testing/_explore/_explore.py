"""Counting the places of a host, and running it anew for each place and each act."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, final

import attrs

from trio_agent import UsageError
from trio_agent.testing._scheduler import check_trio

from ._case import ACTS, MODES, Case, Mode, Place, PlannedAct
from ._checks import Violation
from ._probe import Probe
from ._report import Failure, describe
from ._run import Host, Outcome, run_case
from ._shrink import smaller

Invariant: TypeAlias = Callable[[Probe], object]

CUTS = ("abort", "cancel", "deadline", "key", "cancel_tool", "interrupt", "raise", "leave")
AFTER = (0, 1, 2, 3, 5, 8, 13)
"""How many places the second act of a pair comes after the first."""
LOOP_ACTS = ("abort", "cancel", "deadline", "raise", "key")
"""What can be done to a loop that is called without an agent."""


@final
@attrs.define
class Exploration:
    """What came of exploring a host."""

    name: str
    steps: int = 0
    """Steps of the scheduler in the undisturbed run of the first order."""
    places: int = 0
    """Events, hooks, model steps and tool steps of that run: the places of the kind ``at``."""
    runs: int = 0
    """How often the host was run."""
    missed: int = 0
    """Runs that were over before they came to all of their acts."""
    failures: list[Failure] = attrs.field(factory=list)
    """What was found, each made as small as could be."""

    def raise_for_failures(self) -> None:
        """Do nothing if every invariant held.

        Raises:
          AssertionError: the report of the first failure.
        """
        if self.failures:
            raise AssertionError(str(self.failures[0])) from self.failures[0].violation.error

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.steps} steps, {self.places} places, {self.runs} runs, "
            f"{len(self.failures)} violation{'s' * (len(self.failures) != 1)}"
        )


@final
@attrs.frozen(kw_only=True)
class Plan:
    """How far an exploration goes."""

    acts: Sequence[str] = tuple(ACTS)
    """What is done; names of :data:`ACTS`."""
    seeds: int = 1
    """How many random orders of tasks are tried."""
    schedules: int = 0
    """How many priority schedules (PCT) are tried."""
    pairs: int = 0
    """How many pairs of acts are tried for each order, places and acts drawn at random."""
    modes: Sequence[Mode] = ("plain",)
    """What is added to the run; each is explored by itself."""
    sample: int | None = None
    """How many single acts are tried for each order, drawn at random; None for all."""
    first: int = 0
    """The first seed."""

    def __attrs_post_init__(self) -> None:
        for act in self.acts:
            if act not in ACTS:
                raise UsageError(f"there is no act {act!r}; the acts are: {', '.join(ACTS)}")
        for mode in self.modes:
            if mode not in MODES:
                raise UsageError(f"there is no mode {mode!r}; the modes are: {', '.join(MODES)}")
        for name in ("seeds", "schedules", "pairs"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be 0 or more")
        if self.sample is not None and self.sample < 1:
            raise UsageError(f"sample is {self.sample}, but must be 1 or more, or None for all")

    def orders(self, steps: int) -> Iterator[Case]:
        """A case without acts for each order and mode.

        Args:
          steps: about how many steps the host has, for the change points of priority schedules.
        """
        for mode in self.modes:
            for seed in range(self.first, self.first + self.seeds):
                yield Case(seed=seed, mode=mode)
            for seed in range(self.first, self.first + self.schedules):
                yield Case(seed=seed, steps=steps, mode=mode)


def explore(
    host: Host,
    *,
    acts: Iterable[str] | None = None,
    seeds: int = 1,
    schedules: int = 0,
    pairs: int = 0,
    modes: Iterable[Mode] = ("plain",),
    sample: int | None = None,
    invariants: Iterable[Invariant] = (),
    only: str | Case | None = None,
    stop_after: int = 1,
    progress: Callable[[Exploration], object] | None = None,
) -> Exploration:
    """Run a host for each of its moments, cut it there in every way, and check what it leaves.

    The host runs on a virtual clock, each time in a Trio run of its own; it is called from outside
    of Trio. First it runs undisturbed and its places are counted: every step of Trio's scheduler,
    and every event, hook, model step and tool step. Then it runs once for each place and act, and
    after each run every invariant of the library is checked, and that the agent can be prompted
    again. A failure is made smaller, and says how it is repeated.

    Args:
      host: an async function of a :class:`Probe`; it has its agents watched.
      acts: what is done; by default all of :data:`ACTS`.
      seeds: how many random orders of tasks are tried.
      schedules: how many priority schedules are tried (PCT), which find faults of order better.
      pairs: how many pairs of acts are tried for each order.
      modes: ``plain``; ``checkpoints`` adds one in every listener, hook, model step and tool;
        ``slow`` adds a listener that needs longer than the grace.
      sample: how many single acts are tried for each order, drawn at random; None for all.
      invariants: plain functions of the probe, called after each run; an exception is a violation.
      only: one case, or the line that a report gives: nothing else is run.
      stop_after: the number of failures after which it stops.
      progress: called after each run.

    Returns:
      how much was run, and the failures.

    Raises:
      UsageError: an act, mode or case is unknown, or the host watches nothing.
      SchedulerError: this release of Trio keeps elsewhere what the kit needs of its scheduler.
    """
    check_trio()
    plan = Plan(
        acts=tuple(ACTS if acts is None else acts),
        seeds=seeds,
        schedules=schedules,
        pairs=pairs,
        modes=tuple(modes),
        sample=sample,
    )
    exploration = Exploration(getattr(host, "__name__", "the host"))
    with quiet():
        for outcome in _outcomes(host, plan, tuple(invariants), only):
            _count(exploration, outcome)
            if outcome.violations:
                small = smaller(host, outcome, tuple(invariants))
                exploration.failures.append(describe(host, small, tuple(invariants)))
            if progress is not None:
                progress(exploration)
            if len(exploration.failures) >= stop_after:
                break
    return exploration


def _count(exploration: Exploration, outcome: Outcome) -> None:
    exploration.runs += 1
    exploration.missed += not outcome.acted
    if exploration.runs == 1:
        exploration.steps, exploration.places = outcome.steps, len(outcome.labels)


def _outcomes(host: Host, plan: Plan, invariants: Sequence[Invariant], only: str | Case | None) -> Iterator[Outcome]:
    if only is not None:
        case = Case.parse(only) if isinstance(only, str) else only
        yield run_case(host, case, invariants=invariants)
        return
    plain = run_case(host, Case(), invariants=invariants)
    if not plain.watched:
        raise UsageError("the host watches no agent: call probe.watch(agent) or await probe.run_loop(...)")
    yield plain
    for order in plan.orders(plain.steps):
        base = plain
        if order != plain.case:
            base = run_case(host, order, invariants=invariants)
            yield base
        if base.violations:
            continue  # cutting what is broken already tells nothing
        for case in cases(base, plan):
            yield _repeated(base, run_case(host, case, invariants=invariants))


def _repeated(base: Outcome, outcome: Outcome) -> Outcome:
    """Look whether a run came to its first act as the undisturbed one came there."""
    place = outcome.case.acts[0].place
    if place is None or place.kind == "step" or outcome.label in ("", base.labels[place.number - 1]):
        return outcome
    text = f"{place} is {outcome.label!r}, but in the undisturbed run it was {base.labels[place.number - 1]!r}"
    return attrs.evolve(outcome, violations=(Violation("Deterministic", f"the host goes another way: {text}"),))


def cases(base: Outcome, plan: Plan) -> Iterator[Case]:
    """What is tried for one order, from its undisturbed run."""
    rng = random.Random(f"{base.case}")  # noqa: S311 - no secret
    places = [
        *(Place("step", n + 1) for n in range(base.steps)),
        *(Place("at", n + 1) for n in range(len(base.labels))),
    ]
    single = [(place, act) for place in places for act in _acts_at(place, base, plan.acts)]
    if plan.sample is not None and plan.sample < len(single):
        single = rng.sample(single, plan.sample)
    for place, act in single:
        yield attrs.evolve(base.case, acts=(attrs.evolve(act, place=place),))
    for _ in range(plan.pairs if single else 0):
        place = rng.choice(places)
        first = rng.choice(list(_acts_at(place, base, plan.acts)))
        second = rng.choice(list(_acts_at(place, base, plan.acts)))
        if first.act not in CUTS and second.act not in CUTS:
            continue
        pair = (attrs.evolve(first, place=place), attrs.evolve(second, after=rng.choice(AFTER)))
        yield attrs.evolve(base.case, acts=pair)


def _acts_at(place: Place, base: Outcome, acts: Sequence[str]) -> Iterator[PlannedAct]:
    for act in acts:
        if base.loop_only and act not in LOOP_ACTS:
            continue
        if act == "cancel_tool":
            for call_id in base.call_ids:
                yield PlannedAct(act, target=call_id)
        elif (act != "raise" or place.kind == "at") and (act != "leave" or base.has_block):
            yield PlannedAct(act)


@contextmanager
def quiet() -> Generator[None]:
    """Planted failures of hooks are logged by the agent, thousands of times."""
    log = logging.getLogger("trio_agent")
    disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = disabled
