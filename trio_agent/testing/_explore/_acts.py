"""Doing at a place what a case says."""

from __future__ import annotations

import contextlib

import trio

from trio_agent import Agent, QueueFullError, UserMessage

from ._case import PlannedAct
from ._log import CALL_HOOKS, Done, Planted, Span
from ._probe import AgentWatch, Probe
from ._wrap import LoopWatch

REASON = "explored"
"""The reason that acts give."""


def perform(probe: Probe, planned: PlannedAct, scope: trio.CancelScope, label: str, span: Span | None) -> Done:
    """Do something to the first agent or loop that the host has watched.

    What is to be raised at the place is not raised here but left in ``Done.error``.
    """
    watch = probe.watches[0] if probe.watches else None
    run = watch.run if watch is not None else None
    done = Done(planned, probe.note(), trio.current_time(), run, label, in_span=span)
    probe.done.append(done)
    at_once = True
    match planned.act:
        case "cancel":
            scope.cancel(reason=REASON)
        case "deadline":
            scope.deadline = min(scope.deadline, trio.current_time())
            at_once = False
        case "leave":
            if probe._block is not None:
                probe._block.cancel(reason=REASON)
            at_once = False
        case "raise":
            done.error = Planted(f"{REASON}: raised at {label}")
            # In a listener it is in force once the others have been told.
            at_once = span is not None and span.kind == "hook" and span.name not in CALL_HOOKS
        case "key":
            done.error = KeyboardInterrupt(REASON)
            at_once = False
        case "abort" if isinstance(watch, LoopWatch):
            watch.abort.request(REASON)
        case _ if isinstance(watch, AgentWatch):
            with contextlib.suppress(QueueFullError):  # a bounded queue may refuse
                _on_agent(watch.agent, planned)
    if at_once:
        done.landed, done.landed_time = probe.note(), trio.current_time()
    return done


def _on_agent(agent: Agent, planned: PlannedAct) -> None:
    match planned.act:
        case "abort":
            agent.abort(REASON)
        case "cancel_tool":
            agent.cancel_tool(planned.target or "", REASON)
        case "interrupt":
            agent.interrupt(UserMessage(f"{REASON}: interrupt"))
        case "steer":
            agent.steer(UserMessage(f"{REASON}: steer"))
        case "follow_up":
            agent.follow_up(UserMessage(f"{REASON}: follow-up"))
        case "clear_steering":
            agent.clear_steering_queue()
        case "clear_follow_up":
            agent.clear_follow_up_queue()
        case "clear_all":
            agent.clear_all_queues()
        case "stop_after_turn":
            agent.stop_after_turn()
