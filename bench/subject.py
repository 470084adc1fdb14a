"""The subject: an agent of trio_agent with a scripted model, and tools that do next to nothing.

Answers are made before the clock runs, so that what is measured is the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import trio

import trio_agent
from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    ToolResultMessage,
)

from .crew import Crew
from .floors import HOUR

VERSION = trio_agent.__version__
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def noop(args: dict[str, Any], ctx: ToolContext) -> str:
    """One checkpoint, like the bare task."""
    await trio.lowlevel.checkpoint()
    return "ok"


NOOP = Tool("work", "Does nothing.", SCHEMA, execute=noop)


async def async_listener(event: AgentEvent) -> None:  # noqa: ASYNC124 - an async listener is what is measured
    """The one async listener that the benchmarks have."""


def sync_listener(event: AgentEvent) -> None:
    """Its plain form."""


def answer(turn: int, count: int, name: str = "work") -> AssistantMessage:
    """An answer that calls a tool so often, or the last one."""
    if not count:
        return AssistantMessage([TextContent("done")])
    calls = [ToolCall(f"c{turn}-{index}", name, {"n": index}) for index in range(count)]
    return AssistantMessage(calls, stop_reason="tool_use")


def scripted(answers: Iterable[AssistantMessage], crew: Crew | None = None) -> SimpleModel:
    """A model that gives these answers, one after the other."""
    ready = iter(list(answers))

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:  # noqa: ASYNC124 - a contract
        if crew is not None:
            crew.requests += 1
        return next(ready)

    return SimpleModel("bench", "scripted", stream)


def calling(counts: Sequence[int], tools: Iterable[Tool] = (NOOP,), *, listen: bool = True, **settings: Any) -> Agent:
    """An agent whose model calls a tool so often in its n-th answer, and one async listener."""
    tools = tuple(tools)
    model = scripted([answer(turn, count, tools[0].name) for turn, count in enumerate(counts)])
    agent = Agent(model, tools=tools, **settings)
    if listen:
        agent.subscribe(async_listener)
    return agent


def crew_tool(crew: Crew, clean_up: float = 0.0) -> Tool:
    """A tool that sleeps until it is cut, and is counted."""

    async def execute(args: dict[str, Any], ctx: ToolContext) -> str:
        crew.enter(args["n"])
        try:
            await trio.sleep(HOUR)
        finally:
            if clean_up:
                with trio.CancelScope(shield=True, relative_deadline=HOUR):
                    await trio.sleep(clean_up)
            crew.leave()
        return crew.complete(args["n"])

    return Tool("work", "Sleeps.", SCHEMA, execute=execute)


def results_of(agent: Agent) -> list[ToolResultMessage]:
    """The results that stand in the transcript."""
    return [message for message in agent.messages if type(message) is ToolResultMessage]
