"""Which runs come to which lines: a run that never comes to a mutated statement need not be made again.

What does not execute a statement behaves as it did without the fault in it, so leaving such runs out
loses nothing and saves most of the time. Statements outside of functions are executed by all runs.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

from mutation.planted import MODULES, path_of


@final
class Tracer:
    """Notes the lines of the core that are executed."""

    def __init__(self) -> None:
        self._modules = {str(path_of(module)): module for module in MODULES}
        self._seen: set[tuple[str, int]] = set()

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._on_line if frame.f_code.co_filename in self._modules else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line

    @contextmanager
    def noting(self) -> Generator[list[str]]:
        """Note what is executed in the block; the list is filled behind it."""
        lines: list[str] = []
        self._seen = set()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        try:
            yield lines
        finally:
            sys.settrace(None)
            threading.settrace(None)
            lines.extend(f"{self._modules[name]}:{line}" for name, line in self._seen)


def lines_of(module: str, line: int, source: str) -> Iterable[str] | None:
    """The lines by which one knows that a mutated statement was executed; None if every run does it."""
    found = _narrowest(ast.parse(source).body, line, None)
    return None if found is None else {f"{module}:{one}" for one in found}


def _narrowest(body: list[ast.stmt], line: int, function: range | None) -> range | None:
    for node in body:
        whole = range(_first(node), (node.end_lineno or node.lineno) + 1)
        if line not in whole:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = range(node.body[0].lineno, whole.stop)
            if line < function.start:
                return function  # a decorator or a default
        inner = [*_bodies(node)]
        for one in inner:
            if one and _first(one[0]) <= line <= (one[-1].end_lineno or one[-1].lineno):
                return _narrowest(one, line, function)
        if function is None:
            return None
        if isinstance(node, ast.Try):
            return whole  # an `except` or `else` line of its own
        end = min((_first(one[0]) for one in inner if one), default=whole.stop)
        return range(whole.start, max(end, whole.start + 1))
    return function


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
            yield body
    for handler in getattr(node, "handlers", []):
        yield handler.body
    for case in getattr(node, "cases", []):
        yield case.body
