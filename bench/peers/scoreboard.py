"""The guarantees of docs/cancellation.md, each tried on each peer in the same way.

A trial is a plan and a judgement of what was seen. It is tried with the peer's own way to stop a run
(``abort``) and with a cancellation of the task around it (``host``), where there is such a thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, final

import attrs

from bench.results import Verdict

from .adapter import Act, Adapter, Plan, UnavailableError

Facts: TypeAlias = dict[str, Any]
Judge: TypeAlias = Callable[[Facts, float], tuple[bool | None, str]]
"""Of the facts of a sample and its seconds: whether the guarantee held (None: cannot be said), and a detail."""


def _no_orphan(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    left = facts["orphans"]
    if facts["outcome"] == "hung":
        return False, "the call did not end"
    if left:
        return False, f"{left} of {facts['started']} tools alive when the call was over, for {_ms(facts['late_us'])}"
    return True, "none alive"


def _at_once(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    """Nobody else's time is in it: the tools sleep for seconds, and half a second is a busy machine."""
    if facts["outcome"] == "hung":
        return False, f"not over after {_ms(seconds * 1e6)}"
    ok = seconds < 0.5 and facts["orphans"] == 0
    return ok, f"over after {_ms(seconds * 1e6)}, {facts['orphans']} alive then"


