"""Running an agent: the iterable form, limits, stopping, waiting, bounded queues (design 8 and 9)."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from invariants import assert_idle, assert_nothing_lost, assert_works_again, waiting
from kit import Log, Play, act, agent_of, assert_run, call, calling, kind, prompted, sleeper, story, texts, user
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    BusyError,
    ContinueError,
    LoopConfig,
    MessageEnd,
    MessageUpdate,
    QueueFullError,
    RunFailedError,
    RunLimits,
    StreamSink,
    Tool,
    ToolContext,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UsageError,
    agent_loop,
    agent_loop_continue,
)
from trio_agent.testing import ScriptedModel, assert_events_paired

# --------------------------------------------------------- agent.run()


async def test_a_run_gives_its_events_and_its_result(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1"), "Two words."], sleeper("c1", 1))
    async with agent.run("Go.") as run:
        events = [event async for event in run]
    assert events == seen.events
    assert run.result is agent.last_result
    assert run.result.text == "Two words."
    assert_run(seen, ["c1"])


async def test_the_text_of_a_run_comes_piece_by_piece(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([["Let me see. ", call("c1")], "Two words."], sleeper("c1"))
    async with agent.run("Go.") as run:
        pieces = [piece async for piece in run.text()]
    assert pieces == ["Let ", "me ", "see. ", "Two ", "words."]
    assert_run(seen)


async def test_a_run_waits_for_its_reader(autojump_clock: MockClock) -> None:
    """Back-pressure: it is never more than one event ahead of what was read."""
    agent, _, seen = agent_of(["Done."])
    read = 0
    async with agent.run("Go.") as run:
        async for event in run:
            assert seen.events[read] is event
            read += 1
            await trio.sleep(1)
            assert len(seen.events) == read + (0 if isinstance(event, AgentEnd) else 1)
    assert_run(seen)


async def test_the_result_is_there_when_the_run_is_over_and_not_before(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of(["Done."])
    async with agent.run("Go.") as run:
        with pytest.raises(UsageError, match="no result yet"):
            _ = run.result
        async for _event in run:
            pass
        assert run.result.text == "Done."


class Leave(Exception):
    """Raised by the body of a block."""


@pytest.mark.parametrize("way", ["break", "raise", "fall out"])
async def test_leaving_the_block_early_aborts_the_run_and_waits(way: str, autojump_clock: MockClock) -> None:
    log = Log()
    living = trio.lowlevel.current_statistics().tasks_living

    async def execute(args: Any, ctx: ToolContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
            log("cleaned up")

    agent, model, seen = agent_of([calling("c1")], Tool("c1", execute=execute))

    async def block() -> None:
        async with agent.run("Go.") as run:
            async for event in run:
                if isinstance(event, ToolExecutionStart):
                    await wait_all_tasks_blocked()
                    if way == "raise":
                        raise Leave
                    break
            if way == "fall out":
                await trio.sleep(1)

    if way == "raise":
        with pytest.raises(Leave) as caught:
            await block()
        assert type(caught.value) is Leave, "bare"
    else:
        await block()
    assert log.texts == ["cleaned up"]
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert "block" in str(agent.state.error_message)
    assert trio.lowlevel.current_statistics().tasks_living == living
    gc.collect()  # nothing is left to be finalised: a warning would be an error here
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


async def test_a_block_that_is_left_before_anything_happened(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1")])
    async with agent.run("Go."):
        pass
    assert model.requests == []
    assert story(agent.messages) == ["user Go.", "assistant aborted ''"]
    assert_run(seen)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "run.abort", "cancel", "failure"])
async def test_a_reader_that_stopped_reading_cannot_hang_the_end(
    cause: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """From an abort or a closing on events are buffered (9)."""

    def hook(turn: Any) -> None:
        if cause == "failure":
            raise ValueError("broken")

    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 1), finish_turn=hook)
    rest: list[AgentEvent] = []
    stopped = trio.Event()

    async def start() -> None:
        async with agent.run("Go.") as run:
            async for event in run:
                if isinstance(event, ToolExecutionStart):
                    break
            stopped.set()
            await trio.sleep(3)
            if cause == "run.abort":
                run.abort("enough")
            if cause == "failure":
                # The reader lets it go on to the hook, and stops reading there.
                async for event in run:
                    if isinstance(event, MessageEnd) and isinstance(event.message, ToolResultMessage):
                        break
            await wait_all_tasks_blocked()
            if cause in ("abort", "run.abort", "failure"):
                assert not agent.state.is_streaming, "over, though nobody read"
            rest.extend([event async for event in run])

    play = await Play(start, (3, act(agent, cause if cause in ("abort", "cancel") else "nothing"))).run()
    assert play.ended == 3
    if cause == "cancel":
        play.assert_cancelled()
    else:
        assert rest[-1] is seen.events[-1], "what was buffered can be read afterwards"
    assert_run(seen)
    agent.finish_turn = None
    await assert_works_again(agent, model)


async def test_the_reader_fails_and_the_run_fails_too(autojump_clock: MockClock) -> None:
    """The block's own exception comes out, with what the run raised as a note (Bare)."""
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 5))

    def listen(event: AgentEnd) -> None:
        raise ValueError("listener broken")

    unsubscribe = agent.subscribe(listen, AgentEnd)

    async def block() -> None:
        async with agent.run("Go.") as run:
            async for _ in run:
                raise Leave

    with pytest.raises(Leave) as caught:
        await block()
    assert type(caught.value) is Leave
    assert any("listener broken" in note for note in caught.value.__notes__)
    assert_run(seen)
    unsubscribe()
    await assert_works_again(agent, model)


