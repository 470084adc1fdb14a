"""A run to iterate over: its events with back-pressure, its block as its lifetime."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar, final

import trio

from ._abort import Abort, Piece
from ._door import Parts, bare
from ._errors import UsageError
from ._events import AgentEvent, MessageUpdate
from ._hooks import LoopConfig
from ._loop import OneListener, check_continue, run_loop
from ._messages import AgentMessage
from ._run import Run
from ._stream import TextDelta
from ._tool import AgentContext

_R = TypeVar("_R")


@final
class EventStream(Generic[_R]):
    """The events of a run, one after the other; made by ``agent.run()`` and :func:`agent_loop`.

    The run waits until an event is fetched. From an abort or a closing on, events are buffered in
    place of that, so that a consumer which stopped reading cannot hang the run.
    """

    def __init__(self, abort: Abort) -> None:
        self._abort = abort
        self._events: deque[AgentEvent] = deque()
        self._came = trio.Event()
        self._room: trio.Event | None = None
        self._over = False
        self._closing: Callable[[], bool] = lambda: False
        self._result: list[_R] = []

    def abort(self, reason: str | None = None) -> None:
        """End the run softly; its remaining events can still be read. Not a checkpoint."""
        self._abort.request(reason)

    @property
    def result(self) -> _R:
        """What the run came to.

        Raises:
          UsageError: the run is not over, or it raised.
        """
        if not self._result:
            raise UsageError("the run has no result yet: iterate over it to its end, or leave its block")
        return self._result[0]

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self

    async def __anext__(self) -> AgentEvent:
        """The next event. A checkpoint if there is none yet; cancelled, no event is lost."""
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._came = trio.Event()
            await self._came.wait()
        event = self._events.popleft()
        if not self._events and self._room is not None:
            self._room.set()
        return event

    def text(self) -> AsyncIterator[str]:
        """The pieces of text of the answers, as they come. Other events are passed over."""
        return _Text(self)

    async def _listen(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._came.set()
        if self._closing():
            return
        self._room = trio.Event()
        with Piece(self._abort):  # only this wait ends with an abort: the event is in the buffer
            await self._room.wait()

    def _end(self) -> None:
        self._over = True
        self._came.set()


@final
class _Text:
    def __init__(self, events: EventStream[Any]) -> None:
        self._events = events

    def __aiter__(self) -> _Text:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await self._events.__anext__()
            if type(event) is MessageUpdate and type(event.assistant_message_event) is TextDelta:
                return event.assistant_message_event.delta


@asynccontextmanager
async def open_events(events: EventStream[_R], start: Callable[[], Awaitable[_R]]) -> AsyncGenerator[EventStream[_R]]:
    """Run in a task while the block lasts; leaving the block early aborts the run and waits for it.

    Which exception comes out: the block's own, bare, with what the run raised as a note; else what
    the run raised.
    """
    raised: list[BaseException] = []

    @trio.lowlevel.enable_ki_protection
    async def run() -> None:
        try:
            events._result.append(await start())
        except trio.Cancelled:
            raise
        except BaseException as error:
            parts = Parts.of(error)
            raised.extend(part for part in (parts.fatal, parts.failure) if part is not None)
            if parts.cancelled is not None:
                raise parts.cancelled from None
        finally:
            events._end()

    errors: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            try:
                yield events
            except Exception as error:
                errors.append(error)
            finally:
                if not events._over:
                    events._abort.request("the block of the run was left")
    except BaseExceptionGroup as group:
        raised.extend(group.exceptions)
    errors.extend(raised)
    if not errors:
        return
    first = bare(errors)
    for other in errors:
        if other is not first and not isinstance(other, trio.Cancelled):
            first.add_note(f"the run raised: {other!r}")
    raise first


@asynccontextmanager
async def agent_loop(
    prompts: Sequence[AgentMessage], context: AgentContext, config: LoopConfig, *, abort: Abort | None = None
) -> AsyncGenerator[EventStream[list[AgentMessage]]]:
    """The iterable form of :func:`run_agent_loop` (pi's ``agentLoop``).

    ``async with agent_loop(...) as run: async for event in run: ...``; ``run.result`` is the list of
    new messages. Leaving the block early aborts the run and waits for it.
    """
    events: EventStream[list[AgentMessage]] = EventStream(Abort() if abort is None else abort)
    run = Run(config, context, OneListener(events._listen), events._abort)
    events._closing = lambda: run.closing

    async def start() -> list[AgentMessage]:
        await trio.lowlevel.checkpoint_if_cancelled()
        await run_loop(run, list(prompts))
        return run.record.new_messages

    async with open_events(events, start):
        yield events


def agent_loop_continue(
    context: AgentContext, config: LoopConfig, *, abort: Abort | None = None
) -> AbstractAsyncContextManager[EventStream[list[AgentMessage]]]:
    """The iterable form of :func:`run_agent_loop_continue` (pi's ``agentLoopContinue``).

    Raises:
      ContinueError: the context is empty or ends with an answer.
    """
    check_continue(context.messages)
    return agent_loop((), context, config, abort=abort)
