"""The public surface and the shape of the package: names, values, errors, who may import whom, size."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import pickle
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import trio

import trio_agent
import trio_agent.providers
import trio_agent.testing
import trio_agent.tools
from trio_agent import Agent, ContinueError, InvalidArgumentsError, RunFailedError, SimpleModel, TrioAgentError
from trio_agent.testing import InvariantError, ScenarioStuckError, ScriptExhaustedError, ScriptNotExhaustedError

ROOT = Path(trio_agent.__file__).parent
PUBLIC = (trio_agent, trio_agent.providers, trio_agent.testing, trio_agent.tools)


def re_exported(module: ModuleType) -> Iterator[str]:
    """The names that a package re-exports: ``from ._x import X as X``."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                assert alias.asname == alias.name, f"{alias.name} is imported, but not re-exported as itself"
                yield alias.name


NAMES = [(module, name) for module in PUBLIC for name in re_exported(module)]
OBJECTS = [(module, name, getattr(module, name)) for module, name in NAMES]
CLASSES = [(module, name, thing) for module, name, thing in OBJECTS if isinstance(thing, type)]
every_name = pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
every_class = pytest.mark.parametrize(("module", "name", "cls"), CLASSES, ids=[name for _, name, _ in CLASSES])


# ------------------------------------------------------------------ names


def test_there_are_public_names() -> None:
    counts = [sum(each is module for each, _ in NAMES) for module in PUBLIC]
    assert counts[0] > 100
    assert counts[1] > 15
    assert counts[2] > 10
    assert counts[3] >= 4
    assert len(set(NAMES)) == len(NAMES), "a name is re-exported twice"


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_nothing_else_is_public(module: ModuleType) -> None:
    found = {name for name in vars(module) if not name.startswith(("_", "@"))}  # pytest's own begin with an @
    packages = {"cli", "providers", "testing", "tools"} if module is trio_agent else set[str]()
    assert found - packages == set(re_exported(module))
    assert module.__doc__


def where_written(module: ModuleType, name: str) -> tuple[Path, str]:
    """The file that defines a name, through re-exports of re-exports, and its name there."""
    path = Path(str(module.__file__))
    while True:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                assert node.module is not None
                base = ROOT.parent if node.level == 0 else path.parent
                target = base.joinpath(*node.module.split("."))
                path = target / "__init__.py" if target.is_dir() else target.with_suffix(".py")
                break
        else:
            return path, name


