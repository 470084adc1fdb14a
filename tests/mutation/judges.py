"""What judges a mutant, in a child process that has imported the library with the fault in it.

First what kills early: the recorded traces; then exploration, a little of every host, then more of
each in all modes; last the tests of the core, for what no exploration can see (worker threads, real
interrupts, what a function refuses). Of all these only the runs are made that come to the mutated
statement: see ```reached``.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import io
import json
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import attrs

from mutation.planted import ROOT, Library, Mutant
from mutation.reached import Tracer
from mutation.tool import RAISED

TESTS = ROOT / "tests"
sys.path[:0] = [path for path in [str(TESTS)] if path not in sys.path]

CPU_SECONDS = 15
REAL_SECONDS = 30
"""What one run of a host or scenario may take, a hundred times what it needs; the tests have more."""
MEMORY = 3 << 30

CORE_TESTS = (
    "test_cancel_scale",
    "test_closing",
    "test_corners",
    "test_cut_kinds",
    "test_hook_answers",
    "test_known_faults_abort",
    "test_known_faults_arguments",
    "test_known_faults_cancel",
    "test_known_faults_hooks",
    "test_known_faults_outside",
    "test_known_faults_queues",
    "test_known_faults_tools",
    "test_known_faults_updates",
    "test_nested",
    "test_queues",
    "test_running",
    "test_stream",
    "test_threads",
)
"""The test files that are about the core and take seconds."""

WARM = ("trio.testing", "attrs", "msgspec", "jiter", "jsonschema_rs", "docstring_parser", "pytest", "pytest_trio")
"""What the library and its tests import; imported once, before children are forked."""

JUDGES = ("conformance", "explored", "explored_more", "tests")
"""In the order in which they are asked."""


@final
@attrs.frozen
class Trial:
    """One run by which a mutant may be noticed."""

    judge: str
    what: str
    """The index of a scenario or host, or the id of a test."""
    how: str
    """A seed, or a case."""


@final
@attrs.frozen
class Death:
    """Which judge noticed the fault, and by what."""

    judge: str
    """``conformance``, the name of an invariant, ``tests``, ``timeout``, ``crash``."""
    detail: str


# ---------------------------------------------------------------- children


def record_child(library: Library, judges: Sequence[str], write_to: int) -> None:
    """Make every run once without a fault, and write down which lines each comes to; the process ends here.

    What is written is JSON: the trials that pass, what does not pass, and for each line a number
    whose bits say which trials come to it.
    """
    _quiet_process()
    trials: list[Trial] = []
    masks: dict[str, int] = {}
    failed: list[str] = []
    try:
        _prepare(library, None)
        for name in judges:
            for trial, lines, death in _RECORDERS[name](Tracer()):
                if death is not None:
                    failed.append(f"{death.judge}: {death.detail}")
                    continue
                for line in lines:
                    masks[line] = masks.get(line, 0) | 1 << len(trials)
                trials.append(trial)
    except BaseException as error:  # noqa: ASYNC103 - no task stands behind it, and the process ends
        failed.append(f"crash: {error!r:.300}")
    answer = {
        "trials": [[trial.judge, trial.what, trial.how] for trial in trials],
        "masks": {line: f"{mask:x}" for line, mask in masks.items()},
        "failed": failed,
    }
    with contextlib.suppress(OSError), open(write_to, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os._exit(0)


def judge_child(library: Library, mutant: Mutant, trials: Sequence[Trial], write_to: int) -> None:
    """Judge one mutant and write down what came of it, as JSON; the process ends here."""
    _quiet_process()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        _prepare(library, mutant)
        death = _judged(trials)
    except BaseException as error:  # noqa: ASYNC103 - no task stands behind it, and the process ends
        death = Death("crash", f"{error!r:.200}")
    with contextlib.suppress(OSError):
        os.write(write_to, json.dumps(None if death is None else attrs.asdict(death)).encode())
    os._exit(0)


def _quiet_process() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _prepare(library: Library, mutant: Mutant | None) -> None:
    logging.disable(logging.CRITICAL)
    setattr(builtins, RAISED, type(RAISED, (Exception,), {}))
    library.put_in_place(mutant)
    _still_alive()
    from trio_agent.testing import _scheduler

    _scheduler.CPU_SECONDS = 5.0


def _judged(trials: Sequence[Trial]) -> Death | None:
    for trial in trials:
        if trial.judge == "tests":
            continue
        _still_alive()
        death = _play(trial) if trial.judge == "conformance" else _explore(trial)
        if death is not None:
            return death
    chosen = [trial.what for trial in trials if trial.judge == "tests"]
    return _tests(chosen) if chosen else None


def _still_alive(times: float = 1) -> None:
    """Let the process be killed if the next run takes too long, also where it hangs in plain code."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS * times)
    signal.setitimer(signal.ITIMER_REAL, REAL_SECONDS * times)


# -------------------------------------------------------------- the traces


@functools.cache
def _scenarios() -> list[Any]:
    from trio_agent.testing import Scenario

    folder = TESTS / "conformance"
    paths = [*sorted((folder / "scenarios").glob("*.json")), *sorted((folder / "own").glob("*.json"))]
    return [Scenario.load(path) for path in paths]


@functools.cache
def _departures() -> Any:
    from trio_agent.testing import load_departures

    return load_departures(TESTS / "conformance" / "departures.json")


