"""``python -m bench``: one command for each benchmark, one for the peers and one for the report."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from trio_agent import UsageError

from .measure import Cell, interleave
from .options import Benchmark, Options
from .peers.install import install
from .peers.run import BENCHES, run_peer
from .peers.table import BY_NAME, PEERS, Peer, choose
from .results import Results, load

BENCHMARKS = {
    "fanout": ("bench.fanout", "one prompt, N tool calls in one message"),
    "cancel": ("bench.cancel", "N sleeping tools, cut in every way; then the scoreboard of guarantees"),
    "depth": ("bench.depth", "agents inside tools of agents, cancelled at the top"),
    "stream": ("bench.stream", "text deltas and tool arguments in small pieces"),
    "turns": ("bench.turns", "long runs: the first turn and the last"),
    "agents": ("bench.agents", "many agents at once in one process"),
    "queue": ("bench.queues", "steering from many tasks and threads"),
    "provider": ("bench.provider", "decoding of streamed answers, encoding of long transcripts"),
}
"""Name: the module whose ``benchmark`` makes the cases, and what it is. A new benchmark is one line here."""
TAKES_TOOLS = ("fanout", "cancel", "explore")
PAGE = Path("docs/benchmarks.md")


def benchmark_of(name: str) -> Benchmark:
    """The function that makes the cases of a benchmark."""
    benchmark: Benchmark = importlib.import_module(BENCHMARKS[name][0]).benchmark
    return benchmark


def measure(names: Iterable[str], options: Options) -> list[Cell]:
    """Run benchmarks of the library itself."""
    cells: list[Cell] = []
    for name in names:
        for planned in benchmark_of(name)(options):
            cells.append(interleave(planned.case, planned.reps))
            print(cells[-1], flush=True)
    return cells


def run_benchmarks(names: Sequence[str], options: Options, peers: Sequence[Peer]) -> Results:
    """Run benchmarks, then the same on peers.

    The scoreboard belongs to ``cancel``; the library itself is tried in a process like a peer's.
    """
    results = Results()
    results.add_sitting(quick=options.quick)
    results.cells += measure(names, options)
    scoreboard = "cancel" in names and options.tools is None
    if scoreboard and all(peer.name != "trio_agent" for peer in peers):
        results.merge(run_peer(BY_NAME["trio_agent"], (), options, scoreboard=True))
    compared = [name for name in names if name in BENCHES]
    for peer in peers:
        # What the library itself takes has been measured; only its trials are missing.
        mine = () if peer.name == "trio_agent" else compared
        results.merge(run_peer(peer, mine, options, scoreboard=scoreboard))
    return results


def explore_tools(options: Options) -> Results:
    """Cut a run with the user's tools at every moment."""
    results = Results()
    results.add_sitting(quick=options.quick)
    explored = importlib.import_module("bench.explore").explore_tools(options)
    results.explored.append(explored)
    return results


def parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    everything = {name: text for name, (_, text) in BENCHMARKS.items()}
    everything["explore"] = "the user's own tools (--tools), cut at every moment; every invariant is checked"
    everything["all"] = "every benchmark of this list but explore; then the report"
    for name, text in everything.items():
        command = commands.add_parser(name, help=text, description=text)
        _common(command)
        if name == "all":
            command.add_argument(
                "--out", type=Path, metavar="FILE", help=f"the report; default {PAGE}, and none with --quick"
            )
        if name in TAKES_TOOLS:
            command.add_argument(
                "--tools", metavar="MODULE:NAME", help="tools of yours: one, several, or a function that makes them"
            )
    peers = commands.add_parser("peers", help="install the environments of the peers, or run them")
    actions = peers.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="which there are, and which are installed")
    installing = actions.add_parser("install", help="make an environment for each, with pinned versions")
    installing.add_argument("--peers", default="all", metavar="A,B,...", help="by default all")
    running = actions.add_parser("run", help="every benchmark that has a row for each peer, and the scoreboard")
    _common(running, peers="all")
    running.add_argument(
        "--bench", default=",".join(BENCHES), metavar="A,B,...", help="some of the benchmarks; default %(default)s"
    )
    report = commands.add_parser("report", help="make docs/benchmarks.md and its plots of JSON files")
    report.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of --json; several are put together")
    report.add_argument("--out", type=Path, default=PAGE, metavar="FILE", help="default %(default)s")
    return top


def _common(command: argparse.ArgumentParser, peers: str = "") -> None:
    command.add_argument("--n", default="", metavar="N,M,...", help="the sizes, in place of those of the benchmark")
    command.add_argument("--reps", type=int, metavar="K", help="samples of each case, in place of its own number")
    command.add_argument("--peers", default=peers, metavar="A,B,...", help="run these peers as well, or `all`")
    command.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    command.add_argument("--quick", action="store_true", help="small and few: whether it works, not what it costs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    Returns:
      the exit status: 0; 1 if an exploration or an installation failed; 2 if something asked for does not exist.
    """
    args = parser().parse_args(arguments)
    try:
        return _do(args)
    except (ValueError, OSError, UsageError) as error:
        print(f"python -m bench: {error}", file=sys.stderr)
        return 2


def _do(args: argparse.Namespace) -> int:
    if args.command == "report":
        _report(load(args.files), args.out)
        return 0
    if args.command == "peers" and args.action == "list":
        for peer in PEERS:
            wants = " ".join(peer.npm or peer.requires) or "nothing but Trio"
            print(f"{peer.name:20} {'installed' if peer.installed else 'missing':10} {wants}")
        return 0
    chosen = choose(args.peers)
    if args.command == "peers" and args.action == "install":
        failed = install(chosen)
        print("\n".join(["", *failed]) if failed else "installed")
        return 1 if failed else 0
    if missing := [peer.name for peer in chosen if not peer.installed]:
        raise ValueError(f"not installed; run python -m bench peers install --peers {','.join(missing)}")
    options = Options(sizes=_sizes(args.n), reps=args.reps, quick=args.quick, tools=getattr(args, "tools", None))
    if args.command == "explore":
        results = explore_tools(options)
    elif args.command == "peers":
        results = Results()
        results.add_sitting(quick=args.quick)
        names = _among(args.bench, BENCHES)
        for peer in chosen:
            results.merge(run_peer(peer, names, options, scoreboard="cancel" in names))
    else:
        names = list(BENCHMARKS) if args.command == "all" else [args.command]
        page = (args.out or (None if args.quick else PAGE)) if args.command == "all" else None
        if page is not None:
            _check_drawing()  # before minutes of measuring, not after them
        results = run_benchmarks(names, options, chosen)
        if page is not None:
            _report(results, page)
    if args.json is not None:
        results.write(args.json)
        print(f"wrote {args.json}")
    return 1 if any(one["violations"] for one in results.explored) else 0


def _check_drawing() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("the report needs matplotlib; pip install -e '.[bench]'")


def _report(results: Results, page: Path) -> None:
    _check_drawing()
    importlib.import_module("bench.report.write").write_report(results, page)
    print(f"wrote {page}")


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part.replace("_", "")) for part in text.split(",") if part.strip())
    if any(size < 1 for size in sizes):
        raise ValueError(f"--n {text!r}: sizes are above 0")
    return sizes


def _among(text: str, names: Sequence[str]) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for name in chosen:
        if name not in names:
            raise ValueError(f"there is no benchmark {name!r} for peers; there are {', '.join(names)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
