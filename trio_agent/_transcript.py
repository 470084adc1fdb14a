"""The transcript owns the system prompt and the tool declarations; this is how they are read out of it.

Replaying the system messages in order gives the current prompt and tools (pi-ai's
``transcript.ts``). The loop never replays a whole transcript at a turn: :class:`Track` keeps what is
derived from a context up to date as messages come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, cast, final, overload

import attrs

from ._messages import (
    AgentMessage,
    AssistantMessage,
    ErrorKind,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
)

_T = TypeVar("_T")


@final
class MessageView(Sequence[_T], Generic[_T]):
    """The first messages of a list that only grows: a snapshot that copies nothing.

    It can be read like a tuple, compares equal to any sequence of the same messages, and does not
    change when messages are added to the list behind it.
    """

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[_T], length: int | None = None) -> None:
        self._messages = messages
        self._length = len(messages) if length is None else length

    def shows_all_of(self, messages: list[_T]) -> bool:
        """Whether this is a view of the whole of a list."""
        return self._messages is messages and self._length == len(messages)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[_T]:
        return islice(self._messages, self._length)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...
    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        if isinstance(index, slice):
            return tuple(self._messages[i] for i in range(*index.indices(self._length)))
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"no message {index} among {self._length}")
        return self._messages[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(other) == self._length and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compares by content, like a list

    def __repr__(self) -> str:
        return f"MessageView({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageView, (list(self),)


# ----------------------------------------------------------------- replay


@final
class Replay:
    """The current system prompt and tools after some messages; one message costs what is in it."""

    __slots__ = ("_content", "_sections", "_timestamp", "tools")

    def __init__(self, messages: Iterable[object] = ()) -> None:
        self._content: list[str] = []
        self._sections: dict[str, str] = {}
        self._timestamp: int | None = None
        self.tools: dict[str, ToolDeclaration] = {}
        for message in messages:
            self.apply(message)

    def apply(self, message: object) -> None:
        """Take one more message into account."""
        if type(message) is not SystemMessage:
            return
        if self._timestamp is None:
            self._timestamp = message.timestamp
        if message.content:
            self._content.append(message.content)
        for name, text in message.sections.items():
            if text is None:
                self._sections.pop(name, None)
            else:
                self._sections[name] = text
        for name in message.tools_removed:
            self.tools.pop(name, None)
        for tool in message.tools_added:
            self.tools[tool.name] = tool

    @property
    def system_prompt(self) -> str:
        """All contents, then all sections, with an empty line between them (as pi joins them)."""
        return "\n\n".join(part for part in (*self._content, *self._sections.values()) if part)

    def system_message(self) -> SystemMessage | None:
        """One leading system message that says all of it; None if there is nothing to say."""
        if self._timestamp is None:
            return None
        return SystemMessage(
            "\n\n".join(self._content),
            sections=dict(self._sections),
            tools_added=tuple(self.tools.values()),
            timestamp=self._timestamp,
        )


def get_current_tools(messages: Iterable[object]) -> tuple[ToolDeclaration, ...]:
    """The tools that a transcript declares, in the order in which they were added."""
    return tuple(Replay(messages).tools.values())


def get_current_system_prompt(messages: Iterable[object]) -> str:
    """The system prompt after replaying every system message of a transcript."""
    return Replay(messages).system_prompt


def get_current_system_message(messages: Iterable[object]) -> SystemMessage | None:
    """All system messages of a transcript in one; None if it has none."""
    return Replay(messages).system_message()


def collapse_system_messages(messages: Iterable[Message]) -> list[Message]:
    """The transcript for a model that takes only one system message, at the front."""
    messages = list(messages)
    head = get_current_system_message(messages)
    rest: list[Message] = [message for message in messages if type(message) is not SystemMessage]
    return rest if head is None else [head, *rest]


def create_initial_system_message(
    system_prompt: str = "", tools: Iterable[ToolDeclaration] = ()
) -> SystemMessage | None:
    """The leading system message for a prompt and tools; None if there is neither."""
    tools = tuple(tools)
    if not system_prompt and not tools:
        return None
    return SystemMessage(system_prompt, tools_added=tools, timestamp=0)


# ------------------------------------------------------------ tool changes


class _Declared(Protocol):
    @property
    def declaration(self) -> ToolDeclaration: ...


class _Context(Protocol):
    @property
    def messages(self) -> Sequence[AgentMessage]: ...
    @property
    def tools(self) -> Sequence[_Declared]: ...


def declare_tool_changes(context: _Context, pending: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Announce to the model what changed in the tools that can be executed.

    The difference between what the transcript declares and ``context.tools`` replaces the tool
    fields of the last pending system message, whatever they said; without one, a system message
    goes in before the first pending message that is none. A changed definition is a removal and
    an addition (design 3; pi's ``declareToolChanges``).

    Returns:
      the pending messages, with the changes declared.
    """
    return changes_declared(Replay(context.messages), context.tools, pending)


