"""How an answer is put together from its steps, and the events that tell of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias, final

import attrs
import jiter
import trio

from trio_agent._errors import StreamError
from trio_agent._messages import (
    AssistantContent,
    AssistantMessage,
    ErrorKind,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    now,
)
from trio_agent._values import quickly_made

from ._request import ModelRequest

# ----------------------------------------------------------------- events


@attrs.frozen(eq=False)
class _Event:
    """One step of an answer; refers to the builder at the position of the step."""

    type: ClassVar[str]
    builder: MessageBuilder = attrs.field(repr=False)
    position: int = attrs.field(repr=False)

    @property
    def partial(self) -> AssistantMessage:
        """The message as it was at this step; built anew whenever somebody asks."""
        return self.builder.snapshot(self.position)


@attrs.frozen(eq=False)
class _BlockEvent(_Event):
    index: int
    """The position of the block in the content."""


@attrs.frozen(eq=False)
class _DeltaEvent(_BlockEvent):
    delta: str
    """What was added."""


@final
@attrs.frozen(eq=False)
class StreamStart(_Event):
    """The answer begins."""

    type: ClassVar[Literal["start"]] = "start"


@final
@attrs.frozen(eq=False)
class TextStart(_BlockEvent):
    """A text block begins, empty."""

    type: ClassVar[Literal["text_start"]] = "text_start"


@final
@quickly_made
@attrs.frozen(eq=False)
class TextDelta(_DeltaEvent):
    """A text block grew."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"


@final
@attrs.frozen(eq=False)
class TextEnd(_BlockEvent):
    """A text block is complete."""

    type: ClassVar[Literal["text_end"]] = "text_end"


@final
@attrs.frozen(eq=False)
class ThinkingStart(_BlockEvent):
    """A thinking block begins."""

    type: ClassVar[Literal["thinking_start"]] = "thinking_start"


@final
@quickly_made
@attrs.frozen(eq=False)
class ThinkingDelta(_DeltaEvent):
    """A thinking block grew."""

    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"


@final
@attrs.frozen(eq=False)
class ThinkingEnd(_BlockEvent):
    """A thinking block is complete."""

    type: ClassVar[Literal["thinking_end"]] = "thinking_end"


@final
@attrs.frozen(eq=False)
class ToolCallStart(_BlockEvent):
    """A tool call begins; its name is known, its arguments are not."""

    type: ClassVar[Literal["toolcall_start"]] = "toolcall_start"


@final
@quickly_made
@attrs.frozen(eq=False)
class ToolCallDelta(_DeltaEvent):
    """The JSON text of a call's arguments grew."""

    type: ClassVar[Literal["toolcall_delta"]] = "toolcall_delta"


@final
@attrs.frozen(eq=False)
class ToolCallEnd(_BlockEvent):
    """A tool call is complete."""

    type: ClassVar[Literal["toolcall_end"]] = "toolcall_end"


StreamEvent: TypeAlias = (
    StreamStart
    | TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)
"""What a stream function sends, by class or by ``type`` (pi's names)."""

DELTA_EVENTS = (TextDelta, ThinkingDelta, ToolCallDelta)
BLOCK_EVENTS = (TextStart, TextEnd, ThinkingStart, ThinkingEnd, ToolCallStart, ToolCallEnd, *DELTA_EVENTS)


# ---------------------------------------------------------------- builder


def parse_partial_arguments(text: str) -> dict[str, Any]:
    """What can be seen of unfinished arguments; good for looking, never for executing."""
    if not text.strip():
        return {}
    for attempt in (text, _STRINGS.sub(_escape_controls, text)):
        try:
            value = jiter.from_json(attempt.encode("utf-8", "surrogatepass"), partial_mode="trailing-strings")
        except ValueError:
            continue
        return value if isinstance(value, dict) else {}
    return {}


# Raw control characters inside strings are accepted at the end (B62), so they are shown before it too.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*', re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x1f]")


