"""Each way in which work can fail or be cut: it ends as design 6 and 7 say, on a mock clock.

What the transcript says at every place of a run is in test_cut_matrix; here are the kinds of failure
and the corners of the rules.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio
from invariants import assert_idle, assert_works_again, waiting
from kit import Log, Play, Recorder, act, agent_of, assert_run, call, calling, prompted, sleeper, story, texts, user
from trio.testing import MockClock

from trio_agent import (
    AgentEnd,
    AssistantMessage,
    BeforeToolCallContext,
    MessageBuilder,
    MessageEnd,
    ModelRequest,
    StreamSink,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
)
from trio_agent.testing import assert_transcript_valid

MODES = [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["parallel", "parallel-preparation", "sequential"])


def tool_of(function: Callable[[dict[str, Any], ToolContext], Any], name: str = "c1", **settings: Any) -> Tool:
    return Tool(name, execute=function, **settings)


def results_of(messages: Any) -> list[ToolResultMessage]:
    return [message for message in messages if isinstance(message, ToolResultMessage)]


# ---------------------------------------------- tool errors that are no cuts


@every_mode
async def test_a_tool_error_is_a_result_of_its_call(mode: dict[str, Any], autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 1, error=OSError("no disk")), **mode)
    play = await prompted(agent)
    assert play.ended == 1
    assert story(model.requests[1].messages)[2:] == ["c1 error 'no disk'"]
    assert results_of(agent.messages)[0].error_kind == "failed"
    assert play.returned(agent).exception is None
    assert_run(seen, ["c1"])


@every_mode
async def test_an_error_that_a_tool_reports_itself_keeps_what_it_says(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    reported = ToolResult("404", details={"url": "x"}, is_error=True)
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1", result=reported), **mode)
    await prompted(agent)
    (result,) = results_of(agent.messages)
    assert (result.text, result.details, result.is_error, result.error_kind) == ("404", {"url": "x"}, True, None)
    assert_run(seen, ["c1"])


@every_mode
async def test_bad_arguments_and_unknown_tools_run_nothing_and_the_model_is_told(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    broken = ToolCall("c3", "c1", arguments_error="no JSON", raw_arguments='{"n": ')
    agent, model, seen = agent_of(
        [[call("c0", "nobody"), call("c1", "c1", n="many"), call("c2", "c1"), broken, call("c4", "c1", n=1)], "Done."],
        sleeper("c1", log=log, parameters=schema),
        **mode,
    )
    await prompted(agent)
    assert log.texts == ["c1 starts", "c1 ends"]
    assert story(model.requests[1].messages)[2:] == [
        "c0 tool_not_found",
        "c1 invalid_arguments",
        "c2 invalid_arguments",
        "c3 invalid_arguments",
        "c4 ok 'c1 done'",
    ]
    assert "nobody" in results_of(agent.messages)[0].text
    assert_run(seen, ["c4"])


@every_mode
async def test_a_result_that_is_no_json_is_an_error_of_its_call(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1", result=object()), **mode)
    await prompted(agent)
    (result,) = results_of(agent.messages)
    assert result.is_error
    assert "JSON" in result.text
    assert_run(seen, ["c1"])


async def test_a_prepare_arguments_that_fails_is_an_error_of_its_call(autojump_clock: MockClock) -> None:
    def mend(arguments: Any) -> Any:
        raise KeyError("path")

    log = Log()
    agent, _, seen = agent_of(
        [calling("c1", "c2"), "Done."], sleeper("c1", log=log, prepare_arguments=mend), sleeper("c2", log=log)
    )
    await prompted(agent)
    assert log.texts == ["c2 starts", "c2 ends"]
    assert results_of(agent.messages)[0].is_error
    assert_run(seen, ["c2"])


# --------------------------------------------------------- groups in tools


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("several", list(errors))


@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool", "interrupt"])
async def test_a_tool_whose_own_clean_up_fails_while_it_is_cut_is_reported_as_cut(
    cause: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """Design 7.4, 7.6: its nursery raises a group of Cancelled and the failure; the group is split."""

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("clean-up failed")

    async def execute(args: Any, ctx: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await trio.sleep_forever()

    agent, model, seen = agent_of([calling("c1"), "Next."], tool_of(execute), **mode)
    cut = (lambda: agent.cancel_tool("c1", "why")) if cause == "cancel_tool" else act(agent, cause)
    play = await prompted(agent, (1, cut))
    assert play.ended == 1
    if cause == "cancel":
        play.assert_cancelled()
    else:
        assert play.returned(agent).exception is None
    (result,) = results_of(agent.messages)
    assert result.error_kind == "aborted"
    assert "clean-up failed" in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@every_mode
async def test_a_group_that_holds_a_cancelled_is_split_and_cancelled_goes_on_bare(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """What prompt() raises then is Cancelled, and no group of one (7.9)."""

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise group(ValueError("broken"), cancelled) from None  # noqa: ASYNC104 - it is in the group

    agent, model, seen = agent_of([calling("c1"), "Next."], tool_of(execute), **mode)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    (result,) = results_of(agent.messages)
    assert result.error_kind == "aborted"
    assert "broken" in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@pytest.mark.parametrize(
    "place", ["tool", "before_tool_call", "after_tool_call", "prepare_request", "stream", "listener"]
)
async def test_a_group_of_nothing_but_cancelled_is_a_cancellation(place: str, autojump_clock: MockClock) -> None:
    async def wrapped(*args: Any) -> Any:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise group(cancelled) from None  # noqa: ASYNC104 - it is in the group

    async def listen(event: Any) -> None:
        await wrapped()

    hooks = {place: wrapped} if place in ("before_tool_call", "after_tool_call", "prepare_request") else {}
    turns: list[Any] = [calling("c1")]
    tool = tool_of(wrapped) if place == "tool" else sleeper("c1")
    agent, model, seen = agent_of(turns, tool, **hooks)
    if place == "stream":
        agent.stream_fn = wrapped
    unsubscribe = agent.subscribe(listen, MessageEnd) if place == "listener" else lambda: None
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    assert_run(seen)
    unsubscribe()
    agent.stream_fn = None
    for hook in hooks:
        setattr(agent, hook, None)
    await assert_works_again(agent, model)


@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool"])
async def test_a_tool_that_turns_its_cut_into_an_error_of_its_own_was_cut(
    cause: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """Design 7.4: a tool that raises while it is cut is reported as cut, with that text added."""

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ConnectionError("connection torn down")

    agent, model, seen = agent_of([calling("c1"), "Next."], tool_of(execute), **mode)
    cut = (lambda: agent.cancel_tool("c1", "why")) if cause == "cancel_tool" else act(agent, cause)
    play = await prompted(agent, (1, cut))
    assert play.ended == 1
    if cause == "cancel":
        play.assert_cancelled()
    (result,) = results_of(agent.messages)
    assert result.error_kind == "aborted"
    assert "may have had effects" in result.text
    assert "connection torn down" in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_a_tool_that_swallows_its_cut_and_returns_keeps_its_value(
    cause: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """Truth: a call that returned keeps its value, whether the cut came before or after. The run ends all the same."""

    async def execute(args: Any, ctx: Any) -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:  # noqa: ASYNC103 - the fault under test
            return "saved what there was"  # noqa: ASYNC104 - the fault under test
        raise AssertionError

    agent, model, seen = agent_of([calling("c1"), "Next."], tool_of(execute), **mode)
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.ended == 1
    if cause == "cancel":
        play.assert_cancelled()
    assert story(agent.messages)[2:] == ["c1 ok 'saved what there was'", "assistant aborted ''"]
    assert len(model.requests) == 1
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


# --------------------------------------------------------------- shields


@every_mode
@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_a_tool_that_ignores_the_cut_under_a_shield_is_waited_for(
    cause: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """It returns, so its value is kept; meanwhile nothing is begun and state.aborting names it."""
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Next."], sleeper("c1", 30, log, shielded=True), sleeper("c2", 60, log), **mode
    )
    looks: list[set[str]] = []
    returned: list[float] = []

    def cut() -> None:
        if cause == "cancel":
            play.scope.cancel(reason="the test")
        else:
            action = act(agent, cause)
            assert callable(action)
            action()
        returned.append(log.now())

    play = Play(
        lambda: agent.prompt("Go."),
        (0.5, lambda: looks.append(set(agent.state.aborting))),
        (1, cut),
        (2, lambda: looks.append(set(agent.state.aborting))),
        (29, lambda: looks.append(set(agent.state.aborting))),
    )
    await play.run()
    assert returned == [1], "the cut does not wait for the run"
    assert play.ended == 30
    if cause == "cancel":
        play.assert_cancelled()
        assert looks[0] == set()
    else:
        assert looks == [set(), {"c1"}, {"c1"}]
    second = "c2 not_started" if "tool_execution" in mode else "c2 aborted"
    assert story(agent.messages)[2:4] == ["c1 ok 'c1 done'", second]
    assert [text for text in log.since(1) if text.endswith("starts")] == []
    assert_run(seen, ["c1"] if "tool_execution" in mode else ["c1", "c2"])
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_shielded_clean_up_of_a_tool_is_waited_for(cause: str, autojump_clock: MockClock) -> None:
    """Waiting for children does not count for the closing grace (7.5): five seconds, with a grace of one."""
    log = Log()

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
                log("cleaned up")

    agent, model, seen = agent_of([calling("c1"), "Next."], tool_of(execute))
    told: list[Any] = []

    async def listen(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        told.append(event)

    agent.subscribe(listen)
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.ended == 6
    assert log.entries == [(6, "cleaned up")]
    assert told == seen.events
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_a_stream_function_that_ignores_the_cut_is_waited_for_and_its_answer_is_no_answer(
    cause: str, autojump_clock: MockClock
) -> None:
    """It was cut before it returned: what had been told stands as the cut message (4, 7.4).

    The same for an abort and a host's cancellation, as everywhere (7.4).
    """

    async def stubborn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        await sink.send(builder.text_delta("Early"))
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        await sink.send(builder.text_delta(" late"))
        await sink.send(builder.text_end())
        return builder.finish("stop")

    agent, model, seen = agent_of([stubborn, "Next."])
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.ended == 5
    assert story(agent.messages)[1] == "assistant aborted 'Early'"
    assert_run(seen)
    await assert_works_again(agent, model)


# --------------------------------------------------------- cancel and time


@every_mode
@pytest.mark.parametrize("shielded", [False, True])
async def test_a_timeout_gives_its_call_alone_an_error_result(
    shielded: bool, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."],
        sleeper("c1", 10, log, timeout=2, shielded=shielded),
        sleeper("c2", 3, log),
        **mode,
    )
    play = await prompted(agent)
    first, second = results_of(model.requests[1].messages)
    if shielded:
        assert (first.is_error, first.text) == (False, "c1 done"), "it returned: it keeps its value (7.9, Truth)"
    else:
        assert first.error_kind == "timeout"
        assert "time limit of 2 s" in first.text
    assert second.text == "c2 done"
    assert play.ended == {True: 10, False: 3}[shielded] + ((3 if shielded else 2) if "tool_execution" in mode else 0)
    assert play.returned(agent).end_reason == "done"
    assert_run(seen, ["c1", "c2"])


async def test_a_timeout_starts_once_the_call_holds_its_limiters(autojump_clock: MockClock) -> None:
    """Design 6: three calls of two seconds, one at a time, each with a limit of three: none times out."""
    for limiter in (trio.CapacityLimiter(1), None):
        agent, _, seen = agent_of(
            [[call("c1"), call("c2", "c1"), call("c3", "c1")], "Done."],
            sleeper("c1", 2, timeout=3, limiter=limiter),
            max_parallel_tools=1 if limiter is None else None,
        )
        play = await prompted(agent)
        assert play.ended == 6
        assert [m.is_error for m in results_of(agent.messages)] == [False] * 3
        assert_run(seen)


async def test_the_time_of_after_tool_call_is_not_the_tools(autojump_clock: MockClock) -> None:
    async def slow(told: Any) -> None:
        await trio.sleep(5)

    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 1, timeout=2), after_tool_call=slow)
    play = await prompted(agent)
    assert play.ended == 6
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert_run(seen)


async def test_timeouts_and_errors_of_a_tools_own_are_its_own(autojump_clock: MockClock) -> None:
    """A move_on_after inside gives what the tool makes of it; a TooSlowError is an ordinary error."""

    async def moves_on(args: Any, ctx: Any) -> str:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        return "nothing came"

    async def fails(args: Any, ctx: Any) -> None:
        with trio.fail_after(1):
            await trio.sleep_forever()

    agent, _, seen = agent_of(
        [calling("c1", "c2"), "Done."], tool_of(moves_on, timeout=5), tool_of(fails, "c2", timeout=5)
    )
    play = await prompted(agent)
    assert play.ended == 1
    first, second = results_of(agent.messages)
    assert (first.text, first.is_error) == ("nothing came", False)
    assert (second.is_error, second.error_kind) == (True, "failed")
    assert_run(seen, ["c1", "c2"])


@pytest.mark.parametrize("first", ["timeout", "abort"])
async def test_the_cause_that_came_first_is_the_one_that_is_told(first: str, autojump_clock: MockClock) -> None:
    """A timeout at 2 and an abort at 3, and the other way round, with clean-up that outlasts both."""

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    agent, _, seen = agent_of([calling("c1"), "Next."], tool_of(execute, timeout=2 if first == "timeout" else 4))
    play = await prompted(agent, (3, agent.abort))
    assert play.ended == (7 if first == "timeout" else 8)
    (result,) = results_of(agent.messages)
    assert result.error_kind == ("timeout" if first == "timeout" else "aborted")
    assert play.returned(agent).end_reason == "aborted"
    assert_run(seen, ["c1"])


async def test_cancel_tool_reaches_a_call_in_every_state_and_no_call_that_is_over(autojump_clock: MockClock) -> None:
    approved = trio.Event()

    async def gate(question: BeforeToolCallContext) -> None:
        if question.tool_call.id == "asked":
            await approved.wait()

    log = Log()
    agent, _, seen = agent_of(
        [calling("done", "asked", "waits", "runs", "stays"), "Next."],
        sleeper("done", 0, log),
        sleeper("asked", 1, log),
        sleeper("waits", 1, log, limiter=(busy := trio.CapacityLimiter(1))),
        sleeper("runs", 60, log),
        sleeper("stays", 5, log),
        before_tool_call=gate,
        tool_preparation="parallel",
    )
    busy.acquire_on_behalf_of_nowait("the test")
    answers: dict[str, bool] = {}

    def cut(*names: str) -> None:
        for name in names:
            answers[name] = agent.cancel_tool(name, "not now")

    play = await prompted(
        agent, (1, lambda: cut("done", "asked", "waits", "runs", "nobody")), (6, lambda: cut("stays"))
    )
    assert answers == {"done": False, "asked": True, "waits": True, "runs": True, "nobody": False}
    assert play.ended == 5
    assert story(agent.messages)[2:7] == [
        "done ok 'done done'",
        "asked not_started",
        "waits not_started",
        "runs aborted",
        "stays ok 'stays done'",
    ]
    assert all("not now" in m.text for m in results_of(agent.messages) if m.is_error)
    assert not agent.cancel_tool("runs"), "idle: nothing to cancel"
    assert_run(seen, ["done", "runs", "stays"])


@pytest.mark.parametrize("mode", [{}, {"tool_execution": "sequential"}], ids=str)
async def test_cancel_tool_of_a_call_that_was_not_taken_up_yet(mode: dict[str, Any], autojump_clock: MockClock) -> None:
    async def gate(question: BeforeToolCallContext) -> None:
        await trio.sleep(2)

    log = Log()
    agent, _, seen = agent_of(
        [calling("c1", "c2", "c3"), "Next."],
        *[sleeper(name, 1, log) for name in ("c1", "c2", "c3")],
        before_tool_call=gate,
        **mode,
    )
    answers: list[bool] = []
    # c2 is being asked for: c1 is prepared (or over, in order), c3 was not looked at.
    cut_at = 2.5 if not mode else 4
    await prompted(agent, (cut_at, lambda: answers.extend(agent.cancel_tool(name) for name in ("c1", "c3"))))
    if mode:
        assert answers == [False, True]
        assert story(agent.messages)[2:5] == ["c1 ok 'c1 done'", "c2 ok 'c2 done'", "c3 not_started"]
        assert_run(seen, ["c1", "c2"])
    else:
        assert answers == [True, True]
        assert story(agent.messages)[2:5] == ["c1 not_started", "c2 ok 'c2 done'", "c3 not_started"]
        assert_run(seen, ["c2"])


async def test_cancel_tool_does_not_cut_after_tool_call(autojump_clock: MockClock) -> None:
    async def slow(told: Any) -> None:
        await trio.sleep(5)

    agent, _, seen = agent_of([calling("c1"), "Next."], sleeper("c1", 1), after_tool_call=slow)
    answers: list[bool] = []
    play = await prompted(agent, (2, lambda: answers.append(agent.cancel_tool("c1"))))
    assert answers == [False]
    assert play.ended == 6
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert_run(seen, ["c1"])


async def test_after_tool_call_sees_a_cut_call_like_any_other(autojump_clock: MockClock) -> None:
    """Design 7.3: the closing hooks see aborted results, may replace them, and run outside of the abort."""
    told: list[tuple[str | None, bool]] = []

    async def after(context: Any) -> None:
        await trio.sleep(1)
        told.append((context.result.error_kind, context.is_error))

    async def finish(turn: Any) -> str:
        await trio.sleep(1)
        told.append(("finish_turn", turn.message.stop_reason == "tool_use"))
        return "continue"

    agent, model, seen = agent_of(
        [calling("c1"), "Next."], sleeper("c1", 60), after_tool_call=after, finish_turn=finish
    )
    play = await prompted(agent, (1, agent.abort))
    # The record stands in a turn of its own, and finish_turn is told of that turn too.
    assert told == [("aborted", True), ("finish_turn", True), ("finish_turn", False)]
    assert play.ended == 4
    assert len(model.requests) == 1, "the decision is ignored"
    assert_run(seen, ["c1"])


# ------------------------------------------------------------- interrupt()


async def test_interrupt_puts_its_message_ahead_of_steered_ones(autojump_clock: MockClock) -> None:
    agent, _model, seen = agent_of([calling("c1"), "A.", "B.", "C."], sleeper("c1", 60))
    agent.follow_up("follow-up")
    play = await prompted(agent, (1, lambda: agent.steer("steered")), (2, lambda: agent.interrupt("first")))
    assert play.ended == 2
    assert texts(agent.messages) == ["Go.", "first", "steered", "follow-up"]
    assert story(agent.messages)[2:4] == ["c1 aborted", "user first"]
    assert "interrupted" in results_of(agent.messages)[0].text
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("order", [["abort", "interrupt"], ["interrupt", "abort"]])
@pytest.mark.parametrize("where", ["response", "batch"])
async def test_with_an_abort_the_abort_wins_and_the_message_stays_queued(
    where: str, order: list[str], autojump_clock: MockClock
) -> None:
    async def stuck(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await trio.sleep_forever()
        raise AssertionError

    agent, model, seen = agent_of([calling("c1") if where == "batch" else stuck, "Next."], sleeper("c1", 60))

    def both() -> None:
        for cause in order:
            action = act(agent, cause)
            assert callable(action)
            action()

    play = await prompted(agent, (1, both))
    assert play.ended == 1
    assert play.returned(agent).end_reason == "aborted"
    assert len(model.requests) == 1
    assert texts(agent.messages) == ["Go."]
    assert texts(waiting(agent)) == ["Stop."]
    assert story(agent.messages)[-1] == "assistant aborted ''"
    assert_run(seen)
    await assert_works_again(agent, model)


async def test_interrupt_while_idle_steers_the_next_run(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(["A.", "B."])
    agent.steer("steered")
    agent.interrupt("first")
    assert texts(waiting(agent)) == ["first", "steered"]
    agent.steering_mode = "all"
    await prompted(agent)
    assert texts(model.requests[0].messages) == ["Go.", "first", "steered"]
    assert_run(seen)


async def test_two_interrupts_in_one_run(autojump_clock: MockClock) -> None:
    async def slow(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await trio.sleep(60)
        raise AssertionError

    agent, _model, seen = agent_of([calling("c1"), slow, "Done."], sleeper("c1", 60))
    play = await prompted(agent, (1, lambda: agent.interrupt("one")), (2, lambda: agent.interrupt("two")))
    assert play.ended == 2
    assert story(agent.messages) == [
        "user Go.",
        "assistant tool_use '' c1",
        "c1 aborted",
        "user one",
        "assistant aborted ''",
        "user two",
        "assistant stop 'Done.'",
    ]
    assert play.returned(agent).end_reason == "done"
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("cause", ["abort", "cancel"])
@pytest.mark.parametrize("where", ["response", "batch"])
async def test_a_cut_behind_an_interrupted_turn(where: str, cause: str, autojump_clock: MockClock) -> None:
    """Design 7.4: a record where results would have asked for a request; an interrupted answer is one already."""

    async def slow(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await trio.sleep(60)
        raise AssertionError

    async def hook(turn: Any) -> None:
        await trio.sleep(60)

    agent, model, seen = agent_of(
        [calling("c1") if where == "batch" else slow], sleeper("c1", 60), prepare_next_turn=hook
    )
    play = await prompted(agent, (1, lambda: agent.interrupt("one")), (2, act(agent, cause)))
    assert play.ended == 2
    told = story(agent.messages)
    if where == "batch":
        assert told == ["user Go.", "assistant tool_use '' c1", "c1 aborted", "assistant aborted ''"]
    else:
        assert told == ["user Go.", "assistant aborted ''"]
    assert texts(waiting(agent)) == ["one"]
    assert_run(seen)
    agent.prepare_next_turn = None
    await assert_works_again(agent, model)


async def test_finish_turn_is_told_of_an_interrupted_turn_and_cannot_end_the_run(autojump_clock: MockClock) -> None:
    turns: list[list[str]] = []

    def finish(turn: Any) -> str:
        turns.append(story([turn.message, *turn.tool_results]))
        return "end"

    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 60), finish_turn=finish)
    play = await prompted(agent, (1, lambda: agent.interrupt("on")))
    assert turns == [["assistant tool_use '' c1", "c1 aborted"], ["assistant stop 'Done.'"]]
    assert play.returned(agent).end_reason == "finish_turn"
    assert len(model.requests) == 2
    assert_run(seen, ["c1"])


async def test_what_a_tool_returned_under_an_interrupt_is_kept(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."], sleeper("c1", 1), sleeper("c2", 60), sleeper("c3", 5, shielded=True)
    )
    play = await prompted(agent, (2, lambda: agent.interrupt("on")))
    assert play.ended == 5
    assert story(agent.messages)[2:5] == ["c1 ok 'c1 done'", "c2 aborted", "c3 ok 'c3 done'"]
    assert_run(seen, ["c1", "c2", "c3"])


# --------------------------------------------------------------- listeners


@pytest.mark.parametrize("cause", ["nothing", "abort", "cancel"])
async def test_a_listener_that_raises_while_the_run_is_cut(cause: str, autojump_clock: MockClock) -> None:
    """Its error comes out; while the host cancels with Cancelled as its context (7.6). The run is closed."""
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 5))

    def listen(event: MessageEnd) -> None:
        if event.message.role == "tool_result":
            raise ValueError("broken")

    behind = Recorder()
    unsubscribe = agent.subscribe(listen, MessageEnd)
    agent.subscribe(behind)
    play = await prompted(agent, (1, act(agent, cause)))
    assert type(play.error) is ValueError
    assert play.ended == (5 if cause == "nothing" else 1)
    assert isinstance(play.error.__context__, trio.Cancelled) is (cause == "cancel")
    assert play.scope.cancelled_caught is False
    assert behind.events == seen.events
    record = agent.messages[-1]
    assert isinstance(record, AssistantMessage)
    assert record.stop_reason == ("error" if cause == "nothing" else "aborted")
    assert record.error_message == "broken"
    assert seen.end.end_reason == ("cancelled" if cause == "cancel" else "error")
    assert_run(seen, ["c1"])
    unsubscribe()
    await assert_works_again(agent, model)


async def test_a_listener_that_fails_in_its_clean_up_while_the_host_cancels(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 5))

    async def listen(event: Any) -> None:
        if event.type == "tool_execution_start":
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("clean-up failed")

    behind = Recorder()
    unsubscribe = agent.subscribe(listen)
    agent.subscribe(behind)
    play = await prompted(agent, (1, "cancel"))
    assert type(play.error) is ValueError
    assert isinstance(play.error.__context__, trio.Cancelled)
    assert play.ended == 1
    assert behind.events == seen.events
    assert story(agent.messages)[2:] == ["c1 not_started", "assistant aborted ''"]
    assert_run(seen, [])
    unsubscribe()
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_an_exception_at_one_event_does_not_lose_the_next(cause: str, autojump_clock: MockClock) -> None:
    """Design 7.5: each event of the closing is applied and told, whatever the one before did."""
    agent, _, seen = agent_of([calling("c1", "c2")], sleeper("c1", 5), sleeper("c2", 5))
    failed: list[ValueError] = []

    async def listen(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        if log.now() == 1:
            failed.append(ValueError(f"at {event.type}"))
            raise failed[-1]

    log, behind = Log(), Recorder()
    agent.subscribe(listen)
    agent.subscribe(behind)
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.error is failed[0]
    assert [str(error) for error in failed] == [f"at {text.split()[0]}" for text in seen.log.since(1)]
    # Each kind once: a listener that fails at every event of thousands would bury what it says.
    assert play.error.__notes__ == list(dict.fromkeys(f"also failed: {error!r}" for error in failed[1:]))
    assert len(play.error.__notes__) < len(failed) - 1
    assert len(traceback.extract_tb(play.error.__traceback__)) < 40
    assert behind.events == seen.events
    assert play.ended == 1
    assert_run(seen, ["c1", "c2"])


async def test_a_listener_that_fails_twice_does_not_hide_the_hosts_cancellation(autojump_clock: MockClock) -> None:
    """The second failure takes the place of Cancelled; those behind are told under the shield of the closing."""
    agent, _, seen = agent_of([calling("c1", "c2")], sleeper("c1", 5), sleeper("c2", 5))
    behind = Recorder()
    failed: list[str] = []

    async def listen(event: Any) -> None:
        if trio.current_time() < 1 or len(failed) == 2:
            return
        try:
            await trio.sleep(len(failed) * 10)
        finally:
            failed.append(event.type)
            raise ValueError(f"at {event.type}")

    async def listen_behind(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        behind(event)

    agent.subscribe(listen)
    agent.subscribe(listen_behind)
    play = await prompted(agent, (1, act(agent, "abort")), (2, "cancel"))
    assert failed == ["tool_execution_end", "tool_execution_end"]
    assert isinstance(play.error, ValueError)
    assert behind.events == seen.events
    assert play.ended == 2


async def test_a_listener_can_abort_look_at_the_abort_and_wait_for_it(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 60))
    told: list[tuple[str, bool, str | None]] = []

    def listen(event: Any, abort: Any) -> None:
        told.append((event.type, abort.requested, abort.reason))
        if event.type == "tool_execution_start":
            abort.request("enough")

    agent.subscribe(listen)
    waited: list[str | None] = []

    async def gate(question: Any, abort: Any) -> None:
        with trio.CancelScope(shield=True):
            await abort.wait()
            waited.append(abort.reason)

    play = await prompted(agent)
    assert play.ended == 0
    assert told[0] == ("agent_start", False, None)
    assert told[-1] == ("agent_end", True, "enough")
    assert play.returned(agent).message.error_message == "Operation aborted: enough"  # type: ignore[union-attr]
    assert_run(seen, [])

    agent.before_tool_call = gate
    agent.model.extend([calling("c1")])  # type: ignore[attr-defined]
    await prompted(agent)
    assert waited == []  # aborted at tool_execution_start: no preparing hook is called any more


async def test_a_hook_can_wait_for_the_abort(autojump_clock: MockClock) -> None:
    waited: list[tuple[float, str | None]] = []

    async def gate(question: Any, abort: Any) -> None:
        with trio.CancelScope(shield=True):
            await abort.wait()
            waited.append((log.now(), abort.reason))

    log = Log()
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 60), before_tool_call=gate)
    play = await prompted(agent, (3, lambda: agent.abort("enough")))
    assert waited == [(3, "enough")]
    assert play.ended == 3
    assert_run(seen, [])


# ------------------------------------------------------------------ stream


async def test_a_failing_model_keeps_what_it_had_sent_and_everything_of_it_is_told(autojump_clock: MockClock) -> None:
    async def fails(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        for event in (builder.start(), builder.text_start(), builder.text_delta("Half a "), builder.text_delta("word")):
            await sink.send(event)
        raise ConnectionError("gone")

    agent, model, seen = agent_of([fails, "Next."], thinking_level="low")
    play = await prompted(agent)
    result = play.returned(agent)
    assert story(agent.messages) == ["user Go.", "assistant error 'Half a word'"]
    assert len(seen.of("message_update")) == 3
    assert isinstance(result.exception, ConnectionError)
    assert result.message is not None
    assert (result.message.error_message, result.message.thinking_level) == ("gone", "low")
    assert result.end_reason == "error"
    assert_run(seen)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("answer", [None, "text", AssistantMessage(stop_reason="pending")], ids=str)
async def test_a_stream_function_that_gives_no_answer_breaks_the_contract(
    answer: Any, autojump_clock: MockClock
) -> None:
    from trio_agent import StreamError

    async def wrong(request: ModelRequest, sink: StreamSink) -> Any:
        await trio.lowlevel.checkpoint()
        return answer

    agent, _, seen = agent_of([])
    agent.stream_fn = wrong
    play = await prompted(agent)
    assert isinstance(play.returned(agent).exception, StreamError)
    assert story(agent.messages) == ["user Go.", "assistant error ''"]
    assert_run(seen)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_what_was_sent_but_not_told_when_a_response_is_cut_is_dropped(
    cause: str, autojump_clock: MockClock
) -> None:
    """Design 4: the transcript holds what the listeners saw."""

    async def chatty(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        for number in range(100):
            await sink.send(builder.text_delta(f"{number} "))
        raise AssertionError

    agent, model, seen = agent_of([chatty, "Next."])

    async def slow(event: Any) -> None:
        await trio.sleep(1)

    unsubscribe = agent.subscribe(slow)
    play = await prompted(agent, (9.5, act(agent, cause)))
    # Told by then: the starts and end of the prompt, and what the listener began to hear of the answer.
    assert story(agent.messages)[1] == "assistant aborted '0 1 2 3 '"
    if cause == "cancel":
        assert play.ended < 11.5
    assert_run(seen)
    unsubscribe()
    await assert_works_again(agent, model)


async def test_events_before_start_are_not_told(autojump_clock: MockClock) -> None:
    async def early(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.text_start())
        await sink.send(builder.text_delta("before "))
        await sink.send(builder.start())
        await sink.send(builder.text_delta("after"))
        await sink.send(builder.text_end())
        return builder.finish("stop")

    agent, _, seen = agent_of([early])
    await prompted(agent)
    assert seen.of("message_update") == ["message_update"] * 2
    assert story(agent.messages)[1] == "assistant stop 'before after'"
    assert_run(seen)


# ----------------------------------------------------------------- scopes


@pytest.mark.parametrize("what", ["prompt", "resume", "run"])
async def test_a_run_that_is_entered_in_a_cancelled_scope_changes_nothing(what: str, autojump_clock: MockClock) -> None:
    history = [user("Before.")] if what == "resume" else []
    agent, model, seen = agent_of(["Done."], messages=history)
    agent.steer("Queued.")
    with trio.CancelScope() as scope:
        scope.cancel(reason="the test")
        if what == "prompt":
            await agent.prompt("Go.")
        elif what == "resume":
            await agent.resume()
        else:
            async with agent.run("Go.") as run:
                async for _ in run:
                    pass
    assert scope.cancelled_caught
    assert seen.events == []
    assert model.requests == []
    assert list(agent.messages) == history
    assert texts(waiting(agent)) == ["Queued."]
    assert agent.last_result is None
    assert_idle(agent)


async def test_a_cancellation_that_meets_no_checkpoint_before_the_end_is_not_noticed(autojump_clock: MockClock) -> None:
    """Design 7.9, as everywhere in Trio: the last listener cancels, and nothing is awaited any more."""
    agent, _, seen = agent_of(["Done."])
    scope = trio.CancelScope()
    agent.subscribe(lambda event: scope.cancel(reason="the test"), AgentEnd)
    with scope:
        result = await agent.prompt("Go.")
        assert result.text == "Done."
    assert_run(seen)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_cancels_the_host_scope_and_returns_keeps_its_value(
    is_async: bool, autojump_clock: MockClock
) -> None:
    """There is no checkpoint between a tool's return and its record (6)."""
    scope = trio.CancelScope()

    async def execute(args: Any, ctx: Any) -> str:
        await trio.lowlevel.checkpoint()
        scope.cancel(reason="the test")
        return "done before it was noticed"

    def plain(args: Any, ctx: Any) -> str:
        scope.cancel(reason="the test")
        return "done before it was noticed"

    tool = tool_of(execute) if is_async else tool_of(plain, in_thread=False)
    agent, _, seen = agent_of([calling("c1"), "never"], tool)
    with scope:
        await agent.prompt("Go.")
    assert scope.cancelled_caught
    assert story(agent.messages)[2:] == ["c1 ok 'done before it was noticed'", "assistant aborted ''"]
    assert_run(seen, ["c1"])