def literal_behind(path: Path, name: str) -> str:
    """The string that stands right behind the assignment of a name: the docstring of an alias or constant."""
    body = ast.parse(path.read_text("utf-8")).body
    for node, after in pairwise(body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            text = after.value if isinstance(after, ast.Expr) else None
            return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
    raise AssertionError(f"{name} is not assigned in {path}")


@every_name
def test_every_public_name_says_what_it_is(module: ModuleType, name: str) -> None:
    thing = getattr(module, name)
    if isinstance(thing, type) or inspect.isfunction(thing):
        text = thing.__doc__ or ""
        # attrs writes a docstring of its own into classes without one; enums and dataclasses too.
        assert not text.startswith(f"{name}("), f"{name} has a generated docstring"
    else:
        text = literal_behind(*where_written(module, name))
    assert text.strip()
    assert text.strip()[0].isupper() or text.strip()[0] in "`(\"'"
    assert text.strip().split("\n\n")[0].rstrip()[-1] in ".:", f"{name}: the first paragraph is no sentence"


@every_class
def test_every_public_member_says_what_it_is(module: ModuleType, name: str, cls: type) -> None:
    for attribute, value in vars(cls).items():
        member = value.fget if isinstance(value, property) else value
        member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not attribute.startswith("_") and inspect.isfunction(member):
            assert (member.__doc__ or "").strip(), f"{name}.{attribute} has no docstring"


@every_name
def test_every_public_name_is_shown_at_its_public_path(module: ModuleType, name: str) -> None:
    thing = getattr(module, name)
    if isinstance(thing, type) or inspect.isfunction(thing):
        assert thing.__module__ == module.__name__
        assert thing.__qualname__ == thing.__name__ == name


@every_class
def test_public_classes_can_be_imported_by_name(module: ModuleType, name: str, cls: type) -> None:
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert getattr(importlib.import_module(cls.__module__), cls.__qualname__) is cls


def is_final(cls: type) -> bool:
    return getattr(cls, "__final__", False)


@every_class
def test_public_concrete_classes_are_final(module: ModuleType, name: str, cls: type) -> None:
    # Style 2. Errors are a tree; a Protocol is what a host implements.
    open_for_hosts = issubclass(cls, BaseException) or getattr(cls, "_is_protocol", False)
    assert is_final(cls) != open_for_hosts


# ------------------------------------------------------------------ values

IDENTITY = {"Agent", "Exploration", "Monitor", "ScriptedModel", "TraceRecorder"}
"""Public attrs classes that are no values but things: they change, and are equal to themselves only."""

VALUES = [(module, name, cls) for module, name, cls in CLASSES if attrs.has(cls) and name not in IDENTITY]


def test_most_public_classes_are_values() -> None:
    assert len(VALUES) > 40
    assert {name for _, name, cls in CLASSES if attrs.has(cls)} >= IDENTITY


@pytest.mark.parametrize(("module", "name", "cls"), VALUES, ids=[name for _, name, _ in VALUES])
def test_values_are_frozen_and_slotted(module: ModuleType, name: str, cls: Any) -> None:
    if hasattr(cls, "__struct_fields__"):  # one that is made quickly
        value = cls(*("" for field in attrs.fields(cls) if field.default is attrs.NOTHING))
    else:
        value = object.__new__(cls)
    assert not hasattr(value, "__dict__"), f"{name} has no slots"
    for field in attrs.fields(cls):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field.name, None)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            delattr(value, field.name)
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        value.something_new = 1


def test_things_with_identity_are_equal_to_themselves_only() -> None:
    one, other = Agent(SimpleModel("p", "m")), Agent(SimpleModel("p", "m"))
    assert one == one  # noqa: PLR0124
    assert one != other
    assert len({one, other}) == 2
    model, same = trio_agent.testing.ScriptedModel(["Hi."]), trio_agent.testing.ScriptedModel(["Hi."])
    assert model != same
    assert len({model, same}) == 2


# ------------------------------------------------------------------ errors

ERRORS = [(module, name, cls) for module, name, cls in CLASSES if issubclass(cls, BaseException)]
SAMPLES: dict[str, BaseException] = {
    "InvariantError": InvariantError("Paired", "there is no agent_end"),
    "ContinueError": ContinueError("cannot continue", "assistant"),
    "InvalidArgumentsError": InvalidArgumentsError("read", ["$.path: is missing", "$.n: 5 is no string"]),
    "RunFailedError": RunFailedError("aborted", "aborted"),
    "ScenarioStuckError": ScenarioStuckError("stuck", ["entry"]),
    "ScriptExhaustedError": ScriptExhaustedError("no turn", 3),
    "ScriptNotExhaustedError": ScriptNotExhaustedError("turns are left", 2),
}


@pytest.mark.parametrize(("module", "name", "cls"), ERRORS, ids=[name for _, name, _ in ERRORS])
def test_errors_pickle_with_all_that_they_say(module: ModuleType, name: str, cls: type[BaseException]) -> None:
    error = SAMPLES.get(name) or cls("it went wrong")
    error.add_note("and more")
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is cls
    assert str(other) == str(error) != ""
    assert other.args == error.args
    assert vars(other) == vars(error)


@pytest.mark.parametrize(("module", "name", "cls"), ERRORS, ids=[name for _, name, _ in ERRORS])
def test_every_error_of_the_library_is_one_of_its_tree(module: ModuleType, name: str, cls: type[BaseException]) -> None:
    if name == "ScriptedFailure":  # stands for an error of the host's own, so it must not be one of the library's
        assert not issubclass(cls, TrioAgentError)
        return
    assert issubclass(cls, TrioAgentError)
    path, _ = where_written(module, name)
    if path.name == "_errors.py":  # style 10: the tree is drawn at the top of the file
        drawn = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert f" {name} " in drawn.replace("\n", " ")


