"""run_command: real processes, and that none of them is left."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trio_agent import Agent, Tool, ToolCall, ToolExecutionEnd, ToolResult, ToolResultMessage, run_tool_call
from trio_agent.testing import ScriptedModel
from trio_agent.tools import _process, default_environment, run_command

_numbers = itertools.count(os.getpid() * 1000)


async def call(tool: Tool, command: str, on_update: Callable[[ToolResult], None] | None = None) -> ToolResult:
    tool_call = ToolCall("c1", tool.name, {"command": command})
    return (await run_tool_call(tool_call, tools=[tool], on_update=on_update)).result


def living(mark: str) -> list[str]:
    """Processes with a mark in their command line, zombies left out (their line is empty)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark.encode() in line and int(entry.name) != os.getpid():
            found.append(line.replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    """A number of seconds to sleep that only this test uses; whatever still sleeps so long is killed."""
    mark = f"61.{next(_numbers)}"
    yield mark
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def count(directory: Path | str) -> int:
    return len(list(Path(directory).iterdir()))


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - there is no event for what another process does
            await trio.sleep(0.005)


# ------------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("command", "text", "is_error"),
    [
        pytest.param("echo hi", "hi\n[exit status 0]", False, id="output"),
        pytest.param("true", "[exit status 0]", False, id="no output"),
        pytest.param("printf hi", "hi\n[exit status 0]", False, id="no end of line"),
        pytest.param("echo no; exit 3", "no\n[exit status 3]", True, id="exit status"),
        pytest.param("echo a; echo b >&2; echo c", "a\nb\nc\n[exit status 0]", False, id="both outputs as they come"),
        pytest.param("kill -SEGV $$", "[killed by SIGSEGV]", True, id="signal"),
        pytest.param("kill -40 $$", "[killed by signal 40]", True, id="real-time signal"),
        pytest.param("cat; echo end", "end\n[exit status 0]", False, id="input is empty"),
        pytest.param("printf '\\377\\0x'", "\ufffd\0x\n[exit status 0]", False, id="bytes that are no text"),
        pytest.param("no_such_command_", "not found\n[exit status 127]", True, id="unknown command"),
        pytest.param("echo 'a", "[exit status 2]", True, id="broken syntax"),
        pytest.param("ps -o tty= -p $$ | tr -d ' '", "?\n[exit status 0]", False, id="no terminal"),
        pytest.param("ulimit -t 1; while :; do :; done", "[killed by SIGKILL]", True, id="a limit of its own"),
    ],
)
async def test_what_came_of_a_command(tmp_path: Path, command: str, text: str, is_error: bool) -> None:
    result = await call(run_command(tmp_path), command)
    assert result.text.endswith(text) if is_error else result.text == text
    assert result.is_error is is_error


async def test_the_facts_stand_in_the_details(tmp_path: Path) -> None:
    result = await call(run_command(tmp_path), "echo hi; exit 3")
    assert result.details == result.structured_content
    seconds = result.details.pop("seconds")
    assert 0 <= seconds < 5
    assert result.details == {
        "exit_status": 3,
        "signal": None,
        "timed_out": False,
        "time_limit": None,
        "background_ended": False,
        "bytes": 3,
    }
    assert (await call(run_command(tmp_path), "kill $$")).details["signal"] == "SIGTERM"


async def test_outputs_can_be_kept_apart(tmp_path: Path) -> None:
    tool = run_command(tmp_path, separate_stderr=True)
    result = await call(tool, "echo out; echo err >&2; printf more")
    assert result.text == "out\nmore\n[standard error]\nerr\n[exit status 0]"
    assert (await call(tool, "echo out")).text == "out\n[exit status 0]"


async def test_a_command_runs_where_the_host_says(tmp_path: Path) -> None:
    result = await call(run_command(tmp_path), "pwd")
    assert result.text == f"{tmp_path}\n[exit status 0]"
    with pytest.raises(NotADirectoryError, match="missing"):
        run_command(tmp_path / "missing")


