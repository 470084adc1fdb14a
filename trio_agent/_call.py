"""One tool call: prepare, execute, finish; and :func:`run_tool_call`, the same road without events.

Whatever goes wrong in a call becomes an error result of that call alone. There is no checkpoint
between a tool's return and its record: what it returned goes into the call's slot at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, final

import attrs
import trio

from ._abort import Abort
from ._closing import timeout_text
from ._door import Callback, Parts, awaited, enter_any, enter_plain, enter_tool, failure_of, got_in, host_cancelled
from ._errors import InvalidArgumentsError
from ._hooks import (
    AfterToolCall,
    AfterToolCallContext,
    AfterToolCallResult,
    BeforeToolCall,
    BeforeToolCallContext,
    BeforeToolCallResult,
)
from ._messages import AssistantMessage, ToolCall
from ._open import Call, error_result, error_text
from ._tool import AgentContext, Tool, ToolCallOutcome, ToolContext, ToolResult, as_tool_result
from ._tool._limits import thread_gate, turn, would_wait_for_itself


@final
@attrs.frozen(eq=False)
class Caller:
    """What calls of one batch have in common: who asked, the hooks, the Abort, how cuts are worded."""

    assistant_message: AssistantMessage
    tools: Mapping[str, Tool]
    abort: Abort
    before: Callback | None
    after: Callback | None
    cut_result: Callable[[Call], ToolResult]
    """What the transcript says of a call that was cut."""
    slots: trio.CapacityLimiter | None = None
    """How many calls may run at the same time."""

    # ------------------------------------------------------------ prepare

    @trio.lowlevel.enable_ki_protection
    async def prepare(self, call: Call) -> None:
        """Find the tool, validate the arguments, ask ``before_tool_call``.

        Leaves the call either prepared or with an outcome; with neither if it was aborted. The
        scope of the call is open while the hook is asked.
        """
        self._find(call)
        if call.outcome is None and call.cut is None and self.before is not None:
            await self._ask_before(call, self.before)
        self._settle(call)

    def prepare_unasked(self, call: Call) -> None:
        """What :meth:`prepare` does where there is no hook to ask; a coroutine less for each call."""
        self._find(call)
        self._settle(call)

    def _find(self, call: Call) -> None:
        call.tool = tool = self.tools.get(call.tool_call.name)
        if tool is None:
            text = f"Tool {call.tool_call.name!r} not found. Known tools: {', '.join(self.tools) or 'none'}."
            call.outcome = error_result(text, "tool_not_found")
            return
        try:
            call.args = self._arguments(tool, call.tool_call)
        except InvalidArgumentsError as error:
            call.outcome = error_result(str(error), "invalid_arguments")
        except BaseException as error:  # noqa: ASYNC103 - failure_of() raises on what is no failure
            call.outcome = error_result(error_text(failure_of(error)), "failed")

    def _settle(self, call: Call) -> None:
        if self.abort.requested or (call.cut is not None and call.cut.cause == "interrupt"):
            call.outcome = None
        elif call.cut is not None:
            call.outcome = self.cut_result(call)
        else:
            call.prepared = call.outcome is None

    def _arguments(self, tool: Tool, tool_call: ToolCall) -> dict[str, Any]:
        if tool_call.arguments_error is not None:
            raise InvalidArgumentsError(tool.name, [f"$: {tool_call.arguments_error}"])
        arguments: Any = tool_call.arguments
        if tool.prepare_arguments is not None:
            arguments = enter_plain(tool.prepare_arguments, dict(arguments))
        return tool.validate(arguments)

    async def _ask_before(self, call: Call, before: Callback) -> None:
        question = BeforeToolCallContext(self.assistant_message, call.tool_call, call.args, call.context)
        verdict: BeforeToolCallResult | None = None
        try:
            with call:
                verdict = await before.call(question, self.abort)
                if verdict is not None and not isinstance(verdict, BeforeToolCallResult):
                    raise TypeError(f"before_tool_call answered {verdict!r:.80}, not a BeforeToolCallResult or None")
        except BaseException as error:  # noqa: ASYNC103 - failure_of() raises on what is no failure
            call.outcome = error_result(error_text(failure_of(error)), "failed")
            return  # noqa: ASYNC104 - failure_of() raises on what is no failure
        if verdict is not None and verdict.block:
            call.outcome = error_result(
                verdict.reason or "Tool execution was blocked",
                None if verdict.reason else "blocked",  # a reason is the host's own text
                terminate=verdict.terminate,
            )

    # ------------------------------------------------------------ execute

    @trio.lowlevel.enable_ki_protection
    async def execute(self, call: Call) -> None:
        """Run a prepared call to its outcome: the task of a call in a batch.

        Only Cancelled of a scope outside leaves it; the call then has no outcome, unless it had returned
        and no ``after_tool_call`` has to see it. KeyboardInterrupt and its like are put into the call.
        """
        tool = call.tool
        assert tool is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.abort.requested or call.cut is not None:
            self._never_started(call)
            call.finish()
            return
        result: ToolResult | None = None
        cancelled: BaseException | None = None
        # Not `with call`, which costs 0.3 microseconds more; the batch, which the Abort knows, finds the scope.
        scope = call.scope = trio.CancelScope()
        try:
            with scope:
                if tool.limiter is None and self.slots is None:
                    result = as_tool_result(await self._enter(call, tool, scope))
                else:
                    result = await self._limited(call, tool, scope)
        except BaseException as error:  # noqa: ASYNC103 - Cancelled is raised below, behind the scope
            call.fatal, cancelled, call.raised = Parts.of(error)
            call.entered = call.entered and got_in(error)
        call.left(scope)
        call.over = call.deaf = True
        if call.fatal is None:
            if cancelled is not None:
                try:
                    raise cancelled
                finally:
                    del cancelled  # its traceback holds this frame: a cycle for each of thousands of calls
            if result is not None and self.after is None:
                call.outcome = result
            else:
                await self._conclude(call, result)
        call.finish()

    @trio.lowlevel.enable_ki_protection
    async def prepare_and_execute(self, call: Call) -> None:
        """What :meth:`execute` does, with the preparation in the same task."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.abort.requested and call.cut is None:
            try:
                await self.prepare(call)
            except BaseException as error:  # noqa: ASYNC103 - Cancelled is raised, the rest is put into the call
                call.fatal, cancelled, _ = Parts.of(error)
                if cancelled is not None:
                    raise cancelled from None  # noqa: ASYNC104 - the Cancelled of a split error
        if call.prepared:
            await self.execute(call)
        else:
            call.over = True
            call.finish()

    async def _conclude(self, call: Call, result: ToolResult | None) -> None:
        """From what came of the body to the outcome."""
        if result is None:
            if not call.entered and call.raised is None:
                self._never_started(call)
                return
            if call.cut is None and host_cancelled():
                # The host cancelled, and what the tool raised took the place of Cancelled: it was cut.
                await trio.lowlevel.checkpoint_if_cancelled()
            if call.cut is not None or call.raised is None:
                result = self.cut_result(call)
            else:
                invalid = isinstance(call.raised, InvalidArgumentsError)
                result = error_result(error_text(call.raised), "invalid_arguments" if invalid else "failed")
        if not call.entered or self.after is None:
            call.outcome = result
            return
        call.returned = result
        await heard(call)
        await trio.lowlevel.checkpoint_if_cancelled()
        call.outcome = await self._ask_after(call, self.after, result)

    def _never_started(self, call: Call) -> None:
        """A call was cut before its body; what an abort or interrupt leaves is closed by the run."""
        call.over = True
        if call.cut is not None and call.cut.cause not in ("abort", "interrupt"):
            call.outcome = self.cut_result(call)

    async def _limited(self, call: Call, tool: Tool, scope: trio.CancelScope) -> ToolResult:
        """Hold the limiters around the body."""
        if would_wait_for_itself(tool.limiter):
            return error_result(
                f"Tool {tool.name!r} was called from within a call that holds its limiter; it would wait for itself.",
                "failed",
            )
        async with turn(tool.limiter, self.slots, call):
            return as_tool_result(await self._enter(call, tool, scope))

    def _enter(self, call: Call, tool: Tool, scope: trio.CancelScope) -> Coroutine[Any, Any, Any]:
        """Enter the body when awaited. Not a coroutine itself: each would cost a frame for each live call."""
        if tool.timeout is not None:
            scope.deadline = trio.current_time() + tool.timeout
            call.timed = True
        context = ToolContext(self, call)
        if not tool.is_async and tool.in_thread:
            return self._in_thread(call, tool, context)
        call.entered = True
        return (enter_tool if tool.is_async else enter_any)(tool.execute, call.args, context)

    async def _in_thread(self, call: Call, tool: Tool, context: ToolContext) -> Any:
        call.token = trio.lowlevel.current_trio_token()

        def body() -> Any:
            call.entered = True  # not before: a cut may come while the call waits for a thread
            return tool.execute(call.args, context)

        value = await trio.to_thread.run_sync(
            body,
            abandon_on_cancel=tool.abandon_on_cancel,
            limiter=thread_gate(call.depth),
            thread_name=f"trio_agent tool {tool.name}",
        )
        return await awaited(value)

    # ------------------------------------------------------- what tools do

    @trio.lowlevel.enable_ki_protection
    async def update(self, call: Call, partial: ToolResult) -> None:
        """Hand over an update; wait if the one before is not told yet."""
        while not call.deaf and call.untold is not None:
            await heard(call)
            # It may have been woken because nobody tells any more, and that because the host cancelled.
            await trio.lowlevel.checkpoint_if_cancelled()
        if call.deaf:
            return
        if call.posts is not None:
            call.untold = partial
            call.posts.append(call)
        elif call.on_update is not None:
            enter_plain(call.on_update, partial)

    def update_from_thread(self, call: Call, partial: ToolResult) -> None:
        """Hand over an update from the tool's worker thread."""
        if call.deaf:
            return
        came: list[bool] = []  # whether the update got to Trio's thread: what is raised there is not for us to judge

        async def hand_over() -> None:
            came.append(True)
            await self.update(call, partial)

        try:
            trio.from_thread.run(hand_over)
        except trio.RunFinishedError:
            return  # the call ended, and Trio with it
        except RuntimeError:
            if came:
                raise
            # A thread that the tool started itself; Trio cannot tell where it belongs.
            trio.from_thread.run(hand_over, trio_token=call.token)

    @trio.lowlevel.enable_ki_protection
    async def run_nested(self, call: Call, tool_call: ToolCall) -> ToolCallOutcome:
        """Run another tool, with the same hooks."""
        # No slot: the outer call holds one and would wait for itself. And an Abort of its own: a cut of the
        # run reaches the inner call through the scope of the outer one.
        inner = self if self.slots is None else attrs.evolve(self, slots=None)
        return await nested(inner, Call(Abort(), tool_call, call.context, call.depth + 1))

    # ------------------------------------------------------------- finish

    async def _ask_after(self, call: Call, after: Callback, result: ToolResult) -> ToolResult | None:
        told = AfterToolCallContext(
            self.assistant_message, call.tool_call, call.args, result, result.is_error, call.context
        )
        try:
            answer = await after.call(told, self.abort)
            if answer is not None and not isinstance(answer, AfterToolCallResult):
                raise TypeError(f"after_tool_call answered {answer!r:.80}, not an AfterToolCallResult or None")
        except BaseException as error:  # noqa: ASYNC103 - Cancelled is raised, the rest is put into the call
            call.fatal, cancelled, failure = Parts.of(error)
            if cancelled is not None:
                raise cancelled from None  # noqa: ASYNC104 - the Cancelled of a split error
            return None if failure is None else error_result(error_text(failure), "failed")  # noqa: ASYNC104 - not Cancelled
        return result if answer is None else overridden(result, answer)


