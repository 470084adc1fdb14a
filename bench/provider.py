"""``provider``: what it costs to decode streamed answers, and to encode long transcripts.

The floors are Python's own JSON: ``json.loads`` of the data of the same events, already cut out of the body, and
``json.dumps`` of the whole body. They say nothing about networks, nor about what listeners of the events cost.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trio_agent import (
    AssistantMessage,
    Message,
    ModelRequest,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    normalize_context,
)
from trio_agent.providers import AnthropicMessagesEncoder, ChatCompat, HTTPModel, MessagesCompat, OpenAIChatEncoder

from .answers import Answer, calls, texts
from .measure import Case, Sample
from .options import Options, Planned
from .subject import VERSION

DELTAS = (50_000,)
ARGUMENTS = (50_000, 400_000)
TURNS = (10, 1000)

MODELS = {
    "openai-chat": HTTPModel("bench", "m", api="openai-chat", base_url="http://bench/v1", compat=ChatCompat()),
    "anthropic": HTTPModel("bench", "m", api="anthropic-messages", base_url="http://bench", compat=MessagesCompat()),
}


def timed(work: Callable[[], object], **facts: Any) -> Sample:
    """The seconds that some work takes, garbage collected before."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return Sample(time.perf_counter() - begin, facts)


def loaded(answer: Answer) -> Sample:
    """Python's own parser, on the data alone."""

    def work() -> None:
        for each in answer.data:
            json.loads(each)

    return timed(work)


def decoded(answer: Answer) -> Sample:
    """All of it: from bytes in pieces of 16 kB to the events of the answer, and its message."""
    reads = answer.reads

    def work() -> None:
        decoder = answer.make()
        for piece in reads:
            decoder.feed(piece)
        decoder.end()
        decoder.finish()

    return timed(work)


# -------------------------------------------------------------------- encoding


def conversation(turns: int) -> list[Message]:
    """A transcript of so many turns with a call each."""
    messages: list[Message] = [UserMessage("Look into all of them.")]
    for n in range(turns):
        call = ToolCall(f"c{n}", "read_file", {"path": f"src/module_{n}.py"})
        answer = (TextContent(f"Now number {n}."), call)
        messages.append(AssistantMessage(answer, stop_reason="tool_use", provider="bench", model="m"))
        messages.append(ToolResultMessage(f"c{n}", "read_file", f"def function_{n}() -> None: ...\n" * 20))
    return messages


def encoder_of(model: HTTPModel) -> OpenAIChatEncoder | AnthropicMessagesEncoder:
    """A new encoder, which knows nothing yet."""
    fresh = HTTPModel(
        model.provider, model.id, api=model.api, base_url=model.base_url, compat=model.compat
    )  # of a cache of its own
    return OpenAIChatEncoder(fresh) if model.api == "openai-chat" else AnthropicMessagesEncoder(fresh)


def dumped(model: HTTPModel, messages: list[Message]) -> Sample:
    """Python's own JSON of the whole body, parsed before."""
    request = ModelRequest(model, normalize_context(messages))
    document = json.loads(encoder_of(model).body(request))
    return timed(lambda: json.dumps(document, ensure_ascii=False).encode())


def encoded(model: HTTPModel, messages: list[Message], *, known: int) -> Sample:
    """The body of a request, when the request with the first messages has been encoded before."""
    encoder = encoder_of(model)
    if known:
        encoder.body(ModelRequest(model, normalize_context(messages[:known])))
    request = ModelRequest(model, normalize_context(messages))
    return timed(lambda: encoder.body(request))


def benchmark(options: Options) -> Iterator[Planned]:
    """Text, arguments, and the first and the next request of long conversations."""
    for n in options.choose(DELTAS, (500,)):
        for name, answer in texts(n).items():
            yield Planned(_decoding(f"text, {name}", n, answer, "delta"), options.repeat(9))
    for n in options.choose(ARGUMENTS, (5_000,)):
        for name, answer in calls(n).items():
            yield Planned(_decoding(f"arguments, {name}", n, answer, "delta"), options.repeat(9))
    for n in options.choose(TURNS, (10, 100)):
        messages = conversation(n)
        for name, model in MODELS.items():
            for case, known in (("first request", 0), ("next request", len(messages) - 2)):
                yield Planned(
                    Case(
                        bench="provider", case=f"{case}, {name}", n=n, unit="body", version=VERSION,
                        floor_name="json.dumps of the whole body", floor=partial(dumped, model, messages),
                        run=partial(encoded, model, messages, known=known),
                    ),
                    options.repeat(15),
                )  # fmt: skip


def _decoding(case: str, n: int, answer: Answer, unit: str) -> Case:
    return Case(
        bench="provider", case=case, n=n, per=len(answer.data), unit=unit, version=VERSION,
        floor_name="json.loads of the same events", floor=partial(loaded, answer), run=partial(decoded, answer),
    )  # fmt: skip
