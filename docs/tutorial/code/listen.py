import trio
from trip_tools import TOOLS

from trio_agent import Agent, AgentEvent, MessageUpdate, ToolCall
from trio_agent.testing import ScriptedModel


def show(event: AgentEvent) -> None:
    if not isinstance(event, MessageUpdate):
        print(event.type)


async def main() -> None:
    model = ScriptedModel([ToolCall("c1", "to_fahrenheit", {"celsius": 4.0}), "It is 39.2 F."])
    agent = Agent(model, tools=TOOLS)
    agent.subscribe(show)
    await agent.prompt("What is 4 C in F?")


trio.run(main)