def test_errors_are_the_errors_of_trio_and_python_that_they_stand_for() -> None:
    assert issubclass(trio_agent.BusyError, trio.BusyResourceError)
    assert issubclass(trio_agent.QueueFullError, trio.WouldBlock)
    assert issubclass(trio_agent.FormatError, ValueError)
    assert issubclass(ScriptNotExhaustedError, AssertionError)
    usage = {name for _, name, cls in ERRORS if issubclass(cls, trio_agent.UsageError)}
    assert usage >= {
        "BusyError",
        "ContinueError",
        "NoStreamFnError",
        "QueueFullError",
        "ToolDefinitionError",
        "UsageError",
    }


# ------------------------------------------------------------------ import


@pytest.mark.slow  # starts an interpreter
@pytest.mark.parametrize(
    "module", ["trio_agent", "trio_agent.providers", "trio_agent.testing", "trio_agent.tools", "trio_agent.cli"]
)
def test_importing_warns_of_nothing_and_prints_nothing(module: str) -> None:
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", f"import {module}"]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow  # starts an interpreter
def test_the_core_loads_neither_the_testing_kit_nor_tools_nor_a_terminal() -> None:
    code = "import sys, trio_agent; print(*sorted(name for name in sys.modules if '.' not in name or 'trio_agent' in name))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "trio_agent._agent" in loaded
    assert loaded.isdisjoint(
        {
            "rich",
            "click",
            "httpx",
            "pytest",
            "trio_agent.providers",
            "trio_agent.testing",
            "trio_agent.tools",
            "trio_agent.cli",
        }
    )


# ------------------------------------------------------------------- rooms

ROOMS = [
    # Design 2, from the bottom to the top. Where this list departs from that page:
    "_errors",
    "_values",  # not on the page: how frozen values are made quickly
    "_messages",
    "_transcript",
    "_door",  # not on the page: the one door to the host's code (7.7), and what may come back out of it
    "_stream",  # below _events, whose message_update carries a stream event
    "_tool",  # _arguments, _schema and _limits are inside of it
    "_events",
    "_wire",  # not on the page: JSON, which stood in _messages, _transcript and _events
    "_abort",  # below _hooks: hooks are given it
    "_hooks",
    "_queues",  # above _hooks, which names what it is asked as
    "_open",  # not on the page: what is open in a run
    "_closing",  # not on the page: what is missing to close it
    "_run",
    "_call",
    "_batch",
    "_response",
    "_loop",
    "_state",  # not on the page: what an agent shows
    "_iterate",  # not on the page: a run to iterate over
    "_agent",
    "tools",
    "providers",
    "testing",
    "cli",
    "__main__",
]
"""Who may know whom: each room only those above it in this list."""

NARROW = {
    "tools": {"_tool", "_messages", "_errors"},
    "providers": {"_stream", "_messages", "_transcript", "_errors"},
    "testing": {room for room in ROOMS[: ROOMS.index("testing")] if room != "providers"},
}
"""Rooms that design 2 allows fewer rooms to know than all below them."""

INSIDE = {
    "_stream": ["_request", "_answer", "_line", "_sink"],
    "_tool": ["_arguments", "_schema", "_limits", "_definition"],
    "_wire": ["_messages", "_transcript", "_events"],
}
"""The order within the rooms that are packages."""


