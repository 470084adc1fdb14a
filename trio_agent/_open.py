"""What is open in a run, and what is missing to close it.

:class:`Record` is changed synchronously, before any listener hears of the change. Closing is data:
:func:`missing` derives from the record the events that still have to come, in their order
(design 7.5), whatever it was that cut the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import attrs
import trio

from ._abort import Abort, Cut, Piece
from ._events import AgentEnd, AgentStart, EndReason, MessageEnd, MessageStart, TurnEnd, TurnStart
from ._hooks import GetQueuedMessages, LoopConfig
from ._messages import (
    AgentMessage,
    AssistantMessage,
    ErrorKind,
    TextContent,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
)
from ._stream import Line, Model, StreamEvent
from ._tool import AgentContext, Tool, ToolResult
from ._transcript import MessageView, Track


def error_result(text: str, kind: ErrorKind | None, *, terminate: bool = False) -> ToolResult:
    """A result that is an error of the library's own, or the text of an exception."""
    return ToolResult((TextContent(text),), is_error=True, terminate=terminate, error_kind=kind)


def error_text(error: BaseException) -> str:
    """What an exception says, or what it is if it says nothing; of a group, what each in it says."""
    if isinstance(error, BaseExceptionGroup):
        inner = [error_text(one) for one in error.exceptions]
        return inner[0] if len(inner) == 1 else "\n".join((f"{error.message}:", *inner))
    return str(error) or repr(error)


# ----------------------------------------------------------- pieces of work


@final
@attrs.define(eq=False)
class Response(Piece):
    """One model response, while it streams."""

    ready: AssistantMessage | None = None
    """What the stream function returned."""
    error: Exception | None = None
    """What it raised."""
    started: bool = False
    """``message_start`` was applied."""
    told: StreamEvent | None = None
    """The last event that was taken to be applied at once."""
    untold: Sequence[StreamEvent] = ()
    """What a complete answer had sent and was not told when the run's task was cut."""

    def cut_off(self, cut: Cut) -> None:
        """A complete answer is kept: there is nothing left to cut."""
        if self.ready is None:
            super().cut_off(cut)


@final
@attrs.define(eq=False)
class Call(Piece):
    """One tool call of a batch, or one that a tool made."""

    tool_call: ToolCall
    context: AgentContext
    depth: int = 0
    """How many calls stand around it."""
    tool: Tool | None = None
    args: dict[str, Any] = attrs.field(init=False)
    """What the tool gets; unset until the arguments have been validated."""
    started: bool = False
    """``tool_execution_start`` was applied."""
    prepared: bool = False
    """It may run."""
    entered: bool = False
    """The body was entered."""
    over: bool = False
    """The body is over, or never will be entered: nothing can be cut any more."""
    returned: ToolResult | None = None
    """What the body came to, before ``after_tool_call``."""
    raised: Exception | None = None
    """What the body raised; told only where it was cut."""
    fatal: BaseException | None = None
    """What came up in it that is neither an Exception nor Cancelled; the run's task raises it."""
    outcome: ToolResult | None = None
    """The final result."""
    through: bool = False
    """Its task is through, ``after_tool_call`` too."""
    counted: bool = False
    """The deliverer knows that it is."""
    ended: bool = False
    """``tool_execution_end`` was applied."""
    result_started: bool = False
    """``message_start`` of its result message was applied."""
    untold: ToolResult | None = None
    """The update that was handed over and is not told yet; there is at most one."""
    last_update: ToolResult | None = None
    """The last one that was told."""
    waiter: trio.Event | None = None
    """Whoever waits until the update is told."""
    deaf: bool = False
    """Nobody listens for updates any more."""
    posts: Line[Call] | None = None
    """Where the deliverer of its batch looks."""
    on_update: Callable[[ToolResult], None] | None = None
    """Gets the updates of a call without a deliverer."""
    token: trio.lowlevel.TrioToken | None = None
    """How a thread that the tool started itself gets back."""

    def finish(self) -> None:
        """The last act of the call's task."""
        self.through = True
        if self.posts is not None:
            self.posts.append(self)

    def hear_no_more(self) -> None:
        """Let updates be ignored from now on, those too that somebody waits to hand over."""
        self.deaf = True
        self.update_told()

    def update_told(self) -> None:
        """The update that was handed over is told, or dropped: the next may come."""
        self.untold = None
        if self.waiter is not None:
            self.waiter.set()
            self.waiter = None

    def result_message(self) -> ToolResultMessage:
        """The outcome as a message."""
        result = self.outcome
        assert result is not None
        return ToolResultMessage(
            self.tool_call.id,
            self.tool_call.name,
            result.content,
            details=result.details,
            is_error=result.is_error,
            error_kind=result.error_kind,
            usage=result.usage,
        )


