"""Models of a server that nobody here wrote: `@copilotkit/aimock`, which needs node, on loopback.

``TRIO_AGENT_AIMOCK`` says where it is installed (``npm install --prefix DIR @copilotkit/aimock@1.43``). What it breaks
is said by headers of the request, so it breaks each try alike.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import network
import pytest
import servers
import trio

from trio_agent import Agent, tool
from trio_agent.providers import (
    HTTPModel,
    Models,
    ProviderError,
    RateLimitError,
    ServerError,
    TimeLimits,
    TransportError,
    open_models,
)
from trio_agent.testing import assert_transcript_valid

INSTALLED = os.environ.get("TRIO_AGENT_AIMOCK")
NODE = shutil.which("node")
if INSTALLED is None or NODE is None:
    missing = "node is not installed" if INSTALLED else "TRIO_AGENT_AIMOCK does not say where aimock is installed"
    pytest.skip(missing, allow_module_level=True)
assert INSTALLED is not None
assert NODE is not None

# Slow, for the server is another process, whose faults take real time.
pytestmark = [pytest.mark.server, pytest.mark.slow]

TEXT = "Hello! Grüße — 十二 🎉. How can I help you today?"
FIXTURES = [
    {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "It rains in both."}},
    {
        "match": {"userMessage": "weather"},
        "response": {"toolCalls": [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Rome")]},
    },
    {"match": {"userMessage": "hello"}, "response": {"content": TEXT}},
]

apis = pytest.mark.parametrize("api", ["chat", "messages"])
libraries = pytest.mark.parametrize("library", network.LIBRARIES, ids=lambda library: library.__name__)


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, and its address."""
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}), "utf-8")
    program = Path(str(INSTALLED), "node_modules/@copilotkit/aimock/dist/cli.js")
    command = [str(NODE), str(program), "--port=0", "--strict", "--chunk-size=5", f"--fixtures={fixtures}"]
    with servers.server_process(command, r"listening on (http://\S+)") as address:
        yield address


@attrs.define(eq=False)
class Setting:
    """The server, and models whose client reaches it."""

    address: str
    api: str
    client: Any
    models: Models
    test: str

    def model(self, headers: Mapping[str, str] | None = None) -> HTTPModel:
        compatible = self.models.openai_compatible if self.api == "chat" else self.models.anthropic_compatible
        return compatible(f"{self.address}/v1", "m", api_key="any", headers={"x-test-id": self.test, **(headers or {})})

    async def statuses(self) -> list[int]:
        """Those of this test's requests; 0 is a connection that was dropped before it had one."""
        told = await self.client.get(f"{self.address}/__aimock/journal", params={"testId": self.test})
        return [entry["response"]["status"] for entry in told.json()]


@asynccontextmanager
async def setting(
    address: str, api: str, library: ModuleType, test: str, limits: TimeLimits | None = None
) -> AsyncGenerator[Setting]:
    unbounded = library.Limits(max_connections=None)
    async with (
        library.AsyncClient(limits=unbounded, timeout=None, trust_env=False) as client,
        open_models(client=client, limits=limits, max_retries=1) as models,
    ):
        yield Setting(address, api, client, models, f"{test}-{api}-{library.__name__}")


@apis
@libraries
async def test_an_answer(aimock: str, api: str, library: ModuleType) -> None:
    async with setting(aimock, api, library, "answer") as s:
        agent = Agent(s.model(), system_prompt="Be brief.")
        for _ in range(2):
            result = await agent.prompt("hello")
            assert result.stop_reason == "stop"
            assert result.text == TEXT
        assert_transcript_valid(agent.messages)
        assert await s.statuses() == [200, 200]


@apis
@libraries
async def test_an_agent_runs_real_tools_and_ends(aimock: str, api: str, library: ModuleType) -> None:
    asked: list[str] = []

    @tool
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        asked.append(city)
        return f"rain in {city}"

    async with setting(aimock, api, library, "tools") as s:
        agent = Agent(s.model(), tools=[weather])
        result = await agent.prompt("What is the weather?")
        assert result.text == "It rains in both."
        assert sorted(asked) == ["Oslo", "Rome"]
        assert_transcript_valid(agent.messages)
        assert await s.statuses() == [200, 200]


BROKEN: dict[str, tuple[type[ProviderError], int, str]] = {
    "drop": (ServerError, 500, "Chaos: request dropped"),
    "malformed": (TransportError, 200, "broke off inside '{malformed json"),
    "ratelimit": (RateLimitError, 429, "Chaos: rate limit exceeded"),
    "disconnect": (TransportError, 0, "the connection broke before the server answered"),
}


@apis
@libraries
@pytest.mark.parametrize("mode", BROKEN)
async def test_what_the_server_breaks_is_told_after_another_try(
    mode: str, aimock: str, api: str, library: ModuleType
) -> None:
    expected, status, words = BROKEN[mode]
    async with setting(aimock, api, library, mode) as s:
        agent = Agent(s.model({f"x-aimock-chaos-{mode}": "1"}))
        start = trio.current_time()
        error = (await agent.prompt("hello")).exception
        assert isinstance(error, expected)
        assert words in str(error)
        assert error.retryable
        assert error.retry_after == (1 if mode == "ratelimit" else None)
        assert trio.current_time() - start >= (error.retry_after or 0.5)
        assert_transcript_valid(agent.messages)
        assert await s.statuses() == [status] * 2
        agent.model = s.model()
        assert (await agent.prompt("hello again")).text == TEXT


@apis
@libraries
async def test_a_late_answer_is_waited_for_within_the_limit_alone(aimock: str, api: str, library: ModuleType) -> None:
    async with setting(aimock, api, library, "late", TimeLimits(first_event=0.4)) as s:
        assert (await Agent(s.model({"x-aimock-chaos-latency": "100"})).prompt("hello")).text == TEXT
        error = (await Agent(s.model({"x-aimock-chaos-latency": "30000"})).prompt("hello")).exception
        assert type(error) is TransportError
        assert "within 0.4 s; TimeLimits(first_event=...)" in str(error)
