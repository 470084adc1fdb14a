"""The stranger's test: a host with a fault that looks innocent is explored, in a test session of its own.

The host and its test are the example of docs/testing.md, as they stand there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trio_agent.testing import Case

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
Session = Callable[..., pytest.RunResult]


@pytest.fixture
def session(pytester: pytest.Pytester) -> Session:
    """Runs pytest in a directory that holds the example, in this process."""
    for path in EXAMPLES.glob("*transfer*.py"):
        shutil.copy(path, pytester.path)
    pytester.makeini("[pytest]\ntrio_mode = true\n")
    pytester.syspathinsert()  # and the modules of the example are forgotten again

    def run(*args: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    return run


def mend(pytester: pytest.Pytester, before: str, after: str) -> None:
    """Change the faulty tool."""
    path = pytester.path / "transfer.py"
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")


def report_of(result: pytest.RunResult) -> str:
    text = result.stdout.str()
    assert "breaks the invariant" in text
    return text


def case_of(report: str) -> str:
    found = re.search(r"^  case: (.+)$", report, re.MULTILINE)
    assert found is not None
    assert str(Case.parse(found[1])) == found[1]
    return found[1]


def test_the_fault_is_found_and_the_report_says_which_invariant_and_where(session: Session) -> None:
    result = session("test_transfer.py")
    result.assert_outcomes(failed=1)
    report = report_of(result)
    assert "test_money_is_moved_and_never_lost breaks the invariant 'no_money_is_lost'" in report
    assert "what differs: the accounts hold {'wages': 200, 'rent': 0}" in report
    assert f'--explore-only "{case_of(report)}"' in report
    # The cut came between the halves: the next step of the tool is in the second one.
    lines = report.splitlines()
    (cut,) = (number for number, line in enumerate(lines) if " s >>> " in line)
    assert "transfer.py:18 withdraw: await trio.sleep(0.1)" in lines[cut - 1]
    assert "transfer.py:24 deposit: await trio.sleep(0.1)" in lines[cut + 1]


def test_its_case_repeats_it_alone(session: Session) -> None:
    case = case_of(report_of(session("test_transfer.py")))
    again = session("test_transfer.py", "--explore-only", case, "-v")
    again.assert_outcomes(failed=1)
    assert case_of(report_of(again)) == case
    again.stdout.fnmatch_lines(["test_money_is_moved_and_never_lost: * 1 runs, 1 violation"])


def test_another_case_of_the_same_test_passes(session: Session) -> None:
    session("test_transfer.py", "--explore-only", "abort@step:1 seed=0").assert_outcomes(passed=1)


def test_the_repair_that_comes_to_mind_is_none(session: Session, pytester: pytest.Pytester) -> None:
    case = case_of(report_of(session("test_transfer.py")))
    mend(pytester, "except ValueError as refusal:", "except BaseException:")
    mend(pytester, 'return f"nothing was moved: {refusal}"', "raise")
    result = session("test_transfer.py")
    result.assert_outcomes(failed=1)
    assert case_of(report_of(result)) == case


@pytest.mark.slow  # eight hundred runs
def test_the_mended_tool_passes_at_every_moment(session: Session) -> None:
    result = session("test_transfer_fixed.py", "-v")
    result.assert_outcomes(passed=1)
    (summary,) = re.findall(r": (\d+) steps, (\d+) places, (\d+) runs, 0 violations", result.stdout.str())
    steps, places, runs = map(int, summary)
    assert runs > 10 * (steps + places)


def test_its_case_passes_with_the_mended_tool(session: Session) -> None:
    case = case_of(report_of(session("test_transfer.py")))
    session("test_transfer_fixed.py", "--explore-only", case).assert_outcomes(passed=1)


def test_a_plain_pytest_of_this_project_does_not_collect_it(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("testpaths") == ["tests"]
    assert not list((ROOT / "tests").rglob("test_transfer*.py"))


PRELUDE = """
import pytest
import transfer


class Bank(transfer.Bank):
    def nothing_is_lost(self):
        assert sum(self.accounts.values()) == 900


def make_agent(bank):
    return transfer.teller(transfer.transfer_tool(bank))


"""


def test_the_test_of_the_readme_finds_it_too(session: Session, pytester: pytest.Pytester) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"<!-- the exploration -->\n```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) == 6
    (pytester.path / "test_shown.py").write_text(PRELUDE + found[1], "utf-8")
    result = session("test_shown.py")
    result.assert_outcomes(failed=1)
    assert "test_no_money_is_lost breaks the invariant 'nothing_is_lost'" in report_of(result)
