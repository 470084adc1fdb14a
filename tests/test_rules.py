"""The rules of a run's events and transcript: each finds each kind of breach, and none finds one in a real run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import pytest
from kit import Act, act, agent_of, call, calling, prompted, sleeper, user
from trio.testing import MockClock

from trio_agent import (
    Abort,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StopReason,
    StreamEvent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
)
from trio_agent.testing import InvariantError, assert_adds_up, assert_events_paired, assert_transcript_valid
from trio_agent.testing._rules import AddsUp, Answered, NothingBegins, Paired

Events = dict[str, AgentEvent]
Edit = Callable[[Events], Iterable[AgentEvent]]

# ------------------------------------------------------------ a good run


def streamed(name: str, builder: MessageBuilder, *steps: StreamEvent) -> tuple[Events, AssistantMessage]:
    """An answer: ``name`` is its start, ``name0`` ... what came, ``name.`` its end."""
    calls = any(step.type == "toolcall_start" for step in steps)
    message = builder.finish("tool_use" if calls else "stop")
    events: Events = {name: MessageStart(steps[0].partial)}
    events |= {f"{name}{number}": MessageUpdate(step) for number, step in enumerate(steps[1:])}
    # The start of the stream may be told as an update, too; it adds nothing.
    return {name: events.pop(name), f"{name}*": MessageUpdate(steps[0])} | events | {
        f"{name}.": MessageEnd(message)
    }, message


def good() -> Events:
    """A run with two calls, by names: a start and, with a full stop behind it, its end."""
    prompt = user("Go.")
    builder = MessageBuilder()
    first, asking = streamed(
        "answer",
        builder,
        builder.start(),
        builder.thinking_start(),
        builder.thinking_delta("Hm."),
        builder.thinking_end(),
        builder.text_start(),
        builder.text_delta("Let me "),
        builder.text_delta("look."),
        builder.text_end(),
        builder.tool_call_start("c1", "look"),
        builder.tool_call_delta('{"at": '),
        builder.tool_call_delta("1}"),
        builder.tool_call_end(),
        builder.tool_call_start("c2", "look"),
        builder.tool_call_end(arguments={"at": 2}),
    )
    builder = MessageBuilder()
    last, answer = streamed("last", builder, builder.start(), builder.text_start(), builder.text_delta("Done."))
    results = [ToolResultMessage(each, "look", "seen") for each in ("c1", "c2")]
    return {
        "run": AgentStart(),
        "turn": TurnStart(),
        "user": MessageStart(prompt),
        "user.": MessageEnd(prompt),
        **first,
        "c1": ToolExecutionStart("c1", "look", {"at": 1}),
        "c2": ToolExecutionStart("c2", "look", {"at": 2}),
        "c1+": ToolExecutionUpdate("c1", "look", {"at": 1}, ToolResult("half")),
        "c2.": ToolExecutionEnd("c2", "look", ToolResult("seen"), is_error=False),
        "c1.": ToolExecutionEnd("c1", "look", ToolResult("seen"), is_error=False),
        "r1": MessageStart(results[0]),
        "r1.": MessageEnd(results[0]),
        "r2": MessageStart(results[1]),
        "r2.": MessageEnd(results[1]),
        "turn.": TurnEnd(asking, tuple(results)),
        "turn2": TurnStart(),
        **last,
        "turn2.": TurnEnd(answer),
        "run.": AgentEnd((prompt, asking, *results, answer)),
    }


def without(*names: str) -> Edit:
    return lambda events: [event for name, event in events.items() if name not in names]


def twice(name: str) -> Edit:
    return lambda events: [event for key, event in events.items() for _ in range(1 + (key == name))]


def moved(name: str, behind: str) -> Edit:
    def edit(events: Events) -> list[AgentEvent]:
        event = events.pop(name)
        return [one for key, each in events.items() for one in ([each, event] if key == behind else [each])]

    return edit


def changed(name: str, **fields: Any) -> Edit:
    return lambda events: (events | {name: attrs.evolve(events[name], **fields)}).values()


def ended(name: str, change: Callable[[AssistantMessage], AssistantMessage]) -> Edit:
    """The end of an answer tells another message."""

    def edit(events: Events) -> Iterable[AgentEvent]:
        end = events[name]
        assert isinstance(end, MessageEnd)
        assert isinstance(end.message, AssistantMessage)
        return (events | {name: MessageEnd(change(end.message))}).values()

    return edit


def with_block(index: int, **fields: Any) -> Edit:
    """The end of the first answer tells another block."""

    def change(message: AssistantMessage) -> AssistantMessage:
        blocks = list(message.content)
        blocks[index] = attrs.evolve(blocks[index], **fields)
        return attrs.evolve(message, content=blocks)

    return ended("answer.", change)


def with_results(*ids: str) -> Edit:
    """The first turn ends with these results."""

    def edit(events: Events) -> Iterable[AgentEvent]:
        end = events["turn."]
        assert isinstance(end, TurnEnd)
        results = tuple(ToolResultMessage(each, "look", "seen") for each in ids)
        return (events | {"turn.": attrs.evolve(end, tool_results=results)}).values()

    return edit


def stopped(reason: StopReason) -> Edit:
    """The first turn ends with an answer that stopped otherwise."""

    def edit(events: Events) -> Iterable[AgentEvent]:
        end = events["turn."]
        assert isinstance(end, TurnEnd)
        return (events | {"turn.": attrs.evolve(end, message=attrs.evolve(end.message, stop_reason=reason))}).values()

    return edit


def doubled_result(events: Events) -> list[AgentEvent]:
    found: list[AgentEvent] = []
    for name, event in events.items():
        found.append(event)
        if name == "r1.":
            found += [events["r1"], events["r1."]]
    return found


def nothing(events: Events) -> list[AgentEvent]:
    return []


# --------------------------------------------------------------- breaches

PAIRED: list[tuple[Edit, str]] = [
    (without("run"), r"event 1 \(turn_start\) comes outside of a run"),
    (twice("run"), r"event 2 \(agent_start\) comes within a run"),
    (without("turn"), r"event 2 \(message_start\) comes outside of a turn"),
    (twice("turn"), r"event 3 \(turn_start\) comes within a turn"),
    (without("turn."), r"\(turn_start\) comes within a turn"),
    (without("turn2."), r"\(agent_end\) comes within a turn"),
    (twice("turn2."), r"\(turn_end\) comes outside of a turn"),
    (moved("c1+", "turn."), r"\(tool_execution_update\) comes outside of a turn"),
    (twice("run."), r"\(agent_end\) comes outside of a run"),
    (moved("turn", "run."), r"event 2 \(message_start\) comes outside of a turn"),
    (without("run."), r"there is no agent_end after \d+ events"),
    (nothing, r"there is no agent_end after 0 events"),
    (without("answer"), r"event 5 \(message_update\) belongs to no answer"),
    (moved("answer0", "answer."), r"\(message_update\) belongs to no answer"),
    (moved("answer0", "user"), r"event 4 \(message_update\) belongs to no answer"),
    (twice("user"), r"event 4 \(message_start\) comes within a message"),
    (without("user."), r"event 4 \(message_start\) comes within a message"),
    (without("user"), r"event 3 \(message_end\) ends another message than the one that started"),
    (twice("user."), r"event 5 \(message_end\) ends another message than the one that started"),
    (changed("user.", message=user("Go.")), r"\(message_end\) ends another message than the one that started"),
    (changed("r1", message=ToolResultMessage("c1", "look", "seen")), r"\(message_end\) ends another message"),
    (without("last", "last*", "last0", "last1"), r"\(message_end\) ends an answer that has not started"),
    (twice("last."), r"\(message_end\) ends an answer that has not started"),
    (moved("user.", "answer"), r"\(message_start\) comes within a message"),
    (twice("c1"), r"starts 'c1' for the second time"),
    (without("c1"), r"\(tool_execution_update\) is about 'c1', which is not open"),
    (without("c2"), r"\(tool_execution_end\) is about 'c2', which is not open"),
    (without("c1."), r"\(turn_end\) comes while \['c1'\] have started and not ended"),
    (twice("c1."), r"\(tool_execution_end\) is about 'c1', which is not open"),
    (moved("c1+", "c1."), r"\(tool_execution_update\) is about 'c1', which is not open"),
    (moved("c1.", "turn2"), r"\(turn_end\) comes while \['c1'\] have started and not ended"),
    (without("r1", "r1."), r"after the calls \['c1', 'c2'\], but results of \['c2'\]"),
    (without("c2", "c2."), r"after the calls \['c1'\], but results of \['c1', 'c2'\]"),
    (doubled_result, r"results of \['c1', 'c1', 'c2'\]"),
    (with_results("c1", "c2"), r"\(turn_end\) lists other results than were told"),
    (with_results(), r"\(turn_end\) lists other results than were told"),
    (changed("turn.", message=AssistantMessage()), r"\(turn_end\) names another answer than the last that was told"),
    (without("r2."), r"\(turn_end\) comes within a message"),
]


def whole(change: Callable[[AssistantMessage], AssistantMessage], *between: AgentEvent) -> Edit:
    """An answer that is complete at its start."""
    message = AssistantMessage([TextContent("Done.")])
    return lambda events: [MessageStart(message), *between, MessageEnd(change(message))]


def unfinished(**arguments: Any) -> Edit:
    """An answer that is cut within the arguments of a call, and what its end says of them."""

    def edit(events: Events) -> list[AgentEvent]:
        builder = MessageBuilder()
        steps: list[StreamEvent] = [
            builder.start(),
            builder.tool_call_start("c1", "look"),
            builder.tool_call_delta('{"at": 1, "of'),
        ]
        end = AssistantMessage([ToolCall("c1", "look", arguments)], stop_reason="aborted")
        return [MessageStart(steps[0].partial), *map(MessageUpdate, steps[1:]), MessageEnd(end)]

    return edit


def growing() -> AgentEvent:
    builder = MessageBuilder()
    builder.start()
    return MessageUpdate(builder.text_start())


ADDS_UP: list[tuple[Edit, str]] = [
    (without("answer4"), r"block 1 says 'Let me look.', told was 'look.'"),
    (twice("answer5"), r"block 1 says 'Let me look.', told was 'Let me look.look.'"),
    (moved("answer5", "answer3"), r"block 1 says 'Let me look.', told was 'look.Let me '"),
    (without("answer1"), r"block 0 says 'Hm.', told was ''"),
    (with_block(0, thinking="Aha."), r"block 0 says 'Aha.', told was 'Hm.'"),
    (with_block(1, text="Let me see."), r"block 1 says 'Let me see.', told was 'Let me look.'"),
    (with_block(2, arguments={"at": 7}), r"block 2 says \{'at': 7\}, told was \{'at': 1\}"),
    (with_block(3, arguments={"at": 7}), r"block 3 says \{'at': 7\}, told was \{'at': 2\}"),
    (with_block(2, arguments={}, arguments_error="no", raw_arguments="{"), r"block 2 says .*told was '\{\"at\": 1\}'"),
    (with_block(2, arguments_error="no", raw_arguments='{"at": 1}'), r"block 2 says .*told was '\{\"at\": 1\}'"),
    (ended("answer.", lambda end: attrs.evolve(end, content=end.content[:3])), "4 blocks were told, 3 stand"),
    (ended("last.", lambda end: attrs.evolve(end, content=(*end.content, TextContent("!")))), "1 blocks .*, 2 stand"),
    (without("last0", "last1"), "0 blocks were told, 1 stand"),
    (ended("last.", lambda end: attrs.evolve(end, content=[ThinkingContent("Hm.")])), "block 0 says 'Hm.'"),
    (whole(lambda message: attrs.evolve(message, content=[TextContent("Do")])), "whole from its start has changed"),
    (whole(lambda message: attrs.evolve(message, stop_reason="length")), "whole from its start has changed"),
    (whole(lambda message: message, growing()), "whole from its start has changed"),
    (unfinished(at=1, of=2), r"block 0 says \{'at': 1, 'of': 2\}, told was \{'at': 1\}"),
    (unfinished(), r"block 0 says \{\}, told was \{'at': 1\}"),
]

ANSWERED: list[tuple[Edit, str]] = [
    (with_results("c2", "c1"), r"calls \['c1', 'c2'\], but the results of its turn are \['c2', 'c1'\]"),
    (with_results("c1"), r"calls \['c1', 'c2'\], but the results of its turn are \['c1'\]"),
    (with_results(), r"calls \['c1', 'c2'\], but the results of its turn are \[\]"),
    (with_results("c1", "c2", "c2"), r"are \['c1', 'c2', 'c2'\]"),
    (with_results("c1", "c3"), r"are \['c1', 'c3'\]"),
    (stopped("aborted"), r"calls \[\], but the results of its turn are \['c1', 'c2'\]"),
    (stopped("error"), r"calls \[\], but the results of its turn are \['c1', 'c2'\]"),
]


def answered(events: Iterable[AgentEvent]) -> None:
    rule = Answered()
    for event in events:
        rule.feed(event)


CHECKS: dict[str, Callable[[Iterable[AgentEvent]], None]] = {
    "Paired": assert_events_paired,
    "Adds up": assert_adds_up,
    "Answered": answered,
}
BREACHES = [
    pytest.param(name, edit, difference, id=f"{name}-{number}")
    for name, table in (("Paired", PAIRED), ("Adds up", ADDS_UP), ("Answered", ANSWERED))
    for number, (edit, difference) in enumerate(table)
]


def test_there_are_many_breaches() -> None:
    assert len(BREACHES) > 60


@pytest.mark.parametrize(("name", "edit", "difference"), BREACHES)
def test_a_breach_is_found(name: str, edit: Edit, difference: str) -> None:
    with pytest.raises(InvariantError, match=difference) as caught:
        CHECKS[name](edit(good()))
    assert caught.value.invariant == name


@pytest.mark.parametrize("name", CHECKS)
def test_the_run_that_the_breaches_are_made_of_has_none(name: str) -> None:
    CHECKS[name](good().values())
    CHECKS[name]([*good().values(), *good().values()])


# -------------------------------------------------------- nothing begins

NOTHING: list[tuple[Sequence[str], str]] = [
    (["run", "turn", "!", "user", "last"], "an answer has begun after the abort"),
    (["run", "turn", "last", "!", "last0", "last1"], "an answer has grown after the abort"),
    (["!", "run", "turn", "user", "user.", "last"], "an answer has begun after the abort"),
    (["run", "turn", "last", "!", "last.", "turn.", "?", "turn2"], "the abort was taken back"),
]


def watched(steps: Sequence[str], *before: str) -> None:
    """Feed events of the good run by their names; ``!`` aborts, and ``?`` takes the abort back."""
    events, abort, rule = good(), Abort(), NothingBegins()
    for step in (*before, *steps):
        if step == "!":
            abort.request("why")
        elif step == "?":
            abort.requested = False
        else:
            rule.feed(events[step], abort)


@pytest.mark.parametrize(("steps", "difference"), NOTHING)
def test_what_begins_after_an_abort_is_found(steps: Sequence[str], difference: str) -> None:
    with pytest.raises(InvariantError, match=difference) as caught:
        watched(steps)
    assert caught.value.invariant == "Nothing begins"


@pytest.mark.parametrize(
    "steps",
    [
        ["run", "turn", "last", "last0", "!", "last1", "last.", "turn.", "run."],
        ["run", "turn", "last", "last.", "c1", "c2", "!", "c1.", "c2.", "r1", "r1.", "turn.", "turn2", "turn2."],
        ["run", "turn", "last", "!", "last.", "run.", "?", "run", "turn", "last", "last0", "last1"],
    ],
    ids=["the event that was under way", "closing", "the next run"],
)
def test_what_may_follow_an_abort_is_no_breach(steps: Sequence[str]) -> None:
    watched(steps)


# ------------------------------------------------------------ transcripts


def asking(*ids: str, stop: Any = "tool_use") -> AssistantMessage:
    return AssistantMessage([ToolCall(each, "look") for each in ids], stop_reason=stop)


def result(id: str) -> ToolResultMessage:
    return ToolResultMessage(id, "look", "seen")


TRANSCRIPTS: list[tuple[list[AgentMessage], str]] = [
    ([result("c1")], "the result of 'c1' answers nothing"),
    ([user("Go."), result("c1")], "the result of 'c1' answers nothing"),
    ([AssistantMessage(), result("c1")], "the result of 'c1' answers nothing"),
    ([asking("c1", stop="aborted"), result("c1")], "the result of 'c1' answers nothing"),
    ([asking("c1", stop="error"), result("c1")], "the result of 'c1' answers nothing"),
    ([asking("c1"), result("c1"), result("c1")], "the result of 'c1' answers nothing"),
    ([asking("c1", "c2"), result("c2"), result("c1")], "'c1' should be answered here, not 'c2'"),
    ([asking("c1"), result("c9")], "'c1' should be answered here, not 'c9'"),
    ([asking("c1", "c2"), result("c1"), user("And?"), result("c2")], r"\['c2'\] have no results before the user"),
    ([asking("c1"), AssistantMessage()], r"\['c1'\] have no results before the assistant message"),
    ([asking("c1", "c2"), result("c1")], r"\['c2'\] have no results at the end"),
    ([asking("c1")], r"\['c1'\] have no results at the end"),
    ([asking("c1", "c1"), result("c1"), result("c1")], r"call ids repeat: \['c1', 'c1'\]"),
]


@pytest.mark.parametrize(("messages", "difference"), TRANSCRIPTS)
def test_a_transcript_that_no_provider_accepts_is_found(messages: list[AgentMessage], difference: str) -> None:
    with pytest.raises(InvariantError, match=difference) as caught:
        assert_transcript_valid(messages)
    assert caught.value.invariant == "Answered"


def test_transcripts_that_a_provider_accepts() -> None:
    assert_transcript_valid([])
    asked: list[AgentMessage] = [user("Go."), asking("c1", "c2"), result("c1"), result("c2")]
    later: list[AgentMessage] = [asking("c1"), result("c1"), asking("c3", stop="aborted"), user("And?")]
    assert_transcript_valid([*asked, *later])


# -------------------------------------------------------------- real runs


@pytest.mark.parametrize("mode", [{}, {"tool_preparation": "parallel"}, {"tool_execution": "sequential"}])
@pytest.mark.parametrize("cause", ["nothing", "abort", "cancel", "interrupt"])
@pytest.mark.parametrize("at", [0.5, 1.5, 3.5, 5.25, 7])
async def test_real_runs_break_no_rule(at: float, cause: str, mode: dict[str, Any], autojump_clock: MockClock) -> None:
    invalid = ToolCall("c4", "c1", arguments_error="no JSON", raw_arguments='{"n": ')
    agent, model, seen = agent_of(
        [["Let me look.", *calling("c1", "c2"), call("c3", "nobody"), invalid], "So.", "Done.", "Done."],
        sleeper("c1", 1, updates=["half", "more"]),
        sleeper("c2", 3, error=OSError("no disk")),
        **mode,
    )
    model.delay = 0.25
    paired, adds_up, replies, begins = Paired(), AddsUp(), Answered(), NothingBegins()

    def check(event: AgentEvent, abort: Abort) -> None:
        for rule in (paired, adds_up, replies):
            rule.feed(event)
        begins.feed(event, abort)

    agent.subscribe(check)
    agent.follow_up("And then?")
    cut: Act = act(agent, cause)
    await prompted(agent, (at, cut))
    paired.end()
    assert paired.number == len(seen.events)
    assert_events_paired(seen.events)
    assert_adds_up(seen.events)
    assert_transcript_valid(agent.messages)
