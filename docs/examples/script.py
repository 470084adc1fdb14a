"""A script: one prompt, one tool, the answer printed as it comes.

The model answers from a script, so that this runs without a key or a network.
"""

import trio

from trio_agent import Agent, ToolCall, ToolContext, ToolExecutionUpdate, tool
from trio_agent.testing import ScriptedModel


@tool
async def measure(city: str, ctx: ToolContext) -> dict[str, float]:
    """Measure the temperature in a city.

    Args:
      city: its name.
    """
    await ctx.update(f"asking the station in {city}")
    await trio.sleep(0.1)
    return {"celsius": 21.5}


def show_progress(event: ToolExecutionUpdate) -> None:
    print(f"[{event.partial_result.text}]")


async def main() -> None:
    rome = ToolCall("c1", "measure", {"city": "Rome"})
    oslo = ToolCall("c2", "measure", {"city": "Oslo"})
    model = ScriptedModel([["Let me look. ", rome, oslo], "It is 21.5 degrees in both."])
    agent = Agent(model, system_prompt="You know the weather.", tools=[measure])
    agent.subscribe(show_progress, ToolExecutionUpdate)
    with trio.fail_after(10):
        async with agent.run("How warm is it in Rome and in Oslo?") as run:
            async for piece in run.text():
                print(piece, end="", flush=True)
    print()
    run.result.raise_for_error()


if __name__ == "__main__":
    trio.run(main)
