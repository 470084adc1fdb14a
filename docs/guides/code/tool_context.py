import trio

from trio_agent import Agent, ToolCall, ToolContext, ToolExecutionUpdate, tool
from trio_agent.testing import ScriptedModel


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
async def twice(number: int, ctx: ToolContext) -> str:
    """Double a number two times."""
    await ctx.update("half way")
    first = await ctx.run_tool_call("double", {"number": number})
    second = await ctx.run_tool_call("double", {"number": first.result.structured_content})
    return f"{ctx.tool_call_id} used {first.tool_call.id} and {second.tool_call.id}: {second.result.text}"


def show(event: ToolExecutionUpdate) -> None:
    print("update:", event.partial_result.text)


async def main() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "twice", {"number": 5}), "20."]), tools=[twice, double])
    agent.subscribe(show, ToolExecutionUpdate)
    await agent.prompt("Double 5 two times.")
    print(agent.messages[-2].text)  # type: ignore[union-attr]


trio.run(main)
