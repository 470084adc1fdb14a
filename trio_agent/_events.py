"""What a run tells: one class for each event, and their union (pi's ``AgentEvent``).

Every start has its end, once; ``agent_end`` is the last event of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast, final

import attrs

from ._errors import FormatError, StreamError
from ._messages import (
    AgentMessage,
    AssistantMessage,
    ErrorKind,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    _anything,
    _blocks,
    _boolean,
    _choice,
    _Decode,
    _decode,
    _encode,
    _encode_list,
    _integer,
    _list_of,
    _object,
    _string,
    _tagged,
    message_from_json,
    message_to_json,
)
from ._stream import (
    MessageBuilder,
    StreamEvent,
    TextEnd,
    ThinkingEnd,
    ThinkingStart,
    ToolCallEnd,
    ToolCallStart,
    _BlockEvent,
    _Cursor,
    _DeltaEvent,
    parse_partial_arguments,
)
from ._tool import ToolResult

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "EndReason",
    "EventDecoder",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
    "event_to_json",
]

EndReason: TypeAlias = Literal[
    "done",
    "terminated",
    "finish_turn",
    "stop_after_turn",
    "max_turns",
    "max_tool_calls",
    "aborted",
    "deadline",
    "cancelled",
    "error",
]
"""Why a run ended.

``done``: there was nothing more to do; ``terminated``: every result of the last batch said so;
``finish_turn``: the hook decided it; ``stop_after_turn``: the host asked for it; ``max_turns``,
``max_tool_calls``, ``deadline``: a limit of the run; ``aborted``: ``abort()``; ``cancelled``: the
host's cancel scope or a key interrupt; ``error``: a model, hook or listener failed.
"""


@final
@attrs.frozen
class AgentStart:
    """A run begins."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"


@final
@attrs.frozen
class TurnStart:
    """A turn begins: one request, and the tool calls that its answer asks for."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"


@final
@attrs.frozen
class MessageStart:
    """A message begins; an answer is still partial."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message: AgentMessage


@final
@attrs.frozen
class MessageUpdate:
    """An answer grew."""

    type: ClassVar[Literal["message_update"]] = "message_update"
    assistant_message_event: StreamEvent
    """What came."""

    @property
    def message(self) -> AssistantMessage:
        """The answer so far; built anew whenever somebody asks."""
        return self.assistant_message_event.partial


@final
@attrs.frozen
class MessageEnd:
    """A message is complete and stands in the transcript."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    message: AgentMessage


@final
@attrs.frozen
class ToolExecutionStart:
    """A call is taken up."""

    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"
    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]
    """The arguments as the model sent them."""


@final
@attrs.frozen
class ToolExecutionUpdate:
    """A tool reports progress."""

    type: ClassVar[Literal["tool_execution_update"]] = "tool_execution_update"
    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]
    """The arguments as the model sent them."""
    partial_result: ToolResult


@final
@attrs.frozen
class ToolExecutionEnd:
    """A call is over, its hooks too."""

    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    tool_call_id: str
    tool_name: str
    result: ToolResult
    is_error: bool


@final
@attrs.frozen
class TurnEnd:
    """A turn is over."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    message: AssistantMessage
    """The answer of the turn."""
    tool_results: tuple[ToolResultMessage, ...] = ()
    """Its results, in source order."""


