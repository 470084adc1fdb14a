"""Known faults, groups F and G: steering and follow-ups that are lost, doubled or misplaced; resume()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from invariants import assert_idle, assert_nothing_lost, assert_works_again, waiting
from kit import Log, Play, Recorder, act, agent_of, assert_run, calling, prompted, resumed, sleeper, story, texts, user
from trio.testing import MockClock

from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    BusyError,
    ContinueError,
    LoopConfig,
    MessageStart,
    RunLimits,
    TextContent,
    Tool,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
    UserMessage,
    run_agent_loop,
)
from trio_agent.testing import ScriptedModel, assert_events_paired, assert_transcript_valid

every_queue = pytest.mark.parametrize("queue", ["steer", "follow_up"])
every_mode = pytest.mark.parametrize("mode", ["one-at-a-time", "all"])


def put(agent: Agent, queue: str, messages: Sequence[AgentMessage]) -> None:
    (agent.steer if queue == "steer" else agent.follow_up)(messages)


def is_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def queue_at_turn_end(agent: Agent, queue: str) -> list[UserMessage]:
    """Queue two messages when the first turn ends."""
    messages = [user("one"), user("two")]

    def listen(event: TurnEnd) -> None:
        unsubscribe()
        put(agent, queue, messages)

    unsubscribe = agent.subscribe(listen, TurnEnd)
    return messages


# ------------------------------------------------------------------- B32


@every_queue
@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel", "failure", "KeyboardInterrupt"])
@pytest.mark.parametrize("clear", [False, True], ids=["kept", "cleared"])
async def test_b32_what_was_drained_when_the_run_is_cut_is_queued_again(
    clear: bool, cause: str, mode: Any, queue: str, autojump_clock: MockClock
) -> None:
    """The run is cut in prepare_next_turn, behind the drain; in the row's words, for every cause."""
    agent, model, seen = agent_of(["First.", "Second.", "Third."], steering_mode=mode, follow_up_mode=mode)
    messages = queue_at_turn_end(agent, queue)
    scope = trio.CancelScope()

    async def cut_here(turn: Any) -> None:
        assert agent.has_queued_messages()
        if clear:
            agent.clear_all_queues()
        if cause == "abort":
            agent.abort()
        elif cause == "cancel":
            scope.cancel(reason="the test")
            await trio.lowlevel.checkpoint()
        elif cause == "failure":
            raise ValueError("broken")
        else:
            raise KeyboardInterrupt

    agent.prepare_next_turn = cut_here
    with scope:
        if cause == "KeyboardInterrupt":
            with pytest.raises(KeyboardInterrupt):
                await agent.prompt("Go.")
        else:
            await agent.prompt("Go.")
    assert len(model.requests) == 1
    assert texts(agent.messages) == ["Go."]
    assert_run(seen)
    assert is_same(waiting(agent), [] if clear else messages)
    assert agent.has_queued_messages() is not clear

    agent.prepare_next_turn = None
    seen.next_run()
    await agent.prompt("On.")
    assert texts(agent.messages) == ["Go.", "On."] + ([] if clear else ["one", "two"])
    if not clear:
        assert_nothing_lost(agent, messages)
    assert waiting(agent) == []
    assert_run(seen)


@every_queue
@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel", "failure"])
async def test_b32_a_cut_between_two_messages_takes_the_first_and_leaves_the_second(
    cause: str, mode: Any, queue: str, autojump_clock: MockClock
) -> None:
    """From its message_start on a message counts as taken (7.4)."""
    agent, model, seen = agent_of(["First.", "Second.", "Third."], steering_mode=mode, follow_up_mode=mode)
    messages = queue_at_turn_end(agent, queue)
    scope = trio.CancelScope()

    async def listen(event: MessageStart) -> None:
        if event.message is messages[0]:
            if cause == "abort":
                agent.abort()
            elif cause == "cancel":
                scope.cancel(reason="the test")
                await trio.lowlevel.checkpoint()
            else:
                raise ValueError("broken")

    agent.subscribe(listen, MessageStart)
    with scope:
        if cause == "failure":
            with pytest.raises(ValueError, match="broken"):
                await agent.prompt("Go.")
        else:
            await agent.prompt("Go.")
    assert len(model.requests) == 1
    assert agent.messages[2] is messages[0]
    assert texts(agent.messages) == ["Go.", "one"]
    assert is_same(waiting(agent), messages[1:])
    assert_nothing_lost(agent, messages)
    assert_run(seen)


