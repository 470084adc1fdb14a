"""Every place of a run x every cause that can cut it: what the transcript says, and all invariants (design 7).

The run of :class:`stage.Stage` is held at one place from the moment it is reached until second 10; the
cause comes at second 2. The stories below leave out the prompt, which always comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from invariants import assert_idle, assert_nothing_lost, assert_works_again, waiting
from kit import Act, Play, act, assert_run, story, user
from stage import CUT, HELD_UNTIL, Stage
from trio.testing import MockClock

CALLS = "assistant tool_use 'Let me see.' c1 c2"
DONE = "assistant stop 'Done.'"
RECORD = "assistant aborted ''"
FAILURE = "assistant error ''"
STOP = "user Stop."
C1 = "c1 ok 'fast result'"
C2 = "c2 ok 'slow result'"
OFF1 = "c1 not_started"
OFF2 = "c2 not_started"
CUT1 = "c1 aborted"
CUT2 = "c2 aborted"
HID1 = "c1 withheld"
HID2 = "c2 withheld"

WHOLE = [CALLS, C1, C2, DONE]


@attrs.frozen
class Place:
    """One place, and what comes of a cut there."""

    name: str
    aborted: Sequence[str]
    """The story after an abort; and after a host's cancellation, but for ``withheld``."""
    interrupted: Sequence[str]
    """The story after ``interrupt("Stop.")``."""
    cuttable: bool = False
    """An abort reaches what is held here; else it waits (listeners and closing hooks)."""
    withheld: Sequence[str] | None = None
    """The story after a host's cancellation, where a result had to be withheld."""
    c2: str | None = None
    """What ``cancel_tool("c2")`` makes of c2; None where it finds nothing to cancel."""
    works: bool = True
    """An interrupt finds a response or batch open here."""

    def __str__(self) -> str:
        return self.name


def listener(name: str, aborted: Sequence[str], interrupted: Sequence[str], **more: Any) -> Place:
    return Place(f"listener {name}", aborted, interrupted, **more)


AT_START = ([RECORD], [STOP, *WHOLE])  # an interrupt equals steer: it goes in before the first request
BEFORE_REQUEST = ([RECORD], [CALLS, C1, C2, STOP, DONE])
NOTHING_RAN = ([CALLS, OFF1, OFF2, RECORD], [CALLS, OFF1, OFF2, STOP, DONE])
ALL_RAN = ([CALLS, C1, C2, RECORD], [CALLS, C1, C2, STOP, DONE])
ANSWERED = (WHOLE, [*WHOLE, STOP, DONE])

