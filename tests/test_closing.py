"""How a run closes: the grace, key interrupts, what slow and failing listeners are told (design 7.5 to 7.7)."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import trio
from invariants import assert_works_again
from kit import Log, Play, Recorder, act, agent_of, assert_run, calling, kind, prompted, sleeper, story, user
from trio.testing import MockClock

from trio_agent import AgentContext, AgentEnd, AgentEvent, LoopConfig, Tool, TurnEnd, run_agent_loop
from trio_agent.testing import ScriptedModel, assert_events_paired


class SlowListener:
    """An async listener that takes its time; it knows what it was told and what it was through with."""

    def __init__(self, log: Log, seconds: float, *types: str, since: float = 0.0) -> None:
        self.log = log
        self.seconds = seconds
        self.types = types
        self.since = since
        self.told: list[str] = []
        self.through: list[str] = []

    async def __call__(self, event: AgentEvent) -> None:
        self.told.append(kind(event))
        if (not self.types or event.type in self.types) and self.log.now() >= self.since:
            await trio.sleep(self.seconds)
        self.through.append(kind(event))


CLOSING = ["tool_execution_end c1", "message_start c1", "message_end c1", "turn_end", "turn_start"]
"""What is told first when a run is cut in its only tool call."""


# ------------------------------------------------------------------ grace


async def test_after_an_abort_telling_takes_as_long_as_the_listeners_need(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 60))
    slow = SlowListener(Log(), 10, since=1)
    agent.subscribe(slow)
    play = await prompted(agent, (1, agent.abort))
    closing = len(seen.log.since(1))
    assert closing == 9
    assert play.ended == 1 + 10 * closing
    assert slow.through == seen.kinds
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("grace", [0, 1, 2.5])
async def test_after_a_host_cancellation_all_telling_together_has_the_grace(
    grace: float, autojump_clock: MockClock
) -> None:
    """One budget a run: a listener of 0.4 s gets two whole events within one second, and no third."""
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 60), closing_grace=grace)
    slow = SlowListener(Log(), 0.4, since=1)
    behind = Recorder()
    agent.subscribe(slow)
    agent.subscribe(behind)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    assert play.ended == 1 + grace
    whole = int(grace / 0.4)
    before = len(seen.events) - 9
    assert slow.through == seen.kinds[: before + whole]
    # It was told one more, in which it was cut; from then on plain listeners only.
    assert slow.told == seen.kinds[: before + whole + (1 if grace else 0)]
    assert behind.events == seen.events, "plain listeners are told everything"
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


async def test_a_listener_that_is_cut_is_not_told_again_and_those_behind_it_are_told_first(
    autojump_clock: MockClock,
) -> None:
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 60))
    order: list[str] = []

    async def first(event: AgentEvent) -> None:
        order.append(f"first {kind(event)}")
        if event.type == "tool_execution_start":
            await trio.sleep(5)

    async def second(event: AgentEvent) -> None:
        await trio.lowlevel.checkpoint()
        order.append(f"second {kind(event)}")

    agent.subscribe(first)
    agent.subscribe(second)
    play = await prompted(agent, (1, "cancel"))
    play.assert_cancelled()
    at = order.index("first tool_execution_start c1")
    assert order[at : at + 4] == [
        "first tool_execution_start c1",
        "second tool_execution_start c1",
        "first tool_execution_end c1",
        "second tool_execution_end c1",
    ]
    assert [text for text in order if text.startswith("first")] == [f"first {text}" for text in seen.kinds]
    assert [text for text in order if text.startswith("second")] == [f"second {text}" for text in seen.kinds]
    assert play.ended == 1
    assert_run(seen, [])
    await assert_works_again(agent, model)


async def test_the_grace_starts_with_the_first_telling(autojump_clock: MockClock) -> None:
    """Waiting for children does not count: 20 s of shielded clean-up leave the grace of one second whole."""

    async def execute(args: Any, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)

    agent, _, seen = agent_of([calling("c1")], Tool("c1", execute=execute))
    slow = SlowListener(Log(), 0.6, since=1)
    agent.subscribe(slow)
    play = await prompted(agent, (1, "cancel"))
    assert play.ended == 22
    closing = seen.log.since(1)
    assert slow.told[-2:] == closing[:2]
    assert slow.through[-1] == closing[0]
    assert_run(seen, ["c1"])


async def test_a_host_cancellation_during_the_closing_of_an_abort_bounds_the_rest(autojump_clock: MockClock) -> None:
    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 60))
    slow = SlowListener(Log(), 10, since=1)
    unsubscribe = agent.subscribe(slow)
    play = await prompted(agent, (1, agent.abort), (15, "cancel"))
    play.assert_cancelled()
    # Ten seconds for the first event; the second is cut at 15; the third has the grace.
    assert play.ended == 16
    closing = seen.log.since(1)
    assert slow.told[-3:] == closing[:3]
    assert slow.through[-1] == closing[0]
    assert_run(seen, ["c1"])
    unsubscribe()
    await assert_works_again(agent, model)


async def test_no_hook_is_called_once_the_host_has_cancelled(autojump_clock: MockClock) -> None:
    called: list[str] = []

    def after(told: Any) -> None:
        called.append("after_tool_call")

    def finish(turn: Any) -> None:
        called.append("finish_turn")

    agent, _, seen = agent_of([calling("c1")], sleeper("c1", 60), after_tool_call=after, finish_turn=finish)
    await prompted(agent, (1, "cancel"))
    assert called == []
    assert story(agent.messages)[2] == "c1 aborted"
    assert_run(seen, ["c1"])

    agent.model = ScriptedModel([calling("c1")])
    seen.next_run()
    await prompted(agent, (1, agent.abort))
    assert called == ["after_tool_call", "finish_turn", "finish_turn"], "the turn, and the turn of the record"
    assert_run(seen, ["c1"])


async def test_a_finish_turn_that_the_host_cuts_while_an_abort_closes(autojump_clock: MockClock) -> None:
    async def finish(turn: Any) -> None:
        await trio.sleep(10)

    agent, model, seen = agent_of([calling("c1")], sleeper("c1", 60), finish_turn=finish)
    play = await prompted(agent, (1, agent.abort), (2, "cancel"))
    play.assert_cancelled()
    assert play.ended == 2
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])
    agent.finish_turn = None
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["nothing", "abort", "cancel"])
async def test_awaiting_listeners_that_are_plain_functions_count_as_async(
    cause: str, autojump_clock: MockClock
) -> None:
    """A lambda that returns an awaitable is waited for, in every way in which a run ends."""
    agent, _, seen = agent_of([calling("c1"), "Done."], sleeper("c1", 2))
    told: list[str] = []

    async def listen(event: AgentEvent) -> None:
        await trio.lowlevel.checkpoint()
        told.append(kind(event))

    agent.subscribe(listen)
    await prompted(agent, (1, act(agent, cause)))
    assert told == seen.kinds
    assert_run(seen, ["c1"])


# ------------------------------------------------------------ key interrupts


async def test_a_second_interrupt_ends_the_telling_of_async_listeners(autojump_clock: MockClock) -> None:
    """Design 7.5: from then on events are applied and told to plain listeners only."""

    async def execute(args: Any, ctx: Any) -> None:
        await trio.sleep(1)
        raise KeyboardInterrupt("first")

    agent, model, seen = agent_of([calling("c1")], Tool("c1", execute=execute))
    told: list[str] = []

    async def listen(event: AgentEvent) -> None:
        told.append(kind(event))
        if event.type == "tool_execution_end":
            await trio.sleep(0.25)
            raise KeyboardInterrupt("second")

    behind = Recorder()
    unsubscribe = agent.subscribe(listen)
    agent.subscribe(behind)
    play = await prompted(agent)
    assert str(play.error) == "first", "bare, and the first"
    assert play.ended == 1.25
    assert told[-1] == "tool_execution_end c1"
    assert len(told) < len(seen.events)
    assert behind.events == seen.events
    assert_run(seen, ["c1"])
    unsubscribe()
    await assert_works_again(agent, model)


async def test_one_interrupt_leaves_the_listeners_their_grace(autojump_clock: MockClock) -> None:
    async def execute(args: Any, ctx: Any) -> None:
        await trio.sleep(1)
        raise KeyboardInterrupt

    agent, _, seen = agent_of([calling("c1")], Tool("c1", execute=execute))
    slow = SlowListener(Log(), 0.6, since=1)
    agent.subscribe(slow)
    play = await prompted(agent)
    assert type(play.error) is KeyboardInterrupt
    assert play.ended == 2
    closing = seen.log.since(1)
    assert slow.told[-2:] == closing[:2]
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("where", ["tool", "before_tool_call", "after_tool_call", "prepare_request", "finish_turn"])
@pytest.mark.parametrize("with_host", [False, True])
async def test_an_interrupt_passes_before_every_other_cause(
    with_host: bool, where: str, autojump_clock: MockClock
) -> None:
    """Also where a listener fails in the closing, and where the host cancels in the same moment (7.6)."""

    async def interrupt(*args: Any) -> None:
        await trio.sleep(1)
        if with_host:
            play.scope.cancel(reason="the test")
        raise KeyboardInterrupt

    def fails(event: Any) -> None:
        raise ValueError("broken")

    hooks: dict[str, Any] = {} if where == "tool" else {where: interrupt}
    tool = Tool("c1", execute=interrupt) if where == "tool" else sleeper("c1")
    agent, model, seen = agent_of([calling("c1")], tool, **hooks)
    unsubscribe = agent.subscribe(fails, AgentEnd)
    play = Play(lambda: agent.prompt("Go."))
    await play.run()
    assert type(play.error) is KeyboardInterrupt
    assert_run(seen)
    unsubscribe()
    for hook in hooks:
        setattr(agent, hook, None)
    await assert_works_again(agent, model)


@pytest.mark.parametrize("where", ["tool", "stream", "hook", "listener"])
def test_a_real_sigint_closes_the_run_and_comes_out_bare(where: str, sigint: None) -> None:
    """Delivered by Python's handler wherever the run's task is; no group, nobody's result."""
    outcome: dict[str, Any] = {}

    async def waits(*args: Any) -> Any:
        await trio.sleep(60)

    @trio.lowlevel.enable_ki_protection
    async def press() -> None:
        await trio.sleep(1)
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        tool = sleeper("c1", 60 if where == "tool" else 0)
        agent, _model, seen = agent_of(
            [calling("c1"), "Done."], tool, prepare_next_turn=waits if where == "hook" else None
        )
        if where == "stream":
            agent.stream_fn = waits
        if where == "listener":
            unsubscribe = agent.subscribe(lambda event: (unsubscribe(), waits())[1], TurnEnd)
        outcome.update(agent=agent, seen=seen, start=trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press)
            try:
                await agent.prompt("Go.")
            except BaseException as error:
                outcome.update(error=error, ended=trio.current_time())
                raise

    # Trio gives the interrupt to its main task, which is the run's own here; our own nursery wraps it again.
    with pytest.RaisesGroup(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert type(outcome["error"]) is KeyboardInterrupt
    assert outcome["ended"] == outcome["start"] + 1
    seen = outcome["seen"]
    assert_run(seen)
    expected = {
        "tool": ["c1 aborted", "assistant aborted ''"],
        "stream": [],
        "hook": ["c1 ok 'c1 done'", "assistant aborted ''"],
        "listener": ["c1 ok 'c1 done'", "assistant aborted ''"],
    }[where]
    assert story(outcome["agent"].messages)[2:] == expected
    assert seen.end.end_reason == "cancelled"


def test_an_interrupt_that_strikes_in_a_plain_tool_is_no_result(sigint: None) -> None:
    """The door opens the protection: a tool that computes for long can be interrupted in the middle."""
    outcome: dict[str, Any] = {}

    async def main() -> None:
        def execute(args: Any, ctx: Any) -> str:
            signal.raise_signal(signal.SIGINT)
            return "not reached"

        agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute, in_thread=False))
        outcome.update(agent=agent, seen=seen)
        await agent.prompt("Go.")

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert story(outcome["agent"].messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(outcome["seen"], ["c1"])


# ------------------------------------------------------- without an agent


@pytest.mark.parametrize("cause", ["KeyboardInterrupt", "failure", "cancel"])
async def test_the_loop_without_an_agent_closes_the_same_way(cause: str, autojump_clock: MockClock) -> None:
    raised: dict[str, BaseException] = {"KeyboardInterrupt": KeyboardInterrupt(), "failure": ValueError("broken")}

    async def hook(turn: Any) -> None:
        await trio.sleep(1)
        if cause in raised:
            raise raised[cause]
        await trio.sleep_forever()

    seen = Recorder()
    config = LoopConfig(model=ScriptedModel([calling("c1"), "Done."]), prepare_next_turn=hook)
    context = AgentContext([user("Before.")], [sleeper("c1")])

    async def start() -> Any:
        return await run_agent_loop([user("Go.")], context, config, seen)

    play = await Play(start, *([(1, "cancel")] if cause == "cancel" else [])).run()
    assert play.ended == 1
    expected = {"KeyboardInterrupt": KeyboardInterrupt, "failure": ValueError, "cancel": trio.Cancelled}[cause]
    assert type(play.error) is expected
    assert_events_paired(seen.events)
    stop = "error" if cause == "failure" else "aborted"
    assert story(seen.end.messages)[-2:] == ["c1 ok 'c1 done'", f"assistant {stop} ''"]
    assert story(context.messages) == ["user Before."], "the caller's own context is not changed"
