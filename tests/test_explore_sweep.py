"""Every scenario, cut at moments drawn from all that it has: no invariant fails (design 7.9).

This is the part of the exploration that every test run makes. The whole of it takes longer:
``trio-agent explore tests/conformance/*/*.json`` with the options that docs/cancellation.md names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_agent import _batch
from trio_agent.testing import ACTS, MODES, Scenario, explore, explore_key_interrupts, scenario_host

HERE = Path(__file__).parent / "conformance"
FILES = sorted((*(HERE / "scenarios").glob("*.json"), *(HERE / "own").glob("*.json")))
KEYS = [
    "abort_parallel_tools",
    "abort_shielded_tool",
    "after_hook_overrides",
    "before_hooks_one_by_one",
    "follow_up_one_at_a_time",
    "late_update_ignored",
    "loop_poll_order",
    "nested_call",
    "next_turn_append_and_replace",
    "sequential_setting",
    "steer_two_all",
    "tool_round",
]
"""Scenarios in which SIGINT comes at lines of the library."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_invariant_fails_wherever_a_scenario_is_cut(path: Path) -> None:
    """Random and priority orders, each mode, single acts and pairs."""
    host = scenario_host(Scenario.load(path))
    explore(host, schedules=1, modes=MODES, sample=6, pairs=4).raise_for_failures()


@pytest.mark.parametrize("name", ["abort_parallel_tools", "nested_call", "abort_while_preparing", "tool_round"])
def test_no_invariant_fails_wherever_a_batch_is_cut_that_begins_call_by_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of more calls than begin at once has a checkpoint between them; here every batch has."""
    monkeypatch.setattr(_batch, "AT_ONCE", 1)
    host = scenario_host(Scenario.load(next(path for path in FILES if path.stem == name)))
    explore(host, schedules=1, modes=MODES, sample=60, pairs=20).raise_for_failures()


AGENTS = [path for path in FILES if Scenario.load(path).level == "agent"]


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_no_invariant_fails_wherever_a_scenario_is_left(path: Path) -> None:
    """The same in the form of a block, which is left early, too."""
    host = scenario_host(Scenario.load(path), blocks=True)
    explore(host, acts=["leave"], sample=10).raise_for_failures()
    explore(host, schedules=1, sample=4, pairs=4).raise_for_failures()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", ["tool_round", "abort_parallel_tools"])
def test_each_act_at_every_place_of_a_scenario(act: str, name: str) -> None:
    host = scenario_host(Scenario.load(HERE / "scenarios" / f"{name}.json"), blocks=act == "leave")
    exploration = explore(host, acts=[act])
    exploration.raise_for_failures()
    assert exploration.runs > exploration.places


@pytest.mark.parametrize("name", KEYS)
def test_no_invariant_fails_at_lines_where_sigint_comes(name: str) -> None:
    """Every 47th line, another set for each scenario's length; every line takes minutes."""
    exploration = explore_key_interrupts(scenario_host(Scenario.load(HERE / "scenarios" / f"{name}.json")), every=47)
    exploration.raise_for_failures()
    assert exploration.places > 1500
    assert exploration.missed == 0
