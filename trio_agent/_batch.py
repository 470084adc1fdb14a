"""The tool calls of one message: one after the other, or side by side in a nursery.

Calls post themselves to the run's task, which tells what there is to tell of them. Outcomes and
updates stand in the call; a post only wakes the deliverer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import final

import trio

from ._abort import WorkCut
from ._call import Caller, tools_by_name
from ._closing import cut_result
from ._door import bare
from ._events import AgentEvent, MessageEnd, MessageStart, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from ._messages import AssistantMessage
from ._open import Batch, Call, error_result
from ._run import LOOK, Run, Step
from ._stream import Line


async def run_batch(run: Run, answer: AssistantMessage) -> bool:
    """Run the tool calls of an answer and tell of them.

    Returns:
      whether no request need follow, because every result says so.

    Raises:
      WorkCut: the run or the batch was cut; calls that did not run are still open.
    """
    batch = run.record.open_batch(answer)
    if answer.stop_reason == "length":
        await run.emit_each(_truncated(run, batch))
        if not batch.calls[-1].result_started:
            raise WorkCut
    else:
        await _Runner(run, batch).run()
    run.record.close_batch()
    return not run.record.owed


def _cut(run: Run) -> bool:
    """Whether no more calls begin. Those that run already unwind by themselves, their closing hooks are not cut."""
    return run.abort.requested or run.record.interrupted is not None


def _truncated(run: Run, batch: Batch) -> Iterator[AgentEvent]:
    """Fail every call of an answer that the token limit cut off: its arguments may be incomplete."""
    for call in batch.calls:
        if _cut(run):
            return
        call.outcome = error_result(
            f"Tool call {call.tool_call.name!r} was not executed: the response hit the output token limit, "
            "so its arguments may be cut off. Make the call again with complete arguments.",
            "truncated",
        )
        yield _started(call)
        yield _ended(call)
        yield from _results([call])


def _started(call: Call) -> ToolExecutionStart:
    call.started = True
    return ToolExecutionStart(call.tool_call.id, call.tool_call.name, call.tool_call.arguments)


def _ended(call: Call) -> ToolExecutionEnd:
    result = call.outcome
    assert result is not None
    call.ended = call.over = True
    return ToolExecutionEnd(call.tool_call.id, call.tool_call.name, result, result.is_error)


def _results(calls: Iterable[Call]) -> Iterator[AgentEvent]:
    for call in calls:
        message = call.result_message()
        call.result_started = True
        yield MessageStart(message)
        yield MessageEnd(message)


AT_ONCE = 32
"""Calls that begin to run between two checkpoints: other tasks wait for a quarter of a millisecond, not for thousands.

