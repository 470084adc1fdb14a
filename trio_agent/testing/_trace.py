"""Traces of scenarios: the shapes of their entries, their canonical order, and how two of them compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import attrs

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    BusyError,
    ContinueError,
    ErrorKind,
    FormatError,
    ImageContent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
)

from ._reading import load_json

__all__ = ["Departure", "Difference", "Trace", "Verdict", "compare", "load_departures"]

Entry: TypeAlias = dict[str, Any]
"""One entry of a trace: a JSON object."""


# ----------------------------------------------------------------- shapes


def plain(value: Any) -> Any:
    """A copy of a JSON value, so that whoever changes the original does not change the trace."""
    return json.loads(json.dumps(value, default=repr))


def category(kind: ErrorKind | None) -> str | None:
    """The word that stands for a text of the library's own; None where the text is somebody else's."""
    if kind in ("not_started", "withheld"):
        return "aborted"
    return None if kind == "failed" else kind


def error_shape(error: BaseException) -> str:
    """The word or text that stands for an exception."""
    if isinstance(error, BusyError):
        return "busy"
    if isinstance(error, ContinueError):
        return "nothing_to_continue" if error.tail == "empty" else "cannot_continue_from_assistant"
    return str(error)


def _block_shape(block: object) -> Entry:
    if isinstance(block, TextContent):
        return {"text": block.text}
    if isinstance(block, ThinkingContent):
        return {"thinking": block.thinking}
    return {"tool_call": {key: plain(getattr(block, key)) for key in ("id", "name", "arguments")}}


def content_shape(message: AssistantMessage) -> list[Entry]:
    """The blocks of an answer."""
    return [_block_shape(block) for block in message.content]


def _error_or_text(is_error: bool, kind: ErrorKind | None, text: str) -> Entry:
    word = category(kind) if is_error else None
    return {"text": text} if word is None else {"error": word}


def message_shape(message: object) -> Entry:
    """A message as traces show it."""
    match message:
        case SystemMessage():
            rest: Entry = {
                "sections": plain(message.sections),
                "tools_removed": list(message.tools_removed),
                "tools_added": [tool.name for tool in message.tools_added],
            }
            shape: Entry = {"role": "system", "text": message.content}
            shape.update((key, value) for key, value in rest.items() if value)
        case UserMessage():
            shape = {"role": "user", "text": message.text}
            images = [
                {"data": block.data, "mime_type": block.mime_type}
                for block in message.content
                if isinstance(block, ImageContent)
            ]
            if images:
                shape["images"] = images
        case AssistantMessage():
            shape = {"role": "assistant", "content": content_shape(message), "stop_reason": message.stop_reason}
            if message.error_message is not None:
                shape["error"] = category(message.error_kind) or message.error_message
            if message.thinking_level is not None:
                shape["thinking_level"] = message.thinking_level
        case ToolResultMessage():
            shape = {
                "role": "tool_result",
                "id": message.tool_call_id,
                "name": message.tool_name,
                "is_error": message.is_error,
                **_error_or_text(message.is_error, message.error_kind, message.text),
            }
            if message.details not in (None, {}):
                shape["details"] = plain(message.details)
        case _:
            shape = {"role": getattr(message, "role", ""), "text": getattr(message, "text", "")}
    return shape


def streaming_shape(message: object) -> Entry:
    """A message that has begun; of an answer only what it holds."""
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", "content": content_shape(message)}
    return message_shape(message)


def tag(message: object) -> str:
    """A message in one word."""
    if isinstance(message, ToolResultMessage):
        return f"tool_result:{message.tool_call_id}"
    return str(getattr(message, "role", ""))


def tags(messages: Iterable[object]) -> list[str]:
    """Messages in one word each."""
    return [tag(message) for message in messages]


def result_shape(result: ToolResult, is_error: bool) -> Entry:
    """What came of a call."""
    shape: Entry = {"is_error": is_error, **_error_or_text(is_error, result.error_kind, result.text)}
    if result.details not in (None, {}):
        shape["details"] = plain(result.details)
    if result.structured_content is not None:
        shape["structured"] = plain(result.structured_content)
    if result.terminate:
        shape["terminate"] = True
    return shape


def turn_shape(message: AssistantMessage, results: Iterable[ToolResultMessage]) -> Entry:
    """How a turn ended."""
    return {"stop_reason": message.stop_reason, "tool_results": [result.tool_call_id for result in results]}


def event_shape(event: AgentEvent) -> Entry:
    """An event as traces show it."""
    shape: Entry = {"event": event.type}
    match event:
        case MessageStart():
            shape.update(streaming_shape(event.message))
        case MessageUpdate():
            step: Any = event.assistant_message_event
            shape.update(kind=step.type, index=step.index, content=content_shape(event.message))
            if step.type.endswith("_delta"):
                shape["delta"] = step.delta
        case MessageEnd():
            shape.update(message_shape(event.message))
        case ToolExecutionStart():
            shape.update(id=event.tool_call_id, name=event.tool_name, arguments=plain(event.args))
        case ToolExecutionUpdate():
            shape.update(id=event.tool_call_id, name=event.tool_name, text=event.partial_result.text)
        case ToolExecutionEnd():
            shape.update(id=event.tool_call_id, name=event.tool_name)
            shape.update(result_shape(event.result, event.is_error))
        case TurnEnd():
            shape.update(turn_shape(event.message, event.tool_results))
        case AgentEnd():
            shape["messages"] = tags(event.messages)
    return shape


# ------------------------------------------------------------------ order


def _lane(entry: Mapping[str, Any]) -> str | None:
    """What an entry belongs to that may run at the same instant as others; None if nothing."""
    if "settled" in entry:
        number = entry.get("n")
        return None if number is None else str(number).rjust(4, "0")
    call: Any = None
    if "tool_run" in entry:
        call = entry["tool_run"]
    elif "nested" in entry:
        call = entry["nested"]
    elif entry.get("hook") == "after_tool_call":
        call = entry.get("id")
    elif entry.get("hook") == "before_tool_call":
        call = entry.get("id")
        if "/" not in str(call):
            return None
    elif entry.get("event", entry.get("on")) in ("tool_execution_update", "tool_execution_end"):
        call = entry.get("id")
    return None if call is None else str(call).split("/", 1)[0]


def canonical(entries: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Bring entries into the order in which traces are compared.

    What two tools do at one instant may come in either order, and so may calls of the host that
    return at one instant; nothing else may. Requests that were made in an aborted run are dropped:
    the loop makes the aborted message without asking the model.
    """
    ran: set[str] = set()
    ordered: list[Entry] = []
    run: list[tuple[str, Entry]] = []
    run_key: tuple[Any, ...] | None = None

    def flush() -> None:
        run.sort(key=lambda laned: laned[0])
        ordered.extend(entry for _, entry in run)
        run.clear()

    for entry in entries:
        if entry.get("request") == 0:
            continue
        lane = _lane(entry)
        if lane is None:
            key = None
        elif "settled" in entry:
            key = ("settled", entry.get("at"))
        elif entry.get("event", entry.get("on")) == "tool_execution_end" and str(entry.get("id")) not in ran:
            key = ("never ran", entry.get("at"))
        else:
            key = ("laned", entry.get("at"))
        if "tool_run" in entry:
            ran.add(str(entry["tool_run"]))
        if key is None or key != run_key:
            flush()
        run_key = key
        if lane is None:
            ordered.append(dict(entry))
        else:
            run.append((lane, dict(entry)))
    flush()
    return ordered


