"""Known faults T on the way through a provider: B109 and B110, costs that grow with the square of the answer.

What is counted is work, which is the same on every machine: the bytes that go through a parser, the snapshots that
are made, the memory that is held. Copies that nobody can count show in the processor's time, in tests of their own.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import jiter
import pytest
from decoding import Decoder, sse

from trio_agent import AssistantMessage, StreamEvent
from trio_agent._stream import _answer
from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder

# 20 bytes. Cut into 20, each piece of the arguments begins with the brace, so it may be the head of another call.
WORDS = "0123456789{abcdefgh "


@attrs.frozen
class Vendor:
    """How a vendor streams: what comes first, a delta of text or arguments, and what comes last."""

    make: Callable[[], Decoder]
    head: Callable[[str], bytes]
    delta: Callable[[str, str], bytes]
    tail: Callable[[str], bytes]

    def body(self, kind: str, texts: Sequence[str]) -> Iterator[bytes]:
        """One piece for each delta."""
        yield self.head(kind)
        for text in texts:
            yield self.delta(kind, text)
        yield self.tail(kind)


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def chat_head(kind: str) -> bytes:
    if kind == "text":
        return chat_chunk({"role": "assistant", "content": ""})
    return chat_chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write", "arguments": ""}}]})


def chat_delta(kind: str, text: str) -> bytes:
    if kind == "text":
        return chat_chunk({"content": text})
    return chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})


def repeating_delta(kind: str, text: str) -> bytes:
    """Of a server that repeats the head, so that each delta might begin another call."""
    return chat_chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write", "arguments": text}}]})


def messages_head(kind: str) -> bytes:
    block = {"type": "text", "text": ""}
    if kind == "arguments":
        block = {"type": "tool_use", "id": "c", "name": "write"}
    message = {"id": "m", "model": "m", "content": [], "usage": {"input_tokens": 1}}
    return sse(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
    )


def messages_delta(kind: str, text: str) -> bytes:
    name, field = ("text_delta", "text") if kind == "text" else ("input_json_delta", "partial_json")
    return sse({"type": "content_block_delta", "index": 0, "delta": {"type": name, field: text}})


def messages_tail(kind: str) -> bytes:
    reason = {"stop_reason": "end_turn" if kind == "text" else "tool_use"}
    return sse(
        {"type": "content_block_stop", "index": 0}, {"type": "message_delta", "delta": reason}, {"type": "message_stop"}
    )


def chat_tail(kind: str) -> bytes:
    return chat_chunk({}, "stop" if kind == "text" else "tool_calls") + b"data: [DONE]\n\n"


VENDORS = {
    "chat": Vendor(OpenAIChatDecoder, chat_head, chat_delta, chat_tail),
    "chat-repeating": Vendor(OpenAIChatDecoder, chat_head, repeating_delta, chat_tail),
    "messages": Vendor(AnthropicMessagesDecoder, messages_head, messages_delta, messages_tail),
}
WAYS = [
    (name, kind) for name in VENDORS for kind in ("text", "arguments") if (name, kind) != ("chat-repeating", "text")
]
every_way = pytest.mark.parametrize(("name", "kind"), WAYS)


def deltas_of(kind: str, size: int, each: int = 20) -> list[str]:
    """A text, or the JSON of arguments, of about so many bytes, cut."""
    text = WORDS * (size // len(WORDS))
    if kind == "arguments":
        text = json.dumps({"text": text})
    return [text[at : at + each] for at in range(0, len(text), each)]


def finished(decoder: Decoder, kind: str, texts: Sequence[str]) -> AssistantMessage:
    """The message, which is whole."""
    decoder.end()
    message = decoder.finish()
    if kind == "text":
        assert message.text == "".join(texts)
    else:
        assert [call.arguments for call in message.tool_calls] == [json.loads("".join(texts))]
    return message


@attrs.define
class Work:
    """What was done: bytes that were parsed, and messages that were built."""

    parsed: int = 0
    messages: int = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Counts what the parsers of JSON are given, by whomever, and the messages that builders make."""
    done = Work()

    def counting(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsing(data: str | bytes, **options: Any) -> Any:
            done.parsed += len(data)
            return parse(data, **options)

        return parsing

    def building(**fields: Any) -> AssistantMessage:
        done.messages += 1
        return AssistantMessage(fields.pop("content"), **fields)

    monkeypatch.setattr(json, "loads", counting(json.loads))
    monkeypatch.setattr(jiter, "from_json", counting(jiter.from_json))
    monkeypatch.setattr(_answer, "AssistantMessage", lambda content, **fields: building(content=content, **fields))
    return done


@pytest.mark.parametrize("size", [150_000, 300_000, 600_000])
@every_way
def test_b109_nothing_is_parsed_twice_while_an_answer_streams(name: str, kind: str, size: int, work: Work) -> None:
    """Each byte of the body once, and at the end the arguments once more, which were text inside it."""
    vendor, texts = VENDORS[name], deltas_of(kind, size)
    pieces = list(vendor.body(kind, texts))
    decoder = vendor.make()
    for piece in pieces[:-1]:
        decoder.feed(piece)
    body = sum(map(len, pieces))
    assert 0.9 * (body - 40 * len(pieces)) < work.parsed < body
    assert work.messages == 0
    decoder.feed(pieces[-1])
    decoder.end()
    decoder.finish()
    assert work.parsed <= body + sum(map(len, texts))
    assert work.messages == 1
    finished(decoder, kind, texts)


@every_way
def test_b109_a_hundred_thousand_deltas_of_one_character(name: str, kind: str, work: Work) -> None:
    vendor, texts = VENDORS[name], deltas_of(kind, 100_000, each=1)
    decoder = vendor.make()
    size = told = 0
    for piece in vendor.body(kind, texts):
        told += len(decoder.feed(piece))
        size += len(piece)
    assert len(texts) >= 100_000
    assert told == len(texts) + 3  # it begins, the block begins and ends
    assert work.parsed <= size + len(texts)
    assert work.messages == 1
    finished(decoder, kind, texts)


@every_way
def test_b109_a_snapshot_reads_what_is_new_and_parses_when_somebody_looks(name: str, kind: str, work: Work) -> None:
    vendor, texts = VENDORS[name], deltas_of(kind, 150_000)
    decoder = vendor.make()
    events: list[StreamEvent] = []
    for piece in vendor.body(kind, texts):
        events += decoder.feed(piece)
    parsed, messages = work.parsed, work.messages
    looked = events[len(events) // 2].partial
    assert work.messages == messages + 1
    half = 20 * (len(events) // 2)
    assert work.parsed - parsed <= (half if kind == "arguments" else 0)
    shown = looked.text if kind == "text" else looked.tool_calls[0].arguments["text"]
    assert 0.95 * half < len(shown) <= half


def held(name: str, kind: str, count: int) -> int:
    """Bytes of memory that so many deltas of 20 bytes take, with all events kept by a listener."""
    vendor = VENDORS[name]
    pieces = list(vendor.body(kind, deltas_of(kind, 20 * count)))[:-1]
    decoder = vendor.make()
    events: list[StreamEvent] = []
    gc.collect()
    tracemalloc.start()
    for piece in pieces:
        events += decoder.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(events) >= count
    return peak


@every_way
def test_b110_an_event_takes_the_same_memory_however_long_the_answer_is(name: str, kind: str) -> None:
    """A copy of the answer in each event would be 40 kB on average in the larger one; an event and its text is less."""
    small, large = held(name, kind, 1000), held(name, kind, 4000)
    assert (large - small) / 3000 < 500


@contextmanager
def no_collector() -> Generator[None]:
    """Without Python's collector, which scans what lives and so costs more than twice for twice as much."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


LINEAR = 9.0
"""Four times as much costs about four times the time; a busy machine adds to it, and the square would be 16."""


def cost(name: str, kind: str, size: int) -> float:
    """Seconds of the processor that an answer takes."""
    vendor, texts = VENDORS[name], deltas_of(kind, size)
    pieces = list(vendor.body(kind, texts))
    decoder = vendor.make()
    with no_collector():
        begin = time.process_time()
        for piece in pieces:
            decoder.feed(piece)
        took = time.process_time() - begin
    finished(decoder, kind, texts)
    return took


@pytest.mark.slow  # computes for real: pieces that are joined again and again show in nothing but time
@every_way
def test_b109_four_times_the_answer_costs_about_four_times_the_time(name: str, kind: str) -> None:
    """150 and 600 kB."""
    small, large = zip(*((cost(name, kind, 150_000), cost(name, kind, 600_000)) for _ in range(3)), strict=True)
    assert min(large) / min(small) < LINEAR


@pytest.mark.slow  # computes for real: an array that is shifted for each event shows in nothing but time
@pytest.mark.parametrize("name", ["chat", "messages"])
def test_b110_two_hundred_thousand_events_of_one_piece_are_told_in_linear_time(name: str) -> None:
    """The whole body at once, so that all its events wait; the smaller has a quarter."""

    def whole(count: int) -> float:
        body = b"".join(VENDORS[name].body("text", ["x"] * count))
        decoder = VENDORS[name].make()
        with no_collector():
            begin = time.process_time()
            events = decoder.feed(body)
            took = time.process_time() - begin
        assert len(events) == count + 3
        return took

    small, large = zip(*((whole(50_000), whole(200_000)) for _ in range(2)), strict=True)
    assert min(large) / min(small) < LINEAR
