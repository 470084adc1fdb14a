import trio
from trip_tools import TOOLS

from trio_agent import Agent, MessageEnd, MessageUpdate, TextDelta, ToolCall, ToolExecutionUpdate
from trio_agent.testing import ScriptedModel


async def main() -> None:
    model = ScriptedModel([["I book it.", ToolCall("c1", "book_train", {"city": "Rome"})], "You have a seat."])
    agent = Agent(model, tools=TOOLS)
    async with agent.run("I want to go to Rome.") as run:
        async for event in run:
            if isinstance(event, MessageUpdate) and isinstance(event.assistant_message_event, TextDelta):
                print(event.assistant_message_event.delta, end="", flush=True)
            elif isinstance(event, MessageEnd) and event.message.role == "assistant":
                print()
            elif isinstance(event, ToolExecutionUpdate):
                print(f"  ({event.partial_result.text})")
    print(run.result.end_reason)


trio.run(main)
