"""What the pages show, tutorial, guides, explanations, cancellation and testing, is run as it stands there.

The rules for a page: a program stands in a file under ``code/`` beside the page (or is one of the
examples) and is included; a ``console`` block says how it is run and what it prints (a line ``...``
stands for any lines, ``...`` within a line for any text). A block of another kind is refused, unless it
follows a comment that says why it is not run, or which tree of test_trees it is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OWN_PAGES = [DOCS / "cancellation.md", DOCS / "testing.md"]
"""Pages that belong to no room; their programs stand in docs/code and docs/examples."""
PAGES = [
    *sorted(page for room in ("tutorial", "guides", "explanations") for page in (DOCS / room).glob("*.md")),
    *OWN_PAGES,
]

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>.*)\n(?P<body>(?:.*\n)*?)(?P=ticks)$", re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- (not run: \S.*|tree: \w+) -->\n\Z")
_PLACE_IN_LIBRARY = re.compile(r"\b(_\w+\.py):\d+ ")
"""A line of the library, in the report of an exploration: its number changes with every change above it."""
_DIRECTIVES_OF_PAGES = ("{toctree}", "{figure}")
"""Blocks that hold no code; Sphinx checks them."""

_VIRTUAL = (
    "trip.py", "watch.py", "steer.py", "abort.py", "deadline.py", "own_model.py",
    "tool_limits.py", "cancel_causes.py", "cancel_cleanup.py", "program_start.py", "cut_well.py",
    "model_errors.py",
)  # fmt: skip
"""Programs whose output hangs on fractions of a second: they run on a virtual clock, or a busy machine fails them.

None of them has a thread or socket behind a deadline, which a virtual clock would pass by.
"""

_VIRTUAL_CLOCK = """
import functools
import trio.testing

trio.run = functools.partial(trio.run, clock=trio.testing.MockClock(autojump_threshold=0))
"""


@attrs.frozen
class Fence:
    """A fenced block of a page."""

    info: str
    body: str
    line: int
    not_run: bool


@attrs.frozen
class Command:
    """A line of a ``console`` block and the output that is shown below it."""

    page: Path
    line: int
    text: str
    shown: str


def fences(page: Path) -> Iterator[Fence]:
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        yield Fence(found["info"].strip(), found["body"], before.count("\n") + 1, bool(_NOT_RUN.search(before)))


def commands(page: Path) -> Iterator[Command]:
    for fence in fences(page):
        if fence.info != "console" or fence.not_run:
            continue
        blocks = re.split(r"^\$ ", fence.body, flags=re.MULTILINE)
        assert not blocks[0], f"{page}:{fence.line}: a console block begins with a command"
        for block in blocks[1:]:
            text, _, shown = block.partition("\n")
            yield Command(page, fence.line, text, shown)


def included(page: Path) -> list[str]:
    return [fence.info.split()[1] for fence in fences(page) if fence.info.startswith("{literalinclude}")]


def rooms_of(page: Path) -> list[Path]:
    """Where the programs of a page stand."""
    return [DOCS / "code", DOCS / "examples"] if page in OWN_PAGES else [page.parent / "code"]


def name_of(value: object) -> str:
    if isinstance(value, Command):
        return f"{value.page.parent.name}/{value.page.name}:{value.line}:{value.text}"
    assert isinstance(value, Path)
    return f"{value.parent.name}/{value.name}"


def pattern_of(shown: str) -> str:
    """A regular expression for the output that is shown."""
    lines = []
    for line in shown.splitlines():
        anything = r"(?:.*\n)*" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        lines.append(anything)
    return "".join(lines)


def run(text: str, directory: Path) -> str:
    """Run a command of a page as its reader does, and give what it prints."""
    paths = [str(ROOT)]
    if any(word in _VIRTUAL for word in text.split()):
        clock = directory / "sitecustomize"
        clock.mkdir()
        (clock / "sitecustomize.py").write_text(_VIRTUAL_CLOCK, "utf-8")
        paths.insert(0, str(clock))
    words: Sequence[str] = shlex.split(text)
    programs = {
        "python": [sys.executable, "-W", "error"],
        "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        "trio-agent": [sys.executable, "-m", "trio_agent"],
    }
    done = subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "80",
            "NO_COLOR": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    run_here = " ".join(command.text for command in commands(page))
    for fence in fences(page):
        where = f"{page}:{fence.line}"
        if fence.info.startswith("{literalinclude}"):
            program = page.parent / fence.info.split()[1]
            assert program.is_file(), f"{where}: there is no file {program}"
            imported = any(
                re.search(rf"^from {program.stem} import ", other.read_text("utf-8"), re.MULTILINE)
                for other in program.parent.glob("*.py")
                if other.name in run_here
            )
            assert program.name in run_here or imported, f"{where}: {program.name} is shown but not run on this page"
        else:
            known = fence.info.split()[0] in ("console", *_DIRECTIVES_OF_PAGES) or fence.not_run
            assert known, f"{where}: a block {fence.info!r} is neither run nor says <!-- not run: why -->"


def test_no_program_is_left_that_no_page_shows() -> None:
    for room, pages in (
        (DOCS / "tutorial", (DOCS / "tutorial").glob("*.md")),
        (DOCS / "guides", (DOCS / "guides").glob("*.md")),
        (DOCS, OWN_PAGES),
    ):
        shown = {name for page in pages for name in included(page) if name.startswith("code/")}
        assert {f"code/{path.name}" for path in (room / "code").iterdir() if path.suffix in (".py", ".json")} == shown


@pytest.mark.slow  # the programs sleep for fractions of real seconds, as they do for their reader
@pytest.mark.parametrize("command", [command for page in PAGES for command in commands(page)], ids=name_of)
def test_a_command_prints_what_the_page_shows(command: Command, tmp_path: Path) -> None:
    # A copy with nothing else around it: no configuration of this repository may help.
    directory = tmp_path / "code"
    for room in rooms_of(command.page):
        shutil.copytree(room, directory, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    printed = _PLACE_IN_LIBRARY.sub(r"\1:N ", run(command.text, directory))
    shown = _PLACE_IN_LIBRARY.sub(r"\1:N ", command.shown)
    if re.fullmatch(pattern_of(shown), printed) is None:
        assert printed == shown, f"{command.page}:{command.line}: {command.text}"


def test_the_tutorial_installs_an_extra_that_brings_what_it_uses() -> None:
    command = "pip install -e '.[test]'"
    assert f"$ {command}\n" in (DOCS / "tutorial" / "install.md").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[\[>=<]", requirement)[0] for requirement in extras["test"]}
    assert {"pytest", "pytest-trio"} <= names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_to_pages_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+\.(?:md|py))(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).is_file(), f"{page}: there is no {target}"
