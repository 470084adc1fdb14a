"""The request side of Anthropic's Messages; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from trio_agent._errors import UsageError
from trio_agent._messages import (
    AssistantMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
)
from trio_agent._stream import ModelRequest

from ._compat import MessagesCompat
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

__all__ = ["AnthropicMessagesEncoder"]

DEFAULT_MAX_TOKENS = 32_000
"""The API demands a limit. Every model since 2025 can say so much, and most can say more."""

_EFFORTS: Mapping[ThinkingLevel, str] = {"minimal": "low"}
"""The vendor's words, where they are others than ours."""

_BUDGETS: Mapping[ThinkingLevel, int] = {
    # As in pi; the vendor takes none below 1,024.
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}

FAILED = "(the call failed)"
"""What is said of a failed call where the API has no mark for it."""

_ANSWER = 4096
"""Tokens that are left for the answer beside a budget for thinking, in any case."""

_OURS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")
"""Kinds of blocks that are made of the content of messages, never passed through."""


@final
class AnthropicMessagesEncoder:
    """Makes the body of a request to Messages out of a transcript. It does no I/O.

    The transcript may be in any state and is not changed; how it is made fit is told in the documentation. What
    was made of a message is kept for as long as it lives, so a request costs what is new.

    Args:
      model: who is asked; says how it departs from Anthropic's models of today.
    """

    def __init__(self, model: HTTPModel) -> None:
        assert isinstance(model.compat, MessagesCompat)
        self._model = model
        self._compat = model.compat
        self._cache = Cache.of(model)

    def body(self, request: ModelRequest) -> bytes:
        """The body, as JSON.

        Raises:
          UsageError: an option that is none, or something that cannot be written as JSON.
        """
        options = checked_options(request.options)
        transcript = fit(request.messages, system_messages=self._compat.system_messages)
        mark = self._mark(options)
        prompt, messages = self._messages(transcript.system_prompt, transcript.items, mark)
        fields = self._fields(request, options, prompt, transcript.tools, mark)
        head = to_json(fields)
        if "messages" in fields:
            return head
        return head[:-1] + b',"messages":[' + b",".join(messages) + b"]}"

    # What is not the transcript.

    def _mark(self, options: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What marks the end of a prefix that is to be cached."""
        retention = options.get("cache_retention", "short")
        if retention == "none" or not self._compat.cache_control:
            return None
        return {"type": "ephemeral", "ttl": "1h"} if retention == "long" else {"type": "ephemeral"}

    def _fields(
        self,
        request: ModelRequest,
        options: Mapping[str, Any],
        prompt: str,
        tools: Sequence[ToolDeclaration],
        mark: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self._model.id,
            "stream": True,
            "max_tokens": options.get("max_tokens", self._model.max_tokens or DEFAULT_MAX_TOKENS),
        }
        marked = {} if mark is None else {"cache_control": mark}
        if tools:
            fields["tools"] = [_tool(tool) for tool in tools]
            if not prompt.strip():  # else the mark behind the prompt, which follows the tools, is for both
                fields["tools"][-1] |= marked
            choice = options.get("tool_choice")
            if choice is not None:
                known = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
                fields["tool_choice"] = known.get(choice, {"type": "tool", "name": choice})
        if prompt.strip():
            fields["system"] = [{"type": "text", "text": prompt, **marked}]
        fields.update((name, options[name]) for name in ("temperature", "metadata") if name in options)
        if "stop" in options:
            fields["stop_sequences"] = options["stop"]
        self._think(fields, request, options)
        fields.update(self._model.extra_body)
        fields.update(options.get("extra_body", {}))
        return fields

    def _think(self, fields: dict[str, Any], request: ModelRequest, options: Mapping[str, Any]) -> None:
        level = request.thinking_level
        if level == "off" or self._compat.thinking == "none":
            return
        if fields.get("temperature", 1) != 1:
            raise _not_while_thinking("temperature", fields["temperature"])
        if self._compat.thinking == "adaptive":
            fields["thinking"] = {"type": "adaptive"}
            fields["output_config"] = {"effort": _EFFORTS.get(level, level)}
            return
        if fields.get("tool_choice", {}).get("type") in ("any", "tool"):
            raise _not_while_thinking("tool_choice", options["tool_choice"])
        budget = max(1024, options.get("thinking_budgets", {}).get(level, _BUDGETS[level]))
        fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        fields["max_tokens"] = max(fields["max_tokens"], budget + _ANSWER)

    # The transcript.

    def _messages(self, prompt: str, items: Sequence[Item], mark: Mapping[str, Any] | None) -> tuple[str, list[bytes]]:
        """The prompt, and the messages: consecutive ones of one role are one."""
        turns: list[tuple[str, list[bytes]]] = []
        patches: list[str] = []  # instructions may only stand between a turn of the user and an answer, or last

        def say(role: str, blocks: Sequence[bytes]) -> None:
            if not turns and role != "user":
                turns.append(("user", [_text(EMPTY)]))  # the first turn must be the user's
            if turns and turns[-1][0] == role:
                turns[-1][1].extend(blocks)
            else:
                turns.append((role, list(blocks)))

        def place_patches() -> None:
            if patches and turns and turns[-1][0] == "user":
                say("system", [_text(patch) for patch in patches])
                patches.clear()

        for item in items:
            if item.kind == "system":
                patches.append(patch_text(cast("SystemMessage", item.message)))
            elif item.kind == "assistant":
                if blocks := self._assistant(item):
                    place_patches()
                    say("assistant", blocks)
            else:
                say("user", self._user(item))
        if not turns:
            turns.append(("user", [_text(EMPTY)]))
        place_patches()
        # Behind the last answer there is no place for them.
        prompt = "\n\n".join(filter(None, (prompt, *patches)))
        if mark is not None:
            _mark_ends(turns, to_json(mark))
        return prompt, [_turn(role, blocks) for role, blocks in turns]

    def _user(self, item: Item) -> Sequence[bytes]:
        if item.kind == "no_result":
            return [_result(item.ids[0], [{"type": "text", "text": NO_RESULT}], is_error=True)]
        if isinstance(item.message, ToolResultMessage):
            result = item.message
            return self._cache.get(result, item.ids, lambda: [self._tool_result(result, item.ids[0])])
        said = cast("UserMessage", item.message)
        return self._cache.get(said, (), lambda: self._said(said))

    def _said(self, message: UserMessage) -> list[bytes]:
        blocks = [to_json(self._block(block)) for block in texts_and_images(message.content)]
        return blocks or [_text(EMPTY)]

    def _tool_result(self, message: ToolResultMessage, wire: str) -> bytes:
        content = [self._block(block) for block in texts_and_images(message.content)]
        is_error = message.is_error
        if is_error and any(block["type"] == "image" for block in content):
            is_error = False  # the API takes nothing but text in what is marked as an error
            content.append({"type": "text", "text": FAILED})
        return _result(wire, content or [{"type": "text", "text": NO_OUTPUT}], is_error=is_error)

    def _block(self, block: TextContent | ImageContent) -> dict[str, Any]:
        if isinstance(block, TextContent):
            return {"type": "text", "text": block.text}
        if not self._model.images or not block.data or block.mime_type not in IMAGES:
            return {"type": "text", "text": IMAGE_LEFT_OUT}
        return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}

    def _assistant(self, item: Item) -> Sequence[bytes]:
        message = cast("AssistantMessage", item.message)
        return self._cache.get(message, item.ids, lambda: self._answer(message, item))

    def _answer(self, message: AssistantMessage, item: Item) -> list[bytes]:
        own, whole = is_own(message, self._model), message.stop_reason not in BROKEN
        passed = _server_blocks(message) if own and whole else []
        ids = iter(item.ids)
        blocks: list[dict[str, Any]] = []
        for index, block in enumerate(message.content):
            while passed and passed[0][0] <= index:
                blocks.append(passed.pop(0)[1])
            if isinstance(block, TextContent):
                if block.text.strip():
                    blocks.append({"type": "text", "text": block.text})
            elif isinstance(block, ToolCall):
                if item.calls:
                    wire = next(ids)
                    name, arguments = tool_name(block.name), arguments_of(block)
                    blocks.append({"type": "tool_use", "id": wire, "name": name, "input": arguments})
            elif own and block.thinking_signature:
                blocks.append(_thinking(block))
        blocks += [block for _, block in passed]
        while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            blocks.pop()  # an answer must not end in thinking
        if blocks and blocks[-1]["type"] == "text":
            # The last answer must not end in a space if it is to go on; any may be the last once.
            blocks[-1]["text"] = blocks[-1]["text"].rstrip()
        return [to_json(block) for block in blocks]


def _server_blocks(message: AssistantMessage) -> list[tuple[int, dict[str, Any]]]:
    """Blocks that were passed through, and before which block of the content each stands."""
    return [
        (each["before"], dict(each["block"]))
        for each in kept(message, "serverBlocks")
        if type(each.get("before")) is int
        and isinstance(each.get("block"), Mapping)
        and isinstance(each["block"].get("type"), str)
        and each["block"]["type"] not in _OURS
    ]


def _not_while_thinking(name: str, value: object) -> UsageError:
    return UsageError(
        f"the option {name!r} is {value!r}, which this API refuses while the model thinks; leave it out, or set"
        " thinking_level to 'off'"
    )


def _thinking(block: ThinkingContent) -> dict[str, Any]:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.thinking_signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}


def _tool(tool: ToolDeclaration) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    declared["input_schema"] = parameters_of(tool)
    return declared


def _text(text: str) -> bytes:
    return to_json({"type": "text", "text": text})


def _result(wire: str, content: Sequence[Mapping[str, Any]], *, is_error: bool) -> bytes:
    fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire, "content": content}
    if is_error:
        fields["is_error"] = True
    return to_json(fields)


def _turn(role: str, blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"' + role.encode() + b'","content":[' + b",".join(blocks) + b"]}"


def _mark_ends(turns: Sequence[tuple[str, list[bytes]]], mark: bytes) -> None:
    """Mark the last turn of the user, and the one before it: there the prefix of the last request ends."""
    for _, blocks in [turn for turn in turns if turn[0] == "user"][-2:]:
        blocks[-1] = blocks[-1][:-1] + b',"cache_control":' + mark + b"}"
