import json
from pathlib import Path

import trio

from trio_agent import Agent, MessageEnd, ToolCall, message_from_json, message_to_json, repair_transcript, tool
from trio_agent.testing import ScriptedModel

FILE = Path("log.jsonl")


@tool
def work() -> str:
    """Work."""
    return "done"


def log(event: MessageEnd) -> None:
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(message_to_json(event.message)) + "\n")


async def main() -> None:
    agent = Agent(ScriptedModel([ToolCall("c1", "work"), "Done."]), tools=[work])
    agent.subscribe(log, MessageEnd)
    await agent.prompt("Work.")


def look() -> None:
    lines = FILE.read_text("utf-8").splitlines()
    print(len(lines), "messages")

    # A process that was killed has not written the result of its last call.
    messages = [message_from_json(json.loads(line)) for line in lines[:2]]
    for message in repair_transcript(messages):
        print("-", message.role, getattr(message, "text", ""))


trio.run(main)
look()
FILE.unlink()
