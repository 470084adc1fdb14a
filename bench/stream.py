"""``stream``: text deltas and tool arguments in small pieces, to a plain and to an async listener."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    MessageBuilder,
    MessageUpdate,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextDelta,
    Tool,
    ToolCallDelta,
    ToolContext,
)

from . import floors
from .measure import Case, Sample
from .options import Options, Planned
from .subject import VERSION

TEXTS = (10_000, 1_000_000)
ARGUMENTS = (50_000, 400_000)
PIECE = 10
FLOOR = 1000
"""Deltas are compared with the cost of one of so many bare tasks."""


def big_arguments(size: int) -> str:
    """A JSON object of about so many bytes: many small objects in a list."""
    items: list[str] = []
    length = 20
    while length < size:
        item = json.dumps({"id": len(items), "path": f"src/mod_{len(items)}/file.py", "text": "the quick brown fox"})
        items.append(item)
        length += len(item) + 2
    return '{"n": 1, "items": [' + ", ".join(items) + "]}"


def pieces(text: str) -> list[str]:
    """The text in pieces of ten characters."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


async def _ok(args: dict[str, Any], ctx: ToolContext) -> str:  # noqa: ASYNC124 - what a tool looks like
    return "ok"


BIG = Tool(
    "work",
    "Takes much.",
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "items": {"type": "array"}},
        "required": ["n", "items"],
    },
    execute=_ok,
)


def streamed(kind: str, parts: list[str], listener: str) -> Sample:
    """One answer in many deltas, and one listener that counts them."""
    sent = seen = lead = asked = 0

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        nonlocal sent, asked
        asked += 1
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        if kind == "text":
            await sink.send(builder.text_start())
            for part in parts:
                sent += 1
                await sink.send(builder.text_delta(part))
            await sink.send(builder.text_end())
            return builder.finish("stop")
        if asked == 1:
            await sink.send(builder.tool_call_start("c0", "work"))
            for part in parts:
                sent += 1
                await sink.send(builder.tool_call_delta(part))
            await sink.send(builder.tool_call_end())
            return builder.finish("tool_use")
        return builder.finish("stop")

    wanted = TextDelta if kind == "text" else ToolCallDelta

    def count(event: MessageUpdate) -> None:
        nonlocal seen, lead
        if type(event.assistant_message_event) is wanted:
            seen += 1
            lead = max(lead, sent - seen)

    async def count_async(event: MessageUpdate) -> None:  # noqa: ASYNC124 - an async listener is what is measured
        count(event)

    async def main() -> float:
        agent = Agent(SimpleModel("bench", "deltas", stream), tools=[BIG])
        chosen: Callable[[MessageUpdate], Any] = count if listener == "sync" else count_async
        agent.subscribe(chosen, MessageUpdate)
        gc.collect()
        begin = time.perf_counter()
        result = await agent.prompt("go")
        took = time.perf_counter() - begin
        assert result.end_reason == "done"
        return took

    took = trio.run(main)
    return Sample(took, {"delivered": seen, "max_lead": lead})


def benchmark(options: Options) -> Iterator[Planned]:
    """Text and arguments of two sizes, to both kinds of listeners."""
    case = partial(Case, bench="stream", version=VERSION)
    bare = f"one of {FLOOR} tasks in a nursery, one checkpoint each"
    floor = partial(floors.tasks, FLOOR)
    for n in options.choose(TEXTS, (1000, 10_000)):
        parts = ["word "] * n
        for listener in ("sync", "async"):
            yield Planned(
                case(
                    case=f"text, {listener} listener", n=n, per=n, unit="delta", floor_name=bare,
                    floor=floor, floor_per=FLOOR, run=partial(streamed, "text", parts, listener),
                ),
                options.repeat(15 if n <= 10_000 else 2),
            )  # fmt: skip
        if n <= 10_000:
            yield Planned(
                case(
                    case="text, memory channel", n=n, per=n, unit="delta", subject="trio", floor_name=bare,
                    floor=floor, floor_per=FLOOR, run=partial(floors.channel, n),
                    note="no agent: from task to task through a channel without a buffer",
                ),
                options.repeat(5),
            )  # fmt: skip
    for size in options.choose(ARGUMENTS, (5000, 10_000)):
        parts = pieces(big_arguments(size))
        for listener in ("sync", "async"):
            yield Planned(
                case(
                    case=f"arguments, {listener} listener", n=size, per=len(parts), unit="piece", floor_name=bare,
                    floor=floor, floor_per=FLOOR, run=partial(streamed, "arguments", parts, listener),
                ),
                options.repeat(9),
            )  # fmt: skip