async def test_what_a_listener_raises_comes_out_of_the_block(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["Done."])
    error = ValueError("listener broken")

    def listen(event: TurnEnd) -> None:
        raise error

    agent.subscribe(listen, TurnEnd)
    events: list[AgentEvent] = []
    with pytest.raises(ValueError, match="listener broken") as caught:
        async with agent.run("Go.") as run:
            events.extend([event async for event in run])
    assert caught.value is error
    assert events == seen.events, "the reader sees the run close before the block raises"
    assert_run(seen)


async def test_a_run_without_a_prompt_resumes(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["Done."], messages=[user("Before.")])
    async with agent.run() as run:
        pieces = [piece async for piece in run.text()]
    assert pieces == ["Done."]
    assert_run(seen)
    with pytest.raises(ContinueError):
        async with agent.run():
            raise AssertionError


async def test_a_run_that_cannot_begin_raises_at_once_and_leaves_no_listener(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 1))

    async def second() -> None:
        await trio.sleep(0.5)
        with pytest.raises(BusyError):
            async with agent.run("Me too."):
                raise AssertionError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second)
        await agent.prompt("Go.")
    assert len(model.requests) == 2
    assert_run(seen)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_two_agents_closed_in_the_order_in_which_they_were_opened(
    cancelled: bool, autojump_clock: MockClock
) -> None:
    """Each block is its own: agents run inside each other's blocks, and a third one still works."""
    first, first_model, first_seen = agent_of(["First."])
    second, _, second_seen = agent_of(["Second."])
    async with first.run("Go.") as outer, second.run("Go.") as inner:
        async for _ in outer:
            pass
        if not cancelled:
            async for _ in inner:
                pass
    assert first.last_result is not None
    assert first.last_result.text == "First."
    assert_run(first_seen)
    assert_run(second_seen)
    await assert_works_again(first, first_model)


async def test_an_agent_is_a_plain_value_that_any_task_may_use(autojump_clock: MockClock) -> None:
    made: list[Agent] = []

    async def make() -> None:
        await trio.lowlevel.checkpoint()
        made.append(Agent(ScriptedModel(["One.", "Two."])))

    async def use() -> None:
        await made[0].prompt("Go.")

    for step in (make, use, use):
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - another task is the point
            nursery.start_soon(step)
    assert story(made[0].messages) == ["user Go.", "assistant stop 'One.'", "user Go.", "assistant stop 'Two.'"]


def test_an_agent_may_be_made_outside_of_trio_and_used_in_several_runs_of_it() -> None:
    agent = Agent(ScriptedModel(["One.", "Two."]))
    for text in ("One.", "Two."):
        assert trio.run(agent.prompt, "Go.").text == text
    assert_idle(agent)


@pytest.mark.parametrize("form", ["agent_loop", "agent_loop_continue"])
async def test_the_iterable_loop_without_an_agent(form: str, autojump_clock: MockClock) -> None:
    model = ScriptedModel([calling("c1"), "Done."])
    config = LoopConfig(model=model)
    context = AgentContext([user("Before.")], [sleeper("c1", 1)])
    opened = (
        agent_loop([user("Go.")], context, config) if form == "agent_loop" else agent_loop_continue(context, config)
    )
    async with opened as run:
        events = [event async for event in run]
    assert_events_paired(events)
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert list(end.messages) == run.result
    prompts = ["user Go."] if form == "agent_loop" else []
    assert story(run.result) == [*prompts, "assistant tool_use '' c1", "c1 ok 'c1 done'", "assistant stop 'Done.'"]


