"""The invariants of design 7.9, as plain functions that a test calls after a run.

Each takes what a listener saw or what the transcript holds, and fails with a sentence. They know
nothing of how a run is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    TextContent,
    TextDelta,
    ThinkingContent,
    ThinkingDelta,
    ToolCallDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
)
from trio_agent._stream import parse_partial_arguments
from trio_agent.testing import ScriptedModel

# ------------------------------------------------------------- transcript


def assert_answered(messages: Iterable[AgentMessage]) -> None:
    """Every call that should be answered has one result, in source order, directly behind its message."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert owed, f"the result of {message.tool_call_id!r} answers nothing"
            assert message.tool_call_id == owed[0], f"{owed[0]!r} should be answered here, not {message.tool_call_id!r}"
            del owed[0]
            continue
        assert not owed, f"{owed} have no results before the {message.role} message {message!r:.100}"
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            owed = [call.id for call in message.tool_calls]
            assert len(set(owed)) == len(owed), f"call ids repeat: {owed}"
    assert not owed, f"{owed} have no results at the end of the transcript"


def assert_says_what_happened(messages: Iterable[AgentMessage], entered: Iterable[str]) -> None:
    """Truth: a result says that its call never started if, and only if, the tool was not entered.

    Args:
      messages: the transcript.
      entered: the ids of the calls whose tool was entered.
    """
    ids = set(entered)
    for message in messages:
        if not isinstance(message, ToolResultMessage):
            continue
        if message.error_kind in ("tool_not_found", "invalid_arguments", "blocked", "truncated", "limit"):
            assert message.tool_call_id not in ids, f"{message.tool_call_id!r} ran, but its result says: {message.text}"
        elif message.error_kind == "not_started":
            assert message.tool_call_id not in ids, f"{message.tool_call_id!r} ran, but its result says that it did not"
            assert "never started" in message.text
        elif message.error_kind in ("aborted", "timeout", "withheld") or not message.is_error:
            assert message.tool_call_id in ids, f"{message.tool_call_id!r} never ran, but its result is {message!r}"


def assert_nothing_lost(agent: Agent, queued: Iterable[AgentMessage]) -> None:
    """Each message that was queued is in its queue or in the transcript, once, as the same object."""
    places = [*agent.messages, *waiting(agent)]
    for message in queued:
        count = sum(place is message for place in places)
        assert count == 1, f"{message!r:.80} stands in transcript and queues {count} times"


def waiting(agent: Agent) -> list[AgentMessage]:
    """All messages that wait: steering first, then follow-ups."""
    found: list[AgentMessage] = []
    for queue in (agent.steering, agent.follow_ups):
        mode, queue.mode = queue.mode, "all"
        found.extend(queue.peek())
        queue.mode = mode
    return found


# ----------------------------------------------------------------- events


def assert_paired(events: Sequence[AgentEvent]) -> None:
    """Every start has its end, once; what lies inside something lies between its start and its end."""
    turn_open = False
    ended = False
    message: AgentMessage | None = None
    calls: dict[str, str] = {}
    results: list[ToolResultMessage] = []
    answer: AgentMessage | None = None
    for number, event in enumerate(events):
        where = f"event {number} ({event.type})"
        assert not ended, f"{where} comes after agent_end"
        if isinstance(event, AgentStart):
            assert number == 0, f"{where} is not the first"
            continue
        assert number > 0, f"{where} comes before agent_start"
        if isinstance(event, TurnStart):
            assert not turn_open, f"{where} comes within a turn"
            turn_open, calls, results, answer = True, {}, [], None
            continue
        if isinstance(event, AgentEnd):
            assert not turn_open, f"{where} comes within a turn"
            ended = True
            continue
        assert turn_open, f"{where} comes outside of a turn"
        if isinstance(event, MessageStart):
            assert message is None, f"{where} comes within a message"
            message = event.message
        elif isinstance(event, MessageUpdate):
            assert isinstance(message, AssistantMessage), f"{where} belongs to no answer"
        elif isinstance(event, MessageEnd):
            assert message is not None, f"{where} ends nothing"
            assert type(event.message) is type(message), f"{where} ends another message than the one that started"
            if not isinstance(event.message, AssistantMessage):
                assert event.message is message, f"{where} ends another message than the one that started"
            if isinstance(event.message, ToolResultMessage):
                results.append(event.message)
            if isinstance(event.message, AssistantMessage):
                answer = event.message
            message = None
        elif isinstance(event, ToolExecutionStart):
            assert event.tool_call_id not in calls, f"{where}: {event.tool_call_id!r} starts twice"
            calls[event.tool_call_id] = "open"
        elif isinstance(event, ToolExecutionUpdate | ToolExecutionEnd):
            assert calls.get(event.tool_call_id) == "open", f"{where}: {event.tool_call_id!r} is not open"
            if isinstance(event, ToolExecutionEnd):
                calls[event.tool_call_id] = "ended"
        elif isinstance(event, TurnEnd):
            assert message is None, f"{where} comes within a message"
            still = [call_id for call_id, state in calls.items() if state == "open"]
            assert not still, f"{where}: {still} have started and not ended"
            told = [result.tool_call_id for result in results]
            assert sorted(told) == sorted(calls), f"{where}: calls {list(calls)}, but results of {told}"
            assert list(event.tool_results) == results, f"{where} lists other results than were told"
            assert event.message is answer, f"{where} names another answer than the last that was told"
            turn_open = False
    assert ended, f"there is no agent_end after {len(events)} events"


