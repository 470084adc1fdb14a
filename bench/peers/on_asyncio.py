"""What the peers on asyncio have in common."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from bench.crew import Crew
from bench.floors import HOUR, first_and_last
from bench.measure import Sample

from .adapter import Act, Adapter, Entry, Plan, Script, Seen, UnavailableError, look_at

now = time.perf_counter
ToolFunction: TypeAlias = Callable[[int], Any]

SETTLE = 0.02
"""Seconds between the start of the last tool and the cut, so that all of them are asleep."""
LINGER = 2.0
"""Seconds beyond the time of its tools for which what was left behind is watched."""
PATIENCE = 10.0
"""Seconds after which a run that was cut counts as hung."""


class Handle:
    """An agent of the peer's, its scripted model, and the conversation."""

    agent: Any = None
    crew: Crew | None = None
    seen: Sequence[Entry] = ()
    """What the model was sent last."""


def arguments(index: int) -> str:
    """The arguments of a call."""
    return json.dumps({"i": index})


async def noop(i: int) -> str:
    """A tool that yields once."""
    await asyncio.sleep(0)
    return "ok"


def body_of(plan: Plan, crew: Crew, ready: asyncio.Event) -> ToolFunction:
    """The tool of a plan."""

    async def sleep(i: int) -> str:
        crew.enter(i)
        try:
            if plan.body == "half" and i % 2 == 0:
                return crew.complete(i)
            if plan.body == "swallow":
                try:
                    await asyncio.sleep(HOUR)
                except asyncio.CancelledError:  # noqa: ASYNC103 - the fault that is tried
                    if crew.dismissed:
                        raise
                    await asyncio.sleep(plan.seconds)
            elif plan.body == "raise":
                await ready.wait()
                if i == plan.n // 2:
                    raise RuntimeError("one of N raises")
                await asyncio.sleep(plan.seconds)
            else:
                await asyncio.sleep(plan.seconds if plan.body == "deaf" else HOUR)
            return crew.complete(i)
        finally:
            if plan.body == "clean-up":
                await asyncio.sleep(plan.seconds * (i % 10 + 1) / 10)
            crew.leave()

    def block(i: int) -> str:
        crew.enter(i)
        try:
            time.sleep(plan.seconds)
            return crew.complete(i)
        finally:
            crew.leave()

    return block if plan.body == "thread" else sleep