def changes_declared(replay: Replay, tools: Sequence[_Declared], pending: Sequence[AgentMessage]) -> list[AgentMessage]:
    """What :func:`declare_tool_changes` does, against a transcript that was replayed before."""
    result = list(pending)
    at = next((i for i in reversed(range(len(result))) if type(result[i]) is SystemMessage), None)
    declared: Mapping[str, ToolDeclaration] = replay.tools
    if at is not None:
        # Earlier pending system messages count as said; the last one says only the difference.
        ahead = Replay()
        ahead.tools.update(declared)
        for message in result[:at]:
            ahead.apply(message)
        declared = ahead.tools
    wanted: dict[str, ToolDeclaration] = {}
    for tool in tools:
        wanted.setdefault(tool.declaration.name, tool.declaration)  # of two of one name the first is called
    added = tuple(tool for name, tool in wanted.items() if not _same_tool(declared.get(name), tool))
    removed = tuple(name for name, tool in declared.items() if not _same_tool(wanted.get(name), tool))
    if at is not None:
        message = cast("SystemMessage", result[at])
        if message.tools_added != added or message.tools_removed != removed:
            result[at] = attrs.evolve(message, tools_added=added, tools_removed=removed)
    elif added or removed:
        first = next((i for i, m in enumerate(result) if type(m) is not SystemMessage), len(result))
        result.insert(first, SystemMessage(tools_added=added, tools_removed=removed))
    return result


def _same_tool(one: ToolDeclaration | None, other: ToolDeclaration) -> bool:
    return one is other or one == other


# ---------------------------------------------------------- to the model


@final
@attrs.frozen(init=False, eq=False, repr=False)
class TranscriptContext:
    """A transcript in the form that models are sent; only :func:`normalize_context` makes one."""

    messages: Sequence[Message]
    """A read-only view that does not change during the request."""

    def __init__(self) -> None:
        raise TypeError("a TranscriptContext is made by normalize_context()")

    @property
    def system_prompt(self) -> str:
        """The replayed system prompt."""
        return get_current_system_prompt(self.messages)

    @property
    def tools(self) -> tuple[ToolDeclaration, ...]:
        """The tools that the messages declare."""
        return get_current_tools(self.messages)

    def __repr__(self) -> str:
        return f"<TranscriptContext of {len(self.messages)} messages>"


def normalize_context(
    messages: Sequence[Message], *, system_prompt: str = "", tools: Iterable[ToolDeclaration] = ()
) -> TranscriptContext:
    """Make what a :class:`ModelRequest` demands.

    Args:
      messages: what the model is sent. A tuple or :class:`MessageView` is taken as it is.
      system_prompt: goes with ``tools`` into a leading system message.
      tools: declarations for that message.
    """
    initial = create_initial_system_message(system_prompt, tools)
    if initial is not None:
        messages = (initial, *messages)
    elif not isinstance(messages, tuple | MessageView):
        messages = tuple(messages)
    context = object.__new__(TranscriptContext)
    object.__setattr__(context, "messages", messages)
    return context


