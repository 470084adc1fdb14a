"""The transcript: what is replayed out of it, how tool changes are declared, how it is repaired and written."""

from __future__ import annotations

import copy
import json
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import pytest

from trio_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    FormatError,
    Message,
    MessageView,
    ModelRequest,
    SimpleModel,
    StopReason,
    SystemMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    TranscriptContext,
    UserMessage,
    collapse_system_messages,
    create_initial_system_message,
    declare_tool_changes,
    default_convert_to_llm,
    get_current_system_message,
    get_current_system_prompt,
    get_current_tools,
    normalize_context,
    repair_call_ids,
    repair_transcript,
    transcript_from_json,
    transcript_to_json,
)
from trio_agent._transcript import Track


@attrs.frozen
class Note:
    """A message of the host's own."""

    text: str = ""
    role: str = "note"


def declared(name: str, description: str = "") -> ToolDeclaration:
    return ToolDeclaration(name, description, {"type": "object", "properties": {}})


def tool(name: str, description: str = "") -> Tool:
    return Tool(name, description, execute=lambda arguments, context: "")


USER = UserMessage("Hi", timestamp=1)
ANSWER = AssistantMessage((TextContent("Hello"),), timestamp=2)
A, B, C = declared("a"), declared("b"), declared("c")


# ----------------------------------------------------------------- replay


def test_a_later_content_is_appended_behind_an_empty_line() -> None:
    messages = [SystemMessage("One."), USER, SystemMessage(""), ANSWER, SystemMessage("Two.\nThree.")]
    assert get_current_system_prompt(messages) == "One.\n\nTwo.\nThree."


def test_sections_stand_behind_all_contents_in_the_order_of_their_first_mention() -> None:
    messages = [
        SystemMessage("One.", sections={"a": "A1", "b": "B1"}),
        SystemMessage("Two.", sections={"c": "C1", "a": "A2"}),
    ]
    assert get_current_system_prompt(messages) == "One.\n\nTwo.\n\nA2\n\nB1\n\nC1"


def test_a_section_is_removed_by_none_and_comes_back_at_the_end() -> None:
    messages = [SystemMessage(sections={"a": "A", "b": "B"}), SystemMessage(sections={"a": None, "never": None})]
    assert get_current_system_prompt(messages) == "B"
    messages.append(SystemMessage(sections={"a": "A2"}))
    assert get_current_system_prompt(messages) == "B\n\nA2"


def test_an_empty_section_stays_until_it_is_removed() -> None:
    # As in pi: an empty text replaces, only null removes.
    message = get_current_system_message([SystemMessage("P", sections={"a": "A"}), SystemMessage(sections={"a": ""})])
    assert message is not None
    assert message.sections == {"a": ""}


def test_empty_texts_leave_no_gap_in_the_prompt() -> None:
    # pi's getSystemMessageText drops empty parts.
    assert get_current_system_prompt([SystemMessage("P", sections={"a": "", "b": "B"})]) == "P\n\nB"
    assert get_current_system_prompt([SystemMessage("", sections={"a": "A", "b": ""})]) == "A"


def test_tools_are_removed_before_tools_are_added() -> None:
    newer = declared("a", "newer")
    messages = [SystemMessage(tools_added=(A, B)), SystemMessage(tools_added=(newer,), tools_removed=("a", "never"))]
    assert get_current_tools(messages) == (B, newer)


def test_a_tool_that_is_added_again_keeps_its_place() -> None:
    newer = declared("a", "newer")
    assert get_current_tools([SystemMessage(tools_added=(A, B)), SystemMessage(tools_added=(newer,))]) == (newer, B)


def test_only_system_messages_count() -> None:
    messages = [USER, ANSWER, ToolResultMessage("c", "t", "x"), Note("y")]
    assert get_current_system_prompt(messages) == ""
    assert get_current_tools(messages) == ()
    assert get_current_system_message(messages) is None
    assert get_current_system_message([]) is None


def test_the_replayed_message_holds_everything_and_the_first_timestamp() -> None:
    messages = [
        SystemMessage("One.", sections={"s": "S"}, tools_added=(A,), timestamp=5),
        SystemMessage("Two.", sections={"s": None, "t": "T"}, tools_added=(B,), tools_removed=("a",), timestamp=9),
    ]
    assert get_current_system_message(messages) == SystemMessage(
        "One.\n\nTwo.", sections={"t": "T"}, tools_added=(B,), timestamp=5
    )


