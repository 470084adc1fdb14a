"""Known faults, groups P, R, S and V: what lies outside of the run's own tasks.

Threads, processes, agents and servers behind a tool, and what a tracer sees of all of it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from invariants import assert_idle, assert_works_again
from kit import Log, Play, Recorder, act, agent_of, assert_run, call, calling, prompted, sleeper, story
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    BeforeToolCallContext,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    ModelRequest,
    RunLimits,
    StreamSink,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    tool,
)
from trio_agent._tool import _limits as limits
from trio_agent.testing import ScriptedModel
from trio_agent.tools import run_command


def results_of(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


# ------------------------------------------------------------------- B94


@pytest.mark.slow
async def test_b94_a_blocking_tool_that_may_be_abandoned_is_over_at_its_time_limit() -> None:
    """Slow: a real thread blocks for longer than a real time limit."""
    release, over = threading.Event(), threading.Event()

    def blocks(args: Any, ctx: ToolContext) -> str:
        release.wait(5)
        ctx.update_from_thread("late report")
        over.set()
        return "late value"

    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."], Tool("c1", execute=blocks, timeout=0.2, abandon_on_cancel=True), sleeper("c2")
    )
    began = time.monotonic()
    try:
        await agent.prompt("Go.")
        assert 0.2 <= time.monotonic() - began < 2
        assert not over.is_set()
        told = (list(seen.events), list(agent.messages))
    finally:
        release.set()
    assert await trio.to_thread.run_sync(over.wait, 10)
    first, second = results_of(agent)
    assert first.error_kind == "timeout"
    assert "time limit of 0.2 s" in first.text
    assert "left behind and may still be running" in first.text
    assert second.text == "c2 done"
    assert (seen.events, list(agent.messages)) == told, "its late report and value are dropped"
    assert len(model.requests) == 2
    assert_run(seen, ["c1", "c2"])


@pytest.mark.slow
async def test_b94_a_blocking_tool_that_may_not_be_abandoned_is_waited_for() -> None:
    """Slow: a real thread blocks for longer than a real time limit."""

    # Documented (7.9, Truth): what returned keeps its value, though its limit had passed.
    def blocks(args: Any, ctx: Any) -> str:
        time.sleep(0.6)
        return "in the end"

    agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=blocks, timeout=0.2))
    began = time.monotonic()
    await agent.prompt("Go.")
    assert time.monotonic() - began >= 0.6
    assert story(agent.messages)[2] == "c1 ok 'in the end'"
    assert_run(seen, ["c1"])


@pytest.mark.slow
async def test_b94_a_blocking_tool_that_polls_is_over_at_its_time_limit() -> None:
    """Slow: a real thread works for longer than a real time limit, and looks whether it is cancelled."""
    over = threading.Event()

    def polls(args: Any, ctx: Any) -> str:
        try:
            for _ in range(500):
                time.sleep(0.01)
                trio.from_thread.check_cancelled()
        finally:
            over.set()
        return "never"

    agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=polls, timeout=0.2))
    began = time.monotonic()
    await agent.prompt("Go.")
    assert 0.2 <= time.monotonic() - began < 2
    assert over.is_set(), "the thread is gone, not only its call"
    assert story(agent.messages)[2] == "c1 timeout"
    assert "left behind" not in results_of(agent)[0].text
    assert_run(seen, ["c1"])


# ------------------------------------------------------------------- B96


@pytest.mark.parametrize("mode", [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}], ids=str)
async def test_b96_a_time_limit_is_an_error_result_that_names_it_and_leaves_siblings_alone(
    mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    # The row's choice between a result and an exception: a tool's failure never leaves its call (7.6), so it
    # is always a result. A host that wants more listens to tool_execution_end.
    async def patient(args: Any, ctx: Any) -> str:
        with trio.move_on_after(0.5):
            await trio.sleep_forever()
        return "gave up by itself"

    async def strict(args: Any, ctx: Any) -> None:
        with trio.fail_after(0.5):
            await trio.sleep_forever()

    async def raises(args: Any, ctx: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.TooSlowError("my own words")

    names = ["slow", "other", "patient", "strict", "raises"]
    agent, model, seen = agent_of(
        [calling(*names), "Done."],
        sleeper("slow", 10, timeout=1.0),
        sleeper("other", 2),
        Tool("patient", execute=patient, timeout=1.0),
        Tool("strict", execute=strict, timeout=1.0),
        Tool("raises", execute=raises, timeout=1.0),
        **mode,
    )
    play = await prompted(agent)
    assert play.ended == (1 + 2 + 0.5 + 0.5 if "tool_execution" in mode else 2)
    results = dict(zip(names, results_of(agent), strict=True))
    assert [results[name].error_kind for name in names] == ["timeout", None, None, "failed", "failed"]
    assert "time limit of 1 s" in results["slow"].text
    assert (results["other"].text, results["patient"].text) == ("other done", "gave up by itself")
    assert results["raises"].text == "my own words"
    assert results["strict"].is_error
    assert "time limit" not in results["strict"].text
    assert play.returned(agent).end_reason == "done"
    assert len(model.requests) == 2
    assert_run(seen, names)


# ------------------------------------------------------------------- B97


@pytest.mark.slow
async def test_b97_a_sync_tool_does_not_hold_up_other_tasks() -> None:
    """Slow: a real thread sleeps for half a second; on a busy machine the best of three counts."""

    def blocks(args: Any, ctx: Any) -> str:
        time.sleep(0.5)
        return "done"

    async def beat(gaps: list[float]) -> None:
        last = time.monotonic()
        while True:
            await trio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    largest: list[float] = []
    while not largest or (min(largest) >= 0.05 and len(largest) < 3):
        agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=blocks))
        gaps: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat, gaps)
            await agent.prompt("Go.")
            nursery.cancel_scope.cancel(reason="the test is over")
        assert len(gaps) > 10
        largest.append(max(gaps))
        assert_run(seen, ["c1"])
    assert min(largest) < 0.05


@pytest.mark.parametrize("limit", ["threads", "max_parallel_tools", "limiter"])
async def test_b97_a_hundred_sync_calls_respect_the_limit(
    limit: str, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    running = most = 0
    threads: set[int] = set()

    def work(args: Any, ctx: Any) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            threads.add(threading.get_ident())
        trio.from_thread.run(trio.lowlevel.checkpoint)  # a way through Trio, so that others have their chance
        with lock:
            running -= 1
        return "done"

    if limit == "threads":
        monkeypatch.setattr(limits, "THREADS", 7)
    settings = {"max_parallel_tools": 7} if limit == "max_parallel_tools" else {}
    limiter = trio.CapacityLimiter(7) if limit == "limiter" else None
    calls = [call(f"c{number}", "work") for number in range(100)]
    agent, _, seen = agent_of([calls, "Done."], Tool("work", execute=work, limiter=limiter), **settings)
    await agent.prompt("Go.")
    assert [result.text for result in results_of(agent)] == ["done"] * 100
    assert 1 < most <= 7
    assert threading.get_ident() not in threads
    assert_run(seen, [one.id for one in calls])


async def test_b97_an_abandoned_thread_holds_one_of_trios_places_until_it_ends_and_no_limiter_of_the_tool(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "Or reported": the place of a thread is a real resource and is given back by the thread itself; the
    # result says that it may still be running. The tool's own limiter and the batch's slots are free at once.
    monkeypatch.setattr(limits, "THREADS", 2)
    begun, release = trio.Event(), threading.Event()
    limiter = trio.CapacityLimiter(1)

    def blocks(args: Any, ctx: Any) -> str:
        trio.from_thread.run_sync(begun.set)
        assert release.wait(20)
        return "late"

    agent, model, seen = agent_of(
        [calling("c1"), calling("c2", "c3"), "Done."],
        Tool("c1", execute=blocks, abandon_on_cancel=True, limiter=limiter),
        Tool("c2", execute=lambda args, ctx: "c2 done", limiter=limiter),
        Tool("c3", execute=lambda args, ctx: "c3 done"),
        max_parallel_tools=1,
    )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Go.")
            await begun.wait()
            assert agent.cancel_tool("c1", "too slow")
        assert not release.is_set()
        assert limiter.borrowed_tokens == 0
        first, *rest = results_of(agent)
        assert "left behind and may still be running" in first.text
        assert [result.text for result in rest] == ["c2 done", "c3 done"], "the one place left was enough"
        assert limits._threads.get()[0].limiter.borrowed_tokens == 1
    finally:
        release.set()
    with trio.fail_after(20):
        while limits._threads.get()[0].limiter.borrowed_tokens:  # noqa: ASYNC110 - the thread gives its place back
            await trio.lowlevel.checkpoint()
    assert len(model.requests) == 3
    assert_run(seen)


# ------------------------------------------------------------------- B98


@pytest.mark.parametrize("made_by", ["Tool", "decorator"])
async def test_b98_a_tool_that_is_bound_to_a_thread_runs_in_trios(made_by: str, mock_clock: MockClock) -> None:
    here = threading.get_ident()
    idents: list[int] = []

    def bound() -> str:
        """Uses a library that is bound to one thread."""
        idents.append(threading.get_ident())
        trio.lowlevel.current_task()  # which fails in a worker thread
        return "bound"

    def free() -> str:
        """Does not."""
        idents.append(threading.get_ident())
        return "free"

    if made_by == "decorator":
        tools = [tool(in_thread=False)(bound), tool(free)]
    else:
        tools = [
            Tool("bound", execute=lambda args, ctx: bound(), in_thread=False),
            Tool("free", execute=lambda args, ctx: free()),
        ]
    agent, _, seen = agent_of([calling("bound"), calling("free"), "Done."], *tools)
    await agent.prompt("Go.")
    assert [result.text for result in results_of(agent)] == ["bound", "free"]
    assert idents[0] == here
    assert idents[1] != here
    assert_run(seen, ["bound", "free"])


# ------------------------------------------------------------ B102, B104


def group_of(pid: int) -> int | None:
    """The process group of a process that is alive, zombies left out."""
    try:
        line = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return None
    state, _, group = line[line.rindex(b")") + 2 :].split()[:3]
    return None if state in (b"Z", b"X") else int(group)


async def pid_in(path: trio.Path) -> int:
    """The number that a command writes into a file."""
    with trio.fail_after(10):
        while not (  # noqa: ASYNC110 - there is no event for what another process writes
            await path.exists() and (await path.read_text()).endswith("\n")
        ):
            await trio.sleep(0.01)
    return int(await path.read_text())


@contextlib.contextmanager
def killed(*pids: int) -> Iterator[None]:
    """Let nothing live on that a failed test has left."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_b102_the_children_of_a_cut_shell_are_gone_within_a_second(tmp_path: Path, cause: str) -> None:
    """Slow: a real shell with a child is cut after a real second."""
    command = "sleep 600 & echo $! > pid; wait"
    agent, model, seen = agent_of([[call("c1", "run_command", command=command)]], run_command(tmp_path))
    times: dict[str, float] = {}
    scope = trio.CancelScope()

    async def cut() -> None:
        await trio.sleep(1)
        times["cut"] = time.monotonic()
        if cause == "abort":
            agent.abort("enough")
        else:
            scope.cancel(reason="the test")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        with scope:
            await agent.prompt("Go.")
        times["over"] = time.monotonic()
    child = await pid_in(trio.Path(tmp_path / "pid"))
    with killed(child):
        assert group_of(child) is None
    assert times["over"] - times["cut"] < 1
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@pytest.mark.slow
@pytest.mark.parametrize("second", [False, True], ids=["one abort", "a second one that the host makes harder"])
async def test_b104_a_command_that_traps_sigterm_is_killed_after_the_grace(tmp_path: Path, second: bool) -> None:
    """Slow: a real shell survives SIGTERM for a real grace."""
    # The row's second abort: an abort changes nothing any more (it is a flag); the host's event ends the grace.
    kill_now = trio.Event()
    grace = 60.0 if second else 0.7
    command = "trap 'echo no >> log' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    tools = run_command(tmp_path, kill_grace=grace, kill_now=kill_now)
    agent, model, seen = agent_of([[call("c1", "run_command", command=command)]], tools)
    times: dict[str, float] = {}

    async def cut() -> None:
        times["pid"] = await pid_in(trio.Path(tmp_path / "pid"))
        times["cut"] = time.monotonic()
        agent.abort("enough")
        await trio.sleep(0.3)
        assert agent.state.aborting == {"c1"}
        agent.abort("I said enough")
        if second:
            kill_now.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await agent.prompt("Go.")
        took = time.monotonic() - times["cut"]
    pid = int(times["pid"])
    with killed(pid):
        assert group_of(pid) is None
    assert "no" in (tmp_path / "log").read_text(), "it was asked first"
    assert (0.3 if second else 0.7) <= took < (1.3 if second else 1.7)
    (result,) = results_of(agent)
    assert result.error_kind == "aborted"
    assert "enough" in result.text
    assert "I said" not in result.text
    assert_run(seen, ["c1"])
    await assert_works_again(agent, model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trap", "end"),
    [("trap '' TERM", "SIGKILL"), ("trap 'exit 7' TERM", None), ("true", "SIGTERM")],
    ids=["ignores it", "exits by itself", "no trap"],
)
async def test_b104_how_a_command_came_to_its_end_is_reported_where_its_time_was_up(
    tmp_path: Path, trap: str, end: str | None
) -> None:
    """Slow: a real shell runs into a real time limit."""
    # A cut call's result is the library's (7.4), so the exit is told where the tool itself ends the command.
    tools = run_command(tmp_path, time_limit=0.3, kill_grace=0.3)
    command = f"{trap}; while :; do sleep 0.02; done"
    agent, _, seen = agent_of([[call("c1", "run_command", command=command)], "Done."], tools)
    await agent.prompt("Go.")
    (result,) = results_of(agent)
    assert result.is_error
    assert result.details["timed_out"] is True
    assert (result.details["signal"], result.details["exit_status"]) == (end, None if end else 7)
    assert_run(seen, ["c1"])


