"""Agents inside tools and tools that call tools: how far a cut reaches, and what each transcript says."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from invariants import assert_works_again
from kit import Log, Play, Recorder, act, agent_of, assert_run, call, calling, prompted, sleeper, story
from trio.testing import MockClock

from trio_agent import (
    Abort,
    AfterToolCallContext,
    Agent,
    BeforeToolCallContext,
    BeforeToolCallResult,
    RunLimits,
    Tool,
    ToolCallOutcome,
    ToolContext,
    ToolResult,
    ToolResultMessage,
    run_tool_call,
)

# ------------------------------------------------------- agents inside tools


def tool_that_asks(agent: Agent, log: Log, name: str) -> Tool:
    """A tool that prompts an agent and gives its answer."""

    async def execute(args: Any, ctx: Any) -> str:
        log(f"{name} begins")
        try:
            return (await agent.prompt("Sub-task.")).text
        finally:
            log(f"{name} over")

    return Tool(name, execute=execute)


class Tower:
    """Three agents: the first asks the second in a tool, the second the third, which works for 60 s."""

    def __init__(self, seconds: float = 60.0, **settings: Any) -> None:
        self.log = Log()
        self.third, self.third_model, self.third_seen = agent_of(
            [calling("c3"), "Third."], sleeper("c3", seconds, self.log), **settings
        )
        self.second, self.second_model, self.second_seen = agent_of(
            [calling("c2"), "Second."], tool_that_asks(self.third, self.log, "c2"), **settings
        )
        self.first, self.first_model, self.first_seen = agent_of(
            [calling("c1"), "First."], tool_that_asks(self.second, self.log, "c1"), **settings
        )

    def assert_runs(self) -> None:
        for seen in (self.third_seen, self.second_seen, self.first_seen):
            assert_run(seen)

    async def assert_all_work_again(self) -> None:
        for agent, model in (
            (self.third, self.third_model),
            (self.second, self.second_model),
            (self.first, self.first_model),
        ):
            await assert_works_again(agent, model)


async def test_agents_inside_tools_answer_each_other(autojump_clock: MockClock) -> None:
    tower = Tower(seconds=1)
    play = await prompted(tower.first)
    assert play.ended == 1
    assert story(tower.first.messages)[2:] == ["c1 ok 'Second.'", "assistant stop 'First.'"]
    assert story(tower.second.messages)[2:] == ["c2 ok 'Third.'", "assistant stop 'Second.'"]
    tower.assert_runs()


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_a_cut_of_the_outermost_run_reaches_every_level_at_once(cause: str, autojump_clock: MockClock) -> None:
    """To a nested run its parent's abort is a cancellation (7.5)."""
    tower = Tower()
    play = await prompted(tower.first, (1, act(tower.first, cause)))
    assert play.ended == 1
    assert tower.log.entries[-3:] == [(1, "c3 cut"), (1, "c2 over"), (1, "c1 over")]
    for agent, name in ((tower.third, "c3"), (tower.second, "c2")):
        assert story(agent.messages)[2:] == [f"{name} aborted", "assistant aborted ''"]
        assert agent.last_result is not None
        assert agent.last_result.end_reason == "cancelled"
    assert story(tower.first.messages)[2] == "c1 aborted"
    if cause == "interrupt":
        assert story(tower.first.messages)[3:] == ["user Stop.", "assistant stop 'First.'"]
    else:
        assert story(tower.first.messages)[3:] == ["assistant aborted ''"]
    assert (len(tower.third_model.requests), len(tower.second_model.requests)) == (1, 1)
    tower.assert_runs()
    await tower.assert_all_work_again()


@pytest.mark.parametrize("level", ["third", "second"])
async def test_an_abort_of_an_inner_agent_is_its_own_affair(level: str, autojump_clock: MockClock) -> None:
    """Its prompt() returns, the tool gives what it makes of that, and the outer run goes on."""
    tower = Tower()
    inner: Agent = getattr(tower, level)
    play = await prompted(tower.first, (1, act(inner, "abort")))
    assert play.ended == 1
    assert play.returned(tower.first).text == "First."
    assert inner.last_result is not None
    assert inner.last_result.end_reason == "aborted"
    assert story(tower.first.messages)[2] == ("c1 ok ''" if level == "second" else "c1 ok 'Second.'")
    tower.assert_runs()
    await tower.assert_all_work_again()


