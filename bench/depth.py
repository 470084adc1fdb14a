"""``depth``: agents inside tools of agents, cancelled at the top."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio
import trio.testing

from trio_agent import Agent, Tool, ToolContext

from . import floors
from .crew import Crew
from .measure import Case, Sample
from .options import Options, Planned
from .subject import SCHEMA, VERSION, answer, async_listener, crew_tool, results_of, scripted

SHAPES = ((1, 1), (8, 1), (64, 1), (4, 4))
"""How many levels of agents, and how many calls each of them makes."""


def cut(depth: int, fan: int, how: str, *, watched: bool = False) -> Sample:
    """Agents ``depth`` deep, each with ``fan`` calls; the leaves sleep. The uppermost run is cut.

    With ``watched``, an instrument of Trio's notes when the task of each call ends. It costs time
    itself, so latencies come from other samples than the ratios.
    """

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(fan**depth, ready.set)
        levels = floors.Levels() if watched else None
        agents: list[Agent] = []

        def make(level: int) -> Agent:
            leaf = level == depth - 1
            inner = crew_tool(crew) if leaf else None

            async def delegate(args: dict[str, Any], ctx: ToolContext) -> str:
                if levels is not None:
                    levels.here(level + 1)
                if inner is not None:
                    return str(await inner.execute(args, ctx))
                return (await make(level + 1).prompt("go")).text

            agent = Agent(
                scripted([answer(level, fan), answer(level, 0)]),
                tools=[Tool("work", "Delegates.", SCHEMA, execute=delegate)],
            )
            agent.subscribe(async_listener)
            agents.append(agent)
            return agent

        top = make(0)
        scope = trio.CancelScope()
        over = 0.0

        async def host() -> None:
            nonlocal over
            with scope:
                try:
                    await top.prompt("go")
                finally:
                    over = time.perf_counter()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            if levels is not None:
                trio.lowlevel.add_instrument(levels)
            begin = time.perf_counter()
            if how == "abort":
                top.abort("the benchmark cuts")
            else:
                scope.cancel(reason="the benchmark cuts")
        facts: dict[str, Any] = {
            "unwound_us": crew.last_unwound(begin) * 1e6,
            "orphans": crew.alive,
            "agents": len(agents),
            "results": sum(len(results_of(agent)) for agent in agents),
        }
        if levels is not None:
            facts["levels"] = levels.since(begin)
        return Sample(over - begin, facts)

    return trio.run(main)


def benchmark(options: Options) -> Iterator[Planned]:
    """Every shape, by an abort and by the host; then each once more under the instrument."""
    case = partial(Case, bench="depth", version=VERSION, unit="level")
    shapes: tuple[tuple[int, int], ...] = ((1, 1), (8, 1), (2, 2)) if options.quick else SHAPES
    if options.sizes:
        shapes = tuple((depth, 1) for depth in options.sizes)
    for depth, fan in shapes:
        name = f"fan-out {fan}"
        floor_name = "nurseries in nurseries, of which the uppermost scope is cancelled"
        for how in ("abort", "host"):
            yield Planned(
                case(
                    case=f"{name}, {how}", n=depth, per=depth, floor_name=floor_name,
                    floor=partial(floors.nested, depth, fan), run=partial(cut, depth, fan, how),
                ),
                options.repeat(15),
            )  # fmt: skip
        yield Planned(
            case(
                case=f"{name}, latency by level", n=depth, per=depth, floor_name=floor_name,
                floor=partial(floors.nested, depth, fan, watched=True),
                run=partial(cut, depth, fan, "abort", watched=True),
                note="under an instrument, which costs time itself: for the distribution, not for the ratio",
            ),
            options.repeat(10),
        )  # fmt: skip
