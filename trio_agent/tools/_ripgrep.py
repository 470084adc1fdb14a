"""Searching with ripgrep.

ripgrep opens files by their paths, so somebody who swaps a directory for a link while it walks could lead
it out of the root. Therefore it only says *where* something is; the lines that are shown are
read here, through :class:`Root`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, final

import attrs
import trio

from ._grep import window
from ._output import HeadTail
from ._process import Ended, run_group
from ._root import PathError, Root

__all__ = ["Found", "understood", "with_ripgrep"]

_BLOCK = 64 * 1024
_HIT = re.compile(rb"([^\0]+)\0(\d+):(\d+):(\d+):[^\n]*\n")
_STATS = re.compile(rb"(\d+) files? contained matches\n(\d+) files? searched\n")
_OTHERWISE = re.compile(r"\\[<>]|\\b\{|&&|~~|--|\[\[|\\[zKh]")
"""What Python reads in another way, or not at all."""


@final
@attrs.frozen
class Found:
    """What came of a search."""

    hits: list[tuple[str, int, str]]
    end: dict[str, Any] | None
    timed_out: bool


def understood(text: str, *, regex: bool) -> bool:
    """Whether ripgrep may be asked: the text can be an argument and means to it what it means to Python."""
    if "\0" in text or "\n" in text or (regex and _OTHERWISE.search(text)):
        return False
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


async def with_ripgrep(
    program: str, confined: Root, start: str, request: dict[str, Any], *, gitignore: bool, time_limit: float
) -> Found | None:
    """Search below a path of the root that has no links in it. A cancellation kills ripgrep.

    Returns:
      what was found; None if ripgrep could not do it (an expression it does not know).
    """
    argv = [
        program,
        *("--no-config", "--stats", "--null", "--line-number", "--column", "--byte-offset", "--no-heading"),
        *("--with-filename", "--color=never", "--max-columns=1", "--sort=path", "--hidden", "--glob=!.git"),
        *("--encoding=none", "--crlf", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude"),
        *(("--no-require-git", "--no-ignore-parent") if gitignore else ("--no-ignore",)),
        *(("--ignore-file=.gitignore",) if gitignore and start and _readable(confined, ".gitignore") else ()),
        *(("--ignore-case",) if request["ignore_case"] else ("--case-sensitive",)),
        *(() if request["regex"] else ("--fixed-strings",)),
        f"--regexp={request['text']}",
        "--",
        f"./{start}" if start else ".",
    ]
    max_hits = request["max_hits"]
    places: list[tuple[str, int, int, int]] = []
    rest = bytearray()
    errors = HeadTail(20_000)
    enough = trio.CancelScope()

    def take(data: bytes) -> None:
        nonlocal rest
        if len(places) > max_hits:
            return
        rest += data
        done = 0
        while (hit := _HIT.match(rest, done)) is not None:
            done = hit.end()
            name, line, column, offset = hit.groups()
            places.append((os.fsdecode(bytes(name)), int(line), int(column), int(offset)))
            if len(places) > max_hits:
                enough.cancel(reason="there are more hits than are shown")
                break
        del rest[:done]

    ended: Ended | None = None
    with enough:
        try:
            ended = await run_group(argv, [take, errors.add], cwd=confined.path, env={}, grace=0, time_limit=time_limit)
        except OSError:  # it is not there any more, or the text is too long for an argument
            return None
    more = len(places) > max_hits
    stats = _STATS.search(rest)
    timed_out = ended is not None and ended.timed_out
    if not more and not timed_out and stats is None:
        return None
    hits = await trio.to_thread.run_sync(partial(_lines, confined, start, places[:max_hits], request["max_line"]))
    if timed_out and not more:
        return Found(hits, None, timed_out=True)
    end = {
        "files": int(stats[2]) if stats else len({name for name, *_ in places}),
        "with_hits": len({name for name, *_ in hits}),
        "hits": len(hits),
        "more": more,
        "binary": 0,
        "unreadable": errors.last(20_000).count("\nrg: ") + errors.last(20_000).startswith("rg: "),
    }
    return Found(hits, end, timed_out=False)


def _readable(confined: Root, path: str) -> bool:
    try:
        os.close(confined.open_regular(path))
    except PathError:
        return False
    return True


def _lines(
    confined: Root, start: str, places: Sequence[tuple[str, int, int, int]], max_line: int
) -> list[tuple[str, int, str]]:
    """The lines, read from what lies below the root."""
    hits: list[tuple[str, int, str]] = []
    opened: tuple[str, int] | None = None
    try:
        for name, number, column, offset in places:
            trio.from_thread.check_cancelled()
            path = name.removeprefix("./")
            if opened is None or opened[0] != path:
                if opened is not None:
                    os.close(opened[1])
                    opened = None
                try:
                    opened = (path, confined.open_regular(path))
                except PathError:  # removed, or swapped for something outside
                    continue
            # Block by block, as the other engine looks at long lines.
            skipped = (column - 1) // _BLOCK * _BLOCK
            line = os.pread(opened[1], _BLOCK, offset + skipped).split(b"\n", 1)[0].rstrip(b"\r")
            at = len(line[: column - 1 - skipped].decode("utf-8", "replace"))
            below = path.removeprefix(start).removeprefix("/")
            hits.append((below, number, window(line.decode("utf-8", "replace"), at, max_line)))
    finally:
        if opened is not None:
            os.close(opened[1])
    return hits
