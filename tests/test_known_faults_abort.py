"""Known faults, group A: an abort that leaves tool calls without results."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from invariants import assert_works_again
from kit import Log, act, agent_of, assert_run, call, calling, prompted, resumed, sleeper, story, user
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentMessage,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    MessageBuilder,
    ModelRequest,
    StreamSink,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolExecutionStart,
    ToolResultMessage,
    default_convert_to_llm,
    repair_transcript,
    transcript_from_json,
    transcript_to_json,
)
from trio_agent.testing import ScriptedModel, assert_transcript_valid

MODES = [
    {"tool_execution": "parallel"},
    {"tool_execution": "parallel", "tool_preparation": "parallel"},
    {"tool_execution": "sequential"},
]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["parallel", "parallel-preparation", "sequential"])


def result_of(messages: Any, call_id: str) -> ToolResultMessage:
    (found,) = [m for m in messages if isinstance(m, ToolResultMessage) and m.tool_call_id == call_id]
    return found


# ------------------------------------------------------------------- B01


@every_mode
@pytest.mark.parametrize("count", [1, 3])
async def test_b01_an_abort_in_a_tool_answers_its_call_and_the_next_request_is_valid(
    count: int, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    ids = [f"c{number}" for number in range(1, count + 1)]
    agent, model, seen = agent_of([calling(*ids), "Hello again."], *[sleeper(name, 60) for name in ids], **mode)
    play = await prompted(agent, (1, agent.abort))
    assert play.ended == 1
    assert play.result.stop_reason == "aborted"
    assert play.result.end_reason == "aborted"
    result = result_of(agent.messages, "c1")
    assert result.is_error
    assert "aborted" in result.text
    assert_run(seen)

    await agent.prompt("x")
    (_, request) = model.requests
    assert_transcript_valid(request.messages)
    assert [m.tool_call_id for m in request.messages if isinstance(m, ToolResultMessage)] == ids


@every_mode
async def test_b01_a_host_cancellation_in_a_tool_answers_its_call_too(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 60), **mode)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    assert play.ended == 1
    result = result_of(agent.messages, "c1")
    assert result.is_error
    assert "cancelled" in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


# ------------------------------------------------------------------- B02


@pytest.mark.parametrize(
    ("agent_settings", "tool_settings"),
    [
        ({"tool_execution": "sequential"}, {}),
        ({}, {"execution_mode": "sequential"}),
        ({"max_parallel_tools": 1}, {}),
        ({"max_parallel_tools": 1, "tool_preparation": "parallel"}, {}),
    ],
    ids=["sequential agent", "sequential tool", "one slot", "one slot, parallel preparation"],
)
@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_b02_calls_that_have_not_begun_are_told_and_answered_and_never_run(
    cause: str, agent_settings: dict[str, Any], tool_settings: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    tools = [sleeper(name, 60, log, **tool_settings) for name in ("c1", "c2", "c3")]
    agent, model, seen = agent_of([calling("c1", "c2", "c3"), "Done."], *tools, **agent_settings)
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.ended == 1

    # Which call holds the only slot is Trio's choice; in the other modes it is the first.
    (entered,) = [text.split()[0] for text in log.texts if text.endswith("starts")]
    if "max_parallel_tools" not in agent_settings:
        assert entered == "c1"
    assert log.texts == [f"{entered} starts", f"{entered} cut"]
    kinds = {name: "aborted" if name == entered else "not_started" for name in ("c1", "c2", "c3")}
    results = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert [(m.tool_call_id, m.error_kind) for m in results] == list(kinds.items())
    assert all(m.is_error for m in results)
    assert sorted(seen.of("tool_execution_start")) == [f"tool_execution_start c{n}" for n in (1, 2, 3)]
    assert sorted(seen.of("tool_execution_end")) == [f"tool_execution_end c{n}" for n in (1, 2, 3)]
    assert_run(seen, [entered])
    await assert_works_again(agent, model)


# ------------------------------------------------------------------- B04


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt", "cancel_tool", "timeout"])
async def test_b04_the_model_is_told_that_the_call_was_cut_and_may_have_had_effects(
    cause: str, autojump_clock: MockClock
) -> None:
    tool = sleeper("c1", 60, timeout=1.0 if cause == "timeout" else None)
    agent, model, seen = agent_of([calling("c1"), "Next.", "Next."], tool)
    if cause == "cancel_tool":
        play = await prompted(agent, (1, lambda: agent.cancel_tool("c1", "the user pressed stop")))
    else:
        cut = act(agent, "nothing" if cause == "timeout" else cause, "the user pressed stop")
        play = await prompted(agent, (1, cut))
    assert play.ended == 1
    assert_run(seen, ["c1"])
    if cause in ("abort", "cancel"):
        await agent.prompt("And now?")
    result = result_of(model.requests[1].messages, "c1")
    word = {"abort": "aborted", "interrupt": "interrupted", "timeout": "time limit"}.get(cause, "cancelled")
    assert result.is_error
    assert word in result.text
    assert "may have had effects" in result.text
    if cause in ("abort", "cancel_tool"):
        assert "the user pressed stop" in result.text


async def test_b04_the_model_is_told_of_a_call_that_never_started_that_it_did_not(autojump_clock: MockClock) -> None:
    agent, model, _seen = agent_of(
        [calling("c1", "c2"), "Next."], sleeper("c1", 60), sleeper("c2"), tool_execution="sequential"
    )
    await prompted(agent, (1, agent.abort))
    await agent.prompt("And now?")
    result = result_of(model.requests[1].messages, "c2")
    assert "never started" in result.text
    assert "may have had effects" not in result.text


# ------------------------------------------------------------------- B05


@pytest.mark.parametrize("preparation", ["serial", "parallel"])
async def test_b05_an_abort_while_an_approval_is_pending_needs_no_reader(
    preparation: Any, autojump_clock: MockClock
) -> None:
    living = trio.lowlevel.current_statistics().tasks_living
    log = Log()
    approval = trio.Event()

    async def approve(question: BeforeToolCallContext) -> None:
        log("asked")
        await approval.wait()

    agent, model, seen = agent_of(
        [calling("c1", "c2")],
        sleeper("c1", log=log),
        sleeper("c2", log=log),
        before_tool_call=approve,
        tool_preparation=preparation,
    )
    asked = 2 if preparation == "parallel" else 1
    with trio.fail_after(5):
        async with agent.run("Go.") as run:
            starts = 0
            async for event in run:
                starts += isinstance(event, ToolExecutionStart)
                if starts == asked:
                    break
            await wait_all_tasks_blocked()
            assert log.texts == ["asked"] * asked
            agent.abort("nobody reads")
            await wait_all_tasks_blocked()
            # Nobody has read an event since, and the block is still open.
            assert story(agent.messages)[2:] == ["c1 not_started", "c2 not_started", "assistant aborted ''"]
            assert not agent.state.is_streaming
    assert log.now() == 0
    assert log.texts == ["asked"] * asked
    assert_run(seen, [])
    assert trio.lowlevel.current_statistics().tasks_living == living
    await assert_works_again(agent, model)


async def test_b05_an_abort_after_the_reader_has_left_its_block(autojump_clock: MockClock) -> None:
    """Leaving the block is the abort (9): it waits until the run has closed."""
    approval = trio.Event()
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1")], sleeper("c1", log=log), before_tool_call=lambda question: approval.wait()
    )
    with trio.fail_after(5):
        async with agent.run("Go.") as run:
            async for event in run:
                if isinstance(event, ToolExecutionStart):
                    break
            await wait_all_tasks_blocked()
    assert story(agent.messages)[2:] == ["c1 not_started", "assistant aborted ''"]
    assert log.texts == []
    assert run.result.end_reason == "aborted"
    assert_run(seen, [])
    await assert_works_again(agent, model)


# ------------------------------------------------------------------- B07


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "through JSON"])
async def test_b07_a_transcript_with_open_calls_is_repaired_and_resumed(
    stored: bool, autojump_clock: MockClock
) -> None:
    prompt, done = user("Go."), ToolResultMessage("c1", "a", "one")
    answer = AssistantMessage((ToolCall("c1", "a"), ToolCall("c2", "b")), stop_reason="tool_use")
    loaded: list[Any] = [prompt, answer, done]
    if stored:
        loaded = transcript_from_json(transcript_to_json(loaded))
    repaired = repair_transcript(loaded)
    log = Log()
    agent, model, seen = agent_of(["Both are known."], sleeper("a", log=log), sleeper("b", log=log), messages=repaired)
    play = await resumed(agent)

    assert play.result.text == "Both are known."
    assert log.texts == []
    (request,) = model.requests
    assert story(request.messages) == ["user Go.", "assistant tool_use '' c1 c2", "c1 ok 'one'", "c2 aborted"]
    assert result_of(agent.messages, "c1") == done
    assert result_of(agent.messages, "c2").is_error
    assert_transcript_valid(agent.messages)
    assert_run(seen)


def test_b07_repair_closes_every_kind_of_dangling_call_once() -> None:
    def asks(*ids: str, stop: Any = "tool_use") -> AssistantMessage:
        return AssistantMessage([ToolCall(name, "a") for name in ids], stop_reason=stop)

    broken: list[AgentMessage] = [
        user("1"),
        asks("c1", "c2"),
        ToolResultMessage("c1", "a", "one"),
        user("2"),
        asks("c3", stop="aborted"),
        user("3"),
        asks("c4", stop="length"),
        asks("c5"),
    ]
    repaired = repair_transcript(broken)
    assert story(repaired) == [
        "user 1",
        "assistant tool_use '' c1 c2",
        "c1 ok 'one'",
        "c2 aborted",
        "user 2",
        "assistant aborted '' c3",
        "user 3",
        "assistant length '' c4",
        "c4 aborted",
        "assistant tool_use '' c5",
        "c5 aborted",
    ]
    assert_transcript_valid(repaired)
    assert [message for message in repaired if message in broken] == broken
    assert repair_transcript(repaired) == repaired


# ------------------------------------------------------------------- B08


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_b08_a_call_that_was_streamed_but_not_returned_never_runs(cause: str, autojump_clock: MockClock) -> None:
    """Design 7.9, Answered: an answer that stopped with ``aborted`` needs no results, and gets none.

    What a vendor is sent of such an answer is its provider's affair, as in pi (its replay drops
    failed turns); the loop hands the answer over with its stop reason, never as a good one.
    """
    log = Log()

    async def stuck(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        for event in (
            builder.start(),
            builder.tool_call_start("c1", "c1"),
            builder.tool_call_delta("{}"),
            builder.tool_call_end(),
        ):
            await sink.send(event)
        await trio.sleep_forever()
        raise AssertionError

    agent, model, seen = agent_of([stuck, "Next."], sleeper("c1", log=log))
    play = await prompted(agent, (1, act(agent, cause)))
    assert play.ended == 1
    assert log.texts == []
    assert story(agent.messages)[1] == "assistant aborted '' c1"
    assert_run(seen, [])
    if cause != "interrupt":
        await agent.prompt("And now?")
    sent = model.requests[1].messages
    assert_transcript_valid(sent)
    assert [m.stop_reason for m in sent if isinstance(m, AssistantMessage)] == ["aborted"]
    assert not any(isinstance(m, ToolResultMessage) for m in sent)
    assert log.texts == []


# ------------------------------------------------------------------- B09


async def test_b09_a_failed_answer_with_half_a_call_stands_in_the_next_request_as_failed(
    autojump_clock: MockClock,
) -> None:
    """What the loop owes to the replay of a provider: no orphan result, the stop reason, the same each time.

    Dropping the failed answer is the provider's (see B08); the conversion of the loop is idempotent.
    """
    half = AssistantMessage(
        (ThinkingContent("Hm.", thinking_signature="s"), ToolCall("c1", "a", {"path": "/et"})),
        stop_reason="error",
        error_message="connection lost",
    )
    history = [user("Go."), half, user("Again.")]
    agent, model, seen = agent_of(["Done.", "Done."], sleeper("a"), messages=history)
    await agent.resume()
    (request,) = model.requests
    sent = [m for m in request.messages if m.role != "system"]
    assert sent == history
    assert default_convert_to_llm(sent) == sent
    assert repair_transcript(sent) == sent
    assert_transcript_valid(request.messages)
    assert_run(seen)


@pytest.mark.parametrize("failure", [OSError("connection lost"), "abort"], ids=["failed", "aborted"])
async def test_b09_the_loop_makes_no_orphan_result_of_a_failed_answer(failure: Any, autojump_clock: MockClock) -> None:
    async def half(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        for event in (builder.start(), builder.tool_call_start("c1", "c1"), builder.tool_call_delta('{"path": "/et')):
            await sink.send(event)
        await trio.sleep(1)
        if isinstance(failure, Exception):
            raise failure
        await trio.sleep_forever()
        raise AssertionError

    log = Log()
    agent, model, seen = agent_of([half, "Next."], sleeper("c1", log=log))
    await prompted(agent, *([(2, agent.abort)] if failure == "abort" else []))
    stop = "aborted" if failure == "abort" else "error"
    assert story(agent.messages) == ["user Go.", f"assistant {stop} '' c1"]
    assert_run(seen, [])
    await agent.prompt("Again.")
    assert story(model.requests[1].messages) == ["user Go.", f"assistant {stop} '' c1", "user Again."]
    assert log.texts == []


# ------------------------------------------------------------------- B11


@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool"])
@pytest.mark.parametrize("repeat", [True, False])
async def test_b11_a_cut_result_carries_the_last_report_where_asked_for(
    repeat: bool, cause: str, autojump_clock: MockClock
) -> None:
    """``repeat_partial`` is the documented switch; without it the result holds the library's words alone."""
    tool = sleeper("c1", 60, updates=["10 files", "20 files"])
    agent, model, seen = agent_of([calling("c1"), "Next."], tool, repeat_partial=repeat)
    cut = (lambda: agent.cancel_tool("c1")) if cause == "cancel_tool" else act(agent, cause)
    await prompted(agent, (1, cut))
    assert seen.of("tool_execution_update") == ["tool_execution_update c1"] * 2
    result = result_of(agent.messages, "c1")
    assert result.is_error
    assert ("20 files" in result.text) is repeat
    assert "10 files" not in result.text
    assert "may have had effects" in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


