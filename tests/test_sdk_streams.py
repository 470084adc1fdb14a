"""The official SDKs' stream parsers and ours make the same of valid streams that a generator makes up.

The SDKs get the very same pieces of the body, through a transport that opens no connection. Of Chat Completions
the SDK gives chunks, which are summed by index here; of Messages it gives its own snapshot of the message.
Where an SDK is wrong, or refuses what servers do send, the generator leaves that out and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import anthropic
import attrs
import httpx2
import openai
from decoding import Decoded, decode_pieces
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from trio_agent import TextContent, ThinkingContent, ToolCall
from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder, RefusedError

T = TypeVar("T")

# The same examples each time, and no folder of them: a failure here is one everywhere.
EXAMPLES = settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # whole streams are large examples
)

# --------------------------------------------------------------- the judges


@attrs.define
class Wire:
    """A transport that answers every request with the same pieces."""

    pieces: Sequence[bytes] = ()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=iter(self.pieces))


WIRE = Wire()
HTTP = httpx2.Client(transport=httpx2.MockTransport(WIRE))
OPENAI = openai.OpenAI(api_key="k", base_url="http://models.invalid", http_client=HTTP, max_retries=0)
ANTHROPIC = anthropic.Anthropic(api_key="k", base_url="http://models.invalid", http_client=HTTP, max_retries=0)


@attrs.frozen
class Call:
    """A call as a judge sees it: the text of its arguments, and what its SDK made of that."""

    id: str
    name: str
    text: str
    arguments: Any


def chunks_of(pieces: Sequence[bytes]) -> list[Any]:
    """What the SDK of OpenAI makes of the body."""
    WIRE.pieces = pieces
    with OPENAI.chat.completions.create(model="m", messages=[], stream=True) as stream:
        return list(stream)


def snapshot_of(pieces: Sequence[bytes]) -> tuple[dict[str, Any], list[Call]]:
    """What the SDK of Anthropic makes of the body: the message, and its calls with the texts it was told."""
    WIRE.pieces = pieces
    texts: dict[int, str] = {}
    with ANTHROPIC.messages.stream(model="m", max_tokens=1, messages=[]) as stream:
        for step in stream:
            if step.type == "content_block_delta" and step.delta.type == "input_json_delta":
                texts[step.index] = texts.get(step.index, "") + step.delta.partial_json
        message = stream.get_final_message()
    calls = [
        Call(block.id, block.name, texts.get(index, ""), block.input)
        for index, block in enumerate(message.content)
        if block.type == "tool_use"
    ]
    return message.to_dict(warnings=False), calls  # it warns of names of server tools that it does not know


# ------------------------------------------------------- what both are made of

ODD = (
    *("", " ", "word ", "\n", "\r\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\\", '"', "\\u0041", "</s>", "data: x\n\n"),
    *("\x85", "\u2028", "\u2029", "\ufeff", "\ufffd", "\uffff", "e\u0301", "\u200b", "\u202e"),
    *("é", "日本語", "한국어", "עברית", "😀", "👩‍👩‍👧", "🏳️‍🌈", "𝕏", "\U0010ffff"),
)
# Halves of characters are left out: the SDKs give them on, and two halves in two deltas stay two (B69).
WORDS = st.one_of(st.sampled_from(ODD), st.text(max_size=5))
PROSE = st.lists(WORDS, max_size=5)
NAMES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz_0123456789-", min_size=1, max_size=8)
COUNTS = st.integers(0, 10**7)
# Of an object the keys are all different: of two that are the same the SDKs and we take the last.
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        WORDS, st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.one_of(NAMES, WORDS), VALUES, max_size=3)


@st.composite
def cut(draw: st.DrawFn, whole: str | bytes, most: int = 6) -> list[Any]:
    """A text or bytes in pieces, some of which may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=most)))
    return [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]


@st.composite
def argument_pieces(draw: st.DrawFn, *, spaced: bool, whole: bool = True) -> list[str]:
    """The text of a call's arguments in pieces; none at all is a call without arguments.

    Args:
      spaced: whether there may be blanks around the object.
      whole: False breaks it off somewhere.
    """
    value = draw(OBJECTS)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    if not value and draw(st.booleans()):
        text = ""
    elif spaced:
        text = draw(st.sampled_from(["", " ", "\n "])) + text + draw(st.sampled_from(["", "\n"]))
    if not whole:
        text = text[: draw(st.integers(0, len(text)))]
    return draw(cut(text))


