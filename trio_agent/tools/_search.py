"""Searching in files."""

from __future__ import annotations

import json
import math
import os
import posixpath
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import trio
from msgspec import Meta

from trio_agent._errors import TrioAgentError
from trio_agent._tool import Tool, ToolResult, tool

from ._output import in_short, printable
from ._process import Ended, run_group
from ._root import Root

__all__ = ["SearchError", "search_text"]

_WORKER = os.fspath(Path(__file__).with_name("_grep.py"))


class SearchError(TrioAgentError):
    """A search cannot be made; the text is meant for the model."""


def search_text(
    root: str | os.PathLike[str],
    *,
    name: str = "search_text",
    max_hits: int = 200,
    max_line: int = 300,
    time_limit: float = 10.0,
) -> Tool:
    """Make a tool that looks for a text or regular expression in the files below a root.

    The search runs in a process of its own, which is killed when the call is cut or its time is up:
    a regular expression of Python cannot be stopped in any other way, and until it ends it would
    hold up every task and thread of the program. The result then has the hits so far and says so.

    The root cannot be left (as with :func:`read_file`); below it symbolic links are not followed.
    Binary files (with a NUL in the first 8 KiB) and what is called ``.git`` are passed over. A line
    matches by itself: no expression reaches over its end.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_hits: lines that one call shows at most.
      max_line: characters of a line that are shown, around the hit.
      time_limit: seconds that a search may take.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)

    @tool(
        name=name,
        description=(
            "Search files for a text or regular expression. Paths are relative to the working directory "
            f"and cannot leave it. At most {max_hits:,} lines are shown, as path:line:text. "
            f"A search ends after {time_limit:g} seconds."
        ),
    )
    @trio.lowlevel.enable_ki_protection  # or an interrupt by key could leave the descriptor open
    async def search(
        text: Annotated[str, Meta(min_length=1, description="what to look for, within one line")],
        path: Annotated[str, Meta(description="the file or directory to search")] = ".",
        regex: Annotated[bool, Meta(description="whether the text is a regular expression of Python")] = False,
        ignore_case: Annotated[bool, Meta(description="whether upper and lower case are the same")] = False,
    ) -> ToolResult:
        # In a thread, because a file system may be slow; nothing is lost by a cut (see run_group).
        fd = await trio.to_thread.run_sync(partial(confined.open_regular, path, directories=True))
        output = bytearray()
        try:
            request = {
                "fd": fd,
                "text": text,
                "regex": regex,
                "ignore_case": ignore_case,
                "max_hits": max_hits,
                "max_line": max_line,
                "cpu_seconds": math.ceil(time_limit) + 1,
            }
            ended = await run_group(
                [sys.executable, "-I", "-S", _WORKER, json.dumps(request)],
                [output.extend],
                cwd="/",
                env={},
                grace=0,
                time_limit=time_limit,
                pass_fds=(fd,),
            )
        finally:
            os.close(fd)
        return _result(bytes(output), ended, text, path, time_limit)

    return search


def _result(output: bytes, ended: Ended, text: str, path: str, time_limit: float) -> ToolResult:
    hits: list[tuple[str, int, str]] = []
    end: dict[str, Any] | None = None
    for line in output.split(b"\n")[:-1]:  # a last line without an end was cut
        try:
            value = json.loads(line)
        except ValueError:  # a word of the interpreter itself; the exit status says the rest
            continue
        if isinstance(value, list):
            hits.append((value[0], value[1], value[2]))
        else:
            end = value
    if end is not None and "error" in end:
        raise SearchError(f"{in_short(text)!r} is no regular expression: {end['error']}")
    if end is None and not ended.timed_out:
        raise SearchError(f"the search failed with status {ended.returncode}: {output[-500:].decode(errors='replace')}")
    base = posixpath.normpath(path)
    lines = [
        f"{printable(posixpath.normpath(posixpath.join(base, name)))}:{number}:{hit}" for name, number, hit in hits
    ]
    lines.append(_note(end, len(hits), text, base, time_limit))
    return ToolResult(
        "\n".join(lines),
        details={"hits": len(hits), "timed_out": ended.timed_out, **(end or {})},
        is_error=ended.timed_out,
    )


def _note(end: dict[str, Any] | None, hits: int, text: str, base: str, time_limit: float) -> str:
    if end is None:
        return (
            f"[stopped after {time_limit:g} s with {hits} {_plural(hits, 'line')}; there may be more: "
            "search a narrower path or a simpler expression]"
        )
    files = end["files"]
    if end["more"]:
        note = f"[cut after {hits:,} lines; there are more: search a narrower path or text]"
    elif hits:
        note = f"[{hits:,} {_plural(hits, 'line')} in {end['with_hits']:,} of {files:,} {_plural(files, 'file')}]"
    else:
        note = f"[{in_short(text)!r} is in none of {files:,} {_plural(files, 'file')} below {printable(base)}]"
    for key, what in (("binary", "binary"), ("unreadable", "unreadable")):
        if end[key]:
            note += f"\n[{end[key]:,} {what} {_plural(end[key], 'file')} passed over]"
    return note


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else noun + "s"
