"""What the tests of the core share: scripted tools, recorders, and runs that are cut at a given time.

Everything happens on Trio's clock; a test that uses this takes the fixture ``autojump_clock``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import trio
from invariants import assert_idle, assert_increment, assert_says_what_happened

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AssistantMessage,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    RunResult,
    SystemMessage,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.testing import ScriptedModel, assert_adds_up, assert_events_paired, assert_transcript_valid

# ------------------------------------------------------------- what happened


class Log:
    """What happened, and when: entries of a text and the seconds since the log was made."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, str]] = []
        self._zero = trio.current_time()

    def __call__(self, text: str) -> None:
        self.entries.append((self.now(), text))

    def now(self) -> float:
        """Seconds since the log was made."""
        return trio.current_time() - self._zero

    @property
    def texts(self) -> list[str]:
        """What happened, without the times."""
        return [text for _, text in self.entries]

    def count(self, text: str) -> int:
        """How often something happened."""
        return self.texts.count(text)

    def since(self, seconds: float) -> list[str]:
        """What happened from a time on."""
        return [text for at, text in self.entries if at >= seconds]

    def times(self, text: str) -> list[float]:
        """When something happened."""
        return [at for at, entry in self.entries if entry == text]


def kind(event: AgentEvent) -> str:
    """An event in a few words: its type, and the role or call that it is about."""
    if isinstance(event, MessageStart | MessageEnd):
        role = event.message.role
        return f"{event.type} {event.message.tool_call_id if isinstance(event.message, ToolResultMessage) else role}"
    if isinstance(event, ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd):
        return f"{event.type} {event.tool_call_id}"
    return event.type


def story(messages: Iterable[AgentMessage]) -> list[str]:
    """A transcript in a few words each: ``user Go.``, ``assistant tool_use 'Hm.' c1 c2``, ``c1 ok 'three'``.

    Error results of the library are named by their kind; system messages are left out.
    """
    return [_line(message) for message in messages if not isinstance(message, SystemMessage)]


def _line(message: AgentMessage) -> str:
    if isinstance(message, AssistantMessage):
        calls = "".join(f" {call.id}" for call in message.tool_calls)
        return f"assistant {message.stop_reason} {message.text!r}{calls}"
    if isinstance(message, ToolResultMessage):
        if message.error_kind not in (None, "failed", "blocked"):
            return f"{message.tool_call_id} {message.error_kind}"
        return f"{message.tool_call_id} {'error' if message.is_error else 'ok'} {message.text!r}"
    return f"{message.role} {getattr(message, 'text', '')}"


class Recorder:
    """A plain listener that keeps the events and looks, at each, whether the state contains it already."""

    def __init__(self, agent: Agent | None = None) -> None:
        self.agent = agent
        self.events: list[AgentEvent] = []
        self.log = Log()
        self.behind: list[str] = []
        """What the state did not contain when it was told."""
        self.before = 0 if agent is None else len(agent.messages)
        if agent is not None:
            agent.subscribe(self)

    def __call__(self, event: AgentEvent) -> None:
        self.events.append(event)
        self.log(kind(event))
        if isinstance(event, MessageUpdate) and len(self.events) > 100:
            return  # to look at the message so far costs its length
        if self.agent is not None and not _contains(self.agent, event):
            self.behind.append(kind(event))

    @property
    def kinds(self) -> list[str]:
        """The events in a few words each."""
        return [kind(event) for event in self.events]

    def of(self, *prefixes: str) -> list[str]:
        """Those that begin with one of some prefixes."""
        return [text for text in self.kinds if text.startswith(prefixes)]

    @property
    def end(self) -> AgentEnd:
        """The last event."""
        assert isinstance(self.events[-1], AgentEnd)
        return self.events[-1]

    def next_run(self) -> None:
        """Forget what was recorded, before another run of the same agent."""
        self.events.clear()
        self.log = Log()
        self.before = 0 if self.agent is None else len(self.agent.messages)


def _contains(agent: Agent, event: AgentEvent) -> bool:
    state = agent.state
    if not state.is_streaming:
        return False
    if isinstance(event, MessageStart):
        return state.streaming_message is event.message
    if isinstance(event, MessageUpdate):
        streaming = state.streaming_message
        return isinstance(streaming, AssistantMessage) and streaming.content == event.message.content
    if isinstance(event, MessageEnd):
        return state.streaming_message is None and agent.messages[-1] is event.message
    if isinstance(event, ToolExecutionStart | ToolExecutionUpdate):
        return event.tool_call_id in state.pending_tool_calls
    if isinstance(event, ToolExecutionEnd):
        return event.tool_call_id not in state.pending_tool_calls
    if isinstance(event, AgentEnd):
        return state.streaming_message is None and not state.pending_tool_calls
    return True


def assert_run(recorder: Recorder, entered: Iterable[str] | None = None) -> None:
    """All invariants that can be seen from outside, after one run of the recorder's agent.

    Args:
      recorder: subscribed to the agent before the run.
      entered: the ids of the calls whose tool was entered, where the test knows them.
    """
    agent = recorder.agent
    assert agent is not None
    assert_events_paired(recorder.events)
    assert_adds_up(recorder.events)
    assert_transcript_valid(agent.messages)
    assert_increment(recorder.events, recorder.before, agent.messages)
    assert_idle(agent)
    assert recorder.behind == [], "the state did not contain these events when they were told"
    assert agent.last_result is not None
    assert list(agent.last_result.new_messages) == list(agent.messages)[recorder.before :]
    assert agent.last_result.end_reason == recorder.end.end_reason
    if entered is not None:
        assert_says_what_happened(list(agent.messages)[recorder.before :], entered)