async def test_no_secret_is_inherited_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-123")
    assert "sk-123" not in (await call(run_command(tmp_path), "env")).text
    assert "sk-123" in (await call(run_command(tmp_path, env=os.environ), "env")).text
    own = run_command(tmp_path, env={**default_environment(), "ONLY": "this"})
    assert "ONLY=this" in (await call(own, "env")).text


async def test_another_shell(tmp_path: Path) -> None:
    tool = run_command(tmp_path, shell=["/bin/sh", "-e", "-c"])
    assert (await call(tool, "false; echo on")).text == "[exit status 1]"


@pytest.mark.parametrize(
    ("make", "command", "text"),
    [
        pytest.param(lambda p: run_command(p, shell=["/no/such/shell"]), "x", "/no/such/shell", id="no shell"),
        pytest.param(run_command, "a\0b", "null byte", id="NUL"),
        pytest.param(run_command, "x" * 3_000_000, "too long", id="longer than the system takes"),
        pytest.param(lambda p: run_command(p, env={"a=b": "c"}), "x", "environment", id="broken environment"),
    ],
)
async def test_what_cannot_be_started_is_an_error_result(
    tmp_path: Path, make: Callable[[Path], Tool], command: str, text: str
) -> None:
    before = count("/proc/self/fd")
    result = await call(make(tmp_path), command)
    assert result.is_error
    assert text in result.text
    assert count("/proc/self/fd") <= before + 2  # Trio keeps a pair of its own from now on


async def call_with(tool: Tool, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, arguments), tools=[tool])).result


@pytest.mark.parametrize(
    ("form", "command", "text"),
    [
        pytest.param(
            "list", ["echo", "a b", "$HOME", "*", ";", "`id`"], "a b $HOME * ; `id`\n[exit status 0]", id="list"
        ),
        pytest.param("list", '["echo", "hi"]', "hi\n[exit status 0]", id="list as JSON (B71)"),
        pytest.param("list", ["printf", "%s|", "", "é\n"], "|é\n|\n[exit status 0]", id="empty and odd arguments"),
        pytest.param("both", "echo $((1 + 1))", "2\n[exit status 0]", id="both: a line"),
        pytest.param("both", ["echo", "$((1 + 1))"], "$((1 + 1))\n[exit status 0]", id="both: a list"),
        pytest.param("both", '["echo", "hi"]', None, id="both: text is a line, whatever it looks like (B71)"),
        pytest.param("list", "echo hi", None, id="list: no line"),
        pytest.param("list", [], None, id="list: nothing"),
        pytest.param("list", [""], None, id="list: no name"),
        pytest.param("list", ["echo", 1.5], "1.5\n[exit status 0]", id="list: numbers are text"),
        pytest.param("list", ["echo", ["x"]], None, id="list: lists in lists"),
        pytest.param("list", ["no_such_command_"], None, id="list: unknown"),
        pytest.param("list", ["./no_program"], None, id="list: may not be executed"),
        pytest.param("list", ["echo", "a\0b"], None, id="list: NUL"),
        pytest.param("list", ["echo", "\ud800"], None, id="list: lone surrogate"),
        pytest.param("line", ["echo", "hi"], None, id="line: no list"),
    ],
)
async def test_line_or_list_as_the_host_says(tmp_path: Path, form: Any, command: object, text: str | None) -> None:
    (tmp_path / "no_program").write_text("x")
    result = await call_with(run_command(tmp_path, form=form), command=command)
    assert result.is_error == (text is None)
    if text is not None:
        assert result.text == text
    assert len(result.text) < 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "model", "held"), [(0.2, None, 0.2), (None, 0.2, 0.2), (0.2, 50, 0.2), (50, 0.2, 0.2)]
)
async def test_the_shorter_time_limit_holds(
    tmp_path: Path, mark: str, host: float | None, model: float | None, held: float
) -> None:
    """Slow: a real command is stopped after real time."""
    tool = run_command(tmp_path, time_limit=host)
    result = await call_with(tool, command=f"sleep {mark}", timeout=model)
    assert result.text == "[stopped: its time of 0.2 s was up]"
    assert (result.details["timed_out"], result.details["time_limit"]) == (True, held)
    assert not living(mark)


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
async def test_time_limits_that_are_none(tmp_path: Path, timeout: object) -> None:
    result = await call_with(run_command(tmp_path), command="true", timeout=timeout)
    assert result.error_kind == "invalid_arguments"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep {mark} & sleep {mark}", id="a child in the background"),
        pytest.param("(sleep {mark} & sleep {mark} &) ; wait; sleep {mark}", id="grandchildren"),
        pytest.param("trap '' TERM; sleep {mark}; sleep {mark}", id="ignores TERM"),
        pytest.param("trap '' TERM HUP INT QUIT; while :; do sleep {mark}; done", id="ignores all it can"),
        pytest.param("trap 'sleep {mark}' TERM; sleep {mark}", id="takes its time at TERM"),
        pytest.param("trap 'sleep {mark} & sleep {mark}' TERM EXIT; sleep {mark}", id="forks at TERM"),
        pytest.param("exec >&- 2>&-; sleep {mark}", id="closes its output and lives on"),
        pytest.param("exec >&- 2>&- <&-; trap '' TERM; sleep {mark}; sleep {mark}", id="closes all, ignores TERM"),
        pytest.param("yes {mark}", id="writes forever"),
        pytest.param("yes {mark} >&2", id="writes errors forever"),
        pytest.param("trap '' PIPE TERM; while :; do echo {mark}; done", id="writes in spite of all"),
        pytest.param("kill -STOP $$; sleep {mark}", id="stops itself"),
        pytest.param("sleep {mark} & kill -STOP $!; sleep {mark}", id="stops a child"),
        pytest.param("nohup sleep {mark} & nohup sleep {mark}", id="nohup"),
        pytest.param("sleep {mark} | cat | cat", id="a pipeline"),
        pytest.param("for i in $(seq 60); do (sleep {mark} & sleep {mark}) & done; sleep {mark}", id="forks"),
    ],
)
async def test_commands_that_do_not_want_to_end(tmp_path: Path, mark: str, command: str) -> None:
    """Slow: real commands are ended after a real third of a second."""
    tool = run_command(tmp_path, time_limit=0.15, kill_grace=0.15, max_output=1000)
    start = trio.current_time()
    result = await call_with(tool, command=command.replace("{mark}", mark))
    assert trio.current_time() - start < 2.5
    assert result.is_error
    assert "its time of 0.15 s was up" in result.text
    assert len(result.text) < 1300
    assert not living(mark)