def overridden(result: ToolResult, answer: AfterToolCallResult) -> ToolResult:
    """A result with the fields that ``after_tool_call`` replaced; nothing is merged deeply."""
    structured = answer.structured_content
    if structured is None and answer.content is None:
        structured = result.structured_content
    return ToolResult(
        result.content if answer.content is None else answer.content,
        details=result.details if answer.details is None else answer.details,
        structured_content=structured,
        usage=result.usage if answer.usage is None else answer.usage,
        is_error=result.is_error if answer.is_error is None else answer.is_error,
        terminate=result.terminate if answer.terminate is None else answer.terminate,
        error_kind=result.error_kind if answer.content is None and answer.is_error is not False else None,
    )


async def heard(call: Call) -> None:
    """Wait until the update that a call has handed over is told, or nobody tells any more."""
    while call.untold is not None:
        if call.waiter is None:
            call.waiter = trio.Event()
        await call.waiter.wait()


async def nested(caller: Caller, call: Call) -> ToolCallOutcome:
    """Run a call that a tool makes: the same road, in the tool's task, without events and messages.

    A cut of the outer call is a cancellation here: it passes through, and no value reaches the tool.
    """
    if not caller.abort.requested:
        await trio.lowlevel.checkpoint_if_cancelled()
        await caller.prepare(call)
    if call.prepared and not caller.abort.requested:
        await caller.execute(call)
        if call.fatal is not None:
            raise call.fatal
    await trio.lowlevel.checkpoint_if_cancelled()
    result = call.outcome if call.outcome is not None else caller.cut_result(call)
    return ToolCallOutcome(call.tool_call, result, result.is_error)


