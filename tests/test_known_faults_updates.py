"""Known faults, groups U, X and Y: progress updates; back-pressure and channels; the hygiene of these tests."""

from __future__ import annotations

import ast
import gc
import random
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from invariants import assert_idle
from kit import Log, agent_of, assert_run, call, calling, prompted, sleeper, texts, user
from trio.testing import MockClock, assert_no_checkpoints, wait_all_tasks_blocked

from trio_agent import (
    AfterToolCallContext,
    Agent,
    AgentContext,
    AgentEvent,
    AssistantMessage,
    LoopConfig,
    MessageBuilder,
    MessageUpdate,
    ModelRequest,
    QueueMode,
    RunFailedError,
    StreamSink,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionMode,
    ToolExecutionUpdate,
    UserMessage,
    agent_loop,
    event_to_json,
    open_stream,
    run_tool_call,
)
from trio_agent._stream import SINK_SIZE
from trio_agent.testing import ScriptedModel, assert_transcript_valid, seeded_scheduler

MODES: dict[str, dict[str, Any]] = {
    "serial preparation": {},
    "sequential": {"tool_execution": "sequential"},
    "parallel preparation": {"tool_preparation": "parallel"},
    "one at a time": {"max_parallel_tools": 1},
}
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
every_batch = pytest.mark.parametrize("mode", [MODES["serial preparation"], MODES["parallel preparation"]])


def updates_behind_their_end(events: list[AgentEvent]) -> list[str]:
    """The updates that were told after the end of their call; there must be none."""
    ended: set[str] = set()
    late = []
    for event in events:
        if isinstance(event, ToolExecutionEnd):
            ended.add(event.tool_call_id)
        elif isinstance(event, ToolExecutionUpdate) and event.tool_call_id in ended:
            late.append(event.partial_result.text)
    return late


def updates(events: list[AgentEvent]) -> list[str]:
    return [event.partial_result.text for event in events if isinstance(event, ToolExecutionUpdate)]


# ---------------------------------------------------------------------- U


@every_mode
async def test_b112_a_callback_kept_beyond_the_call_does_nothing(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    # The tool gives its context away; a task of the host's calls it every half second until long after
    # the run: while after_tool_call works, while a sibling runs, in later turns, when all is over.
    kept: list[ToolContext] = []
    late = Log()

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        await context.update("while it runs")
        await trio.sleep(0.75)
        kept.append(context)
        return "done"

    async def go_on_calling() -> None:
        for number in range(30):
            await trio.sleep(0.5)
            for context in kept:
                await context.update(f"late {number}")
                late("called")

    async def after(context: AfterToolCallContext) -> None:
        await trio.sleep(1)

    tools = [Tool("early", execute=execute), sleeper("long", 3)]
    turns = [calling("early", "long"), calling("long"), "Done."]
    agent, model, recorder = agent_of(turns, *tools, after_tool_call=after, **mode)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on_calling)
        await agent.prompt("Go.")
    assert updates(recorder.events) == ["while it runs"]
    ended, over = recorder.log.times("tool_execution_end early")[0], recorder.log.times("agent_end")[0]
    called = late.times("called")
    assert [at for at in called if at < ended]  # while after_tool_call works
    assert [at for at in called if ended < at < over]
    assert [at for at in called if at > over]
    assert_run(recorder)
    model.assert_exhausted()


async def test_b112_an_update_that_waits_to_be_told_when_its_tool_returns_is_dropped(autojump_clock: MockClock) -> None:
    ended = Log()

    async def another(context: ToolContext) -> None:
        await context.update("second")
        ended("the waiter is through")

    async def slow(event: ToolExecutionUpdate) -> None:
        await trio.sleep(5)

    async with trio.open_nursery() as nursery:

        async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
            await context.update("first")
            nursery.start_soon(another, context)
            await wait_all_tasks_blocked()
            return "done"

        agent, _, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute))
        agent.subscribe(slow, ToolExecutionUpdate)
        await agent.prompt("Go.")
    assert updates(recorder.events) == ["first"]
    assert updates_behind_their_end(recorder.events) == []
    assert ended.times("the waiter is through") == [5]
    assert_run(recorder)


