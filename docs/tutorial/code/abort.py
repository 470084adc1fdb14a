import trio
from trip_tools import TOOLS

from trio_agent import Agent, AssistantMessage, ToolCall, ToolResultMessage
from trio_agent.testing import ScriptedModel


async def user(agent: Agent) -> None:
    await trio.sleep(0.7)  # measure has returned by now, book_train has not
    agent.abort("I changed my mind")


async def main() -> None:
    calls = [ToolCall("c1", "measure", {"city": "Rome"}), ToolCall("c2", "book_train", {"city": "Rome"})]
    model = ScriptedModel([calls, "Where to, then?"])
    agent = Agent(model, tools=TOOLS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(user, agent)
        result = await agent.prompt("Book me a train to Rome, and tell me how warm it is.")
    print("prompt() returned:", result.end_reason)
    for message in result.new_messages:
        if isinstance(message, ToolResultMessage):
            print(message.tool_call_id, message.text)
        elif isinstance(message, AssistantMessage) and message.stop_reason == "aborted":
            print("record:", message.error_message)
    again = await agent.prompt("I stay at home.")
    print(again.text)


trio.run(main)
