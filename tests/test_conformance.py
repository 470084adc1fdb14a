"""The recorded traces of pi-agent-core, scenarios of our own, and the runner that plays both."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio._core._run as trio_run

from trio_agent import FormatError
from trio_agent.testing import (
    Difference,
    Scenario,
    ScenarioStuckError,
    SchedulerError,
    Trace,
    compare,
    judge,
    load_departures,
    run_scenario,
    seeded_scheduler,
)
from trio_agent.testing import _runner as runner
from trio_agent.testing import _scheduler as scheduler

HERE = Path(__file__).parent / "conformance"
RECORDED = sorted((HERE / "scenarios").glob("*.json"))
OWN = sorted((HERE / "own").glob("*.json"))
DEPARTURES = load_departures(HERE / "departures.json")
SEEDS = [0, 1, 2, 3, 4]

load = functools.cache(Scenario.load)


# ------------------------------------------------------------- the traces


def test_all_recorded_scenarios_are_here() -> None:
    assert len(RECORDED) == 94
    assert [path.stem for path in RECORDED] == [load(path).name for path in RECORDED]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_scenario(path: Path, seed: int) -> None:
    scenario = load(path)
    assert scenario.expect is not None
    departure = DEPARTURES.get(scenario.name)
    verdict = judge(scenario.expect, run_scenario(scenario, seed=seed), departure)
    assert verdict.status == ("ok" if departure is None else "departs"), verdict.difference


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_own_scenario(path: Path, seed: int) -> None:
    scenario = load(path)
    assert scenario.expect is not None
    assert compare(scenario.expect, run_scenario(scenario, seed=seed)) is None


@pytest.mark.parametrize("path", [*RECORDED, *OWN], ids=lambda path: path.stem)
def test_stored_traces_are_in_canonical_order(path: Path) -> None:
    data = json.loads(path.read_bytes())
    for key in data.keys() & {"expect", "expect_1_6"}:
        entries = [entry for entry in data[key]["trace"] if entry.get("request") != 0]
        assert Trace.from_json(data[key]).canonical().entries == entries


def test_departures_are_exactly_those_that_the_documentation_names() -> None:
    text = (Path(__file__).parent.parent / "docs" / "differences.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    named = {section.split("\n", 1)[0]: section.split("\n## ")[0] for section in sections}
    assert sorted(named) == sorted(DEPARTURES)
    assert set(DEPARTURES) <= {path.stem for path in RECORDED}
    for name, departure in DEPARTURES.items():
        lines = named[name].splitlines()
        quoted = " ".join(line.removeprefix("> ") for line in lines if line.startswith("> "))
        assert departure.reason == quoted, name


def test_the_newer_expectation_counts_where_there_is_one() -> None:
    newer = [path for path in RECORDED if "expect_1_6" in json.loads(path.read_bytes())]
    assert len(newer) == 4
    for path in newer:
        data = json.loads(path.read_bytes())
        assert load(path).expect == Trace.from_json(data["expect_1_6"])
        older = Trace.from_json(data["expect"])
        assert judge(older, run_scenario(load(path))).status == "differs"


# -------------------------------------------------------------- comparing


def entry(at: int = 0, **rest: Any) -> dict[str, Any]:
    return {"at": at, **rest}


def canonical(*entries: dict[str, Any]) -> list[Any]:
    return list(Trace(entries, {}).canonical().entries)


def test_neighbours_of_one_instant_are_sorted_by_their_outermost_call() -> None:
    one = entry(event="tool_execution_end", id="c2", n=1)
    ran = [entry(tool_run="c2"), entry(tool_run="c1")]
    nested = entry(nested="c1/1")
    after = entry(hook="after_tool_call", id="c2")
    inner = entry(hook="before_tool_call", id="c1/1")
    heard = entry(listener="x", on="tool_execution_update", id="c1")
    assert canonical(*ran, one, nested, after, inner, heard) == [ran[1], nested, inner, heard, ran[0], one, after]


def test_what_has_no_lane_or_another_instant_stays_where_it_is() -> None:
    stays = [
        entry(event="tool_execution_update", id="c2"),
        entry(hook="before_tool_call", id="c1"),
        entry(event="tool_execution_update", id="c1"),
        entry(1, event="tool_execution_update", id="c2"),
        entry(2, event="tool_execution_update", id="c1"),
        entry(2, host="steer"),
        entry(2, event="tool_execution_start", id="a"),
        entry(2, listener="x", on="tool_execution_start", id="0"),
        entry(2, host="prompt", settled="busy"),
        entry(2, host="prompt", n=0, settled="ok"),
    ]
    assert canonical(*stays) == stays


def test_ends_of_calls_that_never_ran_are_a_kind_of_their_own() -> None:
    ran = [entry(tool_run="c2"), entry(event="tool_execution_end", id="c2")]
    never = [entry(event="tool_execution_end", id="c1"), entry(listener="x", on="tool_execution_end", id="c0")]
    assert canonical(*ran, *never) == [*ran, never[1], never[0]]


def test_settled_calls_are_sorted_by_number_and_not_among_the_others() -> None:
    settled = [entry(host="prompt", n=n, settled="ok") for n in (10, 9, 2)]
    update = entry(event="tool_execution_update", id="0")
    assert canonical(*settled, update) == [*reversed(settled), update]


def test_requests_of_an_aborted_run_are_dropped() -> None:
    assert canonical(entry(request=0, aborted=True), entry(request=1)) == [entry(request=1)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (42, 42.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([{"a": [True]}], [{"a": [1]}], False),
    ],
)
def test_json_values_are_compared_as_json(one: Any, other: Any, same: bool) -> None:
    difference = compare(Trace([entry(x=one)], {"y": other}), Trace([entry(x=other)], {"y": other}))
    assert (difference is None) is same
    difference = compare(Trace([], {"y": one}), Trace([], {"y": other}))
    assert (difference is None) is same


def test_the_first_difference_is_named() -> None:
    long = Trace([entry(a=1), entry(a=2)], {"messages": [1, 2], "error": None})
    short = Trace([entry(a=1)], {"messages": [1, 2], "error": None})
    assert compare(long, short) == Difference("trace[1]", entry(a=2), None)
    assert compare(short, long) == Difference("trace[1]", None, entry(a=2))
    assert "expected nothing" in str(compare(short, long))
    other = Trace(long.entries, {"messages": [1, 3], "error": None})
    assert compare(long, other) == Difference("final.messages[1]", 2, 3)
    failed = Trace(long.entries, {"messages": [1, 2], "error": "x"})
    assert compare(long, failed) == Difference("final.error", None, "x")
    less = Trace(long.entries, {"messages": [1, 2]})
    assert compare(long, less) == Difference("final.error", None, None)


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    """Where the values of a JSON document stand: container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any]] = []
    for key, item in items:
        found += _leaves(item) if isinstance(item, dict | list) and item else [(value, key)]
    return found


