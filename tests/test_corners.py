"""Corners of the core that no larger test comes by: refused settings, queues and closing hooks that fail."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import trio
from invariants import assert_idle
from kit import Recorder, call, calling, sleeper
from trio.testing import MockClock

from trio_agent import (
    Abort,
    AfterToolCallResult,
    Agent,
    AgentContext,
    AgentEvent,
    AgentMessage,
    AssistantMessage,
    LoopConfig,
    MessageUpdate,
    RunLimits,
    Tool,
    ToolExecutionEnd,
    ToolResult,
    ToolResultMessage,
    Usage,
    UsageError,
    UserMessage,
    run_agent_loop,
    run_tool_call,
)
from trio_agent._call import overridden
from trio_agent.testing import ScriptedModel, assert_events_paired, assert_transcript_valid


class HostError(Exception):
    pass


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tool_execution": "serial"}, "tool_execution is 'serial', but must be one of"),
        ({"tool_preparation": "sequential"}, "tool_preparation is 'sequential', but must be one of"),
        ({"thinking_level": "deep"}, "thinking_level is 'deep', but must be one of"),
        ({"max_parallel_tools": 0}, "max_parallel_tools is 0, but must be at least 1"),
        ({"closing_grace": -1}, "closing_grace is -1, but must be at least 0"),
        ({"steering_mode": "some"}, "is 'some', but must be one of"),
        ({"tools": [print]}, "is no Tool"),
        ({"tools": [Tool("a", execute=print), Tool("a", execute=print)]}, "two tools are called 'a'"),
    ],
)
def test_a_bad_setting_is_refused_with_its_value(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Agent(ScriptedModel([]), **settings)


@pytest.mark.parametrize("limit", ["turns", "tool_calls", "seconds"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(UsageError, match=rf"the limit {limit} is 0, but must be above 0"):
        RunLimits(**{limit: 0})


async def test_an_abort_can_be_waited_for_before_and_after_it_came(autojump_clock: MockClock) -> None:
    abort = Abort()
    assert repr(abort) == "<trio_agent.Abort: not requested>"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort.wait)
        await trio.sleep(1)
        abort.request("enough")
        abort.request("a second reason")
    await abort.wait()
    late = Abort()
    late.request()
    await late.wait()
    assert abort.reason == "enough"
    assert repr(abort) == "<trio_agent.Abort: requested, 'enough'>"


async def test_an_agent_says_what_it_is_and_what_came_of_its_calls(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel([calling(call("c1")), "Done."]), tools=[sleeper("c1")])
    result = await agent.prompt("Go.")
    assert [message.tool_call_id for message in result.tool_results] == ["c1"]
    assert repr(agent).endswith("5 messages, idle>")


@pytest.mark.parametrize("queue", ["get_steering_messages", "get_follow_up_messages"])
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_queue_that_raises_closes_the_run_and_is_raised(
    queue: str, kind: str, autojump_clock: MockClock
) -> None:
    def plain() -> list[AgentMessage]:
        raise HostError(queue)

    async def asynchronous() -> list[AgentMessage]:
        await trio.sleep(1)
        raise HostError(queue)

    events: list[AgentEvent] = []
    hooks: dict[str, Any] = {queue: plain if kind == "plain" else asynchronous}
    config = LoopConfig(model=ScriptedModel(["Hello."]), **hooks)
    with pytest.raises(HostError, match=queue):
        await run_agent_loop([UserMessage("Go.")], AgentContext(), config, events.append)
    assert_events_paired(events)
    ends = [event for event in events if event.type == "agent_end"]
    (last,) = ends
    assert getattr(last, "end_reason", "") == "error"


async def test_a_closing_hook_that_raises_after_an_abort_is_on_the_result(autojump_clock: MockClock) -> None:
    def finish_turn(turn: Any) -> None:
        raise HostError("closing")

    # Never started: the calls are closed by the run, and finish_turn is called while it closes.
    agent = Agent(ScriptedModel([calling(call("c1"))]), tools=[sleeper("c1")], finish_turn=finish_turn)
    recorder = Recorder(agent)

    def stop(event: AgentEvent) -> None:
        if isinstance(getattr(event, "message", None), AssistantMessage) and event.type == "message_end":
            agent.abort("enough")

    agent.subscribe(stop)
    result = await agent.prompt("Go.")
    assert isinstance(result.exception, HostError)
    assert result.message is not None
    assert (result.message.stop_reason, result.message.error_message) == ("aborted", "closing")
    assert_transcript_valid(agent.messages)
    assert_events_paired(recorder.events)
    assert_idle(agent)


async def test_an_async_queue_callback_that_waits_is_cut_by_an_abort(autojump_clock: MockClock) -> None:
    abort = Abort()
    began: list[float] = []

    async def steering() -> list[AgentMessage]:
        began.append(trio.current_time())
        await trio.sleep(60)
        return [UserMessage("too late")]

    config = LoopConfig(model=ScriptedModel(["Hi."]), get_steering_messages=steering)
    seen = Recorder()

    async def later() -> None:
        await trio.sleep(1)
        abort.request("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        new = await run_agent_loop([UserMessage("Go.")], AgentContext(), config, seen, abort=abort)
    assert began == [0.0]
    assert trio.current_time() == 1.0
    assert [message.role for message in new] == ["user", "assistant"]
    assert seen.end.end_reason == "aborted"


async def test_a_queue_callback_that_takes_the_abort_gets_it() -> None:
    abort = Abort()
    got: list[Any] = []

    def steering(given: Abort) -> list[AgentMessage]:
        got.append(given)
        return []

    config = LoopConfig(model=ScriptedModel(["Hi."]), get_steering_messages=steering)  # type: ignore[arg-type]
    await run_agent_loop([UserMessage("Go.")], AgentContext(), config, lambda event: None, abort=abort)
    assert got
    assert all(given is abort for given in got)


async def test_a_sequential_setting_holds_beside_a_sequential_tool_that_is_not_called(
    autojump_clock: MockClock,
) -> None:
    tools = [sleeper("a", 1), sleeper("b", 1), sleeper("other", execution_mode="sequential")]
    agent = Agent(ScriptedModel([calling("a", "b"), "Done."]), tools=tools, tool_execution="sequential")
    await agent.prompt("Go.")
    assert trio.current_time() == 2.0


async def test_of_a_group_of_one_the_result_says_what_the_one_says() -> None:
    async def execute(args: dict[str, Any], ctx: Any) -> str:  # noqa: ASYNC124 - an async one is what is tried
        raise ExceptionGroup("several", [ValueError("only this")])

    agent = Agent(ScriptedModel([calling("a"), "Done."]), tools=[Tool("a", execute=execute)])
    await agent.prompt("Go.")
    (result,) = [message for message in agent.messages if message.role == "tool_result"]
    assert getattr(result, "text", "") == "only this"


async def test_an_answer_in_which_a_listener_fails_ends_with_its_text(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(["One two three."], delay=1))

    def listener(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and event.message.content and event.message.text:
            raise HostError("disk full")

    agent.subscribe(listener)
    with pytest.raises(HostError):
        await agent.prompt("Go.")
    answers = [message for message in agent.messages if isinstance(message, AssistantMessage)]
    assert [(message.stop_reason, message.error_message) for message in answers] == [("error", "disk full")]
    assert answers[0].text == "One "


async def test_a_call_that_was_cut_because_a_listener_failed_says_so(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel([calling("a", "b")]), tools=[sleeper("a", 1), sleeper("b", 60)])

    def listener(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd) and event.tool_call_id == "a":
            raise HostError("disk full")

    agent.subscribe(listener)
    with pytest.raises(HostError):
        await agent.prompt("Go.")
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert results[0].text == "a done"
    assert "because the run failed: disk full" in results[1].text


async def test_a_thread_that_polls_and_was_cut_was_not_left_behind() -> None:
    began = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def execute(args: dict[str, Any], ctx: Any) -> str:
        trio.from_thread.run_sync(began.set, trio_token=token)
        while True:
            trio.from_thread.check_cancelled()

    agent = Agent(ScriptedModel([calling("a")]), tools=[Tool("a", execute=execute)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Go.")
        await began.wait()
        agent.abort("enough")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.error_kind == "aborted"
    assert "left behind" not in result.text


async def test_what_a_loop_tells_its_events_may_take_the_abort() -> None:
    abort = Abort()
    got: list[Abort] = []

    def emit(event: AgentEvent, given: Abort) -> None:
        got.append(given)

    config = LoopConfig(model=ScriptedModel(["Hi."]))
    await run_agent_loop([UserMessage("Go.")], AgentContext(), config, emit, abort=abort)  # type: ignore[arg-type]
    assert got
    assert all(given is abort for given in got)


async def test_the_hooks_of_a_call_outside_of_a_run_get_its_answer_and_the_abort(autojump_clock: MockClock) -> None:
    abort = Abort()
    asking = AssistantMessage((call("a"),), stop_reason="tool_use")
    got: list[Any] = []

    async def hook(told: Any, given: Abort) -> None:  # noqa: ASYNC124 - an async one is what is tried
        got.append((told.assistant_message, given))

    for answer in (asking, None):
        outcome = await run_tool_call(
            call("a"),
            assistant_message=answer,
            tools=[sleeper("a")],
            before_tool_call=hook,
            after_tool_call=hook,
            abort=abort,
        )
        assert outcome.result.text == "a done"
    assert [given for _, given in got] == [abort] * 4
    assert got[0][0] is got[1][0] is asking
    assert [one.id for one in got[2][0].tool_calls] == ["a"]


async def test_a_plain_listener_that_gives_something_to_await_is_cut_once_the_grace_is_spent(
    autojump_clock: MockClock,
) -> None:
    agent = Agent(ScriptedModel([calling("a")]), tools=[sleeper("a", 60)], closing_grace=0)
    slept: list[float] = []

    async def wait() -> None:
        try:
            await trio.sleep(10)
        finally:
            slept.append(trio.current_time())

    agent.subscribe(lambda event: wait() if event.type == "agent_end" else None)
    with trio.move_on_after(1):
        await agent.prompt("Go.")
    assert slept == [1.0]
    assert trio.current_time() == 1.0


@pytest.mark.parametrize(
    ("answer", "kind", "usage"),
    [
        ({"details": {"seen": True}}, "timeout", 7),
        ({"content": "mended"}, None, 7),
        ({"is_error": False}, None, 7),
        ({"is_error": True}, "timeout", 7),
        ({"usage": Usage(input=3)}, "timeout", 3),
    ],
)
def test_what_after_tool_call_leaves_alone_stays(answer: dict[str, Any], kind: str | None, usage: int) -> None:
    """The kind of an error stands as long as its text stands and it is an error."""
    result = ToolResult("too slow", is_error=True, error_kind="timeout", usage=Usage(input=7))
    changed = overridden(result, AfterToolCallResult(**answer))
    assert changed.error_kind == kind
    assert changed.usage is not None
    assert changed.usage.input == usage


@pytest.mark.parametrize(("tools", "known"), [([sleeper], "a, b"), ([], "none")])
async def test_of_an_unknown_tool_the_known_ones_are_named(tools: list[Any], known: str) -> None:
    made = [make(name) for make in tools for name in ("a", "b")]
    agent = Agent(ScriptedModel([calling("c"), "Done."]), tools=made)
    await agent.prompt("Go.")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.text == f"Tool 'c' not found. Known tools: {known}."


@pytest.mark.parametrize(
    ("mended", "kind"), [(MappingProxyType({"seconds": 0}), None), (["seconds"], "invalid_arguments")]
)
async def test_mended_arguments_are_any_mapping_and_nothing_else(mended: Any, kind: str | None) -> None:
    async def execute(args: dict[str, Any], ctx: Any) -> str:  # noqa: ASYNC124 - an async one is what is tried
        return str(args)

    mender = Tool("a", execute=execute, prepare_arguments=lambda raw: mended)
    agent = Agent(ScriptedModel([calling("a"), "Done."]), tools=[mender])
    await agent.prompt("Go.")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.error_kind == kind


def test_an_abort_shows_whether_it_was_requested() -> None:
    abort = Abort()
    assert repr(abort) == "<trio_agent.Abort: not requested>"
    abort.request("enough")
    assert repr(abort) == "<trio_agent.Abort: requested, 'enough'>"
