"""Servers that others wrote, run as processes on loopback for the tests that are marked ``server``."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

START = 60.0
"""Seconds that a server may take until it listens."""


@contextmanager
def server_process(command: Sequence[str], says: str, *, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server for the length of a block.

    It is asked for any free port and says itself which it got, so no port is guessed and no time is.

    Args:
      command: starts it.
      says: a regular expression for what it prints once it listens; its first group is its address.
      env: its environment; by default ours.

    Yields:
      the address.
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:
        output = process.stdout
        assert output is not None

        def read() -> None:
            for line in output:  # to the end, so that a full pipe never stops the server
                lines.put(line)
            lines.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield _address(lines, re.compile(says), command)
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join(5)


def _address(lines: queue.SimpleQueue[str | None], says: re.Pattern[str], command: Sequence[str]) -> str:
    seen: list[str] = []
    while True:
        try:
            line = lines.get(timeout=START)
        except queue.Empty:
            raise AssertionError(f"{command[0]} does not listen after {START:g} s; it said {seen}") from None
        if line is None:
            raise AssertionError(f"{command[0]} ended before it listened; it said {seen}")
        seen.append(line)
        if (found := says.search(line)) is not None:
            return found[1]
