"""``cancel``: N tools asleep, cut in every way; how long until the last is unwound and until the call is over."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing

from trio_agent import Agent, Tool, ToolExecutionEnd
from trio_agent.testing import assert_transcript_valid

from . import floors
from .crew import Crew
from .floors import Cut, cancel_scope
from .measure import Case, Sample
from .options import Options, Planned
from .owntools import OwnTool, load_tools, own_answer
from .subject import SCHEMA, VERSION, answer, async_listener, calling, crew_tool, results_of, scripted

SIZES = (1, 100, 1000, 5000)
REPS = {1: 40, 100: 20, 1000: 7}
CLEAN_UP = 0.01
START, PATIENCE = 1.0, 60.0
"""Seconds that tools of the user have to begin, and to end once they were cut."""


def reps_for(n: int) -> int:
    """More samples where they are short."""
    return next((reps for size, reps in REPS.items() if n <= size), 3)


async def cut_run(agent: Agent, crew: Crew, ready: trio.Event, how: Cut, *, limit: float = 60.0) -> Sample:
    """Prompt, wait until every tool is at work, cut, and see what there is when the call is over."""
    outcome = "hung"
    over = cut = 0.0
    scope = trio.CancelScope()

    async def host() -> None:
        nonlocal outcome, over
        with scope:
            try:
                await agent.prompt("go")
                outcome = "returned"
            except trio.Cancelled:
                outcome = "cancelled"
                raise
            finally:
                over = time.perf_counter()

    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            asked = crew.requests
            cut = time.perf_counter()
            if how == "abort":
                agent.abort("the benchmark cuts")
            else:
                cancel_scope(scope, how)
    return Sample(over - cut, {
        "unwound_us": crew.last_unwound(cut) * 1e6,
        "started": len(crew.started), "orphans": crew.alive, "outcome": outcome,
        "results": len(results_of(agent)), "valid": _is_valid(agent),
        "kinds": sorted({str(result.error_kind) for result in results_of(agent)}),
        "last": type(agent.messages[-1]).__name__, "requests_after": crew.requests - asked,
    })  # fmt: skip


def _is_valid(agent: Agent) -> bool:
    try:
        assert_transcript_valid(agent.messages)
    except AssertionError:
        return False
    return True


def cancelled(n: int, how: Cut, clean_up: float = 0.0) -> Sample:
    """N sleeping tools, cut."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(n, ready.set)
        model = scripted([answer(0, n), answer(1, 0)], crew)
        agent = Agent(model, tools=[crew_tool(crew, clean_up)])
        agent.subscribe(async_listener)
        return await cut_run(agent, crew, ready, how)

    return trio.run(main)


def one_cancelled(n: int) -> Sample:
    """``cancel_tool`` of one of N; until its end was told. The others return a value, and the run goes on."""

    async def main() -> Sample:
        ready, go_on, told = trio.Event(), trio.Event(), trio.Event()
        crew = Crew(n, ready.set)
        over = 0.0

        async def execute(args: dict[str, Any], ctx: object) -> str:
            crew.enter(args["n"])
            try:
                await go_on.wait()
                return crew.complete(args["n"])
            finally:
                crew.leave()

        agent = calling([n, 0], [Tool("work", "Waits.", SCHEMA, execute=execute)])

        def on_end(event: ToolExecutionEnd) -> None:
            nonlocal over
            if not told.is_set():
                over = time.perf_counter()
                told.set()

        agent.subscribe(on_end, ToolExecutionEnd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "go")
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            cut = time.perf_counter()
            agent.cancel_tool(f"c0-{n // 2}", "the benchmark cuts")
            await told.wait()
            go_on.set()
        results = results_of(agent)
        return Sample(over - cut, {
            "results": len(results), "cut": sum(result.is_error for result in results),
            "kept": len(crew.completed), "valid": _is_valid(agent), "orphans": crew.alive,
        })  # fmt: skip

    return trio.run(main)


def benchmark(options: Options) -> Iterator[Planned]:
    """Every way to cut, or the user's own tools."""
    if options.tools is not None:
        yield from _own(options, load_tools(options.tools))
        return
    case = partial(Case, bench="cancel", version=VERSION)
    ways: tuple[Cut, ...] = ("abort", "host", "deadline")
    for n in options.choose(SIZES, (1, 100)):
        for how in ways:
            yield Planned(
                case(
                    case=how, n=n, per=n, floor_name="N sleeping tasks whose scope is cancelled",
                    floor=partial(floors.cancel, n, how), run=partial(cancelled, n, how),
                ),
                options.repeat(reps_for(n)),
            )  # fmt: skip
        yield Planned(
            case(
                case="cancel_tool", n=n, per=1, unit="cut",
                floor_name="N sleeping tasks with a scope each, of which one is cancelled",
                floor=partial(floors.cancel_one, n), run=partial(one_cancelled, n),
            ),
            options.repeat(reps_for(n)),
        )  # fmt: skip
    for n in options.choose((100,), (100,)):
        yield Planned(
            case(
                case="clean-up of 10 ms", n=n, per=n,
                floor_name="N sleeping tasks whose scope is cancelled, with the same clean-up",
                floor=partial(floors.cancel, n, "host", CLEAN_UP), run=partial(cancelled, n, "abort", CLEAN_UP),
            ),
            options.repeat(5),
        )  # fmt: skip


# ------------------------------------------------------- the user's own tools


def counted(own: OwnTool, crew: Crew) -> OwnTool:
    """The same tool, counted on its way in and out."""
    execute = own.tool.execute

    async def in_task(args: dict[str, Any], ctx: Any) -> Any:
        crew.enter(len(crew.started))
        try:
            return await execute(args, ctx)
        finally:
            crew.leave()

    def in_thread(args: dict[str, Any], ctx: Any) -> Any:
        # The event that says "all are at work" belongs to Trio's own thread.
        trio.from_thread.run_sync(crew.enter, len(crew.started))
        try:
            return execute(args, ctx)
        finally:
            crew.leave()

    wrapped: Callable[..., Any] = in_task if own.tool.is_async else in_thread
    return attrs.evolve(own, tool=attrs.evolve(own.tool, execute=wrapped))


def _own(options: Options, tools: list[OwnTool]) -> Iterator[Planned]:
    def run(n: int) -> Sample:
        async def main() -> Sample:
            ready = trio.Event()
            crew = Crew(n, ready.set)
            mine = [counted(own, crew) for own in tools]
            agent = Agent(scripted([own_answer(mine, n), answer(1, 0)], crew), tools=[own.tool for own in mine])
            agent.subscribe(async_listener)
            sample: list[Sample] = []

            async def cut() -> None:
                sample.append(await cut_run(agent, crew, ready, "abort", limit=PATIENCE))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(cut)
                # A tool may wait for a limiter, or be over at once: then all are never at work together.
                with trio.move_on_after(START):
                    await ready.wait()
                ready.set()
            return sample[0]

        return trio.run(main)

    for n in options.choose((1, 10, 100), (1, 10)):
        yield Planned(
            Case(
                bench="cancel", case="own tools", n=n, per=n, version=VERSION, subject=options.tools or "",
                floor_name="N sleeping tasks whose scope is cancelled", floor=partial(floors.cancel, n),
                run=partial(run, n),
                note=f"cut once all were at work, or {START} s after the prompt; tools that were over by then are not cut",
            ),
            options.repeat(3),
        )  # fmt: skip
