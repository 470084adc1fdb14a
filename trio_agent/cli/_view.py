"""What a run looks like: as JSON or as plain text; ``_terminal`` is what a terminal shows."""

from __future__ import annotations

import sys
from typing import Protocol, final, runtime_checkable

from trio_agent._events import AgentEvent, MessageEnd, MessageUpdate
from trio_agent._messages import AssistantMessage
from trio_agent._stream import TextDelta
from trio_agent._wire import event_to_json

from ._output import without_controls
from ._transcripts import json_text

__all__ = ["JsonView", "LiveView", "PlainView", "View"]


class View(Protocol):
    """Makes of each event what is written for it."""

    def show(self, event: AgentEvent) -> bytes:
        """The bytes for one event; mostly none."""
        ...


@runtime_checkable
class LiveView(View, Protocol):
    """A view that shows also what is going on."""

    def frame(self, *, now: bool = False) -> bytes:
        """What is going on, drawn anew; ``now`` if the size of the screen has changed."""
        ...

    def close(self) -> bytes:
        """The end of it, once more where a cancellation has cut the drawing of events."""
        ...


@final
class JsonView:
    """One event per line; ``trio-agent schema`` describes it."""

    def show(self, event: AgentEvent) -> bytes:
        """The event as a line of JSON."""
        return (json_text(event_to_json(event)) + "\n").encode("ascii")


@final
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
