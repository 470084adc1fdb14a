"""Whatever state a transcript is in, the vendors' rules hold for its body, and the official SDKs' types take it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pydantic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from encoding import PNG, answer, body, call, chat_model, claude, raw_body, result, system, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import agent_of, calling, prompted, sleeper
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from trio.testing import MockClock

from trio_agent import (
    AssistantMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
    default_convert_to_llm,
)
from trio_agent.providers import ChatCompat, HTTPModel, MessagesCompat

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
KINDS = {"image/jpeg", "image/png", "image/gif", "image/webp"}

# -------------------------------------------------------- the vendors' rules


def same_ids(calls: Sequence[str], results: Sequence[str]) -> None:
    assert sorted(calls) == sorted(results), f"calls {calls} have the results {results}"


def judge_ids(ids: Sequence[str], length: int | None = None) -> None:
    assert len(ids) == len(set(ids)), f"an id stands twice in {ids}"
    fits = re.compile(r"[A-Za-z0-9_-]{1,64}" if length is None else rf"[A-Za-z0-9]{{{length}}}")
    for each in ids:
        assert fits.fullmatch(each), f"the vendor refuses the id {each!r}"


def judge_chat(document: Mapping[str, Any], model: HTTPModel) -> None:
    """What OpenAI, Mistral and strict servers refuse."""
    compat = model.compat
    assert isinstance(compat, ChatCompat)
    messages = document["messages"]
    ids = [each["id"] for message in messages for each in message.get("tool_calls", ())]
    judge_ids(ids, compat.call_id_length)
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        role = message["role"]
        assert role != "tool", "a result stands behind no call"
        if role == compat.system_role:
            assert at == 1 or compat.system_messages == "anywhere", "instructions stand in the middle"
            assert message["content"].strip()
        elif role == "user":
            judge_chat_content(message["content"], model)
        else:
            assert role == "assistant"
            calls = judge_chat_answer(message)
            results = []
            while at < len(messages) and messages[at]["role"] == "tool":
                results.append(messages[at]["tool_call_id"])
                assert messages[at]["content"].strip()
                assert ("name" in messages[at]) is compat.tool_result_name
                at += 1
            same_ids(calls, results)
    assert any(message["role"] != compat.system_role for message in messages), "nothing is asked"
    for tool in document.get("tools", ()):
        schema = tool["function"]["parameters"]
        assert schema["type"] == "object"
        assert isinstance(schema["properties"], dict)


def judge_chat_content(content: Any, model: HTTPModel) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        if part["type"] == "text":
            assert part["text"].strip()
        else:
            assert model.images
            kind, data = re.fullmatch(r"data:(.*?);base64,(.*)", part["image_url"]["url"], re.DOTALL).groups()  # type: ignore[union-attr]  # fails the test
            assert kind in KINDS
            assert data


def judge_chat_answer(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    assert calls is None or calls, "an empty list of calls"
    content = message["content"]
    if isinstance(content, str):
        assert content.strip()
    elif content is None:
        assert calls, "an answer that says nothing"
    else:
        assert [part["type"] for part in content] in (["thinking"], ["thinking", "text"])
        assert calls or len(content) == 2
    for each in calls or ():
        assert NAME.fullmatch(each["function"]["name"])
        arguments = json.loads(each["function"]["arguments"], parse_constant=pytest.fail)
        assert isinstance(arguments, dict)
    return [each["id"] for each in calls or ()]


def judge_messages(document: Mapping[str, Any], model: HTTPModel) -> None:
    """What Anthropic refuses."""
    compat = model.compat
    assert isinstance(compat, MessagesCompat)
    turns = document["messages"]
    assert turns
    assert turns[0]["role"] == "user", "the first turn is not the user's"
    answers = [turn for turn in turns if turn["role"] == "assistant"]
    judge_ids([block["id"] for turn in answers for block in turn["content"] if block["type"] == "tool_use"])
    calls: list[str] = []
    before = None
    for at, turn in enumerate(turns):
        role, blocks = turn["role"], turn["content"]
        assert blocks, "an empty turn"
        assert role != before, "two turns of one role"
        if role == "system":
            assert compat.system_messages == "anywhere"
            assert before == "user", "instructions stand behind no turn of the user"
            assert at + 1 == len(turns) or turns[at + 1]["role"] == "assistant"
        elif role == "user":
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert [block["type"] == "tool_result" for block in blocks[: len(results)]] == [True] * len(results)
            same_ids(calls, results)
            calls = []
        else:
            calls = judge_messages_answer(blocks)
        for block in blocks:
            judge_block(block, model)
        before = role
    assert not calls, "calls at the end without results"
    if turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        text = turns[-1]["content"][-1]["text"]
        assert text == text.rstrip(), "the last answer ends in a space"
    assert all(block["text"].strip() for block in document.get("system", ()))
    assert json.dumps(document).count('"cache_control"') <= (4 if compat.cache_control else 0)
    thinking = document.get("thinking", {})
    assert document["max_tokens"] > thinking.get("budget_tokens", 1023) >= 1023
    for tool in document.get("tools", ()):
        assert tool["input_schema"]["type"] == "object"


def judge_messages_answer(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    kinds = [block["type"] for block in blocks]
    assert kinds[-1] not in ("thinking", "redacted_thinking"), "an answer ends in thinking"
    for block in blocks:
        match block["type"]:
            case "thinking":
                assert block["signature"]
            case "redacted_thinking":
                assert block["data"]
            case "tool_use":
                assert NAME.fullmatch(block["name"])
                assert isinstance(block["input"], dict)
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def judge_block(block: Mapping[str, Any], model: HTTPModel) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "a text that says nothing"
        case "image":
            assert model.images
            assert block["source"]["media_type"] in KINDS
            assert block["source"]["data"]
        case "tool_result":
            assert block["content"]
            for inner in block["content"]:
                assert inner["type"] == "text" or not block.get("is_error"), "an image in what is marked as an error"
                judge_block(inner, model)


# ------------------------------------------------------ the SDKs' own types

CHAT_TYPES = pydantic.TypeAdapter[Any](CompletionCreateParamsStreaming)
MESSAGES_TYPES = pydantic.TypeAdapter[Any](MessageCreateParamsStreaming)


def forced(value: Any) -> Any:
    """Iterables of a TypedDict validate when they are read."""
    if isinstance(value, Mapping):
        return {name: forced(item) for name, item in value.items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    return [forced(item) for item in value]


EXTRA = {"reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "enable_thinking", "name"}
"""Of compatible servers, and so unknown to OpenAI's types."""


