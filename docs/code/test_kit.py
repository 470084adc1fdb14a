from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from trio_agent import ToolCall, ToolContext, tool
from trio_agent.testing import RecordedAgent, assert_events_paired, assert_trace, assert_transcript_valid

pytestmark = pytest.mark.trio
Recorded = Callable[..., RecordedAgent]


@tool
async def fetch(page: str, ctx: ToolContext) -> str:
    """Fetch a page; it takes five seconds."""
    await ctx.update(f"asking for {page}")
    await trio.sleep(5)
    return f"{page}: nothing new"


SCRIPT = [["Let me see.", ToolCall("c1", "fetch", {"page": "news"})], "There is nothing new."]


async def test_the_agent_fetches_and_answers(recorded_agent: Recorded, virtual_clock: MockClock) -> None:
    recorded = recorded_agent(SCRIPT, tools=[fetch])
    result = await recorded.agent.prompt("What is new?")
    assert result.text == "There is nothing new."
    assert trio.current_time() == 5
    recorded.model.assert_exhausted()


async def test_an_abort_cuts_the_fetch(recorded_agent: Recorded, virtual_clock: MockClock) -> None:
    recorded = recorded_agent(SCRIPT, tools=[fetch])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorded.agent.prompt, "What is new?")
        await trio.sleep(2)
        recorded.agent.abort("the user left")
    assert_trace(
        recorded.recorder,
        """
        run 1 (0 s to 2 s)
        ├─ turn 1 (0 s to 2 s)
        │  ├─ user "What is new?"
        │  ├─ assistant tool_use
        │  │  ├─ text "Let me see." (3 deltas)
        │  │  └─ call c1 fetch {"page": "news"} (1 delta)
        │  ├─ tool c1 fetch {"page": "news"} (0 s to 2 s)
        │  │  ├─ update "asking for news"
        │  │  └─ error [aborted] "Operation aborted while the tool ran: the user left. It m..." (2 s)
        │  ├─ * aborted: "the user left" (2 s)
        │  └─ result c1 error [aborted] (2 s)
        ├─ turn 2 (2 s)
        │  └─ assistant aborted [aborted] "Operation aborted: the user left"
        └─ end: aborted, 4 messages (2 s)
        """,
    )


@pytest.mark.parametrize("seconds", [0.5, 2, 4.5])
async def test_a_deadline_leaves_everything_in_order(
    seconds: float, recorded_agent: Recorded, virtual_clock: MockClock
) -> None:
    recorded = recorded_agent(SCRIPT, tools=[fetch])
    with trio.move_on_after(seconds) as scope:
        await recorded.agent.prompt("What is new?")
    assert scope.cancelled_caught
    assert_events_paired(recorded.recorder.events)
    assert_transcript_valid(recorded.agent.messages)