async def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    tool = run_command(tmp_path / "here")
    (tmp_path / "here").rmdir()
    result = await call(tool, "true")
    assert result.is_error
    assert "No such file or directory" in result.text


# ------------------------------------------------------------------- output


async def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    result = await call(run_command(tmp_path, max_output=1000), "seq 100000")
    lines = result.text.splitlines()
    assert lines[:3] == ["1", "2", "3"]
    assert lines[-3:] == ["99999", "100000", "[exit status 0]"]
    at = next(index for index, line in enumerate(lines) if "left out" in line)
    kept = sum(len(line) + 1 for index, line in enumerate(lines[:-1]) if index != at)
    assert lines[at] == f"[... {588_895 - kept:,} bytes left out ...]"
    assert 900 < kept <= 1000


async def test_output_that_fits_is_whole(tmp_path: Path) -> None:
    result = await call(run_command(tmp_path, max_output=1000), "printf %01000d 7")
    assert result.text == "0" * 999 + "7\n[exit status 0]"


async def test_long_output_without_lines_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" + "é" * 5000)
    result = await call(run_command(tmp_path, max_output=1001), "cat f")
    assert "\ufffd" not in result.text
    assert "[... 9,001 bytes left out ...]" in result.text


@pytest.mark.slow
async def test_gigabytes_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Slow: a real command writes a real gigabyte."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await call(run_command(tmp_path), "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert result.text.endswith("end\n[exit status 0]")
    assert result.details["bytes"] == 1_000_000_005
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes


@pytest.mark.slow
async def test_output_is_told_while_the_command_runs(tmp_path: Path) -> None:
    """Slow: the command sleeps for real between its lines."""
    start = trio.current_time()
    told: list[tuple[float, str]] = []
    result = await call(
        run_command(tmp_path),
        "echo a; sleep 0.4; echo b >&2; sleep 0.4; echo c",
        lambda update: told.append((trio.current_time() - start, update.text)),
    )
    assert [text for _, text in told][:2] == ["a\n", "a\nb\n"]
    assert told[0][0] < 0.35
    assert 0.4 <= told[1][0] < 0.75
    assert result.text == "a\nb\nc\n[exit status 0]"