_LLM_ROLES = frozenset({SystemMessage, UserMessage, AssistantMessage, ToolResultMessage})


def default_convert_to_llm(messages: Iterable[AgentMessage]) -> list[Message]:
    """The default of ``convert_to_llm``: messages of the four roles, as they are."""
    return [cast("Message", message) for message in messages if type(message) in _LLM_ROLES]


@final
class Track:
    """The context of a run, with what is derived from it kept up message by message."""

    __slots__ = ("_partial", "llm", "messages", "replay")

    def __init__(self, messages: Iterable[AgentMessage]) -> None:
        self.messages = list(messages)
        self.llm = default_convert_to_llm(self.messages)
        self.replay = Replay(self.messages)
        self._partial = False

    def append(self, message: AgentMessage) -> None:
        """Add a message; a partial one at the end is replaced by it."""
        if self._partial:
            self._partial = False
            self.messages[-1] = message
        else:
            self.messages.append(message)
        if type(message) in _LLM_ROLES:
            self.llm.append(cast("Message", message))
            self.replay.apply(message)

    def extend(self, results: Sequence[ToolResultMessage]) -> None:
        """Add the results of a batch, which are nothing to be replayed."""
        self.messages.extend(results)
        self.llm.extend(results)

    def append_partial(self, message: AssistantMessage) -> None:
        """Let an unfinished answer stand at the end until :meth:`append` replaces it."""
        self.messages.append(message)
        self._partial = True

    def view(self) -> MessageView[AgentMessage]:
        """The messages as they are now."""
        return MessageView(self.messages)

    def llm_view(self) -> MessageView[Message]:
        """The default conversion of the messages as they are now."""
        return MessageView(self.llm)


# ------------------------------------------------------------------ repair


def repair_call_ids(message: AssistantMessage) -> AssistantMessage:
    """Give every call of a message an id of its own; most messages come back as they are.

    Providers have sent empty ids and the same id twice (known fault B88); results are matched by
    id, so such a call would lose its result.
    """
    ids = [block.id for block in message.content if type(block) is ToolCall]
    seen = set(ids)
    if len(seen) == len(ids) and "" not in seen:
        return message
    used: set[str] = set()
    content: list[Any] = []
    for block in message.content:
        if type(block) is ToolCall and (not block.id or block.id in used):
            number = 1
            stem = block.id or "call"
            while (new := f"{stem}_{number}") in seen:
                number += 1
            seen.add(new)
            block = attrs.evolve(block, id=new)
        if type(block) is ToolCall:
            used.add(block.id)
        content.append(block)
    return attrs.evolve(message, content=tuple(content))


def repair_transcript(
    messages: Iterable[AgentMessage],
    text: str = "The call has no result: the program ended before one was recorded. It may have had effects.",
) -> list[AgentMessage]:
    """Close what a crash left open: every call that should have a result gets an error result.

    Calls of answers that stopped with ``error`` or ``aborted`` need none. Results that are there
    are not touched; results that answer nothing are left where they are. Repairing twice changes
    nothing more (known fault B07).

    Args:
      messages: a transcript, for example one that was loaded from a file.
      text: what the new results say.
    """
    repaired: list[AgentMessage] = []
    open_calls: dict[str, ToolCall] = {}

    def close() -> None:
        kind: ErrorKind = "aborted"
        repaired.extend(
            ToolResultMessage(call.id, call.name, (TextContent(text),), is_error=True, error_kind=kind)
            for call in open_calls.values()
        )
        open_calls.clear()

    for message in messages:
        if type(message) is ToolResultMessage:
            open_calls.pop(message.tool_call_id, None)
        elif open_calls and type(message) in _LLM_ROLES:  # what no model sees may stand in between
            close()
        if type(message) is AssistantMessage and message.stop_reason not in ("error", "aborted"):
            open_calls.update((call.id, call) for call in message.tool_calls)
        repaired.append(message)
    close()
    return repaired
