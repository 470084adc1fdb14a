"""Tools by name, one's own by ``module:name``; ``trio-agent tools``; the configuration file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import trio_agent
from trio_agent.cli._config import ConfigurationError, configuration_path, load_configuration
from trio_agent.cli._toolbox import ToolsError, load_tools, ready_made
from trio_agent.cli._transcripts import load_transcript

ROOT = Path(trio_agent.__file__).parents[1]

MINE = """
from trio_agent import tool, Tool
import sys

@tool
async def weather(city: str) -> str:
    '''Say the weather.

    Args:
      city: where.
    '''
    return f"sunny in {city}"

@tool
def clash(path: str) -> str:
    return path

def read_file_of_mine():
    return Tool("read_file", execute=lambda args, ctx: "mine")

several = [weather, clash]
def make(): return (weather,)
def fails(): raise RuntimeError("no\\nluck")
def leaves(): sys.exit(3)
def takes(city): return weather
async def forgot(city: str) -> str: return city
class Box: inner = weather
nothing = [weather, 3]
number = 7
text = "weather"

@tool
def quits() -> str:
    sys.exit(7)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "needs.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "exits.py").write_text("raise SystemExit\n")
    (tmp_path / "hello.txt").write_text("hello\nworld\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mine", "broken", "needs", "exits"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def program(*arguments: str, text: str = "", config: Path | None = None, **options: Any) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(config or "/nonexistent")}
    command = [sys.executable, "-W", "error", "-m", "trio_agent", *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, encoding="utf-8", env=environment, timeout=30, check=False, **options
    )


# ------------------------------------------------------------- which tools


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ([], []),
        ([""], []),
        (["all"], list(ready_made())),
        (["read_file, run_command"], ["read_file", "run_command"]),
        (["run_command", "read_file,run_command"], ["run_command", "read_file"]),
        (["mine:weather"], ["weather"]),
        (["mine:several"], ["weather", "clash"]),
        (["mine:make"], ["weather"]),
        (["mine:Box.inner", "mine:several", "search_text"], ["weather", "clash", "search_text"]),
        (["mine:read_file_of_mine"], ["read_file"]),
    ],
)
def test_tools_are_chosen_by_name(here: Path, choices: list[str], names: list[str]) -> None:
    assert [tool.name for tool in load_tools(choices, str(here))] == names


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("nope", "there is no tool 'nope'; choose from read_file"),
        ("mine:", "'mine:' is no module:name, for example my_tools:weather"),
        (":weather", "':weather' is no module:name"),
        ("not_there:x", "not_there:x: cannot import not_there: ModuleNotFoundError"),
        ("needs:x", "needs:x: cannot import needs: ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("broken:x", "broken:x: cannot import broken: SyntaxError"),
        ("exits:x", "exits:x: cannot import exits: SystemExit"),
        ("..:x", "..:x: cannot import ..: "),
        ("mine:wether", "mine:wether: mine has no 'wether'; its tools are weather, clash, quits"),
        ("mine:Box.outer", "mine has no 'Box.outer'"),
        ("mine:fails", "mine:fails: the function failed: RuntimeError: no luck"),
        ("mine:leaves", "mine:leaves: the function failed: SystemExit: 3"),
        ("mine:takes", "mine:takes is a function that takes arguments; put @tool above it"),
        ("mine:forgot", "mine:forgot is an async function, but no tool; put the decorator @tool above it"),
        ("mine:nothing", "mine:nothing gives 3, which is no Tool"),
        ("mine:number", "mine:number gives 7, which is no Tool"),
        ("mine:text", "mine:text gives 'weather', which is no Tool"),
        ("mine:Box", "which is no Tool"),
        ("read_file,mine:read_file_of_mine", "mine:read_file_of_mine: there is another tool called 'read_file'"),
    ],
)
def test_what_cannot_be_had_is_one_clear_line(here: Path, choice: str, text: str) -> None:
    with pytest.raises(ToolsError) as caught:
        load_tools([choice], str(here))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_with_tools_of_ones_own(here: Path) -> None:
    done = program("run", "--tools", "mine:several,read_file", "weather city=Rome; read hello.txt 1; run ls")
    assert (done.returncode, done.stderr) == (0, "")
    assert "sunny in Rome" in done.stdout
    assert "I did nothing about 'run ls'" in done.stdout


def test_a_tool_that_ends_the_program_does_so_in_order(here: Path) -> None:
    done = program("run", "--tools", "mine:quits,read_file", "--save", "t.json", "quits; read hello.txt")
    assert (done.returncode, done.stderr) == (7, "")
    assert load_transcript("t.json")[-1].role == "assistant"


