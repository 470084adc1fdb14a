"""The pytest plugin, in test sessions of its own: with pytest-trio and without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

WITH_TRIO = """
    [pytest]
    trio_mode = true
    """
UNWRAPPED = WITH_TRIO + "trio_agent_unwrap = true\n"
Session = Callable[..., pytest.RunResult]


@pytest.fixture
def session(pytester: pytest.Pytester) -> Session:
    """Runs a test module in a session of its own."""

    def run(source: str, *args: str, ini: str = "[pytest]\n") -> pytest.RunResult:
        pytester.makeini(ini)
        pytester.makepyfile(source)
        without = [] if "trio_mode" in ini else ["-p", "no:trio"]
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *without, *args)

    return run


SYNC = """
    import trio
    from trio_agent import ToolCall, Tool

    def run(clock, agent, text="Go."):
        return trio.run(agent.prompt, text, clock=clock)

    async def execute(args, ctx):
        await trio.sleep(60)
        return "slept"

    sleep = Tool("sleep", execute=execute)
    """

# ------------------------------------------------------------- fixtures


def test_the_fixtures_without_pytest_trio(session: Session) -> None:
    result = session(
        SYNC
        + """
    def test_a_model_with_an_empty_script(scripted_model):
        assert scripted_model.turns == []
        scripted_model.extend(["Hi."])
        assert len(scripted_model.remaining) == 1

    def test_an_agent_on_a_virtual_clock(recorded_agent, virtual_clock):
        recorded = recorded_agent([ToolCall("c1", "sleep"), "Done."], tools=[sleep], system_prompt="Be brief.")
        assert run(virtual_clock, recorded.agent).text == "Done."
        assert recorded.agent.state.system_prompt == "Be brief."
        assert len(recorded.model.requests) == 2
        assert recorded.recorder.entries[-1].at == 60
        recorded.model.assert_exhausted()

    def test_two_agents_and_a_model_that_is_given(recorded_agent, scripted_model, virtual_clock):
        scripted_model.extend(["One.", "Two."])
        one, other = recorded_agent(scripted_model), recorded_agent(scripted_model)
        assert one.agent is not other.agent
        assert one.model is other.model is scripted_model

        async def main():
            return [(await each.agent.prompt("Go.")).text for each in (one, other)]

        assert trio.run(main, clock=virtual_clock) == ["One.", "Two."]
        assert str(one.recorder) != str(other.recorder)

    def test_a_script_that_is_none(recorded_agent):
        try:
            recorded_agent("Hi.")
        except Exception as error:
            assert "must be a list of turns" in str(error)
        else:
            assert False
    """
    )
    result.assert_outcomes(passed=4)


def test_the_fixtures_with_pytest_trio(session: Session) -> None:
    result = session(
        SYNC
        + """
    async def test_the_clock_is_that_of_the_test(recorded_agent, virtual_clock):
        recorded = recorded_agent([ToolCall("c1", "sleep"), "Done."], tools=[sleep])
        before = trio.current_time()
        await recorded.agent.prompt("Go.")
        assert trio.current_time() - before == 60

    def test_a_plain_test(scripted_model):
        scripted_model.extend(["Hi."])
    """,
        ini=WITH_TRIO,
    )
    result.assert_outcomes(passed=2)


def test_the_fixtures_are_listed_with_what_they_are(session: Session) -> None:
    lines = session("", "--fixtures").outlines
    for name in ("scripted_model", "recorded_agent", "virtual_clock"):
        (found,) = [number for number, line in enumerate(lines) if line.startswith(f"{name} -- ")]
        assert "no docstring" not in lines[found + 1]


# --------------------------------------------- what a model noticed itself

OVERLOOKED = """
    def test_it_overlooks_a_request_too_many(scripted_model, virtual_clock):
        from trio_agent import Agent
        scripted_model.extend(["One."])
        agent = Agent(scripted_model)
        run(virtual_clock, agent)
        trio.run(agent.prompt, "Go on.")
    """


def test_a_test_that_overlooks_an_error_of_its_model_fails(session: Session) -> None:
    result = session(SYNC + OVERLOOKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "the test passed, but its scripted model noticed errors:",
            "  ScriptExhaustedError: request 2 finds no turn: the script holds 1, *",
            "Extend the script, or empty model.errors if the test means it.",
        ]
    )


def test_so_does_one_with_a_recorded_agent_and_an_async_one(session: Session) -> None:
    result = session(
        SYNC
        + """
    import pytest

    async def test_async(recorded_agent):
        await recorded_agent([]).agent.prompt("Go.")

    def test_plain(recorded_agent, virtual_clock):
        run(virtual_clock, recorded_agent([]).agent)

    @pytest.mark.xfail(strict=True)
    def test_expected(recorded_agent, virtual_clock):
        run(virtual_clock, recorded_agent([]).agent)
    """,
        ini=WITH_TRIO,
    )
    result.assert_outcomes(failed=2, xfailed=1)
    result.stdout.fnmatch_lines(["*trio_agent trace*", "run 1 (0 s)", "*assistant error *request 1 finds no turn*"])


def test_a_test_that_means_it_or_fails_anyway_is_left_alone(session: Session) -> None:
    result = session(
        SYNC
        + """
    import pytest

    def test_meant(recorded_agent, virtual_clock):
        recorded = recorded_agent([])
        run(virtual_clock, recorded.agent)
        assert len(recorded.model.errors) == 1
        recorded.model.errors.clear()

    def test_its_own_failure(recorded_agent, virtual_clock):
        run(virtual_clock, recorded_agent([]).agent)
        assert 1 == 2

    def test_skipped(recorded_agent, virtual_clock):
        run(virtual_clock, recorded_agent([]).agent)
        pytest.skip("not here")

    def test_turns_that_are_left(scripted_model):
        scripted_model.extend(["Hi."])
    """
    )
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    assert "scripted model noticed" not in result.stdout.str()
    result.stdout.fnmatch_lines(["E *assert 1 == 2"])


# ----------------------------------------------------------------- reports


@pytest.mark.parametrize("ini", ["[pytest]\n", WITH_TRIO, UNWRAPPED], ids=["no trio", "trio", "unwrapped"])
def test_a_failure_shows_what_each_agent_did(ini: str, session: Session) -> None:
    result = session(
        SYNC
        + """
    def test_it(recorded_agent, virtual_clock):
        one = recorded_agent([ToolCall("c1", "sleep"), "Done."], tools=[sleep])
        recorded_agent(["Never asked."])
        run(virtual_clock, one.agent)
        assert one.model.requests == []

    def test_that_passes(recorded_agent, virtual_clock):
        run(virtual_clock, recorded_agent(["Passed."]).agent)
    """,
        ini=ini,
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*- trio_agent trace -*",
            "run 1 (0 s to 60 s)",
            "│  └─ result c1 ok (60 s)",
            "└─ end: done, 4 messages (60 s)",
            "*- trio_agent trace -*",
            "(no event)",
        ]
    )
    assert "Passed." not in result.stdout.str()


def test_a_failing_async_test_shows_it_too(session: Session) -> None:
    source = (
        SYNC
        + """
    async def test_it(recorded_agent, virtual_clock):
        await recorded_agent(["Hi."]).agent.prompt("Go.")
        assert False, "on purpose"
    """
    )
    result = session(source, ini=WITH_TRIO)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- trio_agent trace -*", "run 1 (0 s)", "*assistant stop"])


@pytest.mark.parametrize("ini", [WITH_TRIO, UNWRAPPED], ids=["in a group", "bare"])
def test_an_invariant_that_does_not_hold_is_named(ini: str, session: Session) -> None:
    result = session(
        """
    from trio_agent import AgentStart
    from trio_agent.testing import Monitor, assert_events_paired

    def test_plain():
        assert_events_paired([AgentStart()])

    async def test_async():
        monitor = Monitor(on_violation="raise")
        monitor(AgentStart())
        monitor(AgentStart())
    """,
        ini=ini,
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*- trio_agent invariant 'Paired' -*",
            "there is no agent_end after 1 events",
            "*- trio_agent invariant 'Paired' -*",
            "event 2 (agent_start) comes within a run",
            "In run 1 of this monitor, at agent_start, in the task *",
        ]
    )


def test_a_trace_that_is_not_the_expected_one_is_reported_as_a_diff(session: Session) -> None:
    result = session(
        SYNC
        + """
    from trio_agent.testing import assert_trace

    def test_it(recorded_agent, virtual_clock):
        recorded = recorded_agent(["Hi."])
        run(virtual_clock, recorded.agent)
        expected = recorded.recorder.tree().replace("Hi.", "Bye.")
        assert_trace(recorded.recorder, expected)
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["> *assert_trace(recorded.recorder, expected)", 'E *-│*text "Bye." *', 'E *+│*text "Hi." *']
    )
    assert "_recorder.py" not in result.stdout.str()


