"""What a Monitor costs, as the ratio of runs with it to the same runs without it.

    python bench/monitor.py

* One batch of N no-op calls: four events and one result message for each call.
* One answer of N text deltas: one event for each.

Each is run with nobody listening, with a listener that does nothing, and with a Monitor, in turn and
interleaved; the garbage is collected before each sample, and the medians count. The loop builds no
event that nobody hears, so the listener that does nothing shows what listening itself costs.

What the numbers are not: they say nothing about real models and tools, beside whose time all of it
disappears.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

import trio_agent
from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
)
from trio_agent.testing import Monitor


async def noop(args: dict[str, Any], ctx: ToolContext) -> str:
    """One checkpoint."""
    await trio.lowlevel.checkpoint()
    return "ok"


NOOP = Tool("noop", "Does nothing.", {"type": "object", "properties": {"n": {"type": "integer"}}}, execute=noop)


def calling(count: int) -> Agent:
    """An agent whose model calls a tool N times in one answer; the answers are made beforehand."""
    ready = iter(
        [
            AssistantMessage(
                [ToolCall(f"c{index}", "noop", {"n": index}) for index in range(count)], stop_reason="tool_use"
            ),
            AssistantMessage([TextContent("done")]),
        ]
    )

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:  # noqa: ASYNC124 - a contract
        return next(ready)

    return Agent(SimpleModel("bench", "calls", stream), tools=[NOOP])


def streaming(count: int) -> Agent:
    """An agent whose model answers in N deltas."""

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        for _ in range(count):
            await sink.send(builder.text_delta("word "))
        await sink.send(builder.text_end())
        return builder.finish("stop")

    return Agent(SimpleModel("bench", "deltas", stream))


def nothing(event: AgentEvent) -> None:
    """A plain listener."""


async def sample(agent: Agent, listener: Callable[..., None] | None) -> float:
    """Seconds that one run takes."""
    if listener is not None:
        agent.subscribe(listener)
    gc.collect()
    begin = time.perf_counter()
    result = await agent.prompt("go")
    took = time.perf_counter() - begin
    assert result.end_reason == "done"
    return took


async def measure(make: Callable[[int], Agent], count: int, reps: int) -> tuple[int, list[float], list[float]]:
    """How many events a run has; the seconds of it alone, and what a listener and a Monitor add; two ratios."""
    taken: list[list[float]] = [[], [], []]
    events = 0
    for _ in range(reps):
        monitor = Monitor(on_violation="raise")
        runs: list[Awaitable[float]] = [sample(make(count), one) for one in (None, nothing, monitor)]
        for times, run in zip(taken, runs, strict=True):
            times.append(await run)
        assert monitor.runs == 1
        events = monitor.events
    alone, listened, monitored = taken
    seconds = [
        statistics.median(alone),
        statistics.median(b - a for a, b in zip(alone, listened, strict=True)),
        statistics.median(b - a for a, b in zip(listened, monitored, strict=True)),
    ]
    ratios = [statistics.median(b / a for a, b in zip(times, monitored, strict=True)) for times in (alone, listened)]
    return events, seconds, ratios


async def main(reps: int) -> None:
    """Measure and print."""
    print(f"trio_agent {trio_agent.__version__}, trio {trio.__version__}, {reps} samples of each")
    print(
        f"{'run':>22} {'events':>7} {'run alone':>10} {'listener':>9} {'Monitor':>8} {'x alone':>8} {'x listener':>10}"
    )
    for make, count, name in (
        (calling, 100, "calls"),
        (calling, 1000, "calls"),
        (streaming, 1000, "deltas"),
        (streaming, 10000, "deltas"),
    ):
        events, seconds, ratios = await measure(make, count, reps)
        alone, listener, monitor = (1e6 * each / events for each in seconds)
        print(
            f"{count:>15} {name:6} {events:>7} {alone:>7.2f} us {listener:>6.2f} us {monitor:>5.2f} us"
            f" {ratios[0]:>8.2f} {ratios[1]:>10.2f}"
        )
    print("us: microseconds per event; the listener and the Monitor, what each adds to the column before it")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=9, help="samples of each; the median counts")
    trio.run(main, parser.parse_args().reps)
