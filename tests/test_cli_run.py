"""``trio-agent run`` as a user meets it: real processes, real signals, real pipes."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio

import trio_agent
from trio_agent import (
    Agent,
    AgentEnd,
    AssistantMessage,
    EventDecoder,
    MessageBuilder,
    ModelRequest,
    SimpleModel,
    StreamSink,
    ToolResultMessage,
    transcript_from_json,
)
from trio_agent.cli._transcripts import load_transcript

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(trio_agent.__file__).parents[1]),
    "XDG_CONFIG_HOME": "/nonexistent",  # nobody's own configuration
    "PYTHONFAULTHANDLER": "1",  # where it was when it crashed
}
PROGRAM = [sys.executable, "-W", "error", "-m", "trio_agent", "run"]
_numbers = itertools.count(os.getpid() * 1000)


Start: TypeAlias = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hello.txt").write_text("hello\nworld\n")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def mark() -> str:
    """A number of seconds to sleep that only this test uses."""
    return f"62.{next(_numbers)}"


def run(*arguments: str, text: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env=ENVIRONMENT,
        timeout=30,
        check=False,
        **options,
    )


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program; whatever a failed test left of it is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[bytes]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        program = subprocess.Popen(
            [*before, *PROGRAM, *arguments], stdin=subprocess.DEVNULL, env=ENVIRONMENT, **options
        )
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.wait()
        for stream in (program.stdout, program.stderr):
            if stream is not None:
                stream.close()


def sleeping(mark: str) -> list[int]:
    """Processes that sleep so long, by their ids."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if line.split(b"\0")[:2] == [b"sleep", mark.encode()]:
            found.append(int(entry.name))
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answered(messages: list[Any]) -> bool:
    """Whether each call of an answer that was not cut has one result right behind it, in order."""
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            ids = [call.id for call in message.tool_calls]
            behind = list(itertools.takewhile(lambda after: isinstance(after, ToolResultMessage), messages[at + 1 :]))
            if [result.tool_call_id for result in behind] != ids:
                return False
    return True


# ------------------------------------------------------------------- output


@pytest.mark.slow
def test_real_files_and_three_commands_side_by_side(here: Path) -> None:
    """Slow: three commands sleep for two real seconds."""
    begun = time.monotonic()
    done = run('read hello.txt; search "world" in .; run "sleep 2"; run "sleep 2"; run "sleep 2; exit 3"')
    assert 2 < time.monotonic() - begun < 6  # one after the other they would take six, and the start comes on top
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        'I make 5 calls: read hello.txt; search "world" in .; run "sleep 2"; run "sleep 2"; run "sleep 2; exit 3".',
        "5 results:",
        '- read_file(path="hello.txt"): ok',
        "    hello",
        "    world",
        '- search_text(text="world", path="."): ok',
        "    hello.txt:2:world",
        "    [1 line in 1 of 1 file]",
        '- run_command(command="sleep 2"): ok',
        "    [exit status 0]",
        '- run_command(command="sleep 2"): ok',
        "    [exit status 0]",
        '- run_command(command="sleep 2; exit 3"): error',
        "    [exit status 3]",
    ]


@pytest.mark.slow
def test_json_is_one_event_per_line_and_nothing_else(here: Path) -> None:
    """Slow: the command sleeps for real, so that its output is told before its end."""
    done = run("--json", "--save", "t.json", 'run "echo é; sleep 0.2; printf \\"\\033[31m\\""; nonsense')
    assert (done.returncode, done.stderr) == (0, "")
    decoder = EventDecoder()
    events = [decoder.decode(json.loads(line)) for line in done.stdout.splitlines()]
    assert [events[0].type, events[-1].type] == ["agent_start", "agent_end"]
    assert {"message_update", "tool_execution_start", "tool_execution_update", "tool_execution_end"} <= {
        event.type for event in events
    }
    saved = transcript_from_json(json.loads(Path("t.json").read_bytes()))
    assert isinstance(events[-1], AgentEnd)
    assert list(events[-1].messages) == saved[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "at_least", "at_most"), [((), 0.4, 1.15), (("--sequential",), 1.2, 9), (("--max-parallel", "2"), 0.8, 9)]
)
def test_how_many_tools_run_at_a_time(here: Path, option: tuple[str, ...], at_least: float, at_most: float) -> None:
    """Slow: commands sleep for real."""
    done = run("--json", *option, 'run "sleep 0.4"; run "sleep 0.4"; run "sleep 0.4"')
    stamps = [
        data["message"]["timestamp"]
        for data in map(json.loads, done.stdout.splitlines())
        if data["type"] == "message_end" and data["message"]["role"] == "assistant"
    ]
    assert at_least * 1000 <= stamps[1] - stamps[0] < at_most * 1000


