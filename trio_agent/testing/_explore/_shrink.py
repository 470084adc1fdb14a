"""Making a failure smaller: fewer acts first, then fewer tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ._case import Case, Place, PlannedAct
from ._probe import Probe
from ._run import Host, Outcome, run_case


def smaller(host: Host, failed: Outcome, invariants: Sequence[Callable[[Probe], object]]) -> Outcome:
    """Find a smaller case that breaks the same invariant, if there is one."""
    wanted = failed.violations[0].invariant

    def breaks(case: Case) -> Outcome | None:
        outcome = run_case(host, case, invariants=invariants)
        return outcome if any(one.invariant == wanted for one in outcome.violations) else None

    best = _fewer_acts(failed, breaks)
    best = _fewer_calls(host, best, breaks, invariants)
    return _plainer(host, best, breaks, invariants)


def _fewer_acts(failed: Outcome, breaks: Callable[[Case], Outcome | None]) -> Outcome:
    for lone in _lone(failed.case.acts):
        found = breaks(attrs.evolve(failed.case, acts=(lone,)))
        if found is not None:
            return found
    return failed


def _lone(acts: Sequence[PlannedAct]) -> list[PlannedAct]:
    """Each of several acts by itself, at the place that it has."""
    if len(acts) < 2:
        return []
    found: list[PlannedAct] = []
    place = acts[0].place
    for act in acts:
        if place is not None and act.place is None:
            place = Place(place.kind, place.number + act.after)
        elif act.place is not None:
            place = act.place
        found.append(attrs.evolve(act, place=place, after=0))
    return found


def _fewer_calls(
    host: Host,
    failed: Outcome,
    breaks: Callable[[Case], Outcome | None],
    invariants: Sequence[Callable[[Probe], object]],
) -> Outcome:
    """Take calls out of the model's answers, one after the other, as long as some place still fails."""
    best = failed
    if not failed.case.acts:
        return best
    for call_id in failed.call_ids:
        if any(act.target == call_id for act in best.case.acts):
            continue
        without = attrs.evolve(best.case, dropped=(*best.case.dropped, call_id))
        base = run_case(host, attrs.evolve(without, acts=()), invariants=invariants)
        if base.violations:
            continue
        best = _somewhere(best, without, base, breaks) or best
    return best


def _plainer(
    host: Host,
    failed: Outcome,
    breaks: Callable[[Case], Outcome | None],
    invariants: Sequence[Callable[[Probe], object]],
) -> Outcome:
    """The plainest order and mode in which some place still fails."""
    for changes in ({"mode": "plain", "seed": 0, "steps": 0}, {"seed": 0, "steps": 0}, {"mode": "plain"}):
        plain = attrs.evolve(failed.case, **changes)
        if plain == failed.case or not plain.acts:
            continue
        base = run_case(host, attrs.evolve(plain, acts=()), invariants=invariants)
        found = None if base.violations else _somewhere(failed, plain, base, breaks)
        if found is not None:
            return found
    return failed


def _somewhere(failed: Outcome, case: Case, base: Outcome, breaks: Callable[[Case], Outcome | None]) -> Outcome | None:
    """Do the acts of a failure at each place of another run, until one fails."""
    first, *others = failed.case.acts
    for place in _places(first.place, base):
        found = breaks(attrs.evolve(case, acts=(attrs.evolve(first, place=place), *others)))
        if found is not None:
            return found
    return None


def _places(place: Place | None, base: Outcome) -> list[Place]:
    """Where the same act may be done in a run that has lost a call."""
    if place is None:
        return []
    last = base.steps if place.kind == "step" else len(base.labels)
    return [Place(place.kind, number) for number in range(1, last + 1)]
