"""Mutants made by hand: each is a careless change that somebody might make, and no operator makes.

``old`` occurs exactly once in its module; ``tests/test_mutants.py`` looks after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from mutation.planted import Library, Mutant, Unit, make, units

OPERATOR = "by hand"


@final
@attrs.frozen
class HandMade:
    """A careless change."""

    name: str
    module: str
    stands_for: str
    """What somebody thought, or did not think of."""
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The module with the change made."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: the old text occurs {source.count(self.old)} times in {self.module}")
        return source.replace(self.old, self.new)


def mutants(library: Library) -> Iterator[Mutant]:
    """The mutants of the table below."""
    for change in BY_HAND:
        source = library.source(change.module)
        mutated = change.apply(source)
        line = source[: source.index(change.old)].count("\n") + 1
        unit = next((one for one in units(source) if one.first <= line <= one.last), Unit("(head)", 1, 1, 0))
        mutant = make(change.module, source, mutated, unit, OPERATOR, 0)
        yield attrs.evolve(mutant, id=f"{change.module} {change.name}")


BY_HAND = (
    # ---------------------------------------------------------------- _call
    HandMade(
        "cancelled_becomes_a_result",
        "_call",
        "Cancelled is swallowed in the tool runner: the host's cancellation becomes an error result",
        """            if cancelled is not None:
                try:
                    raise cancelled
                finally:
                    del cancelled  # its traceback holds this frame: a cycle for each of thousands of calls
            if result is not None and self.after is None:""",
        """            if cancelled is not None:
                call.outcome = error_result("cancelled", "failed")
            elif result is not None and self.after is None:""",
    ),
    HandMade(
        "interrupt_becomes_a_result",
        "_call",
        "KeyboardInterrupt of a tool is taken for a failure of it",
        "            call.fatal, cancelled, call.raised = Parts.of(error)\n",
        """            call.fatal, cancelled, call.raised = Parts.of(error)
            if call.fatal is not None:
                call.fatal, call.raised = None, RuntimeError(repr(call.fatal))
