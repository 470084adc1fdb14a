"""The worker of ``search_text``: a script of its own that needs nothing but the standard library.

Python's ``re`` cannot be interrupted and holds the interpreter's lock while it matches, so a
pattern that takes too long would stop the whole program, Trio included. A process can be killed.

It is started with one argument, a JSON object, and an open descriptor of the file or directory to
search; it never opens anything by a path of its own and never goes through a symbolic link, so it
cannot leave what it was given. It prints one JSON array for each hit and an object at the end.
"""

from __future__ import annotations

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
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class Search:
    """One search: what is looked for, and what came of it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.max_hits = request["max_hits"]
        self.max_line = request["max_line"]
        flags = re.IGNORECASE if request["ignore_case"] else 0
        text = request["text"]
        self.find = re.compile(text if request["regex"] else re.escape(text), flags).search
        # Most files hold no hit: bytes are compared before they are decoded, where that says the same.
        plain = not request["regex"] and not request["ignore_case"]
        self.needle = text.encode("utf-8", "surrogatepass") if plain else None
        self.counts: dict[str, Any] = {
            "files": 0,
            "binary": 0,
            "unreadable": 0,
            "with_hits": 0,
            "hits": 0,
            "more": False,
        }

    def directory(self, fd: int) -> None:
        """Search what is in a directory, in the order of names."""
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
                below = []
                for name in sorted(os.listdir(here)):  # noqa: PTH208 - by descriptor
                    if name == ".git":
                        continue
                    try:
                        mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
                    except OSError:
                        self.counts["unreadable"] += 1
                        continue
                    if stat.S_ISDIR(mode):
                        below.append(f"{path}/{name}" if path else name)
                    elif stat.S_ISREG(mode):
                        self.open_file(name, here, f"{path}/{name}" if path else name)
                    if self.counts["more"]:
                        break
                waiting.extend(reversed(below))
            except OSError:
                self.counts["unreadable"] += 1
            finally:
                os.close(here)

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
                    _print([path, number, self.window(line, hit.start())])
            number += data.endswith(b"\n")

    def window(self, line: str, at: int) -> str:
        """The line, or what is around the hit where it is too long."""
        if len(line) <= self.max_line:
            return line
        start = max(0, min(at - _BEFORE, len(line) - self.max_line))
        end = start + self.max_line
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
        search = Search(request)
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
