"""A model that plays a script: for tests without a provider, and for scenarios.

:class:`ScriptedModel` is what tests use. Beneath it, a turn is a list of steps which :func:`play`
sends into a sink; scenario files are read into the same steps.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast, final

import attrs
import trio

from trio_agent import (
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    StopReason,
    StreamEvent,
    StreamSink,
    TextContent,
    ThinkingContent,
    ToolCall,
    TrioAgentError,
)

from ._errors import ScriptError, ScriptExhaustedError, ScriptNotExhaustedError

__all__ = ["Block", "PlainTurn", "ScriptedModel", "Turn"]


# ------------------------------------------------------------------ steps


@attrs.frozen
class Sleep:
    """Let time pass."""

    seconds: float


@attrs.frozen
class Start:
    """Send the start event now; else it goes out before the first step that needs it."""


@attrs.frozen
class Text:
    """A text block."""

    deltas: Sequence[str]
    gap: float = 0.0
    """Seconds between two deltas."""
    signature: str | None = None


@attrs.frozen
class Thinking:
    """A thinking block."""

    deltas: Sequence[str]
    gap: float = 0.0
    """Seconds between two deltas."""
    signature: str | None = None
    redacted: bool = False


@attrs.frozen
class Call:
    """A tool-call block."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    """The arguments from the block's end on; None parses what was streamed."""
    chunks: Sequence[str] = ()
    gap: float = 0.0
    """Seconds between two chunks."""
    signature: str | None = None


@attrs.frozen
class Done:
    """The end of an answer."""

    stop_reason: StopReason
    message: AssistantMessage | None = None
    """What is returned; by default what was streamed."""


@attrs.frozen
class Fail:
    """The end of an answer that fails."""

    make: Callable[[], BaseException]
    """Makes the exception, so that a turn can be played more than once."""


Step: TypeAlias = Sleep | Start | Text | Thinking | Call | Done | Fail


async def play(
    steps: Iterable[Step], builder: MessageBuilder, sink: StreamSink, *, send_start: bool = True, delay: float = 0.0
) -> AssistantMessage:
    """Send the steps of one turn and return its final message.

    Has no checkpoint of its own but in its sleeps and where the sink is full. A cancellation passes
    through.

    Args:
      steps: the steps; the last one is ``Done`` or ``Fail``.
      builder: what puts the answer together.
      sink: where the events go.
      send_start: False never sends a start event.
      delay: seconds before each event.
    """
    started = False

    async def send(event: StreamEvent) -> None:
        if delay:
            await trio.sleep(delay)
        await sink.send(event)

    async def start() -> None:
        nonlocal started
        if send_start and not started:
            started = True
            await send(builder.start())

    async def grow(deltas: Sequence[str], gap: float, method: Callable[[str], StreamEvent]) -> None:
        for number, delta in enumerate(deltas):
            if number and gap:
                await trio.sleep(gap)
            await send(method(delta))

    for step in steps:
        match step:
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Start():
                await start()
            case Text(deltas, gap, signature):
                await start()
                await send(builder.text_start())
                await grow(deltas, gap, builder.text_delta)
                await send(builder.text_end(signature=signature))
            case Thinking(deltas, gap, signature, redacted):
                await start()
                await send(builder.thinking_start(redacted=redacted))
                await grow(deltas, gap, builder.thinking_delta)
                await send(builder.thinking_end(signature=signature))
            case Call(id, name, arguments, chunks, gap, signature):
                await start()
                await send(builder.tool_call_start(id, name))
                await grow(chunks, gap, builder.tool_call_delta)
                await send(builder.tool_call_end(arguments=arguments, signature=signature))
            case Done(stop_reason, message):
                await start()
                return builder.finish(stop_reason) if message is None else message
            case Fail(make):
                raise make()
    raise ScriptError("a turn has come to the end of its steps without an answer")


# ------------------------------------------------------------------ turns

Block: TypeAlias = str | TextContent | ThinkingContent | ToolCall
"""A part of an answer; a string is text."""

PlainTurn: TypeAlias = Block | Sequence[Block] | AssistantMessage | BaseException
"""An answer that is known beforehand."""

Turn: TypeAlias = PlainTurn | Callable[..., PlainTurn | Awaitable[PlainTurn]]
"""An answer, or a function that makes one; see :class:`ScriptedModel`."""

