import trio

from trio_agent import Agent, ToolCall, tool
from trio_agent.testing import ScriptedModel


@tool
async def dig(metres: int) -> str:
    """Dig a hole."""
    await trio.sleep(metres)
    return f"{metres} metres deep"


async def main() -> None:
    model = ScriptedModel([ToolCall("c1", "dig", {"metres": 60}), "I stopped.", "It went well."])
    agent = Agent(model, tools=[dig])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Dig as deep as you can.")
        await trio.sleep(0.1)
        agent.steer("How is it going?")
        agent.interrupt("Stop, there is a pipe!")
    for message in agent.messages[2:]:
        print(f"{message.role}:", getattr(message, "text", ""))


trio.run(main)
