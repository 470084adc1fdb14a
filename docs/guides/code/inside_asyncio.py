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
    await trio.sleep(0.75)
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
        except asyncio.CancelledError:  # noqa: ASYNC103 - raised once the guest is done
            if done.done():
                raise
            scope.cancel(reason="asyncio cancelled")


async def ticks() -> None:
    while True:
        print("asyncio ticks")
        await asyncio.sleep(0.5)


async def main() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "measure", {"city": "Rome"}), "It is warm in Rome."]), tools=[measure])
    ticking = asyncio.create_task(ticks())
    result = await run_in_trio(lambda: agent.prompt("How warm is it in Rome?"))
    print(result.text)
    ticking.cancel()

    agent = Agent(ScriptedModel([ToolCall("c1", "measure", {"city": "Oslo"})]), tools=[measure])
    try:
        async with asyncio.timeout(0.3):
            await run_in_trio(lambda: agent.prompt("How warm is it in Oslo?"))
    except TimeoutError:
        print("timeout;", agent.messages[-1].error_message)  # type: ignore[union-attr]

    agent = Agent(ScriptedModel([ToolCall("c1", "measure", {"city": "Bern"})]), tools=[measure])
    running = asyncio.create_task(run_in_trio(lambda: agent.prompt("How warm is it in Bern?")))
    await asyncio.sleep(0.3)
    agent.abort("asyncio has changed its mind")  # a plain function, called from asyncio's side
    print((await running).end_reason)


asyncio.run(main())