def test_a_trace_that_cannot_be_drawn_does_not_hide_the_failure(session: Session) -> None:
    result = session(
        """
    def test_it(recorded_agent):
        recorded_agent([]).recorder.entries.append(None)
        assert 1 == 2
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert 1 == 2", "(the trace cannot be drawn: AttributeError*"])


# ------------------------------------------------------------------ unwrap

GROUPS = """
    import pytest

    class Mine(Exception):
        pass

    @pytest.mark.xfail(raises=Mine, strict=True)
    async def test_bare():
        raise Mine

    @pytest.mark.xfail(raises=ExceptionGroup, strict=True)
    async def test_a_group_of_its_own():
        raise ExceptionGroup("", [Mine()])

    @pytest.mark.xfail(raises=ExceptionGroup, strict=True)
    def test_a_group_of_a_plain_test():
        raise ExceptionGroup("", [Mine()])
    """


def test_with_the_option_failures_come_out_one_level_less(session: Session) -> None:
    session(GROUPS, ini=UNWRAPPED).assert_outcomes(xfailed=3)


def test_without_it_pytest_trio_wraps_them(session: Session) -> None:
    result = session(GROUPS, ini=WITH_TRIO)
    result.assert_outcomes(failed=1, xfailed=2)
    result.stdout.fnmatch_lines(["FAILED *::test_bare*"])


def test_the_option_changes_nothing_without_pytest_trio(session: Session) -> None:
    source = """
    import pytest

    @pytest.mark.xfail(raises=ExceptionGroup, strict=True)
    def test_a_group_of_a_plain_test():
        raise ExceptionGroup("", [OSError()])
    """
    session(source, ini="[pytest]\ntrio_agent_unwrap = true\n").assert_outcomes(xfailed=1)


def test_this_project_uses_the_option(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("trio_agent_unwrap") is True


# ------------------------------------------------------------------ loading


def test_it_is_an_entry_point_and_can_be_switched_off(session: Session) -> None:
    result = session("def test_it(scripted_model): pass", "-p", "no:trio_agent")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'scripted_model' not found"])


@pytest.mark.slow  # starts an interpreter
def test_the_plugin_itself_imports_little_more_than_its_package() -> None:
    code = (
        "import sys, pytest, trio_agent.testing; before = set(sys.modules); import trio_agent.testing._plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if "explore" not in name} == {"trio_agent.testing._plugin"}
    assert "pytest_trio" not in done.stdout
