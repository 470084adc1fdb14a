"""What a run looks like: as JSON, as plain text, or on a terminal."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, final

from trio_agent._events import AgentEvent, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from trio_agent._messages import AssistantMessage
from trio_agent._stream import TextDelta
from trio_agent._wire import event_to_json

from ._output import without_controls
from ._transcripts import json_text

__all__ = ["JsonView", "PlainView", "TerminalView", "View"]


class View(Protocol):
    """Makes of each event what is written for it."""

    def show(self, event: AgentEvent) -> bytes:
        """The bytes for one event; mostly none."""
        ...


@final
class JsonView:
    """One event per line."""

    def show(self, event: AgentEvent) -> bytes:
        """The event as a line of JSON."""
        return (json_text(event_to_json(event)) + "\n").encode("ascii")


class PlainView:
    """What the model says, as it comes, and nothing else."""

    def __init__(self) -> None:
        self._encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
        self._said = ""
        """The last piece of the answer that is being told."""

    def show(self, event: AgentEvent) -> bytes:
        """The text that an event adds."""
        return self._text(event).encode(self._encoding, "backslashreplace")

    def _text(self, event: AgentEvent) -> str:
        if type(event) is MessageUpdate and type(event.assistant_message_event) is TextDelta:
            piece = without_controls(event.assistant_message_event.delta)
            self._said = piece or self._said
            return piece
        if type(event) is MessageEnd and type(event.message) is AssistantMessage:
            # An answer that came whole has told no deltas.
            rest = "" if self._said else without_controls(event.message.text)
            last = self._said or rest
            self._said = ""
            return rest + ("\n" if last and not last.endswith("\n") else "")
        return ""


@final
class TerminalView(PlainView):
    """What the model says, and a line when a tool starts and ends."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console  # noqa: PLC0415 - 30 ms that a pipe does not need

        # Into a string: rich must not write to the terminal itself, which may be gone or not be read.
        self._lines = io.StringIO()
        self._console = Console(file=self._lines, force_terminal=True, highlight=False)
        self._started: dict[str, float] = {}

    def _text(self, event: AgentEvent) -> str:
        if type(event) is ToolExecutionStart:
            self._started[event.tool_call_id] = time.monotonic()
            return self._line(f"> {event.tool_name} {_arguments(event.args)}", "cyan")
        if type(event) is ToolExecutionEnd:
            seconds = time.monotonic() - self._started.pop(event.tool_call_id, time.monotonic())
            lines = event.result.text.splitlines() or [""]
            verdict, style = ("error", "red") if event.is_error else ("ok", "green")
            return self._line(f"< {event.tool_name} {verdict}, {seconds:.1f} s  {lines[-1]}", style)
        return super()._text(event)

    def _line(self, text: str, style: str) -> str:
        from rich.text import Text  # noqa: PLC0415 - as above

        one_line = without_controls(" ".join(text.split("\n")))
        self._console.print(Text(one_line, style), no_wrap=True, overflow="ellipsis", crop=True)
        line = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        return line


def _arguments(args: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value if isinstance(value, str) else json_text(value)}" for key, value in args.items())
