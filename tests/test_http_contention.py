"""Requests that are cancelled at random moments, over TLS, with few places for many (B99, B101).

httpx 0.28.1 with a bound on its connections loses places for good here. Ours has the bound in front.
``TRIO_AGENT_SEEDS`` says how many seeds are run; by default few, because each takes real time.
"""

from __future__ import annotations

import os
import random
import ssl
from types import ModuleType

import network
import pytest
import trio
import trustme
from network import Received, Reply

from trio_agent import Agent
from trio_agent.providers import open_models
from trio_agent.testing import assert_transcript_valid

SEEDS = range(int(os.environ.get("TRIO_AGENT_SEEDS", "2")))
REQUESTS = 400
PLACES = 3


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.slow  # the moments are real ones: it is about the sockets of the system
@pytest.mark.parametrize("library", network.LIBRARIES, ids=lambda library: library.__name__)
@pytest.mark.parametrize("seed", SEEDS)
async def test_b99_places_sockets_and_later_requests(seed: int, library: ModuleType, authority: trustme.CA) -> None:
    rng = random.Random(seed)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        for event in network.chat_answer("Hello, here I am."):
            await reply.events(event)
            await trio.lowlevel.checkpoint()
        await reply.finish()

    outcomes: list[str | None] = []

    async def ask(agent: Agent, after: float) -> None:
        with trio.move_on_after(after):
            await agent.prompt("Hi.")
        outcomes.append(agent.last_result.stop_reason if agent.last_result else None)
        assert_transcript_valid(agent.messages)

    async with network.serving(script, context=serving) as (server, url):
        limits = library.Limits(max_connections=None)
        async with library.AsyncClient(verify=trusting, limits=limits, timeout=None, trust_env=False) as client:
            with network.no_warnings():
                async with open_models(client=client, max_connections=PLACES, max_retries=0) as models:
                    model = models.openai_compatible(url, "m")
                    async with trio.open_nursery() as nursery:
                        for _ in range(REQUESTS):
                            nursery.start_soon(ask, Agent(model), rng.expovariate(1 / 0.15))
                    # Every place is free again: as many as there are, side by side, are answered at once.
                    with trio.fail_after(10):
                        async with trio.open_nursery() as nursery:
                            agents = [Agent(model) for _ in range(2 * PLACES)]
                            for agent in agents:
                                nursery.start_soon(agent.prompt, "Hi.")
                    assert [agent.last_result.text for agent in agents if agent.last_result] == [
                        "Hello, here I am."
                    ] * len(agents)
            # One that was cancelled before it connected has no socket; the next request takes it out.
            left = [each for each in network.pool_of(client).connections if ", NEW," not in repr(each)]
            assert len(left) <= PLACES
            assert all(connection.is_idle() for connection in left)
            with trio.fail_after(10):
                while server.open > len(left):  # noqa: ASYNC110 - the server's side of what was closed ends a little later
                    await trio.sleep(0.01)
    assert {"stop", "aborted"} <= set(outcomes)  # some were cut, some were not
