"""``trio-agent run --model``: a model over HTTP, on loopback, from a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import network
import pytest
import trio
from network import Received, Reply, chat_answer, chat_call, chunk

from trio_agent.cli._transcripts import load_transcript
from trio_agent.testing import assert_transcript_valid

CLEAN = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}


async def run(*words: str, cwd: Path, environment: Mapping[str, str] = CLEAN) -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        [sys.executable, "-W", "error", "-m", "trio_agent", "run", "--no-config", *words],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=cwd,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def reading(request: Received, reply: Reply) -> None:
    """Ask for a file, then say that it was read."""
    asked = request.json()["messages"]
    await reply.start()
    if asked[-1]["role"] == "tool":
        await reply.events(*chat_answer(f"It says: {asked[-1]['content'].splitlines()[0]}"))
    else:
        await reply.events(*chat_call("c1", "read_file", {"path": "note.txt"}))
    await reply.finish()


async def test_a_prompt_is_answered_by_the_server_at_the_base_url(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("buy milk", "utf-8")
    async with network.serving(reading) as (server, url):
        done = await run("--model", "m", "--base-url", url, "--thinking", "low", "What is to do?", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "It says: buy milk" in done.stdout.decode()
    assert server.received[0].json()["reasoning_effort"] == "low"
    assert "authorization" not in server.received[0].headers


async def test_the_key_goes_to_a_base_url_that_is_named_with_its_vendor(tmp_path: Path) -> None:
    environment = {**CLEAN, "GROQ_API_KEY": "gsk_0123456789", "OPENAI_API_KEY": "sk-0123456789"}
    async with network.serving(network.answer) as (server, url):
        for model in ("groq:m", "m:8b"):
            done = await run("--model", model, "--base-url", url, "Hi.", cwd=tmp_path, environment=environment)
            assert done.returncode == 0, done.stderr
    first, second = server.received
    assert (first.headers["authorization"], first.json()["model"]) == ("Bearer gsk_0123456789", "m")
    assert ("authorization" in second.headers, second.json()["model"]) == (False, "m:8b")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--model", "opnai:m"], 2, "did you mean openai:m?"),
        (["--model", "m"], 2, "there is no vendor 'm'"),
        (["--base-url", "http://127.0.0.1:1"], 2, "--base-url goes with --model"),
        (["--model", "m", "--base-url", "nowhere"], 2, "the base URL is 'nowhere'"),
        (["--thinking", "hard", "--model", "openai:m"], 2, "'hard' is not one of"),
        (["--model", "openai:m"], 1, "set OPENAI_API_KEY"),
    ],
)
async def test_what_cannot_be_is_said_in_one_line(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = await run(*words, "Hi.", cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


async def test_model_and_server_may_stand_in_the_configuration(tmp_path: Path) -> None:
    async with network.serving(network.answer) as (server, url):
        config = tmp_path / "trio-agent" / "config.toml"
        config.parent.mkdir()
        config.write_text(f'model = "m"\nbase-url = "{url}"\nthinking = "high"\n', "utf-8")
        done = await trio.run_process(
            [sys.executable, "-m", "trio_agent", "run", "Hi."],
            capture_stdout=True,
            cwd=tmp_path,
            env={**CLEAN, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert b"Hello." in done.stdout
        assert server.received[0].json()["reasoning_effort"] == "high"


async def test_an_interrupt_in_the_middle_of_an_answer_and_going_on_from_the_transcript(tmp_path: Path) -> None:
    streaming = trio.Event()

    async def script(request: Received, reply: Reply) -> None:
        if streaming.is_set():
            await network.answer(request, reply)
            return
        await reply.start()
        await reply.events(chunk({"content": "Once upon a time"}))
        streaming.set()
        await trio.sleep_forever()

    saved = tmp_path / "talk.jsonl"
    async with network.serving(script) as (server, url), trio.open_nursery() as nursery:
        words = ["run", "--no-config", "--model", "m", "--base-url", url, "--save", str(saved), "Tell me a story."]
        process = await nursery.start(
            lambda task_status: trio.run_process(  # noqa: ASYNC105 - the nursery awaits it
                [sys.executable, "-u", "-m", "trio_agent", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                cwd=tmp_path,
                env={**CLEAN, "PYTHONPATH": os.pathsep.join(sys.path)},
                task_status=task_status,
            )
        )
        await streaming.wait()
        shown = b""
        while b"Once upon a time" not in shown:
            shown += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
        with trio.fail_after(10):
            assert await process.wait() == 130
        messages = load_transcript(str(saved))
        assert_transcript_valid(messages)
        assert messages[-1].text == "Once upon a time"  # type: ignore[union-attr]  # an answer
        done = await run("--model", "m", "--base-url", url, "--resume", str(saved), "Go on.", cwd=tmp_path)
        assert done.returncode == 0
        texts = [(each["role"], each["content"]) for each in server.received[-1].json()["messages"]]
        assert texts == [("user", "Tell me a story."), ("assistant", "Once upon a time"), ("user", "Go on.")]
        nursery.cancel_scope.cancel(reason="the test is over")
