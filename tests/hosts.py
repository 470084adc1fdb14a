"""Hosts to explore: what the recorded scenarios lack.

Each is an async function of a Probe, deterministic, and holds under any cut; what it asserts of the
normal course stands behind ``if not probe.acted``. :data:`INVARIANTS` are checks that the kit's own
invariants do not make. ``tests/test_hosts.py`` explores them a little, ``tests/mutation`` a lot.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from trio_agent import (
    Abort,
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentLoopTurnUpdate,
    AgentMessage,
    AgentTurnContext,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    LoopConfig,
    MessageUpdate,
    QueueFullError,
    RunLimits,
    StopReason,
    TextContent,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.testing import Probe, ScriptedModel

TICK = 0.1
"""Seconds that things take here."""


async def _work(arguments: dict[str, Any], ctx: ToolContext) -> str:
    await trio.sleep(arguments.get("ticks", 1) * TICK)
    return f"done {ctx.tool_call_id}"


def ticks() -> int:
    """How many ticks have passed."""
    return round(trio.current_time() / TICK)


def worker(name: str = "work", execute: Callable[..., Any] = _work, **settings: Any) -> Tool:
    """A tool that takes ``ticks`` and says which call it was."""
    return Tool(name, execute=execute, **settings)


@asynccontextmanager
async def busy_limiter() -> AsyncGenerator[Tool]:
    """A tool ``waits``, whose limiter somebody else holds for twenty ticks."""
    limiter = trio.CapacityLimiter(1)

    async def hold() -> None:
        async with limiter:
            await trio.sleep(20 * TICK)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await trio.testing.wait_all_tasks_blocked()
        yield worker("waits", limiter=limiter)
        nursery.cancel_scope.cancel(reason="it is not needed any more")


def calls(*ticks: float, name: str = "work", first: int = 1) -> list[ToolCall]:
    """Calls ``c1``, ``c2``, ... of a tool."""
    return [ToolCall(f"c{n}", name, {"ticks": one}) for n, one in enumerate(ticks, first)]


def results(agent: Agent) -> list[ToolResultMessage]:
    """The result messages of a transcript."""
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def texts(agent: Agent) -> dict[str, str]:
    """The results by the ids of their calls."""
    return {message.tool_call_id: message.text for message in results(agent)}


async def slow_before(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
    """Approve after a while; a call of ``blocked`` is not approved."""
    await trio.sleep(TICK)
    return BeforeToolCallResult(block=True, reason="not today") if question.tool_call.name == "blocked" else None


async def slow_after(done: AfterToolCallContext) -> AfterToolCallResult | None:
    """Let a result pass, after a while."""
    await trio.sleep(TICK)
    return None


async def redact(done: AfterToolCallContext) -> AfterToolCallResult | None:
    """Put something else in place of a result, after a while."""
    await trio.sleep(TICK)
    return AfterToolCallResult(f"redacted {done.tool_call.id}", details={"was": done.is_error}, is_error=False)


# ------------------------------------------------------------------ limits


async def one_at_a_time(probe: Probe) -> None:
    """``max_parallel_tools=1``: calls of a parallel batch wait for each other, and a nested call does not."""
    inside: list[str] = []
    most = 0

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        nonlocal most
        inside.append(ctx.tool_call_id)
        most = max(most, len(inside))
        try:
            await trio.sleep(TICK)
            return (await ctx.run_tool_call("inner")).result.text
        finally:
            inside.remove(ctx.tool_call_id)

    async def inner(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        return f"inner {ctx.tool_call_id}"

    tools = [worker(execute=body), worker("inner", inner)]
    model = ScriptedModel([calls(1, 1, 1), "done"])
    agent = probe.watch(Agent(model, tools=tools, max_parallel_tools=1))

    @probe.check
    def _never_two_at_once() -> None:
        assert most <= 1
        assert not inside

    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent) == {f"c{n}": f"inner c{n}/1" for n in (1, 2, 3)}
        assert ticks() >= 3


async def limiters_and_time_limits(probe: Probe) -> None:
    """A tool's own limiter comes first, its time limit starts behind it; it is free when all is over."""
    limiter = trio.CapacityLimiter(1)
    tools = [worker(limiter=limiter, timeout=2.5 * TICK), worker("late", timeout=TICK), worker("free")]
    turn = [*calls(2, 2, 9), *calls(5, name="late", first=4), *calls(1, name="free", first=5)]
    agent = probe.watch(Agent(ScriptedModel([turn, "done"]), tools=tools, max_parallel_tools=4))

    @probe.check
    def _limiter_is_free() -> None:
        assert limiter.borrowed_tokens == 0
        assert limiter.statistics().tasks_waiting == 0

    await agent.prompt("Go.")
    if not probe.acted:
        kinds = {message.tool_call_id: message.error_kind for message in results(agent)}
        # The three that share a limiter need up to 7 ticks one after the other; only the third is too slow itself.
        assert kinds == {"c1": None, "c2": None, "c3": "timeout", "c4": "timeout", "c5": None}


async def time_limit_and_hook(probe: Probe) -> None:
    """A timeout cuts the body alone; ``after_tool_call`` sees its result and takes longer than the limit."""
    seen: list[str] = []

    async def after(done: AfterToolCallContext) -> AfterToolCallResult | None:
        await trio.sleep(3 * TICK)
        seen.append(f"{done.tool_call.id} {done.result.error_kind}")
        return None

    tools = [worker(timeout=2 * TICK)]
    agent = probe.watch(Agent(ScriptedModel([calls(1, 9), "done"]), tools=tools, after_tool_call=after))
    await agent.prompt("Go.")
    if not probe.acted:
        assert seen == ["c1 None", "c2 timeout"]
        assert [message.error_kind for message in results(agent)] == [None, "timeout"]


async def limit_of_turns(probe: Probe) -> None:
    """Two requests are allowed: the run ends after the second turn, and what is queued stays queued."""
    model = ScriptedModel([calls(1), calls(1, first=2), "never"])
    agent = probe.watch(Agent(model, tools=[worker()], limits=RunLimits(turns=2)))
    agent.follow_up("later")
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "max_turns"
        assert len(model.requests) == 2
        assert [message.text for message in agent.peek_queued_messages() if isinstance(message, UserMessage)] == [
            "later"
        ]


