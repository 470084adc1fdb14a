"""The driver under all vendors: requests, time limits, other tries, cancellation; over a network in memory."""

from __future__ import annotations

import email.utils
import gc
import itertools
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import attrs
import network
import pytest
import trio
from network import Received, Reply, Script, chat_answer, chat_call, chunk

from trio_agent import (
    Agent,
    AgentEvent,
    AgentTurnContext,
    AgentTurnDecision,
    AssistantMessage,
    MessageStart,
    MessageUpdate,
    TextContent,
    TextDelta,
    UsageError,
    tool,
)
from trio_agent.providers import (
    ChatCompat,
    HTTPModel,
    Models,
    Prices,
    ProviderResponse,
    TimeLimits,
    TransportError,
    open_models,
)
from trio_agent.testing import assert_transcript_valid

KEY = "sk-test-0123456789abcdef"
libraries = pytest.mark.parametrize("library", network.LIBRARIES, ids=lambda library: library.__name__)


@attrs.define
class Setting:
    """A server in memory, and models whose client reaches it."""

    server: network.Server
    network: network.MemoryNetwork
    client: Any
    models: Models

    def model(self, **fields: Any) -> HTTPModel:
        return self.models.openai_compatible("http://test/v1", "m", **fields)

    def agent(self, **fields: Any) -> Agent:
        return Agent(self.model(**fields))


@asynccontextmanager
async def setting(
    script: Script, library: ModuleType = network.LIBRARIES[0], **settings: Any
) -> AsyncGenerator[Setting]:
    async with (
        network.in_memory(script, library) as (server, memory, client),
        open_models(client=client, **settings) as models,
    ):
        yield Setting(server, memory, client, models)


def failure(agent: Agent) -> str:
    message = agent.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert message.stop_reason == "error"
    return message.error_message or ""


def in_turn(*scripts: Script) -> Script:
    """Each request is answered by the next script; the last answers the rest."""
    left = list(scripts)

    async def script(request: Received, reply: Reply) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, reply)

    return script


def failing(status: int, headers: Mapping[str, str] | None = None, message: str = "no") -> Script:
    async def script(request: Received, reply: Reply) -> None:
        await reply.respond(status, {"error": {"message": message}}, headers)

    return script


async def silent(request: Received, reply: Reply) -> None:
    await trio.sleep_forever()


# ---------------------------------------------------------------- requests


@libraries
async def test_a_conversation_with_a_tool_over_one_connection(library: ModuleType) -> None:
    @tool
    def weather(city: str) -> str:
        """Say what the weather is like."""
        return f"rain in {city}"

    async def first(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(*chat_call("c1", "weather", {"city": "Oslo"}))
        await reply.finish()

    async with setting(in_turn(first, network.answer), library) as s:
        agent = Agent(s.model(), tools=[weather], system_prompt="Be brief.")
        result = await agent.prompt("What is it like?")
        assert result.text == "Hello."
        assert [message.role for message in agent.messages] == [
            "system",
            "user",
            "assistant",
            "tool_result",
            "assistant",
        ]
        assert_transcript_valid(agent.messages)
        asked = s.server.received[1].json()
        assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant", "tool"]
        assert asked["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "rain in Oslo"}
        assert asked["model"] == "m"
        assert asked["stream"] is True
        assert s.server.connections == 1


async def test_the_request_goes_where_the_base_url_says(autojump_clock: trio.testing.MockClock) -> None:
    async with setting(network.answer) as s:
        for base in ("http://test/v1", "http://test/v1/", "http://test/v1/chat/completions"):
            await Agent(s.models.openai_compatible(base, "m")).prompt("Hi.")
        await Agent(s.models.openai_compatible("http://test/v1", "m", query={"api-version": "1 2"})).prompt("Hi.")
        targets = [request.target for request in s.server.received]
        assert targets == ["/v1/chat/completions"] * 3 + ["/v1/chat/completions?api-version=1+2"]


async def test_the_path_of_messages_is_found_with_and_without_its_version() -> None:
    async def script(request: Received, reply: Reply) -> None:
        assert request.headers["x-api-key"] == KEY
        assert request.headers["anthropic-version"] == "2023-06-01"
        await reply.respond(200, {"type": "message", "id": "m1", "content": [], "stop_reason": "end_turn"})

    async with setting(script) as s:
        for base in ("http://test", "http://test/v1", "http://test/v1/messages", "http://test/proxy"):
            agent = Agent(s.models.anthropic_compatible(base, "m", api_key=KEY))
            assert (await agent.prompt("Hi.")).stop_reason == "stop"
        assert [request.target for request in s.server.received] == ["/v1/messages"] * 3 + ["/proxy/v1/messages"]


async def test_usage_has_a_cost_where_the_model_has_prices() -> None:
    async with setting(network.answer) as s:
        result = await s.agent(prices=Prices(input=2.0, output=10.0)).prompt("Hi.")
        assert result.usage.cost == {
            "input": 14e-6,
            "output": 30e-6,
            "cacheRead": 0.0,
            "cacheWrite": 0.0,
            "total": pytest.approx(44e-6),
        }


async def test_the_hook_of_the_guide_goes_on_where_an_answer_paused() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    paused = {
        "type": "message",
        "content": [{"type": "text", "text": "I search. "}, search],
        "stop_reason": "pause_turn",
    }
    rest = {"type": "message", "content": [{"type": "text", "text": "Found."}], "stop_reason": "end_turn"}
    answers = [paused, rest]

    async def script(request: Received, reply: Reply) -> None:
        await reply.respond(200, answers.pop(0))

    def finish_turn(turn: AgentTurnContext) -> AgentTurnDecision | None:
        return "continue" if turn.message.raw_stop_reason == "pause_turn" else None

    async with setting(script) as s:
        agent = Agent(s.models.anthropic_compatible("http://test", "m"), finish_turn=finish_turn)
        result = await agent.prompt("What is x?")
        assert result.text == "Found."
        assert s.server.received[1].json()["messages"] == [
            {
                "role": "user",
                "content": [{"type": "text", "text": "What is x?", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "I search. "}, search]},
        ]


async def test_arguments_of_the_guide_for_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with setting(network.answer) as s:
        azure = s.models.openai_compatible(
            "http://test/openai/deployments/d",
            "d",
            key_header="api-key",
            api_key=KEY,
            query={"api-version": "2024-10-21"},
            max_tokens=4000,
            images=False,
            compat=ChatCompat(thinking="chat_template", finish_reason_required=False),
        )
        await Agent(azure, thinking_level="high").prompt("Hi.")
        (request,) = s.server.received
        assert request.target == "/openai/deployments/d/chat/completions?api-version=2024-10-21"
        assert request.headers["api-key"] == KEY
        assert "authorization" not in request.headers
        assert request.json()["chat_template_kwargs"] == {"enable_thinking": True}
        assert request.json()["max_tokens"] == 4000


# -------------------------------------------------------------------- keys


async def test_where_the_key_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", f" {KEY}-env\n")
    async with setting(network.answer, api_keys={"groq": f"{KEY}-opened"}) as s:
        model = attrs.evolve(s.models["groq:m"], base_url="http://test/v1")

        async def asked(agent: Agent) -> str:
            result = await agent.prompt("Hi.")
            result.raise_for_error()
            return s.server.received[-1].headers["authorization"].removeprefix(f"Bearer {KEY}-")

        given = Agent(attrs.evolve(model, api_key=f"{KEY}-model"), get_api_key=lambda provider: f"{KEY}-{provider}")
        assert await asked(given) == "groq"
        assert await asked(Agent(attrs.evolve(model, api_key=f"{KEY}-model"))) == "model"
        assert await asked(Agent(model)) == "opened"
    async with setting(network.answer) as s:
        assert await asked(Agent(attrs.evolve(s.models["groq:m"], base_url="http://test/v1"))) == "env"


async def test_without_a_key_nothing_is_sent_and_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with setting(network.answer) as s:
        agent = Agent(s.models["anthropic:m"])
        await agent.prompt("Hi.")
        assert "set ANTHROPIC_API_KEY" in failure(agent)
        assert s.server.connections == 0


async def test_a_key_of_the_environment_goes_to_its_own_vendor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with setting(network.answer) as s:
        await s.agent().prompt("Hi.")
        assert "authorization" not in s.server.received[0].headers
        assert s.models.openai_compatible("https://api.openai.com/v1", "m").key_variable == "OPENAI_API_KEY"
        assert s.models.openai_compatible("https://api.openai.com.example/v1", "m").key_variable is None
        assert s.models.openai_compatible("http://api.openai.com/v1", "m").key_variable is None


@pytest.mark.parametrize("key", ["sk-\x00-secret", "sk secret", "sk-sécret", "sk-a\r\nx-evil: 1"])
async def test_a_key_that_is_none_is_refused_without_showing_it(key: str) -> None:
    async with setting(network.answer) as s:
        agent = s.agent(api_key=key)
        await agent.prompt("Hi.")
        assert "check how it was copied" in failure(agent)
        assert key not in failure(agent)
        assert "secret" not in failure(agent)
        assert s.server.connections == 0


@libraries
async def test_nothing_shows_a_key(library: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "trio_agent")
    seen: list[object] = []

    async def script(request: Received, reply: Reply) -> None:
        shown = {"x-echo": f"you sent {KEY}", "set-cookie": "session=1", "x-api-key-owner": "me"}
        await reply.respond(401, {"error": {"message": f"wrong key {KEY}, {request.headers['x-token']}"}}, shown)

    def on_payload(payload: Any, model: HTTPModel) -> None:
        seen.append(payload)

    def on_response(response: ProviderResponse, model: HTTPModel) -> None:
        seen.append(response)

    async with setting(script, library, on_payload=on_payload, on_response=on_response) as s:
        model = s.model(api_key=KEY, headers={"X-Token": "hush-hush-hush"})
        agent = Agent(model)
        result = await agent.prompt(f"My key is {KEY}.")
        assert "wrong key [key], [key]" in failure(agent)
        (response,) = [each for each in seen if isinstance(each, ProviderResponse)]
        assert response.status == 401
        assert response.headers["x-echo"] == "you sent [key]"
        assert "set-cookie" not in response.headers
        assert "x-api-key-owner" not in response.headers
        shown = repr((seen, model, s.models, result.exception, agent.messages[-1])) + caplog.text
        shown += (
            "".join(repr(error) for error in (result.exception.__cause__, result.exception.__context__))
            if result.exception
            else ""
        )
        assert KEY not in shown
        assert "hush-hush-hush" not in shown
        assert f"My key is {KEY}." in s.server.received[0].body.decode()


# --------------------------------------------------------------- observers


async def test_on_payload_sees_the_body_and_may_replace_it() -> None:
    async def replace(payload: Any, model: HTTPModel) -> Any:
        await trio.lowlevel.checkpoint()
        return {**payload, "seed": 7, "model": model.id + "-2"}

    async with setting(network.answer, on_payload=replace) as s:
        await s.agent().prompt("Hi.")
        assert s.server.received[0].json()["seed"] == 7
        assert s.server.received[0].json()["model"] == "m-2"
        agent = Agent(s.model(), options={"on_payload": lambda payload, model: None})
        await agent.prompt("Hi.")
        assert s.server.received[1].json()["model"] == "m"


async def test_an_observer_that_fails_fails_the_request_and_leaves_nothing_open() -> None:
    def on_response(response: ProviderResponse, model: HTTPModel) -> None:
        raise RuntimeError("seen enough")

    async with setting(network.answer, on_response=on_response) as s:
        agent = s.agent()
        await agent.prompt("Hi.")
        assert failure(agent) == "seen enough"
        assert network.pool_of(s.client).connections == []


# ------------------------------------------------------------- time limits


@libraries
async def test_a_connection_that_does_not_come_about(
    library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async with setting(network.answer, library, limits=TimeLimits(connect=3), max_retries=0) as s:
        s.network.delay = 60
        agent = s.agent()
        start = trio.current_time()
        result = await agent.prompt("Hi.")
        assert trio.current_time() - start == pytest.approx(3)
        assert "within 3 s; TimeLimits(connect=...)" in failure(agent)
        assert isinstance(result.exception, TransportError)
        assert result.exception.retryable


@libraries
async def test_b93_the_first_event_has_a_limit_of_its_own(
    library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async def headers_only(request: Received, reply: Reply) -> None:
        await reply.start()
        await trio.sleep_forever()

    for script in (silent, headers_only):
        async with setting(script, library, limits=TimeLimits(first_event=40), max_retries=0) as s:
            agent = s.agent()
            start = trio.current_time()
            result = await agent.prompt("Hi.")
            assert trio.current_time() - start == pytest.approx(40)
            assert "within 40 s; TimeLimits(first_event=...)" in failure(agent)
            assert isinstance(result.exception, TransportError)
            assert result.exception.retryable
            assert network.pool_of(s.client).connections == []


@libraries
async def test_b93_a_stream_that_falls_silent_fails_and_keeps_what_came(
    library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(chunk({"content": "Half an "}))
        await trio.sleep_forever()

    async with setting(script, library) as s:
        agent = s.agent()
        start = trio.current_time()
        result = await agent.prompt("Hi.")
        assert trio.current_time() - start == pytest.approx(120)
        assert "fell silent in the middle of its answer for 120 s" in failure(agent)
        assert result.message is not None
        assert result.message.content == (TextContent("Half an "),)
        assert isinstance(result.exception, TransportError)
        assert result.exception.retryable
        assert len(s.server.received) == 1  # nothing that was told is told again
        assert network.pool_of(s.client).connections == []


async def test_b93_keep_alives_are_signs_of_life(autojump_clock: trio.testing.MockClock) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        for _ in range(20):
            await trio.sleep(100)
            await reply.write(": waiting\n\n")
        await reply.events(*chat_answer())
        await reply.finish()

    async with setting(script) as s:
        assert (await s.agent().prompt("Hi.")).text == "Hello."


async def test_b93_listeners_that_are_slow_do_not_count(autojump_clock: trio.testing.MockClock) -> None:
    async def slow(event: AgentEvent) -> None:
        await trio.sleep(500)

    async with setting(network.answer) as s:
        agent = s.agent()
        agent.subscribe(slow, MessageUpdate)
        assert (await agent.prompt("Hi.")).text == "Hello."


async def test_waiting_for_a_place_does_not_count(autojump_clock: trio.testing.MockClock) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await trio.sleep(200)
        await network.answer(request, reply)

    async with setting(script, max_connections=1) as s:
        agents = [s.agent() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(agent.prompt, "Hi.")
        assert [agent.last_result.text for agent in agents if agent.last_result] == ["Hello."] * 5
        assert trio.current_time() == pytest.approx(1000, rel=0.01)
        assert s.server.connections == 1


# -------------------------------------------------------------- other tries


def dated(seconds: float) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@libraries
@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize("headers", [{"retry-after": "3"}, {"retry-after-ms": "3000"}])
async def test_b91_the_time_that_the_provider_wants_is_waited_for(
    headers: dict[str, str], status: int, library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async with setting(in_turn(failing(status, headers), failing(status, headers), network.answer), library) as s:
        start = trio.current_time()
        assert (await s.agent().prompt("Hi.")).text == "Hello."
        assert trio.current_time() - start == pytest.approx(6)
        assert len(s.server.received) == 3
        assert s.server.connections == 1  # error bodies are read, so the connection is used again


async def test_b91_a_date_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    async with setting(in_turn(failing(429, {"retry-after": dated(30)}), network.answer)) as s:
        assert (await s.agent().prompt("Hi.")).text == "Hello."
        assert 25 < trio.current_time() <= 30


async def test_b91_there_is_one_layer_of_tries(autojump_clock: trio.testing.MockClock) -> None:
    async with setting(failing(503), max_retries=4) as s:
        agent = s.agent()
        await agent.prompt("Hi.")
        assert len(s.server.received) == 5
        # 0.5, 1, 2 and 4 s, each up to half as much longer.
        assert 7.5 <= trio.current_time() <= 11.25


async def test_b91_each_wait_is_longer_than_the_one_before(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    # The worst luck: all of the jitter first, then none of it.
    draws = [1.0, 0.0, 1.0, 0.0]
    monkeypatch.setattr("random.uniform", lambda low, high: low + (high - low) * draws.pop(0))
    asked: list[float] = []

    async def script(request: Received, reply: Reply) -> None:
        asked.append(trio.current_time())
        await reply.respond(503, {"error": {"message": "no"}})

    async with setting(script, max_retries=4) as s:
        await s.agent().prompt("Hi.")
    waits = [after - before for before, after in itertools.pairwise(asked)]
    assert all(later > 1.25 * earlier for earlier, later in itertools.pairwise(waits))
    assert waits == [0.75, 1.0, 3.0, 4.0]


async def test_b90_a_wait_that_is_too_long_fails_at_once_and_says_how_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with setting(failing(429, {"retry-after": "277403"})) as s:
        agent = s.agent()
        await agent.prompt("Hi.")
        assert "the provider wants 277403 s before the next try, more than max_retry_delay allows (60 s)" in failure(
            agent
        )
        assert trio.current_time() == 0
        assert len(s.server.received) == 1
    async with setting(in_turn(failing(429, {"retry-after": "277403"}), network.answer), max_retry_delay=None) as s:
        assert (await s.agent().prompt("Hi.")).text == "Hello."
        assert trio.current_time() == pytest.approx(277403)


async def test_b90_an_abort_cuts_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    async with setting(failing(429, {"retry-after": "30"})) as s:
        agent = s.agent()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Hi.")
            await trio.sleep(1)
            agent.abort("enough")
            await agent.wait_for_idle()
            assert trio.current_time() == 1
        assert agent.last_result is not None
        assert agent.last_result.stop_reason == "aborted"


@pytest.mark.parametrize(
    ("status", "tries"), [(400, 1), (401, 1), (403, 1), (404, 1), (408, 3), (429, 3), (500, 3), (502, 3)]
)
async def test_only_what_may_succeed_later_is_tried_again(
    status: int, tries: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with setting(failing(status)) as s:
        await s.agent().prompt("Hi.")
        assert len(s.server.received) == tries


async def test_a_stream_that_broke_is_not_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(chunk({"content": "Hel"}))

    async with setting(script) as s:
        agent = s.agent()
        await agent.prompt("Hi.")
        assert "the connection broke while the server answered" in failure(agent)
        assert len(s.server.received) == 1


@pytest.mark.parametrize("error", [None, {"error": {"code": "overloaded", "message": "busy"}}])
async def test_an_answer_that_broke_before_it_said_anything_is_asked_for_again(
    error: object, autojump_clock: trio.testing.MockClock
) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(chunk({"role": "assistant", "content": ""}))
        if error is not None:
            await reply.events(error)
            await reply.finish()

    async with setting(in_turn(script, network.answer)) as s:
        agent = s.agent()
        starts: list[AgentEvent] = []
        agent.subscribe(starts.append, MessageStart)
        assert (await agent.prompt("Hi.")).text == "Hello."
        assert len(s.server.received) == 2
        assert len(starts) == 2  # the prompt and one answer


async def test_an_answer_that_says_nothing_is_told_all_the_same() -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(chunk({"role": "assistant"}), chunk({}, "stop"), "[DONE]")
        await reply.finish()

    async with setting(script) as s:
        agent = s.agent()
        starts: list[AgentEvent] = []
        agent.subscribe(starts.append, MessageStart)
        result = await agent.prompt("Hi.")
        assert (result.text, result.stop_reason, len(starts)) == ("", "stop", 2)


async def test_a_connection_that_is_dropped_before_the_answer_is_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def dropped(request: Received, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()

    async with setting(in_turn(dropped, network.answer)) as s:
        assert (await s.agent().prompt("Hi.")).text == "Hello."
        assert s.server.connections == 2


async def test_a_redirect_is_not_followed(autojump_clock: trio.testing.MockClock) -> None:
    async with setting(failing(307, {"location": "http://elsewhere/v1"})) as s:
        agent = s.agent(api_key=KEY)
        await agent.prompt("Hi.")
        assert "status 307" in failure(agent)
        assert len({request.target for request in s.server.received}) == 1


async def test_tries_are_logged(caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock) -> None:
    caplog.set_level(logging.INFO, "trio_agent.providers")
    async with setting(in_turn(failing(429, {"retry-after": "2"}, f"slow down, {KEY}"), network.answer)) as s:
        await s.agent(api_key=KEY).prompt("Hi.")
    assert caplog.messages == ["trying again in 2 s: a rate limit is reached (status 429): slow down, [key]"]


# ------------------------------------------------------------- cancellation


@libraries
async def test_an_abort_closes_the_response_at_once(
    library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async def endless(request: Received, reply: Reply) -> None:
        await reply.start()
        while True:
            await reply.events(chunk({"content": "more "}))
            await trio.sleep(1)

    async with setting(endless, library, max_connections=1) as s:
        for _ in range(3):
            agent = s.agent()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.prompt, "Hi.")
                await trio.sleep(2.5)
                before = trio.current_time()
                agent.abort("enough")
                await agent.wait_for_idle()
                assert trio.current_time() == before
            assert isinstance(agent.messages[-1], AssistantMessage)
            assert agent.messages[-1].text == "more more more "
            assert network.pool_of(s.client).connections == []
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(2)  # the server notices at its next write
        assert s.server.open == 0


@libraries
@pytest.mark.parametrize("left", [0, 100_000])
async def test_b101_bytes_behind_the_end_leave_no_generators_and_no_warnings(
    left: int, library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async def talkative(request: Received, reply: Reply) -> None:
        await reply.start()
        await reply.events(*chat_answer())
        await reply.write(": " + "x" * left + "\n\n")
        await trio.sleep_forever()

    async with setting(talkative, library, max_connections=1) as s:
        with network.no_warnings():
            for _ in range(3):
                start = trio.current_time()
                assert (await s.agent().prompt("Hi.")).text == "Hello."
                assert trio.current_time() - start == pytest.approx(0.25)  # the limit of draining
        assert network.pool_of(s.client).connections == []


@libraries
async def test_a_listener_that_fails_in_the_middle_leaves_nothing_open(library: ModuleType) -> None:
    def fail(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and isinstance(event.assistant_message_event, TextDelta):
            raise RuntimeError("no more")  # noqa: TRY004 - any error of a listener

    async with setting(network.answer, library) as s:
        agent = s.agent()
        agent.subscribe(fail)
        with pytest.raises(RuntimeError, match="no more"):
            await agent.prompt("Hi.")
        assert all(connection.is_idle() for connection in network.pool_of(s.client).connections)
        gc.collect()


@libraries
@pytest.mark.parametrize("at", range(12))
async def test_b99_a_place_is_free_again_wherever_a_request_was_cancelled(
    at: int, library: ModuleType, autojump_clock: trio.testing.MockClock
) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await trio.sleep(1)
        await reply.start()
        for event in chat_answer("Hello, hello, hello."):
            await reply.events(event)
            await trio.sleep(1)
        await reply.finish()

    async with setting(script, library, max_connections=1) as s:
        s.network.delay = 1
        waiting, asked = s.agent(), s.agent()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.prompt, "Hi.")
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(at + 0.5) as scope:
                await waiting.prompt("Hi.")
            assert scope.cancelled_caught
            asked.abort()
        assert (await s.agent().prompt("Hi.")).text == "Hello, hello, hello."


# ------------------------------------------------------------------ opening


async def test_models_are_found_by_vendor_and_name() -> None:
    async with open_models() as models:
        model = models["ollama:qwen3:8b"]
        assert (model.provider, model.id, model.api) == ("ollama", "qwen3:8b", "openai-chat")
        assert models["ollama:qwen3:8b"] is model
        assert models["anthropic:m"].api == "anthropic-messages"
        local = models.openai_compatible("http://127.0.0.1:1/v1", "m")
        assert local.provider == "127.0.0.1"
        assert models.openai_compatible("https://api.groq.com/openai/v1", "m").compat == models["groq:m"].compat


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-9", r"there is no vendor 'gpt-9'"),
        ("opnai:gpt-9", r"did you mean openai:gpt-9\?"),
        ("openai:", r"write openai:MODEL"),
        ("openai", r"write openai:MODEL"),
        ("", r"there is no vendor ''"),
    ],
)
async def test_a_name_that_is_none_says_how_it_is_written(name: str, message: str) -> None:
    async with open_models() as models:
        with pytest.raises(UsageError, match=message):
            models[name]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections": 0},
        {"max_connections": 1.5},
        {"max_retries": -1},
        {"max_retry_delay": -1.0},
        {"max_retry_delay": float("inf")},
        {"client": object()},
    ],
)
async def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        async with open_models(**settings):
            raise AssertionError("the block was entered")


@pytest.mark.parametrize("limit", ["connect", "first_event", "between_events"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_time_limit_that_cannot_be_is_refused(limit: str, value: float) -> None:
    with pytest.raises(UsageError, match=limit):
        TimeLimits(**{limit: value})


async def test_a_model_that_is_asked_behind_its_block_says_so() -> None:
    async with open_models() as models:
        model = models.openai_compatible("http://127.0.0.1:1/v1", "m")
    agent = Agent(model)
    await agent.prompt("Hi.")
    assert "the block of open_models() was left" in failure(agent)


async def test_a_client_that_was_given_is_left_open() -> None:
    async with network.in_memory(network.answer) as (_, _, client):
        async with open_models(client=client) as models:
            await Agent(models.openai_compatible("http://test/v1", "m")).prompt("Hi.")
        assert not client.is_closed


async def test_a_base_url_that_is_none_is_refused() -> None:
    async with open_models() as models:
        for base in ("test/v1", "ftp://test/v1", "http://", ""):
            with pytest.raises(UsageError, match="the base URL is"):
                models.openai_compatible(base, "m")


async def test_a_refused_connection_is_tried_again_and_an_untrusted_one_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for error, tries in ((OSError("refused"), 3), (ssl.SSLCertVerificationError("self-signed"), 1)):
        async with setting(network.answer) as s:
            s.network.refuse = error
            agent = s.agent()
            result = await agent.prompt("Hi.")
            assert "no connection: " in failure(agent)
            assert isinstance(result.exception, TransportError)
            assert result.exception.retryable == (tries > 1)