@pytest.mark.slow
async def test_updates_are_rare_and_short_however_much_is_printed(tmp_path: Path) -> None:
    """Slow: the interval between updates is a real one."""
    told: list[ToolResult] = []
    await call(run_command(tmp_path), "timeout 0.5 yes", told.append)
    assert 2 <= len(told) <= 7
    assert all(len(update.text) <= 2000 for update in told)
    assert told[-1].details["bytes"] > 100_000


# ---------------------------------------------------------------------- end


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "limit", "left"),
    [
        pytest.param("sleep {m}", 0.4, 0, id="one process"),
        pytest.param("sleep {m}; echo on", 0.4, 0, id="child of the shell"),
        # Known fault B102.
        pytest.param("sleep {m} & echo $!; wait", 0.4, 0, id="background child"),
        pytest.param("(sleep {m} & sleep {m} & wait) & wait", 0.4, 0, id="grandchildren"),
        pytest.param("sleep {m} | sleep {m} | sleep {m}", 0.4, 0, id="pipeline"),
        # Known fault B104.
        pytest.param("trap '' TERM; sleep {m}; sleep {m}", 1.0, 0, id="ignores SIGTERM"),
        pytest.param("trap 'echo no' TERM; while :; do sleep {m}; done", 1.0, 0, id="survives SIGTERM"),
        pytest.param("sh -c \"trap '' TERM; sleep {m}\" & sleep {m}", 1.0, 0, id="a child ignores SIGTERM"),
        pytest.param("sleep {m} & kill -STOP $!; kill -STOP $$", 0.4, 0, id="stopped"),
        pytest.param("exec >/dev/null 2>&1; sleep {m}", 0.4, 0, id="closed its output"),
        pytest.param("while :; do sleep {m} & sleep 0.001; done", 1.0, 0, id="forks on and on"),
        pytest.param("yes", 0.4, 0, id="writes forever"),
        pytest.param("trap 'seq 1000000; exit 0' TERM; while :; do sleep 0.01; done", 0.45, 0, id="last words"),
        # Out of reach by design: the process has left its group.
        pytest.param("setsid sleep {m} & sleep {m}", 0.4, 1, id="a daemon"),
    ],
)
async def test_a_cut_ends_the_whole_group(tmp_path: Path, mark: str, command: str, limit: float, left: int) -> None:
    """Slow: real processes are ended, some after a real grace."""
    tool = run_command(tmp_path, kill_grace=0.5)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, tool, "echo begun; " + command.replace("{m}", mark))
            await trio.sleep(0.25)
            start = trio.current_time()
            scope.cancel(reason="the test")
    assert trio.current_time() - start < limit
    assert len(living(mark)) == left


@pytest.mark.slow
async def test_a_process_may_clean_up_within_the_grace(tmp_path: Path) -> None:
    """Slow: the clean-up sleeps for real."""
    tool = run_command(tmp_path)
    with trio.move_on_after(0.3):
        await call(tool, "trap 'sleep 0.2; echo done > done; exit 0' TERM; while :; do sleep 0.02; done")
    assert (tmp_path / "done").read_text() == "done\n"


@pytest.mark.slow
async def test_the_host_can_end_the_grace(tmp_path: Path, mark: str) -> None:
    """Slow: real time shows that the grace of a minute is not waited for (known fault B104, second abort)."""
    kill_now = trio.Event()
    tool = run_command(tmp_path, kill_grace=60, kill_now=kill_now)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, tool, f"trap '' TERM; sleep {mark}; sleep {mark}")
            await until(lambda: living(mark))
            scope.cancel(reason="the test")
            start = trio.current_time()
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
                assert living(mark)
                kill_now.set()
    assert trio.current_time() - start < 0.6
    assert living(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep {m} & echo hi", id="holds the output"),
        pytest.param("sleep {m} >/dev/null 2>&1 & echo hi", id="closed the output"),
        pytest.param("(trap '' TERM; sleep {m}; sleep {m}) & echo hi", id="ignores SIGTERM"),
    ],
)
async def test_background_processes_do_not_outlive_the_command(tmp_path: Path, mark: str, command: str) -> None:
    """Slow: real processes are ended, one after a real grace."""
    start = trio.current_time()
    result = await call(run_command(tmp_path, kill_grace=0.3), command.replace("{m}", mark))
    assert trio.current_time() - start < 0.8
    assert result.text == "hi\n[processes that it left in the background were ended]\n[exit status 0]"
    assert result.details["background_ended"] is True
    assert living(mark) == []


