"""The parts of the command line that write: standard output, views, transcripts in files."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from trio_agent import (
    AgentEvent,
    AgentMessage,
    AgentStart,
    AssistantMessage,
    FormatError,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from trio_agent.cli._output import Output, without_controls
from trio_agent.cli._transcripts import check_writable, json_text, load_transcript, save_transcript
from trio_agent.cli._view import JsonView, PlainView, View

# ------------------------------------------------------------------- output


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            pass


def never() -> None:
    raise AssertionError("the output is open")


@pytest.mark.slow
async def test_a_slow_reader_holds_up_the_writer_and_nobody_else(pipe: tuple[int, int]) -> None:
    """Slow: a real pipe, whose reader sleeps for real."""
    read, write = pipe
    data = bytes(range(256)) * 2000
    got = bytearray()
    beats = 0
    all_read = trio.Event()

    async def reader() -> None:
        await trio.sleep(0.2)
        while len(got) < len(data):
            await trio.lowlevel.wait_readable(read)
            got.extend(os.read(read, 65536))
        all_read.set()

    async def heartbeat() -> None:
        nonlocal beats
        while True:
            await trio.sleep(0.01)
            beats += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        nursery.start_soon(heartbeat)
        await Output(write, never).write(data)
        assert beats > 10
        await all_read.wait()
        nursery.cancel_scope.cancel(reason="all is read")
    assert got == data


@pytest.mark.slow
async def test_a_reader_that_does_not_read_is_given_up_in_a_hurry(pipe: tuple[int, int]) -> None:
    """Slow: a real tenth of a second passes."""
    output = Output(pipe[1], never)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.write, b"x" * 1_000_000)
        await trio.testing.wait_all_tasks_blocked()
        output.hurry(0.1)
    assert output.closed
    assert trio.current_time() - start < 0.5
    await output.write(b"more")  # returns at once


async def test_in_a_hurry_a_reader_that_reads_still_gets_all(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], never)
    output.hurry(0.05)
    await output.write(b"last words")
    assert os.read(pipe[0], 100) == b"last words"
    assert not output.closed


async def test_what_a_cancellation_left_goes_ahead_of_the_next(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], never)
    data = b"".join(b"%07d\n" % number for number in range(30_000))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.write, data)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel(reason="the test")
    got = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.write, b"end\n")
        while not got.endswith(b"end\n"):
            await trio.lowlevel.wait_readable(pipe[0])
            got += os.read(pipe[0], 65536)
    assert got == data + b"end\n"


async def test_two_writers_at_once_take_turns(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], never)
    got = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.write, b"a" * 200_000)
        await trio.testing.wait_all_tasks_blocked()
        assert output.busy
        nursery.start_soon(output.write, b"b" * 10)
        while len(got) < 200_010:
            await trio.lowlevel.wait_readable(pipe[0])
            got += os.read(pipe[0], 65536)
    assert got == b"a" * 200_000 + b"b" * 10
    assert not output.busy


async def test_a_reader_that_went_away_is_reported_once(pipe: tuple[int, int]) -> None:
    reports: list[None] = []
    output = Output(pipe[1], lambda: reports.append(None))
    os.close(pipe[0])
    for _ in range(3):
        await output.write(b"x")
    assert (len(reports), output.closed, output.error) == (1, True, None)


async def test_a_full_disk_is_an_error() -> None:
    reports: list[None] = []
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        output = Output(fd, lambda: reports.append(None))
        await output.write(b"x")
    finally:
        os.close(fd)
    assert len(reports) == 1
    assert output.error is not None
    assert output.error.errno == errno.ENOSPC


async def test_files_and_devices_are_written_too(tmp_path: Path) -> None:
    for path in (tmp_path / "file", Path("/dev/null")):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            await Output(fd, never).write(b"x" * 10_000)
        finally:
            os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"x" * 10_000


async def test_without_standard_output_nothing_is_written() -> None:
    await Output(None, never).write(b"x")


# -------------------------------------------------------------------- views


def answer_events(text: str) -> Iterator[AgentEvent]:
    builder = MessageBuilder()
    yield MessageStart(builder.start().partial)
    yield MessageUpdate(builder.text_start())
    for character in text:
        yield MessageUpdate(builder.text_delta(character))
    yield MessageUpdate(builder.text_end())
    yield MessageEnd(builder.finish("stop"))


def shown(view: View, *events: AgentEvent) -> str:
    return b"".join(map(view.show, events)).decode()


def test_plain_text_is_what_the_model_says_with_an_end_of_line() -> None:
    view = PlainView()
    events = [*answer_events("one"), *answer_events("two\n"), *answer_events("")]
    assert shown(view, MessageStart(UserMessage("hi")), MessageEnd(UserMessage("hi")), *events) == "one\ntwo\n"


def test_an_answer_that_came_whole_is_shown_too() -> None:
    assert shown(PlainView(), MessageEnd(AssistantMessage((), stop_reason="error"))) == ""
    whole = MessageBuilder()
    whole.text_start()
    whole.text_delta("all at once")
    assert shown(PlainView(), MessageEnd(whole.finish("stop"))) == "all at once\n"


def test_no_control_code_of_a_model_reaches_the_output() -> None:
    text = "a\x1b[31mred\x07\r\x9b2J\x7f\x00 \ttab\nline é \udc80"
    out = shown(PlainView(), *answer_events(text))
    assert out == "a\\x1b[31mred\\x07\\x0d\\x9b2J\\x7f\\x00 \ttab\nline é \\udc80\n"


def test_json_is_one_ascii_line_for_each_event() -> None:
    view = JsonView()
    data = view.show(MessageStart(UserMessage("é \u2028 \udc80 \n")))
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert json.loads(data)["message"]["content"][0]["text"] == "é \u2028 \udc80 \n"
    assert view.show(AgentStart()) == b'{"type": "agent_start"}\n'


def test_json_is_json_whatever_a_tool_put_into_its_details() -> None:
    value = {"a": [float("nan"), 1.5], "b": float("inf"), "c": Path("x"), "d": (1,)}
    assert json.loads(json_text(value)) == {"a": [None, 1.5], "b": None, "c": "PosixPath('x')", "d": [1]}


def test_controls_but_tabs_and_newlines_are_written_out() -> None:
    assert without_controls("\x00\t\n\x0b\x1f ~\x7f\x80\x9f\xa0") == "\\x00\t\n\\x0b\\x1f ~\\x7f\\x80\\x9f\xa0"


# -------------------------------------------------------------- transcripts

MESSAGES: list[AgentMessage] = [
    UserMessage("hi \udc80 é", timestamp=1),
    AssistantMessage((ToolCall("c1", "t", {}),), stop_reason="tool_use", timestamp=2),
    ToolResultMessage("c1", "t", "done", details={"a": None}, timestamp=3),
]


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_a_transcript_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    save_transcript(path, MESSAGES)
    assert load_transcript(path) == MESSAGES
    assert names(tmp_path) == ["t.json"]


def test_a_call_without_a_result_gets_one_when_it_is_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "t.json")
    save_transcript(path, MESSAGES[:2])
    (*_, result) = load_transcript(path)
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_call_id, result.is_error) == ("c1", True)


def test_the_old_file_stays_whole_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text("old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_transcript(str(path), MESSAGES)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["t.json"]


def test_the_mode_of_the_old_file_is_kept_and_a_link_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("old")
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to("t.json")
    save_transcript(str(link), MESSAGES)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert load_transcript(str(path)) == MESSAGES


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/dev/null", "it is no regular file"),
        (".", "it is no regular file"),
        ("", "it is no regular file"),
        ("missing/t.json", "No such file or directory"),
        ("file/t.json", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_where_nothing_can_be_saved_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=text):
        check_writable(path)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is no JSON"),
        (b"{", "it is no JSON"),
        (b"\xff\xfe\xfd", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "this is no transcript"),
        (b'{"format": "trio_agent/transcript", "version": 99, "messages": []}', "version 99"),
        (b'{"format": "trio_agent/transcript", "version": 1, "messages": [{"role": "x"}]}', r"messages\[0\]"),
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(FormatError, match=text):
        load_transcript(str(tmp_path / "t.json"))
