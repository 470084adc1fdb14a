"""``trio-agent run``: one prompt, from the command line to an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from typing import final

import click
import trio

from trio_agent._agent import Agent
from trio_agent._errors import FormatError
from trio_agent._events import AgentEvent
from trio_agent._messages import AgentMessage
from trio_agent.tools import read_file, run_command, search_text

from ._offline import offline_model
from ._output import Output, complain
from ._transcripts import check_writable, load_transcript, save_transcript
from ._view import JsonView, PlainView, TerminalView, View

__all__ = ["run"]

_STUCK = 0.2
"""Seconds that a reader who does not read may hold up the end of a run that was cut."""


class _Refused(click.ClickException):
    """A file that cannot be used; nothing was begun."""

    exit_code = 2


@click.command()
@click.argument("prompt")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON, and nothing else.")
@click.option("--save", metavar="FILE", help="Save the transcript there at the end, however the run ends.")
@click.option("--resume", metavar="FILE", help="Go on from a saved transcript.")
@click.option("--sequential", is_flag=True, help="Run the tools of an answer one after the other.")
@click.option("--max-parallel", metavar="N", type=click.IntRange(min=1), help="Run at most N tools at the same time.")
@click.option(
    "--root",
    metavar="DIR",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="The directory that files are read in and commands start in.",
)
def run(
    prompt: str,
    *,
    as_json: bool,
    save: str | None,
    resume: str | None,
    sequential: bool,
    max_parallel: int | None,
    root: str,
) -> int:
    """Run an agent on PROMPT ("-" reads it from standard input).

    The agent has three tools (read_file, search_text, run_command) and an offline model, so no key
    and no network are needed. That model parses and does not think: it takes the prompt as a list of
    instructions, makes each a tool call, runs them all in parallel, and reports what came back.

    \b
      trio-agent run 'read README.md 1-5; search "async def" in src; run "ls -l"'

    Commands may do whatever you may; only reading and searching are confined to the directory.

    Ctrl-C aborts: tools are stopped, the transcript is closed in order. A second Ctrl-C cancels
    without waiting for anything that can be left out. SIGTERM and SIGHUP cancel, too.

    \b
    Exit codes:
      0    the run is done
      1    the run failed, or something could not be written
      2    wrong usage (also a FILE that cannot be read or written)
      129  SIGHUP
      130  Ctrl-C
      141  standard output was closed before the end
      143  SIGTERM
    """  # noqa: D301 - click wants the character, not the two
    messages: list[AgentMessage] = []
    if resume is not None:
        try:
            messages = load_transcript(resume)
        except (OSError, FormatError) as error:
            raise _Refused(f"cannot resume from {resume}: {_reason(error)}") from error
    if save is not None:
        try:
            check_writable(save)
        except OSError as error:
            raise _Refused(f"cannot save to {save}: {_reason(error)}") from error
    if prompt == "-":
        prompt = _standard_input()
    kill_now = trio.Event()
    agent = Agent(
        offline_model(),
        tools=[read_file(root), search_text(root), run_command(root, kill_now=kill_now)],
        messages=messages,
        tool_execution="sequential" if sequential else "parallel",
        max_parallel_tools=max_parallel,
        repeat_partial=True,  # what a command printed before it was cut is worth knowing
    )
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    view: View = JsonView() if as_json else TerminalView() if on_terminal else PlainView()
    return trio.run(_Session(agent, view, kill_now).run, prompt, save)


def _standard_input() -> str:
    if sys.stdin is None:
        raise _Refused("cannot read the prompt: standard input is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise _Refused(f"cannot read the prompt from standard input: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).replace("\n", " ")


@final
class _Session:
    """One run with its signals, its output and its exit code."""

    def __init__(self, agent: Agent, view: View, kill_now: trio.Event) -> None:
        self._agent = agent
        self._view = view
        self._kill_now = kill_now
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
                    with self._hard:
                        await self._agent.prompt(prompt)
                        await self._output.write(b"")
                    nursery.cancel_scope.cancel(reason="the run is over")
            finally:
                if save is not None:
                    self._save(save)
        return self._verdict()

    async def _tell(self, event: AgentEvent) -> None:
        await self._output.write(self._view.show(event))

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
        self._code = self._code or (141 if self._output.error is None else 1)
        self._reason = self._reason or "standard output was closed"
        self._agent.abort(self._reason)

    def _save(self, path: str) -> None:
        try:
            save_transcript(path, list(self._agent.state.messages))
        except OSError as error:
            complain(f"cannot save to {path}: {_reason(error)}")
            self._code = 1

    def _verdict(self) -> int:
        result = self._agent.last_result
        if self._signalled:
            complain(self._reason)
        elif self._output.error is not None:
            complain(f"cannot write the output: {_reason(self._output.error)}")
        elif not self._code and result is not None and result.stop_reason in ("error", "aborted"):
            message = result.message.error_message if result.message is not None else None
            complain(f"the run failed: {message or result.stop_reason}")
            self._code = 1
        return self._code


def _hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, unless the program was started with nohup, which has it ignored."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
