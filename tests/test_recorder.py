"""TraceRecorder: what it keeps, how its tree reads, and what comes back from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, final

import attrs
import pytest
import trio
from kit import agent_of, calling, sleeper, user
from trio.testing import MockClock

from trio_agent import (
    Abort,
    Agent,
    AgentContext,
    AgentEnd,
    AgentStart,
    AssistantMessage,
    FormatError,
    ImageContent,
    LoopConfig,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    UsageError,
    UserMessage,
    event_to_json,
    run_agent_loop,
)
from trio_agent.testing import ScriptedModel, TraceRecorder, assert_trace


async def aborted_run() -> TraceRecorder:
    """Two calls side by side; the second is cut two seconds after the first has begun."""
    agent, model, _ = agent_of(
        [["Let me look.", *calling("c1", "c2")], "Done."], sleeper("c1", 1, updates=["half"]), sleeper("c2", 3)
    )
    model.delay = 0.25
    recorder = TraceRecorder(agent)

    async def stop() -> None:
        await trio.sleep(4.25)
        recorder.mark("abort() called")
        agent.abort("the user pressed Escape")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await agent.prompt("Go.")
    return recorder


ABORTED = """
    run 1 (0 s to 4.25 s)
    ├─ turn 1 (0 s to 4.25 s)
    │  ├─ user "Go."
    │  ├─ assistant tool_use (0.25 s to 3 s)
    │  │  ├─ text "Let me look." (3 deltas, 0.5 s to 1.5 s)
    │  │  ├─ call c1 c1 {} (1 delta, 1.75 s to 2.25 s)
    │  │  └─ call c2 c2 {} (1 delta, 2.5 s to 3 s)
    │  ├─ tool c1 c1 {} (3 s to 4 s)
    │  │  ├─ update "half"
    │  │  └─ ok "c1 done" (4 s)
    │  ├─ tool c2 c2 {} (3 s to 4.25 s)
    │  │  └─ error [aborted] "Operation aborted while the tool ran: the user pressed Es..." (4.25 s)
    │  ├─ * abort() called (4.25 s)
    │  ├─ * aborted: "the user pressed Escape" (4.25 s)
    │  ├─ result c1 ok (4.25 s)
    │  └─ result c2 error [aborted] (4.25 s)
    ├─ turn 2 (4.25 s)
    │  └─ assistant aborted [aborted] "Operation aborted: the user pressed Escape"
    └─ end: aborted, 5 messages (4.25 s)
    """


# -------------------------------------------------------------- recording


async def test_each_event_has_its_time_its_task_and_the_state_of_the_abort(autojump_clock: MockClock) -> None:
    await trio.sleep(7)
    recorder = await aborted_run()
    events = recorder.entries
    assert (events[0].at, events[-1].at) == (0, 4.25)
    assert {entry.task for entry in events} >= {trio.lowlevel.current_task().name}
    (first, *rest) = [entry for entry in events if entry.aborted]
    assert isinstance(first.event, ToolExecutionEnd)
    assert {entry.reason for entry in (first, *rest)} == {"the user pressed Escape"}
    assert {entry.reason for entry in events if not entry.aborted} == {None}
    assert events.index(first) + len(rest) == len(events) - 1
    (mark,) = [entry for entry in events if entry.mark is not None]
    assert (mark.at, mark.event, mark.aborted, mark.run) == (4.25, None, False, 1)
    assert mark.task.endswith("stop")
    assert recorder.events == [entry.event for entry in events if entry is not mark]


async def test_the_tree_shows_what_happened_and_when(autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    assert_trace(recorder, ABORTED)
    assert str(recorder) == recorder.tree()


async def test_a_loop_tells_it_too_and_the_other_ways_of_subscribing(autojump_clock: MockClock) -> None:
    recorder = TraceRecorder()
    abort = Abort()
    config = LoopConfig(model=ScriptedModel(["Hi."]))
    await run_agent_loop([user("Hello.")], AgentContext(), config, recorder, abort=abort)
    agent, _, _ = agent_of(["Hi."])
    agent.subscribe(recorder)
    await agent.prompt("Hello.")
    first, second = recorder.tree().split("run 2")
    assert first.replace("run 1", "").strip() == second.strip()


async def test_leaving_its_block_ends_the_subscription(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of(["One.", "Two."])
    with TraceRecorder(agent) as recorder:
        await agent.prompt("Go.")
    count = len(recorder.entries)
    await agent.prompt("Go.")
    assert len(recorder.entries) == count > 0


async def test_clearing_starts_the_clock_anew(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1"), "One.", "Two."], sleeper("c1", 3))
    recorder = TraceRecorder(agent)
    await agent.prompt("Go.")
    recorder.clear()
    assert recorder.tree() == ""
    await agent.prompt("Go.")
    assert recorder.tree().startswith("run 2 (0 s)\n")


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ScriptedModel.* is no Agent; give one"):
        TraceRecorder(ScriptedModel([]))  # type: ignore[arg-type]


async def test_runs_that_overlap_are_kept_apart_also_inside_of_each_other(autojump_clock: MockClock) -> None:
    recorder = TraceRecorder()
    inner, _, _ = agent_of([calling("c9"), "Found."], sleeper("c9", 2))
    inner.subscribe(recorder)

    async def delegate(args: dict[str, Any], ctx: ToolContext) -> str:
        recorder.mark("delegating")
        return (await inner.prompt("Find it.")).text

    outer, _, _ = agent_of([calling("c1", "c2"), "Done."], Tool("c1", execute=delegate), sleeper("c2", 1))
    outer.subscribe(recorder)
    await outer.prompt("Go.")
    recorder.mark("all is over")
    assert_trace(
        recorder,
        """
        run 1 (0 s to 2 s)
        ├─ turn 1 (0 s to 2 s)
        │  ├─ user "Go."
        │  ├─ assistant tool_use
        │  │  ├─ call c1 c1 {} (1 delta)
        │  │  └─ call c2 c2 {} (1 delta)
        │  ├─ tool c1 c1 {} (0 s to 2 s)
        │  │  └─ ok "Found." (2 s)
        │  ├─ tool c2 c2 {} (0 s to 1 s)
        │  │  └─ ok "c2 done" (1 s)
        │  ├─ * delegating
        │  ├─ result c1 ok (2 s)
        │  └─ result c2 ok (2 s)
        ├─ turn 2 (2 s)
        │  └─ assistant stop
        │     └─ text "Done." (1 delta)
        └─ end: done, 5 messages (2 s)
        run 2 (0 s to 2 s)
        ├─ turn 1 (0 s to 2 s)
        │  ├─ user "Find it."
        │  ├─ assistant tool_use
        │  │  └─ call c9 c9 {} (1 delta)
        │  ├─ tool c9 c9 {} (0 s to 2 s)
        │  │  └─ ok "c9 done" (2 s)
        │  └─ result c9 ok (2 s)
        ├─ turn 2 (2 s)
        │  └─ assistant stop
        │     └─ text "Found." (1 delta)
        └─ end: done, 4 messages (2 s)
        * all is over (2 s)
        """,
    )


# ------------------------------------------------------------------- tree


async def told(*events: Any, pause: float = 0.0) -> TraceRecorder:
    """A recorder that was told events in this order."""
    recorder = TraceRecorder()
    for event in events:
        if isinstance(event, str):
            recorder.mark(event)
        else:
            recorder(event)
        await trio.sleep(pause)
    return recorder


async def lines_of(*events: Any) -> list[str]:
    """The lines below the turn."""
    tree = (await told(AgentStart(), TurnStart(), *events)).tree(times=False)
    return [line[6:] for line in tree.split("\n")[2:]]


async def test_an_answer_that_is_still_coming_shows_what_came(autojump_clock: MockClock) -> None:
    builder = MessageBuilder()
    recorder = await told(
        AgentStart(),
        TurnStart(),
        MessageStart(builder.start().partial),
        MessageUpdate(builder.text_start()),
        MessageUpdate(builder.text_delta("Let me")),
        "waiting",
        pause=0.1,
    )
    assert_trace(
        recorder,
        """
        run 1 (0 s, open)
        └─ turn 1 (0.1 s, open)
           └─ assistant (0.2 s, open)
              ├─ text "Let me" (1 delta, 0.3 s to 0.4 s)
              └─ * waiting (0.5 s)
        """,
    )
    builder.text_delta(" see")
    assert '"Let me"' in recorder.tree()


async def test_a_recorder_that_came_late_says_so(autojump_clock: MockClock) -> None:
    recorder = await told(TurnEnd(AssistantMessage()), ToolExecutionEnd("c1", "look", ToolResult("x"), is_error=False))
    assert_trace(
        recorder,
        """
        run 1, begun before the recorder listened (0 s, open)
        ├─ end of a turn
        └─ tool c1 look, never started
           └─ ok "x"
        """,
    )


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (UserMessage("Go\non."), r'user "Go\non."'),
        (UserMessage([TextContent("See."), ImageContent("AAAA", "image/png")]), 'user "See.", 1 image'),
        (UserMessage("x" * 61), f'user "{"x" * 57}..."'),
        (UserMessage("\x1b[31m\x9b\u2028é"), r'user "\u001b[31m\u009b\u2028é"'),
        (SystemMessage("Be brief."), 'system "Be brief."'),
        (
            SystemMessage(sections={"date": "today"}, tools_added=[ToolDeclaration("a")], tools_removed=["b"]),
            'system "", sections date, tools +a -b',
        ),
        (
            AssistantMessage(stop_reason="error", error_message="no net", error_kind="failed"),
            'assistant error [failed] "no net"',
        ),
        (AssistantMessage(stop_reason="length"), "assistant length"),
    ],
)
async def test_messages_in_words(message: Any, line: str, autojump_clock: MockClock) -> None:
    assert await lines_of(MessageStart(message), MessageEnd(message)) == [line]


async def test_answers_that_come_whole_show_their_blocks(autojump_clock: MockClock) -> None:
    message = AssistantMessage(
        [
            ThinkingContent("Hm.", redacted=True),
            TextContent("So."),
            ToolCall("c 1", "look", {"at": "é"}),
            ToolCall("c2", "look", arguments_error="no JSON", raw_arguments='{"at'),
        ],
        stop_reason="tool_use",
    )
    assert await lines_of(MessageStart(message), MessageEnd(message)) == [
        "assistant tool_use",
        '├─ thinking "Hm.", redacted',
        '├─ text "So."',
        '├─ call "c 1" look {"at": "é"}',
        r'└─ call c2 look "{\"at" [no JSON]',
    ]


async def test_what_was_told_and_is_not_in_the_message_is_shown(autojump_clock: MockClock) -> None:
    builder = MessageBuilder()
    start = MessageStart(builder.start().partial)
    update = MessageUpdate(builder.text_start())
    assert await lines_of(start, update, MessageEnd(AssistantMessage())) == [
        "assistant stop",
        "└─ block 0, which is not in the message (0 deltas)",
    ]


async def test_messages_that_never_started(autojump_clock: MockClock) -> None:
    start = MessageUpdate(MessageBuilder().start())
    lines = await lines_of(start, MessageEnd(user("Go.")), MessageEnd(AssistantMessage([TextContent("So.")])))
    assert lines == ['user "Go.", never started', "assistant stop, never started", '└─ text "So."']


async def test_calls_in_words(autojump_clock: MockClock) -> None:
    half = ToolExecutionUpdate("c1", "look", {}, ToolResult("half"))
    end = ToolExecutionEnd("c1", "look", ToolResult("x", terminate=True), is_error=True)
    assert await lines_of(half, end) == ["tool c1 look, never started", '├─ update "half"', '└─ error "x", terminate']


async def test_the_text_of_a_result_is_shown_where_it_differs_from_the_end_of_its_call(
    autojump_clock: MockClock,
) -> None:
    start = ToolExecutionStart("c1", "look", {"at": 1})
    end = ToolExecutionEnd("c1", "look", ToolResult("seen", is_error=True, error_kind="failed"), is_error=True)
    same = ToolResultMessage("c1", "look", "seen", is_error=True, error_kind="failed")
    other = ToolResultMessage("c1", "look", "changed")
    lines = await lines_of(start, end, MessageStart(same), MessageEnd(same), MessageStart(other), MessageEnd(other))
    assert lines == [
        'tool c1 look {"at": 1}',
        '└─ error [failed] "seen"',
        "result c1 error [failed]",
        'result c1 ok "changed"',
    ]


async def test_an_event_told_in_another_task_is_shown(autojump_clock: MockClock) -> None:
    recorder, abort = TraceRecorder(), Abort()
    recorder(AgentStart(), abort)
    name = trio.lowlevel.current_task().name

    async def elsewhere() -> None:
        await trio.lowlevel.checkpoint()
        recorder(TurnStart(), abort)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(elsewhere)
        nursery.start_soon(trio.lowlevel.checkpoint)
    recorder(AgentEnd(()), abort)
    other = recorder.entries[1].task
    assert other.endswith("elsewhere")
    assert recorder.tree(times=False).split("\n") == [
        "run 1",
        f"├─ * turn_start was told in the task {other}, not in {name}",
        "├─ turn 1 (open)",
        "└─ end: done, 0 messages",
    ]


async def test_options_of_the_tree(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of([calling("c1"), "Done."], sleeper("c1", 1))
    recorder = TraceRecorder(agent)
    await agent.prompt("Go on, please.")
    assert recorder.tree(tasks=True).startswith(f"run 1 in the task {trio.lowlevel.current_task().name} (0 s to 1 s)\n")
    assert 'user "Go on..."' in recorder.tree(width=8)
    assert " s)" not in recorder.tree(times=False)
    assert "(1 delta)" in recorder.tree(times=False)


# ------------------------------------------------------------ assert_trace


async def test_the_difference_is_shown_as_a_diff(autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    with pytest.raises(AssertionError) as caught:
        assert_trace(recorder, ABORTED.replace('"c1 done" (4 s)', '"c1 done" (3.5 s)'))
    text = str(caught.value)
    assert text.startswith("the trace is not the expected one:\n--- expected\n+++ recorded\n@@ ")
    changed = [line for line in text.split("\n")[3:] if line[:1] in "+-"]
    assert changed == ['-│  │  └─ ok "c1 done" (3.5 s)', '+│  │  └─ ok "c1 done" (4 s)']


@pytest.mark.parametrize("expected", ["", "run 1", ABORTED + "\n    * more"])
async def test_every_difference_counts(expected: str, autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    with pytest.raises(AssertionError):
        assert_trace(recorder, expected)


async def test_indentation_blank_lines_around_and_trailing_spaces_do_not_count(autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    assert_trace(recorder, "\n\n" + ABORTED.replace("\n", "  \n        ") + "\n\n")
    assert_trace(recorder, recorder.tree(times=False), times=False)


# -------------------------------------------------------------------- JSON


async def test_each_line_is_an_object_with_the_event_as_the_library_writes_it(autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    lines = [json.loads(line) for line in recorder.to_jsonl().split("\n")[:-1]]
    assert len(lines) == len(recorder.entries)
    for line, entry in zip(lines, recorder.entries, strict=True):
        what = {"mark": entry.mark} if entry.event is None else {"event": event_to_json(entry.event)}
        assert line == {
            "at": entry.at, "task": entry.task, "aborted": entry.aborted, "reason": entry.reason, "run": 1, **what
        }  # fmt: skip


async def test_a_trace_that_is_read_back_prints_the_same_tree(tmp_path: Path, autojump_clock: MockClock) -> None:
    recorder = await aborted_run()
    recorder.mark("after it")
    path = tmp_path / "trace.jsonl"
    recorder.save(path)
    loaded = TraceRecorder.load(str(path))
    assert_trace(loaded, recorder.tree())
    assert loaded.tree(tasks=True) == recorder.tree(tasks=True)
    assert loaded.to_jsonl() == recorder.to_jsonl()
    with pytest.raises(UsageError, match="loaded from a file and does not grow; record with a new TraceRecorder"):
        loaded.mark("more")
    with pytest.raises(UsageError, match="does not grow"):
        loaded(AgentStart())


async def test_an_open_answer_and_overlapping_runs_come_back_too(  # noqa: ASYNC124 - Trio's clock runs in it alone
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    recorder = TraceRecorder()
    builders = [MessageBuilder(), MessageBuilder()]
    aborts = [Abort(), Abort()]
    for event in (AgentStart(), TurnStart()):
        for abort in aborts:
            recorder(event, abort)
    for builder, abort in zip(builders, aborts, strict=True):
        recorder(MessageStart(builder.start().partial), abort)
        recorder(MessageUpdate(builder.text_start()), abort)
    for builder, abort, text in zip(builders, aborts, ["one", "two"], strict=True):
        recorder(MessageUpdate(builder.text_delta(text)), abort)
    recorder.save(tmp_path / "trace")
    assert_trace(TraceRecorder.load(tmp_path / "trace"), recorder.tree())
    assert [text in recorder.tree() for text in ('text "one"', 'text "two"')] == [True, True]


def test_an_empty_recorder_is_an_empty_file(tmp_path: Path) -> None:
    TraceRecorder().save(tmp_path / "trace")
    assert (tmp_path / "trace").read_bytes() == b""
    assert TraceRecorder.load(tmp_path / "trace").entries == []


@final
@attrs.frozen
class Note:
    """A message of the host's own without a JSON form."""

    role = "note"
    text: str


