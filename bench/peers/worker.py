"""What runs in the process of a peer: its benchmarks with the floor beside them, and the scoreboard.

It is started by :mod:`bench.peers.run` and prints one line of JSON for each thing that it found.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs

from bench import floors
from bench.machine import describe_python
from bench.measure import Case, interleave

from .adapter import Adapter, Plan, UnavailableError
from .scoreboard import try_all
from .table import BY_NAME

BARE = "N tasks of Trio in a nursery, one checkpoint each"
ARGUMENTS = (12_500, 50_000)
INNER = {1: 20, 10: 5}


def load(name: str) -> Adapter:
    """The adapter of a peer."""
    module, _, cls = BY_NAME[name].adapter.partition(":")
    adapter: Adapter = getattr(importlib.import_module(f"bench.peers.{module}"), cls)()
    return adapter


def pieces_of(size: int) -> list[str]:
    """Arguments of about so many bytes, in pieces of ten."""
    items: list[str] = []
    length = 20
    while length < size:
        items.append(json.dumps({"id": len(items), "path": f"src/mod_{len(items)}/file.py", "text": "the quick fox"}))
        length += len(items[-1]) + 2
    text = '{"n": 1, "items": [' + ", ".join(items) + "]}"
    return [text[at : at + 10] for at in range(0, len(text), 10)]


def cases(adapter: Adapter, benches: list[str], sizes: dict[str, list[int]], common: dict[str, Any]) -> Iterator[Case]:
    """What is measured of a peer; the same as of the library, where the peer can do it."""
    case = partial(Case, **common, version=adapter.version, note=adapter.note)
    for bench in benches:
        for n in sizes[bench]:
            if n > adapter.largest.get(bench, n):
                continue
            if bench == "fanout":
                inner = INNER.get(n, 1)
                yield case(
                    bench="fanout", case="calls", n=n, per=n * inner, floor_name=BARE,
                    floor=partial(floors.tasks, n, inner), run=partial(adapter.fanout, n, inner),
                )  # fmt: skip
            elif bench == "turns":
                yield case(
                    bench="turns", case="turns", n=n, per=n, unit="turn", floor_name="a nursery with one task, so often",
                    floor=partial(floors.turns, n), run=partial(adapter.turns, n),
                )  # fmt: skip
            elif bench == "text":
                yield case(
                    bench="stream", case="text, async listener", n=n, per=n, unit="delta", floor_name=BARE,
                    floor=partial(floors.tasks, 1000), floor_per=1000, run=partial(adapter.text, n),
                )  # fmt: skip
            elif bench == "arguments":
                parts = pieces_of(n)
                yield case(
                    bench="stream", case="arguments, async listener", n=n, per=len(parts), unit="piece",
                    floor_name=BARE, floor=partial(floors.tasks, 1000), floor_per=1000,
                    run=partial(adapter.arguments, parts),
                )  # fmt: skip
            elif bench == "cancel":
                for act in ("abort", "host"):
                    yield case(
                        bench="cancel", case=act, n=n, per=n,
                        floor_name="N sleeping tasks of Trio whose scope is cancelled",
                        floor=partial(floors.cancel, n),
                        run=partial(adapter.cut, Plan(n=n, act="abort" if act == "abort" else "host")),
                    )  # fmt: skip
            elif bench == "depth":
                for act in ("abort", "host"):
                    yield case(
                        bench="depth", case=f"fan-out 1, {act}", n=n, per=n, unit="level",
                        floor_name="nurseries of Trio in nurseries, of which the uppermost scope is cancelled",
                        floor=partial(floors.nested, n, 1),
                        run=partial(adapter.cut, Plan(n=1, act="abort" if act == "abort" else "host", depth=n)),
                    )  # fmt: skip


def main() -> None:
    """Read the order, work it off, and print what was found."""
    order = json.loads(sys.argv[1])
    # Peers warn and log about their own affairs; what is told here goes to a pipe of our own.
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(kind: str, data: Any) -> None:
        out.write(json.dumps({kind: data}) + "\n")
        out.flush()

    name = order["peer"]
    adapter = load(name)
    peer = BY_NAME[name]
    required = [what.partition("==")[0] for what in peer.requires]
    tell("peer", {
        "name": name, "title": peer.title, "version": adapter.version, "note": adapter.note,
        "npm": list(peer.npm), **describe_python(["trio", *required]),
    })  # fmt: skip
    try:
        for case in cases(adapter, order["benches"], order["sizes"], {"subject": name}):
            try:
                cell = interleave(case, order["reps"].get(case.bench, 3), budget=order["budget"])
            except UnavailableError as error:
                tell("unavailable", {"bench": case.bench, "case": case.case, "n": case.n, "why": str(error)})
            except Exception as error:
                why = f"{type(error).__name__}: {str(error)[:300]}"
                tell("failed", {"bench": case.bench, "case": case.case, "n": case.n, "why": why})
            else:
                tell("cell", cell.to_json())
        if order["scoreboard"]:
            for verdict in try_all(name, adapter):
                tell("verdict", attrs.asdict(verdict))
    finally:
        adapter.close()


if __name__ == "__main__":
    main()
