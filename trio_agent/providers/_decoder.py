"""What the decoders of all vendors share: pieces of a body in, steps of one answer out; no I/O.

A body is a stream of events, or one JSON document (a server that does not stream, or an error); which of
them is seen at its first byte, for the content type is missing or wrong too often.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import attrs
import jiter

from trio_agent._errors import UsageError
from trio_agent._messages import AssistantMessage, StopReason, Usage
from trio_agent._stream import MessageBuilder, ModelRequest, StreamEvent

from ._errors import ProtocolError, ProviderError, TransportError, error_from_object, error_from_response, redacted
from ._model import Prices
from ._sse import MAX_EVENT_SIZE, ServerSentEvent, ServerSentEventParser

__all__ = ["Decoder", "Steps", "count", "objects", "string", "without_surrogates"]

_MAX_ERROR_BODY = 1024 * 1024
"""How much of the body of an HTTP error is read, in bytes."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Join the halves of characters, and put U+FFFD where one has no other half.

    A half cannot be written as UTF-8, so it would make the next request, a file or a terminal fail (B69).
    """
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def string(value: object) -> str:
    """A text of a server's; what is none counts as empty."""
    return value if isinstance(value, str) else ""


def objects(value: object) -> Sequence[Mapping[str, Any]]:
    """The objects in a list of a server's; None counts as empty."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ProtocolError(f"the server sent {value!r:.80} where its API has a list")
    return [item for item in value if isinstance(item, dict)]


def _tolerantly(data: bytes) -> Any:
    """JSON that the fast parser refuses: halves of characters, raw control characters, no UTF-8."""
    return json.loads(data.decode("utf-8", "replace"), strict=False)


def count(source: object, name: str) -> int:
    """A number of tokens in an object of a server's; what is none counts as 0."""
    value = source.get(name) if isinstance(source, dict) else None
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return max(0, int(value)) if whole and value is not None else 0


