import trio

from trio_agent import Agent, ToolCall, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel

DATABASE = trio.CapacityLimiter(2)


@tool(limiter=DATABASE, timeout=0.5)
async def query(seconds: float) -> str:
    """Query the database."""
    await trio.sleep(seconds)
    return f"took {seconds:g} s"


async def main() -> None:
    calls = [ToolCall(f"c{n}", "query", {"seconds": seconds}) for n, seconds in enumerate([0.3, 0.3, 0.3, 9])]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[query])
    started = trio.current_time()
    await agent.prompt("Ask four times.")
    print(f"{trio.current_time() - started:.1f} seconds")
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(message.tool_call_id, message.error_kind, message.text)


trio.run(main)