def without_extra(value: Any) -> Any:
    """A chat body without what other servers want beside OpenAI's fields."""
    messages = []
    for message in value["messages"]:
        plain = {name: item for name, item in message.items() if name not in EXTRA}
        if isinstance(plain["content"], list):
            plain["content"] = [part for part in plain["content"] if part["type"] != "thinking"] or None
        messages.append(plain)
    known = {name: item for name, item in value.items() if name not in (*EXTRA, "thinking", "chat_template_kwargs")}
    return {**known, "messages": messages}


def judge_types(types: pydantic.TypeAdapter[Any], document: Any) -> None:
    """Every field is one that the SDK knows, and of its type. (pydantic drops what it does not know.)"""
    assert forced(types.validate_python(document)) == document


def judge(document: dict[str, Any], model: HTTPModel) -> None:
    if model.api == "openai-chat":
        judge_chat(document, model)
        judge_types(CHAT_TYPES, without_extra(document))
    else:
        judge_messages(document, model)
        judge_types(MESSAGES_TYPES, document)


# ------------------------------------------------------ arbitrary transcripts

TEXTS = st.sampled_from(["", " ", "\n", "a", "b ", "\ud800", "x\udc00y", "\ud83d", "\ude00", "\0", "\u2028"])
TEXTS |= st.text(st.characters(), max_size=4)
IDS = st.sampled_from(["", "c", "c", "d", "call_1", "a|b", "x" * 65, "\ud800", " ", "Abc123xyz", "c\n"])
NAMES = st.sampled_from(["f", "g", "", "my.tool", "x" * 70, "\udfff"])
NUMBERS = st.sampled_from([0, -1, 2**70, 0.5, float("nan"), float("inf"), True, None])
ARGUMENTS = st.dictionaries(TEXTS, st.recursive(NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=2)), max_size=2)
CALLS = st.builds(
    ToolCall,
    IDS,
    NAMES,
    ARGUMENTS,
    arguments_error=st.sampled_from([None, None, "cut"]),
    raw_arguments=st.none() | TEXTS,
)
SIGNATURES = ["reasoning_content", "reasoning", "thinking", "reasoning_details", "sig", "", None, "\ud800"]
THOUGHTS = st.builds(
    ThinkingContent,
    TEXTS,
    thinking_signature=st.sampled_from(SIGNATURES),
    redacted=st.sampled_from([False, False, True]),
)
IMAGES = st.sampled_from([PNG, ImageContent("", "image/png"), ImageContent("PHN2Zy8+", "image/svg+xml")])
SAID = st.lists(st.builds(TextContent, TEXTS) | IMAGES, max_size=3).map(tuple)
SERVER = st.sampled_from(
    [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "\ud800"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "ours"},
        {"no": "type"},
        "no block",
    ]
)
KEPT = st.fixed_dictionaries(
    {},
    optional={
        "serverBlocks": st.lists(st.fixed_dictionaries({"before": st.integers(-1, 5), "block": SERVER}), max_size=3)
        | st.none(),
        "reasoningDetails": st.just([{"type": "reasoning.text", "text": "x", "index": 0}]) | st.just("nonsense"),
    },
)
OF = [("p", "openai-chat", "m"), ("p", "anthropic-messages", "m"), ("p", "openai-chat", "n"), ("", "", "")]


