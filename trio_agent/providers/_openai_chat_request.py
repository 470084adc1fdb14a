"""The request side of OpenAI's Chat Completions, and of the servers that call themselves compatible; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

import attrs

from trio_agent._messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._stream import ModelRequest

from ._compat import ChatCompat
from ._encode import (
    BROKEN,
    EMPTY,
    IMAGE_LEFT_OUT,
    IMAGES,
    NO_OUTPUT,
    NO_RESULT,
    Cache,
    Item,
    arguments_of,
    fit,
    is_own,
    kept,
    parameters_of,
    patch_text,
    texts_and_images,
    to_json,
    tool_name,
)
from ._model import HTTPModel
from ._options import checked_options

__all__ = ["OpenAIChatEncoder"]

_IN_CONTENT = "thinking"
"""Mistral has its thinking among the parts of the content, and wants it back there."""


@attrs.frozen
class _Encoded:
    """A message as it is sent; empty if nothing is left of it."""

    message: bytes
    images: tuple[bytes, ...] = ()
    """Of a tool result, which may hold none: they come in a message of the user behind the last one."""


@final
class OpenAIChatEncoder:
    """Makes the body of a request to Chat Completions out of a transcript. It does no I/O.

    The transcript may be in any state and is not changed; how it is made fit is told in the documentation. What
    was made of a message is kept for as long as it lives, so a request costs what is new.

    Args:
      model: who is asked; says how its server departs from OpenAI's.
    """

    def __init__(self, model: HTTPModel) -> None:
        assert isinstance(model.compat, ChatCompat)
        self._model = model
        self._compat = model.compat
        self._cache = Cache.of(model)

    def body(self, request: ModelRequest) -> bytes:
        """The body, as JSON.

        Raises:
          UsageError: an option that is none, or something that cannot be written as JSON.
        """
        options = checked_options(request.options)
        compat = self._compat
        transcript = fit(request.messages, system_messages=compat.system_messages, call_id_length=compat.call_id_length)
        fields = self._fields(request, options, transcript.tools)
        head = to_json(fields)
        if "messages" in fields:
            return head
        messages = self._messages(transcript.system_prompt, transcript.items)
        return head[:-1] + b',"messages":[' + b",".join(messages) + b"]}"

    # What is not the transcript.

    def _fields(
        self, request: ModelRequest, options: Mapping[str, Any], tools: Sequence[ToolDeclaration]
    ) -> dict[str, Any]:
        model, compat = self._model, self._compat
        fields: dict[str, Any] = {"model": model.id, "stream": True}
        if compat.stream_usage:
            fields["stream_options"] = {"include_usage": True}
        if tools:
            fields["tools"] = [self._tool(tool) for tool in tools]
            choice = options.get("tool_choice")
            if choice is not None:
                named = {"type": "function", "function": {"name": choice}}
                fields["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        most = options.get("max_tokens", model.max_tokens)
        if most is not None:
            fields[compat.max_tokens_field] = most
        fields.update((name, options[name]) for name in ("temperature", "stop", "metadata") if name in options)
        fields.update(self._thinking(request))
        fields.update(model.extra_body)
        fields.update(options.get("extra_body", {}))
        return fields

    def _thinking(self, request: ModelRequest) -> Mapping[str, Any]:
        level = request.thinking_level
        if level == "off" and "off" not in self._compat.thinking_levels:
            return {}
        word = self._compat.thinking_levels.get(level, level)
        thinks = level != "off"
        match self._compat.thinking:
            case "reasoning_effort":
                return {"reasoning_effort": word}
            case "reasoning":
                return {"reasoning": {"effort": word}}
            case "thinking":
                return {"thinking": {"type": "enabled" if thinks else "disabled"}}
            case "enable_thinking":
                return {"enable_thinking": thinks}
            case "chat_template":
                return {"chat_template_kwargs": {"enable_thinking": thinks}}
            case "none":
                return {}

    def _tool(self, tool: ToolDeclaration) -> Mapping[str, Any]:
        function: dict[str, Any] = {"name": tool.name}
        if tool.description:
            function["description"] = tool.description
        function["parameters"] = parameters_of(tool)
        if self._compat.strict_tools:
            function["strict"] = _is_strict(function["parameters"])
        return {"type": "function", "function": function}

    # The transcript.

    def _messages(self, system_prompt: str, items: Sequence[Item]) -> list[bytes]:
        messages: list[bytes] = []
        if system_prompt.strip():
            messages.append(to_json({"role": self._compat.system_role, "content": system_prompt}))
        images: list[bytes] = []
        asked = False
        for item in items:
            if images and item.kind not in ("result", "no_result"):
                messages.append(_of_images(images))
                images = []
            encoded = self._cached(item)
            if encoded.message:
                messages.append(encoded.message)
                asked = asked or item.kind != "system"
            images += encoded.images
        if images:
            messages.append(_of_images(images))
        if not asked:
            messages.append(to_json({"role": "user", "content": EMPTY}))  # instructions alone ask for nothing
        return messages

    def _cached(self, item: Item) -> _Encoded:
        message = item.message
        match item.kind:
            case "no_result":
                return _Encoded(self._result(item, NO_RESULT))
            case "assistant":
                answer = cast("AssistantMessage", message)
                return self._cache.get(message, item.ids, lambda: _Encoded(self._assistant(answer, item)))
            case "result":
                result = cast("ToolResultMessage", message)
                return self._cache.get(message, (item.ids, item.calls[0].name), lambda: self._tool_result(result, item))
            case "user":
                said = cast("UserMessage", message)
                return self._cache.get(message, (), lambda: _Encoded(self._user(said)))
            case "system":
                patch = {"role": self._compat.system_role, "content": patch_text(cast("Any", message))}
                return self._cache.get(message, (), lambda: _Encoded(to_json(patch)))

    def _user(self, message: UserMessage) -> bytes:
        parts = [self._part(block) for block in texts_and_images(message.content)]
        content: Any = parts
        if all(part["type"] == "text" for part in parts):
            content = "\n".join(part["text"] for part in parts) or EMPTY
        return to_json({"role": "user", "content": content})

    def _part(self, block: TextContent | ImageContent) -> dict[str, Any]:
        if isinstance(block, TextContent):
            return {"type": "text", "text": block.text}
        if not self._model.images or not block.data or block.mime_type not in IMAGES:
            return {"type": "text", "text": IMAGE_LEFT_OUT}
        return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}

    def _tool_result(self, message: ToolResultMessage, item: Item) -> _Encoded:
        parts = [self._part(block) for block in texts_and_images(message.content)]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        images = tuple(to_json(part) for part in parts if part["type"] != "text")
        if images:
            text = f"{text}\n(images follow)" if text else "(images follow)"
        return _Encoded(self._result(item, text or NO_OUTPUT), images)

    def _result(self, item: Item, text: str) -> bytes:
        fields = {"role": "tool", "tool_call_id": item.ids[0], "content": text}
        if self._compat.tool_result_name:
            fields["name"] = tool_name(item.calls[0].name)
        return to_json(fields)

    def _assistant(self, message: AssistantMessage, item: Item) -> bytes:
        text = "".join(block.text for block in message.content if isinstance(block, TextContent))
        said = bool(text.strip())
        if not said and not item.calls:
            return b""
        fields: dict[str, Any] = {"role": "assistant", "content": text if said else None}
        thinks = self._compat.thinking_replay and message.stop_reason not in BROKEN
        if thinks and is_own(message, self._model):
            self._add_thinking(fields, message)
        if item.calls:
            fields["tool_calls"] = [
                {
                    "id": wire,
                    "type": "function",
                    "function": {"name": tool_name(call.name), "arguments": to_json(arguments_of(call)).decode()},
                }
                for call, wire in zip(item.calls, item.ids, strict=True)
            ]
        return to_json(fields)

    def _add_thinking(self, fields: dict[str, Any], message: AssistantMessage) -> None:
        """Thinking goes back in the field that it came in (B89), details as they came (OpenRouter)."""
        thoughts: dict[str, list[str]] = {}
        for block in message.content:
            if isinstance(block, ThinkingContent) and block.thinking and block.thinking_signature:
                thoughts.setdefault(block.thinking_signature, []).append(block.thinking)
        for field, texts in thoughts.items():
            if field == _IN_CONTENT:
                parts: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": "".join(texts)}]}]
                if fields["content"]:
                    parts.append({"type": "text", "text": fields["content"]})
                fields["content"] = parts
            elif field in self._compat.thinking_fields and field != "reasoning_details":
                fields[field] = "".join(texts)
        if details := kept(message, "reasoningDetails"):
            fields["reasoning_details"] = details


def _of_images(images: Sequence[bytes]) -> bytes:
    said = to_json({"type": "text", "text": "(images of the tool results above)"})
    return b'{"role":"user","content":[' + b",".join((said, *images)) + b"]}"


_NOT_STRICT = frozenset(
    {"allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"}
)
"""What ``strict`` refuses in a schema (OpenAI: Structured Outputs, supported schemas)."""


def _is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is one that ``strict`` takes: every object closed, every property required, all typed."""
    if not schema.keys() & {"type", "enum", "const", "anyOf", "$ref"} or schema.keys() & _NOT_STRICT:
        return False
    kinds = schema.get("type", ())
    properties = schema.get("properties", {})
    is_object = properties or "object" in ([kinds] if isinstance(kinds, str) else kinds)
    if is_object and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties)
    ):
        return False
    items = [schema["items"]] if "items" in schema else []
    inner = (*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ()), *items)
    return all(isinstance(each, Mapping) and _is_strict(each) for each in inner)
