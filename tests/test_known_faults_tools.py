"""Known faults, groups H and I: order, limits and approvals of parallel tools; one failure and its siblings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from invariants import assert_works_again
from kit import Log, act, agent_of, assert_run, call, calling, prompted, sleeper, story
from trio.testing import MockClock

from trio_agent import (
    BeforeToolCallContext,
    BeforeToolCallResult,
    RunLimits,
    Tool,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
)
from trio_agent.testing import assert_transcript_valid

every_preparation = pytest.mark.parametrize("preparation", ["serial", "parallel"])


def blocks(*call_ids: str) -> Callable[[BeforeToolCallContext], BeforeToolCallResult | None]:
    """A before_tool_call that blocks some calls."""

    def hook(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        blocked = question.tool_call.id in call_ids
        return BeforeToolCallResult(block=True, reason=f"no {question.tool_call.id}") if blocked else None

    return hook


def raises(name: str, make: Callable[[], BaseException], seconds: float = 0.5) -> Tool:
    """A tool that raises after a while; each call raises an exception of its own."""

    async def execute(args: Any, ctx: Any) -> str:
        await trio.sleep(seconds)
        raise make()

    return Tool(name, execute=execute)


# ------------------------------------------------------------------- B46


@every_preparation
async def test_b46_ends_come_by_completion_and_results_in_source_order(
    preparation: Any, autojump_clock: MockClock
) -> None:
    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."],
        sleeper("c1", 5),
        sleeper("c2"),
        sleeper("c3", 1),
        before_tool_call=blocks("c2"),
        tool_preparation=preparation,
    )
    await prompted(agent)
    assert seen.of("tool_execution_start") == [f"tool_execution_start c{n}" for n in (1, 2, 3)]
    assert seen.of("tool_execution_end") == [f"tool_execution_end c{n}" for n in (2, 3, 1)]
    assert [seen.log.times(f"tool_execution_end c{n}") for n in (1, 2, 3)] == [[5], [0], [1]]
    results = ["c1 ok 'c1 done'", "c2 error 'no c2'", "c3 ok 'c3 done'"]
    assert story(agent.messages)[2:5] == results
    assert story(model.requests[1].messages)[2:] == results
    (first, _) = [event for event in seen.events if isinstance(event, TurnEnd)]
    assert story(first.tool_results) == results
    assert seen.log.times("message_start c1") == seen.log.times("message_end c3") == [5]
    assert_run(seen, ["c1", "c3"])


@pytest.mark.parametrize("failing", ["unknown", "invalid", "blocked"])
@every_preparation
async def test_b46_whatever_ends_a_call_early_is_told_early_and_stands_in_its_place(
    preparation: Any, failing: str, autojump_clock: MockClock
) -> None:
    whole = {"type": "object", "properties": {"n": {"type": "integer"}}}
    second = {"unknown": call("c2", "nobody"), "invalid": call("c2", "c2", n="x"), "blocked": call("c2")}[failing]
    agent, _, seen = agent_of(
        [calling("c1", second, "c3"), "Done."],
        sleeper("c1", 5),
        sleeper("c2", parameters=whole),
        sleeper("c3", 1),
        before_tool_call=blocks("c2"),
        tool_preparation=preparation,
    )
    await prompted(agent)
    assert seen.of("tool_execution_end") == [f"tool_execution_end c{n}" for n in (2, 3, 1)]
    assert [m.tool_call_id for m in agent.messages if isinstance(m, ToolResultMessage)] == ["c1", "c2", "c3"]
    assert_run(seen, ["c1", "c3"])


async def test_b46_in_order_everything_of_a_call_comes_before_the_next(autojump_clock: MockClock) -> None:
    agent, _, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."],
        sleeper("c1", 5),
        sleeper("c2"),
        sleeper("c3", 1),
        before_tool_call=blocks("c2"),
        tool_execution="sequential",
    )
    await prompted(agent)
    assert [text for text in seen.kinds if text.endswith(("c1", "c2", "c3"))] == [
        f"{what} c{n}"
        for n in (1, 2, 3)
        for what in ("tool_execution_start", "tool_execution_end", "message_start", "message_end")
    ]
    assert_run(seen, ["c1", "c3"])


# ------------------------------------------------------------------- B48


class Crowd:
    """A tool that counts how many of its calls run at the same time."""

    def __init__(self, seconds: float = 1.0, **settings: Any) -> None:
        self.running = self.most = self.done = 0
        self.entered: list[str] = []
        self.seconds = seconds
        self.tool = Tool("crowd", execute=self.execute, **settings)

    async def execute(self, args: Any, ctx: Any) -> str:
        self.entered.append(ctx.tool_call_id)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await trio.sleep(self.seconds)
            self.done += 1
        finally:
            self.running -= 1
        return "done"


LIMITS = ["max_parallel_tools", "limiter"]


def crowd_of(limit: str, size: int, **settings: Any) -> tuple[Crowd, Any, Any, Any]:
    crowd = Crowd(limiter=trio.CapacityLimiter(8) if limit == "limiter" else None)
    if limit == "max_parallel_tools":
        settings["max_parallel_tools"] = 8
    calls = [call(f"c{number}", "crowd") for number in range(size)]
    return (crowd, *agent_of([calls, "Done."], crowd.tool, **settings))


@pytest.mark.parametrize("limit", LIMITS)
@every_preparation
async def test_b48_a_limit_bounds_the_calls_that_run_at_once(
    preparation: Any, limit: str, autojump_clock: MockClock
) -> None:
    crowd, agent, _, seen = crowd_of(limit, 800, tool_preparation=preparation)
    play = await prompted(agent)
    assert play.ended == 100
    assert crowd.most == 8
    assert crowd.done == 800
    results = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert [m.tool_call_id for m in results] == [f"c{number}" for number in range(800)]
    assert not any(m.is_error for m in results)
    assert_run(seen, crowd.entered)


@pytest.mark.parametrize("limit", LIMITS)
@every_preparation
@pytest.mark.parametrize("cause", ["abort", "cancel"])
async def test_b48_a_cut_stops_those_that_run_and_starts_no_more(
    cause: str, preparation: Any, limit: str, autojump_clock: MockClock
) -> None:
    crowd, agent, model, seen = crowd_of(limit, 800, tool_preparation=preparation)
    play = await prompted(agent, (10.5, act(agent, cause)))
    assert play.ended == 10.5
    assert crowd.done == 80
    assert len(crowd.entered) == 88
    kinds = [m.error_kind for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert [kinds.count(kind) for kind in (None, "aborted", "not_started")] == [80, 8, 712]
    assert_run(seen, crowd.entered)
    await assert_works_again(agent, model)


async def test_b48_the_limit_of_a_run_refuses_the_calls_beyond_it(autojump_clock: MockClock) -> None:
    crowd, agent, model, seen = crowd_of("max_parallel_tools", 20, limits=RunLimits(tool_calls=5))
    play = await prompted(agent)
    assert len(crowd.entered) == 5
    kinds = [m.error_kind for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert kinds == [None] * 5 + ["limit"] * 15
    assert play.result.end_reason == "max_tool_calls"
    assert len(model.requests) == 1
    assert_run(seen, crowd.entered)


# ------------------------------------------------------------------- B49


class Approvals:
    """A before_tool_call that waits for an answer to each question."""

    def __init__(self) -> None:
        self.pending: list[str] = []
        self.cancelled: list[str] = []
        self.answers: dict[str, bool] = {}
        self.answered = trio.Event()

    async def __call__(self, question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        call_id = question.tool_call.id
        self.pending.append(call_id)
        try:
            while call_id not in self.answers:
                await self.answered.wait()
        except trio.Cancelled:
            self.cancelled.append(call_id)
            raise
        finally:
            self.pending.remove(call_id)
        return None if self.answers[call_id] else BeforeToolCallResult(block=True, reason="refused")

    def answer(self, call_id: str, *, yes: bool) -> None:
        self.answers[call_id] = yes
        self.answered.set()
        self.answered = trio.Event()


async def test_b49_with_parallel_preparation_all_approvals_are_pending_together(autojump_clock: MockClock) -> None:
    approvals, log = Approvals(), Log()
    tools = [sleeper(f"c{n}", 0.5, log) for n in (1, 2, 3)]
    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."], *tools, before_tool_call=approvals, tool_preparation="parallel"
    )
    pending: list[list[str]] = []
    play = await prompted(
        agent,
        (0.5, lambda: pending.append(sorted(approvals.pending))),
        (1, lambda: approvals.answer("c3", yes=True)),
        (2, lambda: approvals.answer("c1", yes=False)),
        (2.5, lambda: pending.append(sorted(approvals.pending))),
        (3, lambda: approvals.answer("c2", yes=True)),
    )
    assert play.ended == 3.5
    assert pending == [["c1", "c2", "c3"], ["c2"]]
    # A call that is ready need not wait for one that is not (6).
    assert log.entries == [(1, "c3 starts"), (1.5, "c3 ends"), (3, "c2 starts"), (3.5, "c2 ends")]
    assert seen.of("tool_execution_end") == [f"tool_execution_end c{n}" for n in (3, 1, 2)]
    assert story(model.requests[1].messages)[2:] == ["c1 error 'refused'", "c2 ok 'c2 done'", "c3 ok 'c3 done'"]
    assert_run(seen, ["c2", "c3"])


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_b49_with_serial_preparation_approvals_come_one_after_the_other(
    mode: Any, autojump_clock: MockClock
) -> None:
    """The documented default, as in pi: each is asked in source order; nothing runs before all are answered."""
    approvals, log = Approvals(), Log()
    tools = [sleeper(f"c{n}", 0.5, log) for n in (1, 2, 3)]
    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."], *tools, before_tool_call=approvals, tool_execution=mode
    )
    pending: list[list[str]] = []

    def look() -> None:
        pending.append(list(approvals.pending))

    play = await prompted(
        agent,
        (1, look),
        (2, lambda: approvals.answer("c3", yes=True)),  # asked for later, answered already
        (3, lambda: approvals.answer("c1", yes=True)),
        (4, look),
        (5, lambda: approvals.answer("c2", yes=False)),
    )
    assert pending == [["c1"], ["c2"]]
    starts = [(at, text) for at, text in log.entries if text.endswith("starts")]
    if mode == "parallel":
        assert sorted(starts) == [(5, "c1 starts"), (5, "c3 starts")]
        assert play.ended == 5.5
    else:
        assert starts == [(3, "c1 starts"), (5, "c3 starts")]
    assert story(model.requests[1].messages)[2:] == ["c1 ok 'c1 done'", "c2 error 'refused'", "c3 ok 'c3 done'"]
    assert_run(seen, ["c1", "c3"])


# ------------------------------------------------------------------- B50


@every_preparation
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("cause", ["abort", "cancel", "interrupt"])
async def test_b50_an_approval_that_comes_after_the_cut_runs_nothing(
    cause: str, mode: Any, preparation: Any, autojump_clock: MockClock
) -> None:
    approvals, log = Approvals(), Log()
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Next."],
        sleeper("c1", log=log),
        sleeper("c2", log=log),
        before_tool_call=approvals,
        tool_preparation=preparation,
        tool_execution=mode,
    )
    play = await prompted(agent, (1, act(agent, cause)))
    both = mode == "parallel" and preparation == "parallel"
    assert sorted(approvals.cancelled) == (["c1", "c2"] if both else ["c1"])
    approvals.answer("c1", yes=True)
    approvals.answer("c2", yes=True)
    await trio.sleep(5)
    assert play.ended == 1
    assert log.texts == []
    assert story(agent.messages)[2:4] == ["c1 not_started", "c2 not_started"]
    assert_run(seen, [])
    await assert_works_again(agent, model)


@every_preparation
async def test_b50_a_verdict_that_is_given_after_the_abort_does_not_count(
    preparation: Any, autojump_clock: MockClock
) -> None:
    """Design 7.3: a hook that shields itself from the abort is waited for, and what it says is void."""
    log = Log()

    async def stubborn(question: BeforeToolCallContext) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)

    agent, model, seen = agent_of(
        [calling("c1"), "Next."], sleeper("c1", log=log), before_tool_call=stubborn, tool_preparation=preparation
    )
    play = await prompted(agent, (1, agent.abort))
    assert play.ended == 3
    assert log.texts == []
    assert story(agent.messages)[2:] == ["c1 not_started", "assistant aborted ''"]
    assert_run(seen, [])
    agent.before_tool_call = None
    await assert_works_again(agent, model)


@every_preparation
async def test_b50_one_pending_approval_is_cancelled_and_the_others_go_on(
    preparation: Any, autojump_clock: MockClock
) -> None:
    approvals, log, answers = Approvals(), Log(), []
    agent, _, seen = agent_of(
        [calling("c1", "c2"), "Next."],
        sleeper("c1", log=log),
        sleeper("c2", log=log),
        before_tool_call=approvals,
        tool_preparation=preparation,
    )
    await prompted(
        agent,
        (1, lambda: answers.append(agent.cancel_tool("c1", "too late"))),
        (2, lambda: approvals.answer("c2", yes=True)),
    )
    assert answers == [True]
    assert approvals.cancelled == ["c1"]
    assert story(agent.messages)[2:] == ["c1 not_started", "c2 ok 'c2 done'", "assistant stop 'Next.'"]
    assert "too late" in next(m.text for m in agent.messages if isinstance(m, ToolResultMessage))
    assert_run(seen, ["c2"])


# ------------------------------------------------------------------- B51


class HostError(Exception):
    """An exception class that the library does not know."""


class HostFatal(BaseException):
    """Neither an Exception nor Cancelled, and not Python's own."""


