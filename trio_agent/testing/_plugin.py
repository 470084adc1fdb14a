"""The pytest plugin: fixtures for agents and their models, and reports that say what a run did.

It works with pytest-trio and without it. Nothing of this library is imported before a test asks for it,
so that a test session without agents does not wait for more than the package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from trio_agent import Tool

    from ._errors import InvariantError
    from ._recorder import RecordedAgent
    from ._script import ScriptedModel, Turn

_UNWRAP = "trio_agent_unwrap"
_MODELS = pytest.StashKey[list["ScriptedModel"]]()
"""The scripted models that a test got from a fixture."""
_AGENTS = pytest.StashKey[list["RecordedAgent"]]()
"""The recorded agents that a test made."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini option."""
    parser.addini(
        _UNWRAP,
        "raise the failure of an async test bare, without the group of one that pytest-trio makes of it",
        type="bool",
        default=False,
    )


# --------------------------------------------------------------- fixtures


def _watch(request: pytest.FixtureRequest, model: ScriptedModel) -> ScriptedModel:
    models = request.node.stash.setdefault(_MODELS, [])
    if all(known is not model for known in models):
        models.append(model)
    return model


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> ScriptedModel:
    """A ScriptedModel with an empty script, which the test extends.

    A test that passes fails all the same if the model noticed an error of its script or a request
    beyond it; a test that means it empties ``model.errors``.
    """
    from ._script import ScriptedModel  # noqa: PLC0415 - see the module's docstring

    return _watch(request, ScriptedModel())


@pytest.fixture
def recorded_agent(request: pytest.FixtureRequest) -> Callable[..., RecordedAgent]:
    """Makes agents with a scripted model and a recorder: ``recorded_agent(turns_or_model, *, tools=(), **settings)``.

    What it gives has ``agent``, ``model`` and ``recorder``. The report of a test that fails shows the
    tree of each recorder; the models are watched like that of ``scripted_model``.
    """
    from trio_agent import Agent  # noqa: PLC0415 - see the module's docstring

    from ._recorder import RecordedAgent, TraceRecorder  # noqa: PLC0415 - see the module's docstring
    from ._script import ScriptedModel  # noqa: PLC0415 - see the module's docstring

    made = request.node.stash.setdefault(_AGENTS, [])

    def make(
        turns_or_model: Sequence[Turn] | ScriptedModel, *, tools: Sequence[Tool] = (), **settings: Any
    ) -> RecordedAgent:
        model = turns_or_model if isinstance(turns_or_model, ScriptedModel) else ScriptedModel(turns_or_model)
        agent = Agent(_watch(request, model), tools=tools, **settings)
        recorded = RecordedAgent(agent, model, TraceRecorder(agent))
        made.append(recorded)
        return recorded

    return make


@pytest.fixture
def virtual_clock() -> MockClock:
    """A clock that jumps ahead whenever all tasks wait.

    pytest-trio runs the test on it; without pytest-trio give it to ``trio.run(..., clock=virtual_clock)``.
    """
    from trio.testing import MockClock  # noqa: PLC0415 - see the module's docstring

    return MockClock(autojump_threshold=0)


# ---------------------------------------------------------------- failures


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """With the ini option, unwrap the group of one that pytest-trio makes of each failure.

    One level and no more. Without this the failing line is lost in the report, and
    ``xfail(raises=...)`` never matches.
    """
    try:
        return (yield)
    except BaseExceptionGroup as group:
        if (
            len(group.exceptions) != 1
            or pyfuncitem.get_closest_marker("trio") is None
            or not pyfuncitem.config.getini(_UNWRAP)
        ):
            raise
        failure = group.exceptions[0]
    raise failure


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that overlooked what its scripted models noticed.

    Here and not in the fixture's teardown: so it is the test that fails, and ``xfail`` means it, too.
    """
    yield
    errors = [error for model in item.stash.get(_MODELS, []) for error in model.errors]
    if errors:
        listed = "".join(f"\n  {type(error).__name__}: {error}" for error in errors)
        pytest.fail(
            f"the test passed, but its scripted model noticed errors:{listed}\n"
            "Extend the script, or empty model.errors if the test means it.",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test which invariant did not hold, and what its agents did."""
    report = yield
    if report.when == "call" and report.failed:
        if call.excinfo is not None:
            for error in _invariant_errors(call.excinfo.value):
                notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
                report.sections.append((f"trio_agent invariant {error.invariant!r}", error.difference + notes))
        report.sections.extend(("trio_agent trace", _tree(recorded)) for recorded in item.stash.get(_AGENTS, []))
    return report


def _invariant_errors(error: BaseException) -> Iterator[InvariantError]:
    from ._errors import InvariantError  # noqa: PLC0415 - see the module's docstring

    if isinstance(error, InvariantError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _invariant_errors(one)


def _tree(recorded: RecordedAgent) -> str:
    try:
        return str(recorded.recorder) or "(no event)"
    except Exception as error:
        # A message of the host's may be anything; the report of the failure must come out.
        return f"(the trace cannot be drawn: {error!r})"


# The mark explore has a module of its own, with its option and hooks.
pytest_plugins = ["trio_agent.testing._plugin_explore"]