@st.composite
def framed(draw: st.DrawFn, documents: Sequence[Mapping[str, Any] | str], *, named: bool) -> list[bytes]:
    """Pieces of a body that has these documents as events.

    Left out: ``id`` and ``retry`` fields, with which the SDKs take a blank line for an event without data, and fail;
    and a document on several lines, which no server sends.
    """
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    space = draw(st.sampled_from([" ", ""]))
    ascii_only = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    between = st.sampled_from([[], [], [], [], [": keep-alive"], [":"], [": OPENROUTER PROCESSING", ""], ["", ""]])
    lines: list[str] = []
    for document in documents:
        lines += draw(between)
        if isinstance(document, str):
            data = document
        else:
            data = json.dumps(document, ensure_ascii=ascii_only, separators=separators)
            if named:
                lines.append(f"event:{space}{document['type']}")
        lines += [f"data:{space}{data}", ""]
    body = end.join([*lines, ""]).encode()
    return draw(cut(body, 12))


def interleaved(draw: st.DrawFn, queues: Sequence[Sequence[T]]) -> Iterator[T]:
    """One sequence of all, each in its own order, begun in the order of the queues."""
    waiting = [list(queue) for queue in queues]
    begun = 0
    while any(waiting):
        ready = [at for at, queue in enumerate(waiting) if queue and at <= begun]
        if not ready:
            begun += 1
            continue
        at = draw(st.sampled_from(ready))
        begun = max(begun, at + 1)
        yield waiting[at].pop(0)


def assert_calls_agree(result: Decoded, calls: Sequence[Call]) -> None:
    ours = result.message.tool_calls
    assert [(each.id, each.name) for each in ours] == [(each.id, each.name) for each in calls]
    for our, judged in zip(ours, calls, strict=True):
        if our.arguments_error is not None:  # broken off, as the text must show
            assert our.raw_arguments == judged.text
            try:
                json.loads(judged.text)
            except ValueError:
                continue
            raise AssertionError(f"{judged.text!r} is JSON, and yet: {our.arguments_error}")
        assert json.dumps(dict(our.arguments)) == json.dumps(judged.arguments)  # 1 is not 1.0 there, nor True


# ---------------------------------------------------------- Chat Completions

THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
REASONS = ("stop", "length", "tool_calls", "function_call", "content_filter")


