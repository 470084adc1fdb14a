"""Measuring: the floor and the subject in turn, in one process, paired.

A :class:`Case` is a floor and a subject, each a plain function that does its work once and gives a
:class:`Sample`. :func:`interleave` calls them in turn and keeps every sample in a :class:`Cell`, so
that the samples of several sittings can be put together later. The garbage is collected before each
sample. The first round is thrown away; it is where the memory is looked at.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, final

import attrs

from .machine import peak_mb, reset_peak
from .stats import Spread, paired_ratios

Measure: TypeAlias = Literal["seconds", "bytes"]


@final
@attrs.frozen
class Sample:
    """One measurement, and what was seen besides."""

    value: float
    """Seconds (or bytes) of the whole sample."""
    facts: dict[str, Any] = attrs.field(factory=dict)
    """Plain JSON; each sample of a case has the same names."""


@final
@attrs.frozen(kw_only=True)
class Case:
    """What is compared with what."""

    bench: str
    case: str
    n: int
    subject: str = "trio_agent"
    version: str = ""
    floor_name: str
    floor: Callable[[], Sample]
    run: Callable[[], Sample]
    per: int = 1
    """How many units a sample of the subject has: its calls, deltas, turns."""
    floor_per: int | None = None
    """How many units a sample of the floor has; None for as many."""
    unit: str = "call"
    measure: Measure = "seconds"
    collector: bool = True
    """False switches Python's cyclic collector off while a sample is taken."""
    note: str = ""


@final
@attrs.define(kw_only=True)
class Cell:
    """The samples of a case; ``floor[i]`` and ``values[i]`` were taken one after the other."""

    bench: str
    case: str
    n: int
    subject: str
    version: str = ""
    floor_name: str
    unit: str
    measure: Measure = "seconds"
    per: int
    floor_per: int
    floor: list[float] = attrs.field(factory=list)
    values: list[float] = attrs.field(factory=list)
    facts: dict[str, list[Any]] = attrs.field(factory=dict)
    """What the subject's samples said besides, sample by sample."""
    floor_facts: dict[str, list[Any]] = attrs.field(factory=dict)
    peak_mb: float = 0.0
    """The peak of the process during one sample of the subject, interpreter and libraries included."""
    floor_peak_mb: float = 0.0
    note: str = ""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What makes two cells the same case."""
        return self.bench, self.case, self.n, self.subject

    @property
    def per_unit(self) -> Spread:
        """Seconds (or bytes) of one unit of the subject."""
        return Spread.of(self.values).times(1 / self.per)

    @property
    def floor_per_unit(self) -> Spread:
        """Seconds (or bytes) of one unit of the floor."""
        return Spread.of(self.floor).times(1 / self.floor_per)

    @property
    def ratio(self) -> Spread:
        """One unit of the subject as a multiple of one of the floor; paired."""
        return Spread.of(paired_ratios(self.values, self.floor)).times(self.floor_per / self.per)

    def add(self, other: Cell) -> None:
        """Take the samples of the same case from another sitting."""
        self.floor += other.floor
        self.values += other.values
        for mine, theirs in ((self.facts, other.facts), (self.floor_facts, other.floor_facts)):
            for name, values in theirs.items():
                mine.setdefault(name, []).extend(values)
        self.peak_mb = max(self.peak_mb, other.peak_mb)
        self.floor_peak_mb = max(self.floor_peak_mb, other.floor_peak_mb)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: the samples, and for a human reader what they come to."""
        summary = {
            "per_unit": self.per_unit.to_json(),
            "floor_per_unit": self.floor_per_unit.to_json(),
            "ratio": self.ratio.to_json(),
        }
        return {**attrs.asdict(self), "reps": len(self.values), "summary": summary}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        """Read what :meth:`to_json` wrote; the summary is computed anew."""
        names = {field.name for field in attrs.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})

    def __str__(self) -> str:
        each, floor, ratio = self.per_unit, self.floor_per_unit, self.ratio
        scale, unit = (1e6, "us") if self.measure == "seconds" else (1, "B")
        return (
            f"{self.subject:22} {self.bench}/{self.case:20} n={self.n:<8}"
            f"{each.median * scale:>12.2f} {unit}/{self.unit:<6} floor {floor.median * scale:>9.2f} {unit}"
            f"  x{ratio.median:<8.2f} ({ratio.p10:.2f} to {ratio.p90:.2f})  {self.peak_mb:>6.0f} MB"
        )


@contextlib.contextmanager
def collected(*, collector: bool = True) -> Iterator[None]:
    """Collect the garbage before a sample; perhaps leave the collector off while it is taken."""
    gc.collect()
    if not collector:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def interleave(case: Case, reps: int, *, budget: float = 20.0) -> Cell:
    """Measure floor and subject in turn.

    Which of the two comes first changes from pair to pair, so that neither always finds the warmer
    cache.

    Args:
      case: what is measured.
      reps: how many pairs; one more is run first and thrown away.
      budget: seconds after which no further pair is begun.
    """
    if reps < 1:
        raise ValueError(f"{reps} repetitions are none; ask for at least 1")
    cell = Cell(
        bench=case.bench, case=case.case, n=case.n, subject=case.subject, version=case.version,
        floor_name=case.floor_name, unit=case.unit, measure=case.measure, per=case.per,
        floor_per=case.per if case.floor_per is None else case.floor_per, note=case.note,
    )  # fmt: skip

    def sample(work: Callable[[], Sample]) -> Sample:
        with collected(collector=case.collector):
            return work()

    reset_peak()
    sample(case.floor)
    cell.floor_peak_mb = round(peak_mb(), 1)
    reset_peak()
    sample(case.run)
    cell.peak_mb = round(peak_mb(), 1)
    begin = time.perf_counter()
    for rep in range(reps):
        if rep and time.perf_counter() - begin > budget:
            break
        taken: dict[bool, Sample] = {}
        for subject in (False, True) if rep % 2 == 0 else (True, False):
            taken[subject] = sample(case.run if subject else case.floor)
        for values, facts, one in (
            (cell.floor, cell.floor_facts, taken[False]),
            (cell.values, cell.facts, taken[True]),
        ):
            values.append(one.value)
            for name, fact in one.facts.items():
                facts.setdefault(name, []).append(fact)
    return cell