# ------------------------------------------------------------------ B105


@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool"])
@pytest.mark.parametrize("innermost", ["tool", "stream", "hook"])
async def test_b105_an_abort_of_the_parent_reaches_every_level_in_the_same_moment(
    innermost: str, cause: str, autojump_clock: MockClock
) -> None:
    log = Log()

    async def waits(*args: Any) -> Any:
        log("innermost starts")
        try:
            await trio.sleep(600)
        finally:
            log("innermost cut")

    def asks(inner: Agent, level: int) -> Tool:
        async def execute(args: Any, ctx: Any) -> str:
            try:
                return (await inner.prompt("Sub-task.")).text
            finally:
                log(f"level {level} unwound")

        return Tool(f"c{level}", execute=execute)

    third = agent_of([calling("c3", "also"), "never"], Tool("c3", execute=waits), sleeper("also", 600, log))
    third[0].stream_fn = waits if innermost == "stream" else None
    if innermost == "hook":
        third[0].tools = [sleeper("c3"), sleeper("also", 600, log)]
        third[0].after_tool_call = waits
    second = agent_of([calling("c2"), "never"], asks(third[0], 2))
    first = agent_of([calling("c1", "beside"), "Next."], asks(second[0], 1), sleeper("beside", 600, log))
    agent = first[0]
    cut = (lambda: agent.cancel_tool("c1", "why")) if cause == "cancel_tool" else act(agent, cause)
    finish: list[tuple[float, Any]] = [(5, agent.abort)] if cause == "cancel_tool" else []
    play = await prompted(agent, (3, cut), *finish)
    assert play.ended == (5 if cause == "cancel_tool" else 3)
    assert log.times("innermost cut") == log.times("level 2 unwound") == log.times("level 1 unwound") == [3]
    texts = log.texts
    assert texts.index("innermost cut") < texts.index("level 2 unwound") < texts.index("level 1 unwound")
    for inner, model, seen in (third, second):
        assert len(model.requests) == (0 if inner.stream_fn is waits else 1)
        assert seen.log.times("agent_end") == [3]
        assert inner.last_result is not None
        assert inner.last_result.end_reason == "cancelled"
        assert_run(seen)
    assert results_of(agent)[0].error_kind == "aborted"
    assert len(first[1].requests) == 1
    assert_run(first[2], ["c1", "beside"])
    third[0].stream_fn = third[0].after_tool_call = None
    for again, model, _ in (third, second, first):
        await assert_works_again(again, model)


