"""Chat Completions: what each server does differently, and what is an answer and what is an error."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from decoding import Decoded, decode_always_the_same, decode_pieces, sse

from trio_agent import ThinkingContent, ToolCall, Usage, UsageError
from trio_agent.providers import (
    ChatCompat,
    ContextTooLongError,
    InvalidRequestError,
    OpenAIChatDecoder,
    OverloadedError,
    ProtocolError,
    RefusedError,
    ServerError,
    TransportError,
)


def chunk(finish: str | None = None, *, usage: Any = None, **delta: Any) -> dict[str, Any]:
    document = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return document if usage is None else {**document, "usage": usage}


def call(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = ...) -> Any:
    """A delta of a tool call; what is not given is not there."""
    function = {key: value for key, value in (("name", name),) if value is not None}
    if arguments is not ...:
        function["arguments"] = arguments
    delta: dict[str, Any] = {"function": function}
    if index is not None:
        delta["index"] = index
    return delta if id is None else {**delta, "id": id}


def calls(*each: Any, finish: str | None = None) -> dict[str, Any]:
    return chunk(finish, tool_calls=list(each))


def decode(*chunks: Any, done: bool = True, compat: ChatCompat | None = None) -> Decoded:
    return decode_always_the_same(lambda: OpenAIChatDecoder(compat=compat), sse(*chunks, done=done))


def answered(*chunks: Any, finish: str = "stop", done: bool = True) -> Any:
    result = decode(*chunks, chunk(finish), done=done)
    assert result.error is None, result.error
    return result.message


def arguments(message: Any) -> list[tuple[str, str, Any]]:
    return [(each.id, each.name, dict(each.arguments)) for each in message.tool_calls]


# ------------------------------------------------------------------- text


def test_text_is_told_delta_by_delta() -> None:
    result = decode(chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), chunk("stop"))
    assert result.events == (
        ("start", None, None, 0),
        ("text_start", 0, None, 1),
        ("text_delta", 0, "Hel", 2),
        ("text_delta", 0, "lo", 3),
        ("text_end", 0, None, 4),
    )
    message = result.message
    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("Hello", "stop", "stop")
    assert (message.api, message.model, message.response_id) == ("openai-chat", "m", "c1")
    assert message.extra == {}


def test_each_delta_is_told_with_the_chunk_that_brings_it() -> None:
    decoder = OpenAIChatDecoder()
    assert [event.type for event in decoder.feed(sse(chunk(content="a")))] == ["start", "text_start", "text_delta"]
    done = [decoder.done]
    with pytest.raises(UsageError, match=r"call end\(\)"):
        decoder.finish()
    assert [event.type for event in decoder.feed(sse(chunk("stop"), done=True))] == ["text_end"]
    assert [*done, decoder.done] == [False, True]
    assert decoder.feed(b"data: nonsense\n\n") == []  # what is behind the end is not read
    assert decoder.end() == []
    assert decoder.finish().text == "a"
    with pytest.raises(UsageError, match="one response"):
        decoder.feed(b"")


def test_the_first_of_several_choices_is_the_answer() -> None:
    both = {"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}
    other = {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}
    message = answered(both, other)
    assert (message.text, message.stop_reason) == ("yes", "stop")


def test_content_may_be_a_list_of_parts() -> None:
    message = answered(
        chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]),
        chunk(content=[{"type": "thinking", "thinking": "m."}]),
        chunk(content=[{"type": "text", "text": "So"}, {"type": "reference", "reference_ids": [1]}]),
        chunk(content="!"),
    )
    assert message.text == "So!"
    assert message.content[0] == ThinkingContent("Hmm.", thinking_signature="thinking")
    assert message.extra == {"parts": [{"type": "reference", "reference_ids": [1]}]}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "reasoning_details"])
def test_b89_thinking_is_a_block_marked_with_the_name_of_its_field(field: str) -> None:
    def value(text: str) -> Any:
        return [{"type": "reasoning.text", "index": 0, "text": text}] if field == "reasoning_details" else text

    message = answered(
        chunk(content="", **{field: value("Let me")}),
        chunk(content=None, **{field: value(" see.")}),
        chunk(content="4", **{field: None}),
        calls(call(0, "a", "f", "{}")),
        finish="tool_calls",
    )
    assert message.content == (
        ThinkingContent("Let me see.", thinking_signature=field),
        message.content[1],
        ToolCall("a", "f", {}),
    )
    assert message.text == "4"


def test_thinking_that_is_said_twice_counts_once_and_its_details_are_kept_whole() -> None:
    def delta(text: str | None, **more: Any) -> Any:
        detail = {"type": "reasoning.text", "index": 0, "text": text, **more}
        return chunk(reasoning=text, reasoning_details=[detail])

    secret = {"type": "reasoning.encrypted", "index": 1, "data": "xyz"}
    message = answered(delta("a"), delta("b"), delta(None, signature="s"), chunk(reasoning_details=[secret]))
    assert message.content == (ThinkingContent("ab", thinking_signature="reasoning"),)
    assert message.extra["reasoningDetails"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
        secret,
    ]


def test_blocks_follow_each_other_in_the_order_that_they_came() -> None:
    message = answered(chunk(content="a"), chunk(reasoning="b"), chunk(content="c"), chunk(content=""))
    assert [block.type for block in message.content] == ["text", "thinking", "text"]
    assert message.text == "ac"


def test_a_refusal_in_words_is_the_text_and_marked() -> None:
    message = answered(chunk(content=None, refusal=""), chunk(refusal="I can't "), chunk(refusal="do that."))
    assert message.text == message.extra["refusal"] == "I can't do that."


def test_citations_are_kept() -> None:
    message = answered(chunk(content="x", annotations=[{"type": "url_citation"}]), chunk(annotations=[{"type": "b"}]))
    assert message.extra == {"annotations": [{"type": "url_citation"}, {"type": "b"}]}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c"])
def test_b75_separators_raw_inside_the_json_are_text(separator: str) -> None:
    body = json.dumps(chunk(content="x|y"), ensure_ascii=False).replace("|", separator)
    assert answered(f"data: {body}\n\n").text == f"x{separator}y"


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_b77_line_endings(ending: str) -> None:
    body = "\ufeff" + sse(chunk(content="ä"), chunk("stop"), done=True).decode().replace("\n", ending)
    result = decode_always_the_same(OpenAIChatDecoder, body.replace("data: ", "data:").encode())
    assert (result.message.text, result.error) == ("ä", None)


def test_b78_keep_alives_are_no_events() -> None:
    assert answered(": OPENROUTER PROCESSING\n\n", ":\n\n", "retry: 10\n", chunk(content="a"), "data:\n\n").text == "a"


def test_b79_many_events_in_one_piece() -> None:
    assert answered(*[chunk(content="x")] * 1000).text == "x" * 1000


# ------------------------------------------------------------- surrogates


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["a\ud83d", "\ude00b"], "a😀b"),
        (["\ud83d", "", "\ude00"], "😀"),
        (["\ud83d\ude00"], "😀"),
        (["\ud83d", "x"], "\ufffdx"),
        (["x", "\ude00"], "x\ufffd"),
        (["\ud83d", "\ud83d", "\ude00"], "\ufffd😀"),
        (["\ud83d"], "\ufffd"),
    ],
)
def test_b69_halves_of_characters_are_joined_or_replaced(deltas: list[str], text: str) -> None:
    """One that has no other half could never be written as UTF-8: the next request would fail."""
    message = answered(*[chunk(content=delta) for delta in deltas])
    assert message.text == text
    message = answered(*[chunk(reasoning=delta) for delta in deltas])
    assert message.content[0] == ThinkingContent(text, thinking_signature="reasoning")
    pieces = [call(0, arguments=delta) for delta in ('{"x": "', *deltas, '"}')]
    message = answered(calls(call(0, "a", "f")), *map(calls, pieces))
    assert arguments(message) == [("a", "f", {"x": text})]
    refusal = answered(*[chunk(refusal=delta) for delta in deltas])
    assert refusal.extra["refusal"] == text


def test_b69_half_a_character_is_held_for_its_own_block_alone() -> None:
    message = answered(
        calls(call(0, "a", "f", '{"x": "\ud83d'), call(1, "b", "g", '{"y": "\ud83d')),
        calls(call(1, arguments='\ude01"}')),
        calls(call(0, arguments='\ude00"}')),
    )
    assert arguments(message) == [("a", "f", {"x": "😀"}), ("b", "g", {"y": "😁"})]


def test_b69_ids_and_names_too() -> None:
    message = answered({**chunk(content="a"), "id": "\ud83d"}, calls(call(0, "\ud83d", "f\ude00", "{}")))
    assert message.response_id == "c1" or message.response_id == "\ufffd"  # noqa: PLR1714 - the first that came
    assert arguments(message) == [("\ufffd", "f\ufffd", {})]


# ------------------------------------------------------------------ calls

A, B = ("a", "f", {"x": 1}), ("b", "g", {"y": 2})


def test_calls_interleaved_by_index() -> None:
    message = answered(
        calls(call(0, "a", "f", ""), call(1, "b", "g", "")),
        calls(call(1, arguments='{"y"')),
        calls(call(0, arguments='{"x"')),
        calls(call(1, arguments=": 2}"), call(0, arguments=": 1}")),
        finish="tool_calls",
    )
    assert arguments(message) == [A, B]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_calls_make_the_stop_reason(finish: str) -> None:
    message = answered(calls(call(0, "a", "f", '{"x": 1}')), finish=finish)
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", finish)
    assert answered(chunk(content="none"), finish=finish).stop_reason == "stop"


def test_b84_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    message = answered(
        calls(call(None, "a", "f", '{"x"')),
        calls(call(None, "b", "g", '{"y"')),
        calls(call(None, "a", None, ": 1}")),
        calls(call(None, "b", None, ": 2}")),
    )
    assert arguments(message) == [A, B]


def test_b84_the_place_in_a_chunk_is_no_index() -> None:
    message = answered(
        calls(call(None, "a", "f", '{"x": 1}')), calls(call(None, "b", "g", '{"y"')), calls(call(arguments=": 2}"))
    )
    assert arguments(message) == [A, B]


def test_b84_an_index_in_the_first_chunk_alone() -> None:
    message = answered(calls(call(0, "a", "f", '{"x"')), calls(call(arguments=": ")), calls(call(arguments="1}")))
    assert arguments(message) == [A]


def test_b86_two_calls_share_an_index() -> None:
    whole = answered(calls(call(0, "a", "f", '{"x": 1}')), calls(call(0, "b", "g", '{"y": 2}')))
    assert arguments(whole) == [A, B]
    message = answered(
        calls(call(0, "a", "f", '{"x": 1}')), calls(call(0, "b", "g")), calls(call(1, arguments='{"y": 2}'))
    )
    assert arguments(message) == [A, B]


def test_b86_an_index_that_grows_with_every_delta() -> None:
    message = answered(
        calls(call(0, "a", "f", "{")),
        calls(call(1, arguments='"x"')),
        calls(call(2, "", "", ": 1")),
        calls(call(3, arguments="}")),
    )
    assert arguments(message) == [A]
    message = answered(calls(call(0, "a", "f", "{")), calls(call(1, "a", None, '"x": 1}')))
    assert arguments(message) == [A]


def test_b86_a_piece_without_any_call_is_kept_or_an_error() -> None:
    result = decode(calls(call(0, arguments='{"x": 1}')), chunk("tool_calls"))
    assert arguments(result.message) == [("", "", {"x": 1})]  # the loop answers that there is no such tool
    result = decode(calls(call()), chunk("tool_calls"))
    assert result.error is not None
    assert result.error[0] is ProtocolError


def test_b88_empty_and_repeated_ids_do_not_merge_calls() -> None:
    """The loop gives them ids of their own before anything uses them."""
    empty = answered(calls(call(0, "", "f", '{"x": 1}'), call(1, "", "g", '{"y": 2}')))
    assert arguments(empty) == [("", *A[1:]), ("", *B[1:])]
    same = answered(calls(call(0, "a", "f", '{"x": 1}'), call(1, "a", "g", '{"y": 2}')))
    assert arguments(same) == [A, ("a", *B[1:])]
    nothing = answered(calls(call(0, "", "f", '{"x": 1}')), calls(call(0, "", "f", '{"x": 2}')))
    assert arguments(nothing) == [("", "f", {"x": 1}), ("", "f", {"x": 2})]
    twice = answered(calls(call(0, "a", "f", '{"x": 1}')), calls(call(0, "a", "f", '{"x": 2}')))
    assert arguments(twice) == [A, ("a", "f", {"x": 2})]


@pytest.mark.parametrize("value", ['a"b', "\\", "\\\\", "{}", '"}{', "\\}{", "}"])
def test_arguments_that_look_like_the_end_of_an_object_are_none(value: str) -> None:
    """Servers that repeat the name on every delta, cut at every character."""
    text = json.dumps({"x": {"y": value, "z": "{"}})
    message = answered(*[calls(call(0, "a", "f", character)) for character in text])
    assert arguments(message) == [("a", "f", {"x": {"y": value, "z": "{"}})]
    message = answered(*[calls(call(0, "a", "f", character)) for character in text], calls(call(0, "a", "f", text)))
    assert len(arguments(message)) == 2


def test_ids_names_and_types_that_are_repeated_count_once() -> None:
    message = answered(
        calls(call(0, "a", "f", "")),
        calls(call(0, "a", "f", '{"x"')),
        calls(call(0, "a", "f", ": ")),
        calls(call(0, "a", "f", "1}")),
    )
    assert arguments(message) == [A]


def test_blank_arguments_are_no_object_that_the_next_delta_with_the_name_could_follow() -> None:
    """Found by comparison with OpenAI's SDK: the call was split where its head said nothing but blanks."""
    message = answered(
        calls(call(0, "a", "f", " ")), calls(call(0, "a", "f", '{"x"')), calls(call(0, "a", "f", ": 1}"))
    )
    assert arguments(message) == [A]