async def test_b112_a_thread_that_reports_after_its_call_is_not_heard(autojump_clock: MockClock) -> None:
    ended = threading.Event()
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []

    def report_late(context: ToolContext) -> None:
        ended.wait()
        try:
            for number in range(100):
                context.update_from_thread(f"late {number}")
        except Exception as error:
            errors.append(error)

    def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        context.update_from_thread("in time")
        threads.append(threading.Thread(target=report_late, args=(context,)))
        threads[0].start()
        return "done"

    agent, model, recorder = agent_of([calling("t", "long"), "Done."], Tool("t", execute=execute), sleeper("long", 1))
    agent.subscribe(lambda event: ended.set() if event.tool_call_id == "t" else None, ToolExecutionEnd)
    await agent.prompt("Go.")
    await trio.to_thread.run_sync(threads[0].join)
    assert errors == []
    assert updates(recorder.events) == ["in time"]
    assert_run(recorder)
    model.assert_exhausted()


def test_b112_a_callback_is_harmless_even_when_trio_is_over() -> None:
    kept: list[ToolContext] = []

    def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        kept.append(context)
        return "done"

    async def main() -> list[str]:
        agent, _, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute))
        await agent.prompt("Go.")
        return updates(recorder.events)

    assert trio.run(main) == []
    kept[0].update_from_thread("late")

    async def later() -> None:
        await kept[0].update("late")

    trio.run(later)


CUTS: dict[str, Callable[[Agent], Any]] = {
    "abort": lambda agent: agent.abort(),
    "cancel_tool": lambda agent: agent.cancel_tool("t"),
    "interrupt": lambda agent: agent.interrupt("Stop."),
    "cancel": lambda agent: "cancel",
}


@every_mode
@pytest.mark.parametrize("cut", [*CUTS, "timeout"])
async def test_b112_what_a_tool_reports_while_it_is_cut_never_comes_behind_its_end(
    cut: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    tried: list[str] = []

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            await trio.sleep(10)
        finally:
            with trio.CancelScope(shield=True):
                for text in ("cleaning", "still cleaning"):
                    await context.update(text)
                    tried.append(text)
                    await trio.sleep(1)
        return "never"

    async def slow(event: ToolExecutionUpdate) -> None:
        await trio.sleep(0.25)

    tool = Tool("t", execute=execute, timeout=2 if cut == "timeout" else None)
    agent, _, recorder = agent_of([calling("t", "other"), "Done.", "Again."], tool, sleeper("other", 1), **mode)
    agent.subscribe(slow, ToolExecutionUpdate)
    cut_off: list[tuple[float, Any]] = []
    if cut in CUTS:
        cut_off = [(2, "cancel" if cut == "cancel" else lambda: CUTS[cut](agent))]
    play = await prompted(agent, *cut_off)
    assert tried == ["cleaning", "still cleaning"]
    assert updates_behind_their_end(recorder.events) == []
    assert isinstance(play.error, trio.Cancelled) == (cut == "cancel")
    assert_transcript_valid(agent.messages)
    assert_idle(agent)


async def test_b112_a_nested_call_reports_nothing_after_its_outcome(autojump_clock: MockClock) -> None:
    kept: list[ToolContext] = []
    heard: list[str] = []

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        kept.append(context)
        await context.update("in time")
        return "done"

    tool = Tool("t", execute=execute)
    outcome = await run_tool_call(call("t"), tools=[tool], on_update=lambda partial: heard.append(partial.text))
    assert outcome.result.text == "done"
    await kept[0].update("late")
    assert heard == ["in time"]


@every_mode
async def test_b113_progress_is_told_when_it_is_made(mode: dict[str, Any], autojump_clock: MockClock) -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for second in (1, 2, 3):
            await trio.sleep(1)
            await context.update(f"at {second}")
        await trio.sleep(1)
        return "done"

    agent, model, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute), **mode)
    await agent.prompt("Go.")
    assert [entry for entry in recorder.log.entries if entry[1].startswith("tool_execution")] == [
        (0, "tool_execution_start t"),
        (1, "tool_execution_update t"),
        (2, "tool_execution_update t"),
        (3, "tool_execution_update t"),
        (4, "tool_execution_end t"),
    ]
    assert updates(recorder.events) == ["at 1", "at 2", "at 3"]
    assert_run(recorder)
    model.assert_exhausted()