_WANTED = (
    "a string, a block (TextContent, ThinkingContent, ToolCall), a list of these, an AssistantMessage, an exception"
)
_BLOCKS = (str, TextContent, ThinkingContent, ToolCall)


def _checked(turn: object, where: str) -> PlainTurn:
    """Refuse what is no answer, and what cannot be streamed."""
    if isinstance(turn, BaseException):
        return turn
    if isinstance(turn, AssistantMessage):
        if turn.stop_reason == "pending":
            raise ScriptError(f"{where} has the stop reason 'pending', which only unfinished answers have")
        blocks: Sequence[object] = turn.content
    elif isinstance(turn, _BLOCKS):
        blocks = (turn,)
    elif isinstance(turn, list | tuple):
        blocks = turn
    else:
        raise ScriptError(f"{where} is {turn!r:.80}, but must be {_WANTED} or a function that gives one")
    for number, block in enumerate(blocks):
        if not isinstance(block, _BLOCKS):
            raise ScriptError(
                f"block {number + 1} of {where} is {block!r:.80}, but must be a string, TextContent, "
                "ThinkingContent or ToolCall"
            )
        if isinstance(block, ToolCall):
            try:
                json.dumps(block.arguments)
            except (TypeError, ValueError) as error:
                raise ScriptError(f"the arguments of the call {block.id!r} in {where} are no JSON: {error}") from error
    return cast("PlainTurn", turn)


def _checked_turns(turns: Iterable[Turn], first: int = 1) -> list[Turn]:
    if isinstance(turns, str | TextContent | ThinkingContent | ToolCall | AssistantMessage):
        raise ScriptError(f"the script is {turns!r:.80}, but must be a list of turns: [{type(turns).__name__}]")
    try:
        listed = list(turns)
    except TypeError:
        raise ScriptError(f"the script is {turns!r:.80}, but must be a list of turns") from None
    for number, turn in enumerate(listed, first):
        if isinstance(turn, type):
            raise ScriptError(
                f"turn {number} is the class {turn.__name__}; give an instance, or a function that makes one"
            )
        if isinstance(turn, BaseException) or not callable(turn):
            _checked(turn, f"turn {number}")
    return listed


