"""Reading the parts of a scenario file; see :mod:`._scenario`."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import attrs

from trio_agent import Content, FormatError, SimpleModel, TextContent, ToolResult, UserMessage

from . import _script as steps
from ._message_reader import THINKING_LEVELS, MessageReader, call, image
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


class Reader(MessageReader):
    """Reads one file; knows its level and the tools that other parts refer to."""

    def __init__(self, level: Literal["agent", "loop"]) -> None:
        super().__init__()
        self.level = level

    # Tools.

    def tools(self, value: Any, where: str) -> dict[str, ToolScript]:
        """Read what the tools do."""
        return {key: self._tool(key, item, f"{where}.{key}") for key, item in value.items()}

    def _tool(self, name: str, value: Any, where: str) -> ToolScript:
        keys = Keys(value, where)
        for key in ("name", "description", "parameters"):
            keys.take(key, anything, None)  # read by declare()
        script = ToolScript(
            self.declarations[name],
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
                step = RunTool(keys.take("run_tool", call))
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

    # The model.

    def settings(self, value: Any, where: str) -> Settings:
        """Read the arguments of the agent."""
        keys = Keys(value, where)
        agent = self.level == "agent"
        settings = Settings(
            tools=keys.take("tools", array(self.tool_key), ()),
            messages=keys.take("messages", array(self.message), ()),
            model=keys.take("model", _model, Settings().model),
            thinking_level=keys.take("thinking_level", one_of(*THINKING_LEVELS), "off"),
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
            "append_context": array(self.message),
            "append": array(self.message),
            "messages": array(self.message),
            "context_tools": array(self.tool_key),
            "model": _model,
            "thinking_level": one_of(*THINKING_LEVELS),
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
            action = Action(do, messages=keys.take("messages", array(self.message)))
        elif do.startswith("set_"):
            key, read = self._settable(do)
            action = Action(do, value=keys.take(key, read))
        keys.done()
        return action

    def _said(self, keys: Keys, action: Action) -> Action:
        if keys.only(("text", "messages")) == "messages":
            return attrs.evolve(action, messages=keys.take("messages", array(self.message)))
        text = keys.take("text", string)
        images = keys.take("images", array(image), ()) if action.do == "prompt" else ()
        content: tuple[Content, ...] = (TextContent(text), *images)
        return attrs.evolve(action, text=text, images=images, messages=(UserMessage(content),))

    def _settable(self, do: str) -> tuple[str, Read[Any]]:
        settable: dict[str, tuple[str, Read[Any]]] = {
            "set_tools": ("tools", array(self.tool_key)),
            "set_model": ("model", _model),
            "set_thinking_level": ("thinking_level", one_of(*THINKING_LEVELS)),
            "set_steering_mode": ("mode", one_of(*_QUEUE_MODES)),
            "set_follow_up_mode": ("mode", one_of(*_QUEUE_MODES)),
            "set_tool_execution": ("mode", one_of(*_TOOL_MODES)),
        }
        return settable[do]
