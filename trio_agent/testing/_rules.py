"""What must hold of every run, as far as its events and its transcript tell (design 7.9).

A rule is fed the events of a run one by one and raises :class:`InvariantError` at the first that
breaks it; each event costs it the same, however long the run is. Monitor, assertions and
exploration use the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from trio_agent import (
    Abort,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    TextContent,
    TextDelta,
    ThinkingContent,
    ThinkingDelta,
    ToolCallDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
)
from trio_agent._stream import parse_partial_arguments

from ._errors import InvariantError

__all__ = ["assert_adds_up", "assert_events_paired", "assert_transcript_valid"]

ENDED_BADLY = ("error", "aborted")
"""The stop reasons of answers whose calls are never answered."""
OF_OPEN_CALLS = (ToolExecutionUpdate, ToolExecutionEnd)


class Rule(Protocol):
    """Something that is fed the events of runs, one run after the other."""

    def feed(self, event: AgentEvent) -> None:
        """Look at the next event."""


def broken(invariant: str, difference: str) -> NoReturn:
    """Raise the error of an invariant."""
    raise InvariantError(invariant, difference)


# ----------------------------------------------------------------- events


class Paired:
    """Every start has its end, once; what lies inside something lies between its start and its end."""

    def __init__(self) -> None:
        self.number = 0
        self.running = False
        self._turn = False
        self._message: AgentMessage | None = None
        self._calls: dict[str, bool] = {}
        self._results: list[ToolResultMessage] = []
        self._answer: AssistantMessage | None = None

    def feed(self, event: AgentEvent) -> None:
        """Look at the next event."""
        kind = type(event)
        self.number += 1
        if kind is AgentStart:
            if self.running:
                self._broken(event, "comes within a run")
            self.running, self.number, self._turn, self._message = True, 1, False, None
            return
        if not self.running:
            self._broken(event, "comes outside of a run")
        if kind is TurnStart or kind is AgentEnd:
            if self._turn:
                self._broken(event, "comes within a turn")
            self.running = kind is TurnStart
            self._turn, self._calls, self._results, self._answer = kind is TurnStart, {}, [], None
        elif not self._turn:
            self._broken(event, "comes outside of a turn")
        elif isinstance(event, MessageUpdate):
            if type(self._message) is not AssistantMessage:
                self._broken(event, "belongs to no answer")
        elif isinstance(event, MessageStart):
            if self._message is not None:
                self._broken(event, "comes within a message")
            self._message = event.message
        elif isinstance(event, MessageEnd):
            self._message_end(event)
        elif isinstance(event, ToolExecutionStart):
            if event.tool_call_id in self._calls:
                self._broken(event, f"starts {event.tool_call_id!r} for the second time")
            self._calls[event.tool_call_id] = True
        elif isinstance(event, OF_OPEN_CALLS):
            if not self._calls.get(event.tool_call_id):
                self._broken(event, f"is about {event.tool_call_id!r}, which is not open")
            self._calls[event.tool_call_id] = kind is ToolExecutionUpdate
        elif isinstance(event, TurnEnd):
            self._turn_end(event)

    def end(self) -> None:
        """Look whether the last run is over."""
        if self.running or not self.number:
            broken("Paired", f"there is no agent_end after {self.number} events")

    def _message_end(self, event: MessageEnd) -> None:
        started, message = self._message, event.message
        if type(message) is AssistantMessage:
            if type(started) is not AssistantMessage:
                self._broken(event, "ends an answer that has not started")
            self._answer = message
        elif message is not started:
            self._broken(event, "ends another message than the one that started")
        elif type(message) is ToolResultMessage:
            self._results.append(message)
        self._message = None

    def _turn_end(self, event: TurnEnd) -> None:
        if self._message is not None:
            self._broken(event, "comes within a message")
        still = [call_id for call_id, is_open in self._calls.items() if is_open]
        if still:
            self._broken(event, f"comes while {still} have started and not ended")
        told = [result.tool_call_id for result in self._results]
        if len(told) != len(self._calls) or set(told) != self._calls.keys():
            self._broken(event, f"comes after the calls {list(self._calls)}, but results of {told}")
        if not same(event.tool_results, self._results):
            self._broken(event, "lists other results than were told")
        if event.message is not self._answer:
            self._broken(event, "names another answer than the last that was told")
        self._turn = False

    def _broken(self, event: AgentEvent, difference: str) -> NoReturn:
        broken("Paired", f"event {self.number} ({event.type}) {difference}")


class AddsUp:
    """What was told of an answer adds up to the message told at its end."""

    def __init__(self) -> None:
        self._start: AssistantMessage | None = None
        self._parts: dict[int, list[str]] = {}
        self._ended: set[int] = set()
        self._last: MessageUpdate | None = None

    def feed(self, event: AgentEvent) -> None:
        """Look at the next event."""
        if type(event) is MessageUpdate:
            self._grow(event)
        elif isinstance(event, MessageStart) and type(event.message) is AssistantMessage:
            self._start, self._ended, self._last = event.message, set(), None
            self._parts = {index: [_block_text(block)] for index, block in enumerate(event.message.content)}
        elif isinstance(event, MessageEnd) and type(event.message) is AssistantMessage:
            start, self._start = self._start, None
            if start is not None:
                self._compare(start, event.message)

    def _grow(self, event: MessageUpdate) -> None:
        self._last = event
        step = event.assistant_message_event
        index: int | None = getattr(step, "index", None)
        if index is None:
            return
        parts = self._parts.setdefault(index, [])
        if type(step) is TextDelta or type(step) is ThinkingDelta or type(step) is ToolCallDelta:
            parts.append(step.delta)
        elif step.type == "toolcall_end":
            self._ended.add(index)

    def _compare(self, start: AssistantMessage, end: AssistantMessage) -> None:
        if start.stop_reason != "pending":
            if self._last is not None or end != start:
                broken("Adds up", "a message that was whole from its start has changed")
            return
        if len(self._parts) != len(end.content):
            broken("Adds up", f"{len(self._parts)} blocks were told, {len(end.content)} stand in the message")
        for index, block in enumerate(end.content):
            told = "".join(self._parts.get(index, ()))
            if block.type != "toolCall":
                if _block_text(block) != told:
                    broken("Adds up", f"block {index} says {_block_text(block)!r}, told was {told!r}")
                continue
            if block.arguments_error is not None:
                # What was streamed is no JSON object: it is kept as it came, and nothing of it is executed.
                if block.raw_arguments != told or block.arguments:
                    broken("Adds up", f"block {index} says {block!r}, told was {told!r}")
                continue
            arguments = self._arguments(index, told, start)
            if block.arguments != arguments:
                broken("Adds up", f"block {index} says {block.arguments}, told was {arguments}")

    def _arguments(self, index: int, told: str, start: AssistantMessage) -> Mapping[str, Any]:
        if index not in self._ended:
            return parse_partial_arguments(told)
        if told.strip():
            try:
                arguments: Mapping[str, Any] = json.loads(told, strict=False)
            except ValueError:
                broken("Adds up", f"block {index} is a call that may be executed, but told was {told!r}")
            return arguments
        # Sent whole, without deltas: the last event shows them.
        shown = (self._last.message if self._last is not None else start).content[index]
        return shown.arguments if shown.type == "toolCall" else {}


def _block_text(block: object) -> str:
    if isinstance(block, TextContent):
        return block.text
    return block.thinking if isinstance(block, ThinkingContent) else ""


class Answered:
    """At the end of a turn every call of its answer has its result, in source order."""

    def feed(self, event: AgentEvent) -> None:
        """Look at the next event."""
        if type(event) is TurnEnd:
            message = event.message
            owed = [] if message.stop_reason in ENDED_BADLY else [call.id for call in message.tool_calls]
            told = [result.tool_call_id for result in event.tool_results]
            if owed != told:
                broken("Answered", f"the answer calls {owed}, but the results of its turn are {told}")


class NothingBegins:
    """Once a run is aborted no answer is streamed and no tool is started in it.

    What was under way when the abort came may still be told: so it counts whether the run was
    aborted already when the event *before* was told.
    """

    def __init__(self) -> None:
        self._aborted = False

    def feed(self, event: AgentEvent, abort: Abort) -> None:
        """Look at the next event."""
        if type(event) is AgentStart:
            self._aborted = False
        elif self._aborted:
            if isinstance(event, MessageUpdate):
                broken("Nothing begins", "an answer has grown after the abort")
            if isinstance(event, MessageStart) and getattr(event.message, "stop_reason", "") == "pending":
                broken("Nothing begins", "an answer has begun after the abort")
            if isinstance(event, TurnStart) and not abort.requested:
                broken("Nothing begins", "the abort was taken back")
        self._aborted = abort.requested


# ----------------------------------------------------------- for assertions


def assert_events_paired(events: Iterable[AgentEvent]) -> None:
    """Check the events of one run, or of several one after the other: every start has its end, once.

    Args:
      events: what a listener was told, from an ``agent_start`` to an ``agent_end``.

    Raises:
      InvariantError: the first event that is out of place, and why.
    """
    rule = Paired()
    for event in events:
        rule.feed(event)
    rule.end()


def assert_adds_up(events: Iterable[AgentEvent]) -> None:
    """Check that what was told of each answer adds up to the message told at its end.

    Args:
      events: what a listener was told.

    Raises:
      InvariantError: the first answer of which this does not hold, and what differs.
    """
    rule = AddsUp()
    for event in events:
        rule.feed(event)


def assert_transcript_valid(messages: Iterable[AgentMessage]) -> None:
    """Check that a provider would accept a transcript.

    Every call of an answer has exactly one result, in source order, directly behind it; there is no
    other result. Answers that stopped with ``error`` or ``aborted`` are left out by providers, so
    their calls have none.

    Args:
      messages: a transcript, or what a model was sent (``request.messages``).

    Raises:
      InvariantError: the first message that is out of place, and why.
    """
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if not owed:
                broken("Answered", f"the result of {message.tool_call_id!r} answers nothing")
            if message.tool_call_id != owed[0]:
                broken("Answered", f"{owed[0]!r} should be answered here, not {message.tool_call_id!r}")
            del owed[0]
            continue
        if owed:
            broken("Answered", f"{owed} have no results before the {message.role} message {message!r:.100}")
        if isinstance(message, AssistantMessage) and message.stop_reason not in ENDED_BADLY:
            owed = [call.id for call in message.tool_calls]
            if len(set(owed)) != len(owed):
                broken("Answered", f"call ids repeat: {owed}")
    if owed:
        broken("Answered", f"{owed} have no results at the end of the transcript")


def same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
