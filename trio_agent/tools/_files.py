"""Reading files."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from io import BufferedReader, FileIO
from typing import Annotated, Any

import trio
from msgspec import Meta

from trio_agent._messages import ImageContent, TextContent
from trio_agent._tool import Tool, ToolResult, tool

from ._output import decode_cut, in_short
from ._root import PathError, Root

__all__ = ["read_file"]

_CHUNK = 64 * 1024
_LOOK = 8 * 1024
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def read_file(
    root: str | os.PathLike[str],
    *,
    name: str = "read_file",
    max_lines: int = 2000,
    max_bytes: int = 50_000,
    max_image_bytes: int = 5_000_000,
) -> Tool:
    """Make a tool that reads text files and images below a root.

    Paths, symbolic links and ``..`` cannot leave the root, also where they change while the tool
    looks. Directories, devices, FIFOs and files that are not text in UTF-8 are an error result.
    PNG, JPEG, GIF and WebP, known by their first bytes whatever they are called, come as
    :class:`~trio_agent.ImageContent` behind a line of text that names them. The tool runs in a worker thread that looks for a cut between blocks; it is never abandoned.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_lines: lines that one call shows at most.
      max_bytes: bytes of text that one call shows at most, without line numbers; the result says
        where to go on.
      max_image_bytes: bytes that an image may have; 0 shows none.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)

    @tool(
        name=name,
        description=(
            "Read a file. Paths are relative to the working directory and cannot leave it. "
            f"At most {max_lines:,} lines or {max_bytes:,} bytes are shown; "
            "the result says with which offset to go on."
            + (" PNG, JPEG, GIF and WebP images are shown as images." if max_image_bytes else "")
        ),
    )
    def read(
        path: Annotated[str, Meta(description="the file")],
        offset: Annotated[int, Meta(ge=1, description="the first line to show, from 1")] = 1,
        limit: Annotated[int, Meta(ge=1, description="how many lines to show")] | None = None,
        line_numbers: Annotated[bool, Meta(description="whether each line begins with its number and a tab")] = False,
    ) -> ToolResult:
        fd = confined.open_regular(path)
        with BufferedReader(FileIO(fd), _CHUNK) as file:
            lines = max_lines if limit is None else min(limit, max_lines)
            kind = _image_kind(file.peek(_LOOK)) if max_image_bytes else None
            if kind is not None:
                return _image(file, in_short(path), kind, max_image_bytes)
            return _read(file, in_short(path), offset, lines, max_bytes, numbered=line_numbers)

    return read


def _image_kind(look: bytes) -> str | None:
    if look.startswith((b"GIF87a", b"GIF89a")) and b"\0" in look:  # a text may begin so, too
        return "image/gif"
    if look.startswith(b"RIFF") and look[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if look.startswith(magic)), None)


def _image(file: BufferedReader[FileIO], shown: str, kind: str, max_bytes: int) -> ToolResult:
    size = os.fstat(file.fileno()).st_size
    data = file.read(max_bytes + 1) if size <= max_bytes else b""  # it may grow while it is read
    if size > max_bytes or len(data) > max_bytes:
        raise PathError(f"{shown} is an image ({kind}) of {size:,} bytes; more than {max_bytes:,} are not shown")
    return ToolResult(
        (TextContent(f"[{shown}: {kind}, {len(data):,} bytes]"), ImageContent(b64encode(data).decode(), kind)),
        details={"path": shown, "mime_type": kind, "size": len(data)},
    )


def _read(
    file: BufferedReader[FileIO], shown: str, offset: int, limit: int, max_bytes: int, *, numbered: bool
) -> ToolResult:
    size = os.fstat(file.fileno()).st_size
    look = file.peek(_LOOK)
    if b"\0" in look[:_LOOK]:
        raise PathError(f"{shown} is no text file: it holds binary data ({size:,} bytes)")
    _skip(file, shown, offset)
    taken = bytearray()
    lines = 0
    long_line = False
    while lines < limit and not long_line:
        # One byte more than there is room for shows that a line does not fit.
        line = file.readline(max_bytes - len(taken) + 1)
        if len(taken) + len(line) > max_bytes:
            if taken:
                file.seek(-len(line), os.SEEK_CUR)
                break
            line = line[:max_bytes]
            long_line = True
        if not line:
            break
        taken += line
        lines += 1
    if long_line:
        note = f"[line {offset} is longer than {max_bytes:,} bytes; only its beginning is shown]"
    elif file.peek(1):
        note = f"[lines {offset} to {offset + lines - 1} are shown; go on with offset {offset + lines}]"
    elif not taken:
        note = f"[{shown} is empty]"
    else:
        note = ""
    text = _text(bytes(taken), shown, offset, cut=long_line)
    if numbered:
        text = "".join(f"{number}\t{line}" for number, line in enumerate(_LINE.findall(text), offset))
    if note and text and not text.endswith("\n"):
        text += "\n"
    details: dict[str, Any] = {"path": shown, "offset": offset, "lines": lines, "size": size}
    return ToolResult(text + note, details=details)


def _skip(file: BufferedReader[FileIO], shown: str, offset: int) -> None:
    number = 1
    steps = 0
    while number < offset:
        line = file.readline(_CHUNK)
        if not line:
            raise PathError(f"{shown} has only {number - 1} lines; offset is {offset}")
        number += line.endswith(b"\n")
        steps += 1
        if steps % 1000 == 0:
            trio.from_thread.check_cancelled()
    if offset > 1 and not file.peek(1):
        raise PathError(f"{shown} has only {offset - 1} lines; offset is {offset}")


def _text(data: bytes, shown: str, offset: int, *, cut: bool) -> str:
    if b"\0" in data:
        raise PathError(f"{shown} is no text file: it holds binary data from line {offset} on")
    try:
        text = decode_cut(data, "strict") if cut else data.decode()
    except UnicodeDecodeError as error:
        line = offset + data.count(b"\n", 0, error.start)
        raise PathError(f"{shown} is not text in UTF-8: byte {data[error.start]:#04x} in line {line}") from error
    return text.removeprefix("\ufeff") if offset == 1 else text
