"""The floors: what Trio itself takes for the bare work, without an agent.

No validation, no events, no transcript. Each function does its work in a Trio run of its own and
gives a sample; what is timed is inside.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

import trio
import trio.testing

from .crew import Crew
from .measure import Sample
from .stats import quantile

now = time.perf_counter

Cut: TypeAlias = Literal["abort", "host", "deadline"]

HOUR = 3600.0
"""What sleeps so long is cut before."""


def tasks(count: int, inner: int = 1) -> Sample:
    """N tasks in a nursery, with one checkpoint each; done so often one after the other."""

    async def main() -> float:
        gc.collect()
        begin = now()
        for _ in range(inner):
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(trio.lowlevel.checkpoint)
        return now() - begin

    return Sample(trio.run(main))


def run_each(count: int, work: Callable[[], Awaitable[object]]) -> Sample:
    """N tasks in a nursery that do some work each."""

    async def main() -> float:
        gc.collect()
        begin = now()
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(work)
        return now() - begin

    return Sample(trio.run(main))


def sleeping(count: int, seconds: float) -> Sample:
    """N tasks that sleep."""

    async def work() -> None:
        await trio.sleep(seconds)

    return run_each(count, work)


def limited(count: int, places: int, seconds: float) -> Sample:
    """N tasks that sleep, so many at a time."""
    limiter = trio.CapacityLimiter(places)

    async def work() -> None:
        async with limiter:
            await trio.sleep(seconds)

    return run_each(count, work)


def threads(count: int, places: int) -> Sample:
    """N calls of a plain function in worker threads, so many at a time."""
    limiter = trio.CapacityLimiter(places)

    async def work() -> None:
        await trio.to_thread.run_sync(int, limiter=limiter)

    return run_each(count, work)


def channel(count: int) -> Sample:
    """N pieces from one task to another, through a memory channel without a buffer."""

    async def main() -> float:
        send, receive = trio.open_memory_channel[str](0)

        async def produce() -> None:
            with send:
                for _ in range(count):
                    await send.send("word ")

        gc.collect()
        begin = now()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            async for _ in receive:
                pass
        return now() - begin

    return Sample(trio.run(main))


def turns(count: int) -> Sample:
    """One nursery with one task, so often; first and last are medians of a twentieth."""

    async def main() -> Sample:
        gc.collect()
        stamps = [now()]
        for _ in range(count):
            async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - the nursery is what is measured
                nursery.start_soon(trio.lowlevel.checkpoint)
            stamps.append(now())
        return Sample(stamps[-1] - stamps[0], first_and_last(stamps))

    return trio.run(main)


def first_and_last(stamps: list[float]) -> dict[str, float]:
    """What the first and the last twentieth of turns take, in microseconds; medians.

    The first two do not count: they find cold caches.
    """
    costs = [(b - a) * 1e6 for a, b in pairwise(stamps)]
    some = max(1, len(costs) // 20)
    first = costs[2 : 2 + some] or costs
    return {"first_us": quantile(first, 0.5), "last_us": quantile(costs[-some:], 0.5)}


async def sleep_counted(crew: Crew, index: int, clean_up: float) -> None:
    """A body that sleeps until it is cut, and then perhaps cleans up."""
    crew.enter(index)
    try:
        await trio.sleep(HOUR)
    finally:
        if clean_up:
            with trio.CancelScope(shield=True, relative_deadline=HOUR):
                await trio.sleep(clean_up)
        crew.leave()


def cancel(count: int, how: Cut = "host", clean_up: float = 0.0) -> Sample:
    """N sleeping tasks in a nursery, whose scope is cancelled (or whose deadline passes)."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(count, ready.set)
        scope = trio.CancelScope()
        over = 0.0

        async def host() -> None:
            nonlocal over
            with scope:
                async with trio.open_nursery() as nursery:
                    for index in range(count):
                        nursery.start_soon(sleep_counted, crew, index, clean_up)
            over = now()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            cut = now()
            cancel_scope(scope, how)
        return Sample(over - cut, {"unwound_us": crew.last_unwound(cut) * 1e6, "orphans": crew.alive})

    return trio.run(main)


def cancel_scope(scope: trio.CancelScope, how: Cut) -> None:
    """Cancel, or let a deadline pass in this moment."""
    if how == "deadline":
        scope.deadline = trio.current_time()
    else:
        scope.cancel(reason="the benchmark cuts")


