import trio

from trio_agent import Agent, ToolCall, ToolContext, tool
from trio_agent.testing import ScriptedModel


@tool
async def upload(ctx: ToolContext) -> str:
    """Upload a file."""
    try:
        await trio.sleep(60)
    finally:
        with trio.move_on_after(0.3, shield=True):  # the run waits for this, and not for longer
            await trio.sleep(0.1)
            print("the connection is closed")
    return "uploaded"


async def listener(event: object) -> None:
    await trio.lowlevel.checkpoint()
    kind = type(event).__name__
    if kind in ("ToolExecutionEnd", "TurnEnd", "AgentEnd"):
        print("told:", kind)


async def main() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "upload")]), tools=[upload], closing_grace=0.5)
    agent.subscribe(listener)
    with trio.move_on_after(0.2):
        await agent.prompt("Upload it.")
    print(agent.messages[-1].error_message)  # type: ignore[union-attr]


trio.run(main)
