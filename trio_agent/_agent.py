"""Agent: the state, the listeners and the two queues around the loop."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import cast, final, get_args

import attrs
import trio

from ._abort import Abort
from ._door import Callback
from ._errors import BusyError, UsageError
from ._events import AgentEvent
from ._hooks import LoopConfig, LoopSettings
from ._iterate import EventStream, open_events
from ._loop import check_continue, run_loop
from ._messages import AgentMessage, AssistantMessage, Content, ImageContent, SystemMessage, TextContent, UserMessage
from ._queues import PendingMessageQueue, QueueMode, as_messages
from ._run import Run
from ._state import AgentState, RunResult
from ._stream import Model
from ._tool import AgentContext, Tool
from ._transcript import create_initial_system_message, get_current_system_message

_log = logging.getLogger("trio_agent")

_inside: ContextVar[tuple[Agent, ...]] = ContextVar("trio_agent_inside", default=())
"""The agents whose runs the current code is part of."""

_EVENT_TYPES = get_args(AgentEvent)
_SETTINGS = tuple(field.name for field in attrs.fields(LoopSettings))


class _ByType(dict[type, tuple[Callback, ...]]):
    """Who is told events of a type; found out when the type is looked up first."""

    def __init__(self, subscriptions: list[tuple[Callback, tuple[type, ...]]]) -> None:
        super().__init__()
        self._subscriptions = subscriptions

    def __missing__(self, event_type: type) -> tuple[Callback, ...]:
        found = tuple(callback for callback, types in self._subscriptions if not types or event_type in types)
        self[event_type] = found
        return found


@final
class _Listeners:
    """The subscriptions of an agent, in their order; looked up by type of event."""

    def __init__(self, state: AgentState) -> None:
        self._all: list[tuple[Callback, tuple[type, ...]]] = []
        self._by_type = _ByType(self._all)
        # Each is called for every event; this way looking up costs no call of Python code.
        self.reduce = state._reduce
        self.of = self._by_type.__getitem__

    def add(self, callback: Callback, types: tuple[type, ...]) -> Callable[[], None]:
        """Subscribe; what comes back unsubscribes, once or more often."""
        entry = (callback, types)
        self._all.append(entry)
        self._by_type.clear()

        def unsubscribe() -> None:
            if entry in self._all:
                self._all.remove(entry)
                self._by_type.clear()

        return unsubscribe


def _checked_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise UsageError(f"{tool!r:.80} is no Tool; make one with the decorator @tool or with Tool(...)")
        if tool.name in by_name:
            raise UsageError(f"two tools are called {tool.name!r}; give one of them another name")
        by_name[tool.name] = tool
    return tuple(by_name.values())


@final
@attrs.define(eq=False, repr=False, kw_only=True, slots=False)
class Agent(LoopSettings):
    """A transcript, tools and a model, with the loop between them.

    An Agent is a plain value: it may be made in one task, or outside of Trio, and used in another.
    One run is active at a time. All methods but the async ones are synchronous, no checkpoints, and
    may be called from any task; from another thread through ``trio.from_thread.run_sync``.

    All settings are keyword arguments and attributes that may be set at any time; a run reads them
    when it starts. ``system_prompt`` goes with the tools into a leading system message, unless
    ``messages``, a transcript to go on from, begin with one. ``steering_mode`` and
    ``follow_up_mode`` say how much a run takes from a queue at a time, the capacities how many
    messages a queue holds.
    """

    model: Model = attrs.field(kw_only=False)
    """Who answers; anything with ``provider``, ``id`` and ``stream_fn``."""
    tools: Sequence[Tool] = attrs.field(default=(), converter=_checked_tools)
    """What can be executed from the next run on; changes are announced to the model."""
    _system_prompt: str = ""
    _messages: Iterable[AgentMessage] = ()
    _steering_mode: QueueMode = "one-at-a-time"
    _follow_up_mode: QueueMode = "one-at-a-time"
    _steering_capacity: float = math.inf
    _follow_up_capacity: float = math.inf
    steering: PendingMessageQueue = attrs.field(init=False)
    """The queue of messages that go in before the next request."""
    follow_ups: PendingMessageQueue = attrs.field(init=False)
    """The queue of messages that go in when the run would otherwise end."""
    state: AgentState = attrs.field(init=False)
    """A live, read-only view of the agent."""
    last_result: RunResult | None = attrs.field(default=None, init=False)
    """What came of the last run; set also where the call raised."""
    _run: Run | None = attrs.field(default=None, init=False)
    _idle: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.steering = PendingMessageQueue(self._steering_mode, self._steering_capacity)
        self.follow_ups = PendingMessageQueue(self._follow_up_mode, self._follow_up_capacity)
        self.state = AgentState(self)
        self._listeners = _Listeners(self.state)
        transcript = list(self._messages)
        if not transcript or type(transcript[0]) is not SystemMessage:
            declarations = [tool.declaration for tool in self.tools]
            initial = create_initial_system_message(self._system_prompt, declarations)
            transcript[:0] = [initial] if initial is not None else []
        self.messages = transcript

    def __repr__(self) -> str:
        doing = "idle" if self._run is None else "running"
        return f"<trio_agent.Agent on {self.model.provider}/{self.model.id}: {len(self.messages)} messages, {doing}>"

    # -------------------------------------------------------------- state

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The transcript. Assigning copies the messages; a run that is active goes on with its own."""
        return self.state.messages

    @messages.setter
    def messages(self, messages: Iterable[AgentMessage]) -> None:
        self.state._replace(list(messages))

    @property
    def steering_mode(self) -> QueueMode:
        """How many steering messages a run takes at a time; acts at once."""
        return self.steering.mode

    @steering_mode.setter
    def steering_mode(self, mode: QueueMode) -> None:
        self.steering.mode = mode

    @property
    def follow_up_mode(self) -> QueueMode:
        """How many follow-ups a run takes at a time; acts at once."""
        return self.follow_ups.mode

    @follow_up_mode.setter
    def follow_up_mode(self, mode: QueueMode) -> None:
        self.follow_ups.mode = mode

    # ------------------------------------------------------------ running

    @trio.lowlevel.enable_ki_protection
    async def prompt(
        self, prompt: str | AgentMessage | Iterable[str | AgentMessage], images: Iterable[ImageContent] = ()
    ) -> RunResult:
        """Say something and run until there is nothing more to do.

        A checkpoint. Returns after an abort, and after failures of the model or of a hook (see the
        result). A host's cancellation passes on once the run has closed in order, within
        ``closing_grace`` seconds after the tools have unwound; the transcript is valid then, each
        call answered. Entered in a cancelled scope it changes nothing.

        Args:
          prompt: a text, a message or several messages.
          images: go behind the text.

        Raises:
          BusyError: a run is active.
          Exception: whatever a listener raised, bare; Cancelled and KeyboardInterrupt likewise.
        """
        prompts = self._prompts(prompt, images)
        self._check_idle("prompt()")
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._start(prompts, Abort())

    @trio.lowlevel.enable_ki_protection
    async def resume(self) -> RunResult:
        """Go on from the transcript as it stands (pi's ``continue()``).

        On a user message or tool result at the end the model is asked; on an answer, queued steering
        is taken, else queued follow-ups. Otherwise as :meth:`prompt`.

        Raises:
          BusyError: a run is active.
          ContinueError: there is nothing to go on from; no queue was touched.
        """
        self._check_idle("resume()")
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._start(None, Abort())

    @asynccontextmanager
    async def run(
        self,
        prompt: str | AgentMessage | Iterable[str | AgentMessage] | None = None,
        images: Iterable[ImageContent] = (),
    ) -> AsyncGenerator[EventStream[RunResult]]:
        """Run and iterate over the events, or over the text, while the block lasts.

        ``async with agent.run("...") as run: async for event in run: ...``. Leaving the block early
        aborts the run and waits for it; what the block raises comes out bare. Blocks of one task must
        nest, like every ``async with`` of Trio that starts tasks: the task that entered them leaves
        them, in reverse order. Without a prompt it does what :meth:`resume` does.

        Raises:
          BusyError: a run is active.
          ContinueError: there is no prompt, and nothing to go on from.
        """
        prompts = None if prompt is None else self._prompts(prompt, images)
        self._check_idle("run()")
        if prompts is None:
            self._check_resume()
        events: EventStream[RunResult] = EventStream(Abort())
        unsubscribe = self._listeners.add(Callback(events._listen, 1), ())

        async def start() -> RunResult:
            try:
                self._check_idle("run()")
                await trio.lowlevel.checkpoint_if_cancelled()
                return await self._start(prompts, events._abort, events)
            finally:
                unsubscribe()

        async with open_events(events, start):
            yield events

    def _prompts(
        self, prompt: str | AgentMessage | Iterable[str | AgentMessage], images: Iterable[ImageContent]
    ) -> list[AgentMessage]:
        images = tuple(images)
        if isinstance(prompt, str):
            content: tuple[Content, ...] = (TextContent(prompt), *images)
            return [UserMessage(content)]
        if images:
            raise UsageError("images go with a prompt that is a string; put them into the message's content")
        return as_messages(prompt)

    def _check_idle(self, what: str) -> None:
        if self._run is not None:
            raise BusyError(
                f"{what} needs an idle agent, but a run is active: queue messages with steer() or follow_up(), "
                "or await wait_for_idle() first"
            )

    def _check_resume(self) -> None:
        messages = self.state._messages
        tail_answered = bool(messages) and type(messages[-1]) is AssistantMessage
        if not tail_answered or not (self.steering or self.follow_ups):
            check_continue(messages)

    def _drain_for_resume(self) -> tuple[list[AgentMessage], bool]:
        """What resume() begins with, and whether it came from steering."""
        self._check_resume()
        if type(self.state._messages[-1]) is not AssistantMessage:
            return [], False
        steered = self.steering.drain()
        prompts = steered or self.follow_ups.drain()
        for message in prompts:
            # From here there is no checkpoint until agent_start: they will stand in the transcript.
            self.steering.taken(message)
            self.follow_ups.taken(message)
        return prompts, bool(steered)

    async def _start(
        self, prompts: list[AgentMessage] | None, abort: Abort, events: EventStream[RunResult] | None = None
    ) -> RunResult:
        run = Run(self._config(), AgentContext(self.state._messages, self.tools), self._listeners, abort)
        steered = False
        if prompts is None:
            prompts, steered = self._drain_for_resume()
        self._run = run
        if events is not None:
            events._closing = lambda: run.closing
        self.state._begin(run)
        self._idle = trio.Event()
        token = _inside.set((*_inside.get(), self))
        failed: BaseException | None = None
        try:
            await run_loop(run, prompts, skip_first_poll=steered)
        except BaseException as error:  # noqa: ASYNC103 - only the failure of a hook stops here
            record = run.record
            failed = error
            hard = record.cancelled is not None or record.fatal is not None
            if error is not record.failure or not record.failed_in_hook or hard:
                raise
            _log.error("a hook of the agent failed; the run is closed", exc_info=error)
        finally:
            _inside.reset(token)
            self._finish(run, failed)
        return cast("RunResult", self.last_result)

    def _finish(self, run: Run, failed: BaseException | None) -> None:
        record = run.record
        exception = record.stream_error if failed is None else failed
        self.last_result = RunResult(
            tuple(record.new_messages),
            record.end_reason if record.ended else record.closing_reason(),
            None if isinstance(exception, trio.Cancelled) else exception,
        )
        self._run = None
        self.state._finish()
        self._idle.set()

    def _config(self) -> LoopConfig:
        return LoopConfig(
            model=self.model,
            get_steering_messages=self.steering,
            get_follow_up_messages=self.follow_ups,
            **{name: getattr(self, name) for name in _SETTINGS},
        )

    # ------------------------------------------------------------ control

    @trio.lowlevel.enable_ki_protection
    def abort(self, reason: str | None = None) -> None:
        """End the active run softly: it closes in order, and its call returns. Idle, nothing happens.

        Args:
          reason: goes into the results of what was cut and into the record of the run.
        """
        if self._run is not None:
            self._run.abort.request(reason)

    @trio.lowlevel.enable_ki_protection
    def cancel_tool(self, call_id: str, reason: str | None = None) -> bool:
        """Cut one call; its siblings go on, and the model is told.

        Returns:
          True if the call was preparing, waiting or running; False if its body is over, or it is
          unknown.
        """
        return self._run is not None and self._run.cancel_tool(call_id, reason)

    @trio.lowlevel.enable_ki_protection
    def interrupt(self, message: str | AgentMessage | Iterable[str | AgentMessage]) -> None:
        """Cut the current response or batch, and go on with a message ahead of all steered ones.

        While neither is open, the message is queued ahead of all others. With an abort, the abort
        wins and the message stays queued.
        """
        self.steering.put_front(as_messages(message))
        if self._run is not None:
            self._run.interrupt("a new message came in")

    @trio.lowlevel.enable_ki_protection
    def stop_after_turn(self) -> None:
        """Let the active run end after its current turn; queued messages stay queued."""
        if self._run is not None:
            self._run.stop_requested = True

    @trio.lowlevel.enable_ki_protection
    def reset(self) -> None:
        """Forget the conversation and the queues; the system prompt and tools as replayed remain.

        Raises:
          BusyError: a run is active.
        """
        self._check_idle("reset()")
        baseline = get_current_system_message(self.state._messages)
        self.state._replace([] if baseline is None else [baseline])
        self.state._error = None
        self.clear_all_queues()

    async def wait_for_idle(self) -> None:
        """Wait until no run is active, its ``agent_end`` listeners included. A checkpoint.

        Raises:
          UsageError: called from inside the agent's own run, which would wait for itself.
        """
        if self in _inside.get():
            raise UsageError("wait_for_idle() was called from inside the agent's own run; it would wait for itself")
        await trio.lowlevel.checkpoint()
        while self._run is not None:
            await self._idle.wait()

    # ------------------------------------------------------------- queues

    @trio.lowlevel.enable_ki_protection
    def steer(self, messages: str | AgentMessage | Iterable[str | AgentMessage]) -> None:
        """Queue messages that go in before the next request.

        Raises:
          QueueFullError: the queue is bounded and has no room; nothing was queued.
        """
        self.steering.put(as_messages(messages))

    @trio.lowlevel.enable_ki_protection
    def follow_up(self, messages: str | AgentMessage | Iterable[str | AgentMessage]) -> None:
        """Queue messages that go in only when the run would otherwise end.

        Raises:
          QueueFullError: the queue is bounded and has no room; nothing was queued.
        """
        self.follow_ups.put(as_messages(messages))

    def clear_steering_queue(self) -> None:
        """Drop all queued steering messages."""
        self.steering.clear()

    def clear_follow_up_queue(self) -> None:
        """Drop all queued follow-ups."""
        self.follow_ups.clear()

    def clear_all_queues(self) -> None:
        """Drop all queued messages."""
        self.steering.clear()
        self.follow_ups.clear()

    def has_queued_messages(self) -> bool:
        """Whether any message waits, drained ones that the run has not yet taken included."""
        return bool(self.steering) or bool(self.follow_ups)

    def peek_queued_messages(self) -> list[AgentMessage]:
        """What the next drain would take: of steering, else of the follow-ups. Nothing is taken."""
        return self.steering.peek() or self.follow_ups.peek()

    # ---------------------------------------------------------- listeners

    def subscribe(
        self, listener: Callable[..., Awaitable[None] | None], *event_types: type[AgentEvent]
    ) -> Callable[[], None]:
        """Tell a listener of events from now on.

        Listeners are told in the order of their subscription, one after the other, and the run waits
        for them. What one raises closes the run and comes out of ``prompt()`` once all have been
        told the event.

        Args:
          listener: ``(event)`` or ``(event, abort)``, plain or async.
          *event_types: the classes of the events that it wants; none means all.

        Returns:
          a function that ends the subscription.
        """
        for event_type in event_types:
            if event_type not in _EVENT_TYPES:
                names = ", ".join(cls.__name__ for cls in _EVENT_TYPES)
                raise UsageError(f"{event_type!r} is no class of events; they are {names}")
        if not callable(listener) or inspect.iscoroutine(listener):
            raise UsageError(f"{listener!r:.80} is no listener; give a function of the event")
        return self._listeners.add(Callback(listener, 1), tuple(event_types))
