"""What a run told, and when: for reading, for saving, and for comparing with what a test expects."""

from __future__ import annotations

import difflib
import json
import math
import os
import textwrap
from pathlib import Path
from types import TracebackType
from typing import Any, final

import attrs
import trio

from trio_agent import Abort, Agent, AgentEnd, AgentEvent, AgentStart, EventDecoder, FormatError, UsageError

from ._reading import Keys, anything, boolean, json_object, or_null, refuse, string
from ._reading import amount as whole_number
from ._recorder_tree import TraceEntry, draw
from ._script import ScriptedModel

__all__ = ["RecordedAgent", "TraceRecorder", "assert_trace"]


@final
@attrs.define(eq=False)
class TraceRecorder:
    """A listener that keeps all events with their time, their task and the state of the abort.

    ::

        recorder = TraceRecorder(agent)
        await agent.prompt("Go.")
        print(recorder)

    It prints as a tree::

        run 1 (0 s to 1.5 s)
        ├─ turn 1 (0 s to 1.5 s)
        │  ├─ user "Go."
        │  ├─ assistant tool_use (0 s to 0.5 s)
        │  │  ├─ text "Let me look." (3 deltas)
        │  │  └─ call c1 find {"q": "x"} (1 delta, 0.5 s)
        │  ├─ tool c1 find {"q": "x"} (0.5 s to 1.5 s)
        │  │  ├─ update "half"
        │  │  └─ error [aborted] "Operation aborted while the tool ran: ..." (1.5 s)
        │  ├─ * aborted: "the user pressed Escape" (1.5 s)
        │  └─ result c1 error [aborted] (1.5 s)
        ├─ turn 2 (1.5 s)
        │  └─ assistant aborted [aborted] "Operation aborted: the user pressed Escape"
        └─ end: aborted, 4 messages (1.5 s)

    A line without a time happened when the line that it hangs on began. ``* aborted`` stands before
    the first event that was told after the abort. The result message of a call shows its text only
    where it differs from that of the call's end.

    It can be subscribed to several agents, whose runs may overlap, and serve as the ``emit`` of a loop
    that is called directly. Used as a context manager it ends its subscription on leaving. Nothing of
    it is a checkpoint.

    Args:
      agent: whose events are recorded from now on; without one, subscribe it yourself.
    """

    agent: Agent | None = attrs.field(default=None)
    """The agent that it subscribed itself to."""
    entries: list[TraceEntry] = attrs.field(factory=list, init=False, repr=False)
    """What was recorded, in order."""
    _zero: float | None = attrs.field(default=None, init=False, repr=False)
    _runs: int = attrs.field(default=0, init=False, repr=False)
    _open: dict[tuple[trio.lowlevel.Task, Abort | None], int] = attrs.field(factory=dict, init=False, repr=False)
    """The numbers of the runs that are not over. A run tells all its events in one task."""
    _last: tuple[trio.lowlevel.Task, Abort | None] | None = attrs.field(default=None, init=False, repr=False)
    _loaded: bool = attrs.field(default=False, init=False, repr=False)
    _unsubscribe: Any = attrs.field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.agent is not None:
            if not isinstance(self.agent, Agent):
                raise UsageError(f"{self.agent!r:.80} is no Agent; give one, or subscribe the recorder yourself")
            self._unsubscribe = self.agent.subscribe(self)

    @trio.lowlevel.enable_ki_protection
    def __call__(self, event: AgentEvent, abort: Abort | None = None) -> None:
        """Record an event, as a listener or as the ``emit`` of a loop. Not a checkpoint.

        Raises:
          UsageError: the recorder was loaded from a file.
        """
        task = trio.lowlevel.current_task()
        key = task, abort
        if type(event) is not AgentStart and key not in self._open and abort is not None:
            # Told in another task than its run's own: that is what the tree must show.
            key = next((known for known in self._open if known[1] is abort), key)
        if type(event) is AgentStart or key not in self._open:
            self._runs += 1
            self._open[key] = self._runs
        self._last = key
        self._add(task, abort, self._open[key], event=event)
        if type(event) is AgentEnd:
            del self._open[key]

    @trio.lowlevel.enable_ki_protection
    def mark(self, text: str) -> None:
        """Put a line of your own among the events, with the time that it is now. Not a checkpoint.

        It belongs to the run of the event before it, if that is not over. Call it inside Trio; from a
        worker thread, ``trio.from_thread.run_sync(recorder.mark, text)``.

        Raises:
          UsageError: the recorder was loaded from a file.
        """
        run = 0 if self._last is None else self._open.get(self._last, 0)
        abort = self._last[1] if run and self._last is not None else None
        self._add(trio.lowlevel.current_task(), abort, run, mark=text)

    def _add(self, task: trio.lowlevel.Task, abort: Abort | None, run: int, **what: Any) -> None:
        if self._loaded:
            raise UsageError("this trace was loaded from a file and does not grow; record with a new TraceRecorder")
        now = trio.current_time()
        if self._zero is None:
            self._zero = now
        aborted, reason = (False, None) if abort is None else (abort.requested, abort.reason)
        self.entries.append(TraceEntry(now - self._zero, task.name, aborted, reason, run, **what))

    @property
    def events(self) -> list[AgentEvent]:
        """The events alone, in order."""
        return [entry.event for entry in self.entries if entry.event is not None]

    def clear(self) -> None:
        """Forget what was recorded; the next entry is at 0 s. Runs keep being counted."""
        self.entries.clear()
        self._zero = None

    def __enter__(self) -> TraceRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()

    # ------------------------------------------------------------- as text

    def tree(self, *, times: bool = True, tasks: bool = False, width: int = 60) -> str:
        """Draw what was recorded so far. The same entries always give the same text.

        Args:
          times: False leaves out the times, for runs on a real clock.
          tasks: True adds to each run the name of its task.
          width: how many characters of a text or of arguments are shown.
        """
        return draw(self.entries, times=times, tasks=tasks, width=width)

    def __str__(self) -> str:
        return self.tree()

    # ------------------------------------------------------------- as JSON

    def to_jsonl(self) -> str:
        """Make JSON lines: one object for each entry, each line ended by a newline.

        An event's is ``{"at": seconds, "task": name, "aborted": bool, "reason": text or null, "run":
        number, "event": {...}}``; a mark has ``"mark": text`` in place of the event.

        Raises:
          FormatError: an entry has no JSON form; the text says which and what to do.
        """
        lines = []
        for number, entry in enumerate(self.entries, 1):
            try:
                lines.append(json.dumps(entry.to_json(), allow_nan=False) + "\n")
            except (TypeError, ValueError, RecursionError) as error:
                what = entry.event.type if entry.event is not None else "mark"
                raise FormatError(
                    f"entry {number} ({what}) has no JSON form: {error}. Let tools give plain JSON as details and "
                    "structured content, and register messages of your own with register_message_type()"
                ) from error
        return "".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_jsonl` to a file; :meth:`load` reads it. Blocks while it writes.

        Raises:
          FormatError: an entry has no JSON form; nothing is written.
          OSError: the file cannot be written.
        """
        Path(path).write_text(self.to_jsonl(), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TraceRecorder:
        """Read what :meth:`save` wrote; the result prints the same tree, and records nothing more.

        Raises:
          FormatError: the file is broken; the text names file, line, value and remedy.
          OSError: the file cannot be read.
        """
        recorder = cls()
        recorder._loaded = True
        decoders: dict[int, EventDecoder] = {}
        lines = Path(path).read_bytes().split(b"\n")
        if not lines[-1]:
            lines.pop()
        before = 0.0
        for number, line in enumerate(lines, 1):
            where = f"{os.fspath(path)}, line {number}"
            try:
                entry = _entry(line, where, decoders)
                if entry.at < before:
                    refuse(f"{where}.at", entry.at, f"at least the {before:g} of the line before it")
            except FormatError as error:
                raise FormatError(
                    f"{error}. Each line must be an object as TraceRecorder.save() writes it, unchanged and in its "
                    "order; if the file was edited or cut off, record it anew"
                ) from error
            before = entry.at
            recorder.entries.append(entry)
        return recorder


def _entry(line: bytes, where: str, decoders: dict[int, EventDecoder]) -> TraceEntry:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is {line.decode(errors='replace')!r:.80}, which is no JSON: {error}") from error
    keys = Keys(json_object(data, where), where)
    run = keys.take("run", whole_number, 1)
    common = (
        keys.take("at", _seconds),
        keys.take("task", string),
        keys.take("aborted", boolean),
        keys.take("reason", or_null(string)),
        run,
    )
    if keys.only(("event", "mark")) == "mark":
        entry = TraceEntry(*common, mark=keys.take("mark", string))
    else:
        try:
            event = decoders.setdefault(run, EventDecoder()).decode(keys.take("event", anything))
        except FormatError as error:
            raise FormatError(f"{where}: {error}") from error
        entry = TraceEntry(*common, event=event)
    keys.done()
    return entry


def _seconds(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        refuse(where, value, "a number of seconds from 0")
    return float(value)


def assert_trace(recorder: TraceRecorder, expected: str, *, times: bool = True) -> None:
    """Compare what was recorded with the tree that a test expects.

    ::

        assert_trace(recorder, '''
            run 1 (0 s)
            ├─ turn 1 (0 s)
            │  ├─ user "Hi."
            ...
            ''')

    Args:
      recorder: what was recorded, or loaded.
      expected: the tree as :meth:`TraceRecorder.tree` draws it. Common indentation, blank lines
        around it and spaces at the ends of lines do not count.
      times: False compares the trees without times.

    Raises:
      AssertionError: they differ; the text is a unified diff.
    """
    __tracebackhide__ = True
    wanted = _lines(expected)
    found = _lines(recorder.tree(times=times))
    if wanted == found:
        return
    diff = "\n".join(difflib.unified_diff(wanted, found, "expected", "recorded", lineterm=""))
    raise AssertionError(f"the trace is not the expected one:\n{diff}")


def _lines(text: str) -> list[str]:
    # Not splitlines(): what a model says may hold other separators, and they end no line of a tree.
    return [line.rstrip() for line in textwrap.dedent(text).strip().split("\n")]


@final
@attrs.frozen(eq=False)
class RecordedAgent:
    """What the fixture ``recorded_agent`` of the pytest plugin makes."""

    agent: Agent
    """The agent, with the tools and settings that were given."""
    model: ScriptedModel
    """Its model."""
    recorder: TraceRecorder
    """What the agent tells from its first run on."""
