"""langgraph: a graph with a ToolNode, and langchain's create_agent, on a chat model of our own."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from typing import Any

os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bench.crew import Crew

from .adapter import Entry, Plan, Script
from .on_asyncio import AsyncioAdapter, Handle, ToolFunction, now

_threads = itertools.count()


def entries(messages: Any) -> list[Entry]:
    """Its messages."""
    found: list[Entry] = []
    for message in messages:
        match message:
            case AIMessage():
                found += [Entry("call", call["id"]) for call in message.tool_calls]
                if not message.tool_calls:
                    found.append(Entry("text"))
            case ToolMessage():
                found.append(Entry("result", message.tool_call_id, str(message.content)))
            case HumanMessage():
                found.append(Entry("user"))
            case _:
                found.append(Entry("other"))
    return found


class _Scripted(BaseChatModel):
    ready: Any = None
    chunks: Any = None
    on_request: Any = None
    on_sent: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("only the async form of this model is ever called")

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self.on_request(messages)
        return ChatResult(generations=[ChatGeneration(message=next(self.ready))])


class _Streaming(_Scripted):
    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        for chunk in next(self.chunks):
            self.on_sent()
            yield ChatGenerationChunk(message=chunk)


def _message(turn: int, step: int | str) -> Any:
    if isinstance(step, str):
        return AIMessage(content=step)
    calls = [{"name": "work", "args": {"i": index}, "id": f"c{turn}-{index}"} for index in range(step)]
    return AIMessage(content="", tool_calls=calls)


def _tool(function: Callable[..., Any], plain: bool = False) -> Any:
    how = {"func": function} if plain else {"coroutine": function}
    return StructuredTool.from_function(name="work", description="Works.", **how)


class _Handle(Handle):
    config: Any = None


class ToolNodeGraph(AsyncioAdapter):
    """A hand-made graph of a model and a ToolNode."""

    version = version("langgraph")
    note = "StateGraph with a ToolNode, ainvoke; a checkpointer only where a run is cut"
    plain = False

    def graph(self, model: Any, tools: list[Any], saver: Any = None) -> Any:
        """The graph."""

        async def ask(state: Any) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("agent", ask)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        return graph.compile(checkpointer=saver)

    saver: Any = None

    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        handle = _Handle()

        def on_request(messages: Any) -> None:
            crew.requests += 1
            handle.seen = messages
            if stamps is not None:
                stamps.append(now())

        ready = iter([_message(turn, step) for turn, step in enumerate(script)])
        model = _Scripted(ready=ready, on_request=on_request)
        handle.agent = self.graph(model, [_tool(tool, self.plain)], self.saver)
        handle.config = {"recursion_limit": 100_000, "configurable": {"thread_id": str(next(_threads))}}
        return handle

    def cut(self, plan: Plan) -> Any:
        self.saver, self.plain = InMemorySaver(), plan.body == "thread"
        try:
            return super().cut(plan)
        finally:
            self.saver, self.plain = None, False

    async def run(self, handle: Any, prompt: str = "go") -> None:
        await handle.agent.ainvoke({"messages": [("user", prompt)]}, handle.config)

    async def history(self, handle: Any) -> list[Entry] | None:
        state = await handle.agent.aget_state(handle.config)
        return entries(state.values.get("messages", []))

    async def again(self, handle: Any) -> None:
        await self.run(handle, "again")
        handle.seen = entries(handle.seen)

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        chunks = [AIMessageChunk(content="word ", id="m") for _ in range(n)]
        await self._watch([chunks], on_delta)

    async def stream_arguments(self, parts: Sequence[str], on_delta: Callable[[], None]) -> None:
        def chunk(text: str, *, first: bool = False) -> Any:
            call = {
                "name": "work" if first else None, "args": text, "id": "c0-0" if first else None,
                "index": 0, "type": "tool_call_chunk",
            }  # fmt: skip
            return AIMessageChunk(content="", id="m", tool_call_chunks=[call])

        chunks = [chunk("", first=True), *(chunk(part) for part in parts)]
        await self._watch([chunks, [AIMessageChunk(content="done", id="m2")]], on_delta, calls=True)

    async def _watch(self, answers: list[Any], on_delta: Callable[[], None], *, calls: bool = False) -> None:
        def on_sent() -> None:
            self.sent += 1

        async def work(n: int, items: list[Any]) -> str:  # noqa: ASYNC124 - a contract
            return "ok"

        model = _Streaming(chunks=iter(answers), on_sent=on_sent)
        graph = self.graph(model, [_tool(work)])
        async for message, _ in graph.astream({"messages": [("user", "go")]}, stream_mode="messages"):
            if not calls or getattr(message, "tool_call_chunks", None):
                on_delta()


class CreateAgent(ToolNodeGraph):
    """langchain's ready-made agent: a task of the graph for each call."""

    version = f"{version('langchain')} on langgraph {version('langgraph')}"
    note = "create_agent().ainvoke; a checkpointer only where a run is cut"

    def graph(self, model: Any, tools: list[Any], saver: Any = None) -> Any:
        return create_agent(model, tools, checkpointer=saver)
