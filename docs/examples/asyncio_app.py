"""An asyncio application with agents inside it: Trio runs as a guest of asyncio's loop,
in one thread.

Coroutines of asyncio ask; a Trio task answers. What crosses the border is plain
calls: asyncio calls into Trio through the Trio token, Trio settles futures of
asyncio. Cancelling the asyncio side cancels the run of the agent.
"""

import asyncio
from functools import partial
from typing import Self

import outcome
import trio

from trio_agent import Agent, ToolCall, tool
from trio_agent.testing import ScriptedModel


@tool
async def look(place: str) -> str:
    """Look around."""
    await trio.sleep(60 if place == "far" else 0.05)
    return f"nothing new in {place}"


class Agents:
    """Agents for an asyncio program. Used as ``async with Agents() as agents: await agents.ask(...)``."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[outcome.Outcome[None]] = self._loop.create_future()
        self._ready = asyncio.Event()
        trio.lowlevel.start_guest_run(
            self._serve,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            done_callback=self._over.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        await self._ready.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._token.run_sync_soon(self._stop.set)
        (await self._over).unwrap()  # noqa: ASYNC102 - an await of asyncio's

    async def ask(self, place: str) -> str:
        """Ask an agent; cancelled, its run is cancelled too."""
        answer: asyncio.Future[str] = self._loop.create_future()
        scope = trio.CancelScope()
        self._token.run_sync_soon(partial(self._nursery.start_soon, self._answer, place, answer, scope))
        try:
            return await answer
        except asyncio.CancelledError:
            self._token.run_sync_soon(partial(scope.cancel, reason="the asyncio task was cancelled"))
            raise

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._ready.set()
            await self._stop.wait()  # and then for the runs that are still going on

    async def _answer(self, place: str, answer: "asyncio.Future[str]", scope: trio.CancelScope) -> None:
        agent = Agent(ScriptedModel([ToolCall("c1", "look", {"place": place}), f"I saw {place}."]), tools=[look])
        with scope:
            result = await agent.prompt(f"Look at {place}.")
            if not answer.done():
                answer.set_result(result.text)
        if scope.cancelled_caught and agent.last_result is not None:
            print(f"{place}: the run is closed, {agent.last_result.end_reason}")


async def main() -> None:
    async with Agents() as agents:
        print(await asyncio.gather(*(agents.ask(place) for place in ("north", "south"))))
        try:
            async with asyncio.timeout(0.1):
                await agents.ask("far")
        except TimeoutError:
            print("far: no answer in time")


if __name__ == "__main__":
    asyncio.run(main())
