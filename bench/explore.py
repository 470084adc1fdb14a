"""``explore``: a run with the user's own tools, cut at every moment; every invariant is checked."""

from __future__ import annotations

from typing import Any

import attrs

from trio_agent import Agent
from trio_agent.testing import Probe, explore

from .options import Options
from .owntools import OwnTool, load_tools, own_answer
from .subject import NOOP, answer, scripted


def explore_tools(options: Options) -> dict[str, Any]:
    """Explore a run in which every tool is called once, all in one batch.

    The clock is virtual: tools that wait for a real process or connection are not for this.

    Returns:
      how much was run, and the violations that were found.
    """
    tools = load_tools(options.tools) if options.tools else [OwnTool(NOOP, {"n": 1}), OwnTool(_other(), {"n": 2})]

    async def own_tools(probe: Probe) -> None:
        answers = [own_answer(tools, len(tools)), answer(1, 0)]
        agent = probe.watch(Agent(scripted([*answers, answer(2, 0)]), tools=[own.tool for own in tools]))
        await agent.prompt("go")

    exploration = explore(own_tools, sample=40 if options.quick else None, stop_after=5)
    print(exploration)
    for failure in exploration.failures:
        print(failure)
    return {
        "tools": options.tools or "two tools of the benchmark",
        "steps": exploration.steps,
        "places": exploration.places,
        "runs": exploration.runs,
        "violations": [str(failure.violation.invariant) for failure in exploration.failures],
    }


def _other() -> Any:
    return attrs.evolve(NOOP, name="work_2")
