"""What a recorder keeps, and its tree: runs, their turns, and in these the messages and calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

import attrs

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantContent,
    AssistantMessage,
    ImageContent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    TurnStart,
    event_to_json,
)

__all__ = ["TraceEntry", "draw"]


@final
@attrs.frozen
class TraceEntry:
    """One thing that a :class:`TraceRecorder` was told: an event, or a mark of the host's own."""

    at: float
    """Seconds on Trio's clock since the recorder's first entry."""
    task: str
    """The name of the task in which it was told."""
    aborted: bool
    """Whether the run was aborted already. Always false where the recorder was given no Abort."""
    reason: str | None
    """The reason of that abort."""
    run: int
    """Which of the recorder's runs it belongs to, from 1; 0 for a mark outside of any run."""
    event: AgentEvent | None = None
    """The event; None for a mark."""
    mark: str | None = None
    """The text of a mark; None for an event."""

    def to_json(self) -> dict[str, Any]:
        """Make plain JSON of it, the event as :func:`~trio_agent.event_to_json` does.

        Raises:
          FormatError: a message of the host's own kind has no JSON form.
        """
        data = {"at": self.at, "task": self.task, "aborted": self.aborted, "reason": self.reason, "run": self.run}
        return data | ({"mark": self.mark} if self.event is None else {"event": event_to_json(self.event)})


def draw(entries: Iterable[TraceEntry], *, times: bool, tasks: bool, width: int) -> str:
    """Draw entries; the arguments are those of :meth:`TraceRecorder.tree`."""
    words = _Words(width)
    runs: dict[int, _RunTree] = {}
    top: list[_Node] = []
    for entry in entries:
        if entry.run == 0:
            top.append(_Node(f"* {words.line(entry.mark or '')}", entry.at, entry.at))
            continue
        if entry.run not in runs:
            runs[entry.run] = _RunTree(entry, words, tasks)
            top.append(runs[entry.run].root)
        runs[entry.run].feed(entry)
    for run in runs.values():
        run.show_blocks()
    return "\n".join(line for node in top for line in node.lines(None, "", "", times))


# ------------------------------------------------------------------ nodes


@attrs.define(eq=False)
class _Node:
    label: str
    began: float
    ended: float | None = None
    """None while it is open."""
    children: list[_Node] = attrs.field(factory=list)
    deltas: int | None = None
    """How many deltas the line stands for; None for a line that is no block of a streamed answer."""

    def lines(self, parent: _Node | None, first: str, rest: str, times: bool) -> Iterator[str]:
        yield first + self.label + self.suffix(parent, times)
        for child in self.children:
            last = child is self.children[-1]
            yield from child.lines(self, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), times)

    def suffix(self, parent: _Node | None, times: bool) -> str:
        parts = []
        if self.deltas is not None:
            parts.append(f"{self.deltas} delta{'' if self.deltas == 1 else 's'}")
        if self.ended is None:
            parts.append(f"{_seconds(self.began)}, open" if times else "open")
        elif times:
            began, ended = _seconds(self.began), _seconds(self.ended)
            if began != ended:
                parts.append(f"{began} to {ended}")
            elif parent is None or began != _seconds(parent.began):
                parts.append(began)
        return f" ({', '.join(parts)})" if parts else ""


def _seconds(at: float) -> str:
    """Microseconds are enough; more would show how floats add up."""
    return f"{at:.6f}".rstrip("0").rstrip(".") + " s"


# ------------------------------------------------------------------- runs


