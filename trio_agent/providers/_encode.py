"""What the encoders of all vendors share: a transcript made fit to be sent, and JSON that is made only once.

A transcript may be in any state: cut, repaired by hand, of another model. Vendors are strict: each call is
answered once, right behind it, under an id of their taste. The host's transcript is not changed by this.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import attrs

from trio_agent._errors import UsageError
from trio_agent._messages import (
    AssistantMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolDeclaration,
    ToolResultMessage,
)
from trio_agent._transcript import Replay

from ._compat import SystemMessages
from ._decoder import without_surrogates
from ._model import HTTPModel

__all__ = [
    "BROKEN",
    "EMPTY",
    "IMAGES",
    "IMAGE_LEFT_OUT",
    "NO_OUTPUT",
    "NO_RESULT",
    "Cache",
    "Item",
    "Transcript",
    "arguments_of",
    "fit",
    "is_own",
    "kept",
    "parameters_of",
    "patch_text",
    "texts_and_images",
    "to_json",
    "tool_name",
]

BROKEN = ("error", "aborted")
"""Stop reasons of answers that are not whole: their texts are sent, their calls are not."""
EMPTY = "(empty message)"
"""What a user message says in which nothing is left; no vendor takes an empty one."""
NO_OUTPUT = "(no output)"
"""What a tool result says that says nothing."""
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The kinds of images that the vendors take."""
IMAGE_LEFT_OUT = "(an image stood here; this model takes none of its kind)"
NO_RESULT = "The call has no result: none was recorded before the conversation went on. It may have had effects."
"""What is said of a call that nothing answers, as `trio_agent.repair_transcript` says it."""

_T = TypeVar("_T")

# ------------------------------------------------------------------- JSON


def clean(value: Any) -> Any:
    """Plain JSON without what JSON or UTF-8 cannot say: halves of characters, and numbers that are none."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {without_surrogates(str(name)): clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def to_json(value: Any) -> bytes:
    """JSON as it is sent.

    Raises:
      UsageError: there is something in it that is no JSON.
    """
    try:
        return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the request cannot be written as JSON: {error}; transcripts and options hold plain JSON"
        ) from error


@final
class Cache:
    """What was made of messages, for as long as they live. Lives in `HTTPModel.cache`, so it is of one model.

    A message is known by being the same object. ``variant`` is what else went into the result.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[Any], object, Any]] = {}
        self.encoded = 0
        """How many messages had to be encoded so far."""

    @classmethod
    def of(cls, model: HTTPModel) -> Cache:
        """The cache of a model."""
        return cast("Cache", model.cache.setdefault("encoded", cls()))

    def get(self, message: object, variant: object, make: Callable[[], _T]) -> _T:
        """What was made of a message, or what ``make`` gives."""
        key = id(message)
        found = self._made.get(key)
        if found is not None and found[0]() is message and found[1] == variant:
            return cast("_T", found[2])
        self.encoded += 1
        made = make()
        made_of = self._made

        def forget(gone: weakref.ref[Any]) -> None:
            # The number may be that of a new message by now.
            if key in made_of and made_of[key][0] is gone:
                del made_of[key]

        made_of[key] = weakref.ref(message, forget), variant, made
        return made


# ------------------------------------------------------------- transcripts

ItemKind: TypeAlias = Literal["system", "user", "assistant", "result", "no_result"]


@final
@attrs.frozen(eq=False)
class Item:
    """One message as it is to be sent."""

    kind: ItemKind
    message: Message
    """What it is made of; for ``no_result`` the answer with the call."""
    ids: tuple[str, ...] = ()
    """As they are sent: those of its calls, or that of the call that it answers."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that are sent with it; for results, the call that is answered."""


@final
@attrs.frozen(eq=False)
class Transcript:
    """A transcript as it is to be sent."""

    system_prompt: str
    tools: tuple[ToolDeclaration, ...]
    items: Sequence[Item]


_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(name: str) -> str:
    """A name of a tool that was called, as vendors take it; models call tools that nobody has."""
    return _UNFIT.sub("_", name)[:64] or "unknown"