@every_batch
async def test_b113_the_progress_of_two_tools_interleaves_by_time(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for number in range(3):
            await trio.sleep(arguments["gap"])
            await context.update(f"{context.tool_call_id} {number}")
        return "done"

    turn = [call("a", "t", gap=2), call("b", "t", gap=2.5)]
    agent, _, recorder = agent_of([turn, "Done."], Tool("t", execute=execute), **mode)
    await agent.prompt("Go.")
    assert [
        entry for entry in recorder.log.entries if entry[1].startswith(("tool_execution_u", "tool_execution_e"))
    ] == [
        (2, "tool_execution_update a"),
        (2.5, "tool_execution_update b"),
        (4, "tool_execution_update a"),
        (5, "tool_execution_update b"),
        (6, "tool_execution_update a"),
        (6, "tool_execution_end a"),
        (7.5, "tool_execution_update b"),
        (7.5, "tool_execution_end b"),
    ]
    assert updates(recorder.events) == ["a 0", "b 0", "a 1", "b 1", "a 2", "b 2"]
    assert_run(recorder)


async def test_b113_a_thread_reports_when_it_has_something(autojump_clock: MockClock) -> None:
    def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for second in (1, 2, 3):
            trio.from_thread.run(trio.sleep, 1)
            context.update_from_thread(f"at {second}")
        trio.from_thread.run(trio.sleep, 1)
        return "done"

    agent, _, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute))
    await agent.prompt("Go.")
    assert recorder.log.times("tool_execution_update t") == [1, 2, 3]
    assert recorder.log.times("tool_execution_end t") == [4]
    assert_run(recorder)


@every_mode
async def test_b113_all_updates_are_told_before_the_end_and_before_the_after_hook(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for number in range(3):
            await context.update(str(number))
        log("returns")
        return "done"

    async def slow(event: ToolExecutionUpdate) -> None:
        await trio.sleep(1)
        log(f"heard {event.partial_result.text}")

    def after(context: AfterToolCallContext) -> None:
        log("after")

    agent, _, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute), after_tool_call=after, **mode)
    agent.subscribe(slow, ToolExecutionUpdate)
    agent.subscribe(lambda event: log("end"), ToolExecutionEnd)
    await agent.prompt("Go.")
    # Faster than its listeners, the tool is slowed down: one update is untold at most (design 6).
    # Whether it returns before or after the listener goes on is chance: both are of one instant.
    assert sorted(log.entries[1:3]) == [(2, "heard 1"), (2, "returns")]
    assert [log.entries[0], *log.entries[3:]] == [(1, "heard 0"), (3, "heard 2"), (3, "after"), (3, "end")]
    assert_run(recorder)


async def test_b113_an_update_is_handed_over_without_a_checkpoint_if_none_is_untold(autojump_clock: MockClock) -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        with assert_no_checkpoints():
            await context.update("first")
        await wait_all_tasks_blocked()
        with assert_no_checkpoints():
            await context.update("second")
        return "done"

    agent, _, recorder = agent_of([calling("t"), "Done."], Tool("t", execute=execute))
    assert (await agent.prompt("Go.")).text == "Done."
    assert updates(recorder.events) == ["first", "second"]
    assert agent.messages[-2].text == "done"  # type: ignore[union-attr]


async def test_b113_the_progress_of_a_nested_call_is_told_when_it_is_made(autojump_clock: MockClock) -> None:
    heard = Log()

    async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
        for second in (1, 2):
            await trio.sleep(1)
            await context.update(f"at {second}")
        await trio.sleep(1)
        return "done"

    await run_tool_call(call("t"), tools=[Tool("t", execute=execute)], on_update=lambda part: heard(part.text))
    assert heard.entries == [(1, "at 1"), (2, "at 2")]
    assert heard.now() == 3


# ---------------------------------------------------------------------- X


