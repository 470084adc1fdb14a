"""The pytest mark ``explore``: with pytest-trio and without, what a report says, what is refused."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

BANK = """
import pytest
import trio
from trio_agent import Agent, ToolCall, tool
from trio_agent.testing import Probe, ScriptedModel

@pytest.mark.explore(acts=["abort"])
async def test_money(probe: Probe) -> None:
    accounts = {"ours": 10, "theirs": 0}

    @tool
    async def transfer(amount: int) -> str:
        accounts["ours"] -= amount
        await trio.sleep(1)
        accounts["theirs"] += amount
        return "done"

    def nothing_is_lost() -> None:
        assert sum(accounts.values()) == 10

    agent = probe.watch(Agent(ScriptedModel([ToolCall("c1", "transfer", {"amount": 3}), "Paid."]), tools=[transfer]))
    probe.check(nothing_is_lost)
    await agent.prompt("Pay.")

def test_beside_it() -> None:
    pass
"""
PLUGINS = pytest.mark.parametrize("without", [(), ("-p", "no:trio")], ids=["pytest-trio", "without"])
STRICT = "[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n"


def run(pytester: pytest.Pytester, source: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    pytester.makefile(".ini", pytest=STRICT)
    return pytester.runpytest_inprocess(*args)


@PLUGINS
def test_a_fault_is_found_and_its_line_repeats_it(pytester: pytest.Pytester, without: tuple[str, ...]) -> None:
    result = run(pytester, BANK, *without)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "test_money breaks the invariant 'nothing_is_lost'" in text
    assert "transfer: await trio.sleep(1)" in text
    (command,) = [line for line in text.splitlines() if "--explore-only" in line]
    node, case = command.split('"')[1], command.split('"')[3]
    again = pytester.runpytest_inprocess(node, "--explore-only", case, *without)
    again.assert_outcomes(failed=1)
    early = pytester.runpytest_inprocess(node, "--explore-only", "abort@step:1", *without)
    early.assert_outcomes(passed=1)


@PLUGINS
def test_what_was_explored_is_told_with_v(pytester: pytest.Pytester, without: tuple[str, ...]) -> None:
    source = BANK.replace("await trio.sleep(1)", "pass")
    result = run(pytester, source, "-v", *without)
    result.assert_outcomes(passed=2)
    result.stdout.re_match_lines([r"=+ explored =+", r"test_money: \d+ steps, \d+ places, \d+ runs, 0 violations"])
    assert " violations" not in run(pytester, source, *without).stdout.str()


def test_pytest_trio_runs_what_is_not_marked(pytester: pytest.Pytester) -> None:
    source = (
        BANK.replace("await trio.sleep(1)", "pass")
        + "\nasync def test_async():\n    await trio.lowlevel.checkpoint()\n"
    )
    pytester.makepyfile(source)
    pytester.makefile(".ini", pytest=STRICT + "trio_mode = true\n")
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


def test_parameters_and_plain_fixtures_go_with_it(pytester: pytest.Pytester) -> None:
    source = BANK.replace(
        "async def test_money(probe: Probe)",
        "@pytest.mark.parametrize('number', [1, 2])\nasync def test_money(probe: Probe, number: int, tmp_path)",
    ).replace("await trio.sleep(1)", "assert tmp_path.is_dir() and number in (1, 2)")
    run(pytester, source).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (BANK.replace("async def test_money(probe: Probe)", "async def test_money()"), "must take the fixture probe"),
        ("import pytest\n@pytest.mark.explore\ndef test_it(probe):\n    pass\n", "must be an async function"),
        ("def test_it(probe):\n    pass\n", "is for tests marked with @pytest.mark.explore"),
        ("import pytest\n@pytest.mark.explore\nasync def test_it(probe):\n    pass\n", "the host watches no agent"),
        (BANK.replace('acts=["abort"]', 'acts=["jump"]'), "there is no act 'jump'"),
    ],
)
def test_what_cannot_be_explored_is_refused(source: str, text: str, pytester: pytest.Pytester) -> None:
    result = run(pytester, source)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert text in result.stdout.str()


def test_async_fixtures_are_refused(pytester: pytest.Pytester) -> None:
    source = BANK.replace(
        "@pytest.mark.explore",
        "@pytest.fixture\nasync def place():\n    await trio.sleep(0)\n\n@pytest.mark.explore",
        1,
    ).replace("probe: Probe)", "probe: Probe, place)")
    pytester.makepyfile(source)
    pytester.makefile(".ini", pytest=STRICT + "trio_mode = true\n")
    result = pytester.runpytest_inprocess()
    assert "takes the async fixture 'place'" in result.stdout.str()
