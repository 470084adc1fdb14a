"""The group of all commands, and what is true for each of them."""

from __future__ import annotations

import importlib

import click

from ._exit import ExitCode
from ._output import complain, output_failed

__all__ = ["cli", "run_program"]

# Each is imported when it is asked for; replay needs pytest's 100 ms, for one.
_COMMANDS = {
    "run": "_run",
    "tools": "_list",
    "schema": "_list",
    "replay": "_replay",
    "explore": "_explore",
    "decode": "_decode",
}


class _Group(click.Group):
    """The commands, by their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, for --help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"{__package__}.{_COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Agents on Trio: run one, list its tools, replay scenarios or cut them at every moment, decode responses."""


def run_program() -> int:
    """Run the command that the arguments name; errors are one line on standard error.

    Returns:
      its exit code, see :class:`ExitCode`.
    """
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = "" if context is None else f" (see {context.command_path} --help)"
        complain(error.format_message() + hint)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except OSError as error:  # of --help; the commands take care of theirs
        return output_failed(error)
    except BaseExceptionGroup as group:
        # A tool that calls sys.exit() ends the program; the run has been closed.
        exits, others = group.split(SystemExit)
        if exits is None or others is not None:
            raise
        leaf: BaseException = exits
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        code = leaf.code if isinstance(leaf, SystemExit) else None
        if code is not None and not isinstance(code, int):
            complain(str(code))
            return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE
