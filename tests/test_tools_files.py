"""read_file: what it shows, and what it refuses."""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from trio_agent import ImageContent, TextContent, Tool, ToolCall, ToolResult, run_tool_call
from trio_agent.tools import read_file


async def call(tool: Tool, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, arguments), tools=[tool])).result


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "base"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "baseless").mkdir()
    (tmp_path / "baseless" / "near.txt").write_text("secret")
    (inside / "dir").mkdir()
    (inside / "dir" / "deep.txt").write_text("deep\n")
    (inside / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    return inside


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        pytest.param(b"one\ntwo\n", {}, "one\ntwo\n", id="whole"),
        pytest.param(b"one\ntwo", {}, "one\ntwo", id="no end of line"),
        pytest.param(b"one\ntwo\nthree\n", {"offset": 2}, "two\nthree\n", id="from a line on"),
        pytest.param(
            b"one\ntwo\nthree\n",
            {"offset": 2, "limit": 1},
            "two\n[lines 2 to 2 are shown; go on with offset 3]",
            id="one line of many",
        ),
        pytest.param(b"one\ntwo\n", {"limit": 2}, "one\ntwo\n", id="a limit that fits needs no note"),
        pytest.param(b"one\ntwo\n", {"limit": 99}, "one\ntwo\n", id="a limit beyond the end"),
        pytest.param(b"", {}, "[f is empty]", id="empty"),
        pytest.param(b"\n", {}, "\n", id="one empty line"),
        pytest.param(b"a\r\nb\r\n", {}, "a\r\nb\r\n", id="line ends are kept"),
        pytest.param("\ufeffé\n".encode(), {}, "é\n", id="without the byte order mark"),
        pytest.param("a\u2028b\x0cc\n".encode(), {"limit": 1}, "a\u2028b\x0cc\n", id="only newlines end lines"),
        pytest.param(
            b"1\n2\n3\n4\n5\n6\n", {}, "1\n2\n3\n4\n5\n[lines 1 to 5 are shown; go on with offset 6]", id="many lines"
        ),
        pytest.param(
            b"x" * 20 + b"\n" + b"y" * 20,
            {},
            "x" * 20 + "\n[lines 1 to 1 are shown; go on with offset 2]",
            id="the bytes end between lines",
        ),
        pytest.param(
            "xé".encode() * 20,
            {},
            "xé" * 10 + "\n[line 1 is longer than 30 bytes; only its beginning is shown]",
            id="a long line",
        ),
        pytest.param(
            b"a" + "é".encode() * 20,
            {},
            "a" + "é" * 14 + "\n[line 1 is longer than 30 bytes; only its beginning is shown]",
            id="a long line that is cut in a character",
        ),
        pytest.param(b"a\n" * 3 + b"\xff", {"limit": 2}, None, id="only what is shown is decoded"),
    ],
)
async def test_what_is_shown(root: Path, content: bytes, arguments: dict[str, int], shown: str | None) -> None:
    (root / "f").write_bytes(content)
    result = await call(read_file(root, max_lines=5, max_bytes=30), path="f", **arguments)
    assert not result.is_error
    if shown is not None:
        assert result.text == shown


