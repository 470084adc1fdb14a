"""The pictures of the page, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from bench.measure import Cell
from bench.results import Results
from bench.stats import quantile

from .tables import RAW, subjects, title_of
from .targets import number

COLOURS = {
    "trio_agent": "#c1121f", "trio": "#777777", "asyncio": "#777777", "node": "#777777", "pi-agent": "#1f77b4",
    "pi-loop": "#6baed6", "pydantic-ai": "#2ca02c", "openai-agents": "#9467bd", "langgraph-toolnode": "#ff7f0e",
    "langchain": "#b8860b", "anthropic": "#8c564b", "smolagents": "#17becf",
}  # fmt: skip
MARKERS = {
    "trio": "", "asyncio": "x", "node": "+", "pi-agent": "s", "pi-loop": "D", "pydantic-ai": "^",
    "openai-agents": "v", "langgraph-toolnode": "<", "langchain": ">", "anthropic": "p", "smolagents": "h",
}  # fmt: skip
_SETTINGS = {
    "svg.hashsalt": "trio_agent", "font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
    "axes.spines.right": False, "figure.facecolor": "white", "axes.axisbelow": True,
}  # fmt: skip


def style(subject: str) -> dict[str, Any]:
    """How the line of a subject looks, the same in every picture."""
    return {
        "color": COLOURS.get(subject, "#333333"),
        "marker": MARKERS.get(subject, "o"),
        "linestyle": "--" if subject in RAW else "-",
        "linewidth": 2.6 if subject == "trio_agent" else 1.3,
        "markersize": 5,
        "zorder": 5 if subject == "trio_agent" else 3,
        "label": title_of(subject),
    }


def draw_all(results: Results, folder: Path) -> list[str]:
    """Draw every picture for which there are figures.

    Returns:
      the names of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Sequence[Cell]], Figure | None]] = {
        "fanout": fan_out, "cancel": cancellation, "depth": depth, "levels": levels, "stream": stream, "turns": turns,
    }  # fmt: skip
    made: list[str] = []
    with mpl.rc_context(_SETTINGS):
        for name, maker in makers.items():
            path = folder / f"{name}.svg"
            path.unlink(missing_ok=True)
            figure = maker(results.cells)
            if figure is None:
                continue
            # Without a date, the same samples make the same file.
            figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
            made.append(path.name)
    return made


def _panels(count: int, width: float = 5.6, height: float = 4.2) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, [figure.add_subplot(1, count, index + 1) for index in range(count)]


def _lines(axes: Any, cells: Iterable[Cell], cases: Sequence[str], value: Callable[[Cell], float]) -> None:
    """A line for each subject over N; the first of the cases that it has."""
    chosen = [cell for cell in cells if cell.case in cases]
    for subject in subjects(chosen):
        mine = [cell for cell in chosen if cell.subject == subject]
        case = next(case for case in cases if any(cell.case == case for cell in mine))
        points = sorted((cell.n, value(cell)) for cell in mine if cell.case == case)
        look = style(subject)
        started = [max(cell.facts.get("started", [cell.n])) for cell in mine if cell.case == case]
        if all(cell.bench == "cancel" for cell in mine) and max(started) < max(cell.n for cell in mine):
            look["label"] += " (tools one by one)"
        axes.plot([n for n, _ in points], [y for _, y in points], **look)
    _logarithmic(axes, {cell.n for cell in chosen})