def assert_adds_up(events: Sequence[AgentEvent]) -> None:
    """What was told of an answer adds up to the message told at its end."""
    start: AssistantMessage | None = None
    updates: list[MessageUpdate] = []
    for event in events:
        if isinstance(event, MessageStart):
            start, updates = (event.message if isinstance(event.message, AssistantMessage) else None), []
        elif isinstance(event, MessageUpdate):
            updates.append(event)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            assert start is not None
            _assert_sum(start, updates, event.message)
            start = None


def _assert_sum(start: AssistantMessage, updates: Sequence[MessageUpdate], end: AssistantMessage) -> None:
    if start.stop_reason != "pending":
        assert not updates, "a message that was whole from its start has grown"
        assert end == start
        return
    texts = {index: _block_text(block) for index, block in enumerate(start.content)}
    ended: set[int] = set()
    for update in updates:
        step = update.assistant_message_event
        index = getattr(step, "index", None)
        if index is None:
            continue
        texts.setdefault(index, "")
        if isinstance(step, TextDelta | ThinkingDelta | ToolCallDelta):
            texts[index] += step.delta
        elif step.type == "toolcall_end":
            ended.add(index)
    seen = updates[-1].message.content if updates else start.content
    assert len(texts) == len(end.content), f"{len(texts)} blocks were told, {len(end.content)} stand in the message"
    for index, block in enumerate(end.content):
        if block.type == "toolCall" and block.arguments_error is not None:
            # What was streamed is no JSON object: it is kept as it came, and nothing of it is executed.
            assert block.raw_arguments == texts[index], f"block {index} says {block!r}, told was {texts[index]!r}"
            assert block.arguments == {}
        elif block.type == "toolCall":
            if index not in ended:
                told: Mapping[str, Any] = parse_partial_arguments(texts[index])
            elif texts[index].strip():
                told = json.loads(texts[index], strict=False)
            else:  # sent whole, without deltas: the last event shows them
                shown = seen[index]
                assert shown.type == "toolCall"
                told = shown.arguments
            assert block.arguments == told, f"block {index} says {block.arguments}, told was {told}"
        else:
            assert _block_text(block) == texts[index], f"block {index} says {block!r}, told was {texts[index]!r}"


def _block_text(block: object) -> str:
    if isinstance(block, TextContent):
        return block.text
    return block.thinking if isinstance(block, ThinkingContent) else ""


def assert_increment(events: Sequence[AgentEvent], before: int, messages: Sequence[AgentMessage]) -> None:
    """``agent_end`` names what the run added, and each of it was told once, in its order."""
    end = events[-1]
    assert isinstance(end, AgentEnd)
    added = list(messages)[before:]
    assert _same(end.messages, added), "agent_end names something else than what the transcript gained"
    told = [event.message for event in events if isinstance(event, MessageEnd)]
    assert _same(told, added), "the messages that were told are not those that the transcript gained"


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


# -------------------------------------------------------------------- end


def assert_idle(agent: Agent) -> None:
    """After a run nothing is open."""
    state = agent.state
    assert not state.is_streaming
    assert state.streaming_message is None
    assert not state.pending_tool_calls
    assert not state.aborting


async def assert_works_again(agent: Agent, model: ScriptedModel) -> None:
    """The next prompt is answered, and what the model is sent is a valid transcript.

    What waits in the queues is dropped, so that one request is enough.
    """
    agent.clear_all_queues()
    model.turns[len(model.turns) - len(model.remaining) :] = ["Here I am."]
    requests = len(model.requests)
    result = await agent.prompt("Are you there?")
    assert result.text == "Here I am."
    assert result.end_reason == "done"
    assert len(model.requests) == requests + 1
    assert_answered(model.requests[-1].messages)
    assert_answered(agent.messages)
    assert_idle(agent)