def test_empty_ids_and_names_on_later_deltas() -> None:
    message = answered(calls(call(0, "a", "f", None)), calls(call(0, "", "", '{"x"')), calls(call(0, "", None, ": 1}")))
    assert arguments(message) == [A]


def test_an_id_or_a_name_may_come_late() -> None:
    message = answered(calls(call(0, "a")), calls(call(0, None, None, '{"x"')), calls(call(0, None, "f", ": 1}")))
    assert arguments(message) == [A]
    message = answered(calls(call(0, None, "f")), calls(call(0, "a", None, '{"x": 1}')))
    assert [(each.name, each.arguments) for each in message.tool_calls] == [A[1:]]


@pytest.mark.parametrize("value", [..., None, "", " "])
def test_b66_b67_no_arguments_are_an_empty_object(value: Any) -> None:
    assert arguments(answered(calls(call(0, "a", "f", value)))) == [("a", "f", {})]


def test_arguments_as_an_object() -> None:
    assert arguments(answered(calls(call(0, "a", "f", {"x": 1})))) == [A]


@pytest.mark.parametrize("text", ['{"x": 1', "[]", "null", '{"x": 1}}'])
def test_b64_arguments_that_are_no_object_are_marked(text: str) -> None:
    message = answered(calls(call(0, "a", "f", text)), finish="tool_calls")
    (only,) = message.tool_calls
    assert only.arguments_error is not None
    assert only.raw_arguments == text


