"""Events to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    EventDecoder,
    FormatError,
    ImageContent,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamEvent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
    event_to_json,
)


def through_json(event: AgentEvent) -> Any:
    return json.loads(json.dumps(event_to_json(event)))


def steps_of_everything(builder: MessageBuilder) -> Iterable[StreamEvent]:
    builder.api, builder.provider, builder.model, builder.timestamp = "api", "provider", "model", 5
    yield builder.start()
    yield builder.thinking_start()
    yield builder.thinking_delta("hm")
    yield builder.thinking_end(signature="seal")
    yield builder.thinking_start(redacted=True)
    yield builder.thinking_end(signature="hidden")
    builder.usage = Usage(input=7, total_tokens=7)
    builder.response_id = "r1"
    yield builder.text_start()
    yield builder.text_delta("a")
    yield builder.text_delta("\udc80 \u2028 é")
    yield builder.tool_call_start("c1", "first")
    yield builder.tool_call_start("c2", "second")
    yield builder.tool_call_delta('{"x": [1, "t', 3)
    yield builder.tool_call_delta('{"broken": ', 4)
    yield builder.text_delta(" more", 2)
    yield builder.tool_call_delta('wo"]}', 3)
    builder.usage = Usage(input=7, output=9, total_tokens=16, extra={"tier": "x"})
    builder.raw_stop_reason = "end"
    yield builder.tool_call_end(3, signature="mark")
    yield builder.tool_call_end(4)
    yield builder.text_end(2, signature="sig")
    yield builder.tool_call_start("c3", "third")
    yield builder.tool_call_end(arguments={"whole": True})


def test_every_step_of_an_answer_comes_back_with_the_same_partial_message() -> None:
    builder = MessageBuilder(api="api")
    decoder = EventDecoder()
    started = False
    seen = set()
    for step in steps_of_everything(builder):
        if not started:
            decoder.decode(through_json(MessageStart(step.partial)))
            started = True
        decoded = decoder.decode(through_json(MessageUpdate(step)))
        assert type(decoded) is MessageUpdate
        copy = decoded.assistant_message_event
        assert type(copy) is type(step)
        for name in ("index", "delta"):
            assert getattr(copy, name, None) == getattr(step, name, None)
        assert copy.partial == step.partial
        seen.add(step.type)
    assert seen == {
        "start",
        *(f"{kind}_{step}" for kind in ("text", "thinking", "toolcall") for step in ("start", "delta", "end")),
    }


def test_a_decoded_event_still_gives_its_own_partial_later() -> None:
    builder = MessageBuilder()
    decoder = EventDecoder()
    decoder.decode(through_json(MessageStart(builder.start().partial)))
    events: list[StreamEvent] = [builder.text_start(), *(builder.text_delta(piece) for piece in "abc")]
    decoded = [decoder.decode(through_json(MessageUpdate(event))) for event in events]
    texts = [event.message.text for event in decoded if type(event) is MessageUpdate]
    assert texts == ["", "a", "ab", "abc"]


USAGE = Usage(input=1, output=2, reasoning=1, total_tokens=3, cost={"total": 0.5})
CALL = ToolCall("c1", "look", {"at": "x", "n": 1.5})
ANSWER = AssistantMessage(
    (ThinkingContent("hm", thinking_signature="s"), TextContent("hi"), CALL), stop_reason="tool_use", usage=USAGE
)
RESULT = ToolResultMessage("c1", "look", "seen", details={"deep": [None, {"a": 1}]}, is_error=True)
FULL = ToolResult(
    (TextContent("text"), ImageContent("AAAA", "image/png")),
    details={"a": [1, None]},
    structured_content=[1, {"b": False}],
    usage=USAGE,
    is_error=True,
    terminate=True,
    error_kind="timeout",
)


@pytest.mark.parametrize(
    "event",
    [
        AgentStart(),
        TurnStart(),
        MessageStart(UserMessage("hello", timestamp=5, extra={"mine": 1})),
        MessageStart(ANSWER),
        MessageEnd(ANSWER),
        MessageEnd(RESULT),
        ToolExecutionStart("c1", "look", {"at": "x"}),
        ToolExecutionUpdate("c1", "look", {"at": "x"}, ToolResult("half")),
        ToolExecutionUpdate("c1", "look", {}, FULL),
        ToolExecutionEnd("c1", "look", FULL, is_error=True),
        ToolExecutionEnd("c1", "look", ToolResult(), is_error=False),
        ToolExecutionEnd("c1", "look", ToolResult("", structured_content=0, details=""), is_error=False),
        TurnEnd(ANSWER, (RESULT,)),
        TurnEnd(ANSWER),
        AgentEnd((UserMessage("hello"), ANSWER, RESULT), "max_turns"),
        AgentEnd(()),
    ],
    ids=lambda event: event.type,
)
def test_an_event_comes_back_equal(event: AgentEvent) -> None:
    assert EventDecoder().decode(through_json(event)) == event


def test_the_keys_are_those_of_pi() -> None:
    assert event_to_json(ToolExecutionUpdate("c1", "look", {"at": "x"}, ToolResult("half"))) == {
        "type": "tool_execution_update",
        "toolCallId": "c1",
        "toolName": "look",
        "args": {"at": "x"},
        "partialResult": {"content": [{"type": "text", "text": "half"}]},
    }
    end = event_to_json(ToolExecutionEnd("c1", "look", FULL, is_error=True))
    assert end["isError"] is True
    assert sorted(end["result"]) == [
        "content",
        "details",
        "errorKind",
        "isError",
        "structuredContent",
        "terminate",
        "usage",
    ]
    assert list(event_to_json(TurnEnd(ANSWER, (RESULT,)))) == ["type", "message", "toolResults"]
    assert event_to_json(AgentEnd((), "aborted")) == {"type": "agent_end", "messages": [], "endReason": "aborted"}
    builder = MessageBuilder()
    assert event_to_json(MessageUpdate(builder.tool_call_start("c1", "look"))) == {
        "type": "message_update",
        "assistantMessageEvent": {"type": "toolcall_start", "contentIndex": 0, "id": "c1", "toolName": "look"},
    }
    assert event_to_json(MessageUpdate(builder.tool_call_delta('{"a": 1}'))) == {
        "type": "message_update",
        "assistantMessageEvent": {"type": "toolcall_delta", "contentIndex": 0, "delta": '{"a": 1}'},
    }
    call = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"a": 1}}
    assert event_to_json(MessageUpdate(builder.tool_call_end())) == {
        "type": "message_update",
        "assistantMessageEvent": {"type": "toolcall_end", "contentIndex": 0, "toolCall": call},
    }


def test_an_update_is_as_long_as_its_delta_however_long_the_answer_is() -> None:
    builder = MessageBuilder()
    builder.text_start()
    builder.usage = USAGE  # known early by some providers; it must not ride on every delta
    lengths = {len(json.dumps(event_to_json(MessageUpdate(builder.text_delta("x" * 10))))) for _ in range(1000)}
    assert len(lengths) == 1
    assert lengths.pop() < 120


def test_the_end_of_a_call_does_not_build_its_siblings() -> None:
    parsed: list[str] = []

    def partial_arguments(text: str) -> dict[str, Any]:
        parsed.append(text)
        return {}

    builder = MessageBuilder(partial_arguments=partial_arguments)
    for number in range(3):
        builder.tool_call_start(f"c{number}", "t")
        builder.tool_call_delta("{}")
    event_to_json(MessageUpdate(builder.tool_call_end(1)))
    assert parsed == []


def test_arguments_that_are_no_json_come_back_with_their_error() -> None:
    builder = MessageBuilder()
    decoder = EventDecoder()
    decoder.decode(through_json(MessageStart(builder.start().partial)))
    steps: list[StreamEvent] = [
        builder.tool_call_start("c1", "t"),
        builder.tool_call_delta('{"a": NaN}'),
        builder.tool_call_end(),
    ]
    (call,) = [decoder.decode(through_json(MessageUpdate(step))) for step in steps][-1].message.tool_calls  # type: ignore[union-attr]
    assert call.arguments_error is not None
    assert call.raw_arguments == '{"a": NaN}'
    assert steps[-1].partial.tool_calls == (call,)


def test_what_a_late_start_showed_counts_as_told() -> None:
    builder = MessageBuilder()
    builder.thinking_start()
    builder.thinking_delta("be")
    builder.text_start()
    builder.text_delta("fore")
    builder.tool_call_start("c1", "t")
    builder.tool_call_end(arguments={"a": 1})
    decoder = EventDecoder()
    decoder.decode(through_json(MessageStart(builder.start().partial)))
    step = builder.text_delta(" and after", 1)
    decoded = decoder.decode(through_json(MessageUpdate(step)))
    assert type(decoded) is MessageUpdate
    assert decoded.message == step.partial


def test_a_provider_with_its_own_look_at_unfinished_arguments() -> None:
    def hide(text: str) -> dict[str, Any]:
        return {"hidden": len(text)}

    builder = MessageBuilder(partial_arguments=hide)
    decoder = EventDecoder(hide)
    decoder.decode(through_json(MessageStart(builder.start().partial)))
    decoder.decode(through_json(MessageUpdate(builder.tool_call_start("c1", "t"))))
    decoded = decoder.decode(through_json(MessageUpdate(builder.tool_call_delta('{"a'))))
    assert type(decoded) is MessageUpdate
    assert decoded.message.tool_calls[0].arguments == {"hidden": 3}


TEXT = {"type": "text", "text": ""}
STARTED = {"type": "message_start", "message": {"role": "assistant", "content": [TEXT]}}


def update(**event: Any) -> dict[str, Any]:
    return {"type": "message_update", "assistantMessageEvent": event}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], r"event is \[\], but must be an object"),
        ({}, "event lacks 'type'"),
        ({"type": 3}, "event.type is 3, but must be a string"),
        ({"type": "agent_stop"}, "event.type is 'agent_stop', which is no event"),
        ({"type": "message_start"}, "message_start lacks 'message'"),
        ({"type": "message_start", "message": {"role": "nobody"}}, "message_start.message has the role 'nobody'"),
        ({"type": "message_end", "message": {"role": "user"}}, "message_end.message lacks 'content'"),
        ({"type": "turn_end", "message": {"role": "user", "content": []}, "toolResults": []}, "must be a Assis"),
        ({"type": "turn_end", "message": {"role": "assistant", "content": []}}, "turn_end lacks 'toolResults'"),
        (
            {"type": "turn_end", "message": STARTED["message"], "toolResults": [STARTED["message"]]},
            r"turn_end.toolResults\[0\] has the role 'assistant'",
        ),
        ({"type": "agent_end", "messages": {}}, "agent_end.messages is {}, but must be an array"),
        ({"type": "agent_end", "messages": [], "endReason": "tired"}, "agent_end.endReason is 'tired'"),
        ({"type": "tool_execution_start", "toolName": "t", "args": {}}, "lacks 'toolCallId'"),
        ({"type": "tool_execution_start", "toolCallId": "c", "toolName": "t", "args": []}, "args is"),
        ({"type": "tool_execution_end", "toolCallId": "c", "toolName": "t", "isError": True}, "lacks 'result'"),
        (
            {"type": "tool_execution_end", "toolCallId": "c", "toolName": "t", "result": {"content": []}},
            "lacks 'isError'",
        ),
        (
            {
                "type": "tool_execution_end",
                "toolCallId": "c",
                "toolName": "t",
                "result": {"content": [], "errorKind": "odd"},
                "isError": False,
            },
            "tool_execution_end.result.errorKind is 'odd'",
        ),
        (update(type="text_delta", contentIndex=0), "lacks 'delta'"),
        (update(type="text_delta", contentIndex=True, delta="x"), "contentIndex is True"),
        (update(type="text_delta", contentIndex=1, delta="x"), "no open text block 1"),
        (update(type="thinking_delta", contentIndex=0, delta="x"), "no open thinking block 0"),
        (update(type="text_start", contentIndex=5), "contentIndex is 5, but the next block is 1"),
        (update(type="toolcall_start", contentIndex=1, id="c"), "lacks 'toolName'"),
        (update(type="toolcall_end", contentIndex=0, toolCall={"id": "c"}), "toolCall lacks 'name'"),
        (update(type="text_end", contentIndex=0, contentSignature=1), "contentSignature is 1"),
        (update(type="text_end", contentIndex=0, usage=[]), "usage is"),
        (update(type="done", contentIndex=0), "type is 'done', which is no event"),
        (update(contentIndex=0), "lacks 'type'"),
    ],
)
def test_what_is_no_event_is_refused_with_its_place(data: Any, text: str) -> None:
    decoder = EventDecoder()
    decoder.decode(STARTED)
    with pytest.raises(FormatError, match=text):
        decoder.decode(data)
    assert decoder.decode({"type": "agent_start"}) == AgentStart()


def test_an_update_outside_of_an_answer_is_refused() -> None:
    decoder = EventDecoder()
    delta = update(type="text_delta", contentIndex=0, delta="x")
    with pytest.raises(FormatError, match="no answer has been started"):
        decoder.decode(delta)
    decoder.decode(STARTED)
    decoder.decode(delta)
    decoder.decode({"type": "message_end", "message": STARTED["message"]})
    with pytest.raises(FormatError, match="no answer has been started"):
        decoder.decode(delta)


def test_a_message_of_an_unregistered_kind_has_no_json_form() -> None:
    @attrs.frozen
    class Note:
        role: str = "note"

    with pytest.raises(FormatError, match="register_message_type"):
        event_to_json(MessageEnd(Note()))