class AsyncioAdapter(Adapter):
    """Drives a peer that runs on asyncio; a subclass says how an agent is made, run and cut."""

    cannot: ClassVar[Mapping[Act, str]] = {
        "abort": "it has no way of its own to stop a run; its task is cancelled",
        "one": "it has no way to cancel one call",
    }
    threads = True
    """Plain functions run in threads."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.sent = 0

    @abstractmethod
    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        """Make an agent; not timed."""

    @abstractmethod
    async def run(self, handle: Any, prompt: str = "go") -> None:
        """From prompt to final text, in the cheapest form; timed."""

    async def run_cut(self, handle: Any, plan: Plan) -> None:
        """The form of a run that can be cut so, and keeps its conversation."""
        await self.run(handle)

    async def again(self, handle: Any) -> None:
        """Go on with the same conversation."""
        raise UnavailableError("it keeps no conversation")

    def abort(self, handle: Any, task: asyncio.Task[None]) -> None:
        """The peer's own way to stop a run; if it cannot, :attr:`cannot` says so."""
        raise UnavailableError("it has no way of its own to stop a run")

    def cancel_one(self, handle: Any, index: int) -> None:
        """Cancel one call of N; if the peer cannot, :attr:`cannot` says so."""
        raise UnavailableError("it has no way to cancel one call")

    async def history(self, handle: Any) -> list[Entry] | None:
        """The conversation as the library keeps it, or None if it keeps none."""
        return None

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        """Stream a text to a listener."""
        raise UnavailableError("it has no stream")

    async def stream_arguments(self, parts: Sequence[str], on_delta: Callable[[], None]) -> None:
        """Stream the arguments of a call to a listener."""
        raise UnavailableError("it has no stream")

    # ------------------------------------------------------------ measuring

    def fanout(self, n: int, inner: int) -> Sample:
        handles = [self.build([n, "done"], noop, Crew(n)) for _ in range(inner)]

        async def main() -> float:
            gc.collect()  # after the agents were made, and before the clock runs
            begin = now()
            for handle in handles:
                await self.run(handle)
            return now() - begin

        return Sample(self.runner.run(main()))

    def turns(self, n: int) -> Sample:
        stamps: list[float] = []
        handle = self.build([1] * n + ["done"], noop, Crew(n), stamps)

        async def main() -> float:
            gc.collect()  # after the agents were made, and before the clock runs
            begin = now()
            await self.run(handle)
            return now() - begin

        took = self.runner.run(main())
        return Sample(took, first_and_last(stamps))

    def text(self, n: int) -> Sample:
        return self._streamed(lambda on_delta: self.stream_text(n, on_delta))

    def arguments(self, parts: Sequence[str]) -> Sample:
        return self._streamed(lambda on_delta: self.stream_arguments(parts, on_delta))

    def _streamed(self, stream: Callable[[Callable[[], None]], Awaitable[None]]) -> Sample:
        seen = lead = 0
        self.sent = 0

        def on_delta() -> None:
            nonlocal seen, lead
            seen += 1
            lead = max(lead, self.sent - seen)

        async def main() -> float:
            gc.collect()  # after the agents were made, and before the clock runs
            begin = now()
            await stream(on_delta)
            return now() - begin

        took = self.runner.run(main())
        return Sample(took, {"delivered": seen, "max_lead": lead})

    def cut(self, plan: Plan) -> Sample:
        self.refuse(plan)
        if plan.body == "thread" and not self.threads:
            raise UnavailableError("it takes no plain function as a tool")
        if plan.body == "raise" and self.sequential:
            raise UnavailableError("its tools run one after the other, so there are no siblings")
        return self.runner.run(self._cut(plan))

    async def _cut(self, plan: Plan) -> Sample:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        together = plan.n if not self.sequential else 2 if plan.body == "half" else 1
        # A thread pool may be smaller than the batch: then the first of them is waited for.
        crew = Crew(1 if plan.body == "thread" else together, lambda: loop.call_soon_threadsafe(ready.set))
        tool = body_of(plan, crew, ready)
        for _ in range(plan.depth - 1):
            tool = self._delegating(tool, crew)
        script: Script = [plan.n if plan.depth == 1 else 1, "done", "again"]
        handle = self.build(script, tool, crew)
        before = others()
        seen = Seen(crew)
        over = 0.0

        async def host() -> None:
            nonlocal over
            try:
                await self.run_cut(handle, plan)
                seen.outcome = "returned"
            except asyncio.CancelledError:
                seen.outcome = "cancelled"
                raise
            except Exception as error:
                seen.outcome = f"raised {type(error).__name__}"
            finally:
                over = now()

        task = asyncio.create_task(host())
        starting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, starting}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if not ready.is_set():
            task.cancel()
            raise RuntimeError(f"the tools did not begin: {seen.outcome}")
        await asyncio.sleep(SETTLE)
        gc.collect()
        asked, cut = crew.requests, now()
        if plan.act == "abort":
            self.abort(handle, task)
        elif plan.act == "host":
            task.cancel()
        elif plan.act == "one":
            self.cancel_one(handle, plan.n // 2)
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        if not done:
            over = now()
        seen.took = over - cut
        seen.at_the_end(cut, asked, others() - before)
        if (history := await self.history(handle)) is not None:
            seen.facts["history"] = look_at(history, crew.completed)
        while (crew.alive or others() > before) and now() - over < LINGER + plan.seconds:
            await asyncio.sleep(0.001)
            seen.facts["late_us"] = (now() - over) * 1e6
        if plan.again and done:
            seen.facts["again"] = await self._prompt_again(handle, crew)
        crew.dismissed = True
        left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
        return seen.sample()

    async def _prompt_again(self, handle: Any, crew: Crew) -> dict[str, Any] | None:
        asked = crew.requests
        try:
            async with asyncio.timeout(PATIENCE):
                await self.again(handle)
            outcome = "returned"
        except UnavailableError:
            return None
        except Exception as error:
            outcome = f"raised {type(error).__name__}: {str(error)[:120]}"
        return {"outcome": outcome, "requests": crew.requests - asked, **look_at(handle.seen, crew.completed)}

    def _delegating(self, tool: ToolFunction, crew: Crew) -> ToolFunction:
        inner = self.build([1, "done"], tool, Crew(1))

        async def delegate(i: int) -> str:
            await self.run(inner)
            return "ok"

        return delegate

    def close(self) -> None:
        self.runner.close()


def others() -> int:
    """Tasks of this loop that are not over, without the one that asks."""
    return sum(not task.done() for task in asyncio.all_tasks()) - 1