@final
class Batch:
    """The tool calls of one answer."""

    def __init__(self, record: Record, answer: AssistantMessage, *, sequential: bool) -> None:
        self.answer = answer
        context = record.context()
        self.calls = [Call(record.abort, tool_call, context) for tool_call in answer.tool_calls]
        self.sequential = sequential
        self.each_result = sequential or answer.stop_reason == "length"
        """Whether each result message follows its call (sequential and ``length`` batches)."""
        self._by_id: dict[str, Call] | None = None

    def find(self, call_id: str) -> Call | None:
        """The call with an id."""
        if self._by_id is None:
            self._by_id = {call.tool_call.id: call for call in self.calls}
        return self._by_id.get(call_id)

    def cut_off(self, cut: Cut) -> None:
        """Cut every call that is not over. After an abort, those whose scope is not open begin no more by themselves."""
        reason = cut.text("work")
        for call in self.calls:
            if call.scope is not None and call.cut is None and not call.timed:
                # What call.cut_off(cut) does. Its frame would live in the traceback of each Cancelled, and there are
                # thousands of them for the garbage collector to look at.
                call.cut = cut
                call.scope.cancel(reason=reason)
            elif call.scope is not None or (cut.cause != "abort" and not call.over):
                call.cut_off(cut)


# ----------------------------------------------------------------- record