""",
    ),
    HandMade(
        "outcome_after_a_checkpoint",
        "_call",
        "the slot of a call is filled after an await, in which the value can be lost",
        """            if result is not None and self.after is None:
                call.outcome = result""",
        """            if result is not None and self.after is None:
                await trio.lowlevel.checkpoint()
                call.outcome = result""",
    ),
    HandMade(
        "no_look_at_the_first_step",
        "_call",
        "a child does not look again at its first step, so that a tool starts after the abort",
        """        await trio.lowlevel.checkpoint_if_cancelled()
        if self.abort.requested or call.cut is not None:
            self._never_started(call)""",
        """        if call.cut is not None:
            self._never_started(call)""",
    ),
    HandMade(
        "no_look_for_the_host",
        "_call",
        "a child looks for an abort at its first step, but not for the host's cancellation",
        """        await trio.lowlevel.checkpoint_if_cancelled()
        if self.abort.requested or call.cut is not None:
            self._never_started(call)""",
        """        if self.abort.requested or call.cut is not None:
            self._never_started(call)""",
    ),
    HandMade(
        "after_hook_cut_by_abort",
        "_call",
        "after_tool_call runs inside of the call's scope, so that an abort cuts it",
        "            answer = await after.call(told, self.abort)\n            if answer is not None and",
        """            with call:
                answer = None
                answer = await after.call(told, self.abort)
            if answer is not None and""",
    ),
    HandMade(
        "after_hook_skipped_after_abort",
        "_call",
        "after_tool_call is taken for a preparing hook, which is not called after an abort",
        "        if not call.entered or self.after is None:\n            call.outcome = result",
        "        if not call.entered or self.after is None or self.abort.requested:\n            call.outcome = result",
    ),
    HandMade(
        "after_hook_before_the_updates",
        "_call",
        "after_tool_call is asked before the updates of the call are told",
        "        await heard(call)\n        await trio.lowlevel.checkpoint_if_cancelled()\n        call.outcome = await",
        "        await trio.lowlevel.checkpoint_if_cancelled()\n        call.outcome = await",
    ),
    HandMade(
        "withheld_result_told",
        "_call",
        "a result that the hook was about to redact is put into the slot before the hook is through",
        "        call.returned = result\n",
        "        call.returned = call.outcome = result\n",
    ),
    HandMade(
        "before_verdict_after_abort",
        "_call",
        "the verdict of before_tool_call counts although the run was aborted meanwhile",
        """            call.outcome = None
        elif call.cut is not None:
            call.outcome = self.cut_result(call)
        else:""",
        """            pass
        elif call.cut is not None:
            call.outcome = self.cut_result(call)
        else:""",
    ),
    HandMade(
        "before_error_lets_the_call_run",
        "_call",
        "an error in before_tool_call is not fail closed: the call runs",
        """            call.outcome = error_result(error_text(failure_of(error)), "failed")
            return  # noqa: ASYNC104""",
        """            failure_of(error)
            return  # noqa: ASYNC104""",
    ),
    HandMade(
        "timeout_before_the_limiter",
        "_call",
        "the time limit starts when the call begins to wait for its limiter",
        "        async with turn(tool.limiter, self.slots, call):\n",
        """        if tool.timeout is not None:
            scope.deadline = trio.current_time() + tool.timeout
            call.timed = True
        async with turn(tool.limiter, self.slots, call):
""",
    ),
    HandMade(
        "nested_call_takes_a_slot",
        "_call",
        "a nested call takes a slot of max_parallel_tools and waits for the call around it",
        "        inner = self if self.slots is None else attrs.evolve(self, slots=None)",
        "        inner = self",
    ),
    HandMade(
        "update_dropped_not_waited",
        "_call",
        "a second update does not wait for the first: it takes its place",
        "        while not call.deaf and call.untold is not None:\n            await heard(call)",
        "        while not call.deaf and call.untold is not None and call.untold is partial:\n            await heard(call)",
    ),
    HandMade(
        "nested_value_after_the_cut",
        "_call",
        "a nested call gives its value although the outer call was cut",
        """            raise call.fatal
    await trio.lowlevel.checkpoint_if_cancelled()
    result""",
        """            raise call.fatal
    result""",
    ),
    # --------------------------------------------------------------- _batch
    HandMade(
        "results_in_completion_order",
        "_batch",
        "result messages are told when the calls end, and not in source order",
        "            await self.run_.emit_each(_results(self.batch.calls))\n",
        """            by_text = sorted(self.batch.calls, key=lambda call: call.outcome.text if call.outcome is not None else "")
            await self.run_.emit_each(_results(by_text))
""",
    ),
    HandMade(
        "never_started_call_forgotten",
        "_batch",
        "a batch is over although a call of it never started and has no result",
        """            if any(not call.ended for call in self.batch.calls):
                raise WorkCut
            await self.run_.emit_each(_results(self.batch.calls))""",
        "            await self.run_.emit_each(_results(call for call in self.batch.calls if call.ended))",
    ),
    HandMade(
        "two_tasks_tell",
        "_batch",
        "the call's own task tells its updates, beside the run's task",
        "        call.posts = self.posts\n",
        """        call.posts = self.posts

        async def tell() -> None:
            seen: object = None
            while not call.deaf:
                await trio.lowlevel.checkpoint()
                update = call.untold
                if update is not None and update is not seen:
                    seen = update
                    one = call.tool_call
                    await self.run_.emit(ToolExecutionUpdate(one.id, one.name, one.arguments, update))

        nursery.start_soon(tell)
""",
    ),
    HandMade(
        "hook_begins_after_an_abort",
        "_batch",
        "nobody looks for an abort between tool_execution_start and before_tool_call",
        "            yield _started(call)\n            if _cut(run):\n                return\n            if not",
        "            yield _started(call)\n            if not",
    ),
    HandMade(
        "update_told_and_then_forgotten",
        "_batch",
        "who waits to hand over the next update is not woken when one was told",
        "                call.update_told()\n",
        "                call.untold = None\n",
    ),
    HandMade(
        "deliverer_lets_tools_hang",
        "_batch",
        "a tool that waits to hand over an update is not let go when nobody tells any more",
        "                        if call.untold is not None or not call.deaf:\n                            call.hear_no_more()",
        "                        if call.untold is not None or not call.deaf:\n                            call.deaf = True",
    ),
    HandMade(
        "end_before_the_last_update",
        "_batch",
        "the end of a call is told before the update that came first",
        "            if call.untold is not None:\n                call.last_update",
        "            if call.untold is not None and not call.through:\n                call.last_update",
    ),
    HandMade(
        "interrupt_of_a_tool_ends_late",
        "_batch",
        "a KeyboardInterrupt of a call is forgotten when the batch is through",
        "raise next((call.fatal for call in self.batch.calls if call.fatal is not None), failed)\n",
        "raise failed\n",
    ),
    HandMade(
        "large_batch_holds_everybody_up",
        "_batch",
        "all calls of a batch begin to run before any other task has its turn",
        """                if self.running % AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                    if _cut(self.run_):
                        break
""",
        "",
    ),
    HandMade(
        "length_batch_runs",
        "_batch",
        "the calls of an answer that the token limit cut off are run",
        """    if answer.stop_reason == "length":
        await run.emit_each(_truncated(run, batch))
        if not batch.calls[-1].result_started:
            raise WorkCut
    else:
        await _Runner(run, batch).run()""",
        "    await _Runner(run, batch).run()",
    ),
    # ----------------------------------------------------------------- _run
    HandMade(
        "told_before_applied",
        "_run",
        "an event is told first and applied to the state then",
        "        self._apply(event)\n        return self.emit_each()",
        """        self._event = event
        self._queue = self._of(type(event))
        self._next = 0

        async def tell() -> None:
            await self.emit_each()
            self._apply(event)
            self._next = len(self._queue)

        return tell()""",
    ),
    HandMade(
        "state_behind_the_record",
        "_run",
        "the record contains an event, the host's state does so once it was told",
        """        self._reduce(event)
        self._event = event
        self._queue = self._of(kind)""",
        """        if self._event is not None:
            self._reduce(self._event)
        self._event = event
        self._queue = self._of(kind)""",
    ),
    HandMade(
        "listener_told_twice",
        "_run",
        "a listener is counted when it is through, so that one that was cut is told again",
        """                self._next = at + 1
                if not (self._plain_only and listener.is_async):
                    yield listener.function, (*args, self.abort) if listener.takes_abort else args, listener.is_async
""",
        """                if not (self._plain_only and listener.is_async):
                    yield listener.function, (*args, self.abort) if listener.takes_abort else args, listener.is_async
                self._next = at + 1
""",
    ),
    HandMade(
        "first_failing_listener_stops",
        "_run",
        "an exception of a listener keeps the event from those behind it",
        "                failed = failed or error\n",
        "                self._next = len(self._queue)\n                failed = failed or error\n",
    ),
    HandMade(
        "closing_shield_without_deadline",
        "_run",
        "telling after a host's cancellation is shielded, but for as long as it likes",
        "with trio.CancelScope(shield=True, deadline=-math.inf if self._plain_only else self._deadline):",
        "with trio.CancelScope(shield=True):",
    ),
    HandMade(
        "closing_without_shield",
        "_run",
        "closing tells in the cancelled scope, so that async listeners hear nothing",
        "with trio.CancelScope(shield=True, deadline=-math.inf if self._plain_only else self._deadline):",
        "with trio.CancelScope(deadline=-math.inf if self._plain_only else self._deadline):",
    ),
    HandMade(
        "a_grace_for_each_that_is_cut",
        "_run",
        "when the grace of a closing is spent there is another one for those who are told next",
        "                if self._deadline is None:\n                    self._deadline",
        "                if self._deadline is None or self._spent:\n                    self._deadline",
    ),
    HandMade(
        "hook_verdict_after_abort",
        "_run",
        "what a hook answers after an abort still counts",
        "            self._hook_failed(error)\n        self.check()\n        return value",
        "            self._hook_failed(error)\n        return value",
    ),
    HandMade(
        "hook_not_cut",
        "_run",
        "a preparing hook is called outside of the abort's scopes",
        "            with Piece(self.abort):\n                value = await",
        "            if True:\n                value = await",
    ),
    HandMade(
        "decision_after_abort",
        "_run",
        "the decision of finish_turn counts although the run was aborted",
        "        return None if self.abort.requested or record.interrupted is not None else decision",
        "        return decision",
    ),
    HandMade(
        "drained_and_not_remembered",
        "_run",
        "messages that a queue gave are kept in a local variable alone",
        "        self.record.hand_out(messages, source)\n        self.check()",
        "        self.check()",
    ),
    HandMade(
        "drained_before_a_checkpoint",
        "_run",
        "a queue is drained, and a checkpoint comes before its messages are remembered",
        "        self.record.hand_out(messages, source)\n        self.check()",
        "        await trio.lowlevel.checkpoint()\n        self.record.hand_out(messages, source)\n        self.check()",
    ),
    HandMade(
        "not_given_back",
        "_run",
        "messages that were drained and not taken do not go back to their queue",
        """            self.record.give_back()
        except Exception""",
        """            self.record.handed = []
        except Exception""",
    ),
    HandMade(
        "queue_read_after_abort",
        "_run",
        "a queue is read after an abort",
        "        await self.look()\n        if source is None:",
        "        await trio.lowlevel.checkpoint_if_cancelled()\n        if source is None:",
    ),
    HandMade(
        "interrupt_ends_the_run",
        "_run",
        "an interrupt cuts the work like an abort, and ends the run with it",
        '        record.interrupted = Cut("interrupt", reason)\n        work.cut_off(record.interrupted)',
        "        self.abort.request(reason)",
    ),
    HandMade(
        "interrupt_cause_after_the_cut",
        "_run",
        "the work is cut first, and why is written down then",
        '        record.interrupted = Cut("interrupt", reason)\n        work.cut_off(record.interrupted)',
        '        work.cut_off(Cut("abort", reason))\n        record.interrupted = Cut("interrupt", reason)',
    ),
    HandMade(
        "cancel_tool_cuts_the_siblings",
        "_run",
        "cancel_tool cuts the batch of the call",
        '        call.cut_off(Cut("cancel_tool", reason))',
        '        for one in batch.calls:\n            one.cut_off(Cut("cancel_tool", reason))',
    ),
    HandMade(
        "cancel_tool_behind_the_body",
        "_run",
        "cancel_tool says True of a call whose body is over",
        "        if call is None or call.over or self.closing:\n            return False\n        call.cut_off",
        "        if call is None or self.closing:\n            return False\n        call.cut_off",
    ),
    HandMade(
        "finish_turn_after_the_host_cancelled",
        "_run",
        "finish_turn is called although the host has cancelled",
        "        if not self._hard and self.record.failure is None:\n            await self.finish_turn()",
        "        if self.record.failure is None:\n            await self.finish_turn()",
    ),
    HandMade(
        "failure_after_cancelled",
        "_run",
        "a failure of a listener is dropped because the host has cancelled",
        """            raise record.failure
        if record.cancelled is not None:
            raise record.cancelled""",
        """            if record.cancelled is not None:
                raise record.cancelled
            raise record.failure
        if record.cancelled is not None:
            raise record.cancelled""",
    ),
    HandMade(
        "cancelled_swallowed_at_the_end",
        "_run",
        "after a host's cancellation the call returns once the run is closed",
        """            raise record.failure
        if record.cancelled is not None:
            raise record.cancelled""",
        "            raise record.failure",
    ),
    HandMade(
        "interrupts_become_failures",
        "_run",
        "KeyboardInterrupt in the run's task is not raised once the run is closed",
        "        if record.fatal is not None:\n            raise record.fatal\n        if record.failure",
        "        if record.failure",
    ),
    HandMade(
        "cut_behind_a_failure_forgotten",
        "_run",
        "what failed took the place of Cancelled, and nobody asks again whether the host has cancelled",
        "        if self.record.cancelled is None and host_cancelled():",
        "        if False:",
    ),
    # ---------------------------------------------------------------- _loop
    HandMade(
        "group_leaks",
        "_loop",
        "what comes out of the nursery around a run with a limit of time is raised in its group",
        "        failed = bare(group.exceptions)\n",
        "        failed = group\n",
    ),
    HandMade(
        "agent_end_names_the_transcript",
        "_loop",
        "agent_end names what the model sees, not what the run has added",
        "    await run.emit(AgentEnd(tuple(record.new_messages), reason))",
        "    await run.emit(AgentEnd(tuple(record.track.messages), reason))",
    ),
    HandMade(
        "checkpoint_after_the_last_look",
        "_loop",
        "between the last look into the queues and the end there is a checkpoint",
        "        # Between the last look into the queues and the decision to end there is no checkpoint.\n",
        "        await trio.lowlevel.checkpoint()\n",
    ),
    HandMade(
        "follow_ups_before_steering",
        "_loop",
        "follow-ups are taken while there is still work",
        "            pending = await run.poll(config.get_steering_messages)\n        pending",
        "            pending = await run.poll(config.get_steering_messages) or await run.poll("
        "config.get_follow_up_messages)\n        pending",
    ),
    HandMade(
        "taken_before_its_start",
        "_loop",
        "all pending messages count as taken when the first is told",
        "        if index >= ahead:\n            record.take(pending[index - ahead])",
        "        if index == ahead:\n            for one in pending:\n                record.take(one)",
    ),
    HandMade(
        "taken_after_its_end",
        "_loop",
        "a message counts as taken when its end was told, so that a cut doubles it",
        """            record.take(pending[index - ahead])
        await run.emit(MessageStart(message))
        await run.emit(MessageEnd(message))""",
        """            pass
        await run.emit(MessageStart(message))
        await run.emit(MessageEnd(message))
        if index >= ahead:
            record.take(pending[index - ahead])""",
    ),
    HandMade(
        "interrupt_kept_for_the_next_turn",
        "_loop",
        "an interrupt is not forgotten when its turn has ended",
        "            record.interrupted = None\n            run.check()",
        "            run.check()",
    ),
    HandMade(
        "deadline_of_a_run_forgets_why",
        "_loop",
        "the run is aborted by its limit of time before why is written down",
        '        run.record.out_of_time = True\n        run.abort.request(f"the run\'s limit of {seconds:g} s has passed")',
        '        run.abort.request(f"the run\'s limit of {seconds:g} s has passed")',
    ),
    # ------------------------------------------------------------ _response
    HandMade(
        "model_task_does_not_look",
        "_response",
        "the task of the model does not look at its first step",
        """        await trio.lowlevel.checkpoint_if_cancelled()
        if response.cut is not None or response.abort.requested:
            return
""",
        "",
    ),
    HandMade(
        "interrupted_model_is_asked",
        "_response",
        "the task of the model looks for an abort at its first step, but not for an interrupt",
        "        if response.cut is not None or response.abort.requested:\n            return\n",
        "        if response.abort.requested:\n            return\n",
    ),
    HandMade(
        "complete_answer_lost",
        "_response",
        "an answer that was complete when the run was cut is not kept",
        "                    response.ready = ready\n",
        "                    await trio.lowlevel.checkpoint()\n                    response.ready = ready\n",
    ),
    HandMade(
        "answer_after_the_cut_counts",
        "_response",
        "what the model returns after its response was cut counts as an answer",
        "                if response.cut is None and not host_cancelled():",
        "                if True:",
    ),
    HandMade(
        "told_after_the_cut",
        "_response",
        "what was accepted before the cut is told after it",
        "        if response.cut is not None or starts == response.started:",
        "        if starts == response.started:",
    ),
    HandMade(
        "rest_of_a_complete_answer_untold",
        "_response",
        "the rest of a complete answer is not told when the run's task is cut",
        "            response.untold = [event for event in line.items if type(event) is not StreamStart]",
        "            response.untold = []",
    ),
    HandMade(
        "partial_of_a_failure_lost",
        "_response",
        "the message of a failed response drops what had been told of it",
        "    partial = told_so_far(record, response)\n",
        "    partial = AssistantMessage(provider=record.model.provider, model=record.model.id)\n",
    ),
    # -------------------------------------------------------------- _queues
    HandMade(
        "given_back_to_the_end",
        "_queues",
        "what a cut run gives back goes to the end of its queue",
        "        self._head.extendleft(reversed(messages))",
        "        self._fill()\n        self._head.extend(messages)",
    ),
    HandMade(
        "given_back_in_reverse",
        "_queues",
        "what is put at the front is put there one after the other",
        "        self._head.extendleft(reversed(messages))",
        "        self._head.extendleft(messages)",
    ),
    HandMade(
        "cleared_comes_back",
        "_queues",
        "what was cleared while a run had it comes back when the run is cut",
        "        self._head.clear()\n        self._handed.clear()",
        "        self._head.clear()",
    ),
    HandMade(
        "peek_takes",
        "_queues",
        "looking takes: a preview forgets what it showed",
        '        return list(self._head) if self._mode == "all" else list(self._head)[:1]',
        '        shown = list(self._head) if self._mode == "all" else list(self._head)[:1]\n'
        "        self._handed.extend(shown)\n        return shown",
    ),
    HandMade(
        "some_of_several_queued",
        "_queues",
        "of several messages as many are queued as there is room for",
        "        if statistics.tasks_waiting_send or len(messages) > room:",
        "        if statistics.tasks_waiting_send or not room:",
    ),
    # --------------------------------------------------------------- _abort
    HandMade(
        "flag_after_the_scopes",
        "_abort",
        "the scopes are cancelled at once, and the flag is set at the next opportunity",
        "        self.requested = True\n        self.reason = reason\n",
        """        self.reason = reason
        trio.lowlevel.current_trio_token().run_sync_soon(setattr, self, "requested", True)
""",
    ),
    HandMade(
        "cause_after_the_scope",
        "_abort",
        "the scope is cancelled first, and why is written down when it was not before",
        """                self.cut = cut
        if self.scope is not None:
            self.scope.cancel(reason=cut.text("work"))""",
        """                cut_now = cut
                trio.lowlevel.current_trio_token().run_sync_soon(lambda: setattr(self, "cut", cut_now))
        if self.scope is not None:
            self.scope.cancel(reason=cut.text("work"))""",
    ),
    HandMade(
        "last_cause_stands",
        "_abort",
        "a later cause takes the place of the first",
        "        if self.cut is None:\n            if self.timed",
        "        if True:\n            if self.timed",
    ),
    HandMade(
        "opened_after_the_abort",
        "_abort",
        "a piece of work that is opened after the abort is not cut",
        "        if self.cut is None and self.abort.requested:\n            self.cut = self.abort.cut\n",
        "",
    ),
    # ------------------------------------------------------------- _closing
    HandMade(
        "record_twice",
        "_closing",
        "the record of a cut is written although the transcript says it already",
        "            record.recorded = record.interrupted is None or record.cut or record.failure is not None\n",
        "            record.recorded = False\n",
    ),
    HandMade(
        "unanswered_calls_of_a_complete_answer",
        "_closing",
        "the calls of an answer that came just before the cut get no results",
        "        and answer.tool_calls\n    ):\n        record.open_batch(answer)",
        "        and answer.tool_calls\n    ):\n        pass",
    ),
    HandMade(
        "withheld_value_shown",
        "_closing",
        "a result that is withheld is shown all the same",
        "    if call.returned is not None:\n        return error_result(",
        "    if call.returned is not None:\n        return call.returned\n        return error_result(",
    ),
    HandMade(
        "started_and_cut_says_never_started",
        "_closing",
        "of a call that was cut while it ran it is said that it never started",
        '    if not call.entered:\n        return error_result(f"{record.why(piece=call)}. The call never started."',
        '    if call.outcome is None:\n        return error_result(f"{record.why(piece=call)}. The call never started."',
    ),
    HandMade(
        "ends_in_order_of_the_cut",
        "_closing",
        "calls that had run and calls that never began end in source order together",
        "        if call.prepared and not call.ended and not batch.each_result:\n            later.append(call)\n            continue\n",
        "",
    ),
    HandMade(
        "prompts_lost",
        "_closing",
        "prompts that were not told when the run was cut are not appended",
        "    while record.prompts:\n        message = record.prompts[0]\n        yield MessageStart(message)\n        yield MessageEnd(message)\n    yield from",
        "    yield from",
    ),
    # -------------------------------------------------------- _tool._limits
    HandMade(
        "limiter_not_released",
        "_tool._limits",
        "limiters are released only if the tool returned",
        "        yield\n    finally:\n",
        "        yield\n    except BaseException:\n        raise\n    else:\n",
    ),
    HandMade(
        "gate_does_not_look",
        "_tool._limits",
        "a call that a limiter lets through does not look whether it was cut in that moment",
        "            await trio.lowlevel.checkpoint_if_cancelled()\n        except",
        "            pass\n        except",
    ),
    HandMade(
        "gate_keeps_its_token",
        "_tool._limits",
        "a call that is cut right behind its limiter does not give the token back",
        "        except BaseException:\n            self.limiter.release_on_behalf_of(borrower)\n            raise",
        "        except BaseException:\n            raise",
    ),
    HandMade(
        "slots_before_the_limiter",
        "_tool._limits",
        "a call takes its slot first, and keeps others from running while it waits for its tool's limiter",
        "        for each in (limiter, slots):",
        "        for each in (slots, limiter):",
    ),
    # ---------------------------------------------------------------- _open
    HandMade(
        "results_of_a_batch_at_once",
        "_open",
        "a result joins the run's messages when it is told, and once more when the batch is over",
        "            self.results.append(message)\n            return",
        "            self.results.append(message)\n            self.new_messages.append(message)\n            return",
    ),
    HandMade(
        "complete_answer_cut",
        "_open",
        "an abort cuts an answer that is complete",
        "        if self.ready is None:\n            super().cut_off(cut)",
        "        super().cut_off(cut)",
    ),
    HandMade(
        "interrupt_waits_for_approval",
        "_open",
        "an interrupt of a batch cuts the calls that run, and not the one that is asked about",
        "            if call.scope is not None and call.cut is None and not call.timed:\n",
        """            if not call.prepared:
                continue
            if call.scope is not None and call.cut is None and not call.timed:
""",
    ),
    HandMade(
        "queued_twice_taken_twice",
        "_open",
        "a message that stands twice in a queue is taken twice at once",
        "        del self.handed[at]  # one only: a message may be queued twice\n",
        "        self.handed = [one for one in self.handed if one is not message]\n",
    ),
    HandMade(
        "waiter_forgotten",
        "_open",
        "whoever waits until an update is told is not let go when nobody hears any more",
        "        self.deaf = True\n",
        "        self.deaf = True\n        return\n",
    ),
)
