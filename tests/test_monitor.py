"""Monitor: what it finds in runs as they go on, what it does then, and that it keeps nothing."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from kit import Act, act, agent_of, calling, prompted, sleeper, user
from trio.testing import MockClock

from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    LoopConfig,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamEvent,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
    UsageError,
    run_agent_loop,
)
from trio_agent.testing import InvariantError, Monitor, ScriptedModel

BAD: list[AgentEvent] = [AgentStart(), TurnStart(), AgentEnd(())]
"""A run that breaks a rule: it ends within a turn."""
PROMPT = user("Go.")
GOOD: list[AgentEvent] = [
    AgentStart(),
    TurnStart(),
    MessageStart(PROMPT),
    MessageEnd(PROMPT),
    MessageStart(answer := AssistantMessage()),
    MessageEnd(answer),
    TurnEnd(answer),
    AgentEnd((PROMPT, answer)),
]


def told(monitor: Monitor, *events: AgentEvent, abort: Abort | None = None) -> Monitor:
    for event in events:
        monitor(event) if abort is None else monitor(event, abort)
    return monitor


def spoiled(agent: Agent, monitor: Monitor) -> None:
    """Tell a monitor of an agent's runs, but for the first end of a call."""
    left = [1]

    def listener(event: AgentEvent, abort: Abort) -> None:
        if isinstance(event, ToolExecutionEnd) and left:
            left.pop()
            return
        monitor(event, abort)

    agent.subscribe(listener)


# --------------------------------------------------------------- good runs


