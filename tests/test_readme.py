"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def block_after(comment: str) -> str:
    found = re.search(rf"<!-- {re.escape(comment)} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"the README has no block after <!-- {comment} -->"
    return found[1]


@pytest.mark.slow  # the example sleeps for half a second of real time, as it does for its reader
def test_the_example_runs_and_prints_what_the_model_said() -> None:
    code = block_after("the example")
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    # Two words from the first answer, the second one whole; six messages with the system message.
    assert done.stdout == "Let me look.It is 21.5 degrees in both.\n done 6\n"


def test_each_command_is_one_line_that_makes_its_own_environment() -> None:
    for comment in ("the main command", "the test command"):
        (line,) = block_after(comment).splitlines()
        assert line.startswith("python3 -m venv --clear .venv && .venv/bin/pip install -q -e ")


def test_ci_runs_exactly_the_commands_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert script.splitlines()[1] == "set -euo pipefail"
    for comment in ("the main command", "the test command"):
        assert f"eval \"$(command_after '{comment}')\"" in script
        assert block_after(comment).strip() not in script
