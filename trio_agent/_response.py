"""One model response: stream in, message out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, cast

import attrs
import trio

from ._abort import WorkCut
from ._closing import final_message, told_so_far
from ._door import Parts, bare, enter, host_cancelled
from ._events import AgentEvent, MessageEnd, MessageStart, MessageUpdate
from ._messages import AgentMessage, AssistantMessage
from ._open import Response, error_text
from ._run import Run
from ._stream import Line, ModelRequest, StreamFn, StreamSink, StreamStart, checked_answer, resolve_stream_fn
from ._transcript import default_convert_to_llm, normalize_context


async def respond(run: Run) -> AssistantMessage:
    """Ask the model once, tell its answer as it comes, and return it.

    A failure of the stream function is an answer too, of stop reason ``error``.

    Raises:
      WorkCut: the response was cut; what was told of it is still open.
    """
    record, config = run.record, run.config
    request = await _request(run)
    stream_fn = resolve_stream_fn(config.stream_fn, record.model)
    await run.look()
    response = record.response = Response(run.abort)
    line: Line[Any] = Line()
    fatal: list[BaseException] = []
    failed: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask, stream_fn, request, response, line, fatal)
            await _deliver(run, response, line)
    except BaseExceptionGroup as group:
        failed = bare(group.exceptions)
    finally:
        if response.ready is not None:
            # Complete, but the run's task was cut before all of it was told; closing tells the rest.
            response.untold = [event for event in line.items if type(event) is not StreamStart]
    if fatal:
        raise fatal[0]
    if failed is not None:
        raise failed
    if response.ready is None and response.error is None:
        raise WorkCut
    # From here on it is told as it is, also where its message_start is cut and closing tells its end.
    message = response.ready = _final(run, response)
    if not response.started:
        await run.emit(MessageStart(message))
    await run.emit(MessageEnd(message))
    return message


async def _request(run: Run) -> ModelRequest:
    """What the model is sent: transform, convert, normalise, key (design 3)."""
    record, config = run.record, run.config
    context = record.track.view()
    messages: Sequence[AgentMessage] = context
    if config.transform_context is not None:
        messages = await run.hook("transform_context", Sequence, context)
    if config.convert_to_llm is not None:
        converted = await run.hook("convert_to_llm", Sequence, messages)
    elif messages is context:
        converted = record.track.llm_view()
    else:
        converted = default_convert_to_llm(messages)
    api_key = None
    if config.get_api_key is not None:
        api_key = await run.hook("get_api_key", (str, NoneType), record.model.provider)
    return ModelRequest(
        record.model,
        normalize_context(converted),
        record.thinking_level,
        api_key or config.api_key,
        config.session_id,
        config.options,
    )


@trio.lowlevel.enable_ki_protection
async def _ask(
    stream_fn: StreamFn, request: ModelRequest, response: Response, line: Line[Any], fatal: list[BaseException]
) -> None:
    """The stream function's task. Only Cancelled leaves it; all else is an outcome."""
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
        if response.cut is not None or response.abort.requested:
            return
        try:
            with response:
                ready = checked_answer(await enter(stream_fn, request, StreamSink(line)))
                if response.cut is None and not host_cancelled():
                    response.ready = ready
        except BaseException as error:  # noqa: ASYNC103 - the rest is an outcome, Cancelled is raised on
            parts = Parts.of(error)
            if parts.fatal is not None:
                fatal.append(parts.fatal)
            elif parts.failure is not None and response.cut is None:
                response.error = parts.failure
            if parts.cancelled is not None:
                raise parts.cancelled from None  # noqa: ASYNC104 - the Cancelled of a split error
    finally:
        line.end()


async def _deliver(run: Run, response: Response, line: Line[Any]) -> None:
    """Tell what comes until the stream function is through.

    What was accepted but not told when the response is cut is dropped: the transcript holds what the
    listeners saw.
    """
    while await line.wait():
        await run.emit_each(_told(response, line))


def _told(response: Response, line: Line[Any]) -> Iterator[AgentEvent]:
    while line.items:
        event = line.take()
        starts = type(event) is StreamStart
        if response.cut is not None or starts == response.started:
            continue
        response.told = event
        yield MessageStart(event.partial) if starts else MessageUpdate(event)


def _final(run: Run, response: Response) -> AssistantMessage:
    record = run.record
    if response.ready is not None:
        return final_message(record, response.ready)
    error = cast("Exception", response.error)
    record.stream_error = error
    partial = told_so_far(record, response)
    return final_message(
        record, attrs.evolve(partial, stop_reason="error", error_message=error_text(error), error_kind="failed")
    )
