"""What is said: content blocks and messages.

The names are those of pi-ai in snake_case. Their JSON is in ``_wire``; fields of it that this library
does not know are kept in ``extra`` and written back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, final

import attrs

from ._values import quickly_made

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model is asked to think."""

StopReason: TypeAlias = Literal["pending", "stop", "length", "tool_use", "error", "aborted"]
"""Why an answer ended. ``pending`` stands only in the partial messages of a stream."""

ErrorKind: TypeAlias = Literal[
    "tool_not_found",
    "invalid_arguments",
    "blocked",
    "truncated",
    "limit",
    "timeout",
    "not_started",
    "withheld",
    "aborted",
    "failed",
]
"""Which of the library's own errors a result or a message reports.

``aborted`` is work that was cut; ``not_started`` a call that was never entered because of a cut;
``withheld`` one whose value may not be shown because its ``after_tool_call`` was cut; ``failed`` a
tool, hook, listener or stream function that raised (the text is the exception's).
"""


def now() -> int:
    """Milliseconds since the epoch."""
    return int(time.time() * 1000)


# ---------------------------------------------------------------- content


@final
@quickly_made
@attrs.frozen
class TextContent:
    """A piece of text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    text_signature: str | None = attrs.field(default=None, kw_only=True)
    """The provider's own mark on the text, sent back as it came."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


@final
@attrs.frozen
class ImageContent:
    """An image."""

    type: ClassVar[Literal["image"]] = "image"
    data: str = attrs.field(repr=lambda data: f"<{len(data)} characters>")
    """The bytes of the image in base64."""
    mime_type: str
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


@final
@attrs.frozen
class ThinkingContent:
    """What a model thought before it answered."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str
    thinking_signature: str | None = attrs.field(default=None, kw_only=True)
    """The provider's own mark on the thinking, sent back as it came."""
    redacted: bool = attrs.field(default=False, kw_only=True)
    """True if the provider hides the text; the signature then holds the hidden payload."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


@final
@quickly_made
@attrs.frozen
class ToolCall:
    """A model's wish to have a tool run."""

    type: ClassVar[Literal["toolCall"]] = "toolCall"
    id: str
    name: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    """The arguments as the model sent them, before any coercion."""
    arguments_error: str | None = attrs.field(default=None, kw_only=True)
    """Why the streamed arguments are no JSON object; a call that carries this never executes."""
    raw_arguments: str | None = attrs.field(default=None, kw_only=True)
    """The streamed text of the arguments, kept only where ``arguments_error`` is set."""
    thought_signature: str | None = attrs.field(default=None, kw_only=True)
    """The provider's own mark on the call, sent back as it came."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


Content: TypeAlias = TextContent | ImageContent
"""What a user message or a tool result may hold."""

AssistantContent: TypeAlias = TextContent | ThinkingContent | ToolCall
"""What an answer may hold."""


@final
@attrs.frozen
class Usage:
    """What an answer cost, in tokens and, where the model has prices, in its currency."""

    input: int = 0
    """Tokens of the request that no cache served."""
    output: int = 0
    """Tokens of the answer, thinking included."""
    cache_read: int = 0
    """Tokens of the request that a cache served."""
    cache_write: int = 0
    """Tokens of the request that were put into a cache."""
    reasoning: int | None = None
    """The part of ``output`` that was thinking, where the provider says it."""
    total_tokens: int = 0
    cost: Mapping[str, float] = attrs.field(factory=dict)
    """Prices by kind (``input``, ``output``, ``cacheRead``, ``cacheWrite``, ``total``)."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        both = self.reasoning is not None or other.reasoning is not None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=(self.reasoning or 0) + (other.reasoning or 0) if both else None,
            total_tokens=self.total_tokens + other.total_tokens,
            cost={
                kind: self.cost.get(kind, 0) + other.cost.get(kind, 0)
                for kind in dict.fromkeys((*self.cost, *other.cost))
            },
        )


@final
@attrs.frozen
class ToolDeclaration:
    """What a model is told of a tool."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    """The JSON Schema of the arguments."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


# --------------------------------------------------------------- messages


def as_content(value: str | Iterable[Content]) -> tuple[Content, ...]:
    """Content of what may be given for it; a string is one block of text."""
    if type(value) is tuple:
        return value
    return (TextContent(value),) if isinstance(value, str) else tuple(value)