@st.composite
def answers(draw: st.DrawFn) -> AssistantMessage:
    provider, api, model = draw(st.sampled_from(OF))
    return AssistantMessage(
        tuple(draw(st.lists(st.builds(TextContent, TEXTS) | CALLS | THOUGHTS, max_size=4))),
        stop_reason=draw(st.sampled_from(["stop", "tool_use", "tool_use", "length", "error", "aborted"])),
        provider=provider,
        api=api,
        model=model,
        extra=draw(KEPT),
        timestamp=0,
    )


TOOLS = st.builds(
    ToolDeclaration,
    st.sampled_from(["f", "g", "h"]),
    TEXTS,
    st.sampled_from([{}, {"type": "object", "properties": {"\ud800": {"type": "string"}}, "required": ["\ud800"]}]),
)
SYSTEM = st.builds(
    SystemMessage,
    TEXTS,
    sections=st.dictionaries(st.sampled_from(["a", "b", "\ud800"]), st.none() | TEXTS, max_size=2),
    tools_added=st.lists(TOOLS, max_size=2),
    tools_removed=st.lists(st.sampled_from(["f", "g"]), max_size=2),
    timestamp=st.just(0),
)
RESULTS = st.builds(ToolResultMessage, IDS, NAMES, SAID, is_error=st.booleans(), timestamp=st.just(0))
USERS = st.builds(UserMessage, SAID, timestamp=st.just(0))
TRANSCRIPTS = st.lists(answers() | RESULTS | RESULTS | USERS | SYSTEM | answers(), max_size=9)

LEVELS = st.sampled_from(["off", "minimal", "medium", "max"])
CHOICES = st.sampled_from([None, "auto", "none"])
CHAT_MODELS: st.SearchStrategy[Callable[[], HTTPModel]] = st.builds(
    lambda compat, images: lambda: chat_model(compat, images=images),
    st.builds(
        ChatCompat,
        thinking=st.sampled_from(["reasoning_effort", "enable_thinking", "chat_template", "none"]),
        thinking_replay=st.booleans(),
        max_tokens_field=st.sampled_from(["max_tokens", "max_completion_tokens"]),
        system_role=st.sampled_from(["system", "developer"]),
        system_messages=st.sampled_from(["first", "anywhere"]),
        strict_tools=st.booleans(),
        call_id_length=st.sampled_from([None, 9]),
        tool_result_name=st.booleans(),
    ),
    st.booleans(),
)
CLAUDES: st.SearchStrategy[Callable[[], HTTPModel]] = st.builds(
    lambda compat, images: lambda: claude(compat, images=images),
    st.builds(
        MessagesCompat,
        thinking=st.sampled_from(["adaptive", "budget", "none"]),
        system_messages=st.sampled_from(["first", "anywhere"]),
        cache_control=st.booleans(),
    ),
    st.booleans(),
)


@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # transcripts are large
)
@given(make=CHAT_MODELS | CLAUDES, transcript=TRANSCRIPTS, level=LEVELS, choice=CHOICES)
def test_b69_b88_b89_whatever_the_transcript_the_body_is_one_that_the_vendor_takes(
    make: Callable[[], HTTPModel], transcript: list[Message], level: Any, choice: str | None
) -> None:
    model, before = make(), repr(transcript)
    first = raw_body(model, transcript, level, tool_choice=choice, max_tokens=2000)
    judge(json.loads(first, parse_constant=pytest.fail), model)
    assert raw_body(model, transcript, level, tool_choice=choice, max_tokens=2000) == first
    for end in range(len(transcript)):
        # As in a conversation that grows, and as other agents that share messages do.
        assert raw_body(model, transcript[:end]) == raw_body(make(), transcript[:end])
        assert raw_body(model, transcript[end:]) == raw_body(make(), transcript[end:])
    assert raw_body(model, transcript, level, tool_choice=choice, max_tokens=2000) == first
    assert repr(transcript) == before


# ------------------------------------------------------------ a real agent


@pytest.mark.parametrize("make", [chat_model, claude])
async def test_b01_after_an_abort_in_a_tool_the_next_request_is_one_that_the_vendor_takes(
    make: Callable[[], HTTPModel], autojump_clock: MockClock
) -> None:
    agent, _, _ = agent_of([calling("a", "b"), "Hello again."], sleeper("a", 60), sleeper("b", 60))
    await prompted(agent, (1, agent.abort))
    await agent.prompt("Go on.")
    model = make()
    document = body(model, default_convert_to_llm(agent.messages))
    judge(document, model)
    text = json.dumps(document)
    assert text.count('"a"') >= 2
    assert "Go on." in text
    assert "Hello again." in text


@pytest.mark.parametrize("make", [chat_model, claude])
@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_b08_b09_a_cut_answer_between_others_leaves_a_body_that_the_vendor_takes(
    make: Callable[[], HTTPModel], stop: str
) -> None:
    model = make()
    thought = ThinkingContent("Hm", thinking_signature="sig")
    for cut in (
        answer(stop=stop),
        answer("Half", call("c"), stop=stop),
        answer(thought, call("c"), stop=stop, of=model),
    ):
        judge(body(model, [system("S"), user("a"), cut, result("c", "late"), user("b"), cut, user("c")]), model)
