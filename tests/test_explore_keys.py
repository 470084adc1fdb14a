"""SIGINT at every line of the library: where it comes, that it is not lost, and what is found."""

from __future__ import annotations

import signal
import sys
import threading
from types import FunctionType

import pytest
import trio

from trio_agent import Agent, MessageBuilder, ToolCall, UsageError, tool
from trio_agent import _door as door
from trio_agent.testing import Probe, ScriptedModel, explore_key_interrupts


@tool
async def work() -> str:
    await trio.sleep(1)
    return "worked"


async def host(probe: Probe) -> None:
    agent = probe.watch(Agent(ScriptedModel([ToolCall("c1", "work", {}), "Done."]), tools=[work]))
    agent.steer("Mind this.")
    await agent.prompt("Go.")


def test_it_comes_at_every_line_and_no_invariant_fails() -> None:
    """All of them, for one small host: about two thousand."""
    exploration = explore_key_interrupts(host)
    exploration.raise_for_failures()
    assert exploration.places > 2000
    assert exploration.runs == exploration.places + 1
    assert exploration.missed == 0


def test_what_was_there_before_is_put_back() -> None:
    handler = signal.getsignal(signal.SIGINT)
    trace = sys.gettrace()
    explore_key_interrupts(host, every=500).raise_for_failures()
    assert signal.getsignal(signal.SIGINT) is handler
    assert sys.gettrace() is trace


def unprotected(function: FunctionType) -> FunctionType:
    """The same function, with a code object that Trio does not know as protected."""
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def test_an_unprotected_change_of_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer whose snapshot is broken off half-way: it cannot be told to its end any more."""
    monkeypatch.setattr(MessageBuilder, "_message", unprotected(MessageBuilder._message))  # type: ignore[arg-type]
    found = explore_key_interrupts(host)
    assert "MessageBuilder._message" in str(found.failures[0])


def test_a_run_that_is_not_protected_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kit puts around a call protects nothing: a host would not either (design 7.7)."""
    monkeypatch.setattr(Agent, "prompt", unprotected(Agent.prompt))  # type: ignore[arg-type]
    assert explore_key_interrupts(host, every=47, stop_after=3).failures


def test_an_interrupt_in_the_doorway_is_told_from_one_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The door counts a listener as told only if it was entered; a door that cannot tell is found."""
    monkeypatch.setattr(door, "_DOORWAYS", {})
    found = explore_key_interrupts(host, stop_after=1)
    assert found.failures
    report = str(found.failures[0])
    assert "_door.py" in report
    assert f"only={report.split('at line ')[1].split(':', maxsplit=1)[0]})" in report


def test_one_line_is_repeated() -> None:
    exploration = explore_key_interrupts(host, only=700)
    exploration.raise_for_failures()
    assert exploration.runs == 2


def test_in_another_thread_it_is_refused() -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            explore_key_interrupts(host)
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])
