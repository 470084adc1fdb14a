"""A batch: 200 prompts, at most 20 at a time, with a progress bar.

Each prompt has an agent of its own. A limiter bounds how many run; a prompt that
fails is counted and does not end the others. Ctrl-C ends all of them in order.
"""

import trio
from rich.progress import Progress

from trio_agent import Agent, RunResult, ToolCall, tool
from trio_agent.testing import ScriptedModel, Turn

PROMPTS = 200
AT_ONCE = 20


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.sleep(0.01)
    return a + b


def model(number: int) -> ScriptedModel:
    """Stand in for a provider; every fiftieth request fails."""
    script: list[Turn] = [ToolCall("c1", "add", {"a": number, "b": 1}), f"{number} + 1 = {number + 1}"]
    return ScriptedModel([ConnectionError("the provider is busy")] if number % 50 == 0 else script)


async def main() -> None:
    limiter = trio.CapacityLimiter(AT_ONCE)
    results: dict[int, RunResult] = {}

    with Progress() as bar:
        task = bar.add_task("prompts", total=PROMPTS)

        async def ask(number: int) -> None:
            async with limiter:
                agent = Agent(model(number), tools=[add])
                # After a failure of the model prompt() returns; the result says what happened.
                results[number] = await agent.prompt(f"What is {number} + 1?")
            bar.advance(task)

        async with trio.open_nursery() as nursery:
            for number in range(1, PROMPTS + 1):
                nursery.start_soon(ask, number)

    failed = sorted(number for number, result in results.items() if result.end_reason != "done")
    print(f"{len(results) - len(failed)} answered, failed: {failed}")
    print(results[41].text)


if __name__ == "__main__":
    trio.run(main)
