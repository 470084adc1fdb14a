"""What a mutant is, and a library whose source is replaced in memory; nothing on disk is touched."""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, final

import attrs

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("_run", "_loop", "_batch", "_call", "_response", "_queues", "_abort", "_closing", "_open", "_tool._limits")
"""What is mutated: the core that design 7 is about."""


def path_of(module: str) -> Path:
    """Where a module of ``MODULES`` stands."""
    return ROOT.joinpath("trio_agent", *module.split(".")).with_suffix(".py")


@final
@attrs.frozen
class Mutant:
    """One small fault in one module."""

    id: str
    """Stays the same as long as its function does: module, function, operator, number in the function."""
    operator: str
    module: str
    function: str
    digest: str
    """Of the function's source and the change; results of another digest are out of date."""
    line: int
    before: str
    """The first line that differs."""
    after: str
    source: str = attrs.field(repr=False)
    """The whole module with the fault in it."""


@final
@attrs.frozen
class Unit:
    """A function, or a statement outside of functions: what a mutant belongs to."""

    name: str
    first: int
    """Its first line, decorators included, counted from 1."""
    last: int
    indent: int

    def text(self, lines: Sequence[str]) -> str:
        """Its source, moved to the left margin."""
        return "".join(line[self.indent :] if line.strip() else line for line in lines[self.first - 1 : self.last])

    def replaced(self, lines: Sequence[str], text: str) -> str:
        """The module with another source in its place."""
        pad = " " * self.indent
        moved = "".join(pad + line if line.strip() else line for line in text.splitlines(keepends=True))
        return "".join([*lines[: self.first - 1], moved, *lines[self.last :]])


def units(source: str) -> Iterator[Unit]:
    """The functions and other statements of a module. The head of a class is none: see ``tool``."""
    yield from _units(ast.parse(source).body, "", 0)


def _units(body: Sequence[ast.stmt], prefix: str, indent: int) -> Iterator[Unit]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _units(node.body, f"{prefix}{node.name}.", indent + 4)
            continue
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else "(body)"
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        yield Unit(prefix + name, first, node.end_lineno or node.lineno, indent)


def make(module: str, source: str, mutated: str, unit: Unit, operator: str, number: int) -> Mutant:  # noqa: PLR0917 - what a mutant is made of
    """Describe a mutant by where its source differs."""
    changed = _difference(source, mutated)
    text = unit.text(source.splitlines(keepends=True)) + "\0" + "\0".join(changed[1:])
    return Mutant(
        f"{module}.{unit.name} {operator} {number}",
        operator,
        module,
        unit.name,
        hashlib.sha256(text.encode()).hexdigest()[:12],
        *changed,
        mutated,
    )


def _difference(old: str, new: str) -> tuple[int, str, str]:
    old_lines, new_lines = old.splitlines(), new.splitlines()
    at = next(n for n, (one, other) in enumerate(zip([*old_lines, ""], [*new_lines, ""], strict=False)) if one != other)
    tail = 0
    while tail < min(len(old_lines), len(new_lines)) - at and old_lines[-1 - tail] == new_lines[-1 - tail]:
        tail += 1
    before = " / ".join(line.strip() for line in old_lines[at : len(old_lines) - tail])
    after = " / ".join(line.strip() for line in new_lines[at : len(new_lines) - tail])
    return at + 1, before, after


def fingerprint(code: CodeType) -> Any:
    """What a code object does, without where it stands: two mutants of one fingerprint are the same."""
    constants = tuple(
        fingerprint(one) if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


# ---------------------------------------------------------------- the library


@final
class Library:
    """The sources of ``trio_agent`` as they were when they were read, compiled."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.codes: dict[str, tuple[CodeType, Path]] = {}
        for path in sorted((ROOT / "trio_agent").rglob("*.py")):
            relative = path.relative_to(ROOT).with_suffix("")
            parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
            name = ".".join(parts)
            self.sources[name] = path.read_text(encoding="utf-8")
            self.codes[name] = compile(self.sources[name], str(path), "exec"), path

    def source(self, module: str) -> str:
        """The source of a module of the core."""
        return self.sources[f"trio_agent.{module}"]

    def put_in_place(self, mutant: Mutant | None) -> None:
        """Let every later import of ``trio_agent`` give these sources, one of them with a fault in it."""
        if any(name.partition(".")[0] == "trio_agent" for name in sys.modules):
            raise RuntimeError("trio_agent is imported already; a mutant needs a fresh process")
        codes = dict(self.codes)
        if mutant is not None:
            name = f"trio_agent.{mutant.module}"
            path = codes[name][1]
            codes[name] = compile(mutant.source, str(path), "exec"), path
        sys.meta_path.insert(0, _Finder(codes))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, codes: Mapping[str, tuple[CodeType, Path]]) -> None:
        self._codes = codes

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname not in self._codes:
            return None
        origin = self._codes[fullname][1]
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=str(origin), is_package=origin.name == "__init__.py"
        )
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(origin.parent))
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(self._codes[module.__name__][0], vars(module))
