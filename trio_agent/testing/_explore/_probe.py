"""What a host that is explored gets: it says which agents are watched, and what must hold."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, final

import attrs
import trio

from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentEvent,
    AgentMessage,
    LoopConfig,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    run_agent_loop,
    run_agent_loop_continue,
)
from trio_agent._queues import as_messages
from trio_agent.testing._rules import same

from ._case import Case
from ._log import Done, Queued, RunLog, Span
from ._wrap import HOOKS, LoopWatch, Watch

if TYPE_CHECKING:
    from ._run import Moments

Emit = Callable[[AgentEvent], Any]


@final
class Probe:
    """The handle of one run of an explored host.

    A host is an async function of a Probe. It makes its agents, has them watched and uses them::

        async def host(probe: Probe) -> None:
            agent = probe.watch(Agent(model, tools=[transfer]))
            await agent.prompt("Pay the rent.")

    It is run many times, each time cut in another way, so it must hold under any cut: what it
    asserts of the normal course belongs into an ``if not probe.acted``.
    """

    def __init__(self, case: Case, moments: Moments) -> None:
        self.case = case
        """What is done in this run, and where."""
        self.watches: list[Watch] = []
        """What was seen of each agent and loop: their runs, events and the host's code that was entered."""
        self.done: list[Done] = []
        """What was done so far."""
        self._queued: list[Queued] = []
        self._checks: list[tuple[str, Callable[[], object]]] = []
        self._waiting_at_end: list[AgentMessage] = []
        """What was queued when the host was through."""
        self._replaced = False
        """The host has replaced a transcript: what it gained cannot be said."""
        self._over = False
        """The host is through; what follows is not part of the run."""
        self._waited = False
        """Virtual time has passed after an act."""
        self._block: trio.CancelScope | None = None
        """The scope that is left when the block of ``agent.run()`` is to be left."""
        self._has_block = False
        """The host marks a block that can be left."""
        self._moments = moments
        self._position = 0

    # ---------------------------------------------------------- for hosts

    @property
    def acted(self) -> bool:
        """Whether something was done to this run."""
        return bool(self.done)

    def watch(self, agent: Agent) -> Agent:
        """Watch an agent: its tools, hooks, model and listeners become places, its runs are checked.

        Called right after the agent was made, before others subscribe. Plain tools then run in
        Trio's own thread, because a virtual clock does not wait for others; what they report with
        ``update_from_thread`` is told when they return.

        Returns:
          the same agent.
        """
        self.watches.append(AgentWatch(self, agent))
        return agent

    async def run_loop(
        self,
        prompts: Sequence[AgentMessage] | None,
        context: AgentContext,
        config: LoopConfig,
        emit: Emit,
        *,
        abort: Abort | None = None,
    ) -> list[AgentMessage]:
        """Call :func:`~trio_agent.run_agent_loop`, watched; without prompts, ``run_agent_loop_continue``."""
        abort = Abort() if abort is None else abort
        watch = LoopWatch(self, abort)
        self.watches.append(watch)
        config = attrs.evolve(config, stream_fn=watch.stream(config.stream_fn), **watch.settings(config))
        context, emit = watch.context(context), watch.emit(emit)
        if prompts is None:
            return await watch.call(lambda: run_agent_loop_continue(context, config, emit, abort=abort))
        return await watch.call(lambda: run_agent_loop(prompts, context, config, emit, abort=abort))

    @contextmanager
    def leaving(self) -> Generator[None]:
        """Mark what is left early by the act ``leave``: the loop over the events of ``agent.run()``.

        ::

            async with agent.run("Go.") as run:
                with probe.leaving():
                    async for event in run: ...
        """
        self._has_block = True
        with trio.CancelScope() as self._block:
            yield
        left, self._block = self._block, None
        for done in self.done:
            if done.planned.act == "leave" and done.landed is None and left.cancelled_caught:
                done.landed, done.landed_time = self.note(), trio.current_time()

    def note(self) -> int:
        """The position of something that happens now, to be compared with ``landed`` of what was done."""
        self._position += 1
        return self._position

    def check(self, invariant: Callable[[], object], name: str = "") -> None:
        """Add an invariant of the host's own: called after this run, it raises AssertionError if broken.

        Args:
          invariant: a plain function; what it raises is the violation.
          name: how reports call it; by default the function's name.
        """
        self._checks.append((name or getattr(invariant, "__name__", "invariant"), invariant))

    # ------------------------------------------------------- for the watch

    def _at(self, label: str, span: Span | None) -> None:
        """A place is reached; something may be done here, and something be raised."""
        self._moments.reach(label, span)

    async def _linger(self) -> None:
        """What the mode adds to listeners, hooks, model steps and tools."""
        if self.case.mode == "checkpoints":
            await trio.lowlevel.checkpoint()

    async def _dawdle(self, grace: float) -> None:
        """What the mode adds to a listener."""
        if self.case.mode == "slow" and self.done:
            await trio.sleep(3 * grace)
        await self._linger()

    def _told_all(self) -> None:
        """The last listener was told; a failure of the first is in force from here on."""
        for done in self.done:
            if done.landed is None and done.planned.act == "raise":
                done.landed, done.landed_time = self.note(), trio.current_time()

    def _put(self, messages: Iterable[AgentMessage]) -> None:
        """Messages were queued."""
        self._queued.extend(Queued(message, self.note()) for message in messages)

    def _cleared(self, *, agent: Agent) -> None:
        """Messages were dropped from queues: those that are not in the transcript may be gone."""
        kept = {id(message) for message in agent.messages}
        for queued in self._queued:
            queued.cleared = queued.cleared or id(queued.message) not in kept


