"""Plain tool functions in worker threads: real threads, held by events; time moves only when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from invariants import assert_works_again
from kit import Play, act, agent_of, assert_run, call, calling, sleeper, story, texts, user
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentEvent,
    RunLimits,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    run_tool_call,
    tool,
)
from trio_agent._tool import _limits as limits
from trio_agent.testing import ScriptedModel, seeded_scheduler

# pytest-trio's ``mock_clock`` stands still; it is never advanced while a thread is running.


class Worker:
    """A plain tool whose thread waits until it is let go; it says when it has begun and when it is over."""

    def __init__(self, name: str = "c1", work: Callable[[ToolContext], Any] | None = None, **settings: Any) -> None:
        self.name = name
        self.work = work
        self.begun = trio.Event()
        self.release = threading.Event()
        self.over = threading.Event()
        self.idents: list[int] = []
        self.tool = Tool(name, execute=self.execute, **settings)

    def execute(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        self.idents.append(threading.get_ident())
        trio.from_thread.run_sync(self.begun.set)
        try:
            assert self.release.wait(20), "nobody let the thread go"
            return f"{self.name} done" if self.work is None else self.work(ctx)
        finally:
            self.over.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the thread go at the end of the block, however it ends."""
        try:
            yield
        finally:
            self.release.set()


async def over(event: threading.Event) -> None:
    """Wait until a thread has set an event, without holding up Trio's own thread."""
    assert await trio.to_thread.run_sync(event.wait, 20), "the thread did not end"


def results(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


# ----------------------------------------------------------------- running


async def test_a_plain_function_runs_in_a_thread_and_one_that_opted_out_does_not(mock_clock: MockClock) -> None:
    idents: dict[str, int] = {}

    def remember(args: Any, ctx: ToolContext) -> str:
        idents[ctx.tool_call_id] = threading.get_ident()
        return "done"

    agent, _, seen = agent_of(
        [calling("c1", "c2"), "Done."], Tool("c1", execute=remember), Tool("c2", execute=remember, in_thread=False)
    )
    await agent.prompt("Go.")
    assert idents["c1"] != threading.get_ident()
    assert idents["c2"] == threading.get_ident()
    assert_run(seen, ["c1", "c2"])


async def test_trio_goes_on_while_a_thread_works(mock_clock: MockClock) -> None:
    worker = Worker()
    agent, _, seen = agent_of([calling("c1", "c2"), "Done."], worker.tool, sleeper("c2"))
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Go.")
            await worker.begun.wait()
            await wait_all_tasks_blocked()
            assert seen.kinds[-1] == "tool_execution_end c2"
            assert agent.state.pending_tool_calls == {"c1"}
            worker.release.set()
    assert story(agent.messages)[2:4] == ["c1 ok 'c1 done'", "c2 ok 'c2 done'"]
    assert_run(seen, ["c1", "c2"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ValueError("broken"), "broken"),
        (lambda: ExceptionGroup("several", [ValueError("broken")]), "broken"),
        (lambda: trio.TooSlowError("broken"), "broken"),
        (lambda: StopIteration("broken"), "StopIteration"),  # Python lets no coroutine raise it
    ],
    ids=["error", "group", "timeout", "StopIteration"],
)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_plain_function_that_fails_is_an_error_result(
    in_thread: bool, make: Callable[[], Exception], said: str, mock_clock: MockClock
) -> None:
    def execute(args: Any, ctx: Any) -> None:
        raise make()

    agent, model, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute, in_thread=in_thread))
    await agent.prompt("Go.")
    (result,) = results(agent)
    assert result.is_error
    assert said in result.text
    assert len(model.requests) == 2
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("make", [KeyboardInterrupt, SystemExit], ids=lambda make: make.__name__)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_is_no_exception_passes_out_of_a_thread_bare(
    in_thread: bool, make: type[BaseException], mock_clock: MockClock
) -> None:
    def execute(args: Any, ctx: Any) -> None:
        raise make

    agent, model, seen = agent_of([calling("c1")], Tool("c1", execute=execute, in_thread=in_thread))
    with pytest.raises(make):
        await agent.prompt("Go.")
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


