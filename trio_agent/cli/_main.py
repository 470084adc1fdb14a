"""The group of all commands, and what is true for each of them."""

from __future__ import annotations

import click

from ._output import complain
from ._run import run

__all__ = ["cli", "run_program"]


class _Group(click.Group):
    """The commands; ``replay`` is imported when it is asked for, because it needs pytest's 100 ms."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, for --help."""
        return ["run", "replay"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name == "replay":
            from ._replay import replay  # noqa: PLC0415 - see above

            return replay
        return run if cmd_name == "run" else None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Agents on Trio: run one, or replay recorded scenarios against the library."""


def run_program() -> int:
    """Run the command that the arguments name; errors are one line on standard error.

    Returns:
      its exit code: 2 for wrong usage, 130 after Ctrl-C; the others are said at the commands.
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
        return 130
    return code if isinstance(code, int) else 0