# ------------------------------------------------------------------ B106


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_b106_a_child_that_is_started_under_an_abort_spends_nothing(
    cause: str, levels: int, autojump_clock: MockClock
) -> None:
    scope = trio.CancelScope()
    inner, inner_model, inner_seen = agent_of(["never"])
    child = inner
    for level in range(levels - 1):
        child = Agent(ScriptedModel([calling(f"n{level}"), "never"]), tools=[_asking(f"n{level}", child)])

    async def execute(args: Any, ctx: Any) -> str:
        if cause == "abort":
            agent.abort("already")
        else:
            scope.cancel(reason="already")
        return (await child.prompt("Sub-task.")).text

    agent, model, seen = agent_of([calling("c1"), "never"], Tool("c1", execute=execute))
    with scope:
        result = await agent.prompt("Go.")
        assert result.end_reason == "aborted"
    assert scope.cancelled_caught is (cause == "cancel")
    assert agent.last_result is not None
    assert agent.last_result.end_reason == {"abort": "aborted", "cancel": "cancelled"}[cause]
    assert (inner_model.requests, inner_seen.events, list(inner.messages)) == ([], [], [])
    assert child.last_result is None
    assert len(model.requests) == 1
    assert story(agent.messages)[2:] == ["c1 aborted", "assistant aborted ''"]
    assert_run(seen, ["c1"])
    await assert_works_again(inner, inner_model)