It also lets short calls end before all have begun, so that fewer are alive for the garbage collector to look at.
"""


@final
class _Runner:
    """Runs one batch; delivers in the run's task what its calls post."""

    def __init__(self, run: Run, batch: Batch) -> None:
        record, config = run.record, run.config
        self.run_ = run
        self.batch = batch
        limit = config.max_parallel_tools
        self.caller = Caller(
            batch.answer,
            tools_by_name(record.tools),
            run.abort,
            None if config.before_tool_call is None else run.callback(config.before_tool_call, 1),
            None if config.after_tool_call is None else run.callback(config.after_tool_call, 1),
            lambda call: cut_result(record, call),
            None if limit is None or limit >= len(batch.calls) else trio.CapacityLimiter(limit),
        )
        self.posts: Line[Call] = Line(math.inf)
        self.running = 0

    async def run(self) -> None:
        """Run all calls. What is raised here was raised in the run's task, but for KeyboardInterrupt."""
        failed: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                try:
                    if self.batch.sequential:
                        await self._in_order(nursery)
                    elif self.run_.config.tool_preparation == "parallel":
                        await self._all_at_once(nursery)
                    else:
                        await self._prepared_first(nursery)
                finally:
                    # Nobody tells from here on; a tool that waits to hand over an update must not hang.
                    for call in self.batch.calls:
                        if call.untold is not None or not call.deaf:
                            call.hear_no_more()
        except BaseExceptionGroup as group:
            failed = bare(group.exceptions)
        if failed is not None:
            raise next((call.fatal for call in self.batch.calls if call.fatal is not None), failed)
        if not self.batch.sequential:
            if any(not call.ended for call in self.batch.calls):
                raise WorkCut
            await self.run_.emit_each(_results(self.batch.calls))

    # -------------------------------------------------------------- modes

    async def _in_order(self, nursery: trio.Nursery) -> None:
        for call in self.batch.calls:
            await self._begin([call])
            if call.outcome is None:
                self._run_soon(nursery, call)
                await self._deliver()
                if call.outcome is None:
                    raise WorkCut
            await self.run_.emit_each(_results([call]))

    async def _prepared_first(self, nursery: trio.Nursery) -> None:
        await self._begin(self.batch.calls)
        for call in self.batch.calls:
            if call.prepared:
                self._run_soon(nursery, call)
                if self.running % AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                    if _cut(self.run_):
                        break
        await self._deliver()

    async def _all_at_once(self, nursery: trio.Nursery) -> None:
        for call in self.batch.calls:
            if _cut(self.run_):
                break
            await self.run_.emit(_started(call))
            if self._refused(call):
                await self.run_.emit(_ended(call))
                continue
            self._run_soon(nursery, call)
            if self.running % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        await self._deliver()

    async def _begin(self, calls: Sequence[Call]) -> None:
        """Start and prepare calls in the run's task."""
        await self.run_.emit_each(self._beginnings(calls))
        if _cut(self.run_):
            raise WorkCut

    def _beginnings(self, calls: Sequence[Call]) -> Iterator[AgentEvent | Step]:
        """What there is to tell and to await until calls are prepared; ends early if the run is cut."""
        run = self.run_
        for call in calls:
            if _cut(run):
                return
            yield _started(call)
            if _cut(run):
                return
            if not self._refused(call):
                yield LOOK
                if self.caller.before is None:
                    self.caller.prepare_unasked(call)
                else:
                    yield self.caller.prepare, (call,)
            if call.outcome is not None:
                yield _ended(call)

    def _refused(self, call: Call) -> bool:
        """Whether the limit of the run or ``cancel_tool`` forbids the call."""
        record, limit = self.run_.record, self.run_.config.limits.tool_calls
        if call.cut is not None:
            call.outcome = cut_result(record, call)
        elif limit is not None and record.tool_calls >= limit:
            record.limit_hit = True
            call.outcome = error_result(f"Not executed: the run's limit of {limit} tool calls is reached.", "limit")
        else:
            record.tool_calls += 1
        return call.outcome is not None

    # ------------------------------------------------------------ children

    def _run_soon(self, nursery: trio.Nursery, call: Call) -> None:
        call.posts = self.posts
        self.running += 1
        body = self.caller.execute if call.prepared else self.caller.prepare_and_execute
        nursery.start_soon(body, call, name=call.tool_call.name)

    async def _deliver(self) -> None:
        """Tell what calls post until all that run are over."""
        while self.running:
            await self.posts.wait()
            await self.run_.emit_each(self._news())

    def _news(self) -> Iterator[AgentEvent]:
        """What calls have posted, until nothing is left; where a yield comes back, its event has been told."""
        calls = self.posts.items
        while calls:
            call = calls.popleft()
            if call.fatal is not None:
                raise call.fatal
            if call.untold is not None:
                call.last_update, tool_call = call.untold, call.tool_call
                yield ToolExecutionUpdate(tool_call.id, tool_call.name, tool_call.arguments, call.last_update)
                call.update_told()
            if call.through and not call.counted:
                call.counted = True
                self.running -= 1
                # Without an outcome an abort or interrupt kept it from starting: closing tells it.
                if call.outcome is not None:
                    yield _ended(call)
