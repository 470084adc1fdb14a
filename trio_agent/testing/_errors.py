"""The errors of the testing kit.

::

    TrioAgentError
    ├── ScriptError                     a script holds something that is no turn
    │   ├── ScriptExhaustedError        a model was asked for more turns than its script holds
    │   └── ScriptNotExhaustedError     (also AssertionError) turns of a script are left
    ├── ScenarioStuckError              a scenario does not come to its end
    ├── SchedulerError                  this release of Trio keeps its private parts elsewhere
    └── InvariantError                  (also AssertionError) an invariant of a run does not hold

A scenario file that is broken is a :class:`~trio_agent.FormatError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from trio_agent import TrioAgentError

__all__ = [
    "InvariantError",
    "ScenarioStuckError",
    "SchedulerError",
    "ScriptError",
    "ScriptExhaustedError",
    "ScriptNotExhaustedError",
]


class ScriptError(TrioAgentError):
    """A script holds something that is no turn, or a turn's function answered with such a thing."""


class ScriptExhaustedError(ScriptError):
    """A scripted model was asked for more turns than its script holds.

    Attributes:
      held: how many turns the script holds.
    """

    def __init__(self, message: str, held: int = 0) -> None:
        super().__init__(message, held)
        self.held = held

    def __str__(self) -> str:
        return str(self.args[0])


class ScriptNotExhaustedError(ScriptError, AssertionError):
    """A scripted model was asked for fewer turns than its script holds.

    Attributes:
      left: how many turns were never asked for.
    """

    def __init__(self, message: str, left: int = 0) -> None:
        super().__init__(message, left)
        self.left = left

    def __str__(self) -> str:
        return str(self.args[0])


class ScenarioStuckError(TrioAgentError):
    """A scenario does not come to its end: every task waits and nothing is due, or it runs on and on.

    Attributes:
      entries: the trace until then.
    """

    def __init__(self, message: str, entries: Sequence[object] = ()) -> None:
        super().__init__(message, tuple(entries))
        self.entries = tuple(entries)

    def __str__(self) -> str:
        return str(self.args[0])


class SchedulerError(TrioAgentError):
    """This release of Trio keeps elsewhere what the kit needs of its scheduler."""


class InvariantError(TrioAgentError, AssertionError):
    """An invariant of a run does not hold.

    Attributes:
      invariant: its name, as in the table of ``docs/cancellation.md``.
      difference: what differed.
    """

    def __init__(self, invariant: str, difference: str) -> None:
        super().__init__(invariant, difference)
        self.invariant = invariant
        self.difference = difference

    def __str__(self) -> str:
        return f"{self.invariant}: {self.difference}"
