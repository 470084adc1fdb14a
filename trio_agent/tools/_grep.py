"""The worker of ``search_text`` and ``list_files``: a script that needs nothing but the standard library
(and pathspec, once it meets a ``.gitignore``).

Python's ``re`` cannot be interrupted and holds the interpreter's lock while it matches, so a
pattern that takes too long would stop the whole program, Trio included. A process can be killed.
That holds for the patterns of a ``.gitignore`` as well.

It is started with one argument, a JSON object, and an open descriptor of the file or directory to
search; it never opens anything by a path of its own and never goes through a symbolic link, so it
cannot leave what it was given. It prints one JSON array for each hit or path and an object at the end.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import resource
import stat
import sys
from io import BufferedReader, FileIO
from typing import Any

_CHUNK = 64 * 1024
_LOOK = 8 * 1024
_BEFORE = 80
_MAX_IGNORE = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class Walk:
    """A walk through a directory, in the order of names, and what came of it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.rules = Rules(request) if request["gitignore"] else None
        self.counts: dict[str, Any] = {"ignored": 0, "unreadable": 0, "more": False}

    def directory(self, fd: int) -> None:
        """Walk through what is in a directory."""
        # A list of paths and not of descriptors: a deep tree must not use them up.
        waiting = [""]
        while waiting and not self.counts["more"]:
            path = waiting.pop()
            try:
                here = _walk(fd, path)
            except OSError:
                self.counts["unreadable"] += 1
                continue
            try:
                below: list[str] = []
                names = sorted(os.listdir(here))  # noqa: PTH208 - by descriptor
                if self.rules is not None and ".gitignore" in names:
                    self.rules.read(here, path)
                for name in names:
                    if name != ".git":
                        self._entry(here, name, f"{path}/{name}" if path else name, below)
                    if self.counts["more"]:
                        break
                waiting.extend(reversed(below))
            except OSError:
                self.counts["unreadable"] += 1
            finally:
                os.close(here)

    def _entry(self, here: int, name: str, path: str, below: list[str]) -> None:
        try:
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        except OSError:
            self.counts["unreadable"] += 1
            return
        directory = stat.S_ISDIR(mode)
        if self.rules is not None and self.rules.ignore(path, directory=directory):
            self.counts["ignored"] += 1
            return
        if directory:
            below.append(path)
        self.found(name, here, path, mode)

    def found(self, name: str, directory: int, path: str, mode: int) -> None:
        """What stands at a path that is not ignored."""
        raise NotImplementedError

    def file(self, fd: int, path: str) -> None:
        """What was given is a file."""
        raise NotImplementedError


class Listing(Walk):
    """The paths that fit a pattern."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self.max_hits = request["max_hits"]
        self.directories = request["directories"]
        parts = [part for part in request["pattern"].split("/") if part not in ("", ".")]
        if parts and "/" not in request["pattern"].rstrip("/"):
            parts.insert(0, "**")
        self.parts = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts]
        self.counts["hits"] = 0

    def found(self, name: str, directory: int, path: str, mode: int) -> None:
        """Tell the path, if it fits."""
        is_directory = stat.S_ISDIR(mode)
        if is_directory and not self.directories:
            return
        if self.fits(path.split("/")):
            if self.counts["hits"] == self.max_hits:
                self.counts["more"] = True
                return
            self.counts["hits"] += 1
            _print([path + "/" if is_directory else path])

    def file(self, fd: int, path: str) -> None:
        """A file is what it lists of itself."""
        os.close(fd)
        self.counts["hits"] = 1
        _print([path])

    def fits(self, names: list[str]) -> bool:
        """Whether the names of a path fit; ``**`` stands for any number of directories."""
        if not self.parts:
            return True
        at = self._skip({0})
        for name in names:
            after = set()
            for index in at:
                if index < len(self.parts):
                    match = self.parts[index]
                    if match is None:
                        after.add(index)
                    elif match(name):
                        after.add(index + 1)
            at = self._skip(after)
            if not at:
                return False
        return len(self.parts) in at

    def _skip(self, at: set[int]) -> set[int]:
        for index in range(len(self.parts)):
            if index in at and self.parts[index] is None:
                at.add(index + 1)
        return at


class Search(Walk):
    """One search: what is looked for, and what came of it."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self.max_hits = request["max_hits"]
        self.max_line = request["max_line"]
        flags = re.IGNORECASE if request["ignore_case"] else 0
        text = request["text"]
        self.find = re.compile(text if request["regex"] else re.escape(text), flags).search
        # Most files hold no hit: bytes are compared before they are decoded, where that says the same.
        plain = not request["regex"] and not request["ignore_case"]
        self.needle = text.encode("utf-8", "surrogatepass") if plain else None
        self.counts.update({"files": 0, "binary": 0, "with_hits": 0, "hits": 0})

    def found(self, name: str, directory: int, path: str, mode: int) -> None:
        """Search the file."""
        if stat.S_ISREG(mode):
            self.open_file(name, directory, path)

    def open_file(self, name: str, directory: int, path: str) -> None:
        """Search a file of an open directory."""
        try:
            fd = os.open(name, _FLAGS, dir_fd=directory)
        except OSError:
            self.counts["unreadable"] += 1
            return
        self.file(fd, path)

    def file(self, fd: int, path: str) -> None:
        """Search an open file, line by line; closes the descriptor."""
        with BufferedReader(FileIO(fd), _CHUNK) as file:
            try:
                # It may be something else than it was when its directory was read.
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return
                if b"\0" in file.peek(_LOOK)[:_LOOK]:
                    self.counts["binary"] += 1
                    return
                self.counts["files"] += 1
                self.lines(file, path)
            except OSError:
                self.counts["unreadable"] += 1

    def lines(self, file: BufferedReader[FileIO], path: str) -> None:
        """Search the lines of a file; one that is longer than a block is searched block by block."""
        number = 1
        had = False
        while data := file.readline(_CHUNK):
            if self.needle is None or self.needle in data:
                line = data.decode("utf-8", "replace").rstrip("\r\n")
                hit = self.find(line)
                if hit is not None:
                    if self.counts["hits"] == self.max_hits:
                        self.counts["more"] = True
                        return
                    self.counts["hits"] += 1
                    self.counts["with_hits"] += not had
                    had = True
                    _print([path, number, window(line, hit.start(), self.max_line)])
            number += data.endswith(b"\n")