@final
class AgentWatch(Watch):
    """Watches an agent, by attributes that stand in front of its methods."""

    def __init__(self, probe: Probe, agent: Agent) -> None:
        super().__init__(probe)
        self.agent = agent
        self._stream_fn = agent.stream_fn
        self._known: list[AgentMessage] = list(agent.messages)
        self._unsubscribe: list[Callable[[], None]] = []
        self._subscribe = agent.subscribe
        self._subscribe(self.first)
        for name in ("prompt", "resume"):
            self._around(name, getattr(agent, name))
        self._put("run", self._block(agent.run))
        for name in ("steer", "follow_up", "interrupt"):
            self._queues(name, getattr(agent, name))
        self._put("subscribe", self._subscribed(agent.subscribe))
        for name in ("clear_steering_queue", "clear_follow_up_queue", "clear_all_queues", "reset"):
            self._clears(name, getattr(agent, name))

    def _put(self, name: str, function: Callable[..., Any]) -> None:
        vars(self.agent)[name] = function

    def _around(self, name: str, method: Callable[..., Awaitable[Any]]) -> None:
        async def call(*args: Any, **settings: Any) -> Any:
            if self.agent.state.is_streaming:
                return await method(*args, **settings)  # it refuses
            self.refresh()
            return await self.call(lambda: method(*args, **settings))

        self._put(name, call)

    def _block(self, method: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
        @asynccontextmanager
        async def run(*args: Any, **settings: Any) -> AsyncGenerator[Any]:
            if not self.agent.state.is_streaming:
                self.refresh()
            before = len(self.runs)
            try:
                async with method(*args, **settings) as events:
                    yield events
            except BaseException as error:
                self.call_ended(before, None, error)
                raise
            self.call_ended(before, self.agent.last_result, None)

        return run

    def _queues(self, name: str, method: Callable[..., None]) -> None:
        def put(messages: Any) -> None:
            several = as_messages(messages)
            method(several)
            self.probe._put(several)

        self._put(name, put)

    def _subscribed(self, method: Callable[..., Callable[[], None]]) -> Callable[..., Callable[[], None]]:
        """Watch what listeners of the host raise."""

        def subscribe(listener: Callable[..., Any], *event_types: type) -> Callable[[], None]:
            return method(self.listener(listener), *event_types)

        return subscribe

    def _clears(self, name: str, method: Callable[..., None]) -> None:
        def clear() -> None:
            method()
            self.probe._cleared(agent=self.agent)

        self._put(name, clear)

    @trio.lowlevel.enable_ki_protection
    def refresh(self) -> None:
        """Watch what the host has set since the last run, and be told last."""
        agent = self.agent
        for name in HOOKS:
            setattr(agent, name, self.hook(name, getattr(agent, name)))
        watched = self.stream(self._stream_fn)
        if agent.stream_fn is not watched:
            self._stream_fn = agent.stream_fn
            agent.stream_fn = self.stream(self._stream_fn)
        agent.tools = self.tools(agent.tools)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = [self._subscribe(self.middle), self._subscribe(self.last)]

    def begin_run(self, task: trio.lowlevel.Task) -> RunLog:
        self.look_back()
        return RunLog(task, self.probe.note(), len(self.agent.messages))

    def look_back(self) -> None:
        """Note whether the host has replaced the transcript, and remember it as it is."""
        messages = list(self.agent.messages)
        if not same(messages[: len(self._known)], self._known):
            self.probe._replaced = True
        self._known = messages

    @trio.lowlevel.enable_ki_protection
    async def middle(self, event: AgentEvent) -> None:
        if self.probe._over:
            return
        self.runs[-1].told.append(event)
        await self.probe._dawdle(self.agent.closing_grace)

    def end_run(self, run: RunLog, returned: Any, raised: BaseException | None) -> None:
        super().end_run(run, returned, raised)
        self.look_back()
        state = self.agent.state
        run.messages = list(state.messages)[run.before :]
        run.left_queued = self.waiting()
        for what, still in (
            ("the agent is still streaming", state.is_streaming),
            ("there is still a partial message", state.streaming_message is not None),
            (f"the calls {sorted(state.pending_tool_calls)} are still pending", bool(state.pending_tool_calls)),
            (f"the calls {sorted(state.aborting)} are still aborting", bool(state.aborting)),
        ):
            if still:
                run.not_idle = what

    def waiting(self) -> list[AgentMessage]:
        """All messages that are queued: steering first, then follow-ups."""
        found: list[AgentMessage] = []
        for queue in (self.agent.steering, self.agent.follow_ups):
            mode, queue.mode = queue.mode, "all"
            found.extend(queue.peek())
            queue.mode = mode
        return found

    def state_contains(self, event: AgentEvent) -> bool:
        state = self.agent.state
        if not state.is_streaming:
            return False
        if isinstance(event, MessageStart):
            return state.streaming_message is event.message
        if isinstance(event, MessageUpdate):
            return state._streaming is event.assistant_message_event
        if isinstance(event, MessageEnd):
            return state.streaming_message is None and self.agent.messages[-1] is event.message
        if isinstance(event, ToolExecutionStart | ToolExecutionUpdate):
            return event.tool_call_id in state.pending_tool_calls
        return not isinstance(event, ToolExecutionEnd) or event.tool_call_id not in state.pending_tool_calls
