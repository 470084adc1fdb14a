import trio
from trip_tools import TOOLS

from trio_agent import Agent, ToolCall, UserMessage
from trio_agent.testing import ScriptedModel


async def user(agent: Agent) -> None:
    await trio.sleep(0.2)  # the tool runs now
    agent.steer("By the way: I would rather go by ship.")
    agent.follow_up("Thank you. What shall I pack?")


async def main() -> None:
    model = ScriptedModel(
        [
            ToolCall("c1", "measure", {"city": "Oslo"}),
            "It is 4 degrees in Oslo. I look for a ship, then.",
            "A warm coat.",
        ]
    )
    agent = Agent(model, tools=TOOLS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(user, agent)
        await agent.prompt("I want to go to Oslo by train. How warm is it?")
    for message in agent.messages:
        if message.role != "system":
            text = getattr(message, "text", "") or "(calls a tool)"
            print("you:  " if isinstance(message, UserMessage) else f"{message.role}:", text)
    model.assert_exhausted()


trio.run(main)
