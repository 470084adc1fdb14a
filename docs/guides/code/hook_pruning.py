from collections.abc import Sequence

import attrs
import trio

from trio_agent import Agent, AgentMessage, ToolCall, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel


@tool
def read_page(number: int) -> str:
    """Read a page of the book."""
    return f"page {number}: a very long text"


def prune(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Keep the newest result whole; of older ones keep only that they were there."""
    newest = max((i for i, message in enumerate(messages) if isinstance(message, ToolResultMessage)), default=-1)
    return [
        attrs.evolve(message, content="[read before]")
        if isinstance(message, ToolResultMessage) and index < newest
        else message
        for index, message in enumerate(messages)
    ]


async def main() -> None:
    model = ScriptedModel(
        [ToolCall("c1", "read_page", {"number": 1}), ToolCall("c2", "read_page", {"number": 2}), "Read."]
    )
    agent = Agent(model, tools=[read_page], transform_context=prune)
    await agent.prompt("Read the book.")
    for title, messages in (("the model saw", model.requests[-1].messages), ("the transcript holds", agent.messages)):
        print(title, [message.text for message in messages if isinstance(message, ToolResultMessage)])


trio.run(main)
