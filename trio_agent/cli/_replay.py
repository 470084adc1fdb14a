"""``trio-agent replay``: play scenario files and show, print or check their traces."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from trio_agent import FormatError, TrioAgentError
from trio_agent.testing import Scenario, ScenarioStuckError, Trace, judge, load_departures, run_scenario

__all__ = ["replay"]

_KINDS = ("event", "hook", "request", "tool_run", "nested", "listener", "host")
_STATUSES = ("ok", "departs", "differs", "stale")


class _ReplayError(click.ClickException):
    """A file that cannot be played; shown as one line."""

    exit_code = 2


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each file: trace and final.")
@click.option("--check", is_flag=True, help="Compare each trace with the expectation that its file holds.")
@click.option(
    "--departures",
    "departures_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --check: a JSON file of the scenarios that may differ, with their own expectations.",
)
@click.option("--seed", type=int, help="Take the order of tasks from this seed; by default it is random.")
def replay(
    files: Sequence[Path], *, as_json: bool, check: bool, departures_file: Path | None, seed: int | None
) -> None:
    """Play scenario FILEs on a virtual clock.

    Without an option the traces are shown for reading. With --check there is one line for each file,
    which begins with ok (as the reference), departs (in the way that --departures names), differs or
    stale (listed as a departure, but as the reference); the exit status is 1 if one differs or is
    stale. A file that is missing or broken ends the command with exit status 2 before anything is
    played.
    """
    if as_json and check:
        raise click.UsageError("--json and --check exclude each other.")
    if departures_file is not None and not check:
        raise click.UsageError("--departures goes with --check.")
    try:
        scenarios = [Scenario.load(path) for path in files]
        departures = {} if departures_file is None else load_departures(departures_file)
        # What a scenario makes fail is in its trace; the agent's log would say it a second time.
        logging.getLogger("trio_agent").addFilter(_nothing)
        if check:
            for path, scenario in zip(files, scenarios, strict=True):
                if scenario.expect is None:
                    raise FormatError(f"{path}: the scenario has no 'expect' to compare with")
            good = _check(scenarios, departures, seed)
        else:
            good = _show(scenarios, as_json=as_json, seed=seed)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise  # nobody reads any more; click ends quietly
        raise _ReplayError(f"{error.filename or 'the output'}: {error.strerror}") from error
    except TrioAgentError as error:
        raise _ReplayError(" ".join(str(error).split())) from error
    finally:
        logging.getLogger("trio_agent").removeFilter(_nothing)
    if not good:
        raise click.exceptions.Exit(1)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _show(scenarios: Sequence[Scenario], *, as_json: bool, seed: int | None) -> bool:
    good = True
    for number, scenario in enumerate(scenarios):
        try:
            trace = run_scenario(scenario, seed=seed)
        except ScenarioStuckError as error:
            click.echo(f"Error: {error}", err=True)
            good = False
            continue
        if as_json:
            click.echo(json.dumps(trace.to_json()))
        else:
            click.echo(("\n" if number else "") + _readable(scenario, trace.canonical()))
    return good


def _readable(scenario: Scenario, trace: Trace) -> str:
    lines = [f"{scenario.name}: {scenario.about}" if scenario.about else scenario.name]
    lines += [_line(entry) for entry in trace.entries]
    lines += [f"   final  {key} {_short(value)}" for key, value in trace.final.items()]
    return "\n".join(lines)


def _line(entry: Mapping[str, Any]) -> str:
    kind = next((key for key in _KINDS if key in entry), "")
    rest = {key: value for key, value in entry.items() if key not in ("at", kind)}
    if kind == "request":
        rest["messages"] = [message["role"] for message in rest["messages"]]
    words = [f"{key}={_short(value)}" for key, value in rest.items()]
    return " ".join([f"{entry['at']:>8}  {kind} {entry.get(kind)}", *words])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _check(scenarios: Sequence[Scenario], departures: Mapping[str, Any], seed: int | None) -> bool:
    counts: Counter[str] = Counter()
    for scenario in scenarios:
        assert scenario.expect is not None
        try:
            trace = run_scenario(scenario, seed=seed)
        except ScenarioStuckError as error:
            status, details = "differs", str(error)
        else:
            verdict = judge(scenario.expect, trace, departures.get(scenario.name))
            status = verdict.status
            details = "" if verdict.difference is None else str(verdict.difference)
            if status == "stale":
                details = "it is listed as a departure, but is as the reference; take it off the list"
        counts[status] += 1
        click.echo(f"{status} {scenario.name}")
        for line in details.splitlines():
            click.echo(f"    {line}")
    click.echo(f"{len(scenarios)} scenarios: " + ", ".join(f"{counts[name]} {name}" for name in _STATUSES))
    return not (counts["differs"] or counts["stale"])
