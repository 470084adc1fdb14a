"""The invariants of design 7.9, on what a run was seen to do, and what the causes of 7.1 come to.

They are named here as they are named there. Truth is checked against what the tools did: each call
of a tool is a span that says whether it returned, raised or was cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import attrs
import trio

from trio_agent import (
    AgentContext,
    AgentEnd,
    AgentMessage,
    AssistantMessage,
    LoopConfig,
    MessageEnd,
    SystemMessage,
    ToolExecutionEnd,
    ToolResultMessage,
    TrioAgentError,
    UserMessage,
    run_agent_loop,
)
from trio_agent._open import error_text
from trio_agent._tool import as_tool_result
from trio_agent.testing._errors import InvariantError
from trio_agent.testing._rules import AddsUp, Paired, assert_transcript_valid, same
from trio_agent.testing._script import ScriptedModel

from ._log import CALL_HOOKS, Done, RunLog, Span
from ._probe import AgentWatch
from ._wrap import HOOKS, LoopWatch, Watch

if TYPE_CHECKING:
    from ._probe import Probe

INVARIANTS = (
    "Answered",
    "Truth",
    "Adds up",
    "Record",
    "Last look",
    "No message lost or doubled",
    "Increment",
    "Paired",
    "All told",
    "State first",
    "Nothing begins",
    "Closing hooks",
    "No orphan",
    "At once",
    "Cancelled passes",
    "Bare",
    "Causes",
    "Idle is idle",
    "Prompted again",
    "Terminates",
)
"""The names of what is checked after each run."""

NEVER_RAN = ("not_started", "tool_not_found", "invalid_arguments", "blocked", "truncated", "limit")
WAS_CUT = ("aborted", "timeout")
CUT = ("aborted", "cancelled", "error", "deadline")
BY_ITSELF = ("done", "terminated")


@final
@attrs.frozen
class Violation:
    """An invariant that does not hold after a run."""

    invariant: str
    """Its name."""
    difference: str
    """What differs."""
    error: BaseException | None = attrs.field(default=None, repr=False, eq=False)
    """The exception that says so, if there is one."""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.difference}"


def check_run(probe: Probe, raised: Sequence[BaseException], stuck: str | None) -> Iterator[Violation]:
    """Check everything that was seen.

    Args:
      probe: what was seen.
      raised: what the host raised, and an interrupt that came when it was through.
      stuck: why the run had to be stopped; then nothing else is checked.
    """
    if stuck is not None:
        yield Violation("Terminates", f"the run does not come to an end: {stuck}")
        return
    yield from _host(probe, raised)
    for watch in probe.watches:
        for run in watch.runs:
            yield from _Checked(probe, watch, run).all()
        if isinstance(watch, AgentWatch):
            yield from _nothing_lost(probe, watch)
            yield from _caught(lambda watch=watch: assert_transcript_valid(watch.agent.messages))


def _host(probe: Probe, raised: Sequence[BaseException]) -> Iterator[Violation]:
    """What a host raises is the library's, was planted, or is its own fault."""
    planted = [done.error for done in probe.done]
    errors = [leaf for error in raised for leaf in leaves(error)]
    pressed = [done for done in probe.done if done.error is None and done.planned.act == "key"]
    if pressed and not any(isinstance(error, KeyboardInterrupt) for error in errors):
        yield Violation("Bare", "the KeyboardInterrupt was lost")
    for error in errors:
        allowed = error in planted or isinstance(error, TrioAgentError | trio.Cancelled | KeyboardInterrupt)
        if not allowed or (isinstance(error, KeyboardInterrupt) and not _acted(probe, "key")):
            yield Violation("Host", f"the host raised {error!r}", error)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group; an exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def _acted(probe: Probe, *acts: str) -> bool:
    return any(done.planned.act in acts for done in probe.done)


def _caught(check: Any) -> Iterator[Violation]:
    try:
        check()
    except InvariantError as error:
        yield Violation(error.invariant, error.difference, error)


