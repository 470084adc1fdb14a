"""``trio-agent explore``: cut scenario files at every moment, in every way, and check what is left."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trio_agent import TrioAgentError
from trio_agent.testing import ACTS, MODES, Exploration, Scenario, explore_key_interrupts, scenario_host
from trio_agent.testing import explore as explore_host

__all__ = ["explore"]


class _ExploreError(click.ClickException):
    """A file or option that cannot be used; shown as one line."""

    exit_code = 2


def _names(choices: Sequence[str]) -> Callable[[click.Context, click.Parameter, str | None], tuple[str, ...] | None]:
    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        for name in names:
            if name not in choices:
                raise click.BadParameter(f"there is no {name!r}; there are {', '.join(choices)}")
        if not names:
            raise click.BadParameter(f"name at least one of {', '.join(choices)}")
        return names

    return convert


@click.command()
@click.argument("files", metavar="SCENARIO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--acts", metavar="A,B,...", callback=_names(tuple(ACTS)), help="What is done; by default everything.")
@click.option("--seeds", type=click.IntRange(0), default=1, show_default=True, help="Random orders of tasks to try.")
@click.option(
    "--schedules", type=click.IntRange(0), default=0, show_default=True, help="Priority schedules to try (PCT)."
)
@click.option(
    "--pairs", type=click.IntRange(0), default=0, show_default=True, help="Pairs of acts to try for each order."
)
@click.option("--modes", metavar="A,B,...", callback=_names(MODES), help="What is added: plain, checkpoints, slow.")
@click.option("--sample", type=click.IntRange(1), help="Single acts to try for each order, drawn at random; else all.")
@click.option("--blocks", is_flag=True, help="Call agents by `async with agent.run()`, and leave the block early, too.")
@click.option("--only", metavar="CASE", help="Run one case only: the line that a report gives.")
@click.option(
    "--keys", type=click.IntRange(1), metavar="N", help="Let SIGINT come at every N-th line of the library instead."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes to use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each scenario, and one for all.")
def explore(
    files: Sequence[Path],
    *,
    acts: tuple[str, ...] | None,
    seeds: int,
    schedules: int,
    pairs: int,
    modes: tuple[str, ...] | None,
    sample: int | None,
    blocks: bool,
    only: str | None,
    keys: int | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Cut each SCENARIO at every moment, in every way, and check every invariant afterwards.

    A report says of each failure where it was cut, what differs and how it is repeated. The last
    line is a summary. The exit status is 1 if an invariant was broken, and 2 if a file is missing or
    broken.
    """
    settings: dict[str, Any] = {
        "acts": acts,
        "seeds": seeds,
        "schedules": schedules,
        "pairs": pairs,
        "modes": modes or ("plain",),
        "sample": sample,
        "only": only,
    }
    began = time.perf_counter()
    found: list[Exploration] = []
    try:
        for path in files:
            Scenario.load(path)  # all of them are looked at before anything is run
        # Lines go where the bar is if that is the same terminal, so that neither is drawn into the other.
        console = Console(stderr=not sys.stdout.isatty())
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[runs]} runs"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as progress:
            bar = progress.add_task("exploring", total=len(files), runs=0)
            for path, exploration in _each(files, settings, blocks, keys, jobs):
                found.append(exploration)
                progress.update(bar, advance=1, runs=sum(one.runs for one in found), description=path.stem)
                shown = _shown(path, exploration, keys=keys, as_json=as_json)
                if sys.stdout.isatty():
                    console.print(shown, markup=False, highlight=False, soft_wrap=True)
                else:
                    click.echo(shown)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise  # nobody reads any more; click ends quietly
        raise _ExploreError(f"{error.filename or 'the output'}: {error.strerror}") from error
    except TrioAgentError as error:
        raise _ExploreError(" ".join(str(error).split())) from error
    if not _sum(found, time.perf_counter() - began, as_json=as_json):
        raise click.exceptions.Exit(1)


def _each(
    files: Sequence[Path], settings: dict[str, Any], blocks: bool, keys: int | None, jobs: int
) -> Iterator[tuple[Path, Exploration]]:
    if jobs == 1:
        for path in files:
            yield path, _one(path, settings, blocks, keys)
        return
    # Fresh processes: what Trio and the terminal hold is not inherited. Ctrl-C ends them at once.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)) as pool:
        yield from pool.imap_unordered(_numbered, [(path, settings, blocks, keys) for path in files])


def _numbered(args: tuple[Path, dict[str, Any], bool, int | None]) -> tuple[Path, Exploration]:
    return args[0], _one(*args)


def _one(path: Path, settings: dict[str, Any], blocks: bool, keys: int | None) -> Exploration:
    host = scenario_host(Scenario.load(path), blocks=blocks)
    exploration = explore_host(host, **settings) if keys is None else explore_key_interrupts(host, every=keys)
    code = f'scenario_host(Scenario.load("{path}"){", blocks=True" * blocks})'
    for index, failure in enumerate(exploration.failures):
        again = [line.replace(f"({failure.host},", f"({code},", 1) for line in failure.again]
        if keys is None:
            again.append(f'trio-agent explore {path}{" --blocks" * blocks} --only "{failure.case}"')
        # An exception may not travel between processes; its text is in the report.
        violation = attrs.evolve(failure.violation, error=None)
        others = tuple(attrs.evolve(other, error=None) for other in failure.others)
        exploration.failures[index] = attrs.evolve(failure, again=tuple(again), violation=violation, others=others)
    return exploration


def _shown(path: Path, exploration: Exploration, *, keys: int | None, as_json: bool) -> str:
    if as_json:
        return json.dumps({"scenario": exploration.name, "file": str(path), **_counts([exploration])})
    line = str(exploration) if keys is None else str(exploration).replace("places", "lines", 1)
    return "\n  ".join([line, *("\n".join(map(str, exploration.failures))).splitlines()])


def _counts(found: Sequence[Exploration]) -> dict[str, Any]:
    failures = [failure for exploration in found for failure in exploration.failures]
    return {
        "steps": sum(exploration.steps for exploration in found),
        "places": sum(exploration.places for exploration in found),
        "runs": sum(exploration.runs for exploration in found),
        "missed": sum(exploration.missed for exploration in found),
        "violations": [
            {
                "case": str(failure.case),
                "invariant": failure.violation.invariant,
                "difference": failure.violation.difference,
            }
            for failure in failures
        ],
    }


def _sum(found: Sequence[Exploration], seconds: float, *, as_json: bool) -> bool:
    counts = _counts(found)
    violations = len(counts["violations"])
    if as_json:
        click.echo(
            json.dumps({"scenarios": len(found), **counts, "violations": violations, "seconds": round(seconds, 1)})
        )
    else:
        click.echo(
            f"{len(found)} scenarios, {counts['steps']} steps and {counts['places']} places, {counts['runs']} runs, "
            f"{violations} violations in {seconds:.0f} s"
        )
    return not violations
