"""Reading the messages of a scenario file, and the declarations that they refer to."""

from __future__ import annotations

from typing import Any, get_args

from trio_agent import (
    AgentMessage,
    AssistantContent,
    AssistantMessage,
    ErrorKind,
    FormatError,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ThinkingLevel,
    Tool,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolDefinitionError,
    ToolResultMessage,
    UserMessage,
)

from ._reading import Keys, anything, array, boolean, json_object, mapping, one_of, or_null, refuse, string
from ._scenario_parts import HostMessage

__all__ = ["THINKING_LEVELS", "MessageReader", "call", "image"]

THINKING_LEVELS: tuple[str, ...] = get_args(ThinkingLevel)


def call(value: Any, where: str) -> ToolCall:
    """Read a tool call."""
    keys = Keys(value, where)
    found = ToolCall(keys.take("id", string), keys.take("name", string), keys.take("arguments", json_object, {}))
    keys.done()
    return found


def image(value: Any, where: str) -> ImageContent:
    """Read an image."""
    keys = Keys(value, where)
    found = ImageContent(keys.take("data", string), keys.take("mime_type", string))
    keys.done()
    return found


def _block(value: Any, where: str) -> AssistantContent:
    keys = Keys(value, where)
    name = keys.only(("text", "thinking", "tool_call"))
    block: AssistantContent
    if name == "text":
        block = TextContent(keys.take("text", string))
    elif name == "thinking":
        block = ThinkingContent(keys.take("thinking", string))
    else:
        block = keys.take("tool_call", call)
    keys.done()
    return block


async def _unused(arguments: dict[str, Any], ctx: ToolContext) -> None:
    """Stands in for what a tool does where only its declaration is checked."""


class MessageReader:
    """Reads messages; knows the tools that they may declare."""

    def __init__(self) -> None:
        self.declarations: dict[str, ToolDeclaration] = {}

    def declare(self, value: Any, where: str) -> None:
        """Learn the keys and declarations of the tools."""
        for key, item in json_object(value, where).items():
            keys = Keys(item, f"{where}.{key}")
            name = keys.take("name", string, key)
            parameters = keys.take("parameters", json_object, {"type": "object", "properties": {}})
            try:
                tool = Tool(name, keys.take("description", string, ""), parameters, execute=_unused)
            except ToolDefinitionError as error:
                raise FormatError(f"{keys.where} is no tool: {error}") from error
            self.declarations[key] = tool.declaration

    def tool_key(self, value: Any, where: str) -> str:
        """Read a key of the scenario's tools."""
        if not isinstance(value, str) or value not in self.declarations:
            refuse(where, value, "a key of the scenario's tools: " + (", ".join(self.declarations) or "none"))
        return value

    def message(self, value: Any, where: str) -> AgentMessage:
        """Read a message."""
        keys = Keys(value, where)
        role = keys.take("role", string)
        message: AgentMessage
        match role:
            case "system":
                added = keys.take("tools_added", array(self.tool_key), ())
                message = SystemMessage(
                    keys.take("text", string, ""),
                    sections=keys.take("sections", mapping(or_null(string)), {}),
                    tools_added=[self.declarations[key] for key in added],
                    tools_removed=keys.take("tools_removed", array(string), ()),
                )
            case "user":
                text = TextContent(keys.take("text", string))
                message = UserMessage((text, *keys.take("images", array(image), ())))
            case "assistant":
                error = keys.take("error", or_null(string), None)
                message = AssistantMessage(
                    keys.take("content", array(_block)),
                    stop_reason=keys.take(
                        "stop_reason", one_of("stop", "length", "tool_use", "error", "aborted"), "stop"
                    ),
                    error_message=error,
                    error_kind="aborted" if error == "aborted" else None,
                    thinking_level=keys.take("thinking_level", one_of(*THINKING_LEVELS), None),
                )
            case "tool_result":
                kind = keys.take("error", one_of(*get_args(ErrorKind)), None)
                message = ToolResultMessage(
                    keys.take("id", string),
                    keys.take("name", string),
                    keys.take("text", string, kind or ""),
                    is_error=keys.take("is_error", boolean, False),
                    error_kind=kind,
                    details=keys.take("details", anything, None),
                )
            case _:
                message = HostMessage(role, keys.take("text", string))
        keys.done()
        return message