class Witness:
    """A model and a tool that keep what they are ended by: a consumer that leaves must not break their channels."""

    def __init__(self) -> None:
        self.seen: list[BaseException] = []

    async def stream(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Says much, calls both tools in its first answer, and stops in its second."""
        builder = MessageBuilder(request)
        try:
            await sink.send(builder.start())
            await sink.send(builder.text_start())
            for number in range(3 * SINK_SIZE):
                await sink.send(builder.text_delta(f"{number} "))
            await sink.send(builder.text_end())
            if any(isinstance(message, AssistantMessage) for message in request.messages):
                return builder.finish("stop")
            for name in ("a", "b"):
                await sink.send(builder.tool_call_start(name, "talk"))
                await sink.send(builder.tool_call_end())
            return builder.finish("tool_use")
        except BaseException as error:
            self.seen.append(error)
            raise

    async def talk(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """A tool that reports more than anybody reads."""
        try:
            for number in range(5):
                await context.update(str(number))
            await trio.sleep(0.1)
        except BaseException as error:
            self.seen.append(error)
            raise
        return "done"

    def parts(self) -> tuple[ScriptedModel, Tool]:
        """The model and the tool."""
        return ScriptedModel([self.stream, self.stream]), Tool("talk", execute=self.talk)

    def check(self) -> None:
        """Nothing was raised into the host's code but Cancelled."""
        assert [error for error in self.seen if not isinstance(error, trio.Cancelled)] == []


class LeftError(Exception):
    """The consumer's own."""


async def consume(events: Any, count: int, how: str, scope: trio.CancelScope) -> None:
    """Read some events of a run and leave: by break, by an exception, or by a cancellation."""
    async for _ in events:
        count -= 1
        if count <= 0:
            break
    await trio.sleep(0.05)
    if how == "raise":
        raise LeftError
    if how == "cancel":
        scope.cancel(reason="the consumer leaves")
        await trio.lowlevel.checkpoint()


async def leave(opened: Callable[[], Any], count: int, how: str) -> bool:
    """Open a run or stream, read some events, leave; returns whether what came out is what went in."""
    with trio.CancelScope() as scope:
        try:
            async with opened() as events:
                await consume(events, count, how, scope)
        except LeftError:
            return how == "raise"
        return how == "break"
    return how == "cancel"


@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
async def test_b119_a_consumer_may_leave_a_run_at_any_event(how: str, autojump_clock: MockClock) -> None:
    # The row's buffer sizes 0, 1 and infinite: here the buffer is one event before the end of the run
    # and unbounded from its closing on (design 9), so the consumer leaves at every place in between.
    count, ends = 0, set[str]()
    while "done" not in ends:
        count += 1
        witness = Witness()
        model, tool = witness.parts()
        agent = Agent(model, tools=[tool])
        assert await leave(lambda agent=agent: agent.run("Go."), count, how)  # type: ignore[misc]
        witness.check()
        assert_transcript_valid(agent.messages)
        assert_idle(agent)
        assert agent.last_result is not None
        ends.add(agent.last_result.end_reason)
        assert agent.last_result.end_reason in ("aborted", "cancelled", "done")
    assert count > 100
    assert ends == {"cancelled" if how == "cancel" else "aborted", "done"}
    gc.collect()


@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
async def test_b119_a_consumer_may_leave_a_loop_at_any_event(how: str, autojump_clock: MockClock) -> None:
    for count in [*range(60, 75), *range(1, 150, 7)]:
        witness = Witness()
        model, tool = witness.parts()
        context, config = AgentContext((), [tool]), LoopConfig(model=model)
        opened = lambda context=context, config=config: agent_loop([UserMessage("Go.")], context, config)  # noqa: E731
        assert await leave(opened, count, how)
        witness.check()
        assert context.messages == ()
    gc.collect()


@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
async def test_b119_a_consumer_may_leave_a_stream_at_any_event(how: str, autojump_clock: MockClock) -> None:
    agent, model, _ = agent_of(["Hi."])
    await agent.prompt("Go.")
    for count in range(1, 3 * SINK_SIZE + 7):
        witness = Witness()
        assert await leave(lambda witness=witness: open_stream(witness.stream, model.requests[0]), count, how)  # type: ignore[misc]
        witness.check()
    gc.collect()


async def test_b119_a_run_whose_events_nobody_reads_ends_with_its_block(autojump_clock: MockClock) -> None:
    witness = Witness()
    model, tool = witness.parts()
    agent = Agent(model, tools=[tool])
    async with agent.run("Go.") as run:
        await wait_all_tasks_blocked()
    assert run.result.end_reason == "aborted"
    assert agent.messages[-1].role == "assistant"
    with pytest.raises(RunFailedError):
        run.result.raise_for_error()
    witness.check()


@pytest.mark.parametrize("form", ["agent", "loop"])
async def test_b119_a_key_interrupt_in_the_run_comes_before_the_consumers_own_exception(form: str) -> None:
    # Design 7.6: what is neither an Exception nor Cancelled passes on bare, before every other cause.
    async def interrupted(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    async def read(run: Any) -> None:
        async for event in run:
            if event.type == "message_end":
                break
        await wait_all_tasks_blocked()
        raise LeftError

    async def consume_and_fail() -> None:
        model = ScriptedModel([interrupted])
        if form == "agent":
            async with Agent(model).run("Go.") as run:
                await read(run)
        else:
            async with agent_loop([UserMessage("Go.")], AgentContext(), LoopConfig(model=model)) as run:
                await read(run)

    with pytest.raises(KeyboardInterrupt):
        await consume_and_fail()


async def test_b120_steering_and_aborting_never_block_and_are_no_checkpoints(autojump_clock: MockClock) -> None:
    agent, _, recorder = agent_of([calling("t"), *["Done."] * 9], sleeper("t", 5), steering_capacity=2)

    async def act() -> None:
        await trio.sleep(1)
        with trio.CancelScope() as scope:
            scope.cancel(reason="even here")
            with assert_no_checkpoints():
                agent.steer([user("one"), user("two")])
                agent.steer([])
                agent.follow_up("three")
                agent.peek_queued_messages()
                agent.interrupt("now")
                agent.cancel_tool("t")
                agent.stop_after_turn()
                agent.clear_follow_up_queue()
                agent.abort()
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        nursery.start_soon(act)
        await agent.prompt("Go.")
    assert recorder.log.now() == 1
    assert_run(recorder)


class Traffic:
    """An agent, and tasks that steer, interrupt, cancel and abort it at random times."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sent: list[str] = []
        self.doubled: list[list[str]] = []
        self.acts = Counter[str]()
        self.model = ScriptedModel([self.turn] * 500, delay=rng.choice([0.0, 0.1]))
        modes: list[QueueMode] = ["all", "one-at-a-time"]
        executions: list[ToolExecutionMode] = ["parallel", "sequential"]
        self.agent = Agent(
            self.model,
            tools=[sleeper("t", 0.3), sleeper("u", 0.1, shielded=True)],
            steering_mode=rng.choice(modes),
            follow_up_mode=rng.choice(modes),
            tool_execution=rng.choice(executions),
        )
        self.agent.prepare_next_turn = self.prepare if rng.random() < 0.5 else None

    async def prepare(self, turn: object) -> None:
        await trio.sleep(0.1)

    def turn(self, request: ModelRequest) -> Any:
        said = texts(request.messages)
        if len(said) != len(set(said)):
            self.doubled.append(said)
        if self.rng.random() < 0.4:
            return [call(f"c{self.rng.random()}", self.rng.choice("tu")) for _ in range(self.rng.randrange(1, 3))]
        return "Done it."

    async def act(self) -> None:
        for _ in range(6):
            await trio.sleep(self.rng.choice([0, 0.1, 0.1, 0.2, 0.3]))
            match self.rng.randrange(9):
                case 0:
                    self.agent.abort("random")
                case 1:
                    self.agent.interrupt(self.message())
                case 2:
                    self.agent.cancel_tool(next(iter(self.agent.state.pending_tool_calls), ""))
                case 3 if self.scope is not None:
                    self.scope.cancel(reason="random")
                case 4 | 5:
                    self.agent.follow_up(self.message())
                case 6:
                    await self.agent.steering.send(self.message())
                case _:
                    self.agent.steer([UserMessage(self.message()), UserMessage(self.message())])

    def message(self) -> str:
        self.sent.append(f"message {len(self.sent)}")
        return self.sent[-1]

    async def run(self) -> None:
        self.scope: trio.CancelScope | None = None
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self.act)
            for _ in range(3):
                await trio.sleep(self.rng.choice([0, 0.2]))
                with trio.CancelScope() as self.scope:
                    # Said in the same instant: what prompt() is given when it is entered cancelled is not said.
                    result = await self.agent.prompt(f"prompt {len(self.agent.messages)}")
                    self.acts[result.end_reason] += 1
                self.acts["cancelled"] += self.scope.cancelled_caught
                self.scope = None
                assert_transcript_valid(self.agent.messages)
                assert_idle(self.agent)

    def check(self) -> None:
        taken = [text for text in texts(self.agent.messages) if text.startswith("message")]
        self.agent.steering_mode = self.agent.follow_up_mode = "all"
        left = texts([*self.agent.steering.drain(), *self.agent.follow_ups.drain()])
        assert sorted([*taken, *left]) == sorted(self.sent)
        assert self.doubled == []
        assert self.model.errors == []
        self.acts.update(taken=len(taken), left=len(left))


@pytest.mark.parametrize("seed", range(10))
def test_b120_no_steered_message_is_lost_or_doubled_however_runs_are_cut(seed: int) -> None:
    # The ten thousand interleavings of the queue alone are in test_queues.py; these go through whole runs.
    totals = Counter[str]()

    async def main() -> None:
        for number in range(30):
            traffic = Traffic(random.Random(f"{seed}/{number}"))
            await traffic.run()
            traffic.check()
            totals.update(traffic.acts)

    with seeded_scheduler(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert min(totals[name] for name in ("taken", "left", "done", "aborted", "cancelled")) > 3


async def test_b121_a_slow_listener_holds_the_model_back_and_loses_nothing(autojump_clock: MockClock) -> None:
    # Documented at StreamSink and at subscribe(): back-pressure. A timer that the stream function sets for
    # its peer does not run while it waits for the listeners, because that wait is in send().
    ahead: list[int] = []
    waits = Log()

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        for number in range(1000):
            with trio.fail_after(0.05):  # the idle limit of a connection whose peer always has more
                await trio.lowlevel.checkpoint()
            event = builder.text_delta(f"{number} ")
            await sink.send(event)
            ahead.append(number - len(heard))
        waits("all is sent")
        return builder.finish("stop")

    heard: list[str] = []

    async def listener(event: MessageUpdate) -> None:
        await trio.sleep(0.1)
        if event.assistant_message_event.type == "text_delta":
            heard.append(event.assistant_message_event.delta)

    agent, _, recorder = agent_of([stream])
    agent.subscribe(listener, MessageUpdate)
    result = await agent.prompt("Go.")
    assert heard == [f"{number} " for number in range(1000)]
    assert result.text == "".join(heard)
    assert recorder.log.now() == pytest.approx(100.1)
    # The stream function was held back all the time, not buffered without bound.
    assert max(ahead) <= SINK_SIZE + 1
    assert waits.times("all is sent")[0] > 100 - 0.1 * (SINK_SIZE + 2)
    assert_run(recorder)


async def test_b121_a_slow_reader_of_a_run_holds_the_model_back_too(autojump_clock: MockClock) -> None:
    agent, _, recorder = agent_of([" ".join(map(str, range(100)))])
    read: list[AgentEvent] = []
    async with agent.run("Go.") as run:
        async for event in run:
            await trio.sleep(0.1)
            read.append(event)
            assert len(recorder.events) <= len(read) + 2
    assert [event_to_json(event) for event in read] == [event_to_json(event) for event in recorder.events]
    assert recorder.log.now() == pytest.approx(0.1 * len(read))
    assert_run(recorder)


async def test_b121_an_abort_ends_a_run_that_nobody_reads_at_once(autojump_clock: MockClock) -> None:
    agent, _, recorder = agent_of([" ".join(map(str, range(100)))])
    async with agent.run("Go.") as run:
        async for event in run:
            assert event.type == "agent_start"
            break
        await trio.sleep(1)
        run.abort("nobody reads")
        await agent.wait_for_idle()
        rest = [event.type async for event in run]
    assert rest[-1] == "agent_end"
    assert recorder.log.now() == 1
    assert_run(recorder)


# ---------------------------------------------------------------------- Y

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.rglob("*.py"))
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def marks(function: AnyFunction) -> str:
    return " ".join(ast.unparse(decorator) for decorator in function.decorator_list)


def slow_functions(functions: list[AnyFunction]) -> set[str]:
    """The tests that are marked slow, and the helpers that nothing but these calls."""
    slow = {function.name for function in functions if "mark.slow" in marks(function)}
    while True:
        callers: dict[str, set[str]] = {}
        for function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id != function.name:
                    callers.setdefault(node.id, set()).add(function.name)
        more = {function.name for function in functions if callers.get(function.name, {""}) <= slow} - slow
        if not more:
            return slow
        slow |= more


def faults(source: str) -> list[str]:
    """What a test module does that hides faults of the library."""
    tree = ast.parse(source)
    found = []
    functions = [node for node in ast.walk(tree) if isinstance(node, AnyFunction)]
    slow = slow_functions(functions)
    allowed = {id(node) for function in functions if function.name in slow for node in ast.walk(function)}
    for function in functions:
        arguments = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        fixture = "fixture" in marks(function)
        if "nursery" in arguments and (fixture or function.name.startswith("test_")):
            found.append(f"{function.name}: the nursery fixture cancels at the end, so that a wrong test passes")
        if "autouse" in marks(function) and isinstance(function, ast.AsyncFunctionDef):
            found.append(f"{function.name}: an async autouse fixture")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in calls:
        name, line = ast.unparse(node.func), node.lineno
        if name in ("time.sleep", "sleep") and id(node) not in allowed:
            found.append(f"line {line}: real sleeping outside of a test that is marked slow")
        if name.startswith("pytest.") and name.split(".")[-1] in ("skip", "skipif", "xfail", "importorskip"):
            reasons = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            reasons += node.args if name == "pytest.skip" else []
            if not any(ast.unparse(reason).strip("'\" ") for reason in reasons):
                found.append(f"line {line}: {name} without a reason")
        loud = any(word in ast.unparse(node) for word in ("error", "always"))
        if name.endswith(("simplefilter", "filterwarnings")) and not loud:
            found.append(f"line {line}: warnings are silenced")
    called = {id(node.func) for node in calls}
    for mark in ast.walk(tree):
        bare = isinstance(mark, ast.Attribute) and id(mark) not in called
        if bare and ast.unparse(mark) in ("pytest.mark.skip", "pytest.mark.xfail"):
            found.append(f"{ast.unparse(mark)} without a reason")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_b122_no_test_hides_a_fault(path: Path) -> None:
    assert faults(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "async def test_x(nursery): ...",
        "@pytest.fixture\nasync def thing(*, nursery): ...",
        "@pytest.fixture(autouse=True)\nasync def thing(): ...",
        "def test_x():\n    time.sleep(1)",
        "def helper():\n    sleep(1)",
        "def helper():\n    time.sleep(1)\n@pytest.mark.slow\ndef test_x(): helper()\ndef test_y(): helper()",
        "@pytest.mark.skip\ndef test_x(): ...",
        "@pytest.mark.skip()\ndef test_x(): ...",
        "@pytest.mark.xfail\ndef test_x(): ...",
        "@pytest.mark.xfail(reason=' ')\ndef test_x(): ...",
        "@pytest.mark.skipif(True)\ndef test_x(): ...",
        "def test_x():\n    pytest.skip()",
        "def test_x():\n    pytest.skip('')",
        "pytestmark = [pytest.mark.xfail]",
        "@pytest.mark.filterwarnings('ignore::ResourceWarning')\ndef test_x(): ...",
        "def test_x():\n    warnings.simplefilter('ignore')",
    ],
)
def test_b122_each_of_these_would_be_found(source: str) -> None:
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "async def helper(nursery): ...",
        "async def test_x():\n    async with trio.open_nursery() as nursery: ...",
        "@pytest.mark.slow\ndef test_x():\n    time.sleep(1)",
        "def b():\n    time.sleep(1)\ndef a(): b()\n@pytest.mark.slow\ndef test_x(): a()\ndef test_y(): ...",
        "@pytest.mark.skipif(no_head, reason='needs head')\ndef test_x(): ...",
        "async def test_x(autojump_clock):\n    await trio.sleep(1)",
        "def test_x():\n    pytest.skip('needs head')",
        "@pytest.fixture(autouse=True)\ndef thing(): ...",
    ],
)
def test_b122_these_are_no_faults(source: str) -> None:
    assert faults(source) == []


def test_b122_pytest_is_told_to_be_strict() -> None:
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert settings["filterwarnings"] == ["error"]
    assert settings["xfail_strict"] is True
    assert settings["trio_mode"] is True
    assert {"--strict-markers", "--strict-config"} <= set(settings["addopts"])
    assert settings["faulthandler_timeout"] > 0