@every_queue
@every_mode
async def test_b32_a_cleared_message_does_not_come_back_when_it_was_taken_already(
    mode: Any, queue: str, autojump_clock: MockClock
) -> None:
    agent, _model, seen = agent_of(["First.", "Second.", "Third."], steering_mode=mode, follow_up_mode=mode)
    messages = queue_at_turn_end(agent, queue)

    def listen(event: MessageStart) -> None:
        if event.message is messages[0]:
            agent.clear_all_queues()
            agent.abort()

    agent.subscribe(listen, MessageStart)
    await agent.prompt("Go.")
    assert texts(agent.messages) == ["Go.", "one"]
    assert waiting(agent) == []
    assert_run(seen)


@every_mode
async def test_b32_given_back_messages_stand_ahead_of_newer_ones(mode: Any, autojump_clock: MockClock) -> None:
    agent, _model, _seen = agent_of(["First.", "Second.", "Third."], steering_mode=mode)
    first = queue_at_turn_end(agent, "steer")
    newer = user("three")

    def cut_here(turn: Any) -> None:
        agent.steer(newer)
        agent.abort()

    agent.prepare_next_turn = cut_here
    await agent.prompt("Go.")
    assert is_same(waiting(agent), [*first, newer])


class Source:
    """A low-level queue callback over a list, which hands out all it has."""

    def __init__(self, messages: Sequence[AgentMessage] = ()) -> None:
        self.messages = list(messages)
        self.asked = 0

    def __call__(self) -> list[AgentMessage]:
        self.asked += 1
        handed, self.messages = self.messages, []
        return handed


class ReturningSource(Source):
    """One that takes messages back."""

    def put_back(self, messages: Sequence[AgentMessage]) -> None:
        self.messages[:0] = messages


class AsyncSource(Source):
    """One that has to wait for what it hands out."""

    async def __call__(self) -> list[AgentMessage]:  # type: ignore[override]
        await trio.sleep(1)
        return super().__call__()


@pytest.mark.parametrize("where", ["get_steering_messages", "get_follow_up_messages"])
@pytest.mark.parametrize("kind", [Source, ReturningSource, AsyncSource])
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_b32_a_callback_gets_its_messages_back_or_they_are_appended(
    cause: str, kind: type[Source], where: str, autojump_clock: MockClock
) -> None:
    """Design 8: with put_back they return; without it they are appended in closing. Never in neither."""
    messages = [user("one"), user("two")]
    source = kind()
    abort, scope = Abort(), trio.CancelScope()
    seen = Recorder()

    def fill(event: Any) -> None:
        seen(event)
        if seen.kinds.count("turn_end") == 1 and isinstance(event, TurnEnd):
            source.messages = list(messages)

    async def cut_here(turn: Any) -> None:
        if cause == "abort":
            abort.request()
        else:
            scope.cancel(reason="the test")
            await trio.lowlevel.checkpoint()

    model = ScriptedModel(["First.", "Second."])
    queues: dict[str, Any] = {where: source}
    config = LoopConfig(model=model, prepare_next_turn=cut_here, **queues)
    new: list[AgentMessage] = []
    with scope:
        new = await run_agent_loop([user("Go.")], AgentContext(), config, fill, abort=abort)
    assert scope.cancelled_caught is (cause == "cancel")
    told = list(seen.end.messages)
    assert len(model.requests) == 1
    if kind is ReturningSource:
        assert story(told) == ["user Go.", "assistant stop 'First.'"]
        assert is_same(source.messages, messages)
    else:
        assert story(told) == ["user Go.", "assistant stop 'First.'", "user one", "user two", "assistant aborted ''"]
        assert is_same(told[2:4], messages)
        assert source.messages == []
    assert cause == "cancel" or is_same(new, told)
    assert_events_paired(seen.events)


async def test_b32_a_put_back_that_fails_is_told_like_a_failing_hook(autojump_clock: MockClock) -> None:
    class Broken(Source):
        def put_back(self, messages: Sequence[AgentMessage]) -> None:
            raise ValueError("no way back")

    abort, seen = Abort(), Recorder()
    source = Broken([user("one")])
    config = LoopConfig(
        model=ScriptedModel(["First."]), get_follow_up_messages=source, prepare_next_turn=lambda turn: abort.request()
    )
    with pytest.raises(ValueError, match="no way back"):
        await run_agent_loop([user("Go.")], AgentContext(), config, seen, abort=abort)
    assert_events_paired(seen.events)