def _asking(name: str, inner: Agent) -> Tool:
    async def execute(args: Any, ctx: Any) -> str:
        return (await inner.prompt("Sub-task.")).text

    return Tool(name, execute=execute)


@pytest.mark.parametrize("what", ["prompt", "resume", "run", "run_agent_loop"])
async def test_b106_a_run_that_is_entered_in_a_cancelled_scope_spends_nothing(
    what: str, autojump_clock: MockClock
) -> None:
    from trio_agent import AgentContext, LoopConfig, UserMessage, run_agent_loop

    prompt = UserMessage("Before.")
    agent, model, seen = agent_of(["Next."], messages=[prompt] if what == "resume" else [])
    with trio.CancelScope() as scope:
        scope.cancel(reason="already")
        if what == "prompt":
            await agent.prompt("Go.")
        elif what == "resume":
            await agent.resume()
        elif what == "run":
            async with agent.run("Go.") as run:
                async for _ in run:
                    pass
        else:
            await run_agent_loop([prompt], AgentContext(), LoopConfig(model=model), seen)
        raise AssertionError("it must not come here")
    assert scope.cancelled_caught
    assert (model.requests, seen.events) == ([], [])
    assert agent.last_result is None
    assert_idle(agent)
    await assert_works_again(agent, model)


