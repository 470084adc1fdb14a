import trio

from trio_agent import Agent, QueueFullError, ToolCall, UserMessage, tool
from trio_agent.testing import ScriptedModel


@tool
async def work(seconds: float) -> str:
    """Work for a while."""
    await trio.sleep(seconds)
    return "done"


def from_a_thread(agent: Agent, token: trio.lowlevel.TrioToken) -> None:
    trio.from_thread.run_sync(agent.steer, "from a thread", trio_token=token)


async def main() -> None:
    model = ScriptedModel([ToolCall("c1", "work", {"seconds": 0.6}), "One.", "Two.", "Three."])
    agent = Agent(model, tools=[work], steering_capacity=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Begin.")
        await trio.sleep(0.1)
        agent.steer("from a task")
        await trio.to_thread.run_sync(from_a_thread, agent, trio.lowlevel.current_trio_token())
        try:
            agent.steer("too much")
        except QueueFullError as error:
            print(error)
        await agent.steering.send("waited for room")
    print([message.text for message in agent.messages if isinstance(message, UserMessage)])


trio.run(main)
