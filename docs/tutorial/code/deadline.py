import trio
from trip_tools import TOOLS

from trio_agent import Agent, ToolCall, ToolResultMessage
from trio_agent.testing import ScriptedModel


async def main() -> None:
    model = ScriptedModel([ToolCall("c1", "book_train", {"city": "Rome"})])
    agent = Agent(model, tools=TOOLS)
    with trio.move_on_after(0.7) as scope:
        await agent.prompt("Book me a train to Rome.")
        print("never printed")
    print("cancelled:", scope.cancelled_caught)
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(message.tool_call_id, message.text)
    print("idle:", not agent.state.is_streaming)


trio.run(main)
