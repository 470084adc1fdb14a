"""The tool calls of one message: one after the other, or side by side in a nursery.

Calls post themselves to the run's task, which tells what there is to tell of them. Outcomes and
updates stand in the call; the channel only wakes the deliverer.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any, final

import trio

from ._abort import WorkCut
from ._call import Caller, tools_by_name
from ._closing import cut_result
from ._door import bare
from ._events import MessageEnd, MessageStart, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from ._messages import AssistantMessage
from ._open import Batch, Call, error_result
from ._run import Run


async def run_batch(run: Run, answer: AssistantMessage) -> bool:
    """Run the tool calls of an answer and tell of them.

    Returns:
      whether no request need follow, because every result says so.

    Raises:
      WorkCut: the run or the batch was cut; calls that did not run are still open.
    """
    batch = run.record.open_batch(answer)
    if answer.stop_reason == "length":
        await _fail_truncated(run, batch)
    else:
        await _Runner(run, batch).run()
    run.record.close_batch()
    return not run.record.owed


async def _fail_truncated(run: Run, batch: Batch) -> None:
    """Fail every call of an answer that the token limit cut off: its arguments may be incomplete."""
    for call in batch.calls:
        _check(run)
        call.outcome = error_result(
            f"Tool call {call.tool_call.name!r} was not executed: the response hit the output token limit, "
            "so its arguments may be cut off. Make the call again with complete arguments.",
            "truncated",
        )
        await _start(run, call)
        await _end(run, call)
        await _result(run, call)


def _check(run: Run) -> None:
    if run.abort.requested or run.record.interrupted is not None:
        raise WorkCut


# The two that follow change the record at once and tell when awaited; a coroutine more for each call counts.


def _start(run: Run, call: Call) -> Coroutine[Any, Any, None]:
    call.started = True
    return run.emit(ToolExecutionStart(call.tool_call.id, call.tool_call.name, call.tool_call.arguments))


def _end(run: Run, call: Call) -> Coroutine[Any, Any, None]:
    result = call.outcome
    assert result is not None
    call.ended = True
    call.over = True
    return run.emit(ToolExecutionEnd(call.tool_call.id, call.tool_call.name, result, result.is_error))


async def _result(run: Run, call: Call) -> None:
    message = call.result_message()
    call.result_started = True
    await run.emit(MessageStart(message))
    await run.emit(MessageEnd(message))


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
        self.send, self.receive = trio.open_memory_channel[Call](math.inf)

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
        finally:
            self.send.close()
            self.receive.close()
        failed = next((call.fatal for call in self.batch.calls if call.fatal is not None), failed)
        if failed is not None:
            raise failed
        if not self.batch.sequential:
            await self._results()

    # -------------------------------------------------------------- modes

    async def _in_order(self, nursery: trio.Nursery) -> None:
        for call in self.batch.calls:
            await self._begin(call)
            if call.outcome is None:
                self._run_soon(nursery, call)
                await self._deliver(1)
            if not call.ended:
                if call.outcome is None:
                    raise WorkCut
                await _end(self.run_, call)
            await _result(self.run_, call)

    async def _prepared_first(self, nursery: trio.Nursery) -> None:
        for call in self.batch.calls:
            await self._begin(call)
            if call.outcome is not None:
                await _end(self.run_, call)
        prepared = [call for call in self.batch.calls if call.prepared]
        _check(self.run_)
        for call in prepared:
            self._run_soon(nursery, call)
        await self._deliver(len(prepared))

    async def _all_at_once(self, nursery: trio.Nursery) -> None:
        started = 0
        for call in self.batch.calls:
            # Calls that run already unwind by themselves, their closing hooks are not cut.
            if self.run_.abort.requested or self.run_.record.interrupted is not None:
                break
            await _start(self.run_, call)
            if self._refused(call):
                await _end(self.run_, call)
                continue
            self._run_soon(nursery, call)
            started += 1
        await self._deliver(started)

    async def _begin(self, call: Call) -> None:
        """Start and prepare one call in the run's task."""
        _check(self.run_)
        await _start(self.run_, call)
        _check(self.run_)
        if self._refused(call):
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.caller.prepare_unasked(call):
            await self.caller.prepare(call)
        if call.outcome is None and not call.prepared:
            raise WorkCut

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

    async def _results(self) -> None:
        calls = self.batch.calls
        if any(not call.ended for call in calls):
            raise WorkCut
        for call in calls:
            await _result(self.run_, call)

    # ------------------------------------------------------------ children

    def _run_soon(self, nursery: trio.Nursery, call: Call) -> None:
        call.post = self.send.send_nowait
        nursery.start_soon(self.caller.execute if call.prepared else self.caller.prepare_and_execute, call)

    async def _deliver(self, running: int) -> None:
        """Tell what calls post until as many of them are over."""
        receive = self.receive
        while running:
            call = await receive.receive()
            while True:
                if call.fatal is not None:
                    raise call.fatal
                if call.untold is not None:
                    await self._update(call)
                if call.through and not call.counted:
                    call.counted = True
                    running -= 1
                    # Without an outcome an abort or interrupt kept it from starting: closing tells it.
                    if call.outcome is not None:
                        await _end(self.run_, call)
                try:
                    call = receive.receive_nowait()
                except trio.WouldBlock:
                    break

    async def _update(self, call: Call) -> None:
        update = call.untold
        assert update is not None
        call.last_update, tool_call = update, call.tool_call
        await self.run_.emit(ToolExecutionUpdate(tool_call.id, tool_call.name, tool_call.arguments, update))
        call.update_told()