class _RunTree:
    """The tree of one run, which grows with each entry."""

    def __init__(self, first: TraceEntry, words: _Words, tasks: bool) -> None:
        label = f"run {first.run}"
        if tasks:
            label += f" in the task {first.task}"
        if type(first.event) is not AgentStart:
            label += ", begun before the recorder listened"
        self.root = _Node(label, first.at)
        self._task = first.task
        self._words = words
        self._turns = 0
        self._turn: _Node | None = None
        self._message: _Node | None = None
        self._blocks: dict[int, _Node] = {}
        self._last_update: MessageUpdate | None = None
        self._calls: dict[str, _Node] = {}
        self._told: dict[str, str] = {}
        """What was told at the end of each call of the turn."""
        self._aborted = False

    def feed(self, entry: TraceEntry) -> None:
        at, event = entry.at, entry.event
        if event is None:
            self._line(f"* {self._words.line(entry.mark or '')}", at)
            return
        if entry.aborted and not self._aborted:
            self._line("* aborted" + (f": {self._words.say(entry.reason)}" if entry.reason is not None else ""), at)
        self._aborted = entry.aborted
        if entry.task != self._task:
            self._line(f"* {event.type} was told in the task {entry.task}, not in {self._task}", at)
        if isinstance(event, MessageStart | MessageUpdate | MessageEnd):
            self._feed_message(event, at)
        elif isinstance(event, ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd):
            self._feed_call(event, at)
        else:
            self._feed_frame(event, at)

    def _feed_frame(self, event: AgentEvent, at: float) -> None:
        if type(event) is TurnStart:
            self._turns += 1
            self._calls, self._told = {}, {}
            self._turn = _Node(f"turn {self._turns}", at)
            self.root.children.append(self._turn)
        elif type(event) is TurnEnd:
            if self._turn is None:
                self._line("end of a turn", at)
            else:
                self._turn.ended, self._turn = at, None
        elif type(event) is AgentEnd:
            count = len(event.messages)
            self._turn = self._message = None
            self._line(f"end: {event.end_reason}, {count} message{'' if count == 1 else 's'}", at)
            self.root.ended = at

    def _feed_message(self, event: MessageStart | MessageUpdate | MessageEnd, at: float) -> None:
        if isinstance(event, MessageUpdate):
            self._grow(event, at)
            return
        message = event.message
        label = self._words.message(message, self._told.get(getattr(message, "tool_call_id", "")))
        if isinstance(event, MessageStart):
            self._message = None
            node = self._line(label, at)
            node.ended = None
            self._message, self._blocks, self._last_update = node, {}, None
            return
        if self._message is None:
            self._message, self._blocks, self._last_update = self._line(f"{label}, never started", at), {}, None
        else:
            self._message.label, self._message.ended = label, at
        if isinstance(message, AssistantMessage):
            self._show(message, at)
        self._message, self._last_update = None, None

    def _grow(self, event: MessageUpdate, at: float) -> None:
        self._last_update = event
        step = event.assistant_message_event
        index: int | None = getattr(step, "index", None)
        if index is None:
            return
        node = self._blocks.get(index)
        if node is None:
            node = self._blocks[index] = self._line(f"block {index}", at)
            node.deltas = 0
        node.ended = at
        if step.type.endswith("_delta"):
            node.deltas = (node.deltas or 0) + 1

    def show_blocks(self) -> None:
        """Show what came so far of an answer that is still open."""
        if self._message is not None and self._last_update is not None:
            self._show(self._last_update.message, self._message.began)

    def _show(self, message: AssistantMessage, at: float) -> None:
        assert self._message is not None
        for index, block in enumerate(message.content):
            node = self._blocks.get(index)
            if node is None:
                node = self._line("", self._message.began if not self._blocks else at)
            node.label = self._words.block(block)
        for index, node in self._blocks.items():
            if index >= len(message.content):
                node.label = f"block {index}, which is not in the message"

    def _feed_call(self, event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd, at: float) -> None:
        words = self._words
        name = f"tool {words.word(event.tool_call_id)} {words.word(event.tool_name)}"
        if isinstance(event, ToolExecutionStart):
            node = self._line(f"{name} {words.json(event.args)}", at)
            node.ended = None
            self._calls[event.tool_call_id] = node
            return
        node = self._calls.get(event.tool_call_id) or self._line(f"{name}, never started", at)
        self._calls[event.tool_call_id] = node
        if isinstance(event, ToolExecutionUpdate):
            node.children.append(_Node(f"update {words.content(event.partial_result.content)}", at, at))
            return
        result = event.result
        said = words.outcome(event.is_error, result.error_kind)
        text = words.content(result.content)
        self._told[event.tool_call_id] = text
        label = f"{said} {text}" + (", terminate" if result.terminate else "")
        node.children.append(_Node(label, at, at))
        node.ended = at

    def _line(self, label: str, at: float) -> _Node:
        """Add a line to what is open: an answer, else the turn, else the run."""
        node = _Node(label, at, at)
        (self._message or self._turn or self.root).children.append(node)
        return node


