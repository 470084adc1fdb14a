"""``fanout``: one prompt, N tool calls in one message, final text; one async listener."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing

from trio_agent import Agent, Tool, ToolContext

from . import floors
from .crew import Crew
from .measure import Case, Sample
from .options import Options, Planned
from .owntools import OwnTool, load_tools, own_answer
from .subject import NOOP, SCHEMA, VERSION, answer, async_listener, calling, crew_tool, results_of, scripted

SIZES = (1, 10, 100, 1000, 5000, 20_000)
INNER = {1: 50, 10: 20}
"""Short runs are sampled so many at a time: one alone is as long as the clock's own noise."""
REPS = {1: 30, 10: 20, 100: 30, 1000: 9, 5000: 5}
THREADS = 8
SLEEP = 0.05


def reps_for(n: int) -> int:
    """More samples where they are short."""
    return next((reps for size, reps in REPS.items() if n <= size), 3)


def run_agents(agents: list[Agent], expected: int) -> Sample:
    """Prompt each agent once; every call must have its result."""

    async def main() -> float:
        gc.collect()  # the answers were made a moment ago; their garbage is not the loop's
        begin = time.perf_counter()
        for agent in agents:
            await agent.prompt("go")
        return time.perf_counter() - begin

    took = trio.run(main)
    results = [len(results_of(agent)) for agent in agents]
    errors = sum(result.is_error for agent in agents for result in results_of(agent))
    assert results == [expected] * len(agents)
    return Sample(took, {"results": expected, "errors": errors})


def calls(n: int, inner: int, **settings: Any) -> Sample:
    """N calls of a tool that has one checkpoint."""
    return run_agents([calling([n, 0], **settings) for _ in range(inner)], n)


def with_tool(n: int, tool: Tool, **settings: Any) -> Sample:
    """N calls of another tool."""
    return run_agents([calling([n, 0], [tool], **settings)], n)


async def _sleep(args: dict[str, Any], ctx: ToolContext) -> str:
    await trio.sleep(SLEEP)
    return "ok"


async def _sleep_briefly(args: dict[str, Any], ctx: ToolContext) -> str:
    await trio.sleep(SLEEP / 10)
    return "ok"


def _plain(args: dict[str, Any], ctx: ToolContext) -> str:
    return "ok"


def memory(n: int) -> Sample:
    """Bytes that N running calls hold; what the model's answer holds is there before."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(n, ready.set)
        agent = calling([n, 0], [crew_tool(crew)])
        async with trio.open_nursery() as nursery:
            with floors.Allocated() as allocated:
                nursery.start_soon(agent.prompt, "go")
                await ready.wait()
                await trio.testing.wait_all_tasks_blocked()
                held = allocated.now()
            agent.abort("measured")
        return Sample(held)

    return trio.run(main)


def benchmark(options: Options) -> Iterator[Planned]:
    """Every case of fan-out, or the user's own tools."""
    if options.tools is not None:
        yield from _own(options, load_tools(options.tools))
        return
    case = partial(Case, bench="fanout", version=VERSION)
    bare = "N tasks in a nursery, one checkpoint each"
    for n in options.choose(SIZES, (1, 10, 100, 1000)):
        inner = INNER.get(n, 1)
        for name, collector, settings in (
            ("calls", True, {}),
            ("calls, collector off", False, {}),
            ("calls, no listener", True, {"listen": False}),
        ):
            if name != "calls" and n < 100:
                continue
            yield Planned(
                case(
                    case=name, n=n, per=n * inner, collector=collector, floor_name=bare,
                    floor=partial(floors.tasks, n, inner), run=partial(calls, n, inner, **settings),
                ),
                options.repeat(reps_for(n)),
            )  # fmt: skip
    sleeper = attrs.evolve(NOOP, execute=_sleep)
    for n in options.choose((100, 1000), (100,)):
        yield Planned(
            case(
                case="sleeping tools", n=n, per=n, floor_name="N tasks that sleep 50 ms",
                floor=partial(floors.sleeping, n, SLEEP), run=partial(with_tool, n, sleeper),
            ),
            options.repeat(5),
        )  # fmt: skip
    places = 10
    n = options.choose((100,), (50,))[0]
    yield Planned(
        case(
            case="with a limiter", n=n, per=n,
            floor_name=f"N tasks that sleep 5 ms, {places} at a time",
            floor=partial(floors.limited, n, places, SLEEP / 10),
            run=lambda: with_tool(
                n, attrs.evolve(NOOP, execute=_sleep_briefly, limiter=trio.CapacityLimiter(places))
            ),
        ),
        options.repeat(5),
    )  # fmt: skip
    n = options.choose((1000,), (100,))[0]
    yield Planned(
        case(
            case="thread tools", n=n, per=n, floor_name=f"N functions in worker threads, {THREADS} at a time",
            floor=partial(floors.threads, n, THREADS),
            run=lambda: with_tool(
                n, Tool("work", "In a thread.", SCHEMA, execute=_plain, limiter=trio.CapacityLimiter(THREADS))
            ),
        ),
        options.repeat(5),
    )  # fmt: skip
    n = options.choose((1000,), (100,))[0]
    yield Planned(
        case(
            case="memory", n=n, per=n, measure="bytes", floor_name="N sleeping tasks",
            floor=partial(floors.memory, n), run=partial(memory, n),
        ),
        options.repeat(3),
    )  # fmt: skip


def _own(options: Options, tools: list[OwnTool]) -> Iterator[Planned]:
    for n in options.choose((1, 10, 100), (1, 10)):

        def run(n: int = n) -> Sample:
            agent = Agent(scripted([own_answer(tools, n), answer(1, 0)]), tools=[own.tool for own in tools])
            agent.subscribe(async_listener)
            return run_agents([agent], n)

        yield Planned(
            Case(
                bench="fanout", case="own tools", n=n, per=n, version=VERSION, subject=options.tools or "",
                floor_name="N tasks in a nursery, one checkpoint each", floor=partial(floors.tasks, n), run=run,
                note="the time of the tools themselves is part of it",
            ),
            options.repeat(5),
        )  # fmt: skip