async def test_going_on_with_the_offsets_gives_the_whole_file(root: Path) -> None:
    lines = [f"line {number} " + "é" * (number % 9) for number in range(100)]
    (root / "f").write_text("\n".join(lines))
    tool = read_file(root, max_lines=7, max_bytes=90)
    offset = 1
    read = ""
    while True:
        result = await call(tool, path="f", offset=offset)
        assert len(result.text.encode()) < 90 + 60
        text, _, note = result.text.rpartition("[lines ")
        read += text or note
        if not text:
            break
        offset = int(note.rpartition(" ")[2].rstrip("]"))
    assert read == "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        pytest.param(b"one\ntwo", {}, "1\tone\n2\ttwo", id="whole"),
        pytest.param(
            b"1\n2\n3\n", {"offset": 2, "limit": 1}, "2\t2\n[lines 2 to 2 are shown; go on with offset 3]", id="range"
        ),
        pytest.param("a\u2028b\x0c\r\nc".encode(), {}, "1\ta\u2028b\x0c\r\n2\tc", id="only newlines end lines"),
        pytest.param(b"\n\n", {}, "1\t\n2\t\n", id="empty lines"),
        pytest.param(b"", {}, "[f is empty]", id="empty"),
    ],
)
async def test_line_numbers(root: Path, content: bytes, arguments: dict[str, int], shown: str) -> None:
    (root / "f").write_bytes(content)
    assert (await call(read_file(root), path="f", line_numbers=True, **arguments)).text == shown


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        pytest.param(PNG, "image/png", id="png"),
        pytest.param(b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg", id="jpeg"),
        pytest.param(b"GIF89a\x01\0\x01\0", "image/gif", id="gif"),
        pytest.param(b"GIF87a\x01\0\x01\0", "image/gif", id="old gif"),
        pytest.param(b"RIFF\x1a\0\0\0WEBPVP8 ", "image/webp", id="webp"),
    ],
)
async def test_images_come_as_images_whatever_they_are_called(root: Path, data: bytes, kind: str) -> None:
    (root / "picture.txt").write_bytes(data)
    result = await call(read_file(root), path="picture.txt", offset=7, line_numbers=True)
    assert not result.is_error
    assert result.content == (
        TextContent(f"[picture.txt: {kind}, {len(data)} bytes]"),
        ImageContent(base64.b64encode(data).decode(), kind),
    )


@pytest.mark.parametrize(
    ("data", "limit", "message"),
    [
        pytest.param(
            PNG + b"x" * 100, 99, "is an image (image/png) of 116 bytes; more than 99 are not shown", id="big"
        ),
        pytest.param(PNG, 0, "holds binary data", id="images not wanted"),
        pytest.param(b"RIFF\x1a\0\0\0WAVEfmt ", 99, "holds binary data", id="sound"),
        pytest.param(b"\x89PNG\0", 99, "holds binary data", id="half a mark"),
        pytest.param(b"%PDF-1.7\0", 99, "holds binary data", id="pdf"),
    ],
)
async def test_images_that_are_not_shown(root: Path, data: bytes, limit: int, message: str) -> None:
    (root / "f").write_bytes(data)
    result = await call(read_file(root, max_image_bytes=limit), path="f")
    assert (result.is_error, message in result.text) == (True, True)
    assert all(isinstance(block, TextContent) for block in result.content)


async def test_text_that_begins_like_an_image_is_text(root: Path) -> None:
    (root / "f").write_text("GIF89a is a format\n")
    assert (await call(read_file(root), path="f")).text == "GIF89a is a format\n"


def make_fifo(root: Path) -> None:
    os.mkfifo(root / "odd")


def make_socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(root)  # the path of a socket is short
        try:
            server.bind("odd")
        finally:
            os.chdir(here)


def link(target: str) -> Callable[[Path], None]:
    return lambda root: (root / "odd").symlink_to(target)


def open_and_write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def content(data: bytes) -> Callable[[Path], None]:
    return lambda root: open_and_write(root / "odd", data)


def loop(root: Path) -> None:
    (root / "odd").symlink_to("other")
    (root / "other").symlink_to("odd")


def deep(root: Path) -> None:
    here = root
    for _ in range(300):
        here = here / "d"
        here.mkdir()


