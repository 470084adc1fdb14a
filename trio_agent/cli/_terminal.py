"""What a terminal shows: text as Markdown, a live table of the tools that run, folded results.

Finished things are printed once and stay. Below them is a region of a few lines that is drawn anew
some times a second: the end of the answer that comes in, and the tools that run. Everything is made
into bytes that the caller writes; nothing here touches the terminal but to ask for its size.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trio_agent._events import (
    AgentEnd,
    AgentEvent,
    MessageEnd,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from trio_agent._messages import AssistantMessage, Usage
from trio_agent._stream import TextDelta, ThinkingDelta, ThinkingEnd, ToolCallStart
from trio_agent._tool import ToolResult

from ._markdown import Prose, split_blocks
from ._output import without_controls
from ._screen import Screen
from ._transcripts import json_text

__all__ = ["TerminalView", "terminal_size"]

Size: TypeAlias = tuple[int, int]

_FOLDED = 4
"""Lines of a result that are shown."""
_MUCH = 20_000
"""Characters of one unfinished block (a long code block, say) that are still drawn as Markdown."""
_SLOW = 5
"""At most one part in so many of the time goes into drawing."""


def terminal_size() -> Size:
    """Columns and lines of the terminal; of the environment where it does not say."""
    try:
        size = os.get_terminal_size(1)
    except (OSError, ValueError):
        size = shutil.get_terminal_size()
    return (size.columns, size.lines) if size.columns and size.lines else (80, 24)


@attrs.define
class _Running:
    name: str
    arguments: str
    since: float
    progress: str = ""


@final
class TerminalView:
    """Draws a run.

    Args:
      live: False prints only what is finished, block by block, for terminals that cannot move the cursor.
      size: what tells columns and lines, asked for each drawing.
      clock: seconds.
    """

    def __init__(
        self,
        *,
        live: bool = True,
        size: Callable[[], Size] = terminal_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = Screen(sys.stdout.encoding if sys.stdout else "utf-8", live=live)
        self._live = live
        self._size = size
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._text = ""
        """The part of the answer that is not printed yet."""
        self._told = False
        """Whether any of the answer came as deltas."""
        self._last = ""
        """What was printed last, ``text`` or ``tool``: a blank line stands between the two."""
        self._doing = ""
        self._doing_since = clock()
        self._next = 0.0
        self._begun = clock()
        self._turns = self._calls = self._failed = 0
        self._usage = Usage()

    # --------------------------------------------------------------- events

    def show(self, event: AgentEvent) -> bytes:
        """The bytes for an event: what is finished by it. What is not is drawn by :meth:`frame`."""
        finished = self._take(event)
        if not finished:
            return b""
        return self._draw(finished)

    def _take(self, event: AgentEvent) -> list[RenderableType]:
        if type(event) is MessageUpdate:
            self._take_piece(event)
        elif type(event) is ToolExecutionUpdate:
            running = self._running.get(event.tool_call_id)
            if running is not None:
                running.progress = _last_line(event.partial_result)
        elif type(event) is ToolExecutionStart:
            self._do("")
            self._running[event.tool_call_id] = _Running(event.tool_name, _arguments(event.args), self._clock())
        elif type(event) is ToolExecutionEnd:
            return self._end_of_tool(event)
        elif type(event) is MessageEnd and type(event.message) is AssistantMessage:
            # An answer that came whole has told no deltas.
            text = self._text if self._told else without_controls(event.message.text)
            self._usage = self._usage + event.message.usage
            finished = self._prose(split_blocks(text))
            self._text, self._told = "", False
            return finished
        elif type(event) is TurnStart:
            self._turns += 1
            self._do("waiting for the model")
        elif type(event) is TurnEnd:
            self._do("")
        elif type(event) is AgentEnd:
            self._do("")
            self._running.clear()
            return [*([Text("")] if self._last else []), self._summary(event)]
        return []

    def _take_piece(self, event: MessageUpdate) -> None:
        piece = event.assistant_message_event
        if type(piece) is TextDelta:
            self._do("")
            self._told = True
            self._text += without_controls(piece.delta)
        elif type(piece) is ThinkingDelta:
            self._do("thinking")
        elif type(piece) is ThinkingEnd:
            self._do("waiting for the model")
        elif type(piece) is ToolCallStart:
            self._do("writing a tool call")

    def _do(self, what: str) -> None:
        if what != self._doing:
            self._doing, self._doing_since = what, self._clock()

    def _end_of_tool(self, event: ToolExecutionEnd) -> list[RenderableType]:
        self._calls += 1
        self._failed += event.is_error
        running = self._running.pop(event.tool_call_id, None) or _Running(event.tool_name, "", self._clock())
        mark, style = ("✗", "red") if event.is_error else ("✓", "green")
        seconds = _seconds(self._clock() - running.since)
        head = Text.assemble((f"{mark} ", style), (running.name, "bold"), f" {seconds}  ", (running.arguments, "cyan"))
        head.no_wrap, head.overflow = True, "ellipsis"
        gap = [Text("")] if self._last == "text" else []
        self._last = "tool"
        return [*gap, head, *_folded(event.result)]

    def _summary(self, event: AgentEnd) -> Text:
        calls = _count(self._calls, "call") + (f" ({self._failed} failed)" if self._failed else "")
        parts = [_count(self._turns, "turn"), calls]
        usage = self._usage
        if usage != Usage():
            sent = usage.input + usage.cache_read + usage.cache_write
            parts.append(f"{sent:,} tokens in, {usage.output:,} out")
        parts.append(_seconds(self._clock() - self._begun))
        if event.end_reason != "done":
            parts.append(f"ended: {event.end_reason.replace('_', ' ')}")
        return Text(" · ".join(parts), "dim")

    # -------------------------------------------------------------- drawing

    def frame(self, *, now: bool = False) -> bytes:
        """The region drawn anew, with whatever parts of the answer are complete by now.

        Args:
          now: draw also where the last drawing was slow, because the size has changed.
        """
        if self._clock() < self._next and not now:
            return b""
        finished: list[RenderableType] = []
        if 0 < len(self._text) <= _MUCH:
            *done, self._text = split_blocks(self._text) or [self._text]
            finished = self._prose(done)
        return self._draw(finished)

    def close(self) -> bytes:
        """Take the region away; nothing is drawn afterwards."""
        self._live = False
        self._running.clear()
        rest, self._text = self._text, ""
        return self._draw(self._prose(split_blocks(rest)))

    def _prose(self, blocks: list[str]) -> list[RenderableType]:
        """Blocks of the answer, with a blank line between each two of it."""
        shown: list[RenderableType] = []
        for block in blocks:
            shown += [Text(""), Prose(block)] if self._last else [Prose(block)]
            self._last = "text"
        return shown

    def _draw(self, finished: list[RenderableType]) -> bytes:
        begun = time.monotonic()
        columns, lines = self._size()
        region = self._region(columns, lines) if self._live else []
        data = self._screen.draw(finished, region, columns, lines)
        self._next = self._clock() + _SLOW * (time.monotonic() - begun)
        return data

    def _region(self, columns: int, lines: int) -> list[RenderableType]:
        """What is going on, in at most two lines less than the screen has."""
        room = max(lines - 2, 1)
        rows = list(self._running.values())
        region: list[RenderableType] = []
        if self._text.strip():
            much = len(self._text) > _MUCH
            tail: RenderableType = Text(self._text[-2 * columns * room :]) if much else Prose(self._text)
            tail = Group(Text(""), tail) if self._last else tail
            region.append(self._screen.last_lines(tail, columns, max(room - len(rows) - 1, 1)))
            room -= 1
        if rows:
            if room > 4 and (region or self._last == "text"):
                region.append(Text(""))
                room -= 1
            region.append(self._table(rows, columns, max(room, 1)))
        elif self._doing:
            seconds = self._clock() - self._doing_since
            # What is over in a moment need not flash up.
            if seconds >= 0.3:
                region.append(Text(f"{self._spinner()} {self._doing} {_seconds(seconds)}", "dim", no_wrap=True))
        return region

    def _table(self, rows: list[_Running], columns: int, room: int) -> RenderableType:
        # Those that have run longest stand first, as they were begun.
        shown = rows if len(rows) <= room else rows[: max(room - 1, 0)]
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(columns // 3, 8), style="bold")
        table.add_column(justify="right", no_wrap=True)
        wide = columns >= 60
        if wide:
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=1, style="cyan")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1, style="dim" if wide else "")
        now, mark = self._clock(), self._spinner()
        for row in shown:
            name, seconds = Text(f"{mark} {row.name}"), Text(_seconds(now - row.since))
            progress = [Text(row.arguments), Text(row.progress)] if wide else [Text(row.progress or row.arguments)]
            table.add_row(name, seconds, *progress)
        hidden = len(rows) - len(shown)
        if not hidden:
            return table
        rest = f"  … {hidden} more running" if shown else f"{len(rows)} tools running"
        return Group(table, Text(rest, "dim", no_wrap=True, overflow="ellipsis"))

    def _spinner(self) -> str:
        return "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(self._clock() * 10) % 10]


def _folded(result: ToolResult) -> list[RenderableType]:
    lines = result.text.rstrip().splitlines()
    shown = lines if len(lines) <= _FOLDED + 2 else lines[:_FOLDED]
    folded: list[RenderableType] = [
        Text(f"  {without_controls(line).expandtabs(4)}", "dim", no_wrap=True, overflow="ellipsis") for line in shown
    ]
    images = sum(block.type == "image" for block in result.content)
    if images:
        folded.append(Text(f"  [{_count(images, 'image')}]", "dim"))
    if len(shown) < len(lines):
        # The last line says how a command ended, or what was cut.
        last = without_controls(lines[-1])
        folded.append(Text(f"  … {len(lines) - len(shown) - 1} more lines", "dim"))
        folded.append(Text(f"  {last}", "dim", no_wrap=True, overflow="ellipsis"))
    return folded


def _last_line(result: ToolResult) -> str:
    lines = result.text[-2000:].rstrip().splitlines()
    # Programs that draw a progress bar begin their line again with a carriage return.
    return without_controls(lines[-1].rstrip("\r").rsplit("\r", 1)[-1]).expandtabs(4) if lines else ""


def _arguments(args: Mapping[str, Any]) -> str:
    values = [value if isinstance(value, str) else json_text(value) for value in args.values()]
    # One argument needs no name: the path that is read, the command that is run.
    pairs = values if len(values) == 1 else [f"{key}={value}" for key, value in zip(args, values, strict=True)]
    return without_controls(" ".join(" ".join(pairs).split()))


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02} h"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