FAILURES: dict[str, tuple[Callable[[], BaseException], str]] = {
    "an ordinary error": (lambda: ValueError("broken"), "broken"),
    "an error without words": (HostError, "HostError"),
    "a group": (lambda: ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "many"),
    "a nested group": (lambda: ExceptionGroup("many", [ExceptionGroup("more", [OSError("deep")])]), "deep"),
    "a timeout of its own": (lambda: trio.TooSlowError("mine"), "mine"),
    "StopIteration": (StopIteration, "StopIteration"),
    "StopAsyncIteration": (StopAsyncIteration, "StopAsyncIteration"),
    "EndOfChannel": (trio.EndOfChannel, "EndOfChannel"),
    "WouldBlock": (trio.WouldBlock, "WouldBlock"),
}

MODES = [{"tool_execution": "sequential"}, {}, {"tool_preparation": "parallel"}, {"max_parallel_tools": 3}]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_b51_a_failing_tool_leaves_its_siblings_alone(
    mode: dict[str, Any], failure: str, autojump_clock: MockClock
) -> None:
    make, said = FAILURES[failure]
    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."], sleeper("c1", 1), raises("c2", make), sleeper("c3", 2), **mode
    )
    play = await prompted(agent)
    assert play.ended == (3.5 if "tool_execution" in mode else 2)
    assert play.result.text == "Done."
    assert play.result.exception is None
    (_, request) = model.requests
    told = story(request.messages)[2:]
    assert (told[0], told[2]) == ("c1 ok 'c1 done'", "c3 ok 'c3 done'")
    (broken,) = [m for m in request.messages if isinstance(m, ToolResultMessage) and m.is_error]
    assert broken.tool_call_id == "c2"
    assert broken.error_kind == "failed"
    assert said in broken.text
    assert_run(seen, ["c1", "c2", "c3"])


