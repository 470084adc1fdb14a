"""Anthropic's Messages: every kind of block, what is passed through, and what is an answer and what an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from decoding import Decoded, decode_always_the_same, decode_pieces, sse

from trio_agent import TextContent, ThinkingContent, ToolCall, Usage, message_from_json, message_to_json
from trio_agent.providers import (
    AnthropicMessagesDecoder,
    OverloadedError,
    ProtocolError,
    RefusedError,
    ServerError,
    TransportError,
)


def named(document: dict[str, Any]) -> str:
    return f"event: {document['type']}\ndata: {json.dumps(document)}\n\n"


START = {
    "type": "message_start",
    "message": {"id": "m1", "model": "m", "content": [], "usage": {"input_tokens": 12, "output_tokens": 1}},
}
PING = {"type": "ping"}
STOP = {"type": "message_stop"}


def begin(index: int, type: str, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": type, **block}}


def delta(index: int, type: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **more}}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def last(reason: str | None = "end_turn", usage: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage or {"output_tokens": 9}}


def text(index: int, *deltas: str) -> list[dict[str, Any]]:
    return [begin(index, "text", text=""), *[delta(index, "text_delta", text=each) for each in deltas], end(index)]


def decode(*documents: Any) -> Decoded:
    body = sse(*[named(each) if isinstance(each, dict) else each for each in documents])
    return decode_always_the_same(AnthropicMessagesDecoder, body)


def answered(*documents: Any, reason: str = "end_turn", **more: Any) -> Any:
    result = decode(START, PING, *documents, last(reason, **more), STOP)
    assert result.error is None, result.error
    return result.message


def failed(*documents: Any) -> tuple[Any, Any]:
    result = decode(*documents)
    assert result.error is not None
    return result.error, result.message


# ------------------------------------------------------------------ blocks


def test_text_is_told_delta_by_delta() -> None:
    result = decode(START, *text(0, "Hel", "", "lo"), last(), STOP)
    assert result.events == (
        ("start", None, None, 0),
        ("text_start", 0, None, 1),
        ("text_delta", 0, "Hel", 2),
        ("text_delta", 0, "lo", 3),
        ("text_end", 0, None, 4),
    )
    message = result.message
    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("Hello", "stop", "end_turn")
    assert (message.api, message.model, message.response_id) == ("anthropic-messages", "m", "m1")
    assert message.extra == {}


def test_the_names_of_events_may_be_missing() -> None:
    result = decode_always_the_same(AnthropicMessagesDecoder, sse(START, *text(0, "Hi"), last(), STOP, done=True))
    assert (result.message.text, result.error) == ("Hi", None)


def test_b77_line_endings() -> None:
    body = "\ufeff" + "".join(map(named, [START, *text(0, "ä\u2028"), last(), STOP])).replace("\n", "\r\n")
    result = decode_always_the_same(AnthropicMessagesDecoder, body.replace(": ", ":").encode())
    assert (result.message.text, result.error) == ("ä\u2028", None)


def test_thinking_has_its_signature() -> None:
    message = answered(
        begin(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hm"),
        delta(0, "thinking_delta", thinking="m."),
        delta(0, "signature_delta", signature="ab"),
        delta(0, "signature_delta", signature="cd"),
        end(0),
        begin(1, "thinking", thinking="", signature=""),
        end(1),
        *text(2, "So."),
    )
    first, second, third = message.content
    assert first == ThinkingContent("Hmm.", thinking_signature="abcd")
    assert second == ThinkingContent("")
    assert third == TextContent("So.")


def test_hidden_thinking_is_kept() -> None:
    message = answered(begin(0, "redacted_thinking", data="xyz"), end(0))
    assert message.content == (ThinkingContent("", thinking_signature="xyz", redacted=True),)


def test_calls() -> None:
    message = answered(
        *text(0, "Wait."),
        begin(1, "tool_use", id="a", name="f", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(1, "input_json_delta", partial_json='{"x"'),
        delta(1, "input_json_delta", partial_json=": 1}"),
        end(1),
        begin(2, "tool_use", id="b", name="g", input={}),
        end(2),
        reason="tool_use",
    )
    assert message.content == (TextContent("Wait."), ToolCall("a", "f", {"x": 1}), ToolCall("b", "g", {}))
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "tool_use")


def test_b66_a_call_whose_input_comes_whole_or_not_at_all() -> None:
    message = answered(begin(0, "tool_use", id="a", name="f", input={"x": 1}), end(0), reason="tool_use")
    assert message.content == (ToolCall("a", "f", {"x": 1}),)
    message = answered(begin(0, "tool_use", id="a", name="f"), delta(0, "input_json_delta", partial_json=""), end(0))
    assert message.content == (ToolCall("a", "f", {}),)


def test_b65_max_tokens_inside_a_call() -> None:
    call = [begin(0, "tool_use", id="a", name="f", input={}), delta(0, "input_json_delta", partial_json='{"x": "ab')]
    message = answered(*call, end(0), reason="max_tokens")
    assert message.stop_reason == "length"
    assert message.tool_calls[0].arguments_error is not None
    assert answered(*call, reason="max_tokens") == message  # also where the block was not ended


def test_blocks_that_overlap() -> None:
    message = answered(
        begin(0, "text", text=""), begin(1, "tool_use", id="a", name="f", input={}),
        delta(0, "text_delta", text="a"), delta(1, "input_json_delta", partial_json='{"x":'),
        delta(0, "text_delta", text="b"), delta(1, "input_json_delta", partial_json="1}"), end(1), end(0),
    )  # fmt: skip
    assert message.content == (TextContent("ab"), ToolCall("a", "f", {"x": 1}))


def test_b69_halves_of_characters_are_joined_or_replaced() -> None:
    assert answered(*text(0, "a\ud83d", "\ude00b")).text == "a😀b"
    assert answered(*text(0, "a\ud83d"), *text(1, "\ude00b")).text == "a\ufffd\ufffdb"
    message = answered(begin(0, "thinking", thinking="\ud83d"), delta(0, "thinking_delta", thinking="\ude00"), end(0))
    assert message.content == (ThinkingContent("😀"),)
    passed = answered(begin(0, "compaction", content=None), delta(0, "compaction_delta", content="\ud83d"), end(0))
    assert passed.extra["serverBlocks"][0]["block"]["content"] == "\ufffd"


# ---------------------------------------------------------- passed through


def test_server_tools_are_passed_through_with_their_place() -> None:
    result: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]}
    message = answered(
        begin(0, "server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": '),
        delta(0, "input_json_delta", partial_json='"x"}'),
        end(0),
        begin(1, **result),
        end(1),
        *text(2, "Found."),
        begin(3, "compaction", content=None),
        delta(3, "compaction_delta", content="Short"),
        delta(3, "compaction_delta", content="er."),
        end(3),
        begin(4, "tool_use", id="a", name="f", input={}),
        end(4),
        begin(5, "fallback", to={"model": "n"}),
        end(5),
        reason="pause_turn",
    )
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "pause_turn")
    assert message.content == (TextContent("Found."), ToolCall("a", "f", {}))
    assert message.extra["serverBlocks"] == [
        {"before": 0, "block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}},
        {"before": 0, "block": result},
        {"before": 1, "block": {"type": "compaction", "content": "Shorter."}},
        {"before": 2, "block": {"type": "fallback", "to": {"model": "n"}}},
    ]
    assert message_from_json(message_to_json(message)) == message


def test_citations_are_kept_with_the_text_that_they_are_of() -> None:
    message = answered(
        *text(0, "Said "),
        begin(1, "text", text="", citations=[]),
        delta(1, "citations_delta", citation={"url": "u"}),
        delta(1, "text_delta", text="so."),
        end(1),
    )
    assert message.text == "Said so."
    assert message.extra == {"citations": [{"of": 1, "citation": {"url": "u"}}]}


def test_what_is_new_is_no_error() -> None:
    message = answered(
        {"type": "brand_new_event", "hello": 1},
        begin(0, "mystery", stuff=[1]),
        delta(0, "mystery_delta", x=1, words="a"),
        end(0),
        begin(1, "text", text=""),
        delta(1, "mystery_delta", x=1),
        delta(1, "text_delta", text="fine"),
        end(1),
        ": comment\n\n",
        "event: odd\ndata: {}\n\n",
    )
    assert message.content == (TextContent("fine"),)
    assert message.extra["serverBlocks"] == [{"before": 0, "block": {"type": "mystery", "stuff": [1], "words": "a"}}]


def test_the_input_of_a_server_tool_that_is_no_json_is_kept_as_it_came() -> None:
    start = begin(0, "server_tool_use", id="s", name="n", input={})
    message = answered(start, delta(0, "input_json_delta", partial_json='{"a'), end(0))
    assert message.extra["serverBlocks"][0]["block"]["input"] == '{"a'


# ---------------------------------------------------------- usage, the end


def test_b83_usage_of_the_end_leaves_what_it_does_not_name() -> None:
    message = answered(*text(0, "x"))
    assert message.usage == Usage(input=12, output=9, total_tokens=21)
    usage = {
        "input_tokens": 20, "output_tokens": 9, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 5},
    }  # fmt: skip
    assert answered(usage=usage).usage == Usage(20, 9, 3, 4, 5, 36)
    odd = {"input_tokens": None, "output_tokens": "many", "output_tokens_details": None}
    assert answered(usage=odd).usage == Usage(input=12, total_tokens=12)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_use"),
    ],
)
def test_stop_reasons(raw: str, reason: str) -> None:
    message = answered(*text(0, "x"), reason=raw)
    assert (message.stop_reason, message.raw_stop_reason) == (reason, raw)


def test_the_stop_sequence_is_kept() -> None:
    assert answered(*text(0, "x"), reason="stop_sequence", stop_sequence="##").extra == {"stopSequence": "##"}


def test_a_refusal_is_an_error_that_says_why() -> None:
    details = {"type": "refusal", "category": "x", "explanation": "It was blocked."}
    (cls, words, retryable), message = failed(START, *text(0, "Well"), last("refusal", stop_details=details), STOP)
    assert (cls, retryable) == (RefusedError, False)
    assert "It was blocked." in words
    assert (message.text, message.raw_stop_reason, message.usage.output) == ("Well", "refusal", 9)
    assert failed(START, last("refusal"), STOP)[0][0] is RefusedError


def test_a_stop_reason_that_is_unknown_or_missing_is_no_answer() -> None:
    assert failed(START, *text(0, "x"), last("whatever"), STOP)[0][0] is ProtocolError
    assert failed(START, *text(0, "x"), STOP)[0][0] is ProtocolError


@pytest.mark.parametrize("named_error", [True, False])
@pytest.mark.parametrize(
    ("type", "cls"), [("overloaded_error", OverloadedError), ("api_error", ServerError), ("new_error", ServerError)]
)
def test_b81_an_error_inside_the_stream_keeps_what_came(named_error: bool, type: str, cls: type[Exception]) -> None:
    document = {"type": "error", "error": {"type": type, "message": "Sorry"}}
    event = named(document) if named_error else f"data: {json.dumps(document)}\n\n"
    opened = [begin(0, "text", text=""), delta(0, "text_delta", text="The answer "), delta(0, "text_delta", text="is")]
    (found, words, retryable), message = failed(START, *opened, event)
    assert (found, retryable, message.text) == (cls, True, "The answer is")
    assert "Sorry" in words
    assert failed(event)[0][0] is cls


def test_a_body_that_is_cut_is_a_transport_error_at_every_byte() -> None:
    body = sse(*map(named, [START, *text(0, "zwölf"), last()]))
    for place in range(len(body)):
        result = decode_pieces(AnthropicMessagesDecoder(), [body[:place]])
        assert result.error is not None
        assert result.error[0] is TransportError, place
        assert result.error[2]


@pytest.mark.parametrize(
    "odd",
    [
        [begin(0, "text", text="")],
        [START, START],
        [STOP],
        [START, delta(0, "text_delta", text="x")],
        [START, end(0)],
        [START, begin(0, "text"), begin(0, "text")],
        [START, {"type": "content_block_start", "index": 0}],
        [START, {"type": "content_block_start", "content_block": {"type": "text"}}],
        [START, {"type": "content_block_delta", "index": None, "delta": {}}],
        [{"type": "message_start"}],
        [START, 'data: {"type": "conte\n\n', PING],
        [START, "data: 5\n\n", PING],
    ],
)
def test_a_stream_out_of_order_is_an_error(odd: list[Any]) -> None:
    (cls, _, retryable), _ = failed(*odd, *text(1, "x"), last(), STOP)
    assert (cls, retryable) == (ProtocolError, True)


# -------------------------------------------------------------- documents


def test_a_server_that_does_not_stream() -> None:
    document: dict[str, Any] = {
        "type": "message",
        "id": "m1",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
            {"type": "text", "text": "So.", "citations": [{"url": "u"}]},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    result = decode_always_the_same(AnthropicMessagesDecoder, json.dumps(document, indent=1).encode())
    assert result.error is None
    message = result.message
    assert message.content == (
        ThinkingContent("Hm.", thinking_signature="s"),
        TextContent("So."),
        ToolCall("a", "f", {"x": 1}),
    )
    assert (message.stop_reason, message.usage) == ("tool_use", Usage(3, 4, total_tokens=7))
    assert message.extra == {
        "serverBlocks": [{"before": 1, "block": document["content"][1]}],
        "citations": [{"of": 1, "citation": {"url": "u"}}],
    }


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"<html></html>", b": ping\n\n", b'{"type": "message"}'])
def test_a_body_without_an_answer_is_an_error(body: bytes) -> None:
    result = decode_always_the_same(AnthropicMessagesDecoder, body)
    assert result.error is not None
    assert result.events == ()


def test_an_error_as_a_document_with_status_200() -> None:
    body = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    result = decode_always_the_same(AnthropicMessagesDecoder, body)
    assert result.error is not None
    assert result.error[0] is OverloadedError
