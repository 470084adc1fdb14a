import pytest
import trio

from trio_agent import Agent, AgentEvent, ModelRequest, StopReason, ToolCall, ToolResultMessage, UserMessage, tool
from trio_agent.testing import ScriptedModel, ScriptNotExhaustedError

pytestmark = pytest.mark.trio  # each test of this file is an async function


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.sleep(5)
    return a + b


async def test_a_turn_may_look_at_the_request(autojump_clock: trio.testing.MockClock) -> None:
    def answer(request: ModelRequest) -> str:
        last = request.messages[-1]
        assert isinstance(last, ToolResultMessage)
        return f"The sum is {last.text}."

    agent = Agent(ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), answer]), tools=[add])
    assert (await agent.prompt("What is 1 + 2?")).text == "The sum is 3."


async def test_a_model_that_fails_ends_the_run_with_an_error() -> None:
    agent = Agent(ScriptedModel([ConnectionError("line is down")]))
    result = await agent.prompt("Hello?")
    assert (result.end_reason, result.stop_reason) == ("error", "error")
    assert isinstance(result.exception, ConnectionError)
    with pytest.raises(ConnectionError, match="line is down"):
        result.raise_for_error()


async def test_events_come_in_order(autojump_clock: trio.testing.MockClock) -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "3."]), tools=[add])
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.prompt("What is 1 + 2?")
    kinds = [event.type for event in events]
    assert kinds.index("tool_execution_start") < kinds.index("tool_execution_end")
    assert kinds[-1] == "agent_end"


@pytest.mark.parametrize("seconds", [0, 1, 2.5, 4.999, 5, 6])
async def test_each_call_is_answered_wherever_the_host_cancels(
    seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    model = ScriptedModel([["Let me see.", ToolCall("c1", "add", {"a": 1, "b": 2})], "It is 3."], delay=0.25)
    agent = Agent(model, tools=[add])
    with trio.move_on_after(seconds):
        await agent.prompt("What is 1 + 2?")
    called = [call.id for message in agent.messages for call in getattr(message, "tool_calls", ()) if ended(message)]
    answered = [message.tool_call_id for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert called == answered
    assert (await Agent(ScriptedModel(["Yes."]), messages=agent.messages).prompt("Still there?")).text == "Yes."


def ended(message: object) -> bool:
    """Whether an answer came to its end; the calls of one that was cut off are never run."""
    reason: StopReason = getattr(message, "stop_reason", "aborted")
    return reason not in ("error", "aborted")


async def test_steering_reaches_the_next_request(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "In Latin: III."])
    agent = Agent(model, tools=[add])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "What is 1 + 2?")
        await trio.testing.wait_all_tasks_blocked()
        agent.steer("In Latin, please.")
    assert [m.text for m in model.requests[1].messages if isinstance(m, UserMessage)][-1] == "In Latin, please."


async def test_a_script_says_what_nobody_asked_for() -> None:
    model = ScriptedModel(["One.", "Two."])
    await Agent(model).prompt("Hello")
    with pytest.raises(ScriptNotExhaustedError, match="1 of 2 turns were never asked for"):
        model.assert_exhausted()