# ------------------------------------------------------------------- B33


@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
@pytest.mark.parametrize("tool_execution", ["parallel", "sequential"])
async def test_b33_a_steered_message_stands_once_in_the_transcript_and_in_every_request(
    tool_execution: Any, mode: Any, autojump_clock: MockClock
) -> None:
    turns = [calling(f"c{number}") for number in range(1, 5)]
    tools = [sleeper(f"c{number}", 1) for number in range(1, 5)]
    agent, model, seen = agent_of([*turns, "Done."], *tools, steering_mode=mode, tool_execution=tool_execution)
    message = user("Steered.")
    await prompted(agent, (0.5, lambda: agent.steer(message)))
    assert len(model.requests) == 5
    for number, request in enumerate(model.requests):
        assert sum(sent is message for sent in request.messages) == (1 if number else 0)
    assert_nothing_lost(agent, [message])
    assert story(agent.messages)[2:4] == ["c1 ok 'c1 done'", "user Steered."]
    assert_run(seen)


# ------------------------------------------------------------------- B34


@pytest.mark.parametrize(
    "settings",
    [
        {"tool_execution": "parallel"},
        {"tool_execution": "sequential"},
        {"tool_preparation": "parallel"},
        {"max_parallel_tools": 1},
    ],
    ids=str,
)
@every_queue
async def test_b34_steering_does_not_skip_the_calls_of_a_batch(
    queue: str, settings: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    tools = [sleeper(f"c{number}", number, log) for number in (1, 2, 3)]
    agent, model, seen = agent_of([calling("c1", "c2", "c3"), "Done.", "Done."], *tools, **settings)
    message = user("Steered.")

    def listen(event: ToolExecutionEnd) -> None:
        unsubscribe()
        put(agent, queue, [message])

    unsubscribe = agent.subscribe(listen, ToolExecutionEnd)
    await prompted(agent)
    assert sorted(text for text in log.texts if text.endswith("ends")) == ["c1 ends", "c2 ends", "c3 ends"]
    answered = ["user Go.", "assistant tool_use '' c1 c2 c3", *[f"c{n} ok 'c{n} done'" for n in (1, 2, 3)]]
    if queue == "steer":
        assert story(model.requests[1].messages) == [*answered, "user Steered."]
    else:
        assert story(model.requests[1].messages) == answered
        assert story(model.requests[2].messages) == [*answered, "assistant stop 'Done.'", "user Steered."]
    assert_run(seen)


# ------------------------------------------------------------------- B36


@every_queue
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RunLimits(turns=1), "max_turns"),
        (RunLimits(tool_calls=1), "max_tool_calls"),
        (RunLimits(seconds=1.5), "deadline"),
    ],
    ids=["turns", "tool calls", "seconds"],
)
async def test_b36_a_message_that_comes_at_a_limit_stays_queued_and_the_reason_is_told(
    limits: RunLimits, reason: str, queue: str, autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Later."], sleeper("c1", 1), sleeper("c2", 2), limits=limits, tool_execution="sequential"
    )
    message = user("Queued.")
    play = await prompted(agent, (0.5, lambda: put(agent, queue, [message])))
    assert play.result.end_reason == reason
    assert len(model.requests) == 1
    assert texts(agent.messages) == ["Go."]
    assert is_same(waiting(agent), [message])
    assert_transcript_valid(agent.messages)
    assert_run(seen)

    agent.limits = RunLimits()
    seen.next_run()
    await agent.prompt("On.")
    assert_nothing_lost(agent, [message])
    assert texts(agent.messages) == (["Go.", "On.", "Queued."])
    assert_run(seen)


@every_queue
async def test_b36_a_message_at_the_turn_limit_behind_a_plain_answer_stays_queued(
    queue: str, autojump_clock: MockClock
) -> None:
    agent, _model, seen = agent_of(["First.", "Second."], limits=RunLimits(turns=1))
    message = user("Queued.")
    agent.subscribe(lambda event: put(agent, queue, [message]), TurnEnd)
    play = await prompted(agent)
    assert play.result.end_reason == "max_turns"
    assert is_same(waiting(agent), [message])
    assert_run(seen)