# ------------------------------------------------------------------ B108


@pytest.mark.parametrize("cause", ["abort", "cancel", "cancel_tool", "interrupt", "timeout", "deadline"])
@pytest.mark.parametrize("peer", ["answers", "hangs"])
async def test_b108_a_remote_call_that_is_cut_is_told_to_the_server_within_a_bounded_time(
    peer: str, cause: str, autojump_clock: MockClock
) -> None:
    """The pattern of an adapter: in its clean-up a shielded message, given up after a second."""
    requests, server = trio.open_memory_channel[str](10)
    confirmed = trio.Event()
    log = Log()

    async def serve() -> None:
        async for request in server:
            log(request)
            if request == "cancel c1" and peer == "answers":
                await trio.sleep(0.25)
                confirmed.set()

    async def remote(args: Any, ctx: ToolContext) -> str:
        await requests.send(f"call {ctx.tool_call_id}")
        answered = False
        try:
            await trio.sleep(600)
            answered = True
        finally:
            if not answered:
                with trio.move_on_after(1, shield=True) as bound:
                    await requests.send(f"cancel {ctx.tool_call_id}")
                    await confirmed.wait()
                log("given up" if bound.cancelled_caught else "confirmed")
        return "never"

    agent, model, seen = agent_of(
        [calling("c1"), "Next."],
        Tool("c1", execute=remote, timeout=3.0 if cause == "timeout" else None),
        limits=RunLimits(seconds=3.0 if cause == "deadline" else None),
    )
    cuts: dict[str, Any] = {"cancel_tool": lambda: agent.cancel_tool("c1", "why"), "timeout": int, "deadline": int}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        play = await prompted(agent, (3, cuts.get(cause) or act(agent, cause)))
        nursery.cancel_scope.cancel(reason="the test is over")
    ends = 3.25 if peer == "answers" else 4
    assert play.ended == ends
    assert log.entries == [(0, "call c1"), (3, "cancel c1"), (ends, "confirmed" if peer == "answers" else "given up")]
    (result,) = results_of(agent)
    assert result.error_kind == ("timeout" if cause == "timeout" else "aborted")
    assert len(model.requests) == (2 if cause in ("cancel_tool", "interrupt", "timeout") else 1)
    assert_run(seen, ["c1"])
    agent.limits = RunLimits()
    await assert_works_again(agent, model)


# ------------------------------------------------------------------ B115

request_id: ContextVar[str] = ContextVar("request_id", default="unset")


