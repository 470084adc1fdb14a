"""The figures to reach, computed from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import attrs

from bench.measure import Cell
from bench.results import Results, find
from bench.stats import quantile, slope

SCALE = 5.0
"""Deltas are given in microseconds on a machine whose bare task takes 5 of them."""


@final
@attrs.frozen
class Figure:
    """One row of the table of figures to reach."""

    what: str
    unit: str
    to_reach: float
    then: float
    measured: float | None
    spread: str = ""
    """p10 to p90, where it is a ratio of pairs."""
    peers: str = ""
    """The same of the peers, in the same unit."""
    remark: str = ""

    @property
    def met(self) -> str:
        """Whether it was reached."""
        if self.measured is None:
            return "not measured"
        if self.measured <= self.then < self.to_reach:
            return "yes, and the next"
        return "yes" if self.measured <= self.to_reach else "**no**"


def figures(results: Results) -> list[Figure]:
    """Every row."""
    return [
        *_fan_out(results),
        *_cancel(results),
        *_depth(results),
        *_stream(results),
        *_turns(results),
        *_memory(results),
        *_growth(results),
    ]


def number(value: float) -> str:
    """A ratio as a reader wants it: more digits where it is small."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _peers(results: Results, bench: str, case: str | Sequence[str], n: int, of: Callable[[Cell], float]) -> str:
    """The figure of every loop that is a peer; the raw rows are no loops."""
    cases = (case,) if isinstance(case, str) else case
    said = []
    for name in results.peers:
        if name in ("trio_agent", "trio", "asyncio", "node"):
            continue
        found = next((cell for each in cases if (cell := find(results.cells, bench, each, n, name))), None)
        if found is not None:
            few = found.facts.get("started", [n])[-1] < n if bench == "cancel" else False
            said.append(f"{name} {number(of(found))}{' (one tool at work)' if few else ''}")
    return "; ".join(said)


def _ratio(cell: Cell) -> float:
    return cell.ratio.median


def _row(
    results: Results, what: str, key: tuple[str, str, int], reach: float, then: float, *,
    others: Sequence[str] = (), remark: Callable[[Cell], str] = lambda cell: "",
) -> Figure:  # fmt: skip
    bench, case, n = key
    cell = find(results.cells, bench, case, n)
    peers = _peers(results, bench, others or case, n, _ratio)
    if cell is None:
        return Figure(what, "x floor", reach, then, None, peers=peers)
    ratio = cell.ratio
    spread = f"{number(ratio.p10)} to {number(ratio.p90)}"
    return Figure(what, "x floor", reach, then, ratio.median, spread, peers, remark(cell))


def _fan_out(results: Results) -> Iterator[Figure]:
    for n, reach, then in ((100, 3.0, 2.5), (1000, 3.0, 2.5), (5000, 3.6, 3.0)):
        yield _row(results, f"fan-out, per call of a whole run, N = {n:,}", ("fanout", "calls", n), reach, then)
    yield _row(results, "one run with one call", ("fanout", "calls", 1), 12, 8)


def _cancel(results: Results) -> Iterator[Figure]:
    def remark(cell: Cell) -> str:
        orphans, results_of = max(cell.facts["orphans"]), min(cell.facts["results"])
        return f"{orphans} orphans, {results_of:,} results"

    for n in (100, 1000, 5000):
        key = ("cancel", "abort", n)
        yield _row(
            results, f"abort to `prompt()` returned, N = {n:,}", key, 2.0, 1.6,
            others=("abort", "host"), remark=remark,
        )  # fmt: skip


def _depth(results: Results) -> Iterator[Figure]:
    yield _row(
        results, "nested 8 deep, cancel at the top", ("depth", "fan-out 1, abort", 8), 4, 2.5,
        others=("fan-out 1, abort", "fan-out 1, host"),
    )  # fmt: skip


def _stream(results: Results) -> Iterator[Figure]:
    for listener, reach, then in (("sync", 1.2, 0.8), ("async", 1.5, 1.0)):
        cell = find(results.cells, "stream", f"text, {listener} listener", 10_000)
        what = f"text delta, {listener} listener"
        peers = _peers(results, "stream", "text, async listener", 10_000, lambda cell: cell.ratio.median * SCALE)
        if cell is None:
            yield Figure(what, "us at a floor of 5 us", reach, then, None, peers=peers)
            continue
        scaled = cell.ratio.times(SCALE)
        here = f"{number(cell.per_unit.median * 1e6)} us here, floor {number(cell.floor_per_unit.median * 1e6)} us"
        lead = f"run-ahead at most {max(cell.facts['max_lead'])}"
        yield Figure(
            what, "us at a floor of 5 us", reach, then, scaled.median,
            f"{number(scaled.p10)} to {number(scaled.p90)}", peers, f"{here}; {lead}",
        )  # fmt: skip
    big = find(results.cells, "stream", "arguments, async listener", 400_000)
    small = find(results.cells, "stream", "arguments, async listener", 50_000)
    what = "400 kB argument in 10-byte pieces"
    peers = _peers(results, "stream", "arguments, async listener", 50_000, lambda cell: cell.per_unit.median * 1e6)
    peers = f"of 50 kB: {peers}" if peers else ""
    if big is None:
        yield Figure(what, "us a piece", 2, 1, None, peers=peers)
        return
    each = big.per_unit.times(1e6)
    remark = f"{number(big.ratio.median * SCALE)} us at a floor of 5 us"
    if small is not None:
        grows = slope([small.per, big.per], [quantile(small.values, 0.5), quantile(big.values, 0.5)])
        remark += f"; grows with the size to the power of {grows:.2f}"
    yield Figure(what, "us a piece", 2, 1, each.median, f"{number(each.p10)} to {number(each.p90)}", peers, remark)


def _growth_of(cell: Cell) -> float:
    firsts, lasts = cell.facts["first_us"], cell.facts["last_us"]
    return quantile([last / first for first, last in zip(firsts, lasts, strict=True)], 0.5)


def _turns(results: Results) -> Iterator[Figure]:
    cell = find(results.cells, "turns", "turns", 1000)
    what = "turn 1,000 against turn 1"
    peers = _peers(results, "turns", "turns", 1000, _growth_of)
    yield Figure(what, "x turn 1", 1.1, 1.0, None if cell is None else _growth_of(cell), peers=peers)


def _memory(results: Results) -> Iterator[Figure]:
    yield _row(
        results, "memory of a running call, against a bare task", ("fanout", "memory", 1000), 2.5, 2,
        remark=lambda cell: f"{cell.per_unit.median:,.0f} bytes against {cell.floor_per_unit.median:,.0f}",
    )  # fmt: skip


def _growth(results: Results) -> Iterator[Figure]:
    for case, reach in (("calls", 1.5), ("calls, collector off", 1.1)):
        few, many = (find(results.cells, "fanout", case, n) for n in (100, 20_000))
        switch = "off" if "off" in case else "on"
        what = f"cost of a call at N = 20,000 against N = 100, collector {switch}"
        if few is None or many is None:
            yield Figure(what, "x N = 100", reach, reach, None)
            continue
        floor = many.floor_per_unit.median / few.floor_per_unit.median
        yield Figure(
            what, "x N = 100", reach, reach, many.per_unit.median / few.per_unit.median,
            remark=f"the floor itself: {number(floor)}",
        )  # fmt: skip
