"""JSON of messages and content blocks, and the registry of the host's own roles.

How a field is written and read follows from its annotation, see :data:`_BY_TYPE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast, get_args

import attrs

from trio_agent._errors import FormatError
from trio_agent._messages import (
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    ErrorKind,
    ImageContent,
    StopReason,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    Usage,
    UserMessage,
    content_text,
)

Encode: TypeAlias = Callable[[Any], Any]
Decode: TypeAlias = Callable[[Any, str], Any]

BLOCKS: dict[str, type] = {
    "text": TextContent,
    "image": ImageContent,
    "thinking": ThinkingContent,
    "toolCall": ToolCall,
}
ROLES: dict[str, type] = {
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResultMessage,
}
_ROLE_OF = {cls: role for role, cls in ROLES.items()}


def wrong(where: str, value: object, wanted: str) -> FormatError:
    """The error for a value that is none of those wanted."""
    return FormatError(f"{where} is {value!r:.80}, but must be {wanted}")


# ----------------------------------------------------------- single values


def _typed(kind: type | tuple[type, ...], wanted: str) -> Decode:
    def decode(value: Any, where: str) -> Any:
        if not isinstance(value, kind):
            raise wrong(where, value, wanted)
        return value

    return decode


string = _typed(str, "a string")
object_ = _typed(Mapping, "an object")
boolean = _typed(bool, "true or false")


def integer(value: Any, where: str) -> int:
    """A whole number; JavaScript may write it with a point."""
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        raise wrong(where, value, "a whole number")
    return int(value)


def anything(value: Any, where: str) -> Any:
    """Any JSON."""
    return value


def choice(literal: Any) -> Decode:
    """One of the strings of a Literal."""
    names = get_args(literal)

    def decode(value: Any, where: str) -> Any:
        if value not in names:
            raise wrong(where, value, "one of " + ", ".join(names))
        return value

    return decode


def list_of(decode_one: Decode) -> Decode:
    """An array, as a tuple."""

    def decode(value: Any, where: str) -> Any:
        if not isinstance(value, list | tuple):
            raise wrong(where, value, "an array")
        return tuple(decode_one(item, f"{where}[{index}]") for index, item in enumerate(value))

    return decode


def mapping_of(kinds: tuple[type, ...], wanted: str) -> Decode:
    """An object whose values are of some types."""

    def decode(value: Any, where: str) -> Any:
        for key, item in object_(value, where).items():
            if not isinstance(item, kinds) or isinstance(item, bool):
                raise wrong(f"{where}.{key}", item, wanted)
        return value

    return decode


def object_of(cls: type) -> Decode:
    """An object that becomes a value of a class."""
    return lambda value, where: decode_object(cls, value, where)


def blocks(value: Any, where: str) -> Any:
    """Content blocks; a string stands for one block of text."""
    return (TextContent(value),) if isinstance(value, str) else _block_list(value, where)


def _block(data: Any, where: str) -> Any:
    cls = BLOCKS.get(str(data.get("type"))) if isinstance(data, Mapping) else None
    if cls is None:
        raise wrong(where, data, f"a content block whose type is one of {', '.join(BLOCKS)}")
    return decode_object(cls, data, where, "type")


_block_list = list_of(_block)


def _system_text(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return value
    return content_text(_block_list(value, where))


def _removed_name(value: Any, where: str) -> Any:
    return string(value.get("name") if isinstance(value, Mapping) else value, where)


def _stop_reason(value: Any, where: str) -> Any:
    return choice(StopReason)("tool_use" if value == "toolUse" else value, where)


def same(value: Any) -> Any:
    """Written as it is."""
    return value


def encode_list(values: Iterable[Any]) -> list[Any]:
    """Each value as an object."""
    return [encode_object(value) for value in values]


def encode_object(value: Any) -> dict[str, Any]:
    """A message, block, usage or declaration as an object."""
    return _encode(value)


# ------------------------------------------------------------------ fields

_BY_TYPE: dict[str, tuple[Encode, Decode]] = {
    "str": (same, string),
    "bool": (same, boolean),
    "int": (same, integer),
    "Any": (same, anything),
    "Mapping[str, Any]": (same, object_),
    "Mapping[str, float]": (same, mapping_of((int, float), "a number")),
    "Mapping[str, str | None]": (same, mapping_of((str, type(None)), "a string or null")),
    "ErrorKind": (same, choice(ErrorKind)),
    "ThinkingLevel": (same, choice(ThinkingLevel)),
    "StopReason": (lambda reason: "toolUse" if reason == "tool_use" else reason, _stop_reason),
    "Usage": (encode_object, object_of(Usage)),
    "tuple[Content, ...]": (encode_list, blocks),
    "tuple[AssistantContent, ...]": (encode_list, blocks),
    "tuple[ToolDeclaration, ...]": (encode_list, list_of(object_of(ToolDeclaration))),
    "tuple[str, ...]": (lambda names: [{"name": name} for name in names], list_of(_removed_name)),
}
"""By the annotation of a field, an optional one without its None: how it is written and read."""

_ALWAYS = frozenset(
    {"api", "cache_read", "cache_write", "content", "description", "input", "is_error", "model", "output"}
    | {"parameters", "provider", "stop_reason", "timestamp", "total_tokens", "usage"}
)
"""Fields that are written also where they have their default value, because pi writes them."""


@attrs.frozen
class _Field:
    attr: str
    key: str
    encode: Encode
    decode: Decode
    default: Any
    required: bool


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _fields(cls: type) -> tuple[_Field, ...]:
    fields = []
    for field in attrs.fields(cls):
        if field.name == "extra":
            continue
        encode, decode = _BY_TYPE[str(field.type).removesuffix(" | None")]
        if cls is SystemMessage and field.name == "content":
            decode = _system_text
        # In pi's JSON a message without content, or a call without arguments, does not exist.
        required = field.default is attrs.NOTHING or field.name == "arguments"
        required = required or (field.name == "content" and cls is not SystemMessage)
        default = field.default.factory() if hasattr(field.default, "factory") else field.default
        fields.append(_Field(field.name, _camel(field.name), encode, decode, default, required))
    return tuple(fields)


_FIELDS = {cls: _fields(cls) for cls in (*BLOCKS.values(), *ROLES.values(), Usage, ToolDeclaration)}


def _encode(value: Any) -> dict[str, Any]:
    cls = type(value)
    data: dict[str, Any] = {}
    if cls in _ROLE_OF:
        data["role"] = _ROLE_OF[cls]
    elif hasattr(cls, "type"):
        data["type"] = cls.type
    for field in _FIELDS[cls]:
        item = getattr(value, field.attr)
        if item is not None and (field.required or field.attr in _ALWAYS or item != field.default):
            data[field.key] = field.encode(item)
    for key, item in value.extra.items():
        data.setdefault(key, item)
    return data


def decode_object(cls: type, data: Any, where: str, tag: str = "") -> Any:
    """A value of a class from an object; what is not known goes into ``extra``."""
    object_(data, where)
    values: dict[str, Any] = {}
    known = {tag} if tag else set()
    for field in _FIELDS[cls]:
        known.add(field.key)
        item = data.get(field.key)
        if item is not None:
            values[field.attr] = field.decode(item, f"{where}.{field.key}")
        elif field.required:
            raise FormatError(f"{where} lacks {field.key!r}")
    return cls(**values, extra={key: item for key, item in data.items() if key not in known})


# ------------------------------------------------------- the host's own roles


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
    if role in ROLES or role == "tool_result":
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
    if type(message) in _ROLE_OF:
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
    role = object_(data, where).get("role")
    cls = ROLES.get(role) if isinstance(role, str) else None
    if cls is not None:
        return cast("AgentMessage", decode_object(cls, data, where, "role"))
    custom = _custom.get(role) if isinstance(role, str) else None
    if custom is None:
        known = ", ".join((*ROLES, *_custom))
        raise FormatError(
            f"{where} has the role {role!r}, but known are {known}; "
            "roles of your own are made known with register_message_type()"
        )
    return cast("CustomMessage", custom.from_json(data))
