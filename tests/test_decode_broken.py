"""Whatever a server sends, a decoder ends in an answer or a ProviderError, and the same however it is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from decoding import decode_always_the_same

from trio_agent.providers import AnthropicMessagesDecoder, OpenAIChatDecoder, ProviderError

CHAT: list[Any] = [
    {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"reasoning": "Hm", "reasoning_details": [{"index": 0, "text": "Hm"}]}}]},
    {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "Grüße 🎉"}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"x": 1}'}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
]
MESSAGES: list[Any] = [
    {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Grüße 🎉"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "a", "name": "f"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"x": 1}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "server_tool_use", "id": "s"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
]
ODD: list[Any] = [
    None,
    5,
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [{}],
    {"a": 1},
    True,
    -1,
    float("inf"),
    float("nan"),
    "{",
    '{"a": 1}',
]
BYTES = b'\0\n\r":[{}\xff\xef '


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something in it replaced, left out or doubled, now and then."""
    if chance.random() < 0.03:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {name: changed(each, chance) for name, each in value.items() if chance.random() > 0.02}
    if isinstance(value, list):
        return [changed(each, chance) for each in value for _ in range(chance.choice([0, 2, *[1] * 30]))]
    return value


def broken(documents: list[Any], seed: int) -> bytes:
    chance = random.Random(seed)
    sent = changed(documents, chance)
    lines = [f"data: {json.dumps(document)}\n\n" for document in (sent if isinstance(sent, list) else [sent])]
    body = bytearray("".join([*lines, "data: [DONE]\n\n"]).encode())
    for _ in range(chance.choice([0, 0, 1, 5])):
        body[chance.randrange(len(body))] = chance.choice(BYTES)
    return bytes(body)


@pytest.mark.parametrize(("make", "documents"), [(OpenAIChatDecoder, CHAT), (AnthropicMessagesDecoder, MESSAGES)])
def test_a_broken_body_is_an_answer_or_an_error_of_the_provider(make: Any, documents: list[Any]) -> None:
    good = 0
    for seed in range(300):
        result = decode_always_the_same(make, broken(documents, seed), [seed])
        good += result.error is None
        assert result.error is None or issubclass(result.error[0], ProviderError)
        json.dumps(result.message.text, ensure_ascii=False).encode()  # no half of a character is left
    assert 10 < good < 290