@final
@attrs.frozen
class Trace:
    """What a scenario did: its entries in the order in which they were recorded, and its final state."""

    entries: Sequence[Mapping[str, Any]]
    """The entries, as plain JSON objects."""
    final: Mapping[str, Any]
    """The final state, as a plain JSON object."""

    def canonical(self) -> Trace:
        """The same in the order in which traces are compared."""
        return Trace(canonical(self.entries), self.final)

    def to_json(self) -> dict[str, Any]:
        """Make the JSON object that scenario files hold, in canonical order."""
        return {"trace": canonical(self.entries), "final": dict(self.final)}

    @classmethod
    def from_json(cls, data: Any, where: str = "the trace") -> Trace:
        """Read what :meth:`to_json` makes.

        Raises:
          FormatError: the object is no trace; the text names the place and the value.
        """
        if not isinstance(data, dict) or data.keys() != {"trace", "final"}:
            raise FormatError(f'{where} is {data!r:.80}, but must be {{"trace": [...], "final": {{...}}}}')
        entries, final_state = data["trace"], data["final"]
        if not isinstance(entries, list):
            raise FormatError(f"{where}.trace is {entries!r:.80}, but must be an array")
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict) or "at" not in entry:
                raise FormatError(f"{where}.trace[{index}] is {entry!r:.80}, but must be an object with 'at'")
        if not isinstance(final_state, dict):
            raise FormatError(f"{where}.final is {final_state!r:.80}, but must be an object")
        return cls(entries, final_state)