def test_a_prompt_from_standard_input_in_a_directory_of_its_own(here: Path) -> None:
    done = run("--root", str(here), "-", text="read hello.txt 2\nrun pwd\n", cwd="/")
    assert done.returncode == 0
    assert "    world\n" in done.stdout
    assert f"    {here}\n" in done.stdout


def test_odd_characters_never_break_the_output(here: Path) -> None:
    prompt = os.fsdecode(b"run \"printf 'caf\xe9'\"; \xe2\x98\x83 \xff")
    done = run("--save", "t.json", prompt)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\udcff" in done.stdout
    assert "☃" in done.stdout
    assert "\\udcff" in Path("t.json").read_text()
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    ascii_only = subprocess.run([*PROGRAM, "é"], capture_output=True, env=environment, check=True)
    assert b"'\\xe9' is neither" in ascii_only.stdout


def test_help_says_what_the_model_is_and_what_the_exit_codes_mean() -> None:
    done = run("--help")
    text = " ".join(done.stdout.split())
    assert "parses and does not think" in text
    for code in (0, 1, 2, 3, 124, 129, 130, 141, 143):
        assert f" {code} " in text


# ------------------------------------------------------------------ signals


@pytest.mark.slow
def test_ctrl_c_ends_the_program_within_half_a_second(here: Path, mark: str, start: Start) -> None:
    """Slow: real processes get a real SIGINT after a real second; on a busy machine the best of five counts."""
    taken: list[float] = []
    while not taken or (min(taken) >= 0.5 and len(taken) < 5):
        program = start("--save", "t.json", f'run "sleep {mark}"; run "sleep {mark}"')
        time.sleep(1)
        until(lambda: len(sleeping(mark)) == 2)
        program.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, complaint = program.communicate(timeout=10)
        taken.append(time.monotonic() - begun)
        assert (program.returncode, complaint) == (130, b"trio-agent: interrupted by SIGINT\n")
        assert sleeping(mark) == []
    assert min(taken) < 0.5


@pytest.mark.slow
def test_after_ctrl_c_the_transcript_goes_on_from_there(here: Path, mark: str, start: Start) -> None:
    """Slow: real processes get a real SIGINT."""
    program = start("--save", "t.json", f'run "sleep {mark}"; run "echo begun; sleep {mark}"')
    until(lambda: len(sleeping(mark)) == 2)
    time.sleep(0.3)  # what the command printed has to reach the program, and nothing outside shows that it has
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=10)
    messages = load_transcript("t.json")
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool_result",
        "tool_result",
        "assistant",
    ]
    for result in messages[3:5]:
        assert isinstance(result, ToolResultMessage)
        assert result.is_error
        assert "aborted while the tool ran: interrupted by SIGINT. It may have had effects." in result.text
    # What a command had printed is worth knowing (known fault B11).
    assert ["begun" in result.text for result in messages[3:5] if isinstance(result, ToolResultMessage)] == [
        False,
        True,
    ]
    assert answered(messages)

    resumed = run("--resume", "t.json", "--save", "t.json", "read hello.txt")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.splitlines()[:2] == ["I make 1 call: read hello.txt.", "1 result:"]
    assert load_transcript("t.json")[: len(messages)] == messages
    assert answered(load_transcript("t.json"))


