"""What is open in a run, and what is missing to close it.

:class:`Record` is changed synchronously, before any listener hears of the change. Closing is data:
:func:`missing` derives from the record the events that still have to come, in their order
(design 7.5), whatever it was that cut the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias, cast, final

import attrs
import trio

from ._abort import Abort, Cut, Piece
from ._events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    EndReason,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
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
from ._stream import Model, StreamEvent
from ._tool import AgentContext, Tool, ToolResult
from ._transcript import Track, repair_call_ids


def error_result(text: str, kind: ErrorKind | None, *, terminate: bool = False) -> ToolResult:
    """A result that is an error of the library's own, or the text of an exception."""
    return ToolResult((TextContent(text),), is_error=True, terminate=terminate, error_kind=kind)


def error_text(error: BaseException) -> str:
    """What an exception says, or what it is if it says nothing."""
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
    """The last event that was applied."""
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
    args: dict[str, Any] = attrs.field(factory=dict)
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
    post: Callable[[Call], None] | None = None
    """Wakes the deliverer."""
    on_update: Callable[[ToolResult], None] | None = None
    """Gets the updates of a call without a deliverer."""
    token: trio.lowlevel.TrioToken | None = None
    """How a thread that the tool started itself gets back."""

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
        result = cast("ToolResult", self.outcome)
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

    __slots__ = ("_by_id", "answer", "calls", "each_result", "sequential")

    def __init__(
        self, abort: Abort, answer: AssistantMessage, context: AgentContext, *, sequential: bool, each_result: bool
    ) -> None:
        self.answer = answer
        self.calls = [Call(abort, tool_call, context) for tool_call in answer.tool_calls]
        self.sequential = sequential
        self.each_result = each_result
        """Whether each result message follows its call (sequential and ``length`` batches)."""
        self._by_id: dict[str, Call] | None = None

    def find(self, call_id: str) -> Call | None:
        """The call with an id."""
        if self._by_id is None:
            self._by_id = {call.tool_call.id: call for call in self.calls}
        return self._by_id.get(call_id)

    def cut_off(self, cut: Cut) -> None:
        """Cut every call that is not over."""
        for call in self.calls:
            if not call.over:
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
        self.finish_told = False
        """``finish_turn`` was called in this turn."""
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
        if messages is not self.track.messages and messages != self.track.view():
            self.track = Track(messages)
        self.tools = tuple(context.tools)

    # Queued messages.

    def hand_out(self, messages: Sequence[AgentMessage], source: GetQueuedMessages) -> None:
        """Remember what a queue gave, until it is taken."""
        self.handed = list(messages)
        self.source = source if self.handed else None

    def take(self, message: AgentMessage) -> None:
        """A handed message gets its ``message_start`` now: it is out of its queue for good."""
        self.handed = [handed for handed in self.handed if handed is not message]
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
        truncated = answer.stop_reason == "length"
        sequential = self.config.tool_execution == "sequential"
        if not sequential and any(tool.execution_mode == "sequential" for tool in self.tools):
            modes = {tool.name: tool.execution_mode for tool in reversed(self.tools)}
            sequential = any(modes.get(call.name) == "sequential" for call in answer.tool_calls)
        self.batch = Batch(
            self.abort, answer, self.context(), sequential=sequential, each_result=sequential or truncated
        )
        return self.batch

    def close_batch(self) -> None:
        """The batch is over: its results join the context."""
        batch = cast("Batch", self.batch)
        self.owed = not all(cast("ToolResult", call.outcome).terminate for call in batch.calls)
        for message in self.results:
            self.track.append(message)
        self.new_messages.extend(self.results)
        self.batch = None

    # Events.

    def apply(self, event: AgentEvent) -> None:
        """Let the record contain an event."""
        change = self._changes.get(type(event))
        if change is not None:
            change(self, event)

    def _agent_start(self, event: AgentStart) -> None:
        self.started = True

    def _turn_start(self, event: TurnStart) -> None:
        self.turn_open = True
        self.finish_told = False
        self.answer = None
        self.results = []

    def _message_start(self, event: MessageStart) -> None:
        message = event.message
        if self.prompts and self.prompts[0] is message:
            self.prompts.popleft()
        if self.response is not None:
            self.response.started = True
            self.track.append_partial(cast("AssistantMessage", message))
        else:
            self.message = message

    def _message_update(self, event: MessageUpdate) -> None:
        cast("Response", self.response).told = event.assistant_message_event

    def _message_end(self, event: MessageEnd) -> None:
        message = event.message
        self.message = None
        if type(message) is ToolResultMessage:
            self.results.append(message)
            return
        self.track.append(message)
        self.new_messages.append(message)
        if type(message) is AssistantMessage:
            self.answer = message
            self.response = None
            self.owed = False

    def _turn_end(self, event: TurnEnd) -> None:
        self.turn_open = False

    def _agent_end(self, event: AgentEnd) -> None:
        self.ended = True

    _changes: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        AgentStart: _agent_start,
        TurnStart: _turn_start,
        MessageStart: _message_start,
        MessageUpdate: _message_update,
        MessageEnd: _message_end,
        TurnEnd: _turn_end,
        AgentEnd: _agent_end,
    }

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
        return f"Operation cancelled by the host{when}"

    def closing_reason(self) -> EndReason:
        """Why a run ends that was cut."""
        if self.cancelled is not None or self.fatal is not None:
            return "cancelled"
        if self.failure is not None:
            return "error"
        return "deadline" if self.out_of_time else "aborted"