async def test_b51_the_text_of_every_error_in_a_group_is_on_record(autojump_clock: MockClock) -> None:
    """A nursery in a tool is common, and no model can act on "Exceptions from Trio nursery (2 sub-exceptions)".

    Design 7.6: the part of a group that is not Cancelled goes into that call's result.
    """

    async def fails(text: str) -> None:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        raise ValueError(text)

    async def execute(args: Any, ctx: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails, "no such city")
            nursery.start_soon(fails, "no such day")

    agent, _, seen = agent_of([calling("c1"), "Done."], Tool("c1", execute=execute))
    await prompted(agent)
    (result,) = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert result.is_error
    assert "no such city" in result.text
    assert "no such day" in result.text
    assert_run(seen, ["c1"])


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    "make", [KeyboardInterrupt, SystemExit, HostFatal, GeneratorExit], ids=lambda make: make.__name__
)
async def test_b51_what_is_no_exception_is_no_result_and_comes_out_bare(
    make: type[BaseException], mode: dict[str, Any], autojump_clock: MockClock
) -> None:
    """Design 7.6: KeyboardInterrupt, SystemExit and their like pass on, and the run closes as for a host."""
    log = Log()
    agent, model, seen = agent_of(
        [calling("c1", "c2", "c3"), "Done."], sleeper("c1", 1, log), raises("c2", make), sleeper("c3", 2, log), **mode
    )
    play = await prompted(agent)
    assert type(play.error) is make
    assert len(model.requests) == 1
    if "tool_execution" in mode:
        assert play.ended == 1.5
        assert story(agent.messages)[2:5] == ["c1 ok 'c1 done'", "c2 aborted", "c3 not_started"]
    else:
        assert play.ended == 0.5
        assert sorted(log.texts) == ["c1 cut", "c1 starts", "c3 cut", "c3 starts"], "siblings are cleaned up"
        assert story(agent.messages)[2:5] == ["c1 aborted", "c2 aborted", "c3 aborted"]
    assert story(agent.messages)[5:] == ["assistant aborted ''"]
    assert_run(seen)
    await assert_works_again(agent, model)


