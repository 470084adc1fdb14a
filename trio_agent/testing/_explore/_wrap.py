"""How the tools, hooks, listeners and models of an agent or a loop are watched.

Each of them is wrapped so that it says when it is entered and left, and so that something can be
done there. What they are, plain or async, with or without the Abort, stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

import attrs
import trio

from trio_agent import (
    Abort,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    MessageEnd,
    ModelRequest,
    StreamEvent,
    StreamFn,
    StreamSink,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    default_convert_to_llm,
)
from trio_agent._door import Callback
from trio_agent._hooks import LoopSettings
from trio_agent._stream import resolve_stream_fn
from trio_agent.testing._script import ScriptedModel

from ._log import CALL_HOOKS, RunLog, Span, SpanKind

if TYPE_CHECKING:
    from ._probe import Probe

_R = TypeVar("_R")

HOOKS = (
    "transform_context",
    "convert_to_llm",
    "get_api_key",
    "prepare_request",
    "prepare_next_turn",
    "finish_turn",
    "before_tool_call",
    "after_tool_call",
)
POLLS = ("get_steering_messages", "get_follow_up_messages")
"""Hooks of a loop that is called directly; an agent has its queues in their place."""


def event_label(event: AgentEvent) -> str:
    """An event in a few words: its type, and what it is about."""
    if isinstance(event, ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd):
        return f"{event.type} {event.tool_call_id}"
    message = getattr(event, "message", None) if event.type in ("message_start", "message_end") else None
    if message is None:
        return event.type
    return f"{event.type} {getattr(message, 'tool_call_id', message.role)}"


class Watch:
    """Watches the runs of one agent or loop."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.runs: list[RunLog] = []
        self.call_ids: dict[str, None] = {}
        """The ids of all calls that were started."""
        self._wrapped: dict[tuple[str, int], tuple[Any, Any]] = {}

    @property
    def run(self) -> RunLog | None:
        """The run that is active."""
        return self.runs[-1] if self.runs and self.runs[-1].active else None

    # Told by subclasses.

    def begin_run(self, task: trio.lowlevel.Task) -> RunLog:
        """A run has begun."""
        raise NotImplementedError

    def state_contains(self, event: AgentEvent) -> bool:
        """Whether the state contains an event that is being told."""
        return True

    # ------------------------------------------------------------ listeners

    @trio.lowlevel.enable_ki_protection
    def first(self, event: AgentEvent) -> None:
        """The listener that is told first."""
        if self.probe._over:
            return
        kind = type(event)
        if kind is AgentStart:
            self.runs.append(self.begin_run(trio.lowlevel.current_task()))
        run = self.runs[-1]
        run.events.append(event)
        position = self.probe.note()
        if kind is ToolExecutionStart:
            self.call_ids[event.tool_call_id] = None  # type: ignore[union-attr]  # narrowed by its type
        elif kind is AgentEnd:
            run.end_told = position
        if not self.state_contains(event):
            run.behind.append(event_label(event))
        self.probe._at(f"event {event_label(event)}", None)

    @trio.lowlevel.enable_ki_protection
    async def middle(self, event: AgentEvent) -> None:
        """An async listener."""
        self.runs[-1].told.append(event)
        await self.probe._linger()

    @trio.lowlevel.enable_ki_protection
    def last(self, event: AgentEvent) -> None:
        """The listener that is told last."""
        if self.probe._over:
            return
        self.runs[-1].last.append(event)
        self.probe._told_all()

    def listener(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A listener of the host, of which is noted what it raises; not told of what follows the host."""
        if Callback(function, 1).is_async:

            @functools.wraps(function)
            async def listener(*args: Any) -> None:
                try:
                    if not self.probe._over:
                        await function(*args)
                except Exception as error:
                    self._note_error(error)
                    raise

        else:

            @functools.wraps(function)
            def listener(*args: Any) -> Any:
                try:
                    return None if self.probe._over else function(*args)
                except Exception as error:
                    self._note_error(error)
                    raise

        return listener

    def _note_error(self, error: Exception) -> None:
        if self.run is not None:
            self.run.listener_errors.append(error)

    # ---------------------------------------------------------------- calls

    async def call(self, start: Callable[[], Awaitable[_R]]) -> _R:
        """Make a call that runs, and note how it ends. Not protected: the library has to protect itself."""
        before = len(self.runs)
        try:
            returned = await start()
        except BaseException as error:
            self.call_ended(before, None, error)
            raise
        self.call_ended(before, returned, None)
        return returned

    @trio.lowlevel.enable_ki_protection
    def call_ended(self, before: int, returned: Any, raised: BaseException | None) -> None:
        """A call is over that may have begun a run; ``before`` it there were so many."""
        if len(self.runs) > before:
            self.end_run(self.runs[before], returned, raised)

    def end_run(self, run: RunLog, returned: Any, raised: BaseException | None) -> None:
        """The call of a run is over."""
        run.over = self.probe.note()
        run.returned, run.raised = returned, raised
        run.left_open = [str(span) for span in run.spans if span.ended is None]

    # ---------------------------------------------------------------- spans

    @trio.lowlevel.enable_ki_protection
    def _enter(self, kind: SpanKind, name: str, answer: AssistantMessage | None = None) -> Span:
        note = self.probe.note
        span = Span(kind, name, trio.lowlevel.current_task(), note(), answer=answer, note=note)
        if self.run is not None:
            self.run.spans.append(span)
        return span

    @trio.lowlevel.enable_ki_protection
    def _enter_hook(self, name: str, args: Sequence[Any]) -> Span:
        span = self._enter("hook", name)
        if name in CALL_HOOKS:
            span.call_id = args[0].tool_call.id
        return span

    @trio.lowlevel.enable_ki_protection
    def _enter_tool(self, ctx: ToolContext) -> Span:
        return self._enter("tool", ctx.tool_call_id, ctx.assistant_message)

    def _kept(self, original: Any, what: str, make: Callable[[], _R]) -> _R:
        """Wrap something once for what it is used as; a function may be two hooks."""
        known = self._wrapped.get((what, id(original)))
        if known is None:
            made = make()
            self._wrapped[what, id(original)] = (original, made)
            self._wrapped[what, id(made)] = (made, made)
            return made
        return cast("_R", known[1])

    # ---------------------------------------------------------------- hooks

    def hook(self, name: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """A hook that is watched; where it is missing, one that does nothing if the mode asks for it."""
        if function is None:
            nothing = _NOTHING.get(name) if self.probe.case.mode == "checkpoints" else None
            return self._kept(nothing, name, lambda: self._async_hook(name, _NOTHING[name])) if nothing else None
        if hasattr(function, "put_back"):
            return function  # a queue, which is more than a function
        wrap = self._async_hook if Callback(function, 1).is_async else self._plain_hook
        return self._kept(function, name, lambda: wrap(name, function))

    def _async_hook(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def hook(*args: Any) -> Any:
            with self._enter_hook(name, args) as span:
                self.probe._at(f"hook {name}", span)
                await self.probe._linger()
                span.value = await function(*args)
            return span.value

        return hook

    def _plain_hook(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def hook(*args: Any) -> Any:
            with self._enter_hook(name, args) as span:
                self.probe._at(f"hook {name}", span)
                span.value = function(*args)
            return span.value

        return hook

    # ---------------------------------------------------------------- model

    def stream(self, function: StreamFn | None) -> StreamFn:
        """A stream function that is watched; without one, that of the model that is asked."""

        async def stream_fn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
            probe = self.probe
            with self._enter("request", "") as span:
                probe._at("model asked", span)
                await probe._linger()
                answering = resolve_stream_fn(function, request.model)
                if probe.case.dropped:
                    span.value = await _without(answering, request, sink, probe.case.dropped)
                else:
                    span.value = await answering(request, cast("StreamSink", _Sink(sink, probe, span)))
                probe._at("model answers", span)
            return cast("AssistantMessage", span.value)

        return self._kept(function if function is not None else self, "stream_fn", lambda: stream_fn)

    # ---------------------------------------------------------------- tools

    def tools(self, tools: Iterable[Tool]) -> list[Tool]:
        """Tools that are watched."""
        return [self._kept(tool, "tool", functools.partial(self._tool, tool)) for tool in tools]

    def _tool(self, tool: Tool) -> Tool:
        watched = copy(tool)
        # Of a frozen value, without compiling its schema anew. A plain tool becomes an async one.
        object.__setattr__(watched, "execute", self._body(tool))
        object.__setattr__(watched, "is_async", True)
        return watched

    def _body(self, tool: Tool) -> Callable[[dict[str, Any], ToolContext], Awaitable[Any]]:
        run = _run_async if tool.is_async else _run_inline

        async def execute(args: dict[str, Any], ctx: ToolContext) -> Any:
            probe = self.probe
            with self._enter_tool(ctx) as span:
                probe._at(f"tool {span.name} entered", span)
                await probe._linger()
                span.value = await run(tool, args, ctx, probe, span)
                probe._at(f"tool {span.name} returns", span)
            return span.value

        return execute


async def _run_async(tool: Tool, args: dict[str, Any], ctx: ToolContext, probe: Probe, span: Span) -> Any:
    return await tool.execute(args, cast("ToolContext", _Context(ctx, probe, span)))


async def _run_inline(tool: Tool, args: dict[str, Any], ctx: ToolContext, probe: Probe, span: Span) -> Any:
    """Run a plain tool in Trio's own thread: the virtual clock would pass another one by."""
    inline = _InlineContext(ctx, probe, span)
    value = tool.execute(args, cast("ToolContext", inline))
    for partial in inline.partials:
        await inline.update(partial)
    return await value if isinstance(value, Awaitable) else value


async def _convert(messages: Sequence[AgentMessage]) -> Sequence[Any]:
    await trio.lowlevel.checkpoint()
    return default_convert_to_llm(messages)


async def _unchanged(messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
    await trio.lowlevel.checkpoint()
    return messages


async def _none(argument: object) -> None:
    await trio.lowlevel.checkpoint()


_NOTHING: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(HOOKS, _none),
    "transform_context": _unchanged,
    "convert_to_llm": _convert,
}
"""Hooks that do nothing."""


@final
class _Sink:
    """A sink at which something can be done before each event."""

    def __init__(self, sink: StreamSink, probe: Probe, span: Span) -> None:
        self._sink, self._probe, self._span = sink, probe, span

    async def send(self, event: StreamEvent) -> None:
        self._probe._at(f"model sends {event.type}", self._span)
        await self._probe._linger()
        await self._sink.send(event)


class _Context:
    """A tool's context at which something can be done before each update."""

    def __init__(self, ctx: ToolContext, probe: Probe, span: Span) -> None:
        self._ctx, self._probe, self._span = ctx, probe, span

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    async def update(self, partial: Any) -> None:
        if self._span.ended is None and trio.lowlevel.current_task() is self._span.task:
            self._probe._at(f"tool {self._span.name} reports", self._span)
            await self._probe._linger()
        await self._ctx.update(partial)


@final
class _InlineContext(_Context):
    """The context of a plain tool that runs inline: what it reports is handed over when it is through."""

    def __init__(self, ctx: ToolContext, probe: Probe, span: Span) -> None:
        super().__init__(ctx, probe, span)
        self.partials: list[Any] = []

    def update_from_thread(self, partial: Any) -> None:
        self.partials.append(partial)


async def _without(
    answering: StreamFn, request: ModelRequest, sink: StreamSink, ids: Sequence[str]
) -> AssistantMessage:
    """Answer without some calls: what is left is sent whole."""

    class Silent:
        async def send(self, event: StreamEvent) -> None:
            """Nobody listens."""

    message = await answering(request, cast("StreamSink", Silent()))
    content = [block for block in message.content if block.type != "toolCall" or block.id not in ids]
    stop_reason = message.stop_reason
    if stop_reason == "tool_use" and not any(block.type == "toolCall" for block in content):
        stop_reason = "stop"
    return await ScriptedModel([attrs.evolve(message, content=content, stop_reason=stop_reason)]).stream_fn(
        request, sink
    )


# ------------------------------------------------------------------- a loop


@final
class LoopWatch(Watch):
    """Watches a loop that is called without an agent."""

    def __init__(self, probe: Probe, abort: Abort) -> None:
        super().__init__(probe)
        self.abort = abort

    def begin_run(self, task: trio.lowlevel.Task) -> RunLog:
        return RunLog(task, self.probe.note(), 0)

    def settings(self, settings: LoopSettings) -> dict[str, Any]:
        """The hooks and the stream function of some settings, watched."""
        names = [*HOOKS, *(name for name in POLLS if hasattr(settings, name))]
        return {name: self.hook(name, getattr(settings, name)) for name in names}

    def context(self, context: AgentContext) -> AgentContext:
        """A context with watched tools."""
        return AgentContext(context.messages, self.tools(context.tools))

    def emit(self, emit: Callable[[AgentEvent], Any]) -> Callable[[AgentEvent], Awaitable[None]]:
        """What a loop tells its events, between the two listeners of the watch."""
        told = Callback(self.listener(emit), 1)

        async def watched(event: AgentEvent) -> None:
            try:
                self.first(event)
                await self.middle(event)
                await told.call(event, self.abort)
            finally:
                self.last(event)

        return watched

    def end_run(self, run: RunLog, returned: Any, raised: BaseException | None) -> None:
        super().end_run(run, returned, raised)
        run.messages = [event.message for event in run.events if isinstance(event, MessageEnd)]
