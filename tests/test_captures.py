"""Recorded responses of real servers decode to what the vendors' own SDKs made of them.

The recordings are of public repositories and no part of this one. They are read from the folder that
``TRIO_AGENT_CAPTURES`` names, else from ``../shared/captures`` beside the checkout. What they taught is
tested without them in ``test_decode_chat.py`` and ``test_decode_anthropic.py``.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import network
import pytest
import trio
from decoding import Decoded, Decoder, decode_always_the_same, decode_pieces

from trio_agent import Agent, RunLimits, ThinkingContent, Tool, ToolContext
from trio_agent.providers import (
    AnthropicMessagesDecoder,
    AuthenticationError,
    ChatCompat,
    ContextTooLongError,
    InvalidRequestError,
    NotFoundError,
    OpenAIChatDecoder,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    RefusedError,
    ServerError,
    TimeLimits,
    TransportError,
    open_models,
)

NAMED = os.environ.get("TRIO_AGENT_CAPTURES")
FOLDER = Path(NAMED) if NAMED else Path(__file__).parents[2] / "shared" / "captures"
APIS = ("openai-chat", "anthropic-messages")
RANDOM = range(20)


def load() -> dict[str, dict[str, Any]]:
    captures = {path.stem: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*-*.json"))}
    return {name: capture for name, capture in captures.items() if capture["api"] in APIS}


CAPTURES = load()
FAULTS: dict[str, dict[str, Any]] = {}
if (FOLDER / "faults.json").exists():
    FAULTS = {each["id"]: each for each in json.loads((FOLDER / "faults.json").read_bytes()) if each["api"] in APIS}

if not CAPTURES and not NAMED:
    pytest.skip("no recordings: TRIO_AGENT_CAPTURES is not set, ../shared/captures is absent", allow_module_level=True)

STATUSES: dict[str, type[ProviderError]] = {
    "AuthenticationError": AuthenticationError,
    "BadRequestError": InvalidRequestError,
    "InternalServerError": OverloadedError,  # the SDKs have one class for all from 500; the one capture is a 503
    "NotFoundError": NotFoundError,
    "RateLimitError": RateLimitError,
}

ENDS_IN_ERROR: dict[str, type[ProviderError]] = {
    # The SDK raises, too.
    "chat-groq-01": InvalidRequestError,
    "chat-openrouter-02": InvalidRequestError,
    # Better than the SDK, which takes an empty answer for one: the model's filter refused.
    "anthropic-anthropic-34": RefusedError,
    # Better than the SDK: without a finish reason nobody knows whether it is whole. NO_FINISH says it is.
    "chat-openai-07": TransportError,
    "chat-snowflake-01": TransportError,
}
NO_FINISH = {"chat-openai-07", "chat-snowflake-01"}

OUTPUT = {"chat-xai-01": 26 + 196}
"""Better than the SDK: xAI's completion tokens leave thinking out, as its total says; ours never do."""


def decoder_of(capture: dict[str, Any], compat: ChatCompat | None = None) -> Callable[[], Decoder]:
    status, headers = capture["status"], capture.get("headers")
    if capture["api"] == "anthropic-messages":
        return lambda: AnthropicMessagesDecoder(status=status, headers=headers)
    return lambda: OpenAIChatDecoder(status=status, headers=headers, compat=compat)


def test_the_captures_are_there() -> None:
    """With the variable set, an absent or empty folder is a failure."""
    assert len(CAPTURES) >= 114, f"{FOLDER} holds {len(CAPTURES)} recordings"
    assert len(FAULTS) >= 24
    assert CAPTURES.keys() >= {*ENDS_IN_ERROR, *OUTPUT}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_recorded_response_decodes_to_what_is_expected_however_it_is_cut(name: str) -> None:
    capture = CAPTURES[name]
    result = decode_always_the_same(decoder_of(capture), capture["body"].encode(), RANDOM)
    if capture["status"] >= 400:
        check_error(result, capture)
        return
    assert (result.error and result.error[0]) == ENDS_IN_ERROR.get(name)
    check_answer(name, result, capture["expect"])


@pytest.mark.parametrize("name", sorted(NO_FINISH))
def test_a_recorded_response_without_a_finish_reason_where_that_is_allowed(name: str) -> None:
    capture = CAPTURES[name]
    make = decoder_of(capture, ChatCompat(finish_reason_required=False))
    result = decode_always_the_same(make, capture["body"].encode(), RANDOM)
    assert result.error is None
    check_answer(name, result, capture["expect"])