def _answered(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    history = facts["history"]
    if history is None:
        return None, "it keeps no transcript"
    if not history["calls"]:
        return False, "the transcript has lost the whole turn, calls and all"
    detail = f"{history['answered']} of {history['calls']} calls have a result"
    return history["valid"] and history["answered"] == history["calls"], detail


def _kept(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    history = facts["history"]
    if history is None:
        return None, "it keeps no transcript"
    lost = history["completed"] - history["kept"]
    return lost == 0 and history["completed"] > 0, f"{lost} of {history['completed']} finished results lost"


def _said(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    """A cut call has a result, and that does not show a value which its tool never returned."""
    history = facts["history"]
    if history is None:
        return None, "it keeps no transcript"
    unsaid = history["calls"] - history["answered"]
    if not history["calls"]:
        return False, "nothing is said of any call"
    return unsaid == 0 and not history["untrue"], f"nothing said of {unsaid} of {history['calls']} calls"


def _record(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    history = facts["history"]
    if history is None:
        return None, "it keeps no transcript"
    return history["last"] == "text", f"the transcript ends with a {history['last']}"


def _again(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    again = facts["again"]
    if again is None:
        return None, "it keeps no conversation"
    if again["outcome"] != "returned":
        return False, f"the next prompt {again['outcome']}"
    if again["requests"] != 1:
        return False, f"the next prompt made {again['requests']} requests"
    if not again["valid"]:
        return False, f"the model is sent {again['calls'] - again['answered']} calls without a result"
    return True, "one request, with a transcript that a provider accepts"


def _passes(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    return facts["outcome"] == "cancelled", f"the call {_verb(facts['outcome'])}"


def _nothing_begins(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    asked = facts["requests_after"]
    return asked == 0, f"{asked} requests after the cut"


def _idle(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    left = facts["tasks_left"]
    return left == 0, f"{left} tasks left when the call was over"


def _one(facts: Facts, seconds: float) -> tuple[bool | None, str]:
    others = facts["started"] - 1
    done = facts["completed"]
    ok = done == others and facts["outcome"] == "returned"
    return ok, f"{done} of {others} others came to their end, the call {_verb(facts['outcome'])}"


def _verb(outcome: str) -> str:
    return {"cancelled": "raised the cancellation", "hung": "did not end"}.get(outcome, outcome)


def _ms(us: float) -> str:
    return f"{us / 1000:.0f} ms" if us >= 10_000 else f"{us / 1000:.1f} ms"


@final
@attrs.frozen(kw_only=True)
class Trial:
    """One promise, and how it is tried."""

    name: str
    guarantee: str
    """The row of the table of guarantees in docs/cancellation.md."""
    title: str
    plan: Callable[[Act], Plan]
    judge: Judge
    acts: tuple[Act, ...] = ("abort", "host")


def _plan(**settings: Any) -> Callable[[Act], Plan]:
    settings.setdefault("n", 20)
    return lambda act: Plan(act=act, **settings)


TRIALS = (
    Trial(name="orphans", guarantee="No orphan", title="100 sleeping tools are unwound when the call is over",
          plan=_plan(n=100), judge=_no_orphan),
    Trial(name="clean-up", guarantee="No orphan", title="their clean-up, which awaits up to 10 ms, is waited for",
          plan=_plan(body="clean-up", seconds=0.01), judge=_no_orphan),
    Trial(name="nested", guarantee="No orphan", title="eight agents deep, the innermost tool is unwound, too",
          plan=_plan(n=1, depth=8), judge=_no_orphan),
    Trial(name="threads", guarantee="No orphan", title="no thread of a plain tool is alive when the call is over",
          plan=_plan(n=4, body="thread", seconds=0.3), judge=_no_orphan),
    Trial(name="sibling", guarantee="No orphan", title="one tool raises: no sibling is alive when the call is over",
          plan=_plan(body="raise", seconds=0.3), judge=_no_orphan, acts=("none",)),
    Trial(name="latency", guarantee="At once", title="a cut of 100 sleeping tools does not wait for them",
          plan=_plan(n=100), judge=_at_once),
    Trial(name="deaf", guarantee="At once", title="a tool that knows nothing of cancellation is cut",
          plan=_plan(body="deaf", seconds=1.5), judge=_at_once),
    Trial(name="swallow", guarantee="Terminates", title="a tool that swallows the cut once is cut again",
          plan=_plan(body="swallow", seconds=1.5), judge=_at_once),
    Trial(name="answered", guarantee="Answered", title="every call has its result in the transcript",
          plan=_plan(), judge=_answered),
    Trial(name="lost", guarantee="Truth", title="results that were finished before the cut are kept",
          plan=_plan(body="half"), judge=_kept),
    Trial(name="said", guarantee="Truth", title="of each call that was cut, the transcript says so",
          plan=_plan(body="half"), judge=_said),
    Trial(name="record", guarantee="Record", title="the transcript says at its end that the work was stopped",
          plan=_plan(), judge=_record),
    Trial(name="again", guarantee="Prompted again", title="the next prompt works, with a valid transcript",
          plan=_plan(body="half", again=True), judge=_again),
    Trial(name="passes", guarantee="Cancelled passes", title="the host's cancellation comes out of the call",
          plan=_plan(), judge=_passes, acts=("host",)),
    Trial(name="begins", guarantee="Nothing begins", title="no request is made after the cut",
          plan=_plan(body="half"), judge=_nothing_begins),
    Trial(name="idle", guarantee="Idle is idle", title="no task is left when the call is over",
          plan=_plan(body="clean-up", seconds=0.01), judge=_idle),
    Trial(name="one", guarantee="Causes", title="one call of N is cancelled, the others and the run go on",
          plan=_plan(body="deaf", seconds=1.0), judge=_one, acts=("one",)),
)  # fmt: skip
BY_NAME = {trial.name: trial for trial in TRIALS}


def try_all(peer: str, adapter: Adapter) -> Iterator[Verdict]:
    """Every trial on one peer."""
    for trial in TRIALS:
        yield try_one(peer, adapter, trial)


def try_one(peer: str, adapter: Adapter, trial: Trial) -> Verdict:
    """One trial, with every act that it has; one verdict of all."""
    said: dict[str, tuple[bool | None, str]] = {}
    facts: Facts = {}
    for act in trial.acts:
        try:
            sample = adapter.cut(trial.plan(act))
        except UnavailableError as error:
            said[act] = None, str(error)
            continue
        except Exception as error:
            return Verdict(peer, trial.name, "failed", f"{act}: {type(error).__name__}: {error!s:.200}")
        facts[act] = {**sample.facts, "seconds": sample.value}
        said[act] = trial.judge(sample.facts, sample.value)
    known = {act: (held, detail) for act, (held, detail) in said.items() if held is not None}
    held = [one for one, _ in known.values()]
    verdict = "none" if not held else "yes" if all(held) else "part" if any(held) else "no"
    if len({detail for _, detail in (known or said).values()}) == 1:
        detail = next(iter((known or said).values()))[1]
    else:
        detail = "; ".join(f"{act}: {text}" for act, (_, text) in (known or said).items())
    return Verdict(peer, trial.name, verdict, detail, facts)
