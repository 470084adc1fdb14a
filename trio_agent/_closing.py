"""What is missing to close a run.

Closing is data: :func:`missing` derives from the record of what is open the events that still have
to come, in their order (design 7.5), whatever it was that cut the run. What the transcript says of
work that was cut is worded here too (design 7.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast, final

import attrs

from ._events import (
    AgentEnd,
    AgentEvent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from ._messages import AssistantMessage, TextContent
from ._open import Batch, Call, Record, Response, error_result, error_text
from ._tool import Tool, ToolResult
from ._transcript import repair_call_ids
from ._values import changed


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
            message = response.ready = _cut_message(record, response)  # also where its message_start is cut, too
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
    return changed(repair_call_ids(message), thinking_level=record.thinking_level)


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
        text += f"\nWhile it was cut the tool raised {type(call.raised).__name__}: {error_text(call.raised)}"
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
