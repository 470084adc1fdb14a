"""The JSON Schema of what ``trio-agent run --json`` prints, made of the event classes.

``docs/events.schema.json`` is what ``trio-agent schema`` prints.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from trio_agent import _events, _messages
from trio_agent._events import AgentEvent
from trio_agent._messages import (
    AgentMessage,
    AssistantContent,
    Content,
    CustomMessage,
    StopReason,
    SystemMessage,
    ToolCall,
    Usage,
)
from trio_agent._stream import StreamEvent, TextEnd, ThinkingEnd, ThinkingStart, ToolCallEnd, ToolCallStart
from trio_agent._stream._answer import BLOCK_EVENTS, DELTA_EVENTS
from trio_agent._tool import ToolResult, _definition
from trio_agent._wire._messages import _ALWAYS, _FIELDS, ROLES, _camel

__all__ = ["event_schema"]

_NAMES = {AgentMessage: "AgentMessage", AssistantContent: "AssistantContent", Content: "Content"}
_NAMES |= {StreamEvent: "StreamEvent"}
_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number"}
_EVENTS = get_args(AgentEvent)
_STREAM_EVENTS = get_args(StreamEvent)
_STRING = {"type": "string"}

# A class says that it is of the public module; these are where it is written.
_MODULES = (_messages, _definition, _events)
_SOURCES = {
    statement.name: statement
    for module in _MODULES
    for statement in ast.parse(inspect.getsource(module)).body
    if isinstance(statement, ast.ClassDef)
}
_GLOBALS = {name: value for module in _MODULES for name, value in vars(module).items()}

# What a stream event tells besides its own fields comes from the answer that is being built (see
# trio_agent._wire._events): what must be there, and what may be.
_MUST: dict[type, dict[str, Any]] = {ToolCallStart: {"id": str, "toolName": str}, ToolCallEnd: {"toolCall": ToolCall}}
_MAY: dict[type, dict[str, Any]] = {
    ThinkingStart: {"redacted": bool},
    TextEnd: {"contentSignature": str},
    ThinkingEnd: {"contentSignature": str},
}
_NEWS = {"usage": Usage, "responseId": str, "rawStopReason": str}


def event_schema() -> dict[str, Any]:
    """The schema of one line."""
    walk = _Walk()
    events = [walk.of(cls) for cls in _EVENTS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of trio-agent run --json: one event of a run",
        "description": "Made by `trio-agent schema` from the classes of the library; not to be edited.",
        "oneOf": events,
        "$defs": dict(sorted(walk.definitions.items())),
    }


class _Walk:
    """Makes schemas of types; each class is described once, below its name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, None left out: what is None is not written."""
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if kind is Any:
            return {}
        origin, args = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": ["toolUse" if kind == StopReason and name == "tool_use" else name for name in args]}
        if origin in (Union, types.UnionType):
            return self._union(kind, args)
        if origin is tuple:
            return {"type": "array", "items": self.of(args[0])}
        if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
            values = args[1]
            if type(None) in get_args(values):  # a value of a mapping is written also where it is None
                return {"type": "object", "additionalProperties": {"anyOf": [self.of(values), {"type": "null"}]}}
            return {"type": "object", **({} if values is Any else {"additionalProperties": self.of(values)})}
        return self._reference(kind.__name__, lambda: self._class(kind))

    def _union(self, kind: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        members = [member for member in args if member is not type(None)]
        if len(members) == 1:
            return self.of(members[0])
        # Their tags exclude each other, so at most one fits.
        return self._reference(_NAMES[kind], lambda: {"oneOf": [self.of(member) for member in members]})

    def _reference(self, name: str, make: Any) -> dict[str, Any]:
        if name not in self.definitions:
            self.definitions[name] = {}  # a class may come again below itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _class(self, cls: type) -> dict[str, Any]:
        if cls is CustomMessage:
            own = {"type": "string", "not": {"enum": list(ROLES)}}
            return _object("A message of the host's own kind.", {"role": own}, ["role"], closed=False)
        about = _first_paragraph(cls)
        if cls in _STREAM_EVENTS:
            return self._stream_event(cls, about)
        hints, docs = get_type_hints(cls, _GLOBALS), _field_docs(cls)
        properties: dict[str, Any] = {}
        if cls in ROLES.values():
            properties["role"] = {"const": next(role for role, known in ROLES.items() if known is cls)}
        elif hasattr(cls, "type"):
            properties["type"] = {"const": cls.type}
        required = list(properties)
        if cls in _EVENTS or cls is ToolResult:
            for field in attrs.fields(cls):
                key = _camel(field.name)
                properties[key] = self._field(cls, field.name, hints, docs)
                if cls in _EVENTS or field.name == "content":
                    required.append(key)
            return _object(about, properties, required)
        for entry in _FIELDS[cls]:
            properties[entry.key] = self._field(cls, entry.attr, hints, docs)
            if entry.default is not None and (entry.required or entry.attr in _ALWAYS):
                required.append(entry.key)
        # What the library does not know of a message is kept and written back.
        return _object(about, properties, required, closed=False)

    def _field(self, cls: type, name: str, hints: Mapping[str, Any], docs: Mapping[str, str]) -> dict[str, Any]:
        if cls is SystemMessage and name == "tools_removed":
            schema = {"type": "array", "items": _object("", {"name": _STRING}, ["name"])}
        else:
            schema = self.of(hints[name])
        return {**schema, "description": docs[name]} if name in docs else schema

    def _stream_event(self, cls: Any, about: str) -> dict[str, Any]:
        properties: dict[str, Any] = {"type": {"const": cls.type}}
        if issubclass(cls, BLOCK_EVENTS):
            properties["contentIndex"] = {"type": "integer", "minimum": 0}
        if issubclass(cls, DELTA_EVENTS):
            properties["delta"] = _STRING
        properties |= {key: self.of(kind) for key, kind in _MUST.get(cls, {}).items()}
        required = list(properties)
        if not issubclass(cls, DELTA_EVENTS):
            properties |= {key: self.of(kind) for key, kind in (_MAY.get(cls, {}) | _NEWS).items()}
        return _object(about, properties, required)


def _object(about: str, properties: dict[str, Any], required: list[str], *, closed: bool = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", **({"description": about} if about else {})}
    schema |= {"properties": properties, "required": required}
    return {**schema, "additionalProperties": False} if closed else schema


def _first_paragraph(cls: type) -> str:
    return _plain(inspect.getdoc(cls) or "")


def _field_docs(cls: type) -> dict[str, str]:
    """The string literals under the fields of a class."""
    body = _SOURCES[cls.__name__].body
    docs: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            docs[field.target.id] = _plain(str(ast.literal_eval(text.value)))
    return docs


def _plain(text: str) -> str:
    """The first paragraph of a docstring without its markup."""
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return re.sub(r"(?::\w+:)?`+~?([^`]+)`+", r"\1", paragraph)
