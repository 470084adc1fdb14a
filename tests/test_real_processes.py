"""Real processes and threads under a real program that uses the library directly: nothing outlives its run.

The program runs in a session of its own. It runs an agent that calls one tool, cuts the run when it is
sent a signal, and prints what came of it as JSON. The command is a tree of shells, three deep, each of
which writes its process id. The command line's own signals are tested in test_cli_run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import trio_agent

GRACE = 0.6
"""Seconds between SIGTERM and SIGKILL."""
SPARE = 2.0
"""What a busy machine may take on top."""

TREE = """\
level=$1; kind=$2
case $kind in
    polite) trap 'echo asked >> asked; exit 0' TERM ;;
    stubborn) trap 'echo asked >> asked' TERM ;;
esac
if [ $level -gt 1 ]; then sh tree.sh $((level - 1)) $kind & fi
echo $$ >> pids
while :; do sleep 0.05; done
"""

PROGRAM = """\
import json, os, signal, sys, threading, time
from pathlib import Path

import trio

from trio_agent import Agent, Tool, ToolCall, ToolResultMessage, run_tool_call
from trio_agent.testing import ScriptedModel, assert_transcript_valid
from trio_agent.tools import run_command

form, command, grace = sys.argv[1], sys.argv[2], float(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
report = {}


def alive(pid):
    try:
        line = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return False
    return line[line.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")


def polls(args, ctx):
    Path("pids").write_text("thread\\n")
    try:
        for _ in range(3000):
            time.sleep(0.01)
            trio.from_thread.check_cancelled()
        return "never"
    finally:
        report["thread over"] = time.monotonic()


def deaf(args, ctx):
    Path("pids").write_text("thread\\n")
    deadline = time.monotonic() + 20
    while not Path("release").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    report["thread over"] = time.monotonic()
    return "in the end"


TOOLS = {
    "command": run_command(".", name="tool", kill_grace=grace),
    "polls": Tool("tool", execute=polls),
    "deaf": Tool("tool", execute=deaf),
    "abandoned": Tool("tool", execute=deaf, abandon_on_cancel=True),
}
tool = TOOLS.get(form, TOOLS["command"])
call = ToolCall("c1", "tool", {"command": command} if tool is TOOLS["command"] else {})


async def main():
    agent = Agent(ScriptedModel([[call], "never"]), tools=[tool])

    async def watch(task_status):
        signals = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
        with trio.open_signal_receiver(*signals) as received:
            task_status.started()
            async for number in received:
                if number == signal.SIGUSR1:
                    agent.abort("SIGUSR1")
                else:
                    scope.cancel(reason=signal.Signals(number).name)

    try:
        async with trio.open_nursery() as nursery:
            async def started(task_status=trio.TASK_STATUS_IGNORED):
                await watch(task_status)

            with trio.CancelScope() as scope:
                await nursery.start(started)
                Path("started").touch()
                try:
                    if form == "run_tool_call":
                        await run_tool_call(call, tools=[tool])
                    elif form == "run":
                        async with agent.run("Go.") as run:
                            async for _ in run:
                                pass
                    else:
                        report["returned"] = (await agent.prompt("Go.")).end_reason
                except BaseException as error:
                    report["raised"] = type(error).__name__
                    raise
                finally:
                    report["over"] = time.monotonic()
                    pids = [int(line) for line in Path("pids").read_text().split() if line.isdigit()]
                    report["left"] = [pid for pid in pids if alive(pid)]
            nursery.cancel_scope.cancel(reason="the program is over")
    finally:
        assert_transcript_valid(agent.messages)
        report["roles"] = [message.role for message in agent.messages]
        report["results"] = [
            [message.error_kind, message.text] for message in agent.messages if isinstance(message, ToolResultMessage)
        ]
        report["streaming"] = agent.state.is_streaming


try:
    trio.run(main)
except BaseException as error:
    report["program"] = type(error).__name__
print(json.dumps(report), flush=True)
"""

Start: TypeAlias = Callable[..., "subprocess.Popen[bytes]"]


def alive(pid: int) -> bool:
    """Whether a process is more than a zombie."""
    try:
        line = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return False
    return line[line.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def pids(here: Path) -> list[int]:
    try:
        return [int(line) for line in (here / "pids").read_text().split() if line.isdigit()]
    except FileNotFoundError:
        return []


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory with the tree in it; whatever a failed test leaves of the tree is ended."""
    (tmp_path / "tree.sh").write_text(TREE)
    yield tmp_path
    for pid in pids(tmp_path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture
def start(here: Path) -> Iterator[Start]:
    """Starts a program in a session of its own, and ends what a failed test leaves of it."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(trio_agent.__file__).parents[1])}

    def begin(*command: str) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            command,
            cwd=here,
            env={**environment, "XDG_CONFIG_HOME": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(program)
        return program

    yield begin
    for program in started:
        program.kill()
        program.wait()
        for stream in (program.stdout, program.stderr):
            if stream is not None:
                stream.close()


def begin_tree(start: Start, here: Path, kind: str, form: str = "prompt") -> subprocess.Popen[bytes]:
    program = start(sys.executable, "-W", "error", "-c", PROGRAM, form, f"sh tree.sh 3 {kind}; :", str(GRACE))
    until(lambda: len(pids(here)) == 3)
    assert all(alive(pid) for pid in pids(here))
    return program


def ended(program: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a program says at its end."""
    output, complaint = program.communicate(timeout=20)
    assert complaint == b""
    report: dict[str, Any] = json.loads(output)
    return report


def assert_tree_is_gone(here: Path, kind: str, took: float) -> None:
    members = pids(here)
    assert len(members) == 3
    assert [pid for pid in members if alive(pid)] == []
    asked = (here / "asked").read_text().split()
    if kind == "polite":
        assert asked == ["asked"] * 3, "every member could clean up"
        assert took < GRACE + SPARE
    else:
        assert len(asked) >= 3, "every member was asked before it was killed"
        assert GRACE <= took < GRACE + SPARE


# The cause, the signal that brings it, and what prompt() comes to: what it returns, or what it raises.
CAUSES: dict[str, tuple[signal.Signals, str | None, str | None]] = {
    "abort": (signal.SIGUSR1, "aborted", None),
    "host cancel": (signal.SIGUSR2, None, "Cancelled"),
    "Ctrl-C": (signal.SIGINT, None, "KeyboardInterrupt"),
    "SIGTERM that the host receives": (signal.SIGTERM, None, "Cancelled"),
}
every_kind = pytest.mark.parametrize("kind", ["polite", "stubborn"])


# --------------------------------------------------------------- processes


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("cause", CAUSES)
def test_a_tree_of_processes_is_gone_when_the_run_is_over(here: Path, start: Start, cause: str, kind: str) -> None:
    """Slow: real processes, real signals, a real grace."""
    number, returned, raised = CAUSES[cause]
    program = begin_tree(start, here, kind)
    began = time.monotonic()
    # A terminal sends it to the whole foreground group; commands lead sessions of their own.
    os.killpg(program.pid, number)
    report = ended(program)
    assert_tree_is_gone(here, kind, time.monotonic() - began)
    assert report["left"] == [], "gone before prompt() was over, not only before the program was"
    assert (report.get("returned"), report.get("raised")) == (returned, raised)
    assert report.get("program") == ("BaseExceptionGroup" if cause == "Ctrl-C" else None)
    assert report["roles"] == ["system", "user", "assistant", "tool_result", "assistant"]
    ((error_kind, text),) = report["results"]
    assert error_kind == "aborted"
    assert "may have had effects" in text
    if cause != "Ctrl-C":
        assert number.name in text
    assert report["streaming"] is False


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("form", ["run", "run_tool_call"])
def test_the_other_ways_to_call_a_tool_leave_no_process_after_ctrl_c(
    here: Path, start: Start, form: str, kind: str
) -> None:
    """Slow: real processes, a real signal, a real grace."""
    program = begin_tree(start, here, kind, form)
    began = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    report = ended(program)
    assert_tree_is_gone(here, kind, time.monotonic() - began)
    assert report["left"] == []
    assert report["raised"] == ("KeyboardInterrupt" if form == "run_tool_call" else report["raised"])
    assert report["program"] in ("KeyboardInterrupt", "BaseExceptionGroup")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["prompt", "run", "run_tool_call"])
def test_a_second_ctrl_c_in_the_grace_leaves_no_process(here: Path, start: Start, form: str) -> None:
    """Slow: real processes, real signals, a real grace."""
    program = begin_tree(start, here, "stubborn", form)
    began = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    until((here / "asked").exists)
    os.killpg(program.pid, signal.SIGINT)
    report = ended(program)
    members = pids(here)
    assert len(members) == 3
    assert [pid for pid in members if alive(pid)] == []
    assert time.monotonic() - began < GRACE + SPARE
    assert report["left"] == []
    assert report["program"] in ("KeyboardInterrupt", "BaseExceptionGroup")


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_tree_of_the_command_line_is_gone_after_a_signal(
    here: Path, start: Start, kind: str, number: signal.Signals, code: int
) -> None:
    """Slow: real processes, real signals, the real grace of the command line."""
    program = start(
        sys.executable, "-W", "error", "-m", "trio_agent", "run", "--save", "t.json", f'run "sh tree.sh 3 {kind}; :"'
    )
    until(lambda: len(pids(here)) == 3)
    program.send_signal(number)
    _, complaint = program.communicate(timeout=20)
    assert (program.returncode, complaint.decode()) == (code, f"trio-agent: interrupted by {number.name}\n")
    members = pids(here)
    assert len(members) == 3
    assert [pid for pid in members if alive(pid)] == []
    assert len((here / "asked").read_text().split()) >= 3


# ------------------------------------------------------------------ threads
# Under an abort and a host's cancellation they are tested in test_threads.


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_a_thread_that_polls_ends_with_the_run_of_a_real_program(here: Path, start: Start, cause: str) -> None:
    """Slow: a real thread, a real signal."""
    number, returned, raised = CAUSES[cause]
    program = start(sys.executable, "-W", "error", "-c", PROGRAM, "polls", "", "1")
    until((here / "pids").exists)
    began = time.monotonic()
    os.killpg(program.pid, number)
    report = ended(program)
    assert time.monotonic() - began < SPARE
    assert report["thread over"] <= report["over"], "the thread is over before the run is"
    assert (report.get("returned"), report.get("raised")) == (returned, raised)
    assert report["results"][0][0] == "aborted"
    assert "left behind" not in report["results"][0][1]


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_a_thread_that_does_not_poll_is_waited_for_by_a_real_program(here: Path, start: Start, cause: str) -> None:
    """Slow: a real thread, a real signal, and a real third of a second in which the program must not end."""
    number, returned, raised = CAUSES[cause]
    program = start(sys.executable, "-W", "error", "-c", PROGRAM, "deaf", "", "1")
    until((here / "pids").exists)
    os.killpg(program.pid, number)
    time.sleep(0.35)
    assert program.poll() is None
    (here / "release").touch()
    report = ended(program)
    assert report["thread over"] <= report["over"]
    assert (report.get("returned"), report.get("raised")) == (returned, raised)
    assert report["results"] == [[None, "in the end"]], "it did return (7.9, Truth)"
    assert report["roles"][-1] == "assistant", "the record that says that the run was cut"


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_a_thread_that_may_be_abandoned_keeps_neither_the_run_nor_the_program(
    here: Path, start: Start, cause: str
) -> None:
    """Slow: a real thread that would work on for twenty seconds, a real signal."""
    number, returned, raised = CAUSES[cause]
    program = start(sys.executable, "-W", "error", "-c", PROGRAM, "abandoned", "", "1")
    until((here / "pids").exists)
    began = time.monotonic()
    os.killpg(program.pid, number)
    report = ended(program)
    assert time.monotonic() - began < SPARE
    assert "thread over" not in report
    assert (report.get("returned"), report.get("raised")) == (returned, raised)
    ((error_kind, text),) = report["results"]
    assert error_kind == "aborted"
    assert "left behind and may still be running" in text
