"""Running commands."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import trio
from msgspec import Meta

from trio_agent._tool import Tool, ToolContext, ToolResult, tool

from ._output import HeadTail
from ._process import Ended, run_group

__all__ = ["DEFAULT_ENVIRONMENT", "default_environment", "run_command"]

DEFAULT_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)
"""Variables that commands inherit by default; keys and tokens are in none of them."""

_UPDATE_BYTES = 2000

_Line = Annotated[str, Meta(description="the shell line")]
_List = Annotated[list[str], Meta(min_length=1, description="the program and its arguments; no shell sees them")]
_Timeout = Annotated[float, Meta(gt=0, description="seconds after which it is stopped")] | None


def default_environment() -> dict[str, str]:
    """The variables of :data:`DEFAULT_ENVIRONMENT` that this process has."""
    return {name: os.environ[name] for name in DEFAULT_ENVIRONMENT if name in os.environ}


def run_command(
    cwd: str | os.PathLike[str],
    *,
    name: str = "run_command",
    form: Literal["line", "list", "both"] = "line",
    shell: Sequence[str] = ("/bin/sh", "-c"),
    env: Mapping[str, str] | None = None,
    time_limit: float | None = None,
    kill_grace: float = 2.0,
    kill_now: trio.Event | None = None,
    max_output: int = 50_000,
    separate_stderr: bool = False,
    update_interval: float = 0.1,
) -> Tool:
    """Make a tool that runs a shell line or a program with its arguments.

    The command leads a session and process group of its own. When it ends, is cut, or its time is
    up, whatever is left of the group is ended: SIGTERM, then SIGKILL after the grace; the tool
    returns when it is gone. Its standard input is empty. What it prints is told as updates while
    it runs. An exit status other than 0 is an error result. The model may ask for a shorter time
    than the host's; the result names the limit that held.

    A cancellation ends the command and its group; what it did until then stays done. An interrupt by
    key does too. A program that does not handle SIGTERM dies of it at once and leaves the process
    groups of its commands alive: receive the signal (``trio.open_signal_receiver(signal.SIGTERM)``)
    and cancel a scope around ``prompt()``, as the guide to tools shows.

    Args:
      cwd: the working directory. Commands are not confined to it.
      name: what the model calls the tool.
      form: what the model may give: ``"line"``, a line for the shell; ``"list"``, a program and its
        arguments, which no shell ever sees; or ``"both"``, either of these.
      shell: what the line is appended to.
      env: the whole environment; by default :func:`default_environment`, read at each call, so
        that no secret is inherited unless asked. ``os.environ`` gives all.
      time_limit: seconds that a command may run at most; the result then has what it printed.
      kill_grace: seconds between SIGTERM and SIGKILL.
      kill_now: an event of the host's; once it is set no grace is given any more.
      max_output: bytes of output that are kept, half from the beginning and half from the end.
      separate_stderr: True shows standard error behind standard output (each with its own
        ``max_output``) in place of both as they came.
      update_interval: seconds between updates, at least.

    Raises:
      NotADirectoryError: ``cwd`` is no directory.
    """
    where = os.fspath(cwd)
    if not Path(where).is_dir():
        raise NotADirectoryError(f"the working directory {where!r} is no directory")
    limit_text = "" if time_limit is None else f" A command may take {time_limit:g} seconds."

    async def execute(command: str | list[str], asked: float | None, ctx: ToolContext) -> ToolResult:
        argv = [*shell, command] if isinstance(command, str) else command
        limit = min(math.inf if each is None else each for each in (asked, time_limit))
        outputs = [HeadTail(max_output) for _ in range(1 + separate_stderr)]
        recent = HeadTail(2 * _UPDATE_BYTES)
        wake, woken = trio.open_memory_channel[None](1)

        def sink(output: HeadTail) -> Callable[[bytes], None]:
            def take(data: bytes) -> None:
                output.add(data)
                recent.add(data)
                with suppress(trio.WouldBlock):
                    wake.send_nowait(None)

            return take

        async def report() -> None:
            # The command does not wait for the listeners: an update shows the end of what there is.
            async for _ in woken:
                await ctx.update(ToolResult(recent.last(_UPDATE_BYTES), details={"bytes": recent.total}))
                await trio.sleep(update_interval)

        started = trio.current_time()
        with wake, woken:
            ended = await run_group(
                argv,
                [sink(output) for output in outputs],
                cwd=where,
                env=default_environment() if env is None else env,
                grace=kill_grace,
                time_limit=limit,
                kill_now=kill_now,
                beside=report,
            )
        return _result(ended, outputs, trio.current_time() - started, limit)

    what = {"line": "shell command", "list": "program", "both": "shell command or program"}[form]
    make = tool(
        name=name,
        description=(
            f"Run a {what} in the working directory and show what it printed and its exit status. "
            "It has no input, and background processes do not outlive it. "
            f"Of long output the beginning and the end are shown, {max_output:,} bytes in all.{limit_text}"
        ),
    )

    # The three differ in what the schema says; nothing but text is a line, nothing but a list is none.
    async def run_line(
        command: _Line,
        ctx: ToolContext,
        timeout: _Timeout = None,  # noqa: ASYNC109 - what the model says
    ) -> ToolResult:
        return await execute(command, timeout, ctx)

    async def run_list(
        command: _List,
        ctx: ToolContext,
        timeout: _Timeout = None,  # noqa: ASYNC109 - what the model says
    ) -> ToolResult:
        return await execute(command, timeout, ctx)

    async def run_both(
        command: _Line | _List,
        ctx: ToolContext,
        timeout: _Timeout = None,  # noqa: ASYNC109 - what the model says
    ) -> ToolResult:
        return await execute(command, timeout, ctx)

    forms: dict[str, Callable[..., Any]] = {"line": run_line, "list": run_list, "both": run_both}
    return make(forms[form])


def _result(ended: Ended, outputs: Sequence[HeadTail], seconds: float, time_limit: float) -> ToolResult:
    text = outputs[0].text()
    if len(outputs) > 1 and outputs[1].total:
        text = f"{_line(text)}[standard error]\n{outputs[1].text()}"
    number = -ended.returncode if ended.returncode < 0 else None
    facts = {
        "exit_status": ended.returncode if number is None else None,
        "signal": None if number is None else _signal_name(number),
        "timed_out": ended.timed_out,
        "time_limit": None if math.isinf(time_limit) else time_limit,
        "background_ended": ended.background,
        "bytes": sum(output.total for output in outputs),
        "seconds": round(seconds, 3),
    }
    notes = ""
    if ended.background:
        notes += "[processes that it left in the background were ended]\n"
    if ended.timed_out:
        notes += f"[stopped: its time of {time_limit:g} s was up]"
    elif number is not None:
        notes += f"[killed by {facts['signal']}]"
    else:
        notes += f"[exit status {ended.returncode}]"
    return ToolResult(
        _line(text) + notes, details=facts, structured_content=facts, is_error=ended.timed_out or ended.returncode != 0
    )


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