@pytest.mark.parametrize("mode", [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}])
@pytest.mark.parametrize("cause", ["nothing", "abort", "cancel", "interrupt"])
@pytest.mark.parametrize("at", [0.5, 1.5, 3.5])
async def test_real_runs_are_in_order(at: float, cause: str, mode: dict[str, Any], autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of(
        [["Let me look.", *calling("c1", "c2")], "So.", "Done."],
        sleeper("c1", 1, updates=["half"]),
        sleeper("c2", 3),
        **mode,
    )
    model.delay = 0.25
    monitor = Monitor(on_violation="raise")
    agent.subscribe(monitor)
    cut: Act = act(agent, cause)
    await prompted(agent, (at, cut))
    assert monitor.events == len(seen.events)
    assert (monitor.runs, monitor.violated, list(monitor.violations)) == (1, 0, [])


async def test_one_monitor_serves_agents_whose_runs_overlap_and_nest(autojump_clock: MockClock) -> None:
    monitor = Monitor(on_violation="raise")
    inner, _, _ = agent_of([calling("c9"), "Found."], sleeper("c9", 2))

    async def delegate(args: dict[str, Any], ctx: ToolContext) -> str:
        return (await inner.prompt("Find it.")).text

    outer, _, _ = agent_of([calling("c1", "c2"), "Done."], Tool("c1", execute=delegate), sleeper("c2", 1))
    other, _, _ = agent_of([calling("c1", "c2"), "Done."], sleeper("c1", 0.5), sleeper("c2", 1.5))
    for agent in (inner, outer, other):
        agent.subscribe(monitor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outer.prompt, "Go.")
        nursery.start_soon(other.prompt, "Go.")
    assert (monitor.runs, monitor.violated) == (3, 0)


async def test_loops_that_are_called_directly_and_share_an_abort(autojump_clock: MockClock) -> None:
    monitor, abort = Monitor(on_violation="raise"), Abort()

    async def run(seconds: float, emit: Callable[..., None], abort: Abort | None) -> None:
        config = LoopConfig(model=ScriptedModel([calling("c1"), "Done."]))
        context = AgentContext((), [sleeper("c1", seconds)])
        await run_agent_loop([user("Go.")], context, config, emit, abort=abort)

    def without_abort(event: AgentEvent) -> None:
        monitor(event)

    async with trio.open_nursery() as nursery:
        for seconds in (1, 2, 3):
            nursery.start_soon(run, seconds, monitor, abort)
            nursery.start_soon(run, seconds, without_abort, None)
    assert (monitor.runs, monitor.violated) == (6, 0)


async def test_of_a_run_that_had_begun_nothing_is_checked(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1"), "Done.", calling("c1"), "Done."], sleeper("c1", 2))
    monitor = Monitor(on_violation="raise")
    await prompted(agent, (1, lambda: agent.subscribe(monitor)))
    assert monitor.events > 0
    assert monitor.runs == 0
    await agent.prompt("Again.")
    assert (monitor.runs, monitor.violated) == (1, 0)


async def test_a_subscription_that_ends_within_a_run_spoils_nothing(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1"), "Done.", "Hi.", "Hi."], sleeper("c1", 2))
    monitor = Monitor(on_violation="raise")
    stop = agent.subscribe(monitor)
    await prompted(agent, (1, stop))
    stop = agent.subscribe(monitor)
    await agent.prompt("Again.")
    await agent.prompt("Again.")
    assert (monitor.runs, monitor.violated) == (3, 0)


def test_events_that_were_kept_are_checked_outside_of_trio() -> None:
    monitor = told(Monitor(), *GOOD, *BAD)
    assert (monitor.runs, monitor.events, monitor.violated) == (2, 11, 1)


async def test_it_keeps_nothing_of_a_run_that_is_over(autojump_clock: MockClock) -> None:
    monitor = Monitor(on_violation=lambda error: None)

    async def run() -> weakref.ref[Any]:
        agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 2))
        spoiled(agent, monitor)
        await agent.prompt("Go.")
        return weakref.ref(seen.end.messages[-1])

    messages = [await run() for _ in range(20)]
    gc.collect()
    assert monitor.violated == 20
    assert [message() for message in messages] == [None] * 20


# -------------------------------------------------------------- violations


async def test_a_violation_is_logged_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    agent, _, _ = agent_of([calling("c1"), "Done."], sleeper("c1", 1))
    monitor = Monitor()
    spoiled(agent, monitor)
    with caplog.at_level(logging.ERROR, "trio_agent.monitor"):
        result = await agent.prompt("Go.")
    assert result.end_reason == "done"
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("trio_agent.monitor", "ERROR")
    task = trio.lowlevel.current_task().name
    assert record.getMessage() == (
        "Paired: event 13 (turn_end) comes while ['c1'] have started and not ended "
        f"(In run 1 of this monitor, at turn_end, in the task {task}.)"
    )
    assert vars(record)["invariant"] == "Paired"
    assert [str(error) for error in monitor.violations] == [record.getMessage().partition(" (In")[0]]


async def test_a_violation_can_be_raised_in_the_run_and_closes_it(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1"), "Never.", "Hello."], sleeper("c1", 1))
    monitor = Monitor(on_violation="raise")
    spoiled(agent, monitor)
    with pytest.raises(InvariantError, match="have started and not ended") as caught:
        await agent.prompt("Go.")
    assert list(monitor.violations) == [caught.value]
    assert seen.end.end_reason == "error"
    result = await agent.prompt("Again.")
    assert result.end_reason == "done"
    assert (monitor.runs, monitor.violated) == (2, 1)


def test_a_violation_can_be_handed_to_a_function_which_may_raise() -> None:
    found: list[InvariantError] = []
    monitor = told(Monitor(on_violation=found.append), *BAD)
    assert found == list(monitor.violations)
    assert "In run 1 of this monitor, at agent_end, in no task." in found[0].__notes__

    def refuse(error: InvariantError) -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        told(Monitor(on_violation=refuse), *BAD)


@pytest.mark.parametrize("end", [BAD[-1], BAD[0]], ids=["agent_end", "agent_start"])
def test_it_is_quiet_until_the_next_run_and_checks_that_one(end: AgentEvent) -> None:
    monitor = told(Monitor(on_violation="log"), *BAD[:2], BAD[1], BAD[1], GOOD[5], end)
    assert monitor.violated == 1
    told(monitor, *GOOD)
    assert monitor.violated == (1 if isinstance(end, AgentEnd) else 2)
    told(monitor, *BAD)
    assert monitor.violations[-1].difference.startswith("event 3 (agent_end)")


def test_a_start_within_a_run_breaks_that_run_and_begins_its_own() -> None:
    monitor = told(Monitor(), AgentStart(), *GOOD)
    assert (monitor.runs, monitor.violated) == (2, 1)
    assert "In run 1 of this monitor" in monitor.violations[0].__notes__[0]


def test_what_comes_behind_the_end_of_a_run_is_found_once() -> None:
    monitor = told(Monitor(), *GOOD, TurnStart(), TurnStart())
    (error,) = monitor.violations
    assert str(error) == "Paired: turn_start comes behind the agent_end of its run"
    told(monitor, *GOOD, *GOOD)
    assert monitor.violated == 1


def test_a_violation_of_one_run_does_not_silence_another() -> None:
    one, other = Abort(), Abort()
    monitor = Monitor()
    told(monitor, *BAD[:2], abort=one)
    told(monitor, *BAD[:2], abort=other)
    told(monitor, BAD[-1], abort=one)
    assert monitor.violated == 1
    told(monitor, BAD[-1], abort=other)
    assert monitor.violated == 2


def streamed(text: str) -> tuple[list[AgentEvent], MessageBuilder]:
    builder = MessageBuilder()
    start = builder.start()
    steps: list[StreamEvent] = [builder.text_start(), builder.text_delta(text)]
    return [*GOOD[:4], MessageStart(start.partial), *(MessageUpdate(step) for step in steps)], builder


def asking(*ids: str) -> AssistantMessage:
    return AssistantMessage([ToolCall(each, "look") for each in ids], stop_reason="tool_use")


@pytest.mark.parametrize("invariant", ["Paired", "Adds up", "Answered", "Nothing begins"])
def test_each_invariant_is_checked(invariant: str) -> None:
    abort, begun = Abort(), streamed("Let me see.")[0]
    events: dict[str, list[AgentEvent]] = {
        "Paired": BAD,
        "Adds up": [*begun, MessageEnd(AssistantMessage([TextContent("Let me look.")]))],
        "Answered": [*GOOD[:4], MessageStart(wish := asking("c1")), MessageEnd(wish), TurnEnd(wish)],
        "Nothing begins": begun,
    }
    monitor = Monitor()
    for number, event in enumerate(events[invariant]):
        if invariant == "Nothing begins" and number == 4:
            abort.request("why")
        monitor(event, abort)
    assert [error.invariant for error in monitor.violations] == [invariant]


def test_without_an_abort_nothing_begins_is_not_checked() -> None:
    assert told(Monitor(), *streamed("Hi.")[0]).violated == 0


def test_a_call_that_was_told_as_broken_and_may_be_executed_is_a_violation() -> None:
    builder = MessageBuilder()
    start = MessageStart(builder.start().partial)
    steps: list[StreamEvent] = [
        builder.tool_call_start("c1", "look"),
        builder.tool_call_delta("{"),
        builder.tool_call_end(),
    ]
    end = MessageEnd(asking("c1"))
    monitor = told(Monitor(), *GOOD[:4], start, *map(MessageUpdate, steps), end)
    (error,) = monitor.violations
    assert error.invariant == "Adds up"
    assert "is a call that may be executed, but told was '{'" in error.difference


def test_what_a_rule_cannot_look_at_is_a_violation_and_no_crash() -> None:
    start = MessageStart(MessageBuilder().start().partial)
    strange: Any = SimpleNamespace(index=0)
    monitor = told(Monitor(), *GOOD[:4], start, MessageUpdate(strange))
    (error,) = monitor.violations
    assert error.invariant == "Adds up"
    assert error.difference.startswith("cannot be checked at message_update: AttributeError(")


def test_violations_are_bounded_and_counted() -> None:
    monitor = told(Monitor(keep=3), *(BAD * 10))
    assert (monitor.violated, monitor.runs, monitor.events) == (10, 10, 30)
    assert [error.__notes__[0].split(",")[0] for error in monitor.violations] == [
        f"In run {number} of this monitor" for number in (8, 9, 10)
    ]


def test_a_long_difference_is_shortened_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    events, _ = streamed("x" * 100_000)
    told(Monitor(), *events, MessageEnd(AssistantMessage([TextContent("y" * 100_000)])))
    (record,) = caplog.records
    assert len(record.getMessage()) < 1200


# ---------------------------------------------------------------- options


async def later(error: InvariantError) -> None:  # noqa: ASYNC124 - refused because it is async
    pass


@pytest.mark.parametrize("reaction", ["shout", None, 7, later])
def test_other_reactions_are_refused(reaction: Any) -> None:
    with pytest.raises(UsageError, match=r"on_violation is .*, but must be 'log', 'raise' or a plain function"):
        Monitor(on_violation=reaction)


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="keep is 0, but must be at least 1"):
        Monitor(keep=0)


def test_an_interrupt_does_not_strike_while_it_counts() -> None:
    protected: list[bool] = []
    monitor = Monitor(on_violation=lambda error: protected.append(trio.lowlevel.currently_ki_protected()))

    async def run() -> None:  # noqa: ASYNC124 - only inside Trio it can be asked
        told(monitor, *BAD)

    trio.run(run)
    assert protected == [True]


def test_it_is_a_thing_and_no_value() -> None:
    one, other = Monitor(), Monitor()
    assert one != other
    assert len({one, other}) == 2
    assert repr(one) == "Monitor(on_violation='log', keep=100, violated=0, events=0, runs=0)"
