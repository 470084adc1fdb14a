"""The invariants of design 7.9, as plain functions that a test calls after a run.

Each takes what a listener saw or what the transcript holds, and fails with a sentence. They know
nothing of how a run is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trio_agent import Agent, AgentEnd, AgentEvent, AgentMessage, MessageEnd, ToolResultMessage
from trio_agent.testing import ScriptedModel, assert_transcript_valid

# ------------------------------------------------------------- transcript


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
    assert_transcript_valid(model.requests[-1].messages)
    assert_transcript_valid(agent.messages)
    assert_idle(agent)
