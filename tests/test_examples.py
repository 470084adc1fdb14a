"""The examples of the documentation, run as a reader runs them."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.fspath(ROOT), "PYTHONUNBUFFERED": "1"}

pytestmark = pytest.mark.slow  # each starts an interpreter and sleeps for real, as for its reader


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        cwd=EXAMPLES,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_says_what_it_shows_stands_on_the_page_and_is_short() -> None:
    page = (EXAMPLES / "index.md").read_text("utf-8")
    files = sorted(EXAMPLES.glob("*.py"))
    assert sorted(re.findall(r"{literalinclude} (\S+)", page)) == [path.name for path in files]
    for path in files:
        source = path.read_text("utf-8")
        assert ast.get_docstring(ast.parse(source)), path.name
        assert len(source.splitlines()) <= 95, path.name


def test_the_script_prints_progress_and_the_answer() -> None:
    lines = run("script.py").splitlines()
    assert lines[0].startswith("Let me look. [asking the station in ")
    assert lines[-1] == "It is 21.5 degrees in both."


def test_the_batch_answers_all_prompts_but_those_that_fail() -> None:
    lines = run("batch.py").splitlines()
    assert "100%" in lines[0]
    assert lines[-2:] == ["196 answered, failed: [50, 100, 150, 200]", "41 + 1 = 42"]


def test_the_supervisor_steers_the_agent() -> None:
    *seen, last = run("supervisor.py").splitlines()
    assert seen == ["supervisor: 50 trees so far", "supervisor: 90 trees so far"]
    # The message goes in before the next request; the request after the second field may have been made before it.
    assert re.fullmatch(r"agent: I stop after [23] of 4 fields, as you wish\.", last)


def test_the_asyncio_application_gets_answers_and_closes_the_run_that_it_cancels() -> None:
    assert run("asyncio_app.py").splitlines() == [
        "['I saw north.', 'I saw south.']",
        "far: no answer in time",
        "far: the run is closed, cancelled",
    ]


# ------------------------------------------------------------- the service


@contextmanager
def service() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "service.py"],
        cwd=EXAMPLES,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        word, port = process.stdout.readline().split()
        assert word == "port"
        yield process, int(port)
    finally:
        process.kill()
        process.communicate(timeout=10)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def test_the_service_keeps_a_conversation_for_each_connection() -> None:
    with service() as (process, port), connect(port) as one, connect(port) as other:
        mine, theirs = one.makefile("rw"), other.makefile("rw")
        for text in ("hello", "again"):
            mine.write(f"{text}\n")
            mine.flush()
        theirs.write("me too\n")
        theirs.flush()
        assert [mine.readline(), mine.readline(), theirs.readline()] == ["1. HELLO\n", "2. AGAIN\n", "1. ME TOO\n"]
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "stopped\n", "")


def test_sigterm_lets_the_service_finish_what_it_works_on_and_close_the_rest() -> None:
    with service() as (process, port), connect(port) as working, connect(port) as idle:
        working.sendall(b"first\nsecond\n")
        lines = working.makefile()
        assert lines.readline() == "1. FIRST\n"
        process.send_signal(signal.SIGTERM)  # the second prompt is being answered, or about to be
        assert lines.read() in {"2. SECOND\n", ""}
        assert idle.recv(100) == b""
        assert ended(process) == (0, "stopped\n", "")
        with pytest.raises(OSError, match="refused"):
            connect(port)


def test_the_service_outlives_clients_that_go_away_or_send_too_much() -> None:
    with service() as (process, port):
        with connect(port) as rude:
            rude.sendall(b"hello\n")
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets
        with connect(port) as endless:
            endless.sendall(b"x" * 20_000)
            assert endless.recv(100) == b""
        with connect(port) as polite:
            polite.sendall(b"hello\n")
            assert polite.makefile().readline() == "1. HELLO\n"
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "stopped\n", "")
