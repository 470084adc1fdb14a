"""One run: who tells, how hooks are called, how it closes.

The run's own task is the only one that delivers events, appends messages and closes; children post
to it and never deliver. An event is applied to the record and the host's state first and told to
the listeners then, one listener after the other.

Which exception comes out (design 7.6), in this order: KeyboardInterrupt and its like; if the host
cancelled, the failure of a listener or hook if there is one, with Cancelled as its context, else
Cancelled; the failure alone; none after an abort.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast, final

import trio
from trio.lowlevel import current_task, in_trio_task

from ._abort import Abort, Cut, Piece, WorkCut
from ._closing import FinishTurn, missing, missing_work
from ._door import Callback, HostCall, Parts, enter_each, got_in, host_cancelled
from ._errors import UsageError
from ._events import AgentEvent
from ._hooks import AgentTurnContext, AgentTurnDecision, GetQueuedMessages, LoopConfig, check_choice
from ._messages import AgentMessage, AssistantMessage
from ._open import RECORDED, Record
from ._queues import PendingMessageQueue
from ._stream import resolve_stream_fn
from ._tool import AgentContext
from ._transcript import MessageView

Step: TypeAlias = tuple[Callable[..., Coroutine[Any, Any, None]], tuple[Any, ...]]
"""Something to await between two events: an async function of the library, and its arguments."""

LOOK: Step = (trio.lowlevel.checkpoint_if_cancelled, ())
"""A look at whether the host has cancelled. Its effective deadline would say it, too, and cost a microsecond."""

_NOTHING: Iterator[AgentEvent] = iter(())


class Listeners(Protocol):
    """Who is told, and the state that is kept for them."""

    @property
    def reduce(self) -> Callable[[AgentEvent], None]:
        """Lets the state contain an event; never raises."""
        ...

    @property
    def of(self) -> Callable[[type], Sequence[Callback]]:
        """Those who are told events of a type, in their order."""
        ...


@final
class Run:
    """One run of a loop, in the task that called it."""

    def __init__(
        self, config: LoopConfig, context: AgentContext, listeners: Listeners, abort: Abort | None = None
    ) -> None:
        resolve_stream_fn(config.stream_fn, config.model)  # refused before anything is changed
        self.config = config
        self.abort = Abort() if abort is None else abort
        self.record = Record(config, context, self.abort)
        self.closing = False
        """Whether the normal course is over."""
        self.stop_requested = False
        """Whether the run shall end after the current turn."""
        self._reduce, self._of = listeners.reduce, listeners.of
        self._hooks: dict[Callable[..., Any], Callback] = {}
        # The event that is being told, and to whom it still has to be.
        self._event: AgentEvent | None = None
        self._queue: Sequence[Callback] = ()
        self._next = 0
        # Telling after the host cancelled.
        self._deadline: float | None = None
        self._interrupts = 0
        self._plain_only = False

    # ------------------------------------------------------------ telling

    def emit(self, event: AgentEvent) -> Coroutine[Any, Any, None]:
        """Apply an event at once, and tell it when awaited; what a listener raises comes out at the end."""
        self._apply(event)
        return self.emit_each()

    def _apply(self, event: AgentEvent) -> None:
        kind = type(event)
        recorded = RECORDED.get(kind)
        if recorded is not None:
            recorded(self.record, event)
        self._reduce(event)
        self._event = event
        self._queue = self._of(kind)
        self._next = 0

    async def emit_each(self, more: Iterator[AgentEvent | Step] = _NOTHING) -> None:
        """Tell the current event to those who have not been told it; then apply and tell those that come behind it.

        Each of them is made when the one before it has been told.
        """
        failed: Exception | None = None
        while True:
            try:
                await enter_each(self._calls(more if failed is None else _NOTHING))
                break
            except Exception as error:
                # Those behind are told the event, too: here, or if the error may have taken the place of Cancelled, under
                # the shield of the closing.
                failed = failed or error
                self._note_failure(error)
                if host_cancelled():
                    break
            except BaseException as error:
                if not got_in(error):
                    self._next -= 1
                parts = Parts.of(error)
                if parts.failure is not None:
                    self._note_failure(parts.failure)
                raise parts.fatal or parts.cancelled or error from None  # noqa: ASYNC104 - the part of a split error that passes on
        if failed is not None:
            raise failed

    @trio.lowlevel.enable_ki_protection
    def _calls(self, more: Iterator[AgentEvent | Step]) -> Iterator[HostCall]:
        """Whom to call with what, and whether it is async; an event is applied when those before it have been told."""
        while True:
            queue, args = self._queue, (self._event,)
            while (at := self._next) < len(queue):
                listener = queue[at]
                # Counted before it is called: one that is cut half-way is not told the event again.
                self._next = at + 1
                if not (self._plain_only and listener.is_async):
                    yield listener.function, (*args, self.abort) if listener.takes_abort else args, listener.is_async
            while type(following := next(more, None)) is tuple:
                self._next += 1  # so that it is counted back like a listener if it is not entered
                yield *following, True
            if following is None:
                return
            self._apply(cast("AgentEvent", following))

    def _note_failure(self, error: Exception, *, in_hook: bool = False) -> None:
        """Write down that a listener or hook failed; later failures become notes on the first, each kind once."""
        record = self.record
        if record.failure is None:
            record.failure = error
            record.failed_in_hook = in_hook
            record.failed_aborted = record.cut or host_cancelled()
        elif record.failure is not error:
            note = f"also failed: {error!r}"
            if note not in getattr(record.failure, "__notes__", ()):
                record.failure.add_note(note)

    # -------------------------------------------------------------- looks

    def check(self) -> None:
        """Look whether the run was aborted. Not a checkpoint.

        Raises:
          WorkCut: it was.
        """
        if self.abort.requested:
            raise WorkCut

    async def look(self) -> None:
        """Look whether anything may be begun: not after an abort, not after a host's cancellation."""
        self.check()
        await trio.lowlevel.checkpoint_if_cancelled()

    # -------------------------------------------------------------- hooks

    def callback(self, function: Callable[..., Any], arguments: int) -> Callback:
        """A hook, looked at once in a run."""
        found = self._hooks.get(function)
        if found is None:
            found = self._hooks[function] = Callback(function, arguments)
        return found

    async def hook(self, name: str, wants: type | tuple[type, ...], *args: Any) -> Any:
        """Call a preparing hook: a cut reaches it, and what it answers after a cut does not count.

        An answer that is not what the hook's contract wants is a failure of the hook.
        """
        await self.look()
        value: Any = None
        try:
            with Piece(self.abort):
                value = await self.callback(getattr(self.config, name), len(args)).call(*args, self.abort)
                if not isinstance(value, wants):
                    raise UsageError(f"{name} answered {value!r:.80}, which is not what it may answer")
        except BaseException as error:  # noqa: ASYNC103 - _hook_failed() always raises
            self._hook_failed(error)
        self.check()
        return value

    def _hook_failed(self, error: BaseException) -> None:
        parts = Parts.of(error)
        if parts.failure is not None:
            self._note_failure(parts.failure, in_hook=True)
        raise parts.fatal or parts.cancelled or parts.failure or error

    async def poll(self, source: GetQueuedMessages | None) -> list[AgentMessage]:
        """Read a queue. A checkpoint only if the host has cancelled, so that no task comes between.

        What it gives is remembered until it is taken, so that a cut cannot lose it.
        """
        await self.look()
        if source is None:
            return []
        messages: list[AgentMessage] = []
        try:
            if type(source) is PendingMessageQueue:
                # Our own needs no door, nor a look at its signature: 12 microseconds of each run for each queue.
                messages = source.drain()
            else:
                callback = self.callback(source, 0)
                with Piece(self.abort):
                    messages = list(await callback.call(self.abort))
        except BaseException as error:  # noqa: ASYNC103 - _hook_failed() always raises
            self._hook_failed(error)
        self.record.hand_out(messages, source)
        self.check()
        return messages

    async def finish_turn(self) -> AgentTurnDecision | None:
        """Call the closing hook of a turn; an abort does not cut it, and voids its decision."""
        record = self.record
        function = self.config.finish_turn
        if function is None:
            return None
        await trio.lowlevel.checkpoint_if_cancelled()
        decision: AgentTurnDecision | None = None
        try:
            decision = await self.callback(function, 1).call(self.turn_context(), self.abort)
            if decision is not None:
                check_choice("the decision of finish_turn", decision, ("continue", "end"))
        except BaseException as error:  # noqa: ASYNC103 - _hook_failed() always raises
            self._hook_failed(error)
        return None if self.abort.requested or record.interrupted is not None else decision

    def turn_context(self) -> AgentTurnContext:
        """What the hooks of a turn get."""
        record = self.record
        return AgentTurnContext(
            cast("AssistantMessage", record.answer),
            tuple(record.results),
            record.context(),
            MessageView(record.new_messages),
        )

    # --------------------------------------------------------------- cuts

    def interrupt(self, reason: str | None = None) -> None:
        """Cut the open response or batch, if there is one."""
        record = self.record
        work = record.response or record.batch
        if work is None or self.abort.requested or self.closing:
            return
        record.interrupted = Cut("interrupt", reason)
        work.cut_off(record.interrupted)

    def cancel_tool(self, call_id: str, reason: str | None = None) -> bool:
        """Cut one call; False if it is unknown or its body is over."""
        batch = self.record.batch
        call = batch.find(call_id) if batch is not None else None
        if call is None or call.over or self.closing:
            return False
        call.cut_off(Cut("cancel_tool", reason))
        return True

    async def close_work(self) -> None:
        """Close what an interrupt cut, in the normal course of the run."""
        await self.emit_each(cast("Iterator[AgentEvent]", missing_work(self.record)))

    # ------------------------------------------------------------ driving

    async def drive(self, body: Callable[[Run], Awaitable[None]]) -> None:
        """Run the loop; whatever it leaves open is closed here, and nowhere else."""
        task = current_task()
        try:
            await body(self)
        except WorkCut:
            pass
        except BaseException as error:  # noqa: ASYNC103 - noted, and raised when the run is closed
            if isinstance(error, GeneratorExit) and not (in_trio_task() and current_task() is task):
                raise  # the coroutine is thrown away: nothing may be awaited any more
            await self._note(error)  # noqa: ASYNC102 - no wait: it only asks whether the host has cancelled
        else:
            return
        self.closing = True
        await self._close()
        self._raise()

    @property
    def _hard(self) -> bool:
        """Whether the host cancelled or interrupted: telling is bounded, hooks are not called."""
        return self.record.cancelled is not None or self.record.fatal is not None

    async def _note(self, error: BaseException) -> None:
        """Write down what ended the normal course, or happened while closing."""
        parts = Parts.of(error)
        if parts.failure is not None:
            self._note_failure(parts.failure)
        if parts.cancelled is not None:
            self.record.cancelled = self.record.cancelled or parts.cancelled
        if parts.fatal is not None:
            self.record.fatal = self.record.fatal or parts.fatal
            self._interrupts += 1
        if self.record.cancelled is None and host_cancelled():
            # What failed may have taken the place of Cancelled, which is level-triggered: ask again.
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
            except BaseException as more:  # noqa: ASYNC103 - noted, and raised when the run is closed
                await self._note(more)  # noqa: ASYNC102 - no wait: it only asks whether the host has cancelled

    async def _close(self) -> None:
        """Tell all that is missing to all, whatever happens on the way.

        After an abort this takes as long as the listeners need. Once the host has cancelled or
        interrupted, all telling together has ``closing_grace`` seconds; behind that, or after a
        second interrupt, only plain listeners are told.
        """
        try:
            self.record.give_back()
        except Exception as error:
            self._note_failure(error, in_hook=True)
        # The event that was being told when the run was cut goes to the listeners behind first.
        steps = self._closing_steps()
        while True:
            try:
                if not self._hard:
                    await self.emit_each(steps)
                    return
                if self._deadline is None:
                    self._deadline = trio.current_time() + self.config.closing_grace
                self._plain_only = self._spent
                # One scope for all of it: for each event it would cost as much as all the rest of a cancellation.
                with trio.CancelScope(shield=True, deadline=-math.inf if self._plain_only else self._deadline):
                    await self.emit_each(steps)
                    return
            except BaseException as error:  # noqa: ASYNC103 - noted, and raised when the run is closed
                await self._note(error)  # noqa: ASYNC102 - no wait: it only asks whether the host has cancelled

    def _closing_steps(self) -> Iterator[AgentEvent | Step]:
        for step in missing(self.record):
            self._plain_only = self._spent
            yield (self._finish_turn_closing, ()) if isinstance(step, FinishTurn) else step

    @property
    def _spent(self) -> bool:
        """Whether only plain listeners are told any more."""
        return self._deadline is not None and (self._interrupts > 1 or trio.current_time() >= self._deadline)

    @trio.lowlevel.enable_ki_protection
    async def _finish_turn_closing(self) -> None:
        if not self._hard and self.record.failure is None:
            await self.finish_turn()

    def _raise(self) -> None:
        record = self.record
        if record.fatal is not None:
            raise record.fatal
        if record.failure is not None:
            if record.cancelled is not None and record.failure.__context__ is None:
                record.failure.__context__ = record.cancelled
            raise record.failure
        if record.cancelled is not None:
            raise record.cancelled