@pytest.mark.slow
def test_the_model_is_sent_a_transcript_in_which_every_call_is_answered(here: Path, start: Start, mark: str) -> None:
    """Slow: real processes get a real SIGINT."""
    program = start("--save", "t.json", f'run "sleep {mark}"; run "sleep {mark}"')
    until(lambda: len(sleeping(mark)) == 2)
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=10)
    requests: list[list[Any]] = []

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        requests.append(list(request.messages))
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        return builder.finish("stop")

    trio.run(Agent(SimpleModel("p", "m", stream), messages=load_transcript("t.json")).prompt, "go on")
    (sent,) = requests
    assert sum(isinstance(message, ToolResultMessage) for message in sent) == 2
    assert answered(sent)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.05, 0.2])
def test_a_second_ctrl_c_waits_for_no_grace(here: Path, start: Start, mark: str, pause: float) -> None:
    """Slow: real signals to a command that ignores SIGTERM, whose grace is two real seconds."""
    program = start("--save", "t.json", f"run \"trap '' TERM; sleep {mark}; sleep {mark}\"")
    until(lambda: sleeping(mark))
    program.send_signal(signal.SIGINT)
    time.sleep(pause)
    program.send_signal(signal.SIGINT)
    begun = time.monotonic()
    program.communicate(timeout=10)
    # Two signals at once may arrive as one, as signals do.
    assert time.monotonic() - begun < (1.5 if pause else 4)
    assert program.returncode == 130
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_cancel(here: Path, start: Start, mark: str, number: signal.Signals, code: int) -> None:
    """Slow: real signals to real processes."""
    program = start("--save", "t.json", f'run "sleep {mark}"; read hello.txt')
    until(lambda: sleeping(mark))
    time.sleep(0.1)  # the other call has to be over, and nothing outside shows that it is
    program.send_signal(number)
    begun = time.monotonic()
    _, complaint = program.communicate(timeout=10)
    assert time.monotonic() - begun < 1.5
    assert (program.returncode, complaint.decode()) == (code, f"trio-agent: interrupted by {number.name}\n")
    assert sleeping(mark) == []
    messages = load_transcript("t.json")
    assert answered(messages)
    assert "hello\nworld\n" in [result.text for result in messages if isinstance(result, ToolResultMessage)]


@pytest.mark.slow
def test_a_hangup_is_ignored_under_nohup(here: Path, start: Start) -> None:
    """Slow: a real command sleeps."""
    program = start('run "sleep 0.5"', before=["nohup"])
    time.sleep(0.4)
    program.send_signal(signal.SIGHUP)
    assert b"[exit status 0]" in program.communicate(timeout=10)[0]
    assert program.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_leaves_a_valid_transcript(here: Path, start: Start, number: signal.Signals) -> None:
    """Slow: a dozen programs, interrupted at one moment after the other."""
    for step in range(12):
        Path("t.json").unlink(missing_ok=True)
        program = start("--save", "t.json", "--json", 'read hello.txt; run "sleep 0.1"; search "o"')
        time.sleep(0.2 + step * 0.05)
        program.send_signal(number)
        output, complaint = program.communicate(timeout=10)
        if not output:
            # Before the program listens, the signal does what it always does to a Python that imports. Seen twice: it
            # crashes there. Anywhere else a crash is a fault.
            if program.returncode == -signal.SIGSEGV:
                assert b"<frozen importlib._bootstrap>" in complaint, complaint.decode()
            else:
                assert program.returncode in (-number, 1, 128 + number), step
            continue
        # Once all is saved, too.
        assert program.returncode in (0, 128 + number, -number), step
        assert b"Traceback" not in complaint
        assert answered(load_transcript("t.json"))
        assert json.loads(output.splitlines()[-1])["type"] == "agent_end"


# -------------------------------------------------------------------- pipes


def test_a_reader_that_has_enough_ends_the_program_quietly(here: Path, start: Start) -> None:
    program = start("--json", 'run "sleep 0.1; echo hi"; read hello.txt')
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == b'{"type": "agent_start"}\n'
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait(10) == 141


