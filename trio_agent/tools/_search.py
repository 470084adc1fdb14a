"""Searching in files."""

from __future__ import annotations

import os
import posixpath
import shutil
from functools import partial
from typing import Annotated, Any

import trio
from msgspec import Meta

from trio_agent._errors import TrioAgentError
from trio_agent._tool import Tool, ToolResult, tool

from ._output import in_short, printable
from ._ripgrep import Found, understood, with_ripgrep
from ._root import Root
from ._worker import Answer, run_worker, start_of

__all__ = ["SearchError", "search_text"]


class SearchError(TrioAgentError):
    """A search cannot be made; the text is meant for the model."""


def search_text(
    root: str | os.PathLike[str],
    *,
    name: str = "search_text",
    max_hits: int = 200,
    max_line: int = 300,
    time_limit: float = 10.0,
    gitignore: bool = True,
    ripgrep: str | None = "rg",
) -> Tool:
    """Make a tool that looks for a text or regular expression in the files below a root.

    ripgrep searches where it is installed; else, and for what only Python's expressions can say
    (backreferences, looking around), a worker in Python does. Either is a process of its own, which
    is killed when the call is cut or its time is up: a regular expression of Python cannot be
    stopped in any other way, and until it ends it would hold up every task and thread of the
    program. The result then has the hits so far and says so.

    The root cannot be left (as with :func:`read_file`); below it symbolic links are not followed.
    Binary files (with a NUL in the first 8 KiB), what is called ``.git`` and, unless the model asks for it, what
    ``.gitignore`` files name is passed over; a path that is given is searched even if they name it.
    A line matches by itself: no expression reaches over its end.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_hits: lines that one call shows at most.
      max_line: characters of a line that are shown, around the hit.
      time_limit: seconds that a search may take.
      gitignore: False to leave ``.gitignore`` files unread.
      ripgrep: the program, a path or a name that is looked for in ``PATH`` when the tool is made;
        None never uses it.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)
    program = None if ripgrep is None else shutil.which(ripgrep)
    if program is not None:
        program = os.path.abspath(program)  # noqa: PTH100 - it is run from the root, where a relative path says another thing

    @tool(
        name=name,
        description=(
            "Search files for a text or regular expression. Paths are relative to the working directory "
            f"and cannot leave it. At most {max_hits:,} lines are shown, as path:line:text. "
            + ("What .gitignore names is passed over unless asked for. " if gitignore else "")
            + f"A search ends after {time_limit:g} seconds."
        ),
    )
    @trio.lowlevel.enable_ki_protection  # or an interrupt by key could leave the descriptor open
    async def search(
        text: Annotated[str, Meta(min_length=1, description="what to look for, within one line")],
        path: Annotated[str, Meta(description="the file or directory to search")] = ".",
        regex: Annotated[bool, Meta(description="whether the text is a regular expression")] = False,
        ignore_case: Annotated[bool, Meta(description="whether upper and lower case are the same")] = False,
        ignored: Annotated[bool, Meta(description="whether to search also what .gitignore names")] = False,
    ) -> ToolResult:
        # In a thread, because a file system may be slow; nothing is lost by a cut (see run_group).
        fd = await trio.to_thread.run_sync(partial(confined.open_regular, path, directories=True))
        request = {
            "what": "search",
            "text": text,
            "regex": regex,
            "ignore_case": ignore_case,
            "max_hits": max_hits,
            "max_line": max_line,
        }
        obey = gitignore and not ignored
        deadline = trio.current_time() + time_limit
        try:
            start = start_of(confined, fd)
            found: Found | None = None
            if program is not None and start is not None and understood(text, regex=regex):
                found = await with_ripgrep(program, confined, start, request, gitignore=obey, time_limit=time_limit)
            if found is None:
                left = max(0.0, deadline - trio.current_time())
                found = _found(await run_worker(confined, fd, request, gitignore=obey, time_limit=left), text)
        finally:
            os.close(fd)
        return _result(found, text, path, time_limit)

    return search


def _found(answer: Answer, text: str) -> Found:
    end = answer.end
    if end is not None and "error" in end:
        raise SearchError(f"{in_short(text)!r} is no regular expression: {end['error']}")
    if end is None and not answer.ended.timed_out:
        raise SearchError(f"the search failed with status {answer.ended.returncode}: {answer.last}")
    return Found([(name, line, hit) for name, line, hit in answer.rows], end, answer.ended.timed_out)


def _result(found: Found, text: str, path: str, time_limit: float) -> ToolResult:
    base = posixpath.normpath(path)
    lines = [
        f"{printable(posixpath.normpath(posixpath.join(base, name)))}:{number}:{hit}"
        for name, number, hit in found.hits
    ]
    lines.append(_note(found.end, len(found.hits), text, base, time_limit))
    return ToolResult(
        "\n".join(lines),
        details={"hits": len(found.hits), "timed_out": found.timed_out, **(found.end or {})},
        is_error=found.timed_out,
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
