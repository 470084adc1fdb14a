"""openai-agents with a model of our own; tracing is off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from bench.crew import Crew

from .adapter import Act, Entry, Plan, Script
from .on_asyncio import AsyncioAdapter, Handle, ToolFunction, arguments, now

set_tracing_disabled(True)


def _said(text: str) -> Any:
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)


def _call(call_id: str, text: str) -> Any:
    return ResponseFunctionToolCall(id=call_id, call_id=call_id, type="function_call", name="work", arguments=text)


def _outputs(script: Script) -> list[list[Any]]:
    return [
        [_said(step)]
        if isinstance(step, str)
        else [_call(f"c{turn}-{index}", arguments(index)) for index in range(step)]
        for turn, step in enumerate(script)
    ]


def _completed(output: list[Any]) -> Any:
    response = Response(
        id="r", created_at=0, model="scripted", object="response", output=output,
        tool_choice="auto", tools=[], parallel_tool_calls=True,
    )  # fmt: skip
    return ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)


def entries(items: Any) -> list[Entry]:
    """Items of its input lists."""
    found: list[Entry] = []
    for item in items:
        match item.get("type"):
            case "function_call":
                found.append(Entry("call", item["call_id"]))
            case "function_call_output":
                found.append(Entry("result", item["call_id"], str(item["output"])))
            case _:
                found.append(Entry("user" if item.get("role") == "user" else "text"))
    return found


class _Scripted(Model):
    def __init__(self, outputs: list[list[Any]], crew: Crew, stamps: list[float] | None = None) -> None:
        self.ready = iter(outputs)
        self.crew = crew
        self.stamps = stamps
        self.deltas: list[Any] = []
        self.on_sent: Callable[[], None] = lambda: None
        self.seen: Any = []

    def _next(self, sent: Any) -> list[Any]:
        self.crew.requests += 1
        self.seen = sent
        if self.stamps is not None:
            self.stamps.append(now())
        return next(self.ready)

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        return ModelResponse(output=self._next(input), usage=Usage(), response_id=None)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        output = self._next(input)
        deltas, self.deltas = self.deltas, []
        for delta in deltas:
            self.on_sent()
            yield delta
        yield _completed(output)


class _Session:
    """The smallest session that the library takes: a list."""

    session_id = "s"
    session_settings = None

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items)

    async def add_items(self, items: list[Any]) -> None:
        self.items.extend(items)

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class _Handle(Handle):
    model: Any = None
    session: Any = None
    streaming: Any = None


class OpenAIAgents(AsyncioAdapter):
    """``Runner.run``; its own stop is ``RunResultStreaming.cancel()``."""

    version = version("openai-agents")
    cannot: ClassVar[Mapping[Act, str]] = {"one": "it has no way to cancel one call"}
    note = "Runner.run with a model of our own, tracing off; deltas are passed through without a partial parse"

    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        handle = _Handle()
        handle.model = _Scripted(_outputs(script), crew, stamps)
        handle.session = _Session()
        tool.__name__ = "work"
        handle.agent = Agent(name="a", model=handle.model, tools=[function_tool(tool)])
        return handle

    async def run(self, handle: Any, prompt: str = "go") -> None:
        await Runner.run(handle.agent, prompt, max_turns=None)

    async def run_cut(self, handle: Any, plan: Plan) -> None:
        if plan.act != "abort":
            await Runner.run(handle.agent, "go", max_turns=None, session=handle.session)
            return
        handle.streaming = Runner.run_streamed(handle.agent, "go", max_turns=None, session=handle.session)
        async for _ in handle.streaming.stream_events():
            pass

    def abort(self, handle: Any, task: asyncio.Task[None]) -> None:
        handle.streaming.cancel()

    async def history(self, handle: Any) -> list[Entry] | None:
        kept = handle.session.items
        if handle.streaming is not None and len(more := handle.streaming.to_input_list()) > len(kept):
            kept = more
        return entries(kept)

    async def again(self, handle: Any) -> None:
        await Runner.run(handle.agent, "again", max_turns=None, session=handle.session)
        sent = handle.model.seen
        handle.seen = [Entry("user")] if isinstance(sent, str) else entries(sent)

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        deltas = [
            ResponseTextDeltaEvent(
                type="response.output_text.delta", content_index=0, delta="word ", item_id="m", output_index=0,
                sequence_number=index, logprobs=[],
            )
            for index in range(n)
        ]  # fmt: skip
        model = self._streaming([[_said("word " * n)]], deltas)
        await self._watch(Agent(name="a", model=model), "response.output_text.delta", on_delta)

    async def stream_arguments(self, parts: Sequence[str], on_delta: Callable[[], None]) -> None:
        kind = "response.function_call_arguments.delta"
        deltas = [
            ResponseFunctionCallArgumentsDeltaEvent(
                type=kind, delta=part, item_id="c", output_index=0, sequence_number=index
            )
            for index, part in enumerate(parts)
        ]

        async def work(n: int, items: list[dict[str, Any]]) -> str:  # noqa: ASYNC124 - a contract
            return "ok"

        model = self._streaming([[_call("c0-0", "".join(parts))], [_said("done")]], deltas)
        tools = [function_tool(work, strict_mode=False)]
        await self._watch(Agent(name="a", model=model, tools=tools), kind, on_delta)

    def _streaming(self, outputs: list[list[Any]], deltas: list[Any]) -> Any:
        model = _Scripted(outputs, Crew(0))
        model.deltas = deltas

        def on_sent() -> None:
            self.sent += 1

        model.on_sent = on_sent
        return model

    async def _watch(self, agent: Any, kind: str, on_delta: Callable[[], None]) -> None:
        async for event in Runner.run_streamed(agent, "go").stream_events():
            if event.type == "raw_response_event" and event.data.type == kind:
                on_delta()
