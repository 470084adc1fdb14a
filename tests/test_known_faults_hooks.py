"""Known faults, groups J and K: hooks that raise or abort; listeners that raise; terminal events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from invariants import assert_idle, assert_works_again, waiting
from kit import Log, Play, Recorder, act, agent_of, assert_run, call, calling, prompted, sleeper, story, user
from stage import CUT, HELD_UNTIL, Stage
from trio.testing import MockClock

from trio_agent import (
    Abort,
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    AgentContext,
    AgentEnd,
    AgentLoopTurnUpdate,
    AgentRequestUpdate,
    AgentTurnContext,
    BeforeToolCallContext,
    BeforeToolCallResult,
    LoopConfig,
    PrepareRequestContext,
    SimpleModel,
    Tool,
    ToolContext,
    ToolResult,
    ToolResultMessage,
    run_agent_loop,
    run_tool_call,
)
from trio_agent.testing import ScriptedModel, assert_adds_up, assert_events_paired, assert_transcript_valid

MODES = [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["parallel", "parallel-preparation", "sequential"])


class HookError(Exception):
    """What a hook of the host's raises."""


# ------------------------------------------------------------------- B53


@every_mode
@pytest.mark.parametrize(
    "make",
    [
        lambda: HookError("no audit"),
        lambda: ExceptionGroup("no audit", [HookError("a"), HookError("b")]),
        lambda: trio.TooSlowError("no audit"),
    ],
    ids=["error", "group", "timeout"],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_b53_a_failing_after_hook_is_the_result_of_its_call_alone(
    is_async: bool, make: Callable[[], Exception], mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    def plain(told: AfterToolCallContext) -> None:
        if told.tool_call.id == "c2":
            raise make()

    async def hook(told: AfterToolCallContext) -> None:
        await trio.lowlevel.checkpoint()
        plain(told)

    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."],
        *[sleeper(f"c{n}", n) for n in (1, 2, 3)],
        after_tool_call=hook if is_async else plain,
        **mode,
    )
    play = await prompted(agent)
    assert play.returned(agent).exception is None
    told = story(model.requests[1].messages)[2:]
    assert (told[0], told[2]) == ("c1 ok 'c1 done'", "c3 ok 'c3 done'")
    assert told[1].startswith("c2 error")
    assert "no audit" in told[1]
    assert play.result.text == "Done."
    assert_run(seen, ["c1", "c2", "c3"])


async def test_b53_the_after_hook_runs_beside_other_calls_and_sees_what_they_came_to(autojump_clock: MockClock) -> None:
    """Design 6: in the call's own task; not for calls whose body was never entered."""
    log = Log()

    async def hook(told: AfterToolCallContext) -> None:
        log(f"{told.tool_call.id} {'error' if told.is_error else 'ok'} {told.result.text}")
        await trio.sleep(1)

    async def broken(args: Any, ctx: ToolContext) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("broken")

    agent, _, seen = agent_of(
        [calling("c1", "c2", "broken", "nobody", call("c3", "c1", n=1), "blocked"), "Done."],
        sleeper("c1", 1, parameters={"type": "object", "properties": {"n": {"type": "string", "maxLength": 0}}}),
        sleeper("c2", 1),
        sleeper("blocked"),
        Tool("broken", execute=broken),
        after_tool_call=hook,
        before_tool_call=lambda question: BeforeToolCallResult(block=question.tool_call.id == "blocked"),
    )
    play = await prompted(agent)
    assert sorted(log.entries) == [(0, "broken error broken"), (1, "c1 ok c1 done"), (1, "c2 ok c2 done")]
    assert play.ended == 2
    assert_run(seen)


async def test_b53_a_wrong_answer_of_an_after_hook_is_an_error_of_that_call(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1"), after_tool_call=lambda told: "fine")
    await prompted(agent)
    (result,) = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert result.is_error
    assert "AfterToolCallResult" in result.text
    assert_run(seen)


# ------------------------------------------------------------------- B54


async def never_in_time(question: BeforeToolCallContext) -> None:
    with trio.fail_after(2):
        await trio.sleep_forever()


async def fails(question: BeforeToolCallContext) -> None:
    await trio.lowlevel.checkpoint()
    raise HookError("no policy")


def fails_at_once(question: BeforeToolCallContext) -> None:
    raise HookError("no policy")


async def fails_in_a_nursery(question: BeforeToolCallContext) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, question)
        nursery.start_soon(trio.sleep_forever)


def answers_nonsense(question: BeforeToolCallContext) -> Any:
    return {"block": False}


def answers_true(question: BeforeToolCallContext) -> Any:
    return True


BROKEN_GATES = [never_in_time, fails, fails_at_once, fails_in_a_nursery, answers_nonsense, answers_true]


@every_mode
@pytest.mark.parametrize("gate", BROKEN_GATES, ids=lambda gate: gate.__name__)
async def test_b54_a_failing_before_hook_blocks_the_call(
    gate: Any, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."], sleeper("c1", log=log), sleeper("c2", log=log), before_tool_call=gate, **mode
    )
    play = await prompted(agent)
    assert log.texts == []
    assert play.returned(agent).exception is None
    results = [m for m in model.requests[1].messages if isinstance(m, ToolResultMessage)]
    assert [(m.is_error, m.error_kind) for m in results] == [(True, "failed")] * 2
    assert all(m.text for m in results)
    if gate is never_in_time:
        assert play.ended == (2 if mode.get("tool_preparation") == "parallel" else 4)
    assert_run(seen, [])


@pytest.mark.parametrize("gate", BROKEN_GATES, ids=lambda gate: gate.__name__)
@pytest.mark.parametrize("way", ["run_tool_call", "ctx.run_tool_call"])
async def test_b54_nested_calls_fail_closed_too(way: str, gate: Any, autojump_clock: MockClock) -> None:
    log = Log()
    inner = sleeper("inner", log=log)
    if way == "run_tool_call":
        outcome = await run_tool_call(call("c1", "inner"), tools=[inner], before_tool_call=gate)
        assert outcome.is_error
        assert log.texts == []
        return

    outcomes: list[bool] = []

    async def outer(args: Any, ctx: ToolContext) -> str:
        outcomes.append((await ctx.run_tool_call("inner")).is_error)
        return "done"

    def only_inner(question: BeforeToolCallContext) -> Any:
        return gate(question) if question.tool_call.name == "inner" else None

    agent, _, seen = agent_of([calling("outer"), "Done."], Tool("outer", execute=outer), inner)
    agent.before_tool_call = only_inner
    await prompted(agent)
    assert outcomes == [True]
    assert log.texts == []
    assert story(agent.messages)[2] == "outer ok 'done'"
    assert_run(seen, ["outer"])


@every_mode
async def test_b54_no_later_hook_can_undo_a_block(mode: dict[str, Any], autojump_clock: MockClock) -> None:
    """There is one gate; after_tool_call, which could rewrite the result, is not asked for blocked calls (6)."""
    log = Log()

    def undo(told: AfterToolCallContext) -> AfterToolCallResult:
        log("asked")
        return AfterToolCallResult(content="allowed", is_error=False)

    agent, _, seen = agent_of(
        [calling("c1"), "Done."],
        sleeper("c1", log=log),
        before_tool_call=lambda question: BeforeToolCallResult(block=True, reason="forbidden"),
        after_tool_call=undo,
        **mode,
    )
    await prompted(agent)
    assert log.texts == []
    assert story(agent.messages)[2] == "c1 error 'forbidden'"
    assert_run(seen, [])


# ------------------------------------------------------------------- B56


@every_mode
@pytest.mark.parametrize(
    ("blocked_terminates", "result_terminates", "requests"), [(True, True, 1), (True, False, 2), (False, True, 2)]
)
async def test_b56_a_blocked_call_has_its_say_in_whether_the_run_ends(
    blocked_terminates: bool, result_terminates: bool, requests: int, mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    def gate(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        if question.tool_call.id == "c1":
            return BeforeToolCallResult(block=True, reason="no", terminate=blocked_terminates)
        return None

    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."],
        sleeper("c1"),
        sleeper("c2", result=ToolResult("last", terminate=result_terminates)),
        before_tool_call=gate,
        **mode,
    )
    play = await prompted(agent)
    assert len(model.requests) == requests
    assert play.returned(agent).end_reason == ("terminated" if requests == 1 else "done")
    assert_run(seen, ["c2"])


@pytest.mark.parametrize("failing", ["unknown", "invalid", "raising"])
async def test_b56_an_error_of_the_library_asks_for_a_request(failing: str, autojump_clock: MockClock) -> None:
    whole = {"type": "object", "properties": {"n": {"type": "integer"}}}
    error = ValueError("broken") if failing == "raising" else None
    second = {"unknown": call("c2", "nobody"), "invalid": call("c2", "c2", n="x"), "raising": call("c2")}[failing]
    agent, model, seen = agent_of(
        [calling("c1", second), "Done."],
        sleeper("c1", result=ToolResult("last", terminate=True)),
        sleeper("c2", parameters=whole, error=error),
    )
    await prompted(agent)
    assert len(model.requests) == 2
    assert_run(seen)


@pytest.mark.parametrize("verdict", [True, False])
async def test_b56_the_after_hook_has_the_last_word_on_terminate(verdict: bool, autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(
        [calling("c1"), "Done."],
        sleeper("c1", result=ToolResult("last", terminate=not verdict)),
        after_tool_call=lambda told: AfterToolCallResult(terminate=verdict),
    )
    await prompted(agent)
    assert len(model.requests) == (1 if verdict else 2)
    assert_run(seen)


async def test_b56_a_terminated_run_still_takes_what_is_queued(autojump_clock: MockClock) -> None:
    """Terminate stops the next request, not the queues: steering causes one anyway (5, 6)."""
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 1, result=ToolResult("last", terminate=True)))
    await prompted(agent, (0.5, lambda: agent.steer("And this.")))
    assert story(model.requests[1].messages)[2:] == ["c1 ok 'last'", "user And this."]
    assert_run(seen)


async def test_b56_an_answer_without_calls_is_no_terminated_batch(autojump_clock: MockClock) -> None:
    """An empty batch never terminates: "continue" of finish_turn still makes its one more request."""
    decisions = ["continue", None]
    agent, model, seen = agent_of(["First.", "Second."], finish_turn=lambda turn: decisions.pop(0))
    play = await prompted(agent)
    assert len(model.requests) == 2
    assert play.returned(agent).end_reason == "done"
    assert_run(seen)


# ------------------------------------------------------------------- B57


class Broken:
    """A hook that raises the n-th time that it is called; plain or async."""

    def __init__(self, error: BaseException, at: int = 1) -> None:
        self.error = error
        self.at = at
        self.calls = 0

    def plain(self, argument: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return argument if not hasattr(argument, "context") and not isinstance(argument, str) else None

    async def slow(self, argument: Any) -> Any:
        await trio.sleep(1)
        return self.plain(argument)


HOOKS = ["transform_context", "convert_to_llm", "get_api_key", "prepare_request", "prepare_next_turn", "finish_turn"]
every_hook = pytest.mark.parametrize("name", HOOKS)
FIRST_TURN_HOOKS = [name for name in HOOKS if name != "prepare_next_turn"]


@every_hook
@pytest.mark.parametrize("style", ["plain", "slow"])
@pytest.mark.parametrize("at", [1, 2])
async def test_b57_a_failing_hook_ends_the_run_in_order(
    at: int, style: str, name: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The Agent returns, with a failure message in the transcript and the exception on the result (7.1)."""
    if at == 2 and name == "prepare_next_turn":
        turns: list[Any] = [calling("c1"), calling(call("c2", "c1")), "Done."]
    else:
        turns = [calling("c1"), "Done."]
    error = HookError("no way")
    hook = Broken(error, at)
    agent, model, seen = agent_of(turns, sleeper("c1"), **{name: getattr(hook, style)})
    later, steered = user("Later."), user("Steered.")
    agent.follow_up(later)
    agent.subscribe(lambda event: agent.steer(steered) if hook.calls == at else None, AgentEnd)
    play = await prompted(agent)
    result = play.returned(agent)
    assert hook.calls == at
    assert seen.of("agent_end") == ["agent_end"]
    assert result.exception is error
    assert result.end_reason == "error"
    with pytest.raises(HookError):
        result.raise_for_error()

    failures = [m for m in agent.messages if getattr(m, "stop_reason", "") == "error"]
    assert failures == [result.message]
    assert result.message is not None
    assert result.message.error_message == "no way"
    assert result.message.text == ""
    assert result.message.thinking_level is None
    assert agent.state.error_message == "no way"
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error], "reported once"
    assert waiting(agent) == [steered, later]
    assert_run(seen)
    await assert_works_again(agent, model)


@every_hook
@pytest.mark.parametrize("style", ["plain", "slow"])
async def test_b57_the_loop_raises_what_the_hook_raised(style: str, name: str, autojump_clock: MockClock) -> None:
    error = HookError("no way")
    settings: dict[str, Any] = {name: getattr(Broken(error), style)}
    config = LoopConfig(model=ScriptedModel([calling("c1"), "Done."]), **settings)
    seen = Recorder()
    with pytest.raises(HookError) as caught:
        await run_agent_loop([user("Go.")], AgentContext(tools=[sleeper("c1")]), config, seen)
    assert caught.value is error
    assert seen.of("agent_end") == ["agent_end"]
    assert_events_paired(seen.events)
    assert_adds_up(seen.events)
    assert_transcript_valid(seen.end.messages)
    assert seen.end.end_reason == "error"


@every_hook
async def test_b57_a_group_that_a_hook_raises_is_raised_as_it_is(name: str, autojump_clock: MockClock) -> None:
    """Groups of our own nurseries are unwrapped; a host's own group is the host's (7.6)."""
    error = ExceptionGroup("both", [HookError("a"), HookError("b")])
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1"), **{name: Broken(error).plain})
    play = await prompted(agent)
    exception = play.returned(agent).exception
    assert isinstance(exception, ExceptionGroup)
    assert [str(part) for part in exception.exceptions] == ["a", "b"]
    assert_run(seen)


@every_hook
async def test_b57_a_hook_that_fails_while_the_host_cancels_replaces_the_cancellation(
    name: str, autojump_clock: MockClock
) -> None:
    """Design 7.6: that error is raised, also by the Agent, with Cancelled as its context."""

    async def fails_in_cleanup(argument: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise HookError("clean-up failed")

    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1"), **{name: fails_in_cleanup})
    play = await prompted(agent, (1, "cancel"))
    assert isinstance(play.error, HookError)
    assert isinstance(play.error.__context__, trio.Cancelled)
    assert play.ended == 1
    assert agent.last_result is not None
    assert agent.last_result.exception is play.error
    assert_run(seen)
    setattr(agent, name, None)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("name", [name for name in HOOKS if name != "finish_turn"])
async def test_b57_a_preparing_hook_that_fails_while_it_is_aborted_is_told_and_the_run_is_aborted(
    name: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Design 7.4: the record says ``aborted``, with the text of the failure."""

    async def fails_in_cleanup(argument: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise HookError("clean-up failed")

    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1"), **{name: fails_in_cleanup})
    play = await prompted(agent, (1, agent.abort))
    result = play.returned(agent)
    assert isinstance(result.exception, HookError)
    assert result.message is not None
    assert result.message.stop_reason == "aborted"
    assert result.message.error_message == "clean-up failed"
    assert play.ended == 1
    assert_run(seen)
    setattr(agent, name, None)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("takes_abort", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
async def test_b57_each_hook_gets_what_its_contract_names(
    is_async: bool, takes_abort: bool, autojump_clock: MockClock
) -> None:
    got: dict[str, tuple[Any, ...]] = {}

    def recording(name: str, answer: Callable[[Any], Any] = lambda argument: None) -> Any:
        def note(*args: Any) -> Any:
            got.setdefault(name, args)
            return answer(args[0])

        async def hook(argument: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return note(argument)

        async def hook_with_abort(argument: Any, abort: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return note(argument, abort)

        def plain(argument: Any) -> Any:
            return note(argument)

        def plain_with_abort(argument: Any, abort: Any) -> Any:
            return note(argument, abort)

        if takes_abort:
            return hook_with_abort if is_async else plain_with_abort
        return hook if is_async else plain

    def same(argument: Any) -> Any:
        return argument

    agent, model, seen = agent_of(
        [calling(call("c1", n="1")), "Done."],
        sleeper("c1", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}),
        transform_context=recording("transform_context", same),
        convert_to_llm=recording("convert_to_llm", same),
        get_api_key=recording("get_api_key", lambda provider: "secret"),
        prepare_request=recording("prepare_request"),
        prepare_next_turn=recording("prepare_next_turn"),
        finish_turn=recording("finish_turn"),
        before_tool_call=recording("before_tool_call"),
        after_tool_call=recording("after_tool_call"),
        thinking_level="low",
    )
    await prompted(agent)
    assert set(got) == {*HOOKS, "before_tool_call", "after_tool_call"}
    for name, args in got.items():
        assert len(args) == (2 if takes_abort else 1), name
        if takes_abort:
            assert isinstance(args[1], Abort)
            assert not args[1].requested

    assert story(got["transform_context"][0]) == ["user Go."]
    assert story(got["convert_to_llm"][0]) == ["user Go."]
    assert got["get_api_key"][0] == "scripted"
    assert model.requests[0].api_key == "secret"

    request = got["prepare_request"][0]
    assert isinstance(request, PrepareRequestContext)
    assert (request.model, request.thinking_level) == (model, "low")
    assert story(request.context.messages) == ["user Go."]
    assert list(request.context.tools) == list(agent.tools)

    for name in ("finish_turn", "prepare_next_turn"):
        turn = got[name][0]
        assert isinstance(turn, AgentTurnContext)
        assert turn.message.tool_calls[0].id == "c1"
        assert story(turn.tool_results) == ["c1 ok 'c1 done'"]
        expected = ["user Go.", "assistant tool_use '' c1", "c1 ok 'c1 done'"]
        assert story(turn.context.messages) == expected
        assert story(turn.new_messages) == expected

    before = got["before_tool_call"][0]
    assert isinstance(before, BeforeToolCallContext)
    assert (dict(before.tool_call.arguments), before.args) == ({"n": "1"}, {"n": 1})
    assert before.assistant_message.tool_calls[0] is before.tool_call

    after = got["after_tool_call"][0]
    assert isinstance(after, AfterToolCallContext)
    assert (after.result.text, after.is_error, after.args) == ("c1 done", False, {"n": 1})
    assert after.tool_call is before.tool_call
    assert_run(seen, ["c1"])


async def test_b57_hooks_replace_what_later_requests_get(autojump_clock: MockClock) -> None:
    other, third = ScriptedModel([calling(call("c2", "c1"))], id="other"), ScriptedModel(["Done."], id="third")
    agent, model, seen = agent_of(
        [calling("c1")],
        sleeper("c1"),
        prepare_next_turn=lambda turn: AgentLoopTurnUpdate(
            model=other, thinking_level="high", messages=[user("By the way.")] if not other.requests else ()
        ),
        prepare_request=lambda request: AgentRequestUpdate(model=third) if other.requests else None,
    )
    await prompted(agent)
    assert [len(one.requests) for one in (model, other, third)] == [1, 1, 1]
    assert [one.requests[0].thinking_level for one in (model, other, third)] == ["off", "high", "high"]
    assert story(other.requests[0].messages)[-1] == "user By the way."
    assert agent.model is model, "hooks replace for the run, not for the agent (5)"
    assert_run(seen, ["c1", "c2"])


async def test_b57_a_hook_that_is_no_use_of_a_missing_stream_function_is_not_called(autojump_clock: MockClock) -> None:
    """No way to reach the model is a mistake of the caller's: refused before anything is changed."""
    from trio_agent import NoStreamFnError

    asked: list[Any] = []
    agent = Agent(SimpleModel("p", "m"), prepare_request=asked.append)
    with pytest.raises(NoStreamFnError):
        await agent.prompt("Go.")
    assert asked == []
    assert list(agent.messages) == []
    assert_idle(agent)


# ------------------------------------------------------------------- B58


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_b58_a_listener_that_always_raises_starves_no_other(
    position: int, is_async: bool, autojump_clock: MockClock
) -> None:
    """The documented policy: the event goes to all, then the run closes, and the first error comes out (7.1)."""
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 5))
    errors: list[ValueError] = []

    def raises(event: Any) -> None:
        errors.append(ValueError(f"at {event.type}"))
        raise errors[-1]

    async def raises_async(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        raises(event)

    others = [Recorder(), Recorder()]
    listeners: list[Any] = list(others)
    listeners.insert(position, raises_async if is_async else raises)
    for listener in listeners:
        agent.subscribe(listener)
    play = await prompted(agent)
    assert play.error is errors[0]
    assert str(play.error) == "at agent_start"
    assert others[0].events == others[1].events == seen.events
    assert len(errors) == len(seen.events), "it is told every event too"
    assert seen.of("agent_end") == ["agent_end"]
    # The later errors are notes of the first (Bare), each kind once.
    assert play.error.__notes__ == list(dict.fromkeys(f"also failed: {error!r}" for error in errors[1:]))
    assert model.requests == []
    assert_run(seen)
    assert_idle(agent)


async def test_b58_of_several_failing_listeners_the_first_comes_out(autojump_clock: MockClock) -> None:
    agent, _model, seen = agent_of(["Done."])
    first, second = ValueError("first"), KeyError("second")

    def one(event: Any) -> None:
        raise first

    async def other(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise second

    agent.subscribe(one, AgentEnd)
    agent.subscribe(other, AgentEnd)
    behind = Recorder()
    agent.subscribe(behind)
    play = await prompted(agent)
    assert play.error is first
    assert getattr(first, "__notes__", []) == ["also failed: KeyError('second')"]
    assert behind.events == seen.events
    assert_run(seen)


async def test_b58_a_listener_that_raises_a_group_with_cancelled_is_split(autojump_clock: MockClock) -> None:
    """Design 7.6: like a tool's; the Cancelled of the host's goes on, the rest is the failure."""
    agent, model, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 5))

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("listener's clean-up")

    async def listen(event: Any) -> None:
        if event.type == "tool_execution_start":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails)
                nursery.start_soon(trio.sleep_forever)

    unsubscribe = agent.subscribe(listen)
    play = await prompted(agent, (1, "cancel"))
    assert isinstance(play.error, ExceptionGroup)
    assert [str(error) for error in play.error.exceptions] == ["listener's clean-up"]
    assert isinstance(play.error.__context__, trio.Cancelled)
    assert play.ended == 1
    assert_run(seen, [])
    unsubscribe()
    await assert_works_again(agent, model)


# ------------------------------------------------------------------- B60


PLACES = [
    "listener agent_start",
    "prepare_request",
    "stream: first byte",
    "stream: mid text",
    "stream: all sent",
    "listener message_update",
    "listener message_end assistant",
    "before_tool_call c1",
    "tool c2",
    "after_tool_call c2",
    "listener tool_execution_end c2",
    "finish_turn",
    "listener turn_end",
    "prepare_next_turn",
    "stream: second request",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cause", ["abort", "cancel"])
@every_mode
async def test_b60_a_cut_run_ends_once_and_balanced_in_every_phase(
    mode: dict[str, Any], cause: str, place: str, autojump_clock: MockClock
) -> None:
    """The whole table of places and causes is test_cut_matrix; this is the row, in every mode."""
    stage = Stage(place, **mode)
    play = await Play(lambda: stage.agent.prompt("Go."), (CUT, act(stage.agent, cause))).run()
    assert stage.reached
    assert stage.first.of("agent_end") == ["agent_end"]
    assert stage.first.end.end_reason == ("aborted" if cause == "abort" else "cancelled")
    message = stage.agent.last_result and stage.agent.last_result.message
    assert message is not None
    assert message.stop_reason == "aborted"
    assert play.ended in (CUT, HELD_UNTIL)
    for what in ("turn", "message", "tool_execution"):
        kinds = [kind.split()[0] for kind in stage.first.kinds]
        assert kinds.count(f"{what}_start") == kinds.count(f"{what}_end")
    assert_run(stage.first, stage.entered)


@pytest.mark.parametrize("times", [2, 3])
async def test_b60_aborting_again_changes_nothing(times: int, autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 5, shielded=True))
    again = [(1 + number, act(agent, "abort", f"reason {number}")) for number in range(times)]
    play = await prompted(agent, *again)
    assert play.ended == 5
    assert seen.of("agent_end") == ["agent_end"]
    message = play.returned(agent).message
    assert message is not None
    assert "reason 0" in str(message.error_message)
    assert_run(seen, ["c1"])


async def test_b60_an_abort_while_idle_does_nothing_to_the_next_run(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["Done."])
    agent.abort()
    assert seen.events == []
    play = await prompted(agent)
    assert play.returned(agent).end_reason == "done"
    agent.abort()
    assert_run(seen)


async def test_b60_an_aborted_loop_without_an_agent_ends_once(autojump_clock: MockClock) -> None:
    abort, seen = Abort(), Recorder()
    config = LoopConfig(model=ScriptedModel([calling("c1")]))

    async def start() -> Any:
        return await run_agent_loop([user("Go.")], AgentContext(tools=[sleeper("c1", 5)]), config, seen, abort=abort)

    play = await Play(start, (1, abort.request)).run()
    assert play.ended == 1
    assert story(play.result) == ["user Go.", "assistant tool_use '' c1", "c1 aborted", "assistant aborted ''"]
    assert_events_paired(seen.events)
    assert list(seen.end.messages) == play.result


# ------------------------------------------------------------------- B61


@pytest.mark.parametrize("cause", ["nothing", "abort", "interrupt"])
async def test_b61_the_run_lasts_until_the_last_listener_is_through(cause: str, autojump_clock: MockClock) -> None:
    """An abort during that time waits: no listener is ever cut by an abort (7.2)."""
    agent, _, seen = agent_of(["Done."])
    log = Log()

    async def slow(event: AgentEnd) -> None:
        await trio.sleep(3)
        log("listener through")

    agent.subscribe(slow, AgentEnd)

    async def wait() -> None:
        await trio.sleep(0.5)
        await agent.wait_for_idle()
        log("idle")

    busy: list[bool] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        looks = [(0.75 * n, lambda: busy.append(agent.state.is_streaming)) for n in (1, 2, 3)]
        play = await prompted(agent, *looks, (1, act(agent, cause)))
        log("returned")
    assert busy == [True] * 3
    assert play.ended == 3
    assert log.texts[0] == "listener through"
    assert sorted(log.texts[1:]) == ["idle", "returned"]
    assert {at for at, _ in log.entries} == {3}
    assert play.returned(agent).end_reason == "done"
    assert_run(seen)


async def test_b61_a_host_cancellation_cuts_the_last_listener_and_passes(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(["Done."])
    log = Log()

    async def slow(event: AgentEnd) -> None:
        log("begun")
        await trio.sleep(3)
        log("through")

    unsubscribe = agent.subscribe(slow, AgentEnd)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    assert play.ended == 1
    assert log.texts == ["begun"], "it is not told the event again"
    assert agent.last_result is not None
    assert agent.last_result.text == "Done."
    assert_run(seen)
    unsubscribe()
    await assert_works_again(agent, model)


async def test_b61_all_slow_listeners_are_waited_for_at_every_event(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(["Done."])
    told: list[str] = []

    async def slow(event: Any) -> None:
        await trio.sleep(1)
        told.append(event.type)

    agent.subscribe(slow)
    play = await prompted(agent)
    assert play.ended == len(seen.events)
    assert told == [event.type for event in seen.events]
    assert_run(seen)
