"""The page: the template beside this module, filled with what was measured."""

from __future__ import annotations

import re
from pathlib import Path

from bench.results import Results

from . import tables

TEMPLATE = Path(__file__).with_name("page.md")
PROVIDER = "## Providers\n\nDecoding recorded streams, and encoding long transcripts.\n\n"
PICTURES = {
    "fanout": "Cost of a call against the number of calls, for every peer",
    "cancel": "Time from the cut to the end against the number of tools, for every peer",
    "depth": "Time from the cut to the end against the depth",
    "levels": "When the calls of each level were over after a cut at the top",
    "stream": "Cost of a text delta and of a piece of an argument, for every peer",
    "turns": "Cost of a turn against its number, for every peer",
}


def make_page(results: Results, folder: str, drawn: list[str]) -> str:
    """The text of the page."""
    cells = results.cells
    ours = [cell for cell in cells if cell.subject == "trio_agent"]
    quick = any(sitting["quick"] for sitting in results.sittings)

    def of(bench: str) -> str:
        chosen = [cell for cell in ours if cell.bench == bench]
        return tables.cells_table(chosen) if chosen else "Not measured."

    parts = {
        "quick": "\n:::{warning}\nMade of a `--quick` run: it shows that the suite works; its numbers mean nothing.\n:::\n"
        if quick
        else "",
        "faster": tables.where_peers_are_faster(cells),
        "figures": tables.figures_table(results),
        "scoreboard": tables.scoreboard(results),
        "scoreboard_details": tables.scoreboard_details(results),
        "fanout_grid": tables.ratio_grid(cells, "fanout", ("calls",)),
        "fanout_cells": of("fanout"),
        "cancel_grid": tables.ratio_grid(cells, "cancel", ("abort", "host")),
        "cancel_cells": of("cancel"),
        "cancel_after": tables.after_table(cells),
        "depth_grid": tables.ratio_grid(cells, "depth", ("fan-out 1, abort", "fan-out 1, host")),
        "levels": tables.levels_table(ours),
        "stream": tables.stream_table(cells),
        "turns": tables.turns_table(cells),
        "agents": tables.agents_table(ours),
        "agents_cells": of("agents"),
        "queue": tables.queue_table(ours),
        "provider": PROVIDER + of("provider") if any(cell.bench == "provider" for cell in ours) else "",
        "machine": tables.machine_table(results),
        "peers": tables.peers_table(results),
        "missing": tables.missing_table(results),
    }
    for name, text in PICTURES.items():
        parts[f"plot_{name}"] = f"![{text}]({folder}/{name}.svg)" if f"{name}.svg" in drawn else ""
    page = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], TEMPLATE.read_text("utf-8"))
    return re.sub(r"\n{3,}", "\n\n", page)
