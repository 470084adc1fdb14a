import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import outcome
import trio

from trio_agent import Agent, RunResult, ToolCall, tool
from trio_agent.testing import ScriptedModel


@tool
async def measure(city: str) -> str:
    """Measure the temperature in a city."""
    await trio.sleep(0.3)
    return f"21.5 degrees in {city}"


async def run_in_trio(main: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
    """Run an async function of Trio's inside asyncio, as a guest, until it is done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[outcome.Outcome[RunResult]] = loop.create_future()
    scope = trio.CancelScope()

    async def guest() -> RunResult:
        with scope:
            return await main()
        raise asyncio.CancelledError

    trio.lowlevel.start_guest_run(
        guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
    )
    while True:
        try:
            return (await asyncio.shield(done)).unwrap()
        except asyncio.CancelledError:
            if done.done():
                raise
            scope.cancel(reason="asyncio cancelled")


async def ticks() -> None:
    while True:
        print("asyncio ticks")
        await asyncio.sleep(0.2)


async def main() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "measure", {"city": "Rome"}), "It is warm in Rome."]), tools=[measure])
    ticking = asyncio.create_task(ticks())
    result = await run_in_trio(lambda: agent.prompt("How warm is it in Rome?"))
    print(result.text)
    ticking.cancel()

    agent = Agent(ScriptedModel([ToolCall("c1", "measure", {"city": "Oslo"})]), tools=[measure])
    try:
        async with asyncio.timeout(0.1):
            await run_in_trio(lambda: agent.prompt("How warm is it in Oslo?"))
    except TimeoutError:
        print("timeout;", agent.messages[-1].error_message)  # type: ignore[union-attr]


asyncio.run(main())
