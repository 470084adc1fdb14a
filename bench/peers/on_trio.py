"""What the peers on Trio have in common: the library itself, and the floor."""

from __future__ import annotations

import gc
import time
from abc import abstractmethod
from typing import Any

import trio
import trio.testing

from bench.crew import Crew
from bench.floors import HOUR
from bench.measure import Sample

from .adapter import Adapter, Entry, Plan, Script, Seen, UnavailableError, look_at
from .on_asyncio import PATIENCE, SETTLE, ToolFunction

now = time.perf_counter


def body_of(plan: Plan, crew: Crew, ready: trio.Event) -> ToolFunction:
    """The tool of a plan; a clean-up that awaits is shielded, as Trio wants it."""

    async def sleep(i: int) -> str:
        crew.enter(i)
        try:
            if plan.body == "half" and i % 2 == 0:
                return crew.complete(i)
            if plan.body == "swallow":
                try:
                    await trio.sleep(HOUR)
                except trio.Cancelled:  # noqa: ASYNC103 - the fault that is tried
                    if crew.dismissed:
                        raise
                    await trio.sleep(plan.seconds)  # noqa: ASYNC102 - same
            elif plan.body == "raise":
                await ready.wait()
                if i == plan.n // 2:
                    raise RuntimeError("one of N raises")
                await trio.sleep(plan.seconds)
            elif plan.body == "thread":
                await trio.to_thread.run_sync(time.sleep, plan.seconds)
            else:
                await trio.sleep(plan.seconds if plan.body == "deaf" else HOUR)
            return crew.complete(i)
        finally:
            if plan.body == "clean-up":
                with trio.CancelScope(shield=True, relative_deadline=HOUR):
                    await trio.sleep(plan.seconds * (i % 10 + 1) / 10)
            crew.leave()

    return sleep


class TrioAdapter(Adapter):
    """Drives what runs on Trio; a subclass says how an agent is made, run and cut."""

    @abstractmethod
    def build(self, script: Script, tool: ToolFunction, crew: Crew) -> Any:
        """Make an agent; not timed."""

    @abstractmethod
    async def run(self, handle: Any, prompt: str) -> None:
        """From prompt to final text."""

    @abstractmethod
    def abort(self, handle: Any) -> None:
        """Its own way to stop a run."""

    @abstractmethod
    def cancel_one(self, handle: Any, index: int) -> None:
        """Cancel one call of N."""

    @abstractmethod
    def history(self, handle: Any) -> list[Entry] | None:
        """The conversation, or None if there is none."""

    def again(self, handle: Any) -> list[Entry]:
        """What the model was sent last."""
        raise UnavailableError("it keeps no conversation")

    def cut(self, plan: Plan) -> Sample:
        self.refuse(plan)
        return trio.run(self._cut, plan)

    async def _cut(self, plan: Plan) -> Sample:
        ready, ended = trio.Event(), trio.Event()
        crew = Crew(1 if plan.body == "thread" else plan.n, ready.set)
        tool = body_of(plan, crew, ready)
        for _ in range(plan.depth - 1):
            tool = self._delegating(tool)
        handle = self.build([plan.n if plan.depth == 1 else 1, "done", "again"], tool, crew)
        seen = Seen(crew)
        scope = trio.CancelScope()
        over = 0.0

        async def host() -> None:
            nonlocal over
            with scope:
                try:
                    await self.run(handle, "go")
                    seen.outcome = "returned"
                except Exception as error:
                    seen.outcome = f"raised {type(error).__name__}"
                finally:
                    over = now()
            if scope.cancelled_caught:
                seen.outcome = "cancelled"
            ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host)
            with trio.fail_after(PATIENCE):
                await ready.wait()
                await trio.sleep(SETTLE)
            gc.collect()
            asked, cut = crew.requests, now()
            if plan.act == "abort":
                self.abort(handle)
            elif plan.act == "host":
                scope.cancel(reason="the benchmark cuts")
            elif plan.act == "one":
                self.cancel_one(handle, plan.n // 2)
            with trio.move_on_after(PATIENCE):
                await ended.wait()
            seen.took = (over or now()) - cut
            # What the run leaves behind is in no nursery of ours: tasks of Trio have a parent, and it waits.
            seen.at_the_end(cut, asked, len(nursery.child_tasks))
            if (history := self.history(handle)) is not None:
                seen.facts["history"] = look_at(history, crew.completed)
            if plan.again and ended.is_set():
                seen.facts["again"] = await self._prompt_again(handle, crew)
            crew.dismissed = True
            nursery.cancel_scope.cancel(reason="measured")
        return seen.sample()

    async def _prompt_again(self, handle: Any, crew: Crew) -> dict[str, Any] | None:
        asked = crew.requests
        try:
            with trio.fail_after(PATIENCE):
                await self.run(handle, "again")
                sent = self.again(handle)
        except UnavailableError:
            return None
        except Exception as error:
            return {"outcome": f"raised {type(error).__name__}: {error!s:.120}", "requests": 0, "valid": False}
        return {"outcome": "returned", "requests": crew.requests - asked, **look_at(sent, crew.completed)}

    def _delegating(self, tool: ToolFunction) -> ToolFunction:
        inner = self.build([1, "done"], tool, Crew(1))

        async def delegate(i: int) -> str:
            await self.run(inner, "go")
            return "ok"

        return delegate