@pytest.mark.parametrize("limit", ["none", "of the tools", "of the run"])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("mode", ["parallel", "parallel preparation", "sequential"])
@pytest.mark.parametrize("form", ["prompt", "run"])
async def test_b115_what_the_caller_has_set_is_seen_everywhere_and_what_a_tool_sets_nowhere(
    form: str, mode: str, count: int, limit: str, mock_clock: MockClock
) -> None:
    timeout = 50.0 if limit == "of the tools" else None
    seen_in: dict[str, set[str]] = {}

    def look(where: str) -> None:
        seen_in.setdefault(where, set()).add(request_id.get())

    async def async_tool(args: Any, ctx: ToolContext) -> str:
        look("async tool")
        request_id.set(f"set by {ctx.tool_call_id}")
        await trio.lowlevel.checkpoint()
        outcome = await ctx.run_tool_call("nested")
        assert request_id.get() == f"set by {ctx.tool_call_id}", "a sibling's value got through"
        return outcome.result.text

    def thread_tool(args: Any, ctx: ToolContext) -> str:
        look("thread tool")
        request_id.set(f"set by {ctx.tool_call_id}")
        ctx.update_from_thread("half")
        assert request_id.get() == f"set by {ctx.tool_call_id}"
        return "done"

    def plain_tool(args: Any, ctx: ToolContext) -> str:
        look("plain tool")
        request_id.set(f"set by {ctx.tool_call_id}")
        return "done"

    def nested_tool(args: Any, ctx: ToolContext) -> str:
        seen_in.setdefault("nested", set()).add(request_id.get().split("-")[0])
        return "done"

    def hook(name: str) -> Callable[..., Any]:
        async def asked(*args: Any) -> Any:
            await trio.lowlevel.checkpoint()
            look(name)
            return args[0] if name in ("transform_context", "convert_to_llm") else None

        return asked

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        look("stream")
        request_id.set("set by the stream function")
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        if any(isinstance(message, AssistantMessage) for message in request.messages):
            return builder.finish("stop")
        for kind in ("async", "thread", "plain"):
            for number in range(count):
                await sink.send(builder.tool_call_start(f"{kind}-{number}", f"{kind}_tool"))
                await sink.send(builder.tool_call_end())
        return builder.finish("tool_use")

    hooks = ["transform_context", "convert_to_llm", "get_api_key", "prepare_request", "prepare_next_turn"]
    hooks += ["before_tool_call", "after_tool_call", "finish_turn"]
    agent, _, recorder = agent_of(
        [],
        Tool("async_tool", execute=async_tool, timeout=timeout),
        Tool("thread_tool", execute=thread_tool, timeout=timeout),
        Tool("plain_tool", execute=plain_tool, in_thread=False, timeout=timeout),
        Tool("nested", execute=nested_tool),
        stream_fn=stream,
        limits=RunLimits(seconds=60 if limit == "of the run" else None),
        tool_execution="sequential" if mode == "sequential" else "parallel",
        tool_preparation="parallel" if mode == "parallel preparation" else "serial",
        **{name: hook(name) for name in hooks},
    )
    agent.subscribe(lambda event: look("listener"))
    token = request_id.set("the caller's")
    try:
        if form == "prompt":
            await agent.prompt("Go.")
        else:
            async with agent.run("Go.") as run:
                async for _ in run:
                    look("consumer")
        assert request_id.get() == "the caller's"
    finally:
        request_id.reset(token)
    calls = {f"{kind}-{number}" for kind in ("async", "thread", "plain") for number in range(count)}
    expected = [*hooks, "stream", "listener", "async tool", "thread tool", "plain tool"]
    # The hooks of a nested call run in the call that made it, and after_tool_call in its own (7.2).
    asked = {f"set by async-{number}" for number in range(count)}
    inside = {"before_tool_call": asked, "after_tool_call": asked | {f"set by plain-{n}" for n in range(count)}}
    for where in expected + (["consumer"] if form == "run" else []):
        assert seen_in[where] == {"the caller's"} | inside.get(where, set()), where
    assert seen_in["nested"] == {"set by async"}
    assert all(not result.is_error for result in results_of(agent))
    assert_run(recorder, calls)


@pytest.mark.parametrize("mode", ["parallel", "parallel preparation", "sequential"])
async def test_b115_siblings_that_run_at_the_same_time_do_not_see_each_other(
    mode: str, autojump_clock: MockClock
) -> None:
    found: dict[str, str] = {}

    async def execute(args: Any, ctx: ToolContext) -> None:
        before = request_id.get()
        request_id.set(ctx.tool_call_id)
        await trio.sleep(1)
        found[ctx.tool_call_id] = f"{before}, then {request_id.get()}"

    ids = [f"c{number}" for number in range(5)]
    agent, _, seen = agent_of(
        [[call(name, "work") for name in ids], [call("later", "work")], "Done."],
        Tool("work", execute=execute),
        tool_execution="sequential" if mode == "sequential" else "parallel",
        tool_preparation="parallel" if mode == "parallel preparation" else "serial",
    )
    await prompted(agent)
    assert found == {name: f"unset, then {name}" for name in [*ids, "later"]}
    assert request_id.get() == "unset"
    assert_run(seen, [*ids, "later"])


# ------------------------------------------------------------------ B116


@attrs.define(eq=False)
class Span:
    """What a tracer keeps of one piece of work."""

    name: str
    parent: Span | None
    ends: int = 0
    status: str = "unset"

    @property
    def path(self) -> str:
        return self.name if self.parent is None else f"{self.parent.path} > {self.name}"


current_span: ContextVar[Span | None] = ContextVar("current_span", default=None)