# ---------------------------------------------------------------- missing


@final
@attrs.frozen
class FinishTurn:
    """Stands among the missing events where ``finish_turn`` is called, if it still may be."""


Step: TypeAlias = AgentEvent | FinishTurn


def missing(record: Record) -> Iterator[Step]:
    """What has still to come so that everything open gets its end, in order.

    Each step is applied before the next is asked for; a failure on the way counts for what follows.
    """
    if not record.started or record.ended:
        return
    if record.message is not None:
        yield MessageEnd(record.message)
    if record.prompts and not record.turn_open:
        yield TurnStart()
    while record.prompts:
        message = record.prompts[0]
        yield MessageStart(message)
        yield MessageEnd(message)
    yield from missing_work(record)
    if record.turn_open:
        failed_here = record.failure is not None and not record.recorded and not record.results
        if record.answer is None or failed_here:
            yield from _recorded(record)
        yield FinishTurn()
        yield TurnEnd(cast("AssistantMessage", record.answer), tuple(record.results))
    if not record.recorded and (record.owed or record.failure is not None):
        yield TurnStart()
        yield from _recorded(record)
        yield FinishTurn()
        yield TurnEnd(cast("AssistantMessage", record.answer))
    record.end_reason = record.closing_reason()
    yield AgentEnd(tuple(record.new_messages), record.end_reason)


def missing_work(record: Record) -> Iterator[Step]:
    """What has still to come of the response or batch that is open."""
    response = record.response
    if response is not None:
        if response.ready is not None:
            for event in response.untold if response.started else ():
                yield MessageUpdate(event)
            message = final_message(record, response.ready)
        else:
            message = _cut_message(record, response)
            # An interrupt is no end: what cuts the run after it is recorded by itself.
            record.recorded = record.interrupted is None or record.cut or record.failure is not None
        if not response.started:
            yield MessageStart(message)
        yield MessageEnd(message)
    answer = record.answer
    if (
        record.batch is None
        and record.turn_open
        and answer is not None
        and answer.stop_reason not in ("error", "aborted")
        and not record.results
        and answer.tool_calls
    ):
        record.open_batch(answer)
    if record.batch is not None:
        yield from _missing_calls(record, record.batch)
        record.close_batch()


def final_message(record: Record, message: AssistantMessage) -> AssistantMessage:
    """The answer as it goes into the transcript: with ids that tell its calls apart, and what was asked for."""
    return attrs.evolve(repair_call_ids(message), thinking_level=record.thinking_level)


