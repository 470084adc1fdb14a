from collections.abc import Sequence

import attrs
import trio

from trio_agent import (
    Agent,
    AgentMessage,
    Message,
    UserMessage,
    default_convert_to_llm,
    register_message_type,
    transcript_from_json,
    transcript_to_json,
)
from trio_agent.testing import ScriptedModel


@attrs.frozen
class Note:
    """A message of the host's own kind."""

    text: str
    role: str = "note"


def for_the_model(messages: Sequence[AgentMessage]) -> list[Message]:
    return default_convert_to_llm(
        [UserMessage(f"(note: {message.text})") if isinstance(message, Note) else message for message in messages]
    )


async def main() -> None:
    register_message_type(
        Note, "note", to_json=lambda note: {"text": note.text}, from_json=lambda data: Note(data["text"])
    )
    model = ScriptedModel(["I see."])
    agent = Agent(model, convert_to_llm=for_the_model)
    await agent.prompt([Note("the user is in a hurry"), UserMessage("Hello")])
    print([message.text for message in model.requests[0].messages if isinstance(message, UserMessage)])
    saved = transcript_to_json(agent.messages)
    print(transcript_from_json(saved)[0])


trio.run(main)