class Steps:
    """The steps of the answer: a builder, the events since the last piece of the body, and held halves.

    A character outside the BMP may come as two escaped halves in two deltas. The first is held back until
    the next delta of its block, or becomes U+FFFD at the block's end.
    """

    __slots__ = ("builder", "events", "held")

    def __init__(self, builder: MessageBuilder) -> None:
        self.builder = builder
        self.events: list[StreamEvent] = []
        self.held: dict[int, str] = {}

    def _whole(self, block: int, text: str) -> str:
        text = self.held.pop(block, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self.held[block] = text[-1]
            text = text[:-1]
        return without_surrogates(text)

    def start(self) -> None:
        """The answer begins."""
        self.events.append(self.builder.start())

    def text_start(self) -> int:
        """A text block begins; its index."""
        event = self.builder.text_start()
        self.events.append(event)
        return event.index

    def text(self, block: int, text: str) -> None:
        """A text block grows."""
        if self.held or not text.isascii():
            text = self._whole(block, text)
        if text:
            self.events.append(self.builder.text_delta(text, block))

    def text_end(self, block: int) -> None:
        """A text block is complete."""
        if self.held.pop(block, ""):
            self.events.append(self.builder.text_delta("\ufffd", block))
        self.events.append(self.builder.text_end(block))

    def thinking_start(self, *, redacted: bool = False) -> int:
        """A thinking block begins; its index."""
        event = self.builder.thinking_start(redacted=redacted)
        self.events.append(event)
        return event.index

    def thinking(self, block: int, text: str) -> None:
        """A thinking block grows."""
        if self.held or not text.isascii():
            text = self._whole(block, text)
        if text:
            self.events.append(self.builder.thinking_delta(text, block))

    def thinking_end(self, block: int, signature: str | None) -> None:
        """A thinking block is complete."""
        if self.held.pop(block, ""):
            self.events.append(self.builder.thinking_delta("\ufffd", block))
        self.events.append(self.builder.thinking_end(block, signature=signature))

    def call_start(self, id: str, name: str) -> int:
        """A call begins; the index of its block."""
        event = self.builder.tool_call_start(without_surrogates(id), without_surrogates(name))
        self.events.append(event)
        return event.index

    def arguments(self, block: int, text: str) -> None:
        """The arguments of a call grow."""
        if self.held or not text.isascii():
            text = self._whole(block, text)
        if text:
            self.events.append(self.builder.tool_call_delta(text, block))

    def call_end(self, block: int, arguments: Mapping[str, Any] | None = None) -> None:
        """A call is complete."""
        if self.held.pop(block, ""):
            self.events.append(self.builder.tool_call_delta("\ufffd", block))
        self.events.append(self.builder.tool_call_end(block, arguments=arguments))


class _Body(Enum):
    UNKNOWN = auto()
    EVENTS = auto()
    DOCUMENT = auto()


class Decoder:
    """One response: the pieces of its body in, the events of one answer out.

    A vendor's class says what an event means (``_event``), what a whole document means (``_document``), and
    what is missing when the body ends (``_ended``); it calls ``_complete`` when it has seen the end of the
    answer.
    """

    api = ""

    def __init__(
        self,
        request: ModelRequest | None,
        *,
        status: int,
        headers: Mapping[str, str] | None,
        secrets: Iterable[str],
        prices: Prices | None,
    ) -> None:
        self.builder = MessageBuilder(request, api=self.api)
        self.done = False
        self.error: ProviderError | None = None
        self._steps = Steps(self.builder)
        self._prices = prices
        self._status = status
        self._headers = dict(headers or {})
        key = None if request is None else request.api_key
        self._secrets = (*secrets, key) if key else tuple(secrets)
        self._failed = not 200 <= status < 300
        self._body = _Body.DOCUMENT if self._failed else _Body.UNKNOWN
        self._parser = ServerSentEventParser()
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._halves = False  # there may be halves of characters; the fast parser takes none
        self._message: AssistantMessage | None = None

    # What a driver calls.

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next piece of the body, of any size. It raises nothing that a server can cause.

        Returns:
          the events that it completes, also those before an error.

        Raises:
          UsageError: :meth:`end` has been called.
        """
        if self._over:
            raise UsageError("the body has ended; a decoder is for one response")
        return self._run(data)

    def end(self) -> list[StreamEvent]:
        """The body is over, in order. May be left out once ``done`` is True.

        Returns:
          the last events.
        """
        self._over = True
        return self._run(None)

    def finish(self) -> AssistantMessage:
        """The final message.

        Raises:
          ProviderError: what went wrong. What had arrived is in the events, and in ``builder.snapshot()``.
          UsageError: the answer is not over, and :meth:`end` has not been called.
        """
        if self.error is not None:
            raise self.error
        if self._message is None:
            raise UsageError("the answer is not complete; feed() the rest of the body, then call end()")
        return self._message

    # Details.

    def _run(self, data: bytes | None) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        self._steps.events = events
        if not self.done:
            try:
                if data is None:
                    self._take_end()
                else:
                    self._take(data)
            except ProviderError as error:
                # Some of these quote what the server sent, which may quote the key.
                error.args = (redacted(str(error), self._secrets),)
                error.status = self._status if error.status is None else error.status
                self.error, self.done = error, True
        return events

    def _take(self, data: bytes) -> None:
        if self._body is not _Body.EVENTS:
            if self._body is _Body.UNKNOWN and (first := data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]):
                self._body = _Body.DOCUMENT if first in b"{[<" else _Body.EVENTS
            if self._body is not _Body.EVENTS:
                self._keep(data)
                return
            data = b"".join((*self._pieces, data))
        for event in self._parser.feed(data):
            self._event(event)
            if self.done:
                return

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._failed and self._size > _MAX_ERROR_BODY:
            self._pieces.append(data[: _MAX_ERROR_BODY - self._size])
            self._take_end()
        elif self._size > MAX_EVENT_SIZE:
            raise ProtocolError(f"the body is larger than {MAX_EVENT_SIZE} bytes", retryable=False)
        else:
            self._pieces.append(data)

    def _take_end(self) -> None:
        if self._body is not _Body.EVENTS:
            self._whole_body(b"".join(self._pieces))
            return
        for event in self._parser.close():
            self._event(event)
            if self.done:
                return
        self._ended()

    def _whole_body(self, body: bytes) -> None:
        if self._failed:
            raise error_from_response(self._status, self._headers, body, secrets=self._secrets)
        if not body.strip(b"\xef\xbb\xbf \t\r\n"):
            raise TransportError("the body of the answer is empty")
        document = self._parsed(body.removeprefix(b"\xef\xbb\xbf"))
        if document.get("error"):
            raise self._reported(document)
        self._document(document)

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            try:
                document = jiter.from_json(data)
            except ValueError:
                document = _tolerantly(data)
                self._halves = True
        except (ValueError, RecursionError) as error:
            shown = data[:80].decode("utf-8", "replace")
            if self._over:
                raise TransportError(f"the answer broke off inside {shown!r}") from error
            raise ProtocolError(f"the server sent {shown!r}, which is no JSON: {error}") from error
        if not isinstance(document, dict):
            raise ProtocolError(f"the server sent {document!r:.80} where its API has an object")
        return document

    def _reported(self, document: object) -> ProviderError:
        """The error that a server reports inside an answer that had begun well."""
        return error_from_object(document, status=self._status, headers=self._headers, secrets=self._secrets)

    def _reported_by(self, event: ServerSentEvent) -> ProviderError:
        """The error of an event whose name says that it is one, whatever its data."""
        try:
            return self._reported(_tolerantly(event.data))
        except (ValueError, RecursionError):
            return self._reported(event.data.decode("utf-8", "replace"))

    def _used(self, usage: Usage) -> None:
        self.builder.usage = usage if self._prices is None else self._prices.priced(usage)

    def _complete(self, stop_reason: StopReason, extra: Mapping[str, Any]) -> None:
        message = self.builder.finish(stop_reason)
        if extra and self._halves:
            extra = json.loads(without_surrogates(json.dumps(extra, ensure_ascii=False)))
        self._message = attrs.evolve(message, extra=extra) if extra else message
        self.done = True

    # What a vendor's class says.

    def _event(self, event: ServerSentEvent) -> None:
        raise NotImplementedError

    def _document(self, document: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        raise NotImplementedError
