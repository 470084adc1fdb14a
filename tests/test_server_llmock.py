"""Models of a server that nobody here wrote: `llmock serve` on loopback, which breaks on demand and grades its client.

Every test scripts faults over HTTP, says what our client reports of them, and ends with llmock's verdict. The best
grade is a verdict without any finding; the few that are not are explained where they are expected.

What broke off in the middle is not asked for again by the library, because listeners were told of it; that is the
host's to decide. `again()` is such a host: it takes the failed answer from the transcript and resumes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Literal, TypeAlias

import attrs
import network
import pytest
import servers
import trio

from trio_agent import Agent, AssistantMessage, MessageUpdate, RunResult, TextDelta, ToolResultMessage, tool
from trio_agent.providers import (
    AuthenticationError,
    ContextTooLongError,
    HTTPModel,
    InvalidRequestError,
    Models,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProtocolError,
    ProviderError,
    ProviderResponse,
    RateLimitError,
    ServerError,
    TimeLimits,
    TransportError,
    open_models,
)
from trio_agent.testing import assert_transcript_valid

if importlib.util.find_spec("llmock") is None:
    pytest.skip("llmock is not installed (pip install --group server)", allow_module_level=True)

# Slow, for the server is another process, whose faults take real time.
pytestmark = [pytest.mark.server, pytest.mark.slow]

Api: TypeAlias = Literal["chat", "messages"]

RPM = 60
"""Requests a minute of a key; more are refused with the time until there is one again, at most a second."""

WINDOW = 2000
"""How many tokens of four characters a prompt may have."""

PACE = 5
"""Milliseconds between two chunks. Without it a server has sent all of an answer before a client can leave it, and
takes the leaving for a complete answer."""

WORDS = [f"word{n} " for n in range(40)]
REPLY = {"type": "reply", "text": "".join(WORDS)}


everywhere = pytest.mark.parametrize(
    ("api", "library"),
    [
        pytest.param(api, library, id=f"{api}-{library.__name__}")
        for api in ("chat", "messages")
        for library in network.LIBRARIES
    ],
)
"""Both APIs, with a client of either library."""


@pytest.fixture(scope="module")
def llmock() -> Iterator[str]:
    """The server, and its address."""
    serve = [sys.executable, "-m", "llmock.cli", "serve", "--port", "0"]
    limits = [f"--rpm={RPM}", f"--context-window={WINDOW}", f"--stream-chunk-delay-ms={PACE}"]
    with servers.server_process([*serve, *limits], r"running on (http://\S+)") as address:
        yield address


@attrs.define(eq=False)
class Setting:
    """The server, and models whose client reaches it."""

    address: str
    api: Api
    client: Any
    models: Models

    def model(self, id: str = "m", **fields: Any) -> HTTPModel:
        if self.api == "chat":
            return self.models.openai_compatible(f"{self.address}/v1", id, **fields)
        return self.models.anthropic_compatible(f"{self.address}/anthropic", id, **fields)

    async def script(self, *behaviors: object) -> None:
        """Queue what the server shall do."""
        response = await self.client.post(f"{self.address}/_llmock/scenario", json={"behaviors": behaviors})
        assert response.status_code == 201, response.text

    async def forget_script(self) -> None:
        await self.client.delete(f"{self.address}/_llmock/scenario")

    async def told(self, what: str) -> Any:
        return (await self.client.get(f"{self.address}/_llmock/{what}")).json()

    async def requests(self) -> Sequence[Any]:
        """What the server notes of every request since the test began."""
        requests: Sequence[Any] = (await self.told("requests"))["requests"]
        return requests


@asynccontextmanager
async def setting(
    address: str, api: Api, library: ModuleType, *, findings: Iterable[str] = (), limits: TimeLimits | None = None
) -> AsyncGenerator[Setting]:
    """A test: at its end the server has done all that was scripted, and has nothing but these findings."""
    unbounded = library.Limits(max_connections=None)
    async with library.AsyncClient(limits=unbounded, timeout=None, trust_env=False) as client:
        await client.post(f"{address}/_llmock/reset")
        async with open_models(client=client, limits=limits) as models:
            s = Setting(address, api, client, models)
            yield s
        assert await s.told("scenario") == {"pending": []}
        verdict = await s.told("verdict")
        assert [finding["code"] for finding in verdict["findings"]] == list(findings), verdict
        assert verdict["passed"] == (not any(finding["severity"] == "error" for finding in verdict["findings"]))
        assert verdict["calls"] > 0


async def again(s: Setting, agent: Agent) -> RunResult:
    """What a host does with an answer that failed: ask once more, when it may, from where it stood before."""
    failed = agent.messages[-1]
    assert isinstance(failed, AssistantMessage)
    assert failed.stop_reason == "error"
    assert agent.last_result is not None
    await trio.sleep(error_of(agent.last_result).retry_after or 0)
    # A request counts as another try only if the one before is over for the server, which notices a little later
    # that we have left it. This answer comes when nothing is under way any more.
    await s.requests()
    agent.messages = agent.messages[:-1]
    return await agent.resume()


async def side_by_side(*runs: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for run in runs:
            nursery.start_soon(run)


def error_of(result: RunResult) -> ProviderError:
    assert result.stop_reason == "error"
    assert isinstance(result.exception, ProviderError)
    return result.exception


# ---------------------------------------------------------------- no fault


@everywhere
async def test_a_conversation(llmock: str, api: Api, library: ModuleType) -> None:
    async with setting(llmock, api, library) as s:
        await s.script(REPLY, {"type": "reply", "text": "Zwölf — 十二 🎉."})
        agent = Agent(s.model(), system_prompt="Be brief.")
        deltas: list[str] = []

        def listen(event: MessageUpdate) -> None:
            if isinstance(event.assistant_message_event, TextDelta):
                deltas.append(event.assistant_message_event.delta)

        agent.subscribe(listen, MessageUpdate)
        first = await agent.prompt("Count.")
        assert first.text == REPLY["text"]
        assert deltas == WORDS
        assert first.stop_reason == "stop"
        assert first.message is not None
        assert first.message.raw_stop_reason == ("stop" if api == "chat" else "end_turn")
        assert first.usage.input > 0
        assert first.usage.output > 0
        second = await agent.prompt("And in German?")
        assert second.text == "Zwölf — 十二 🎉."
        assert_transcript_valid(agent.messages)
        requests = await s.requests()
        assert [request["status"] for request in requests] == [200, 200]
        roles = [message["role"] for message in requests[1]["body"]["messages"]]
        assert roles == ["system"] * (api == "chat") + ["user", "assistant", "user"]


@everywhere
async def test_an_agent_runs_real_tools_and_ends(llmock: str, api: Api, library: ModuleType) -> None:
    asked: list[tuple[str, int]] = []
    added: list[list[float]] = []

    @tool
    def weather(city: str, days: int) -> str:
        """Tell the weather in a city."""
        asked.append((city, days))
        return f"rain in {city}"

    @tool
    def add(numbers: list[float]) -> float:
        """Add numbers."""
        added.append(numbers)
        return sum(numbers)

    async with setting(llmock, api, library) as s:
        agent = Agent(s.model(), tools=[weather, add], system_prompt="Use the tools.")
        result = await agent.prompt("What is the weather in Paris?")
        ((city, days),) = asked  # the server makes arguments up that fit the schema
        assert isinstance(city, str)
        assert isinstance(days, int)
        assert result.stop_reason == "stop"
        assert result.text
        roles = ["system", "user", "assistant", "tool_result", "assistant"]
        assert [message.role for message in agent.messages] == roles
        assert f"rain in {city}" in str(agent.messages[3])
        calls = [
            {"name": "add", "arguments": {"numbers": [1.5, 2]}},
            {"name": "weather", "arguments": {"city": 'Zürich "Süd" \\ 日本', "days": 3}},
        ]
        await s.script({"type": "reply", "text": "Both.", "tool_calls": calls})
        await agent.prompt("Add, and tell the weather.")
        assert asked[1:] == [('Zürich "Süd" \\ 日本', 3)]
        assert added == [[1.5, 2]]
        assert_transcript_valid(agent.messages)


# ------------------------------------------------------------- HTTP errors

FINAL: dict[int, type[ProviderError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    402: PermissionDeniedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    413: InvalidRequestError,
    418: InvalidRequestError,
    422: InvalidRequestError,
}
PASSING: dict[int, type[ProviderError]] = {
    408: ServerError,
    409: ServerError,
    429: RateLimitError,
    500: ServerError,
    501: ServerError,
    502: ServerError,
    503: OverloadedError,
    504: ServerError,
    529: OverloadedError,
}


@everywhere
async def test_each_status_is_told_and_only_what_may_pass_is_tried_again(
    llmock: str, api: Api, library: ModuleType
) -> None:
    async with setting(llmock, api, library) as s:
        for status in FINAL | PASSING:
            fail = {"type": "fail", "status": status, "retry_after": 0.06, "times": 3 if status in PASSING else 1}
            await s.script({**fail, "message": f"no, {status}", "match": {"model": f"m{status}"}})

        def asking(status: int, expected: type[ProviderError]) -> Callable[[], Awaitable[None]]:
            async def ask() -> None:
                agent = Agent(s.model(f"m{status}"))
                error = error_of(await agent.prompt(f"Give me a {status}."))
                assert type(error) is expected
                assert error.status == status
                assert error.provider_text == f"no, {status}"
                assert error.retryable == (status in PASSING)
                assert error.retry_after == 0.06
                if error.retryable:
                    assert (await again(s, agent)).stop_reason == "stop"
                assert_transcript_valid(agent.messages)

            return ask

        await side_by_side(*(asking(status, expected) for status, expected in (FINAL | PASSING).items()))
        statuses = [(request["model"], request["status"]) for request in await s.requests()]
        for status in FINAL:
            assert statuses.count((f"m{status}", status)) == 1
        for status in PASSING:
            assert [got for model, got in statuses if model == f"m{status}"] == [status] * 3 + [200]


@everywhere
async def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(
    llmock: str, api: Api, library: ModuleType
) -> None:
    async with setting(llmock, api, library) as s:
        await s.script({"type": "fail", "status": 429, "retry_after": 0.4, "times": 2}, REPLY)
        start = trio.current_time()
        assert (await Agent(s.model()).prompt("Hi.")).text == REPLY["text"]
        assert trio.current_time() - start >= 0.8
        assert [request["status"] for request in await s.requests()] == [429, 429, 200]


@everywhere
async def test_a_wait_that_is_too_long_is_refused(llmock: str, api: Api, library: ModuleType) -> None:
    # The finding is mistaken: nobody would wait for a day, and the error says that, how long, and what allows it.
    async with setting(llmock, api, library, findings=["gave_up"]) as s:
        await s.script({"type": "fail", "status": 429, "retry_after": 86400})
        error = error_of(await Agent(s.model()).prompt("Hi."))
        assert "86400 s before the next try, more than max_retry_delay allows" in str(error)
        assert error.retry_after == 86400


@everywhere
async def test_an_outage_is_reported_after_three_tries_further_and_further_apart(
    llmock: str, api: Api, library: ModuleType
) -> None:
    async with setting(llmock, api, library) as s:
        await s.script({"type": "fail", "status": 500, "times": None})  # without a Retry-After
        agent = Agent(s.model())
        error = error_of(await agent.prompt("Hi."))
        assert type(error) is ServerError
        first, second, third = await s.requests()
        waits = [second["started_at"] - first["ended_at"], third["started_at"] - second["ended_at"]]
        assert 0.3 < 1.2 * waits[0] < waits[1]
        await s.forget_script()
        assert (await again(s, agent)).stop_reason == "stop"
        assert_transcript_valid(agent.messages)


@everywhere
async def test_a_transcript_that_is_too_long_is_an_error_of_its_own(llmock: str, api: Api, library: ModuleType) -> None:
    async with setting(llmock, api, library) as s:
        agent = Agent(s.model())
        await agent.prompt("Hi.")
        error = error_of(await agent.prompt("too long " * WINDOW))
        assert type(error) is ContextTooLongError
        assert not error.retryable
        assert str(WINDOW) in error.provider_text
        agent.messages = agent.messages[:2]
        assert (await agent.prompt("Shorter.")).stop_reason == "stop"
        await s.script({"type": "fail", "status": 400, "code": "context_length_exceeded", "message": "no room"})
        error = error_of(await agent.prompt("By its code alone."))
        assert type(error) is ContextTooLongError
        assert [request["status"] for request in await s.requests()] == [200, 400, 200, 400]


@everywhere
async def test_a_quota_that_is_used_up_is_waited_for(llmock: str, api: Api, library: ModuleType) -> None:
    async with setting(llmock, api, library) as s:
        statuses: list[int] = []

        def on_response(response: ProviderResponse, model: HTTPModel) -> None:
            statuses.append(response.status)

        async def ask() -> None:
            agent = Agent(s.model(api_key="one-key"), options={"on_response": on_response})
            assert (await agent.prompt(f"Hi, I am {len(statuses)}.")).stop_reason == "stop"

        await side_by_side(*[ask] * RPM)
        while 429 not in statuses:  # while we used the quota up a little of it came back
            assert len(statuses) < 2 * RPM
            await ask()
        assert statuses[-1] == 200
        refused = [request for request in await s.requests() if request["status"] == 429]
        assert {request["fault"] for request in refused} == {"ratelimit:requests"}
        assert all(0 < request["retry_after"] <= 60 / RPM for request in refused)


# ---------------------------------------------------------- faults of streams

BROKEN: dict[str, tuple[type[ProviderError], str]] = {
    "disconnect": (TransportError, "the connection broke while the server answered"),
    "truncate": (TransportError, "the answer broke off"),
    "malformed": (ProtocolError, "which is no JSON"),
    "stall": (TransportError, "TimeLimits(between_events=...)"),
}
SHORT = TimeLimits(first_event=0.4, between_events=0.4)


def begun_at(api: Api, place: int) -> str:
    """How much of the text has come before the chunk of that number."""
    return "".join(WORDS[: max(0, place - (1 if api == "chat" else 3))])


@everywhere
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_stream_that_breaks_at_any_place_is_told_and_keeps_what_came(
    kind: str, llmock: str, api: Api, library: ModuleType
) -> None:
    expected, words = BROKEN[kind]
    async with setting(llmock, api, library, limits=SHORT) as s:
        places = range(10)
        for place in places:
            match = {"model": f"m{place}"}
            fault = {"type": "stream_fault", "kind": kind, "after_chunks": place, "stall_seconds": 1.5}
            await s.script({**fault, "match": match}, {**REPLY, "times": 2, "match": match})

        def asking(place: int) -> Callable[[], Awaitable[None]]:
            async def ask() -> None:
                agent = Agent(s.model(f"m{place}"))
                result = await agent.prompt("Hi.")
                if place > 1:  # else nothing was said, and the driver tries again itself
                    error = error_of(result)
                    assert type(error) is expected
                    assert words in str(error)
                    assert error.retryable
                    assert result.text == begun_at(api, place)
                    assert_transcript_valid(agent.messages)
                    result = await again(s, agent)
                assert result.text == REPLY["text"]
                assert_transcript_valid(agent.messages)

            return ask

        await side_by_side(*(asking(place) for place in places))
        requests = await s.requests()
        assert sum(str(request["fault"]).startswith(f"stream:{kind}") for request in requests) == len(places)
        assert len(requests) == 2 * len(places)


@everywhere
async def test_an_answer_that_is_cut_at_its_end(llmock: str, api: Api, library: ModuleType) -> None:
    # The findings are mistaken: of Chat Completions all has come once the finish reason has, which these two cuts
    # (of the usage, of [DONE]) leave in place. Messages has its end in message_stop, so no cut passes.
    text = {"type": "reply", "text": "One two."}
    complete = {"chat": [4, 5], "messages": []}[api]
    findings = ["truncated_stream_accepted"] * len(complete)
    async with setting(llmock, api, library, findings=findings) as s:
        for place in (last := range(2, 6 if api == "chat" else 8)):
            await s.script({"type": "stream_fault", "kind": "truncate", "after_chunks": place}, text)
            agent = Agent(s.model())
            result = await agent.prompt(f"Break after {place}.")
            if place in complete:
                assert result.text == "One two."
                assert result.stop_reason == "stop"
            else:
                assert type(error_of(result)) is TransportError
                await s.script(text)
                assert (await again(s, agent)).text == "One two."
            assert_transcript_valid(agent.messages)
        assert len(await s.requests()) == 2 * len(last) - len(complete)


@everywhere
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_call_whose_stream_breaks_is_not_run(kind: str, llmock: str, api: Api, library: ModuleType) -> None:
    written: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write a text."""
        written.append(text)
        return "done"

    text = "x" * 600  # in pieces of 12 characters
    reply = {"type": "reply", "tool_calls": [{"name": "write", "arguments": {"text": text}}]}
    async with setting(llmock, api, library, limits=SHORT) as s:
        fault = {"type": "stream_fault", "kind": kind, "after_chunks": 6, "stall_seconds": 1.5}
        await s.script(fault, {**reply, "times": 2})
        agent = Agent(s.model(), tools=[write])
        assert type(error_of(await agent.prompt("Write."))) is BROKEN[kind][0]
        assert written == []
        assert_transcript_valid(agent.messages)
        assert (await again(s, agent)).stop_reason == "stop"
        assert written == [text]
        assert_transcript_valid(agent.messages)


