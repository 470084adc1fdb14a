import trio

from trio_agent import Agent, ToolCall, ToolContext, ToolResultMessage, tool
from trio_agent.testing import ScriptedModel


class Store:
    """Files on a far machine: parts of drafts, and what is published. Each request takes a tenth of a second."""

    def __init__(self) -> None:
        self.drafts: dict[str, dict[int, str]] = {}
        self.published: dict[str, str] = {}

    async def put(self, draft: str, number: int, part: str) -> None:
        await trio.sleep(0.1)
        self.drafts.setdefault(draft, {})[number] = part  # twice is once

    async def publish(self, draft: str, name: str) -> None:
        await trio.sleep(0.1)
        self.published[name] = "".join(self.drafts.pop(draft).values())

    async def discard(self, draft: str) -> None:
        await trio.sleep(0.1)
        self.drafts.pop(draft, None)  # of a draft that is gone, nothing


store = Store()


@tool
async def publish(name: str, parts: list[str], ctx: ToolContext) -> str:
    """Publish a file."""
    draft = f"{name}-{ctx.tool_call_id}"
    try:
        for number, part in enumerate(parts, 1):
            await store.put(draft, number, part)  # may be cut: nobody sees a draft
            await ctx.update(f"{number} of {len(parts)} parts are there")
        with trio.move_on_after(2, shield=True):  # the commit point: all of it, or none of it
            await store.publish(draft, name)
            return f"{name} is published"
        raise TimeoutError("the store does not answer; look whether the file is there")
    finally:
        with trio.move_on_after(1, shield=True):
            await store.discard(draft)


async def abort_at(seconds: float) -> None:
    call = ToolCall("c1", "publish", {"name": "notes", "parts": ["three ", "short ", "lines"]})
    agent = Agent(ScriptedModel([[call], "It is there."]), tools=[publish], repeat_partial=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.prompt, "Publish the notes.")
        await trio.sleep(seconds)
        agent.abort("enough")
    (result,) = (message for message in agent.messages if isinstance(message, ToolResultMessage))
    print(f"aborted after {seconds} s: {result.error_kind or 'ok'}: {result.text}")
    print(f"    drafts {store.drafts}, published {store.published}")


async def main() -> None:
    await abort_at(0.25)
    await abort_at(0.35)


trio.run(main)