class _Checked:
    """The checks of one run."""

    def __init__(self, probe: Probe, watch: Watch, run: RunLog) -> None:
        self.probe, self.watch, self.run = probe, watch, run
        over = run.over if run.over is not None else float("inf")
        self.acts = [done for done in probe.done if run.began <= done.position <= over]
        """What was done while the run was active."""
        self.landed = [done for done in self.acts if done.landed is not None and done.landed <= over]
        self.end = run.events[-1] if run.events and isinstance(run.events[-1], AgentEnd) else None
        self.outcome = getattr(run.returned, "end_reason", None) or (self.end.end_reason if self.end else None)

    @property
    def hard(self) -> list[Done]:
        """The acts after which telling is bounded."""
        hard = [done for done in self.probe.done if done.planned.act in ("cancel", "deadline", "key")]
        return [done for done in hard if self.run.over is None or done.position <= self.run.over]

    @property
    def faults(self) -> list[BaseException]:
        """What the host's own code raised in the run, listeners and hooks, in order."""
        hooks = [span for span in self.run.spans if span.kind == "hook" and span.name not in CALL_HOOKS]
        return [*self.run.listener_errors, *(span.error for span in hooks if span.error is not None)]

    def cut_at(self) -> int | None:
        """From which position on nothing may begin."""
        positions = [done.landed for done in self.landed if done.landed is not None and self._ends(done)]
        return min(positions, default=None)

    def _ends(self, done: Done) -> bool:
        if done.planned.act == "raise":
            return done.in_span is None or (done.in_span.kind == "hook" and done.in_span.name not in CALL_HOOKS)
        return done.planned.act in ("abort", "cancel", "deadline", "key", "leave")

    def all(self) -> Iterator[Violation]:
        """All of them."""
        run = self.run
        # What an async listener is told is bounded by the grace, and a loop has no other.
        if isinstance(self.watch, AgentWatch) or not (self._bounded() or self._spent()):
            yield from _caught(self._events)
            yield from self._told()
            yield from self._increment()
        yield from self._truth()
        yield from self._last_look()
        yield from self._begins()
        yield from self._hooks_behind_the_host()
        yield from self._record()
        if run.behind:
            yield Violation("State first", f"the state did not contain {run.behind[0]} when it was told")
        if run.over is None:
            yield Violation("No orphan", "the run is still active when the host is through")
        if run.left_open:
            yield Violation("No orphan", f"the call was over, but {', '.join(run.left_open)} had not been left")
        if run.late is not None:
            yield Violation("At once", run.late)
        hooks = [span for span in run.spans if not span.preparing and span.how == "cut" and not self._nested(span)]
        failed = [error for error in self.faults if not isinstance(error, trio.Cancelled)]
        if hooks and not self.hard and not failed and not _acted(self.probe, "raise"):
            yield Violation("Closing hooks", f"{hooks[0]} was cut, and the host had not cancelled")
        if run.not_idle is not None:
            yield Violation("Idle is idle", run.not_idle)
        yield from self._causes()

    # --------------------------------------------------------------- events

    def _events(self) -> None:
        paired, adds_up = Paired(), AddsUp()
        for event in self.run.events:
            paired.feed(event)
            adds_up.feed(event)
        paired.end()

    def _told(self) -> Iterator[Violation]:
        run = self.run
        if not same(run.last, run.events):
            yield Violation("All told", self._untold("the last listener", run.last))
        alone = isinstance(self.watch, LoopWatch)  # what a loop tells is one listener, which may be cut half-way
        if not same(run.told, run.events) and not alone and not self._bounded() and not self._spent():
            yield Violation("All told", self._untold("an async listener", run.told))

    def _bounded(self) -> bool:
        """Whether a slow listener or a second interrupt keeps an async listener from being told everything."""
        interrupts = sum(done.planned.act == "key" for done in self.hard)
        return interrupts > 1 or (bool(self.hard) and self.probe.case.mode == "slow")

    def _spent(self) -> bool:
        """Whether the grace may have run out."""
        return bool(self.hard) and self.probe._waited

    def _untold(self, who: str, told: Sequence[Any]) -> str:
        for index, event in enumerate(self.run.events):
            if index >= len(told) or told[index] is not event:
                seen = told[index].type if index < len(told) else "nothing"
                return f"event {index + 1} is {event.type}, but {who} was told {seen}"
        return f"{who} was told {len(told) - len(self.run.events)} events more than the first"

    def _increment(self) -> Iterator[Violation]:
        told = [event.message for event in self.run.events if isinstance(event, MessageEnd)]
        if self.end is not None and not same(self.end.messages, told):
            yield Violation("Increment", f"agent_end names {_roles(self.end.messages)}, but told were {_roles(told)}")
        if not same(self.run.messages, told) and not self.probe._replaced:
            yield Violation(
                "Increment", f"the transcript gained {_roles(self.run.messages)}, but told were {_roles(told)}"
            )

    # ---------------------------------------------------------------- truth

    def _truth(self) -> Iterator[Violation]:
        answer: AssistantMessage | None = None
        for message in self.run.messages:
            if isinstance(message, AssistantMessage):
                answer = message
            elif isinstance(message, ToolResultMessage):
                spans = [
                    span
                    for span in self.run.spans
                    if span.kind == "tool" and span.name == message.tool_call_id and span.answer is answer
                ]
                if len(spans) > 1:
                    yield Violation("Truth", f"the tool of {message.tool_call_id!r} ran {len(spans)} times")
                wrong = self._lie(message, spans[0] if spans else None)
                if wrong:
                    yield Violation("Truth", f"{message.tool_call_id!r} {wrong}, but its result is {_shown(message)}")

    def _lie(self, message: ToolResultMessage, span: Span | None) -> str | None:
        kind = message.error_kind
        if span is None:
            return None if message.is_error and kind not in (*WAS_CUT, "withheld") else "never ran"
        if kind in NEVER_RAN and self._after_answer(span) is None:
            return "ran"
        if kind == "withheld":
            return None if self.hard or self._failed() else "was withheld without a reason"
        changed = self._after_answer(span) is not None
        if span.how == "returned":
            if kind in WAS_CUT:
                return f"returned {span.value!r:.60}"
            if not changed and not _says(message, span.value):
                return f"returned {span.value!r:.60}"
        elif span.how == "raised" and span.error is not None and not changed:
            text = error_text(span.error)
            if not message.is_error or (kind not in WAS_CUT and text not in message.text):
                return f"raised {span.error!r:.60}"
        elif span.how == "cut" and not changed and (not message.is_error or kind not in WAS_CUT):
            return "was cut"
        return None

    def _nested(self, hook: Span) -> bool:
        """Whether a hook was called for a call that a tool makes: it is cut with the outer call (design 6)."""
        return bool(hook.call_id) and hook.call_id not in self.watch.call_ids

    def _after_answer(self, span: Span) -> object:
        """What ``after_tool_call`` said of a call: it answered or raised something."""
        for hook in self.run.spans:
            if hook.kind == "hook" and hook.name == "after_tool_call" and hook.call_id == span.name and hook.ended:
                if hook.error is not None and hook.how == "raised":
                    return hook.error
                if hook.value is not None:
                    return hook.value
        return None

    def _failed(self) -> bool:
        return self.outcome in ("error", "cancelled", "aborted")

    # --------------------------------------------------------------- queues

    def _last_look(self) -> Iterator[Violation]:
        run = self.run
        if self.outcome not in BY_ITSELF or run.end_told is None or self.probe._replaced:
            return
        for queued in self.probe._queued:
            if queued.position < run.end_told and any(message is queued.message for message in run.left_queued):
                yield Violation("Last look", f"{_shown(queued.message)} was queued before the end and is left behind")

    # -------------------------------------------------------------- control

    def _begins(self) -> Iterator[Violation]:
        cut = self.cut_at()
        if cut is None:
            return
        for span in self.run.spans:
            if span.preparing and span.began > cut:
                yield Violation("Nothing begins", f"{span} was begun after the run was cut")
                return

    def _hooks_behind_the_host(self) -> Iterator[Violation]:
        """Once the host has cancelled no hook is called, closing ones included (design 7.3)."""
        hard = [done for done in self.landed if done in self.hard and done.run is self.run]
        since = min((done.landed for done in hard if done.landed is not None), default=None)
        for span in self.run.spans if since is not None else ():
            if span.kind == "hook" and span.began > (since or 0):
                yield Violation("Nothing begins", f"{span} was called after the host had cancelled")
                return

    def _record(self) -> Iterator[Violation]:
        """A run that was cut leaves no job open: no tool result at its end that asks for a request (design 7.4)."""
        if self.end is None or self.outcome in (*BY_ITSELF, None) or not self.end.messages:
            return
        decided = any(span.name == "finish_turn" and span.value == "end" for span in self.run.spans)
        results = [event.result for event in self.run.events if isinstance(event, ToolExecutionEnd)]
        asked = not decided and not any(result.terminate for result in results)
        if asked and self.outcome in CUT and isinstance(self.end.messages[-1], ToolResultMessage):
            yield Violation("Record", f"the run was cut, and ends with {_shown(self.end.messages[-1])}")

    def _causes(self) -> Iterator[Violation]:
        """What the call came to, and why."""
        run = self.run
        raised = run.raised
        raising = [done for done in self.acts if done.error is not None and done.run is run and _placed(done)]
        if raising and raising[0].planned.act == "key" and not isinstance(raised, KeyboardInterrupt):
            yield Violation("Bare", f"after a KeyboardInterrupt the call came to {raised or self.outcome!r}", raised)
            return
        if isinstance(raised, BaseExceptionGroup) and not any(done.error is raised for done in self.acts):
            yield Violation("Bare", f"the call raised a group: {raised!r}", raised)
            return
        if self.outcome == "cancelled" and raised is None:
            yield Violation("Cancelled passes", "the run was cancelled, but its call returned")
        if len(self.acts) != 1 or any(done not in self.acts for done in self.hard):
            return
        (act,) = self.acts
        if act.run is not run and act.run is not None:
            return  # done to another agent; here it is a cancellation
        name = act.planned.act
        in_time = act.landed is not None and (run.end_told is None or act.landed < run.end_told)
        if name == "abort" and in_time:
            if raised is not None and raised not in self.faults:
                yield Violation("Causes", f"after an abort the call raised {raised!r}", raised)
            elif self.outcome in BY_ITSELF:
                yield Violation("Causes", f"the run was aborted, but its end_reason is {self.outcome!r}")
        elif name in ("cancel", "deadline"):
            if raised is None and run.got_cancelled:
                yield Violation(
                    "Cancelled passes", f"Cancelled reached the run, but its call returned {self.outcome!r}"
                )
            elif raised is not None and not isinstance(raised, trio.Cancelled) and raised not in self.faults:
                yield Violation("Cancelled passes", f"after a host's cancellation the call raised {raised!r}", raised)
        elif name == "key" and in_time and not isinstance(raised, KeyboardInterrupt):
            yield Violation("Bare", f"after a KeyboardInterrupt the call came to {raised or self.outcome!r}", raised)
        elif name == "raise":
            yield from self._after_raise(act)

    def _after_raise(self, act: Done) -> Iterator[Violation]:
        span, run, error = act.in_span, self.run, act.error
        if len([error for error in self.faults if not isinstance(error, trio.Cancelled)]) > (span is not None):
            return  # something else had failed before, and the first failure is raised
        came = getattr(run.returned, "exception", None) if isinstance(self.watch, AgentWatch) else run.raised
        if span is None:
            if run.raised is not error:
                yield Violation("Causes", f"a listener raised, but the call came to {run.raised or self.outcome!r}")
        elif span.kind == "hook" and span.name not in CALL_HOOKS:
            if came is not error:
                yield Violation("Causes", f"{span.name} raised, but the call came to {came or self.outcome!r}")
        elif run.raised is not None and run.raised not in self.faults:
            yield Violation("Causes", f"{span} raised, and so did the call: {run.raised!r}", run.raised)


