"""A cut of thousands of tools and of many levels at once; limits that pass while something is cut; guest mode.

Thousands of calls answer with one tool, whose bodies are counted on their way in and out.
"""

from __future__ import annotations

import gc
import math
import queue
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
import trio
from invariants import assert_works_again
from kit import (
    Act,
    Log,
    Play,
    Recorder,
    act,
    agent_of,
    assert_run,
    call,
    calling,
    kind,
    prompted,
    sleeper,
    story,
    texts,
)
from trio.testing import MockClock

from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    BusyError,
    RunLimits,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolResultMessage,
)
from trio_agent._batch import AT_ONCE
from trio_agent.testing import ScriptedModel

MANY = 5_000


def results_of(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


class Crowd:
    """A tool that sleeps for an hour; it counts its bodies."""

    def __init__(self, name: str = "crowd", clean_up: float = 0.0) -> None:
        self.name = name
        self.clean_up = clean_up
        self.entered: list[str] = []
        self.unwound = 0
        self.tool = Tool(name, execute=self.execute)

    async def execute(self, args: Any, ctx: ToolContext) -> None:
        self.entered.append(ctx.tool_call_id)
        try:
            await trio.sleep(3600)
        finally:
            if self.clean_up:
                with trio.CancelScope(shield=True, relative_deadline=3600):
                    await trio.sleep(self.clean_up)
            self.unwound += 1

    def calls(self, count: int) -> list[ToolCall]:
        return [call(f"{self.name}-{number}", self.name) for number in range(count)]


# ------------------------------------------------------------- five thousand

MODES: dict[str, dict[str, Any]] = {
    "parallel": {},
    "parallel preparation": {"tool_preparation": "parallel"},
    "slots": {"max_parallel_tools": 1_000},
}


async def cut_many(
    cause: str, crowd: Crowd, count: int, **settings: Any
) -> tuple[Agent, Recorder, ScriptedModel, Play]:
    """Cut a run with a crowd of tools after a second; looks that no body is left when the call is over."""
    if cause == "limit":
        settings["limits"] = RunLimits(seconds=1)
    agent, model, seen = agent_of([crowd.calls(count), "never"], crowd.tool, **settings)
    left: list[int] = []

    async def start() -> Any:
        try:
            if cause == "deadline":
                with trio.move_on_after(1) as scope:
                    await agent.prompt("Go.")
                assert scope.cancelled_caught
                return None
            return await agent.prompt("Go.")
        finally:
            left.append(len(crowd.entered) - crowd.unwound)

    acts: dict[str, Act] = {"deadline": lambda: None, "limit": lambda: None}
    play = await Play(start, (1, acts.get(cause) or act(agent, cause))).run()
    assert left == [0], "not everything had unwound when the call was over"
    return agent, seen, model, play


@pytest.mark.parametrize(
    ("cause", "mode"),
    [(cause, "parallel") for cause in ("abort", "cancel", "deadline", "limit")]
    + [("abort", "parallel preparation"), ("cancel", "parallel preparation"), ("abort", "slots"), ("cancel", "slots")],
)
async def test_five_thousand_sleeping_tools_are_unwound_before_the_call_is_over(
    cause: str, mode: str, autojump_clock: MockClock
) -> None:
    crowd = Crowd()
    agent, seen, model, play = await cut_many(cause, crowd, MANY, **MODES[mode])
    assert play.ended == 1, "no virtual time passed between the cut and the end"
    if cause == "cancel":
        play.assert_cancelled()
    elif cause != "deadline":
        assert play.returned(agent) is agent.last_result
    assert agent.last_result is not None
    reasons = {"abort": "aborted", "cancel": "cancelled", "deadline": "cancelled", "limit": "deadline"}
    assert agent.last_result.end_reason == reasons[cause]
    entered = 1_000 if mode == "slots" else MANY
    assert len(crowd.entered) == len(set(crowd.entered)) == entered
    results = results_of(agent)
    assert [result.tool_call_id for result in results] == [one.id for one in crowd.calls(MANY)]
    kinds = [result.error_kind for result in results]
    assert (kinds.count("aborted"), kinds.count("not_started")) == (entered, MANY - entered)
    assert len(seen.of("tool_execution_start")) == len(seen.of("tool_execution_end")) == MANY
    assert len(model.requests) == 1
    assert isinstance(agent.messages[-1], AssistantMessage)
    assert agent.messages[-1].stop_reason == "aborted"
    assert_run(seen, crowd.entered)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_the_clean_up_of_five_thousand_tools_takes_as_long_as_that_of_one(
    cause: str, autojump_clock: MockClock
) -> None:
    crowd = Crowd(clean_up=2)
    agent, seen, _, play = await cut_many(cause, crowd, MANY)
    assert play.ended == 3
    assert crowd.unwound == MANY
    assert {result.error_kind for result in results_of(agent)} == {"aborted"}
    assert_run(seen, crowd.entered)


async def test_a_batch_lets_other_tasks_run_while_its_calls_begin() -> None:
    """A thousand spawns take several milliseconds, in which nobody else in the program would run."""
    turns = 0
    seen: list[int] = []

    async def execute(args: Any, ctx: ToolContext) -> None:  # noqa: ASYNC124 - what a tool looks like
        seen.append(turns)

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    calls = [call(f"c{number}", "brief") for number in range(1000)]
    agent, *_ = agent_of([calls, "done"], Tool("brief", execute=execute))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(somebody_else)
        await agent.prompt("go")
        nursery.cancel_scope.cancel(reason="the test is over")
    assert len(seen) == 1000
    assert max(Counter(seen).values()) <= 2 * AT_ONCE  # in its turn, or before somebody else in the next one
    assert seen[-1] - seen[0] >= 1000 // AT_ONCE - 1


@pytest.mark.parametrize("preparation", ["serial", "parallel"])
async def test_an_abort_while_the_calls_of_a_batch_begin_lets_no_more_of_them_begin(
    preparation: Literal["serial", "parallel"],
) -> None:
    entered: list[str] = []

    async def execute(args: Any, ctx: ToolContext) -> str:  # noqa: ASYNC124 - what a tool looks like
        entered.append(ctx.tool_call_id)
        if len(entered) == 100:
            agent.abort("enough")
        return "done"

    calls = [call(f"c{number}", "brief") for number in range(1000)]
    agent, *_ = agent_of([calls, "done"], Tool("brief", execute=execute), tool_preparation=preparation)
    result = await agent.prompt("go")
    assert result.end_reason == "aborted"
    assert len(entered) == 100
    results = results_of(agent)
    assert [one.tool_call_id for one in results] == [one.id for one in calls]
    assert [one.tool_call_id for one in results if not one.is_error] == sorted(entered, key=lambda name: int(name[1:]))
    assert {one.error_kind for one in results if one.is_error} == {"not_started"}


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_what_a_cut_leaves_behind_is_gone_without_the_garbage_collector(
    cause: str, autojump_clock: MockClock
) -> None:
    """A call whose frame holds the Cancelled that holds the frame is a cycle, with all that the tool held."""
    crowd = Crowd()
    gc.collect()
    gc.disable()
    try:
        await cut_many(cause, crowd, 200)
        left = sum(isinstance(one, trio.Cancelled) for one in gc.get_objects())
    finally:
        gc.enable()
    assert left < 20  # a few belong to the run and to the host around it


async def test_cancel_tool_cuts_any_number_of_five_thousand_and_the_others_go_on(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    agent, model, seen = agent_of([crowd.calls(MANY), "Done."], crowd.tool)
    wanted = [f"crowd-{number}" for number in range(0, MANY, 2)]
    answers: list[bool] = []
    play = await prompted(agent, (1, lambda: answers.extend(agent.cancel_tool(name, "even") for name in wanted)))
    assert answers == [True] * len(wanted)
    assert play.ended == 3600
    cut = [result.tool_call_id for result in results_of(agent) if result.error_kind == "aborted"]
    assert cut == wanted
    assert [result.is_error for result in results_of(agent)].count(False) == MANY - len(wanted)
    ends = [at for at, text in seen.log.entries if text.startswith("tool_execution_end")]
    assert (ends.count(1), ends.count(3600)) == (len(wanted), MANY - len(wanted))
    assert len(model.requests) == 2
    assert_run(seen, crowd.entered)


# -------------------------------------------------------------- eight levels

DEPTH = 8


class Tower:
    """Agents inside of each other's tools, the first outermost; at each level some tools sleep beside.

    ``unwound`` names the levels as their ``prompt()`` comes to its end.
    """

    def __init__(self, crowds: list[int], **settings: Any) -> None:
        self.crowds = [Crowd(f"crowd{level}") for level in range(DEPTH)]
        self.levels: list[tuple[Agent, ScriptedModel, Recorder]] = []
        self.unwound: list[int] = []
        self.closed: list[int] = []
        inner: Agent | None = None
        for level in reversed(range(DEPTH)):
            calls = self.crowds[level].calls(crowds[level])
            tools = [self.crowds[level].tool]
            if inner is not None:
                calls.insert(len(calls) // 2, call("ask"))
                tools.append(self._asking(inner, level + 1))
            agent, model, seen = agent_of([calls, "never"], *tools, **settings)
            self.levels.insert(0, (agent, model, seen))
            agent.subscribe(self._closing(level))
            inner = agent

    def _asking(self, inner: Agent, level: int) -> Tool:
        async def execute(args: Any, ctx: Any) -> str:
            try:
                return (await inner.prompt(f"Level {level}.")).text
            finally:
                self.unwound.append(level)

        return Tool("ask", execute=execute)

    def _closing(self, level: int) -> Callable[[AgentEvent], None]:
        def listen(event: AgentEvent) -> None:
            if event.type == "agent_end":
                self.closed.append(level)

        return listen

    @property
    def top(self) -> Agent:
        return self.levels[0][0]


@pytest.mark.parametrize("cause", ["abort", "cancel", "deadline", "limit", "cancel_tool"])
@pytest.mark.parametrize("spread", [False, True], ids=["all innermost", "some at each level"])
async def test_a_cut_at_the_top_closes_eight_levels_the_innermost_first(
    spread: bool, cause: str, autojump_clock: MockClock
) -> None:
    counts = [MANY // DEPTH] * DEPTH if spread else [0] * (DEPTH - 1) + [MANY]
    tower = Tower(counts)
    top = tower.top
    if cause == "limit":
        top.limits = RunLimits(seconds=1)

    async def start() -> Any:
        if cause == "deadline":
            with trio.move_on_after(1):
                await top.prompt("Go.")
            return None
        return await top.prompt("Go.")

    acts: dict[str, Act] = {
        "deadline": lambda: None,
        "limit": lambda: None,
        "cancel_tool": lambda: top.cancel_tool("ask", "why"),
    }
    # With cancel_tool the tools beside the asking one would go on for an hour.
    more: list[tuple[float, Act]] = [(2, top.abort)] if cause == "cancel_tool" and spread else []
    play = await Play(start, (1, acts.get(cause) or act(top, cause)), *more).run()
    assert play.ended == (2 if more else 1)
    assert tower.unwound == list(range(DEPTH - 1, 0, -1)), "innermost first"
    assert tower.closed == [*range(DEPTH - 1, 0, -1), 0]
    assert sum(len(crowd.entered) for crowd in tower.crowds) == sum(counts)
    assert all(crowd.unwound == len(crowd.entered) for crowd in tower.crowds)
    reasons = {"abort": "aborted", "cancel": "cancelled", "deadline": "cancelled", "limit": "deadline"}
    for level, (agent, model, seen) in enumerate(tower.levels):
        assert agent.last_result is not None
        # To a nested run its parent's abort is a cancellation (7.5).
        if level:
            assert agent.last_result.end_reason == "cancelled"
        else:
            assert agent.last_result.end_reason == reasons.get(cause, "aborted" if more else "done")
        asks = [] if level == DEPTH - 1 else ["ask"]
        assert len(results_of(agent)) == counts[level] + len(asks)
        assert {result.error_kind for result in results_of(agent)} == {"aborted"}
        assert seen.log.times("agent_end") == [2 if more and not level else 1]
        assert len(model.requests) == (2 if cause == "cancel_tool" and not level and not more else 1)
        assert_run(seen, [*tower.crowds[level].entered, *asks])
    for agent, model, _ in tower.levels:
        agent.limits = RunLimits()
        await assert_works_again(agent, model)


@pytest.mark.parametrize("level", [1, 4, 7])
async def test_an_abort_in_the_middle_closes_what_is_below_and_the_levels_above_go_on(
    level: int, autojump_clock: MockClock
) -> None:
    tower = Tower([0] * (DEPTH - 1) + [100])
    for agent, model, _ in tower.levels:
        model.turns[-1] = f"Level {[one for one, _, _ in tower.levels].index(agent)}."
    play = await prompted(tower.top, (1, lambda: tower.levels[level][0].abort("half-way")))
    assert play.ended == 1
    assert play.returned(tower.top).text == "Level 0."
    for number, (agent, _, seen) in enumerate(tower.levels):
        assert agent.last_result is not None
        expected = "done" if number < level else "aborted" if number == level else "cancelled"
        assert agent.last_result.end_reason == expected
        assert_run(seen)
    assert tower.unwound == list(range(DEPTH - 1, 0, -1))


async def test_eight_levels_each_have_a_grace_of_their_own_and_no_more(autojump_clock: MockClock) -> None:
    """A hanging async listener at each level costs its run's grace, one after the other (7.5)."""
    tower = Tower([0] * (DEPTH - 1) + [10], closing_grace=0.5)
    hung: list[int] = []

    def hangs(level: int) -> Callable[[AgentEvent], Awaitable[None]]:
        async def listen(event: AgentEvent) -> None:
            if agent_end_or_later(tower.levels[level][2]):
                hung.append(level)
                await trio.sleep_forever()

        return listen

    def agent_end_or_later(seen: Recorder) -> bool:
        return seen.log.now() >= 1

    for level, (agent, _, _) in enumerate(tower.levels):
        agent.subscribe(hangs(level))
    play = await prompted(tower.top, (1, "cancel"))
    play.assert_cancelled()
    assert play.ended == 1 + DEPTH * 0.5
    assert hung == list(range(DEPTH - 1, -1, -1)), "each was asked once and cut once"
    for _, _, seen in tower.levels:
        assert_run(seen)


# ------------------------------------------ limits that pass while work is cut


def cleaning(name: str, seconds: float, log: Log) -> Tool:
    """A tool that cleans up for some seconds where nothing reaches it."""

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep(3600)
        finally:
            with trio.CancelScope(shield=True, relative_deadline=3600):
                await trio.sleep(seconds)
            log(f"{name} cleaned up")

    return Tool(name, execute=execute)


@pytest.mark.parametrize("beside", [False, True])
async def test_the_limit_of_seconds_passes_while_a_cancelled_tool_cleans_up(
    beside: bool, autojump_clock: MockClock
) -> None:
    """The call keeps its cause, the run gets that of the limit; nothing more is begun."""
    log = Log()
    calls = ["c1", "c2"] if beside else ["c1"]
    agent, model, seen = agent_of(
        [calling(*calls), "never"], cleaning("c1", 5, log), sleeper("c2", 3600, log), limits=RunLimits(seconds=3)
    )
    looks: list[set[str]] = []
    play = await prompted(
        agent, (1, lambda: agent.cancel_tool("c1", "too slow")), (4, lambda: looks.append(set(agent.state.aborting)))
    )
    assert play.ended == 6
    assert looks == [{"c1"}], "c2 has unwound at second 3"
    result = play.returned(agent)
    assert result.end_reason == "deadline"
    assert len(model.requests) == 1
    first, *rest = results_of(agent)
    assert "too slow" in first.text
    assert "limit" not in first.text
    assert [("limit of 3 s" in other.text) for other in rest] == [True] * beside
    assert "limit of 3 s" in str(result.message and result.message.error_message)
    if beside:
        assert log.times("c2 cut") == [3]
    assert log.times("c1 cleaned up") == [6]
    assert_run(seen, calls)
    agent.limits = RunLimits()
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_the_limit_of_seconds_passes_while_a_cut_run_cleans_up(cause: str, autojump_clock: MockClock) -> None:
    """What came first is the reason (7.1); a limit that passes in the closing changes nothing."""
    log = Log()
    agent, model, seen = agent_of([calling("c1"), "never"], cleaning("c1", 5, log), limits=RunLimits(seconds=3))
    play = await prompted(agent, (1, act(agent, cause, "enough")))
    assert play.ended == 6
    if cause == "cancel":
        play.assert_cancelled()
    assert agent.last_result is not None
    assert agent.last_result.end_reason == {"abort": "aborted", "cancel": "cancelled"}[cause]
    message = agent.last_result.message
    assert message is not None
    for text in (results_of(agent)[0].text, str(message.error_message)):
        assert "limit" not in text
        assert ("aborted" if cause == "abort" else "cancelled by the host") in text
    assert_run(seen, ["c1"])
    agent.limits = RunLimits()
    await assert_works_again(agent, model)


@pytest.mark.parametrize("late", ["abort", "cancel"])
async def test_a_cut_that_comes_while_the_limit_of_seconds_closes_the_run(late: str, autojump_clock: MockClock) -> None:
    log = Log()
    agent, model, seen = agent_of([calling("c1"), "never"], cleaning("c1", 5, log), limits=RunLimits(seconds=3))
    play = await prompted(agent, (4, act(agent, late, "late")))
    assert play.ended == 8
    if late == "cancel":
        play.assert_cancelled()
    assert agent.last_result is not None
    assert agent.last_result.end_reason == ("deadline" if late == "abort" else "cancelled")
    assert "limit of 3 s" in results_of(agent)[0].text
    assert "late" not in results_of(agent)[0].text
    assert_run(seen, ["c1"])
    agent.limits = RunLimits()
    await assert_works_again(agent, model)


async def test_the_limit_of_seconds_passes_in_the_closing_hooks_of_an_abort(autojump_clock: MockClock) -> None:
    asked: list[float] = []

    async def slow(told: Any) -> None:
        await trio.sleep(5)
        asked.append(log.now())

    log = Log()
    agent, _, seen = agent_of(
        [calling("c1"), "never"], sleeper("c1", 3600, log), limits=RunLimits(seconds=3), after_tool_call=slow
    )
    play = await prompted(agent, (1, lambda: agent.abort("enough")))
    assert (play.ended, asked) == (6, [6]), "neither cause cuts a closing hook (7.3)"
    assert play.returned(agent).end_reason == "aborted"
    assert_run(seen, ["c1"])


# --------------------------------------------------- two tasks, two Trio runs


@pytest.mark.parametrize("cause", ["nothing", "abort", "cancel"])
async def test_of_two_tasks_that_prompt_one_agent_the_second_is_refused_and_may_try_again(
    cause: str, autojump_clock: MockClock
) -> None:
    """However the first run ends; the refused prompt has changed nothing."""
    agent, model, seen = agent_of([calling("c1"), "First.", "Second."], sleeper("c1", 5))
    if cause != "nothing":
        model.turns[1:2] = []
    log = Log()

    async def second() -> None:
        await trio.sleep(1)
        with pytest.raises(BusyError):
            await agent.prompt("Second?")
        log("refused")
        await agent.wait_for_idle()
        assert_run(seen)
        seen.next_run()
        assert (await agent.prompt("Second?")).text == "Second."
        log("answered")

    scope = trio.CancelScope()

    async def cut() -> None:
        await trio.sleep(2)
        action = act(agent, cause)
        if callable(action):
            action()
        else:
            scope.cancel(reason="the test")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second)
        nursery.start_soon(cut)
        with scope:
            await agent.prompt("Go.")
        assert scope.cancelled_caught is (cause == "cancel")
    ended = 5 if cause == "nothing" else 2
    assert log.entries == [(1, "refused"), (ended, "answered")]
    assert texts(agent.messages) == ["Go.", "Second?"]
    assert_run(seen)


class Crash(Exception):
    """What ends a Trio run beside the agent."""


@pytest.mark.parametrize("end", ["abort", "cancel", "crash", "KeyboardInterrupt", "done"])
@pytest.mark.parametrize("limits", [RunLimits(), RunLimits(seconds=600)], ids=["no limits", "limits"])
def test_an_agent_of_one_trio_run_is_used_in_another_after_the_first_was_cut(limits: RunLimits, end: str) -> None:
    agents: list[tuple[Agent, ScriptedModel]] = []
    begun: list[str] = []

    def in_thread(args: Any, ctx: Any) -> str:
        return "from a thread"

    async def first() -> None:
        model = ScriptedModel([calling("c1", "c2"), "Done."])

        async def execute(args: Any, ctx: Any) -> str:
            begun.append("c1")
            await trio.sleep(0 if end == "done" else 60)
            return "c1 done"

        # Thread and limiters are bound to a Trio run; those that the library makes itself must not be kept.
        tools = [Tool("c1", execute=execute), Tool("c2", execute=in_thread, in_thread=end == "done")]
        agent = Agent(model, tools=tools, limits=limits, max_parallel_tools=2, steering_capacity=3)
        agents.append((agent, model))
        agent.follow_up("later")
        if end != "done":
            agent.clear_all_queues()
        else:
            model.extend(["Later."])

        async def cut() -> None:
            await trio.sleep(1)
            if end == "abort":
                agent.abort()
            elif end == "cancel":
                scope.cancel(reason="the host")
            elif end == "crash":
                raise Crash
            elif end == "KeyboardInterrupt":
                raise KeyboardInterrupt

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if end != "done":
                    nursery.start_soon(cut)
                await agent.prompt("Go.")

    clock = MockClock(autojump_threshold=math.inf if end == "done" else 0)
    if end in ("crash", "KeyboardInterrupt"):
        with pytest.RaisesGroup(Crash if end == "crash" else KeyboardInterrupt):
            trio.run(first, clock=clock)
    else:
        trio.run(first, clock=clock)
    ((agent, model),) = agents
    assert begun == ["c1"]
    assert results_of(agent)[0].error_kind == (None if end == "done" else "aborted")
    seen: list[Recorder] = []

    async def second() -> None:
        # Another one: also idle waiters, queues and threads work on the new Trio run.
        seen.append(Recorder(agent))
        model.turns[len(model.turns) - len(model.remaining) :] = [[call("d1", "c2"), call("d2", "c2")], "Again."]
        agent.tools = [Tool("c2", execute=in_thread)]
        await agent.wait_for_idle()
        await agent.steering.send("steered")
        result = await agent.prompt("Second run.")
        assert result.text == "Again."

    trio.run(second, clock=MockClock())
    assert texts(agent.messages)[-2:] == ["Second run.", "steered"]
    assert [result.text for result in results_of(agent)[-2:]] == ["from a thread"] * 2
    assert_run(seen[0], ["d1", "d2"])


# ------------------------------------------------------------------ guest mode


def run_as_guest(main: Callable[[], Awaitable[Any]], *host_acts: Callable[[], Any]) -> tuple[Any, int]:
    """Run Trio as a guest of a trivial host loop: a queue of callbacks; the host acts once Trio has nothing to do.

    Returns:
      what came of ``main``, and how many callbacks the host has run.
    """
    callbacks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    outcomes: list[Any] = []
    acts = list(host_acts)
    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=callbacks.put,
        done_callback=outcomes.append,
        clock=MockClock(autojump_threshold=0) if not host_acts else MockClock(),
    )
    count = 0
    while not outcomes:
        try:
            callback = callbacks.get(timeout=0.2 if acts else 20)
        except queue.Empty:
            acts.pop(0)()
            continue
        callback()
        count += 1
    return outcomes[0], count


GUEST_CAUSES = ["abort", "cancel", "deadline", "limit", "crash", "KeyboardInterrupt"]


@pytest.mark.parametrize("cause", GUEST_CAUSES)
@pytest.mark.parametrize("where", ["tool", "stream", "hook"])
def test_a_run_that_is_cut_in_guest_mode_closes_in_order(where: str, cause: str) -> None:
    kept: dict[str, Any] = {}

    async def waits(*args: Any) -> Any:
        await trio.sleep(3600)

    async def main() -> None:
        log = Log()
        agent, model, seen = agent_of(
            [calling("c1", "c2"), "never"],
            sleeper("c1", 3600, log),
            sleeper("c2", 3600, log),
            before_tool_call=waits if where == "hook" else None,
            limits=RunLimits(seconds=1 if cause == "limit" else None),
        )
        agent.stream_fn = waits if where == "stream" else None
        kept.update(agent=agent, seen=seen, log=log)
        began = trio.current_time()

        async def cut() -> None:
            await trio.sleep(1)
            if cause == "abort":
                agent.abort("the guest's")
            elif cause == "cancel":
                scope.cancel(reason="the guest's")
            elif cause == "crash":
                raise Crash
            elif cause == "KeyboardInterrupt":
                raise KeyboardInterrupt

        try:
            with trio.CancelScope() as scope:
                if cause == "deadline":
                    scope.deadline = began + 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cut)
                    await agent.prompt("Go.")
                    nursery.cancel_scope.cancel(reason="the run is over")
        finally:
            kept.update(ended=trio.current_time() - began, caught=scope.cancelled_caught, end=seen.end)
        agent.stream_fn = agent.before_tool_call = None
        agent.limits = RunLimits()
        assert_run(seen)
        await assert_works_again(agent, model)
        kept["again"] = True

    outcome, callbacks = run_as_guest(main)
    if cause in ("crash", "KeyboardInterrupt"):
        with pytest.RaisesGroup(Crash if cause == "crash" else KeyboardInterrupt):
            outcome.unwrap()
        assert_run(kept["seen"])
    else:
        outcome.unwrap()
        assert kept["again"]
    assert callbacks > 3, "the host's loop has carried the run"
    assert kept["ended"] == 1
    assert kept["caught"] is (cause in ("cancel", "deadline"))
    end = kept["end"]
    assert end.end_reason == {"abort": "aborted", "limit": "deadline"}.get(cause, "cancelled")
    expected = {
        "tool": ["c1 aborted", "c2 aborted", "assistant aborted ''"],
        "hook": ["c1 not_started", "c2 not_started", "assistant aborted ''"],
        "stream": [],
    }[where]
    assert story(end.messages)[2:] == expected
    if where == "tool":
        assert sorted(kept["log"].texts) == ["c1 cut", "c1 starts", "c2 cut", "c2 starts"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["abort", "cancel", "steer and abort"])
def test_the_host_loop_cuts_a_run_of_its_guest(way: str) -> None:
    """Slow: the host waits a real fifth of a second until its guest has nothing more to do."""
    kept: dict[str, Any] = {}

    async def main() -> None:
        agent, model, seen = agent_of([calling("c1"), "never"], sleeper("c1", 3600))
        kept.update(agent=agent, seen=seen, token=trio.lowlevel.current_trio_token())
        with trio.CancelScope() as scope:
            kept["scope"] = scope
            await agent.prompt("Go.")
        assert scope.cancelled_caught is (way == "cancel")
        assert_run(seen, ["c1"])
        await assert_works_again(agent, model)

    def steer() -> None:
        assert kept["agent"].state.pending_tool_calls == {"c1"}
        kept["token"].run_sync_soon(kept["agent"].steer, "from the host")

    def cut() -> None:
        assert kept["agent"].state.pending_tool_calls == {"c1"}
        if way == "cancel":
            kept["token"].run_sync_soon(lambda: kept["scope"].cancel(reason="the host"))
        else:
            kept["token"].run_sync_soon(kept["agent"].abort, "the host")

    outcome, _ = run_as_guest(main, *([steer] if way == "steer and abort" else []), cut)
    outcome.unwrap()
    first = kept["seen"].events[[kind(event) for event in kept["seen"].events].index("agent_end")]
    assert story(first.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert "the host" in str(first.messages[-1].error_message)
    assert texts(first.messages) == ["Go."], "what was steered stayed queued"


# --------------------------------------------------------------------- reasons


@pytest.mark.parametrize("reason", [None, "the user pressed stop", "zwölf – \U0001f6d1"])
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_the_reason_of_a_cut_stands_in_results_record_and_events(
    cause: str, reason: str | None, autojump_clock: MockClock
) -> None:
    agent, _model, seen = agent_of(
        [calling("c1", "c2"), "never"], sleeper("c1", 60), sleeper("c2", 60), tool_execution="sequential"
    )
    play = Play(
        lambda: agent.prompt("Go."),
        (1, (lambda: agent.abort(reason)) if cause == "abort" else (lambda: play.scope.cancel(reason=reason))),
    )
    await play.run()
    head = "Operation aborted" if cause == "abort" else "Operation cancelled by the host"
    tail = "" if reason is None else f": {reason}"
    ran, never = results_of(agent)
    assert ran.text == f"{head} while the tool ran{tail}. It may have had effects."
    assert never.text == f"{head}{tail}. The call never started."
    record = agent.messages[-1]
    assert isinstance(record, AssistantMessage)
    assert record.error_message == f"{head}{tail}"
    assert agent.state.error_message == record.error_message
    ends = {event.tool_call_id: event.result.text for event in seen.events if isinstance(event, ToolExecutionEnd)}
    assert ends == {"c1": ran.text, "c2": never.text}
    assert seen.end.messages[-1] is record
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("reason", [None, "too slow"])
async def test_the_reason_of_cancel_tool_stands_in_the_result_the_events_and_the_next_request(
    reason: str | None, autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."], sleeper("c1", 60), sleeper("c2", 5), max_parallel_tools=None
    )
    play = await prompted(agent, (1, lambda: agent.cancel_tool("c1", reason)))
    assert play.ended == 5
    text = f"Operation cancelled while the tool ran{'' if reason is None else ': too slow'}. It may have had effects."
    first, second = results_of(agent)
    assert (first.text, second.text) == (text, "c2 done")
    ends = {event.tool_call_id: event.result.text for event in seen.events if isinstance(event, ToolExecutionEnd)}
    assert ends["c1"] == text
    (sent,) = [m for m in model.requests[1].messages if isinstance(m, ToolResultMessage) and m.tool_call_id == "c1"]
    assert sent.text == text
    assert play.returned(agent).end_reason == "done"
    assert agent.state.error_message is None, "the run went on: its own state tells of no error"
    assert_run(seen, ["c1", "c2"])


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_the_reason_reaches_what_a_nested_run_says(cause: str, autojump_clock: MockClock) -> None:
    """To the inner run the outer abort is a cancellation whose scope names it (7.5)."""
    inner, _, inner_seen = agent_of([calling("c2"), "never"], sleeper("c2", 60))

    async def ask(args: Any, ctx: Any) -> str:
        return (await inner.prompt("Sub-task.")).text

    agent, _, seen = agent_of([calling("c1"), "never"], Tool("c1", execute=ask))
    play = Play(
        lambda: agent.prompt("Go."),
        (
            1,
            (lambda: agent.abort("over budget"))
            if cause == "abort"
            else (lambda: play.scope.cancel(reason="over budget")),
        ),
    )
    await play.run()
    assert "over budget" in results_of(agent)[0].text
    assert "cancelled by the host" in results_of(inner)[0].text
    assert "over budget" in results_of(inner)[0].text
    assert_run(seen, ["c1"])
    assert_run(inner_seen, ["c2"])
