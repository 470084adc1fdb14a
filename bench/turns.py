"""``turns``: long runs; what the first turn costs, and the last."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import partial

import trio

from trio_agent import TurnEnd

from . import floors
from .measure import Case, Sample
from .options import Options, Planned
from .subject import VERSION, calling

SIZES = (200, 1000, 5000)


def run(n: int) -> Sample:
    """N turns of one call each, in one run."""
    agent = calling([1] * n + [0])
    stamps: list[float] = []
    agent.subscribe(lambda event: stamps.append(time.perf_counter()), TurnEnd)

    async def main() -> float:
        gc.collect()
        begin = time.perf_counter()
        stamps.append(begin)
        await agent.prompt("go")
        return time.perf_counter() - begin

    took = trio.run(main)
    # The last turn is the final text, without a call.
    facts = floors.first_and_last(stamps[:-1])
    return Sample(took, {**facts, "growth": facts["last_us"] / facts["first_us"]})


def benchmark(options: Options) -> Iterator[Planned]:
    """Every length."""
    for n in options.choose(SIZES, (50, 200)):
        yield Planned(
            Case(
                bench="turns", case="turns", n=n, per=n, unit="turn", version=VERSION,
                floor_name="a nursery with one task, so often", floor=partial(floors.turns, n), run=partial(run, n),
            ),
            options.repeat(9 if n <= 1000 else 3),
        )  # fmt: skip