@final
@attrs.frozen
class AgentEnd:
    """The run is over; no event follows."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    messages: tuple[AgentMessage, ...]
    """What the run added to the transcript."""
    end_reason: EndReason = "done"
    """Why it ended."""


AgentEvent: TypeAlias = (
    AgentStart
    | TurnStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
)
"""What listeners get."""


# ------------------------------------------------------------------- JSON
#
# The keys are pi's. A ``message_update`` carries what came and never the message so far, as in pi's
# own proxy protocol, so that an answer costs as many bytes as it has; a reader adds up.


def event_to_json(event: AgentEvent) -> dict[str, Any]:
    """Make plain JSON of an event; :class:`EventDecoder` reads it.

    A ``message_update`` holds only its delta, so it costs the same however long the answer is.
    ``toolcall_end`` holds the call with its arguments. What a provider says besides the content
    (usage, its own ids) comes with the starts and ends of blocks.

    Raises:
      FormatError: a message of the host's own kind has no JSON form; see
        :func:`register_message_type`.
    """
    data: dict[str, Any] = {"type": event.type}
    if type(event) is MessageUpdate:
        data["assistantMessageEvent"] = _stream_event_to_json(event.assistant_message_event)
    elif type(event) is MessageStart or type(event) is MessageEnd:
        data["message"] = message_to_json(event.message)
    elif type(event) is TurnEnd:
        data["message"] = message_to_json(event.message)
        data["toolResults"] = [message_to_json(result) for result in event.tool_results]
    elif type(event) is AgentEnd:
        data["messages"] = [message_to_json(message) for message in event.messages]
        data["endReason"] = event.end_reason
    elif type(event) is ToolExecutionStart or type(event) is ToolExecutionUpdate:
        data.update(toolCallId=event.tool_call_id, toolName=event.tool_name, args=dict(event.args))
        if type(event) is ToolExecutionUpdate:
            data["partialResult"] = _result_to_json(event.partial_result)
    elif type(event) is ToolExecutionEnd:
        data.update(toolCallId=event.tool_call_id, toolName=event.tool_name)
        data.update(result=_result_to_json(event.result), isError=event.is_error)
    return data


def _stream_event_to_json(event: StreamEvent) -> dict[str, Any]:
    data: dict[str, Any] = {"type": event.type}
    builder = event.builder
    if isinstance(event, _BlockEvent):
        data["contentIndex"] = event.index
        block = builder._blocks[event.index]
    if isinstance(event, _DeltaEvent):
        data["delta"] = event.delta
        return data
    if type(event) is ToolCallStart:
        data.update(id=block.call_id, toolName=block.name)
    elif type(event) is ThinkingStart and block.redacted:
        data["redacted"] = True
    elif type(event) is TextEnd or type(event) is ThinkingEnd:
        if block.signature is not None:
            data["contentSignature"] = block.signature
    elif type(event) is ToolCallEnd:
        data["toolCall"] = _encode(_ended_call(builder, event.index))
    if builder.usage != Usage():
        data["usage"] = _encode(builder.usage)
    if builder.response_id is not None:
        data["responseId"] = builder.response_id
    if builder.raw_stop_reason is not None:
        data["rawStopReason"] = builder.raw_stop_reason
    return data


def _ended_call(builder: MessageBuilder, index: int) -> ToolCall:
    # Not event.partial: that would build (and parse) every other block of the message, for each call.
    cursor = _Cursor()
    cursor.counts = [0] * index + [len(builder._blocks[index].pieces)]
    cursor.ended = [True] * (index + 1)
    cursor.texts = [(0, "")] * (index + 1)
    return cast("ToolCall", builder._content(cursor, index))


_RESULT_FIELDS: tuple[tuple[str, str, _Decode], ...] = (
    ("details", "details", _anything),
    ("structured_content", "structuredContent", _anything),
    ("usage", "usage", _tagged(Usage)),
    ("is_error", "isError", _boolean),
    ("terminate", "terminate", _boolean),
    ("error_kind", "errorKind", _choice(ErrorKind)),
)


def _result_to_json(result: ToolResult) -> dict[str, Any]:
    data: dict[str, Any] = {"content": _encode_list(result.content)}
    for attr, key, _ in _RESULT_FIELDS:
        value = getattr(result, attr)
        if value is not None and value is not False:
            data[key] = _encode(value) if attr == "usage" else value
    return data


def _result_from_json(data: Any, where: str) -> ToolResult:
    _object(data, where)
    values = {
        attr: decode(data[key], f"{where}.{key}")
        for attr, key, decode in _RESULT_FIELDS
        if data.get(key) is not None
    }
    return ToolResult(_get(data, "content", _blocks, where), **values)


def _get(data: Mapping[str, Any], key: str, decode: _Decode, where: str) -> Any:
    if key not in data:
        raise FormatError(f"{where} lacks {key!r}")
    return decode(data[key], f"{where}.{key}")


def _any_message(value: Any, where: str) -> Any:
    return message_from_json(value, where)


def _message_of(cls: type) -> _Decode:
    def decode(value: Any, where: str) -> Any:
        message = message_from_json(value, where)
        if type(message) is not cls:
            raise FormatError(f"{where} has the role {message.role!r}, but must be a {cls.__name__}")
        return message

    return decode


@final
class EventDecoder:
    """Makes events of their JSON, one run after the other.

    The events of a run are given to one decoder in their order: it puts each answer together again,
    so that ``event.message`` of a decoded ``message_update`` is the answer so far.

    Args:
      partial_arguments: what shows the unfinished arguments of a call, where the provider's
        :class:`MessageBuilder` was given another function than the library's.
    """

    __slots__ = ("_builder", "_partial_arguments")

    def __init__(self, partial_arguments: Callable[[str], dict[str, Any]] = parse_partial_arguments) -> None:
        self._builder: MessageBuilder | None = None
        self._partial_arguments = partial_arguments

    def decode(self, data: Mapping[str, Any]) -> AgentEvent:
        """The event that :func:`event_to_json` made this of.

        Raises:
          FormatError: it is no event, or not one that can follow those before it; the text names
            the place and the value. The decoder can go on with the next run.
        """
        name = _get(_object(data, "event"), "type", _string, "event")
        if name == "agent_start":
            self._builder = None
            return AgentStart()
        if name == "turn_start":
            return TurnStart()
        if name == "message_start":
            message = _get(data, "message", _any_message, name)
            self._builder = self._begin(message) if type(message) is AssistantMessage else None
            return MessageStart(message)
        if name == "message_update":
            return MessageUpdate(self._step(_get(data, "assistantMessageEvent", _object, name)))
        if name == "message_end":
            self._builder = None
            return MessageEnd(_get(data, "message", _any_message, name))
        if name == "turn_end":
            return TurnEnd(
                _get(data, "message", _message_of(AssistantMessage), name),
                _get(data, "toolResults", _list_of(_message_of(ToolResultMessage)), name),
            )
        if name == "agent_end":
            return AgentEnd(
                _get(data, "messages", _list_of(_any_message), name),
                _choice(EndReason)(data.get("endReason", "done"), f"{name}.endReason"),
            )
        if name not in ("tool_execution_start", "tool_execution_update", "tool_execution_end"):
            raise FormatError(f"event.type is {name!r:.80}, which is no event of this library")
        call_id = _get(data, "toolCallId", _string, name)
        tool_name = _get(data, "toolName", _string, name)
        if name == "tool_execution_end":
            result = _get(data, "result", _result_from_json, name)
            return ToolExecutionEnd(call_id, tool_name, result, _get(data, "isError", _boolean, name))
        args = _get(data, "args", _object, name)
        if name == "tool_execution_start":
            return ToolExecutionStart(call_id, tool_name, args)
        return ToolExecutionUpdate(
            call_id, tool_name, args, _get(data, "partialResult", _result_from_json, name)
        )

    def _begin(self, message: AssistantMessage) -> MessageBuilder:
        """A builder that holds what the start of an answer showed (mostly nothing)."""
        builder = MessageBuilder(api=message.api, partial_arguments=self._partial_arguments)
        builder.provider = message.provider
        builder.model = message.model
        builder.response_id = message.response_id
        builder.raw_stop_reason = message.raw_stop_reason
        builder.usage = message.usage
        for block in message.content:
            if type(block) is TextContent:
                builder.text_start()
                builder.text_delta(block.text)
            elif type(block) is ThinkingContent:
                builder.thinking_start(redacted=block.redacted)
                builder.thinking_delta(block.thinking)
            else:
                # Whether the call was complete is not said; its arguments are, and nothing can follow.
                builder.tool_call_start(block.id, block.name)
                builder.tool_call_end(arguments=block.arguments, signature=block.thought_signature)
        return builder

    def _step(self, data: Mapping[str, Any]) -> StreamEvent:
        where = "message_update.assistantMessageEvent"
        name = _get(data, "type", _string, where)
        builder = self._builder
        if builder is None:
            raise FormatError(f"{where} is {name!r:.80}, but no answer has been started")
        if "usage" in data:
            builder.usage = _decode(Usage, data["usage"], f"{where}.usage")
        if "responseId" in data:
            builder.response_id = _string(data["responseId"], f"{where}.responseId")
        if "rawStopReason" in data:
            builder.raw_stop_reason = _string(data["rawStopReason"], f"{where}.rawStopReason")
        if name == "start":
            return builder.start()
        index = _get(data, "contentIndex", _integer, where)
        try:
            return self._block_step(builder, name, index, data, where)
        except StreamError as error:
            raise FormatError(f"{where} does not fit the events before it: {error}") from error

    def _block_step(
        self, builder: MessageBuilder, name: str, index: int, data: Mapping[str, Any], where: str
    ) -> StreamEvent:
        if name.endswith("_start") and index != len(builder._blocks):
            raise FormatError(
                f"{where}.contentIndex is {index}, but the next block is {len(builder._blocks)}"
            )
        if name == "text_delta":
            return builder.text_delta(_get(data, "delta", _string, where), index)
        if name == "thinking_delta":
            return builder.thinking_delta(_get(data, "delta", _string, where), index)
        if name == "toolcall_delta":
            return builder.tool_call_delta(_get(data, "delta", _string, where), index)
        if name == "text_start":
            return builder.text_start()
        if name == "thinking_start":
            return builder.thinking_start(redacted=_boolean(data.get("redacted", False), f"{where}.redacted"))
        if name == "toolcall_start":
            return builder.tool_call_start(
                _get(data, "id", _string, where), _get(data, "toolName", _string, where)
            )
        if name == "toolcall_end":
            call: ToolCall = _decode(
                ToolCall, _get(data, "toolCall", _object, where), f"{where}.toolCall", "type"
            )
            # With an error the streamed text says more than the arguments: it gives both.
            arguments = call.arguments if call.arguments_error is None else None
            return builder.tool_call_end(index, arguments=arguments, signature=call.thought_signature)
        signature = data.get("contentSignature")
        if signature is not None:
            _string(signature, f"{where}.contentSignature")
        if name == "text_end":
            return builder.text_end(index, signature=signature)
        if name == "thinking_end":
            return builder.thinking_end(index, signature=signature)
        raise FormatError(f"{where}.type is {name!r:.80}, which is no event of this library")
