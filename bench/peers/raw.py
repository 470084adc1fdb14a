"""The two raw rows: no agent at all, N tasks of asyncio or of Trio."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import trio

from bench import floors
from bench.crew import Crew
from bench.measure import Sample

from .adapter import Act, Entry, Script, UnavailableError
from .on_asyncio import AsyncioAdapter, ToolFunction, now
from .on_trio import TrioAdapter


class RawAsyncio(AsyncioAdapter):
    """A TaskGroup with N tasks; its own stop is that of its host."""

    cannot: ClassVar[Mapping[Act, str]] = {"abort": "it is cancelled by its host"}
    version = f"Python {platform.python_version()}"
    note = "a TaskGroup with N tasks that yield once: no validation, no events, no transcript"

    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        return _Batch(script, tool, stamps)

    async def run(self, handle: Any, prompt: str = "go") -> None:
        await handle.run()

    def cancel_one(self, handle: Any, index: int) -> None:
        handle.tasks[index].cancel()

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)

        async def produce() -> None:
            for _ in range(n):
                self.sent += 1
                await queue.put("word ")
            await queue.put(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            while await queue.get() is not None:
                on_delta()


class _Batch:
    def __init__(self, script: Script, tool: ToolFunction, stamps: list[float] | None) -> None:
        self.script, self.tool, self.stamps = script, tool, stamps
        self.tasks: list[asyncio.Task[Any]] = []

    async def run(self) -> None:
        for step in self.script:
            if self.stamps is not None:
                self.stamps.append(now())
            if isinstance(step, str):
                return
            async with asyncio.TaskGroup() as group:
                if asyncio.iscoroutinefunction(self.tool):
                    self.tasks = [group.create_task(self.tool(index)) for index in range(step)]
                else:
                    self.tasks = [group.create_task(asyncio.to_thread(self.tool, index)) for index in range(step)]


class RawTrio(TrioAdapter):
    """A nursery with N tasks: the floor, measured against itself."""

    cannot: ClassVar[Mapping[Act, str]] = {"abort": "it is cancelled by its host"}
    version = trio.__version__
    note = "the floor against itself: what its ratios differ from 1 by is noise"

    def fanout(self, n: int, inner: int) -> Sample:
        return floors.tasks(n, inner)

    def turns(self, n: int) -> Sample:
        return floors.turns(n)

    def text(self, n: int) -> Sample:
        return floors.channel(n)

    def build(self, script: Script, tool: ToolFunction, crew: Crew) -> Any:
        return _Nursery(script, tool)

    async def run(self, handle: Any, prompt: str) -> None:
        await handle.run()

    def abort(self, handle: Any) -> None:
        raise UnavailableError(self.cannot["abort"])

    def cancel_one(self, handle: Any, index: int) -> None:
        handle.scopes[index].cancel(reason="the benchmark cuts one")

    def history(self, handle: Any) -> list[Entry] | None:
        return None

    async def _prompt_again(self, handle: Any, crew: Crew) -> dict[str, Any] | None:
        return None


class _Nursery:
    def __init__(self, script: Script, tool: ToolFunction) -> None:
        self.count, self.tool = script[0], tool
        self.scopes: dict[int, trio.CancelScope] = {}

    async def run(self) -> None:
        assert isinstance(self.count, int)
        async with trio.open_nursery() as nursery:
            for index in range(self.count):
                nursery.start_soon(self._one, index)

    async def _one(self, index: int) -> None:
        with trio.CancelScope() as self.scopes[index]:
            await self.tool(index)