@pytest.mark.parametrize("name", ["nested_call", "abort_parallel_tools", "loop_poll_order", "listener_raises"])
def test_a_change_of_any_value_of_an_expectation_is_found(name: str) -> None:
    scenario = load(HERE / "scenarios" / f"{name}.json")
    actual = run_scenario(scenario, seed=0).to_json()
    for number in range(len(_leaves(actual))):
        changed = copy.deepcopy(actual)
        container, key = _leaves(changed)[number]
        container[key] = "changed" if container[key] != "changed" else "else"
        assert compare(Trace.from_json(changed), Trace.from_json(actual)) is not None, (number, key)


@pytest.mark.parametrize("value", [None, True, 7, "x", [], {}], ids=repr)
def test_no_value_at_any_place_of_an_expectation_makes_comparing_fail(value: Any) -> None:
    scenario = load(HERE / "scenarios" / "nested_call.json")
    assert scenario.expect is not None
    actual = scenario.expect.to_json()
    for number in range(len(_places(actual))):
        changed = copy.deepcopy(actual)
        container, key = _places(changed)[number]
        container[key] = value
        with contextlib.suppress(FormatError):
            str(compare(Trace.from_json(changed), scenario.expect))


def test_a_departure_that_is_none_any_more_is_stale() -> None:
    reference, own, third = (Trace([entry(a=number)], {}) for number in range(3))
    departure = next(iter(DEPARTURES.values()))
    ours = type(departure)("x", "because", own)
    assert judge(reference, reference).status == "ok"
    assert judge(reference, own).status == "differs"
    assert judge(reference, own, ours).status == "departs"
    assert judge(reference, reference, ours).status == "stale"
    assert judge(reference, third, ours).status == "differs"
    assert judge(reference, reference, type(departure)("x", "because", reference)).status == "stale"


