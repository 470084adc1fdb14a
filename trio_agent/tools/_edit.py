"""Replacing text in files."""

from __future__ import annotations

import codecs
import os
from bisect import bisect_left
from typing import Annotated, final

import attrs
import trio
from msgspec import Meta

from trio_agent._tool import Tool, ToolResult, tool

from ._output import in_short
from ._root import PathError, Root
from ._write import encode, exclusive, identity, replace

__all__ = ["edit_file"]

_CHUNK = 64 * 1024
_SHOWN_LINES = 10

# UTF-32 first: its little-endian mark begins like that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@final
@attrs.frozen
class Edit:
    """One replacement."""

    old_text: Annotated[str, Meta(min_length=1, description="what stands in the file, exactly and only once")]
    new_text: Annotated[str, Meta(description="what shall stand there")]


def edit_file(root: str | os.PathLike[str], *, name: str = "edit_file", max_bytes: int = 5_000_000) -> Tool:
    r"""Make a tool that replaces pieces of a text file below a root.

    One call makes one or several replacements, all or none. Each old text must stand in the file
    exactly once, as the file was before the call; an error says in which lines it stands otherwise.
    Replacements may not overlap.

    Line ends are kept: an old text with ``\n`` also matches ``\r\n``, and new text gets the line
    ends of what it replaces or, if that has none, those of most of the file. A byte order mark and
    its encoding (UTF-8, UTF-16, UTF-32) are kept; without one the file must be UTF-8.

    The file is replaced at once and confined as with :func:`write_file`. Calls of this process take
    turns; if another process changes the file between reading and replacing, the call is an error
    and changes nothing (a change in the last microseconds before the rename cannot be seen).
    The tool runs in a worker thread that is never abandoned. A cut that comes before the rename
    leaves the old file.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_bytes: bytes that the file may have, before and after.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)

    @tool(
        name=name,
        description=(
            "Replace pieces of a text file, all or none of them. Each old_text must be exactly what stands in the "
            "file, with its indentation, and stand there once: add lines around it until it does. "
            "All refer to the file as it was before the call. Paths are relative to the working directory and "
            "cannot leave it."
        ),
    )
    def edit(
        path: Annotated[str, Meta(description="the file")],
        edits: Annotated[list[Edit], Meta(min_length=1, description="the replacements; they may not overlap")],
    ) -> ToolResult:
        shown = in_short(path)
        with confined.place(path) as place, exclusive(place):
            try:
                # Opened again under the lock, for another call may have replaced it.
                fd = os.open(place.name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=place.directory)
            except FileNotFoundError:
                raise PathError(f"there is no {shown}") from None
            except OSError as error:
                raise PathError(f"cannot open {shown}: {error.strerror}") from error
            try:
                data, before = _read(fd, shown, max_bytes)
            finally:
                os.close(fd)
            mark, encoding, text = _decode(data, shown)
            new, lines = _apply(text, edits, shown)
            changed = mark + encode(new, encoding, shown)
            if len(changed) > max_bytes:
                raise PathError(f"{shown} would have {len(changed):,} bytes; at most {max_bytes:,} are written")
            if changed == data:
                raise PathError(f"{shown} already is as the edits would make it; nothing was changed")
            replace(place, changed, shown, unchanged=before)
        return ToolResult(
            f"[{shown} is changed in {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}]",
            details={"path": shown, "lines": lines, "bytes": len(changed)},
        )

    return edit


def _read(fd: int, shown: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
    before = os.fstat(fd)
    data = bytearray()
    while len(data) <= max_bytes and (block := os.read(fd, _CHUNK)):
        data += block
        trio.from_thread.check_cancelled()
    if len(data) > max_bytes:
        raise PathError(f"{shown} has {before.st_size:,} bytes; more than {max_bytes:,} are not edited")
    if identity(os.fstat(fd)) != identity(before):
        raise PathError(f"{shown} was changed by somebody else meanwhile; read it again")
    return bytes(data), before


def _decode(data: bytes, shown: str) -> tuple[bytes, str, str]:
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(mark) + error.start) + 1
        raise PathError(f"{shown} is not text in {encoding.upper()}: line {line} cannot be read") from error
    if "\0" in text:
        raise PathError(f"{shown} is no text file: it holds binary data ({len(data):,} bytes)")
    return mark, encoding, text


def _apply(text: str, edits: list[Edit], shown: str) -> tuple[str, list[int]]:
    """The new text, and the lines in which it differs."""
    plain = _Plain(text)
    found: list[tuple[int, int, int, str]] = []
    for number, edit in enumerate(edits, 1):
        which = f"old_text of edit {number}" if len(edits) > 1 else "old_text"
        old = edit.old_text.replace("\r\n", "\n")
        places = plain.find(old)
        if not places:
            raise PathError(f"the {which} does not stand in {shown}{_hint(plain.text, old)}; nothing was changed")
        if len(places) > 1:
            lines = ", ".join(str(plain.line(at)) for at in places[:_SHOWN_LINES])
            more = " and more" if len(places) > _SHOWN_LINES else ""
            raise PathError(
                f"the {which} stands more than once in {shown}, in lines {lines}{more}: "
                "add lines around it; nothing was changed"
            )
        found.append((places[0], places[0] + len(old), number, edit.new_text))
    found.sort()
    pieces: list[str] = []
    lines_changed: list[int] = []
    done = end_before = 0
    for index, (start, end, number, new) in enumerate(found):
        if index and start < end_before:
            raise PathError(
                f"edits {found[index - 1][2]} and {number} overlap in {shown}, "
                f"line {plain.line(start)}; make them one. Nothing was changed"
            )
        from_, to = plain.original(start), plain.original(end)
        pieces += text[done:from_], plain.with_line_ends(new, text[from_:to])
        done, end_before = to, end
        lines_changed.append(plain.line(start))
    pieces.append(text[done:])
    return "".join(pieces), lines_changed


def _hint(text: str, old: str) -> str:
    """What may help a model that got the white space wrong."""
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")
    at = text.find(first) if first else -1
    if at < 0:
        return ""
    line = text.count("\n", 0, at) + 1
    return f" (its first line, apart from the white space around it, stands in line {line})"


@final
class _Plain:
    r"""A text with ``\n`` in place of ``\r\n``, and where its characters stand in the original."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self._pairs: list[int] = []
        at = text.find("\r\n")
        while at >= 0:
            self._pairs.append(at - len(self._pairs))
            at = text.find("\r\n", at + 2)
        newlines = self.text.count("\n")
        self._most: str | None = None
        if newlines:
            self._most = "\r\n" if 2 * len(self._pairs) > newlines else "\n"

    def find(self, old: str) -> list[int]:
        """Where it stands, overlapping ones too; looks for one more than is ever shown."""
        places: list[int] = []
        at = self.text.find(old)
        while at >= 0 and len(places) <= _SHOWN_LINES:
            places.append(at)
            at = self.text.find(old, at + 1)
        return places

    def original(self, at: int) -> int:
        return at + bisect_left(self._pairs, at)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def with_line_ends(self, new: str, replaced: str) -> str:
        first = replaced.find("\n")
        style = self._most
        if first >= 0:
            style = "\r\n" if replaced[:first].endswith("\r") else "\n"
        if style is None:
            return new
        new = new.replace("\r\n", "\n")
        return new if style == "\n" else new.replace("\n", "\r\n")