async def test_the_iterable_loop_is_aborted_when_its_block_is_left(autojump_clock: MockClock) -> None:
    config = LoopConfig(model=ScriptedModel([calling("c1")]))
    with trio.fail_after(5):
        async with agent_loop([user("Go.")], AgentContext(tools=[sleeper("c1", 60)]), config) as run:
            async for event in run:
                if isinstance(event, ToolExecutionStart):
                    break
            await wait_all_tasks_blocked()
    assert story(run.result)[2:] == ["c1 aborted", "assistant aborted ''"]


# -------------------------------------------------------------- stopping


@pytest.mark.parametrize("at", [0.5, 1.5])
async def test_stop_after_turn_lets_the_turn_finish_and_leaves_the_queues(at: float, autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1"), calling("c1"), "Done."], sleeper("c1", 1))
    steered, later = user("Steered."), user("Later.")

    def stop() -> None:
        agent.steer(steered)
        agent.follow_up(later)
        agent.stop_after_turn()

    play = await prompted(agent, (at, stop))
    assert play.ended == math.ceil(at)
    assert play.returned(agent).end_reason == "stop_after_turn"
    assert len(model.requests) == math.ceil(at)
    assert story(agent.messages)[-1] == "c1 ok 'c1 done'", "no record: nothing was cut"
    assert waiting(agent) == [steered, later]
    assert_run(seen)
    # It is asked for once: the next run is not stopped.
    seen.next_run()
    agent.model = ScriptedModel(["Good."] * 3)
    play = await prompted(agent, text="On.")
    assert play.returned(agent).end_reason == "done"
    assert_nothing_lost(agent, [steered, later])


async def test_stop_after_turn_between_turns_and_while_idle(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1"))
    agent.stop_after_turn()
    agent.subscribe(lambda event: agent.stop_after_turn() if len(seen.of("turn_start")) == 2 else None, TurnStart)
    play = await prompted(agent)
    assert len(model.requests) == 2
    assert play.returned(agent).end_reason == "stop_after_turn"
    assert_run(seen)


async def test_an_abort_after_stop_after_turn_is_an_abort(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 5))
    play = await prompted(agent, (1, agent.stop_after_turn), (2, agent.abort))
    assert play.ended == 2
    assert play.returned(agent).end_reason == "aborted"
    assert_run(seen, ["c1"])


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_the_limit_of_turns_ends_the_run_after_that_turn(turns: int, autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(
        [calling("c1"), calling("c1"), calling("c1"), "Done."], sleeper("c1", 1), limits=RunLimits(turns=turns)
    )
    play = await prompted(agent)
    assert play.ended == turns
    assert len(model.requests) == turns
    assert play.returned(agent).end_reason == "max_turns"
    assert story(agent.messages)[-1] == "c1 ok 'c1 done'"
    assert_run(seen)
    await assert_works_again(agent, model)


async def test_the_limit_counts_turns_of_one_run(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(["One.", "Two."], limits=RunLimits(turns=1))
    for _ in range(2):
        seen.next_run()
        play = await prompted(agent)
        assert play.returned(agent).end_reason == "done"
    assert len(model.requests) == 2


@pytest.mark.parametrize("mode", [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}], ids=str)
async def test_the_limit_of_tool_calls_refuses_those_beyond_and_ends_the_run(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1"), calling("c2", "c3", "c4"), "Done."],
        *[sleeper(name, 1, log) for name in ("c1", "c2", "c3", "c4")],
        limits=RunLimits(tool_calls=2),
        **mode,
    )
    play = await prompted(agent)
    assert [text for text in log.texts if text.endswith("starts")] == ["c1 starts", "c2 starts"]
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert story(agent.messages)[4:] == ["c2 ok 'c2 done'", "c3 limit", "c4 limit"]
    assert play.returned(agent).end_reason == "max_tool_calls"
    assert len(model.requests) == 2
    assert_run(seen, ["c1", "c2"])


async def test_a_limit_of_tool_calls_that_is_just_reached_refuses_nothing(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."], sleeper("c1"), sleeper("c2"), limits=RunLimits(tool_calls=2)
    )
    play = await prompted(agent)
    assert play.returned(agent).end_reason == "done"
    assert len(model.requests) == 2
    assert_run(seen)


@pytest.mark.parametrize("where", ["tool", "stream", "hook", "listener"])
async def test_the_limit_of_seconds_is_an_abort_that_says_so(where: str, autojump_clock: MockClock) -> None:
    async def waits(*args: Any) -> Any:
        await trio.sleep(10)

    agent, model, seen = agent_of(
        [calling("c1"), "Done."],
        sleeper("c1", 10 if where == "tool" else 0),
        limits=RunLimits(seconds=3),
        before_tool_call=waits if where == "hook" else None,
    )
    if where == "stream":
        agent.stream_fn = waits
    unsubscribe = agent.subscribe(waits, ToolExecutionStart) if where == "listener" else lambda: None
    play = await prompted(agent)
    assert play.ended == (10 if where == "listener" else 3)
    result = play.returned(agent)
    assert result.end_reason == "deadline"
    assert result.stop_reason == "aborted"
    assert result.message is not None
    assert "3" in str(result.message.error_message)
    assert_run(seen)
    unsubscribe()
    agent.before_tool_call = agent.stream_fn = None
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["cancel", "KeyboardInterrupt", "listener"])
async def test_with_a_limit_of_seconds_other_causes_come_out_as_ever(cause: str, autojump_clock: MockClock) -> None:
    """The clock that watches is a child of the run: what comes out is bare all the same (7.6)."""

    async def execute(args: Any, ctx: Any) -> None:
        await trio.sleep(1)
        if cause == "KeyboardInterrupt":
            raise KeyboardInterrupt

    def listen(event: Any) -> None:
        if cause == "listener":
            raise ValueError("broken")

    agent, model, seen = agent_of([calling("c1")], Tool("c1", execute=execute), limits=RunLimits(seconds=30))
    unsubscribe = agent.subscribe(listen, TurnEnd)
    play = await prompted(agent, (0.5, act(agent, "cancel" if cause == "cancel" else "nothing")))
    expected = {"cancel": trio.Cancelled, "KeyboardInterrupt": KeyboardInterrupt, "listener": ValueError}[cause]
    assert type(play.error) is expected
    assert_run(seen, ["c1"])
    unsubscribe()
    await assert_works_again(agent, model)


async def test_a_run_that_is_over_before_its_time_leaves_no_clock_behind(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["Done."], limits=RunLimits(seconds=1000))
    play = await prompted(agent)
    assert play.ended == 0
    assert_run(seen)


# --------------------------------------------------------------- waiting


@pytest.mark.parametrize("where", ["tool", "hook", "listener", "stream", "nested task"])
async def test_wait_for_idle_from_inside_its_own_run_is_refused(where: str, autojump_clock: MockClock) -> None:
    agent: Agent
    refused: list[str] = []

    async def wait(*args: Any) -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            await agent.wait_for_idle()
        refused.append(where)

    async def execute(args: Any, ctx: Any) -> str:
        if where == "tool":
            await wait()
        elif where == "nested task":
            async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - another task is the point
                nursery.start_soon(wait)
        return "done"

    async def answer(request: Any, sink: StreamSink) -> AssistantMessage:
        if where == "stream":
            await wait()
        return await model.stream_fn(request, sink)

    agent, model, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute))
    agent.stream_fn = answer
    if where == "hook":
        agent.prepare_next_turn = wait
    if where == "listener":
        agent.subscribe(wait, AgentStart)
    with trio.fail_after(10):
        await agent.prompt("Go.")
    assert set(refused) == {where}
    assert_run(seen)


