"""search_text: what it finds, what it passes over, and how it is stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from trio_agent import Tool, ToolCall, ToolResult, run_tool_call
from trio_agent.tools import search_text as with_either

search_text = partial(with_either, ripgrep=None)
"""What most tests are about: the engine in Python, which is there everywhere."""

RIPGREP = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")

CATASTROPHE = "(x+x+)+y"
"""On thirty x takes Python's re longer than anybody waits."""


async def call(tool: Tool, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, arguments), tools=[tool])).result


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    (inside / "pkg" / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("one needle\ntwo\nNeedle three\n")
    (inside / "pkg" / "b.py").write_text("x = 'needle'\n")
    (inside / "pkg" / "sub" / "c.py").write_text("def needle(): ...\nneedle()\n")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text("needle\n")
    (tmp_path / "outside.txt").write_text("needle outside\n")
    return inside


def workers() -> list[str]:
    """The search processes that this one has started and that still run, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
        except OSError:
            continue
        if b"_grep.py" in line and int(parent) == os.getpid():
            found.append(line.decode())
    return found


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(
            {"text": "needle"},
            "a.txt:1:one needle\npkg/b.py:1:x = 'needle'\npkg/sub/c.py:1:def needle(): ...\npkg/sub/c.py:2:needle()\n"
            "[4 lines in 3 of 3 files]",
            id="everywhere",
        ),
        pytest.param(
            {"text": "needle", "path": "pkg/sub"},
            "pkg/sub/c.py:1:def needle(): ...\npkg/sub/c.py:2:needle()\n[2 lines in 1 of 1 file]",
            id="in a directory",
        ),
        pytest.param(
            {"text": "needle", "path": "./pkg//b.py"},
            "pkg/b.py:1:x = 'needle'\n[1 line in 1 of 1 file]",
            id="in a file",
        ),
        pytest.param(
            {"text": "needle", "ignore_case": True, "path": "a.txt"},
            "a.txt:1:one needle\na.txt:3:Needle three\n[2 lines in 1 of 1 file]",
            id="upper and lower case",
        ),
        pytest.param(
            {"text": r"^\w+ \w+$", "regex": True, "path": "a.txt"},
            "a.txt:1:one needle\na.txt:3:Needle three\n[2 lines in 1 of 1 file]",
            id="expression",
        ),
        pytest.param(
            {"text": "needle(", "path": "pkg/sub"},
            "pkg/sub/c.py:1:def needle(): ...\npkg/sub/c.py:2:needle()\n[2 lines in 1 of 1 file]",
            id="a text is no expression",
        ),
        pytest.param({"text": "nowhere"}, "['nowhere' is in none of 3 files below .]", id="nothing"),
    ],
)
async def test_what_is_found(root: Path, arguments: dict[str, object], shown: str) -> None:
    result = await call(search_text(root), **arguments)
    assert (result.is_error, result.text) == (False, shown)


def binary(root: Path) -> None:
    (root / "odd").write_bytes(b"\x7fELF\0 needle\n")


def fifo(root: Path) -> None:
    os.mkfifo(root / "odd")


def link_out(root: Path) -> None:
    (root / "odd").symlink_to("../outside.txt")
    (root / "up").symlink_to("..")


def link_in(root: Path) -> None:
    (root / "odd").symlink_to("a.txt")
    (root / "around").symlink_to(".")


def latin(root: Path) -> None:
    (root / "odd").write_bytes(b"caf\xe9 needle\n")


def odd_name(root: Path) -> None:
    (root / "odd\nname: \udcff").write_text("needle\n")


def long_line(root: Path) -> None:
    (root / "odd").write_text("a" * 500 + "needle" + "b" * 500)


def very_long_line(root: Path) -> None:
    (root / "odd").write_text("a" * 1_000_000 + "needle\nneedle")


def many(root: Path) -> None:
    (root / "odd").write_text("needle\n" * 10_000)


@pytest.mark.parametrize(
    ("make", "has", "has_not"),
    [
        pytest.param(binary, "[1 binary file passed over]", "odd", id="binary"),
        pytest.param(fifo, "[4 lines in 3 of 3 files]", "odd", id="FIFO"),
        pytest.param(link_out, "[4 lines in 3 of 3 files]", "outside", id="links out"),
        pytest.param(link_in, "[4 lines in 3 of 3 files]", "odd", id="links inside"),
        pytest.param(latin, "odd:1:caf\ufffd needle", "unreadable", id="undecodable bytes"),
        pytest.param(odd_name, r"odd\nname: \udcff:1:needle", "odd\n", id="a name of two lines"),
        pytest.param(long_line, "odd:1:..." + "a" * 80 + "needle" + "b" * 214 + "...", "a" * 81, id="long line"),
        pytest.param(very_long_line, "odd:2:needle", "a" * 301, id="a line of a million"),
        pytest.param(many, "[cut after 200 lines; there are more", "odd:200", id="many hits"),
    ],
)
async def test_odd_things_on_the_way(root: Path, make: Callable[[Path], None], has: str, has_not: str) -> None:
    make(root)
    with trio.fail_after(20):
        result = await call(search_text(root), text="needle")
    assert not result.is_error
    assert has in result.text
    assert has_not not in result.text
    assert len(result.text) < 50_000


async def test_a_tree_that_is_deeper_than_a_path_or_a_recursion_may_be(root: Path) -> None:
    (root / "deep").mkdir()
    fd = os.open(root / "deep", os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("dddd", dir_fd=fd)
        below = os.open("dddd", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("odd", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    try:
        result = await call(search_text(root), text="needle")
    finally:
        subprocess.run(["rm", "-rf", root / "deep"], check=True)  # noqa: ASYNC221 - pytest's own cleaning recurses
    assert "[4 lines in 3 of 4 files]" in result.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"text": "x", "path": ".."}, "lies outside of the root"),
        ({"text": "x", "path": "/etc"}, "lies outside of the root"),
        ({"text": "x", "path": "out"}, "lies outside of the root"),
        ({"text": "x", "path": "missing"}, "there is no missing"),
        ({"text": "x", "path": "fifo"}, "fifo is a FIFO"),
        ({"text": "x", "path": "a\0"}, "no possible path"),
        ({"text": "(", "regex": True}, "'(' is no regular expression: missing )"),
        ({"text": "(?:" * 5000 + ")" * 5000, "regex": True}, "is no regular expression"),
        ({"text": "x{99999999999}", "regex": True}, "is no regular expression"),
        ({"text": ""}, "text"),
        ({}, "text"),
    ],
)
async def test_what_is_refused_with_a_clear_text(root: Path, arguments: dict[str, object], text: str) -> None:
    (root / "out").symlink_to("..")
    os.mkfifo(root / "fifo")
    with trio.fail_after(20):
        result = await call(search_text(root), **arguments)
    assert result.is_error
    assert text in result.text
    assert len(result.text) < 500


@pytest.mark.slow
async def test_an_expression_that_takes_too_long_is_cut_and_holds_nobody_up(root: Path) -> None:
    """Slow: a real process is killed after a real half second."""
    (root / "b.txt").write_text("xx\nxxy\n" + "x" * 40 + "\n")
    largest_gap = 0.0

    async def heartbeat() -> None:
        nonlocal largest_gap
        while True:
            before = trio.current_time()
            await trio.sleep(0.01)
            largest_gap = max(largest_gap, trio.current_time() - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat)
        start = trio.current_time()
        result = await call(search_text(root, time_limit=0.5), text=CATASTROPHE, regex=True)
        nursery.cancel_scope.cancel(reason="the search is over")
    assert trio.current_time() - start < 1
    assert largest_gap < 0.2
    assert result.is_error
    assert result.text.startswith("b.txt:2:xxy\n[stopped after 0.5 s with 1 line; there may be more:")
    assert workers() == []


@pytest.mark.slow
async def test_a_cut_ends_the_search_at_once(root: Path) -> None:
    """Slow: a real process is killed after a real fifth of a second."""
    (root / "b.txt").write_text("x" * 40 + "\n")
    start = trio.current_time()
    with trio.move_on_after(0.3) as scope:
        await call(search_text(root), text=CATASTROPHE, regex=True)
    assert scope.cancelled_caught
    assert trio.current_time() - start < 0.6
    assert workers() == []


async def test_no_descriptor_is_left_open(root: Path) -> None:
    tool = search_text(root)
    await call(tool, text="needle")
    before = descriptors()
    for arguments in ({"text": "needle"}, {"text": "(", "regex": True}, {"text": "x", "path": "missing"}):
        await call(tool, **arguments)
    assert descriptors() == before


async def test_the_worker_sees_no_variable_of_this_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module that shadows the standard library must not be picked up from the working directory.
    (root / "json.py").write_text("raise SystemExit('shadowed')\n# needle\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(root))
    assert "json.py:2:# needle" in (await call(search_text(root), text="needle")).text


async def test_an_interpreter_that_does_not_start_is_an_error_result(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    result = await call(search_text(root), text="needle")
    assert (result.is_error, result.text) == (True, "the search failed with status 1: ")


# ------------------------------------------------------------------ .gitignore


IGNORES = [
    pytest.param({".gitignore": "*.log\n"}, {}, ["keep.txt", "sub/keep.txt"], id="a name"),
    pytest.param({".gitignore": "sub/\n"}, {}, ["keep.txt", "x.log"], id="a directory"),
    pytest.param({".gitignore": "/keep.txt\n"}, {}, ["sub/keep.txt", "sub/x.log", "x.log"], id="from the root on"),
    pytest.param({".gitignore": "*\n!*/\n!keep.txt\n"}, {}, ["keep.txt", "sub/keep.txt"], id="all but"),
    pytest.param({".gitignore": "*.log\n", "sub/.gitignore": "!x.log\n"}, {}, ["keep.txt", "sub/keep.txt", "sub/x.log"], id="taken back below"),
    pytest.param({"sub/.gitignore": "keep.txt\n"}, {}, ["keep.txt", "sub/x.log", "x.log"], id="below only"),
    pytest.param({".gitignore": "*.log\n"}, {"path": "sub"}, ["sub/keep.txt"], id="rules above the start"),
    pytest.param({".gitignore": "sub/\n"}, {"path": "sub"}, ["sub/keep.txt", "sub/x.log"], id="asked for by path"),
    pytest.param({".gitignore": "*.log\n"}, {"path": "x.log"}, ["x.log"], id="a file asked for by path"),
    pytest.param({".gitignore": "*.log\nsub\n"}, {"ignored": True}, ["keep.txt", "sub/keep.txt", "sub/x.log", "x.log"], id="asked for all"),
    pytest.param({".gitignore": "# keep.txt\n\n  \n"}, {}, ["keep.txt", "sub/keep.txt", "sub/x.log", "x.log"], id="comments"),
]  # fmt: skip


def plant(root: Path, ignores: dict[str, str]) -> Path:
    top = root / "ignoring"
    (top / "sub").mkdir(parents=True)
    for name in ("keep.txt", "x.log", "sub/keep.txt", "sub/x.log"):
        (top / name).write_text("needle\n")
    for name, text in ignores.items():
        (top / name).write_text(text)
    return top


@pytest.mark.parametrize("ripgrep", [None, pytest.param("rg", marks=needs_ripgrep)])
@pytest.mark.parametrize(("ignores", "arguments", "found"), IGNORES)
async def test_what_gitignore_names_is_passed_over(
    root: Path, ignores: dict[str, str], arguments: dict[str, object], found: list[str], ripgrep: str | None
) -> None:
    top = plant(root, ignores)
    result = await call(with_either(top, ripgrep=ripgrep), text="needle", **arguments)
    assert sorted(line.split(":")[0] for line in result.text.splitlines()[:-1]) == found
    if "ignored" not in arguments and "path" not in arguments:
        everything = await call(with_either(top, ripgrep=ripgrep, gitignore=False), text="needle")
        assert everything.details["hits"] == 4


# ------------------------------------------------------------------ ripgrep


def same(root: Path) -> None:
    pass


def crlf(root: Path) -> None:
    (root / "odd").write_bytes(b"a needle\r\nneedle b\r\n")


def mark(root: Path) -> None:
    (root / "odd").write_bytes(b"\xef\xbb\xbfneedle\n")


def utf16(root: Path) -> None:
    (root / "odd").write_bytes("needle\n".encode("utf-16"))


def spread(root: Path) -> None:
    (root / "odd").write_text("x" * 70_000 + "needle" + "é" * 400 + "\nend needle")


def hidden(root: Path) -> None:
    (root / ".hidden").mkdir()
    (root / ".hidden" / ".odd").write_text("needle")


@needs_ripgrep
@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        pytest.param(same, {"text": "needle"}, id="text"),
        pytest.param(same, {"text": "NEEDLE", "ignore_case": True}, id="case"),
        pytest.param(same, {"text": "needle("}, id="no expression"),
        pytest.param(same, {"text": r"^\w+ \w+$", "regex": True}, id="expression"),
        pytest.param(same, {"text": r"(n)(e)\2dle", "regex": True}, id="backreference"),
        pytest.param(same, {"text": r"(?<=one )needle", "regex": True}, id="looking behind"),
        pytest.param(same, {"text": "-e"}, id="like an option"),
        pytest.param(same, {"text": "--files", "path": "pkg"}, id="like a long option"),
        pytest.param(same, {"text": "needle", "path": "pkg/sub"}, id="directory"),
        pytest.param(same, {"text": "needle", "path": "./pkg//b.py"}, id="file"),
        pytest.param(same, {"text": "a\0b"}, id="NUL"),
        pytest.param(same, {"text": "a\ud800b"}, id="surrogate"),
        pytest.param(same, {"text": "a\nb"}, id="newline"),
        pytest.param(crlf, {"text": "needle$", "regex": True}, id="CRLF"),
        pytest.param(mark, {"text": "needle"}, id="byte order mark"),
        pytest.param(hidden, {"text": "needle"}, id="hidden"),
        pytest.param(latin, {"text": "needle"}, id="undecodable"),
        pytest.param(odd_name, {"text": "needle"}, id="a name of two lines"),
        pytest.param(long_line, {"text": "needle"}, id="long line"),
        pytest.param(spread, {"text": "needle"}, id="longer line"),
        pytest.param(link_out, {"text": "needle"}, id="links out"),
        pytest.param(link_in, {"text": "needle"}, id="links inside"),
        pytest.param(fifo, {"text": "needle"}, id="FIFO"),
        pytest.param(same, {"text": "(", "regex": True}, id="broken expression"),
        pytest.param(same, {"text": "x", "path": ".."}, id="outside"),
        pytest.param(same, {"text": "nowhere"}, id="nothing"),
    ],
)
async def test_both_engines_say_the_same(
    root: Path, make: Callable[[Path], None], arguments: dict[str, object]
) -> None:
    make(root)
    one = await call(with_either(root, ripgrep=None), **arguments)
    two = await call(with_either(root), **arguments)
    assert sorted(two.text.splitlines()) == sorted(one.text.splitlines())
    assert two.is_error == one.is_error


@needs_ripgrep
@pytest.mark.parametrize(("make", "absent"), [(binary, "odd"), (utf16, "odd"), (link_out, "outside.txt")])
async def test_what_ripgrep_does_not_show(root: Path, make: Callable[[Path], None], absent: str) -> None:
    make(root)
    assert absent not in (await call(with_either(root), text="needle")).text


@needs_ripgrep
async def test_many_hits_end_ripgrep(root: Path) -> None:
    many(root)
    result = await call(with_either(root), text="needle")
    assert (result.details["hits"], result.details["more"]) == (200, True)
    assert "[cut after 200 lines; there are more" in result.text


def script(directory: Path, text: str) -> str:
    path = directory / "fake_rg"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("does", "shown"),
    [
        pytest.param("exit 2", "a.txt:1:one needle", id="fails"),
        pytest.param("kill -SEGV $$", "a.txt:1:one needle", id="crashes"),
        pytest.param("printf 'rubbish without an end'", "a.txt:1:one needle", id="says rubbish"),
        pytest.param("rm -- $0; exit 2", "a.txt:1:one needle", id="vanishes"),
        pytest.param(
            r"printf './../outside.txt\0001:1:0:x\n\n1 files contained matches\n1 files searched\n'",
            "is in none of",
            id="was led outside",
        ),
        pytest.param(
            r"printf './gone\0001:1:0:x\n./a.txt\0001:5:0:x\n\n2 files contained matches\n2 files searched\n'",
            "a.txt:1:one needle\n[1 line in 1 of 2 files]",
            id="a file that is gone by now",
        ),
    ],
)
async def test_a_ripgrep_that_goes_wrong(root: Path, tmp_path: Path, does: str, shown: str) -> None:
    tool = with_either(root, ripgrep=script(tmp_path, does))
    await call(tool, text="needle")
    result = await call(tool, text="needle")
    assert not result.is_error
    assert shown in result.text
    assert "outside" not in result.text


@pytest.mark.slow
async def test_a_ripgrep_that_hangs_is_killed(root: Path, tmp_path: Path) -> None:
    """Slow: a real process is killed after a real fifth of a second."""
    tool = with_either(root, ripgrep=script(tmp_path, "trap '' TERM; sleep 60.4711; sleep 60.4711"), time_limit=0.2)
    result = await call(tool, text="needle")
    assert (result.is_error, "[stopped after 0.2 s with 0 lines" in result.text) == (True, True)
