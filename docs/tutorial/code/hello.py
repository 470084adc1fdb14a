import trio

from trio_agent import Agent
from trio_agent.testing import ScriptedModel


async def main() -> None:
    model = ScriptedModel(["Hello! What shall we plan?"])
    agent = Agent(model, system_prompt="You help to plan trips.")
    result = await agent.prompt("Hi.")
    print(result.text)
    print(result.end_reason)
    for message in agent.messages:
        print("-", message.role)


trio.run(main)
