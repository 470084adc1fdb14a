"""list_files: what it lists, what it leaves out, and how it is stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from trio_agent import Tool, ToolCall, ToolResult, run_tool_call
from trio_agent.tools import list_files


async def call(tool: Tool, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, arguments), tools=[tool])).result


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    for name in ("a.txt", "b.py", "pkg/c.py", "pkg/sub/d.py", "pkg/sub/e.txt", ".git/config", ".hidden/f.py"):
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_text("x")
    (tmp_path / "outside.py").write_text("x")
    return inside


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param({}, "a.txt b.py .hidden/f.py pkg/c.py pkg/sub/d.py pkg/sub/e.txt", id="all"),
        pytest.param({"pattern": "*.py"}, "b.py .hidden/f.py pkg/c.py pkg/sub/d.py", id="names anywhere"),
        pytest.param({"pattern": "./*.py"}, "b.py", id="names here"),
        pytest.param({"pattern": "/*.py"}, "b.py", id="names at the top"),
        pytest.param({"pattern": "**/*.py"}, "b.py .hidden/f.py pkg/c.py pkg/sub/d.py", id="any directories"),
        pytest.param({"pattern": "pkg/**"}, "pkg/c.py pkg/sub/d.py pkg/sub/e.txt", id="all below"),
        pytest.param({"pattern": "pkg/**/*.py"}, "pkg/c.py pkg/sub/d.py", id="in the middle"),
        pytest.param({"pattern": "pkg/*/*.py"}, "pkg/sub/d.py", id="one directory"),
        pytest.param({"pattern": "**/sub/**"}, "pkg/sub/d.py pkg/sub/e.txt", id="on both sides"),
        pytest.param({"pattern": "?.[tp]*"}, "a.txt b.py .hidden/f.py pkg/c.py pkg/sub/d.py pkg/sub/e.txt", id="classes"),
        pytest.param({"pattern": "[!a].txt"}, "pkg/sub/e.txt", id="classes that exclude"),
        pytest.param({"pattern": "*.py", "path": "pkg"}, "pkg/c.py pkg/sub/d.py", id="in a directory"),
        pytest.param({"path": "pkg/sub/d.py"}, "pkg/sub/d.py", id="a file"),
        pytest.param({"path": "pkg", "directories": True}, "pkg/c.py pkg/sub/ pkg/sub/d.py pkg/sub/e.txt", id="directories"),
        pytest.param({"pattern": "sub", "directories": True}, "pkg/sub/", id="a directory by its name"),
        pytest.param({"pattern": "("}, "", id="no expression"),
        pytest.param({"pattern": "[z-a]"}, "", id="an empty range"),
        pytest.param({"pattern": "[" * 50}, "", id="brackets"),
        pytest.param({"pattern": "*" * 500 + "x"}, "", id="stars"),
        pytest.param({"pattern": "*a" * 100}, "", id="stars and letters"),
        pytest.param({"pattern": "**/" * 500 + "*.txt"}, "a.txt pkg/sub/e.txt", id="any directories, often"),
        pytest.param({"pattern": "../*"}, "", id="out of it"),
        pytest.param({"pattern": "/etc/*"}, "", id="absolute"),
        pytest.param({"pattern": "a\0b"}, "", id="NUL"),
        pytest.param({"pattern": "a\ud800b"}, "", id="lone surrogate"),
    ],
)  # fmt: skip
async def test_what_is_listed(root: Path, arguments: dict[str, object], found: str) -> None:
    with trio.fail_after(10):
        result = await call(list_files(root), **arguments)
    assert not result.is_error
    *lines, note = result.text.splitlines()
    assert " ".join(lines) == found
    count = len(found.split())
    assert note == f"[{count} path{'s' * (count != 1)}]" if found else "fits" in note


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("..", "lies outside of the root"),
        ("/etc", "lies outside of the root"),
        ("out", "lies outside of the root"),
        ("pkg/../..", "lies outside of the root"),
        ("missing", "there is no missing"),
        ("fifo", "fifo is a FIFO"),
        ("a\0", "no possible path"),
        ("a.txt/x", "no directory"),
        ("x" * 300, "is too long"),
    ],
)
async def test_paths_that_are_refused(root: Path, path: str, text: str) -> None:
    (root / "out").symlink_to("..")
    os.mkfifo(root / "fifo")
    result = await call(list_files(root), path=path)
    assert (result.is_error, text in result.text) == (True, True)


def link(root: Path) -> None:
    (root / "odd").symlink_to("..")


def loop(root: Path) -> None:
    (root / "odd").symlink_to(".")


def fifo(root: Path) -> None:
    os.mkfifo(root / "odd")


def odd_name(root: Path) -> None:
    (root / "odd\nname: \udcff").write_text("")


def ignoring(*lines: bytes) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / "odd").write_text("")
        (root / ".gitignore").write_bytes(b"\n".join(lines))

    return make


def ignore_link(root: Path) -> None:
    (root / "odd").write_text("")
    (root.parent / "rules").write_text("odd\n")
    (root / ".gitignore").symlink_to("../rules")


def ignore_fifo(root: Path) -> None:
    (root / "odd").write_text("")
    os.mkfifo(root / ".gitignore")


def ignore_directory(root: Path) -> None:
    (root / "odd").write_text("")
    (root / ".gitignore").mkdir()


@pytest.mark.parametrize(
    ("make", "listed"),
    [
        pytest.param(link, "odd", id="a link is listed and not followed"),
        pytest.param(loop, "odd", id="nor one that leads to itself"),
        pytest.param(fifo, "odd", id="FIFO"),
        pytest.param(odd_name, r"odd\nname: \udcff", id="a name of two lines"),
        pytest.param(ignoring(b"odd"), None, id="ignored"),
        pytest.param(ignoring(b"*", b"!odd"), "odd", id="ignored and taken back"),
        pytest.param(ignoring(b"odd\r"), None, id="rules with CRLF"),
        pytest.param(ignoring(b"\xff\xfe", b"odd"), None, id="rules that are no text"),
        pytest.param(ignoring(b"!", b"/", b"[", b"**x**", b"\\", b"odd"), None, id="rules that are none"),
        pytest.param(ignoring(b"x" * 100_000, b"odd"), None, id="a long rule"),
        pytest.param(ignore_link, "odd", id="rules through a link are not read"),
        pytest.param(ignore_fifo, "odd", id="rules that are a FIFO"),
        pytest.param(ignore_directory, "odd", id="rules that are a directory"),
    ],
)
async def test_odd_things_on_the_way(root: Path, make: Callable[[Path], None], listed: str | None) -> None:
    make(root)
    with trio.fail_after(10):
        result = await call(list_files(root), pattern="odd*")
    assert not result.is_error
    lines = result.text.splitlines()
    assert lines[0] == listed if listed else "fits" in lines[0]
    assert "outside" not in result.text
    if listed is None:
        assert "left out because of .gitignore" in result.text
        assert (await call(list_files(root), pattern="odd", ignored=True)).text.startswith("odd\n")
        assert (await call(list_files(root, gitignore=False), pattern="odd")).text.startswith("odd\n")


async def test_rules_above_the_start_and_below(root: Path) -> None:
    (root / ".gitignore").write_text("*.txt\n/pkg/c.py\n")
    (root / "pkg" / "sub" / ".gitignore").write_text("!e.txt\n")
    found = (await call(list_files(root), path="pkg")).text
    assert found == "pkg/sub/.gitignore\npkg/sub/d.py\npkg/sub/e.txt\n[3 paths]\n[1 left out because of .gitignore]"
    (root / ".gitignore").write_text("pkg/\n")
    assert (await call(list_files(root), path="pkg", pattern="*.py")).text == "pkg/c.py\npkg/sub/d.py\n[2 paths]"


async def test_what_is_too_much_is_cut_and_says_so(root: Path) -> None:
    for number in range(30):
        (root / f"many{number:02}").write_text("")
    result = await call(list_files(root, max_paths=10), pattern="many*")
    assert result.text.splitlines()[-1].startswith("[cut after 10 paths; there are more")
    result = await call(list_files(root, max_bytes=30), pattern="many*")
    assert result.text == (
        "many00\nmany01\nmany02\nmany03\n[cut after 4 paths; there are more: list a narrower path or pattern]"
    )
    assert (await call(list_files(root, max_paths=30), pattern="many*")).text.endswith("\n[30 paths]")


@pytest.mark.slow
async def test_rules_that_take_too_long_are_cut(root: Path) -> None:
    """Slow: a real process is killed after a real second."""
    (root / ("a" * 200)).write_text("")
    (root / ".gitignore").write_text("*a" * 30 + "b\n")
    start = trio.current_time()
    result = await call(list_files(root, time_limit=0.7))
    assert trio.current_time() - start < 2
    assert (result.is_error, "[stopped after 0.7 s" in result.text) == (True, True)


async def test_no_descriptor_is_left_open(root: Path) -> None:
    tool = list_files(root)
    await call(tool)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number counts
    for path in (".", "missing", "..", "a.txt"):
        await call(tool, path=path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