def _play(trial: Trial) -> Death | None:
    """Play one of the recorded traces or our own scenarios, and compare."""
    from trio_agent.testing import judge, run_scenario

    scenario = _scenarios()[int(trial.what)]
    departure = _departures().get(scenario.name)
    try:
        verdict = judge(scenario.expect, run_scenario(scenario, seed=int(trial.how)), departure)
    except Exception as error:
        return Death("conformance", f"{scenario.name}: {error!r:.150}")
    return None if verdict.status == ("ok" if departure is None else "departs") else Death("conformance", scenario.name)


def _record_traces(tracer: Tracer) -> Iterator[tuple[Trial, list[str], Death | None]]:
    for seed in range(3):
        for index in range(len(_scenarios())):
            trial = Trial("conformance", str(index), str(seed))
            _still_alive(10)
            with tracer.noting() as lines:
                death = _play(trial)
            yield trial, lines, death


# ------------------------------------------------------------- exploration


@functools.cache
def _hosts() -> tuple[list[Any], int, tuple[Any, ...]]:
    """The scenarios as hosts, then our own; how many are scenarios; our own invariants."""
    from trio_agent.testing import scenario_host

    own = importlib.import_module("hosts")
    scenarios = [scenario_host(scenario) for scenario in _scenarios()]
    return [*scenarios, *own.HOSTS], len(scenarios), own.INVARIANTS


def _explore(trial: Trial) -> Death | None:
    # Not explore() itself, which makes each failure smaller; here only whether there is one counts.
    from trio_agent.testing import Case
    from trio_agent.testing._explore._run import run_case

    hosts, _, invariants = _hosts()
    host = hosts[int(trial.what)]
    outcome = run_case(host, Case.parse(trial.how), invariants=invariants)
    return _found(host, outcome)


def _found(host: Any, outcome: Any) -> Death | None:
    for violation in outcome.violations:
        return Death(violation.invariant, f"{host.__name__}, {outcome.case}: {violation.difference:.150}")
    return None


def _record_explored(
    tracer: Tracer, judge: str, of_scenarios: dict[str, Any], of_own: dict[str, Any]
) -> Iterator[tuple[Trial, list[str], Death | None]]:
    from trio_agent.testing._explore._explore import Plan, _outcomes

    hosts, scenarios, invariants = _hosts()
    found = []
    for index, host in enumerate(hosts):
        outcomes = _outcomes(host, Plan(**(of_scenarios if index < scenarios else of_own)), invariants, None)
        while True:
            _still_alive(10)
            with tracer.noting() as lines:
                outcome = next(outcomes, None)
            if outcome is None:
                break
            found.append((Trial(judge, str(index), str(outcome.case)), lines, _found(host, outcome)))
    # Mixed, so that all hosts have their turn early.
    random.Random(0).shuffle(found)
    yield from found


# --------------------------------------------------------------- the tests


class _Plugin:
    """Runs some tests, notes the first that fails, and which lines each comes to."""

    def __init__(self, chosen: Sequence[str] | None, tracer: Tracer | None) -> None:
        self.failed: str | None = None
        self.reached: list[tuple[str, list[str]]] = []
        self._chosen = None if chosen is None else set(chosen)
        self._tracer = tracer

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._chosen is not None:
            items[:] = [item for item in items if item.nodeid in self._chosen]

    def pytest_runtest_protocol(self, item: Any) -> Any:
        from _pytest.runner import runtestprotocol

        _still_alive(4)
        if self._tracer is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with self._tracer.noting() as lines:
            runtestprotocol(item, nextitem=None)
        self.reached.append((item.nodeid, lines))
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def _pytest(plugin: _Plugin, files: Sequence[str]) -> int:
    import pytest

    options = ["-x", "-q", "-pno:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning"]
    os.chdir(ROOT)
    logging.disable(logging.NOTSET)
    _still_alive(4)
    # What reads the sources on the disk says nothing about a mutant.
    with contextlib.redirect_stdout(io.StringIO()):
        return int(pytest.main([*options, "-k", "not b20", *files], plugins=[plugin]))


def _tests(chosen: Sequence[str]) -> Death | None:
    plugin = _Plugin(chosen, None)
    code = _pytest(plugin, sorted({name.partition("::")[0] for name in chosen}))
    return None if code == 0 else Death("tests", plugin.failed or f"pytest ended with {code}")


def _record_tests(tracer: Tracer) -> Iterator[tuple[Trial, list[str], Death | None]]:
    plugin = _Plugin(None, tracer)
    files = [str(Path("tests", f"{name}.py")) for name in CORE_TESTS if (TESTS / f"{name}.py").exists()]
    code = _pytest(plugin, files)
    for name, lines in plugin.reached:
        yield Trial("tests", name, ""), lines, None
    if code != 0:
        yield Trial("tests", "", ""), [], Death("tests", plugin.failed or f"pytest ended with {code}")


ALL_MODES = ("plain", "checkpoints", "slow")

_RECORDERS: dict[str, Any] = {
    "conformance": _record_traces,
    # A little of every host.
    "explored": functools.partial(
        _record_explored, judge="explored", of_scenarios={"sample": 8}, of_own={"sample": 40, "seeds": 2}
    ),
    # Other orders of tasks, all modes, pairs of acts.
    "explored_more": functools.partial(
        _record_explored,
        judge="explored_more",
        of_scenarios={"sample": 3, "pairs": 1, "schedules": 1, "modes": ALL_MODES, "first": 1},
        of_own={"sample": 6, "pairs": 6, "schedules": 1, "modes": ALL_MODES, "first": 1},
    ),
    "tests": _record_tests,
}
