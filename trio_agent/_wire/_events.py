"""JSON of events.

A ``message_update`` carries what came and never the message so far, as in pi's own proxy protocol, so
that an answer costs as many bytes as it has; a reader adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast, final

from trio_agent._errors import FormatError, StreamError
from trio_agent._events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    EndReason,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
)
from trio_agent._messages import (
    AssistantMessage,
    ErrorKind,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from trio_agent._stream import (
    MessageBuilder,
    StreamEvent,
    TextEnd,
    ThinkingEnd,
    ThinkingStart,
    ToolCallEnd,
    ToolCallStart,
    parse_partial_arguments,
)
from trio_agent._stream._answer import BLOCK_EVENTS, DELTA_EVENTS, _Cursor
from trio_agent._tool import ToolResult

from ._messages import (
    Decode,
    anything,
    blocks,
    boolean,
    choice,
    decode_object,
    encode_list,
    encode_object,
    integer,
    list_of,
    message_from_json,
    message_to_json,
    object_,
    object_of,
    string,
)


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
    if isinstance(event, BLOCK_EVENTS):
        data["contentIndex"] = event.index
        block = builder._blocks[event.index]
    if isinstance(event, DELTA_EVENTS):
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
        data["toolCall"] = encode_object(_ended_call(builder, event.index))
    if builder.usage != Usage():
        data["usage"] = encode_object(builder.usage)
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


_RESULT_FIELDS: tuple[tuple[str, str, Decode], ...] = (
    ("details", "details", anything),
    ("structured_content", "structuredContent", anything),
    ("usage", "usage", object_of(Usage)),
    ("is_error", "isError", boolean),
    ("terminate", "terminate", boolean),
    ("error_kind", "errorKind", choice(ErrorKind)),
)


def _result_to_json(result: ToolResult) -> dict[str, Any]:
    data: dict[str, Any] = {"content": encode_list(result.content)}
    for attr, key, _ in _RESULT_FIELDS:
        value = getattr(result, attr)
        if value is not None and value is not False:
            data[key] = encode_object(value) if attr == "usage" else value
    return data


def _result_from_json(data: Any, where: str) -> ToolResult:
    object_(data, where)
    values = {
        attr: decode(data[key], f"{where}.{key}") for attr, key, decode in _RESULT_FIELDS if data.get(key) is not None
    }
    return ToolResult(_get(data, "content", blocks, where), **values)


def _get(data: Mapping[str, Any], key: str, decode: Decode, where: str) -> Any:
    if key not in data:
        raise FormatError(f"{where} lacks {key!r}")
    return decode(data[key], f"{where}.{key}")


def _any_message(value: Any, where: str) -> Any:
    return message_from_json(value, where)


def _message_of(cls: type) -> Decode:
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
        name = _get(object_(data, "event"), "type", string, "event")
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
            return MessageUpdate(self._step(_get(data, "assistantMessageEvent", object_, name)))
        if name == "message_end":
            self._builder = None
            return MessageEnd(_get(data, "message", _any_message, name))
        if name == "turn_end":
            return TurnEnd(
                _get(data, "message", _message_of(AssistantMessage), name),
                _get(data, "toolResults", list_of(_message_of(ToolResultMessage)), name),
            )
        if name == "agent_end":
            return AgentEnd(
                _get(data, "messages", list_of(_any_message), name),
                choice(EndReason)(data.get("endReason", "done"), f"{name}.endReason"),
            )
        if name not in ("tool_execution_start", "tool_execution_update", "tool_execution_end"):
            raise FormatError(f"event.type is {name!r:.80}, which is no event of this library")
        call_id = _get(data, "toolCallId", string, name)
        tool_name = _get(data, "toolName", string, name)
        if name == "tool_execution_end":
            result = _get(data, "result", _result_from_json, name)
            return ToolExecutionEnd(call_id, tool_name, result, _get(data, "isError", boolean, name))
        args = _get(data, "args", object_, name)
        if name == "tool_execution_start":
            return ToolExecutionStart(call_id, tool_name, args)
        return ToolExecutionUpdate(call_id, tool_name, args, _get(data, "partialResult", _result_from_json, name))

    def _begin(self, message: AssistantMessage) -> MessageBuilder:
        """A builder that holds what the start of an answer showed (mostly nothing)."""
        builder = MessageBuilder(api=message.api, partial_arguments=self._partial_arguments)
        builder.provider = message.provider
        builder.model = message.model
        builder.response_id = message.response_id
        builder.raw_stop_reason = message.raw_stop_reason
        builder.usage = message.usage
        builder.timestamp = message.timestamp
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
        name = _get(data, "type", string, where)
        builder = self._builder
        if builder is None:
            raise FormatError(f"{where} is {name!r:.80}, but no answer has been started")
        if "usage" in data:
            builder.usage = decode_object(Usage, data["usage"], f"{where}.usage")
        if "responseId" in data:
            builder.response_id = string(data["responseId"], f"{where}.responseId")
        if "rawStopReason" in data:
            builder.raw_stop_reason = string(data["rawStopReason"], f"{where}.rawStopReason")
        if name == "start":
            return builder.start()
        index = _get(data, "contentIndex", integer, where)
        try:
            return self._block_step(builder, name, index, data, where)
        except StreamError as error:
            raise FormatError(f"{where} does not fit the events before it: {error}") from error

    def _block_step(
        self, builder: MessageBuilder, name: str, index: int, data: Mapping[str, Any], where: str
    ) -> StreamEvent:
        if name.endswith("_start") and index != len(builder._blocks):
            raise FormatError(f"{where}.contentIndex is {index}, but the next block is {len(builder._blocks)}")
        if name == "text_delta":
            return builder.text_delta(_get(data, "delta", string, where), index)
        if name == "thinking_delta":
            return builder.thinking_delta(_get(data, "delta", string, where), index)
        if name == "toolcall_delta":
            return builder.tool_call_delta(_get(data, "delta", string, where), index)
        if name == "text_start":
            return builder.text_start()
        if name == "thinking_start":
            return builder.thinking_start(redacted=boolean(data.get("redacted", False), f"{where}.redacted"))
        if name == "toolcall_start":
            return builder.tool_call_start(_get(data, "id", string, where), _get(data, "toolName", string, where))
        if name == "toolcall_end":
            call: ToolCall = decode_object(
                ToolCall, _get(data, "toolCall", object_, where), f"{where}.toolCall", "type"
            )
            # With an error the streamed text says more than the arguments: it gives both.
            arguments = call.arguments if call.arguments_error is None else None
            return builder.tool_call_end(index, arguments=arguments, signature=call.thought_signature)
        signature = data.get("contentSignature")
        if signature is not None:
            string(signature, f"{where}.contentSignature")
        if name == "text_end":
            return builder.text_end(index, signature=signature)
        if name == "thinking_end":
            return builder.thinking_end(index, signature=signature)
        raise FormatError(f"{where}.type is {name!r:.80}, which is no event of this library")
