"""``queue``: steering from many tasks and threads into one agent that runs."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    ModelRequest,
    QueueMode,
    SimpleModel,
    StreamSink,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    UserMessage,
)

from . import floors
from .measure import Case, Sample
from .options import Options, Planned
from .subject import SCHEMA, VERSION, async_listener

PRODUCERS, THREADS = 100, 10


def run(each: int, mode: QueueMode, producers: int = PRODUCERS, threads: int = THREADS) -> Sample:
    """Every producer steers its messages one by one; the run ends once all of them are through.

    The model asks for one more call until the last producer is done, so that the run is always at
    work when a message comes.
    """
    made = 0
    total = (producers + threads) * each

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:  # noqa: ASYNC124 - a contract
        if made == total and not agent.has_queued_messages():
            return AssistantMessage([TextContent("done")])
        return AssistantMessage([ToolCall("c", "work", {"n": 0})], stop_reason="tool_use")

    async def execute(args: dict[str, Any], ctx: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        return "ok"

    agent = Agent(
        SimpleModel("bench", "queue", stream),
        tools=[Tool("work", "One checkpoint.", SCHEMA, execute=execute)],
        steering_mode=mode,
    )
    agent.subscribe(async_listener)

    async def main() -> float:
        nonlocal made
        token = trio.lowlevel.current_trio_token()

        def steer(text: str) -> None:
            nonlocal made
            agent.steer(text)
            made += 1

        async def produce(number: int) -> None:
            for index in range(each):
                steer(f"{number}:{index}")
                await trio.lowlevel.checkpoint()

        def produce_in_thread(number: int) -> None:
            for index in range(each):
                trio.from_thread.run_sync(steer, f"{number}:{index}", trio_token=token)

        limiter = trio.CapacityLimiter(max(1, threads))
        gc.collect()
        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            for number in range(producers):
                nursery.start_soon(produce, number)
            for number in range(threads):
                nursery.start_soon(floors.in_thread, produce_in_thread, producers + number, limiter)
        return time.perf_counter() - begin

    took = trio.run(main)
    return Sample(took, {"messages_per_second": total / took, **arrived(agent, total, each)})


def arrived(agent: Agent, total: int, each: int) -> dict[str, int]:
    """How many of the steered messages stand in the transcript not at all, twice, or behind a later one."""
    texts = [message.text for message in agent.messages if type(message) is UserMessage][1:]
    counted = Counter(texts)
    last: dict[str, int] = {}
    disordered = 0
    for text in texts:
        number, _, index = text.partition(":")
        disordered += int(index) < last.get(number, 0)
        last[number] = int(index)
    return {
        "lost": total - len(counted),
        "doubled": sum(count - 1 for count in counted.values()),
        "disordered": disordered,
        "left": len(agent.peek_queued_messages()),
    }


def benchmark(options: Options) -> Iterator[Planned]:
    """Both queue modes; N is the number of messages in all."""
    workers = PRODUCERS + THREADS
    modes: tuple[QueueMode, ...] = ("all", "one-at-a-time")
    for n in options.choose((11_000,), (220,)):
        each = max(1, n // workers)
        for mode in modes:
            yield Planned(
                Case(
                    bench="queue", case=f"mode {mode}", n=each * workers, per=each * workers, unit="message",
                    version=VERSION,
                    floor_name=f"a memory channel from {PRODUCERS} tasks and {THREADS} threads to one task",
                    floor=partial(floors.queue, PRODUCERS, THREADS, each), run=partial(run, each, mode),
                ),
                options.repeat(3),
            )  # fmt: skip
