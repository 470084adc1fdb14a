import pytest
import trio
from trip_tools import TOOLS

from trio_agent import Agent, ToolCall, ToolResultMessage
from trio_agent.testing import ScriptedModel


def results(agent: Agent) -> dict[str, ToolResultMessage]:
    """The results of all calls, by the ids of the calls."""
    return {message.tool_call_id: message for message in agent.messages if isinstance(message, ToolResultMessage)}


async def abort_later(agent: Agent) -> None:
    await trio.sleep(0.7)
    agent.abort()


@pytest.mark.trio
async def test_the_model_is_told_that_a_station_is_missing(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([ToolCall("c1", "measure", {"city": "Atlantis"}), "No station there."])
    agent = Agent(model, tools=TOOLS)
    await agent.prompt("How warm is it in Atlantis?")
    assert results(agent)["c1"].is_error
    assert "no station in Atlantis" in results(agent)["c1"].text
    assert model.requests[1].messages[-1] is results(agent)["c1"]
    model.assert_exhausted()


@pytest.mark.trio
async def test_measuring_twice_takes_as_long_as_once(autojump_clock: trio.testing.MockClock) -> None:
    calls = [ToolCall(f"c{n}", "measure", {"city": city}) for n, city in enumerate(["Rome", "Oslo"])]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=TOOLS)
    started = trio.current_time()
    await agent.prompt("How warm is it?")
    assert trio.current_time() - started == 0.5


@pytest.mark.trio
async def test_a_booking_that_was_aborted_says_that_it_may_have_happened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "book_train", {"city": "Rome"})]), tools=TOOLS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort_later, agent)
        result = await agent.prompt("Book a train to Rome.")
    assert result.end_reason == "aborted"
    assert results(agent)["c1"].error_kind == "aborted"
    assert "may have had effects" in results(agent)["c1"].text
