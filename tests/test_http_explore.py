"""An act at every place of a response that streams over a network in memory.

Whatever is done where: when ``prompt()`` is over no connection is in use, no place is taken, and the transcript is
as promised. With an interrupt at any line of the driver, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType

import network
import pytest
import trio
from network import Received, Reply, chat_answer, chat_call

from trio_agent import Agent, Tool, ToolContext
from trio_agent.providers import open_models
from trio_agent.testing import Probe, explore, explore_key_interrupts

libraries = pytest.mark.parametrize("library", network.LIBRARIES, ids=lambda library: library.__name__)


def host_over(library: ModuleType) -> Callable[[Probe], Awaitable[None]]:
    """A conversation with a tool: connecting, a failed try, a stream with pauses, a second request."""

    async def host(probe: Probe) -> None:
        answers = iter(range(100))

        async def script(request: Received, reply: Reply) -> None:
            number = next(answers)
            if number == 0:
                await reply.respond(429, {"error": {"message": "slowly"}}, {"retry-after": "2"})
                return
            await reply.start()
            events = chat_call("c1", "work", {"ticks": 1}) if number == 1 else chat_answer("That is all.")
            for event in events:
                await trio.sleep(0.1)
                await reply.events(event)
            await reply.finish()

        async def work(arguments: object, ctx: ToolContext) -> str:
            await trio.sleep(0.1)
            return "done"

        in_use: list[str] = []
        async with (
            network.in_memory(script, library) as (_, memory, client),
            open_models(client=client, max_connections=1) as models,
        ):
            memory.delay = 0.1
            model = models.openai_compatible("http://test/v1", "m")
            agent = probe.watch(Agent(model, tools=[Tool("work", execute=work)]))
            assert model.driver is not None
            _, limiter = model.driver.client_for(model.base_url)  # type: ignore[attr-defined]  # the driver itself
            try:
                await agent.prompt("Work.")
            finally:
                connections = network.pool_of(client).connections
                in_use += [repr(each) for each in connections if not (each.is_idle() or each.is_closed())]
                in_use += [repr(limiter)] * limiter.borrowed_tokens
            if not probe.acted:
                assert agent.messages[-1].text == "That is all."  # type: ignore[union-attr]  # an answer

        def nothing_is_in_use() -> None:
            assert in_use == []

        probe.check(nothing_is_in_use)

    return host


@libraries
def test_an_act_at_every_place_leaves_pool_and_transcript_as_promised(library: ModuleType) -> None:
    with network.no_warnings():
        found = explore(host_over(library), sample=150, pairs=20, modes=("plain", "checkpoints"))
    found.raise_for_failures()
    assert found.places >= 40


@libraries
def test_an_interrupt_at_any_line_leaves_pool_and_transcript_as_promised(library: ModuleType) -> None:
    explore_key_interrupts(host_over(library), every=50).raise_for_failures()