@pytest.mark.parametrize("command", [("run", "x"), ("tools",)])
def test_the_program_says_which_tools_there_are(here: Path, command: tuple[str, ...]) -> None:
    done = program(*command, "--tools", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trio-agent: --tools: there is no tool 'nope'; choose from read_file")
    assert done.stderr.count("\n") == 1


def test_tools_are_listed_with_their_parameters(here: Path) -> None:
    done = program("tools", "--tools", "read_file,mine:several")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line and line[0] != " "] == ["read_file", "weather", "clash"]
    assert "    path (string): the file." in lines
    assert "    limit (integer, optional): how many lines to show." in lines
    assert "    city (string): where." in lines


def test_tools_are_listed_for_programs(here: Path) -> None:
    done = program("tools", "--json")
    data = json.loads(done.stdout)
    assert [tool["name"] for tool in data] == list(ready_made())
    for tool in data:
        jsonschema_rs.meta.validate(tool["parameters"])
        assert tool["description"]


@pytest.mark.parametrize("command", [("tools",), ("schema",), ("--help",), ("run", "--help"), ("tools", "--json")])
def test_other_commands_end_quietly_too(here: Path, command: tuple[str, ...]) -> None:
    """Nobody who reads, and a full disk."""
    line = f"'{sys.executable}' -W error -m trio_agent {' '.join(command)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}

    def shell(script: str) -> Any:
        return subprocess.run(
            ["/bin/bash", "-c", script], capture_output=True, encoding="utf-8", env=environment, check=False
        )

    gone = shell(f"{line} | true; exit ${{PIPESTATUS[0]}}")
    assert gone.returncode in (0, 1, 141)
    assert gone.stderr == ""
    full = shell(f"{line} > /dev/full")
    assert (full.returncode, full.stderr) == (1, "trio-agent: cannot write the output: No space left on device\n")


# -------------------------------------------------------- the configuration


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        directory = tmp_path / "config" / "trio-agent"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.toml").write_text(text)
        return directory / "config.toml"

    return write


def test_where_the_configuration_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert configuration_path() == Path("/x/trio-agent/config.toml")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert configuration_path() == tmp_path / ".config" / "trio-agent" / "config.toml"


def test_all_keys(config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = config(
        'json = true\nmax-parallel = 2\nmax-turns = 3\nresume = "r"\nroot = "/"\nsave = "~/s"\nsequential = true\n'
        'system = "f"\ntimeout = 2.5\ntools = ["a", "b:c"]\n'
    )
    assert load_configuration(path) == {
        "as_json": True,
        "max_parallel": 2,
        "max_turns": 3,
        "resume": "r",
        "root": "/",
        "save": "/home/me/s",
        "sequential": True,
        "system": "f",
        "timeout": 2.5,
        "tools": ["a", "b:c"],
    }
    assert load_configuration(config('tools = "a,b"'))["tools"] == ["a,b"]
    assert load_configuration(config("")) == {}
    assert load_configuration(tmp_path / "missing", must_exist=False) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_turns = 3", "there is no key 'max_turns'; did you mean 'max-turns'?"),
        ("colour = 1", "there is no key 'colour'; known are base-url, json"),
        ("[run]\nroot = '/'", "there is no key 'run'; known are"),
        ("max-turns = '3'", "'max-turns' is '3', but must be a whole number, at least 1"),
        ("max-turns = true", "'max-turns' is True, but must be a whole number, at least 1"),
        ("max-parallel = 0", "'max-parallel' is 0, but must be a whole number, at least 1"),
        ("timeout = 0", "'timeout' is 0, but must be a number of seconds above 0"),
        ("timeout = nan", "'timeout' is nan, but must be a number of seconds above 0"),
        ("timeout = inf", "'timeout' is inf, but must be a number of seconds above 0"),
        ("json = 'yes'", "'json' is 'yes', but must be true or false"),
        ("tools = [1]", "'tools' is [1], but must be a list of names"),
        ("root = 3", "'root' is 3, but must be the name of a directory, in quotes"),
        ("root = '/nope'", "'root' is '/nope', but there is no such directory"),
        ("save = ''", "'save' is '', but must be the name of a file"),
        ("system = 1979-05-27", "'system' is datetime.date(1979, 5, 27), but must be the name of a file"),
        ("root = 'a\nb = 1", "it is no TOML: "),
        ("a = 1\na = 2", "it is no TOML: Cannot overwrite a value"),
    ],
)
def test_a_broken_configuration_names_file_key_and_remedy(config: Callable[[str], Path], text: str, why: str) -> None:
    path = config(text)
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path)
    assert caught.value.message.startswith(f"cannot use the configuration {path}: {why}")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("command", [("run", "x"), ("tools",)])
def test_a_broken_configuration_is_one_clear_line(config: Callable[[str], Path], command: tuple[str, ...]) -> None:
    path = config("max-turns = '3'")
    done = program(*command, config=path.parents[1])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"trio-agent: cannot use the configuration {path}: 'max-turns' is '3', but must be a whole number, at least 1\n"
    )


