"""``trio-agent explore``: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trio_agent._closing import cut_result
from trio_agent._open import Record, error_result
from trio_agent.cli._explore import explore

SCENARIOS = Path(__file__).parent / "conformance" / "scenarios"


def run(*args: object) -> Result:
    return CliRunner().invoke(explore, [str(arg) for arg in args])


def recorded(name: str) -> Path:
    return SCENARIOS / f"{name}.json"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that says of every call that was cut that it never started."""

    def lie(record: Record, call: Any) -> Any:
        result = cut_result(record, call)
        return error_result("The call never started.", "not_started") if call.entered else result

    monkeypatch.setattr("trio_agent._closing.cut_result", lie)
    monkeypatch.setattr("trio_agent._batch.cut_result", lie)


def test_a_line_for_each_scenario_and_a_summary() -> None:
    result = run(recorded("plain_prompt"), recorded("tool_round"), "--acts", "abort,cancel", "--pairs", 5)
    assert result.exit_code == 0, result.output
    first, second, summary = result.stdout.splitlines()
    assert first.startswith("plain_prompt: ")
    assert second.startswith("tool_round: ")
    assert second.endswith(" runs, 0 violations")
    assert summary.startswith("2 scenarios, ")
    assert ", 0 violations in " in summary


def test_seeds_schedules_modes_and_samples_say_how_much_is_run() -> None:
    def runs(*args: object) -> int:
        result = run("--json", recorded("plain_prompt"), *args)
        assert result.exit_code == 0, result.output
        count: int = json.loads(result.stdout.splitlines()[-1])["runs"]
        return count

    assert runs("--acts", "abort", "--sample", 5) == 6
    assert runs("--acts", "abort", "--sample", 5, "--seeds", 2, "--schedules", 1) == 18
    assert runs("--acts", "abort", "--sample", 5, "--modes", "plain,slow") == 12
    assert runs("--only", "abort@step:3 seed=4") == 1
    assert runs("--keys", 500) < 10
    blocks = runs("--acts", "leave", "--blocks")
    assert blocks > 10


def test_json_is_one_object_for_each_scenario_and_one_for_all() -> None:
    result = run("--json", "--acts", "abort", recorded("plain_prompt"), recorded("tool_round"))
    first, second, total = map(json.loads, result.stdout.splitlines())
    assert first["scenario"] == "plain_prompt"
    assert second["violations"] == []
    assert total["scenarios"] == 2
    assert total["runs"] == first["runs"] + second["runs"]
    assert total["violations"] == 0


def test_a_violation_is_reported_and_its_commands_repeat_it(broken: None) -> None:
    path = recorded("abort_shielded_tool")
    result = run(path)
    assert result.exit_code == 1
    assert "breaks the invariant 'Truth'" in result.stdout
    assert result.stdout.splitlines()[-1].split(", ")[3].startswith("1 violations")
    code, command = [line.strip() for line in result.stdout.split("again:\n")[1].splitlines()[:2]]
    assert code.startswith(f'explore(scenario_host(Scenario.load("{path}")), only="')
    assert command.startswith(f'trio-agent explore {path} --only "')
    again = run(path, "--only", command.split('"')[1])
    assert again.exit_code == 1
    assert "breaks the invariant 'Truth'" in again.stdout
    told = json.loads(run("--json", path).stdout.splitlines()[0])["violations"]
    assert told[0]["invariant"] == "Truth"
    assert told[0]["case"] == command.split('"')[1]


def test_an_error_in_the_undisturbed_run_is_a_violation_too(broken: None) -> None:
    result = run(recorded("abort_parallel_tools"), "--acts", "steer", "--sample", 1)
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--acts", "abort,jump"], "there is no 'jump'; there are abort, cancel"),
        (["--acts", ","], "name at least one of abort"),
        (["--modes", "fast"], "there is no 'fast'; there are plain"),
        (["--seeds", "-1"], "-1"),
        (["--sample", "0"], "0"),
        (["--jobs", "0"], "0"),
        (["--only", "abort@sometime"], "'abort@sometime' is no part of a case"),
    ],
)
def test_wrong_options_are_refused(args: list[str], text: str) -> None:
    result = run(recorded("plain_prompt"), *args)
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


def test_a_file_that_is_missing_or_broken_ends_it_before_anything_is_run(tmp_path: Path) -> None:
    missing = run(recorded("plain_prompt"), tmp_path / "none.json")
    assert missing.exit_code == 2
    assert "none.json" in missing.output
    assert "runs" not in missing.output
    (tmp_path / "bad.json").write_text("{}")
    bad = run(recorded("plain_prompt"), tmp_path / "bad.json")
    assert bad.exit_code == 2
    assert "lacks the key" in bad.output


@pytest.mark.slow  # starts the program, and two processes of its own
def test_it_runs_in_several_processes() -> None:
    names = ("plain_prompt", "tool_round", "steer_two_all")
    command = [sys.executable, "-m", "trio_agent", "explore", *map(str, map(recorded, names)), "--acts", "abort"]
    done = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *lines, summary = done.stdout.splitlines()
    assert {line.split(":")[0] for line in lines} == set(names)
    assert summary.startswith("3 scenarios, ")