async def test_a_tool_that_aborts_its_own_run_and_returns_keeps_its_value(autojump_clock: MockClock) -> None:
    async def execute(args: Any, ctx: Any) -> str:
        await trio.lowlevel.checkpoint()
        agent.abort("I have seen enough")
        return "done all the same"

    agent, model, seen = agent_of([calling("c1", "c2"), "never"], tool_of(execute), sleeper("c2", 5))
    play = await prompted(agent)
    assert play.ended == 0
    first, second = results_of(agent.messages)
    assert first.text == "done all the same"
    assert second.error_kind == "aborted"
    assert len(model.requests) == 1
    assert_run(seen)


async def test_a_withheld_result_says_so_and_shows_nothing(autojump_clock: MockClock) -> None:
    """The hook may have been about to redact it (7.4)."""

    async def redact(told: Any) -> None:
        await trio.sleep(5)

    agent, _model, seen = agent_of([calling("c1"), "Next."], sleeper("c1", result="a secret"), after_tool_call=redact)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    (result,) = results_of(agent.messages)
    assert result.error_kind == "withheld"
    assert "withheld" in result.text
    assert "had returned" in result.text
    assert not any("secret" in repr(event) for event in seen.events)
    assert not any("secret" in repr(message) for message in agent.messages)
    assert_run(seen, ["c1"])


