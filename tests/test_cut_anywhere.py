"""A run that is cut at each step of Trio's scheduler, from the first to the last: the invariants hold (design 7.9).

Nothing here sleeps: hooks, listeners, tools and the model yield to the scheduler and go on, and a task
beside them counts the steps until it cuts. The scheduler is seeded, so a failure comes again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
from invariants import assert_nothing_lost, assert_works_again
from kit import Log, Recorder, assert_run, call, kind, story, texts, user
from trio.testing import MockClock

from trio_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    StreamSink,
    Tool,
    ToolContext,
    ToolResultMessage,
)
from trio_agent.testing import ScriptedModel, seeded_scheduler

MODES: dict[str, dict[str, Any]] = {
    "parallel": {},
    "parallel-preparation": {"tool_preparation": "parallel"},
    "sequential": {"tool_execution": "sequential"},
    "one-slot": {"max_parallel_tools": 1},
}
every_mode = pytest.mark.parametrize("mode", MODES)

CLOSING = ("after_tool_call", "finish_turn")


async def step() -> None:
    await trio.lowlevel.checkpoint()


class Scene:
    """An agent on which everything yields to the scheduler once or more, with messages in both queues."""

    def __init__(self, **settings: Any) -> None:
        self.log = Log()
        self.entered: list[str] = []
        self.scope = trio.CancelScope()
        self.cancelled = False
        """Whether prompt() raised Cancelled."""
        self.begun_before = 0
        """How long the log was when the run was cut."""
        calls = [call("a"), call("b"), call("d")]
        self.model = ScriptedModel([self._answer(calls), self._answer([]), self._answer([call("a2", "a")])])
        self.model.extend([self._answer([])] * 3)
        tools = [Tool("a", execute=self._a), Tool("b", execute=self._b), Tool("c", execute=self._c)]
        self.agent = Agent(
            self.model,
            tools=[*tools, Tool("d", execute=self._d)],
            transform_context=self._passes("transform_context"),
            prepare_request=self._hook("prepare_request"),
            prepare_next_turn=self._hook("prepare_next_turn"),
            finish_turn=self._hook("finish_turn"),
            before_tool_call=self._hook("before_tool_call"),
            after_tool_call=self._hook("after_tool_call"),
            **settings,
        )
        self.first = Recorder(self.agent)
        self.told: list[AgentEvent] = []
        self.agent.subscribe(self._listen)
        self.last = Recorder(self.agent)
        self.queued = [user("steered one"), user("steered two"), user("follow-up")]
        self.agent.steer(self.queued[:2])
        self.agent.follow_up(self.queued[2])

    def _answer(self, calls: list[Any]) -> Callable[[ModelRequest, StreamSink], Any]:
        async def answer(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
            self.log("request")
            builder = MessageBuilder(request)
            await step()
            await sink.send(builder.start())
            await sink.send(builder.text_start())
            for word in ("One ", "two."):
                await step()
                await sink.send(builder.text_delta(word))
            await sink.send(builder.text_end())
            for one in calls:
                await sink.send(builder.tool_call_start(one.id, one.name))
                await step()
                await sink.send(builder.tool_call_end(arguments={}))
            await step()
            return builder.finish("tool_use" if calls else "stop")

        return answer

    async def _a(self, args: Any, ctx: ToolContext) -> str:
        self._enter(ctx)
        await step()
        await ctx.update("half")
        await step()
        await ctx.update("more")
        return "a done"

    async def _b(self, args: Any, ctx: ToolContext) -> str:
        self._enter(ctx)
        outcome = await ctx.run_tool_call("c")
        await step()
        return f"b with {outcome.result.text}"

    async def _c(self, args: Any, ctx: ToolContext) -> str:
        self._enter(ctx)
        await step()
        return "c done"

    async def _d(self, args: Any, ctx: ToolContext) -> str:
        self._enter(ctx)
        await step()
        raise ValueError("d broken")

    def _enter(self, ctx: ToolContext) -> None:
        self.log(f"tool {ctx.tool_call_id}")
        self.entered.append(ctx.tool_call_id)

    def _hook(self, name: str) -> Callable[[Any], Any]:
        async def hook(argument: Any) -> None:
            self.log(name)
            await step()

        return hook

    def _passes(self, name: str) -> Callable[[Any], Any]:
        async def hook(argument: Any) -> Any:
            self.log(name)
            await step()
            return argument

        return hook

    async def _listen(self, event: AgentEvent) -> None:
        self.told.append(event)
        if event.type != "message_update":
            await step()

    def assert_invariants(self) -> None:
        assert_run(self.first, self.entered)
        assert self.last.events == self.first.events
        assert self.told == self.first.events, "the async listener missed an event, or was told it twice"
        assert_nothing_lost(self.agent, self.queued)


async def cut_at(number: int, scene: Scene, act: Callable[[], object]) -> bool:
    """Prompt, and do something at a step of the scheduler; whether ``agent_end`` had been told by then."""
    late: list[bool] = []

    async def run() -> None:
        with scene.scope:
            try:
                await scene.agent.prompt("Go.")
            except trio.Cancelled:
                scene.cancelled = True
                raise

    async def count() -> None:
        for _ in range(number):
            await step()
        late.append(bool(scene.first.of("agent_end")))
        act()
        scene.begun_before = len(scene.log.texts)

    with seeded_scheduler(number):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            nursery.start_soon(count)
    return late[0]


async def at_every_step(mode: str, check: Callable[[int, Scene], Any]) -> int:
    """Call a check with a fresh scene for each step, until it says that the run had ended; how many there were.

    At step 0 the counter might come before the run.
    """
    for number in range(1, 1000):
        if await check(number, Scene(**MODES[mode])):
            return number
    raise AssertionError("the run has no end")


@every_mode
async def test_an_abort_at_any_step(mode: str, autojump_clock: MockClock) -> None:
    async def check(number: int, scene: Scene) -> bool:
        late = await cut_at(number, scene, lambda: scene.agent.abort("why"))
        assert not scene.cancelled
        scene.assert_invariants()
        begun = scene.log.texts[scene.begun_before :]
        assert [text for text in begun if text not in CLOSING] == [], f"begun after the abort at step {number}"
        result = scene.agent.last_result
        assert result is not None
        assert result.end_reason == ("done" if late else "aborted"), f"step {number}"
        if number % 10 == 0:
            await assert_works_again(scene.agent, scene.model)
        return late

    assert await at_every_step(mode, check) > 60


@every_mode
async def test_a_host_cancellation_at_any_step(mode: str, autojump_clock: MockClock) -> None:
    async def check(number: int, scene: Scene) -> bool:
        late = await cut_at(number, scene, lambda: scene.scope.cancel(reason="the test"))
        scene.assert_invariants()
        assert scene.log.texts[scene.begun_before :] == [], f"begun after the cancellation at step {number}"
        assert late or scene.cancelled, f"prompt() returned after the cancellation at step {number}"
        result = scene.agent.last_result
        assert result is not None
        assert result.end_reason == ("done" if late else "cancelled"), f"step {number}"
        if number % 10 == 0:
            await assert_works_again(scene.agent, scene.model)
        return late

    assert await at_every_step(mode, check) > 60


@every_mode
async def test_an_interrupt_at_any_step(mode: str, autojump_clock: MockClock) -> None:
    async def check(number: int, scene: Scene) -> bool:
        message = user("interrupting")
        late = await cut_at(number, scene, lambda: scene.agent.interrupt(message))
        assert_nothing_lost(scene.agent, [message])
        scene.assert_invariants()
        result = scene.agent.last_result
        assert result is not None
        assert result.end_reason == "done"
        assert (message in scene.agent.messages) is not late, f"step {number}: a run that goes on takes the message"
        return late

    assert await at_every_step(mode, check) > 60


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("call_id", ["a", "b", "d"])
async def test_cancel_tool_at_any_step_says_what_it_did(call_id: str, mode: str, autojump_clock: MockClock) -> None:
    """False: the result is what it would have been. True: it says that it was cut, unless the tool returned all the same.

    (It had been woken in the same step, and had no checkpoint any more: it keeps its value, 7.9.) The run goes on.
    """
    whole = {"a": "a ok 'a done'", "b": "b ok 'b with c done'", "d": "d error 'd broken'"}

    async def check(number: int, scene: Scene) -> bool:
        answers: list[bool] = []
        late = await cut_at(number, scene, lambda: answers.append(scene.agent.cancel_tool(call_id, "not this one")))
        scene.assert_invariants()
        results = {m.tool_call_id: m for m in scene.agent.messages if isinstance(m, ToolResultMessage)}
        for other in {"a", "b", "d"} - {call_id}:
            assert story([results[other]]) == [whole[other]]
        was_cut = results[call_id].error_kind in ("aborted", "not_started")
        if was_cut:
            assert answers == [True], f"step {number}"
            assert "not this one" in results[call_id].text
        else:
            assert story([results[call_id]]) == [whole[call_id]], f"step {number}"
        cut.append((answers[0], was_cut))
        return late

    cut: list[tuple[bool, bool]] = []
    await at_every_step(mode, check)
    assert cut.count((True, True)) > 3
    assert cut.count((False, False)) > 3
    assert cut.count((True, False)) < 3


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
async def test_a_message_at_any_step_is_taken_or_the_run_had_ended(queue: str, autojump_clock: MockClock) -> None:
    """Last look (7.9): what is queued before agent_end is applied is not left behind by a run that ends by itself."""

    async def check(number: int, scene: Scene) -> bool:
        message = user("just in time")

        def act() -> None:
            (scene.agent.steer if queue == "steer" else scene.agent.follow_up)(message)

        late = await cut_at(number, scene, act)
        scene.assert_invariants()
        assert_nothing_lost(scene.agent, [message])
        assert (message in scene.agent.messages) is not late, f"step {number}"
        return late

    assert await at_every_step("parallel", check) > 60


async def press_at(number: int, mode: str, kept: dict[str, Any]) -> None:
    """Prompt in Trio's main task, and let SIGINT come at a step of the scheduler if the run lasts until then."""
    scene = kept["scene"] = Scene(**MODES[mode])

    @trio.lowlevel.enable_ki_protection
    async def press() -> None:
        for _ in range(number):
            await step()
        if scene.agent.state.is_streaming:
            kept["pressed"] = True
            signal.raise_signal(signal.SIGINT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        try:
            await scene.agent.prompt("Go.")
        except BaseException as error:
            kept["raised"] = error
            raise


@every_mode
def test_a_key_interrupt_at_any_step(mode: str, sigint: None) -> None:
    """A real SIGINT, which Trio hands to the run's own task: bare, and the invariants hold."""
    steps = 0
    for number in range(1, 1000):
        kept: dict[str, Any] = {}
        came_out: BaseException | None = None
        with seeded_scheduler(number):
            try:
                trio.run(press_at, number, mode, kept, clock=MockClock(autojump_threshold=0))
            except (BaseExceptionGroup, KeyboardInterrupt) as error:
                came_out = error
        if isinstance(came_out, BaseExceptionGroup):  # the nursery of this test wraps what prompt() raised
            assert came_out.split(KeyboardInterrupt)[1] is None
        scene: Scene = kept["scene"]
        scene.assert_invariants()
        if "pressed" not in kept:
            break
        if "raised" in kept:
            assert type(kept["raised"]) is KeyboardInterrupt, f"step {number}"
            steps += 1
    assert steps > 60


async def test_the_scene_is_whole_when_nobody_cuts_it(autojump_clock: MockClock) -> None:
    scene = Scene()
    await scene.agent.prompt("Go.")
    assert texts(scene.agent.messages) == ["Go.", "steered one", "steered two", "follow-up"]
    assert scene.entered.count("a") == 1
    assert "a2" in scene.entered
    assert "b/1" in scene.entered
    assert kind(scene.first.events[-1]) == "agent_end"
    scene.assert_invariants()