# ---------------------------------------------------------------- compare


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 42 equals 42.0, but 1 is not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


@final
@attrs.frozen
class Difference:
    """The first place at which two traces differ."""

    where: str
    """The place: ``trace[12]``, ``final.messages[3]``."""
    expected: Any
    """What stands there in the expectation; None if it is shorter."""
    actual: Any
    """What stands there in the trace; None if it is shorter."""

    def __str__(self) -> str:
        def line(value: Any) -> str:
            return "nothing" if value is None else json.dumps(value)

        return f"at {self.where}:\n  expected {line(self.expected)}\n  actual   {line(self.actual)}"


def compare(expected: Trace, actual: Trace) -> Difference | None:
    """Find the first difference of two traces, after both were brought into canonical order.

    Returns:
      the difference, or None if there is none.
    """
    found = _first_difference("trace", canonical(expected.entries), canonical(actual.entries))
    if found is not None:
        return found
    if same_json(expected.final, actual.final):
        return None
    for key in dict.fromkeys((*expected.final, *actual.final)):
        one, other = expected.final.get(key), actual.final.get(key)
        if isinstance(one, list) and isinstance(other, list):
            found = _first_difference(f"final.{key}", one, other)
            if found is not None:
                return found
        elif key not in expected.final or key not in actual.final or not same_json(one, other):
            return Difference(f"final.{key}", one, other)
    return Difference("final", expected.final, actual.final)


def _first_difference(where: str, expected: Sequence[Any], actual: Sequence[Any]) -> Difference | None:
    for index in range(max(len(expected), len(actual))):
        one = expected[index] if index < len(expected) else None
        other = actual[index] if index < len(actual) else None
        if index >= len(expected) or index >= len(actual) or not same_json(one, other):
            return Difference(f"{where}[{index}]", one, other)
    return None


# ------------------------------------------------------------- departures


@final
@attrs.frozen
class Departure:
    """A scenario that an implementation answers in its own way, on purpose."""

    name: str
    """The scenario's name."""
    reason: str
    """The sentence that asks for the difference."""
    expect: Trace
    """What is expected in place of the reference's trace."""


def load_departures(path: str | Path) -> dict[str, Departure]:
    """Read a file of departures: a JSON object of name -> ``{"reason": TEXT, "expect": {...}}``.

    Returns:
      the departures by the names of their scenarios.

    Raises:
      FormatError: the file is broken; the text names file, place and value.
      OSError: the file cannot be read.
    """
    data = load_json(path)
    if not isinstance(data, dict):
        raise FormatError(f"{path}: the file holds {data!r:.80}, but must hold an object of departures")
    departures = {}
    for name, entry in data.items():
        where = f"{path}: {name}"
        if not isinstance(entry, dict) or entry.keys() != {"reason", "expect"}:
            raise FormatError(f'{where} is {entry!r:.80}, but must be {{"reason": TEXT, "expect": {{...}}}}')
        if not isinstance(entry["reason"], str) or not entry["reason"].strip():
            raise FormatError(f"{where}.reason is {entry['reason']!r:.80}, but must be a text")
        departures[name] = Departure(name, entry["reason"], Trace.from_json(entry["expect"], f"{where}.expect"))
    return departures


@final
@attrs.frozen
class Verdict:
    """How a trace stands to what is expected of its scenario."""

    status: Literal["ok", "departs", "differs", "stale"]
    """``ok``: as the reference; ``departs``: as our own expectation, and not as the reference;
    ``differs``: as neither; ``stale``: as the reference, although a departure is listed."""
    difference: Difference | None = None
    """For ``differs`` and ``stale``: where the trace leaves what was expected of it."""


def judge(reference: Trace, actual: Trace, departure: Departure | None = None) -> Verdict:
    """Say how a trace stands to the reference and, if one is listed, to a departure from it."""
    from_reference = compare(reference, actual)
    if departure is None:
        return Verdict("ok") if from_reference is None else Verdict("differs", from_reference)
    from_own = compare(departure.expect, actual)
    if from_reference is None:
        return Verdict("stale", from_own)
    return Verdict("departs") if from_own is None else Verdict("differs", from_own)