@pytest.mark.slow
def test_head_ends_the_program_and_its_commands(here: Path, mark: str) -> None:
    """Slow: real commands run when a real head has had enough."""
    line = f"{' '.join(PROGRAM)} --json --save t.json 'run \"echo x; sleep {mark}\"; read hello.txt' | head -1"
    done = subprocess.run(
        ["/bin/bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"],
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, '{"type": "agent_start"}\n', "")
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_reader_that_does_not_read_cannot_hold_up_the_end(
    here: Path, start: Start, mark: str, number: signal.Signals
) -> None:
    """Slow: a real pipe is full for a while."""
    noise = 'run "seq 100000"; ' * 4  # more than a pipe holds
    program = start("--json", "--save", "t.json", f'run "sleep {mark}"; {noise}run "sleep {mark}"')
    until(lambda: len(sleeping(mark)) == 2)
    time.sleep(0.3)
    program.send_signal(number)
    begun = time.monotonic()
    program.wait(10)
    assert time.monotonic() - begun < 1
    assert program.returncode == 128 + number
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))
    program.communicate()


@pytest.mark.slow
def test_a_reader_that_does_not_read_cannot_hold_up_the_time_limit(here: Path, start: Start, mark: str) -> None:
    """Slow: a real pipe is full when a real limit passes."""
    noise = 'run "seq 100000"; ' * 4
    begun = time.monotonic()
    program = start("--json", "--timeout", "1.5", "--save", "t.json", f'{noise}run "sleep {mark}"')
    program.wait(10)
    assert 1.5 < time.monotonic() - begun < 6
    assert program.returncode == 124
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))
    _, complaint = program.communicate()
    assert complaint == b"trio-agent: the run was ended by --timeout 1.5\n"


def test_output_that_cannot_be_written_is_one_clear_line(here: Path, start: Start) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        program = start("read hello.txt", stdout=full)
        _, complaint = program.communicate(timeout=10)
    assert (program.returncode, complaint) == (1, b"trio-agent: cannot write the output: No space left on device\n")


def test_closed_standard_streams(here: Path) -> None:
    shell = " ".join(map(str, PROGRAM))
    for command, code in ((f"{shell} 'read hello.txt' >&-", 0), (f"{shell} - <&-", 2)):
        done = subprocess.run(["/bin/sh", "-c", command], env=ENVIRONMENT, capture_output=True, check=False)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


