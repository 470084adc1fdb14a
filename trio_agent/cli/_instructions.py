"""The little language that the offline model reads: text in, tool calls out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs

from trio_agent._errors import TrioAgentError
from trio_agent._messages import ToolDeclaration

__all__ = ["Instruction", "NotUnderstoodError", "grammar", "split", "to_call"]

Tools: TypeAlias = Mapping[str, ToolDeclaration]


class NotUnderstoodError(TrioAgentError):
    """An instruction is none that can be carried out; the text says why."""


@final
@attrs.frozen
class Word:
    """A word of an instruction, with and without its quotes."""

    raw: str
    text: str


@final
@attrs.frozen
class Instruction:
    """One instruction as it was written."""

    source: str
    words: tuple[Word, ...]
    closed: bool = True
    """False if a quote is open at its end."""

    @property
    def rest(self) -> str:
        """All behind the first word, as it was written."""
        return self.source[len(self.words[0].raw) :].strip()


# Double quotes hold together wherever they stand; single ones only around a word or what is behind
# its "=", for the one in "don't" is a letter.
_TOKEN = re.compile(
    r"""(?P<end>[;\n])
    |   (?P<space>[^\S\n]+)
    |   (?P<word>(?:[^\s;"'=]+=)?'[^']*'(?=[\s;]|\Z))
    |   (?P<open>"(?!(?:\\.|[^"\\])*").*|(?:[^\s;"'=]+=)?'[^']*\Z)
    |   (?P<plain>(?:[^\s;"]|"(?:\\.|[^"\\])*")+)""",
    re.VERBOSE | re.DOTALL,
)
_DOUBLE = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)


def split(text: str) -> list[Instruction]:
    """Split a text at ``;`` and line ends that stand outside of quotes; empty parts are left out."""
    found: list[Instruction] = []
    words: list[Word] = []
    start = 0
    closed = True

    def finish(end: int) -> None:
        if words:
            found.append(Instruction(text[start:end].strip(), tuple(words), closed))
            words.clear()

    for token in _TOKEN.finditer(text):
        if token.lastgroup == "end":
            finish(token.start())
            start = token.end()
        elif token.lastgroup != "space":
            closed = token.lastgroup != "open"
            raw = token.group()
            words.append(Word(raw, _unquoted(raw)))
    finish(len(text))
    return found


def _unquoted(raw: str) -> str:
    if _DOUBLE.fullmatch(raw):
        # Only these two: a command or an expression keeps its other backslashes.
        return re.sub(r'\\(["\\])', r"\1", raw[1:-1])
    if len(raw) > 1 and raw[0] == raw[-1] == "'":
        return raw[1:-1]
    return raw


# ------------------------------------------------------------------ verbs


@final
@attrs.frozen
class _Verb:
    """A verb: how it is written, which tools can do it, what these may call its arguments."""

    form: str
    tools: tuple[str, ...]
    arguments: Mapping[str, tuple[str, ...]]


_PATH = ("path", "file", "file_path", "filename", "directory")

_VERBS: dict[str, _Verb] = {
    "read": _Verb(
        "read PATH [FROM-TO]",
        ("read_file", "read", "view"),
        {"path": _PATH, "offset": ("offset",), "limit": ("limit",)},
    ),
    "search": _Verb(
        'search "TEXT" in PATH',
        ("search_text", "search", "grep"),
        {"text": ("text", "pattern", "query"), "path": _PATH},
    ),
    "run": _Verb('run "COMMAND"', ("run_command", "run", "bash", "shell"), {"command": ("command", "cmd")}),
}


def grammar(tools: Tools) -> str:
    """What can be said to an agent with these tools."""
    forms = [verb.form for verb in _VERBS.values() if any(name in tools for name in verb.tools)]
    if tools:
        forms.append("TOOL key=value ..., where TOOL is " + " or ".join(tools))
    return "; ".join(forms) or "nothing: I was given no tools"


def to_call(instruction: Instruction, tools: Tools) -> tuple[str, dict[str, Any]]:
    """The name of a tool and the arguments for it.

    Raises:
      NotUnderstoodError: it is no instruction, or there is no tool for it.
    """
    if not instruction.closed:
        raise NotUnderstoodError("a quote is not closed")
    name = instruction.words[0].text
    tool = tools.get(name)
    if tool is not None and (name not in _VERBS or _is_assignments(instruction.words[1:], tool)):
        return name, _arguments(instruction)
    verb = _VERBS.get(name)
    if verb is None:
        raise NotUnderstoodError(f"{name!r} is neither a word that I know nor one of my tools")
    tool = next((tools[candidate] for candidate in verb.tools if candidate in tools), None)
    if tool is None:
        raise NotUnderstoodError(f"I have no tool for it (I have {', '.join(tools) or 'none'})")
    values = _values(name, verb, instruction)
    known = _properties(tool)
    arguments = {}
    for what, value in values.items():
        key = next((key for key in verb.arguments[what] if key in known), None)
        if key is None:
            raise NotUnderstoodError(f"the tool {tool.name} takes no {what}")
        arguments[key] = value
    return tool.name, arguments


def _properties(tool: ToolDeclaration) -> Mapping[str, Any]:
    properties = tool.parameters.get("properties", {})
    return properties if isinstance(properties, Mapping) else {}


def _values(name: str, verb: _Verb, instruction: Instruction) -> dict[str, Any]:
    words = instruction.words[1:]
    if not words:
        raise NotUnderstoodError(f"write it as {verb.form}")
    if name == "run":
        return {"command": words[0].text if len(words) == 1 else instruction.rest}
    if name == "search":
        where = "."
        if len(words) > 2 and words[-2].raw == "in":
            where = words[-1].text
            words = words[:-2]
        return {"text": " ".join(word.text for word in words), "path": where}
    lines = re.fullmatch(r"(\d+)(?:(-)(\d+)?)?", words[-1].raw) if len(words) > 1 else None
    if len(words) - (lines is not None) != 1:
        raise NotUnderstoodError(f"write it as {verb.form}, with quotes around a path that has spaces")
    values: dict[str, Any] = {"path": words[0].text}
    if lines is not None:
        first = int(lines[1])
        values["offset"] = first
        if lines[3] is not None:
            values["limit"] = int(lines[3]) - first + 1
        elif lines[2] is None:
            values["limit"] = 1
    return values


_ASSIGNMENT = re.compile(r"([^\s=\"'{]+)=(.*)", re.DOTALL)


def _is_assignments(words: Sequence[Word], tool: ToolDeclaration) -> bool:
    known = _properties(tool)
    matches = [_ASSIGNMENT.fullmatch(word.raw) for word in words]
    return all(match is not None and match[1] in known for match in matches)


def _arguments(instruction: Instruction) -> dict[str, Any]:
    if instruction.rest.startswith("{"):
        try:
            value = json.loads(instruction.rest)
        except ValueError as error:
            raise NotUnderstoodError(f"its arguments are no JSON: {error}") from error
        if isinstance(value, dict):
            return value
    arguments: dict[str, Any] = {}
    for word in instruction.words[1:]:
        match = _ASSIGNMENT.fullmatch(word.raw)
        if match is None:
            raise NotUnderstoodError(f"write its arguments as key=value; {word.raw!r:.60} is none")
        arguments[match[1]] = _value(match[2])
    return arguments


def _value(raw: str) -> Any:
    text = _unquoted(raw)
    if text != raw:
        return text
    try:
        return json.loads(raw)
    except ValueError:
        return raw