def _escape_controls(found: re.Match[str]) -> str:
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", found[0])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Parse finished arguments strictly.

    Nothing at all counts as ``{}`` (B66). Raw control characters inside strings are kept (B62:
    several models send them, and they can mean nothing else). Of a repeated key the last value
    counts, as in the preview (B70).

    Returns:
      the arguments and None; or ``{}`` and why the text is no JSON object.
    """
    if not text.strip():
        return {}, None
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are no valid JSON: {error}"
    if not isinstance(value, dict):
        return {}, f"the arguments are {text.strip()[:40]!r}, but must be a JSON object"
    return value, None


_START, _DELTA, _END = range(3)


class _Block:
    """One block of an answer: the pieces of its text, and what else is known of it."""

    __slots__ = ("arguments", "call_id", "ended", "grows", "index", "kind", "name", "pieces", "redacted", "signature")

    def __init__(self, kind: str, index: int, call_id: str = "", name: str = "", *, redacted: bool = False) -> None:
        self.kind = kind
        self.index = index
        self.grows = 3 * index + _DELTA
        """What the log says of a delta."""
        self.pieces: list[str] = []
        self.call_id = call_id
        self.name = name
        self.arguments: Mapping[str, Any] | None = None
        self.signature: str | None = None
        self.redacted = redacted
        self.ended = False


class _Cursor:
    """How far a snapshot has read the log: for each block, its text so far and whether it ended."""

    __slots__ = ("counts", "ended", "position", "texts")

    def __init__(self) -> None:
        self.position = 0
        self.counts: list[int] = []
        self.ended: list[bool] = []
        self.texts: list[tuple[int, str]] = []


@final
class MessageBuilder:
    """Puts an answer together and makes the events that tell of it; shared by all providers.

    Each method takes one step and returns its event, to be given to ``sink.send``. A step costs the
    same however long the answer is. Where a provider's blocks overlap, ``index`` names the block
    (its position in the content); by default it is the last one.

    ``api``, ``provider``, ``model``, ``response_id``, ``raw_stop_reason``, ``usage`` and ``timestamp`` are
    put into the final message and may be set at any time.
    """

    __slots__ = (
        "_blocks",
        "_cursor",
        "_last",
        "_log",
        "_partial_arguments",
        "api",
        "model",
        "provider",
        "raw_stop_reason",
        "response_id",
        "timestamp",
        "usage",
    )

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        api: str = "",
        partial_arguments: Callable[[str], dict[str, Any]] = parse_partial_arguments,
    ) -> None:
        self.api = api
        self.provider = request.model.provider if request is not None else ""
        self.model = request.model.id if request is not None else ""
        self.response_id: str | None = None
        self.raw_stop_reason: str | None = None
        self.usage = Usage()
        self.timestamp = now()
        self._blocks: list[_Block] = []
        # Nearly every delta belongs to it. To know it, and to write out the three kinds of deltas, saves two calls in
        # each: 0.18 microseconds, as much as the rest of the step.
        self._last = _Block("", -1)
        # One number for each step: three times the index of its block, plus what the step was.
        self._log: list[int] = []
        self._cursor = _Cursor()
        self._partial_arguments = partial_arguments

    # Steps.

    def start(self) -> StreamStart:
        """The answer begins."""
        return StreamStart(self, len(self._log))

    def text_start(self) -> TextStart:
        """A text block begins."""
        return TextStart(self, *self._begin("text"))

    @trio.lowlevel.enable_ki_protection
    def text_delta(self, delta: str, index: int | None = None) -> TextDelta:
        """A text block grows."""
        block = self._last
        if index is not None or block.kind != "text" or block.ended:
            block = self._find("text", index)
        block.pieces.append(delta)
        self._log.append(block.grows)
        return TextDelta(self, len(self._log), block.index, delta)

    def text_end(self, index: int | None = None, *, signature: str | None = None) -> TextEnd:
        """A text block is complete."""
        return TextEnd(self, *self._end("text", index, signature))

    def thinking_start(self, *, redacted: bool = False) -> ThinkingStart:
        """A thinking block begins."""
        return ThinkingStart(self, *self._begin("thinking", redacted=redacted))

    @trio.lowlevel.enable_ki_protection
    def thinking_delta(self, delta: str, index: int | None = None) -> ThinkingDelta:
        """A thinking block grows."""
        block = self._last
        if index is not None or block.kind != "thinking" or block.ended:
            block = self._find("thinking", index)
        block.pieces.append(delta)
        self._log.append(block.grows)
        return ThinkingDelta(self, len(self._log), block.index, delta)

    def thinking_end(self, index: int | None = None, *, signature: str | None = None) -> ThinkingEnd:
        """A thinking block is complete."""
        return ThinkingEnd(self, *self._end("thinking", index, signature))

    def tool_call_start(self, id: str, name: str) -> ToolCallStart:
        """A tool call begins."""
        return ToolCallStart(self, *self._begin("toolcall", id, name))

    @trio.lowlevel.enable_ki_protection
    def tool_call_delta(self, delta: str, index: int | None = None) -> ToolCallDelta:
        """The JSON text of a call's arguments grows."""
        block = self._last
        if index is not None or block.kind != "toolcall" or block.ended:
            block = self._find("toolcall", index)
        block.pieces.append(delta)
        self._log.append(block.grows)
        return ToolCallDelta(self, len(self._log), block.index, delta)

    def tool_call_end(
        self, index: int | None = None, *, arguments: Mapping[str, Any] | None = None, signature: str | None = None
    ) -> ToolCallEnd:
        """A tool call is complete.

        Args:
          index: which block; by default the last.
          arguments: the arguments, from providers that send them whole. By default the text that
            was streamed is parsed, strictly.
          signature: the provider's own mark on the call.
        """
        self._find("toolcall", index).arguments = arguments
        return ToolCallEnd(self, *self._end("toolcall", index, signature))

    # What came of it.

    def finish(
        self, stop_reason: StopReason, *, error_message: str | None = None, error_kind: ErrorKind | None = None
    ) -> AssistantMessage:
        """The final message. Arguments that are no strict JSON object mark their call with the error."""
        whole = stop_reason not in ("error", "aborted")
        return self._message(len(self._log), stop_reason, error_message, error_kind, whole=whole)

    def snapshot(
        self,
        position: int | None = None,
        stop_reason: StopReason = "pending",
        *,
        error_message: str | None = None,
        error_kind: ErrorKind | None = None,
    ) -> AssistantMessage:
        """The message as it was at a position (an event's ``position``), or as it is now.

        Usage and ids are those known when this is called.
        """
        at = len(self._log) if position is None else position
        return self._message(at, stop_reason, error_message, error_kind)

    # Details. What an interrupt breaks off half-way could not be told any more.

    @trio.lowlevel.enable_ki_protection
    def _begin(self, kind: str, call_id: str = "", name: str = "", *, redacted: bool = False) -> tuple[int, int]:
        index = len(self._blocks)
        self._last = _Block(kind, index, call_id, name, redacted=redacted)
        self._blocks.append(self._last)
        self._log.append(3 * index + _START)
        return len(self._log), index

    def _find(self, kind: str, index: int | None) -> _Block:
        if index is None:
            index = len(self._blocks) - 1
        block = self._blocks[index] if 0 <= index < len(self._blocks) else None
        if block is None or block.kind != kind or block.ended:
            raise StreamError(f"there is no open {kind} block {index}; begin it with its _start method")
        return block

    @trio.lowlevel.enable_ki_protection
    def _end(self, kind: str, index: int | None, signature: str | None) -> tuple[int, int]:
        block = self._find(kind, index)
        block.ended = True
        block.signature = signature
        self._log.append(3 * block.index + _END)
        return len(self._log), block.index

    @trio.lowlevel.enable_ki_protection
    def _message(
        self,
        position: int,
        stop_reason: StopReason,
        error_message: str | None,
        error_kind: ErrorKind | None,
        *,
        whole: bool = False,
    ) -> AssistantMessage:
        if position < self._cursor.position:
            self._cursor = _Cursor()
        cursor = self._cursor
        for entry in self._log[cursor.position : position]:
            index, step = divmod(entry, 3)
            if step == _START:
                cursor.counts.append(0)
                cursor.ended.append(False)
                cursor.texts.append((0, ""))
            elif step == _DELTA:
                cursor.counts[index] += 1
            else:
                cursor.ended[index] = True
        cursor.position = position
        return AssistantMessage(
            tuple(self._content(cursor, index, whole=whole) for index in range(len(cursor.counts))),
            stop_reason=stop_reason,
            error_message=error_message,
            error_kind=error_kind,
            usage=self.usage,
            api=self.api,
            provider=self.provider,
            model=self.model,
            response_id=self.response_id,
            raw_stop_reason=self.raw_stop_reason,
            timestamp=self.timestamp,
        )

    def _content(self, cursor: _Cursor, index: int, *, whole: bool = False) -> AssistantContent:
        block = self._blocks[index]
        had, text = cursor.texts[index]
        if had < cursor.counts[index]:
            text = "".join((text, *block.pieces[had : cursor.counts[index]]))
            cursor.texts[index] = (cursor.counts[index], text)
        ended = cursor.ended[index]
        signature = block.signature if ended else None
        if block.kind == "text":
            return TextContent(text, text_signature=signature)
        if block.kind == "thinking":
            return ThinkingContent(text, thinking_signature=signature, redacted=block.redacted)
        if not ended and not whole:
            return ToolCall(block.call_id, block.name, self._partial_arguments(text))
        if block.arguments is not None:
            return ToolCall(block.call_id, block.name, block.arguments, thought_signature=signature)
        arguments, error = parse_arguments(text)
        return ToolCall(
            block.call_id,
            block.name,
            arguments,
            arguments_error=error,
            raw_arguments=None if error is None else text,
            thought_signature=signature,
        )
