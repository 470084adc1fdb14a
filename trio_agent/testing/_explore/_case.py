"""What is done where: a case, and the one line by which it can be repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, final

import attrs

from trio_agent import UsageError

PlaceKind: TypeAlias = Literal["step", "at"]
Mode: TypeAlias = Literal["plain", "checkpoints", "slow"]

MODES: tuple[Mode, ...] = ("plain", "checkpoints", "slow")
"""``plain``: nothing is added; ``checkpoints``: one more checkpoint in every listener, hook, model step
and tool, with hooks of every kind installed; ``slow``: a listener that needs longer than the grace once
the run was acted upon."""

ACTS: Mapping[str, str] = {
    "abort": "agent.abort()",
    "cancel": "the cancel scope around the host is cancelled",
    "deadline": "the deadline of that scope passes",
    "cancel_tool": "agent.cancel_tool() of one call",
    "interrupt": "agent.interrupt() with a message",
    "raise": "an exception, in the listener, hook, model or tool that is at the place",
    "key": "KeyboardInterrupt: there, or in the task of the run where it waits",
    "leave": "the block of agent.run() is left (a host that marks it with probe.leaving())",
    "steer": "agent.steer() with a message",
    "follow_up": "agent.follow_up() with a message",
    "clear_steering": "agent.clear_steering_queue()",
    "clear_follow_up": "agent.clear_follow_up_queue()",
    "clear_all": "agent.clear_all_queues()",
    "stop_after_turn": "agent.stop_after_turn()",
}
"""What can be done at a place."""

_PLACED = re.compile(r"(?P<act>[a-z_]+)(=(?P<target>[^@\s]+))?@(?:(?P<kind>step|at):(?P<number>\d+)|\+(?P<after>\d+))")
_SCHEDULE = re.compile(r"(\d+)/([1-9]\d*)")


@final
@attrs.frozen
class Place:
    """A moment of a run.

    ``step:N`` is the moment before step ``N`` of Trio's scheduler, ``at:N`` the ``N``-th time that a
    listener is told an event or that a hook, the model or a tool is entered, reports or returns.
    """

    kind: PlaceKind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


@final
@attrs.frozen
class PlannedAct:
    """An act and where it is done."""

    act: str
    """Its name; one of :data:`ACTS`."""
    place: Place | None = None
    """Where; None for an act that follows another one."""
    after: int = 0
    """How many places of the same kind after the act before it, if there is no place."""
    target: str | None = None
    """The id of a call, for ``cancel_tool``."""

    def __str__(self) -> str:
        name = self.act if self.target is None else f"{self.act}={self.target}"
        return f"{name}@{self.place}" if self.place is not None else f"{name}@+{self.after}"


@final
@attrs.frozen
class Case:
    """One run of an exploration: what is done where, and in which order tasks run.

    ``str(case)`` is one line such as ``abort@step:17 cancel@+3 seed=2``; :meth:`parse` reads it.
    """

    acts: tuple[PlannedAct, ...] = ()
    """What is done, in order; nothing for a run that is only watched."""
    seed: int = 0
    """The seed of the order in which Trio runs tasks."""
    steps: int = 0
    """If above 0, tasks run by random priorities (PCT), with change points among so many steps."""
    mode: Mode = "plain"
    """What is added to the run; see :data:`MODES`."""
    dropped: tuple[str, ...] = ()
    """Calls that are taken out of the model's answers, by id; how a failure is made smaller."""

    def __str__(self) -> str:
        parts = [str(act) for act in self.acts]
        parts.append(f"schedule={self.seed}/{self.steps}" if self.steps else f"seed={self.seed}")
        if self.mode != "plain":
            parts.append(f"mode={self.mode}")
        if self.dropped:
            parts.append("without=" + ",".join(self.dropped))
        return " ".join(parts)

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read the line that ``str()`` gives.

        Raises:
          UsageError: it is no such line; the text names the word that is wrong.
        """
        acts: list[PlannedAct] = []
        case = cls()
        for word in text.split():
            match = _PLACED.fullmatch(word)
            name, _, value = word.partition("=")
            if match is not None:
                acts.append(_placed(match, word, first=not acts))
            elif name == "seed" and value.isdecimal():
                case = attrs.evolve(case, seed=int(value))
            elif name == "schedule" and (schedule := _SCHEDULE.fullmatch(value)) is not None:
                case = attrs.evolve(case, seed=int(schedule[1]), steps=int(schedule[2]))
            elif name == "mode" and value in MODES:
                case = attrs.evolve(case, mode=value)
            elif name == "without" and value:
                case = attrs.evolve(case, dropped=tuple(value.split(",")))
            else:
                raise UsageError(
                    f"{word!r} is no part of a case: write ACT@step:N, ACT@at:N, ACT@+N, cancel_tool=ID@step:N, "
                    f"seed=N, schedule=N/STEPS, mode=({'|'.join(MODES)}) or without=ID,ID"
                )
        return attrs.evolve(case, acts=tuple(acts))


def _placed(match: re.Match[str], word: str, *, first: bool) -> PlannedAct:
    act, target = match["act"], match["target"]
    if act not in ACTS:
        raise UsageError(f"{word!r} asks for {act!r}, but the acts are: {', '.join(ACTS)}")
    if (target is not None) != (act == "cancel_tool"):
        raise UsageError(f"{word!r}: cancel_tool, and nothing else, names a call, as in cancel_tool=c1@step:7")
    if match["after"] is not None:
        if first:
            raise UsageError(f"{word!r} stands first: only a later act can be placed relative to the one before it")
        return PlannedAct(act, None, int(match["after"]), target)
    return PlannedAct(act, Place("step" if match["kind"] == "step" else "at", int(match["number"])), 0, target)