class Tracer:
    """Spans of runs, turns, requests and tools, as a tracing library's integration would make them.

    Spans of run, turn and request are current in the run's task from their start event to their end
    event; those of tools, which run side by side, only inside of their tools. The status is ``error``
    where the model, a hook, a listener or a tool failed, and stays ``unset`` for what was aborted or
    cancelled: that is the documented end of a piece of work, not its failure.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.detached_wrongly: list[str] = []

    def start(self, name: str) -> Span:
        span = Span(name, current_span.get())
        self.spans.append(span)
        return span

    def attach(self, span: Span) -> Token[Span | None]:
        return current_span.set(span)

    def detach(self, span: Span, token: Token[Span | None]) -> None:
        try:
            current_span.reset(token)
        except ValueError:  # another context: what the reports of this row are about
            self.detached_wrongly.append(span.path)

    def trace(self, agent: Agent, name: str) -> None:
        """Trace an agent: its tools are wrapped, its events listened to."""
        agent.tools = [self._wrapped(tool) for tool in agent.tools]
        agent.subscribe(_AgentTracer(self, name))

    def _wrapped(self, tool: Tool) -> Tool:
        async def execute(args: Any, ctx: ToolContext) -> Any:
            span = next(span for span in reversed(self.spans) if span.name == f"tool {ctx.tool_call_id}")
            token = self.attach(span)
            try:
                return await tool.execute(args, ctx)
            finally:
                self.detach(span, token)

        return Tool(tool.name, execute=execute)

    def check(self) -> None:
        """Every span was ended once, where it was begun, and nothing is current any more."""
        assert self.detached_wrongly == []
        assert [span.path for span in self.spans if span.ends != 1] == []
        assert current_span.get() is None

    def paths(self) -> list[str]:
        return [span.path for span in self.spans]

    def status(self, path: str) -> str:
        (found,) = {span.status for span in self.spans if span.path == path}
        return found


class _AgentTracer:
    """The listener: a plain function of events."""

    def __init__(self, tracer: Tracer, name: str) -> None:
        self.tracer = tracer
        self.name = name
        self.open: list[tuple[Span, Token[Span | None]]] = []
        self.tools: dict[str, Span] = {}

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case AgentStart():
                self._begin(f"run {self.name}")
            case TurnStart():
                self._begin("turn")
            case MessageStart(message=AssistantMessage()):
                self._begin("request")
            case MessageEnd(message=AssistantMessage() as message):
                self._end("error" if message.stop_reason == "error" else "unset")
            case ToolExecutionStart():
                self.tools[event.tool_call_id] = self.tracer.start(f"tool {event.tool_call_id}")
            case ToolExecutionEnd():
                span = self.tools.pop(event.tool_call_id)
                span.ends += 1
                span.status = "error" if event.result.error_kind == "failed" else "unset"
            case TurnEnd():
                self._end("error" if event.message.stop_reason == "error" else "unset")
            case AgentEnd():
                self._end("error" if event.end_reason == "error" else "unset")

    def _begin(self, name: str) -> None:
        span = self.tracer.start(name)
        self.open.append((span, self.tracer.attach(span)))

    def _end(self, status: str) -> None:
        span, token = self.open.pop()
        span.ends += 1
        span.status = status
        self.tracer.detach(span, token)


def traced(tracer: Tracer) -> tuple[Agent, ScriptedModel, Recorder]:
    """A parent whose tool asks a child; beside it a tool that is slow and one that fails."""
    child, _, _ = agent_of([calling("deep"), "Child."], sleeper("deep", 1))
    tracer.trace(child, "child")
    parent, model, seen = agent_of(
        [["I see. ", call("ask", "ask"), call("slow", "slow"), call("bad", "bad")], "Parent."],
        _asking("ask", child),
        sleeper("slow", 2),
        sleeper("bad", 0.5, error=OSError("no disk")),
    )
    tracer.trace(parent, "parent")
    return parent, model, seen


PATHS = {
    "run parent",
    "run parent > turn",
    "run parent > turn > request",
    "run parent > turn > tool ask",
    "run parent > turn > tool slow",
    "run parent > turn > tool bad",
    "run parent > turn > tool ask > run child",
    "run parent > turn > tool ask > run child > turn",
    "run parent > turn > tool ask > run child > turn > request",
    "run parent > turn > tool ask > run child > turn > tool deep",
}


@pytest.mark.parametrize("form", ["prompt", "run"])
async def test_b116_spans_have_the_right_parents_and_each_ends_once(form: str, autojump_clock: MockClock) -> None:
    tracer = Tracer()
    parent, _, seen = traced(tracer)
    if form == "prompt":
        await parent.prompt("Go.")
    else:
        async with parent.run("Go.") as run:
            async for _ in run:
                assert current_span.get() is None, "the consumer's own context"
    tracer.check()
    assert set(tracer.paths()) == PATHS
    assert tracer.status("run parent > turn > tool bad") == "error"
    assert {span.status for span in tracer.spans if span.name != "tool bad"} == {"unset"}
    assert_run(seen)


@pytest.mark.parametrize("where", ["around", "inside a span of the host's"])
@pytest.mark.parametrize("at", [0, 0.25, 0.75, 1, 1.5])
@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt", "cancel_tool"])
async def test_b116_a_cut_run_has_all_its_spans_ended_and_none_is_an_error(
    cause: str, at: float, where: str, autojump_clock: MockClock
) -> None:
    tracer = Tracer()
    parent, model, seen = traced(tracer)
    model.extend(["Parent."])
    cut = (lambda: parent.cancel_tool("ask")) if cause == "cancel_tool" else act(parent, cause)
    host = tracer.start("host") if where != "around" else None
    token = tracer.attach(host) if host is not None else None

    async def start() -> Any:
        return await parent.prompt("Go.")

    await Play(start, (at, cut)).run()
    if host is not None and token is not None:
        assert current_span.get() is host, "the run has detached what it had attached, in its order"
        host.ends += 1
        tracer.detach(host, token)
    tracer.check()
    prefix = "" if host is None else "host > "
    assert set(tracer.paths()) <= {prefix + path for path in PATHS} | {"host"}
    failed = {span.name for span in tracer.spans if span.status == "error"}
    assert failed <= {"tool bad"}, "what was cut is no error"
    assert_run(seen)


@pytest.mark.parametrize("failing", ["model", "hook", "listener"])
async def test_b116_a_run_that_fails_has_all_its_spans_ended_with_the_status_error(
    failing: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = Tracer()
    parent, _, seen = traced(tracer)

    def fails(*args: Any) -> None:
        raise ValueError("broken")

    if failing == "model":
        parent.model = ScriptedModel([ValueError("broken")])
    elif failing == "hook":
        parent.finish_turn = fails
    else:
        parent.subscribe(fails, ToolExecutionEnd)
    play = await prompted(parent)
    assert isinstance(play.error, ValueError) is (failing == "listener")
    tracer.check()
    assert tracer.status("run parent") == "error"
    assert "error" in {span.status for span in tracer.spans if span.path == "run parent > turn"}
    # To the child the failure of its parent is a cancellation: it was cut, and did not fail.
    assert {span.status for span in tracer.spans if "child" in span.path} <= {"unset"}
    assert_run(seen)


@pytest.mark.parametrize("way", ["break", "raise", "cancel"])
async def test_b116_a_consumer_may_leave_at_any_event_and_every_span_ends(way: str, autojump_clock: MockClock) -> None:
    class LeftError(Exception):
        """The consumer's own."""

    count, whole = 0, False
    while not whole:
        count += 1
        tracer = Tracer()
        parent, _, seen = traced(tracer)
        with trio.CancelScope() as scope, contextlib.suppress(LeftError):
            async with parent.run("Go.") as run:
                left = count
                async for _ in run:
                    left -= 1
                    if left > 0:
                        continue
                    await wait_all_tasks_blocked()
                    if way == "raise":
                        raise LeftError
                    if way == "cancel":
                        scope.cancel(reason="the consumer leaves")
                        await trio.lowlevel.checkpoint()
                    break
                whole = left > 0
        tracer.check()
        assert set(tracer.paths()) <= PATHS
        assert {span.status for span in tracer.spans if span.name != "tool bad"} == {"unset"}
        assert_run(seen)
    assert count > 30
    gc.collect()


