"""smolagents' ToolCallingAgent with a model of our own: synchronous, tools in threads."""

from __future__ import annotations

import gc
import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from rich.console import Console
from smolagents import AgentLogger, LogLevel, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    MessageRole,
    Model,
)

from bench.crew import Crew
from bench.floors import first_and_last
from bench.measure import Sample

from .adapter import Act, Adapter, Entry, Plan, Script, Seen, UnavailableError, look_at

now = time.perf_counter
_SILENT = AgentLogger(level=LogLevel.OFF, console=Console(file=io.StringIO()))
BLOCK = 1.5
"""Seconds that a tool blocks its thread where it would sleep for an hour: nobody can wake it."""
PATIENCE = 10.0


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> Any:
    function = ChatMessageToolCallFunction(name=name, arguments=json.dumps(arguments))
    return ChatMessageToolCall(id=call_id, type="function", function=function)


class _Scripted(Model):
    def __init__(self, script: Script, crew: Crew, stamps: list[float] | None = None) -> None:
        super().__init__(model_id="scripted")
        self.ready = iter(
            [
                [_call(f"f{turn}", "final_answer", {"answer": step})]
                if isinstance(step, str)
                else [_call(f"c{turn}-{index:05d}", "work", {"i": index}) for index in range(step)]
                for turn, step in enumerate(script)
            ]
        )
        self.crew, self.stamps = crew, stamps
        self.seen: Any = []

    def generate(self, messages: Any, **kwargs: Any) -> Any:
        self.crew.requests += 1
        self.seen = messages
        if self.stamps is not None:
            self.stamps.append(now())
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=next(self.ready))


class _Streaming(Model):
    def __init__(self, text: Sequence[str], arguments: Sequence[str]) -> None:
        super().__init__(model_id="scripted")
        self.text, self.arguments = list(text), list(arguments)

    def generate_stream(self, messages: Any, **kwargs: Any) -> Iterator[Any]:
        text, self.text = self.text, []
        arguments, self.arguments = self.arguments, []
        for part in text:
            yield ChatMessageStreamDelta(content=part)
        if not arguments:
            yield _delta("final_answer", "f", '{"answer": "done"}')
            return
        yield _delta("work", "c0-0", "")
        for part in arguments:
            yield _delta("", None, part)


def _delta(name: str, call_id: str | None, arguments: str) -> Any:
    function = ChatMessageToolCallFunction(name=name, arguments=arguments)
    call = ChatMessageToolCallStreamDelta(index=0, id=call_id, type="function", function=function)
    return ChatMessageStreamDelta(content=None, tool_calls=[call])


def _tool(work: Callable[[int], str]) -> Any:
    class Work(Tool):
        name = "work"
        description = "Works."
        inputs: ClassVar[dict[str, Any]] = {"i": {"type": "integer", "description": "A number."}}
        output_type = "string"

        def forward(self, i: int) -> str:
            return work(i)

    return Work()


def _big_tool() -> Any:
    class Work(Tool):
        name = "work"
        description = "Works."
        inputs: ClassVar[dict[str, Any]] = {
            "n": {"type": "integer", "description": "A number."},
            "items": {"type": "array", "description": "Much."},
        }
        output_type = "string"

        def forward(self, n: int, items: list[Any]) -> str:
            return "ok"

    return Work()


def _noop(i: int) -> str:
    time.sleep(0)
    return "ok"