async def test_wait_for_idle_waits_for_another_task_s_run_and_returns_at_once_when_idle(
    autojump_clock: MockClock,
) -> None:
    agent, _, _ = agent_of([calling("c1"), "Done."], sleeper("c1", 5))
    log = Log()

    async def wait(name: str) -> None:
        await agent.wait_for_idle()
        log(name)

    await wait("idle before")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Go.")
        await trio.sleep(1)
        nursery.start_soon(wait, "one")
        nursery.start_soon(wait, "two")
    assert sorted(log.entries) == [(0, "idle before"), (5, "one"), (5, "two")]


async def test_wait_for_idle_may_wait_for_another_agent_from_inside_a_run(autojump_clock: MockClock) -> None:
    other, _, _ = agent_of([calling("c1"), "Done."], sleeper("c1", 5))
    log = Log()

    async def wait(args: Any, ctx: Any) -> str:
        await other.wait_for_idle()
        log("other is idle")
        return "done"

    agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=wait))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.prompt, "Go.")
        await trio.sleep(1)
        await agent.prompt("Go.")
    assert log.entries == [(5, "other is idle")]
    assert_run(seen)


# -------------------------------------------------------- bounded queues


@pytest.mark.parametrize("queue", ["steering", "follow_ups"])
async def test_a_bounded_queue_refuses_clearly_when_it_is_full(queue: str, autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["A."] * 4, steering_capacity=2, follow_up_capacity=2)
    put: Callable[[Any], None] = agent.steer if queue == "steering" else agent.follow_up
    put("one")
    with pytest.raises(QueueFullError, match="1 of 2 messages"):
        put([user("two"), user("three")])
    assert texts(waiting(agent)) == ["one"], "all or none"
    put("two")
    # Looking moved "one" into the head, which does not count: there is room for one more, and no more.
    put("three")
    with pytest.raises(trio.WouldBlock):
        put("four")
    assert texts(waiting(agent)) == ["one", "two", "three"]
    await agent.prompt("Go.")
    assert texts(agent.messages) == ["Go.", "one", "two", "three"]
    assert_run(seen)


