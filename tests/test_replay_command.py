"""``trio-agent replay``: what it prints, and how it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from trio_agent import Agent
from trio_agent.cli._replay import replay
from trio_agent.testing import Trace, compare
from trio_agent.testing import _scheduler as scheduler

HERE = Path(__file__).parent / "conformance"
SCENARIOS = HERE / "scenarios"
DEPARTURES = HERE / "departures.json"


def run(*args: object) -> Result:
    return CliRunner().invoke(replay, [str(arg) for arg in args])


def recorded(name: str) -> Path:
    return SCENARIOS / f"{name}.json"


def changed(tmp_path: Path, name: str, **changes: Any) -> Path:
    data = json.loads(recorded(name).read_bytes())
    data.update(changes)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(data))
    return path


def test_without_an_option_the_trace_is_shown_for_reading() -> None:
    result = run(recorded("tool_round"), recorded("plain_prompt"))
    assert result.exit_code == 0
    first, second = result.stdout.split("\n\n")
    lines = first.splitlines()
    assert lines[0].startswith("tool_round: ")
    assert lines[1] == "       0  host prompt n=0"
    assert '  request 1 model="p/m1" thinking_level="off" messages=["system", "user"]' in first
    assert lines[-1] == "   final  follow_up_left []"
    assert second.startswith("plain_prompt: ")


def test_json_is_one_object_for_a_file() -> None:
    result = run("--json", recorded("nested_call"))
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data.keys() == {"trace", "final"}
    expected = json.loads(recorded("nested_call").read_bytes())["expect"]
    assert compare(Trace.from_json(expected), Trace.from_json(data)) is None
    assert data["trace"] == expected["trace"]


def test_json_is_one_object_a_line_for_several_files() -> None:
    result = run("--json", recorded("tool_round"), recorded("plain_prompt"))
    assert [json.loads(line).keys() for line in result.stdout.splitlines()] == [{"trace", "final"}] * 2


def test_check_with_the_departures_passes_for_all_recorded_scenarios() -> None:
    result = run("--check", "--departures", DEPARTURES, *sorted(SCENARIOS.glob("*.json")))
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 95
    assert sum(line.startswith("ok ") for line in lines) == 86
    assert sum(line.startswith("departs ") for line in lines) == 8
    assert "departs listener_raises" in lines
    assert lines[-1] == "94 scenarios: 86 ok, 8 departs, 0 differs, 0 stale"


def test_check_names_what_differs_and_shows_the_first_difference_indented(tmp_path: Path) -> None:
    data = json.loads(recorded("plain_prompt").read_bytes())["expect"]
    data["trace"][3]["text"] = "ok, differs"
    result = run("--check", recorded("tool_round"), changed(tmp_path, "plain_prompt", expect=data))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[:2] == ["ok tool_round", "differs plain_prompt"]
    assert lines[2] == "    at trace[3]:"
    assert lines[3].startswith("      expected {")
    assert "ok, differs" in lines[3]
    assert lines[4].startswith("      actual   {")
    assert lines[5:] == ["2 scenarios: 1 ok, 0 departs, 1 differs, 0 stale"]


def test_check_without_departures_calls_a_departure_a_difference() -> None:
    result = run("--check", recorded("listener_raises"))
    assert result.exit_code == 1
    assert result.stdout.startswith("differs listener_raises\n")


def test_a_departure_that_is_none_any_more_is_stale(tmp_path: Path) -> None:
    listed = json.loads(DEPARTURES.read_bytes())
    listed["plain_prompt"] = listed["listener_raises"]
    path = tmp_path / "departures.json"
    path.write_text(json.dumps(listed))
    result = run("--check", "--departures", path, recorded("plain_prompt"), recorded("listener_raises"))
    assert result.exit_code == 1
    assert result.stdout.startswith("stale plain_prompt\n    it is listed as a departure")
    assert result.stdout.endswith("2 scenarios: 0 ok, 1 departs, 0 differs, 1 stale\n")


def test_a_departure_with_another_trace_differs(tmp_path: Path) -> None:
    listed = json.loads(DEPARTURES.read_bytes())
    listed["listener_raises"]["expect"]["final"]["error"] = "other"
    path = tmp_path / "departures.json"
    path.write_text(json.dumps(listed))
    result = run("--check", "--departures", path, recorded("listener_raises"))
    assert result.exit_code == 1
    assert "differs listener_raises\n    at final.error:\n" in result.stdout


def test_scripted_failures_are_in_the_trace_and_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert run("--json", recorded("convert_raises")).exit_code == 0
    assert caplog.records == []


@pytest.mark.parametrize("option", ["--check", "--json", "--seed=3"])
def test_a_stuck_scenario_does_not_hang(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stuck(agent: Agent, *args: object) -> None:
        await agent.wait_for_idle()
        await trio.Event().wait()

    monkeypatch.setattr(Agent, "prompt", stuck)
    monkeypatch.setattr(scheduler, "STALL_SECONDS", 0.02)
    result = run(option, recorded("plain_prompt"))
    assert result.exit_code == 1
    text = "the scenario 'plain_prompt' does not come to an end: every task waits"
    if option == "--check":
        assert result.stdout.startswith(f"differs plain_prompt\n    {text}")
    else:
        assert result.stdout == ""
        assert result.stderr.startswith(f"Error: {text}")


BROKEN = {
    "missing.json": (None, "No such file or directory"),
    "empty.json": (b"", "the file is no JSON"),
    "list.json": (b"[]", "is [], but must be an object"),
    "step.json": (
        b'{"name": "x", "level": "agent", "host": [], "model": [[{"slep": 10}]]}',
        'model[0][0] is {"slep": 10}',
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("option", ["--check", "--json", "--seed=1"])
def test_a_broken_file_is_one_line_and_exit_status_2(name: str, option: str, tmp_path: Path) -> None:
    content, text = BROKEN[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = run(option, recorded("plain_prompt"), path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"Error: {path}: ")
    assert text in result.stderr


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    result = run("--check", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path}: Is a directory\n"


def test_a_scenario_without_an_expectation_cannot_be_checked(tmp_path: Path) -> None:
    data = json.loads(recorded("plain_prompt").read_bytes())
    del data["expect"]
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(data))
    assert run("--json", path).exit_code == 0
    result = run("--check", path)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {path}: the scenario has no 'expect' to compare with\n"


def test_a_broken_file_of_departures_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "departures.json"
    path.write_text('{"x": 1}')
    for file, text in ((path, "x is 1"), (tmp_path / "missing.json", "No such file")):
        result = run("--check", "--departures", file, recorded("plain_prompt"))
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert text in result.stderr


@pytest.mark.parametrize(
    "args", [[], ["--json", "--check", "x.json"], ["--departures", "d.json", "x.json"], ["--nonsense", "x.json"]]
)
def test_wrong_usage_is_exit_status_2(args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.skipif(shutil.which("head") is None, reason="needs head")
@pytest.mark.parametrize("option", ["--check", "--json", ""])
def test_a_reader_that_goes_away_makes_no_traceback(option: str) -> None:
    script = "from trio_agent.cli._replay import replay; replay(prog_name='replay')"
    files = [str(path) for path in sorted(SCENARIOS.glob("*.json"))]
    command = [sys.executable, "-c", script, *([option] if option else []), *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert first
    assert errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_cannot_be_written_is_one_line() -> None:
    script = "from trio_agent.cli._replay import replay; replay(prog_name='replay')"
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, "--json", str(recorded("tool_round"))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "Error: the output: No space left on device\n"