@st.composite
def call_deltas(draw: st.DrawFn, index: int, id: str, *, whole: bool) -> list[dict[str, Any]]:
    """The deltas of one call: its head, and how its server writes those that follow."""
    # Calls without an index, as Mistral once sent them, are left out: the SDK cannot tell them apart.
    texts = draw(argument_pieces(spaced=True, whole=whole))
    name = draw(NAMES)
    style = draw(st.sampled_from(["bare", "empty", "null", "repeated"]))
    deltas = []
    for number, text in enumerate(texts):
        delta: dict[str, Any] = {"index": index, "function": {"arguments": text}}
        if number == 0 or style == "repeated":  # Kimi by OpenRouter; the first id and name count
            delta |= {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        elif style != "bare":  # Alibaba and Mistral say "", others null
            nothing = "" if style == "empty" else None
            delta |= {"id": nothing, "type": "function", "function": {"name": nothing, "arguments": text}}
        deltas.append(delta)
    if not texts[0] and draw(st.booleans()):
        del deltas[0]["function"]["arguments"]  # announced without any
    return deltas


@st.composite
def chat_usage(draw: st.DrawFn) -> dict[str, Any]:
    prompt, completion = draw(COUNTS), draw(COUNTS)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if draw(st.booleans()):
        usage["prompt_tokens_details"] = {"cached_tokens": draw(st.integers(0, prompt)), "audio_tokens": 0}
    if draw(st.booleans()):
        usage["completion_tokens_details"] = {"reasoning_tokens": draw(st.integers(0, completion))}
    return usage


def multiplied(usage: dict[str, Any], by: int) -> dict[str, Any]:
    return {name: multiplied(value, by) if isinstance(value, dict) else value * by for name, value in usage.items()}


@st.composite
def chat_streams(draw: st.DrawFn) -> list[bytes]:
    reason = draw(st.sampled_from(REASONS))
    field = draw(st.sampled_from(THINKING_FIELDS))
    count = draw(st.integers(0, 4))
    ids = draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))
    whole = reason != "length"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": draw(st.sampled_from(["", None]))}]
    deltas += [{field: text, "content": None} for text in draw(PROSE)]
    said = draw(st.sampled_from(["content", "content", "content", "refusal"]))
    deltas += [{said: text} for text in draw(PROSE)]
    pieces = [draw(call_deltas(at, each, whole=whole or at < count - 1)) for at, each in enumerate(ids)]
    if draw(st.booleans()):
        deltas += [{"tool_calls": [each]} for each in interleaved(draw, pieces)]
    else:  # the next delta of every call in one chunk
        for number in range(max(map(len, pieces), default=0)):
            deltas.append({"tool_calls": [each[number] for each in pieces if number < len(each)]})
    deltas += [{"content": text} for text in draw(st.sampled_from([[], [], ["and ", "done"]]))]

    base: dict[str, Any] = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    others = draw(st.booleans())  # a second choice, which is no part of the answer
    chunks: list[dict[str, Any]] = []
    for delta in deltas:
        chunks.append({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if others and draw(st.booleans()):
            chunks.append({**base, "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    where = draw(st.sampled_from(["with the last delta", "apart"]))
    if where == "apart":
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    else:
        own = [each for each in chunks if each["choices"][0]["index"] == 0]
        own[-1]["choices"][0]["finish_reason"] = reason
    if draw(st.booleans()):  # Azure's filter says something before the answer
        chunks.insert(0, {**base, "model": "", "choices": [], "prompt_filter_results": []})
    place = draw(st.sampled_from(["none", "own chunk", "last chunk", "each chunk", "groq"]))
    event(f"usage: {place}")
    usage = draw(chat_usage())
    match place:
        case "own chunk":
            chunks = [{**each, "usage": None} for each in chunks]
            chunks.append({**base, "choices": [], "usage": usage})
        case "last chunk":
            chunks[-1]["usage"] = usage
        case "each chunk":  # the counts grow. A later one that leaves a count out is left out: the SDK has no sum.
            for at, each in enumerate(chunks, 1):
                each["usage"] = multiplied(usage, at)
        case "groq":
            chunks[-1]["x_groq"] = {"id": "r", "usage": usage}
    return draw(framed([*chunks, *draw(st.sampled_from([["[DONE]"], []]))], named=False))


@attrs.define
class Summed:
    """The chunks of the SDK, summed by index."""

    text: str = ""
    thinking: str = ""
    heads: dict[int, tuple[str, str]] = attrs.field(factory=dict)
    texts: dict[int, str] = attrs.field(factory=dict)
    reason: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def calls(self) -> list[Call]:
        def parsed(text: str) -> Any:
            try:
                return json.loads(text if text.strip() else "{}")  # nothing at all is no arguments (B66)
            except ValueError:
                return None

        return [Call(*self.heads[at], self.texts[at], parsed(self.texts[at])) for at in self.heads]


def summed(chunks: Sequence[Any]) -> Summed:
    total = Summed()
    for chunk in chunks:
        document = chunk.to_dict()
        total.usage = document.get("usage") or document.get("x_groq", {}).get("usage") or total.usage
        for choice in chunk.choices:
            if choice.index != 0:
                continue
            delta = choice.delta
            total.text += (delta.content or "") + (delta.refusal or "")
            total.thinking += "".join((delta.model_extra or {}).get(field) or "" for field in THINKING_FIELDS)
            for call in delta.tool_calls or ():
                total.heads.setdefault(call.index, (call.id, call.function.name))
                total.texts[call.index] = total.texts.get(call.index, "") + (call.function.arguments or "")
            total.reason = choice.finish_reason or total.reason
    return total


@EXAMPLES
@given(chat_streams())
def test_chat_streams_decode_to_the_sum_of_the_chunks_of_openais_sdk(pieces: list[bytes]) -> None:
    judged = summed(chunks_of(pieces))
    result = decode_pieces(OpenAIChatDecoder(), pieces)
    message = result.message
    event(f"reason: {judged.reason}, calls: {len(judged.calls)}")
    assert message.text == judged.text
    assert "".join(block.thinking for block in message.content if type(block) is ThinkingContent) == judged.thinking
    assert message.raw_stop_reason == judged.reason
    if judged.reason == "content_filter":
        assert result.error is not None
        assert result.error[0] is RefusedError
    else:
        assert result.error is None
        # What the SDK has no opinion on: that a stop with calls is a request for them (several servers say so).
        wanted = "length" if judged.reason == "length" else "tool_use" if judged.calls else "stop"
        assert message.stop_reason == wanted
    assert_calls_agree(result, judged.calls)
    usage, told = message.usage, judged.usage or {}
    assert usage.input + usage.cache_read == told.get("prompt_tokens", 0)
    assert usage.output == told.get("completion_tokens", 0)
    assert usage.total_tokens == told.get("total_tokens", 0)
    assert usage.cache_read == told.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    assert usage.reasoning == told.get("completion_tokens_details", {}).get("reasoning_tokens")


# ------------------------------------------------------------------- Messages

STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "refusal": None,
}
CITATION = {"type": "char_location", "cited_text": "é\u2028", "document_index": 0, "document_title": None}
CITED = {**CITATION, "start_char_index": 0, "end_char_index": 2, "file_id": None}
RESULT = {"type": "web_search_result", "title": "日本", "url": "http://x.invalid", "encrypted_content": "E=="}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{**RESULT, "page_age": None}]}


Block = tuple[dict[str, Any], list[dict[str, Any]]]
"""The block as it begins, and its deltas."""


@st.composite
def blocks(draw: st.DrawFn, id: str, *, whole: bool) -> Block:
    kind = draw(st.sampled_from(["text", "text", "thinking", "redacted", "tool_use", "tool_use", "server", "result"]))
    head = draw(st.sampled_from(["", "", "head "]))
    match kind:
        case "text":
            deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": text} for text in draw(PROSE)]
            if draw(st.booleans()):
                deltas.append({"type": "citations_delta", "citation": CITED})
            return {"type": "text", "text": head}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": text} for text in draw(PROSE)]
            # One signature, at the end. Of several the SDK keeps the last, of one in the head nothing.
            if draw(st.booleans()):
                deltas.append({"type": "signature_delta", "signature": draw(st.text("AZaz09+/=", min_size=1))})
            return {"type": "thinking", "thinking": head, "signature": ""}, deltas
        case "redacted":
            return {"type": "redacted_thinking", "data": draw(st.text("AZaz09+/=", max_size=9))}, []
        case "result":
            return SEARCHED, []
    begun = {"type": "server_tool_use" if kind == "server" else "tool_use", "id": id, "name": draw(NAMES)}
    if draw(st.sampled_from([False, False, False, True])):  # whole, from servers that send no deltas
        empty = {"type": "input_json_delta", "partial_json": ""}  # says nothing, so what was given stays
        return {**begun, "input": draw(OBJECTS)}, [empty] * draw(st.integers(0, 1))
    # No blanks in front: the SDK raises ValueError where what has come so far is nothing but blanks. The text of a
    # server's call may not break off, for neither side has more than an opinion of what it then is.
    texts = draw(argument_pieces(spaced=False, whole=whole or kind == "server"))
    return {**begun, "input": {}}, [{"type": "input_json_delta", "partial_json": text} for text in texts]


@st.composite
def usage_of_messages(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Usage at the begin and at the end, where counts are totals; what is null or absent there is as it was."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    first = {name: draw(COUNTS) for name in (*names, "output_tokens")}
    last: dict[str, Any] = {"output_tokens": draw(COUNTS)}
    for name in names:
        match draw(st.sampled_from(["absent", "null", "total"])):
            case "null":
                last[name] = None
            case "total":
                last[name] = draw(COUNTS)
    if draw(st.booleans()):
        last["output_tokens_details"] = {"thinking_tokens": draw(COUNTS)}
    if draw(st.booleans()):
        for name in names[1:]:  # several gateways know of no cache
            del first[name]
    return first, last


@st.composite
def message_streams(draw: st.DrawFn) -> list[bytes]:
    reason = draw(st.sampled_from(list(STOPS)))
    first, last = draw(usage_of_messages())
    count = draw(st.integers(0, 5))
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": first}
    documents: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    pings = st.sampled_from([0, 0, 0, 1])
    for index in range(count):
        cut_off = STOPS[reason] == "length" and index == count - 1
        begun, deltas = draw(blocks(f"toolu_{index}", whole=not cut_off))
        documents.append({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            documents += [{"type": "ping"}] * draw(pings)
            documents.append({"type": "content_block_delta", "index": index, "delta": delta})
        documents.append({"type": "content_block_stop", "index": index})
    end: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if reason == "stop_sequence":
        end["stop_sequence"] = "\n\nEND\u2028"
    if reason == "refusal" and draw(st.booleans()):
        end["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": "no: 日本"}
    documents.append({"type": "message_delta", "delta": end, "usage": last})
    documents.append({"type": "message_stop"})
    return draw(framed(documents, named=True))


def as_anthropic(result: Decoded) -> list[dict[str, Any]]:
    """The blocks of our message as Anthropic writes them, with those that are passed through at their places."""
    message = result.message
    content: list[dict[str, Any]] = []
    for index, block in enumerate(message.content):
        match block:
            case TextContent():
                cited = [each["citation"] for each in message.extra.get("citations", []) if each["of"] == index]
                written: dict[str, Any] = {"type": "text", "text": block.text}
                content.append({**written, "citations": cited} if cited else written)
            case ThinkingContent(redacted=True):
                content.append({"type": "redacted_thinking", "data": block.thinking_signature})
            case ThinkingContent():
                signature = block.thinking_signature or ""
                content.append({"type": "thinking", "thinking": block.thinking, "signature": signature})
            case ToolCall():
                content.append({"type": "tool_use"})  # its contents are compared apart
    for each in reversed(message.extra.get("serverBlocks", [])):
        content.insert(each["before"], dict(each["block"]))
    return content


@EXAMPLES
@given(message_streams())
def test_message_streams_decode_to_the_snapshot_of_anthropics_sdk(pieces: list[bytes]) -> None:
    judged, calls = snapshot_of(pieces)
    result = decode_pieces(AnthropicMessagesDecoder(), pieces)
    message, reason = result.message, judged["stop_reason"]
    event(f"reason: {reason}, calls: {len(calls)}, blocks: {len(judged['content'])}")
    wanted = [{"type": "tool_use"} if block["type"] == "tool_use" else block for block in judged["content"]]
    if reason == "refusal":  # what is beside text, thinking and calls is in ``extra`` of a final message: there is none
        wanted = [{**block} for block in wanted if block["type"] not in ("server_tool_use", SEARCHED["type"])]
        for block in wanted:
            block.pop("citations", None)
    assert as_anthropic(result) == wanted
    assert_calls_agree(result, calls)
    assert (message.response_id, message.model) == (judged["id"], judged["model"])
    assert message.raw_stop_reason == reason
    if STOPS[reason] is None:
        assert result.error is not None
        assert result.error[0] is RefusedError
        explanation = (judged.get("stop_details") or {}).get("explanation", "")
        assert explanation in result.error[1]
    else:
        assert result.error is None
        assert message.stop_reason == STOPS[reason]
        assert message.extra.get("stopSequence") == judged.get("stop_sequence")
    usage, told = message.usage, judged["usage"]
    assert usage.input == told["input_tokens"]
    assert usage.output == told["output_tokens"]
    assert usage.cache_read == (told.get("cache_read_input_tokens") or 0)
    assert usage.cache_write == (told.get("cache_creation_input_tokens") or 0)
    assert usage.reasoning == (told.get("output_tokens_details") or {}).get("thinking_tokens")
    assert usage.total_tokens == usage.input + usage.output + usage.cache_read + usage.cache_write
