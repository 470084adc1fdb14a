"""The benchmark suite measures what it says, in every subcommand. Nothing here looks at how long anything took."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import floors
from bench.__main__ import BENCHMARKS, main
from bench.crew import Crew
from bench.measure import Case, Cell, Sample, interleave
from bench.owntools import example, load_tools
from bench.peers.adapter import Entry, Plan, answered_in_place, look_at
from bench.peers.on_asyncio import AsyncioAdapter
from bench.peers.scoreboard import BY_NAME, TRIALS, try_one
from bench.peers.table import PEERS, choose
from bench.peers.worker import cases, load
from bench.results import Results, Verdict
from bench.results import load as load_results
from bench.stats import Spread, paired_ratios, quantile, slope
from trio_agent import UsageError

ROOT = Path(__file__).parent.parent

# -------------------------------------------------------------- statistics


def test_quantiles_are_interpolated() -> None:
    values = [40.0, 10.0, 30.0, 20.0]
    assert [quantile(values, q) for q in (0, 0.5, 1)] == [10, 25, 40]
    assert quantile(values, 0.1) == pytest.approx(13)
    assert quantile(values, 0.9) == pytest.approx(37)
    assert quantile([7.0], 0.9) == 7


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_quantile_of_nothing_or_beyond_the_ends_is_refused(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile(values, q)


def test_a_spread_is_median_and_tenths_in_any_unit() -> None:
    spread = Spread.of([float(value) for value in range(11)])
    assert spread == Spread(5, 1, 9)
    assert spread.times(10) == Spread(50, 10, 90)


def test_ratios_are_taken_pair_by_pair() -> None:
    # The machine was three times slower during the second pair: both of it were, and the ratio does not see it.
    assert paired_ratios([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == [2, 2, 2]
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])


def test_the_slope_tells_linear_from_quadratic() -> None:
    sizes = [10.0, 100.0, 1000.0]
    assert slope(sizes, [3 * size for size in sizes]) == pytest.approx(1)
    assert slope(sizes, [size**2 for size in sizes]) == pytest.approx(2)
    with pytest.raises(ValueError, match="two different sizes"):
        slope([5.0, 5.0], [1.0, 2.0])


def test_first_and_last_are_medians_of_a_twentieth_without_the_cold_start() -> None:
    stamps = [0.0]
    for turn in range(100):
        stamps.append(stamps[-1] + (9e-6 if turn < 2 else 1e-6 if turn < 50 else 4e-6))
    facts = floors.first_and_last(stamps)
    assert facts["first_us"] == pytest.approx(1)
    assert facts["last_us"] == pytest.approx(4)


def test_fairness_is_in_parts_of_the_last_one() -> None:
    assert floors.fairness([1.0, 2.0, 4.0]) == pytest.approx(
        {"first_finish": 0.25, "p10_finish": 0.3, "median_finish": 0.5}
    )


# --------------------------------------------------------------- measuring


def case_of(floor: Callable[[], Sample], run: Callable[[], Sample], **settings: Any) -> Case:
    return Case(bench="b", case="c", n=10, floor_name="f", floor=floor, run=run, **{"per": 10, **settings})


def test_floor_and_subject_take_turns_and_the_first_round_is_thrown_away() -> None:
    order: list[str] = []

    def floor() -> Sample:
        order.append("floor")
        return Sample(float(len(order)))

    def run() -> Sample:
        order.append("run")
        return Sample(float(len(order)), {"at": len(order)})

    cell = interleave(case_of(floor, run), 3)
    assert order == ["floor", "run", "floor", "run", "run", "floor", "floor", "run"]
    assert cell.floor == [3, 6, 7]
    assert cell.values == [4, 5, 8]
    assert cell.facts == {"at": [4, 5, 8]}


def test_each_sample_begins_with_collected_garbage_and_the_collector_as_asked() -> None:
    states: list[tuple[bool, int]] = []

    def look() -> Sample:
        states.append((gc.isenabled(), gc.get_count()[2]))
        return Sample(1.0)

    interleave(case_of(look, look, collector=False), 1)
    assert states == [(False, 0)] * 4
    assert gc.isenabled()
    states.clear()
    interleave(case_of(look, look), 1)
    assert states == [(True, 0)] * 4


def test_a_spent_budget_ends_a_case_after_whole_pairs() -> None:
    cell = interleave(case_of(lambda: Sample(1.0), lambda: Sample(2.0)), 50, budget=0.0)
    assert (len(cell.floor), len(cell.values)) == (1, 1)


def test_no_repetition_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        interleave(case_of(lambda: Sample(1.0), lambda: Sample(1.0)), 0)


def test_a_ratio_is_of_one_unit_to_one_unit() -> None:
    cell = Cell(bench="b", case="c", n=100, subject="s", floor_name="f", unit="delta", per=100, floor_per=10)
    cell.floor, cell.values = [1.0, 2.0], [30.0, 60.0]
    assert cell.per_unit.median == pytest.approx(0.45)
    assert cell.floor_per_unit.median == pytest.approx(0.15)
    assert cell.ratio == Spread(3, 3, 3)


def cell_with(values: list[float], **settings: Any) -> Cell:
    found = Cell(
        bench="fanout", case="calls", subject="trio_agent", floor_name="f", unit="call",
        **{"n": 10, "per": 10, "floor_per": 10, **settings},
    )  # fmt: skip
    found.values, found.floor = values, [1.0] * len(values)
    found.facts = {"results": [10] * len(values)}
    return found


def test_results_survive_json_and_sittings_are_pooled_sample_by_sample(tmp_path: Path) -> None:
    first = Results([cell_with([1.0, 2.0])], [Verdict("pi-agent", "deaf", "no", "waits")])
    second = Results([cell_with([9.0]), cell_with([5.0], n=20)], [Verdict("pi-agent", "deaf", "yes")])
    for results in (first, second):
        results.add_sitting(quick=True)
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    first.write(paths[0])
    second.write(paths[1])
    together = load_results(paths)
    assert [(cell.n, cell.values, cell.facts) for cell in together.cells] == [
        (10, [1, 2, 9], {"results": [10, 10, 10]}),
        (20, [5], {"results": [10]}),
    ]
    assert [one.verdict for one in together.scoreboard] == ["yes"]
    assert len(together.sittings) == 2


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        Results.from_json({"format": 99})


# -------------------------------------------------------------- subcommands

SIZES = {"fanout": "3", "cancel": "3", "depth": "2", "stream": "40", "turns": "4", "agents": "2", "queue": "110"}


def run(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """What a command wrote into its JSON."""
    path = tmp_path / "out.json"
    assert main([*arguments, "--quick", "--reps", "1", "--json", str(path)]) == 0
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return data


@pytest.mark.slow  # some tools sleep for milliseconds, as what is measured does
@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs_and_says_what_it_measured(name: str, tmp_path: Path) -> None:
    data = run(tmp_path, name, "--n", SIZES.get(name, "3"))
    assert data["format"] == 1
    (sitting,) = [one for one in data["sittings"] if one["quick"]]
    assert sitting["machine"]["cores"] >= 1
    assert sitting["packages"]["trio"]
    assert sitting["python"].startswith(("CPython", "PyPy"))
    assert data["cells"]
    for cell in data["cells"]:
        assert cell["bench"] == name
        assert len(cell["values"]) == len(cell["floor"]) == cell["reps"] == 1
        assert cell["values"][0] > 0
        assert cell["floor"][0] > 0
        assert set(cell["summary"]) == {"per_unit", "floor_per_unit", "ratio"}
        assert cell["summary"]["ratio"].keys() == {"median", "p10", "p90"}
        assert cell["peak_mb"] > 1
        assert cell["floor_name"]
    facts = [cell["facts"] for cell in data["cells"]]
    if name == "cancel":
        cut = [one for one in facts if "started" in one]
        assert {cell["case"] for cell in data["cells"]} >= {"abort", "host", "deadline", "cancel_tool"}
        assert all(one["orphans"] == [0] and one["started"] == one["results"] for one in cut)
        assert [one["outcome"] for one in cut[:3]] == [["returned"], ["cancelled"], ["cancelled"]]
        assert all(one["valid"] == [True] for one in facts)
        # The library's own trials ran in a process of their own, and every promise was kept.
        verdicts = {one["trial"]: one["verdict"] for one in data["scoreboard"]}
        assert verdicts.keys() == BY_NAME.keys()
        timed = {"latency", "deaf", "swallow"}  # these three judge by the clock, and a machine may stand still
        assert {trial for trial, verdict in verdicts.items() if verdict != "yes"} <= timed
    if name == "depth":
        (levels,) = [one["levels"][0] for one in facts if "levels" in one]
        assert sorted(level for level, _ in levels) == [1, 2]
    if name == "stream":
        assert all(one["delivered"] for one in facts if one)
        assert all(one["max_lead"][0] < 40 for one in facts if one)
    if name == "queue":
        assert [(one["lost"], one["doubled"], one["left"]) for one in facts] == [([0], [0], [0])] * 2


def test_it_is_one_command(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "bench", "turns", "--quick", "--n", "3", "--reps", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "turns/turns" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fanout", "--n", "0"], "sizes are above 0"),
        (["turns", "--peers", "nobody"], "no peer 'nobody'"),
        (["peers", "run", "--peers", "trio_agent", "--bench", "agents"], "no benchmark 'agents' for peers"),
        (["fanout", "--tools", "no_such_module:x"], "no_such_module"),
        (["fanout", "--tools", "tests"], "write module:name"),
        (["report", "no-such-file.json"], "no-such-file.json"),
    ],
)
def test_what_does_not_exist_is_said_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "report":
        pytest.importorskip("matplotlib", reason="drawing needs the group `bench`")
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


# ----------------------------------------------------- the user's own tools

OWN = '''
from typing import Annotated, Literal
import msgspec, trio
from trio_agent import Tool, tool

@tool
async def wait(name: str, times: Annotated[int, msgspec.Meta(ge=3)], how: Literal["fast", "slow"] = "slow") -> str:
    """Wait."""
    await trio.sleep(0 if how == "fast" else 5)
    return name * times

@tool
async def quick(x: int) -> int:
    """Quick."""
    await trio.lowlevel.checkpoint()
    return x

@tool
def in_thread(x: int) -> int:
    """In a thread."""
    return x

def make(): return [(wait, {"name": "a", "times": 3}), quick, in_thread]
TOOLS = [quick, in_thread]
NONE = []
WRONG = [(quick, {"x": "many"})]
'''


@pytest.fixture
def own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "tools_of_mine.py").write_text(OWN, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "tools_of_mine"
    sys.modules.pop("tools_of_mine", None)


def test_own_tools_are_called_with_what_their_schemas_accept(own_tools: str) -> None:
    wait, quick, in_thread = load_tools(f"{own_tools}:make")
    assert wait.arguments == {"name": "a", "times": 3}
    assert quick.arguments == in_thread.arguments == {"x": 1}
    (alone,) = load_tools(f"{own_tools}:wait")
    assert alone.arguments == {"name": "x", "times": 3}


@pytest.mark.parametrize(("name", "said"), [("NONE", "is empty"), ("WRONG", "does not take"), ("OWN", "OWN")])
def test_tools_that_cannot_be_used_are_refused(own_tools: str, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_tools(f"{own_tools}:{name}")


def test_an_example_of_a_schema() -> None:
    assert example({"examples": [5], "default": 6}) == 5
    assert example({"enum": ["a", "b"]}) == "a"
    assert example({"$ref": "#/$defs/P", "$defs": {"P": {"type": "string", "minLength": 3}}}) == "xxx"
    assert example({"anyOf": [{"type": "null"}, {"type": "integer"}]}) is None
    nested = {"type": "array", "minItems": 2, "items": {"type": "number", "exclusiveMinimum": 4}}
    schema = {"type": "object", "required": ["a"], "properties": {"a": nested, "b": {}}}
    assert example(schema) == {"a": [5, 5]}


def test_fanout_of_own_tools(own_tools: str, tmp_path: Path) -> None:
    (cell,) = run(tmp_path, "fanout", "--tools", f"{own_tools}:TOOLS", "--n", "4")["cells"]
    assert cell["subject"] == f"{own_tools}:TOOLS"
    assert cell["facts"] == {"results": [4], "errors": [0]}


@pytest.mark.slow  # a tool that is over at once is never at work with the others: they are given a second
def test_cancel_of_own_tools(own_tools: str, tmp_path: Path) -> None:
    data = run(tmp_path, "cancel", "--tools", f"{own_tools}:make", "--n", "4")
    (cell,) = data["cells"]
    assert data["scoreboard"] == []
    facts = cell["facts"]
    assert (facts["orphans"], facts["results"], facts["valid"]) == ([0], [4], [True])
    assert facts["outcome"] == ["returned"]
    assert "aborted" in facts["kinds"][0]


def test_explore_of_own_tools(own_tools: str, tmp_path: Path) -> None:
    (explored,) = run(tmp_path, "explore", "--tools", f"{own_tools}:quick")["explored"]
    assert explored["runs"] > 20
    assert explored["places"] > 5
    assert explored["violations"] == []


# ------------------------------------------------------------------- peers


def test_every_peer_has_pinned_versions_and_an_adapter() -> None:
    for peer in PEERS:
        assert all("==" in what for what in peer.requires)
        assert all(what.rpartition("@")[2][0].isdigit() for what in peer.npm)
        module, _, cls = peer.adapter.partition(":")
        assert f"class {cls}(" in (ROOT / "bench" / "peers" / f"{module}.py").read_text("utf-8")
    assert [peer.name for peer in choose("all")] == [peer.name for peer in PEERS[1:]]


def test_the_guarantees_that_are_tried_stand_on_the_page_about_cancellation() -> None:
    page = (ROOT / "docs" / "cancellation.md").read_text("utf-8")
    for trial in TRIALS:
        assert f"\n| {trial.guarantee} | " in page


def entries(*pairs: str) -> list[Entry]:
    kinds: dict[str, Any] = {"c": "call", "r": "result", "u": "user", "t": "text"}
    return [Entry(kinds[pair[0]], f"c0-{pair[1:]}", f"value-{pair[1:]}" if pair[0] == "r" else "") for pair in pairs]


@pytest.mark.parametrize(
    ("transcript", "valid"),
    [
        (["u", "c0", "c1", "r0", "r1", "t"], True),
        (["u", "c0", "c1", "r1", "r0", "t"], True),
        (["u", "t", "u", "c0", "r0"], True),
        ([], True),
        (["u", "c0", "c1", "r0", "t"], False),
        (["u", "c0", "u", "r0"], False),
        (["u", "c0", "r0", "r0"], False),
        (["u", "c0", "c1", "r0", "r0"], False),
        (["u", "r0"], False),
        (["u", "c0"], False),
    ],
)
def test_a_transcript_is_valid_if_each_block_of_calls_is_answered_directly_behind(
    transcript: list[str], valid: bool
) -> None:
    assert answered_in_place(entries(*transcript)) is valid


def test_lost_and_untrue_results_are_counted() -> None:
    seen = look_at(entries("u", "c0", "c1", "c2", "r0", "r2", "t"), completed=[0, 1])
    # The second finished and its value is gone; the third never finished, and yet a value is shown.
    assert (seen["calls"], seen["answered"], seen["kept"], seen["completed"], seen["untrue"]) == (3, 2, 2, 2, 1)
    assert seen["last"] == "text"


class Careless(AsyncioAdapter):
    """A loop that does everything wrong: it leaves its tools behind, forgets them, and goes on asking."""

    def build(self, script: Any, tool: Any, crew: Crew, stamps: list[float] | None = None) -> Any:
        return Conversation(script, tool, crew)

    async def run(self, handle: Any, prompt: str = "go") -> None:
        handle.crew.requests += 1
        handle.tasks = [asyncio.create_task(handle.tool(index)) for index in range(handle.script[0])]
        try:
            await asyncio.shield(asyncio.gather(*handle.tasks, return_exceptions=True))
        except asyncio.CancelledError:  # noqa: ASYNC103 - the fault that is to be seen
            handle.crew.requests += 1

    async def history(self, handle: Any) -> list[Entry] | None:
        return [Entry("user"), *(Entry("call", f"c0-{index}") for index in range(handle.script[0]))]

    async def again(self, handle: Any) -> None:
        handle.crew.requests += 1
        handle.seen = [*(await self.history(handle) or ()), Entry("user")]

    def cancel_one(self, handle: Any, index: int) -> None:
        for task in handle.tasks:
            task.cancel()

    cannot = {"abort": "it has no stop"}  # noqa: RUF012 - a ClassVar of the base


class Conversation:
    def __init__(self, script: Any, tool: Any, crew: Crew) -> None:
        self.script, self.tool, self.crew = script, tool, crew
        self.seen: list[Entry] = []
        self.tasks: list[asyncio.Task[Any]] = []


@pytest.fixture
def careless() -> Iterator[Careless]:
    adapter = Careless()
    yield adapter
    adapter.close()


@pytest.fixture
def taskgroup() -> Iterator[Any]:
    adapter = load("asyncio")
    yield adapter
    adapter.close()


@pytest.mark.slow  # asyncio has no virtual clock; the tools that are left behind live for up to a second
def test_tools_that_outlive_the_call_are_counted(careless: Careless, taskgroup: Any) -> None:
    plan = Plan(n=7, act="host", body="clean-up", seconds=1.0)
    left = careless.cut(plan)
    assert (left.facts["started"], left.facts["orphans"]) == (7, 7)
    assert left.facts["tasks_left"] >= 7
    kept = taskgroup.cut(plan)
    assert (kept.facts["started"], kept.facts["orphans"], kept.facts["tasks_left"]) == (7, 0, 0)
    # Its last clean-up awaits for 0.7 s, and the call is over after it.
    assert kept.facts["unwound_us"] > 600_000
    assert kept.value * 1e6 >= kept.facts["unwound_us"]


@pytest.mark.slow  # as above
def test_a_tool_that_ends_after_the_call_is_seen_to_end_late(careless: Careless) -> None:
    sample = careless.cut(Plan(n=3, act="host", body="deaf", seconds=1.0))
    assert sample.facts["orphans"] == 3
    assert sample.facts["late_us"] > 0


@pytest.mark.slow  # as above
@pytest.mark.parametrize(
    "name", ["orphans", "latency", "answered", "lost", "said", "record", "again", "passes", "begins", "one"]
)
def test_each_trial_sees_the_fault_that_it_is_there_for(name: str, careless: Careless, monkeypatch: Any) -> None:
    monkeypatch.setattr("bench.peers.on_asyncio.PATIENCE", 2.0)
    monkeypatch.setattr("bench.peers.on_asyncio.LINGER", 0.05)
    verdict = try_one("careless", careless, BY_NAME[name])
    assert verdict.verdict == "no", verdict.detail


def test_a_missing_interface_is_no_failure(taskgroup: Any) -> None:
    verdict = try_one("asyncio", taskgroup, BY_NAME["answered"])
    assert verdict.verdict == "none"
    assert "no transcript" in verdict.detail


def test_a_trial_that_breaks_is_told_as_broken(careless: Careless, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan) -> Sample:
        raise RuntimeError("no adapter")

    monkeypatch.setattr(careless, "cut", broken)
    verdict = try_one("careless", careless, BY_NAME["orphans"])
    assert (verdict.verdict, "no adapter" in verdict.detail) == ("failed", True)


@pytest.mark.slow  # as above
@pytest.mark.parametrize("name", ["trio", "asyncio"])
def test_the_raw_rows_are_measured_like_peers(name: str) -> None:
    adapter = load(name)
    sizes = {"fanout": [1, 3], "turns": [3], "text": [5], "cancel": [2], "depth": [2]}
    try:
        found = [
            interleave(case, 1)
            for case in cases(adapter, list(sizes), sizes, {"subject": name})
            if "abort" not in case.case
        ]
    finally:
        adapter.close()
    assert [(cell.bench, cell.n) for cell in found] == [
        ("fanout", 1), ("fanout", 3), ("turns", 3), ("stream", 5), ("cancel", 2), ("depth", 2),
    ]  # fmt: skip
    assert all(cell.subject == name and cell.values[0] > 0 for cell in found)
