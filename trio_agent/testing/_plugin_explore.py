"""The pytest mark ``explore``: an async test that becomes an exploration of itself.

It needs no other plugin: the test is run by :func:`~trio_agent.testing.explore`, many times, each
time in a Trio run of its own on a virtual clock.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

MARK = "explore"
_HOST = pytest.StashKey[Callable[..., Awaitable[object]]]()
"""The test function, as it was collected: pytest-trio puts a function of its own in its place."""
_DONE = pytest.StashKey[str]()
"""What was explored, in one line."""
_OPTION = "--explore-only"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the option."""
    parser.getgroup("trio_agent").addoption(
        _OPTION,
        metavar="CASE",
        help="run only this case in tests marked with explore: the line that a report gives, such as 'abort@step:17'",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(**settings): run an async test for each of its moments, cut there in every way; the settings "
        "are those of trio_agent.testing.explore()",
    )


@pytest.fixture
def probe(request: pytest.FixtureRequest) -> Any:
    """The Probe of the run that a test marked with ``explore`` is in; a fresh one for each run."""
    if request.node.get_closest_marker(MARK) is None:
        pytest.fail("the fixture probe is for tests marked with @pytest.mark.explore", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the functions of marked tests."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(MARK) is not None:
            item.stash[_HOST] = item.obj


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Explore a marked test in place of calling it."""
    mark = pyfuncitem.get_closest_marker(MARK)
    if mark is None:
        return None
    from ._explore._explore import explore  # noqa: PLC0415 - a session without marked tests needs none of it

    function = pyfuncitem.stash[_HOST]
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _check(pyfuncitem, function, arguments)

    async def host(probe: Any) -> None:
        await function(**{**arguments, "probe": probe})

    host.__name__ = pyfuncitem.name
    exploration = explore(host, only=pyfuncitem.config.getoption(_OPTION), **mark.kwargs)
    pyfuncitem.stash[_DONE] = str(exploration)
    if exploration.failures:
        failure = exploration.failures[0]
        command = f'pytest "{pyfuncitem.nodeid}" {_OPTION} "{failure.case}"'
        pytest.fail(str(attrs.evolve(failure, again=(command,))), pytrace=False)
    return True


def _check(item: pytest.Function, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Refuse what cannot be explored."""
    if not inspect.iscoroutinefunction(function):
        pytest.fail(f"{item.name} is marked with explore, so it must be an async function", pytrace=False)
    if "probe" not in arguments:
        pytest.fail(
            f"{item.name} is marked with explore, so it must take the fixture probe and watch its agent: "
            "agent = probe.watch(Agent(...))",
            pytrace=False,
        )
    for name, value in arguments.items():
        if type(value).__name__ == "TrioFixture":
            pytest.fail(
                f"{item.name} is marked with explore and takes the async fixture {name!r}; it is run many times, each "
                "in a Trio run of its own, so make in the test what {name!r} makes",
                pytrace=False,
            )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """With -v, say what was explored."""
    if terminalreporter.verbosity <= 0:
        return
    lines = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == MARK and getattr(report, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section("explored")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add what was explored to the report, where other reporters find it, too."""
    if call.when == "call" and _DONE in item.stash:
        item.user_properties.append((MARK, item.stash[_DONE]))
    return (yield)