def check_error(result: Decoded, capture: dict[str, Any]) -> None:
    assert result.error is not None
    cls, text, retryable = result.error
    assert issubclass(cls, STATUSES[capture["expect"]["error"]["class"]])
    assert retryable == (capture["status"] in (429, 503))
    assert f"(status {capture['status']})" in text
    too_long = "context length" in capture["body"] or "context size" in capture["body"]
    assert (cls is ContextTooLongError) == too_long
    assert result.events == ()


def check_answer(name: str, result: Decoded, expect: dict[str, Any]) -> None:
    message = result.message
    thinking = [block for block in message.content if type(block) is ThinkingContent]
    assert message.text == expect["text"]
    assert "".join(block.thinking for block in thinking) == expect["thinking"]
    assert message.raw_stop_reason == expect.get("stop_reason", expect.get("finish_reason"))
    calls = [(call["id"], call["name"], arguments_of(call["arguments"])) for call in expect["tool_calls"]]
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == calls
    assert all(call.arguments_error is None for call in message.tool_calls)
    if result.error is None:
        wanted = "tool_use" if calls else "length" if expect.get("finish_reason") == "length" else "stop"
        assert message.stop_reason == ("length" if expect.get("stop_reason") == "max_tokens" else wanted)
    if "blocks" in expect:
        check_blocks(result, expect)
    if expect["usage"]:
        check_usage(name, result, expect["usage"])


def arguments_of(value: Any) -> Any:
    return json.loads(value or "{}") if isinstance(value, str) else value


def check_blocks(result: Decoded, expect: dict[str, Any]) -> None:
    """What is passed through stands where it stood among the others."""
    ours = {"text": "text", "thinking": "thinking", "toolCall": "tool_use"}
    kinds = [
        "redacted_thinking" if type(block) is ThinkingContent and block.redacted else ours[block.type]
        for block in result.message.content
    ]
    passed = result.message.extra.get("serverBlocks", [])
    for each in reversed(passed):
        kinds.insert(each["before"], each["block"]["type"])
    assert kinds == expect["blocks"]
    server = [each["block"] for each in passed if each["block"]["type"] == "server_tool_use"]
    wanted = [(call["id"], call["name"], call["arguments"]) for call in expect.get("server_tool_calls", [])]
    assert [(block["id"], block["name"], block["input"]) for block in server] == wanted
    thinking = [block for block in result.message.content if type(block) is ThinkingContent and not block.redacted]
    assert [block.thinking_signature for block in thinking] == expect.get("signatures", [])


