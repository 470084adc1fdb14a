"""Writing and editing files: all of the new content stands at the name, or the old one does.

The content goes into a new file beside the old one, in the directory that is held open, and takes
over the name by a rename, which follows no link.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

import trio
from msgspec import Meta

from trio_agent._tool import Tool, ToolResult, tool

from ._output import in_short
from ._root import PathError, Place, Root

__all__ = ["exclusive", "replace", "write_file"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1024 * 1024

# Two calls of one batch must not both read a file before either replaces it. A fixed number of
# locks, chosen by directory and name, so that nothing has to be forgotten.
_LOCKS = tuple(threading.Lock() for _ in range(64))


def write_file(root: str | os.PathLike[str], *, name: str = "write_file", max_bytes: int = 1_000_000) -> Tool:
    """Make a tool that writes a whole text file, in UTF-8, below a root.

    Paths, symbolic links and ``..`` cannot leave the root, as with :func:`read_file`; a link that
    stays inside is followed and what it leads to is replaced. Directories that are missing are
    made. The file is replaced at once, by a rename: a reader sees the old content or the new one,
    and another name (hard link) of the old file keeps the old content. Permission bits are kept.
    Directories, devices and FIFOs are never replaced. A full disk or missing permission is an error
    result, and the old file is untouched.

    The tool runs in a worker thread that is never abandoned. A cut that comes before the rename
    leaves the old file (but maybe new, empty directories); one that comes later leaves the new one.

    Args:
      root: the directory that paths are relative to.
      name: what the model calls the tool.
      max_bytes: bytes that a file written by one call may have.

    Raises:
      NotADirectoryError: the root is no directory.
    """
    confined = Root(root)

    @tool(
        name=name,
        description=(
            "Write a text file; what was in it is replaced. Directories that are missing are made. Paths are "
            f"relative to the working directory and cannot leave it. At most {max_bytes:,} bytes."
        ),
    )
    def write(
        path: Annotated[str, Meta(description="the file")],
        content: Annotated[str, Meta(description="all of the text that it shall hold")],
    ) -> ToolResult:
        shown = in_short(path)
        data = encode(content, "utf-8", shown)
        if len(data) > max_bytes:
            raise PathError(f"the content for {shown} has {len(data):,} bytes; more than {max_bytes:,} are not written")
        with confined.place(path, make_parents=True) as place, exclusive(place):
            # Seen again under the lock: another call may have made or replaced it.
            existed = _seen(place) is not None
            replace(place, data, shown)
        lines = content.count("\n") + (not content.endswith("\n") and content != "")
        what = "replaced" if existed else "written"
        return ToolResult(
            f"[{shown} is {what}: {lines:,} {'line' if lines == 1 else 'lines'}, {len(data):,} bytes]",
            details={"path": shown, "bytes": len(data), "lines": lines, "created": not existed},
        )

    return write


def encode(text: str, encoding: str, shown: str) -> bytes:
    """Bytes of a text.

    Raises:
      PathError: it holds what cannot be written, such as half of a surrogate pair.
    """
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise PathError(
            f"the text for {shown} holds {text[error.start]!a} at character {error.start + 1:,}, "
            "which cannot be written in " + encoding.upper()
        ) from error


@contextmanager
def exclusive(place: Place) -> Generator[None]:
    """No other call of this process writes the file meanwhile. A cut ends the wait for it."""
    where = os.fstat(place.directory)
    lock = _LOCKS[hash((where.st_dev, where.st_ino, place.name)) % len(_LOCKS)]
    while not lock.acquire(timeout=0.05):
        trio.from_thread.check_cancelled()
    try:
        yield
    finally:
        lock.release()


def replace(place: Place, data: bytes, shown: str, *, unchanged: os.stat_result | None = None) -> None:
    """Put a file with new content in place of the old one, if there is one.

    Args:
      place: where.
      data: the content.
      shown: the path, for errors.
      unchanged: what the file was when it was read; refused if it is not that any more.

    Raises:
      PathError: it cannot be written or was changed; the old file is as it was.
    """
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        old = _seen(place)
        _refuse_odd(old, shown)
        fd = os.open(temporary, _NEW, 0o666 if old is None else 0o600, dir_fd=place.directory)
        try:
            try:
                _fill(fd, data, old)
            finally:
                os.close(fd)
            trio.from_thread.check_cancelled()
            now = _seen(place)
            _refuse_odd(now, shown)
            if unchanged is not None and (now is None or identity(now) != identity(unchanged)):
                raise PathError(f"{shown} was changed by somebody else meanwhile; read it again")
            os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.directory)
            raise
    except OSError as error:
        raise PathError(f"cannot write {shown}: {error.strerror or error}") from error


def identity(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _seen(place: Place) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _refuse_odd(status: os.stat_result | None, shown: str) -> None:
    # It was a regular file or missing when the path was walked, and has changed since.
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise PathError(f"{shown} became something that is no file meanwhile; look again")


def _fill(fd: int, data: bytes, old: os.stat_result | None) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]
        trio.from_thread.check_cancelled()
    if old is not None:
        with suppress(PermissionError):  # only root gives files to others
            os.fchown(fd, old.st_uid, old.st_gid)
        os.fchmod(fd, stat.S_IMODE(old.st_mode))
    os.fsync(fd)
