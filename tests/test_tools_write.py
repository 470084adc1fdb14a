"""write_file and edit_file: what they leave behind, whatever happens."""

from __future__ import annotations

import codecs
import os
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from trio_agent import Tool, ToolCall, ToolResult, run_tool_call
from trio_agent.tools import edit_file, write_file


async def call(tool: Tool, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, arguments), tools=[tool])).result


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def snapshot(top: Path) -> dict[str, object]:
    """All names below a directory with what they hold."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found[str(path.relative_to(top))] = path.read_bytes()
        else:
            found[str(path.relative_to(top))] = path.readlink() if stat.S_ISLNK(mode) else stat.S_IFMT(mode)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    (inside / "dir").mkdir(parents=True)
    (inside / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("secret")
    return inside


def nothing(root: Path) -> None:
    pass


def link(target: str) -> Callable[[Path], None]:
    return lambda root: (root / "odd").symlink_to(target)


def fifo(root: Path) -> None:
    os.mkfifo(root / "odd")


def loop(root: Path) -> None:
    (root / "odd").symlink_to("other")
    (root / "other").symlink_to("odd")


def text(data: bytes) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "odd").write_bytes(data)

    return make


# ------------------------------------------------------------------ write


@pytest.mark.parametrize(
    ("make", "path", "written"),
    [
        pytest.param(nothing, "new.txt", "new.txt", id="new"),
        pytest.param(nothing, "a.txt", "a.txt", id="in place of another"),
        pytest.param(nothing, "x/y/z/new.txt", "x/y/z/new.txt", id="with its directories"),
        pytest.param(nothing, "dir/../b.txt", "b.txt", id="dots inside"),
        pytest.param(nothing, "n/../m/./f", "m/f", id="dots behind a directory that is made"),
        pytest.param(nothing, "{root}/dir/f", "dir/f", id="absolute inside"),
        pytest.param(link("a.txt"), "odd", "a.txt", id="what a link leads to"),
        pytest.param(link("dir"), "odd/f", "dir/f", id="through a link to a directory"),
        pytest.param(link("dir/later"), "odd", "dir/later", id="what a dangling link leads to"),
    ],
)
async def test_what_is_written(root: Path, make: Callable[[Path], None], path: str, written: str) -> None:
    make(root)
    before = snapshot(root)
    result = await call(write_file(root), path=path.replace("{root}", str(root)), content="é\n")
    assert not result.is_error
    assert ("replaced" in result.text) == (written in before)
    after = snapshot(root)
    assert after.pop(written) == "é\n".encode()
    before.pop(written, None)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after if name.endswith(".tmp")]


REFUSED = [
    pytest.param(nothing, "../secret.txt", "lies outside of the root", id="parent"),
    pytest.param(nothing, "../new.txt", "lies outside of the root", id="new in the parent"),
    pytest.param(nothing, "x/../../new.txt", "lies outside of the root", id="out through a new directory"),
    pytest.param(nothing, "/tmp/trio_agent_new.txt", "lies outside of the root", id="absolute"),
    pytest.param(link("../secret.txt"), "odd", "lies outside of the root", id="link out"),
    pytest.param(link("../new.txt"), "odd", "lies outside of the root", id="dangling link out"),
    pytest.param(link(".."), "odd/secret.txt", "lies outside of the root", id="link to the parent"),
    pytest.param(link("/"), "odd/tmp/x", "lies outside of the root", id="link to /"),
    pytest.param(loop, "odd", "too many symbolic links", id="loop of links"),
    pytest.param(nothing, "dir", "dir is a directory, not a file", id="directory"),
    pytest.param(nothing, ".", ". is a directory", id="the root itself"),
    pytest.param(nothing, "", "'' is a directory", id="no path"),
    pytest.param(nothing, "dir/..", "is a directory", id="the root by a detour"),
    pytest.param(nothing, "a.txt/x", "goes through something that is no directory", id="below a file"),
    pytest.param(fifo, "odd", "odd is a FIFO, not a file", id="FIFO"),
    pytest.param(nothing, "a\0b", "is no possible path", id="NUL"),
    pytest.param(nothing, "a\ud800b", "is no possible path", id="lone surrogate"),
    pytest.param(nothing, "x" * 300, "x... is too long", id="long name"),
    pytest.param(nothing, "d/" * 300 + "x", "d... is too long", id="deep path"),
]


@pytest.mark.parametrize(("make", "path", "message"), REFUSED)
async def test_what_is_not_written(root: Path, make: Callable[[Path], None], path: str, message: str) -> None:
    make(root)
    before = {name: value for name, value in snapshot(root.parent).items() if value != stat.S_IFDIR}
    with trio.fail_after(5):
        result = await call(write_file(root), path=path, content="x")
    assert result.is_error
    assert message in result.text
    assert {name: value for name, value in snapshot(root.parent).items() if value != stat.S_IFDIR} == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("x" * 11, "the content for f has 11 bytes; more than 10 are not written", id="too long"),
        pytest.param("é" * 6, "12 bytes", id="bytes count, not characters"),
        pytest.param("ab\ud800", "holds '\\ud800' at character 3, which cannot be written", id="lone surrogate"),
    ],
)
async def test_content_that_is_refused(root: Path, content: str, message: str) -> None:
    result = await call(write_file(root, max_bytes=10), path="f", content=content)
    assert result.is_error
    assert message in result.text
    assert not (root / "f").exists()


async def test_the_permission_bits_are_kept_and_new_files_follow_the_umask(root: Path) -> None:
    (root / "a.txt").chmod(0o750)
    old = os.umask(0o027)
    try:
        await call(write_file(root), path="a.txt", content="x")
        await call(write_file(root), path="new", content="x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o750
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o640


async def test_another_name_of_the_old_file_keeps_the_old_content(root: Path) -> None:
    (root / "hard").hardlink_to(root.parent / "secret.txt")
    assert not (await call(write_file(root), path="hard", content="x")).is_error
    assert (root.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("failing", ["write", "fsync", "rename", "fchmod"])
async def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    tool = write_file(root)
    await call(tool, path="dir/warm", content="x")
    before, open_before = snapshot(root), descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        result = await call(tool, path="a.txt", content="x")
    assert (result.is_error, result.text) == (True, "cannot write a.txt: No space left on device")
    assert (snapshot(root), descriptors()) == (before, open_before)


@pytest.mark.parametrize("becomes", ["link", "directory", "fifo"])
async def test_a_name_that_becomes_something_else_before_the_rename(
    root: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    original = os.fsync

    def swap(fd: int) -> None:
        original(fd)
        (root / "a.txt").unlink()
        if becomes == "link":
            (root / "a.txt").symlink_to("../secret.txt")
        elif becomes == "directory":
            (root / "a.txt").mkdir()
        else:
            os.mkfifo(root / "a.txt")

    monkeypatch.setattr(os, "fsync", swap)
    result = await call(write_file(root), path="a.txt", content="x")
    assert (result.is_error, "became something that is no file" in result.text) == (True, True)
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert names(root) == ["a.txt", "dir"]


async def test_a_directory_that_becomes_a_link_during_the_walk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.open

    def swap(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = original(path, flags, mode, dir_fd=dir_fd)
        if path == "dir" and not (root / "dir").is_symlink():
            (root / "dir").rename(root / "moved")
            (root / "dir").symlink_to("..")
        return fd

    monkeypatch.setattr(os, "open", swap)
    await call(write_file(root), path="dir/secret.txt", content="x")
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert (root / "moved" / "secret.txt").read_text() == "x"


@pytest.mark.parametrize("tool_name", ["write_file", "edit_file"])
async def test_a_cut_before_the_rename_leaves_the_old_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, tool_name: str
) -> None:
    scope = trio.CancelScope()
    original = os.fsync

    def cut(fd: int) -> None:
        original(fd)
        trio.from_thread.run_sync(scope.cancel)

    monkeypatch.setattr(os, "fsync", cut)
    before = snapshot(root)
    with scope:
        if tool_name == "write_file":
            await call(write_file(root), path="a.txt", content="x")
        else:
            await call(edit_file(root), path="a.txt", edits=[{"old_text": "two", "new_text": "2"}])
    assert scope.cancelled_caught
    assert snapshot(root) == before


# ------------------------------------------------------------------ edit


def edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"old_text": old, "new_text": new} for old, new in pairs]


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        pytest.param(b"one\ntwo\n", edits(("two", "2")), b"one\n2\n", id="one"),
        pytest.param(b"a b c", edits(("c", "3"), ("a", "1")), b"1 b 3", id="several, in any order"),
        pytest.param(b"a b", edits(("a", "b"), ("b", "a")), b"b a", id="all refer to the old text"),
        pytest.param(b"ab", edits(("a", "x"), ("b", "y")), b"xy", id="side by side"),
        pytest.param(b"one\n", edits(("one\n", "")), b"", id="to nothing"),
        pytest.param(b"a\r\nb\r\nc\r\n", edits(("a\nb", "x\ny\nz")), b"x\r\ny\r\nz\r\nc\r\n", id="CRLF asked as LF"),
        pytest.param(b"a\r\nb\r\n", edits(("a\r\nb", "x\r\ny")), b"x\r\ny\r\n", id="CRLF asked as CRLF"),
        pytest.param(b"a\nb\n", edits(("a\r\nb", "x\r\ny")), b"x\ny\n", id="LF asked as CRLF"),
        pytest.param(b"a\r\nb\r\n", edits(("b", "b\nc")), b"a\r\nb\r\nc\r\n", id="the file's line ends"),
        pytest.param(b"a\r\nb\nc\nd\n", edits(("a\nb", "x\ny")), b"x\r\ny\nc\nd\n", id="mixed: those of the place"),
        pytest.param(b"a\r\nb\nc\nd\n", edits(("d", "d\ne")), b"a\r\nb\nc\nd\ne\n", id="mixed: those of most"),
        pytest.param(b"a\rb\r\n", edits(("a\rb", "x")), b"x\r\n", id="a lone CR is a character"),
        pytest.param(b"\xef\xbb\xbfone\n", edits(("one", "é")), b"\xef\xbb\xbf\xc3\xa9\n", id="UTF-8 with a mark"),
        pytest.param(
            codecs.BOM_UTF16_LE + "one\r\né".encode("utf-16-le"),
            edits(("one\né", "ü\nx")),
            codecs.BOM_UTF16_LE + "ü\r\nx".encode("utf-16-le"),
            id="UTF-16",
        ),
        pytest.param("日本\n".encode(), edits(("本", "x")), "日x\n".encode(), id="characters of several bytes"),
        pytest.param(b".*(a", edits((".*(", "b")), b"ba", id="no regular expression"),
        pytest.param(b"x", edits(("x", "\\1")), b"\\1", id="no template"),
    ],
)
async def test_what_an_edit_makes(root: Path, before: bytes, changes: object, after: bytes) -> None:
    (root / "f").write_bytes(before)
    (root / "f").chmod(0o604)
    result = await call(edit_file(root), path="f", edits=changes)
    assert (result.is_error, (root / "f").read_bytes()) == (False, after)
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o604


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        pytest.param(b"one\n", edits(("two", "2")), "the old_text does not stand in odd;", id="missing"),
        pytest.param(
            b"\tone\n", edits(("  one", "2")), "white space around it, stands in line 1", id="other indentation"
        ),
        pytest.param(b"a\nb\na\n", edits(("a", "x")), "more than once in odd, in lines 1, 3:", id="twice"),
        pytest.param(b"aaa", edits(("aa", "x")), "more than once in odd, in lines 1, 1:", id="twice, overlapping"),
        pytest.param(b"a\n" * 50, edits(("a", "x")), "8, 9, 10 and more:", id="fifty times"),
        pytest.param(b"a" * 900_000, edits(("a" * 400_000, "x")), "more than once", id="long and everywhere"),
        pytest.param(
            b"a b", edits(("a", "x"), ("c", "y")), "old_text of edit 2 does not stand", id="one of two missing"
        ),
        pytest.param(b"abc", edits(("ab", "x"), ("bc", "y")), "edits 1 and 2 overlap in odd, line 1", id="overlap"),
        pytest.param(b"abc", edits(("b", "y"), ("b", "x")), "edits 1 and 2 overlap", id="the same twice"),
        pytest.param(b"abc", edits(("b", "b")), "already is as the edits would make it", id="no change"),
        pytest.param(b"abc", edits(("", "b")), "old_text", id="empty old text"),
        pytest.param(b"abc", [], "edits", id="no edits"),
        pytest.param(b"abc", '[{"old_text": "a"', "edits", id="edits cut off (B73)"),
        pytest.param(b"a\0b", edits(("a", "b")), "holds binary data (3 bytes)", id="binary"),
        pytest.param(b"x\na\xffb", edits(("a", "b")), "is not text in UTF-8: line 2", id="latin 1"),
        pytest.param(b"\xff\xfea", edits(("a", "b")), "is not text in UTF-16-LE", id="broken UTF-16"),
        pytest.param(b"a" * 1_000_001, edits(("b", "x")), "more than 1,000,000 are not edited", id="too big"),
        pytest.param(b"a", edits(("a", "x" * 1_000_001)), "would have 1,000,001 bytes", id="would be too big"),
        pytest.param(b"a", edits(("a", "\udc80")), "cannot be written in UTF-8", id="lone surrogate"),
    ],
)
async def test_an_edit_that_is_refused_changes_nothing(
    root: Path, content: bytes, changes: object, message: str
) -> None:
    (root / "odd").write_bytes(content)
    before = (root / "odd").stat()
    with trio.fail_after(5):
        result = await call(edit_file(root, max_bytes=1_000_000), path="odd", edits=changes)
    assert result.is_error
    assert message in result.text
    assert (root / "odd").read_bytes() == content
    assert (root / "odd").stat().st_ino == before.st_ino


@pytest.mark.parametrize(("make", "path", "message"), REFUSED)
async def test_paths_that_an_edit_refuses(root: Path, make: Callable[[Path], None], path: str, message: str) -> None:
    make(root)
    with trio.fail_after(5):
        result = await call(edit_file(root), path=path, edits=edits(("secret", "x")))
    assert result.is_error
    assert message in result.text or "there is no " in result.text
    assert (root.parent / "secret.txt").read_text() == "secret"


async def test_edits_as_a_string_of_json_are_taken(root: Path) -> None:
    """Known fault B71."""
    result = await call(edit_file(root), path="a.txt", edits='[{"old_text": "two", "new_text": "2"}]')
    assert (result.is_error, result.text) == (False, "[a.txt is changed in line 2]")


@pytest.mark.parametrize("how", ["in place", "by a rename", "removed"])
async def test_a_change_between_reading_and_replacing_is_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    original = os.fsync

    def change(fd: int) -> None:
        original(fd)
        if how == "in place":
            (root / "a.txt").write_text("one\ntwo\nthree\nfour\n")
        elif how == "by a rename":
            (root / "new").write_text("one\ntwo\nthree\n")
            (root / "new").rename(root / "a.txt")
        else:
            (root / "a.txt").unlink()

    monkeypatch.setattr(os, "fsync", change)
    result = await call(edit_file(root), path="a.txt", edits=edits(("two", "2")))
    assert (result.is_error, "was changed by somebody else meanwhile" in result.text) == (True, True)
    assert [name for name in names(root) if name.endswith(".tmp")] == []
    if how != "removed":
        assert "2" not in (root / "a.txt").read_text()


async def test_edits_side_by_side_of_one_file_all_count(root: Path) -> None:
    (root / "f").write_text("\n".join(f"<{number}>" for number in range(40)))
    tool = edit_file(root)
    async with trio.open_nursery() as nursery:
        for number in range(40):

            async def one(number: int = number) -> None:
                result = await call(tool, path="f", edits=edits((f"<{number}>", f"[{number}]")))
                assert not result.is_error

            nursery.start_soon(one)
    assert (root / "f").read_text() == "\n".join(f"[{number}]" for number in range(40))


@pytest.mark.slow
async def test_a_link_that_changes_all_the_time_never_leads_out(root: Path) -> None:
    """Slow: it races against a real thread for half a second."""
    (root / "flip").mkdir()
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            (root / "flip").rename(root / "away")
            try:
                (root / "flip").symlink_to("..")
                (root / "flip").unlink()
            except FileExistsError:  # the tool has made the directory
                shutil.rmtree(root / "away")
            else:
                with suppress(OSError):
                    (root / "away").rename(root / "flip")
            (root / "flip").mkdir(exist_ok=True)
            shutil.rmtree(root / "away", ignore_errors=True)

    thread = threading.Thread(target=flip)
    thread.start()
    tool = write_file(root)
    written = 0
    try:
        with trio.move_on_after(0.5):
            while True:
                written += not (await call(tool, path="flip/f", content="x")).is_error
    finally:
        stop.set()
        thread.join()
    assert names(root.parent) == ["root", "secret.txt"]
    assert written


async def test_no_descriptor_and_no_temporary_file_is_left(root: Path) -> None:
    await call(write_file(root), path="a.txt", content="x")
    before = descriptors()
    for path in ("a.txt", "x/y/z", "dir", "../x", "a.txt/x", "a\0"):
        await call(write_file(root), path=path, content="x")
        await call(edit_file(root), path=path, edits=edits(("x", "y")))
    assert descriptors() == before
    assert not [name for name in snapshot(root) if name.endswith(".tmp")]