def dotted(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(path: Path, source: str) -> Iterator[tuple[str, ...]]:
    """What a module of this package imports of this package, as paths below it."""
    package = dotted(path) if path.name == "__init__.py" else dotted(path)[:-1]
    for node in ast.walk(ast.parse(source)):
        found: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            found = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ("trio_agent", *package[: len(package) - node.level + 1]) if node.level else ()
            target = (*base, *(node.module.split(".") if node.module else ()))
            # Of a package a module may be imported, or a name that it re-exports.
            found = [(*target, alias.name) if is_module((*target, alias.name)) else target for alias in node.names]
        yield from (name[1:] for name in found if name[0] == "trio_agent")


def is_module(name: tuple[str, ...]) -> bool:
    place = ROOT.parent.joinpath(*name)
    return place.is_dir() or place.with_suffix(".py").exists()


def upward(path: Path, source: str | None = None) -> list[str]:
    """The imports of a module that point upwards or sideways."""
    here = dotted(path)
    if not here:
        return []  # the package itself re-exports everything below the rooms beside it
    found = []
    source = path.read_text("utf-8") if source is None else source
    for target in imports(path, source):
        name = ".".join(target) or "trio_agent"
        if not target:
            # The public names, all of which come from rooms up to _agent.
            if ROOMS.index(here[0]) <= ROOMS.index("_agent") or here[0] in ("tools", "providers"):
                found.append(name)
        elif target[0] != here[0]:
            known = NARROW.get(here[0])
            if ROOMS.index(target[0]) >= ROOMS.index(here[0]) or (known is not None and target[0] not in known):
                found.append(name)
        elif here[0] in INSIDE and len(here) > 1 and len(target) > 1:
            order = INSIDE[here[0]]
            if order.index(target[1]) >= order.index(here[1]) and target not in only_for_types(path, source):
                found.append(name)
    return found


def only_for_types(path: Path, source: str) -> set[tuple[str, ...]]:
    """What is imported under TYPE_CHECKING alone; within a room types may refer to each other."""
    kept = ast.parse(source)
    kept.body = [
        node for node in kept.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return set(imports(path, source)) - set(imports(path, ast.unparse(kept)))


MODULES = sorted(ROOT.rglob("*.py"))


def test_every_module_has_its_room() -> None:
    assert {dotted(path)[0] for path in MODULES if dotted(path)} <= set(ROOMS)
    for room, order in INSIDE.items():
        assert {dotted(path)[1] for path in MODULES if dotted(path)[:1] == (room,) and len(dotted(path)) > 1} == set(
            order
        )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_only_downwards(path: Path) -> None:
    assert upward(path) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_messages.py", "from ._transcript import Replay"),
        ("_messages.py", "import trio_agent._agent"),
        ("_messages.py", "from . import _agent"),
        ("_messages.py", "from trio_agent import Agent"),
        ("_messages.py", "def f():\n    from ._agent import Agent"),
        ("_messages.py", "if TYPE_CHECKING:\n    from ._agent import Agent"),
        ("_run.py", "from ._call import Caller"),
        ("_run.py", "from ._run import Run2\nfrom ._loop import x"),
        ("tools/_shell.py", "from trio_agent._agent import Agent"),
        ("tools/_shell.py", "from trio_agent import Agent"),
        ("providers/_decoder.py", "from trio_agent._wire import message_to_json"),
        ("testing/_script.py", "from trio_agent.cli import main"),
        ("_stream/_request.py", "from ._answer import MessageBuilder"),
        ("_stream/_answer.py", "from trio_agent._agent import Agent"),
    ],
)
def test_an_import_upwards_would_be_found(module: str, source: str) -> None:
    assert len(upward(ROOT / module, source)) == 1


# -------------------------------------------------------------------- size


def lines_of_code(source: str) -> int:
    """Lines that hold code: neither docstrings (those of fields too), nor comments, nor blanks."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def test_lines_of_code_are_counted_as_the_design_says() -> None:
    source = '"""Doc."""\n\n# why\nx = (\n    1,  # one\n\n)\n\n\nclass C:\n    """Doc.\n\n    More.\n    """\n\n    a: int = 1\n    """Field."""\n'
    assert lines_of_code(source) == 5


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_longer_than_four_hundred_lines(path: Path) -> None:
    assert lines_of_code(path.read_text("utf-8")) <= 400


def test_the_core_is_shorter_than_three_thousand_lines() -> None:
    # Style 16. The core is what stands directly in the package: the loop and the agent. The rooms that are
    # packages of their own (_stream, _tool, _wire) are shown beside it.
    sizes = {path.name: lines_of_code(path.read_text("utf-8")) for path in ROOT.glob("*.py")}
    beside = {
        room: sum(lines_of_code(path.read_text("utf-8")) for path in (ROOT / room).rglob("*.py")) for room in INSIDE
    }
    assert sum(sizes.values()) < 3000, f"{sum(sizes.values())} lines: {sizes}; beside it {beside}"
