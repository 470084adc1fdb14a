from collections.abc import Callable

import trio

from trio_agent import Agent, AssistantMessage, RunLimits, ToolCall, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel


@tool
async def slow() -> str:
    """Take a second."""
    await trio.sleep(1)
    return "slow is done"


@tool
async def quick() -> str:
    """Take no time."""
    await trio.lowlevel.checkpoint()
    return "quick is done"


def by_abort(agent: Agent) -> None:
    agent.abort("enough")


def by_cancel_tool(agent: Agent) -> None:
    agent.cancel_tool("c2", "not needed")


def by_interrupt(agent: Agent) -> None:
    agent.interrupt("Do something else.")


def by_stop_after_turn(agent: Agent) -> None:
    agent.stop_after_turn()


def by_crash(agent: Agent) -> None:
    raise RuntimeError("another part of the program failed")


def nothing(agent: Agent) -> None:
    pass


async def show(name: str, act: Callable[[Agent], None], limits: RunLimits, deadline: float) -> None:
    model = ScriptedModel([[ToolCall("c1", "quick"), ToolCall("c2", "slow")], "Good."])
    agent = Agent(model, tools=[quick, slow], limits=limits)
    outcome = "passed on Cancelled"

    async def later() -> None:
        await trio.sleep(0.2)
        act(agent)

    try:
        with trio.move_on_after(deadline):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(later)
                await agent.prompt("Go.")
                outcome = "returned"
    except* RuntimeError:
        outcome += ", the nursery raised RuntimeError"
    assert agent.last_result is not None
    print(f"{name}: prompt() {outcome}; end_reason {agent.last_result.end_reason}")
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(f"  {message.tool_call_id}: {message.text}")
    answers = [message for message in agent.messages if isinstance(message, AssistantMessage)]
    print(f"  last answer: {answers[-1].stop_reason} {answers[-1].error_message or answers[-1].text!r}")


async def main() -> None:
    forever, unlimited = float("inf"), RunLimits()
    await show("abort()", by_abort, unlimited, forever)
    await show("deadline", nothing, unlimited, 0.2)
    await show("crash of a sibling", by_crash, unlimited, forever)
    await show("limit of seconds", nothing, RunLimits(seconds=0.2), forever)
    await show("cancel_tool()", by_cancel_tool, unlimited, forever)
    await show("interrupt()", by_interrupt, unlimited, forever)
    await show("stop_after_turn()", by_stop_after_turn, unlimited, forever)


trio.run(main)
