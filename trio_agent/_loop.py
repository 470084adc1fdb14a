"""The double loop; it keeps no state of its own.

The inner loop goes on while there are tool calls to answer or messages to take; the outer one looks
for follow-ups when it would end. Whatever a cut leaves open is closed by the run, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import cast

import trio

from ._abort import Abort, WorkCut
from ._batch import run_batch
from ._door import Callback, bare
from ._errors import ContinueError
from ._events import AgentEnd, AgentEvent, AgentStart, EndReason, MessageEnd, MessageStart, TurnEnd, TurnStart
from ._hooks import AgentLoopTurnUpdate, AgentRequestUpdate, Emit, LoopConfig, PrepareRequestContext
from ._messages import AgentMessage, AssistantMessage, SystemMessage, ToolCall
from ._open import Record
from ._queues import PendingMessageQueue
from ._response import respond
from ._run import Run
from ._tool import AgentContext
from ._transcript import changes_declared


async def run_loop(run: Run, prompts: Sequence[AgentMessage], *, skip_first_poll: bool = False) -> None:
    """Run the loop from ``agent_start`` to ``agent_end``, within the time limit of the run."""

    async def body(run: Run) -> None:
        await _loop(run, prompts, skip_first_poll=skip_first_poll)

    seconds = run.config.limits.seconds
    if seconds is None:
        await run.drive(body)
        return
    failed: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_time, run, seconds)
            await run.drive(body)
            nursery.cancel_scope.cancel(reason="the run is over")
    except BaseExceptionGroup as group:
        failed = bare(group.exceptions)
    if failed is not None:
        raise failed


@trio.lowlevel.enable_ki_protection
async def _watch_time(run: Run, seconds: float) -> None:
    await trio.sleep(seconds)
    if not run.closing and not run.abort.requested:
        run.record.out_of_time = True
        run.abort.request(f"the run's limit of {seconds:g} s has passed")


async def _loop(run: Run, prompts: Sequence[AgentMessage], *, skip_first_poll: bool) -> None:
    record, config = run.record, run.config
    record.prompts.extend(changes_declared(record.track.replay, record.tools, prompts) if prompts else ())
    await run.emit(AgentStart())
    await run.emit(TurnStart())
    while record.prompts:
        message = record.prompts[0]
        await run.emit(MessageStart(message))
        await run.emit(MessageEnd(message))
    pending: Sequence[AgentMessage] = () if skip_first_poll else await run.poll(config.get_steering_messages)
    first = True
    while True:
        unanswered = True
        asked_for_more = False
        while unanswered or pending:
            prepared: Sequence[AgentMessage] = ()
            if not first:
                prepared = await _prepare_next_turn(run)
                if not pending:
                    pending = await run.poll(config.get_steering_messages)
                await run.emit(TurnStart())
            first = False
            await _inject(run, prepared, pending)
            pending = ()
            await _prepare_request(run)
            record.turns += 1
            answer, unanswered = await _turn(run)
            decision = await run.finish_turn()
            record.owed = record.owed and decision != "end"
            await run.emit(TurnEnd(answer, tuple(record.results)))
            if answer.stop_reason in ("error", "aborted") and record.interrupted is None:
                await _end(run, "error" if answer.stop_reason == "error" else "aborted")
                return
            record.interrupted = None
            run.check()
            # Of the last turn alone: what led to a further turn has satisfied the ones before.
            asked_for_more = decision == "continue"
            reason = _ends(run, decision, wanted=unanswered or asked_for_more)
            if reason is not None:
                await _end(run, reason)
                return
            pending = await run.poll(config.get_steering_messages)
        pending = await run.poll(config.get_follow_up_messages)
        if pending or asked_for_more:
            continue
        # Between the last look into the queues and the decision to end there is no checkpoint.
        await _end(run, "terminated" if record.results else "done")
        return


async def _end(run: Run, reason: EndReason) -> None:
    record = run.record
    record.end_reason = reason
    await run.emit(AgentEnd(tuple(record.new_messages), reason))


def _ends(run: Run, decision: str | None, *, wanted: bool) -> EndReason | None:
    """Whether the run ends here by decision or limit; no queue is read then."""
    record, limits = run.record, run.config.limits
    if decision == "end":
        return "finish_turn"
    if run.stop_requested:
        return "stop_after_turn"
    if limits.tool_calls is not None and record.limit_hit:
        return "max_tool_calls"
    if limits.turns is not None and record.turns >= limits.turns:
        queues = (run.config.get_steering_messages, run.config.get_follow_up_messages)
        wanted = wanted or any(isinstance(queue, PendingMessageQueue) and queue for queue in queues)
        return "max_turns" if wanted else "done"
    return None


async def _turn(run: Run) -> tuple[AssistantMessage, bool]:
    """One response and its batch.

    Returns:
      the answer, and whether its tool results want a request.
    """
    record = run.record
    try:
        answer = await respond(run)
        if answer.stop_reason in ("error", "aborted") or not any(type(block) is ToolCall for block in answer.content):
            return answer, False
        return answer, not await run_batch(run, answer)
    except WorkCut:
        if record.interrupted is None or run.abort.requested:
            raise
    # An interrupt: the work is closed like after an abort, and the run goes on.
    await run.close_work()
    return cast("AssistantMessage", record.answer), bool(record.results) and record.owed


async def _inject(run: Run, prepared: Sequence[AgentMessage], pending: Sequence[AgentMessage]) -> None:
    """Take the messages that go in before the request, with the changes of the tools declared."""
    record = run.record
    messages = changes_declared(record.track.replay, record.tools, (*prepared, *pending))
    # In front of the pending ones: those prepared and, if one had to be made, the one that declares the changes.
    ahead = len(messages) - len(pending)
    for index, message in enumerate(messages):
        run.check()
        if index >= ahead:
            record.take(pending[index - ahead])
        await run.emit(MessageStart(message))
        await run.emit(MessageEnd(message))


async def _prepare_next_turn(run: Run) -> Sequence[AgentMessage]:
    if run.config.prepare_next_turn is None:
        return ()
    update = await run.hook("prepare_next_turn", (AgentLoopTurnUpdate, NoneType), run.turn_context())
    if update is None:
        return ()
    _replace(run.record, update)
    return tuple(update.messages)


async def _prepare_request(run: Run) -> None:
    if run.config.prepare_request is None:
        return
    record = run.record
    request = PrepareRequestContext(record.context(), record.model, record.thinking_level)
    update = await run.hook("prepare_request", (AgentRequestUpdate, NoneType), request)
    if update is not None:
        _replace(record, update)


def _replace(record: Record, update: AgentLoopTurnUpdate | AgentRequestUpdate) -> None:
    if update.context is not None:
        record.replace_context(update.context)
    if update.model is not None:
        record.model = update.model
    if update.thinking_level is not None:
        record.thinking_level = update.thinking_level


# ------------------------------------------------------------ without Agent


class OneListener:
    """The listeners of a loop that was called directly: one function."""

    def __init__(self, emit: Emit) -> None:
        self._listeners = (Callback(emit, 1),)

    def reduce(self, event: AgentEvent) -> None:
        """There is no state."""

    def of(self, event_type: type) -> Sequence[Callback]:
        """Everybody is told everything."""
        return self._listeners


@trio.lowlevel.enable_ki_protection
async def run_agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: LoopConfig,
    emit: Emit,
    *,
    abort: Abort | None = None,
) -> list[AgentMessage]:
    """Run the loop on new messages, without an Agent around it (pi's ``runAgentLoop``).

    A checkpoint. After a host's cancellation the run closes within ``closing_grace`` and Cancelled
    passes on; the transcript that ``emit`` was told is complete all the same.

    Args:
      prompts: go into the transcript first, with the changes of the tools declared.
      context: messages and tools; it is not changed.
      config: the settings and hooks.
      emit: is told each event in the caller's task, one at a time; plain or async.
      abort: ends the run softly when it is requested.

    Returns:
      the messages that the run added.

    Raises:
      Exception: whatever a hook or ``emit`` raises, bare. Failures of the model are answers of stop
        reason ``error``.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    run = Run(config, context, OneListener(emit), abort)
    await run_loop(run, list(prompts))
    return run.record.new_messages


@trio.lowlevel.enable_ki_protection
async def run_agent_loop_continue(
    context: AgentContext, config: LoopConfig, emit: Emit, *, abort: Abort | None = None
) -> list[AgentMessage]:
    """Run the loop on a context as it stands: its tail is a user message or a tool result.

    Otherwise as :func:`run_agent_loop` (pi's ``runAgentLoopContinue``).

    Raises:
      ContinueError: the context is empty or ends with an answer.
    """
    check_continue(context.messages)
    await trio.lowlevel.checkpoint_if_cancelled()
    run = Run(config, context, OneListener(emit), abort)
    await run_loop(run, [])
    return run.record.new_messages


def check_continue(messages: Sequence[AgentMessage]) -> None:
    """Refuse a transcript that no model could answer."""
    if all(type(message) is SystemMessage for message in messages):
        raise ContinueError("there is nothing to continue from: the transcript has no messages; call prompt()")
    if type(messages[-1]) is AssistantMessage:
        raise ContinueError(
            "cannot continue from an answer: the transcript ends with an assistant message; "
            "call prompt(), or queue a message with steer() or follow_up() first",
            "assistant",
        )