# --------------------------------------------------------------- the runner


def minimal(**parts: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "level": "agent",
        "tools": {"t": {"calls": [[{"sleep": 50}, {"return": {"text": "T"}}]]}},
        "agent": {"tools": ["t"]},
        "model": [[{"text": ["a"]}, {"done": "stop"}]],
        "host": [{"when": {"at": 0}, "do": "prompt", "text": "Go."}],
        **parts,
    }


def play(**parts: Any) -> Trace:
    return run_scenario(Scenario.from_json(minimal(**parts)), seed=0)


def test_a_scenario_can_be_played_again_and_gives_the_same() -> None:
    scenario = Scenario.from_json(minimal(model=[[{"error": "no"}]]))
    assert run_scenario(scenario, seed=7) == run_scenario(scenario, seed=7)


def test_a_request_beyond_the_scripted_turns_is_in_the_trace() -> None:
    trace = play(model=[])
    assert "request 1 finds no turn" in trace.final["error"]


def test_a_turn_without_an_end_is_in_the_trace() -> None:
    assert "without an answer" in play(model=[[{"text": ["a"]}]]).final["error"]


def test_a_tool_without_a_script_is_in_the_trace() -> None:
    call = {"tool_call": {"id": "c1", "name": "t", "arguments": {}}}
    trace = play(
        tools={"t": {"by_id": {"c2": []}}}, model=[[call, {"done": "tool_use"}], [{"text": ["a"]}, {"done": "stop"}]]
    )
    assert "has nothing for 'c1'" in trace.final["messages"][3]["text"]


def test_the_last_of_a_tools_calls_repeats_and_steps_may_end_without_a_result() -> None:
    calls = [{"tool_call": {"id": f"c{n}", "name": "t", "arguments": {}}} for n in range(3)]
    trace = play(
        agent={"tools": ["t"], "tool_execution": "sequential"},
        tools={"t": {"calls": [[{"return": {"text": "first"}}], [{"sleep": 50}]]}},
        model=[[*calls, {"done": "tool_use"}], [{"text": ["a"]}, {"done": "stop"}]],
    )
    results = [message["text"] for message in trace.final["messages"] if message["role"] == "tool_result"]
    assert results == ["first", "", ""]


@pytest.mark.parametrize("shield", [False, True])
def test_a_scenario_that_waits_for_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, shield: bool) -> None:
    async def wait_for_ever(*args: Any, **settings: Any) -> Any:
        with trio.CancelScope(shield=shield):
            await trio.Event().wait()

    monkeypatch.setattr(runner, "play", wait_for_ever)
    monkeypatch.setattr(scheduler, "STALL_SECONDS", 0.02)
    with pytest.raises(ScenarioStuckError, match=r"'x' does not come to an end.*at 0 ms.*host\[0\] prompt") as caught:
        play()
    assert caught.value.entries[0] == {"at": 0, "host": "prompt", "n": 0}


def test_a_scenario_that_runs_on_and_on_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_for_ever(*args: Any, **settings: Any) -> Any:
        while True:  # noqa: ASYNC110 - the fault under test
            await trio.sleep(1)

    monkeypatch.setattr(runner, "play", run_for_ever)
    monkeypatch.setattr(scheduler, "CPU_SECONDS", 0.05)
    with pytest.raises(ScenarioStuckError, match=r"it has computed for 0\.05 seconds"):
        play()


def test_a_keyboard_interrupt_comes_out_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*args: Any, **settings: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play()


