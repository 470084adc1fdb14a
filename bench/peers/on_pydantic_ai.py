"""pydantic-ai with its own FunctionModel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from pydantic_ai import Agent, CancellationToken, capture_run_messages
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from bench.crew import Crew

from .adapter import Act, Entry, Plan, Script
from .on_asyncio import AsyncioAdapter, Handle, ToolFunction, arguments, now

LIMITS = UsageLimits(request_limit=None)


def entries(messages: Any) -> list[Entry]:
    """Its messages."""
    found: list[Entry] = []
    for message in messages:
        for part in message.parts:
            match part:
                case ToolCallPart():
                    found.append(Entry("call", part.tool_call_id))
                case ToolReturnPart() | RetryPromptPart():
                    found.append(Entry("result", part.tool_call_id, str(part.content)))
                case UserPromptPart():
                    found.append(Entry("user"))
                case TextPart():
                    found.append(Entry("text", "", part.content))
                case _:
                    found.append(Entry("other"))
    return found


class _Handle(Handle):
    messages: Any = ()
    token: Any = None


class PydanticAI(AsyncioAdapter):
    """``Agent.run``; its own stop is a CancellationToken."""

    version = version("pydantic-ai-slim")
    cannot: ClassVar[Mapping[Act, str]] = {"one": "it has no way to cancel one call"}
    note = "Agent.run on FunctionModel, which is given a usage so that it counts no tokens of the whole transcript"

    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        # A usage of its own: else the model would estimate the tokens of the transcript at every turn.
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        ready = iter([ModelResponse(parts=self._parts(turn, step), usage=usage) for turn, step in enumerate(script)])
        handle = _Handle()

        async def model(messages: Any, info: Any) -> Any:  # noqa: ASYNC124 - a contract
            crew.requests += 1
            handle.seen = messages
            if stamps is not None:
                stamps.append(now())
            return next(ready)

        handle.agent = Agent(FunctionModel(model))
        handle.agent.tool_plain(name="work")(tool)
        return handle

    def _parts(self, turn: int, step: int | str) -> list[Any]:
        if isinstance(step, str):
            return [TextPart(step)]
        return [ToolCallPart("work", arguments(index), tool_call_id=f"c{turn}-{index}") for index in range(step)]

    async def run(self, handle: Any, prompt: str = "go") -> None:
        await handle.agent.run(prompt, usage_limits=LIMITS)

    async def run_cut(self, handle: Any, plan: Plan) -> None:
        handle.token = CancellationToken() if plan.act == "abort" else None
        with capture_run_messages() as messages:
            handle.messages = messages
            await handle.agent.run("go", usage_limits=LIMITS, cancellation_token=handle.token)

    def abort(self, handle: Any, task: asyncio.Task[None]) -> None:
        handle.token.cancel()

    async def history(self, handle: Any) -> list[Entry] | None:
        return entries(handle.messages)

    async def again(self, handle: Any) -> None:
        await handle.agent.run("again", message_history=list(handle.messages), usage_limits=LIMITS)
        handle.seen = entries(handle.seen)

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        async def model(messages: Any, info: Any) -> AsyncIterator[Any]:  # noqa: ASYNC124 - a contract
            for _ in range(n):
                self.sent += 1
                yield "word "

        await Agent(FunctionModel(stream_function=model)).run("go", event_stream_handler=_counting(on_delta))

    async def stream_arguments(self, parts: Sequence[str], on_delta: Callable[[], None]) -> None:
        asked = 0

        async def model(messages: Any, info: Any) -> AsyncIterator[Any]:  # noqa: ASYNC124 - a contract
            nonlocal asked
            asked += 1
            if asked > 1:
                yield "done"
                return
            yield {0: DeltaToolCall(name="work", tool_call_id="c0-0")}
            for part in parts:
                self.sent += 1
                yield {0: DeltaToolCall(json_args=part)}

        agent = Agent(FunctionModel(stream_function=model))

        async def work(n: int, items: list[Any]) -> str:  # noqa: ASYNC124 - a contract
            return "ok"

        agent.tool_plain(name="work")(work)
        await agent.run("go", event_stream_handler=_counting(on_delta))


def _counting(on_delta: Callable[[], None]) -> Any:
    async def handler(context: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                on_delta()

    return handler