async def test_b36_a_limit_that_nothing_was_stopped_by_is_not_told_as_the_reason(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["First."], limits=RunLimits(turns=1, tool_calls=1, seconds=1))
    play = await prompted(agent)
    assert play.result.end_reason == "done"
    assert_run(seen)


# ------------------------------------------------------------------- B37


@every_mode
async def test_b37_what_is_steered_during_start_up_goes_into_the_first_request(
    mode: Any, autojump_clock: MockClock
) -> None:
    """The order is history, prompt, steering. One at a time takes the oldest; the next request the next."""
    history = [user("Before."), AssistantMessage((TextContent("Yes."),))]
    agent, model, seen = agent_of(["First.", "Second."], messages=history, steering_mode=mode)
    agent.steer("early")
    agent.subscribe(lambda event: agent.steer("at start"), AgentStart)
    await prompted(agent)
    head = ["user Before.", "assistant stop 'Yes.'", "user Go."]
    if mode == "all":
        assert story(model.requests[0].messages) == [*head, "user early", "user at start"]
        assert len(model.requests) == 1
    else:
        assert story(model.requests[0].messages) == [*head, "user early"]
        assert story(model.requests[1].messages) == [*head, "user early", "assistant stop 'First.'", "user at start"]
    assert waiting(agent) == []
    assert_run(seen)


async def test_b37_an_answer_is_not_awaited_before_the_queue_is_looked_at(autojump_clock: MockClock) -> None:
    agent, model, _seen = agent_of(["First."])
    agent.subscribe(lambda event: agent.steer("at the turn's start"), TurnStart)
    await prompted(agent)
    assert story(model.requests[0].messages) == ["user Go.", "user at the turn's start"]


# ------------------------------------------------------------------- B39


@every_queue
@every_mode
async def test_b39_queued_and_delivered_are_two_signals(mode: Any, queue: str, autojump_clock: MockClock) -> None:
    """Queued: the synchronous call, seen by has_queued_messages. Delivered: message_start and message_end."""
    agent, _, seen = agent_of(
        [calling("c1"), "Done.", "Done.", "Done."], sleeper("c1", 2), steering_mode=mode, follow_up_mode=mode
    )
    messages = [user("one"), user("two")]

    def queue_them() -> None:
        before = list(seen.events)
        put(agent, queue, messages)
        assert agent.has_queued_messages()
        assert is_same(agent.peek_queued_messages(), messages if mode == "all" else messages[:1])
        assert seen.events == before, "queueing is no delivery"
        assert not any(message in agent.messages for message in messages)

    play = await prompted(agent, (1, queue_them))
    assert play.ended == 2
    for message in messages:
        started = [event for event in seen.events if isinstance(event, MessageStart) and event.message is message]
        assert len(started) == sum(kept is message for kept in agent.messages) == 1
    assert not agent.has_queued_messages()
    assert_run(seen)


# ------------------------------------------------------------------- B40


@every_queue
@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel"])
@pytest.mark.parametrize("again", ["prompt", "resume"])
async def test_b40_what_is_queued_when_the_run_is_cut_is_kept_and_sent_by_the_next_run(
    again: str, cause: str, mode: Any, queue: str, autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of(
        [calling("c1"), "Second.", "Third."], sleeper("c1", 60), steering_mode=mode, follow_up_mode=mode
    )
    messages = [user("one"), user("two")]
    play = await prompted(agent, (1, lambda: put(agent, queue, messages)), (2, act(agent, cause)))
    assert play.ended == 2
    assert len(model.requests) == 1, "nothing is sent by itself"
    assert is_same(agent.peek_queued_messages(), messages if mode == "all" else messages[:1])
    assert is_same(waiting(agent), messages)
    assert texts(agent.messages) == ["Go."]
    assert_run(seen, ["c1"])

    seen.next_run()
    if again == "prompt":
        await agent.prompt("On.")
        assert texts(agent.messages) == ["Go.", "On.", "one", "two"]
    else:
        await agent.resume()
        assert texts(agent.messages) == ["Go.", "one", "two"]
    assert_nothing_lost(agent, messages)
    assert_transcript_valid(model.requests[-1].messages)
    assert_run(seen)


# ------------------------------------------------------------------- B41


@every_queue
@pytest.mark.parametrize("clear", [False, True], ids=["kept", "cleared before"])
async def test_b41_what_is_queued_after_the_abort_and_before_the_end_is_kept(
    clear: bool, queue: str, autojump_clock: MockClock
) -> None:
    async def unwinding(args: Any, ctx: Any) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
        raise AssertionError

    agent, model, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=unwinding))
    early, late = user("early"), user("late")

    def abort() -> None:
        put(agent, queue, [early])
        agent.abort()
        if clear:
            agent.clear_all_queues()

    play = await prompted(agent, (1, abort), (1.5, lambda: put(agent, queue, [late])))
    assert play.ended == 2
    assert is_same(waiting(agent), [late] if clear else [early, late])
    assert texts(agent.messages) == ["Go."]
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