def test_the_initial_message_is_missing_if_there_is_nothing_to_say() -> None:
    assert create_initial_system_message() is None
    assert create_initial_system_message("", iter(())) is None
    assert create_initial_system_message("P", iter([A])) == SystemMessage("P", tools_added=(A,), timestamp=0)
    assert create_initial_system_message("", [A]) == SystemMessage("", tools_added=(A,), timestamp=0)


def test_collapsing_leaves_one_system_message_at_the_front() -> None:
    messages: list[Message] = [USER, SystemMessage("One.", timestamp=3), ANSWER, SystemMessage("Two.", timestamp=4)]
    assert collapse_system_messages(messages) == [SystemMessage("One.\n\nTwo.", timestamp=3), USER, ANSWER]
    assert collapse_system_messages(iter([USER])) == [USER]


def random_history(rng: random.Random) -> list[AgentMessage]:
    """Messages of all kinds, with system messages that contradict each other."""
    names = "abc"

    def system() -> SystemMessage:
        return SystemMessage(
            rng.choice(["", "P", "Q"]),
            sections={rng.choice("xy"): rng.choice([None, "", "S", "T"]) for _ in range(rng.randrange(3))},
            tools_added=[declared(rng.choice(names), rng.choice(["", "other"])) for _ in range(rng.randrange(3))],
            tools_removed=[rng.choice("abcd") for _ in range(rng.randrange(3))],
        )

    kinds: list[Callable[[], AgentMessage]] = [system, system, lambda: USER, lambda: ANSWER, lambda: Note("n")]
    return [rng.choice(kinds)() for _ in range(rng.randrange(6))]


