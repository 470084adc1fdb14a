"""Writing the page and its pictures; the one module of the suite that needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from bench.results import Results

from .page import make_page
from .plots import draw_all


def write_report(results: Results, out: Path) -> None:
    """Write the page, and its pictures into a folder of the same name beside it.

    Raises:
      ValueError: nothing was measured.
    """
    if not results.cells and not results.scoreboard:
        raise ValueError("there is nothing in these files to make a report of; measure with --json FILE first")
    folder = out.with_suffix("")
    drawn = draw_all(results, folder)
    out.write_text(make_page(results, folder.name, drawn), "utf-8")