@final
class Record:
    """What a run has done and what is open in it."""

    def __init__(self, config: LoopConfig, context: AgentContext, abort: Abort) -> None:
        self.config = config
        self.abort = abort
        self.track = Track(context.messages)
        self.tools: Sequence[Tool] = tuple(context.tools)
        self.model: Model = config.model
        self.thinking_level: ThinkingLevel = config.thinking_level
        self.new_messages: list[AgentMessage] = []
        # What is open.
        self.started = False
        self.ended = False
        self.turn_open = False
        self.message: AgentMessage | None = None
        """A message that has started and not ended, but for answers that stream."""
        self.answer: AssistantMessage | None = None
        """The answer of the open turn."""
        self.response: Response | None = None
        self.batch: Batch | None = None
        self.results: list[ToolResultMessage] = []
        """The result messages of the open turn."""
        self.owed = True
        """Whether a request is due because of what the transcript holds."""
        self.recorded = False
        """Whether the transcript says already that the run was cut."""
        # Messages that have still to be appended, and those that may be.
        self.prompts: deque[AgentMessage] = deque()
        self.handed: list[AgentMessage] = []
        self.source: GetQueuedMessages | None = None
        # Why the run is cut.
        self.interrupted: Cut | None = None
        self.fatal: BaseException | None = None
        self.cancelled: BaseException | None = None
        self.failure: Exception | None = None
        self.failed_in_hook = False
        self.stream_error: Exception | None = None
        """What the stream function raised; an answer of stop reason ``error`` tells of it."""
        self.failed_aborted = False
        """Whether the run was aborted or cancelled already when it failed."""
        self.out_of_time = False
        self.end_reason: EndReason = "done"
        # Counters for the limits.
        self.turns = 0
        self.tool_calls = 0
        self.limit_hit = False
        """A call was refused because of the limit of tool calls."""

    def context(self) -> AgentContext:
        """The context as it is now."""
        return AgentContext(self.track.view(), self.tools)

    def replace_context(self, context: AgentContext) -> None:
        """Go on with another context. The caller's own is not changed by what follows."""
        messages = context.messages
        if not (isinstance(messages, MessageView) and messages.shows_all_of(self.track.messages)):
            self.track = Track(messages)
        self.tools = tuple(context.tools)

    # Queued messages.

    def hand_out(self, messages: Sequence[AgentMessage], source: GetQueuedMessages) -> None:
        """Remember what a queue gave, until it is taken."""
        self.handed = list(messages)
        self.source = source if self.handed else None

    def take(self, message: AgentMessage) -> None:
        """A handed message gets its ``message_start`` now: it is out of its queue for good."""
        at = next(index for index, handed in enumerate(self.handed) if handed is message)
        del self.handed[at]  # one only: a message may be queued twice
        taken = getattr(self.source, "taken", None)
        if taken is not None:
            taken(message)

    def give_back(self) -> None:
        """Return what was handed out and not taken; without a way back it will be appended."""
        handed, source = self.handed, self.source
        self.handed, self.source = [], None
        put_back = getattr(source, "put_back", None)
        if put_back is None:
            self.prompts.extend(handed)
        elif handed:
            put_back(handed)

    # Batches.

    def open_batch(self, answer: AssistantMessage) -> Batch:
        """Take up the tool calls of an answer."""
        sequential = self.config.tool_execution == "sequential"
        if not sequential and any(tool.execution_mode == "sequential" for tool in self.tools):
            modes = {tool.name: tool.execution_mode for tool in reversed(self.tools)}
            sequential = any(modes.get(call.name) == "sequential" for call in answer.tool_calls)
        self.batch = Batch(self, answer, sequential=sequential)
        # The Abort knows the batch, and not each of its calls: 30 to 47 bytes for each, and part of 0.3 microseconds.
        self.abort._pieces[self.batch] = None
        return self.batch

    def close_batch(self) -> None:
        """The batch is over: its results join the context."""
        batch = cast("Batch", self.batch)
        self.owed = not all(call.outcome is not None and call.outcome.terminate for call in batch.calls)
        self.track.extend(self.results)
        self.new_messages.extend(self.results)
        del self.abort._pieces[batch]
        self.batch = None

    # Events.

    def _boundary(self, event: Any) -> None:
        kind = type(event)
        if kind is TurnStart:
            self.turn_open, self.answer, self.results = True, None, []
        elif kind is TurnEnd:
            self.turn_open = False
        elif kind is AgentStart:
            self.started = True
        else:
            self.ended = True

    def _message_start(self, event: MessageStart) -> None:
        message = event.message
        if self.prompts and self.prompts[0] is message:
            self.prompts.popleft()
        if self.response is not None:
            self.response.started = True
            self.track.append_partial(cast("AssistantMessage", message))
        else:
            self.message = message

    def _message_end(self, event: MessageEnd) -> None:
        message = event.message
        self.message = None
        if type(message) is ToolResultMessage:
            self.results.append(message)
            return
        self.track.append(message)
        self.new_messages.append(message)
        if type(message) is AssistantMessage:
            self.answer, self.response, self.owed = message, None, False

    # Causes.

    @property
    def cut(self) -> bool:
        """Whether nothing may be begun any more."""
        return self.abort.requested or self.cancelled is not None or self.fatal is not None

    def why(self, when: str = "", piece: Piece | None = None) -> str:
        """Why work was cut, as a sentence without its full stop; ``when`` goes into its middle."""
        cut = piece.cut if piece is not None else None
        if cut is None and self.abort.requested:
            cut = self.abort.cut
        if cut is None:
            cut = self.interrupted
        if cut is not None:
            return cut.text("Operation", when)
        if self.failure is not None and not self.failed_aborted:
            return f"Operation stopped{when} because the run failed: {error_text(self.failure)}"
        reason = (
            getattr(self.cancelled, "reason", None) if getattr(self.cancelled, "source", "") == "explicit" else None
        )
        return f"Operation cancelled by the host{when}" + (f": {reason}" if reason else "")

    def closing_reason(self) -> EndReason:
        """Why a run ends that was cut."""
        if self.cancelled is not None or self.fatal is not None:
            return "cancelled"
        if self.failure is not None:
            return "error"
        return "deadline" if self.out_of_time else "aborted"


RECORDED: dict[type, Callable[[Record, Any], None]] = {
    MessageStart: Record._message_start,
    MessageEnd: Record._message_end,
    **dict.fromkeys((AgentStart, TurnStart, TurnEnd, AgentEnd), Record._boundary),
}
"""How a record changes with an event. Those of a call or a response stand there before they are told."""
