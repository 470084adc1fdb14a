"""What a run was seen to do: its events, the host's code that was entered in it, how its call ended.

Positions count what was seen, in one order for everything; a thing happened after another one if
its position is higher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias

import attrs
import trio

from trio_agent import AgentEvent, AgentMessage, AssistantMessage

from ._case import PlannedAct

SpanKind: TypeAlias = Literal["request", "hook", "tool"]

CLOSING_HOOKS = ("after_tool_call", "finish_turn")
"""The hooks that an abort neither cuts nor keeps from being called."""
CALL_HOOKS = ("before_tool_call", "after_tool_call")
"""The hooks whose exceptions are the result of their call."""


class Planted(Exception):
    """The exception that an exploration raises in the host's code."""


@attrs.define(eq=False)
class Span:
    """The host's code while it is entered: a tool, a hook or a model's answer."""

    kind: SpanKind
    name: str
    """The name of the hook, or the id of the call."""
    task: trio.lowlevel.Task
    began: int
    """Its position."""
    ended: int | None = None
    how: Literal["open", "returned", "raised", "cut"] = "open"
    value: Any = None
    """What it returned."""
    error: BaseException | None = None
    """What it raised."""
    answer: AssistantMessage | None = None
    """The answer that asked for the call."""
    call_id: str = ""
    """The call that a hook is asked about."""
    note: Callable[[], int] = attrs.field(kw_only=True)
    """Gives the position of something that is seen."""

    def __enter__(self) -> Self:
        return self

    @trio.lowlevel.enable_ki_protection
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.ended, self.error = self.note(), error
        self.how = "returned" if error is None else "cut" if isinstance(error, trio.Cancelled) else "raised"

    @property
    def preparing(self) -> bool:
        """Whether a cut forbids to begin it, and reaches it."""
        return self.kind != "hook" or self.name not in CLOSING_HOOKS

    def __str__(self) -> str:
        return {"request": "the model", "hook": self.name, "tool": f"the tool of {self.name}"}[self.kind]


@attrs.define(eq=False)
class RunLog:
    """One run of an agent or a loop, as it was seen."""

    task: trio.lowlevel.Task
    began: int
    before: int
    """How many messages the transcript had."""
    events: list[AgentEvent] = attrs.field(factory=list)
    """What the first listener was told."""
    told: list[AgentEvent] = attrs.field(factory=list)
    """What an async listener was told."""
    last: list[AgentEvent] = attrs.field(factory=list)
    """What the last listener was told."""
    behind: list[str] = attrs.field(factory=list)
    """Events that the state did not contain when they were told."""
    listener_errors: list[Exception] = attrs.field(factory=list)
    """What listeners of the host raised."""
    spans: list[Span] = attrs.field(factory=list)
    end_told: int | None = None
    """The position of ``agent_end``."""
    over: int | None = None
    """The position at which its call was over."""
    returned: Any = None
    raised: BaseException | None = None
    not_idle: str | None = None
    """What was still open when the call was over."""
    left_open: list[str] = attrs.field(factory=list)
    """The host's code that had not been left when the call was over."""
    left_queued: list[AgentMessage] = attrs.field(factory=list)
    """What was queued when the call was over."""
    messages: list[AgentMessage] = attrs.field(factory=list)
    """What the run added to the transcript."""
    late: str | None = None
    """What kept time going after the run was cut."""
    got_cancelled: bool = False
    """The host's cancellation was raised in the run's own task."""

    @property
    def active(self) -> bool:
        """Whether its call has not ended."""
        return self.over is None

    @property
    def telling(self) -> bool:
        """Whether listeners are being told an event."""
        return len(self.last) < len(self.events)


@attrs.define(eq=False)
class Done:
    """An act that was done."""

    planned: PlannedAct
    position: int
    time: float
    run: RunLog | None
    """The run that was active."""
    label: str
    """What happened at its place."""
    landed: int | None = None
    """The position from which on it is in force."""
    landed_time: float = 0.0
    error: BaseException | None = None
    """What it raised."""
    in_span: Span | None = None
    """The code that it was done in."""


@attrs.define(eq=False)
class Queued:
    """A message that was put into a queue."""

    message: AgentMessage
    position: int
    cleared: bool = False
    """It may have been dropped on purpose."""