def _logarithmic(axes: Any, sizes: Iterable[int]) -> None:
    """Logarithmic axes with plain numbers; on the one below, the sizes that were measured."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(sizes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())


def _apart(sizes: Iterable[int]) -> list[int]:
    """Those sizes whose labels do not touch."""
    kept: list[int] = []
    for size in sorted(sizes):
        if not kept or size >= 1.8 * kept[-1]:
            kept.append(size)
    return kept


def _legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)


def fan_out(cells: Sequence[Cell]) -> Figure | None:
    """Cost of a call against N, for every peer."""
    mine = [cell for cell in cells if cell.bench == "fanout" and cell.case == "calls"]
    if not mine:
        return None
    figure, (left, right) = _panels(2)
    _lines(left, mine, ("calls",), lambda cell: cell.ratio.median)
    left.set(title="a call, as a multiple of a bare Trio task", xlabel="calls in one answer (N)", ylabel="x floor")
    _lines(right, mine, ("calls",), lambda cell: cell.per_unit.median * 1e6)
    right.set(title="a call, in microseconds", xlabel="calls in one answer (N)", ylabel="microseconds")
    _legend(figure, left)
    return figure


def cancellation(cells: Sequence[Cell]) -> Figure | None:
    """Time until the call is over against N."""
    mine = [cell for cell in cells if cell.bench == "cancel" and cell.case in ("abort", "host")]
    if not mine:
        return None
    figure, (left, right) = _panels(2)
    cases = ("abort", "host")
    _lines(left, mine, cases, lambda cell: cell.ratio.median)
    left.set(
        title="from the cut to the end, as a multiple of a bare cut", xlabel="sleeping tools (N)", ylabel="x floor"
    )
    _lines(right, mine, cases, lambda cell: quantile(cell.values, 0.5) * 1e3)
    right.set(title="from the cut to the end, in milliseconds", xlabel="sleeping tools (N)", ylabel="milliseconds")
    _legend(figure, left)
    return figure


def depth(cells: Sequence[Cell]) -> Figure | None:
    """Time until the uppermost call is over against depth."""
    cases = ("fan-out 1, abort", "fan-out 1, host")
    mine = [cell for cell in cells if cell.bench == "depth" and cell.case in cases]
    if not mine:
        return None
    figure, (left, right) = _panels(2)
    _lines(left, mine, cases, lambda cell: cell.ratio.median)
    left.set(title="cut at the top, as a multiple of bare nurseries", xlabel="agents deep", ylabel="x floor")
    _lines(right, mine, cases, lambda cell: quantile(cell.values, 0.5) * 1e3)
    right.set(title="cut at the top, in milliseconds", xlabel="agents deep", ylabel="milliseconds")
    _legend(figure, left)
    return figure


def levels(cells: Sequence[Cell]) -> Figure | None:
    """When the calls of each level were over: every call of every sample is a point."""
    mine = [cell for cell in cells if cell.bench == "depth" and "levels" in cell.facts and cell.n > 1]
    if not mine:
        return None
    figure, panels = _panels(len(mine), 4.6)
    for cell, axes in zip(mine, panels, strict=True):
        for name, samples, colour, shift in (
            ("bare nurseries", cell.floor_facts["levels"], "#777777", -0.15),
            ("trio_agent", cell.facts["levels"], COLOURS["trio_agent"], 0.15),
        ):
            points = [(level + shift, us / 1e3) for sample in samples for level, us in sample]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axes.scatter(xs, ys, s=6, alpha=0.35, color=colour, linewidths=0, label=name)
            middle: dict[float, list[float]] = {}
            for x, y in points:
                middle.setdefault(x, []).append(y)
            order = sorted(middle)
            axes.plot(order, [quantile(middle[x], 0.5) for x in order], color=colour, linewidth=1.2)
        axes.set(title=f"{cell.n} deep, {cell.case.partition(',')[0]}", xlabel="level (1 is the top)")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    panels[0].set_ylabel("milliseconds after the cut")
    panels[0].legend(frameon=False, fontsize=9, markerscale=2)
    return figure


def _bars(axes: Any, cells: Sequence[Cell], value: Callable[[Cell], float]) -> None:
    """A bar for each subject, the cheapest on top."""
    ordered = sorted(cells, key=value, reverse=True)
    names = [title_of(cell.subject) for cell in ordered]
    colours = [COLOURS.get(cell.subject, "#333333") for cell in ordered]
    axes.barh(names, [value(cell) for cell in ordered], color=colours, height=0.65)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for place, cell in enumerate(ordered):
        axes.annotate(f" {number(value(cell))}", (value(cell), place), va="center", fontsize=8)
    axes.margins(x=0.15)


def stream(cells: Sequence[Cell]) -> Figure | None:
    """What a delta and a piece cost, at the largest size that most subjects have."""
    found: list[tuple[str, list[Cell]]] = []
    for kind in ("text", "arguments"):
        mine = [
            cell
            for cell in cells
            if cell.bench == "stream" and cell.case in (f"{kind}, async listener", f"{kind}, memory channel")
        ]
        if mine:
            own = {cell.n for cell in mine if cell.subject == "trio_agent"} or {cell.n for cell in mine}
            sizes = {n: sum(cell.n == n for cell in mine) for n in own}
            size = max(sizes, key=lambda n: (sizes[n], n))
            found.append((kind, [cell for cell in mine if cell.n == size]))
    if not found:
        return None
    figure, panels = _panels(len(found), 6.2)
    for (kind, chosen), axes in zip(found, panels, strict=True):
        one_each = list({cell.subject: cell for cell in chosen}.values())
        _bars(axes, one_each, lambda cell: cell.per_unit.median * 1e6)
        what = f"{chosen[0].n:,} text deltas" if kind == "text" else f"{chosen[0].n / 1000:g} kB of arguments"
        axes.set(title=f"{what}: microseconds each", xlabel="microseconds")
    return figure


def turns(cells: Sequence[Cell]) -> Figure | None:
    """The first and the last turn of long runs."""
    mine = [cell for cell in cells if cell.bench == "turns"]
    if not mine:
        return None
    figure, (axes,) = _panels(1, 8.5)
    for subject in subjects(mine):
        points: list[tuple[float, float]] = []
        for cell in sorted((one for one in mine if one.subject == subject), key=lambda cell: cell.n):
            first, last = (quantile(cell.facts[name], 0.5) for name in ("first_us", "last_us"))
            points = points or [(1, first)]
            points.append((cell.n, last))
        axes.plot([n for n, _ in points], [us for _, us in points], **style(subject))
    _logarithmic(axes, {1, *(cell.n for cell in mine)})
    axes.set(
        title="what a turn costs, by how many there were before", xlabel="number of the turn", ylabel="microseconds"
    )
    _legend(figure, axes)
    return figure