# ------------------------------------------------------------------ words


class _Words:
    """How things are put into words, on one line each."""

    def __init__(self, width: int) -> None:
        self.width = width

    def line(self, text: str) -> str:
        """A text of the host's own, without line breaks and other control characters."""
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)

    def say(self, text: str) -> str:
        """A text in quotes, shortened."""
        cut = text if len(text) <= self.width else text[: max(self.width - 3, 0)] + "..."
        return self.line(json.dumps(cut, ensure_ascii=False))

    def word(self, text: str) -> str:
        """A name; in quotes if it is none."""
        return text if text.isprintable() and text and " " not in text else self.say(text)

    def json(self, value: Mapping[str, Any]) -> str:
        text = json.dumps(value, ensure_ascii=False, default=repr)
        return self.line(text if len(text) <= self.width else text[: max(self.width - 3, 0)] + "...")

    def content(self, content: Iterable[object]) -> str:
        blocks = list(content)
        text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
        images = sum(isinstance(block, ImageContent) for block in blocks)
        return self.say(text) + (f", {images} image{'' if images == 1 else 's'}" if images else "")

    def outcome(self, is_error: bool, kind: str | None) -> str:
        return ("error" if is_error else "ok") + (f" [{kind}]" if kind is not None else "")

    def message(self, message: object, told: str | None) -> str:
        """A message; of an answer what is said besides its content."""
        match message:
            case AssistantMessage():
                label = "assistant" if message.stop_reason == "pending" else f"assistant {message.stop_reason}"
                if message.error_kind is not None:
                    label += f" [{message.error_kind}]"
                return label if message.error_message is None else f"{label} {self.say(message.error_message)}"
            case ToolResultMessage():
                label = f"result {self.word(message.tool_call_id)} {self.outcome(message.is_error, message.error_kind)}"
                text = self.content(message.content)
                return label if text == told else f"{label} {text}"
            case SystemMessage():
                tools = [f"+{tool.name}" for tool in message.tools_added]
                tools += [f"-{name}" for name in message.tools_removed]
                label = f"system {self.say(message.content)}"
                if message.sections:
                    label += f", sections {', '.join(map(self.word, message.sections))}"
                return label + (f", tools {' '.join(map(self.word, tools))}" if tools else "")
        role = self.word(str(getattr(message, "role", "")))
        content = getattr(message, "content", None)
        if isinstance(content, tuple):
            return f"{role} {self.content(content)}"
        said: object = getattr(message, "text", None)
        return f"{role} {self.say(said)}" if isinstance(said, str) else role

    def block(self, block: AssistantContent) -> str:
        if isinstance(block, TextContent):
            return f"text {self.say(block.text)}"
        if isinstance(block, ThinkingContent):
            return f"thinking {self.say(block.thinking)}" + (", redacted" if block.redacted else "")
        name = f"call {self.word(block.id)} {self.word(block.name)}"
        if block.arguments_error is None:
            return f"{name} {self.json(block.arguments)}"
        return f"{name} {self.say(block.raw_arguments or '')} [{self.line(block.arguments_error)}]"
