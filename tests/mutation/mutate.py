"""Plant small faults in the core, one by one, and see whether the judges notice.

::

    python tests/mutation/mutate.py                   all mutants, by hand first
    python tests/mutation/mutate.py --by-hand         those made by hand alone
    python tests/mutation/mutate.py --only _batch     one module
    python tests/mutation/mutate.py --resume          what has no result yet, or whose function was changed
    python tests/mutation/mutate.py --again survived  with --resume: survivors once more
    python tests/mutation/mutate.py --tables          print the tables of docs/explanations/mutation.md

One process imports everything but the library; for each mutant it forks a child that imports the
library with the fault in it, in memory. cosmic-ray's own runner starts a process and a test command
for each mutant instead, which is too slow for thousands of runs each.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import math
import operator
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import attrs

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from mutation import by_hand, tool  # noqa: E402 - a script finds its neighbours behind the line above
from mutation.judges import JUDGES, WARM, Trial, judge_child, record_child  # noqa: E402 - a script finds its neighbours behind the line above
from mutation.planted import MODULES, Library, Mutant, units  # noqa: E402 - a script finds its neighbours behind the line above
from mutation.reached import lines_of  # noqa: E402 - a script finds its neighbours behind the line above

RESULTS = Path(__file__).with_name("results.json")
REASONS = Path(__file__).with_name("survivors.json")
LIMIT = 400.0
"""Seconds after which a child is given up, whatever it does; survivors take a tenth."""

MANY = 30
"""So many trials that fail without a fault are no finds any more: something is broken."""


@final
@attrs.frozen
class Result:
    """What came of one mutant."""

    id: str
    operator: str
    module: str
    function: str
    digest: str
    line: int
    before: str
    after: str
    verdict: str
    """``killed`` or ``survived``."""
    judge: str | None
    detail: str | None


def load_results(path: Path = RESULTS) -> list[Result]:
    """The results that are kept."""
    if not path.exists():
        return []
    return [Result(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["mutants"]]


def save_results(results: Iterable[Result], path: Path = RESULTS) -> None:
    """Keep results, in the order of the source."""
    order = sorted(results, key=lambda one: (MODULES.index(one.module), one.line, one.id))
    data = {"mutants": [attrs.asdict(result) for result in order]}
    # In one step: a command that is stopped leaves what it had.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)


# ---------------------------------------------------------------- children


@final
@attrs.define
class _Child:
    what: Any
    pid: int
    read: int
    began: float
    data: list[bytes] = attrs.field(factory=list)


def _fork(what: Any, work: Callable[[Any, int], None]) -> _Child:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.setpgid(0, 0)  # what its tools start dies with it
        work(what, write)
    os.close(write)
    return _Child(what, pid, read, time.monotonic())


def _finished(child: _Child) -> Any:
    """Clean up behind a child that has closed its pipe; what it wrote, or how it died."""
    os.close(child.read)
    _, status = os.waitpid(child.pid, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.data:
        return json.loads(b"".join(child.data))
    code = os.waitstatus_to_exitcode(status)
    if -code in (signal.SIGALRM, signal.SIGPROF, signal.SIGKILL):
        return {"judge": "timeout", "detail": f"killed by {signal.Signals(-code).name}"}
    return {"judge": "crash", "detail": f"the process ended with {code}"}


def run_all(
    todo: Iterable[Any], work: Callable[[Any, int], None], jobs: int, limit: float = LIMIT
) -> Iterator[tuple[Any, Any]]:
    """Do some work for each of several things in a child of its own; gives each with what came of it."""
    for name in WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    waiting = iter(todo)
    running: dict[int, _Child] = {}
    more = True
    while more or running:
        while more and len(running) < jobs:
            try:
                what = next(waiting)
            except StopIteration:
                more = False
                break
            child = _fork(what, work)
            running[child.read] = child
        for read in select.select(list(running), [], [], 1.0)[0]:
            chunk = os.read(read, 1 << 20)
            running[read].data.append(chunk)
            if not chunk:
                child = running.pop(read)
                child.data.pop()
                yield child.what, _finished(child)
        for child in running.values():
            if time.monotonic() - child.began > limit:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)


@final
class Reached:
    """Which trials come to which lines."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self._parts = [
            ([Trial(*trial) for trial in part["trials"]], {line: int(mask, 16) for line, mask in part["masks"].items()})
            for part in parts
        ]

    def trials(self, lines: Iterable[str] | None, judges: Sequence[str], most: int) -> list[Trial]:
        """The trials that come to any of some lines, in the order in which they are made.

        Args:
          lines: the lines; None for all trials.
          judges: whose trials.
          most: how many of each kind of exploration, which has thousands, in a mixed order.
        """
        found: list[Trial] = []
        for trials, masks in self._parts:
            mask = functools.reduce(operator.or_, (masks.get(line, 0) for line in lines or ()), 0)
            found += [one for n, one in enumerate(trials) if lines is None or mask >> n & 1]
        by_judge = {judge: [one for one in found if one.judge == judge] for judge in JUDGES if judge in judges}
        return [one for judge, some in by_judge.items() for one in (some[:most] if "explored" in judge else some)]