async def test_cancel_tool_of_the_outer_agent_cuts_the_inner_runs(autojump_clock: MockClock) -> None:
    tower = Tower()
    play = await prompted(tower.first, (1, lambda: tower.first.cancel_tool("c1", "too slow")))
    assert play.ended == 1
    assert story(tower.first.messages)[2:] == ["c1 aborted", "assistant stop 'First.'"]
    assert story(tower.third.messages)[2:] == ["c3 aborted", "assistant aborted ''"]
    tower.assert_runs()


async def test_a_nested_run_has_a_grace_of_its_own(autojump_clock: MockClock) -> None:
    tower = Tower(closing_grace=1.0)

    async def slow(event: Any) -> None:
        if tower.log.now() >= 1:
            await trio.sleep(60)

    unsubscribes = [agent.subscribe(slow) for agent in (tower.first, tower.second, tower.third)]
    play = await prompted(tower.first, (1, "cancel"))
    play.assert_cancelled()
    assert play.ended == 4, "one second for each level, one after the other"
    tower.assert_runs()
    for unsubscribe in unsubscribes:
        unsubscribe()
    await tower.assert_all_work_again()


async def test_a_listener_of_an_inner_agent_that_fails_is_an_error_of_the_outer_call(autojump_clock: MockClock) -> None:
    tower = Tower(seconds=1)

    def broken(event: Any) -> None:
        if event.type == "tool_execution_end":
            raise ValueError("inner listener broken")

    tower.third.subscribe(broken)
    play = await prompted(tower.first)
    assert play.returned(tower.first).text == "First."
    assert story(tower.second.messages)[2] == "c2 error 'inner listener broken'"
    tower.assert_runs()


async def test_a_keyboard_interrupt_in_the_innermost_tool_comes_out_of_the_outermost_run(
    autojump_clock: MockClock,
) -> None:
    tower = Tower()

    async def interrupt(args: Any, ctx: Any) -> None:
        await trio.sleep(1)
        raise KeyboardInterrupt

    tower.third.tools = [Tool("c3", execute=interrupt)]
    play = await prompted(tower.first)
    assert type(play.error) is KeyboardInterrupt
    assert play.ended == 1
    for agent, name in ((tower.third, "c3"), (tower.second, "c2"), (tower.first, "c1")):
        assert story(agent.messages)[2:] == [f"{name} aborted", "assistant aborted ''"]
    tower.assert_runs()


async def test_an_abort_before_the_inner_run_begins_spends_nothing(autojump_clock: MockClock) -> None:
    """Known fault B106: an abort that is there already reaches the inner run at its first look."""
    inner, inner_model, inner_seen = agent_of(["never"])

    async def execute(args: Any, ctx: Any) -> str:
        agent.abort("already")
        return (await inner.prompt("Sub-task.")).text

    agent, _, seen = agent_of([calling("c1")], Tool("c1", execute=execute))
    play = await prompted(agent)
    assert play.ended == 0
    assert inner_model.requests == []
    assert inner_seen.events == []
    assert list(inner.messages) == []
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])


# ------------------------------------------------------ tools that call tools


def caller(name: str, inner: str, outcomes: list[ToolCallOutcome], log: Log, **settings: Any) -> Tool:
    """A tool that calls another one and returns its text."""

    async def execute(args: Any, ctx: ToolContext) -> str:
        log(f"{name} starts")
        try:
            outcomes.append(await ctx.run_tool_call(inner))
        finally:
            log(f"{name} over")
        return f"got {outcomes[-1].result.text}"

    return Tool(name, execute=execute, **settings)