async def test_b51_a_tool_that_raises_the_same_exception_twice_fails_twice(autojump_clock: MockClock) -> None:
    error = ValueError("broken")
    agent, _, seen = agent_of([calling("c1", call("c2", "c1")), "Done."], raises("c1", lambda: error))
    await prompted(agent)
    assert story(agent.messages)[2:4] == ["c1 error 'broken'", "c2 error 'broken'"]
    assert_run(seen, ["c1", "c2"])


# ------------------------------------------------------------------- B52


@pytest.mark.parametrize("cause", ["KeyboardInterrupt", "listener", "hook", "cancel", "abort"])
async def test_b52_what_is_finished_is_on_record_when_a_sibling_ends_the_run(
    cause: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    finished = ToolResult("kept", details={"id": 7}, terminate=True)
    make = KeyboardInterrupt if cause == "KeyboardInterrupt" else (lambda: ValueError("broken"))
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."],
        sleeper("c1", 0.5, result=finished),
        raises("c2", make, seconds=1) if cause == "KeyboardInterrupt" else sleeper("c2", 1),
    )

    def listen(event: Any) -> None:
        if cause == "listener" and seen.kinds.count("tool_execution_end c2"):
            raise ValueError("broken")

    def hook(turn: Any) -> None:
        if cause == "hook":
            raise ValueError("broken")

    unsubscribe = agent.subscribe(listen)
    agent.finish_turn = hook
    play = await prompted(agent, (0.75, act(agent, cause if cause in ("abort", "cancel") else "nothing")))
    expected = {"KeyboardInterrupt": KeyboardInterrupt, "listener": ValueError, "cancel": trio.Cancelled}
    assert type(play.error) is expected.get(cause, type(None))
    (first, second) = [m for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert (first.text, first.details, first.is_error) == ("kept", {"id": 7}, False)
    if cause in ("listener", "hook"):
        assert second.text == "c2 done"
    else:
        assert second.error_kind == "aborted"
    assert_transcript_valid(agent.messages)
    assert agent.last_result is not None
    assert first in agent.last_result.new_messages
    assert_run(seen, ["c1", "c2"])
    unsubscribe()
    agent.finish_turn = None
    await assert_works_again(agent, model)


async def test_b52_the_terminate_of_a_finished_call_counts_only_beside_that_of_all(autojump_clock: MockClock) -> None:
    """The hint survives a sibling's failure: it is kept, and outvoted by the failing call's result."""
    agent, model, seen = agent_of(
        [calling("c1", "c2"), "Done."],
        sleeper("c1", result=ToolResult("kept", terminate=True)),
        raises("c2", lambda: ValueError("broken")),
    )
    await prompted(agent)
    assert story(agent.messages)[2:] == ["c1 ok 'kept'", "c2 error 'broken'", "assistant stop 'Done.'"]
    assert len(model.requests) == 2
    assert_run(seen, ["c1", "c2"])
