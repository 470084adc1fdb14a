"""The user's own tools: found by ``module:name``, and called with arguments that their schemas accept."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, final

import attrs

from trio_agent import AssistantMessage, Tool, ToolCall, UsageError


@final
@attrs.frozen
class OwnTool:
    """A tool, and what it is called with."""

    tool: Tool
    arguments: Mapping[str, Any]


def load_tools(place: str) -> list[OwnTool]:
    """Import what ``module:name`` names: a tool, several, or a function that makes them.

    Instead of a tool a pair ``(tool, arguments)`` says what it is called with; else arguments are
    made out of its schema.

    Raises:
      UsageError: there is no such thing, it is no tool, or no arguments were found for it.
    """
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise UsageError(f"--tools {place!r} names no tools; write module:name, as in my_package.tools:TOOLS")
    try:
        found: Any = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--tools {place!r}: {error}; is the module on PYTHONPATH?") from error
    if not isinstance(found, Tool) and callable(found):
        found = found()
    one = isinstance(found, Tool) or not isinstance(found, Iterable)
    tools = [_own(place, each) for each in ([found] if one else found)]
    if not tools:
        raise UsageError(f"--tools {place!r} is empty; name at least one tool")
    return tools


def _own(place: str, item: object) -> OwnTool:
    match item:
        case Tool():
            own = OwnTool(item, example(item.parameters))
        case (Tool() as tool, Mapping() as arguments):
            own = OwnTool(tool, arguments)
        case _:
            raise UsageError(f"--tools {place!r}: {item!r:.80} is no Tool and no pair of a Tool and its arguments")
    try:
        own.tool.validate(dict(own.arguments))
    except Exception as error:
        raise UsageError(
            f"--tools {place!r}: {own.tool.name!r} does not take {dict(own.arguments)!r} ({error}); "
            "name it as a pair (tool, arguments)"
        ) from error
    return own


def example(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """A small value that a schema may accept: its own example or default, else one made of its type."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if examples := schema.get("examples"):
        return examples[0]
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    if enum := schema.get("enum"):
        return enum[0]
    if (reference := schema.get("$ref")) is not None:
        return example(definitions.get(reference.rpartition("/")[2], {}), definitions)
    for name in ("anyOf", "oneOf", "allOf"):
        if branches := schema.get(name):
            return example(branches[0], definitions)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: example(properties.get(name, {}), definitions) for name in schema.get("required", ())}
        case "array":
            return [example(schema.get("items", {}), definitions)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "x" * max(1, schema.get("minLength", 1))


def own_answer(tools: list[OwnTool], count: int, turn: int = 0) -> AssistantMessage:
    """An answer with so many calls, of the tools in turn."""
    chosen = [tools[index % len(tools)] for index in range(count)]
    calls = [ToolCall(f"c{turn}-{index}", own.tool.name, own.arguments) for index, own in enumerate(chosen)]
    return AssistantMessage(calls, stop_reason="tool_use")