# --------------------------------------------------------------------- cuts


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt", "cancel_tool"])
async def test_a_thread_that_does_not_poll_is_waited_for_and_keeps_its_value(cause: str, mock_clock: MockClock) -> None:
    """No orphan, and Truth: the thread did return (7.9)."""
    worker = Worker()
    agent, model, seen = agent_of([calling("c1"), "Next."], worker.tool)
    play = Play(lambda: agent.prompt("Go."))
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run)
            await worker.begun.wait()
            cut(agent, play, cause)
            await wait_all_tasks_blocked()
            assert agent.state.is_streaming
            assert agent.state.aborting == (set() if cause == "cancel" else {"c1"})
            worker.release.set()
    assert worker.over.is_set()
    if cause == "cancel":
        play.assert_cancelled()
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


def cut(agent: Agent, play: Play, cause: str) -> None:
    if cause == "cancel":
        play.scope.cancel(reason="the test")
    elif cause == "cancel_tool":
        assert agent.cancel_tool("c1", "why")
    else:
        action = act(agent, cause)
        assert callable(action)
        action()


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt", "cancel_tool"])
async def test_a_thread_that_polls_is_cut(cause: str, mock_clock: MockClock) -> None:
    worker = Worker(work=lambda ctx: trio.from_thread.check_cancelled())
    agent, model, seen = agent_of([calling("c1"), "Next."], worker.tool)
    play = Play(lambda: agent.prompt("Go."))
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run)
            await worker.begun.wait()
            cut(agent, play, cause)
            worker.release.set()
    if cause == "cancel":
        play.assert_cancelled()
    assert story(agent.messages)[2] == "c1 aborted"
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt", "cancel_tool"])
async def test_a_thread_that_may_be_abandoned_is_left_behind_and_the_result_says_so(
    cause: str, mock_clock: MockClock
) -> None:
    late: list[str] = []

    def work(ctx: ToolContext) -> str:
        ctx.update_from_thread("late report")
        late.append("reported to nobody")
        return "late value"

    worker = Worker(work=work, abandon_on_cancel=True)
    agent, model, seen = agent_of([calling("c1"), "Next."], worker.tool)
    play = Play(lambda: agent.prompt("Go."))
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run)
            await worker.begun.wait()
            cut(agent, play, cause)
        assert not worker.over.is_set(), "the run is over, the thread is not"
        (result,) = results(agent)
        assert result.error_kind == "aborted"
        assert "may still be running" in result.text
        assert_run(seen, ["c1"])
        before = (list(seen.events), list(agent.messages))
        worker.release.set()
        await over(worker.over)
    assert late == ["reported to nobody"]
    assert (seen.events, list(agent.messages)) == before, "its late value and report are dropped"
    if cause == "cancel":
        play.assert_cancelled()
    await assert_works_again(agent, model)


