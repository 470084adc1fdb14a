"""What is said: content blocks and messages, and their JSON.

The names are those of pi-ai in snake_case; the JSON is pi's own (camelCase keys, the role
``toolResult``), so that a transcript can be read by either. Fields that this library does not
know are kept in ``extra`` and written back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast, final, get_args

import attrs

from ._errors import FormatError

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


def _now() -> int:
    return int(time.time() * 1000)


# ---------------------------------------------------------------- content


@final
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


def _as_content(value: str | Iterable[Content]) -> tuple[Content, ...]:
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
    timestamp: int = attrs.field(factory=_now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""


@final
@attrs.frozen
class UserMessage:
    """What the user said: text (a string is taken as one block of text) and images."""

    role: ClassVar[Literal["user"]] = "user"
    content: tuple[Content, ...] = attrs.field(converter=_as_content)
    timestamp: int = attrs.field(factory=_now, kw_only=True)
    """Milliseconds since the epoch."""
    extra: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    """Fields of the JSON form that this library does not know."""

    @property
    def text(self) -> str:
        """All text blocks, joined with newlines."""
        return content_text(self.content)


@final
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
    timestamp: int = attrs.field(factory=_now, kw_only=True)
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
@attrs.frozen
class ToolResultMessage:
    """What came of a tool call, as the model is told."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str
    tool_name: str
    content: tuple[Content, ...] = attrs.field(default=(), converter=_as_content)
    details: Any = attrs.field(default=None, kw_only=True)
    """Plain JSON for logs and user interfaces; no model sees it."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    error_kind: ErrorKind | None = attrs.field(default=None, kw_only=True)
    """Which of the library's own errors this is; None for a result of the tool's own."""
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    """What the tool itself spent on models."""
    timestamp: int = attrs.field(factory=_now, kw_only=True)
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


# ------------------------------------------------------------------- JSON

_Encode: TypeAlias = Callable[[Any], Any]
_Decode: TypeAlias = Callable[[Any, str], Any]


@attrs.frozen
class _Field:
    """One field: its attribute, its JSON key, and how its value is written and read."""

    attr: str
    key: str
    encode: _Encode
    decode: _Decode
    required: bool = False
    always: bool = False
    """Written also where it has its default value."""


def _wrong(where: str, value: object, wanted: str) -> FormatError:
    return FormatError(f"{where} is {value!r:.80}, but must be {wanted}")


def _same(value: Any) -> Any:
    return value


def _typed(kind: type, wanted: str) -> _Decode:
    def decode(value: Any, where: str) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _wrong(where, value, wanted)
        return value

    return decode


_string = _typed(str, "a string")
_object = _typed(dict, "an object")
_boolean = _typed(bool, "true or false")
_integer = _typed(int, "a whole number")


def _timestamp(value: Any, where: str) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _integer(value, where)


def _anything(value: Any, where: str) -> Any:
    return value


def _choice(literal: Any) -> _Decode:
    names = get_args(literal)

    def decode(value: Any, where: str) -> Any:
        if value not in names:
            raise _wrong(where, value, "one of " + ", ".join(names))
        return value

    return decode


def _stop_reason(value: Any, where: str) -> Any:
    return _choice(StopReason)("tool_use" if value == "toolUse" else value, where)


def _list_of(decode_one: _Decode) -> _Decode:
    def decode(value: Any, where: str) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong(where, value, "an array")
        return tuple(decode_one(item, f"{where}[{index}]") for index, item in enumerate(value))

    return decode


def _encode_list(values: Iterable[Any]) -> list[Any]:
    return [_encode(value) for value in values]


def _encode_one(value: Any) -> dict[str, Any]:
    return _encode(value)


def _removed_name(value: Any, where: str) -> Any:
    return _string(value.get("name") if isinstance(value, dict) else value, where)


def _blocks(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return (TextContent(value),)
    return _list_of(_block)(value, where)


def _system_text(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return value
    return "".join(block.text for block in _list_of(_block)(value, where) if type(block) is TextContent)


def _plain(attr: str, decode: _Decode = _string, *, key: str = "", required: bool = False) -> _Field:
    return _Field(attr, key or _camel(attr), _same, decode, required, always=required)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _tagged(cls: type) -> _Decode:
    return lambda value, where: _decode(cls, value, where)


_STAMP = _Field("timestamp", "timestamp", _same, _timestamp, always=True)

_FIELDS: dict[type, tuple[_Field, ...]] = {
    TextContent: (_plain("text", required=True), _plain("text_signature")),
    ImageContent: (_plain("data", required=True), _plain("mime_type", required=True)),
    ThinkingContent: (_plain("thinking", required=True), _plain("thinking_signature"), _plain("redacted", _boolean)),
    ToolCall: (
        _plain("id", required=True),
        _plain("name", required=True),
        _plain("arguments", _object, required=True),
        _plain("arguments_error"),
        _plain("raw_arguments"),
        _plain("thought_signature"),
    ),
    Usage: (
        _Field("input", "input", _same, _integer, always=True),
        _Field("output", "output", _same, _integer, always=True),
        _Field("cache_read", "cacheRead", _same, _integer, always=True),
        _Field("cache_write", "cacheWrite", _same, _integer, always=True),
        _plain("reasoning", _integer),
        _Field("total_tokens", "totalTokens", _same, _integer, always=True),
        _plain("cost", _object),
    ),
    ToolDeclaration: (
        _plain("name", required=True),
        _Field("description", "description", _same, _string, always=True),
        _Field("parameters", "parameters", _same, _object, always=True),
    ),
    SystemMessage: (
        _Field("content", "content", _same, _system_text, always=True),
        _plain("sections", _object),
        _Field("tools_added", "toolsAdded", _encode_list, _list_of(_tagged(ToolDeclaration))),
        _Field(
            "tools_removed", "toolsRemoved", lambda names: [{"name": name} for name in names], _list_of(_removed_name)
        ),
        _STAMP,
    ),
    UserMessage: (_Field("content", "content", _encode_list, _blocks, required=True, always=True), _STAMP),
    AssistantMessage: (
        _Field("content", "content", _encode_list, _blocks, required=True, always=True),
        _Field(
            "stop_reason",
            "stopReason",
            lambda reason: "toolUse" if reason == "tool_use" else reason,
            _stop_reason,
            always=True,
        ),
        _plain("error_message"),
        _plain("error_kind", _choice(ErrorKind)),
        _Field("usage", "usage", _encode_one, _tagged(Usage), always=True),
        _Field("api", "api", _same, _string, always=True),
        _Field("provider", "provider", _same, _string, always=True),
        _Field("model", "model", _same, _string, always=True),
        _plain("response_id"),
        _plain("thinking_level", _choice(ThinkingLevel)),
        _plain("raw_stop_reason"),
        _STAMP,
    ),
    ToolResultMessage: (
        _plain("tool_call_id", required=True),
        _plain("tool_name", required=True),
        _Field("content", "content", _encode_list, _blocks, required=True, always=True),
        _plain("details", _anything),
        _Field("is_error", "isError", _same, _boolean, always=True),
        _plain("error_kind", _choice(ErrorKind)),
        _Field("usage", "usage", _encode_one, _tagged(Usage)),
        _STAMP,
    ),
}

_BLOCKS: dict[str, type] = {
    "text": TextContent,
    "image": ImageContent,
    "thinking": ThinkingContent,
    "toolCall": ToolCall,
}

_ROLES: dict[str, type] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResultMessage,
}

_DEFAULTS: dict[type, dict[str, Any]] = {
    cls: {
        field.name: (field.default.factory() if hasattr(field.default, "factory") else field.default)
        for field in attrs.fields(cls)
    }
    for cls in _FIELDS
}


def _encode(value: Any) -> dict[str, Any]:
    cls = type(value)
    data: dict[str, Any] = {}
    if cls in _ROLES.values():
        data["role"] = "toolResult" if cls is ToolResultMessage else cls.role
    elif hasattr(cls, "type"):
        data["type"] = cls.type
    for field in _FIELDS[cls]:
        item = getattr(value, field.attr)
        if field.always or item != _DEFAULTS[cls][field.attr]:
            data[field.key] = field.encode(item)
    for key, item in value.extra.items():
        data.setdefault(key, item)
    return data


def _decode(cls: type, data: Any, where: str, tag: str = "") -> Any:
    _object(data, where)
    values: dict[str, Any] = {}
    known = {tag}
    for field in _FIELDS[cls]:
        known.add(field.key)
        item = data.get(field.key)
        if item is not None:
            values[field.attr] = field.decode(item, f"{where}.{field.key}")
        elif field.required:
            raise FormatError(f"{where} lacks {field.key!r}")
    return cls(**values, extra={key: item for key, item in data.items() if key not in known})


def _block(data: Any, where: str) -> Any:
    cls = _BLOCKS.get(str(data.get("type"))) if isinstance(data, dict) else None
    if cls is None:
        raise _wrong(where, data, f"a content block whose type is one of {', '.join(_BLOCKS)}")
    return _decode(cls, data, where, "type")


@attrs.frozen
class _Custom:
    cls: type
    to_json: Callable[[Any], Mapping[str, Any]]
    from_json: Callable[[Mapping[str, Any]], Any]


_custom: dict[str, _Custom] = {}

_T = TypeVar("_T")


def register_message_type(
    cls: type[_T],
    role: str,
    *,
    to_json: Callable[[_T], Mapping[str, Any]],
    from_json: Callable[[Mapping[str, Any]], _T],
) -> None:
    """Let messages of the host's own kind take part in JSON.

    Args:
      cls: the class of the messages.
      role: their ``role``; in JSON too.
      to_json: makes a plain JSON object of a message; ``role`` is added to it.
      from_json: makes a message of such an object (``role`` included).

    Raises:
      ValueError: the role is one of the library's own, or is registered for another class.
    """
    if role in _ROLES or role == "tool_result":
        raise ValueError(f"{role!r} is a role of this library; choose another name for messages of {cls!r}")
    known = _custom.get(role)
    if known is not None and known.cls is not cls:
        raise ValueError(f"the role {role!r} is registered for {known.cls!r} already")
    _custom[role] = _Custom(cls, to_json, from_json)


def unregister_message_type(role: str) -> None:
    """Forget a role of the host's own; an unknown one is ignored."""
    _custom.pop(role, None)