def _placed(act: Done) -> bool:
    """Whether an act was done in the host's code, and not where a task waits."""
    return not act.label.startswith("step ")


def _nothing_lost(probe: Probe, watch: AgentWatch) -> Iterator[Violation]:
    if probe._replaced or watch is not probe.watches[0]:
        return
    places = [*watch.agent.messages, *probe._waiting_at_end]
    for queued in probe._queued:
        count = sum(_is_in_place(queued.message, place) for place in places)
        if count > 1 or (count == 0 and not queued.cleared):
            yield Violation(
                "No message lost or doubled",
                f"{_shown(queued.message)} stands {count} times in the transcript and the queues together",
            )


def _says(message: ToolResultMessage, value: object) -> bool:
    """Whether a result says what a tool returned, be it that this is nothing that can be a result."""
    try:
        said = as_tool_result(value).text
    except TypeError as error:
        return message.is_error and str(error) in message.text
    return message.text == said


def _is_in_place(queued: AgentMessage, place: AgentMessage) -> bool:
    # A system message that declares the changes of tools is another object than the one that was queued.
    if isinstance(queued, SystemMessage) and isinstance(place, SystemMessage):
        return place.content == queued.content and place.sections == queued.sections
    return place is queued


def _roles(messages: Iterable[AgentMessage]) -> str:
    return "[" + ", ".join(getattr(message, "tool_call_id", message.role) for message in messages) + "]"


