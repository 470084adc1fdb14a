"""One run of an agent with its signals, its output and its exit code."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import AsyncIterator
from typing import final

import trio

from trio_agent._agent import Agent
from trio_agent._events import AgentEvent

from ._exit import ExitCode
from ._output import Output, complain
from ._transcripts import save_transcript
from ._view import LiveView, View

__all__ = ["Session", "reason_of"]

_STUCK = 0.2
"""Seconds that a reader who does not read may hold up the end of a run that was cut."""
_FRAME = 0.08
"""Seconds between two drawings of what is going on."""

_CODES = {"max_turns": ExitCode.MAX_TURNS, "deadline": ExitCode.TIMEOUT}


def reason_of(error: Exception) -> str:
    """What an error says, in one line."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).replace("\n", " ")


@final
class Session:
    """A run: signals are taken, events shown, the transcript saved.

    Args:
      agent: runs the prompt.
      view: makes bytes of events.
      kill_now: set when nothing is given any time any more.
      timeout: seconds after which nobody who does not read is waited for; the agent's own limit
        ends the run.
    """

    def __init__(self, agent: Agent, view: View, kill_now: trio.Event, timeout: float | None = None) -> None:
        self._agent = agent
        self._view = view
        self._kill_now = kill_now
        self._timeout = math.inf if timeout is None else timeout
        self._hard = trio.CancelScope()
        self._output = Output(None if sys.stdout is None else 1, self._output_closed)
        self._signalled = False
        self._code = 0
        self._reason = ""

    async def run(self, prompt: str, save: str | None) -> int:
        """Run the prompt; the exit code. Signals are taken from here on until all is saved."""
        self._agent.subscribe(self._tell)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *_hangup()) as arrivals:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._listen, arrivals)
                    nursery.start_soon(self._watch)
                    if isinstance(self._view, LiveView):
                        nursery.start_soon(self._animate, self._view)
                        nursery.start_soon(self._follow_size, self._view)
                    with self._hard:
                        await self._agent.prompt(prompt)
                        await self._output.write(b"")
                    nursery.cancel_scope.cancel(reason="the run is over")
            finally:
                if save is not None:
                    self._save(save)
            if isinstance(self._view, LiveView):
                # Mostly nothing is left of it; a cancellation may have cut its last drawing.
                self._output.hurry(_STUCK)
                await self._output.write(self._view.close())
        return self._verdict()

    async def _tell(self, event: AgentEvent) -> None:
        await self._output.write(self._view.show(event))

    async def _animate(self, view: LiveView) -> None:
        while True:
            await trio.sleep(_FRAME)
            await self._redraw(view, now=False)

    async def _follow_size(self, view: LiveView) -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as changes:
            async for _ in changes:
                await self._redraw(view, now=True)

    async def _redraw(self, view: LiveView, *, now: bool) -> None:
        # A terminal that does not keep up misses drawings; they do not pile up.
        if not self._output.busy:
            await self._output.write(view.frame(now=now))

    async def _watch(self) -> None:
        await trio.sleep(self._timeout)
        self._output.hurry(_STUCK)

    async def _listen(self, arrivals: AsyncIterator[int]) -> None:
        async for number in arrivals:
            self._output.hurry(_STUCK)
            if self._signalled:
                self._kill_now.set()
                self._hard.cancel(reason=f"a second signal: {signal.Signals(number).name}")
                continue
            self._signalled = True
            self._code = 128 + number
            self._reason = f"interrupted by {signal.Signals(number).name}"
            if number == signal.SIGINT:
                # There is a run to abort: prompt() begins one before its first checkpoint.
                self._agent.abort(self._reason)
            else:
                self._hard.cancel(reason=self._reason)

    def _output_closed(self) -> None:
        if not self._code:
            self._code = ExitCode.OUTPUT_CLOSED if self._output.error is None else ExitCode.FAILED
            if self._output.hung_up:
                # SIGHUP comes as well, but need not come first.
                self._code = ExitCode.HANGUP
        self._reason = self._reason or "standard output was closed"
        self._agent.abort(self._reason)

    def _save(self, path: str) -> None:
        try:
            save_transcript(path, list(self._agent.state.messages))
        except OSError as error:
            complain(f"cannot save to {path}: {reason_of(error)}")
            self._code = ExitCode.FAILED

    def _verdict(self) -> int:
        result = self._agent.last_result
        if self._signalled:
            complain(self._reason)
        elif self._output.error is not None:
            complain(f"cannot write the output: {reason_of(self._output.error)}")
        elif self._code or result is None:
            pass
        elif result.end_reason in _CODES:
            self._code = _CODES[result.end_reason]
            limit = "--max-turns" if result.end_reason == "max_turns" else f"--timeout {self._timeout:g}"
            complain(f"the run was ended by {limit}")
        elif result.stop_reason in ("error", "aborted"):
            message = result.message.error_message if result.message is not None else None
            complain(f"the run failed: {message or result.stop_reason}")
            self._code = ExitCode.FAILED
        return self._code


def _hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, unless the program was started with nohup, which has it ignored."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
