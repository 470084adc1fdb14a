"""Answers of servers, made up, to be decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder

READ = 16 * 1024
"""Bytes in a piece of the body, where it does not come event by event."""


@attrs.frozen
class Answer:
    """A streamed answer: the data of each of its events, and its body."""

    data: Sequence[bytes]
    events: Sequence[bytes]
    make: Callable[[], OpenAIChatDecoder | AnthropicMessagesDecoder]

    @property
    def reads(self) -> list[bytes]:
        """The body in large pieces."""
        body = b"".join(self.events)
        return [body[at : at + READ] for at in range(0, len(body), READ)]


def answer_of(documents: Sequence[Mapping[str, Any]], make: Callable[[], Any]) -> Answer:
    """The answer as its server writes it: Messages names its events, Chat Completions does not."""
    data = [json.dumps(document, separators=(",", ":")).encode() for document in documents]
    heads = [f"event: {document['type']}\n" if "type" in document else "" for document in documents]
    events = [head.encode() + b"data: " + each + b"\n\n" for head, each in zip(heads, data, strict=True)]
    return Answer(data, events, make)


def chat(deltas: Sequence[Mapping[str, Any]], reason: str) -> Answer:
    """Deltas of Chat Completions in chunks with the fields that OpenAI sends."""
    base: dict[str, Any] = {
        "id": "chatcmpl-BxYb2vYQpiHyT8Lmuv9p1r7a5",
        "object": "chat.completion.chunk",
        "created": 1753357877,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_07871e2ad8",
    }
    choices: list[Mapping[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason})
    return answer_of([{**base, "choices": [choice], "usage": None} for choice in choices], OpenAIChatDecoder)


def messages(block: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]], reason: str) -> Answer:
    """Deltas of one block of Messages."""
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    usage = {"input_tokens": 12, "output_tokens": 1}
    documents: list[Mapping[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    documents.append({"type": "content_block_start", "index": 0, "content_block": block})
    documents += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    documents.append({"type": "content_block_stop", "index": 0})
    documents.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
    return answer_of([*documents, {"type": "message_stop"}], AnthropicMessagesDecoder)


def texts(count: int) -> dict[str, Answer]:
    """Answers of N text deltas."""
    words = [f" word{number % 1000}" for number in range(count)]
    return {
        "openai-chat": chat([{"content": word} for word in words], "stop"),
        "anthropic": messages(
            {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words], "end_turn"
        ),
    }


def calls(size: int) -> dict[str, Answer]:
    """Answers of one call whose arguments have so many bytes, in deltas of 10."""
    text = json.dumps({"text": "x" * (size - len('{"text": ""}'))})
    pieces = [text[at : at + 10] for at in range(0, len(text), 10)]
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write", "arguments": ""}}
    heads = [{"tool_calls": [head]}]
    return {
        "openai-chat": chat(
            [*heads, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)],
            "tool_calls",
        ),
        "anthropic": messages(
            {"type": "tool_use", "id": "call_1", "name": "write", "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
            "tool_use",
        ),
    }
