"""What a peer must be able to do to be measured, and what is looked at when its run was cut.

An adapter works in terms of a *script*: a list in which a number is an answer with so many calls of
one tool ``work(i)``, and a string a final text. What it gives back are samples of plain JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, final

import attrs

from bench.crew import Crew
from bench.measure import Sample

Act: TypeAlias = Literal["abort", "host", "one", "none"]
"""``abort``: the peer's own way to stop; ``host``: the task around it is cancelled; ``one``: one call of N."""
Body: TypeAlias = Literal["sleep", "clean-up", "half", "swallow", "deaf", "thread", "raise"]
"""What the tools do; see :class:`Plan`."""

Script: TypeAlias = Sequence[int | str]


class UnavailableError(Exception):
    """The peer has no such interface; the text says which."""


@final
@attrs.frozen(kw_only=True)
class Plan:
    """A run that is cut, and what its tools do meanwhile."""

    n: int
    act: Act
    body: Body = "sleep"
    """``sleep`` for an hour; ``clean-up``: await :attr:`seconds` when cut; ``half``: every second one has
    returned; ``swallow``: swallow the cut once and sleep on; ``deaf``: sleep for :attr:`seconds` and look at no
    signal; ``thread``: block a thread so long; ``raise``: one raises, the others sleep so long."""
    seconds: float = 0.0
    depth: int = 1
    """How many agents are nested; the tools of the innermost do the above."""
    again: bool = False
    """Prompt once more afterwards, and look at what the model is sent."""


@final
@attrs.frozen
class Entry:
    """One piece of a transcript, whatever its library calls it."""

    kind: Literal["user", "call", "result", "text", "other"]
    id: str = ""
    text: str = ""


def index_of(call_id: str) -> int:
    """The argument of the call: ids are ``c<turn>-<index>``."""
    return int(call_id.rpartition("-")[2])


def look_at(entries: Sequence[Entry], completed: Sequence[int]) -> dict[str, Any]:
    """What a transcript says of the calls in it.

    Args:
      entries: the transcript.
      completed: the arguments of the calls whose bodies returned.
    """
    calls = [entry.id for entry in entries if entry.kind == "call"]
    results: dict[str, list[str]] = {}
    for entry in entries:
        if entry.kind == "result":
            results.setdefault(entry.id, []).append(entry.text)
    done = set(completed)
    return {
        "calls": len(calls),
        "answered": sum(len(results.get(call, ())) == 1 for call in calls),
        "valid": answered_in_place(entries),
        "kept": sum(any(f"value-{index_of(call)}" in text for text in results.get(call, ())) for call in calls),
        "completed": len(done),
        # A result that shows a value which its tool never returned.
        "untrue": sum(
            any(f"value-{index_of(call)}" in text for text in results.get(call, ()))
            for call in calls
            if index_of(call) not in done
        ),
        "last": entries[-1].kind if entries else "nothing",
    }


def answered_in_place(entries: Sequence[Entry]) -> bool:
    """Whether every block of calls has directly behind it one result for each of them, in any order.

    It is what providers demand; the order within a block is not.
    """
    place = 0
    while place < len(entries):
        if entries[place].kind == "result":
            return False
        calls: list[str] = []
        while place < len(entries) and entries[place].kind == "call":
            calls.append(entries[place].id)
            place += 1
        if not calls:
            place += 1
            continue
        results = [entry.id for entry in entries[place : place + len(calls)] if entry.kind == "result"]
        if sorted(results) != sorted(calls):
            return False
        place += len(calls)
    return True


@attrs.define
class Seen:
    """What is put together about one cut, and made into a sample."""

    crew: Crew
    outcome: str = "hung"
    took: float = 0.0
    facts: dict[str, Any] = attrs.field(factory=dict)

    def at_the_end(self, cut: float, asked: int, tasks_left: int) -> None:
        """Note what there is in the moment in which the call is over."""
        crew = self.crew
        self.facts |= {
            "outcome": self.outcome,
            "started": len(crew.started),
            "orphans": crew.alive,
            "unwound_us": crew.last_unwound(cut) * 1e6,
            "tasks_left": tasks_left,
            "requests_after": crew.requests - asked,
            "completed": len(crew.completed),
            "returned": sorted(crew.completed)[:5],
        }

    def sample(self) -> Sample:
        """The sample; every one has the same facts."""
        empty: dict[str, Any] = {"history": None, "again": None, "late_us": 0.0}
        return Sample(self.took, {**empty, **self.facts})


class Adapter(ABC):
    """A peer. Each method does its work once; what the peer cannot do raises UnavailableError."""

    version = ""
    note = ""
    """What a reader must know of the figures."""
    sequential = False
    """Tools run one after the other."""
    cannot: ClassVar[Mapping[Act, str]] = {}
    """Acts that it has no interface for, and why."""
    largest: ClassVar[Mapping[str, int]] = {
        "fanout": 5000,
        "turns": 1000,
        "text": 10_000,
        "arguments": 50_000,
        "cancel": 5000,
    }
    """Up to which size it is measured; beyond, one sample would take minutes."""

    @abstractmethod
    def fanout(self, n: int, inner: int) -> Sample:
        """N calls of a tool that yields once, ``inner`` runs one after the other."""

    def turns(self, n: int) -> Sample:
        """N turns of one call."""
        raise UnavailableError("it has no turns")

    def text(self, n: int) -> Sample:
        """An answer of N deltas to a listener."""
        raise UnavailableError("it has no stream")

    def arguments(self, parts: Sequence[str]) -> Sample:
        """A call whose arguments come in pieces."""
        raise UnavailableError("it has no stream")

    @abstractmethod
    def cut(self, plan: Plan) -> Sample:
        """Run, cut, and look."""

    def refuse(self, plan: Plan) -> None:
        """Raise UnavailableError if the peer has no interface for the act."""
        if plan.act in self.cannot:
            raise UnavailableError(self.cannot[plan.act])

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """End what the adapter holds."""
