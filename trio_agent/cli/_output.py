"""Standard output, written so that nobody who reads slowly can hold up the program."""

from __future__ import annotations

import errno
import math
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import final

import click
import trio

from ._exit import ExitCode

__all__ = ["Output", "complain", "output_failed", "tell", "without_controls"]

_CHUNK = 4096
"""A pipe that is ready takes as much without waiting (PIPE_BUF)."""


@final
class Output:
    """Where a run's output goes. Trio waits until there is room, so signals are heard meanwhile.

    Args:
      fd: the descriptor; it stays in the mode that it has, for others may share it.
      on_closed: called once when nobody reads any more or nothing can be written.
    """

    def __init__(self, fd: int | None, on_closed: Callable[[], None]) -> None:
        self._fd = -1 if fd is None else fd
        self._on_closed = on_closed
        self._patience = math.inf
        self._waiting: trio.CancelScope | None = None
        # What a cancellation left unwritten: it goes ahead of the next, so that no line is cut.
        self._pending = bytearray()
        self._turn = trio.Lock()  # only one task may wait for a descriptor
        self.closed = fd is None
        """True once nothing is written any more."""
        self.error: OSError | None = None
        """Why, if it was not that the reader went away."""
        self.hung_up = False
        """True if it was a terminal, and was closed."""
        mode = 0 if fd is None else os.fstat(fd).st_mode
        # Files and /dev/null are always ready, and the kernel refuses to be asked about them.
        self._can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (fd is not None and os.isatty(fd))

    def hurry(self, seconds: float) -> None:
        """From now on wait no longer than this for a reader that does not read; then write no more."""
        self._patience = seconds
        if self._waiting is not None:
            self._waiting.deadline = trio.current_time() + seconds

    @property
    def busy(self) -> bool:
        """Whether somebody is writing, or something waits to be written."""
        return bool(self._pending)

    async def write(self, data: bytes) -> None:
        """Write all of it, behind what is being written. Cancelled, the rest stays for the next time."""
        self._pending += data
        async with self._turn:
            await self._write()

    async def _write(self) -> None:
        try:
            while self._pending and not self.closed:
                if self._can_wait:
                    with trio.move_on_after(self._patience) as self._waiting:
                        await trio.lowlevel.wait_writable(self._fd)
                    if self._waiting.cancelled_caught:
                        self.closed = True
                        return
                try:
                    del self._pending[: os.write(self._fd, self._pending[:_CHUNK])]
                except BlockingIOError:  # somebody has made it non-blocking, and was faster
                    continue
        except (BrokenPipeError, ConnectionResetError):
            self._close(None)
        except OSError as error:
            # A terminal that was closed says EIO.
            self.hung_up = error.errno == errno.EIO and self._can_wait
            self._close(None if self.hung_up else error)
        finally:
            self._waiting = None

    def _close(self, error: OSError | None) -> None:
        self.closed = True
        self.error = error
        self._on_closed()


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    """Text with control characters written out, for what a model or tool says is no command to a terminal."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def tell(text: str) -> int:
    """Print a text on standard output, for commands that do nothing else; the exit code.

    Nobody who reads, a full disk and the like are no traceback.
    """
    if sys.stdout is None:
        return ExitCode.OUTPUT_CLOSED
    try:
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        return output_failed(error)
    return ExitCode.DONE


def output_failed(error: OSError) -> int:
    """Say, unless the reader just went away, that standard output cannot be written; the exit code."""
    # What is still in its buffer would fail once more when the interpreter ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    if isinstance(error, BrokenPipeError):
        return ExitCode.OUTPUT_CLOSED
    complain(f"cannot write the output: {error.strerror or error}")
    return ExitCode.FAILED


def complain(text: str) -> None:
    """Say on standard error, in one line, what went wrong; if nobody can hear it, that is all."""
    try:
        click.echo(f"trio-agent: {' '.join(text.splitlines())}", err=True)
    except OSError:
        pass