class SmolAgents(Adapter):
    """``ToolCallingAgent.run``; its own stop is ``interrupt()``."""

    version = version("smolagents")
    cannot: ClassVar[Mapping[Act, str]] = {
        "host": "it is synchronous: a thread cannot be cancelled",
        "one": "it has no way to cancel one call",
    }
    note = (
        "ToolCallingAgent.run, threads of the default pool; the final text is a call of final_answer; "
        "stream and arguments only up to small sizes, for their cost is quadratic"
    )
    largest: ClassVar[Mapping[str, int]] = {
        "fanout": 5000,
        "turns": 200,
        "text": 1000,
        "arguments": 5000,
        "cancel": 100,
    }

    def build(
        self, script: Script, work: Callable[[int], str], crew: Crew, stamps: list[float] | None = None,
        workers: int | None = None,
    ) -> Any:  # fmt: skip
        """An agent and its model."""
        return ToolCallingAgent(
            tools=[_tool(work)], model=_Scripted(script, crew, stamps), logger=_SILENT,
            max_steps=len(script) + 5, max_tool_threads=workers,
        )  # fmt: skip

    def fanout(self, n: int, inner: int) -> Sample:
        agents = [self.build([n, "done"], _noop, Crew(n)) for _ in range(inner)]
        gc.collect()
        begin = now()
        for agent in agents:
            agent.run("go")
        return Sample(now() - begin)

    def turns(self, n: int) -> Sample:
        stamps: list[float] = []
        agent = self.build([1] * n + ["done"], _noop, Crew(n), stamps)
        gc.collect()
        begin = now()
        agent.run("go")
        return Sample(now() - begin, first_and_last(stamps))

    def text(self, n: int) -> Sample:
        return self._streamed(_Streaming(["word "] * n, ()))

    def arguments(self, parts: Sequence[str]) -> Sample:
        return self._streamed(_Streaming((), parts))

    def _streamed(self, model: Any) -> Sample:
        agent = ToolCallingAgent(tools=[_big_tool()], model=model, logger=_SILENT, stream_outputs=True, max_steps=3)
        seen = 0
        gc.collect()
        begin = now()
        for event in agent.run("go", stream=True):
            seen += isinstance(event, ChatMessageStreamDelta)
        return Sample(now() - begin, {"delivered": seen, "max_lead": 0})

    def cut(self, plan: Plan) -> Sample:
        self.refuse(plan)
        if plan.body in ("clean-up", "swallow"):
            raise UnavailableError("nothing reaches its tools, so nothing is cleaned up or swallowed")
        ready = threading.Event()
        crew = Crew(1 if plan.body == "thread" else plan.n, ready.set)
        seconds = plan.seconds or BLOCK

        def work(i: int) -> str:
            crew.enter(i)
            try:
                if plan.body == "raise" and i == plan.n // 2:
                    ready.wait(PATIENCE)
                    raise RuntimeError("one of N raises")
                if plan.body != "half" or i % 2:
                    time.sleep(seconds)
                return crew.complete(i)
            finally:
                crew.leave()

        tool: Callable[[int], str] = work
        for _ in range(plan.depth - 1):
            tool = self._delegating(tool)
        script: Script = [plan.n if plan.depth == 1 else 1, "done", "again"]
        agent = self.build(script, tool, crew, workers=plan.n)
        before = threading.active_count()
        seen = Seen(crew)
        over = 0.0

        def host() -> None:
            nonlocal over
            try:
                agent.run("go")
                seen.outcome = "returned"
            except Exception as error:
                seen.outcome = f"raised {type(error).__name__}"
            over = now()

        thread = threading.Thread(target=host, daemon=True)
        thread.start()
        ready.wait(PATIENCE)
        time.sleep(0.02)
        gc.collect()
        asked, cut = crew.requests, now()
        if plan.act == "abort":
            agent.interrupt()
        thread.join(PATIENCE)
        seen.took = (over or now()) - cut
        seen.at_the_end(cut, asked, max(0, threading.active_count() - before))
        seen.facts["history"] = look_at(self._entries(agent), crew.completed)
        if plan.again and over:
            seen.facts["again"] = self._again(agent, crew)
        return seen.sample()

    def _entries(self, agent: Any) -> list[Entry]:
        """Its memory: one text holds the results of all calls of a step, so they are counted by their values."""
        found = [Entry("user")]
        for step in agent.memory.steps:
            made = getattr(step, "tool_calls", None) or ()
            calls = [call.id for call in made if call.name == "work"]
            found += [Entry("call", call) for call in calls]
            lines = (getattr(step, "observations", None) or "").splitlines()
            found += [Entry("result", call, line) for call, line in zip(calls, lines, strict=False)]
            if made and not calls:
                found.append(Entry("text"))
        return found

    def _again(self, agent: Any, crew: Crew) -> dict[str, Any]:
        asked = crew.requests
        try:
            agent.run("again", reset=False)
            outcome = "returned"
        except Exception as error:
            outcome = f"raised {type(error).__name__}: {str(error)[:120]}"
        # It sends calls and results as plain text, which no provider checks.
        return {"outcome": outcome, "requests": crew.requests - asked, **look_at([], crew.completed)}

    def _delegating(self, tool: Callable[[int], str]) -> Callable[[int], str]:
        inner = self.build([1, "done"], tool, Crew(1))

        def delegate(i: int) -> str:
            inner.run("go")
            return "ok"

        return delegate
