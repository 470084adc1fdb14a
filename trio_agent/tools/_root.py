"""Opening files below a root that no path can leave.

A path is walked part by part, each part opened relative to the directory that is held open before
it and never through a symbolic link. Links are followed by hand, so they lead where the walk may
go. What was checked is what is open: a link or directory that changes in between makes an error,
or another file below the root, but never one outside of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from typing import final

import attrs

from trio_agent._errors import TrioAgentError

from ._output import in_short

__all__ = ["PathError", "Place", "Root"]

_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO is opened at once in place of waiting for somebody who writes into it.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_LINK_ERRNOS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
_MAX_LINKS = 40
_MAX_DEPTH = 200  # each directory of a path is held open during the walk

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

_TEXTS = {
    errno.ENOENT: "there is no {path}",
    errno.EACCES: "no permission to open {path}",
    errno.EPERM: "no permission to open {path}",
    errno.ELOOP: "{path} goes through too many symbolic links",
    errno.ENOTDIR: "{path} goes through something that is no directory",
    errno.ENXIO: "{path} is no regular file",
    errno.ENAMETOOLONG: "the path {path} is too long",
}


class PathError(TrioAgentError):
    """A tool cannot open what a path names; the text is meant for the model."""


@final
@attrs.frozen
class Place:
    """Where a file is or will be; valid inside of the block that gave it."""

    directory: int
    """The directory, held open."""
    name: str
    """The name in it; no link when it was looked at."""
    fd: int | None
    """The file, open for reading; None if there is none."""


@contextmanager
def _clear(path: str) -> Generator[None]:
    """Errors of the system as errors that a model understands."""
    try:
        yield
    except OSError as error:
        text = _TEXTS.get(error.errno or 0, "cannot open {path}: " + (error.strerror or str(error)))
        raise PathError(text.format(path=in_short(path))) from error
    except ValueError as error:  # a NUL, or a surrogate that stands for no byte
        raise PathError(f"{in_short(path)!r} is no possible path: {error}") from error


def _check_kind(fd: int, path: str, *, directories: bool = False) -> None:
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not (directories and stat.S_ISDIR(mode)):
        kind = next((name for test, name in _KINDS if test(mode)), "no regular file")
        raise PathError(f"{in_short(path)} is {kind}, not a file")


@final
class Root:
    """A directory that paths are relative to and cannot leave.

    Args:
      path: the directory. Symbolic links in this path itself are the host's own and are followed.

    Raises:
      NotADirectoryError: it is none (or is missing).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)
        if not os.path.isdir(self.path):  # noqa: PTH112 - os throughout: this module works with fds
            raise NotADirectoryError(errno.ENOTDIR, "the root is no directory", os.fspath(path))

    def open(self, path: str) -> int:
        """Open a file or directory for reading. Blocks; for worker threads.

        Returns:
          a file descriptor, in non-blocking mode, that the caller closes.

        Raises:
          PathError: it cannot be opened, or lies outside of the root.
        """
        with _clear(path):
            return self._open(path)

    def open_regular(self, path: str, *, directories: bool = False) -> int:
        """What :meth:`open` does, for regular files only, or these and directories."""
        fd = self.open(path)
        try:
            _check_kind(fd, path, directories=directories)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextmanager
    def place(self, path: str, *, make_parents: bool = False) -> Generator[Place]:
        """Find where a file is or, if there is none yet, will be. Blocks; for worker threads.

        Links are followed to what is to be replaced, as far as they stay below the root.

        Args:
          path: what the model asked for.
          make_parents: whether directories that are missing on the way are made.

        Raises:
          PathError: it cannot be reached, lies outside of the root, or is there and no regular file.
        """
        held: list[int] = []
        fd: int | None = None
        try:
            with _clear(path):
                name, fd = self._walk(path, held, writing=True, make=make_parents)
            if fd is None and (not name or path.endswith("/")):
                raise PathError(f"{in_short(path)} is a directory, not a file")
            if fd is not None:
                _check_kind(fd, path)
            yield Place(held[-1], name, fd)
        finally:
            for each in held if fd is None else [*held, fd]:
                os.close(each)

    def _open(self, path: str) -> int:
        held: list[int] = []
        try:
            _, fd = self._walk(path, held)
            return os.open(".", _READ, dir_fd=held[-1]) if fd is None else fd
        finally:
            for each in held:
                os.close(each)

    def _walk(self, path: str, held: list[int], *, writing: bool = False, make: bool = False) -> tuple[str, int | None]:
        """Go where a path leads; ``held`` gets the directories on the way, the last one for the name.

        Returns:
          the last name and it opened; no descriptor for a directory that was walked into (then the
          name is empty) and, when writing, for what is missing.
        """
        held.append(os.open(self.path, _WALK & ~os.O_NOFOLLOW))
        parts = self._parts(path, path)
        links = 0
        while parts:
            name = parts.pop()
            if name == "..":
                if len(held) == 1:
                    raise self._outside(path)
                # The directory that was walked through, not what ".." means on disk by now.
                os.close(held.pop())
                continue
            try:
                fd = self._step(name, held[-1], last=not parts, make=make)
            except FileNotFoundError:
                if parts or not writing:
                    raise
                return name, None
            except OSError as error:
                if error.errno not in _LINK_ERRNOS:
                    raise
                try:
                    target = os.readlink(name, dir_fd=held[-1])
                except OSError:
                    raise error from None
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                if target.startswith("/"):
                    while len(held) > 1:
                        os.close(held.pop())
                parts.extend(self._parts(target, path))
                continue
            if not parts:
                return name, fd
            held.append(fd)
            if len(held) > _MAX_DEPTH:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return "", None

    def _step(self, name: str, directory: int, *, last: bool, make: bool) -> int:
        if last:
            return os.open(name, _READ, dir_fd=directory)
        try:
            return os.open(name, _WALK, dir_fd=directory)
        except FileNotFoundError:
            if not make:
                raise
        try:
            os.mkdir(name, dir_fd=directory)
        except FileExistsError:  # somebody else was faster
            pass
        return os.open(name, _WALK, dir_fd=directory)

    def _parts(self, path: str, asked: str) -> list[str]:
        """The parts of a path from the root on, last one first."""
        if path.startswith("/"):
            if path != self.path and not path.startswith(self.path.rstrip("/") + "/"):
                raise self._outside(asked)
            path = path[len(self.path) :]
        return [part for part in reversed(path.split("/")) if part not in ("", ".")]

    def _outside(self, path: str) -> PathError:
        return PathError(f"{in_short(path)} lies outside of the root; give a path below it")
