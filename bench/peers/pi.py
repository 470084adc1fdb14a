"""pi-agent-core, in a process of Node's that works off one request after the other.

The floor of Trio is measured in this process between the requests, so that the pairs lie as close
together as those of the other peers. The peak memory is that of Node.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bench.floors import first_and_last
from bench.measure import Sample

from .adapter import Act, Adapter, Entry, Plan, UnavailableError, look_at
from .table import HOME


class _Node(Adapter):
    kind: ClassVar[str]
    cannot: ClassVar[Mapping[Act, str]] = {
        "host": "a promise cannot be cancelled from outside",
        "one": "it has no way to cancel one call",
    }

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise RuntimeError("there is no node on PATH; install Node 20 or newer")
        script = Path(__file__).with_name("pi.mjs")
        # With --expose-gc it collects before each sample, as Python does.
        command = [node, "--expose-gc", str(script), str(HOME / "pi"), self.kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        about = self._read()
        self.version = f"{about['version']} on Node {about['node'].lstrip('v')}"

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("node ended; what it wrote to standard error says why")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _ask(self, op: str, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def fanout(self, n: int, inner: int) -> Sample:
        return Sample(self._ask("fanout", n=n, inner=inner)["us"] / 1e6)

    def turns(self, n: int) -> Sample:
        answer = self._ask("turns", n=n)
        return Sample(answer["us"] / 1e6, first_and_last([stamp / 1e6 for stamp in answer["stamps"]]))

    def text(self, n: int) -> Sample:
        return self._streamed(n=n)

    def arguments(self, parts: Sequence[str]) -> Sample:
        return self._streamed(parts=list(parts))

    def _streamed(self, **request: Any) -> Sample:
        answer = self._ask("streamed", **request)
        return Sample(answer.pop("us") / 1e6, answer)

    def cut(self, plan: Plan) -> Sample:
        self.refuse(plan)
        if plan.body == "thread":
            raise UnavailableError("its tools run in one thread")
        request = {"n": plan.n, "act": plan.act, "body": plan.body, "seconds": plan.seconds}
        answer = self._ask("cut", plan={**request, "depth": plan.depth, "again": plan.again})
        completed = answer.pop("completed")
        if answer["history"] is not None:
            answer["history"] = look_at([Entry(*entry) for entry in answer["history"]], completed)
        if (again := answer["again"]) is not None:
            answer["again"] = {**again, **look_at([Entry(*entry) for entry in again.pop("seen")], completed)}
        facts = {**answer, "completed": len(completed), "returned": sorted(completed)[:5]}
        return Sample(facts.pop("us") / 1e6, facts)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


class PiAgent(_Node):
    """The class Agent with one async listener."""

    kind = "agent"
    note = "Agent with one async listener; a nested agent is given the signal by hand, the library does not pass it on"


class PiLoop(_Node):
    """The function runAgentLoop with an async emit."""

    kind = "loop"
    note = "runAgentLoop with an async emit; a nested loop is given the signal by hand"


class RawNode(_Node):
    """Promises, without a library."""

    kind = "floor"
    note = "Promise.all over N functions that yield once: no validation, no events, no transcript"
    largest: ClassVar[Mapping[str, int]] = {**Adapter.largest, "text": 0, "arguments": 0, "depth": 0}

    def cut(self, plan: Plan) -> Sample:
        if plan.depth > 1 or plan.again:
            raise UnavailableError("it has no runs")
        return super().cut(plan)
