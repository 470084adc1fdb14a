"""The command line: ``trio-agent``, also ``python -m trio_agent``. It needs the extra ``cli``."""

import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    # An interrupt while modules are imported just ends the program, too.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from ._main import run_program  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(
            f"trio-agent: the command line needs {error.name}; install it with: pip install 'trio_agent[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    signal.signal(signal.SIGINT, handler)
    code = run_program()
    # All is done and saved. From here on Ctrl-C just ends the interpreter, without a word from it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)
