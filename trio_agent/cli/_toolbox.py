"""Which tools a command gets: the ready-made ones by their names, one's own as ``module:name``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

import trio_agent.tools
from trio_agent._errors import TrioAgentError
from trio_agent._tool import Tool

__all__ = ["ToolsError", "load_tools", "ready_made"]

_READY_MADE = ("read_file", "write_file", "edit_file", "list_files", "search_text", "run_command", "fetch_url")


class ToolsError(TrioAgentError):
    """A choice of tools that cannot be had; the text is one line and names the remedy."""


def ready_made() -> tuple[str, ...]:
    """The names of the tools that this release has."""
    return tuple(name for name in _READY_MADE if hasattr(trio_agent.tools, name))


def load_tools(choices: Sequence[str], root: str, kill_now: trio.Event | None = None) -> list[Tool]:
    """Make the tools that were chosen, each once, in the order in which they were named.

    Args:
      choices: names of ready-made tools, ``all`` for all of these, ``module:name`` for one's own,
        or several of them with commas between; no text at all means no tool.
      root: the directory that ready-made tools work in.
      kill_now: an event; once it is set, commands get no grace any more.

    Raises:
      ToolsError: there is no such tool, it cannot be imported, or two have the same name.
    """
    chosen = [name.strip() for choice in choices for name in choice.split(",") if name.strip()]
    names = [name for choice in chosen for name in (ready_made() if choice == "all" else (choice,))]
    found: dict[str, Tool] = {}
    for name in dict.fromkeys(names):
        for tool in _own(name) if ":" in name else [_make(name, root, kill_now)]:
            if tool.name in found and found[tool.name] is not tool:
                raise ToolsError(
                    f"{name}: there is another tool called {tool.name!r} already; leave out one of the two"
                )
            found[tool.name] = tool
    return list(found.values())


def _make(name: str, root: str, kill_now: trio.Event | None) -> Tool:
    if name not in ready_made():
        raise ToolsError(
            f"there is no tool {name!r}; choose from {', '.join(ready_made())} and all, or name your own as module:name"
        )
    factory: Callable[..., Tool] = getattr(trio_agent.tools, name)
    # What a factory takes is seen from its signature: the directory first, where it has one.
    parameters = inspect.signature(factory).parameters
    settings: dict[str, Any] = {}
    if kill_now is not None and "kill_now" in parameters:
        settings["kill_now"] = kill_now
    first = next(iter(parameters.values()), None)
    return factory(root, **settings) if first is not None and first.name in ("root", "cwd") else factory(**settings)


def _own(spec: str) -> list[Tool]:
    """What ``module:name`` stands for: a tool, some tools, or a function that gives either."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise ToolsError(f"{spec!r} is no module:name, for example my_tools:weather")
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it
    if here not in sys.path:  # the installed program has its own directory there, python -m has this one
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ToolsError(f"{spec}: cannot import {module_name}: {_what(error)}") from error
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise ToolsError(f"{spec}: {module_name} has no {attribute!r}{_hint(value)}") from error
    if callable(value) and not isinstance(value, Tool | type):
        if inspect.iscoroutinefunction(value):
            raise ToolsError(f"{spec} is an async function, but no tool; put the decorator @tool above it")
        try:
            inspect.signature(value).bind()
        except (TypeError, ValueError) as error:
            raise ToolsError(
                f"{spec} is a function that takes arguments; put @tool above it if it is a tool, "
                "or name a function without any that returns tools"
            ) from error
        try:
            value = value()
        except (Exception, SystemExit) as error:
            raise ToolsError(f"{spec}: the function failed: {_what(error)}") from error
    if isinstance(value, Tool):
        return [value]
    tools = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    for item in tools:
        if not isinstance(item, Tool):
            raise ToolsError(f"{spec} gives {item!r:.60}, which is no Tool; make one with the decorator @tool")
    return tools


def _what(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _hint(module: object) -> str:
    names = (
        [name for name, value in vars(module).items() if isinstance(value, Tool)] if hasattr(module, "__dict__") else []
    )
    return f"; its tools are {', '.join(names)}" if names else ""