class Rules:
    """What the ``.gitignore`` files say: those on the way to what is walked through, and those in it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.library = request["library"]
        self.start = request["start"]
        self.rules: dict[str, list[tuple[bool, re.Pattern[str]]]] = {}
        names = self.start.split("/") if self.start else []
        for count in range(len(names)):
            try:
                here = _walk(request["root"], "/".join(names[:count]))
            except OSError:
                continue
            try:
                self._read(here, "/".join(names[:count]))
            finally:
                os.close(here)
        # What was asked for by its name is not ignored.
        if any(self._ignore("/".join(names[: count + 1]), directory=True) for count in range(len(names))):
            self.rules.clear()

    def read(self, here: int, path: str) -> None:
        """Take in the rules of a directory of the walk."""
        self._read(here, "/".join(part for part in (self.start, path) if part))

    def ignore(self, path: str, *, directory: bool) -> bool:
        """Whether a path of the walk is ignored."""
        return bool(self.rules) and self._ignore(f"{self.start}/{path}" if self.start else path, directory=directory)

    def _ignore(self, path: str, *, directory: bool) -> bool:
        """Whether the path itself is ignored; those above it have been looked at before.

        The last rule that fits decides, and a rule further down before one further up. Not by
        pathspec's own ``check_file``, which judges a path with all that is above it in one go and
        gets ``*`` followed by ``!*/`` wrong.
        """
        names = path.split("/")
        for count in reversed(range(len(names))):
            below = "/".join(names[count:]) + "/" * directory
            for include, regex in reversed(self.rules.get("/".join(names[:count]), ())):
                for match in regex.finditer(below):
                    at = match.groupdict().get("ps_d") and match.end("ps_d")
                    if not at or at == len(below):
                        return include
        return False

    def _read(self, here: int, path: str) -> None:
        try:
            fd = os.open(".gitignore", _FLAGS, dir_fd=here)
        except OSError:
            return
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return
        with FileIO(fd) as file:
            lines = (file.read(_MAX_IGNORE) or b"").decode("utf-8", "surrogateescape").split("\n")
        if self.library not in sys.path:
            sys.path.append(self.library)
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - most directories need none

        rules = self.rules[path] = []
        for line in lines:
            try:
                patterns = GitIgnoreSpec.from_lines([line.removesuffix("\r")]).patterns
            except (ValueError, re.error, RecursionError):  # git passes over what it does not understand
                continue
            rules.extend((p.include, p.regex) for p in patterns if p.include is not None and p.regex is not None)


def window(line: str, at: int, max_line: int) -> str:
    """The line, or what is around the hit where it is too long."""
    if len(line) <= max_line:
        return line
    start = max(0, min(at - _BEFORE, len(line) - max_line))
    end = start + max_line
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def _walk(fd: int, path: str) -> int:
    """Open a directory below an open one, without going through links."""
    here = os.dup(fd)
    for part in path.split("/") if path else ():
        try:
            below = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Search, as the argument says."""
    request = json.loads(sys.argv[1])
    # Should the parent be killed, nobody else would end a pattern that never ends.
    seconds = request["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    fd = request["fd"]
    try:
        search = Listing(request) if request["what"] == "list" else Search(request)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        _print({"error": f"{error}"})
        return
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        search.directory(fd)
    else:
        search.file(fd, "")
    _print(search.counts)


if __name__ == "__main__":
    main()
