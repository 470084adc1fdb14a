"""JSON of transcripts: their messages, with the version of the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trio_agent._errors import FormatError
from trio_agent._messages import AgentMessage

from ._messages import message_from_json, message_to_json

FORMAT = "trio_agent/transcript"
VERSION = 1


def transcript_to_json(messages: Iterable[AgentMessage]) -> dict[str, Any]:
    """Make one plain JSON object of a transcript, with the version of its format."""
    return {"format": FORMAT, "version": VERSION, "messages": [message_to_json(message) for message in messages]}


def transcript_from_json(data: Any) -> list[AgentMessage]:
    """Make the messages of a transcript of its plain JSON.

    Raises:
      FormatError: it is no transcript, or one of a version that this library does not read.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise FormatError(f'this is no transcript: an object with "format": {FORMAT!r} is wanted')
    if data.get("version") != VERSION:
        raise FormatError(f"the transcript has version {data.get('version')!r}; this release reads version {VERSION}")
    messages = data.get("messages")
    if not isinstance(messages, list):
        raise FormatError('the transcript lacks an array "messages"')
    return [message_from_json(item, f"messages[{index}]") for index, item in enumerate(messages)]
