"""What a loop can be told: its settings, and for each hook what it gets and may answer.

A hook may be a plain or an async function. Each is called with the arguments named here and, if it
takes one more positional parameter, with the run's :class:`Abort` behind them. A cut reaches the
preparing hooks (all but ``after_tool_call`` and ``finish_turn``): they are cancelled like a tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, final, get_args

import attrs

from ._door import Callback
from ._errors import UsageError
from ._events import AgentEvent
from ._messages import (
    AgentMessage,
    AssistantMessage,
    Content,
    Message,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from ._stream import Model, StreamFn
from ._tool import AgentContext, ToolExecutionMode, ToolResult

_T = TypeVar("_T")
_MaybeAwaitable: TypeAlias = _T | Awaitable[_T]

ToolPreparation: TypeAlias = Literal["serial", "parallel"]
"""Whether the calls of a parallel batch are prepared one after the other, or each in its own task."""


# ------------------------------------------------------------- tool hooks


@final
@attrs.frozen
class BeforeToolCallContext:
    """What ``before_tool_call`` gets."""

    assistant_message: AssistantMessage
    """The answer that asked for the call."""
    tool_call: ToolCall
    """The call with its raw arguments."""
    args: dict[str, Any]
    """The validated arguments, as the tool will get them. The hook may change them in place."""
    context: AgentContext
    """The context when the call is prepared."""


@final
@attrs.frozen
class BeforeToolCallResult:
    """What ``before_tool_call`` may answer; None lets the call run."""

    block: bool = False
    """True makes an error result of the call in place of running it."""
    reason: str | None = None
    """The text of that result."""
    terminate: bool = False
    """The hint of that result that no request need follow."""


@final
@attrs.frozen
class AfterToolCallContext:
    """What ``after_tool_call`` gets."""

    assistant_message: AssistantMessage
    """The answer that asked for the call."""
    tool_call: ToolCall
    """The call with its raw arguments."""
    args: dict[str, Any]
    """The validated arguments, as the tool got them."""
    result: ToolResult
    """What came of the call."""
    is_error: bool
    context: AgentContext
    """The context when the call was prepared."""


@final
@attrs.frozen
class AfterToolCallResult:
    """What ``after_tool_call`` may answer: each field that is not None replaces the result's.

    Nothing is merged deeply. ``content`` given alone drops the structured content, which may no
    longer fit it.
    """

    content: Sequence[Content] | str | None = None
    details: Any = None
    structured_content: Any = None
    usage: Usage | None = None
    is_error: bool | None = None
    terminate: bool | None = None


# ------------------------------------------------------------- turn hooks


@final
@attrs.frozen
class AgentTurnContext:
    """What ``finish_turn`` and ``prepare_next_turn`` get."""

    message: AssistantMessage
    """The answer of the turn."""
    tool_results: tuple[ToolResultMessage, ...]
    """Its results, in source order."""
    context: AgentContext
    """The context, answer and results included."""
    new_messages: Sequence[AgentMessage]
    """What the run has added so far."""


AgentTurnDecision: TypeAlias = Literal["continue", "end"]
"""What ``finish_turn`` may answer.

``end``: the run ends after ``turn_end``; no queue is read. ``continue``: one more request is made;
tool results, steering or a follow-up that cause one anyway satisfy it.
"""


@final
@attrs.frozen
class AgentLoopTurnUpdate:
    """What ``prepare_next_turn`` may answer; fields that are None change nothing."""

    context: AgentContext | None = None
    """In place of the context, for this and later turns."""
    messages: Sequence[AgentMessage] = ()
    """Appended before the request, with their events, ahead of queued messages."""
    model: Model | None = None
    thinking_level: ThinkingLevel | None = None


@final
@attrs.frozen
class PrepareRequestContext:
    """What ``prepare_request`` gets."""

    context: AgentContext
    model: Model
    thinking_level: ThinkingLevel


@final
@attrs.frozen
class AgentRequestUpdate:
    """What ``prepare_request`` may answer; fields that are None change nothing."""

    context: AgentContext | None = None
    """In place of the context, for this and later requests."""
    model: Model | None = None
    thinking_level: ThinkingLevel | None = None


class GetQueuedMessages(Protocol):
    """Hands out queued messages: ``get_steering_messages`` and ``get_follow_up_messages``.

    It may have a method ``put_back(messages)``: messages that were handed out but not taken when
    the run was cut go back through it. Without one they are appended to the transcript.
    """

    def __call__(self) -> _MaybeAwaitable[Sequence[AgentMessage]]:
        """The messages to take now; none is an empty sequence."""
        ...


BeforeToolCall: TypeAlias = Callable[..., _MaybeAwaitable["BeforeToolCallResult | None"]]
"""``before_tool_call``: ``(BeforeToolCallContext)``; see :class:`LoopConfig`."""
AfterToolCall: TypeAlias = Callable[..., _MaybeAwaitable["AfterToolCallResult | None"]]
"""``after_tool_call``: ``(AfterToolCallContext)``."""
FinishTurn: TypeAlias = Callable[..., _MaybeAwaitable["AgentTurnDecision | None"]]
"""``finish_turn``: ``(AgentTurnContext)``."""
PrepareNextTurn: TypeAlias = Callable[..., _MaybeAwaitable["AgentLoopTurnUpdate | None"]]
"""``prepare_next_turn``: ``(AgentTurnContext)``."""
PrepareRequest: TypeAlias = Callable[..., _MaybeAwaitable["AgentRequestUpdate | None"]]
"""``prepare_request``: ``(PrepareRequestContext)``."""
TransformContext: TypeAlias = Callable[..., _MaybeAwaitable[Sequence[AgentMessage]]]
"""``transform_context``: ``(messages)``."""
ConvertToLlm: TypeAlias = Callable[..., _MaybeAwaitable[Sequence[Message]]]
"""``convert_to_llm``: ``(messages)``."""
GetApiKey: TypeAlias = Callable[..., _MaybeAwaitable["str | None"]]
"""``get_api_key``: ``(provider)``."""
Emit: TypeAlias = Callable[[AgentEvent], "Awaitable[None] | None"]
"""What a loop that is called without an Agent tells its events: ``(event)``, plain or async."""


def should_stop_after_turn(predicate: Callable[..., _MaybeAwaitable[bool]]) -> FinishTurn:
    """Make a ``finish_turn`` of the ``should_stop_after_turn`` hook of pi 0.73.

    Args:
      predicate: gets the :class:`AgentTurnContext` (and the Abort, if it takes one more); true ends
        the run. It is not asked about turns that ended with an error or were aborted.
    """
    callback = Callback(predicate, 1)

    async def finish_turn(turn: AgentTurnContext, abort: Any) -> AgentTurnDecision | None:
        if turn.message.stop_reason in ("error", "aborted"):
            return None
        return "end" if await callback.call(turn, abort) else None

    return finish_turn


# ---------------------------------------------------------------- config


@final
@attrs.frozen
class RunLimits:
    """Where a run stops by itself. Each limit ends it in order, with a reason that says which."""

    turns: int | None = None
    """Requests. The run ends after that turn; its results stand, queued messages stay queued."""
    tool_calls: int | None = None
    """Calls. Those beyond get an error result, and the run ends after that turn."""
    seconds: float | None = None
    """Time on Trio's clock. When it is up the run is aborted."""

    def __attrs_post_init__(self) -> None:
        for name in ("turns", "tool_calls", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"the limit {name} is {value!r}, but must be above 0, or None for no limit")