def message_to_json(message: AgentMessage) -> dict[str, Any]:
    """Make plain JSON (dicts, lists, strings, numbers, booleans, None) of a message.

    Raises:
      FormatError: the message is of a kind that was never registered.
    """
    if type(message) in _FIELDS:
        return _encode(message)
    custom = _custom.get(message.role)
    if custom is None:
        raise FormatError(
            f"no JSON form is known for messages of role {message.role!r}; "
            "register their class with register_message_type()"
        )
    return {"role": message.role, **custom.to_json(message)}


def message_from_json(data: Mapping[str, Any], where: str = "message") -> AgentMessage:
    """Make a message of its plain JSON. Keys that are unknown are kept in ``extra``.

    Args:
      data: a JSON object with a ``role``.
      where: what error messages call the document.

    Raises:
      FormatError: the object is no message; the text names the place and the value.
    """
    role = _object(data, where).get("role")
    cls = _ROLES.get(role) if isinstance(role, str) else None
    if cls is not None:
        return cast("Message", _decode(cls, data, where, "role"))
    custom = _custom.get(role) if isinstance(role, str) else None
    if custom is None:
        known = ", ".join((*_ROLES, *_custom))
        raise FormatError(
            f"{where} has the role {role!r}, but known are {known}; "
            "roles of your own are made known with register_message_type()"
        )
    return cast("CustomMessage", custom.from_json(data))
