import trio

from trio_agent import Agent, BeforeToolCallContext, BeforeToolCallResult, ToolCall, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel


@tool
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


class Desk:
    """Where questions wait for a person."""

    def __init__(self) -> None:
        self.ask, self.questions = trio.open_memory_channel[tuple[str, trio.Event, list[bool]]](0)

    async def before_tool_call(self, question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        answered, answer = trio.Event(), list[bool]()
        await self.ask.send((f"{question.tool_call.name} {question.args}", answered, answer))
        await answered.wait()
        return None if answer == [True] else BeforeToolCallResult(block=True, reason="the user said no")


async def person(desk: Desk) -> None:
    async for text, answered, answer in desk.questions:
        answer.append("important" not in text)
        print(text, "->", "yes" if answer[0] else "no")
        answered.set()


async def main() -> None:
    desk = Desk()
    calls = [ToolCall("c1", "delete", {"path": "old.txt"}), ToolCall("c2", "delete", {"path": "important.txt"})]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[delete], before_tool_call=desk.before_tool_call)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(person, desk)
        await agent.prompt("Clean up.")
        nursery.cancel_scope.cancel(reason="nobody asks any more")
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(message.tool_call_id, message.text)


trio.run(main)