async def test_a_nested_call_goes_the_same_road_without_events_and_messages(autojump_clock: MockClock) -> None:
    asked: list[str] = []
    outcomes: list[ToolCallOutcome] = []
    log = Log()

    def before(question: BeforeToolCallContext) -> None:
        asked.append(f"before {question.tool_call.id}")

    def after(told: AfterToolCallContext) -> None:
        asked.append(f"after {told.tool_call.id} {told.result.text}")

    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "inner", outcomes, log),
        sleeper("inner", 1, log),
        before_tool_call=before,
        after_tool_call=after,
    )
    await prompted(agent)
    assert asked == ["before outer", "before outer/1", "after outer/1 inner done", "after outer got inner done"]
    assert seen.of("tool_execution") == ["tool_execution_start outer", "tool_execution_end outer"]
    assert story(agent.messages)[2:] == ["outer ok 'got inner done'", "assistant stop 'Done.'"]
    assert not outcomes[0].is_error
    assert_run(seen, ["outer"])


@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool", "interrupt", "timeout"])
@pytest.mark.parametrize("where", ["body", "before_tool_call", "after_tool_call", "limiter"])
async def test_a_cut_of_the_outer_call_passes_through_the_inner_one(
    where: str, cause: str, autojump_clock: MockClock
) -> None:
    """Design 6: no value reaches the outer tool, and the inner call's after hook is cut with it."""
    outcomes: list[ToolCallOutcome] = []
    log = Log()

    async def hook(context: Any) -> None:
        if context.tool_call.name == "inner":
            log("hook begins")
            await trio.sleep(60)
            log("hook through")

    busy = trio.CapacityLimiter(1)
    if where == "limiter":
        busy.acquire_on_behalf_of_nowait("the test")
    agent, model, seen = agent_of(
        [calling("outer"), "Next."],
        caller("outer", "inner", outcomes, log, timeout=1.0 if cause == "timeout" else None),
        sleeper("inner", 60 if where == "body" else 0, log, limiter=busy),
        **({where: hook} if where.endswith("tool_call") else {}),
    )
    cut = (lambda: agent.cancel_tool("outer", "why")) if cause == "cancel_tool" else None
    play = await prompted(agent, (1, cut or act(agent, "nothing" if cause == "timeout" else cause)))
    assert play.ended == 1
    assert outcomes == []
    expected = {
        "body": ["inner starts", "inner cut"],
        "before_tool_call": ["hook begins"],
        "after_tool_call": ["inner starts", "inner ends", "hook begins"],
        "limiter": [],
    }[where]
    assert log.texts == ["outer starts", *expected, "outer over"]
    assert story(agent.messages)[2] == ("outer timeout" if cause == "timeout" else "outer aborted")
    assert_run(seen, ["outer"])
    if where.endswith("tool_call"):
        setattr(agent, where, None)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("failing", ["raises", "unknown", "invalid", "blocked", "timeout"])
async def test_a_nested_call_does_not_raise_for_its_tools_failure(failing: str, autojump_clock: MockClock) -> None:
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def gate(question: BeforeToolCallContext) -> Any:
        return BeforeToolCallResult(block=failing == "blocked" and question.tool_call.name == "inner", reason="no")

    tools = [
        sleeper(
            "inner",
            5 if failing == "timeout" else 0,
            log,
            error=ValueError("broken") if failing == "raises" else None,
            timeout=1.0 if failing == "timeout" else None,
            parameters=schema if failing == "invalid" else {"type": "object"},
        )
    ]
    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "nobody" if failing == "unknown" else "inner", outcomes, log),
        *tools,
        before_tool_call=gate,
    )
    await prompted(agent)
    (outcome,) = outcomes
    assert outcome.is_error
    assert outcome.result.is_error
    kinds = {"unknown": "tool_not_found", "invalid": "invalid_arguments", "blocked": None, "timeout": "timeout"}
    assert outcome.result.error_kind == kinds.get(failing, "failed")
    assert ("inner starts" in log.texts) is (failing in ("raises", "timeout"))
    assert story(agent.messages)[2].startswith("outer ok ")
    assert_run(seen, ["outer"])