# ------------------------------------------------------------------- B42


@every_queue
async def test_b42_a_run_whose_next_turn_is_slow_to_begin_never_looks_idle(
    queue: str, autojump_clock: MockClock
) -> None:
    async def slow(turn: Any) -> None:
        await trio.sleep(5)

    agent, _model, seen = agent_of(["First.", "Second."], prepare_next_turn=slow, steering_mode="all")
    queue_at_turn_end(agent, queue)
    agent.follow_up_mode = "all"
    looks: list[tuple[bool, bool]] = []

    def look() -> None:
        looks.append((agent.state.is_streaming, agent.has_queued_messages()))

    play = await prompted(agent, *[(0.25 + 0.5 * number, look) for number in range(12)])
    assert play.ended == 5
    assert looks[:10] == [(True, True)] * 10, "busy, and the drained message still counts as queued"
    assert looks[10:] == []
    assert_idle(agent)
    assert not agent.has_queued_messages()
    assert_run(seen)


async def test_b42_wait_for_idle_waits_for_follow_ups(autojump_clock: MockClock) -> None:
    async def slow(turn: Any) -> None:
        await trio.sleep(5)

    agent, _, _seen = agent_of(["First.", "Second."], prepare_next_turn=slow)
    log = Log()

    async def wait() -> None:
        await trio.sleep(1)
        await agent.wait_for_idle()
        log("idle")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        agent.follow_up("Queued.")
        await agent.prompt("Go.")
        log("done")
    assert log.times("done") == log.times("idle") == [5]


# ------------------------------------------------------------------- B43


async def test_b43_resume_on_an_answer_takes_steering_first_one_at_a_time(autojump_clock: MockClock) -> None:
    history = [user("Before."), AssistantMessage((TextContent("Yes."),))]
    agent, model, seen = agent_of(["1", "2", "3"], messages=history)
    agent.follow_up("f1")
    agent.steer([user("s1"), user("s2")])
    await agent.resume()
    assert [texts(request.messages)[1:] for request in model.requests] == [["s1"], ["s1", "s2"], ["s1", "s2", "f1"]]
    assert waiting(agent) == []
    assert_run(seen)


@every_mode
async def test_b43_resume_on_an_answer_takes_follow_ups_where_nothing_is_steered(
    mode: Any, autojump_clock: MockClock
) -> None:
    history = [user("Before."), AssistantMessage((TextContent("Yes."),))]
    agent, model, seen = agent_of(["1", "2"], messages=history, follow_up_mode=mode)
    agent.follow_up([user("f1"), user("f2")])
    await agent.resume()
    expected = [["f1", "f2"]] if mode == "all" else [["f1"], ["f1", "f2"]]
    assert [texts(request.messages)[1:] for request in model.requests] == expected
    assert_run(seen)


async def test_b43_resume_with_steering_does_not_look_for_more_before_the_request(autojump_clock: MockClock) -> None:
    """Design 5: the first look into the steering queue is left out when resume() started from it."""
    history = [user("Before."), AssistantMessage((TextContent("Yes."),))]
    agent, model, _seen = agent_of(["1", "2"], messages=history)
    agent.steer("s1")
    agent.subscribe(lambda event: agent.steer("s2"), AgentStart)
    await agent.resume()
    assert [texts(request.messages)[1:] for request in model.requests] == [["s1"], ["s1", "s2"]]