def test_the_seed_decides_the_order_of_tasks_and_is_put_back() -> None:
    async def order() -> list[int]:
        seen: list[int] = []

        async def child(number: int) -> None:
            await trio.lowlevel.checkpoint()
            seen.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(child, number)
        return seen

    before = (trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING)
    orders = []
    for seed in (1, 1, 2):
        with seeded_scheduler(seed):
            orders.append(trio.run(order))
    assert orders[0] == orders[1] != orders[2]
    assert (trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING) == before


def test_a_trio_that_cannot_be_seeded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trio_run, "_r")
    with pytest.raises(SchedulerError, match=r"has no trio\._core\._run\._r"), seeded_scheduler(1):
        pass  # pragma: no cover - the block is never entered
    with seeded_scheduler(None):
        assert not hasattr(trio_run, "_r")


# ------------------------------------------------------------ broken files


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        target: Any = data
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in parents:
            target = target[key]
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


def rich() -> dict[str, Any]:
    """A scenario with something of everything."""
    return minimal(
        expect={"trace": [{"at": 0}], "final": {}},
        agent={"tools": ["t"], "messages": [{"role": "user", "text": "x"}]},
        tools={
            "t": {
                "prepare_arguments": {"rename": {"a": "b"}, "set": {}},
                "calls": [[{"sleep": 1, "shield": True}, {"update": "u", "late": 1}, {"return": {"text": "x"}}]],
                "by_id": {"c1": [{"host": [{"do": "abort"}]}, {"raise": "x"}]},
            }
        },
        model=[[{"text": ["a"], "gap": 1}, {"tool_call": {"id": "c", "name": "t"}}, {"done": "stop"}]],
        hooks={
            "before_tool_call": [{"id": "c1", "block": True}],
            "prepare_next_turn": [{"append": [], "model": "p/m"}],
            "listeners": [{"name": "l", "rules": [{"on": "turn_end", "sleep": 1}]}],
        },
    )


def test_the_rich_scenario_is_whole() -> None:
    assert Scenario.from_json(rich()).expect is not None


