"""Makes bodies of requests, as the driver does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trio_agent import (
    AssistantMessage,
    ImageContent,
    Message,
    ModelRequest,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
    normalize_context,
)
from trio_agent.providers import AnthropicMessagesEncoder, ChatCompat, HTTPModel, MessagesCompat, OpenAIChatEncoder

PNG = ImageContent("iVBORw0KGgo=", "image/png")
CHAT_PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CLAUDE_PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
LEFT_OUT = "(an image stood here; this model takes none of its kind)"
NO_RESULT = "The call has no result: none was recorded before the conversation went on. It may have had effects."
EMPTY_SCHEMA = {"type": "object", "properties": {}}


def chat_model(compat: ChatCompat | None = None, **fields: Any) -> HTTPModel:
    return HTTPModel("p", "m", api="openai-chat", base_url="http://h/v1", compat=compat or ChatCompat(), **fields)


def claude(compat: MessagesCompat | None = None, **fields: Any) -> HTTPModel:
    compat = compat or MessagesCompat()
    return HTTPModel("p", "m", api="anthropic-messages", base_url="http://h", compat=compat, **fields)


def raw_body(
    model: HTTPModel, messages: Sequence[Message], thinking_level: ThinkingLevel = "off", **options: Any
) -> bytes:
    encoder = OpenAIChatEncoder if model.api == "openai-chat" else AnthropicMessagesEncoder
    request = ModelRequest(model, normalize_context(messages), thinking_level, options=options)
    return encoder(model).body(request)


def body(
    model: HTTPModel, messages: Sequence[Message], thinking_level: ThinkingLevel = "off", **options: Any
) -> dict[str, Any]:
    document = json.loads(raw_body(model, messages, thinking_level, **options))
    assert isinstance(document, dict)
    return document


def system(content: str = "", *tools: ToolDeclaration, **fields: Any) -> SystemMessage:
    return SystemMessage(content, tools_added=tools, **fields)


def user(*content: str | ImageContent) -> UserMessage:
    return UserMessage(tuple(TextContent(item) if isinstance(item, str) else item for item in content))


def answer(
    *content: str | ThinkingContent | ToolCall, stop: Any = None, of: HTTPModel | None = None, **extra: Any
) -> AssistantMessage:
    """An answer; of no model, unless one is given."""
    if stop is None:
        stop = "tool_use" if any(isinstance(item, ToolCall) for item in content) else "stop"
    names: dict[str, Any] = {} if of is None else {"provider": of.provider, "api": of.api, "model": of.id}
    blocks = tuple(TextContent(item) if isinstance(item, str) else item for item in content)
    return AssistantMessage(blocks, stop_reason=stop, extra=extra, **names)


def call(id: str, name: str = "f", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def result(id: str, *content: str | ImageContent, name: str = "f", is_error: bool = False) -> ToolResultMessage:
    blocks = tuple(TextContent(item) if isinstance(item, str) else item for item in content)
    return ToolResultMessage(id, name, blocks, is_error=is_error)