# ------------------------------------------------------------- models and tools


def call(id: str, name: str = "", **arguments: Any) -> ToolCall:
    """A call; without a name, of the tool that is called like its id."""
    return ToolCall(id, name or id, arguments)


def calling(*calls: ToolCall | str) -> list[ToolCall]:
    """A turn that calls tools; a string is both the id of the call and the name of the tool."""
    return [one if isinstance(one, ToolCall) else call(one) for one in calls]


def sleeper(
    name: str,
    seconds: float = 0.0,
    log: Log | None = None,
    *,
    result: Any = None,
    shielded: bool = False,
    error: BaseException | None = None,
    updates: Sequence[str] = (),
    **settings: Any,
) -> Tool:
    """A tool that sleeps and then answers, by default with its own name and "done".

    Args:
      name: the name of the tool.
      seconds: how long it sleeps.
      log: gets ``NAME starts``, and ``NAME ends`` or ``NAME cut``.
      result: what it returns.
      shielded: True sleeps where no cancellation reaches it.
      error: raised in place of returning.
      updates: reported before it sleeps.
      **settings: of the :class:`Tool`.
    """
    note = Log() if log is None else log

    async def execute(args: dict[str, Any], ctx: ToolContext) -> Any:
        note(f"{name} starts")
        for update in updates:
            await ctx.update(update)
        ended = False
        try:
            with trio.CancelScope(shield=shielded):
                await trio.sleep(seconds)
            ended = True
        finally:
            note(f"{name} ends" if ended else f"{name} cut")
        if error is not None:
            raise error
        return f"{name} done" if result is None else result

    return Tool(name, execute=execute, **settings)


def agent_of(turns: Sequence[Any], *tools: Tool, **settings: Any) -> tuple[Agent, ScriptedModel, Recorder]:
    """An agent with a scripted model, and a recorder that listens to it."""
    model = ScriptedModel(list(turns))
    agent = Agent(model, tools=tools, **settings)
    return agent, model, Recorder(agent)


# ------------------------------------------------------------- runs

Act: TypeAlias = Callable[[], object] | str
"""What is done to a run: a function, or ``"cancel"`` for the scope around it."""


def act(agent: Agent, cause: str, reason: str = "why") -> Act:
    """One of the causes that cut a run from outside, by its name."""
    acts: dict[str, Act] = {
        "abort": lambda: agent.abort(reason),
        "cancel": "cancel",
        "interrupt": lambda: agent.interrupt("Stop."),
        "nothing": lambda: None,
    }
    return acts[cause]


class Play:
    """A run with a timeline: things are done to it at given times, and what comes out is kept.

    ::

        play = Play(lambda: agent.prompt("Go."), (2, agent.abort))
        await play.run()

    A timeline entry whose action is the string ``"cancel"`` cancels the scope around the run.

    Attributes:
      result: what the call returned; None if it did not.
      error: what the call raised, Cancelled included.
      ended: when it was over, in seconds from its beginning.
    """

    def __init__(self, start: Callable[[], Awaitable[Any]], *timeline: tuple[float, Act]) -> None:
        self.start = start
        self.timeline = timeline
        self.scope = trio.CancelScope()
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = -1.0

    async def run(self) -> Play:
        """Run to the end. No task that the run started is left then."""
        began = trio.current_time()
        living = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            for seconds, action in self.timeline:
                nursery.start_soon(self._later, seconds, action)
            await self._call()
            self.ended = trio.current_time() - began
            nursery.cancel_scope.cancel()
        assert trio.lowlevel.current_statistics().tasks_living <= living, "the run has left tasks behind"
        return self

    async def _call(self) -> None:
        try:
            with self.scope:
                try:
                    self.result = await self.start()
                except BaseException as error:
                    self.error = error
                    raise
        except trio.Cancelled:
            raise
        except BaseException:
            if self.error is None:
                raise

    async def _later(self, seconds: float, action: Act) -> None:
        await trio.sleep(seconds)
        if callable(action):
            action()
        else:
            self.scope.cancel()

    def returned(self, agent: Agent) -> RunResult:
        """What the call returned, which is also the agent's last result."""
        assert self.error is None
        assert isinstance(self.result, RunResult)
        assert self.result is agent.last_result
        return self.result

    def assert_cancelled(self) -> None:
        """Cancelled passes: the call raised it bare, and the scope caught it."""
        assert self.result is None
        assert isinstance(self.error, trio.Cancelled)
        assert self.scope.cancelled_caught


async def prompted(agent: Agent, *timeline: tuple[float, Act], text: str = "Go.") -> Play:
    """``agent.prompt(text)`` with a timeline."""
    return await Play(lambda: agent.prompt(text), *timeline).run()


async def resumed(agent: Agent, *timeline: tuple[float, Act]) -> Play:
    """``agent.resume()`` with a timeline."""
    return await Play(agent.resume, *timeline).run()


def user(text: str) -> UserMessage:
    """What a user says."""
    return UserMessage(text)


def texts(messages: Iterable[AgentMessage]) -> list[str]:
    """The texts of the user messages among some messages."""
    return [message.text for message in messages if isinstance(message, UserMessage)]