def _as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    return value if type(value) is tuple else tuple(value)


@final
@attrs.frozen
class SystemMessage:
    """Instructions and tool declarations from one point of the transcript on.

    The leading one carries the system prompt; later ones patch it (design 3; pi's
    ``SystemMessage``).
    """

    role: ClassVar[Literal["system"]] = "system"
    content: str = ""
    """The prompt, or in a later message what is appended to it."""
    sections: Mapping[str, str | None] = attrs.field(factory=dict, kw_only=True)
    """Named parts of the prompt: a text replaces the part of that name, None removes it."""
    tools_added: tuple[ToolDeclaration, ...] = attrs.field(default=(), converter=_as_tuple, kw_only=True)
    tools_removed: tuple[str, ...] = attrs.field(default=(), converter=_as_tuple, kw_only=True)
    """Names of tools that are no longer offered."""
    timestamp: int = attrs.field(factory=now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


@final
@attrs.frozen
class UserMessage:
    """What the user said: text (a string is taken as one block of text) and images."""

    role: ClassVar[Literal["user"]] = "user"
    content: tuple[Content, ...] = attrs.field(converter=as_content)
    timestamp: int = attrs.field(factory=now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""

    @property
    def text(self) -> str:
        """All text blocks, joined with newlines."""
        return content_text(self.content)


@final
@quickly_made
@attrs.frozen
class AssistantMessage:
    """A model's answer, or the record of a failure or cut that stands in its place."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: tuple[AssistantContent, ...] = attrs.field(default=(), converter=_as_tuple)
    stop_reason: StopReason = attrs.field(default="stop", kw_only=True)
    error_message: str | None = attrs.field(default=None, kw_only=True)
    """What went wrong, where ``stop_reason`` is ``error`` or ``aborted``."""
    error_kind: ErrorKind | None = attrs.field(default=None, kw_only=True)
    """``aborted`` where the text of ``error_message`` is the library's own word for a cut."""
    usage: Usage = attrs.field(factory=Usage, kw_only=True)
    api: str = attrs.field(default="", kw_only=True)
    """The wire format that the answer came in."""
    provider: str = attrs.field(default="", kw_only=True)
    model: str = attrs.field(default="", kw_only=True)
    """The id of the model that was asked."""
    response_id: str | None = attrs.field(default=None, kw_only=True)
    thinking_level: ThinkingLevel | None = attrs.field(default=None, kw_only=True)
    """What the loop asked for; None outside the loop and in a failure message."""
    raw_stop_reason: str | None = attrs.field(default=None, kw_only=True)
    """The provider's own word for ``stop_reason``."""
    timestamp: int = attrs.field(factory=now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""

    @property
    def text(self) -> str:
        """All text blocks, joined without a separator."""
        return "".join(block.text for block in self.content if type(block) is TextContent)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in source order."""
        return tuple(block for block in self.content if type(block) is ToolCall)


@final
@quickly_made
@attrs.frozen
class ToolResultMessage:
    """What came of a tool call, as the model is told."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str
    tool_name: str
    content: tuple[Content, ...] = attrs.field(default=(), converter=as_content)
    details: Any = attrs.field(default=None, kw_only=True)
    """Plain JSON for logs and user interfaces; no model sees it."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    error_kind: ErrorKind | None = attrs.field(default=None, kw_only=True)
    """Which of the library's own errors this is; None for a result of the tool's own."""
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    """What the tool itself spent on models."""
    timestamp: int = attrs.field(factory=now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""

    @property
    def text(self) -> str:
        """All text blocks, joined with newlines."""
        return content_text(self.content)


class CustomMessage(Protocol):
    """A message of the host's own kind: any object with a ``role``.

    No model sees it unless ``convert_to_llm`` makes something of it. To take part in JSON its class
    is registered once with :func:`register_message_type`.
    """

    @property
    def role(self) -> str:
        """A name that is none of the four roles of this library."""
        ...


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage
"""What a model can be sent."""

AgentMessage: TypeAlias = Message | CustomMessage
"""What a transcript may hold."""


def content_text(content: Iterable[object]) -> str:
    """All text blocks of a content, joined with newlines."""
    return "\n".join(block.text for block in content if type(block) is TextContent)
