"""The JSON that a measurement leaves, and putting several of them together."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import attrs

from .machine import describe_machine, describe_python, load_average
from .measure import Cell

FORMAT = 1
PACKAGES = ("trio", "trio_agent", "attrs", "msgspec", "jsonschema-rs", "jiter", "outcome", "sortedcontainers")


@final
@attrs.frozen
class Verdict:
    """What a trial of the scoreboard came to for one peer."""

    peer: str
    trial: str
    """The name of the trial."""
    verdict: str
    """``yes``, ``no``, ``part``; ``none`` where the peer has no such interface, ``failed`` where the trial broke."""
    detail: str = ""
    facts: dict[str, Any] = attrs.field(factory=dict)


@final
@attrs.define
class Results:
    """Everything that one command measured, or several of them."""

    cells: list[Cell] = attrs.field(factory=list)
    scoreboard: list[Verdict] = attrs.field(factory=list)
    explored: list[dict[str, Any]] = attrs.field(factory=list)
    """What explorations of the user's own tools came to."""
    peers: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Version, packages and remarks of each peer that was run."""
    sittings: list[dict[str, Any]] = attrs.field(factory=list)
    """When, where and how each measurement was made."""

    def add_sitting(self, *, quick: bool) -> None:
        """Write down machine, Python, versions and the command."""
        self.sittings.append(
            {
                "made": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "command": ["python", "-m", "bench", *sys.argv[1:]],
                "quick": quick,
                "machine": describe_machine(),
                "load_average": load_average(),
                **describe_python(PACKAGES),
            }
        )

    def merge(self, other: Results) -> None:
        """Add another measurement: samples of the same case are pooled, a later verdict counts."""
        known = {cell.key: cell for cell in self.cells}
        for cell in other.cells:
            if cell.key in known:
                known[cell.key].add(cell)
            else:
                known[cell.key] = cell
                self.cells.append(cell)
        verdicts = {(one.peer, one.trial): one for one in (*self.scoreboard, *other.scoreboard)}
        self.scoreboard = list(verdicts.values())
        self.explored += other.explored
        self.peers.update(other.peers)
        self.sittings += other.sittings

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "format": FORMAT,
            "sittings": self.sittings,
            "peers": self.peers,
            "cells": [cell.to_json() for cell in self.cells],
            "scoreboard": [attrs.asdict(verdict) for verdict in self.scoreboard],
            "explored": self.explored,
        }

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Results:
        """Read what :meth:`to_json` gave.

        Raises:
          ValueError: it is of another format.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"format {data.get('format')!r} is not {FORMAT}; measure again with this version")
        return cls(
            [Cell.from_json(cell) for cell in data["cells"]],
            [Verdict(**verdict) for verdict in data["scoreboard"]],
            data.get("explored", []),
            data["peers"],
            data["sittings"],
        )


def load(paths: Iterable[Path]) -> Results:
    """Read several files as one."""
    together = Results()
    for path in paths:
        together.merge(Results.from_json(json.loads(path.read_text("utf-8"))))
    return together


def find(cells: Sequence[Cell], bench: str, case: str, n: int, subject: str = "trio_agent") -> Cell | None:
    """The cell of a case, or None if it was not measured."""
    return next((cell for cell in cells if cell.key == (bench, case, n, subject)), None)