def test_files_that_are_no_configuration(config: Callable[[str], Path], tmp_path: Path) -> None:
    path = config("")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="it is no TOML: 'utf-8' codec"):
        load_configuration(path)
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load_configuration(tmp_path)
    with pytest.raises(ConfigurationError, match="No such file"):
        load_configuration(tmp_path / "missing")
    with pytest.raises(ConfigurationError, match="null"):
        load_configuration("a\0b")


def test_the_command_line_wins_over_the_configuration(here: Path, config: Callable[[str], Path]) -> None:
    where = config('json = true\ntools = ["read_file"]\nmax-turns = 1\n').parents[1]
    done = program("run", "read hello.txt", config=where)
    assert done.returncode == 3
    assert done.stdout.startswith('{"type": "agent_start"}')
    done = program("run", "--text", "--max-turns", "5", "read hello.txt; run ls", config=where)
    assert done.returncode == 0
    assert "I did nothing about 'run ls'" in done.stdout
    done = program("run", "--no-config", "read hello.txt; run ls", config=where)
    assert "I make 2 calls" in done.stdout
    assert [tool["name"] for tool in json.loads(program("tools", "--json", config=where).stdout)] == ["read_file"]


def test_another_configuration_can_be_named(here: Path, config: Callable[[str], Path]) -> None:
    where = config("nonsense").parents[1]
    Path("other.toml").write_text('tools = ""\n')
    assert program("run", "--config", "other.toml", "read hello.txt", config=where).returncode == 0
    done = program("run", "--config", "missing.toml", "x", config=where)
    assert (done.returncode, done.stderr) == (
        2,
        "trio-agent: cannot use the configuration missing.toml: No such file or directory\n",
    )
    done = program("run", "--config", "other.toml", "--no-config", "x")
    assert (done.returncode, "exclude each other" in done.stderr) == (2, True)
    assert program("run", "--help", config=where).returncode == 0


# ------------------------------------------------------- limits and prompts


@pytest.mark.slow
def test_the_time_limit_of_a_run_closes_it_in_order(here: Path) -> None:
    """Slow: real commands are stopped by a real limit."""
    done = program("run", "--timeout", "0.5", "--save", "t.json", "run 'echo begun; sleep 60'; read hello.txt")
    assert (done.returncode, done.stderr) == (124, "trio-agent: the run was ended by --timeout 0.5\n")
    roles = [message.role for message in load_transcript("t.json")]
    assert roles == ["system", "user", "assistant", "tool_result", "tool_result", "assistant"]


def test_the_turns_of_a_run_are_limited(here: Path) -> None:
    done = program("run", "--max-turns", "1", "--save", "t.json", "read hello.txt")
    assert (done.returncode, done.stderr) == (3, "trio-agent: the run was ended by --max-turns\n")
    assert load_transcript("t.json")[-1].role == "tool_result"
    resumed = program("run", "--max-turns", "1", "--resume", "t.json", "hello")
    assert (resumed.returncode, resumed.stderr) == (0, "")


def test_the_system_prompt_comes_from_a_file(here: Path) -> None:
    Path("s.md").write_text("Be good. é\n")
    assert program("run", "--system", "s.md", "--save", "t.json", "hello").returncode == 0
    assert load_transcript("t.json")[0].content == "Be good. é\n"  # type: ignore[union-attr]
    done = program("run", "--system", "s.md", "--resume", "t.json", "hello")
    assert (done.returncode, done.stderr) == (
        2,
        "trio-agent: --system does not go with --resume: t.json has a system prompt of its own\n",
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--system", "missing.md"], "cannot take the system prompt from missing.md: No such file or directory"),
        (["--system", "."], "cannot take the system prompt from .: Is a directory"),
        (["--system", "bytes"], "cannot take the system prompt from bytes: it is no text in UTF-8"),
        (["--timeout", "0"], "Invalid value for '--timeout': 0.0 is no number of seconds above 0."),
        (["--timeout", "nan"], "Invalid value for '--timeout': nan is no number of seconds above 0."),
        (["--timeout", "soon"], "Invalid value for '--timeout': 'soon' is not a valid float."),
        (["--max-turns", "0"], "Invalid value for '--max-turns'"),
        (["--config"], "Option '--config' requires an argument."),
    ],
)
def test_options_that_cannot_be_used(here: Path, arguments: list[str], text: str) -> None:
    Path("bytes").write_bytes(b"\xff")
    done = program("run", "x", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"trio-agent: {text}")
    assert done.stderr.count("\n") == 1


def test_a_disk_that_is_full_at_the_end_leaves_the_old_transcript(here: Path) -> None:
    Path("t.json").write_text("old")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    done = program("run", "--save", "t.json", "read hello.txt", preexec_fn=small_files)
    assert (done.returncode, done.stderr) == (1, "trio-agent: cannot save to t.json: File too large\n")
    assert "hello" in done.stdout
    assert Path("t.json").read_text() == "old"
    assert not list(here.glob(".trio-agent*"))