# ------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--resume", "missing.json", "x"], "trio-agent: cannot resume from missing.json: No such file or directory"),
        (["--resume", "hello.txt", "x"], "trio-agent: cannot resume from hello.txt: it is no JSON"),
        (["--resume", ".", "x"], "trio-agent: cannot resume from .: Is a directory"),
        (["--save", "missing/t.json", "x"], "trio-agent: cannot save to missing/t.json: No such file or directory"),
        (["--save", "/dev/null", "x"], "trio-agent: cannot save to /dev/null: it is no regular file"),
        (["--root", "missing", "x"], "trio-agent: Invalid value for '--root'"),
        (["--max-parallel", "0", "x"], "trio-agent: Invalid value for '--max-parallel'"),
        (["--no-such-option", "x"], "trio-agent: No such option"),
        ([], "trio-agent: Missing argument 'PROMPT'"),
    ],
)
def test_wrong_usage_is_one_clear_line(here: Path, arguments: list[str], text: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1


def test_a_transcript_that_cannot_be_saved_at_the_end(here: Path) -> None:
    (here / "sub").mkdir()
    done = run("--save", "sub/t.json", 'run "rmdir sub"')
    assert done.returncode == 1
    assert done.stderr == "trio-agent: cannot save to sub/t.json: No such file or directory\n"
    assert "[exit status 0]" in done.stdout


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_one_clear_line(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['trio-agent', 'run', 'x']; "
        "from trio_agent.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, check=False)
    if missing == "click":
        assert done.returncode == 1
        assert done.stderr.decode().splitlines() == [
            "trio-agent: the command line needs click; install it with: pip install 'trio_agent[cli]'"
        ]
    else:
        assert done.returncode == 0  # a pipe needs no rich


# ----------------------------------------------------------------- terminal


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.fd, inside = pty.openpty()
        self.program = subprocess.Popen(
            ["setsid", "--ctty", *PROGRAM, *arguments],  # the terminal controls it: keys are signals
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**ENVIRONMENT, "TERM": "xterm-256color", **environment},
        )
        os.close(inside)
        self.text = ""

    def read_to(self, text: str = "", since: int = 0) -> str:
        """What has been shown, up to and with a text that comes behind a place, or to the end."""
        while not text or text not in self.text[since:]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode()
        return self.text


def program_in(pid: int) -> int:
    """setsid forks only where it must; the program is itself, or its only child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    return int(children[0]) if name == "setsid" and children else pid


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(*arguments: str, **environment: str) -> Terminal:
        opened.append(Terminal(*arguments, **environment))
        return opened[-1]

    yield make
    for one in opened:
        one.program.kill()
        one.program.wait()
        os.close(one.fd)


def test_a_terminal_shows_the_tools(here: Path, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("read hello.txt; run \"printf '\\033[2J'; exit 3\"", NO_COLOR="1")
    text = screen.read_to()
    assert screen.program.wait(10) == 0
    assert re.search(r"✓ .*read_file.* 0\.\d s  hello\.txt", text)
    assert re.search(r"✗ .*run_command.* 0\.\d s  printf '\\033\[2J'; exit 3", text)
    assert "\\x1b[2J" in text
    assert "\x1b[2J" not in text
    assert re.search(r"2 turns · 2 calls \(1 failed\) · \d\.\d s", text)


@pytest.mark.slow
def test_a_terminal_shows_progress_at_any_size(here: Path, terminal: Callable[..., Terminal]) -> None:
    """Slow: a real command tells its progress, while a real window is resized."""
    screen = terminal('run "for i in 1 2 3 4 5 6 7 8; do echo step $i; sleep 0.2; done"; ' * 30)
    screen.read_to("step 1")
    for columns, lines in ((40, 12), (200, 50), (10, 3), (1, 1), (80, 24)):
        fcntl.ioctl(screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a slow machine: it is over already
            os.kill(program_in(screen.program.pid), signal.SIGWINCH)
        screen.read_to("step", len(screen.text))
    text = screen.read_to()
    assert (screen.program.wait(10), "Traceback" in text) == (0, False)
    assert "30 calls" in text


def test_a_dumb_terminal_is_sent_no_cursor_codes(here: Path, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("read hello.txt; run \"printf 'x'\"", TERM="dumb")
    text = screen.read_to()
    assert screen.program.wait(10) == 0
    assert "\x1b" not in text
    assert "✓ read_file" in text


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_leave_the_screen_in_order(
    here: Path, mark: str, terminal: Callable[..., Terminal], number: signal.Signals, code: int
) -> None:
    """Slow: real signals to real processes, whose table is on a real terminal."""
    screen = terminal("--save", "t.json", f'run "echo begun; sleep {mark}"')
    screen.read_to("begun")
    until(lambda: sleeping(mark))
    os.kill(program_in(screen.program.pid), number)
    text = screen.read_to()
    assert screen.program.wait(10) == code
    assert text.rstrip().endswith(f"trio-agent: interrupted by {number.name}")
    assert "Traceback" not in text
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))


@pytest.mark.slow
def test_ctrl_c_on_a_terminal(here: Path, mark: str, terminal: Callable[..., Terminal]) -> None:
    """Slow: a real key press reaches a real process."""
    screen = terminal(f'run "sleep {mark}"')
    until(lambda: sleeping(mark))
    os.write(screen.fd, b"\x03")
    begun = time.monotonic()
    assert "interrupted by SIGINT" in screen.read_to()
    assert screen.program.wait(10) == 130
    assert time.monotonic() - begun < 1.5
    assert sleeping(mark) == []


@pytest.mark.slow
def test_a_closed_terminal_leaves_nothing_running(here: Path, mark: str, terminal: Callable[..., Terminal]) -> None:
    """Slow: a real terminal goes away under a real process."""
    screen = terminal("--save", "t.json", f'run "sleep {mark}"')
    until(lambda: sleeping(mark))
    os.close(screen.fd)
    screen.fd = os.open("/dev/null", os.O_RDONLY)
    assert screen.program.wait(10) == 129
    assert sleeping(mark) == []
    assert answered(load_transcript("t.json"))
