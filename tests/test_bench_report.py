"""The report computes every figure from the samples, and says first where a peer is faster."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.measure import Cell
from bench.peers.scoreboard import TRIALS
from bench.report.page import make_page
from bench.report.targets import figures
from bench.results import Results, Verdict

ROOT = Path(__file__).parent.parent


def cell(bench: str, case: str, n: int, ratio: float, subject: str = "trio_agent", **settings: Any) -> Cell:
    """A case whose floor takes 10 microseconds a unit, in three samples, of which the middle one counts."""
    per = settings.pop("per", n)
    facts = settings.pop("facts", {})
    made = Cell(
        bench=bench, case=case, n=n, subject=subject, floor_name="f", per=per,
        **{"unit": "call", "floor_per": per, **settings},
    )  # fmt: skip
    made.floor = [1e-5 * made.floor_per] * 3
    made.values = [1e-5 * per * ratio * factor for factor in (0.5, 1.0, 2.0)]
    made.facts = {name: [value] * 3 for name, value in facts.items()}
    return made


def measured() -> Results:
    cut = {"orphans": 0, "results": 100, "started": 100}
    one = {"orphans": 0, "started": 1}
    levels = [[1, 900.0], [2, 300.0]]
    deep = cell("depth", "fan-out 1, latency by level", 2, 1.0, facts={"levels": levels})
    deep.floor_facts = {"levels": [levels] * 3}
    many = cell("agents", "10 calls a turn, 5 turns", 1000, 4.0, facts={
        "calls_per_second": 9000.0, "first_finish": 0.5, "p10_finish": 0.6, "median_finish": 0.9,
    })  # fmt: skip
    many.floor_facts = {name: [0.9] for name in ("first_finish", "p10_finish", "median_finish")}
    queue = {"messages_per_second": 5e4, "lost": 0, "doubled": 0, "disordered": 0, "left": 0}
    results = Results([
        cell("fanout", "calls", 1, 10.0),
        cell("fanout", "calls", 100, 2.9),
        cell("fanout", "calls", 5000, 4.2),
        cell("fanout", "calls", 20_000, 4.6),
        cell("fanout", "memory", 1000, 2.1, measure="bytes"),
        cell("fanout", "calls", 100, 2.0, "pi-agent"),
        cell("fanout", "calls", 100, 30.0, "pydantic-ai"),
        cell("fanout", "calls", 100, 0.5, "asyncio"),
        cell("cancel", "abort", 100, 1.5, facts=cut),
        cell("cancel", "host", 100, 1.9, facts=cut),
        cell("cancel", "host", 100, 0.1, "anthropic", facts=one),
        cell("depth", "fan-out 1, abort", 8, 3.0),
        deep,
        cell("stream", "text, sync listener", 10_000, 0.3, per=10_000, floor_per=1000,
             facts={"max_lead": 17, "delivered": 10_000}),
        cell("stream", "arguments, async listener", 50_000, 0.2, per=5000, floor_per=1000, facts={"max_lead": 17}),
        cell("stream", "arguments, async listener", 400_000, 0.2, per=40_000, floor_per=1000, facts={"max_lead": 17}),
        cell("turns", "turns", 1000, 7.0, facts={"first_us": 100.0, "last_us": 104.0}),
        cell("turns", "turns", 1000, 60.0, "pydantic-ai", facts={"first_us": 100.0, "last_us": 1000.0}),
        many,
        cell("queue", "mode all", 11_000, 3.0, facts=queue),
    ])  # fmt: skip
    results.scoreboard = [Verdict("trio_agent", trial.name, "yes", "all well") for trial in TRIALS]
    results.scoreboard.append(Verdict("pi-agent", "deaf", "no", "over after 1500 ms, 0 alive then"))
    results.scoreboard.append(Verdict("pi-agent", "threads", "none", "its tools run in one thread"))
    for name in ("pi-agent", "pydantic-ai", "anthropic", "asyncio"):
        results.peers[name] = {"name": name, "title": name, "version": "1", "note": "noted", "missing": []}
    results.add_sitting(quick=False)
    return results


def test_the_figures_to_reach_are_computed_from_the_samples() -> None:
    rows = {row.what: row for row in figures(measured())}
    assert len(rows) == 15
    fan_out = rows["fan-out, per call of a whole run, N = 100"]
    assert fan_out.measured == pytest.approx(2.9)
    assert fan_out.met == "yes"
    assert fan_out.peers == "pi-agent 2.00; pydantic-ai 30.0"
    assert rows["fan-out, per call of a whole run, N = 5,000"].met == "**no**"
    assert rows["fan-out, per call of a whole run, N = 1,000"].met == "not measured"
    assert rows["one run with one call"].measured == pytest.approx(10)
    abort = rows["abort to `prompt()` returned, N = 100"]
    assert (abort.met, abort.remark) == ("yes, and the next", "0 orphans, 100 results")
    assert abort.peers == "anthropic 0.10 (one tool at work)"
    assert rows["nested 8 deep, cancel at the top"].measured == pytest.approx(3)
    # 0.3 of a task, which would take 5 microseconds.
    assert rows["text delta, sync listener"].measured == pytest.approx(1.5)
    assert "run-ahead at most 17" in rows["text delta, sync listener"].remark
    pieces = rows["400 kB argument in 10-byte pieces"]
    assert pieces.measured == pytest.approx(2)
    assert "to the power of 1.00" in pieces.remark
    turns = rows["turn 1,000 against turn 1"]
    assert turns.measured == pytest.approx(1.04)
    assert turns.peers == "pydantic-ai 10.0"
    assert rows["memory of a running call, against a bare task"].measured == pytest.approx(2.1)
    grows = rows["cost of a call at N = 20,000 against N = 100, collector on"]
    assert grows.measured == pytest.approx(4.6 / 2.9)
    assert grows.met == "**no**"


def test_the_page_says_first_where_a_peer_is_faster() -> None:
    page = make_page(measured(), "benchmarks", ["fanout.svg"])
    assert page.startswith("# Benchmarks\n")
    sections = [line for line in page.splitlines() if line.startswith("## ")]
    assert sections[:3] == ["## Where a peer is faster", "## The figures to reach", "## Guarantees: the scoreboard"]
    faster = page.partition("## Where a peer is faster")[2].partition("\n## ")[0]
    assert "| fanout | calls | 100 | pi-agent-core Agent | 2.00 (20.0 us) | 2.90 (29.0 us) | 1.45 times |" in faster
    assert "| cancel | host | 100 |" in faster, "a host's cancellation is compared with ours, not with our abort"
    assert "1.90 (19.0 us) | 19.0 times |" in faster
    assert "1 at work" in faster
    # The raw rows are no loops, and who is slower is not named.
    assert "asyncio" not in faster
    assert "pydantic" not in faster


def test_the_page_shows_the_scoreboard_and_what_was_seen() -> None:
    page = make_page(measured(), "benchmarks", [])
    line = next(line for line in page.splitlines() if "knows nothing of cancellation is cut" in line)
    assert line == "| At once | a tool that knows nothing of cancellation is cut | yes | **no** |"
    assert f"| {len(TRIALS)} of {len(TRIALS)} | 0 of 1 |" in page
    assert "| pi-agent-core Agent | a tool that knows nothing of cancellation is cut | **no** | over after 1500" in page
    assert "{" not in page
    assert "![" not in page


def test_a_quick_run_is_marked() -> None:
    results = measured()
    assert "{warning}" not in make_page(results, "benchmarks", [])
    results.add_sitting(quick=True)
    assert "its numbers mean nothing" in make_page(results, "benchmarks", [])


def test_without_a_faster_peer_the_page_says_so() -> None:
    results = measured()
    results.cells = [one for one in results.cells if one.subject == "trio_agent"]
    assert "In no case that was measured of both" in make_page(results, "benchmarks", [])


def test_a_report_of_files_has_a_picture_of_everything_that_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the pictures need the group bench")
    measured().write(tmp_path / "1.json")
    page = tmp_path / "new" / "page.md"
    assert main(["report", str(tmp_path / "1.json"), "--out", str(page)]) == 0
    pictures = sorted(path.name for path in (tmp_path / "new" / "page").iterdir())
    assert pictures == ["cancel.svg", "depth.svg", "fanout.svg", "levels.svg", "stream.svg", "turns.svg"]
    for name in pictures:
        root = ET.parse(tmp_path / "new" / "page" / name).getroot()
        assert root.tag.endswith("svg")
        assert f"](page/{name})" in page.read_text("utf-8")
    again = {path.name: path.read_bytes() for path in (tmp_path / "new" / "page").iterdir()}
    assert main(["report", str(tmp_path / "1.json"), "--out", str(page)]) == 0
    assert again == {path.name: path.read_bytes() for path in (tmp_path / "new" / "page").iterdir()}


def test_a_report_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the report needs the group bench")
    Results().write(tmp_path / "1.json")
    assert main(["report", str(tmp_path / "1.json"), "--out", str(tmp_path / "page.md")]) == 2
    assert "nothing in these files" in capsys.readouterr().err


def test_the_page_of_the_documentation_is_one_that_the_report_made() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert "Made by `python -m bench report`" in page
    for line in page.splitlines():
        if line.startswith("!["):
            assert (ROOT / "docs" / line.partition("](")[2].rstrip(")")).exists()