async def test_a_call_whose_update_is_not_told_yet_is_withheld_from_no_one_without_a_hook(
    autojump_clock: MockClock,
) -> None:
    """Without after_tool_call there is nothing to wait for: the value is kept (7.9, Truth)."""
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", updates=["half"]))

    async def slow(event: ToolExecutionUpdate) -> None:
        await trio.sleep(60)

    agent.subscribe(slow, ToolExecutionUpdate)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert_run(seen, ["c1"])


async def test_the_record_keeps_the_thinking_level_and_a_failure_message_does_not(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1")], sleeper("c1", 5), thinking_level="high")
    await prompted(agent, (1, agent.abort))
    record = agent.messages[-1]
    assert isinstance(record, AssistantMessage)
    assert (record.content, record.thinking_level, record.error_kind) == ((), "high", "aborted")
    assert record.error_message == "Operation aborted"

    def broken(turn: Any) -> None:
        raise ValueError("broken")

    agent, _, _ = agent_of([calling("c1")], sleeper("c1"), thinking_level="high", prepare_next_turn=broken)
    await prompted(agent)
    failure = agent.messages[-1]
    assert isinstance(failure, AssistantMessage)
    assert (failure.content, failure.thinking_level, failure.stop_reason) == ((TextContent(""),), None, "error")


async def test_an_aborted_prompt_that_could_not_be_told_is_appended_all_the_same(autojump_clock: MockClock) -> None:
    """Once agent_start was applied prompt messages are always appended (7.4)."""
    agent, model, seen = agent_of(["never"])
    prompts = [user("one"), user("two"), user("three")]

    def abort_at_once(event: Any) -> None:
        agent.abort()

    agent.subscribe(abort_at_once)
    await Play(lambda: agent.prompt(prompts)).run()
    assert [message for message in agent.messages if message in prompts] == prompts
    assert model.requests == []
    assert story(agent.messages)[-1] == "assistant aborted ''"
    assert_run(seen)
    assert_transcript_valid(agent.messages)


async def test_messages_of_prepare_next_turn_that_were_not_appended_are_discarded(autojump_clock: MockClock) -> None:
    """Design 7.4: they are the hook's, not the user's; what was queued stays queued."""
    from trio_agent import AgentLoopTurnUpdate

    extra = [user("extra one"), user("extra two")]
    agent, _, seen = agent_of(
        [calling("c1"), "Next."], sleeper("c1", 1), prepare_next_turn=lambda turn: AgentLoopTurnUpdate(messages=extra)
    )
    agent.subscribe(lambda event: agent.abort() if event.message is extra[0] else None, MessageEnd)
    await prompted(agent, (0.5, lambda: agent.steer("steered")))
    assert texts(agent.messages) == ["Go.", "extra one"]
    assert texts(waiting(agent)) == ["steered"]
    assert_run(seen)