@trio.lowlevel.enable_ki_protection
async def run_tool_call(
    tool_call: ToolCall,
    *,
    assistant_message: AssistantMessage | None = None,
    context: AgentContext | None = None,
    tools: Sequence[Tool] | None = None,
    before_tool_call: BeforeToolCall | None = None,
    after_tool_call: AfterToolCall | None = None,
    on_update: Callable[[ToolResult], None] | None = None,
    abort: Abort | None = None,
) -> ToolCallOutcome:
    """Run one call on the road of a model's calls: preparation, validation, hooks, limits.

    No events are told and no messages are added. For a tool that calls another tool of its run
    ``ToolContext.run_tool_call`` is shorter. A checkpoint. A cancellation passes through: the body
    is cut, ``after_tool_call`` too, and no value comes back (pi's ``runToolCall``).

    Args:
      tool_call: what is called, with raw arguments.
      assistant_message: the answer that asked for it, for the hooks.
      context: what the hooks see; its tools are those that can be called.
      tools: in place of the context's tools.
      before_tool_call: as in :class:`LoopConfig`.
      after_tool_call: as in :class:`LoopConfig`.
      on_update: gets the updates of the tool; a plain function.
      abort: the run's; after an abort nothing is begun and the outcome says so.

    Returns:
      the outcome. Unknown tools, invalid arguments, blocked calls, timeouts and exceptions of the
      tool are error results; this function does not raise for them.
    """
    context = AgentContext() if context is None else context
    abort = Abort() if abort is None else abort
    caller = Caller(
        AssistantMessage((tool_call,), stop_reason="tool_use") if assistant_message is None else assistant_message,
        tools_by_name(context.tools if tools is None else tools),
        abort,
        None if before_tool_call is None else Callback(before_tool_call, 1),
        None if after_tool_call is None else Callback(after_tool_call, 1),
        plain_cut_result,
    )
    call = Call(Abort(), tool_call, context)
    call.on_update = on_update
    return await nested(caller, call)


def plain_cut_result(call: Call) -> ToolResult:
    """What is said of a cut call outside of a run: only its time limit and an abort reach it."""
    if call.entered:
        return error_result(timeout_text(call), "timeout")
    return error_result("Operation aborted. The call never started.", "not_started")


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools by their names; of two of one name the first counts, as in pi."""
    named: dict[str, Tool] = {}
    for tool in tools:
        named.setdefault(tool.name, tool)
    return named