async def limit_of_turns_not_hit(probe: Probe) -> None:
    """The last allowed turn answers, and nothing wants another one: the run is simply done."""
    agent = probe.watch(Agent(ScriptedModel(["done"]), limits=RunLimits(turns=1)))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "done"


async def limit_of_calls(probe: Probe) -> None:
    """Three calls are allowed over two turns; those beyond get an error result."""
    model = ScriptedModel([calls(1, 1), calls(1, 1, 1, first=3), "never"])
    agent = probe.watch(Agent(model, tools=[worker()], limits=RunLimits(tool_calls=3)))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "max_tool_calls"
        assert [message.error_kind for message in results(agent)] == [None, None, None, "limit", "limit"]


async def limit_of_seconds(probe: Probe) -> None:
    """A soft deadline aborts the run in the middle of a batch, and says so."""
    agent = probe.watch(Agent(ScriptedModel([calls(2, 9)]), tools=[worker()], limits=RunLimits(seconds=4 * TICK)))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "deadline"
        assert ticks() == 4
        assert texts(agent)["c1"] == "done c1"
        assert "limit of 0.4 s" in texts(agent)["c2"]


async def limit_of_seconds_behind_an_abort(probe: Probe) -> None:
    """The deadline passes while an aborted run still closes: it was the abort that ended it."""

    async def listener(event: AgentEvent) -> None:
        if agent.last_result is None and event.type in ("tool_execution_end", "turn_end"):
            await trio.sleep(2 * TICK)

    agent = Agent(ScriptedModel([calls(9)]), tools=[worker()], limits=RunLimits(seconds=2 * TICK))
    probe.watch(agent)
    agent.subscribe(listener)

    async def abort() -> None:
        await trio.sleep(TICK)
        agent.abort("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "aborted"


async def limit_of_seconds_not_hit(probe: Probe) -> None:
    """A deadline that does not come: the run ends when it is done, and nothing waits for the deadline."""
    agent = probe.watch(Agent(ScriptedModel([calls(1), "done"]), tools=[worker()], limits=RunLimits(seconds=60)))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "done"
        assert ticks() == 1


# ------------------------------------------------------------- preparation


async def prepared_side_by_side(probe: Probe) -> None:
    """``tool_preparation="parallel"``: approvals are pending at once; blocked, unknown and good calls."""
    turn = [*calls(1, 2), *calls(1, name="blocked", first=3), *calls(1, name="unknown", first=4), *calls(1, first=5)]
    agent = probe.watch(
        Agent(
            ScriptedModel([turn, "done"]),
            tools=[worker(), worker("blocked")],
            tool_preparation="parallel",
            before_tool_call=slow_before,
            after_tool_call=slow_after,
        )
    )
    await agent.prompt("Go.")
    if not probe.acted:
        assert ticks() == 4
        assert [message.error_kind for message in results(agent)] == [None, None, None, "tool_not_found", None]
        assert texts(agent)["c3"] == "not today"


async def approved_one_by_one(probe: Probe) -> None:
    """The default: calls are prepared in source order; the hook changes arguments and blocks one."""

    async def before(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        await trio.sleep(TICK)
        question.args["ticks"] = 2
        return BeforeToolCallResult(block=True) if question.tool_call.id == "c2" else None

    agent = probe.watch(Agent(ScriptedModel([calls(1, 1, 1), "done"]), tools=[worker()], before_tool_call=before))
    await agent.prompt("Go.")
    if not probe.acted:
        assert ticks() == 5
        assert [message.error_kind for message in results(agent)] == [None, "blocked", None]


async def bad_arguments(probe: Probe) -> None:
    """Arguments that cannot be mended, mended ones, those that never were JSON, and a broken mender."""

    def mend(raw: Any) -> Any:
        if "broken" in raw:
            raise LookupError("no mender for this")
        return [] if "list" in raw else {**raw, "ticks": 1}

    schema = {"type": "object", "properties": {"ticks": {"type": "number"}}, "required": ["ticks"]}
    turn = [
        ToolCall("c1", "work", {"ticks": "often"}),
        ToolCall("c2", "mended", {}),
        ToolCall("c3", "mended", {"broken": 1}),
        ToolCall("c4", "mended", {"list": 1}),
        ToolCall("c5", "work", {}, arguments_error="it ends in the middle", raw_arguments='{"ticks'),
    ]
    tools = [worker(parameters=schema), worker("mended", parameters=schema, prepare_arguments=mend)]
    agent = probe.watch(Agent(ScriptedModel([AssistantMessage(turn, stop_reason="tool_use"), "done"]), tools=tools))
    await agent.prompt("Go.")
    if not probe.acted:
        kinds = [message.error_kind for message in results(agent)]
        assert kinds == ["invalid_arguments", None, "failed", "invalid_arguments", "invalid_arguments"]


# ----------------------------------------------------------------- updates


async def talkative_tools(probe: Probe) -> None:
    """Several updates of each tool, listeners that are slower: none is lost or doubled while nothing is cut."""
    told: list[str] = []

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        for number in range(4):
            await ctx.update(f"{ctx.tool_call_id} {number}")
        return f"done {ctx.tool_call_id}"

    async def listener(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate):
            await trio.sleep(TICK)
            told.append(event.partial_result.text)

    agent = probe.watch(Agent(ScriptedModel([calls(1, 1), "done"]), tools=[worker(execute=body)]))
    agent.subscribe(listener)

    @probe.check
    def _each_once_and_in_order() -> None:
        for call in ("c1", "c2"):
            of_call = [text for text in told if text.startswith(call)]
            assert of_call == [f"{call} {number}" for number in range(len(of_call))]

    await agent.prompt("Go.")
    if not probe.acted:
        assert sorted(told) == [f"c{call} {number}" for call in (1, 2) for number in range(4)]


async def update_right_before_the_return(probe: Probe) -> None:
    """A result waits until the update before it is told, and so does ``after_tool_call``."""
    order: list[str] = []

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await ctx.update("nearly")
        return "done"

    def after(done: AfterToolCallContext) -> None:
        order.append("after")

    async def listener(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate | ToolExecutionEnd):
            await trio.sleep(TICK)
            order.append(event.type)

    agent = probe.watch(Agent(ScriptedModel([calls(1), "done"]), tools=[worker(execute=body)], after_tool_call=after))
    agent.subscribe(listener)
    await agent.prompt("Go.")
    if not probe.acted:
        assert order == ["tool_execution_update", "after", "tool_execution_end"]


async def last_reports(probe: Probe) -> None:
    """``repeat_partial``: the result of a call that was cut carries its last report."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await ctx.update("half way")
        await trio.sleep(9 * TICK)
        return "done"

    agent = probe.watch(Agent(ScriptedModel([calls(1, 1), "done"]), tools=[worker(execute=body)], repeat_partial=True))

    async def canceller() -> None:
        await trio.sleep(TICK)
        agent.cancel_tool("c1", "too slow")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(canceller)
        await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent)["c2"] == "done"
        assert "cancelled while the tool ran: too slow" in texts(agent)["c1"]
        assert texts(agent)["c1"].endswith("Its last report was: half way")


async def plain_tools(probe: Probe) -> None:
    """Tools that are plain functions and report from their thread."""

    def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        ctx.update_from_thread("half way")
        return f"done {ctx.tool_call_id}"

    tools = [worker(execute=body), worker("here", execute=body, in_thread=False)]
    turn = [*calls(1, 1), *calls(1, name="here", first=3)]
    agent = probe.watch(Agent(ScriptedModel([turn, "done"]), tools=tools))
    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent) == {f"c{n}": f"done c{n}" for n in (1, 2, 3)}


# ------------------------------------------------------------------ nested


async def tools_that_call_tools(probe: Probe) -> None:
    """Nested calls with both hooks, some at the same time; a failing and a blocked one among them."""

    async def outer(arguments: dict[str, Any], ctx: ToolContext) -> str:
        found: list[str] = []

        async def one(name: str) -> None:
            outcome = await ctx.run_tool_call(name, {"ticks": 1})
            found.append(f"{name} {outcome.is_error}")

        async with trio.open_nursery() as nursery:
            for name in ("work", "failing", "blocked"):
                nursery.start_soon(one, name)
        return " ".join(sorted(found))

    async def failing(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await trio.sleep(TICK)
        raise ValueError("no")

    tools = [worker("outer", outer), worker(), worker("failing", failing), worker("blocked")]
    agent = probe.watch(
        Agent(
            ScriptedModel([calls(1, 1, name="outer"), "done"]),
            tools=tools,
            before_tool_call=slow_before,
            after_tool_call=slow_after,
        )
    )
    await agent.prompt("Go.")
    if not probe.acted:
        assert set(texts(agent).values()) == {"blocked True failing True work False"}


async def value_of_a_nested_call(probe: Probe) -> None:
    """When the outer call is cut, no value of the inner one reaches the outer tool."""
    values: list[int] = []

    async def outer(arguments: dict[str, Any], ctx: ToolContext) -> str:
        await ctx.run_tool_call("work", {"ticks": 1})
        values.append(probe.note())
        await trio.sleep(TICK)
        await ctx.run_tool_call("unknown")
        values.append(probe.note())
        return "done"

    @probe.check
    def _no_value_after_the_cut() -> None:
        for done in probe.done:
            if done.planned.act in ("abort", "cancel") and done.landed is not None:
                assert all(value < done.landed for value in values)

    tools = [worker("outer", outer), worker()]
    agent = probe.watch(Agent(ScriptedModel([calls(1, name="outer"), "done"]), tools=tools))
    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent) == {"c1": "done"}


async def a_limiter_that_is_held(probe: Probe) -> None:
    """A tool that would wait for itself through its own limiter gets an error result."""
    limiter = trio.CapacityLimiter(1)

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        outcome = await ctx.run_tool_call("work")
        return outcome.result.text

    agent = probe.watch(Agent(ScriptedModel([calls(1), "done"]), tools=[worker(execute=body, limiter=limiter)]))
    await agent.prompt("Go.")
    if not probe.acted:
        assert "it would wait for itself" in texts(agent)["c1"]


async def three_deep(probe: Probe) -> None:
    """An agent whose tool prompts an agent whose tool prompts an agent."""

    def asks(agent: Agent) -> Tool:
        async def ask(arguments: dict[str, Any], ctx: ToolContext) -> str:
            return (await agent.prompt("Go.")).text

        return worker("ask", ask)

    deepest = Agent(ScriptedModel([calls(1), "deepest"]), tools=[worker()])
    middle = Agent(ScriptedModel([calls(1, name="ask"), "middle"]), tools=[asks(deepest)])
    agent = probe.watch(Agent(ScriptedModel([calls(1, name="ask"), "done"]), tools=[asks(middle)]))
    # Only the outermost: to the others an abort of it is a cancellation.
    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent) == {"c1": "middle"}
        assert texts(middle) == {"c1": "deepest"}


# -------------------------------------------------------------- tool hooks


async def hooks_that_answer(probe: Probe) -> None:
    """``after_tool_call`` overrides good and bad results; no value that it redacts is seen anywhere else."""
    secret = "the tool's own words"

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        await trio.sleep(arguments["ticks"] * TICK)
        if ctx.tool_call_id == "c2":
            raise ValueError(secret)
        return ToolResult(secret, structured_content={"said": secret})

    agent = probe.watch(
        Agent(ScriptedModel([calls(1, 1, 3), "done"]), tools=[worker(execute=body)], after_tool_call=redact)
    )

    @probe.check
    def _secret_is_kept() -> None:
        assert not any(secret in message.text for message in results(agent) if message.error_kind is None)
        assert not any(message.text == secret for message in results(agent))

    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent) == {f"c{n}": f"redacted c{n}" for n in (1, 2, 3)}
        assert [message.is_error for message in results(agent)] == [False, False, False]


async def batches_that_terminate(probe: Probe) -> None:
    """``terminate`` of every result ends the run: said by the tool, by ``before_tool_call``, by the other hook."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult("done", terminate=ctx.tool_call_id == "c1")

    def before(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        blocked = question.tool_call.id == "c2"
        return BeforeToolCallResult(block=True, reason="no", terminate=True) if blocked else None

    def after(done: AfterToolCallContext) -> AfterToolCallResult | None:
        return AfterToolCallResult(terminate=True) if done.tool_call.id == "c3" else None

    model = ScriptedModel([calls(1, 1, 1), "more"])
    tools = [worker(execute=body)]
    agent = probe.watch(Agent(model, tools=tools, before_tool_call=before, after_tool_call=after))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "terminated"
        assert len(model.requests) == 1


async def failing_tools_in_order(probe: Probe) -> None:
    """A sequential batch: an exception with a text, one without, a value that becomes JSON."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> object:
        await trio.sleep(TICK)
        if ctx.tool_call_id == "c1":
            raise ValueError("one")
        if ctx.tool_call_id == "c2":
            raise LookupError
        return {"value": [1, None]}

    agent = probe.watch(
        Agent(ScriptedModel([calls(1, 1, 1), "done"]), tools=[worker(execute=body)], tool_execution="sequential")
    )
    await agent.prompt("Go.")
    if not probe.acted:
        assert [message.is_error for message in results(agent)] == [True, True, False]
        assert texts(agent)["c1"] == "one"
        assert texts(agent)["c2"] == "LookupError()"


async def sequential_with_hooks(probe: Probe) -> None:
    """A sequential batch in which every call is approved and seen afterwards; an unknown tool in the middle."""
    turn = [*calls(1), *calls(1, name="unknown", first=2), *calls(1, name="blocked", first=3), *calls(1, first=4)]
    tools = [worker(execution_mode="sequential"), worker("blocked")]
    agent = probe.watch(
        Agent(ScriptedModel([turn, "done"]), tools=tools, before_tool_call=slow_before, after_tool_call=redact)
    )
    await agent.prompt("Go.")
    if not probe.acted:
        assert texts(agent)["c1"] == "redacted c1"
        assert texts(agent)["c3"] == "not today"
        assert ticks() == 7


# ------------------------------------------------------------------ queues


def said(agent: Agent) -> list[str]:
    """What users said in a transcript."""
    return [message.text for message in agent.messages if isinstance(message, UserMessage)]


async def both_queues(probe: Probe) -> None:
    """Two messages in each queue before the run, and two more while it is on."""
    agent = probe.watch(Agent(ScriptedModel([calls(1), *["ok"] * 9]), tools=[worker()]))
    agent.steer(["steered 1", "steered 2"])
    agent.follow_up(["later 1", "later 2"])

    async def more() -> None:
        await trio.sleep(TICK / 2)
        agent.steer("steered 3")
        agent.follow_up("later 3")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(more)
        await agent.prompt("Go.")
    if not probe.acted:
        assert said(agent) == ["Go.", "steered 1", "steered 2", "steered 3", "later 1", "later 2", "later 3"]


async def everything_at_once(probe: Probe) -> None:
    """Mode ``all``: what is queued goes in together; what a cut gives back is in its order again."""
    model = ScriptedModel([calls(1), *["ok"] * 9])
    agent = probe.watch(Agent(model, tools=[worker()], steering_mode="all", follow_up_mode="all"))
    left: list[str] = []

    @probe.check
    def _in_order() -> None:
        assert left == sorted(left)

    async def more() -> None:
        await trio.sleep(TICK / 2)
        agent.steer(["steered 1", "steered 2", "steered 3"])
        agent.follow_up(["later 1", "later 2"])

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(more)
            await agent.prompt("Go.")
    finally:
        waiting = [message.text for message in agent.steering.peek() if isinstance(message, UserMessage)]
        left.extend(text for text in waiting if text.startswith("steered"))
    if not probe.acted:
        assert said(agent) == ["Go.", "steered 1", "steered 2", "steered 3", "later 1", "later 2"]
        assert len(model.requests) == 3


async def cleared_while_it_is_taken(probe: Probe) -> None:
    """What is cleared while a run has it does not come back when the run is cut."""
    agent = probe.watch(Agent(ScriptedModel(["never"]), steering_mode="all"))

    def listener(event: AgentEvent) -> None:
        if event.type == "message_start" and getattr(event.message, "text", "") == "steered 1":
            agent.clear_steering_queue()
            agent.abort("enough")

    agent.subscribe(listener)
    agent.steer(["steered 1", "steered 2", "steered 3"])
    await agent.prompt("Go.")
    if not probe.acted:
        assert said(agent) == ["Go.", "steered 1"]
        assert not agent.has_queued_messages()


async def bounded_queue(probe: Probe) -> None:
    """A queue of two: ``steer`` takes all or none, ``send`` waits for room."""
    sent: list[str] = []
    refused: list[Any] = []

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        for number in range(4):
            await agent.steering.send(UserMessage(f"sent {number}"))
            sent.append(f"sent {number}")
            if number < 1:
                agent.steer(["too", "many"])
        return "done"

    async def reader() -> None:
        while True:
            await trio.sleep(TICK)
            agent.steering.peek()  # makes room in the channel

    agent = probe.watch(
        Agent(ScriptedModel([calls(1), *["ok"] * 9]), tools=[worker(execute=body)], steering_capacity=2)
    )
    steer = agent.steer

    def steer_if_there_is_room(messages: Any) -> None:
        try:
            steer(messages)
        except QueueFullError:
            refused.append(messages)

    agent.steer = steer_if_there_is_room  # type: ignore[method-assign]  # an act knows no full queue
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await agent.prompt("Go.")
        nursery.cancel_scope.cancel(reason="the reader is not needed any more")
    if not probe.acted:
        assert sent == ["sent 0", "sent 1", "sent 2", "sent 3"]
        assert refused == [["too", "many"]]
        assert said(agent) == ["Go.", "sent 0", "sent 1", "sent 2", "sent 3"]


async def resumed(probe: Probe) -> None:
    """``resume`` on an answer takes steering, then a follow-up; on a user message it just goes on."""
    agent = probe.watch(Agent(ScriptedModel(["one", calls(1), *["ok"] * 9]), tools=[worker()]))
    await agent.prompt("Go.")
    if probe.acted and agent.last_result is not None and agent.last_result.end_reason != "done":
        return
    agent.steer(["steered 1", "steered 2"])
    agent.follow_up("later")
    await agent.resume()
    if not probe.acted:
        assert said(agent) == ["Go.", "steered 1", "steered 2", "later"]


async def loop_with_queues(probe: Probe) -> None:
    """A loop without an Agent whose queues are functions: one can take messages back, one cannot."""

    class Source:
        def __init__(self, messages: Sequence[AgentMessage]) -> None:
            self.messages = list(messages)
            self.polled = 0
            self.waited: list[tuple[int, int, float]] = []

        async def __call__(self) -> list[AgentMessage]:
            self.polled = probe.note()
            try:
                await trio.sleep(TICK)
            finally:
                self.waited.append((self.polled, probe.note(), trio.current_time()))
            taken, self.messages = self.messages[:2], self.messages[2:]
            return taken

        def put_back(self, messages: Sequence[AgentMessage]) -> None:
            self.messages[:0] = messages

    steering = Source([UserMessage(f"steered {n}") for n in (1, 2, 3)])
    later = [UserMessage("later 1"), UserMessage("later 2")]
    told: list[AgentMessage] = []

    def follow_ups(abort: Abort | None = None) -> list[AgentMessage]:
        assert abort is not None  # it may be requested already: an act at this hook comes before its body
        return [later.pop(0)] if later else []

    def emit(event: AgentEvent) -> None:
        if event.type == "message_end":
            told.append(event.message)

    config = LoopConfig(
        model=ScriptedModel([calls(1), *["ok"] * 9]), get_steering_messages=steering, get_follow_up_messages=follow_ups
    )

    @probe.check
    def _steered_messages_are_somewhere_once() -> None:
        everywhere = [*told, *steering.messages]
        names = sorted(m.text for m in everywhere if isinstance(m, UserMessage) and m.text.startswith("steered"))
        assert names == ["steered 1", "steered 2", "steered 3"] or probe.acted
        assert len(names) == len(set(names))

    @probe.check
    def _not_read_after_an_abort() -> None:
        for done in probe.done:
            if done.planned.act == "abort":
                assert done.position > steering.polled
                # And what was asked already is cut at once.
                assert not any(a < done.position < b and at > done.time for a, b, at in steering.waited)

    new = await probe.run_loop([UserMessage("Go.")], AgentContext((), [worker()]), config, emit)
    if not probe.acted:
        assert [m.text for m in new if isinstance(m, UserMessage)] == [
            "Go.",
            "steered 1",
            "steered 2",
            "steered 3",
            "later 1",
            "later 2",
        ]


# ------------------------------------------------------------- turn hooks


async def turns_that_go_on_and_end(probe: Probe) -> None:
    """``finish_turn`` wants one more request twice, then ends the run; queued messages stay queued."""
    answers = {1: "continue", 2: "continue", 4: "end"}
    turns = 0

    async def finish(turn: AgentTurnContext) -> Any:
        nonlocal turns
        turns += 1
        await trio.lowlevel.checkpoint()
        return answers.get(turns)

    model = ScriptedModel(["one", "two", calls(1), calls(1, first=2), "never"])
    agent = probe.watch(Agent(model, tools=[worker()], finish_turn=finish))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "finish_turn"
        assert len(model.requests) == 4


async def turns_that_are_prepared(probe: Probe) -> None:
    """``prepare_next_turn`` appends messages and changes tools, model and context; a system message declares it."""
    second = ScriptedModel([*["ok"] * 9], id="second")
    prepared = 0

    async def prepare(turn: AgentTurnContext) -> AgentLoopTurnUpdate | None:
        nonlocal prepared
        prepared += 1
        await trio.lowlevel.checkpoint()
        if prepared > 1:
            return None
        context = AgentContext(turn.context.messages, [*turn.context.tools, worker("another")])
        messages = (UserMessage("prepared 1"), UserMessage("prepared 2"))
        return AgentLoopTurnUpdate(context, messages, second, "high")

    model = ScriptedModel([calls(1)])
    agent = probe.watch(Agent(model, tools=[worker()], prepare_next_turn=prepare))
    agent.follow_up("later")
    await agent.prompt("Go.")
    if not probe.acted:
        assert said(agent) == ["Go.", "prepared 1", "prepared 2", "later"]
        assert [request.thinking_level for request in second.requests] == ["high", "high"]


async def stopped_after_its_turn(probe: Probe) -> None:
    """``stop_after_turn`` in a batch: the turn finishes, no request follows, the queues are left alone."""
    model = ScriptedModel([calls(2), "never"])
    agent = probe.watch(Agent(model, tools=[worker()]))
    agent.follow_up("later")

    async def stop() -> None:
        await trio.sleep(TICK)
        agent.stop_after_turn()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "stop_after_turn"
        assert texts(agent) == {"c1": "done c1"}
        assert len(agent.follow_ups) == 1


async def hooks_that_take_time(probe: Probe) -> None:
    """Every hook takes a tick: an abort cuts the preparing ones at once, and lets the closing ones finish."""

    def slow(answer: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def hook(argument: Any) -> Any:
            await trio.sleep(TICK)
            return answer(argument)

        return hook

    model = ScriptedModel([calls(1), "done"])
    agent = Agent(model, tools=[worker()], get_api_key=slow(lambda provider: "key"))
    for name in ("transform_context", "convert_to_llm"):
        setattr(agent, name, slow(lambda messages: messages))
    for name in ("prepare_request", "prepare_next_turn", "finish_turn", "before_tool_call", "after_tool_call"):
        setattr(agent, name, slow(lambda argument: None))
    probe.watch(agent)
    await agent.prompt("Go.")
    if not probe.acted:
        assert [request.api_key for request in model.requests] == ["key", "key"]
        assert ticks() == 14


async def answers_of_hooks_behind_an_abort(probe: Probe) -> None:
    """Plain hooks that answer although the run was aborted while they were asked: it does not count."""
    second = ScriptedModel([calls(1, first=2), "done"], id="second")
    turns = 0

    def prepare(turn: AgentTurnContext) -> AgentLoopTurnUpdate | None:
        return AgentLoopTurnUpdate(model=second) if turn.message.model != "second" else None

    def finish(turn: AgentTurnContext) -> Any:
        nonlocal turns
        turns += 1
        return "end" if turns == 2 else None

    def before(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(block=True, reason="no") if question.tool_call.id == "c2" else None

    model = ScriptedModel([calls(1)])
    agent = probe.watch(
        Agent(model, tools=[worker()], prepare_next_turn=prepare, finish_turn=finish, before_tool_call=before)
    )

    @probe.check
    def _nothing_of_it_counts() -> None:
        aborts = [done for done in probe.done if done.planned.act == "abort" and done.in_span is not None]
        if len(probe.done) != 1 or not aborts:
            return
        name = aborts[0].in_span.name if aborts[0].in_span is not None else ""
        tail = probe.watches[0].runs[0].messages[-1]  # the agent has been prompted again since
        assert isinstance(tail, AssistantMessage)
        assert tail.stop_reason == "aborted"
        if name == "prepare_next_turn" and turns < 2:
            assert tail.model != "second"
        if name == "before_tool_call":
            assert "no" not in texts(agent).values()

    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "finish_turn"
        assert texts(agent) == {"c1": "done c1", "c2": "no"}


async def decision_behind_an_abort(probe: Probe) -> None:
    """``finish_turn`` aborts the run and then decides that it ends: the run is aborted, and the record says so."""

    def finish(turn: AgentTurnContext) -> Any:
        agent.abort("enough")
        return "end"

    agent = probe.watch(Agent(ScriptedModel([calls(1), "never"]), tools=[worker()], finish_turn=finish))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "aborted"
        assert isinstance(agent.messages[-1], AssistantMessage)
        assert agent.messages[-1].stop_reason == "aborted"


# -------------------------------------------------------------- interrupts


async def interrupted_batch(probe: Probe) -> None:
    """A batch is interrupted: one call is over, two run, one waits; the run goes on with the message."""
    async with busy_limiter() as waits:
        turn = [*calls(1, 5, 5), *calls(5, name="waits", first=4)]
        model = ScriptedModel([turn, calls(1, first=5), *["ok"] * 9])
        agent = probe.watch(Agent(model, tools=[worker(), waits], after_tool_call=slow_after))
        agent.follow_up("later")

        async def interrupt() -> None:
            await trio.sleep(1.5 * TICK)
            agent.steer("steered")
            agent.interrupt("Stop that.")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            result = await agent.prompt("Go.")
        if not probe.acted:
            assert said(agent) == ["Go.", "Stop that.", "steered", "later"]
            kinds = [message.error_kind for message in results(agent)]
            assert kinds == [None, "aborted", "aborted", "not_started", None]
            assert "Operation interrupted while the tool ran: a new message came in" in texts(agent)["c2"]
            assert result.end_reason == "done"


async def interrupted_answer(probe: Probe) -> None:
    """A response is interrupted while it streams, and the next one, too."""
    model = ScriptedModel(["one two three four", "five six seven eight", *["ok"] * 9], delay=TICK)
    agent = probe.watch(Agent(model))

    async def interrupt() -> None:
        for number in (1, 2):
            await trio.sleep(3.5 * TICK)
            agent.interrupt(f"Stop {number}.")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        await agent.prompt("Go.")
    if not probe.acted:
        assert said(agent) == ["Go.", "Stop 1.", "Stop 2."]
        reasons = [message.stop_reason for message in agent.messages if isinstance(message, AssistantMessage)]
        assert reasons == ["aborted", "aborted", "stop"]


async def long_answer(probe: Probe) -> None:
    """A model that is far ahead of slow listeners: what was accepted and not told when it is cut is dropped."""
    told: list[int] = []

    async def listener(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate):
            told.append(probe.note())
            await trio.sleep(TICK)

    agent = probe.watch(Agent(ScriptedModel([" ".join(["word"] * 40), *["ok"] * 9])))
    agent.subscribe(listener)

    @probe.check
    def _nothing_is_told_after_the_cut() -> None:
        run = probe.watches[0].runs[0] if probe.watches[0].runs else None
        for done in probe.done:
            cut = done.planned.act == "abort" and run is not None and len(probe.done) == 1
            if cut and run is not None and run.spans and (run.spans[0].how != "returned"):
                # The event that is being told goes to the listeners behind.
                assert sum(position > done.position for position in told) <= 1

    await agent.prompt("Go.")
    if not probe.acted:
        assert len(told) > 40


async def interrupted_before_the_first_step(probe: Probe) -> None:
    """A response that is interrupted before the model's first step is not asked for."""
    before: list[int] = []
    due = trio.Event()
    model = ScriptedModel(["ok"] * 20)

    def prepare(context: Any) -> None:
        due.set()

    async def interrupt() -> None:
        await due.wait()
        before.append(len(model.requests))
        agent.interrupt("Stop that.")

    agent = probe.watch(Agent(model, prepare_request=prepare))
    async with trio.open_nursery() as nursery:
        for _ in range(4):  # of several tasks some run before the model's, whatever the order
            nursery.start_soon(interrupt)
        await trio.testing.wait_all_tasks_blocked()
        await agent.prompt("Go.")
        nursery.cancel_scope.cancel(reason="whoever still waits is not needed")
    if not probe.acted and probe.case.mode == "plain" and 0 in before:
        # One for each message that came in, and none for the first.
        assert len(model.requests) == len(said(agent)) - 1


async def interrupted_then_aborted(probe: Probe) -> None:
    """An abort right behind an interrupt wins, and the message stays queued."""
    agent = probe.watch(Agent(ScriptedModel([calls(5), *["ok"] * 9]), tools=[worker()]))

    async def cut() -> None:
        await trio.sleep(TICK)
        agent.interrupt("Stop that.")
        agent.abort("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await agent.prompt("Go.")
    if not probe.acted:
        assert said(agent) == ["Go."]
        assert len(agent.steering) == 1
        assert agent.last_result is not None
        assert agent.last_result.end_reason == "aborted"


async def cancelled_calls(probe: Probe) -> None:
    """``cancel_tool`` of a call that runs, of one that waits and of one whose body is over."""
    answers: list[bool] = []
    async with busy_limiter() as waits:
        model = ScriptedModel([[*calls(1, 5, 5), *calls(2, name="waits", first=4)], "done"])
        agent = probe.watch(Agent(model, tools=[worker(), waits], after_tool_call=slow_after))

        async def cancel() -> None:
            await trio.sleep(0.5 * TICK)
            answers.append(agent.cancel_tool("c4", "not this one"))
            await trio.sleep(TICK)
            answers.extend(agent.cancel_tool(name, "enough") for name in ("c1", "c2", "nobody"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            await agent.prompt("Go.")
        if not probe.acted:
            assert answers == [True, False, True, False]
            assert [message.error_kind for message in results(agent)] == [None, "aborted", None, "not_started"]
            assert ticks() == 6


async def interrupted_approval(probe: Probe) -> None:
    """An interrupt does not wait for the approval that is pending."""

    async def before(question: BeforeToolCallContext) -> None:
        await trio.sleep(9 * TICK)

    model = ScriptedModel([calls(1, 1), *["ok"] * 9])
    agent = probe.watch(Agent(model, tools=[worker()], before_tool_call=before))

    async def interrupt() -> None:
        await trio.sleep(TICK)
        agent.interrupt("Stop that.")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        await agent.prompt("Go.")
    if not probe.acted:
        assert ticks() == 1
        assert [message.error_kind for message in results(agent)] == ["not_started", "not_started"]


async def first_cause_stands(probe: Probe) -> None:
    """A call that unwinds behind a shield is cut once more, for another reason: its result names the first."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3 * TICK)
        await trio.lowlevel.checkpoint()
        return "done"

    agent = probe.watch(Agent(ScriptedModel([calls(1), "never"]), tools=[worker(execute=body)]))

    async def cut() -> None:
        await trio.sleep(TICK)
        agent.cancel_tool("c1", "too slow")
        await trio.sleep(TICK)
        agent.abort("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await agent.prompt("Go.")
    if not probe.acted:
        assert "cancelled while the tool ran: too slow" in texts(agent)["c1"]
        assert ticks() == 3


# --------------------------------------------------- blocks and listeners


async def block_left_early(probe: Probe) -> None:
    """``agent.run()``: its block is left while tools run, and at every other moment."""
    agent = probe.watch(Agent(ScriptedModel([calls(1, 2), "done"]), tools=[worker()], after_tool_call=slow_after))
    async with agent.run("Go.") as run:
        with probe.leaving():
            async for _ in run:
                await trio.lowlevel.checkpoint()
    if not probe.acted:
        assert run.result.text == "done"


async def failing_listeners(probe: Probe) -> None:
    """Two listeners raise at the same event, in the middle of a batch: the first is raised, both are told all."""
    told: list[str] = []
    failed: list[int] = []

    def first(event: AgentEvent) -> None:
        told.append(event.type)
        if isinstance(event, ToolExecutionEnd):
            failed.append(probe.note())
            raise ValueError("first")  # noqa: TRY004 - an error of a host

    def second(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            raise LookupError("second")  # noqa: TRY004 - an error of a host

    agent = probe.watch(Agent(ScriptedModel([calls(1, 3), "never"]), tools=[worker()], after_tool_call=slow_after))
    agent.subscribe(first)
    agent.subscribe(second)
    raised: list[BaseException] = []

    @probe.check
    def _the_failure_is_raised() -> None:
        """Also where the host's cancellation came before it, or comes after it (design 7.6)."""
        act = probe.done[0].planned.act if len(probe.done) == 1 else ""
        if failed and act in ("abort", "cancel", "deadline", "cancel_tool", "interrupt"):
            assert repr(raised) == "[ValueError('first')]"
            cancelled = act == "cancel" and probe.done[0].position < failed[0]
            if cancelled and agent.last_result is not None and probe.watches[0].runs:
                end = probe.watches[0].runs[0].events[-1]
                assert isinstance(end, AgentEnd)
                assert end.end_reason == "cancelled"
                assert isinstance(raised[0].__context__, trio.Cancelled)

    try:
        await agent.prompt("Go.")
    except (ValueError, LookupError) as error:
        raised.append(error)
    if not probe.acted:
        assert repr(raised) == "[ValueError('first')]"
        assert getattr(raised[0], "__notes__", [])[:1] == ["also failed: LookupError('second')"]
        assert told[-1] == "agent_end"
        assert agent.last_result is not None
        assert agent.last_result.end_reason == "error"


async def failing_model(probe: Probe) -> None:
    """A model that fails in the middle of its text, and one whose answer hits its limit with calls in it."""

    async def breaks(request: Any, sink: Any) -> AssistantMessage:
        inner = ScriptedModel(["half of it"])

        class Part:
            sent = 0

            async def send(self, event: Any) -> None:
                self.sent += 1
                if self.sent > 3:
                    raise ConnectionError("the line is dead")
                await sink.send(event)

        return await inner.stream_fn(request, Part())  # type: ignore[arg-type]  # a sink that breaks

    truncated = AssistantMessage([TextContent("See: "), *calls(1, 1)], stop_reason="length")
    model = ScriptedModel([truncated, breaks])
    agent = probe.watch(Agent(model, tools=[worker()]))
    result = await agent.prompt("Go.")
    if not probe.acted:
        assert result.end_reason == "error"
        assert isinstance(result.exception, ConnectionError)
        assert [message.error_kind for message in results(agent)] == ["truncated", "truncated"]
        assert result.text.startswith("half")


async def slow_listeners(probe: Probe) -> None:
    """Listeners that take their time with every event, longer together than the grace."""

    async def listener(event: AgentEvent) -> None:
        await trio.sleep(0.6)

    agent = probe.watch(Agent(ScriptedModel([calls(1, 9), "done"]), tools=[worker()]))
    agent.subscribe(listener)

    @probe.check
    def _closing_is_bounded() -> None:
        runs = probe.watches[0].runs
        for done in probe.done:
            hard = done.planned.act in ("cancel", "deadline") and len(probe.done) == 1
            # The listener that is being told an event, a tool that unwinds at once, and the grace.
            if hard and runs and done.run is runs[0] and runs[0].over is not None:
                assert ended[0] - done.time <= agent.closing_grace + 1e-9

    ended: list[float] = []
    try:
        await agent.prompt("Go.")
    finally:
        ended.append(trio.current_time())


async def listeners_with_a_grace(probe: Probe) -> None:
    """What closing tells is told to the end: only the listener that was cut half-way does not get through."""
    began: list[str] = []
    through: list[str] = []

    async def listener(event: AgentEvent) -> None:
        began.append(event.type)
        await trio.sleep(TICK / 10)
        through.append(event.type)

    agent = probe.watch(Agent(ScriptedModel([calls(1, 9), "done"]), tools=[worker()]))
    agent.subscribe(listener)

    @probe.check
    def _at_most_one_is_cut() -> None:
        if len(probe.done) == 1 and probe.case.mode != "slow":
            assert len(began) - len(through) <= 1

    await agent.prompt("Go.")
    if not probe.acted:
        assert began == through


async def shielded_tool(probe: Probe) -> None:
    """A tool whose clean-up is shielded, one that answers its cut with an error, one that swallows nothing."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        try:
            await trio.sleep(9 * TICK)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(TICK)
                # The second waits for the first, which nobody tells if the run has failed.
                await ctx.update("cleaning up")
                await ctx.update("cleaned up")
        return "done"

    async def replaces(arguments: dict[str, Any], ctx: ToolContext) -> str:
        try:
            await trio.sleep(9 * TICK)
        except BaseException:
            raise ValueError("in place of it") from None  # noqa: ASYNC104 - the fault that this host is about
        return "done"

    tools = [worker(execute=body), worker("replaces", replaces)]
    turn = [*calls(1), *calls(1, name="replaces", first=2)]
    agent = probe.watch(Agent(ScriptedModel([turn, "never"]), tools=tools))

    async def cut() -> None:
        await trio.sleep(TICK)
        agent.abort("enough")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await agent.prompt("Go.")
    if not probe.acted:
        assert ticks() == 2
        assert "ValueError: in place of it" in texts(agent)["c2"]
        assert all("aborted while the tool ran: enough" in text for text in texts(agent).values())


async def reports_that_nobody_hears(probe: Probe) -> None:
    """A listener fails at the first update of a tool that reports on from its shield: the tool does not hang."""

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> str:
        with trio.CancelScope(shield=True):
            for number in range(3):
                await ctx.update(f"report {number}")
                await trio.lowlevel.checkpoint()
        return "done"

    def listener(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionUpdate):
            raise ValueError("no reports")  # noqa: TRY004 - an error of a host

    agent = probe.watch(Agent(ScriptedModel([calls(1), "never"]), tools=[worker(execute=body)]))
    agent.subscribe(listener)
    raised: list[str] = []
    try:
        await agent.prompt("Go.")
    except ValueError as error:
        raised.append(str(error))
    if not probe.acted:
        assert raised == ["no reports"]
        assert [*texts(agent)] == ["c1"]


HOSTS: tuple[Callable[[Probe], Awaitable[None]], ...] = (
    one_at_a_time,
    limiters_and_time_limits,
    time_limit_and_hook,
    limit_of_turns,
    limit_of_turns_not_hit,
    limit_of_calls,
    limit_of_seconds,
    limit_of_seconds_not_hit,
    limit_of_seconds_behind_an_abort,
    prepared_side_by_side,
    approved_one_by_one,
    bad_arguments,
    talkative_tools,
    update_right_before_the_return,
    last_reports,
    plain_tools,
    tools_that_call_tools,
    value_of_a_nested_call,
    a_limiter_that_is_held,
    three_deep,
    hooks_that_answer,
    batches_that_terminate,
    failing_tools_in_order,
    sequential_with_hooks,
    both_queues,
    everything_at_once,
    cleared_while_it_is_taken,
    bounded_queue,
    resumed,
    loop_with_queues,
    turns_that_go_on_and_end,
    turns_that_are_prepared,
    stopped_after_its_turn,
    hooks_that_take_time,
    answers_of_hooks_behind_an_abort,
    decision_behind_an_abort,
    interrupted_batch,
    interrupted_answer,
    long_answer,
    interrupted_then_aborted,
    interrupted_before_the_first_step,
    cancelled_calls,
    first_cause_stands,
    interrupted_approval,
    block_left_early,
    failing_listeners,
    failing_model,
    slow_listeners,
    listeners_with_a_grace,
    shielded_tool,
    reports_that_nobody_hears,
)
"""All of them."""


# -------------------------------------------------------------- invariants


def one_record(probe: Probe) -> None:
    """Why a run was cut stands in the transcript once (design 7.4)."""
    for watch in probe.watches:
        for run in watch.runs:
            for one, other in itertools.pairwise(run.messages):
                if isinstance(one, AssistantMessage) and isinstance(other, AssistantMessage):
                    text = one.error_message
                    assert text is None or text != other.error_message, f"two messages say {text!r}"


def answers_that_were_complete(probe: Probe) -> None:
    """An answer that was complete before the cut is kept, and one that came after it does not count (design 7.4)."""
    if len(probe.done) != 1 or probe.done[0].run is None:
        return
    (done,) = probe.done
    complete: Counter[tuple[str, StopReason]] = Counter()
    too_late: list[tuple[str, StopReason]] = []
    for span in probe.done[0].run.spans:
        if span.kind == "request" and span.how == "returned" and span.ended is not None:
            answer = (span.value.text, span.value.stop_reason)
            if done.planned.act == "interrupt" and done.position < span.began:
                continue  # it may have cut the response before the model's first step
            if not span.began < done.position < span.ended:
                complete[answer] += 1
            elif done.planned.act in ("abort", "cancel"):
                too_late.append(answer)
    answers = [message for message in probe.done[0].run.messages if isinstance(message, AssistantMessage)]
    kept = Counter((message.text, message.stop_reason) for message in answers)
    for answer, count in complete.items():
        assert kept[answer] >= count, f"the answer {answer[0]!r:.40} was complete and is not kept"
    for answer in too_late:
        assert kept[answer] <= complete[answer], f"the answer {answer[0]!r:.40} came after the cut and is kept"


INVARIANTS: tuple[Callable[[Probe], object], ...] = (one_record, answers_that_were_complete)
"""Checks that the kit's own invariants do not make."""
