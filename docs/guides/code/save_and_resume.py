import json
from pathlib import Path

import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    ToolCall,
    repair_transcript,
    tool,
    transcript_from_json,
    transcript_to_json,
)
from trio_agent.testing import ScriptedModel

FILE = trio.Path("conversation.json")


@tool
async def work() -> str:
    """Work for a long time."""
    await trio.sleep(60)
    return "done"


async def save(agent: Agent) -> None:
    text = json.dumps(transcript_to_json(agent.messages), ensure_ascii=False, indent=1)
    await trio.Path(f"{FILE}.new").write_text(text, "utf-8")
    await trio.Path(f"{FILE}.new").rename(FILE)  # either the old file or the new one is there, never a half


async def first_process() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "work")]), system_prompt="You work.", tools=[work])
    try:
        with trio.move_on_after(0.2):
            await agent.prompt("Work.")
    finally:
        with trio.move_on_after(5, shield=True):
            await save(agent)


async def second_process() -> None:
    messages = transcript_from_json(json.loads(await FILE.read_text("utf-8")))
    assert list(repair_transcript(messages)) == messages  # a run that was closed needs no repair
    agent = Agent(ScriptedModel(["I had begun, and was stopped."]), tools=[work], messages=messages)
    print("the system prompt came along:", agent.state.system_prompt)
    print((await agent.prompt("What happened?")).text)
    for message in agent.messages:
        record = isinstance(message, AssistantMessage) and message.error_message
        print("-", message.role, record or getattr(message, "text", ""))


trio.run(first_process)
trio.run(second_process)
Path("conversation.json").unlink()
