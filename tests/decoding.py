"""Feeds a decoder a body in many ways, and checks that the same comes of it and that it adds up."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from trio_agent import AgentEvent, AssistantMessage, MessageEnd, MessageStart, MessageUpdate, StreamEvent, StreamStart
from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder, ProviderError
from trio_agent.testing import assert_adds_up

Decoder = OpenAIChatDecoder | AnthropicMessagesDecoder


@attrs.frozen
class Decoded:
    """What came of a body: the events, the message (a snapshot, if it failed), and the error."""

    events: tuple[tuple[Any, ...], ...]
    message: AssistantMessage
    error: tuple[type[ProviderError], str, bool] | None


def event_key(event: StreamEvent) -> tuple[Any, ...]:
    return (event.type, getattr(event, "index", None), getattr(event, "delta", None), event.position)


def decode_pieces(decoder: Decoder, pieces: Iterable[bytes]) -> Decoded:
    """Feed the pieces, as a driver does, and check that what was told adds up to the message."""
    decoder.builder.timestamp = 0
    events: list[StreamEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
        if decoder.done:
            break
    events += decoder.end()
    assert decoder.done
    error: ProviderError | None = None
    try:
        message = decoder.finish()
    except ProviderError as failure:
        error = failure
        message = decoder.builder.snapshot(stop_reason="error")
    if events:
        assert [type(event) is StreamStart for event in events] == [True] + [False] * (len(events) - 1)
        told: list[AgentEvent] = [MessageStart(events[0].partial), *map(MessageUpdate, events[1:]), MessageEnd(message)]
        assert_adds_up(told)
        shown = events[-1].partial.content
        assert [block.type for block in shown] == [block.type for block in message.content]
    failed = None if error is None else (type(error), str(error), error.retryable)
    return Decoded(tuple(map(event_key, events)), message, failed)


def cuts_of(body: bytes, seed: int, count: int = 20) -> Sequence[bytes]:
    """The body cut at random places, some of which are the same."""
    places = sorted(random.Random(seed).choices(range(len(body) + 1), k=count))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


def decode_always_the_same(make: Callable[[], Decoder], body: bytes, seeds: Iterable[int] = range(3)) -> Decoded:
    """Whole, byte by byte, and cut at random places."""
    whole = decode_pieces(make(), [body])
    assert decode_pieces(make(), (body[at : at + 1] for at in range(len(body)))) == whole
    for seed in seeds:
        assert decode_pieces(make(), cuts_of(body, seed)) == whole, f"cut with seed {seed}"
    return whole


def sse(*documents: Any, done: bool = False) -> bytes:
    """A body of events; a text is written as it is."""
    lines = [document if isinstance(document, str) else f"data: {json.dumps(document)}\n\n" for document in documents]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode("utf-8", "surrogatepass")
