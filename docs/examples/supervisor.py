"""A supervisor: a second task watches a running agent and steers it.

The agent surveys one field after the other. The supervisor counts what comes back;
when it has seen enough it steers the agent, which takes the message before its next
request. The two know each other only through the agent: listeners tell the
supervisor, ``steer()`` answers.
"""

import trio

from trio_agent import Agent, ModelRequest, ToolCall, ToolExecutionEnd, UserMessage, tool
from trio_agent.testing import PlainTurn, ScriptedModel

FIELDS = ("north", "east", "south", "west")


@tool
async def survey(field: str) -> dict[str, int]:
    """Count the trees in a field."""
    await trio.sleep(0.02)
    return {"trees": 10 * len(field)}


def think(request: ModelRequest) -> PlainTurn:
    """Stand in for a model: survey the next field, unless somebody has said that it is enough."""
    said = [message.text for message in request.messages if isinstance(message, UserMessage)]
    done = sum(message.role == "tool_result" for message in request.messages)
    if any("enough" in text for text in said):
        return f"I stop after {done} of {len(FIELDS)} fields, as you wish."
    if done == len(FIELDS):
        return "All fields are surveyed."
    return ToolCall(f"c{done}", "survey", {"field": FIELDS[done]})


async def supervise(agent: Agent, results: trio.MemoryReceiveChannel[ToolExecutionEnd]) -> None:
    trees = 0
    async for event in results:
        trees += event.result.structured_content["trees"]
        print(f"supervisor: {trees} trees so far")
        if trees > 80:
            agent.steer("That is enough, please sum up.")
            return


async def main() -> None:
    agent = Agent(ScriptedModel([think] * (len(FIELDS) + 1)), tools=[survey])
    send, receive = trio.open_memory_channel[ToolExecutionEnd](len(FIELDS))
    agent.subscribe(send.send_nowait, ToolExecutionEnd)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise, agent, receive)
        with send:
            result = await agent.prompt("Survey all fields.")
        print(f"agent: {result.text}")


if __name__ == "__main__":
    trio.run(main)