def nothing(root: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "path", "text"),
    [
        pytest.param(nothing, "missing.txt", "there is no missing.txt", id="missing"),
        pytest.param(nothing, "dir", "dir is a directory, not a file", id="directory"),
        pytest.param(nothing, ".", ". is a directory", id="the root itself"),
        pytest.param(nothing, "", "'' is a directory", id="no path"),
        pytest.param(nothing, "a.txt/x", "goes through something that is no directory", id="below a file"),
        pytest.param(nothing, "../secret.txt", "lies outside of the root", id="parent"),
        pytest.param(nothing, "dir/../../secret.txt", "lies outside of the root", id="parent in the middle"),
        pytest.param(nothing, "../base/../secret.txt", "lies outside of the root", id="out and in and out"),
        pytest.param(nothing, "/etc/passwd", "lies outside of the root", id="absolute"),
        pytest.param(nothing, "{root}less/near.txt", "lies outside of the root", id="a name that begins alike"),
        pytest.param(nothing, "{root}/../secret.txt", "lies outside of the root", id="absolute and out"),
        pytest.param(link("../secret.txt"), "odd", "lies outside of the root", id="link out"),
        pytest.param(link("/etc/passwd"), "odd", "lies outside of the root", id="absolute link out"),
        pytest.param(link(".."), "odd/secret.txt", "lies outside of the root", id="link to the parent"),
        pytest.param(link("/"), "odd/etc/passwd", "lies outside of the root", id="link to /"),
        pytest.param(link("dir/../../secret.txt"), "odd", "lies outside of the root", id="long way out"),
        pytest.param(link("gone"), "odd", "there is no odd", id="dangling link"),
        pytest.param(link("/dev/zero"), "odd", "lies outside of the root", id="link to a device"),
        pytest.param(loop, "odd", "too many symbolic links", id="loop of links"),
        pytest.param(make_fifo, "odd", "odd is a FIFO, not a file", id="FIFO that nobody writes"),
        pytest.param(make_socket, "odd", "odd is no regular file", id="socket"),
        pytest.param(content(b"a\0b"), "odd", "odd is no text file: it holds binary data (3 bytes)", id="binary"),
        pytest.param(content(b"ok\nb\xffd\n"), "odd", "odd is not text in UTF-8: byte 0xff in line 2", id="latin 1"),
        pytest.param(content("é".encode("utf-16")), "odd", "holds binary data (4 bytes)", id="utf-16"),
        pytest.param(nothing, "a\0b", "is no possible path", id="NUL"),
        pytest.param(nothing, "a\ud800b", "is no possible path", id="lone surrogate"),
        pytest.param(nothing, "no\nline: ok", r"there is no no\nline: ok", id="a path that would be two lines"),
        pytest.param(nothing, "x" * 300, "x... is too long", id="long name"),
        pytest.param(deep, "d/" * 300 + "x", "d... is too long", id="deep path"),
    ],
)
async def test_what_is_refused_with_a_clear_text(
    root: Path, make: Callable[[Path], None], path: str, text: str
) -> None:
    make(root)
    with trio.fail_after(5):
        result = await call(read_file(root), path=path.replace("{root}", str(root)))
    assert result.is_error
    assert text in result.text
    assert "secret" not in result.text.replace("secret.txt", "")
    assert "\n" not in result.text


@pytest.mark.parametrize(
    "path",
    [
        "dir/deep.txt",
        "./dir//./deep.txt",
        "dir/../dir/deep.txt",
        "{root}/dir/deep.txt",
        "to_dir/deep.txt",
        "dir/up/dir/deep.txt",
        "absolute",
        "chain",
    ],
)
async def test_paths_and_links_that_stay_inside_work(root: Path, path: str) -> None:
    (root / "to_dir").symlink_to("dir")
    (root / "dir" / "up").symlink_to("..")
    (root / "absolute").symlink_to(root / "dir" / "deep.txt")
    (root / "chain").symlink_to("to_dir/up/absolute")
    result = await call(read_file(root), path=path.replace("{root}", str(root)))
    assert (result.is_error, result.text) == (False, "deep\n")