async def test_a_sender_waits_for_room_and_a_cancelled_one_queues_nothing(autojump_clock: MockClock) -> None:
    agent, _model, seen = agent_of([calling("c1"), *["A."] * 4], sleeper("c1", 5), steering_capacity=1)
    log = Log()
    messages = [user(text) for text in ("one", "two", "three")]

    async def send() -> None:
        for message in messages:
            await agent.steering.send(message)
            log("sent")

    async def give_up() -> None:
        await trio.sleep(1)
        with trio.move_on_after(1):
            await agent.steering.send("never")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        nursery.start_soon(give_up)
        await agent.prompt("Go.")
    assert log.times("sent") == [0, 5, 5]
    assert texts(agent.messages) == ["Go.", "one", "two", "three"]
    assert_nothing_lost(agent, messages)
    assert_run(seen)


async def test_given_back_and_interrupting_messages_are_accepted_by_a_full_queue(autojump_clock: MockClock) -> None:
    """The bound is the channel's (8)."""

    def hook(turn: Any) -> None:
        agent.steer("new")
        agent.abort()

    agent, _, seen = agent_of([calling("c1"), "A."], sleeper("c1", 5), steering_capacity=1)
    agent.prepare_next_turn = hook
    await prompted(agent, (1, lambda: agent.steer("old")))
    agent.interrupt("first")
    assert texts(waiting(agent)) == ["first", "old", "new"]
    assert_run(seen)


async def test_a_cloned_sender_feeds_a_run_from_another_task(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1"), "A.", "B."], sleeper("c1", 2))
    sender = agent.steering.clone_sender()

    async def feed() -> None:
        with sender:
            await trio.sleep(1)
            await sender.send(user("from afar"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        await agent.prompt("Go.")
    assert texts(agent.messages) == ["Go.", "from afar"]
    agent.steer("the queue is open still")
    assert texts(waiting(agent)) == ["the queue is open still"]
    assert_run(seen)


async def test_the_same_message_queued_twice_is_two_messages(autojump_clock: MockClock) -> None:
    """No message lost: a host that keeps a constant around may queue it again, and a cut gives both back."""
    again = user("Go on.")
    agent, _, seen = agent_of(["A.", "B.", "C."], follow_up_mode="all")
    agent.follow_up([again, again])
    agent.subscribe(lambda event: agent.abort() if event.message is again else None, MessageEnd)
    await agent.prompt("Go.")
    assert texts(agent.messages) == ["Go.", "Go on."]
    assert waiting(agent) == [again]
    agent.clear_all_queues()
    assert not agent.has_queued_messages()
    assert_run(seen)


# --------------------------------------------------------------- results


async def test_a_result_says_what_came_of_the_run(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of(["Done."])
    result = await agent.prompt("Go.")
    assert (result.text, result.stop_reason, result.end_reason) == ("Done.", "stop", "done")
    assert story(result.new_messages) == ["user Go.", "assistant stop 'Done.'"]
    result.raise_for_error()


@pytest.mark.parametrize("cause", ["abort", "stream"])
async def test_raise_for_error_raises_what_there_is(cause: str, autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1") if cause == "abort" else OSError("no route")], sleeper("c1", 5))
    play = await prompted(agent, *([(1, act(agent, "abort"))] if cause == "abort" else []))
    expected = RunFailedError if cause == "abort" else OSError
    with pytest.raises(expected):
        play.returned(agent).raise_for_error()


async def test_events_and_listeners_by_type_and_unsubscribing(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1"))
    told: list[str] = []

    def listen(event: AgentEvent) -> None:
        told.append(kind(event))
        if len(told) == 2:
            unsubscribe()

    unsubscribe = agent.subscribe(listen, TurnStart, TurnEnd)
    await agent.prompt("Go.")
    assert told == ["turn_start", "turn_end"]
    unsubscribe()
    with pytest.raises(UsageError, match="no class of events"):
        agent.subscribe(listen, str)  # type: ignore[arg-type]
    assert any(isinstance(event, MessageUpdate) for event in seen.events)
    assert_run(seen)
