"""What a scenario is played on: an Agent, or the loop that is called directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, final

import attrs

from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    LoopConfig,
    StreamFn,
    Tool,
    run_agent_loop,
    run_agent_loop_continue,
)

from ._scenario_parts import Action, Settings
from ._trace import Entry, category, error_shape, message_shape, streaming_shape, tags

__all__ = ["AgentSubject", "LoopSubject", "Props", "Subject"]

Listener: TypeAlias = Callable[[AgentEvent], Awaitable[None]]


@attrs.frozen
class Props:
    """What a subject is given."""

    settings: Settings
    tools: Mapping[str, Tool]
    """The tools of the scenario by key."""
    hooks: Mapping[str, Any]
    stream: StreamFn
    listeners: Sequence[Listener]
    """The recorder, and behind it the scripted listeners."""
    watch: Callable[[Agent], Agent] = lambda agent: agent
    """Called with the agent once it is made."""
    leaving: Callable[[], AbstractContextManager[None]] | None = None
    """Marks what is left early; with it, agents are called by ``run()`` and not by ``prompt()``."""
    run_loop: Callable[..., Awaitable[list[AgentMessage]]] | None = None
    """Called in place of the loop functions; without prompts it goes on."""


class Subject(Protocol):
    """What is tested."""

    @property
    def abort(self) -> Abort | None:
        """That of the run that is active, or of the last one."""

    def context(self) -> AgentContext:
        """What nested calls are given."""

    async def call(self, action: Action) -> None:
        """Do what takes time."""

    def act(self, action: Action) -> Any:
        """Do what is immediate, and give its result."""

    def final(self) -> Entry:
        """The final state."""


@final
class AgentSubject:
    """One Agent."""

    def __init__(self, props: Props) -> None:
        settings = props.settings
        self.abort: Abort | None = None
        self._tools = props.tools
        agent = Agent(
            settings.model,
            system_prompt=settings.system_prompt,
            tools=[props.tools[key] for key in settings.tools],
            messages=settings.messages,
            stream_fn=props.stream,
            thinking_level=settings.thinking_level,
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
            tool_execution=settings.tool_execution,
            **props.hooks,
        )
        self._leaving = props.leaving
        self._agent = props.watch(agent)
        self._agent.subscribe(self._learn, AgentStart)
        for listener in props.listeners:
            self._agent.subscribe(listener)

    def _learn(self, event: AgentEvent, abort: Abort) -> None:
        self.abort = abort

    def context(self) -> AgentContext:
        state = self._agent.state
        return AgentContext(state.messages, state.tools)

    async def call(self, action: Action) -> None:
        if action.do == "wait_idle":
            await self._agent.wait_for_idle()
        elif self._leaving is not None:
            await self._iterate(action, self._leaving)
        elif action.do == "continue":
            await self._agent.resume()
        elif action.text is not None:
            await self._agent.prompt(action.text, action.images)
        else:
            await self._agent.prompt(action.messages)

    async def _iterate(self, action: Action, leaving: Callable[[], AbstractContextManager[None]]) -> None:
        """Make a call in the form of a block, and read its events."""
        prompt = None if action.do == "continue" else action.messages if action.text is None else action.text
        async with self._agent.run(prompt, action.images) as run:
            with leaving():
                async for _ in run:
                    pass

    def act(self, action: Action) -> Any:
        agent = self._agent
        match action.do:
            case "steer":
                for message in action.messages:
                    agent.steer(message)
            case "follow_up":
                for message in action.messages:
                    agent.follow_up(message)
            case "abort":
                agent.abort()
            case "reset":
                agent.reset()
            case "clear_steering":
                agent.clear_steering_queue()
            case "clear_follow_up":
                agent.clear_follow_up_queue()
            case "clear_all":
                agent.clear_all_queues()
            case "peek":
                return [message_shape(message) for message in agent.peek_queued_messages()]
            case "has_queued":
                return agent.has_queued_messages()
            case "state":
                return self._state()
            case "set_tools":
                agent.tools = [self._tools[key] for key in action.value]
            case "set_messages":
                agent.messages = list(action.messages)
            case setting:
                setattr(agent, setting.removeprefix("set_"), action.value)
        return None

    def _state(self) -> Entry:
        state = self._agent.state
        streaming = state.streaming_message
        return {
            "is_streaming": state.is_streaming,
            "pending_tool_calls": sorted(state.pending_tool_calls),
            "has_error": state.error_message is not None,
            "streaming": None if streaming is None else streaming_shape(streaming),
            "messages": tags(state.messages),
            "system_prompt": state.system_prompt,
        }

    def final(self) -> Entry:
        state = self._agent.state
        final: Entry = {
            "messages": [message_shape(message) for message in state.messages],
            "is_streaming": state.is_streaming,
            "pending_tool_calls": sorted(state.pending_tool_calls),
            "error": self._error(),
            "system_prompt": state.system_prompt,
        }
        self._agent.steering_mode = self._agent.follow_up_mode = "all"
        steering = self._agent.peek_queued_messages()
        self._agent.clear_steering_queue()
        follow_up = self._agent.peek_queued_messages()
        if steering and follow_up and steering[-1] is follow_up[-1]:
            # Without steering the first look saw the follow-ups as well.
            steering = []
        final["steering_left"] = [getattr(message, "text", "") for message in steering]
        final["follow_up_left"] = [getattr(message, "text", "") for message in follow_up]
        return final

    def _error(self) -> str | None:
        """The agent's error message; the category of the answer that it comes from, if it has one."""
        state = self._agent.state
        for message in reversed(state.messages):
            if isinstance(message, AssistantMessage) and message.error_message == state.error_message:
                return category(message.error_kind) or state.error_message
        return state.error_message


@final
class LoopSubject:
    """The loop, called directly."""

    def __init__(self, props: Props) -> None:
        settings = props.settings
        self.abort: Abort | None = None
        self._listeners = props.listeners
        self._context = AgentContext(settings.messages, [props.tools[key] for key in settings.tools])
        self._config = LoopConfig(
            model=settings.model,
            stream_fn=props.stream,
            thinking_level=settings.thinking_level,
            api_key=settings.api_key,
            tool_execution=settings.tool_execution,
            **props.hooks,
        )
        self._run_loop = props.run_loop or _run_loop
        self._final: Entry = {"new_messages": []}

    async def _emit(self, event: AgentEvent) -> None:
        for listener in self._listeners:
            await listener(event)

    def context(self) -> AgentContext:
        return self._context

    async def call(self, action: Action) -> None:
        self.abort = abort = Abort()
        prompts = None if action.do == "continue" else action.messages
        try:
            new = await self._run_loop(prompts, self._context, self._config, self._emit, abort=abort)
        except Exception as error:
            self._final = {"error": error_shape(error)}
            raise
        self._final = {"new_messages": [message_shape(message) for message in new]}

    def act(self, action: Action) -> None:
        # "abort" is the only immediate action at this level.
        if self.abort is not None:
            self.abort.request()

    def final(self) -> Entry:
        return self._final


async def _run_loop(
    prompts: Sequence[AgentMessage] | None, context: AgentContext, config: LoopConfig, emit: Listener, *, abort: Abort
) -> list[AgentMessage]:
    if prompts is None:
        return await run_agent_loop_continue(context, config, emit, abort=abort)
    return await run_agent_loop(prompts, context, config, emit, abort=abort)