def _among(*choices: str) -> Callable[[Any, Any, Any], None]:
    def check(instance: Any, attribute: Any, value: Any) -> None:
        check_choice(attribute.name, value, choices)

    return check


def _at_least(least: float, remedy: str) -> Callable[[Any, Any, Any], None]:
    def check(instance: Any, attribute: Any, value: Any) -> None:
        if value is not None and not value >= least:
            raise UsageError(f"{attribute.name} is {value!r}, but must be at least {least}{remedy}")

    return check


@attrs.define(eq=False, kw_only=True)
class LoopSettings:
    """What a loop can be told; an :class:`Agent` has these as attributes that may be set at any time."""

    stream_fn: StreamFn | None = None
    """How the model is reached; by default the model's own stream function, else the process's."""
    thinking_level: ThinkingLevel = attrs.field(default="off", validator=_among(*get_args(ThinkingLevel)))
    """How much the model is asked to think."""
    api_key: str | None = attrs.field(default=None, repr=False)
    """Used where ``get_api_key`` is missing or gives none."""
    session_id: str | None = None
    """For providers that cache by session."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """What only the stream function reads."""

    transform_context: TransformContext | None = None
    """``(messages) -> messages``: prunes or adds, at every request."""
    convert_to_llm: ConvertToLlm | None = None
    """``(messages) -> messages``: makes what a model can be sent; by default the four roles pass."""
    get_api_key: GetApiKey | None = None
    """``(provider) -> key``: asked at every request."""
    prepare_request: PrepareRequest | None = None
    """``(PrepareRequestContext) -> AgentRequestUpdate | None``, right before every request."""
    prepare_next_turn: PrepareNextTurn | None = None
    """``(AgentTurnContext) -> AgentLoopTurnUpdate | None``, before every turn but the first."""
    finish_turn: FinishTurn | None = None
    """``(AgentTurnContext) -> "end" | "continue" | None``, before every ``turn_end``."""
    before_tool_call: BeforeToolCall | None = None
    """``(BeforeToolCallContext) -> BeforeToolCallResult | None``; an exception blocks the call."""
    after_tool_call: AfterToolCall | None = None
    """``(AfterToolCallContext) -> AfterToolCallResult | None``; an exception is the result."""

    tool_execution: ToolExecutionMode = attrs.field(default="parallel", validator=_among("parallel", "sequential"))
    """Whether the calls of a message run side by side or one after the other."""
    tool_preparation: ToolPreparation = attrs.field(default="serial", validator=_among("serial", "parallel"))
    """``parallel`` prepares and runs each call in one task, so that several approvals can be pending."""
    max_parallel_tools: int | None = attrs.field(default=None, validator=_at_least(1, ", or None for no limit"))
    """Calls of a batch that run at the same time; None is no limit."""
    limits: RunLimits = attrs.field(factory=RunLimits)
    """Where a run stops by itself."""
    closing_grace: float = attrs.field(default=1.0, validator=_at_least(0, " seconds"))
    """Seconds that listeners have in all once the host has cancelled (design 7.5)."""
    repeat_partial: bool = False
    """True lets the result of a cut call carry the last update that was told (known fault B11)."""


@final
@attrs.frozen(eq=False, kw_only=True)
class LoopConfig(LoopSettings):
    """The settings of a loop that is called without an Agent; read when a run starts."""

    model: Model
    """Who answers."""
    get_steering_messages: GetQueuedMessages | None = None
    """``() -> messages``: asked before every request, and when a run starts."""
    get_follow_up_messages: GetQueuedMessages | None = None
    """``() -> messages``: asked when the run would otherwise end."""


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a setting that is none of its choices."""
    if value not in choices:
        raise UsageError(f"{name} is {value!r}, but must be one of {', '.join(map(repr, choices))}")