def cancel_one(count: int) -> Sample:
    """N sleeping tasks with a scope each, of which one is cancelled; until that one has unwound."""

    async def main() -> Sample:
        ready, go_on, gone = trio.Event(), trio.Event(), trio.Event()
        crew = Crew(count, ready.set)
        scopes = [trio.CancelScope() for _ in range(count)]
        over = 0.0

        async def one(index: int) -> None:
            nonlocal over
            crew.enter(index)
            with scopes[index]:
                await go_on.wait()
                return
            over = now()
            gone.set()

        async with trio.open_nursery() as nursery:
            for index in range(count):
                nursery.start_soon(one, index)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            cut = now()
            cancel_scope(scopes[count // 2], "host")
            await gone.wait()
            go_on.set()
        return Sample(over - cut)

    return trio.run(main)


class Levels(trio.abc.Instrument):
    """When the tasks of each level ended; Trio itself says so."""

    def __init__(self) -> None:
        self.levels: dict[trio.lowlevel.Task, int] = {}
        self.ended: list[tuple[int, float]] = []

    def here(self, level: int) -> None:
        """The running task is one of a level."""
        self.levels[trio.lowlevel.current_task()] = level

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        level = self.levels.get(task)
        if level is not None:
            self.ended.append((level, now()))

    def since(self, cut: float) -> list[tuple[int, float]]:
        """Level, and microseconds after the cut, of each."""
        return [(level, (moment - cut) * 1e6) for level, moment in self.ended]


def nested(depth: int, fan: int, *, watched: bool = False) -> Sample:
    """Nurseries in nurseries, so many levels, each with so many tasks; the uppermost scope is cancelled."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(fan**depth, ready.set)
        levels = Levels() if watched else None
        scope = trio.CancelScope()
        over = 0.0

        async def level(number: int) -> None:
            if levels is not None and number > 0:
                levels.here(number)
            if number == depth:
                await sleep_counted(crew, number, 0.0)
                return
            async with trio.open_nursery() as nursery:
                for _ in range(fan):
                    nursery.start_soon(level, number + 1)

        async def host() -> None:
            nonlocal over
            with scope:
                await level(0)
            over = now()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host)
            await ready.wait()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            if levels is not None:
                trio.lowlevel.add_instrument(levels)
            cut = now()
            scope.cancel(reason="the benchmark cuts")
        facts: dict[str, Any] = {"orphans": crew.alive}
        if levels is not None:
            facts["levels"] = levels.since(cut)
        return Sample(over - cut, facts)

    return trio.run(main)


def agents(count: int, calls: int, rounds: int) -> Sample:
    """N tasks at once, each opening a nursery of some tasks in some rounds."""

    async def main() -> Sample:
        ended: list[float] = []

        async def one() -> None:
            for _ in range(rounds):
                async with trio.open_nursery() as nursery:
                    for _ in range(calls):
                        nursery.start_soon(trio.lowlevel.checkpoint)
            ended.append(now())

        gc.collect()
        begin = now()
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
        return Sample(now() - begin, fairness([end - begin for end in ended]))

    return trio.run(main)


def fairness(ended: list[float]) -> dict[str, float]:
    """How far the finishing times lie apart, as parts of the last one."""
    last = max(ended)
    return {
        "first_finish": min(ended) / last,
        "p10_finish": quantile(ended, 0.1) / last,
        "median_finish": quantile(ended, 0.5) / last,
    }


def queue(producers: int, in_threads: int, each: int) -> Sample:
    """Tasks and threads that put messages into one memory channel, and one task that takes them."""

    async def main() -> Sample:
        total = (producers + in_threads) * each
        send, receive = trio.open_memory_channel[str](float("inf"))
        token = trio.lowlevel.current_trio_token()

        async def produce(number: int) -> None:
            for index in range(each):
                send.send_nowait(f"{number}:{index}")
                await trio.lowlevel.checkpoint()

        def produce_in_thread(number: int) -> None:
            for index in range(each):
                trio.from_thread.run_sync(send.send_nowait, f"{number}:{index}", trio_token=token)

        gc.collect()
        begin = now()
        got = 0
        limiter = trio.CapacityLimiter(max(1, in_threads))
        async with trio.open_nursery() as nursery:
            for number in range(producers):
                nursery.start_soon(produce, number)
            for number in range(in_threads):
                nursery.start_soon(in_thread, produce_in_thread, producers + number, limiter)
            while got < total:
                await receive.receive()
                got += 1
        return Sample(now() - begin, {"lost": total - got})

    return trio.run(main)


async def in_thread(work: Callable[[int], None], number: int, limiter: trio.CapacityLimiter) -> None:
    """Run a producer in a worker thread."""
    await trio.to_thread.run_sync(work, number, limiter=limiter)


def memory(count: int) -> Sample:
    """Bytes that N sleeping tasks hold, together."""

    async def main() -> Sample:
        ready = trio.Event()
        crew = Crew(count, ready.set)
        async with trio.open_nursery() as nursery:
            with Allocated() as allocated:
                for index in range(count):
                    nursery.start_soon(sleep_counted, crew, index, 0.0)
                await ready.wait()
                await trio.testing.wait_all_tasks_blocked()
                held = allocated.now()
            nursery.cancel_scope.cancel(reason="measured")
        return Sample(held)

    return trio.run(main)


class Allocated:
    """Bytes that Python has allocated since the block began, and not given back."""

    def __enter__(self) -> Self:
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def now(self) -> float:
        """What is held in this moment."""
        gc.collect()
        return float(tracemalloc.get_traced_memory()[0] - self._before)

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()
