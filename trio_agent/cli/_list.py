"""``trio-agent tools`` and ``trio-agent schema``: what there is, for people and for programs."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from trio_agent._tool import Tool

from ._config import ConfiguredCommand, with_configuration
from ._exit import ExitCode
from ._output import tell, without_controls
from ._toolbox import ToolsError, load_tools

__all__ = ["schema", "tools"]


class _NoSuchTool(click.ClickException):
    exit_code = int(ExitCode.USAGE)


@click.command(cls=ConfiguredCommand)
@click.option(
    "--tools",
    metavar="NAMES",
    multiple=True,
    default=["all"],
    show_default=True,
    help="Which, as for `trio-agent run`.",
)
@click.option(
    "--root",
    metavar="DIR",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="The directory that they work in.",
)
@click.option("--json", "as_array", is_flag=True, help="Print one JSON array of names, descriptions and JSON Schemas.")
@with_configuration
def tools(tools: Sequence[str], root: str, *, as_array: bool) -> int:
    """List tools with their parameters, ready-made ones and your own."""
    try:
        found = load_tools(tools, root)
    except (ToolsError, OSError) as error:
        raise _NoSuchTool(f"--tools: {error}") from error
    if as_array:
        data = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in found]
        return tell(json.dumps(data, indent=2) + "\n")
    width = min(shutil.get_terminal_size().columns, 100)
    return tell("\n".join(_described(tool, width) for tool in found))


@click.command
def schema() -> int:
    """Print the JSON Schema of what `trio-agent run --json` prints, line by line."""
    from ._schema import event_schema  # noqa: PLC0415 - only this command reads the sources of the classes

    return tell(json.dumps(event_schema(), indent=2) + "\n")


def _described(tool: Tool, width: int) -> str:
    lines = [tool.name, *_filled(tool.description, width, "  ")]
    parameters = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    for name, parameter in parameters.items() if isinstance(parameters, Mapping) else ():
        about = parameter if isinstance(parameter, Mapping) else {}
        kind = _kind(about) + ("" if name in required else ", optional")
        default = f" Default: {json.dumps(about['default'])}." if about.get("default") is not None else ""
        text = next((str(each["description"]).rstrip(".") for each in _parts(about) if "description" in each), "")
        lines += _filled(f"{name} ({kind}){f': {text}.' if text else '.'}{default}", width, "    ")
    return without_controls("\n".join(lines)) + "\n"


def _parts(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A schema, and those of which one must fit."""
    return [schema, *(each for each in schema.get("anyOf", ()) if isinstance(each, Mapping))]


def _filled(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, max(width, 20), initial_indent=indent, subsequent_indent=indent + "  " * (len(indent) > 2)
    )


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_kind(schema.get('items') or {})}"
    return " or ".join(str(each) for each in kind if each != "null") if isinstance(kind, list) else str(kind)