async def test_b116_a_hook_that_opens_a_span_for_its_own_call_finds_it_in_the_tool(autojump_clock: MockClock) -> None:
    """With parallel preparation a call's hooks and body are one task (6): what one attaches the next sees."""
    tracer = Tracer()
    found: dict[str, str] = {}
    open_spans: dict[str, tuple[Span, Token[Span | None]]] = {}

    def before(question: BeforeToolCallContext) -> None:
        span = tracer.start(f"tool {question.tool_call.id}")
        open_spans[question.tool_call.id] = (span, tracer.attach(span))

    def after(told: Any) -> None:
        span, token = open_spans.pop(told.tool_call.id)
        span.ends += 1
        tracer.detach(span, token)

    async def execute(args: Any, ctx: ToolContext) -> None:
        await trio.sleep(1)
        span = current_span.get()
        found[ctx.tool_call_id] = "none" if span is None else span.path

    agent, _, seen = agent_of(
        [[call("c1", "work"), call("c2", "work")], "Done."],
        Tool("work", execute=execute),
        tool_preparation="parallel",
        before_tool_call=before,
        after_tool_call=after,
    )
    await prompted(agent)
    tracer.check()
    assert found == {"c1": "tool c1", "c2": "tool c2"}
    assert_run(seen, ["c1", "c2"])