async def test_a_root_behind_a_link_is_the_hosts_own_choice(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    assert (await call(read_file(alias), path="dir/deep.txt")).text == "deep\n"


def test_a_root_that_is_no_directory_is_refused_at_once(root: Path) -> None:
    for path in (root / "a.txt", root / "missing"):
        with pytest.raises(NotADirectoryError):
            read_file(path)


async def test_a_file_that_may_not_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a.txt":
            raise PermissionError(13, "Permission denied")
        return original(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)  # the tests may run as root, whom nothing is forbidden
    result = await call(read_file(root), path="a.txt")
    assert (result.is_error, result.text) == (True, "no permission to open a.txt")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
async def test_a_device_below_the_root(root: Path) -> None:
    os.mknod(root / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    result = await call(read_file(root), path="zero")
    assert (result.is_error, result.text) == (True, "zero is a device, not a file")


async def test_a_directory_that_is_moved_away_during_the_walk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.open

    def swap(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = original(path, flags, mode, dir_fd=dir_fd)
        if path == "dir":
            (root / "dir").rename(root.parent / "moved")
            (root / "dir").symlink_to(root.parent)
        return fd

    (root.parent / "deep.txt").write_text("secret")
    monkeypatch.setattr(os, "open", swap)
    # What was opened is read; what now lies at its place is not looked at. And ".." is where the
    # walk came from, not the parent that the directory has by now.
    assert (await call(read_file(root), path="dir/deep.txt")).text == "deep\n"
    (root / "dir").unlink()
    (root.parent / "moved").rename(root / "dir")
    assert (await call(read_file(root), path="dir/../a.txt")).text.startswith("one\n")


@pytest.mark.slow
async def test_a_link_that_changes_all_the_time_never_leads_out(root: Path) -> None:
    """Slow: it races against a real thread for half a second."""
    (root / "flip").mkdir()
    (root / "flip" / "f").write_text("inside")
    (root.parent / "f").write_text("secret")
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            (root / "flip").rename(root / "away")
            (root / "flip").symlink_to("..")
            (root / "flip").unlink()
            (root / "away").rename(root / "flip")

    thread = threading.Thread(target=flip)
    thread.start()
    seen = set()
    tool = read_file(root)
    try:
        with trio.move_on_after(0.5):
            while True:
                seen.add((await call(tool, path="flip/f")).text)
    finally:
        stop.set()
        thread.join()
    assert "secret" not in seen
    assert "inside" in seen
    assert any("outside" in text for text in seen)


async def test_no_descriptor_is_left_open(root: Path) -> None:
    (root / "out").symlink_to("../secret.txt")
    (root / "to_dir").symlink_to(root / "dir")
    os.mkfifo(root / "fifo")
    tool = read_file(root)
    await call(tool, path="a.txt")
    before = descriptors()
    for path in ("a.txt", "missing", "dir", "out", "fifo", "dir/../../x", "to_dir/deep.txt", "a.txt/x", "a\0"):
        await call(tool, path=path)
    assert descriptors() == before


@pytest.mark.slow
async def test_looking_for_a_far_line_ends_with_a_cancellation(root: Path) -> None:
    """Slow: a worker thread reads a real file of 20 million lines for some tenths of a second."""
    with (root / "long").open("wb") as file:
        for _ in range(20):
            file.write(b"\n" * 1_000_000)
    start = trio.current_time()
    with trio.move_on_after(0.1) as scope:
        await call(read_file(root), path="long", offset=10**9)
    assert scope.cancelled_caught
    assert trio.current_time() - start < 0.5


async def test_an_offset_behind_the_end_says_how_many_lines_there_are(root: Path) -> None:
    tool = read_file(root)
    for offset in (5, 6, 1000):
        result = await call(tool, path="a.txt", offset=offset)
        assert result.is_error
        assert result.text == f"a.txt has only 4 lines; offset is {offset}"
    assert (await call(tool, path="a.txt", offset=0)).error_kind == "invalid_arguments"


def test_the_limits_stand_in_the_description(root: Path) -> None:
    tool = read_file(root, name="look", max_lines=1234, max_bytes=5678)
    assert tool.name == "look"
    assert "1,234 lines" in tool.description
    assert "5,678 bytes" in tool.description
    assert sorted(tool.parameters["properties"]) == ["limit", "line_numbers", "offset", "path"]
    assert tool.parameters["required"] == ["path"]