async def test_a_daemon_that_holds_the_output_does_not_hold_up_the_result(tmp_path: Path, mark: str) -> None:
    with trio.fail_after(5):
        result = await call(run_command(tmp_path), f"setsid sleep {mark} & sleep 0.1; echo hi")
    assert result.text == "hi\n[exit status 0]"
    assert len(living(mark)) == 1


@pytest.mark.slow
async def test_a_time_limit_keeps_what_was_printed(tmp_path: Path, mark: str) -> None:
    """Slow: the limit is real time."""
    tool = run_command(tmp_path, time_limit=0.3)
    assert "0.3 seconds" in tool.description
    start = trio.current_time()
    result = await call(tool, f"echo hi; sleep {mark}; echo never")
    assert trio.current_time() - start < 0.8
    assert result.is_error
    assert result.text == "hi\n[stopped: its time of 0.3 s was up]"
    assert result.details["timed_out"] is True
    assert result.details["signal"] == "SIGTERM"
    assert living(mark) == []


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope when a task has been scheduled so many times."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self.scope = scope
        self.left = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel(reason="the test")


@pytest.mark.slow
async def test_a_cut_at_any_step_leaves_no_process(tmp_path: Path, mark: str) -> None:
    """Slow: some hundred real processes, cut at one step of the scheduler after the other."""
    tool = run_command(tmp_path)
    before = count("/proc/self/fd")
    reached = 0
    for steps in range(1, 60):
        with trio.CancelScope() as scope:
            instrument = CancelAfter(scope, steps)
            trio.lowlevel.add_instrument(instrument)
            try:
                with trio.fail_after(5):
                    await call(tool, f"sleep 0.03; : {mark}")
                reached = steps
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert living(mark) == [], steps
        if not scope.cancelled_caught:
            break
    assert reached > 5
    assert count("/proc/self/fd") <= before + 2


@pytest.mark.slow
async def test_nothing_is_started_after_the_cut(tmp_path: Path) -> None:
    """Slow: a hundred real processes compete for Trio's forty worker threads."""
    tool = run_command(tmp_path)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, tool, f"echo > {number}; sleep 61")
            await until(lambda: count(tmp_path) > 10)
            scope.cancel(reason="the test")
            started = count(tmp_path)
    # Those whose thread was on its way are started and ended.
    assert count(tmp_path) <= started + 45
    settled = count(tmp_path)
    await trio.sleep(0.2)
    assert count(tmp_path) == settled


@pytest.mark.slow
async def test_commands_run_side_by_side(tmp_path: Path) -> None:
    """Slow: twenty commands sleep for real."""
    tool = run_command(tmp_path)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(call, tool, "sleep 0.5")
    assert trio.current_time() - start < 1.5


async def test_processes_that_cannot_be_ended_are_reported(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.killpg
    monkeypatch.setattr("trio_agent.tools._process._KILL_PATIENCE", 0.05)
    monkeypatch.setattr(os, "killpg", lambda group, number: None)  # as if they were another user's
    result = await call(run_command(tmp_path, kill_grace=0.05), f"sleep {mark} & echo $$")
    monkeypatch.setattr(os, "killpg", original)
    assert result.is_error
    assert "could not be ended; the process group" in result.text
    original(int(result.text.split()[-4]), signal.SIGKILL)


async def test_an_interrupt_by_key_goes_before_the_report_that_processes_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_gone(process: trio.Process, grace: float, kill_now: trio.Event | None) -> bool:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt("the key")

    monkeypatch.setattr(_process, "_end", not_gone)
    with pytest.raises(KeyboardInterrupt, match="the key"):
        await call(run_command(tmp_path), "true")


def test_an_interrupt_by_key_leaves_no_process(tmp_path: Path, mark: str) -> None:
    tool = run_command(tmp_path)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, tool, f"sleep {mark}")
            await until(lambda: living(mark))
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    with pytest.RaisesGroup(KeyboardInterrupt):
        trio.run(main)
    assert living(mark) == []