PLACES = [
    listener("agent_start", *AT_START, works=False),
    listener("turn_start", *AT_START, works=False),
    listener("message_start user", *AT_START, works=False),
    listener("message_end user", *AT_START, works=False),
    Place("prepare_request", *BEFORE_REQUEST, cuttable=True, works=False),
    Place("transform_context", *BEFORE_REQUEST, cuttable=True, works=False),
    Place("convert_to_llm", *BEFORE_REQUEST, cuttable=True, works=False),
    Place("get_api_key", *BEFORE_REQUEST, cuttable=True, works=False),
    Place("stream: first byte", [RECORD], [RECORD, STOP, DONE], cuttable=True),
    Place(
        "stream: mid text", ["assistant aborted 'Let me '"], ["assistant aborted 'Let me '", STOP, DONE], cuttable=True
    ),
    # All was sent, but the message was not returned: it is a cut message, its calls need no results (B08).
    Place(
        "stream: all sent",
        ["assistant aborted 'Let me see.' c1 c2"],
        ["assistant aborted 'Let me see.' c1 c2", STOP, DONE],
        cuttable=True,
    ),
    # The stream function sends without a checkpoint and has returned while these are told.
    listener("message_start assistant", *NOTHING_RAN),
    listener("message_update", *NOTHING_RAN),
    # Between response and batch neither is open: an interrupt equals steer (7.8).
    listener("message_end assistant", [CALLS, OFF1, OFF2, RECORD], [CALLS, C1, C2, STOP, DONE], works=False),
    listener("tool_execution_start c1", *NOTHING_RAN, c2=OFF2),
    Place("before_tool_call c1", *NOTHING_RAN, cuttable=True, c2=OFF2),
    listener("tool_execution_start c2", *NOTHING_RAN, c2=OFF2),
    Place("before_tool_call c2", *NOTHING_RAN, cuttable=True, c2=OFF2),
    Place("tool c1", [CALLS, CUT1, C2, RECORD], [CALLS, CUT1, C2, STOP, DONE], cuttable=True),
    Place("limiter c2", [CALLS, C1, OFF2, RECORD], [CALLS, C1, OFF2, STOP, DONE], cuttable=True, c2=OFF2),
    Place("tool c2", [CALLS, C1, CUT2, RECORD], [CALLS, C1, CUT2, STOP, DONE], cuttable=True, c2=CUT2),
    # c2 returns while its update waits for the listener: after_tool_call comes behind it (6).
    listener("tool_execution_update c2", *ALL_RAN, withheld=[CALLS, C1, HID2, RECORD]),
    listener("tool_execution_end c1", *ALL_RAN, withheld=[CALLS, C1, HID2, RECORD]),
    Place("after_tool_call c1", *ALL_RAN, withheld=[CALLS, HID1, C2, RECORD]),
    Place("after_tool_call c2", *ALL_RAN, withheld=[CALLS, C1, HID2, RECORD]),
    listener("tool_execution_end c2", *ALL_RAN),
    listener("message_start c1", *ALL_RAN),
    listener("message_end c1", *ALL_RAN),
    listener("message_start c2", *ALL_RAN),
    listener("message_end c2", *ALL_RAN),
    Place("finish_turn", *ALL_RAN, works=False),
    listener("turn_end", *ALL_RAN, works=False),
    Place("prepare_next_turn", *ALL_RAN, cuttable=True, works=False),
    # Steering was looked at before this turn began: what comes now waits for the next (5).
    listener("turn_start again", [CALLS, C1, C2, RECORD], [*WHOLE, STOP, DONE], works=False),
    Place("prepare_request again", [CALLS, C1, C2, RECORD], [*WHOLE, STOP, DONE], cuttable=True, works=False),
    Place("stream: second request", [CALLS, C1, C2, RECORD], [CALLS, C1, C2, RECORD, STOP, DONE], cuttable=True),
    # After a complete answer without calls a cut leaves no record (7.4).
    listener("message_start assistant again", *ANSWERED),
    listener("message_end assistant again", *ANSWERED, works=False),
    Place("finish_turn again", *ANSWERED, works=False),
    listener("turn_end again", *ANSWERED, works=False),
]

AT_THE_END = listener("agent_end", WHOLE, WHOLE, works=False)
"""The run has ended: nothing is changed any more, and an interrupt stays queued."""

every_place = pytest.mark.parametrize("place", [*PLACES, AT_THE_END], ids=str)
MODES: dict[str, dict[str, Any]] = {
    "parallel": {},
    "parallel preparation": {"tool_preparation": "parallel"},
    "sequential": {"tool_execution": "sequential"},
}


def staged(place: Place, error: BaseException | None = None, **settings: Any) -> Stage:
    stage = Stage(place.name, error, **settings)
    if place.name == "limiter c2":
        stage.hold_limiter()
        stage.log.entries.append((0.0, "limiter c2"))
    return stage


async def played(stage: Stage, *timeline: tuple[float, Act]) -> Play:
    return await Play(lambda: stage.agent.prompt("Go."), *timeline).run()


def assert_invariants(stage: Stage) -> None:
    """What holds after every run of a stage, however it ended."""
    assert stage.reached, "the run never came to the place that it was to be cut at"
    assert_run(stage.first, stage.entered)
    assert stage.last.events == stage.first.events, "a listener missed an event or was told it twice"
    assert stage.told == stage.first.events, "the async listener missed an event or was told it twice"


def told_story(stage: Stage) -> list[str]:
    told = story(stage.agent.messages)
    assert told[0] == "user Go."
    return told[1:]


# ----------------------------------------------------- causes from outside


