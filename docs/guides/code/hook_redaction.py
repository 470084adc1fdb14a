import re

import trio

from trio_agent import AfterToolCallContext, AfterToolCallResult, Agent, TextContent, ToolCall, tool
from trio_agent.testing import ScriptedModel

SECRET = re.compile(r"key-\w+")


@tool
def read_settings() -> str:
    """Read the settings."""
    return "user=ann token=key-123abc"


def redact(told: AfterToolCallContext) -> AfterToolCallResult:
    return AfterToolCallResult(
        content=[
            TextContent(SECRET.sub("[secret]", block.text)) if isinstance(block, TextContent) else block
            for block in told.result.content
        ]
    )


async def main() -> None:
    model = ScriptedModel([ToolCall("c1", "read_settings"), "Your name is ann."])
    agent = Agent(model, tools=[read_settings], after_tool_call=redact)
    await agent.prompt("What is my name?")
    print(model.requests[1].messages[-1].text)  # type: ignore[union-attr]


trio.run(main)