@pytest.mark.parametrize(
    ("history", "tail"),
    [
        ([user("Before."), AssistantMessage((TextContent("Yes."),))], "assistant"),
        ([user("Before."), AssistantMessage(stop_reason="aborted")], "assistant"),
        ([], "empty"),
    ],
    ids=["answer", "record", "nothing"],
)
async def test_b43_resume_with_nothing_to_say_fails_and_changes_nothing(
    history: list[AgentMessage], tail: str, autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of(["never"], messages=history, system_prompt="You help.")
    before = list(agent.messages)
    with pytest.raises(ContinueError) as caught:
        await agent.resume()
    assert caught.value.tail == tail
    assert list(agent.messages) == before
    assert seen.events == []
    assert model.requests == []
    assert_idle(agent)


@every_queue
async def test_b43_resume_on_an_empty_transcript_touches_no_queue(queue: str, autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(["never"], system_prompt="You help.")
    message = user("Queued.")
    put(agent, queue, [message])
    with pytest.raises(ContinueError, match="no messages"):
        await agent.resume()
    assert is_same(waiting(agent), [message])
    assert seen.events == []
    assert model.requests == []


# ------------------------------------------------------------------- B44


async def test_b44_a_retry_behind_an_older_answer_is_refused_clearly(autojump_clock: MockClock) -> None:
    """Of the row's two ways out, the clear refusal: resume() fails on an answer at the end (9)."""
    agent, model, _seen = agent_of(["One.", OSError("no route"), "Two."])
    await agent.prompt("Go.")
    await agent.prompt("More.")
    assert story(agent.messages)[-1] == "assistant error ''"

    before = list(agent.messages)
    with pytest.raises(ContinueError, match="assistant message"):
        await agent.resume()
    assert list(agent.messages) == before, "no second error is appended"

    # A host that drops the error uncovers the user's message: that is a retry.
    agent.messages = before[:-1]
    play = await resumed(agent)
    assert play.result.text == "Two."

    # One that drops the message too uncovers the older answer: refused again, nothing changed.
    agent.messages = before[:2]
    with pytest.raises(ContinueError, match="assistant message"):
        await agent.resume()
    assert list(agent.messages) == before[:2]
    assert len(model.requests) == 3


# ------------------------------------------------------------------- B45


@pytest.mark.parametrize("what", ["prompt", "resume", "run", "reset"])
@pytest.mark.parametrize("where", ["tool", "listener", "hook", "beside"])
async def test_b45_a_busy_agent_refuses_and_nothing_changes(what: str, where: str, autojump_clock: MockClock) -> None:
    refused: list[BusyError] = []
    agent: Agent

    async def enter() -> None:
        if what == "prompt":
            await agent.prompt("Me too.")
        elif what == "resume":
            await agent.resume()
        elif what == "run":
            async with agent.run("Me too."):
                raise AssertionError
        else:
            agent.reset()

    async def intrude() -> None:
        agent.steer("Queued.")
        before = list(agent.messages)
        with pytest.raises(BusyError) as caught:
            await enter()
        refused.append(caught.value)
        assert list(agent.messages) == before
        assert texts(waiting(agent)) == ["Queued."]
        assert agent.state.is_streaming
        agent.clear_all_queues()

    async def tool(args: Any, ctx: Any) -> str:
        if where == "tool":
            await intrude()
        await trio.sleep(1)
        return "done"

    async def listen(event: Any) -> None:
        if where == "listener":
            await intrude()

    async def hook(context: Any) -> None:
        if where == "hook":
            await intrude()

    agent, model, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=tool), prepare_request=hook)
    agent.subscribe(listen, TurnEnd)
    play = Play(lambda: agent.prompt("Go."))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run)
        if where == "beside":
            await trio.sleep(0.5)
            await intrude()
    assert refused
    assert isinstance(refused[0], trio.BusyResourceError)
    assert "steer" in str(refused[0])
    assert "follow_up" in str(refused[0])
    assert play.result.text == "Done."
    assert texts(agent.messages) == ["Go."]
    assert len(model.requests) == 2
    assert_run(seen)


async def test_b45_of_two_prompts_in_one_tick_exactly_one_runs(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(["One.", "Two."])
    outcomes: list[object] = []

    async def prompt(text: str) -> None:
        try:
            outcomes.append((await agent.prompt(text)).text)
        except BusyError as error:
            outcomes.append(type(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prompt, "A")
        nursery.start_soon(prompt, "B")
    assert sorted(map(str, outcomes)) == sorted(["One.", str(BusyError)])
    assert len(model.requests) == 1
    assert len(texts(agent.messages)) == 1
    assert_run(seen)
