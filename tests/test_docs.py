"""The documentation says of every public name what it is, and what it shows is what there is."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner

import trio_agent
import trio_agent.providers
import trio_agent.testing
import trio_agent.tools
from trio_agent.cli._main import cli

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = DOCS / "reference"
PUBLIC = (trio_agent, trio_agent.providers, trio_agent.testing, trio_agent.tools)

# --------------------------------------------------------------- reference


def public_names(module: ModuleType) -> set[str]:
    """The names that a package re-exports, with its path."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {f"{module.__name__}.{alias.name}" for node in relative for alias in node.names}


def documented(text: str) -> list[tuple[str, str]]:
    """The top-level directives of a reference page: which, and for what."""
    return re.findall(r"^\.\. auto(\w+):: (\S+)", text, re.MULTILINE)


def disagreements(pages: list[str], names: set[str]) -> dict[str, set[str]]:
    """The names that the pages lack, do not know, or have twice."""
    counted = Counter(name for page in pages for _, name in documented(page))
    return {
        "missing": names - counted.keys(),
        "unknown": counted.keys() - names,
        "twice": {name for name, count in counted.items() if count > 1},
    }


PAGES = {path.name: path.read_text("utf-8") for path in REFERENCE.glob("*.rst")}
NAMES: set[str] = set().union(*map(public_names, PUBLIC))


def test_the_reference_has_every_public_name_once_and_no_other() -> None:
    assert len(NAMES) > 130
    assert disagreements(list(PAGES.values()), NAMES) == {"missing": set(), "unknown": set(), "twice": set()}


def test_a_name_that_is_missing_unknown_or_twice_is_found() -> None:
    pages = [".. autoclass:: p.A\n\n.. autofunction:: p.b\n", ".. autodata:: p.b\n   :no-value:\n"]
    assert disagreements(pages, {"p.A", "p.b"}) == {"missing": set(), "unknown": set(), "twice": {"p.b"}}
    assert disagreements(pages, {"p.A", "p.b", "p.C"})["missing"] == {"p.C"}
    assert disagreements(pages, {"p.A"})["unknown"] == {"p.b"}


def kind(thing: object) -> str:
    if isinstance(thing, type):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) and hasattr(thing, "__code__") else "data"


def test_each_name_stands_in_the_directive_of_its_kind() -> None:
    for page, text in PAGES.items():
        for directive, path in documented(text):
            module, _, name = path.rpartition(".")
            thing: Any = getattr(next(each for each in PUBLIC if each.__name__ == module), name)
            assert directive == kind(thing), f"{path} in {page}"


def test_every_reference_page_is_reached_from_the_index() -> None:
    entries = re.findall(r"^   ([\w-]+)$", PAGES["index.rst"], re.MULTILINE)
    assert {f"{entry}.rst" for entry in entries} | {"index.rst"} == set(PAGES)


def test_the_checkpoint_rule_is_stated_once() -> None:
    rule = "is no checkpoint. It never blocks"
    assert [page for page, text in PAGES.items() if rule in text] == ["index.rst"]


def test_the_error_trees_are_those_of_the_modules() -> None:
    source = Path(str(trio_agent.__file__)).with_name("_errors.py").read_text("utf-8")

    def drawn(text: str) -> list[str]:
        return [line.strip() for line in text.splitlines() if "──" in line]

    assert drawn(PAGES["errors.rst"]) == drawn(ast.get_docstring(ast.parse(source)) or "")
    source = Path(str(trio_agent.providers.__file__)).with_name("_errors.py").read_text("utf-8")
    assert drawn(PAGES["providers.rst"]) == drawn(ast.get_docstring(ast.parse(source)) or "") != []


