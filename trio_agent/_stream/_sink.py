"""How an answer gets from the stream function to whoever listens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, final

import trio

from trio_agent._door import bare
from trio_agent._errors import NoStreamFnError, StreamError
from trio_agent._messages import AssistantMessage

from ._answer import StreamEvent
from ._line import Line
from ._request import Model, ModelRequest

StreamFn: TypeAlias = "Callable[[ModelRequest, StreamSink], Awaitable[AssistantMessage]]"
"""Asks a model: pushes events into the sink, returns the final message, raises on failure."""

_default_stream_fn: StreamFn | None = None


def set_default_stream_fn(stream_fn: StreamFn | None) -> None:
    """Say how models are reached for which neither agent nor model says it; None forgets it."""
    global _default_stream_fn  # noqa: PLW0603 - a process-wide default, as in pi
    _default_stream_fn = stream_fn


def get_default_stream_fn() -> StreamFn | None:
    """What :func:`set_default_stream_fn` was given last."""
    return _default_stream_fn


def resolve_stream_fn(stream_fn: StreamFn | None, model: Model) -> StreamFn:
    """The stream function for a model: the caller's, else the model's own, else the default."""
    found = stream_fn or model.stream_fn or _default_stream_fn
    if found is None:
        raise NoStreamFnError(
            f"nobody said how the model {model.provider}/{model.id} is reached: give stream_fn=..., "
            "a model that has one, or call set_default_stream_fn()"
        )
    return found


@final
class StreamSink:
    """Where a stream function sends its events: a small bounded buffer in front of the listeners."""

    __slots__ = ("_events", "_line")

    def __init__(self, line: Line[StreamEvent]) -> None:
        self._line = line
        self._events = line.items

    @trio.lowlevel.enable_ki_protection
    async def send(self, event: StreamEvent) -> None:
        """Hand over an event; the listeners get it in order.

        No checkpoint while there is room in the buffer; else it waits until there is. Cancelled
        while waiting, the event is not sent.
        """
        if 0 < len(self._events) < self._line.room:  # so nobody waits on either side
            self._events.append(event)
        else:
            await self._line.put(event)


@final
class ModelStream:
    """The pull form of one answer: iterate over its events, then read :attr:`result`."""

    def __init__(self, line: Line[StreamEvent]) -> None:
        self._line = line
        self._left = False
        self._ready: AssistantMessage | None = None
        self._result: AssistantMessage | None = None
        self._error: Exception | None = None

    def __aiter__(self) -> ModelStream:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> StreamEvent:
        """The next event; raises what the stream function raised, once all events are read."""
        if await self._line.wait():
            return self._line.take()
        if self._left:
            raise trio.ClosedResourceError
        if self._error is not None:
            raise self._error
        self._result = self._ready
        raise StopAsyncIteration

    @property
    def result(self) -> AssistantMessage:
        """The final message.

        Raises:
          StreamError: the events have not all been read.
        """
        if self._result is None:
            raise StreamError("the answer is not complete yet: iterate to its end first")
        return self._result


@asynccontextmanager
async def open_stream(stream_fn: StreamFn, request: ModelRequest) -> AsyncGenerator[ModelStream]:
    """Ask a model and iterate over the events of its answer.

    ``async with open_stream(stream_fn, request) as events: async for event in events: ...``, then
    ``events.result``. Leaving the block early cancels the stream function and waits for it. What
    the block raises comes out bare.
    """
    line: Line[StreamEvent] = Line()
    stream = ModelStream(line)

    async def produce() -> None:
        try:
            stream._ready = checked_answer(await stream_fn(request, StreamSink(line)))
        except Exception as error:  # raised where the events are read
            stream._error = error
        finally:
            line.end()

    errors: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            try:
                yield stream
            except Exception as error:  # the nursery would wrap it in a group
                errors.append(error)
            finally:
                # Before the line ends: a stream function that waits for room is cancelled, not failed.
                nursery.cancel_scope.cancel(reason="the block of open_stream() was left")
    except BaseExceptionGroup as group:
        errors.extend(group.exceptions)
    finally:
        stream._left = True
        line.items.clear()
    if errors:
        raise bare(errors)


def checked_answer(answer: object) -> AssistantMessage:
    """Refuse what a stream function may not return."""
    if not isinstance(answer, AssistantMessage) or answer.stop_reason == "pending":
        raise StreamError(f"the stream function returned {answer!r:.80}; it must return the final AssistantMessage")
    return answer
