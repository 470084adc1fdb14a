"""The page about cancellation: its trees are what happens, and the names that it cites are there."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from trio_agent.testing import INVARIANTS

ROOT = Path(__file__).parent.parent
TREES = ROOT / "docs" / "trees" / "make_trees.py"
PAGE = ROOT / "docs" / "cancellation.md"
TEXT = PAGE.read_text("utf-8")

# ------------------------------------------------------------------- trees


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_trees", TREES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_trees_of_the_page_are_what_their_script_makes(script: ModuleType) -> None:
    trees: dict[str, str] = script.make()
    assert re.findall(r"<!-- tree: (\w+) -->", TEXT) == list(trees)  # in the same order, and each of them once
    for name, tree in trees.items():
        assert f"<!-- tree: {name} -->\n```text\n{tree}\n```\n<!-- end -->\n" in TEXT, (
            f"the tree {name} is stale; run python docs/trees/make_trees.py"
        )
    assert script.filled(TEXT, trees) == TEXT


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_tree_shows_nothing_that_hangs_on_the_order_of_tasks(script: ModuleType, seed: int) -> None:
    for name, tree in script.make(seed).items():
        assert f"<!-- tree: {name} -->\n```text\n{tree}\n```\n" in TEXT, f"{name} is another one with seed {seed}"


# ------------------------------------------------------------------ tables

_CITED = re.compile(r"`(test_\w+\.py)(?:::(\w+))?`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    part = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_guarantees_has_every_invariant_and_a_test_for_each() -> None:
    table = rows("The guarantees")
    assert [row[0] for row in table] == list(INVARIANTS)
    for name, what, tests in table:
        assert what, name
        assert _CITED.search(tests), f"no test is named for {name}"


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_test_that_the_page_names_is_there() -> None:
    cited = _CITED.findall(TEXT)
    assert len(cited) > 50
    for file, name in cited:
        path = ROOT / "tests" / file
        assert path.is_file(), f"there is no {file}"
        assert not name or name in names_in(path), f"{file} has no {name}"


def test_nothing_that_looks_like_a_test_escapes_that_look() -> None:
    assert set(re.findall(r"\btest_\w+\.py(?:::\w+)?", TEXT)) == {
        f"{file}::{name}" if name else file for file, name in _CITED.findall(TEXT)
    }
