"""What a failure says: where, what, why, and how it is repeated."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

import attrs
import trio

from ._case import Case
from ._checks import Violation
from ._probe import Probe
from ._run import Host, Outcome, run_case

AROUND = 12
"""Lines of the trace that are shown before the first act, and behind the last."""


@final
@attrs.frozen
class Failure:
    """A violation, the case that shows it, and the trace around its acts."""

    host: str
    case: Case
    violation: Violation
    others: Sequence[Violation]
    """What else does not hold after that run."""
    trace: Sequence[str]
    """The steps and places around the acts."""
    again: Sequence[str]
    """Lines of code and commands that repeat it."""

    def __str__(self) -> str:
        lines = [
            f"{self.host} breaks the invariant {self.violation.invariant!r}",
            f"  case: {self.case}",
            f"  what differs: {self.violation.difference}",
            *(f"  also: {other}" for other in self.others),
            "  around the cut (>>> is where it was done):",
            *(f"    {line}" for line in self.trace),
            "  again:",
            *(f"    {line}" for line in self.again),
        ]
        return "\n".join(lines)


def describe(host: Host, outcome: Outcome, invariants: Sequence[Callable[[Probe], object]]) -> Failure:
    """Run a case that fails once more, and write down what happens around its acts."""
    trace = _Trace(outcome.case)
    again = run_case(host, outcome.case, invariants=invariants, watcher=trace.see, acted=trace.act)
    violations = again.violations or outcome.violations
    if not again.violations:
        trace.lines.append("(a second run of the same case did not fail: the host is not deterministic)")
    name = getattr(host, "__name__", "the host")
    line = f'explore({name}, only="{outcome.case}").raise_for_failures()'
    return Failure(name, outcome.case, violations[0], tuple(violations[1:]), trace.around(), (line,))


class _Trace:
    """Writes down each step, with the task and the line that is about to run, and each place."""

    def __init__(self, case: Case) -> None:
        self.lines: list[str] = []
        self._marks: list[int] = []
        self._steps = 0
        self._places = 0

    def see(self, task: trio.lowlevel.Task, label: str) -> None:
        """A step is about to be made, or a place was reached."""
        if label:
            self._places += 1
            self.lines.append(f"{_time()}    at:{self._places} {label}")
        else:
            self._steps += 1
            self.lines.append(f"{_time()} step:{self._steps} {_name(task)} | {_line(task)}")

    def act(self, text: str) -> None:
        """Something was done."""
        self._marks.append(len(self.lines))
        self.lines.append(f"{_time()} >>> {text}")

    def around(self) -> list[str]:
        """What happened around the acts."""
        if not self._marks:
            return self.lines[-2 * AROUND :]
        first, last = max(0, self._marks[0] - AROUND), self._marks[-1] + AROUND + 1
        return [*(["..."] if first else []), *self.lines[first:last], *(["..."] if last < len(self.lines) else [])]


def _time() -> str:
    return f"{trio.current_time():8.3f} s"


def _name(task: trio.lowlevel.Task) -> str:
    return "host" if task.name.endswith("run_case.<locals>.main") else task.name.replace("<locals>.", "").split(".")[-1]


def _line(task: trio.lowlevel.Task) -> str:
    """The line at which a task goes on: of the host or the library, not of Trio."""
    frames = [frame for frame in task.iter_await_frames() if "trio/_" not in frame[0].f_code.co_filename]
    if not frames:
        return "begins"
    frame, number = frames[-1]
    code = frame.f_code
    source = linecache.getline(code.co_filename, number).strip()
    return f"{Path(code.co_filename).name}:{number} {code.co_name}: {source}"
