"""The tables of the page, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.measure import Cell
from bench.peers.scoreboard import TRIALS
from bench.peers.table import BY_NAME, PEERS
from bench.results import Results, find
from bench.stats import quantile

from .targets import figures, number

RAW = ("trio", "asyncio", "node")
"""Rows that are no agent loops."""
MARKS = {"yes": "yes", "no": "**no**", "part": "**in part**", "none": "-", "failed": "?"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; numbers are the business of the caller."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def title_of(subject: str) -> str:
    """The name of a subject as it is shown."""
    return BY_NAME[subject].title if subject in BY_NAME else subject


def subjects(cells: Iterable[Cell]) -> list[str]:
    """The library first, then the peers in the order of their table, then whatever else there is."""
    found = dict.fromkeys(cell.subject for cell in cells)
    order = [peer.name for peer in PEERS]
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def duration(seconds: float) -> str:
    """Seconds in a unit that fits."""
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds)} s"


def amount(cell: Cell, value: float) -> str:
    """Seconds or bytes of one unit."""
    return duration(value) if cell.measure == "seconds" else f"{value:,.0f} bytes"


def cells_table(cells: Iterable[Cell]) -> str:
    """Every case of a benchmark, one in a row."""
    rows = [
        (
            title_of(cell.subject), cell.case, f"{cell.n:,}",
            f"{amount(cell, cell.per_unit.median)} a {cell.unit}",
            f"{amount(cell, cell.per_unit.p10)} to {amount(cell, cell.per_unit.p90)}",
            amount(cell, cell.floor_per_unit.median),
            number(cell.ratio.median), f"{number(cell.ratio.p10)} to {number(cell.ratio.p90)}",
            f"{cell.peak_mb:.0f} MB", str(len(cell.values)),
        )
        for cell in cells
    ]  # fmt: skip
    head = ("of", "case", "N", "median", "p10 to p90", "floor", "x floor", "p10 to p90", "peak memory", "samples")
    return table(head, rows)


def ratio_grid(cells: Sequence[Cell], bench: str, cases: Sequence[str]) -> str:
    """Ratios to the floor: a row for each subject, a column for each N. The first case that a subject has."""
    chosen = [cell for cell in cells if cell.bench == bench and cell.case in cases]
    sizes = sorted({cell.n for cell in chosen})
    rows = []
    for subject in subjects(chosen):
        row = [title_of(subject)]
        for n in sizes:
            cell = next((one for case in cases if (one := find(chosen, bench, case, n, subject))), None)
            row.append("" if cell is None else _grid_cell(cell))
        rows.append(row)
    return table(["of", *(f"N = {n:,}" for n in sizes)], rows)


def _grid_cell(cell: Cell) -> str:
    text = f"{number(cell.ratio.median)} ({duration(cell.per_unit.median)})"
    started = cell.facts.get("started")
    if cell.bench == "cancel" and started and max(started) < cell.n:
        text += f" {max(started)} at work"
    return text


def where_peers_are_faster(cells: Sequence[Cell]) -> str:
    """Every case in which a loop that is a peer has the lower ratio; computed, and said first."""
    rows = []
    for cell in cells:
        if cell.subject in ("trio_agent", *RAW) or cell.subject not in BY_NAME:
            continue
        mine = find(cells, cell.bench, cell.case, cell.n)
        if mine is not None and cell.ratio.median < mine.ratio.median:
            rows.append(
                (
                    cell.bench, cell.case, f"{cell.n:,}", title_of(cell.subject), _grid_cell(cell), _grid_cell(mine),
                    f"{number(mine.ratio.median / cell.ratio.median)} times",
                )
            )  # fmt: skip
    if not rows:
        return "In no case that was measured of both has a peer the lower ratio."
    return table(("benchmark", "case", "N", "peer", "peer, x floor", "trio_agent, x floor", "faster by"), rows)


def figures_table(results: Results) -> str:
    """The figures to reach and what was measured."""
    rows = [
        (
            figure.what, figure.unit, number(figure.to_reach), number(figure.then),
            "-" if figure.measured is None else f"**{number(figure.measured)}**",
            figure.spread, figure.met, figure.remark, figure.peers,
        )
        for figure in figures(results)
    ]  # fmt: skip
    head = ("figure", "unit", "to reach", "then", "measured", "p10 to p90", "reached", "besides", "peers, same unit")
    return table(head, rows)


def scoreboard(results: Results) -> str:
    """The guarantees over all peers, and behind it what was seen where one does not hold."""
    verdicts = {(one.trial, one.peer): one for one in results.scoreboard}
    peers = [peer for peer in PEERS if any(one.peer == peer.name for one in results.scoreboard)]
    if not peers:
        return "No trial was run."
    rows = [
        (
            trial.guarantee, trial.title,
            *(MARKS[found.verdict] if (found := verdicts.get((trial.name, peer.name))) else "" for peer in peers),
        )
        for trial in TRIALS
    ]  # fmt: skip
    kept = [("", "**promises kept, of those that could be tried**", *(_count(results, peer.name) for peer in peers))]
    return table(("guarantee", "tried", *(peer.title for peer in peers)), [*rows, *kept])


def _count(results: Results, peer: str) -> str:
    tried = [one.verdict for one in results.scoreboard if one.peer == peer and one.verdict != "none"]
    return f"{tried.count('yes')} of {len(tried)}"


def scoreboard_details(results: Results) -> str:
    """What was seen in each trial that did not simply hold."""
    known = {trial.name: trial for trial in TRIALS}
    rows = [
        (title_of(one.peer), known[one.trial].title, MARKS[one.verdict], one.detail)
        for one in results.scoreboard
        if one.verdict != "yes" and one.trial in known
    ]
    return table(("of", "tried", "held", "what was seen"), rows) if rows else "Every promise was kept in every trial."


def after_table(cells: Sequence[Cell]) -> str:
    """What there is in the moment in which a cut call is over: the worst of the samples."""
    rows = []
    for subject in subjects(cells):
        for cell in cells:
            facts = cell.facts
            if cell.bench != "cancel" or cell.subject != subject or "outcome" not in facts:
                continue
            history = [one for one in facts.get("history", ()) if one is not None]
            results = facts["results"] if "results" in facts else [one["answered"] for one in history]
            valid = facts["valid"] if "valid" in facts else [one["valid"] for one in history]
            rows.append(
                (
                    title_of(subject), cell.case, f"{cell.n:,}", f"{min(facts['started']):,}",
                    duration(quantile(cell.values, 0.5)), duration(quantile(facts["unwound_us"], 0.5) / 1e6),
                    f"{max(facts['orphans']):,}", f"{min(results):,}" if results else "-",
                    ("yes" if all(valid) else "**no**") if valid else "-", ", ".join(sorted(set(facts["outcome"]))),
                )
            )  # fmt: skip
    head = ("of", "cut", "N", "at work", "over after", "last tool unwound after", "orphans", "results in the transcript",
            "transcript valid", "the call")  # fmt: skip
    return table(head, rows) if rows else "Not measured."


def turns_table(cells: Sequence[Cell]) -> str:
    """First and last turn of long runs."""
    rows = [
        (
            title_of(cell.subject), f"{cell.n:,}", duration(quantile(cell.facts["first_us"], 0.5) / 1e6),
            duration(quantile(cell.facts["last_us"], 0.5) / 1e6),
            number(quantile(cell.facts["last_us"], 0.5) / quantile(cell.facts["first_us"], 0.5)),
            number(cell.ratio.median), str(len(cell.values)),
        )
        for subject in subjects(cells)
        for cell in cells
        if cell.bench == "turns" and cell.subject == subject
    ]  # fmt: skip
    head = ("of", "turns", "one of the first", "one of the last", "last / first", "whole run, x floor", "samples")
    return table(head, rows)


def stream_table(cells: Sequence[Cell]) -> str:
    """Deltas and pieces."""
    rows = [
        (
            title_of(cell.subject), cell.case, f"{cell.n:,}", f"{number(cell.per_unit.median * 1e6)} us",
            number(cell.ratio.median * 5), number(cell.ratio.median),
            f"{max(lead):,}" if (lead := cell.facts.get("max_lead")) else "-", f"{cell.peak_mb:.0f} MB",
        )
        for subject in subjects(cells)
        for cell in cells
        if cell.bench == "stream" and cell.subject == subject
    ]  # fmt: skip
    head = ("of", "case", "deltas or bytes", "a delta or piece", "us at a floor of 5 us", "x floor", "run-ahead",
            "peak memory")  # fmt: skip
    return table(head, rows)


def levels_table(cells: Sequence[Cell]) -> str:
    """When the calls of each level were over, after a cut at the top."""
    rows = []
    for cell in cells:
        if cell.bench != "depth" or "levels" not in cell.facts:
            continue
        for name, samples in (("trio_agent", cell.facts["levels"]), ("bare nurseries", cell.floor_facts["levels"])):
            by_level: dict[int, list[float]] = {}
            for sample in samples:
                for level, us in sample:
                    by_level.setdefault(level, []).append(us)
            levels = sorted(by_level)
            shown = levels if len(levels) <= 8 else [levels[0], *levels[7::8]]
            for level in shown:
                times = by_level[level]
                rows.append(
                    (
                        cell.case.partition(",")[0], f"{cell.n}", name, str(level),
                        *(duration(quantile(times, q) / 1e6) for q in (0.1, 0.5, 0.9)), str(len(times)),
                    )
                )  # fmt: skip
    return table(("shape", "depth", "of", "level", "p10", "median", "p90", "calls"), rows) if rows else "Not measured."


def agents_table(cells: Sequence[Cell]) -> str:
    """Throughput and fairness of many agents."""
    rows = []
    for cell in cells:
        if cell.bench != "agents" or "calls_per_second" not in cell.facts:
            continue
        for name, facts in (("trio_agent", cell.facts), ("bare tasks", cell.floor_facts)):
            rate = quantile(facts["calls_per_second"], 0.5) if "calls_per_second" in facts else None
            rate = cell.per / quantile(cell.floor, 0.5) if rate is None else rate
            parts = (f"{100 * quantile(facts[part], 0.5):.0f} %" for part in _FINISHES)
            rows.append((name, f"{cell.n:,}", cell.case, f"{rate:,.0f}", *parts))
    head = ("of", "agents", "each", "calls a second", "first done after", "a tenth done after", "half done after")
    return table(head, rows) if rows else "Not measured."


_FINISHES = ("first_finish", "p10_finish", "median_finish")


def queue_table(cells: Sequence[Cell]) -> str:
    """Throughput of steering, and what got lost."""
    rows = [
        (
            cell.case, f"{cell.n:,}", f"{quantile(cell.facts['messages_per_second'], 0.5):,.0f}",
            number(cell.ratio.median), *(str(max(cell.facts[what])) for what in ("lost", "doubled", "disordered", "left")),
        )
        for cell in cells
        if cell.bench == "queue"
    ]  # fmt: skip
    head = ("queue", "messages", "messages a second", "x floor", "lost", "doubled", "out of order", "left behind")
    return table(head, rows) if rows else "Not measured."


def machine_table(results: Results) -> str:
    """Where and when it was measured."""
    rows = [
        (
            sitting["made"], sitting["machine"].get("processor", "?"), str(sitting["machine"]["cores"]),
            sitting["python"], ", ".join(f"{name} {version}" for name, version in sitting["packages"].items()),
            "?" if sitting.get("load_average") is None else f"{sitting['load_average']:.2f}",
            f"`{' '.join(sitting['command'])}`",
        )
        for sitting in results.sittings
    ]  # fmt: skip
    return table(("made", "processor", "cores", "Python", "packages", "load before", "command"), rows)


def peers_table(results: Results) -> str:
    """Versions and remarks of the peers."""
    rows = [
        (about.get("title", name), about.get("version", "?"), about.get("python", "?"), about.get("note", ""))
        for name, about in results.peers.items()
    ]
    return table(("peer", "version", "runs on", "what is measured"), rows) if rows else "No peers were run."


def missing_table(results: Results) -> str:
    """What could not be measured of a peer."""
    rows = [
        (about.get("title", name), one["bench"], one["case"], f"{one['n']:,}", one["kind"], one["why"])
        for name, about in results.peers.items()
        for one in about.get("missing", ())
    ]
    return table(("peer", "benchmark", "case", "N", "", "why"), rows) if rows else "Nothing."