async def test_a_tool_that_would_wait_for_itself_through_its_own_limiter_gets_an_error(
    autojump_clock: MockClock,
) -> None:
    limiter = trio.CapacityLimiter(1)
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "inner", outcomes, log, limiter=limiter),
        sleeper("inner", log=log, limiter=limiter),
    )
    with trio.fail_after(10):
        await agent.prompt("Go.")
    assert outcomes[0].is_error
    assert "wait for itself" in outcomes[0].result.text
    assert "inner starts" not in log.texts
    assert limiter.borrowed_tokens == 0
    assert_run(seen, ["outer"])


async def test_a_self_deadlock_two_levels_deep_is_noticed_too(autojump_clock: MockClock) -> None:
    limiter = trio.CapacityLimiter(1)
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "middle", outcomes, log, limiter=limiter),
        caller("middle", "inner", outcomes, log),
        sleeper("inner", log=log, limiter=limiter),
    )
    with trio.fail_after(10):
        await agent.prompt("Go.")
    assert "wait for itself" in outcomes[0].result.text
    assert limiter.borrowed_tokens == 0
    assert_run(seen, ["outer"])


async def test_a_limiter_with_room_may_be_held_twice(autojump_clock: MockClock) -> None:
    limiter = trio.CapacityLimiter(2)
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "inner", outcomes, log, limiter=limiter),
        sleeper("inner", 1, log, limiter=limiter),
    )
    await prompted(agent)
    assert not outcomes[0].is_error
    assert limiter.borrowed_tokens == 0
    assert_run(seen, ["outer"])


async def test_many_callers_that_share_a_limiter_with_their_inner_tool_come_to_an_end(
    autojump_clock: MockClock,
) -> None:
    """Two outer calls hold both tokens of a limiter and each wants a third: both would wait for themselves."""
    limiter = trio.CapacityLimiter(2)
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [calling(call("o1", "outer"), call("o2", "outer")), "Done."],
        caller("outer", "inner", outcomes, log, limiter=limiter),
        sleeper("inner", 1, log, limiter=limiter),
    )
    with trio.fail_after(100):
        await agent.prompt("Go.")
    assert len(outcomes) == 2
    assert limiter.borrowed_tokens == 0
    assert_run(seen, ["o1", "o2"])


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_nested_call_takes_no_slot_of_max_parallel_tools(slots: int, autojump_clock: MockClock) -> None:
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [[call("o1", "outer"), call("o2", "outer"), call("o3", "outer")], "Done."],
        caller("outer", "inner", outcomes, log),
        sleeper("inner", 1, log),
        max_parallel_tools=slots,
    )
    with trio.move_on_after(10) as scope:
        await agent.prompt("Go.")
    assert not scope.cancelled_caught, "it waits for itself"
    assert [outcome.is_error for outcome in outcomes] == [False] * 3
    assert log.now() == {1: 3, 2: 2}[slots]
    assert_run(seen, ["o1", "o2", "o3"])


@pytest.mark.parametrize("slots", [1, 2])
async def test_max_parallel_tools_bounds_what_runs_and_a_limiter_comes_first(
    slots: int, autojump_clock: MockClock
) -> None:
    """Design 6: first the tool's own limiter, so that who waits for it holds no slot that others could use."""
    limiter = trio.CapacityLimiter(1)
    limiter.acquire_on_behalf_of_nowait("the test")
    log = Log()
    agent, _, seen = agent_of(
        [calling("waits", "free"), "Done."],
        sleeper("waits", 1, log, limiter=limiter),
        sleeper("free", 1, log),
        max_parallel_tools=slots,
    )
    play = await prompted(agent, (5, lambda: limiter.release_on_behalf_of("the test")))
    assert log.times("free ends") == [1]
    assert log.times("waits starts") == [5]
    assert play.ended == 6
    assert_run(seen, ["waits", "free"])


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_a_cut_releases_every_limiter(cause: str, autojump_clock: MockClock) -> None:
    limiter = trio.CapacityLimiter(1)
    log = Log()
    agent, model, seen = agent_of(
        [[call("c1", "one"), call("c2", "one"), call("c3", "two")], "Next."],
        sleeper("one", 60, log, limiter=limiter),
        sleeper("two", 60, log),
        max_parallel_tools=2,
    )
    await prompted(agent, (1, act(agent, cause)))
    assert limiter.borrowed_tokens == 0
    assert limiter.statistics().tasks_waiting == 0
    assert_run(seen)
    await assert_works_again(agent, model)