class _Ids:
    """Ids of calls that a vendor takes, each once in a request (B88)."""

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._used: set[str] = set()
        self._next: dict[str, int] = {}  # some servers give the same id in every turn

    def take(self, original: str) -> str:
        number = self._next.get(original, 0)
        while (wire := self._fit(original, number)) in self._used:
            number += 1
        self._next[original] = number + 1
        self._used.add(wire)
        return wire

    def _fit(self, original: str, number: int) -> str:
        if self._length is None:
            fits = 0 < len(original) <= 64 and not _UNFIT.search(original)
        else:
            fits = len(original) == self._length and original.isascii() and original.isalnum()
        if fits and not number:
            return original
        digest = hashlib.sha256(f"{number}:{original}".encode("utf-8", "surrogatepass")).hexdigest()
        return digest[: self._length] if self._length is not None else f"call_{digest[:24]}"


def _answered(messages: Iterable[Message]) -> Mapping[tuple[int, int], ToolResultMessage]:
    """The result of each call that has one, by the places of answer and call.

    A result is of the nearest answer before it with a call of its id, and there of the first without a result.
    """
    found: dict[tuple[int, int], ToolResultMessage] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}  # the calls of the nearest answer, by id
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls = message.tool_calls
            waiting.update((call.id, []) for call in calls)
            if message.stop_reason not in BROKEN:
                for number, call in enumerate(calls):
                    waiting[call.id].append((at, number))
        elif isinstance(message, ToolResultMessage) and waiting.get(message.tool_call_id):
            found[waiting[message.tool_call_id].pop(0)] = message
    return found


def fit(
    messages: Sequence[Message], *, system_messages: SystemMessages, call_id_length: int | None = None
) -> Transcript:
    """Make a transcript fit to be sent.

    Calls of answers that ended in ``error`` or ``aborted`` are left out. Every other call gets one result, right
    behind its answer: the first that there is for it, or one that says that there is none. What stands between
    calls and results comes behind them. Results of no call are left out.

    Args:
      messages: those of the request.
      system_messages: ``first`` puts all system messages together, ``anywhere`` leaves later ones in place.
      call_id_length: of ids that must have one length.
    """
    replay, prompt = Replay(), Replay()
    results, ids = _answered(messages), _Ids(call_id_length)
    items: list[Item] = []
    leading = True
    for at, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            replay.apply(message)
            if leading or system_messages == "first":
                prompt.apply(message)
            elif patch_text(message).strip():
                items.append(Item("system", message))
            continue
        leading = False
        if isinstance(message, AssistantMessage):
            calls = () if message.stop_reason in BROKEN else message.tool_calls
            wires = tuple(ids.take(call.id) for call in calls)
            items.append(Item("assistant", message, wires, calls))
            for number, (wire, call) in enumerate(zip(wires, calls, strict=True)):
                result = results.get((at, number))
                kind: ItemKind = "no_result" if result is None else "result"
                items.append(Item(kind, result or message, (wire,), (call,)))
        elif not isinstance(message, ToolResultMessage):
            items.append(Item("user", message))
    return Transcript(prompt.system_prompt, tuple(replay.tools.values()), items)


def patch_text(message: SystemMessage) -> str:
    """What a later system message says in place. Tools are declared elsewhere."""
    parts = [message.content]
    for name, text in message.sections.items():
        if text is None:
            parts.append(f"The instructions in the section {name!r} no longer hold.")
        else:
            parts.append(f"Instructions in the section {name!r}, in place of any that it had before:\n\n{text}")
    return "\n\n".join(part for part in parts if part)


def is_own(message: AssistantMessage, model: HTTPModel) -> bool:
    """Whether an answer is of the same model, so that its thinking may be sent back."""
    return (message.provider, message.api, message.model) == (model.provider, model.api, model.id)


def kept(message: AssistantMessage, name: str) -> list[Mapping[str, Any]]:
    """Objects that a decoder kept in ``extra``, where a host may have put anything."""
    value = message.extra.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts_and_images(content: Iterable[object]) -> list[TextContent | ImageContent]:
    """Content without texts that say nothing."""
    return [
        block
        for block in content
        if isinstance(block, ImageContent) or (isinstance(block, TextContent) and block.text.strip())
    ]


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call. Those that are no JSON are sent as a text, for servers parse them."""
    return {"invalid_json": call.raw_arguments or ""} if call.arguments_error is not None else call.arguments


def parameters_of(tool: ToolDeclaration) -> Mapping[str, Any]:
    """The schema of the arguments of a tool, with what vendors demand although JSON Schema does not."""
    return {"type": "object", "properties": {}} | dict(tool.parameters) | {"type": "object"}
