"""Key interrupts at every line: SIGINT in the main task, wherever the library happens to be."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, final

import trio_agent
from trio_agent import UsageError

from ._case import Case
from ._explore import Exploration, quiet
from ._probe import Probe
from ._report import Failure
from ._run import Host, Outcome, run_case

ROOT = Path(trio_agent.__file__).parent
OUTSIDE = ("testing", "tools", "cli", "providers")
"""The parts of the library that stand above its core."""


@final
class Lines:
    """Counts the lines of the core that a run comes to, and lets SIGINT come at one of them."""

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.count = 0
        self.where = ""
        """The line at which it came."""
        self._pressed: Callable[[str], object] = lambda where: None
        self._core: dict[str, bool] = {}

    @contextmanager
    def watching(self, pressed: Callable[[str], object]) -> Generator[None]:
        """Count inside the block; ``pressed`` is told right before the signal."""
        self._pressed = pressed
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        core = self._core.get(name)
        if core is None:
            path = Path(name)
            core = self._core[name] = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in OUTSIDE
        return self._line if core else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.target:
                code = frame.f_code
                self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_qualname}"
                sys.settrace(None)
                self._pressed(self.where)
                # Python runs the handler in this function; Trio's finds the line's frame behind it, and decides
                # by that one's protection whether KeyboardInterrupt is raised here or at the next checkpoint.
                signal.raise_signal(signal.SIGINT)
        return self._line


def explore_key_interrupts(
    host: Host,
    *,
    seed: int = 0,
    every: int = 1,
    invariants: Sequence[Callable[[Probe], object]] = (),
    only: int | None = None,
    stop_after: int = 1,
    progress: Callable[[Exploration], object] | None = None,
) -> Exploration:
    """Run a host once for each line of the library that it comes to, and let SIGINT come there.

    The host's own task is Trio's main task, so a call that it awaits itself gets the interrupt. Each
    run is checked as :func:`explore` checks it; besides, no interrupt may get lost. Called from the
    main thread, outside of Trio; slow, because each run is traced.

    Args:
      host: an async function of a :class:`Probe`.
      seed: the order in which tasks run.
      every: 1 for every line, 10 for every tenth.
      invariants: plain functions of the probe, called after each run.
      only: the number of one line, as a report gives it.
      stop_after: the number of failures after which it stops.
      progress: called after each run.

    Returns:
      how much was run, and the failures; ``places`` are the lines.

    Raises:
      UsageError: it was called in another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signals only come to the main thread: call explore_key_interrupts() there")
    name = getattr(host, "__name__", "the host")
    exploration = Exploration(name)
    case = Case(seed=seed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with quiet():
            counting = Lines()
            base = run_case(host, case, invariants=invariants, lines=counting)
            exploration.steps, exploration.places = base.steps, counting.count
            _note(exploration, base, counting)
            for number in range(1, counting.count + 1, every) if only is None else (only,):
                if len(exploration.failures) >= stop_after:
                    break
                lines = Lines(number)
                _note(exploration, run_case(host, case, invariants=invariants, lines=lines), lines)
                if progress is not None:
                    progress(exploration)
    finally:
        signal.signal(signal.SIGINT, before)
    return exploration


def _note(exploration: Exploration, outcome: Outcome, lines: Lines) -> None:
    exploration.runs += 1
    exploration.missed += not lines.where and lines.target > 0
    if outcome.violations:
        first, *others = outcome.violations
        line = f"explore_key_interrupts({exploration.name}, seed={outcome.case.seed}, only={lines.target})"
        trace = [f"SIGINT came at line {lines.target}: {lines.where}"] if lines.where else []
        exploration.failures.append(
            Failure(exploration.name, outcome.case, first, others, trace, (f"{line}.raise_for_failures()",))
        )