# ------------------------------------------------- run_tool_call without a run


async def test_run_tool_call_alone_gives_the_outcome_and_the_updates(autojump_clock: MockClock) -> None:
    updates: list[str] = []
    outcome = await run_tool_call(
        call("c1", "work"),
        tools=[sleeper("work", 1, updates=["one", "two"])],
        on_update=lambda update: updates.append(update.text),
    )
    assert (outcome.result.text, outcome.is_error) == ("work done", False)
    assert updates == ["one", "two"]


@pytest.mark.parametrize("requested", [True, False])
async def test_run_tool_call_begins_nothing_after_an_abort(requested: bool, autojump_clock: MockClock) -> None:
    abort, log = Abort(), Log()
    if requested:
        abort.request("enough")
    outcome = await run_tool_call(call("c1", "work"), tools=[sleeper("work", log=log)], abort=abort)
    assert outcome.is_error is requested
    assert (log.texts == []) is requested
    if requested:
        assert outcome.result.error_kind == "not_started"


async def test_a_cancelled_run_tool_call_raises_cancelled_and_gives_no_value(autojump_clock: MockClock) -> None:
    log = Log()

    async def start() -> Any:
        return await run_tool_call(call("c1", "work"), tools=[sleeper("work", 60, log)])

    play = await Play(start, (1, "cancel")).run()
    play.assert_cancelled()
    assert log.texts == ["work starts", "work cut"]


async def test_updates_of_a_nested_call_are_nobodys_events(autojump_clock: MockClock) -> None:
    outcomes: list[ToolCallOutcome] = []
    log = Log()
    agent, _, seen = agent_of(
        [calling("outer"), "Done."],
        caller("outer", "inner", outcomes, log),
        sleeper("inner", log=log, updates=["unheard"]),
    )
    await prompted(agent)
    assert seen.of("tool_execution_update") == []
    assert_run(seen, ["outer"])


async def test_an_agent_inside_a_tool_that_reports_its_progress(autojump_clock: MockClock) -> None:
    """The pattern of a sub-agent: its events become updates of the outer call, by time."""
    inner, _, inner_seen = agent_of([calling("c2"), "Inner."], sleeper("c2", 2))

    async def execute(args: Any, ctx: ToolContext) -> ToolResult:
        async def report(event: Any) -> None:
            await ctx.update(event.type)

        unsubscribe = inner.subscribe(report)
        try:
            result = await inner.prompt("Sub-task.")
        finally:
            unsubscribe()
        return ToolResult(result.text, usage=result.usage)

    agent, _, seen = agent_of([calling("c1"), "Outer."], Tool("c1", execute=execute), limits=RunLimits(seconds=60))
    play = await prompted(agent)
    assert play.ended == 2
    assert len(seen.of("tool_execution_update")) == len(inner_seen.events)
    assert seen.log.times("tool_execution_update c1")[-1] == 2
    (result,) = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert (result.text, result.usage is not None) == ("Inner.", True)
    assert_run(seen)
    assert_run(inner_seen)


async def test_a_recorder_without_an_agent_sees_no_state(autojump_clock: MockClock) -> None:
    """The kit itself: a recorder that is only a listener notes events, and nothing of a state."""
    agent, _, seen = agent_of(["Done."])
    other = Recorder()
    agent.subscribe(other)
    await prompted(agent)
    assert other.events == seen.events
    assert other.behind == []