def check_usage(name: str, result: Decoded, expect: dict[str, Any]) -> None:
    usage = result.message.usage
    if "input_tokens" in expect:
        counted = (usage.input, usage.cache_read, usage.cache_write, usage.output)
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        assert counted == tuple(expect.get(each, 0) for each in names)
        return
    assert usage.input + usage.cache_read + usage.cache_write == expect["prompt_tokens"]
    assert usage.output == OUTPUT.get(name, expect["completion_tokens"])
    assert usage.total_tokens == expect["total_tokens"]
    cached = (expect.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    # Two of Azure's claim more from the cache than the whole prompt has; so much it cannot be.
    assert usage.cache_read == min(cached, expect["prompt_tokens"])
    assert usage.reasoning == (expect.get("completion_tokens_details") or {}).get("reasoning_tokens")


# ----------------------------------------------------------------- faults

KINDS: dict[str, set[type[ProviderError]]] = {
    "overloaded": {OverloadedError},
    "server_error": {ServerError},
    "provider_error": {ServerError},
    "bad_request": {ContextTooLongError},
    "incomplete_stream": {TransportError},
    "connection": {TransportError},
    "malformed_event": {ProtocolError},
    "rate_limit": {RateLimitError},
    "timeout": {TransportError},
}

REFUSAL = "chat-refusal"
"""Its expectation has no text and the refusal beside it. Ours is the text: it is what the user shall read."""

# A body that is dropped is here one that ends; delays and dropped connections need a socket.
OK = {"chat-truncated-args-length", "chat-stall"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_as_it_should(name: str) -> None:
    fault = FAULTS[name]
    expect = fault["expect"]
    pieces = [base64.b64decode(chunk["b64"]) for chunk in fault["chunks"]]
    result = decode_always_the_same(decoder_of(fault), b"".join(pieces), RANDOM)
    assert decode_pieces(decoder_of(fault)(), pieces) == result
    message = result.message
    if "partial_text" in expect:
        assert message.text == expect["partial_text"]
    if expect["outcome"] == "either":
        assert (message.text, result.error and result.error[0]) == (expect["text"], TransportError)
        return
    if expect["outcome"] != "ok" and name not in OK:
        assert result.error is not None
        assert result.error[0] in KINDS[expect["error_kind"]]
        assert result.error[2] == expect["retryable"]
        return
    assert result.error is None
    assert message.text == (
        expect["refusal"] if name == REFUSAL else expect.get("text", expect.get("partial_text", ""))
    )
    assert message.extra.get("refusal") == expect.get("refusal")
    assert message.raw_stop_reason == expect.get("finish", message.raw_stop_reason)
    if name == "chat-truncated-args-length":
        assert message.stop_reason == "length"  # the loop runs no call of such an answer
        assert message.tool_calls[0].arguments_error is not None
        return
    calls = [(call["id"], call["name"], json.loads(call["arguments"])) for call in expect.get("tool_calls", [])]
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == calls
    assert message.stop_reason == ("tool_use" if calls else "stop")
    if "usage" in expect:
        assert (message.usage.input, message.usage.output) == (expect["usage"]["input"], expect["usage"]["output"])


def test_a_fault_says_how_long_to_wait() -> None:
    fault = FAULTS["chat-429-retry-after"]
    decoder = decoder_of(fault)()
    decoder.feed(base64.b64decode(fault["chunks"][0]["b64"]))
    decoder.end()
    assert decoder.error is not None
    assert (decoder.error.status, decoder.error.retry_after) == (429, 1.0)


# ------------------------------------------------------- over a real socket


def raw_script(fault: dict[str, Any]) -> network.Script:
    """Answer the first request with the bytes of a fault, at its pace; all others with a hello."""
    asked = 0

    async def script(request: network.Received, reply: network.Reply) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            await network.answer(request, reply)
            return
        await reply.start(fault["status"], fault["headers"])
        for chunk in fault["chunks"]:
            await trio.sleep((chunk.get("delay_ms") or 0) / 1000)
            await reply.write(base64.b64decode(chunk["b64"]))
        if fault["close"] == "clean":
            await reply.finish()

    return script


@pytest.mark.slow  # some servers pause for real, as they did in the reports
@pytest.mark.parametrize("library", network.LIBRARIES, ids=lambda library: library.__name__)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_ends_as_it_should_over_a_real_socket(name: str, library: ModuleType) -> None:
    fault = FAULTS[name]
    expect = fault["expect"]
    ran: list[str] = []
    names = {call["name"] for call in expect.get("tool_calls", ())} | {"f", "g"}

    async def run(arguments: Any, ctx: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        ran.append(ctx.tool_call_id)
        return "done"

    tools = [Tool(each, execute=run) for each in names]
    limits = TimeLimits(between_events=1.0)  # of one server the fault is to be silent for longer
    async with (
        network.serving(raw_script(fault)) as (server, url),
        library.AsyncClient(timeout=None) as client,
        open_models(client=client, limits=limits, max_retries=0) as models,
    ):
        if fault["api"] == "openai-chat":
            model = models.openai_compatible(url, "m")
        else:
            model = models.anthropic_compatible(url, "m")
        agent = Agent(model, tools=tools, limits=RunLimits(turns=1))
        with trio.fail_after(20):
            result = await agent.prompt("Hi.")
        message = result.message
        assert message is not None
        error = result.exception
        if "partial_text" in expect:
            assert message.text == expect["partial_text"]
        if expect["outcome"] == "either":
            assert (message.text, type(error)) == (expect["text"], TransportError)
        elif expect["outcome"] != "ok" and name != "chat-truncated-args-length":
            assert isinstance(error, ProviderError)
            assert type(error) in KINDS[expect["error_kind"]]
            assert error.retryable == expect["retryable"]
            assert message.stop_reason == "error"
            assert ran == []
        else:
            assert error is None
            assert message.text == (
                expect["refusal"] if name == REFUSAL else expect.get("text", expect.get("partial_text", ""))
            )
            if name != "chat-truncated-args-length":
                assert sorted(ran) == sorted(call["id"] for call in expect.get("tool_calls", ()))
        assert len(server.received) == 1
        assert all(connection.is_idle() for connection in network.pool_of(client).connections)
