"""Playing a scenario: the scripted host, tools, hooks, listeners and model around the real agent or loop.

The runner uses nothing of the library but its public interface, and knows no single scenario.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

import attrs
import trio
import trio.testing

from trio_agent import (
    AgentEvent,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    StreamSink,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    get_current_tools,
    run_tool_call,
)

from . import _scenario_parts as parts
from ._errors import ScenarioStuckError, ScriptExhaustedError
from ._scenario import Scenario
from ._scenario_parts import Action, Effect, ListenerScript, Match, ScriptedFailure, ToolScript
from ._scheduler import StallGuard, seeded_scheduler
from ._script import Done, Text, play
from ._scripted_hooks import ScriptedHooks
from ._subjects import AgentSubject, Listener, LoopSubject, Props, Subject
from ._trace import Entry, Trace, error_shape, event_shape, message_shape, plain, result_shape

if TYPE_CHECKING:
    from ._explore._probe import Probe

__all__ = ["run_scenario", "scenario_host"]

_CALLS = ("prompt", "continue", "run", "wait_idle")
"""Actions that take time; all others are immediate."""

_SPARE_TURNS = 20
_SPARE_TURN = (Text(["More."]), Done("stop"))
"""The answer to requests that only came because a scenario is explored."""


def run_scenario(scenario: Scenario, *, seed: int | None = None) -> Trace:
    """Play a scenario on a virtual clock and record what happens.

    Starts a Trio run of its own, so it is called from outside of one. The scenario's time passes
    at once.

    Args:
      scenario: what is played.
      seed: lets Trio's scheduler take its order of tasks from this seed; None leaves it to chance.

    Returns:
      the trace, in the order in which it was recorded.

    Raises:
      ScenarioStuckError: the scenario does not come to an end.
      SchedulerError: a seed was given, and this release of Trio cannot be seeded.
    """
    guard = StallGuard()
    stage = _Stage(scenario)
    clock = trio.testing.MockClock(autojump_threshold=0)
    lone: BaseException | None = None
    with seeded_scheduler(seed):
        try:
            trio.run(stage.run, guard, clock=clock, instruments=[guard])
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            lone = group.exceptions[0]
    if lone is not None:
        # Without the group of the runner's own nursery, which stands around a KeyboardInterrupt too.
        raise lone
    if guard.reason is not None:
        still = ", ".join(stage.open_calls.values()) or "none"
        raise ScenarioStuckError(
            f"the scenario {scenario.name!r} does not come to an end: {guard.reason}, at "
            f"{stage.now} ms of the virtual clock; calls of the host that have not returned: {still}",
            stage.entries,
        )
    return Trace(stage.entries, stage.final)


def scenario_host(scenario: Scenario, *, blocks: bool = False) -> Callable[[Probe], Awaitable[None]]:
    """Make a host of a scenario, to be explored.

    Args:
      scenario: what is played; its expectation is not looked at.
      blocks: whether an agent is called in the form ``async with agent.run(...)`` and its events are
        read, so that the act ``leave`` can leave the block.
    """

    async def host(probe: Probe) -> None:
        await _Stage(scenario, probe, blocks=blocks).run_watched()

    host.__name__ = scenario.name
    return host


@final
class _Stage:
    """One playing of one scenario.

    Args:
      scenario: what is played.
      probe: watches the agent or loop, where the scenario is explored. What the host calls is then
        called in the stage's own task if that is free, so that a key interrupt can reach it, and
        requests beyond the script are answered, because a cut or a message may lead to more.
      blocks: calls an agent by ``run()`` and not by ``prompt()``, where it is explored.
    """

    def __init__(self, scenario: Scenario, probe: Probe | None = None, *, blocks: bool = False) -> None:
        self.scenario = scenario
        self._probe = probe
        self._blocks = blocks
        self.entries: list[Entry] = []
        self.final: Entry = {}
        self.open_calls: dict[int, str] = {}
        self.now = 0
        self._counts: Counter[Any] = Counter()
        self._tools = {key: self._tool(key, script) for key, script in scenario.tools.items()}
        self._hooks = ScriptedHooks(scenario.hooks, self._tools, self._record_hook, self._effect).installed()
        self._subject: Subject
        self._nursery: trio.Nursery

    async def run(self, guard: StallGuard) -> None:
        """Play it from the beginning until nothing is left to wait for."""
        self._set_up()
        async with trio.open_nursery() as self._nursery:
            guard.watch(self._nursery)
            await self._timeline(self._call_beside)
        self.final = self._subject.final()

    async def run_watched(self) -> None:
        """Play it with the calls of the host in this task, unless they overlap."""
        self._set_up()
        calls, soon = trio.open_memory_channel[tuple[Action, trio.Event]](math.inf)

        async def call_here(action: Action) -> None:
            if self.open_calls:
                await self._call_beside(action)
                return
            begun = trio.Event()
            calls.send_nowait((action, begun))
            await begun.wait()

        async def timeline() -> None:
            with calls:
                await self._timeline(call_here)

        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(timeline)
            async for action, begun in soon:
                await self._call(action, begun)

    def _set_up(self) -> None:
        listeners = [self._recorder, *map(self._listener, self.scenario.listeners)]
        props = Props(self.scenario.settings, self._tools, self._hooks, self._stream, listeners)
        if self._probe is not None:
            leaving = self._probe.leaving if self._blocks else None
            props = attrs.evolve(props, watch=self._probe.watch, run_loop=self._probe.run_loop, leaving=leaving)
        self._subject = AgentSubject(props) if self.scenario.level == "agent" else LoopSubject(props)

    async def _timeline(self, call: Callable[[Action], Awaitable[None]]) -> None:
        timed = [(action.at, action) for action in self.scenario.host if action.at is not None]
        for at, action in sorted(timed, key=lambda item: item[0]):
            if trio.current_time() < at:
                await trio.sleep_until(at)
            if action.do in _CALLS:
                await call(action)
            else:
                self._act(action)

    async def _call_beside(self, action: Action) -> None:
        """Call in a task of its own; waits until the call has begun, so that what follows comes after."""
        begun = trio.Event()
        self._nursery.start_soon(self._call, action, begun)
        await begun.wait()

    def record(self, entry: Mapping[str, Any]) -> None:
        """Add an entry to the trace."""
        self.now = round(trio.current_time() * 1000)
        self.entries.append({"at": self.now, **entry})

    def _aborted(self) -> bool:
        return self._subject.abort is not None and self._subject.abort.requested

    def _record_hook(self, entry: Entry) -> None:
        self.record({**entry, "aborted": True} if self._aborted() else entry)

    # The host.

    async def _perform(self, actions: Iterable[Action]) -> None:
        """Do what a step, a rule or an event says."""
        for action in actions:
            if action.do in _CALLS:
                await self._call(action, trio.Event())
            else:
                self._act(action)

    async def _call(self, action: Action, begun: trio.Event) -> None:
        entry = _host_entry(action)
        self.record(entry)
        self.open_calls[id(entry)] = action.do if action.n is None else f"host[{action.n}] {action.do}"
        begun.set()
        settled = "ok"
        try:
            await self._subject.call(action)
        except Exception as error:
            settled = error_shape(error)
        del self.open_calls[id(entry)]
        self.record({**entry, "settled": settled})

    def _act(self, action: Action) -> None:
        entry = _host_entry(action)
        if action.do == "abort":
            self.record(entry)
            self._subject.act(action)
            return
        try:
            result = self._subject.act(action)
        except Exception as error:
            entry["error"] = error_shape(error)
        else:
            if action.do in ("peek", "has_queued", "state"):
                entry["result"] = result
        self.record(entry)

    # What rules and steps have in common.

    async def _effect(self, effect: Effect) -> None:
        if effect.sleep is not None:
            with trio.CancelScope(shield=effect.shield):
                await trio.sleep(effect.sleep)
        await self._perform(effect.host)
        if effect.error is not None:
            raise ScriptedFailure(effect.error)

    def _matches(self, match: Match, event: AgentEvent, counter: object) -> bool:
        """Whether an event is meant; counts those that everything but the number fits."""
        if match.on != event.type:
            return False
        step = getattr(event, "assistant_message_event", None)
        if match.kind is not None and match.kind != getattr(step, "type", None):
            return False
        if match.role is not None or match.id is not None:
            message = getattr(event, "message", None)
            if match.role is not None and match.role != getattr(message, "role", None):
                return False
            # A tool result that is told as a message belongs to its call, too.
            call_id = getattr(event, "tool_call_id", getattr(message, "tool_call_id", None))
            if match.id is not None and match.id != call_id:
                return False
        self._counts[counter] += 1
        return match.nth is None or match.nth == self._counts[counter]

    # Listeners.

    async def _recorder(self, event: AgentEvent) -> None:
        """Record an event, then do what the host does on it."""
        self.record(event_shape(event))
        for action in self.scenario.host:
            if action.on is None:
                continue
            match = action.on if action.on.nth is not None else attrs.evolve(action.on, nth=1)
            if self._matches(match, event, ("host", action.n)):
                await self._perform([action])

    def _listener(self, script: ListenerScript) -> Listener:
        async def listener(event: AgentEvent) -> None:
            await self._listen(script, event)

        return listener

    async def _listen(self, script: ListenerScript, event: AgentEvent) -> None:
        found: Effect | None = None
        for number, rule in enumerate(script.rules):
            # Every rule counts, also behind the one that applies.
            if self._matches(rule.match, event, ("listener", id(script), number)) and found is None:
                found = rule.effect
        if found is None:
            return
        entry: Entry = {"listener": script.name, "on": event.type}
        call_id = getattr(event, "tool_call_id", None)
        if call_id is not None:
            entry["id"] = call_id
        self.record({**entry, "phase": "enter"})
        await self._effect(found)
        self.record({**entry, "phase": "leave"})

    # The model.

    async def _stream(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Answer a request from the script."""
        entry: Entry = {
            "request": 0,
            "model": f"{request.model.provider}/{request.model.id}",
            "thinking_level": request.thinking_level,
            "messages": [message_shape(message) for message in request.messages],
        }
        if request.api_key is not None:
            entry["api_key"] = request.api_key
        tools = get_current_tools(request.messages)
        if tools:
            entry["tools"] = [{"name": tool.name, "description": tool.description} for tool in tools]
        if self._aborted():
            self.record({**entry, "aborted": True})
            await trio.lowlevel.checkpoint()
            raise ScriptedFailure("a request was made in an aborted run and not cancelled")
        self._counts["request"] += 1
        number = self._counts["request"]
        self.record({**entry, "request": number})
        turns = self.scenario.model
        if number > len(turns) and self._probe is not None and number <= len(turns) + _SPARE_TURNS:
            return await play(_SPARE_TURN, MessageBuilder(request), sink)
        if number > len(turns):
            raise ScriptExhaustedError(f"request {number} finds no turn: the scenario has {len(turns)}", len(turns))
        turn = turns[number - 1]
        # The reference shows no arguments before the end of a call; explored, what is told must add up.
        explored = self._probe is not None
        builder = MessageBuilder(request) if explored else MessageBuilder(request, partial_arguments=lambda text: {})
        return await play(turn.steps, builder, sink, send_start=turn.send_start)

    # Tools.

    def _tool(self, key: str, script: ToolScript) -> Tool:
        async def execute(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
            return await self._body(key, script, arguments, ctx)

        declared = script.declaration
        return Tool(
            declared.name,
            declared.description,
            declared.parameters,
            execute=execute,
            execution_mode=script.execution_mode,
            prepare_arguments=_mender(script.mend) if script.mend is not None else None,
        )

    async def _body(self, key: str, script: ToolScript, arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        self.record({"tool_run": ctx.tool_call_id, "name": script.declaration.name, "arguments": plain(arguments)})
        steps = script.by_id.get(ctx.tool_call_id)
        if steps is None:
            if not script.calls:
                raise ScriptedFailure(f"the script of the tool {key!r} has nothing for {ctx.tool_call_id!r}")
            self._counts["tool", key] += 1
            steps = script.calls[min(self._counts["tool", key], len(script.calls)) - 1]
        for step in steps:
            match step:
                case parts.Wait(seconds, shield):
                    with trio.CancelScope(shield=shield):
                        await trio.sleep(seconds)
                case parts.Update(text, late):
                    if late is None:
                        await ctx.update(text)
                    else:
                        self._nursery.start_soon(_update_late, ctx, text, late)
                case parts.Act(actions):
                    await self._perform(actions)
                case parts.RunTool(call):
                    await self._nested(call, ctx)
                case parts.Return(result):
                    return result
                case parts.Raise(text):
                    raise ScriptedFailure(text)
        return ToolResult()

    async def _nested(self, call: ToolCall, ctx: ToolContext) -> None:
        outcome = await run_tool_call(
            call,
            assistant_message=ctx.assistant_message,
            context=self._subject.context(),
            before_tool_call=self._hooks.get("before_tool_call"),
            after_tool_call=self._hooks.get("after_tool_call"),
        )
        self.record({"nested": call.id, "name": call.name, **result_shape(outcome.result, outcome.is_error)})


# ---------------------------------------------------------------- details


def _host_entry(action: Action) -> Entry:
    entry: Entry = {"host": action.do}
    if action.n is not None:
        entry["n"] = action.n
    return entry


async def _update_late(ctx: ToolContext, text: str, seconds: float) -> None:
    await trio.sleep(seconds)
    await ctx.update(text)


def _mender(mend: parts.Mend) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def prepare_arguments(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        if mend.error is not None:
            raise ScriptedFailure(mend.error)
        mended = {mend.rename.get(key, key): value for key, value in raw.items()}
        return {**mended, **mend.set}

    return prepare_arguments
