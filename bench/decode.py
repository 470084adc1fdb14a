"""What decoding a streamed answer costs, as ratios to ``json.loads`` of the same events.

    python bench/decode.py

* An answer of N text deltas, of Chat Completions and of Messages. ``json.loads`` and ``jiter.from_json`` get
  the data of the events, already cut out of the body. ``parsed`` cuts them out with our parser of server-sent
  events and reads them with jiter; ``decoded`` is the whole way from bytes to events and the final message, with
  the body in pieces of 16 kB, and with one piece for each event, as it comes from a server.
* The arguments of a tool call, from 50 to 400 kB, in deltas of 10 bytes: microseconds for each delta.

Processor time, not the clock's. What is compared is run in turn, and the ratios are of the two samples of one
round; the garbage is collected before each sample. Printed are medians, and the 10th and 90th percentile.

What the numbers are not: they say nothing about networks, nor about what listeners of the events cost.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import jiter

import trio_agent
from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder
from trio_agent.providers._sse import ServerSentEventParser

READ = 16 * 1024
"""Bytes in a piece of the body, where it does not come event by event."""


@attrs.frozen
class Answer:
    """A streamed answer: the data of each of its events, and its body."""

    data: Sequence[bytes]
    events: Sequence[bytes]
    make: Callable[[], OpenAIChatDecoder | AnthropicMessagesDecoder]

    @property
    def reads(self) -> list[bytes]:
        """The body in large pieces."""
        body = b"".join(self.events)
        return [body[at : at + READ] for at in range(0, len(body), READ)]


def answer_of(documents: Sequence[Mapping[str, Any]], make: Callable[[], Any]) -> Answer:
    """The answer as its server writes it: Messages names its events, Chat Completions does not."""
    data = [json.dumps(document, separators=(",", ":")).encode() for document in documents]
    heads = [f"event: {document['type']}\n" if "type" in document else "" for document in documents]
    events = [head.encode() + b"data: " + each + b"\n\n" for head, each in zip(heads, data, strict=True)]
    return Answer(data, events, make)


def chat(deltas: Sequence[Mapping[str, Any]], reason: str) -> Answer:
    """Deltas of Chat Completions in chunks with the fields that OpenAI sends."""
    base: dict[str, Any] = {
        "id": "chatcmpl-BxYb2vYQpiHyT8Lmuv9p1r7a5",
        "object": "chat.completion.chunk",
        "created": 1753357877,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_07871e2ad8",
    }
    choices: list[Mapping[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason})
    return answer_of([{**base, "choices": [choice], "usage": None} for choice in choices], OpenAIChatDecoder)


def messages(block: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]], reason: str) -> Answer:
    """Deltas of one block of Messages."""
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    usage = {"input_tokens": 12, "output_tokens": 1}
    documents: list[Mapping[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    documents.append({"type": "content_block_start", "index": 0, "content_block": block})
    documents += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    documents.append({"type": "content_block_stop", "index": 0})
    documents.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
    return answer_of([*documents, {"type": "message_stop"}], AnthropicMessagesDecoder)


def texts(count: int) -> dict[str, Answer]:
    """Answers of N text deltas."""
    words = [f" word{number % 1000}" for number in range(count)]
    return {
        "openai-chat": chat([{"content": word} for word in words], "stop"),
        "anthropic": messages(
            {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words], "end_turn"
        ),
    }


def calls(size: int) -> dict[str, Answer]:
    """Answers of one call whose arguments have so many bytes, in deltas of 10."""
    text = json.dumps({"text": "x" * (size - len('{"text": ""}'))})
    pieces = [text[at : at + 10] for at in range(0, len(text), 10)]
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write", "arguments": ""}}
    heads = [{"tool_calls": [head]}]
    return {
        "openai-chat": chat(
            [*heads, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)],
            "tool_calls",
        ),
        "anthropic": messages(
            {"type": "tool_use", "id": "call_1", "name": "write", "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
            "tool_use",
        ),
    }


def loaded(answer: Answer) -> None:
    """Python's own parser, on the data alone."""
    for each in answer.data:
        json.loads(each)


def jittered(answer: Answer) -> None:
    """The parser that the decoders use, on the data alone."""
    for each in answer.data:
        jiter.from_json(each)


def parsed(answer: Answer) -> None:
    """Server-sent events and JSON, without any meaning."""
    parser = ServerSentEventParser()
    for piece in answer.reads:
        for event in parser.feed(piece):
            jiter.from_json(event.data)


def decoded(answer: Answer, pieces: Sequence[bytes]) -> None:
    """All of it: the events of the answer, and its message."""
    decoder = answer.make()
    for piece in pieces:
        decoder.feed(piece)
    decoder.end()
    decoder.finish()


def sample(run: Callable[[], None]) -> float:
    """Seconds of the processor that one run takes."""
    gc.collect()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and between what most lie."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return f"{statistics.median(values):{form}} ({tenths[0]:{form}} to {tenths[-1]:{form}})"


def compare(name: str, answer: Answer, reps: int) -> None:
    """Print what an event costs in each way."""
    reads = answer.reads
    runs: dict[str, Callable[[], None]] = {
        "json.loads": lambda: loaded(answer),
        "jiter": lambda: jittered(answer),
        "parsed": lambda: parsed(answer),
        "decoded, 16 kB pieces": lambda: decoded(answer, reads),
        "decoded, one event each": lambda: decoded(answer, answer.events),
    }
    taken: dict[str, list[float]] = {run: [] for run in runs}
    for _ in range(reps):
        for run, go in runs.items():
            taken[run].append(sample(go))
    for run, times in taken.items():
        micros = [1e6 * each / len(answer.data) for each in times]
        ratios = [ours / theirs for ours, theirs in zip(times, taken["json.loads"], strict=True)]
        print(f"{name:>12} {run:<24} {spread(micros):>24} us {spread(ratios):>22} x json.loads")


def main(count: int, reps: int) -> None:
    """Measure and print."""
    print(f"trio_agent {trio_agent.__version__}, {count} text deltas, {reps} rounds; microseconds for each event")
    for name, answer in texts(count).items():
        compare(name, answer, reps)
    print("the arguments of a call in deltas of 10 bytes; microseconds for each delta")
    sizes = [50_000, 100_000, 200_000, 400_000]
    answers = {size: calls(size) for size in sizes}
    for name in ("openai-chat", "anthropic"):
        costs: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(reps):
            for size in sizes:
                answer = answers[size][name]
                pieces = answer.reads
                costs[size].append(1e6 * sample(lambda: decoded(answer, pieces)) / len(answer.data))  # noqa: B023 - called at once
        for size in sizes:
            ratios = [ours / first for ours, first in zip(costs[size], costs[sizes[0]], strict=True)]
            print(f"{name:>12} {size // 1000:>4} kB {spread(costs[size]):>24} us {spread(ratios):>22} x 50 kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deltas", type=int, default=50_000, help="how many text deltas an answer has")
    parser.add_argument("--reps", type=int, default=9, help="rounds; the medians count")
    arguments = parser.parse_args()
    main(arguments.deltas, arguments.reps)
