"""The process that walks through directories for a tool."""

from __future__ import annotations

import json
import math
import os
import posixpath
import sys
from pathlib import Path
from typing import Any, final

import attrs
import pathspec

from ._process import Ended, run_group
from ._root import Root

__all__ = ["Answer", "run_worker", "start_of"]

_WORKER = os.fspath(Path(__file__).with_name("_grep.py"))
_LIBRARY = os.fspath(Path(pathspec.__file__).parent.parent)


@final
@attrs.frozen
class Answer:
    """What the worker said."""

    rows: list[list[Any]]
    end: dict[str, Any] | None
    """The counts, or an error; None if it did not come to its end."""
    ended: Ended
    last: str
    """The last of its output, for errors."""


def start_of(confined: Root, fd: int) -> str | None:
    """The path from the root to what is open, without links; empty for the root, None if unknown."""
    try:
        path = os.fspath(Path("/proc/self/fd", str(fd)).readlink())
    except OSError:  # not on Linux
        return None
    relative = posixpath.relpath(path, confined.path)
    if relative == ".":
        return ""
    return None if relative == ".." or relative.startswith("../") else relative


async def run_worker(confined: Root, fd: int, request: dict[str, Any], *, gitignore: bool, time_limit: float) -> Answer:
    """Have the worker do something with what is open. A cancellation kills it.

    Args:
      confined: the root.
      fd: the file or directory.
      request: what to do.
      gitignore: whether to pass over what ``.gitignore`` files name.
      time_limit: seconds it may take.
    """
    root = os.open(confined.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    output = bytearray()
    try:
        whole = {
            "fd": fd,
            "root": root,
            "start": start_of(confined, fd) or "",
            "gitignore": gitignore,
            "library": _LIBRARY,
            "cpu_seconds": math.ceil(time_limit) + 1,
            **request,
        }
        ended = await run_group(
            [sys.executable, "-I", "-S", _WORKER, json.dumps(whole)],
            [output.extend],
            cwd="/",
            env={},
            grace=0,
            time_limit=time_limit,
            pass_fds=(fd, root),
        )
    finally:
        os.close(root)
    rows: list[list[Any]] = []
    end: dict[str, Any] | None = None
    for line in bytes(output).split(b"\n")[:-1]:  # a last line without an end was cut
        try:
            value = json.loads(line)
        except ValueError:  # a word of the interpreter itself; the exit status says the rest
            continue
        if isinstance(value, list):
            rows.append(value)
        elif isinstance(value, dict):
            end = value
    return Answer(rows, end, ended, output[-500:].decode(errors="replace"))
