"""Reading the parts of a scenario file; see :mod:`._scenario`."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import attrs

from trio_agent._errors import FormatError, ToolDefinitionError
from trio_agent._messages import (
    AgentMessage,
    AssistantContent,
    AssistantMessage,
    Content,
    ErrorKind,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._stream import SimpleModel
from trio_agent._tool import Tool, ToolContext, ToolResult

from . import _script as steps
from ._reading import (
    Keys,
    Read,
    amount,
    anything,
    array,
    boolean,
    count,
    json_object,
    mapping,
    milliseconds,
    one_of,
    or_null,
    refuse,
    string,
    true,
)
from ._scenario_parts import (
    Act,
    Action,
    Effect,
    HostMessage,
    ListenerRule,
    ListenerScript,
    Match,
    Mend,
    ModelTurn,
    Raise,
    Return,
    Rule,
    RunTool,
    ScriptedFailure,
    Settings,
    ToolScript,
    ToolStep,
    Update,
    Wait,
)

__all__: list[str] = []

_LEVELS: tuple[str, ...] = get_args(ThinkingLevel)
_QUEUE_MODES = ("one-at-a-time", "all")
_TOOL_MODES = ("parallel", "sequential")
_EVENTS = (
    "agent_start",
    "turn_start",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "turn_end",
    "agent_end",
)
_CONTEXT_KEYS = ("drop_roles", "keep_last", "as_user", "append_context")
_TOOL_HOOKS = ("before_tool_call", "after_tool_call")
_LOOP_HOOKS = ("get_steering_messages", "get_follow_up_messages")
_HOOK_VALUES: dict[str, tuple[str, ...]] = {
    "before_tool_call": ("block", "reason", "terminate"),
    "after_tool_call": ("text", "details", "structured", "is_error", "terminate"),
    "finish_turn": ("action",),
    "prepare_next_turn": (*_CONTEXT_KEYS, "context_tools", "model", "thinking_level", "append"),
    "prepare_request": (*_CONTEXT_KEYS, "context_tools", "model", "thinking_level"),
    "transform_context": _CONTEXT_KEYS,
    "convert_to_llm": _CONTEXT_KEYS,
    "get_api_key": ("key",),
    "get_steering_messages": ("messages",),
    "get_follow_up_messages": ("messages",),
}
_ACTIONS: dict[str, tuple[str, ...]] = {
    "prompt": ("agent",),
    "continue": ("agent", "loop"),
    "run": ("loop",),
    "wait_idle": ("agent",),
    "steer": ("agent",),
    "follow_up": ("agent",),
    "abort": ("agent", "loop"),
    "reset": ("agent",),
    "clear_steering": ("agent",),
    "clear_follow_up": ("agent",),
    "clear_all": ("agent",),
    "peek": ("agent",),
    "has_queued": ("agent",),
    "state": ("agent",),
    "set_tools": ("agent",),
    "set_messages": ("agent",),
    "set_model": ("agent",),
    "set_thinking_level": ("agent",),
    "set_steering_mode": ("agent",),
    "set_follow_up_mode": ("agent",),
    "set_tool_execution": ("agent",),
}
_MODEL_STEPS = ("sleep", "start", "text", "thinking", "tool_call", "done", "end", "error", "no_start", "throw")
_TOOL_STEPS = ("sleep", "update", "host", "run_tool", "return", "raise")


def _model(value: Any, where: str) -> SimpleModel:
    provider, slash, name = string(value, where).partition("/")
    if not (provider and slash and name):
        refuse(where, value, "PROVIDER/ID")
    return SimpleModel(provider, name)


def _call(value: Any, where: str) -> ToolCall:
    keys = Keys(value, where)
    call = ToolCall(keys.take("id", string), keys.take("name", string), keys.take("arguments", json_object, {}))
    keys.done()
    return call


def _image(value: Any, where: str) -> ImageContent:
    keys = Keys(value, where)
    image = ImageContent(keys.take("data", string), keys.take("mime_type", string))
    keys.done()
    return image


def _block(value: Any, where: str) -> AssistantContent:
    keys = Keys(value, where)
    name = keys.only(("text", "thinking", "tool_call"))
    block: AssistantContent
    if name == "text":
        block = TextContent(keys.take("text", string))
    elif name == "thinking":
        block = ThinkingContent(keys.take("thinking", string))
    else:
        block = keys.take("tool_call", _call)
    keys.done()
    return block


async def _unused(arguments: dict[str, Any], ctx: ToolContext) -> None:
    """Stands in for what a tool does where only its declaration is checked."""


class Reader:
    """Reads one file; knows its level and the tools that other parts refer to."""

    def __init__(self, level: Literal["agent", "loop"]) -> None:
        self.level = level
        self._declarations: dict[str, ToolDeclaration] = {}

    # Tools.

    def declare(self, value: Any, where: str) -> None:
        """Learn the keys and declarations of the tools."""
        for key, item in json_object(value, where).items():
            keys = Keys(item, f"{where}.{key}")
            name = keys.take("name", string, key)
            parameters = keys.take("parameters", json_object, {"type": "object", "properties": {}})
            try:
                tool = Tool(name, keys.take("description", string, ""), parameters, execute=_unused)
            except ToolDefinitionError as error:
                raise FormatError(f"{keys.where} is no tool: {error}") from error
            self._declarations[key] = tool.declaration

    def tools(self, value: Any, where: str) -> dict[str, ToolScript]:
        """Read what the tools do."""
        return {key: self._tool(key, item, f"{where}.{key}") for key, item in value.items()}

    def _tool(self, name: str, value: Any, where: str) -> ToolScript:
        keys = Keys(value, where)
        for key in ("name", "description", "parameters"):
            keys.take(key, anything, None)  # read by declare()
        script = ToolScript(
            self._declarations[name],
            execution_mode=keys.take("execution_mode", one_of(*_TOOL_MODES), None),
            mend=keys.take("prepare_arguments", self._mend, None),
            calls=keys.take("calls", array(array(self._tool_step)), ()),
            by_id=keys.take("by_id", mapping(array(self._tool_step)), {}),
        )
        keys.done()
        return script

    def _mend(self, value: Any, where: str) -> Mend:
        keys = Keys(value, where)
        mend = Mend(
            keys.take("rename", mapping(string), {}),
            keys.take("set", json_object, {}),
            keys.take("raise", string, None),
        )
        keys.done()
        return mend

    def _tool_step(self, value: Any, where: str) -> ToolStep:
        keys = Keys(value, where)
        step: ToolStep
        match keys.only(_TOOL_STEPS):
            case "sleep":
                step = Wait(keys.take("sleep", milliseconds), keys.take("shield", boolean, False))
            case "update":
                step = Update(keys.take("update", string), keys.take("late", milliseconds, None))
            case "host":
                step = Act(keys.take("host", array(self._action)))
            case "run_tool":
                step = RunTool(keys.take("run_tool", _call))
            case "return":
                step = Return(keys.take("return", self._result))
            case _:
                step = Raise(keys.take("raise", string))
        keys.done()
        return step

    def _result(self, value: Any, where: str) -> ToolResult:
        keys = Keys(value, where)
        result = ToolResult(
            keys.take("text", string, ""),
            details=keys.take("details", anything, None),
            structured_content=keys.take("structured", anything, None),
            is_error=keys.take("is_error", boolean, False),
            terminate=keys.take("terminate", boolean, False),
        )
        keys.done()
        return result

    def _tool_key(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in self._declarations:
            refuse(where, value, "a key of the scenario's tools: " + (", ".join(self._declarations) or "none"))
        return value

    # Messages.

    def _message(self, value: Any, where: str) -> AgentMessage:
        keys = Keys(value, where)
        role = keys.take("role", string)
        message: AgentMessage
        match role:
            case "system":
                added = keys.take("tools_added", array(self._tool_key), ())
                message = SystemMessage(
                    keys.take("text", string, ""),
                    sections=keys.take("sections", mapping(or_null(string)), {}),
                    tools_added=[self._declarations[key] for key in added],
                    tools_removed=keys.take("tools_removed", array(string), ()),
                )
            case "user":
                text = TextContent(keys.take("text", string))
                message = UserMessage((text, *keys.take("images", array(_image), ())))
            case "assistant":
                error = keys.take("error", or_null(string), None)
                message = AssistantMessage(
                    keys.take("content", array(_block)),
                    stop_reason=keys.take(
                        "stop_reason", one_of("stop", "length", "tool_use", "error", "aborted"), "stop"
                    ),
                    error_message=error,
                    error_kind="aborted" if error == "aborted" else None,
                    thinking_level=keys.take("thinking_level", one_of(*_LEVELS), None),
                )
            case "tool_result":
                kind = keys.take("error", one_of(*get_args(ErrorKind)), None)
                message = ToolResultMessage(
                    keys.take("id", string),
                    keys.take("name", string),
                    keys.take("text", string, kind or ""),
                    is_error=keys.take("is_error", boolean, False),
                    error_kind=kind,
                    details=keys.take("details", anything, None),
                )
            case _:
                message = HostMessage(role, keys.take("text", string))
        keys.done()
        return message

    # The model.

    def settings(self, value: Any, where: str) -> Settings:
        """Read the arguments of the agent."""
        keys = Keys(value, where)
        agent = self.level == "agent"
        settings = Settings(
            tools=keys.take("tools", array(self._tool_key), ()),
            messages=keys.take("messages", array(self._message), ()),
            model=keys.take("model", _model, Settings().model),
            thinking_level=keys.take("thinking_level", one_of(*_LEVELS), "off"),
            tool_execution=keys.take("tool_execution", one_of(*_TOOL_MODES), "parallel"),
            system_prompt=keys.take("system_prompt", string, "") if agent else "",
            steering_mode=keys.take("steering_mode", one_of(*_QUEUE_MODES), "one-at-a-time")
            if agent
            else "one-at-a-time",
            follow_up_mode=keys.take("follow_up_mode", one_of(*_QUEUE_MODES), "one-at-a-time")
            if agent
            else "one-at-a-time",
            api_key=None if agent else keys.take("api_key", string, None),
        )
        keys.done()
        return settings

    def turn(self, value: Any, where: str) -> ModelTurn:
        """Read one answer of the model."""
        read = array(self._model_step)(value, where)
        return ModelTurn(tuple(step for step in read if step is not None), send_start=None not in read)

    def _model_step(self, value: Any, where: str) -> steps.Step | None:
        """Read a step of the model; None is the wish that there be no start event."""
        keys = Keys(value, where)
        step: steps.Step | None
        match keys.only(_MODEL_STEPS):
            case "sleep":
                step = steps.Sleep(keys.take("sleep", milliseconds))
            case "start":
                keys.take("start", true)
                step = steps.Start()
            case "text":
                step = steps.Text(keys.take("text", array(string)), keys.take("gap", milliseconds, 0.0))
            case "thinking":
                step = steps.Thinking(keys.take("thinking", array(string)), keys.take("gap", milliseconds, 0.0))
            case "tool_call":
                inner = Keys(value["tool_call"], f"{where}.tool_call")
                keys.take("tool_call", anything)
                step = steps.Call(
                    inner.take("id", string),
                    inner.take("name", string),
                    inner.take("arguments", json_object, {}),
                    inner.take("chunks", array(string), ()),
                    keys.take("gap", milliseconds, 0.0),
                )
                inner.done()
            case "done":
                step = steps.Done(keys.take("done", one_of("stop", "length", "tool_use")))
            case "end":
                step = steps.Done(keys.take("end", one_of("stop", "length", "tool_use")))
            case "no_start":
                keys.take("no_start", true)
                step = None
            case name:
                # Where failures are raised, "throw" and an "error" that comes first are the same.
                step = steps.Fail(partial(ScriptedFailure, keys.take(name, string)))
        keys.done()
        return step

    # Hooks and listeners.

    def hooks(self, value: Any, where: str) -> dict[str, tuple[Rule, ...]]:
        """Read the rules of the hooks."""
        keys = Keys(value, where)
        keys.take("listeners", anything, None)  # read by listeners()
        hooks = {}
        for name in _HOOK_VALUES:
            if name in _LOOP_HOOKS and self.level != "loop":
                continue
            rules = keys.take(name, array(self._rule(name)), None)
            if rules is not None:
                hooks[name] = rules
        keys.done()
        return hooks

    def _rule(self, hook: str) -> Read[Rule]:
        def read(value: Any, where: str) -> Rule:
            keys = Keys(value, where)
            nth = keys.take("nth", count, None)
            tool = call_id = None
            if hook in _TOOL_HOOKS:
                tool = keys.take("tool", string, None)
                call_id = keys.take("id", string, None)
            effect = self._effect(keys)
            values: dict[str, Any] = {}
            for key in _HOOK_VALUES[hook]:
                if key in keys:
                    values[key] = keys.take(key, self._value(key))
                else:
                    keys.take(key, anything, None)
            keys.done()
            return Rule(nth, tool, call_id, effect, values)

        return read

    def _value(self, key: str) -> Read[Any]:
        readers: dict[str, Read[Any]] = {
            "block": boolean,
            "terminate": boolean,
            "is_error": boolean,
            "reason": string,
            "text": string,
            "key": or_null(string),
            "details": anything,
            "structured": anything,
            "action": one_of("end", "continue"),
            "drop_roles": array(string),
            "as_user": array(string),
            "keep_last": amount,
            "append_context": array(self._message),
            "append": array(self._message),
            "messages": array(self._message),
            "context_tools": array(self._tool_key),
            "model": _model,
            "thinking_level": one_of(*_LEVELS),
        }
        return readers[key]

    def _effect(self, keys: Keys) -> Effect:
        return Effect(
            keys.take("sleep", milliseconds, None),
            keys.take("shield", boolean, True),
            keys.take("host", array(self._action), ()),
            keys.take("raise", string, None),
        )

    def listeners(self, value: Any, where: str) -> tuple[ListenerScript, ...]:
        """Read the listeners, which stand among the hooks."""
        return Keys(value, where).take("listeners", array(self._listener), ())

    def _listener(self, value: Any, where: str) -> ListenerScript:
        keys = Keys(value, where)
        script = ListenerScript(keys.take("name", string), keys.take("rules", array(self._listener_rule)))
        keys.done()
        return script

    def _listener_rule(self, value: Any, where: str) -> ListenerRule:
        keys = Keys(value, where)
        rule = ListenerRule(self._match(keys), self._effect(keys))
        keys.done()
        return rule

    def _match(self, keys: Keys) -> Match:
        return Match(
            keys.take("on", one_of(*_EVENTS)),
            keys.take("role", string, None),
            keys.take("kind", string, None),
            keys.take("id", string, None),
            keys.take("nth", count, None),
        )

    # The host.

    def host(self, value: Any, where: str) -> tuple[Action, ...]:
        """Read what the host does and when."""
        items = array(anything)(value, where)
        return tuple(self._timed(n, item, f"{where}[{n}]") for n, item in enumerate(items))

    def _timed(self, n: int, value: Any, where: str) -> Action:
        keys = Keys(value, where)
        when = keys.take("when", Keys)
        on: Match | None = None
        at: float | None = None
        if when.only(("at", "on")) == "at":
            at = when.take("at", milliseconds)
        else:
            on = self._match(when)
        when.done()
        return attrs.evolve(self._act(keys), n=n, at=at, on=on)

    def _action(self, value: Any, where: str) -> Action:
        return self._act(Keys(value, where))

    def _act(self, keys: Keys) -> Action:
        do = keys.take("do", one_of(*_ACTIONS))
        if self.level not in _ACTIONS[do]:
            raise FormatError(f"{keys.where}.do is {do!r}, which there is not at {self.level} level")
        action = Action(do)
        if do in ("prompt", "run", "steer", "follow_up"):
            action = self._said(keys, action)
        elif do == "set_messages":
            action = Action(do, messages=keys.take("messages", array(self._message)))
        elif do.startswith("set_"):
            key, read = self._settable(do)
            action = Action(do, value=keys.take(key, read))
        keys.done()
        return action

    def _said(self, keys: Keys, action: Action) -> Action:
        if keys.only(("text", "messages")) == "messages":
            return attrs.evolve(action, messages=keys.take("messages", array(self._message)))
        text = keys.take("text", string)
        images = keys.take("images", array(_image), ()) if action.do == "prompt" else ()
        content: tuple[Content, ...] = (TextContent(text), *images)
        return attrs.evolve(action, text=text, images=images, messages=(UserMessage(content),))

    def _settable(self, do: str) -> tuple[str, Read[Any]]:
        settable: dict[str, tuple[str, Read[Any]]] = {
            "set_tools": ("tools", array(self._tool_key)),
            "set_model": ("model", _model),
            "set_thinking_level": ("thinking_level", one_of(*_LEVELS)),
            "set_steering_mode": ("mode", one_of(*_QUEUE_MODES)),
            "set_follow_up_mode": ("mode", one_of(*_QUEUE_MODES)),
            "set_tool_execution": ("mode", one_of(*_TOOL_MODES)),
        }
        return settable[do]
