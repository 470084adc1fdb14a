import trio
from trip_tools import TOOLS

from trio_agent import Agent, ToolCall, ToolResultMessage
from trio_agent.testing import ScriptedModel


async def main() -> None:
    model = ScriptedModel(
        [
            [
                "Let me see.",
                ToolCall("c1", "measure", {"city": "Rome"}),
                ToolCall("c2", "measure", {"city": "Atlantis"}),
                ToolCall("c3", "to_fahrenheit", {"celsius": 21.5}),
            ],
            "It is 21.5 degrees in Rome. I know nothing about Atlantis.",
        ]
    )
    agent = Agent(model, tools=TOOLS)
    started = trio.current_time()
    result = await agent.prompt("How warm is it in Rome and in Atlantis?")
    print(f"{trio.current_time() - started:.1f} seconds")
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(message.tool_call_id, "error" if message.is_error else "ok", message.text)
    print(result.text)


trio.run(main)