class InterruptAt(trio.abc.Instrument):
    """Interrupts by key when a task has been scheduled so many times, and again at each step after that."""

    def __init__(self, step: int, times: int) -> None:
        self.left = step
        self.times = times

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left <= 0 < self.times:
            self.times -= 1
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 8])
def test_interrupts_by_key_at_any_step_leave_no_process(tmp_path: Path, mark: str, sigint: None, times: int) -> None:
    """Slow: real processes; the tool runs in the main task, where Trio raises interrupts even under a shield."""
    tool = run_command(tmp_path, kill_grace=0.03, time_limit=0.03)
    for step in itertools.count(1):
        instrument = InterruptAt(step, times)
        start = time.monotonic()
        try:
            trio.run(call, tool, f"trap '' TERM; sleep 4; : {mark}", instruments=[instrument])
        except KeyboardInterrupt:
            assert instrument.times < times
        else:
            assert instrument.times == times, step
            break
        assert time.monotonic() - start < 3, step
        assert living(mark) == [], step
    assert step > 15


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["the grace", "behind SIGKILL"])
async def test_what_is_raised_while_a_group_is_ended_passes_on_bare_and_leaves_no_process(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    """Slow: real processes are ended, and it must not wait for them to end by themselves."""
    original, waits = _process._gone, iter(["the grace", "behind SIGKILL"])

    async def gone(process: trio.Process, patience: float, hurry: trio.Event | None) -> bool:
        over = await original(process, patience, hurry)
        if next(waits) == wait:
            raise SystemExit(wait)
        return over

    monkeypatch.setattr(_process, "_gone", gone)
    tool = run_command(tmp_path, kill_grace=0.05, time_limit=0.2)
    with trio.fail_after(10), pytest.raises(SystemExit, match=wait):
        await call(tool, f"trap '' TERM; sleep {mark}; sleep {mark}")
    assert living(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["abort", "cancel_tool", "interrupt", "timeout", "host", "listener"])
async def test_every_kind_of_cut_of_a_run_ends_the_group_before_the_run_is_over(
    tmp_path: Path, mark: str, cause: str
) -> None:
    """Slow: real processes are ended."""
    tool = run_command(tmp_path)
    if cause == "timeout":
        tool = attrs.evolve(tool, timeout=0.5)
    command = f"sleep {mark} & sleep {mark}"
    asked = [ToolCall("c1", tool.name, {"command": command}), ToolCall("c2", tool.name, {"command": "echo hi"})]
    agent = Agent(ScriptedModel([asked, "done"]), tools=[tool])

    async def fail(event: ToolExecutionEnd) -> None:
        if cause == "listener" and event.tool_call_id == "c2":
            await until(lambda: len(living(mark)) == 3)
            raise ValueError("the listener")

    agent.subscribe(fail, ToolExecutionEnd)

    async def act(scope: trio.CancelScope) -> None:
        await until(lambda: len(living(mark)) == 3)
        if cause == "abort":
            agent.abort("enough")
        elif cause == "cancel_tool":
            assert agent.cancel_tool("c1", "enough")
        elif cause == "interrupt":
            agent.interrupt("do something else")
        elif cause == "host":
            scope.cancel(reason="the test")

    start = trio.current_time()
    try:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if cause != "listener":
                    nursery.start_soon(act, scope)
                await agent.prompt("go")
                assert living(mark) == []
    except* ValueError:
        assert cause == "listener"
    assert living(mark) == []
    assert trio.current_time() - start < 2
    results = [message for message in agent.state.messages if isinstance(message, ToolResultMessage)]
    assert [result.tool_call_id for result in results] == ["c1", "c2"]
    assert results[0].is_error
