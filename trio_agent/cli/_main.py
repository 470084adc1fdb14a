"""The group of all commands, and what is true for each of them."""

from __future__ import annotations

import os
import sys

import click

from ._replay import replay
from ._run import run

__all__ = ["cli", "run_program"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Agents on Trio: run one, or replay recorded scenarios against the library."""


cli.add_command(run)
cli.add_command(replay)


def run_program() -> int:
    """Run the command that the arguments name.

    Returns:
      its exit code: 2 for wrong usage, 130 after Ctrl-C, 141 if standard output was closed early;
      the others are said at the commands.
    """
    try:
        code = cli.main(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # Or the interpreter would find out once more when it flushes at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    return code if isinstance(code, int) else 0
