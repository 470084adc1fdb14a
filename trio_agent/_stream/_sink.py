"""How an answer gets from the stream function to whoever listens."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, final

import trio

from trio_agent._door import bare
from trio_agent._errors import NoStreamFnError, StreamError
from trio_agent._messages import AssistantMessage

from ._answer import StreamEvent
from ._request import Model, ModelRequest

SINK_SIZE = 32
"""Events that a stream function may be ahead of the listeners before ``send`` waits.

Each time that they are all sent, and each time that they are all told, Trio switches tasks. With 16 that costs 0.6
microseconds an event, with 32 half of it.
"""

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
class EventLine:
    """What was sent and not yet told: at most :data:`SINK_SIZE` events, and whoever waits to send more.

    It behaves as a memory channel of Trio's with one sender and one receiver does. A channel costs
    0.6 microseconds more for each event, as it goes through four Python calls on either side.
    """

    __slots__ = ("_came", "_ended", "_senders", "events", "room")

    def __init__(self, room: int = SINK_SIZE) -> None:
        self.events: deque[StreamEvent] = deque()
        self.room = room
        """How many may stand in the line; none once it has ended."""
        self._senders: OrderedDict[trio.lowlevel.Task, StreamEvent] = OrderedDict()
        self._came = trio.Event()
        self._ended = False

    async def put(self, event: StreamEvent) -> None:
        """Append an event where more than that may have to be done: somebody waits, on either side."""
        if len(self.events) >= self.room and not self._ended:
            await trio.lowlevel.checkpoint_if_cancelled()
        if self._ended:
            raise trio.ClosedResourceError
        if len(self.events) < self.room:
            self.events.append(event)
            self._came.set()
            return
        task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._senders[task]
            return trio.lowlevel.Abort.SUCCEEDED

        self._senders[task] = event
        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._senders.pop(task, None) is not None:
            raise trio.ClosedResourceError

    def take(self) -> StreamEvent:
        """The next event; there must be one. The first of those who wait to send gets its place."""
        event = self.events.popleft()
        if self._senders and not self._ended:
            task, waiting = self._senders.popitem(last=False)
            self.events.append(waiting)
            trio.lowlevel.reschedule(task)
        return event

    async def wait(self) -> bool:
        """Wait for an event; False if none will come. A cancellation changes nothing.

        Always a checkpoint; at the end, where there is nothing to wait for, only if cancelled.
        """
        while self.events or not self._ended:
            if not self.events and self._came.is_set():
                self._came = trio.Event()
            await self._came.wait()
            if self.events:
                return True
        await trio.lowlevel.checkpoint_if_cancelled()
        return False

    def end(self) -> None:
        """Let no more be sent; those who wait to send are refused, too. What stands in the line can be taken."""
        self._ended, self.room = True, 0
        for task in self._senders:
            trio.lowlevel.reschedule(task)
        self._came.set()


@final
class StreamSink:
    """Where a stream function sends its events: a small bounded buffer in front of the listeners."""

    __slots__ = ("_events", "_line")

    def __init__(self, line: EventLine) -> None:
        self._line = line
        self._events = line.events

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

    def __init__(self, line: EventLine) -> None:
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
    line = EventLine()
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
        line.events.clear()
    if errors:
        raise bare(errors)


def checked_answer(answer: object) -> AssistantMessage:
    """Refuse what a stream function may not return."""
    if not isinstance(answer, AssistantMessage) or answer.stop_reason == "pending":
        raise StreamError(f"the stream function returned {answer!r:.80}; it must return the final AssistantMessage")
    return answer