@pytest.mark.parametrize(
    ("event", "difference"),
    [
        (MessageStart(Note("Hm.")), r"entry 2 \(message_start\) has no JSON form: .*register_message_type\(\)"),
        (
            ToolExecutionEnd("c1", "look", ToolResult("x", details={1, 2}), is_error=False),
            r"entry 2 \(tool_execution_end\) has no JSON form: .*Let tools give plain JSON",
        ),
        (
            ToolExecutionEnd("c1", "look", ToolResult("x", details=float("nan")), is_error=False),
            r"entry 2 \(tool_execution_end\) has no JSON form",
        ),
    ],
)
async def test_what_has_no_json_form_is_named(
    event: Any, difference: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    recorder = await told(AgentStart(), event)
    with pytest.raises(FormatError, match=difference):
        recorder.save(tmp_path / "trace")
    assert not (tmp_path / "trace").exists()
    assert recorder.tree()


async def test_a_message_of_the_hosts_own_is_drawn(autojump_clock: MockClock) -> None:
    assert await lines_of(MessageStart(Note("Hm.")), MessageEnd(Note("Hm."))) == ['note "Hm."']


GOOD = '{"at": 0, "task": "main", "aborted": false, "reason": null, "run": 1, "event": {"type": "agent_start"}}'


@pytest.mark.parametrize(
    ("line", "difference"),
    [
        ("", "line 2 is '', which is no JSON"),
        (GOOD[:40], "line 2 is .*which is no JSON"),
        ("[1]", r"line 2 is \[1\], but must be an object"),
        (GOOD.replace('"at": 0, ', ""), "line 2 lacks the key 'at'"),
        (GOOD.replace('"at": 0', '"at": "0 s"'), r'line 2.at is "0 s", but must be a number of seconds from 0'),
        (GOOD.replace('"at": 0', '"at": NaN'), "line 2.at is NaN, but must be a number of seconds from 0"),
        (GOOD.replace('"at": 0', '"at": true'), "line 2.at is true, but must be a number"),
        (GOOD.replace('"at": 0', '"at": -1'), "line 2.at is -1, but must be a number of seconds from 0"),
        (GOOD.replace("false", '"no"'), 'line 2.aborted is "no", but must be true or false'),
        (GOOD.replace('"main"', "7"), "line 2.task is 7, but must be a string"),
        (GOOD.replace("null", "7"), "line 2.reason is 7, but must be a string"),
        (GOOD.replace('"run": 1', '"run": -1'), "line 2.run is -1, but must be a whole number"),
        (GOOD.replace('"event"', '"events"'), "line 2 is .*exactly one of the keys event, mark"),
        (GOOD.replace("agent_start", "agent_stop"), "line 2: event.type is 'agent_stop', which is no event"),
        (GOOD.replace('"run"', '"more": 1, "run"'), "line 2 has the key 'more', but known here are"),
        (
            GOOD.replace('"agent_start"', '"message_update", "assistantMessageEvent": {"type": "start"}'),
            "line 2: .*no answer has been started",
        ),
    ],
)
def test_a_broken_file_is_refused_with_file_line_value_and_remedy(line: str, difference: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(FormatError, match=difference) as caught:
        TraceRecorder.load(path)
    assert str(caught.value).startswith(f"{path}, line 2")
    assert "as TraceRecorder.save() writes it" in str(caught.value)


def test_times_that_go_back_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(GOOD.replace('"at": 0', '"at": 2') + "\n" + GOOD)
    with pytest.raises(FormatError, match=r"line 2.at is 0.0, but must be at least the 2 of the line before it"):
        TraceRecorder.load(path)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TraceRecorder.load(tmp_path / "nothing")


def test_it_is_a_thing_and_no_value() -> None:
    one, other = TraceRecorder(), TraceRecorder()
    assert one != other
    assert len({one, other}) == 2
    assert repr(one) == "TraceRecorder(agent=None)"
    assert isinstance(Agent(ScriptedModel([])).subscribe(one), object)
