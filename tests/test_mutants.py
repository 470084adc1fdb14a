"""The table of mutants and their results: each still applies, and what is kept and published is about them.

That the judges notice them is shown by ``python tests/mutation/mutate.py``, which takes long.
"""

from __future__ import annotations

import pytest
from mutation import by_hand
from mutation.mutate import load_reasons, load_results, tables
from mutation.planted import MODULES, ROOT, Library, fingerprint, units
from mutation.reached import lines_of

LIBRARY = Library()
RESULTS = load_results()
PAGE = ROOT / "docs" / "explanations" / "mutation.md"


@pytest.mark.parametrize("change", by_hand.BY_HAND, ids=lambda change: change.name)
def test_a_mutant_made_by_hand_applies_once_and_compiles(change: by_hand.HandMade) -> None:
    source = LIBRARY.source(change.module)
    mutated = change.apply(source)
    codes = [compile(text, change.module, "exec") for text in (source, mutated)]
    assert fingerprint(codes[0]) != fingerprint(codes[1])


def test_there_are_enough_of_them_and_each_has_a_name_and_a_story() -> None:
    names = [change.name for change in by_hand.BY_HAND]
    assert len(names) == len(set(names)) >= 24
    assert all(change.stands_for for change in by_hand.BY_HAND)
    assert {change.module for change in by_hand.BY_HAND} == set(MODULES)


def test_a_change_that_does_not_apply_is_named() -> None:
    change = by_hand.HandMade("gone", "_run", "it was rewritten", "no such text", "")
    with pytest.raises(ValueError, match="gone: the old text occurs 0 times in _run"):
        change.apply(LIBRARY.source("_run"))


def test_the_results_are_about_these_mutants() -> None:
    ids = {f"{change.module} {change.name}" for change in by_hand.BY_HAND}
    kept = {result.id for result in RESULTS if result.operator == by_hand.OPERATOR}
    assert kept == ids
    assert len({result.id for result in RESULTS}) == len(RESULTS)
    assert {result.module for result in RESULTS} == set(MODULES)


def test_each_mutant_made_by_hand_is_noticed() -> None:
    assert [one.id for one in RESULTS if one.operator == by_hand.OPERATOR and one.verdict == "survived"] == []


def test_each_survivor_is_explained_and_nothing_else_is() -> None:
    assert {one.id for one in RESULTS if one.verdict == "survived"} == set(load_reasons())


def test_the_figures_of_the_page_are_those_of_the_results() -> None:
    assert tables(RESULTS, load_reasons()) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", MODULES)
def test_functions_are_taken_out_and_put_back_unchanged(module: str) -> None:
    source = LIBRARY.source(module)
    lines = source.splitlines(keepends=True)
    for unit in units(source):
        assert unit.replaced(lines, unit.text(lines)) == source


SOURCE = """\
LIMIT = 1
class A:
    x: int = 2
    @property
    def f(self, y=3):
        if y == 4:
            return 5
        elif y == (
            6
        ):
            y = lambda: (
                7
            )
        try:
            pass
        except ValueError:
            return 8
"""


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        (1, None),
        (3, None),
        (5, range(6, 18)),
        (6, range(6, 7)),
        (7, range(7, 8)),
        (9, range(8, 11)),
        (12, range(11, 14)),
        (16, range(14, 18)),
        (17, range(17, 18)),
    ],
)
def test_a_statement_is_known_by_its_lines(line: int, reached: range | None) -> None:
    expected = None if reached is None else {f"_m:{number}" for number in reached}
    assert lines_of("_m", line, SOURCE) == expected