def test_b65_length_inside_a_call() -> None:
    message = answered(calls(call(0, "a", "f", '{"x": "abc')), finish="length")
    assert (message.stop_reason, message.raw_stop_reason) == ("length", "length")
    assert message.tool_calls[0].arguments_error is not None


def test_text_between_the_deltas_of_a_call_stays_text() -> None:
    message = answered(calls(call(0, "a", "f", '{"x"')), chunk(content="hm"), calls(call(0, arguments=": 1}")))
    assert [block.type for block in message.content] == ["toolCall", "text"]
    assert arguments(message) == [A]


# ------------------------------------------------------------------ usage

USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
COUNTED = Usage(input=10, output=4, total_tokens=14)


@pytest.mark.parametrize(
    "chunks",
    [
        [{"choices": [], "usage": USAGE}],
        [{"usage": USAGE}],
        [{"choices": None, "usage": USAGE}],
        [chunk(content="x", usage=USAGE)],
        [{"choices": [{"index": 0, "delta": {}, "usage": USAGE}]}],
        [{"choices": [], "x_groq": {"usage": USAGE}}],
        [chunk(usage={"prompt_tokens": 10, "completion_tokens": 1}), {"choices": [], "usage": USAGE}],
        [{"choices": [], "usage": USAGE}, {"choices": [], "usage": None}, {"choices": [], "usage": {}}],
        [{"choices": [], "usage": USAGE}, {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": 4}}],
        [{"choices": []}, {}, {"choices": [], "usage": USAGE}],
    ],
)
@pytest.mark.parametrize("finish_first", [True, False])
def test_b83_usage_comes_anywhere(chunks: list[Any], finish_first: bool) -> None:
    result = decode(*[chunk("stop"), *chunks] if finish_first else [*chunks, chunk("stop")])
    assert result.error is None
    assert result.message.usage == COUNTED


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 6}}, Usage(4, 4, 6, 0, None, 14)),
        ({"prompt_cache_hit_tokens": 6}, Usage(4, 4, 6, 0, None, 14)),
        ({"prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 3}}, Usage(1, 4, 6, 3, None, 14)),
        ({"prompt_tokens_details": {"cached_tokens": 99}}, Usage(0, 4, 10, 0, None, 14)),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, COUNTED),
        ({"completion_tokens_details": {"reasoning_tokens": 3}}, Usage(10, 4, 0, 0, 3, 14)),
        ({"completion_tokens_details": {"reasoning_tokens": 0}}, Usage(10, 4, 0, 0, 0, 14)),
        ({"completion_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 44}, Usage(10, 34, 0, 0, 30, 44)),
        ({"prompt_tokens": "many", "completion_tokens": -3}, Usage()),
        ({"prompt_tokens": float("inf"), "completion_tokens": 4.0}, Usage(0, 4, total_tokens=4)),
    ],
)
def test_usage_is_counted_as_usage_says(more: Any, usage: Usage) -> None:
    assert answered({"choices": [], "usage": {**USAGE, **more}}).usage == usage


# ------------------------------------------------------------ how it ends


def failed(*chunks: Any, done: bool = True, compat: ChatCompat | None = None) -> tuple[Any, Any]:
    result = decode(*chunks, done=done, compat=compat)
    assert result.error is not None
    return result.error, result.message


NO_FINISH = ChatCompat(finish_reason_required=False)
TEXT = chunk(content="Once")


def test_b82a_neither_finish_reason_nor_done_is_an_error() -> None:
    (cls, text, retryable), message = failed(TEXT, done=False)
    assert (cls, retryable, message.text) == (TransportError, True, "Once")
    assert "broke off" in text


def test_b82b_done_is_enough_where_the_server_never_says_why() -> None:
    result = decode(TEXT, compat=NO_FINISH)
    assert result.error is None
    assert (result.message.text, result.message.stop_reason, result.message.raw_stop_reason) == ("Once", "stop", None)
    assert decode(calls(call(0, "a", "f", "{}")), compat=NO_FINISH).message.stop_reason == "tool_use"


def test_b82c_but_not_the_end_of_the_body() -> None:
    (cls, _, retryable), message = failed(TEXT, done=False, compat=NO_FINISH)
    assert (cls, retryable, message.text) == (TransportError, True, "Once")


def test_b82d_done_without_finish_reason_says_what_to_set() -> None:
    (cls, text, retryable), message = failed(TEXT)
    assert (cls, retryable, message.text) == (TransportError, True, "Once")
    assert "ChatCompat(finish_reason_required=False)" in text


def test_done_alone_is_no_answer() -> None:
    assert failed(compat=NO_FINISH)[0][0] is TransportError


def test_a_finish_reason_without_done_is_an_answer() -> None:
    assert answered(TEXT, done=False).text == "Once"


def test_a_finish_reason_may_come_twice() -> None:
    message = answered(chunk("tool_calls", tool_calls=[call(0, "a", "f", "{}")]), finish="tool_calls")
    assert arguments(message) == [("a", "f", {})]
    assert answered(chunk("length", content="x"), finish="stop").stop_reason == "length"
    assert answered(chunk("stop", content="x"), finish="length").stop_reason == "length"


@pytest.mark.parametrize(
    ("reason", "cls"),
    [
        ("content_filter", RefusedError),
        ("sensitive", RefusedError),
        ("error", ServerError),
        ("insufficient_system_resource", ServerError),
        ("whatever", ProtocolError),
    ],
)
def test_a_finish_reason_that_is_an_error(reason: str, cls: type[Exception]) -> None:
    error, message = failed(TEXT, chunk(reason))
    assert error[0] is cls
    assert (message.text, message.raw_stop_reason) == ("Once", reason)


def test_finish_reasons_of_a_server_are_data() -> None:
    compat = ChatCompat(finish_reasons={"whatever": "length"})
    assert decode(TEXT, chunk("whatever"), compat=compat).message.stop_reason == "length"
    assert decode(TEXT, chunk("stop"), compat=compat).message.stop_reason == "stop"


@pytest.mark.parametrize(
    ("chunks", "cls"),
    [
        ([{"error": {"message": "It failed", "type": "server_error"}}], ServerError),
        ([{"choices": [], "error": {"code": 400, "message": "prompt is too long"}}], ContextTooLongError),
        ([{**chunk("error", content=""), "error": {"code": 502, "message": "gone"}}], ServerError),
        ([{**chunk("length"), "error": {"code": 400, "message": "The limit is reached"}}], InvalidRequestError),
        (
            ['event: error\ndata: {"error":{"message":"No tool call","type":"invalid_request_error"}}\n\n'],
            InvalidRequestError,
        ),
        (["event: error\ndata: overloaded, sorry\n\n"], ServerError),
        ([{"object": "error", "message": "busy", "code": 503}], OverloadedError),
        ([{"error": "out of memory"}], ServerError),
    ],
)
def test_b81_an_error_inside_the_stream_keeps_what_came(chunks: list[Any], cls: type[Exception]) -> None:
    for done in (True, False):
        error, message = failed(TEXT, *chunks, done=done)
        assert error[0] is cls
        assert message.text == "Once"
        assert decode(*chunks, done=done).error is not None


@pytest.mark.parametrize(
    "broken", ['data: {"id": "c1", "cho\n\n', "data: 5\n\n", "data: []\n\n", 'data: {"choices": {"a": 1}}\n\n']
)
def test_a_broken_event_between_good_ones_is_an_error(broken: str) -> None:
    (cls, _, retryable), message = failed(TEXT, broken, chunk("stop", content="more"))
    assert (cls, retryable, message.text) == (ProtocolError, True, "Once")


def test_a_body_that_is_cut_inside_an_event_is_a_transport_error_at_every_byte() -> None:
    body = sse(TEXT, chunk(content="zwölf"))
    for end in range(len(body)):
        result = decode_pieces(OpenAIChatDecoder(), [body[:end]])
        assert result.error is not None
        assert result.error[0] is TransportError, end
        assert result.error[2]


@pytest.mark.parametrize(
    "body", [b"", b"\n\n", b": ping\n\n", b"<html>hello</html>", b"hello", b"{}", b"[1]", b'{"a": 1}']
)
def test_a_body_without_an_answer_is_an_error(body: bytes) -> None:
    result = decode_always_the_same(OpenAIChatDecoder, body)
    assert result.error is not None
    assert result.message.content == ()
    assert result.events == ()


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [None, 5]},
        {"choices": [{"index": 0, "delta": "x"}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None]}}]},
        {"choices": [{"index": 0, "delta": {"content": 5, "reasoning": 5, "refusal": 5}}]},
        {"choices": [{"index": 0, "delta": {"content": [5, {"type": "text"}], "reasoning": [{"text": 5}]}}]},
        {"choices": [{"index": 0, "delta": {"reasoning": {"a": 1}}, "finish_reason": 5}], "usage": 5, "x_groq": 5},
        {"id": 5, "model": 5, "choices": []},
    ],
)
def test_a_chunk_of_odd_shape_never_raises_anything_else(odd: Any) -> None:
    result = decode(TEXT, odd, chunk("stop"))
    assert result.message.text == "Once"