@every_place
async def test_a_run_that_nobody_cuts_is_whole(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    release = (HELD_UNTIL, lambda: stage.limiter.release_on_behalf_of(stage))
    play = await played(stage, *([release] if place.name == "limiter c2" else []))
    assert told_story(stage) == WHOLE
    assert play.returned(stage.agent).end_reason == "done"
    assert HELD_UNTIL <= play.ended <= HELD_UNTIL + 0.5
    assert_invariants(stage)


@every_place
async def test_an_abort_closes_the_run_and_the_call_returns(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    steered = user("Steered.")
    play = await played(stage, (CUT / 2, lambda: stage.agent.steer(steered)), (CUT, lambda: stage.agent.abort("why")))
    assert told_story(stage) == place.aborted
    result = play.returned(stage.agent)
    assert result.end_reason == ("done" if place is AT_THE_END else "aborted")
    assert result.exception is None
    # At once: no virtual time passes but for listeners and closing hooks.
    assert play.ended == (CUT if place.cuttable else HELD_UNTIL)
    assert stage.begun_since(CUT) == []
    assert waiting(stage.agent) == [steered]
    assert_nothing_lost(stage.agent, [steered])
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


@every_place
async def test_a_host_scope_closes_the_run_and_cancelled_passes(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    steered = user("Steered.")
    play = await played(stage, (CUT / 2, lambda: stage.agent.steer(steered)), (CUT, "cancel"))
    assert told_story(stage) == (place.withheld or place.aborted)
    play.assert_cancelled()
    assert play.ended == CUT
    assert stage.begun_since(CUT) == []
    assert stage.closing_hooks_since(CUT) == []
    assert waiting(stage.agent) == [steered]
    assert_nothing_lost(stage.agent, [steered])
    assert_invariants(stage)
    result = stage.agent.last_result
    assert result is not None
    assert result.end_reason == ("done" if place is AT_THE_END else "cancelled")
    assert result.exception is None
    await assert_works_again(stage.agent, stage.model)


@every_place
async def test_a_deadline_is_a_host_scope(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)

    async def start() -> None:
        with trio.fail_after(CUT):
            await stage.agent.prompt("Go.")

    play = await Play(start).run()
    assert isinstance(play.error, trio.TooSlowError)
    assert play.ended == CUT
    assert told_story(stage) == (place.withheld or place.aborted)
    assert stage.begun_since(CUT) == []
    assert_invariants(stage)


@every_place
async def test_a_crash_beside_the_run_is_a_host_scope(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    raised: list[BaseException] = []

    async def crash() -> None:
        await trio.sleep(CUT)
        raise OSError("the host's own")

    async def run() -> None:
        try:
            await stage.agent.prompt("Go.")
        except BaseException as error:
            raised.append(error)
            raise

    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="the host's own")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            nursery.start_soon(run)
    (error,) = raised
    assert isinstance(error, trio.Cancelled)
    assert told_story(stage) == (place.withheld or place.aborted)
    assert stage.begun_since(CUT) == []
    assert_invariants(stage)


@every_place
@pytest.mark.parametrize("first", ["abort", "cancel"])
async def test_abort_and_host_cancellation_at_the_same_moment(
    place: Place, first: str, autojump_clock: MockClock
) -> None:
    """They leave the transcript that either leaves, withheld values apart, and Cancelled passes (7.4, 7.1)."""
    stage = staged(place)

    def both() -> None:
        if first == "abort":
            stage.agent.abort("why")
        play.scope.cancel(reason="the test")
        stage.agent.abort("why")

    play = Play(lambda: stage.agent.prompt("Go."), (CUT, both))
    await play.run()
    play.assert_cancelled()
    assert told_story(stage) == (place.withheld or place.aborted)
    assert play.ended == CUT
    assert stage.begun_since(CUT) == []
    assert stage.closing_hooks_since(CUT) == []
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


@every_place
async def test_an_interrupt_cuts_the_work_and_the_run_goes_on(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    message = user("Stop.")
    play = await played(stage, (CUT, lambda: stage.agent.interrupt(message)))
    assert told_story(stage) == place.interrupted
    assert play.error is None
    assert play.result.end_reason == "done"
    if place.cuttable and place.works:
        assert play.ended == CUT
    else:
        assert HELD_UNTIL <= play.ended <= HELD_UNTIL + 0.5
    assert waiting(stage.agent) == ([message] if place is AT_THE_END else [])
    assert_nothing_lost(stage.agent, [message])
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


@every_place
async def test_cancel_tool_cuts_one_call_and_the_run_goes_on(place: Place, autojump_clock: MockClock) -> None:
    stage = staged(place)
    answers: list[bool] = []
    play = await played(stage, (CUT, lambda: answers.append(stage.agent.cancel_tool("c2", "why"))))
    assert answers == [place.c2 is not None]
    assert told_story(stage) == [CALLS, C1, place.c2 or C2, DONE]
    assert play.result.end_reason == "done"
    assert_invariants(stage)


@pytest.mark.parametrize("mode", MODES)
@every_place
async def test_the_invariants_hold_in_every_mode(place: Place, mode: str, autojump_clock: MockClock) -> None:
    """The stories differ between the modes, the invariants do not."""
    for cause in ("abort", "cancel", "interrupt"):
        stage = staged(place, **MODES[mode])
        play = await played(stage, (CUT, act(stage.agent, cause)))
        assert_invariants(stage)
        assert isinstance(play.error, trio.Cancelled) == (cause == "cancel")
        if cause != "interrupt":
            assert stage.begun_since(CUT) == []
        assert_idle(stage.agent)
        await assert_works_again(stage.agent, stage.model)


# ----------------------------------------------- what is raised at the place

every_own_place = pytest.mark.parametrize(
    "place", [place for place in [*PLACES, AT_THE_END] if place.name != "limiter c2"], ids=str
)


@every_own_place
async def test_a_keyboard_interrupt_is_a_cut_from_outside_and_comes_out_bare(
    place: Place, autojump_clock: MockClock
) -> None:
    interrupt = KeyboardInterrupt()
    stage = staged(place, interrupt)
    play = await played(stage)
    assert play.error is interrupt
    assert play.ended == CUT
    assert told_story(stage) == (place.withheld or place.aborted)
    assert stage.begun_since(CUT) == []
    assert stage.closing_hooks_since(CUT) == []
    result = stage.agent.last_result
    assert result is not None
    assert result.exception is interrupt
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


def failed_story(place: Place) -> Sequence[str]:
    """What a failure in the run's own task leaves: as a host's cancellation does, but for the record."""
    if place is AT_THE_END:
        return WHOLE
    told = place.withheld or place.aborted
    if told == WHOLE:
        return [*WHOLE, FAILURE]
    return [FAILURE if line == RECORD else line for line in told]


@pytest.mark.parametrize("place", [p for p in [*PLACES, AT_THE_END] if p.name.startswith("listener")], ids=str)
async def test_a_failing_listener_closes_the_run_and_its_exception_comes_out(
    place: Place, autojump_clock: MockClock
) -> None:
    error = ValueError("broken")
    stage = staged(place, error)
    play = await played(stage)
    assert play.error is error
    assert not isinstance(error.__context__, trio.Cancelled)
    assert play.ended == CUT
    assert told_story(stage) == failed_story(place)
    assert stage.begun_since(CUT) == []
    assert stage.closing_hooks_since(CUT) == []
    result = stage.agent.last_result
    assert result is not None
    assert result.exception is error
    if place is not AT_THE_END:
        assert result.end_reason == "error"
        assert result.message is not None
        assert result.message.error_message == "broken"
        assert stage.agent.state.error_message == "broken"
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


HOOKS = (
    "prepare_request",
    "transform_context",
    "convert_to_llm",
    "get_api_key",
    "finish_turn",
    "prepare_next_turn",
    "prepare_request again",
    "finish_turn again",
)


@pytest.mark.parametrize("place", [place for place in PLACES if place.name in HOOKS], ids=str)
async def test_a_failing_hook_closes_the_run_and_the_agent_returns(
    place: Place, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("broken")
    stage = staged(place, error)
    play = await played(stage)
    assert play.error is None
    assert play.result.exception is error
    assert play.result.end_reason == "error"
    assert play.result.message.error_message == "broken"
    assert play.ended == CUT
    assert told_story(stage) == failed_story(place)
    assert stage.begun_since(CUT) == []
    assert stage.closing_hooks_since(CUT) == []
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("before_tool_call c1", [CALLS, "c1 error 'broken'", C2, DONE]),
        ("before_tool_call c2", [CALLS, C1, "c2 error 'broken'", DONE]),
        ("tool c1", [CALLS, "c1 error 'broken'", C2, DONE]),
        ("tool c2", [CALLS, C1, "c2 error 'broken'", DONE]),
        ("after_tool_call c1", [CALLS, "c1 error 'broken'", C2, DONE]),
        ("after_tool_call c2", [CALLS, C1, "c2 error 'broken'", DONE]),
        ("stream: first byte", ["assistant error ''"]),
        ("stream: mid text", ["assistant error 'Let me '"]),
        ("stream: all sent", ["assistant error 'Let me see.' c1 c2"]),
        ("stream: second request", [CALLS, C1, C2, "assistant error ''"]),
    ],
)
async def test_failures_of_tools_their_hooks_and_the_model_are_told_to_the_transcript(
    name: str, told: Sequence[str], autojump_clock: MockClock
) -> None:
    error = ValueError("broken")
    stage = Stage(name, error)
    play = await played(stage)
    assert play.error is None
    assert told_story(stage) == told
    if name.startswith("stream"):
        assert play.result.exception is error
        assert play.result.end_reason == "error"
        assert play.result.message.error_message == "broken"
        assert stage.begun_since(CUT) == []
    else:
        assert play.result.exception is None
        assert play.result.end_reason == "done"
    assert_invariants(stage)
    await assert_works_again(stage.agent, stage.model)