def _missing_calls(record: Record, batch: Batch) -> Iterator[Step]:
    later: list[Call] = []
    for call in batch.calls:
        if call.prepared and not call.ended and not batch.each_result:
            later.append(call)
            continue
        yield from _missing_execution(record, call)
        if batch.each_result:
            yield from _missing_result(record, call)
    for call in later:
        yield from _missing_execution(record, call)
    if not batch.each_result:
        for call in batch.calls:
            yield from _missing_result(record, call)


def _missing_execution(record: Record, call: Call) -> Iterator[Step]:
    tool_call = call.tool_call
    if not call.started:
        call.started = True
        yield ToolExecutionStart(tool_call.id, tool_call.name, tool_call.arguments)
    if not call.ended:
        call.ended = True
        call.over = True
        if call.outcome is None:
            call.outcome = cut_result(record, call)
        yield ToolExecutionEnd(tool_call.id, tool_call.name, call.outcome, call.outcome.is_error)


def _missing_result(record: Record, call: Call) -> Iterator[Step]:
    if not call.result_started:
        call.result_started = True
        message = call.result_message()
        yield MessageStart(message)
        yield MessageEnd(message)


def cut_result(record: Record, call: Call) -> ToolResult:
    """What the transcript says of a call that has no outcome of its own; it says what happened."""
    if not call.entered:
        return error_result(f"{record.why(piece=call)}. The call never started.", "not_started")
    if call.returned is not None:
        return error_result(
            f"{record.why(' before after_tool_call was through', call)}. "
            "The tool had returned and its effects stand; its result is withheld.",
            "withheld",
        )
    if call.cut is not None and call.cut.cause == "timeout":
        return error_result(timeout_text(call), "timeout")
    text = f"{record.why(' while the tool ran', call)}. It may have had effects.{_unwound(call)}"
    if record.config.repeat_partial and call.last_update is not None and call.last_update.text:
        text += f"\nIts last report was: {call.last_update.text}"
    return error_result(text, "aborted")


def timeout_text(call: Call) -> str:
    """What is said of a call whose time limit passed."""
    limit = cast("Tool", call.tool).timeout
    return f"The tool exceeded its time limit of {limit:g} s. It may have had effects.{_unwound(call)}"


def _unwound(call: Call) -> str:
    """How a call that was cut came to its end."""
    tool = cast("Tool", call.tool)
    text = ""
    if not tool.is_async and tool.in_thread and tool.abandon_on_cancel:
        text += " Its thread was left behind and may still be running."
    if call.raised is not None:
        text += f"\nWhile it was cut the tool raised {type(call.raised).__name__}: {call.raised}"
    return text


def told_so_far(record: Record, response: Response) -> AssistantMessage:
    """The part of an answer that the listeners were told."""
    if response.told is not None:
        return response.told.partial
    return AssistantMessage(provider=record.model.provider, model=record.model.id)


def _cut_message(record: Record, response: Response) -> AssistantMessage:
    """A response that was cut: the content that was told, and why."""
    failed = record.failure is not None and not record.failed_aborted
    if failed and not response.started:
        return _failure_message(record)
    return attrs.evolve(
        told_so_far(record, response),
        stop_reason="error" if failed else "aborted",
        error_message=error_text(cast("Exception", record.failure)) if failed else record.why(piece=response),
        error_kind="failed" if failed else "aborted",
        thinking_level=record.thinking_level,
    )


def _failure_message(record: Record) -> AssistantMessage:
    return AssistantMessage(
        (TextContent(""),),
        stop_reason="aborted" if record.failed_aborted else "error",
        error_message=error_text(cast("Exception", record.failure)),
        error_kind="failed",
        provider=record.model.provider,
        model=record.model.id,
    )


def _recorded(record: Record) -> Iterator[Step]:
    """The assistant message that says in the transcript that the run was cut."""
    if record.failure is not None:
        message = _failure_message(record)
    else:
        message = AssistantMessage(
            stop_reason="aborted",
            error_message=record.why(),
            error_kind="aborted",
            provider=record.model.provider,
            model=record.model.id,
            thinking_level=record.thinking_level,
        )
    record.recorded = True
    yield MessageStart(message)
    yield MessageEnd(message)