def record(library: Library, judges: Sequence[str], jobs: int, kept: Path | None) -> Reached | None:
    """Make all trials without a fault, and note what they reach; None if the library is broken.

    A trial that does not pass is a find; it is reported and left out.
    """
    if kept is not None and kept.exists():
        return Reached(json.loads(kept.read_text(encoding="utf-8")))
    works = [(name,) for name in reversed(JUDGES) if name in judges]
    answers = dict(run_all(works, lambda names, write: record_child(library, names, write), jobs, math.inf))
    for answer in answers.values():
        for text in answer.get("failed", [str(answer)]):
            print(f"the library itself does not pass: {text}", flush=True)
    if any(len(answer.get("failed", ())) > MANY or not answer.get("trials") for answer in answers.values()):
        return None
    parts = [answers[names] for names in reversed(works)]
    if kept is not None:
        kept.write_text(json.dumps(parts), encoding="utf-8")
    return Reached(parts)


# ------------------------------------------------------------------ tables


def _share(results: Sequence[Result]) -> str:
    killed = sum(result.verdict == "killed" for result in results)
    return f"{killed} of {len(results)} | {100 * killed / len(results):.1f} %" if results else "0 of 0 | -"


def tables(results: Sequence[Result], reasons: dict[str, dict[str, str]]) -> str:
    """The tables of the page, as Markdown."""
    made = [result for result in results if result.operator != by_hand.OPERATOR]
    hand = [result for result in results if result.operator == by_hand.OPERATOR]
    lines = ["| mutants | killed | share |", "|---|---|---|"]
    lines += [f"| made by hand | {_share(hand)} |", f"| made by the operators | {_share(made)} |"]
    lines += [f"| all | {_share(results)} |", ""]
    lines += ["| module | killed | share |", "|---|---|---|"]
    for module in MODULES:
        lines.append(f"| `{module}` | {_share([one for one in results if one.module == module])} |")
    lines += ["", "| operator | killed | share |", "|---|---|---|"]
    for name in sorted({result.operator for result in results}):
        lines.append(f"| `{name}` | {_share([one for one in results if one.operator == name])} |")
    lines += ["", "| noticed by | mutants |", "|---|---|"]
    judges = Counter(result.judge for result in results if result.judge is not None)
    for judge, count in sorted(judges.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"| {judge} | {count} |")
    survivors = [result for result in results if result.verdict == "survived"]
    lines += ["", "| where | change | what it is |", "|---|---|---|"]
    for result in survivors:
        reason = reasons.get(result.id, {"text": "not looked at"})["text"]
        change = f"`{_cell(result.before)}` → `{_cell(result.after)}`"
        lines.append(f"| `{result.module}`, `{result.function}` | {change} | {reason} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    short = text if len(text) <= 110 else text[:107] + "..."
    return short.replace("|", "\\|").replace("`", "'") or " "


def load_reasons(path: Path = REASONS) -> dict[str, dict[str, str]]:
    """Why each survivor survived: its kind, and a sentence."""
    reasons: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reasons


# ----------------------------------------------------------------- command


def main() -> int:
    """Run the command; gives its exit code."""
    parser = argparse.ArgumentParser(description="Plant small faults in the core and see whether the judges notice.")
    parser.add_argument("--only", action="append", choices=MODULES, help="mutate this module; may be repeated")
    parser.add_argument("--by-hand", action="store_true", help="only the mutants made by hand")
    parser.add_argument("--resume", action="store_true", help="keep the results of functions that did not change")
    parser.add_argument("--again", choices=["survived", "killed"], help="with --resume: judge these once more")
    parser.add_argument("--match", default="", help="only mutants with this text in their id")
    parser.add_argument("--judge", action="append", choices=[*JUDGES], help="only this judge; may be repeated")
    parser.add_argument("--most", type=int, default=1000, help="runs of each exploration for a mutant (default 1000)")
    parser.add_argument("--reached", type=Path, help="keep in this file which run comes to which line, or take it")
    parser.add_argument("--jobs", type=int, default=2, help="children at a time (default 2)")
    parser.add_argument("--tables", action="store_true", help="print the tables of the documentation and stop")
    options = parser.parse_args()
    if options.tables:
        print(tables(load_results(), load_reasons()), end="")
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    library = Library()
    modules = options.only or MODULES
    judges = options.judge or [*JUDGES]
    known = {result.id: result for result in load_results()}
    mutants = [mutant for mutant in by_hand.mutants(library) if mutant.module in modules]
    if not options.by_hand:
        mutants += tool.mutants(library, modules)
    kept: dict[str, Result] = {}
    for mutant in mutants:
        old = known.get(mutant.id)
        if old is not None and old.digest == mutant.digest:
            kept[mutant.id] = attrs.evolve(old, line=mutant.line)
    todo = [
        mutant
        for mutant in mutants
        if options.match in mutant.id
        and not (options.resume and mutant.id in kept and kept[mutant.id].verdict != options.again)
    ]
    # What is about other modules, or was not asked for, stays.
    asked = {mutant.id for mutant in mutants}
    partial = options.only or options.by_hand
    results = {**({name: one for name, one in known.items() if name not in asked} if partial else {}), **kept}
    print(f"{len(mutants)} mutants, {len(todo)} to judge", flush=True)
    reached = record(library, judges, options.jobs, options.reached)
    if reached is None:
        return 2

    def judge(mutant: Mutant, write: int) -> None:
        trials = reached.trials(_lines(library, mutant), judges, options.most)
        judge_child(library, mutant, trials, write)

    began = time.monotonic()
    for number, (mutant, death) in enumerate(run_all(todo, judge, options.jobs), 1):
        verdict = "survived" if death is None else "killed"
        fields = {name: getattr(mutant, name) for name in attrs.fields_dict(Mutant) if name != "source"}
        death = death or {"judge": None, "detail": None}
        results[mutant.id] = Result(**fields, verdict=verdict, **death)
        seconds = time.monotonic() - began
        said = "SURVIVED" if death["judge"] is None else f"killed by {death['judge']} ({death['detail']})"
        print(f"{number}/{len(todo)} {seconds:.0f} s {mutant.id}:{mutant.line} {said}", flush=True)
        save_results(results.values())
    save_results(results.values())
    return _summary([results[mutant.id] for mutant in mutants if mutant.id in results])


def _lines(library: Library, mutant: Mutant) -> Iterable[str] | None:
    source = library.source(mutant.module)
    if mutant.operator != by_hand.OPERATOR:
        return lines_of(mutant.module, mutant.line, source)
    # A change by hand may touch several statements of its function.
    unit = next((one for one in units(source) if one.first <= mutant.line <= one.last), None)
    return None if unit is None else {f"{mutant.module}:{line}" for line in range(unit.first, unit.last + 1)}


def _summary(results: Sequence[Result]) -> int:
    survived = [result for result in results if result.verdict == "survived"]
    alive = [result for result in survived if result.operator == by_hand.OPERATOR]
    for result in alive:
        print(f"made by hand and not noticed: {result.id}")
    print(f"{len(results) - len(survived)} of {len(results)} killed, {len(survived)} survived, {len(alive)} by hand")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
