"""trio_agent, driven as the peers are; its own figures come from the benchmarks proper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bench.fanout
import bench.stream
import bench.turns
from bench.crew import Crew
from bench.measure import Sample
from bench.subject import VERSION, answer, async_listener
from trio_agent import (
    Agent,
    AssistantMessage,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextContent,
    Tool,
    ToolContext,
    ToolResultMessage,
    UserMessage,
)

from .adapter import Entry, Script
from .on_asyncio import ToolFunction
from .on_trio import TrioAdapter

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def entries(messages: Any) -> list[Entry]:
    """Its messages."""
    found: list[Entry] = []
    for message in messages:
        match message:
            case AssistantMessage():
                found += [Entry("call", call.id) for call in message.tool_calls] or [Entry("text", "", message.text)]
            case ToolResultMessage():
                found.append(Entry("result", message.tool_call_id, message.text))
            case UserMessage():
                found.append(Entry("user"))
            case _:
                found.append(Entry("other"))
    return found


class _Handle:
    agent: Agent
    seen: Sequence[Entry] = ()


class TrioAgent(TrioAdapter):
    """``Agent.prompt``; its own stop is ``abort()``."""

    version = VERSION
    note = "Agent.prompt with one async listener"

    def fanout(self, n: int, inner: int) -> Sample:
        return bench.fanout.calls(n, inner)

    def turns(self, n: int) -> Sample:
        return bench.turns.run(n)

    def text(self, n: int) -> Sample:
        return bench.stream.streamed("text", ["word "] * n, "async")

    def arguments(self, parts: Sequence[str]) -> Sample:
        return bench.stream.streamed("arguments", list(parts), "async")

    def build(self, script: Script, tool: ToolFunction, crew: Crew) -> Any:
        handle = _Handle()
        ready = iter(
            [
                AssistantMessage([TextContent(step)]) if isinstance(step, str) else answer(turn, step)
                for turn, step in enumerate(script)
            ]
        )

        async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:  # noqa: ASYNC124 - a contract
            crew.requests += 1
            handle.seen = entries(request.messages)
            return next(ready)

        async def execute(args: dict[str, Any], ctx: ToolContext) -> str:
            return str(await tool(args["n"]))

        handle.agent = Agent(
            SimpleModel("bench", "scripted", stream), tools=[Tool("work", "Works.", SCHEMA, execute=execute)]
        )
        handle.agent.subscribe(async_listener)
        return handle

    async def run(self, handle: Any, prompt: str) -> None:
        await handle.agent.prompt(prompt)

    def abort(self, handle: Any) -> None:
        handle.agent.abort("the benchmark cuts")

    def cancel_one(self, handle: Any, index: int) -> None:
        handle.agent.cancel_tool(f"c0-{index}", "the benchmark cuts one")

    def history(self, handle: Any) -> list[Entry] | None:
        return entries(handle.agent.messages)

    def again(self, handle: Any) -> list[Entry]:
        return list(handle.seen)
