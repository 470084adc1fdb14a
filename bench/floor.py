"""Two claims about cost, as ratios to what Trio itself costs in the same process.

    python bench/floor.py

* One batch of N no-op calls through ``Agent.prompt()`` against N bare tasks in a nursery, each with
  one checkpoint, interleaved; the garbage is collected before each sample.
* The last of many turns against the first.

What the numbers are not: they say nothing about models or real tools, whose time is not measured.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import trio

import trio_agent
from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    TurnEnd,
)


async def noop(args: dict[str, Any], ctx: ToolContext) -> str:
    """One checkpoint, like the bare task."""
    await trio.lowlevel.checkpoint()
    return "ok"


NOOP = Tool("noop", "Does nothing.", {"type": "object", "properties": {"n": {"type": "integer"}}}, execute=noop)


def model(counts: Sequence[int]) -> SimpleModel:
    """A model that calls ``noop`` so often in its n-th answer; the answers are made before the clock runs."""
    answers = [
        AssistantMessage(
            [ToolCall(f"c{turn}-{index}", "noop", {"n": index}) for index in range(count)] or [TextContent("done")],
            stop_reason="tool_use" if count else "stop",
        )
        for turn, count in enumerate(counts)
    ]
    ready = iter(answers)

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:  # noqa: ASYNC124 - a contract
        return next(ready)

    return SimpleModel("bench", "scripted", stream)


async def bare(count: int) -> float:
    """Seconds that N bare tasks take."""
    gc.collect()
    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(trio.lowlevel.checkpoint)
    return time.perf_counter() - begin


async def fan_out(count: int) -> float:
    """Seconds that a run takes whose model calls N tools at once, with one async listener."""
    agent = Agent(model([count, 0]), tools=[NOOP])
    events = 0

    async def listener(event: AgentEvent) -> None:  # noqa: ASYNC124 - an async listener is what is measured
        nonlocal events
        events += 1

    agent.subscribe(listener)
    gc.collect()
    begin = time.perf_counter()
    result = await agent.prompt("go")
    took = time.perf_counter() - begin
    assert len(result.new_messages) == count + 3
    assert events > 4 * count
    return took


async def turns(count: int) -> float:
    """How much the last of N turns costs, as a multiple of the first; medians of a tenth of them."""
    stamps: list[float] = []
    agent = Agent(model([1] * count + [0]), tools=[NOOP])
    agent.subscribe(lambda event: stamps.append(time.perf_counter()), TurnEnd)
    gc.collect()
    gc.disable()
    try:
        await agent.prompt("go")
    finally:
        gc.enable()
    costs = [b - a for a, b in pairwise(stamps)]
    some = max(1, count // 10)
    return statistics.median(costs[-some:]) / statistics.median(costs[:some])


async def main(reps: int) -> None:
    """Measure and print."""
    print(f"trio_agent {trio_agent.__version__}, trio {trio.__version__}")
    for count in (100, 1000, 5000):
        ratios = []
        for _ in range(reps):
            floor = await bare(count)
            ratios.append(await fan_out(count) / floor)
        low, high = min(ratios), max(ratios)
        print(f"{count:5} calls in one batch: {statistics.median(ratios):.2f} x bare tasks ({low:.2f} to {high:.2f})")
    ratios = [await turns(1000) for _ in range(3)]
    print(f"turn 1000 against turn 1: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=9, help="samples of each; the median counts")
    trio.run(main, parser.parse_args().reps)