@pytest.mark.parametrize("abandon", [True, False])
async def test_a_timeout_reaches_a_thread_only_where_it_may_be_abandoned(abandon: bool, mock_clock: MockClock) -> None:
    worker = Worker(timeout=2, abandon_on_cancel=abandon)
    agent, _, seen = agent_of([calling("c1"), "Next."], worker.tool)
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Go.")
            await worker.begun.wait()
            mock_clock.jump(1.9)
            await wait_all_tasks_blocked()
            assert agent.state.pending_tool_calls == {"c1"}
            mock_clock.jump(0.2)
            await wait_all_tasks_blocked()
            assert agent.state.is_streaming is not abandon
            if not abandon:
                worker.release.set()
        (result,) = results(agent)
        if abandon:
            assert result.error_kind == "timeout"
            assert "time limit of 2 s" in result.text
            assert "may still be running" in result.text
        else:
            assert (result.text, result.is_error) == ("c1 done", False)
        assert_run(seen, ["c1"])
        worker.release.set()
        await over(worker.over)


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_a_call_that_waits_for_a_thread_never_started(
    cause: str, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "THREADS", 1)
    worker = Worker("first")
    ran: list[str] = []
    agent, model, seen = agent_of(
        [calling("first", "second"), "Next."], worker.tool, Tool("second", execute=lambda args, ctx: ran.append("ran"))
    )
    agent.tool_execution = "parallel"
    play = Play(lambda: agent.prompt("Go."))

    def gate(question: Any) -> Any:
        # The second is held back until the first has its thread.
        return worker.begun.wait() if question.tool_call.id == "second" else None

    agent.before_tool_call = gate
    agent.tool_preparation = "parallel"
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run)
            await worker.begun.wait()
            await wait_all_tasks_blocked()
            cut(agent, play, cause)
            await wait_all_tasks_blocked()
            worker.release.set()
    assert ran == []
    assert story(agent.messages)[2:4] == ["first ok 'first done'", "second not_started"]
    assert_run(seen, ["first"])
    agent.before_tool_call = None
    await assert_works_again(agent, model)


