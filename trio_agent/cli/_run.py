"""``trio-agent run``: one prompt, from the command line to an exit code."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import click
import trio

from trio_agent._agent import Agent
from trio_agent._errors import FormatError, UsageError
from trio_agent._hooks import RunLimits
from trio_agent._messages import AgentMessage, SystemMessage, ThinkingLevel

from ._config import ConfiguredCommand, with_configuration
from ._exit import ExitCode, exit_codes_help
from ._offline import offline_model
from ._session import Session, reason_of
from ._toolbox import ToolsError, load_tools
from ._transcripts import check_writable, load_transcript
from ._view import JsonView, PlainView, View

__all__ = ["run"]


class _Refused(click.ClickException):
    """A file that cannot be used; nothing was begun."""

    exit_code = int(ExitCode.USAGE)


def _finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter(f"{value} is no number of seconds above 0.", context, option)
    return value


@click.command(cls=ConfiguredCommand, epilog=exit_codes_help())
@click.argument("prompt")
@click.option(
    "--model",
    metavar="VENDOR:MODEL",
    help="Who answers, as anthropic:MODEL, openai:MODEL, ollama:MODEL ...; without it a model that works offline.",
)
@click.option(
    "--base-url",
    metavar="URL",
    help="Where the model's server is. With a MODEL that names no vendor: any that speaks OpenAI's Chat Completions.",
)
@click.option(
    "--thinking",
    type=click.Choice(get_args(ThinkingLevel)),
    default="off",
    show_default=True,
    help="How much the model is asked to think.",
)
@click.option(
    "--tools",
    metavar="NAMES",
    multiple=True,
    default=["all"],
    show_default=True,
    help="The tools, with commas between: names that `trio-agent tools` lists, all of these, or your own as "
    'module:name (a Tool, a list of them, or a function that gives either). --tools "" gives none.',
)
@click.option(
    "--root",
    metavar="DIR",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="The directory that files are read in and commands start in.",
)
@click.option("--system", metavar="FILE", help="Take the system prompt from a file.")
@click.option("--timeout", metavar="SECONDS", type=float, callback=_finite, help="End the whole run in order after it.")
@click.option("--max-turns", metavar="N", type=click.IntRange(min=1), help="End the run after N answers of the model.")
@click.option("--max-parallel", metavar="N", type=click.IntRange(min=1), help="Run at most N tools at the same time.")
@click.option("--sequential/--parallel", help="Run the tools of an answer one after the other, or (normally) together.")
@click.option("--save", metavar="FILE", help="Save the transcript there at the end, however the run ends.")
@click.option("--resume", metavar="FILE", help="Go on from a saved transcript.")
@click.option(
    "--json/--text",
    "as_json",
    help="Print each event as a line of JSON, and nothing else (`trio-agent schema` describes it), or (normally) text.",
)
@with_configuration
@click.pass_context
def run(
    context: click.Context,
    prompt: str,
    *,
    model: str | None,
    base_url: str | None,
    thinking: ThinkingLevel,
    tools: Sequence[str],
    root: str,
    system: str | None,
    timeout: float | None,
    max_turns: int | None,
    max_parallel: int | None,
    sequential: bool,
    save: str | None,
    resume: str | None,
    as_json: bool,
) -> int:
    """Run an agent on PROMPT ("-" reads it from standard input).

    Without --model nobody is asked: a model that works offline, without a key or a network. It parses
    and does not think: it takes the prompt as a list of instructions, makes each a tool call, runs them
    all in parallel, and reports what came back.

    \b
      trio-agent run 'read README.md 1-5; search "async def" in src; run "ls -l"'

    With --model a real one answers, whose key is in the environment (ANTHROPIC_API_KEY,
    OPENAI_API_KEY ...). No key goes to a --base-url unless the model is named with its vendor.

    \b
      trio-agent run --model anthropic:MODEL 'What is this project about?'
      trio-agent run --model qwen3 --base-url http://127.0.0.1:8080/v1 'What is this project about?'

    Commands may do whatever you may; only the tools for files are confined to the directory.

    Options that are always the same go into trio-agent/config.toml in $XDG_CONFIG_HOME (by default
    ~/.config), as max-turns = 5 or tools = ["read_file", "my_tools:weather"]; those given here win.

    Ctrl-C aborts: tools are stopped, the transcript is closed in order. A second Ctrl-C cancels
    without waiting for anything that can be left out. SIGTERM and SIGHUP cancel, too.
    """  # noqa: D301 - click wants the character, not the two
    messages = [] if resume is None else _resumed(resume)
    explicit = context.get_parameter_source("system") is click.core.ParameterSource.COMMANDLINE
    if explicit and messages and type(messages[0]) is SystemMessage and messages[0].content:
        raise _Refused(f"--system does not go with --resume: {resume} has a system prompt of its own")
    system_prompt = "" if system is None else _system(system)
    if save is not None:
        try:
            check_writable(save)
        except OSError as error:
            raise _Refused(f"cannot save to {save}: {reason_of(error)}") from error
    kill_now = trio.Event()
    try:
        toolbox = load_tools(tools, root, kill_now)
    except (ToolsError, OSError) as error:
        raise _Refused(f"--tools: {reason_of(error)}") from error
    if prompt == "-":
        prompt = _standard_input()
    if base_url is not None and model is None:
        raise click.UsageError("--base-url goes with --model.")
    on_terminal = not as_json and sys.stdout is not None and sys.stdout.isatty()
    agent = Agent(
        offline_model(markdown=on_terminal),
        tools=toolbox,
        system_prompt=system_prompt,
        messages=messages,
        thinking_level=thinking,
        tool_execution="sequential" if sequential else "parallel",
        max_parallel_tools=max_parallel,
        limits=RunLimits(turns=max_turns, seconds=timeout),
        repeat_partial=True,  # what a command printed before it was cut is worth knowing
    )
    view: View = JsonView() if as_json else _terminal_view() if on_terminal else PlainView()
    session = Session(agent, view, kill_now, timeout)
    if model is None:
        return trio.run(session.run, prompt, save)
    from ._remote import run_with_model  # noqa: PLC0415 - httpx takes 100 ms that the offline model does not need

    try:
        return trio.run(partial(run_with_model, session, agent, prompt, save, name=model, base_url=base_url))
    except UsageError as error:
        raise _Refused(f"--model: {error}") from error


def _terminal_view() -> View:
    from ._terminal import TerminalView  # noqa: PLC0415 - rich takes 60 ms that a pipe does not need

    return TerminalView(live=os.environ.get("TERM", "dumb") != "dumb")


def _resumed(path: str) -> list[AgentMessage]:
    try:
        return load_transcript(path)
    except (OSError, FormatError) as error:
        raise _Refused(f"cannot resume from {path}: {reason_of(error)}") from error


def _system(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _Refused(f"cannot take the system prompt from {path}: it is no text in UTF-8") from error
    except (OSError, ValueError) as error:
        raise _Refused(f"cannot take the system prompt from {path}: {reason_of(error)}") from error


def _standard_input() -> str:
    if sys.stdin is None:
        raise _Refused("cannot read the prompt: standard input is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise _Refused(f"cannot read the prompt from standard input: {reason_of(error)}") from error
