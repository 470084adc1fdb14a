"""The exit codes of ``trio-agent``, stated once: ``--help`` shows this table."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "exit_codes_help"]


class ExitCode(IntEnum):
    """What the program says by its exit code; 128 and a number are signals, as in a shell."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    MAX_TURNS = 3
    TIMEOUT = 124
    HANGUP = 129
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


_MEANINGS = {
    ExitCode.DONE: "the run is done",
    ExitCode.FAILED: "the run failed, or something could not be written",
    ExitCode.USAGE: "wrong usage (also a FILE or configuration that cannot be used)",
    ExitCode.MAX_TURNS: "the run ended at --max-turns, with work left",
    ExitCode.TIMEOUT: "the run was ended by --timeout",
    ExitCode.HANGUP: "SIGHUP, or the terminal was closed",
    ExitCode.INTERRUPTED: "Ctrl-C",
    ExitCode.OUTPUT_CLOSED: "standard output was closed before the end",
    ExitCode.TERMINATED: "SIGTERM",
}


def exit_codes_help() -> str:
    """The table for ``--help``; click keeps a paragraph that begins with a backspace as it is."""
    lines = [f"  {int(code):<4} {meaning}" for code, meaning in _MEANINGS.items()]
    return "\b\nExit codes:\n" + "\n".join(lines)
