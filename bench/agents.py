"""``agents``: many agents at once in one process."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import partial

import trio
import trio.testing

from . import floors
from .crew import Crew
from .measure import Case, Sample
from .options import Options, Planned
from .subject import VERSION, calling, crew_tool

CALLS, TURNS = 10, 5


def run(count: int, calls: int, rounds: int) -> Sample:
    """So many agents, each with some calls in each of some turns; when each was done."""
    agents = [calling([calls] * rounds + [0]) for _ in range(count)]

    async def main() -> Sample:
        ended: list[float] = []

        async def one(index: int) -> None:
            await agents[index].prompt("go")
            ended.append(time.perf_counter())

        gc.collect()
        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for index in range(count):
                nursery.start_soon(one, index)
        took = time.perf_counter() - begin
        total = count * calls * rounds
        return Sample(took, {"calls_per_second": total / took, **floors.fairness([end - begin for end in ended])})

    return trio.run(main)


def memory(count: int, calls: int) -> Sample:
    """Bytes that agents hold while all their tools sleep: agent, transcript, answer, run and calls."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(count * calls, ready.set)
        async with trio.open_nursery() as nursery:
            with floors.Allocated() as allocated:
                for _ in range(count):
                    nursery.start_soon(calling([calls, 0], [crew_tool(crew)]).prompt, "go")
                await ready.wait()
                await trio.testing.wait_all_tasks_blocked()
                held = allocated.now()
            nursery.cancel_scope.cancel(reason="measured")
        return Sample(held)

    return trio.run(main)


def bare_memory(count: int, calls: int) -> Sample:
    """Bytes that as many nurseries with as many sleeping tasks hold."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(count * calls, ready.set)

        async def one() -> None:
            async with trio.open_nursery() as inner:
                for index in range(calls):
                    inner.start_soon(floors.sleep_counted, crew, index, 0.0)

        async with trio.open_nursery() as nursery:
            with floors.Allocated() as allocated:
                for _ in range(count):
                    nursery.start_soon(one)
                await ready.wait()
                await trio.testing.wait_all_tasks_blocked()
                held = allocated.now()
            nursery.cancel_scope.cancel(reason="measured")
        return Sample(held)

    return trio.run(main)


def benchmark(options: Options) -> Iterator[Planned]:
    """Throughput and fairness, and memory."""
    case = partial(Case, bench="agents", version=VERSION)
    for n in options.choose((1000,), (20,)):
        rounds = 2 if options.quick else TURNS
        yield Planned(
            case(
                case=f"{CALLS} calls a turn, {rounds} turns", n=n, per=n * CALLS * rounds,
                floor_name="as many tasks at once, each with nurseries of as many tasks",
                floor=partial(floors.agents, n, CALLS, rounds), run=partial(run, n, CALLS, rounds),
            ),
            options.repeat(5),
        )  # fmt: skip
        yield Planned(
            case(
                case="memory", n=n, per=n, unit="agent", measure="bytes",
                floor_name=f"nurseries with {CALLS} sleeping tasks",
                floor=partial(bare_memory, n, CALLS), run=partial(memory, n, CALLS),
                note=f"an agent with {CALLS} calls at work: its transcript and the model's answer are part of it",
            ),
            options.repeat(2),
        )  # fmt: skip
