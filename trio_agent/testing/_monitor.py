"""A listener that watches, in a program in use, whether its runs keep what the library promises."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias, final

import attrs
import trio

from trio_agent import Abort, AgentEnd, AgentEvent, AgentStart, TurnEnd, UsageError
from trio_agent._door import is_async

from ._errors import InvariantError
from ._rules import AddsUp, Answered, NothingBegins, Paired

__all__ = ["Monitor"]

_logger = logging.getLogger("trio_agent.monitor")

_Key: TypeAlias = "tuple[trio.lowlevel.Task | None, Abort | None]"
"""Which run an event belongs to: a run tells all its events in one task, and an Abort is one run's
or is shared by runs in tasks of their own."""


@attrs.define(eq=False)
class _Watch:
    """The rules of one run."""

    number: int
    paired: Paired = attrs.field(factory=Paired)
    adds_up: AddsUp = attrs.field(factory=AddsUp)
    answered: Answered = attrs.field(factory=Answered)
    nothing_begins: NothingBegins = attrs.field(factory=NothingBegins)

    def feed(self, event: AgentEvent, abort: Abort | None) -> None:
        rule = "Paired"
        try:
            self.paired.feed(event)
            rule = "Adds up"
            self.adds_up.feed(event)
            if type(event) is TurnEnd:
                rule = "Answered"
                self.answered.feed(event)
            if abort is not None:
                rule = "Nothing begins"
                self.nothing_begins.feed(event, abort)
        except InvariantError:
            raise
        except Exception as error:
            # What no rule was written for is a breach as well, and must not end a run of the host's.
            raise InvariantError(rule, f"cannot be checked at {event.type}: {error!r}") from error


def _reaction(instance: object, attribute: object, value: object) -> None:
    if value not in ("log", "raise") and (not callable(value) or is_async(value)):
        raise UsageError(
            f"on_violation is {value!r:.80}, but must be 'log', 'raise' or a plain function of the InvariantError"
        )


def _positive(instance: object, attribute: object, value: int) -> None:
    if not value >= 1:
        raise UsageError(f"keep is {value!r}, but must be at least 1")


@final
@attrs.define(eq=False)
class Monitor:
    """A listener that checks the events of every run while it goes on.

    ::

        monitor = Monitor()
        agent.subscribe(monitor)

    It checks the invariants that show in events alone: *Paired* (every start has its end, once),
    *Adds up* (what was told of an answer is what its end says), *Answered* (every call of a turn has
    its result, in order) and *Nothing begins* (no answer and no tool after an abort). What it costs is
    the same for each event, however long the run is; it keeps nothing of a run that is over.

    One monitor may serve any number of agents, also those whose runs overlap, and the loops that are
    called directly (``emit=monitor``). Of a run that had begun when it was subscribed it checks
    nothing. After a violation it is quiet until the next run starts.

    A function that hands events on to it should hand on the Abort, too: without one *Nothing begins*
    is not checked, and runs are told apart by their tasks alone, so that a loop which a hook or
    listener of another one calls needs a monitor of its own.
    """

    on_violation: Literal["log", "raise"] | Callable[[InvariantError], object] = attrs.field(
        default="log", validator=_reaction, kw_only=True
    )
    """What happens at a violation.

    ``"log"``: an error on the logger ``trio_agent.monitor``, and the run goes on. ``"raise"``: the
    InvariantError is raised, which closes the run like the exception of any listener. A plain function
    is called with the InvariantError; what it raises does the same.
    """
    keep: int = attrs.field(default=100, validator=_positive, kw_only=True)
    """How many violations are kept; older ones are dropped."""
    violations: deque[InvariantError] = attrs.field(init=False, repr=False)
    """The last violations; a note of each says which run, event and task."""
    violated: int = attrs.field(default=0, init=False)
    """How many violations there were in all."""
    events: int = attrs.field(default=0, init=False)
    """How many events it was told."""
    runs: int = attrs.field(default=0, init=False)
    """How many runs it saw begin."""
    _open: dict[_Key, _Watch] = attrs.field(factory=dict, init=False, repr=False)
    _over: deque[_Key] = attrs.field(factory=lambda: deque(maxlen=16), init=False, repr=False)
    """The runs that ended last: nothing may come behind their ``agent_end``."""

    def __attrs_post_init__(self) -> None:
        self.violations = deque(maxlen=self.keep)

    # An interrupt between two events must not look like an event that was not told.
    @trio.lowlevel.enable_ki_protection
    def __call__(self, event: AgentEvent, abort: Abort | None = None) -> None:
        """Check the next event, as a listener or as the ``emit`` of a loop. Not a checkpoint.

        Raises:
          InvariantError: an invariant does not hold, and ``on_violation`` is ``"raise"``.
        """
        self.events += 1
        try:
            task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        except RuntimeError:  # outside of Trio: events of a trace that was kept
            task = None
        key = task, abort
        watch = self._open.get(key)
        kind = type(event)
        try:
            if watch is not None:
                watch.feed(event, abort)
                if kind is AgentEnd:
                    del self._open[key]
                    self._over.append(key)
            elif kind is AgentStart:
                self._begin(key, event)
            elif key in self._over:
                self._over.remove(key)
                raise InvariantError("Paired", f"{event.type} comes behind the agent_end of its run")
        except InvariantError as error:
            self._open.pop(key, None)
            where = "Behind the end of a run" if watch is None else f"In run {watch.number} of this monitor"
            if kind is AgentStart:
                # It broke a run that was open, and it begins one.
                self._begin(key, event)
            name = "no task" if task is None else f"the task {task.name}"
            error.add_note(f"{where}, at {event.type}, in {name}.")
            self._violation(error)

    def _begin(self, key: _Key, event: AgentEvent) -> None:
        if key in self._over:
            self._over.remove(key)
        self.runs += 1
        watch = self._open[key] = _Watch(self.runs)
        watch.feed(event, key[1])

    def _violation(self, error: InvariantError) -> None:
        self.violated += 1
        self.violations.append(error)
        if self.on_violation == "raise":
            raise error
        # The frames would keep the messages of the run alive.
        for kept in filter(None, (error, error.__cause__)):
            kept.__traceback__ = None
        if self.on_violation == "log":
            where = " ".join(error.__notes__)
            # What differs may quote a whole answer.
            _logger.error("%.1000s (%s)", error, where, extra={"invariant": error.invariant})
        elif callable(self.on_violation):
            self.on_violation(error)
