"""Running the peers: each in its own process, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from typing import Any

from bench.measure import Cell
from bench.options import Options
from bench.results import Results, Verdict

from .table import ROOT, Peer

BENCHES = ("fanout", "cancel", "depth", "stream", "turns")
"""Those of the benchmarks that have a row for each peer."""
NORMAL = {
    "fanout": [1, 10, 100, 1000, 5000], "turns": [200, 1000], "text": [1000, 10_000],
    "arguments": [12_500, 50_000], "cancel": [1, 100, 1000, 5000], "depth": [1, 8],
}  # fmt: skip
QUICK = {"fanout": [1, 100], "turns": [50], "text": [1000], "arguments": [5000], "cancel": [100], "depth": [8]}
"""Sizes that the quick form of the library's own benchmarks has, too."""
REPS = {"fanout": 5, "turns": 2, "stream": 3, "cancel": 5, "depth": 5}
BUDGET = 15.0
"""Seconds of one cell of a peer after which no further pair is begun."""


def run_peer(peer: Peer, benches: Iterable[str], options: Options, *, scoreboard: bool) -> Results:
    """Measure one peer. If its process fails, what was found until then counts, and the failure is noted."""
    sizes = {name: list(values) for name, values in (QUICK if options.quick else NORMAL).items()}
    wanted = [part for bench in benches for part in (("text", "arguments") if bench == "stream" else (bench,))]
    if options.sizes:
        sizes = {name: list(options.sizes) for name in sizes}
    order = {
        "peer": peer.name, "benches": wanted, "sizes": sizes, "scoreboard": scoreboard, "budget": BUDGET,
        "reps": {name: options.repeat(reps) for name, reps in REPS.items()},
    }  # fmt: skip
    results = Results()
    command = [str(peer.python), "-m", "bench.peers.worker", json.dumps(order)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            _take(results, peer, json.loads(line))
    if process.returncode:
        why = f"the process ended with status {process.returncode}"
        about = results.peers.setdefault(peer.name, {"name": peer.name, "title": peer.title, "missing": []})
        about["missing"].append({"kind": "failed", "bench": "all", "case": "the rest", "n": 0, "why": why})
        print(f"{peer.name}: {why}", flush=True)
    return results


def _take(results: Results, peer: Peer, said: dict[str, Any]) -> None:
    ((kind, data),) = said.items()
    if kind == "peer":
        results.peers[peer.name] = {**data, "missing": []}
    elif kind == "cell":
        cell = Cell.from_json(data)
        results.cells.append(cell)
        print(cell, flush=True)
    elif kind == "verdict":
        verdict = Verdict(**data)
        results.scoreboard.append(verdict)
        print(f"{peer.name:22} {verdict.trial:10} {verdict.verdict:5} {verdict.detail}", flush=True)
    else:
        results.peers[peer.name]["missing"].append({"kind": kind, **data})
        print(f"{peer.name:22} {data['bench']}/{data['case']} n={data['n']}: {kind}: {data['why']}", flush=True)