BROKEN: dict[str, tuple[str, Any]] = {
    "lacks the key 'name'": ("name", None),
    "name is 3, but must be a string": ("name", 3),
    "lacks the key 'host'": ("host", None),
    'level is "both", but must be one of agent, loop': ("level", "both"),
    "has the key 'hots'": ("hots", []),
    "model is {}, but must be an array": ("model", {}),
    "model[0] is 1, but must be an array": ("model.0", 1),
    'model[0][0] is {"txt": []}, but must be an object with exactly one of the keys sleep': ("model.0.0", {"txt": []}),
    "exactly one of the keys": ("model.0.0", {"text": [], "thinking": []}),
    'model[0][0].text is "abc", but must be an array': ("model.0.0.text", "abc"),
    "model[0][0].gap is -1, but must be a number of milliseconds": ("model.0.0.gap", -1),
    "model[0][0].gap is Infinity": ("model.0.0.gap", float("inf")),
    "model[0][0].gap is true": ("model.0.0.gap", True),
    "model[0][0] has the key 'gasp'": ("model.0.0.gasp", 1),
    "model[0][1].tool_call lacks the key 'id'": ("model.0.1.tool_call.id", None),
    'model[0][2].done is "maybe"': ("model.0.2.done", "maybe"),
    "model[0][0].start is false": ("model.0.0", {"start": False}),
    'tools.t.description is ["x"]': ("tools.t.description", ["x"]),
    "tools.t is no tool": ("tools.t.parameters", {"type": "object", "properties": 3}),
    "tools.t.calls[0][0].sleep": ("tools.t.calls.0.0.sleep", "long"),
    "tools.t.calls[0][0] has the key 'late'": ("tools.t.calls.0.0.late", 1),
    'tools.t.by_id.c1[0].host[0].do is "jump"': ("tools.t.by_id.c1.0.host.0.do", "jump"),
    "tools.t.by_id.c1[0].host[0].do is 'run', which there is not at agent level": (
        "tools.t.by_id.c1.0.host.0.do",
        "run",
    ),
    "tools.t.prepare_arguments.rename.a is 1": ("tools.t.prepare_arguments.rename.a", 1),
    'agent.tools[0] is "u", but must be a key of the scenario\'s tools: t': ("agent.tools.0", "u"),
    "agent.tools[0] is []": ("agent.tools.0", []),
    "agent.messages[0].role is 1": ("agent.messages.0.role", 1),
    "agent.messages[0] lacks the key 'text'": ("agent.messages.0", {"role": "user"}),
    'agent.messages[0].error is "eaten"': (
        "agent.messages.0",
        {"role": "tool_result", "id": "c", "name": "t", "error": "eaten"},
    ),
    "agent.messages[0].content[0] is": ("agent.messages.0", {"role": "assistant", "content": [{"video": 1}]}),
    "agent has the key 'api_key'": ("agent.api_key", "k"),
    'agent.model is "m1", but must be PROVIDER/ID': ("agent.model", "m1"),
    "hooks has the key 'before_lunch'": ("hooks.before_lunch", []),
    "hooks has the key 'get_steering_messages'": ("hooks.get_steering_messages", []),
    "hooks.before_tool_call[0].nth is 0, but must be a whole number from 1": ("hooks.before_tool_call.0.nth", 0),
    "hooks.before_tool_call[0] has the key 'action'": ("hooks.before_tool_call.0.action", "end"),
    "hooks.prepare_next_turn[0] has the key 'tool'": ("hooks.prepare_next_turn.0.tool", "t"),
    "hooks.prepare_next_turn[0].keep_last is -1": ("hooks.prepare_next_turn.0.keep_last", -1),
    'hooks.listeners[0].rules[0].on is "lunch"': ("hooks.listeners.0.rules.0.on", "lunch"),
    "host[0] lacks the key 'when'": ("host.0.when", None),
    "host[0].when is {}, but must be an object with exactly one of the keys at, on": ("host.0.when", {}),
    "host[0].when has the key 'after'": ("host.0.when", {"at": 0, "after": 1}),
    "host[0] is": ("host.0.messages", []),
    "host[0].images[0] lacks the key 'data'": ("host.0.images", [{}]),
    "expect is": ("expect", {"trace": []}),
    "expect.trace[0] is": ("expect.trace", [[]]),
    "expect.final is []": ("expect.final", []),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_scenario_names_file_place_and_value(text: str, tmp_path: Path) -> None:
    data = rich()
    _set(*BROKEN[text])(data)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=re.escape(text) if "Infinity" not in text else "no JSON") as caught:
        Scenario.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, True, 7, "x", [], {}, [[]], [{}], {"a": {}}], ids=repr)
def test_no_value_at_any_place_makes_the_reader_fail_otherwise(value: Any) -> None:
    for number in range(len(_places(rich()))):
        data = rich()
        container, key = _places(data)[number]
        container[key] = value
        with contextlib.suppress(FormatError):
            Scenario.from_json(data)


def _places(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [place for key, item in items for place in ((value, key), *_places(item))]


@pytest.mark.parametrize("content", [b"", b"{", b"[NaN]", b"\xff\xfe", b"[" * 100_000, b'"\\ud800'])
def test_a_file_that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=re.escape(f"{path}: the file is no JSON")):
        Scenario.load(path)
    with pytest.raises(FormatError, match=re.escape(f"{path}: the file is no JSON")):
        load_departures(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "the file holds []"),
        ({"x": 1}, "x is 1"),
        ({"x": {"reason": "r"}}, "x is {'reason': 'r'}"),
        ({"x": {"reason": " ", "expect": {}}}, "x.reason is ' '"),
        ({"x": {"reason": "r", "expect": {"trace": []}}}, "x.expect is {'trace': []}"),
    ],
)
def test_a_broken_file_of_departures_is_refused(data: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "departures.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=re.escape(text)) as caught:
        load_departures(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_scenarios_are_played_on_the_public_interface_of_the_library_alone() -> None:
    folder = Path(runner.__file__).parent
    names = ("_runner", "_subjects", "_script", "_scripted_hooks", "_scenario", "_scenario_parts", "_trace")
    for path in (folder / f"{name}.py" for name in names):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                assert not node.module.startswith("trio_agent."), (path, node.module)
            if isinstance(node, ast.ImportFrom):
                assert node.level < 2, path