def _delay(instance: object, attribute: object, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise ScriptError(f"delay is {value!r}, but must be 0 or more seconds")


@final
@attrs.define(eq=False)
class ScriptedModel:
    """A model that answers from a script, without any provider.

    ::

        model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "It is 3."])
        agent = Agent(model, tools=[add])
        await agent.prompt("What is 1 + 2?")
        model.assert_exhausted()

    Each request takes the next turn of the script, whoever makes it. A turn is

    - a string: an answer of one text block;
    - a block (``TextContent``, ``ThinkingContent``, ``ToolCall``) or a list of blocks and strings:
      an answer with these; its stop reason is ``tool_use`` if there is a call among them;
    - an ``AssistantMessage``: its content is streamed, and then it is returned as it is;
    - an exception: raised, as a model that fails does;
    - a plain or async function of the :class:`~trio_agent.ModelRequest` that gives any of these, or
      raises;
    - an async function of the request and the :class:`~trio_agent.StreamSink`: it sends the events
      itself and returns the ``AssistantMessage``.

    A request beyond the script fails with :class:`ScriptExhaustedError`, which ends the run with an
    error and is kept in :attr:`errors`, so that no test overlooks it.

    Raises:
      ScriptError: a turn is none of these; the text says which.
    """

    turns: list[Turn] = attrs.field(factory=list, converter=_checked_turns)
    """The script; :meth:`extend` makes it longer."""
    provider: str = attrs.field(default="scripted", kw_only=True)
    """Who runs the model."""
    id: str = attrs.field(default="script", kw_only=True)
    """The provider's name for the model."""
    delay: float = attrs.field(default=0.0, validator=_delay, kw_only=True)
    """Seconds on Trio's clock before each event of a turn that the model streams itself.

    Without a delay an answer has no checkpoint, except where the sink is full.
    """
    whole: bool = attrs.field(default=False, kw_only=True)
    """True sends each text and thinking in one delta; else it comes word by word."""
    thinking: str = attrs.field(default="", kw_only=True)
    """What the model thinks ahead of each answer given as text or blocks, where the request asks for thinking."""
    requests: list[ModelRequest] = attrs.field(factory=list, init=False)
    """The requests so far."""
    errors: list[TrioAgentError] = attrs.field(factory=list, init=False)
    """What was wrong with the script or its use: requests beyond its end, wrong answers of functions."""
    _taken: int = attrs.field(default=0, init=False)

    @property
    def remaining(self) -> tuple[Turn, ...]:
        """The turns that nobody asked for yet."""
        return tuple(self.turns[self._taken :])

    def extend(self, turns: Iterable[Turn]) -> None:
        """Add turns to the script.

        Raises:
          ScriptError: a turn is of no known kind; nothing is added.
        """
        self.turns.extend(_checked_turns(turns, len(self.turns) + 1))

    def assert_exhausted(self) -> None:
        """Check that the script was played to its end and not beyond.

        Raises:
          ScriptNotExhaustedError: turns are left; the text names them.
          ScriptError: the first of :attr:`errors`, if there are any.
        """
        if self.errors:
            raise self.errors[0]
        left = self.remaining
        if left:
            named = "".join(f"\n  turn {number}: {turn!r:.100}" for number, turn in enumerate(left, self._taken + 1))
            raise ScriptNotExhaustedError(
                f"{len(left)} of {len(self.turns)} turns were never asked for:{named}", len(left)
            )

    async def stream_fn(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Play the next turn. A turn that was begun counts as taken, also if it is cancelled.

        Raises:
          ScriptExhaustedError: the script holds no more turns.
          ScriptError: the turn's function gave something that is no answer.
        """
        self.requests.append(request)
        self._taken += 1
        number = self._taken
        if number > len(self.turns):
            self._taken = len(self.turns)
            last = request.messages[-1] if request.messages else None
            self.errors.append(
                ScriptExhaustedError(
                    f"request {len(self.requests)} finds no turn: the script holds {len(self.turns)}, and all "
                    f"were taken. The request ends with {last!r:.160}",
                    len(self.turns),
                )
            )
            raise self.errors[-1]
        turn = self.turns[number - 1]
        try:
            if isinstance(turn, BaseException) or not callable(turn):
                plain = _checked(turn, f"turn {number}")
            elif _wants_sink(turn):
                message = await _settled(turn(request, sink))
                if not isinstance(message, AssistantMessage):
                    raise ScriptError(
                        f"the function of turn {number} gave {message!r:.80}, but a function of request and sink "
                        "gives an AssistantMessage"
                    )
                return message
            else:
                plain = _checked(await _settled(turn(request)), f"what the function of turn {number} gave")
        except ScriptError as error:
            self.errors.append(error)
            raise
        builder = MessageBuilder(request, api="scripted")
        return await play(self._steps(plain, request), builder, sink, delay=self.delay)

    def _steps(self, turn: PlainTurn, request: ModelRequest) -> Iterable[Step]:
        if isinstance(turn, BaseException):
            return [Fail(lambda: turn)]
        if isinstance(turn, AssistantMessage):
            return [*map(self._step, turn.content), Done(turn.stop_reason, turn)]
        blocks: Sequence[Block] = [turn] if isinstance(turn, _BLOCKS) else list(turn)
        calls = any(isinstance(block, ToolCall) for block in blocks)
        if self.thinking and request.thinking_level != "off":
            blocks = [ThinkingContent(self.thinking), *blocks]
        return [*map(self._step, blocks), Done("tool_use" if calls else "stop")]

    def _step(self, block: Block) -> Step:
        if isinstance(block, str):
            return Text(self._deltas(block))
        if isinstance(block, TextContent):
            return Text(self._deltas(block.text), signature=block.text_signature)
        if isinstance(block, ThinkingContent):
            deltas = self._deltas(block.thinking)
            return Thinking(deltas, signature=block.thinking_signature, redacted=block.redacted)
        if block.arguments_error is not None:
            # Streamed as it came, so that it fails to parse as it did.
            return Call(block.id, block.name, None, [block.raw_arguments or ""])
        chunks = [json.dumps(block.arguments)]
        return Call(block.id, block.name, block.arguments, chunks, signature=block.thought_signature)

    def _deltas(self, text: str) -> list[str]:
        if self.whole:
            return [text] if text else []
        return re.findall(r"\s*\S+\s*|\s+", text)


def _wants_sink(function: Callable[..., Any]) -> bool:
    """Whether a function demands a second argument; one with a default is the function's own affair."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters) > 1


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