async def test_nested_plain_tools_cannot_starve_each_other(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limiter for each nesting depth (6): with one thread a depth, three levels come to an end."""
    monkeypatch.setattr(limits, "THREADS", 1)

    def asks(inner: str) -> Callable[[Any, ToolContext], str]:
        def execute(args: Any, ctx: ToolContext) -> str:
            outcome = trio.from_thread.run(ctx.run_tool_call, inner)
            return f"{ctx.tool_call.name} over {outcome.result.text}"

        return execute

    agent, _, seen = agent_of(
        [[call("c1", "one"), call("c2", "one")], "Done."],
        Tool("one", execute=asks("two")),
        Tool("two", execute=asks("three")),
        Tool("three", execute=lambda args, ctx: "ground"),
    )
    await agent.prompt("Go.")
    assert [result.text for result in results(agent)] == ["one over two over ground"] * 2
    assert_run(seen, ["c1", "c2"])


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_a_cut_reaches_a_tool_that_a_thread_called(cause: str, mock_clock: MockClock) -> None:
    inner = sleeper("inner", 60)
    begun = trio.Event()

    def execute(args: Any, ctx: ToolContext) -> str:
        trio.from_thread.run_sync(begun.set)
        return trio.from_thread.run(ctx.run_tool_call, "inner").result.text

    agent, model, seen = agent_of([calling("outer"), "Next."], Tool("outer", execute=execute), inner)
    play = Play(lambda: agent.prompt("Go."))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run)
        await begun.wait()
        await wait_all_tasks_blocked()
        cut(agent, play, cause)
    assert story(agent.messages)[2] == "outer aborted"
    assert_run(seen, ["outer"])
    await assert_works_again(agent, model)


# ------------------------------------------------------------------ updates


async def test_updates_from_a_thread_are_told_in_order_before_its_result(mock_clock: MockClock) -> None:
    told: list[str] = []

    def work(ctx: ToolContext) -> str:
        for number in range(5):
            ctx.update_from_thread(f"number {number}")
        return "done"

    worker = Worker(work=work)
    worker.release.set()
    agent, _, seen = agent_of([calling("c1"), "Done."], worker.tool)

    async def listen(event: ToolExecutionUpdate) -> None:
        await trio.lowlevel.checkpoint()
        told.append(event.partial_result.text)

    agent.subscribe(listen, ToolExecutionUpdate)
    await agent.prompt("Go.")
    assert told == [f"number {number}" for number in range(5)]
    kinds = seen.of("tool_execution")
    assert kinds == ["tool_execution_start c1", *["tool_execution_update c1"] * 5, "tool_execution_end c1"]
    assert_run(seen, ["c1"])


async def test_a_thread_that_is_faster_than_the_listeners_is_slowed(mock_clock: MockClock) -> None:
    """At most one update is untold (6): the second hand-over waits until the first is told."""
    handed: list[int] = []
    second = threading.Event()

    def work(ctx: ToolContext) -> str:
        for number in range(3):
            ctx.update_from_thread(f"number {number}")
            handed.append(number)
            if number == 0:
                second.set()
        return "done"

    worker = Worker(work=work)
    worker.release.set()
    go_on = trio.Event()
    agent, _, seen = agent_of([calling("c1"), "Done."], worker.tool)

    async def listen(event: ToolExecutionUpdate) -> None:
        await go_on.wait()

    agent.subscribe(listen, ToolExecutionUpdate)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Go.")
        await over(second)
        await wait_all_tasks_blocked()
        assert handed == [0]
        go_on.set()
    assert handed == [0, 1, 2]
    assert len(seen.of("tool_execution_update")) == 3
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_a_thread_that_waits_to_hand_over_an_update_is_let_go_by_a_cut(cause: str, mock_clock: MockClock) -> None:
    left: list[str] = []

    def work(ctx: ToolContext) -> str:
        try:
            ctx.update_from_thread("one")
            ctx.update_from_thread("two")
        except trio.Cancelled:
            left.append("cancelled")
            raise
        left.append("returned")
        return "done"

    worker = Worker(work=work)
    worker.release.set()
    hold, waiting = trio.Event(), trio.Event()
    agent, model, seen = agent_of([calling("c1"), "Next."], worker.tool)

    async def listen(event: ToolExecutionUpdate) -> None:
        waiting.set()
        await hold.wait()

    unsubscribe = agent.subscribe(listen, ToolExecutionUpdate)
    play = Play(lambda: agent.prompt("Go."))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run)
        await waiting.wait()
        assert agent._run is not None
        assert agent._run.record.batch is not None
        (running,) = agent._run.record.batch.calls
        while running.waiter is None:  # noqa: ASYNC110 - a thread gets there, which no event of ours can tell
            await trio.lowlevel.checkpoint()
        cut(agent, play, cause)
        await over(worker.over)
        hold.set()
    if cause == "cancel":
        play.assert_cancelled()
    assert left == ["cancelled"]
    assert story(agent.messages)[2] == "c1 aborted"
    assert seen.of("tool_execution_update") == ["tool_execution_update c1"]
    assert_run(seen, ["c1"])
    unsubscribe()
    await assert_works_again(agent, model)


@pytest.mark.parametrize("daemon", [True, False])
async def test_updates_from_a_thread_of_the_tools_own_are_told_while_the_call_runs(
    daemon: bool, mock_clock: MockClock
) -> None:
    """A thread that the tool started itself; one that outlives the call reports to nobody."""
    late: list[str] = []
    finish = threading.Event()
    ended = threading.Event()

    def execute(args: Any, ctx: ToolContext) -> str:
        def helper() -> None:
            ctx.update_from_thread("from the helper")
            handed.set()
            assert finish.wait(20)
            ctx.update_from_thread("too late")
            late.append("called")
            ended.set()

        handed = threading.Event()
        threading.Thread(target=helper, daemon=daemon).start()
        assert handed.wait(20)
        return "done"

    agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute))
    try:
        await agent.prompt("Go.")
        assert seen.of("tool_execution_update") == ["tool_execution_update c1"]
        count = len(seen.events)
    finally:
        finish.set()
    await over(ended)
    assert late == ["called"]
    assert len(seen.events) == count
    assert_run(seen, ["c1"])


def test_an_update_after_trio_has_ended_does_nothing() -> None:
    kept: list[ToolContext] = []

    def execute(args: Any, ctx: ToolContext) -> str:
        kept.append(ctx)
        return "done"

    async def main() -> None:
        agent, _, _ = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute))
        await agent.prompt("Go.")

    trio.run(main)
    raised: list[BaseException] = []

    def late() -> None:
        try:
            kept[0].update_from_thread("too late")
        except BaseException as error:
            raised.append(error)
            raise

    thread = threading.Thread(target=late)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert raised == []


# ------------------------------------------------------------------ control


async def test_an_agent_is_steered_and_aborted_from_a_foreign_thread(mock_clock: MockClock) -> None:
    token = trio.lowlevel.current_trio_token()
    worker = Worker()
    agent, _, seen = agent_of([calling("c1"), "Done.", "Done."], worker.tool)
    message = user("From a thread.")
    steered = threading.Event()

    def foreign() -> None:
        trio.from_thread.run_sync(agent.steer, message, trio_token=token)
        trio.from_thread.run_sync(agent.follow_up, "And later.", trio_token=token)
        steered.set()

    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Go.")
            await worker.begun.wait()
            thread = threading.Thread(target=foreign)
            thread.start()
            await over(steered)
            await trio.to_thread.run_sync(thread.join)
            worker.release.set()
    assert texts(agent.messages) == ["Go.", "From a thread.", "And later."]
    assert any(kept is message for kept in agent.messages)
    assert_run(seen, ["c1"])


async def test_a_thread_tool_may_abort_its_own_run(mock_clock: MockClock) -> None:
    def execute(args: Any, ctx: ToolContext) -> ToolResult:
        trio.from_thread.run_sync(agent.abort, "I have seen enough")
        return ToolResult("done all the same")

    agent, _, seen = agent_of([calling("c1"), "never"], Tool("c1", execute=execute))
    result = await agent.prompt("Go.")
    assert result.end_reason == "aborted"
    assert story(agent.messages)[2] == "c1 ok 'done all the same'"
    assert_run(seen, ["c1"])


async def test_the_limit_of_seconds_waits_for_a_thread(mock_clock: MockClock) -> None:
    worker = Worker()
    agent, _, seen = agent_of([calling("c1"), "never"], worker.tool, limits=RunLimits(seconds=3))
    told: list[AgentEvent] = []
    agent.subscribe(told.append)
    with worker.held():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Go.")
            await worker.begun.wait()
            mock_clock.jump(4)
            await wait_all_tasks_blocked()
            assert agent.state.aborting == {"c1"}
            worker.release.set()
    assert agent.last_result is not None
    assert agent.last_result.end_reason == "deadline"
    assert story(agent.messages)[2] == "c1 ok 'c1 done'"
    assert told == seen.events
    assert_run(seen, ["c1"])


async def test_what_the_receiver_of_an_update_raises_reaches_the_thread_once(mock_clock: MockClock) -> None:
    got: list[str] = []

    def execute(args: dict[str, Any], ctx: ToolContext) -> str:
        ctx.update_from_thread("one")
        return "done"

    def receive(partial: ToolResult) -> None:
        got.append(partial.text)
        raise RuntimeError("no room")

    tool = Tool("plain", execute=execute)
    outcome = await run_tool_call(ToolCall("c1", "plain", {}), tools=[tool], on_update=receive)
    assert got == ["one"]
    assert outcome.is_error
    assert outcome.result.text == "no room"


def test_a_call_that_was_just_given_a_thread_does_not_begin_after_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call's end lets the second one through, and aborts before that goes on, in some of the orders."""
    monkeypatch.setattr(limits, "THREADS", 1)
    results: list[list[str]] = []

    @tool
    def plain(ctx: ToolContext) -> str:
        return "done"

    async def main() -> None:
        def after(told: object) -> None:
            agent.abort()

        calls = [ToolCall("c1", "plain", {}), ToolCall("c2", "plain", {})]
        agent = Agent(ScriptedModel([calls]), tools=[plain], after_tool_call=after)
        await agent.prompt("Go.")
        told = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
        results.append(sorted(result.error_kind or "ok" for result in told))

    for seed in range(10):
        with seeded_scheduler(seed):
            trio.run(main)
    # In the other orders the second call's step comes first: then its thread runs, and keeps its value.
    assert ["not_started", "ok"] in results
    assert ["ok", "ok"] in results
