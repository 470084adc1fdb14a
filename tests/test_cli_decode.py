"""``trio-agent decode``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from decoding import sse

import trio_agent

ROOT = Path(trio_agent.__file__).parents[1]


def run(*args: object, stdin: bytes = b"") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "trio_agent", "decode", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CALL = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": "ä"}'}}
BODY = sse(
    chunk(reasoning="Hm."),
    chunk(content="Grüße"),
    chunk(tool_calls=[CALL]),
    chunk("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    done=True,
)
SHOWN = {
    "text": "Grüße",
    "thinking": "Hm.",
    "tool_calls": [{"id": "a", "name": "f", "arguments": {"x": "ä"}}],
    "stop_reason": "tool_use",
    "raw_stop_reason": "tool_calls",
    "usage": {"input": 3, "output": 4, "cache_read": 0, "cache_write": 0, "reasoning": None, "total_tokens": 7},
    "error": None,
}
CHAT = ("--api", "openai-chat")
MESSAGES = ("--api", "anthropic-messages")

pytestmark = pytest.mark.slow  # starts interpreters


@pytest.mark.parametrize("cut", [(), ("--cut", 1), ("--cut", 7), ("--cut", 100_000)])
def test_a_body_is_shown_however_it_is_cut(cut: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "body.txt"
    path.write_bytes(BODY)
    code, out, errors = run(*CHAT, *cut, path)
    assert (code, json.loads(out), errors) == (0, SHOWN, "")
    assert out.count("\n") == 1


def test_standard_input() -> None:
    code, out, _ = run(*CHAT, "-", stdin=BODY)
    assert (code, json.loads(out)) == (0, SHOWN)


def test_a_capture_is_read_with_its_status_and_headers(tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_text(json.dumps({"status": 200, "content_type": "text/event-stream", "body": BODY.decode()}))
    code, out, _ = run(*CHAT, path)
    assert (code, json.loads(out)) == (0, SHOWN)
    body = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    path.write_text(json.dumps({"status": 529, "headers": {"x-should-retry": "false"}, "body": body}))
    code, out, _ = run(*MESSAGES, path)
    message = "the server is overloaded or not ready (status 529): Overloaded"
    assert code == 1
    assert json.loads(out) == {
        "text": "",
        "thinking": "",
        "tool_calls": [],
        "stop_reason": "error",
        "raw_stop_reason": None,
        "usage": None,
        "error": {"kind": "overloaded", "message": message, "status": 529, "retryable": False},
    }


def test_an_answer_that_breaks_off_is_shown_with_its_error() -> None:
    body = sse(chunk(content="Once"), chunk(tool_calls=[{**CALL, "function": {"name": "f", "arguments": '{"x": "ab'}}]))
    code, out, errors = run(*CHAT, "-", stdin=body)
    shown = json.loads(out)
    assert (code, errors) == (1, "")
    assert (shown["text"], shown["stop_reason"]) == ("Once", "error")
    assert shown["tool_calls"] == [{"id": "a", "name": "f", "arguments": {"x": "ab"}}]
    assert (shown["error"]["kind"], shown["error"]["retryable"]) == ("transport", True)


def test_arguments_that_are_no_object_are_shown_as_they_came() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": "[1"}}
    code, out, _ = run(*CHAT, "-", stdin=sse(chunk(tool_calls=[call]), chunk("stop"), done=True))
    assert (code, json.loads(out)["tool_calls"]) == (0, [{"id": "a", "name": "f", "arguments": "[1"}])


def test_a_server_that_never_says_why_it_ended() -> None:
    body = sse(chunk(content="x"), done=True)
    assert run(*CHAT, "-", stdin=body)[0] == 1
    code, out, _ = run(*CHAT, "--no-finish-reason", "-", stdin=body)
    assert (code, json.loads(out)["stop_reason"]) == (0, "stop")


def test_a_bare_document_is_a_body() -> None:
    document = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    code, out, _ = run(*CHAT, "-", stdin=json.dumps(document).encode())
    assert (code, json.loads(out)["text"]) == (0, "Hi")
    code, out, _ = run(*CHAT, "-", stdin=b'{"error": {"message": "no", "code": 401}}')
    assert (code, json.loads(out)["error"]["kind"]) == (1, "authentication")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    code, out, errors = run(*CHAT, missing)
    assert (code, out) == (2, "")
    remedy = "name a file that holds a recorded response"
    assert errors == f"trio-agent: {missing}: No such file or directory; {remedy}\n"
    assert run(*CHAT, tmp_path)[0] == 2
    odd = tmp_path / "odd.json"
    odd.write_text('{"status": "200", "body": []}')
    code, out, errors = run(*CHAT, odd)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"trio-agent: {odd}: 'body' must be a string")


@pytest.mark.parametrize(
    "args",
    [["-"], ["--api", "nonsense", "-"], [*CHAT], [*CHAT, "--cut", "0", "-"], [*MESSAGES, "--no-finish-reason", "-"]],
)
def test_wrong_usage(args: list[str]) -> None:
    code, out, errors = run(*args)
    assert (code, out) == (2, "")
    assert errors.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "trio_agent", "decode", *CHAT, "-"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=ROOT, input=BODY, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