# ------------------------------------------------------------- slow servers


@everywhere
@pytest.mark.parametrize("kind", ["delay", "slow_first_token"])
async def test_a_late_answer_is_waited_for_within_the_limit_and_asked_for_again_beyond_it(
    kind: str, llmock: str, api: Api, library: ModuleType
) -> None:
    async with setting(llmock, api, library, limits=SHORT) as s:
        await s.script({"type": kind, "seconds": 0.2})
        assert (await Agent(s.model()).prompt("Within.")).stop_reason == "stop"
        assert len(await s.requests()) == 1
        await s.script({"type": kind, "seconds": 0.8})
        start = trio.current_time()
        assert (await Agent(s.model()).prompt("Beyond.")).stop_reason == "stop"
        assert trio.current_time() - start > 0.4
        assert len(await s.requests()) == 3


@everywhere
async def test_a_pause_within_the_limit_is_no_error(llmock: str, api: Api, library: ModuleType) -> None:
    async with setting(llmock, api, library, limits=SHORT) as s:
        await s.script({"type": "stream_fault", "kind": "stall", "after_chunks": 5, "stall_seconds": 0.2}, REPLY)
        assert (await Agent(s.model()).prompt("Hi.")).text == REPLY["text"]


@everywhere
async def test_an_abort_in_mid_stream_ends_the_request(llmock: str, api: Api, library: ModuleType) -> None:
    async with setting(llmock, api, library) as s:
        await s.script({"type": "stream_fault", "kind": "stall", "after_chunks": 6, "stall_seconds": 60}, REPLY)
        agent = Agent(s.model())

        def listen(event: MessageUpdate) -> None:
            if event.message.text == begun_at(api, 6):
                agent.abort("enough")

        agent.subscribe(listen, MessageUpdate)
        result = await agent.prompt("Hi.")
        assert result.stop_reason == "aborted"
        assert result.text == begun_at(api, 6)
        assert_transcript_valid(agent.messages)
        (request,) = await s.requests()  # the server noticed: the request is over, long before its minute
        assert not request["completed"]
        assert request["duration"] < 10
        assert (await agent.prompt("Go on.")).stop_reason == "stop"


# --------------------------------------------------------- broken tool calls


@everywhere
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_a_broken_call_is_not_run_and_the_model_is_told(
    kind: str, llmock: str, api: Api, library: ModuleType
) -> None:
    told: list[str] = []

    @tool
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        told.append(city)
        return "rain"

    async with setting(llmock, api, library) as s:
        calls = [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Rome")]
        await s.script({"type": "tool_fault", "kind": kind}, {"type": "reply", "tool_calls": calls})
        agent = Agent(s.model(), tools=[weather])
        result = await agent.prompt("What is the weather?")
        assert result.stop_reason == "stop"
        assert told == ["Rome"]
        broken, whole = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
        assert broken.is_error
        assert ("no valid JSON" if kind == "malformed_arguments" else "weather") in str(broken.content)
        assert not whole.is_error
        assert_transcript_valid(agent.messages)
        # The server took the broken call back, as the transcript has it.
        assert [request["status"] for request in await s.requests()] == [200, 200]
