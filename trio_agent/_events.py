"""What a run tells: one class for each event, and their union (pi's ``AgentEvent``).

Every start has its end, once; ``agent_end`` is the last event of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, final

import attrs

from ._messages import AgentMessage, AssistantMessage, ToolResultMessage
from ._stream import StreamEvent
from ._tool import ToolResult
from ._values import quickly_made

EndReason: TypeAlias = Literal[
    "done",
    "terminated",
    "finish_turn",
    "stop_after_turn",
    "max_turns",
    "max_tool_calls",
    "aborted",
    "deadline",
    "cancelled",
    "error",
]
"""Why a run ended.

``done``: there was nothing more to do; ``terminated``: every result of the last batch said so;
``finish_turn``: the hook decided it; ``stop_after_turn``: the host asked for it; ``max_turns``,
``max_tool_calls``, ``deadline``: a limit of the run; ``aborted``: ``abort()``; ``cancelled``: the
host's cancel scope or a key interrupt; ``error``: a model, hook or listener failed.
"""


@final
@attrs.frozen
class AgentStart:
    """A run begins."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"


@final
@attrs.frozen
class TurnStart:
    """A turn begins: one request, and the tool calls that its answer asks for."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"


@final
@quickly_made
@attrs.frozen
class MessageStart:
    """A message begins; an answer is still partial."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message: AgentMessage


@final
@quickly_made
@attrs.frozen
class MessageUpdate:
    """An answer grew."""

    type: ClassVar[Literal["message_update"]] = "message_update"
    assistant_message_event: StreamEvent
    """What came."""

    @property
    def message(self) -> AssistantMessage:
        """The answer so far; built anew whenever somebody asks."""
        return self.assistant_message_event.partial


@final
@quickly_made
@attrs.frozen
class MessageEnd:
    """A message is complete and stands in the transcript."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    message: AgentMessage


@final
@quickly_made
@attrs.frozen
class ToolExecutionStart:
    """A call is taken up."""

    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"
    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]
    """The arguments as the model sent them."""


@final
@quickly_made
@attrs.frozen
class ToolExecutionUpdate:
    """A tool reports progress."""

    type: ClassVar[Literal["tool_execution_update"]] = "tool_execution_update"
    tool_call_id: str
    tool_name: str
    args: Mapping[str, Any]
    """The arguments as the model sent them."""
    partial_result: ToolResult


@final
@quickly_made
@attrs.frozen
class ToolExecutionEnd:
    """A call is over, its hooks too."""

    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    tool_call_id: str
    tool_name: str
    result: ToolResult
    is_error: bool


@final
@attrs.frozen
class TurnEnd:
    """A turn is over."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    message: AssistantMessage
    """The answer of the turn."""
    tool_results: tuple[ToolResultMessage, ...] = ()
    """Its results, in source order."""


@final
@attrs.frozen
class AgentEnd:
    """The run is over; no event follows."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    messages: tuple[AgentMessage, ...]
    """What the run added to the transcript."""
    end_reason: EndReason = "done"
    """Why it ended."""


AgentEvent: TypeAlias = (
    AgentStart
    | TurnStart
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
)
"""What listeners get."""