async def test_b11_only_what_the_listeners_were_told_is_repeated(autojump_clock: MockClock) -> None:
    """An update that nobody was told is not in the result: the transcript holds what was seen (4, 6)."""
    tool = sleeper("c1", 60, updates=["10 files", "20 files"])
    agent, _, seen = agent_of([calling("c1")], tool, repeat_partial=True)

    async def slow(event: Any) -> None:
        if seen.of("tool_execution_update"):
            await trio.sleep(5)

    agent.subscribe(slow)
    await prompted(agent, (1, agent.abort))
    assert seen.of("tool_execution_update") == ["tool_execution_update c1"]
    assert "10 files" in result_of(agent.messages, "c1").text
    assert "20 files" not in result_of(agent.messages, "c1").text
    assert_run(seen, ["c1"])


# ------------------------------------------------------------------- B12


@every_mode
@pytest.mark.parametrize("refused", ["a", "b"])
@pytest.mark.parametrize("reason", ["not on a Sunday", None])
async def test_b12_a_refused_call_is_answered_beside_the_one_that_ran(
    reason: str | None, refused: str, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def approve(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        if question.tool_call.id != refused:
            return None
        await trio.sleep(2)
        return BeforeToolCallResult(block=True, reason=reason)

    log = Log()
    agent, model, seen = agent_of(
        [calling("a", "b"), "Done."], sleeper("a", log=log), sleeper("b", log=log), before_tool_call=approve, **mode
    )
    play = await prompted(agent)
    assert play.ended == 2
    (_, request) = model.requests
    refusal = result_of(request.messages, refused)
    assert refusal.is_error
    assert refusal.text == (reason or "Tool execution was blocked")
    other = "b" if refused == "a" else "a"
    assert result_of(request.messages, other).text == f"{other} done"
    assert log.texts == [f"{other} starts", f"{other} ends"]
    assert_transcript_valid(request.messages)
    assert_run(seen, [other])


async def test_b12_all_calls_refused(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(
        [calling("a", "b"), "Done."],
        sleeper("a"),
        sleeper("b"),
        before_tool_call=lambda question: BeforeToolCallResult(block=True, reason="no"),
    )
    await prompted(agent)
    assert story(model.requests[1].messages)[2:] == ["a error 'no'", "b error 'no'"]
    assert_run(seen, [])


async def test_a_call_of_a_tool_that_is_unknown_is_answered_beside_an_abort(autojump_clock: MockClock) -> None:
    """The kind of group A, in the remaining outcomes: unknown, invalid, truncated, refused, cut."""
    agent = Agent(
        ScriptedModel([calling("nobody", call("c1", "a", x="no number")), "Done."]),
        tools=[sleeper("a", parameters={"type": "object", "properties": {"x": {"type": "integer"}}})],
    )
    play = await prompted(agent)
    assert story(agent.messages)[2:4] == ["nobody tool_not_found", "c1 invalid_arguments"]
    assert play.result.text == "Done."
    assert_transcript_valid(agent.messages)
    cut = AssistantMessage((TextContent("Too long"), ToolCall("c2", "a", {"x": 1})), stop_reason="length")
    agent.model = ScriptedModel([cut, "Done."])
    await agent.prompt("More.")
    assert "c2 truncated" in story(agent.messages)
    assert_transcript_valid(agent.messages)
