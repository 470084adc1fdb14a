"""The response side of Anthropic's Messages; bytes in, events of one answer out; no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, final

import attrs

from trio_agent._messages import StopReason, Usage
from trio_agent._stream import ModelRequest

from ._decoder import Decoder, count, objects, string, without_surrogates
from ._errors import ProtocolError, RefusedError, TransportError, redacted
from ._model import Prices
from ._sse import ServerSentEvent

__all__ = ["AnthropicMessagesDecoder"]

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",  # the server's own tools need another request: the host resumes, as in pi
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
}


class _Block:
    """A block of the vendor's content that has not ended."""

    __slots__ = ("began", "block", "grew", "kind", "pieces")

    def __init__(self, kind: str, block: int, began: Mapping[str, Any]) -> None:
        self.kind = kind
        self.block = block
        """The index of its block in the answer; of one that is passed through, how many stand before it."""
        self.began = began
        self.grew = False
        self.pieces: dict[str, list[str]] = {}
        """What its deltas said besides text: signatures; all that they said, if it is passed through."""

    def add(self, name: str, text: str) -> None:
        self.pieces.setdefault(name, []).append(text)

    def joined(self, name: str) -> str:
        return "".join((string(self.began.get(name)), *self.pieces.get(name, ())))


@final
class AnthropicMessagesDecoder(Decoder):
    """Decodes one response of Anthropic's Messages: a stream of events, a whole message, or an error.

    ``feed()`` it the body, call ``end()``, then ``finish()``. It does no I/O and may be used from anywhere.
    Events, blocks and deltas of unknown type are no errors. Lone halves of characters become U+FFFD.

    An answer holds text, thinking and tool calls. Every other block (a server's own tool call and its
    result, a compaction, what is new) is passed through: ``extra["serverBlocks"]`` of the final message
    lists ``{"before": N, "block": {...}}``, where N is the index in ``content`` that it stands before.
    ``extra["citations"]`` lists ``{"of": N, "citation": {...}}`` for texts with sources, and
    ``extra["stopDetails"]``, ``extra["stopSequence"]`` say more of the stop reason.

    ``pause_turn`` counts as ``stop``, with the raw reason kept; ``refusal`` raises `RefusedError`.

    Attributes:
      builder: what the events refer to; ``builder.snapshot()`` is what has arrived so far.
      done: True once the answer is complete or has failed: nothing more need be read.
      error: what :meth:`finish` raises, once it is known; else None.

    Args:
      request: what was asked; names model and provider, and the key that errors must not show.
      status: the HTTP status.
      headers: the HTTP headers, for errors.
      secrets: further texts that errors must not show.
      prices: what the model costs; usage then has a ``cost``.
    """

    api = "anthropic-messages"

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        prices: Prices | None = None,
    ) -> None:
        super().__init__(request, status=status, headers=headers, secrets=secrets, prices=prices)
        self._started = False
        self._blocks: dict[int, _Block] = {}
        self._count = 0  # blocks of the answer so far
        self._usage: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}

    # What arrives.

    def _event(self, event: ServerSentEvent) -> None:
        if event.name == "error":
            raise self._reported_by(event)
        data = event.data.strip()
        if not data or data == b"[DONE]":  # some gateways add OpenAI's marker
            return
        document = self._parsed(data)
        match document.get("type") or event.name:
            case "content_block_delta":
                self._delta(self._known(document), _object(document, "delta"))
            case "content_block_start":
                self._begin(_index(document), _object(document, "content_block"))
            case "content_block_stop":
                self._end(_index(document))
            case "message_start":
                self._start(_object(document, "message"))
            case "message_delta":
                self._message_delta(_object(document, "delta"), document.get("usage"))
            case "message_stop":
                self._finished()
            case "error":
                raise self._reported(document)

    def _document(self, document: Mapping[str, Any]) -> None:
        if not isinstance(document.get("content"), list):
            raise ProtocolError(f"the server sent {document!r:.200}, which is no message")
        self._start(document)
        for index, block in enumerate(objects(document["content"])):
            self._begin(index, block)
            self._end(index)
        self._message_delta(document, None)
        self._finished()

    def _ended(self) -> None:
        raise TransportError("the answer broke off: its body ended before message_stop")

    def _start(self, message: Mapping[str, Any]) -> None:
        if self._started:
            raise ProtocolError("the server began its answer twice")
        self._started = True
        self.builder.response_id = without_surrogates(string(message.get("id"))) or None
        if not self.builder.model:
            self.builder.model = without_surrogates(string(message.get("model")))
        self._counted(message.get("usage"))
        self._steps.start()

    def _begin(self, index: int, block: Mapping[str, Any]) -> None:
        if index in self._blocks:
            raise ProtocolError(f"the server began block {index} again before its end")
        if not self._started:
            raise ProtocolError("the server sent a block before message_start")
        steps = self._steps
        kind = string(block.get("type"))
        opened = _Block(kind, self._count, block)
        match kind:
            case "text":
                steps.text_start()
                steps.text(opened.block, string(block.get("text")))
                for citation in objects(block.get("citations")):
                    self._cite(opened.block, citation)
            case "thinking":
                steps.thinking_start()
                steps.thinking(opened.block, string(block.get("thinking")))
            case "redacted_thinking":
                steps.thinking_start(redacted=True)
            case "tool_use":
                steps.call_start(string(block.get("id")), string(block.get("name")))
            case _:
                self._count -= 1
                blocks = self._extra.setdefault("serverBlocks", [])
                blocks.append({"before": opened.block, "block": dict(block)})
                opened.began = blocks[-1]["block"]
        self._count += 1
        self._blocks[index] = opened

    def _known(self, document: Mapping[str, Any]) -> _Block:
        index = document.get("index")
        block = self._blocks.get(index if type(index) is int else _index(document))
        if block is None:
            raise ProtocolError(f"the server sent a delta for block {document.get('index')!r}, which is not open")
        return block

    def _delta(self, block: _Block, delta: Mapping[str, Any]) -> None:
        kind = block.kind
        match delta.get("type"):
            case "text_delta" if kind == "text":
                self._steps.text(block.block, string(delta.get("text")))
            case "input_json_delta" if kind == "tool_use":
                text = string(delta.get("partial_json"))
                block.grew = block.grew or bool(text)
                self._steps.arguments(block.block, text)
            case "thinking_delta" if kind == "thinking":
                self._steps.thinking(block.block, string(delta.get("thinking")))
            case "signature_delta" if kind == "thinking":
                block.add("signature", string(delta.get("signature")))
            case "citations_delta" if kind == "text":
                self._cite(block.block, delta.get("citation"))
            case _ if kind in ("text", "tool_use", "thinking", "redacted_thinking"):
                pass  # of a type that is not known yet
            case _:
                for name, value in delta.items():
                    if name != "type" and isinstance(value, str):
                        block.add(name, value)

    def _end(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            raise ProtocolError(f"the server ended block {index}, which is not open")
        match block.kind:
            case "text":
                self._steps.text_end(block.block)
            case "thinking":
                self._steps.thinking_end(block.block, block.joined("signature") or None)
            case "redacted_thinking":
                self._steps.thinking_end(block.block, string(block.began.get("data")))
            case "tool_use":
                given = block.began.get("input")  # whole, from servers that send no deltas of it
                self._steps.call_end(block.block, None if block.grew or not isinstance(given, dict) else given)
            case _:
                self._pass_through(block)

    def _pass_through(self, block: _Block) -> None:
        """Put what the deltas said into the block, as the official SDK does."""
        assert isinstance(block.began, dict)
        for name in block.pieces:
            text = block.joined(name)
            if name != "partial_json":
                block.began[name] = text
            elif text.strip():
                try:
                    block.began["input"] = json.loads(text, strict=False)
                except ValueError:
                    block.began["input"] = text

    def _cite(self, block: int, citation: object) -> None:
        self._extra.setdefault("citations", []).append({"of": block, "citation": citation})

    def _message_delta(self, delta: Mapping[str, Any], usage: object) -> None:
        self._counted(usage)
        if reason := string(delta.get("stop_reason")):
            self.builder.raw_stop_reason = without_surrogates(reason)
        for key, name in (("stop_sequence", "stopSequence"), ("stop_details", "stopDetails")):
            if delta.get(key) is not None:
                self._extra[name] = delta[key]

    def _counted(self, usage: object) -> None:
        """Usage comes at both ends; what the later one leaves out stays (B83)."""
        if isinstance(usage, dict) and usage:
            self._usage.update((name, value) for name, value in usage.items() if value is not None)
            self._used(messages_usage(self._usage))

    # How it ends.

    def _finished(self) -> None:
        if not self._started:
            raise ProtocolError("the server ended its answer before it began")
        raw = self.builder.raw_stop_reason
        if raw is None:
            raise ProtocolError("the answer ended without a stop reason, so it may be cut off")
        if raw == "refusal":
            details = self._extra.get("stopDetails")
            text = string(details.get("explanation")) if isinstance(details, dict) else ""
            raise RefusedError(
                "the model refused to go on" + (f": {text}" if text else ""),
                provider_text=redacted(text, self._secrets),
            )
        reason = _STOP_REASONS.get(raw)
        if reason is None:
            raise ProtocolError(f"the stop reason {raw!r} is unknown to this version of trio_agent", retryable=False)
        for index in list(self._blocks):
            self._end(index)
        self._complete(reason, self._extra)


def messages_usage(usage: Mapping[str, Any]) -> Usage:
    """Usage of Messages; its input tokens are those that no cache served."""
    details = usage.get("output_tokens_details")
    told = isinstance(details, dict) and details.get("thinking_tokens") is not None
    answer = Usage(
        input=count(usage, "input_tokens"),
        output=count(usage, "output_tokens"),
        cache_read=count(usage, "cache_read_input_tokens"),
        cache_write=count(usage, "cache_creation_input_tokens"),
        reasoning=count(details, "thinking_tokens") if told else None,
    )
    total = answer.input + answer.output + answer.cache_read + answer.cache_write
    return attrs.evolve(answer, total_tokens=total)


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, dict):
        raise ProtocolError(f"the server sent {document!r:.80} without {name!r}")
    return found


def _index(document: Mapping[str, Any]) -> int:
    index = document.get("index")
    if type(index) is not int:
        raise ProtocolError(f"the server sent {document!r:.80} without the index of its block")
    return index
