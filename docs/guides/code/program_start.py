import trio

from trio_agent import Agent, ToolCall, tool
from trio_agent.testing import ScriptedModel


@tool
async def work() -> str:
    """Work."""
    await trio.sleep(0.3)
    return "done"


async def heartbeat() -> None:
    while True:
        print("the program goes on")
        await trio.sleep(0.2)


async def ask(agent: Agent, prompt: str, answers: dict[str, str]) -> None:
    result = await agent.prompt(prompt)
    result.raise_for_error()
    answers[prompt] = result.text


async def main() -> None:
    answers: dict[str, str] = {}
    async with trio.open_nursery() as program:
        program.start_soon(heartbeat)
        async with trio.open_nursery() as agents:
            for prompt in ("one", "two"):
                agent = Agent(ScriptedModel([ToolCall("c1", "work"), f"I did {prompt}."]), tools=[work])
                agents.start_soon(ask, agent, prompt, answers)
        print(sorted(answers.items()))
        program.cancel_scope.cancel(reason="all answers are there")


trio.run(main)