def _shown(message: AgentMessage) -> str:
    if isinstance(message, ToolResultMessage):
        return f"{message.error_kind or ('error' if message.is_error else 'ok')}: {message.text!r:.100}"
    return repr(getattr(message, "text", message))[:100]


# ----------------------------------------------------------- prompted again


async def prompted_again(probe: Probe) -> list[Violation]:
    """Prompt everything that was watched again: one request, with a transcript that a provider accepts."""
    found: list[Violation] = []
    for watch in probe.watches:
        if isinstance(watch, AgentWatch):
            watch.look_back()
            if watch is probe.watches[0]:
                probe._waiting_at_end = watch.waiting()
        if not watch.runs or watch.run is not None:
            continue  # never used; or still active, which is a violation of its own
        try:
            if isinstance(watch, AgentWatch):
                await _prompt_agent(watch)
            elif isinstance(watch, LoopWatch):
                await _prompt_loop(watch)
        except InvariantError as error:
            found.append(Violation("Prompted again", error.difference, error))
        except Exception as error:
            found.append(Violation("Prompted again", f"the next prompt raised {error!r}", error))
    return found


AGAIN = "Here I am."


async def _prompt_agent(watch: AgentWatch) -> None:
    agent = watch.agent
    for name in ("clear_all_queues", "prompt"):
        vars(agent).pop(name, None)
    agent.clear_all_queues()
    for name in HOOKS:
        setattr(agent, name, None)
    model = ScriptedModel([AGAIN])
    agent.stream_fn = model.stream_fn
    result = await agent.prompt("Are you there?")
    if result.text != AGAIN or result.end_reason != "done" or len(model.requests) != 1:
        raise InvariantError("Prompted again", f"the next prompt came to {result.end_reason}: {result.text!r}")
    assert_transcript_valid(model.requests[0].messages)
    assert_transcript_valid(agent.messages)


async def _prompt_loop(watch: LoopWatch) -> None:
    if not all(run.events and isinstance(run.events[-1], AgentEnd) for run in watch.runs):
        return  # its one listener was not told everything, so nobody knows what the transcript holds
    model = ScriptedModel([AGAIN])
    messages = [message for run in watch.runs for message in run.messages]
    config = LoopConfig(model=model)
    new = await run_agent_loop([UserMessage("Are you there?")], AgentContext(messages), config, lambda event: None)
    assert_transcript_valid(model.requests[0].messages)
    if getattr(new[-1], "text", "") != AGAIN:
        raise InvariantError("Prompted again", f"the next loop came to {new[-1]!r:.100}")
