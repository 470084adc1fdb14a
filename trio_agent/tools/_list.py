"""Listing files."""

from __future__ import annotations

import os
import posixpath
from functools import partial
from typing import Annotated

import trio
from msgspec import Meta

from trio_agent._tool import Tool, ToolResult, tool

from ._output import in_short, printable
from ._root import Root
from ._search import SearchError
from ._worker import Answer, run_worker

__all__ = ["list_files"]


def list_files(
    root: str | os.PathLike[str],
    *,
    name: str = "list_files",
    max_paths: int = 1000,
    max_bytes: int = 50_000,
    time_limit: float = 10.0,
    gitignore: bool = True,
) -> Tool:
    """Make a tool that lists the files below a root whose paths fit a pattern.

    The root cannot be left (as with :func:`read_file`); symbolic links are listed and not followed.
    What is called ``.git`` and, unless the model asks for it, what ``.gitignore`` files name is
    left out; a directory that is asked for by its path is listed even if they name it. Files come
    in the order of names, those of a directory before those of the directories in it.

    The listing is made by a process of its own, which is killed when the call is cut or its time
    is up (patterns of a ``.gitignore`` can be made to take forever). The result then has the paths so far.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_paths: paths that one call shows at most.
      max_bytes: bytes that one call shows at most.
      time_limit: seconds that a listing may take.
      gitignore: False to leave ``.gitignore`` files unread.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)

    @tool(
        name=name,
        description=(
            "List files by a pattern. Paths are relative to the working directory and cannot leave it. "
            + ("What .gitignore names is left out unless asked for. " if gitignore else "")
            + f"At most {max_paths:,} paths are shown. A listing ends after {time_limit:g} seconds."
        ),
    )
    @trio.lowlevel.enable_ki_protection  # or an interrupt by key could leave the descriptor open
    async def list_(
        pattern: Annotated[
            str,
            Meta(
                description="what paths must fit, with *, ?, [...] within a name and ** for any directories; "
                "without a slash it is for the name alone, wherever it stands"
            ),
        ] = "**",
        path: Annotated[str, Meta(description="the directory to list; the pattern is relative to it")] = ".",
        directories: Annotated[bool, Meta(description="whether directories are listed, too")] = False,
        ignored: Annotated[bool, Meta(description="whether to list also what .gitignore names")] = False,
    ) -> ToolResult:
        fd = await trio.to_thread.run_sync(partial(confined.open_regular, path, directories=True))
        request = {"what": "list", "pattern": pattern, "directories": directories, "max_hits": max_paths}
        try:
            answer = await run_worker(confined, fd, request, gitignore=gitignore and not ignored, time_limit=time_limit)
        finally:
            os.close(fd)
        return _result(answer, pattern, path, max_bytes, time_limit)

    return list_


def _result(answer: Answer, pattern: str, path: str, max_bytes: int, time_limit: float) -> ToolResult:
    end = answer.end
    if end is not None and "error" in end:
        raise SearchError(f"{in_short(pattern)!r} is no pattern: {end['error']}")
    timed_out = answer.ended.timed_out
    if end is None and not timed_out:
        raise SearchError(f"the listing failed with status {answer.ended.returncode}: {answer.last}")
    base = posixpath.normpath(path)
    lines: list[str] = []
    room = max_bytes
    for (name,) in answer.rows:
        line = printable(posixpath.normpath(posixpath.join(base, name))) + "/" * name.endswith("/")
        room -= len(line.encode()) + 1
        if room < 0:
            break
        lines.append(line)
    count = len(lines)
    what = "path" if count == 1 else "paths"
    if end is None:
        note = f"[stopped after {time_limit:g} s with {count:,} {what}; there may be more: list a narrower path]"
    elif end["more"] or count < len(answer.rows):
        note = f"[cut after {count:,} {what}; there are more: list a narrower path or pattern]"
    elif count:
        note = f"[{count:,} {what}]"
    else:
        note = f"[nothing below {in_short(base)} fits {in_short(pattern)}]"
    if end is not None and end["ignored"]:
        note += f"\n[{end['ignored']:,} left out because of .gitignore]"
    if end is not None and end["unreadable"]:
        note += f"\n[{end['unreadable']:,} could not be read]"
    return ToolResult(
        "\n".join([*lines, note]), details={"paths": count, "timed_out": timed_out, **(end or {})}, is_error=timed_out
    )