@pytest.mark.parametrize("seed", range(5))
def test_collapsing_changes_neither_prompt_nor_tools(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        history = default_convert_to_llm(random_history(rng))
        collapsed = collapse_system_messages(history)
        assert get_current_system_prompt(collapsed) == get_current_system_prompt(history)
        assert get_current_tools(collapsed) == get_current_tools(history)
        assert sum(type(message) is SystemMessage for message in collapsed) <= 1
        assert collapse_system_messages(collapsed) == collapsed


# ------------------------------------------------------------ tool changes


def by_name(tools: Sequence[ToolDeclaration]) -> dict[str, ToolDeclaration]:
    return {tool.name: tool for tool in tools}


def test_without_a_difference_nothing_is_declared() -> None:
    context = AgentContext([SystemMessage(tools_added=(A,))], [tool("a")])
    pending: list[AgentMessage] = [USER]
    assert declare_tool_changes(context, pending) == [USER]
    assert declare_tool_changes(context, []) == []


def test_a_difference_goes_in_before_the_first_message_that_is_no_system_message() -> None:
    context = AgentContext([SystemMessage(tools_added=(A, B))], [tool("b"), tool("c")])
    first, *rest = declare_tool_changes(context, [USER, ANSWER])
    assert rest == [USER, ANSWER]
    assert isinstance(first, SystemMessage)
    assert (first.content, first.tools_added, first.tools_removed) == ("", (C,), ("a",))
    (alone,) = declare_tool_changes(context, [])
    assert isinstance(alone, SystemMessage)
    assert (alone.tools_added, alone.tools_removed) == ((C,), ("a",))


def test_a_changed_definition_is_a_removal_and_an_addition() -> None:
    context = AgentContext([SystemMessage(tools_added=(A, B))], [tool("a", "newer"), tool("b")])
    (message, _) = declare_tool_changes(context, [USER])
    assert isinstance(message, SystemMessage)
    assert message.tools_removed == ("a",)
    assert message.tools_added == (declared("a", "newer"),)


def test_the_last_pending_system_message_says_the_difference_whatever_it_said_before() -> None:
    context = AgentContext([SystemMessage(tools_added=(A,))], [tool("a"), tool("b")])
    early = SystemMessage("One.", timestamp=1)
    late = SystemMessage("Two.", sections={"s": "S"}, tools_added=(C,), tools_removed=("a",), timestamp=2)
    assert declare_tool_changes(context, [early, USER, late, ANSWER]) == [
        early,
        USER,
        attrs.evolve(late, tools_added=(B,), tools_removed=()),
        ANSWER,
    ]


def test_without_a_difference_the_last_pending_system_message_says_nothing_of_tools() -> None:
    context = AgentContext([SystemMessage(tools_added=(A,))], [tool("a")])
    late = SystemMessage("Two.", tools_added=(B,), tools_removed=("a",), timestamp=2)
    (message,) = declare_tool_changes(context, [late])
    assert message == attrs.evolve(late, tools_added=(), tools_removed=())


def test_a_pending_system_message_that_says_the_right_thing_stays_the_same_object() -> None:
    context = AgentContext([SystemMessage(tools_added=(A,))], [tool("b")])
    for late, loadout in (
        (SystemMessage(tools_added=(B,), tools_removed=("a",)), context),
        (SystemMessage("Only text."), AgentContext(context.messages, [tool("a")])),
    ):
        (message,) = declare_tool_changes(loadout, [late])
        assert message is late


def test_earlier_pending_system_messages_count_as_said() -> None:
    context = AgentContext([SystemMessage(tools_added=(A,))], [tool("b")])
    early = SystemMessage(tools_added=(B, C), tools_removed=("a",))
    (first, second) = declare_tool_changes(context, [early, SystemMessage("Text.")])
    assert first is early
    assert isinstance(second, SystemMessage)
    assert (second.tools_added, second.tools_removed) == ((), ("c",))


def mute(message: AgentMessage) -> AgentMessage:
    """A message without what it says of tools."""
    if not isinstance(message, SystemMessage):
        return message
    return attrs.evolve(message, tools_added=(), tools_removed=(), timestamp=0)


@pytest.mark.parametrize("seed", range(5))
def test_replay_behind_a_declaration_yields_exactly_the_tools_of_the_context(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        history, pending = random_history(rng), random_history(rng)
        names = rng.sample("abcd", rng.randrange(4))
        tools = [tool(name, rng.choice(["", "other"])) for name in names]
        before = list(pending)
        result = declare_tool_changes(AgentContext(history, tools), pending)
        assert pending == before
        replayed = get_current_tools([*history, *result])
        assert by_name(replayed) == by_name([each.declaration for each in tools])
        assert len(replayed) == len(tools)
        # Nothing else has changed: at most one message is new or says something else of tools.
        muted, wanted = [mute(message) for message in result], [mute(message) for message in pending]
        if len(result) > len(pending):
            assert not any(isinstance(message, SystemMessage) for message in pending)
            assert muted.pop(0) == SystemMessage(timestamp=0)
        assert muted == wanted
        # Said once, there is nothing more to say.
        assert declare_tool_changes(AgentContext([*history, *result], tools), [USER]) == [USER]


# ------------------------------------------------------------------- view


def test_a_view_reads_like_a_tuple() -> None:
    items = ["a", "b", "c", "b", "e"]
    for length in range(6):
        view, same = MessageView(items, length), tuple(items[:length])
        assert len(view) == len(same)
        assert list(view) == list(same)
        assert list(reversed(view)) == list(reversed(same))
        assert bool(view) == bool(same)
        assert view == same
        assert same == view
        assert view == list(same)
        for item in ("a", "b", "e", "z"):
            assert (item in view) == (item in same)
            assert view.count(item) == same.count(item)
        for index in range(-7, 7):
            if -length <= index < length:
                assert view[index] == same[index]
            else:
                with pytest.raises(IndexError, match=f"no message .* among {length}"):
                    view[index]
        for start in (None, -9, -2, 0, 1, 9):
            for stop in (None, -9, -1, 0, 3, 9):
                for step in (None, 1, 2, -1, -2):
                    assert view[start:stop:step] == same[start:stop:step]
                    assert type(view[start:stop:step]) is tuple
    assert MessageView(items).index("b", 2) == 3


def test_a_view_does_not_change_when_the_list_grows() -> None:
    items: list[AgentMessage] = [USER]
    view = MessageView(items)
    iterator = iter(view)
    items.append(ANSWER)
    assert list(view) == [USER]
    assert list(iterator) == [USER]
    assert len(view) == 1
    assert ANSWER not in view
    assert view[-1] is USER
    assert MessageView(items) != view


def test_a_view_is_equal_to_sequences_of_the_same_messages_only() -> None:
    view = MessageView(["a", "b"])
    assert view != ["a"]
    assert view != ["a", "c"]
    assert view != "ab"
    assert view != {"a", "b"}
    assert view != 5
    assert MessageView(["a", "b", "c"], 2) == view


def test_a_view_cannot_be_written_to_and_has_no_hash() -> None:
    view = cast("Any", MessageView([USER]))
    with pytest.raises(TypeError):
        view[0] = ANSWER
    with pytest.raises(TypeError):
        del view[0]
    with pytest.raises(TypeError):
        hash(view)
    with pytest.raises(AttributeError):
        view.append(ANSWER)
    with pytest.raises(AttributeError):
        view.other = 1


def test_a_view_pickles_and_copies_as_its_messages_alone() -> None:
    items: list[AgentMessage] = [USER, ANSWER]
    view = MessageView(items, 1)
    for other in (pickle.loads(pickle.dumps(view)), copy.copy(view), copy.deepcopy(view)):
        assert type(other) is MessageView
        assert other == view
    assert pickle.loads(pickle.dumps(view))._messages == [USER]  # what came later is not carried along
    items[0] = ANSWER
    assert copy.copy(MessageView([USER])) == [USER]


def test_a_view_shows_its_messages() -> None:
    assert repr(MessageView(["a", "b"], 1)) == "MessageView(['a'])"


# ------------------------------------------------------------------ track


def test_a_partial_answer_is_replaced_by_the_final_one() -> None:
    track = Track([USER])
    partial = AssistantMessage((TextContent("He"),), stop_reason="pending")
    track.append_partial(partial)
    assert list(track.view()) == [USER, partial]
    assert list(track.llm_view()) == [USER]
    track.append(ANSWER)
    assert list(track.view()) == [USER, ANSWER]
    track.append(USER)
    assert list(track.view()) == list(track.llm_view()) == [USER, ANSWER, USER]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_up_is_what_a_recomputation_would_give(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        messages = random_history(rng)
        track = Track(messages)
        seen: list[tuple[Sequence[AgentMessage], list[AgentMessage]]] = []
        for message in [*random_history(rng), *random_history(rng)]:
            if isinstance(message, AssistantMessage) and rng.random() < 0.5:
                track.append_partial(AssistantMessage((), stop_reason="pending"))
            track.append(message)
            messages.append(message)
            assert track.view() == messages
            assert track.llm_view() == default_convert_to_llm(messages)
            assert track.replay.system_prompt == get_current_system_prompt(messages)
            assert tuple(track.replay.tools.values()) == get_current_tools(messages)
            seen.append((track.view(), list(messages)))
            seen.append((track.llm_view(), list(default_convert_to_llm(messages))))
        assert all(view == then for view, then in seen)


def test_a_track_does_not_change_the_list_that_it_was_made_of() -> None:
    messages: list[AgentMessage] = [USER]
    track = Track(messages)
    track.append(ANSWER)
    messages.append(Note())
    assert messages == [USER, Note()]
    assert list(track.view()) == [USER, ANSWER]


def calls_made(function: Callable[[], object]) -> int:
    """How many functions of this library are called, a measure of work that is the same every time."""
    count = 0

    def profile(frame: Any, event: str, arg: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def append(track: Track) -> None:
    track.append(USER)


def replace_partial(track: Track) -> None:
    track.append_partial(ANSWER)
    track.append(ANSWER)


def view(track: Track) -> None:
    track.view()
    track.llm_view()


def ask_for_the_prompt(track: Track) -> None:
    track.append(SystemMessage("Q"))
    assert track.replay.system_prompt == "P\n\nQ"


def add_a_tool(track: Track) -> None:
    track.append(SystemMessage(tools_added=(B,)))


@pytest.mark.parametrize("step", [append, replace_partial, view, ask_for_the_prompt, add_a_tool])
def test_a_step_costs_the_same_in_a_long_transcript_as_in_a_short_one(step: Callable[[Track], None]) -> None:
    def cost(length: int) -> int:
        messages: list[AgentMessage] = [SystemMessage("P", tools_added=(A,))]
        messages.extend([USER, ANSWER] * length)
        track = Track(messages)
        return calls_made(lambda: step(track))

    assert cost(5) == cost(5000) > 0


# ----------------------------------------------------------- to the model


def test_a_transcript_context_is_made_by_normalize_context_only() -> None:
    with pytest.raises(TypeError, match=r"normalize_context\(\)"):
        TranscriptContext()
    assert type(normalize_context([USER])) is TranscriptContext


def test_prompt_and_tools_become_the_leading_message() -> None:
    context = normalize_context([USER], system_prompt="P", tools=iter([A]))
    assert list(context.messages) == [SystemMessage("P", tools_added=(A,), timestamp=0), USER]
    assert context.system_prompt == "P"
    assert context.tools == (A,)


def test_without_prompt_and_tools_the_messages_are_sent_as_they_are() -> None:
    messages: list[Message] = [USER, ANSWER]
    context = normalize_context(messages)
    messages.append(USER)
    assert list(context.messages) == [USER, ANSWER]
    view = MessageView(messages)
    assert normalize_context(view).messages is view
    as_tuple = (USER, ANSWER)
    assert normalize_context(as_tuple).messages is as_tuple
    assert list(normalize_context([]).messages) == []


def test_a_transcript_context_replays_its_messages() -> None:
    context = normalize_context(
        [SystemMessage("One.", tools_added=(A, B)), USER, SystemMessage("Two.", tools_removed=("a",))]
    )
    assert context.system_prompt == "One.\n\nTwo."
    assert context.tools == (B,)


def test_a_transcript_context_cannot_be_changed() -> None:
    context = normalize_context([USER])
    for name in ("messages", "other"):
        with pytest.raises(AttributeError):
            setattr(context, name, [ANSWER])
    assert list(context.messages) == [USER]
    assert not hasattr(context.messages, "append")


def test_a_request_pickles_with_its_transcript() -> None:
    request = ModelRequest(SimpleModel("p", "m"), normalize_context(MessageView([USER, ANSWER], 1), system_prompt="P"))
    other = pickle.loads(pickle.dumps(request))
    assert list(other.messages) == list(request.messages)
    assert other.context.system_prompt == "P"
    assert other.model == request.model


def test_the_default_conversion_lets_the_four_roles_pass() -> None:
    system, result = SystemMessage("P"), ToolResultMessage("c", "t", "x")
    assert default_convert_to_llm([system, USER, Note(), ANSWER, result]) == [system, USER, ANSWER, result]
    assert default_convert_to_llm([Note("x", role="user")]) == []  # the role alone makes no message of ours


# ------------------------------------------------------------------ repair


def answer(*ids: str, stop_reason: StopReason = "tool_use") -> AssistantMessage:
    calls = [ToolCall(call_id, f"t{number}", {"n": number}) for number, call_id in enumerate(ids)]
    return AssistantMessage((TextContent("x"), *calls, ThinkingContent("y")), stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("ids", "repaired"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        ([""], ["call_1"]),
        (["", ""], ["call_1", "call_2"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a_1", "a"], ["a", "a_1", "a_2"]),
        (["", "call_1", "call_2", ""], ["call_3", "call_1", "call_2", "call_4"]),
        (["a", "", "a", ""], ["a", "call_1", "a_1", "call_2"]),
    ],
)
def test_calls_get_ids_of_their_own(ids: list[str], repaired: list[str]) -> None:
    message = answer(*ids)
    result = repair_call_ids(message)
    assert [call.id for call in result.tool_calls] == repaired
    assert (result is message) == (ids == repaired)
    # Nothing else changes, and a second repair changes nothing at all.
    assert repair_call_ids(result) is result
    assert [attrs.evolve(call, id="") for call in result.tool_calls] == [
        attrs.evolve(call, id="") for call in message.tool_calls
    ]
    assert [block for block in result.content if not isinstance(block, ToolCall)] == [
        TextContent("x"),
        ThinkingContent("y"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_repaired_ids_are_unique_whatever_they_were(seed: int) -> None:
    rng = random.Random(seed)
    pool = ["", "a", "a_1", "a_2", "call", "call_1", "call_2", "_1"]
    for _ in range(500):
        message = answer(*rng.choices(pool, k=rng.randrange(7)))
        ids = [call.id for call in repair_call_ids(message).tool_calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
        for old, new in zip(message.tool_calls, ids, strict=True):
            assert new == old.id or not old.id or [call.id for call in message.tool_calls].count(old.id) > 1


def results_of(*ids: str) -> list[AgentMessage]:
    return [ToolResultMessage(call_id, "t", "fine") for call_id in ids]


def assert_answered(messages: Sequence[AgentMessage]) -> None:
    """Design 7.9, Answered: behind each good answer its calls have one result each, in source order."""
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            for call in message.tool_calls:
                result = messages[position]
                assert isinstance(result, ToolResultMessage)
                assert result.tool_call_id == call.id
                position += 1
        else:
            assert not isinstance(message, ToolResultMessage)


def test_a_crash_during_a_batch_is_closed_with_error_results() -> None:
    # Known fault B07: only the open call gets a result, nothing else is touched.
    first, second = ToolCall("c1", "read"), ToolCall("c2", "write")
    crashed: list[AgentMessage] = [USER, AssistantMessage((first, second), stop_reason="tool_use"), *results_of("c1")]
    before = list(crashed)
    repaired = repair_transcript(crashed)
    assert repaired[:3] == crashed
    (added,) = repaired[3:]
    assert isinstance(added, ToolResultMessage)
    assert (added.tool_call_id, added.tool_name, added.is_error) == ("c2", "write", True)
    assert "may have had effects" in added.text
    assert crashed == before


def test_the_text_of_the_new_results_can_be_given() -> None:
    repaired = repair_transcript([USER, answer("c1")], "Gone.")
    assert cast("ToolResultMessage", repaired[-1]).text == "Gone."


def test_every_crash_point_of_a_transcript_is_repaired_and_a_second_repair_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)  # the new results are compared with each other
    whole: list[AgentMessage] = [
        SystemMessage("P"),
        USER,
        answer("a", "b", "c"),
        *results_of("a", "b", "c"),
        answer("a"),  # the id again, in another turn
        *results_of("a"),
        answer(),
        USER,
        answer("d", "e"),
        *results_of("d", "e"),
        answer("f", stop_reason="aborted"),
        USER,
        answer("g", "h", stop_reason="length"),
        *results_of("g", "h"),
        answer("i", stop_reason="error"),
    ]
    assert repair_transcript(whole) == whole
    for length in range(len(whole) + 1):
        repaired = repair_transcript(whole[:length])
        assert_answered(repaired)
        assert repaired[:length] == whole[:length]
        assert repair_transcript(repaired) == repaired
        # A later prompt does not take the open calls away.
        later = repair_transcript([*whole[:length], USER])
        assert_answered(later)
        assert later == [*repaired, USER]


def test_calls_of_failed_and_aborted_answers_need_no_result() -> None:
    for failed in (answer("a", stop_reason="error"), answer("a", stop_reason="aborted")):
        assert repair_transcript([USER, failed, USER]) == [USER, failed, USER]


def test_results_that_answer_nothing_stay_where_they_are() -> None:
    messages = [USER, *results_of("z"), answer("a"), *results_of("z", "a"), USER]
    assert repair_transcript(messages) == messages


def test_a_message_of_the_hosts_between_a_call_and_its_result_closes_nothing() -> None:
    # No model sees it, so it parts nothing; the call has its one result already.
    (first, second), note = results_of("a", "b"), Note("running")
    messages: list[AgentMessage] = [USER, answer("a", "b"), note, first, note, second, note, USER]
    assert repair_transcript(messages) == messages


# -------------------------------------------------------------------- JSON


def test_a_transcript_comes_back_from_json() -> None:
    messages: list[AgentMessage] = [SystemMessage("P", tools_added=(A,)), USER, answer("a"), *results_of("a"), ANSWER]
    document = json.loads(json.dumps(transcript_to_json(iter(messages))))
    assert document["format"] == "trio_agent/transcript"
    assert document["version"] == 1
    assert transcript_from_json(document) == messages
    assert transcript_from_json(transcript_to_json([])) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": "other"}, "no transcript.*trio_agent/transcript"),
        ({"format": None}, "no transcript.*trio_agent/transcript"),
        ({"version": 2}, "version 2; this release reads version 1"),
        ({"version": 0}, "version 0"),
        ({"version": "1"}, "version '1'"),
        ({"version": None}, "version None"),
        ({"messages": None}, 'lacks an array "messages"'),
        ({"messages": {}}, 'lacks an array "messages"'),
        ({"messages": ["x"]}, r"messages\[0\] is 'x'"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "x"}]}, r"messages\[1\] has the role 'x'"),
    ],
)
def test_a_bad_transcript_is_refused_with_a_reason(change: dict[str, Any], text: str) -> None:
    document = transcript_to_json([USER])
    assert transcript_from_json(document) == [USER]
    with pytest.raises(FormatError, match=text):
        transcript_from_json({**document, **change})


@pytest.mark.parametrize("document", [None, [], "x", 5, {}, [{"role": "user", "content": "x"}]])
def test_what_is_no_transcript_is_refused(document: Any) -> None:
    with pytest.raises(FormatError, match="this is no transcript"):
        transcript_from_json(document)
