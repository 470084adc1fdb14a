"""The exploration kit: it counts the same places each time, finds what is broken, and says so in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trio_agent._batch as batch_module
import trio_agent._closing as closing_module
import trio_agent._loop as loop_module
import trio_agent._response as response_module
from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentEnd,
    LoopConfig,
    TextContent,
    ToolCall,
    ToolContext,
    ToolExecutionStart,
    UsageError,
    UserMessage,
    tool,
)
from trio_agent._abort import Cut, Piece
from trio_agent._call import Caller
from trio_agent._open import Batch, Record, error_result
from trio_agent._run import Run
from trio_agent._state import AgentState
from trio_agent.testing import (
    ACTS,
    INVARIANTS,
    MODES,
    Case,
    Exploration,
    PlannedAct,
    Probe,
    Scenario,
    SchedulerError,
    ScriptedModel,
    explore,
    scenario_host,
)
from trio_agent.testing import _scheduler as scheduler
from trio_agent.testing._explore._explore import Plan, cases, quiet
from trio_agent.testing._explore._run import run_case

HERE = Path(__file__).parent / "conformance"
Host = Callable[[Probe], Awaitable[object]]


def recorded(name: str) -> Host:
    return scenario_host(Scenario.load(HERE / "scenarios" / f"{name}.json"))


def agent_of(probe: Probe, *turns: Any, tools: Sequence[Any] = (), **settings: Any) -> Agent:
    return probe.watch(Agent(ScriptedModel(list(turns)), tools=tools, **settings))


@tool
async def work(seconds: float = 1) -> str:
    await trio.sleep(seconds)
    return "worked"


@tool
async def report(ctx: ToolContext) -> str:
    await ctx.update("half")
    await trio.sleep(1)
    return "reported"


async def plain_host(probe: Probe) -> None:
    calls = [ToolCall("c1", "work", {}), ToolCall("c2", "report", {})]
    agent = agent_of(probe, calls, "Done.", "Again.", "Again.", tools=[work, report])
    agent.follow_up("And then?")
    await agent.prompt("Go.")


# ----------------------------------------------------------------- places


def test_every_moment_of_a_host_is_cut_in_every_way() -> None:
    seen: list[int] = []
    exploration = explore(plain_host, progress=lambda so_far: seen.append(so_far.runs))
    exploration.raise_for_failures()
    assert exploration.steps > 10
    assert exploration.places > 30
    assert exploration.runs == len(seen) == seen[-1]
    # Each act at each place, but for raise, which needs code to be raised in; both calls are cancelled.
    acts = len(ACTS) - 1  # no block to leave
    assert exploration.runs == 1 + exploration.steps * acts + exploration.places * (acts + 1)
    assert exploration.missed == 0


def test_an_exploration_repeats_itself() -> None:
    def run() -> Exploration:
        return explore(plain_host, acts=["abort"], seeds=2, schedules=2, pairs=5, modes=MODES, sample=10)

    assert str(run()) == str(run())
    assert run().runs == 12 * 16  # three modes, four orders, each: undisturbed, ten acts, five pairs


def test_a_sample_is_drawn_of_all_single_acts() -> None:
    assert explore(plain_host, sample=25).runs == 26


PLACES = json.loads((HERE / "places.json").read_text())


def test_the_places_of_every_scenario_are_on_record() -> None:
    assert {path.stem for path in (HERE / "scenarios").glob("*.json")} == PLACES.keys()


@pytest.mark.parametrize("name", PLACES)
def test_a_scenario_has_as_many_places_as_are_on_record(name: str) -> None:
    """Fewer would mean that events, hooks or tool steps are no longer seen; more are put on record."""
    assert explore(recorded(name), only=Case()).places == PLACES[name]


# ------------------------------------------------------------------ cases


@pytest.mark.parametrize(
    "text",
    [
        "seed=0",
        "abort@step:17 seed=3",
        "cancel_tool=c1@at:4 abort@+2 seed=0",
        "key@at:9 schedule=4/57",
        "steer@step:1 cancel@+0 seed=1 mode=slow without=c1,c2",
    ],
)
def test_a_case_is_one_line_and_back(text: str) -> None:
    assert str(Case.parse(text)) == text
    assert Case.parse(str(Case.parse(text))) == Case.parse(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("abort", "'abort' is no part of a case"),
        ("abort@later", "'abort@later' is no part"),
        ("jump@step:1", "'jump'"),
        ("abort@+2", "stands first"),
        ("cancel_tool@step:1", "names a call"),
        ("abort=c1@step:1", "names a call"),
        ("mode=fast", "'mode=fast'"),
        ("schedule=1", "'schedule=1'"),
        ("seed=x", "'seed=x'"),
    ],
)
def test_a_line_that_is_no_case_is_refused(text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        explore(plain_host, only=text)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"acts": ["jump"]}, "'jump'"),
        ({"modes": ["fast"]}, "'fast'"),
        ({"seeds": -1}, "-1"),
        ({"sample": 0}, "sample is 0"),
        ({"only": Case((PlannedAct("abort"),))}, "place of its own"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        explore(plain_host, **settings)
    assert named in str(caught.value)


def test_a_host_that_watches_nothing_is_refused() -> None:
    async def host(probe: Probe) -> None:
        await Agent(ScriptedModel(["Hi."])).prompt("Go.")

    with pytest.raises(UsageError, match=r"watches no agent: call probe\.watch"):
        explore(host)


async def test_inside_of_trio_it_is_refused() -> None:  # noqa: ASYNC124 - it is about where it runs
    with pytest.raises(UsageError, match="not from inside of Trio"):
        explore(plain_host)


# --------------------------------------------------------- what is found
# The library is broken on purpose, each time in another way, and each invariant is seen to fail.


def without_effect(*args: Any, **settings: Any) -> None:
    return None


async def a_checkpoint_first(run: Run, reason: Any) -> None:
    await trio.lowlevel.checkpoint()
    await _end(run, reason)


async def names_nothing(run: Run, reason: Any) -> None:
    run.record.end_reason = reason
    await run.emit(AgentEnd((), reason))


_end = loop_module._end
_reduce = AgentState._reduce
_final_message = closing_module.final_message
_missing_result = closing_module._missing_result


_NOTHING: Iterator[Any] = iter(())


async def to_the_first_that_fails(self: Run, more: Iterator[Any] = _NOTHING) -> None:
    while True:
        while self._next < len(self._queue):
            listener = self._queue[self._next]
            self._next += 1
            try:
                await listener.call(self._event, self.abort)
            except Exception as error:
                self._next = len(self._queue)
                self._note_failure(error)
                raise
        while isinstance(following := next(more, None), tuple):
            await following[0](*following[1])
        if following is None:
            return
        self._apply(following)


def behind_by_one(self: AgentState, event: Any) -> None:
    if type(event) is not ToolExecutionStart:
        _reduce(self, event)


def never_scopes(self: Batch, cut: Cut) -> None:
    for call in self.calls:
        call.cut = call.cut or cut


def says_more(record: Record, message: Any) -> Any:
    return attrs.evolve(_final_message(record, message), content=(*message.content, TextContent("P.S.")))


def in_a_group(self: Run) -> None:
    error = self.record.fatal or self.record.failure or self.record.cancelled
    if error is not None:
        raise BaseExceptionGroup("", [error])


def only_failures(self: Run) -> None:
    if self.record.failure is not None:
        raise self.record.failure


def never_started(record: Record, call: Any) -> Any:
    return error_result("The call never started.", "not_started")


def forgets_itself(self: Agent, run: Run, failed: BaseException | None) -> None:
    _agent_finish(self, run, failed)
    self._messages_at_end = list(self.messages)  # type: ignore[attr-defined]
    self.state._replace(self._messages_at_end[:-1])  # type: ignore[attr-defined]


_agent_finish = Agent._finish


def twice(self: Record) -> None:
    handed = list(self.handed)
    _give_back(self)
    for message in handed:
        self.config.get_steering_messages.put_front([message])  # type: ignore[union-attr]


_give_back = Record.give_back


async def cut_with_the_run(self: Any, call: Any, after: Any, result: Any) -> Any:
    with Piece(self.abort):
        return await _ask_after(self, call, after, result)
    return result


_ask_after = Caller._ask_after


def owes_nothing(self: Record) -> None:
    _close_batch(self)
    self.owed = False


_close_batch = Record.close_batch

BROKEN: list[tuple[str, Any, str, Any, str]] = [
    # invariant, where, what, by what it is replaced, host
    ("No message lost or doubled", Record, "give_back", without_effect, "steer_during_next_turn"),
    ("No message lost or doubled", Record, "give_back", twice, "steer_during_next_turn"),
    ("Last look", loop_module, "_end", a_checkpoint_first, "plain_prompt"),
    ("Increment", loop_module, "_end", names_nothing, "plain_prompt"),
    ("All told", Run, "emit_each", to_the_first_that_fails, "tool_round"),
    ("State first", AgentState, "_reduce", behind_by_one, "tool_round"),
    ("At once", Batch, "cut_off", never_scopes, "abort_parallel_tools"),
    ("Nothing begins", Run, "check", without_effect, "prepare_request_each"),
    ("Adds up", response_module, "final_message", says_more, "text_deltas"),
    ("Bare", Run, "_raise", in_a_group, "plain_prompt"),
    ("Cancelled passes", Run, "_raise", only_failures, "tool_round"),
    ("Truth", closing_module, "cut_result", never_started, "abort_parallel_tools"),
    ("Idle is idle", AgentState, "_finish", without_effect, "abort_parallel_tools"),
    ("Prompted again", Agent, "_finish", forgets_itself, "tool_round"),
    ("Paired", Run, "_close", None, "tool_round"),
    ("Answered", Record, "closed", None, "tool_round"),
    ("Record", Record, "close_batch", owes_nothing, "abort_parallel_tools"),
    ("Closing hooks", Caller, "_ask_after", cut_with_the_run, "abort_parallel_tools"),
    ("Causes", Record, "closing_reason", lambda self: "done", "tool_round"),
]


@pytest.mark.parametrize(("invariant", "where", "name", "instead", "host"), BROKEN)
def test_each_invariant_is_seen_to_fail_where_the_library_is_broken(  # noqa: PLR0917 - a table
    invariant: str, where: Any, name: str, instead: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if invariant == "Paired":

        async def close_nothing(self: Run) -> None:  # noqa: ASYNC124 - what it stands for is async
            self.record.ended = True

        instead = close_nothing
    if invariant == "Answered":
        name, where = "_missing_result", closing_module

        def instead(record: Record, call: Any) -> Any:
            yield from (_missing_result(record, call) if call.tool_call.id != "c1" else ())

    monkeypatch.setattr(where, name, instead)
    with quiet():
        base = run_case(recorded(host), Case(mode="checkpoints" if invariant == "Closing hooks" else "plain"))
        names = {one.invariant for one in base.violations}
        for case in cases(base, Plan(sample=600)):
            names |= {one.invariant for one in run_case(recorded(host), case).violations}
            if invariant in names:
                return
    pytest.fail(f"found only {names}")


def test_every_invariant_can_be_seen_to_fail() -> None:
    elsewhere = {"No orphan", "Terminates"}
    assert {row[0] for row in BROKEN} | elsewhere == set(INVARIANTS)


def test_work_that_outlives_its_run_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_soon(self: Any, nursery: trio.Nursery, call: Any) -> None:
        call.posts = self.posts
        self.running += 1
        trio.lowlevel.spawn_system_task(self.caller.execute, call)

    monkeypatch.setattr(batch_module._Runner, "_run_soon", run_soon)
    found = explore(recorded("abort_parallel_tools"), acts=["cancel"])
    assert "No orphan" in {one.invariant for one in (found.failures[0].violation, *found.failures[0].others)}


# ------------------------------------------------------------ endless hosts


async def deadlocked(probe: Probe) -> None:
    agent = agent_of(probe, ToolCall("c1", "work", {}), "Done.", tools=[work])
    result = await agent.prompt("Go.")
    if result.end_reason == "aborted":
        await trio.Event().wait()  # nobody will set it


async def endless(probe: Probe) -> None:
    agent = agent_of(probe, ToolCall("c1", "work", {}), "Done.", tools=[work])
    result = await agent.prompt("Go.")
    while result.end_reason == "aborted":  # noqa: ASYNC110 - what it waits for never comes
        await trio.sleep(1)


@pytest.mark.parametrize(("host", "why"), [(deadlocked, "nothing is due"), (endless, "50000 steps")])
def test_a_host_that_hangs_after_a_cut_is_stopped_and_told(host: Host, why: str) -> None:
    found = explore(host, acts=["abort"])
    assert found.failures[0].violation.invariant == "Terminates"
    assert why in found.failures[0].violation.difference


def test_a_model_that_always_calls_stops_at_the_end_of_a_scenario() -> None:
    # finish_turn says "continue" for ever once an act has led the run beyond its script.
    explore(recorded("finish_turn_continue"), acts=["steer", "follow_up"]).raise_for_failures()


# ------------------------------------------------------------------ reports


ACCOUNTS: dict[str, int] = {}


@tool
async def transfer(amount: int) -> str:
    ACCOUNTS["ours"] -= amount
    await trio.sleep(1)
    ACCOUNTS["theirs"] += amount
    return "transferred"


async def bank(probe: Probe) -> None:
    ACCOUNTS.update(ours=10, theirs=0)
    calls = [ToolCall("c1", "work", {}), ToolCall("c2", "transfer", {"amount": 3}), ToolCall("c3", "work", {})]
    agent = agent_of(probe, calls, "Done.", tools=[work, transfer])
    probe.check(lambda: ACCOUNTS["ours"] + ACCOUNTS["theirs"] == 10 or pytest.fail("money is gone"), "Money")
    await agent.prompt("Pay.")


def money(probe: Probe) -> None:
    assert sum(ACCOUNTS.values()) == 10, "money is gone"


def test_a_failure_says_where_what_and_how_it_is_repeated() -> None:
    (failure,) = explore(bank, acts=["abort"], invariants=[money]).failures
    text = str(failure)
    assert text.splitlines()[0] == "bank breaks the invariant 'money'"
    assert "what differs: money is gone" in text
    assert ">>> abort@" in text
    assert "transfer: await trio.sleep(1)" in text  # the line that was about to go on
    again = text.splitlines()[-1].strip()
    assert again == f'explore(bank, only="{failure.case}").raise_for_failures()'
    repeated = explore(bank, only=str(failure.case), invariants=[money])
    assert repeated.runs == 1
    assert repeated.failures[0].violation.invariant == "money"
    with pytest.raises(AssertionError, match="money is gone"):
        repeated.raise_for_failures()


def test_a_failure_is_made_smaller() -> None:
    """Of two acts one is enough, and of three tools the one that is at fault."""
    first = explore(bank, acts=["abort"], invariants=[money]).failures[0].case
    assert first.dropped == ("c1", "c3")
    pairs = (explore(bank, only=f"steer@at:3 abort@+{n} seed=5", invariants=[money]) for n in range(60))
    failure = next(found.failures[0] for found in pairs if found.failures)
    assert [act.act for act in failure.case.acts] == ["abort"]
    assert failure.case.seed == 0
    assert failure.case.dropped == ("c1", "c3")


def test_an_invariant_of_the_hosts_own_may_be_added_within_the_host() -> None:
    found = explore(bank, acts=["cancel"])
    assert found.failures[0].violation.invariant == "Money"


def test_what_a_host_raises_itself_is_told() -> None:
    async def host(probe: Probe) -> None:
        result = await agent_of(probe, "Hi.").prompt("Go.")
        assert result.text == "Hi.", "no answer"

    (failure,) = explore(host, acts=["abort"]).failures
    assert failure.violation.invariant == "Host"
    assert "no answer" in failure.violation.difference

    async def careful(probe: Probe) -> None:
        result = await agent_of(probe, "Hi.").prompt("Go.")
        if not probe.acted:
            assert result.text == "Hi."

    explore(careful).raise_for_failures()


def test_a_host_that_goes_another_way_each_time_is_told() -> None:
    async def host(probe: Probe) -> None:
        agent = agent_of(probe, ["Hm."] * random.randrange(1, 4))
        await agent.prompt("Go.")

    random.seed(1)
    found = explore(host, acts=["steer"], seeds=5)
    assert found.failures[0].violation.invariant == "Deterministic"


# ------------------------------------------------------------------- orders


def test_priority_schedules_find_an_order_that_seeds_rarely_hit() -> None:
    """The last of many tasks must go first: one order in a thousand, but one change of priorities."""

    def orders(**settings: Any) -> int:
        async def host(probe: Probe) -> None:
            agent = agent_of(probe, [ToolCall(f"c{n}", f"t{n}", {}) for n in range(6)], "Done.", tools=tools(probe))
            await agent.prompt("Go.")

        return len(explore(host, acts=[], stop_after=1000, **settings).failures)

    def tools(probe: Probe) -> list[Any]:
        done: list[int] = []
        probe.check(lambda: done.index(5) > 0 or pytest.fail("the last came first"), "Order")

        def make(n: int) -> Any:
            async def execute() -> str:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                done.append(n)
                return "ok"

            execute.__name__ = f"t{n}"
            return tool(execute)

        return [make(n) for n in range(6)]

    assert orders(seeds=0, schedules=100) > 5


def test_a_trio_that_keeps_its_parts_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_OF_TASKS", ("_abort_func", "_moved_elsewhere"))
    with pytest.raises(SchedulerError, match=rf"Trio {trio.__version__} has no Task\._moved_elsewhere"):
        explore(plain_host)


# ------------------------------------------------------------------ threads


def test_plain_tools_run_inline_and_report() -> None:
    seen: list[str] = []

    @tool
    def count(ctx: ToolContext) -> str:
        ctx.update_from_thread("one")
        ctx.update_from_thread("two")
        return "three"

    async def host(probe: Probe) -> None:
        agent = agent_of(probe, ToolCall("c1", "count", {}), "Done.", tools=[count])
        agent.subscribe(lambda event: seen.append(event.type))
        result = await agent.prompt("Go.")
        if not probe.acted:
            assert result.text == "Done."
            assert seen.count("tool_execution_update") == 2

    explore(host).raise_for_failures()


# --------------------------------------------------------------------- loops


def test_a_loop_without_an_agent_is_explored_with_the_acts_that_it_knows() -> None:
    async def host(probe: Probe) -> None:
        config = LoopConfig(model=ScriptedModel([ToolCall("c1", "work", {}), "Done."]))
        events: list[object] = []
        context = AgentContext([], [work])
        new = await probe.run_loop([UserMessage("Go.")], context, config, events.append, abort=Abort())
        if not probe.acted:
            assert [message.role for message in new] == ["system", "user", "assistant", "tool_result", "assistant"]

    exploration = explore(host)
    exploration.raise_for_failures()
    assert exploration.runs == 1 + exploration.steps * 4 + exploration.places * 5


def test_the_block_of_a_run_is_left() -> None:
    left: list[str] = []

    async def host(probe: Probe) -> None:
        agent = agent_of(probe, ToolCall("c1", "work", {}), "Done.", tools=[work])
        async with agent.run("Go.") as run:
            with probe.leaving():
                async for event in run:
                    if event.type == "agent_end":
                        return
        assert agent.last_result is not None
        left.append(agent.last_result.end_reason)

    exploration = explore(host, acts=["leave"])
    exploration.raise_for_failures()
    assert exploration.runs == 1 + exploration.steps + exploration.places
    assert left.count("aborted") > 10
