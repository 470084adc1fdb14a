"""A model for trying things out without a key or a network. It parses; it does not think.

It takes the newest user messages as a list of instructions, separated by ``;`` or line ends::

    read pyproject.toml; search "async def" in trio_agent; run "sleep 3"

and makes each a call of whatever tools the agent has, all in one batch. When the results are there
it says for each call whether it worked, with the first lines of what came back. The same
transcript always gets the same answer. Nothing in its answers is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import trio

from trio_agent._messages import AssistantMessage, Message, ToolCall, ToolResultMessage, UserMessage, content_text
from trio_agent._stream import MessageBuilder, ModelRequest, SimpleModel, StreamSink

from ._instructions import NotUnderstoodError, grammar, split, to_call

__all__ = ["offline_model"]

_MOST = 0.1
"""Seconds that the words of one answer may take in all, however many they are."""


def offline_model(
    *, word_delay: float = 0.005, lines: int = 5, width: int = 160, markdown: bool = False
) -> SimpleModel:
    """Make a model that parses instructions and reports results; it does not think.

    Args:
      word_delay: seconds between two words of its answers, at most.
      lines: how many lines of each result it repeats, besides the notes in brackets that the tools
        of this library put at the end.
      width: how many characters of a line it repeats.
      markdown: mark what it repeats as code, for those who show its answers as Markdown.
    """

    async def stream(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Answer the newest messages, word by word."""
        text, calls = _answer(request, lines, width, markdown=markdown)
        builder = MessageBuilder(request, api="offline")
        await sink.send(builder.start())
        words = re.findall(r"\S+\s*|\s+", text)
        await sink.send(builder.text_start())
        for number, word in enumerate(words):
            if number:
                await trio.sleep(min(word_delay, _MOST / len(words)))
            await sink.send(builder.text_delta(word))
        await sink.send(builder.text_end())
        for call in calls:
            await sink.send(builder.tool_call_start(call.id, call.name))
            await sink.send(builder.tool_call_delta(json.dumps(call.arguments)))
            await sink.send(builder.tool_call_end())
        return builder.finish("tool_use" if calls else "stop")

    return SimpleModel("offline", "parser", stream)


def _answer(request: ModelRequest, lines: int, width: int, *, markdown: bool) -> tuple[str, list[ToolCall]]:
    quote = _code if markdown else str
    asked, said = _newest(request.messages)
    parts: list[str] = []
    results = {message.tool_call_id: message for message in said if type(message) is ToolResultMessage}
    if asked is not None and results:
        parts.append(_report(asked.tool_calls, results, lines, width, markdown=markdown))
    users = [message for message in said if type(message) is UserMessage]
    tools = {tool.name: tool for tool in request.context.tools}
    calls: list[ToolCall] = []
    sources: list[str] = []
    before = sum(len(m.tool_calls) for m in request.messages if type(m) is AssistantMessage)
    for instruction in (found for message in users for found in split(message.text)):
        try:
            name, arguments = to_call(instruction, tools)
        except NotUnderstoodError as error:
            source = _short(instruction.source, width)
            parts.append(f"I did nothing about {_code(source) if markdown else repr(source)}: {error}.")
        else:
            calls.append(ToolCall(f"call_{before + len(calls) + 1}", name, arguments))
            sources.append(quote(_short(instruction.source, width)))
    images = sum(1 for message in users for block in message.content if block.type == "image")
    if images:
        parts.append(f"I cannot see images; {images} came.")
    if calls:
        parts.append(f"I make {_count(len(calls), 'call')}: {'; '.join(sources)}.")
    elif not results:
        parts.append(f"I parse instructions and do not think. I understand {quote(grammar(tools))}.")
    return ("\n\n" if markdown else "\n").join(parts), calls


def _newest(messages: Sequence[Message]) -> tuple[AssistantMessage | None, Sequence[Message]]:
    """The last answer, and what was said since."""
    at = next((i for i in reversed(range(len(messages))) if type(messages[i]) is AssistantMessage), None)
    if at is None:
        return None, messages
    answer = messages[at]
    assert type(answer) is AssistantMessage
    return answer, messages[at + 1 :]


def _report(
    calls: Sequence[ToolCall], results: dict[str, ToolResultMessage], lines: int, width: int, *, markdown: bool
) -> str:
    said = [f"{_count(len(results), 'result')}:", *([""] if markdown else [])]
    for call in calls:
        result = results.get(call.id)
        arguments = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items())
        verdict = "no result" if result is None else "error" if result.is_error else "ok"
        what = _short(f"{call.name}({arguments})", width)
        said.append(f"- {_code(what) if markdown else what}: {verdict}")
        if result is not None:
            shown = [_short(line, width) for line in _first_lines(result, lines)]
            said.extend(_block(shown) if markdown else [f"    {line}" for line in shown])
    return "\n".join(said)


def _code(text: str) -> str:
    """A text as a code span, whatever backticks it has."""
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"{ticks}{text}{ticks}"


def _block(lines: Sequence[str]) -> list[str]:
    """Lines as a code block of a list item."""
    fence = "`" * max(3, *(len(ticks) + 1 for line in lines for ticks in re.findall("`+", line)), 3)
    return ["", *(f"  {line}" for line in (f"{fence}text", *lines, fence)), ""] if lines else []


def _first_lines(result: ToolResultMessage, lines: int) -> list[str]:
    """The beginning of a result, and the notes at its end, where exit statuses and cuts stand."""
    all_lines = content_text(result.content).splitlines()
    images = len(result.content) - sum(block.type == "text" for block in result.content)
    notes = 0
    while notes < len(all_lines) and re.fullmatch(r"\[.*\]", all_lines[-1 - notes]):
        notes += 1
    body = all_lines[: len(all_lines) - notes]
    shown = body if len(body) <= lines + 1 else [*body[:lines], f"... {len(body) - lines} more lines"]
    shown = shown + all_lines[len(body) :][-lines:]
    return shown + ([f"{_count(images, 'image')}"] if images else [])


def _short(text: str, width: int) -> str:
    text = " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
    return text if len(text) <= width else text[: width - 3] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
