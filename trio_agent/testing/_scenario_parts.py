"""The parts of a scenario: what its file says, piece by piece. Times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, final

import attrs

from trio_agent import (
    AgentMessage,
    ImageContent,
    SimpleModel,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    ToolExecutionMode,
    ToolResult,
)

from ._script import Step

__all__ = ["HostMessage", "ScriptedFailure"]


class ScriptedFailure(Exception):
    """An exception that a scenario asks for; its text is the scenario's."""


@final
@attrs.frozen
class HostMessage:
    """A message of a scenario's own kind, which no model knows."""

    role: str
    text: str


# ------------------------------------------------------------------ parts


@attrs.frozen
class Match:
    """Which events are meant."""

    on: str
    role: str | None = None
    kind: str | None = None
    id: str | None = None
    nth: int | None = None


@attrs.frozen
class Action:
    """Something that the host does."""

    do: str
    n: int | None = None
    """Its index in the file; None inside steps and rules."""
    at: float | None = None
    on: Match | None = None
    text: str | None = None
    """The text of a ``prompt`` given as text."""
    images: tuple[ImageContent, ...] = ()
    messages: tuple[AgentMessage, ...] = ()
    value: Any = None
    """What a ``set_...`` sets; keys of tools for ``set_tools``."""


@attrs.frozen
class Effect:
    """What a rule does before it answers."""

    sleep: float | None = None
    shield: bool = True
    host: tuple[Action, ...] = ()
    error: str | None = None


@attrs.frozen
class Rule:
    """What a hook does at the calls that the rule matches."""

    nth: int | None = None
    tool: str | None = None
    id: str | None = None
    effect: Effect = Effect()
    values: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class ListenerRule:
    """What a listener does at the events that the rule matches."""

    match: Match
    effect: Effect


@attrs.frozen
class ListenerScript:
    """A listener and its rules."""

    name: str
    rules: tuple[ListenerRule, ...]


@attrs.frozen
class Wait:
    """A tool sleeps."""

    seconds: float
    shield: bool = False


@attrs.frozen
class Update:
    """A tool reports progress; late, something that outlives it does."""

    text: str
    late: float | None = None


@attrs.frozen
class Act:
    """A tool acts as the host."""

    actions: tuple[Action, ...]


@attrs.frozen
class RunTool:
    """A tool runs another one."""

    call: ToolCall


@attrs.frozen
class Return:
    """A tool returns."""

    result: ToolResult


@attrs.frozen
class Raise:
    """A tool raises."""

    text: str


ToolStep: TypeAlias = Wait | Update | Act | RunTool | Return | Raise


@attrs.frozen
class Mend:
    """What ``prepare_arguments`` does."""

    rename: Mapping[str, str] = attrs.field(factory=dict)
    set: Mapping[str, Any] = attrs.field(factory=dict)
    error: str | None = None


@attrs.frozen
class ToolScript:
    """A tool and what its calls do."""

    declaration: ToolDeclaration
    execution_mode: ToolExecutionMode | None = None
    mend: Mend | None = None
    calls: tuple[tuple[ToolStep, ...], ...] = ()
    by_id: Mapping[str, tuple[ToolStep, ...]] = attrs.field(factory=dict)


@attrs.frozen
class ModelTurn:
    """One scripted answer."""

    steps: tuple[Step, ...]
    send_start: bool = True


@attrs.frozen
class Settings:
    """The arguments of the agent, or of the loop."""

    system_prompt: str = ""
    tools: tuple[str, ...] = ()
    messages: tuple[AgentMessage, ...] = ()
    model: SimpleModel = attrs.field(factory=lambda: SimpleModel("p", "m1"))
    thinking_level: ThinkingLevel = "off"
    steering_mode: Literal["one-at-a-time", "all"] = "one-at-a-time"
    follow_up_mode: Literal["one-at-a-time", "all"] = "one-at-a-time"
    tool_execution: ToolExecutionMode = "parallel"
    api_key: str | None = None
