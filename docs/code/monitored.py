import logging

import trio

from trio_agent import Agent, AgentEvent, ToolCall, tool
from trio_agent.testing import Monitor, ScriptedModel

logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
monitor = Monitor()  # one for all agents of the program


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "a garden"


async def main() -> None:
    for number in range(3):
        agent = Agent(ScriptedModel([ToolCall(f"c{number}", "look"), "A garden."]), tools=[look])
        agent.subscribe(monitor)
        await agent.prompt("What is there?")
    print(f"{monitor.runs} runs, {monitor.events} events, {monitor.violated} violations")

    # A relay that drops what it takes for noise.
    def relay(event: AgentEvent) -> None:
        if event.type != "tool_execution_end":
            monitor(event)

    agent = Agent(ScriptedModel([ToolCall("c4", "look"), "A garden."]), tools=[look])
    agent.subscribe(relay)
    await agent.prompt("What is there?")
    print(f"{monitor.violated} violation: {monitor.violations[0].invariant}")


trio.run(main)