# -------------------------------------------------------------- documents


def test_a_server_that_does_not_stream() -> None:
    document = {
        "id": "c1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "reasoning_content": "Hm.",
                    "content": "So.",
                    "tool_calls": [call(None, "a", "f", '{"x": 1}'), call(None, "b", "g", '{"y": 2}')],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": USAGE,
    }
    for text in (json.dumps(document), "\ufeff \n" + json.dumps(document, indent=1)):
        result = decode_always_the_same(OpenAIChatDecoder, text.encode())
        assert result.error is None
        message = result.message
        assert [block.type for block in message.content] == ["thinking", "text", "toolCall", "toolCall"]
        assert arguments(message) == [A, B]
        assert (message.usage, message.stop_reason) == (COUNTED, "tool_use")


@pytest.mark.parametrize(
    "text", ['{"error": {"message": "busy", "code": 503}}', '{"object": "error", "message": "busy", "code": 503}']
)
def test_an_error_as_a_document_with_status_200(text: str) -> None:
    result = decode_always_the_same(OpenAIChatDecoder, text.encode())
    assert result.error is not None
    assert result.error[0] is OverloadedError


# ------------------------------------------------------------------- cost


@pytest.mark.slow  # computes for real: a cost that grows with the square would take minutes
def test_a_delta_costs_the_same_however_long_the_answer_is() -> None:
    deltas = [call(0, "a", "f", '{"x": "')] + [call(0, "a", "f", "{}{}{}{}{}")] * 40_000 + [call(0, arguments='"}')]
    body = sse(*map(calls, deltas), chunk("tool_calls"), done=True)
    started = time.process_time()
    decoder = OpenAIChatDecoder()
    decoder.feed(body)
    assert len(decoder.finish().tool_calls[0].arguments["x"]) == 400_000
    assert time.process_time() - started < 10