def sections_of_the_command_line() -> dict[str, str]:
    """The part of the page about each command."""
    parts = re.split(r"^``trio-agent (\w+).*\n-+\n", PAGES["command-line.rst"], flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_exit_codes_of_run_are_those_that_its_help_says() -> None:
    codes = re.findall(r"^   \* - (\d+)$", sections_of_the_command_line()["run"], re.MULTILINE)
    shown = CliRunner().invoke(cli, ["run", "--help"]).output
    said = re.findall(r"^\s+(\d+)  +\w", shown.partition("Exit codes:")[2], re.MULTILINE)
    assert codes == said != []


def test_every_command_and_every_option_stands_on_the_page() -> None:
    sections = sections_of_the_command_line()
    context = click.Context(cli)
    assert list(sections) == cli.list_commands(context)
    for name, text in sections.items():
        command = cli.get_command(context, name)
        assert command is not None
        options = [each for each in command.params if isinstance(each, click.Option)]
        wanted = {
            flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")
        }
        assert set(re.findall(r"``(--[\w-]+)(?: \S+)?``", text)) >= wanted, name


# ------------------------------------------------------------- differences


def table() -> list[tuple[str, str]]:
    """The columns "pi" and "here" of the table name by name."""
    text = (DOCS / "differences.md").read_text("utf-8").partition("\n## Name by name\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [(row[0].strip(), row[1].strip()) for row in rows[1:]]


def test_every_name_of_ours_in_the_differences_exists() -> None:
    rows = table()
    assert len(rows) > 35
    assert all(len(row) == 2 for row in rows)
    settings = {field.name for field in attrs.fields(trio_agent.LoopConfig)}
    members = set(dir(trio_agent.Agent)) | {field.name for field in attrs.fields(trio_agent.Agent)}
    contexts = {"ctx": trio_agent.ToolContext, "agent.state": trio_agent.AgentState}
    for _, here in rows:
        for code in re.findall(r"`([^`]+)`", here):
            for owner, name in re.findall(r"\b(agent\.state|agent|ctx)\.(?!state)(\w+)", code):
                assert name in (members if owner == "agent" else dir(contexts[owner])), code
            if found := re.match(r"([A-Z]\w+)", code):
                assert hasattr(trio_agent, found[1]), code
            if found := re.match(r"([a-z]\w+)\(", code):
                assert hasattr(trio_agent, found[1]) or found[1] in {"execute", "stream_fn"}, code
            if (found := re.match(r"([a-z_]+)=", code)) and found[1] != "stop_reason":
                assert found[1] in settings, code
            if re.fullmatch(r"[a-z]+(_[a-z]+)+", code) and code not in {"tool_result", "stop_reason"}:
                assert code in settings, code


# ---------------------------------------------------------------- pictures


def test_the_pictures_are_what_their_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("diagrams_make", DOCS / "diagrams" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, str] = module.make()
    kept = {path.name: path.read_text("utf-8") for path in (DOCS / "diagrams").glob("*.svg")}
    assert made.keys() == kept.keys()
    for name, svg in made.items():
        assert kept[name] == svg, f"{name} is stale; run python docs/diagrams/make.py"


def test_the_picture_of_the_batch_says_what_happened_to_each_call() -> None:
    text = (DOCS / "diagrams" / "cancelled_batch.svg").read_text("utf-8")
    assert re.findall(r">result: ([^<]+)<", text) == [
        "finished",
        "Operation aborted while the tool ran: the user pressed Escape. It may have had effects.",
        "Operation aborted while the tool ran: the user pressed Escape. It may have had effects.",
        "Operation aborted: the user pressed Escape. The call never started.",
    ]


@pytest.mark.parametrize("path", sorted((DOCS / "inventories").glob("*.txt")), ids=lambda path: path.stem)
def test_the_inventories_name_things_that_exist(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "# Sphinx inventory version 1"
    for line in lines[3:]:
        name, _, page = line.split()
        assert page.endswith(".html")
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            try:
                thing: Any = importlib.import_module(".".join(parts[:end]))
            except ModuleNotFoundError:
                continue
            break
        else:
            thing, end = importlib.import_module("builtins"), 0
        for part in parts[end:]:
            thing = getattr(thing, part, None) if part != "None" else None
            assert thing is not None or part == "None", name
