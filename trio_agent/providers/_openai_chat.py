"""The response side of OpenAI's Chat Completions, and of the many servers that call themselves compatible.

Bytes in, events of one answer out; no I/O. What differs from server to server is data (:class:`ChatCompat`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, final

from trio_agent._messages import StopReason, Usage
from trio_agent._stream import ModelRequest

from ._compat import ChatCompat
from ._decoder import Decoder, count, objects, string, without_surrogates
from ._errors import ProtocolError, RefusedError, ServerError, TransportError
from ._model import Prices
from ._sse import ServerSentEvent

__all__ = ["OpenAIChatDecoder"]

_MARKS = re.compile(r'\\.|\\\Z|["{}]', re.DOTALL)


class _Call:
    """A tool call of the answer: what its server calls it, and what has come of it."""

    __slots__ = ("_closed", "_depth", "_quoted", "_rest", "_unread", "arguments", "block", "id", "index", "name")

    def __init__(self, index: int | None, id: str) -> None:
        self.index = index
        self.id = id
        self.name = ""
        self.block: int | None = None
        """Its block in the answer; None until its name has come."""
        self.arguments: list[str] = []
        self._unread = 0  # what follows is about the arguments before this one
        self._depth = 0
        self._closed = False  # an object has been closed: blanks alone are none
        self._quoted = False
        self._rest = ""  # a backslash whose character is to come

    def is_whole(self) -> bool:
        """Whether the arguments are an object that has been closed. Nothing is read twice for it."""
        text = self._rest + "".join(self.arguments[self._unread :])
        self._unread, self._rest = len(self.arguments), ""
        for mark in _MARKS.findall(text):
            if mark == '"':
                self._quoted = not self._quoted
            elif mark == "\\":
                self._rest = mark
            elif not self._quoted:
                self._depth += {"{": 1, "}": -1}.get(mark, 0)
                self._closed = self._closed or mark == "}"
        return self._depth == 0 and not self._quoted and self._closed


class _Calls:
    """Which call a delta belongs to. Ids come first, then indexes, then the order (B84, B86, B88)."""

    __slots__ = ("_by_id", "_by_index", "all")

    def __init__(self) -> None:
        self.all: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}  # of several with an index the latest

    def find(self, index: int | None, id: str, name: str, arguments: str) -> _Call:
        """The call that a delta continues, or the one that it begins."""
        known = self._known(index, id, name)
        # Continuing `{...}` with `{` makes no JSON, so this is the head of the next one.
        if known is not None and name and arguments.lstrip().startswith("{") and known.is_whole():
            known = None
        if known is not None:
            if id and not known.id:
                known.id = id
                self._by_id[id] = known
            return known
        if not id and not name and index is None and not arguments.strip():
            raise ProtocolError("the server sent an empty tool call delta before any tool call")
        call = _Call(index, id)
        self.all.append(call)
        if id:
            self._by_id[id] = call
        if index is not None:
            self._by_index[index] = call
        return call

    def _known(self, index: int | None, id: str, name: str) -> _Call | None:
        at = None if index is None else self._by_index.get(index)
        if id:
            call = self._by_id.get(id)
            if call is None:
                # Heads may share an index, but an id can come behind the name it belongs to.
                return at if at is not None and not at.id and (not name or name == at.name) else None
            # The same id at another index, with a name: another call that was given the same id.
            return None if name and index is not None and call.index not in (None, index) else call
        if at is not None:
            return None if name and at.name and name != at.name else at
        if name:
            return None
        # An index that grows wrongly, or none: the latest call goes on.
        return self.all[-1] if self.all else None


@final
class OpenAIChatDecoder(Decoder):
    """Decodes one response of Chat Completions: a stream of chunks, a whole completion, or an error.

    ``feed()`` it the body, call ``end()``, then ``finish()``. It does no I/O and may be used from anywhere.
    Of several choices the first (index 0) is the answer. Lone halves of characters become U+FFFD.

    A refusal in words (``delta.refusal``) is the answer's text, and marked by ``extra["refusal"]`` of the
    final message. ``extra`` holds too, where they came: ``reasoningDetails`` (merged by their index, with
    signatures and encrypted parts), ``annotations`` (citations), and ``parts`` (parts of the content that
    are neither text nor thinking).

    Attributes:
      builder: what the events refer to; ``builder.snapshot()`` is what has arrived so far.
      done: True once the answer is complete or has failed: nothing more need be read.
      error: what :meth:`finish` raises, once it is known; else None.

    Args:
      request: what was asked; names model and provider, and the key that errors must not show.
      status: the HTTP status.
      headers: the HTTP headers, for errors.
      compat: how the server departs from OpenAI's.
      secrets: further texts that errors must not show.
      prices: what the model costs; usage then has a ``cost``.
    """

    api = "openai-chat"

    def __init__(
        self,
        request: ModelRequest | None = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        compat: ChatCompat | None = None,
        secrets: Iterable[str] = (),
        prices: Prices | None = None,
    ) -> None:
        super().__init__(request, status=status, headers=headers, secrets=secrets, prices=prices)
        self._compat = ChatCompat() if compat is None else compat
        self._started = False
        self._open: tuple[str, int] | None = None  # the text or thinking that goes on: its field, its block
        self._calls = _Calls()
        self._usage: dict[str, Any] = {}
        self._refusal: list[str] = []
        self._details: list[Mapping[str, Any]] = []
        self._kept: dict[str, list[Any]] = {}

    # What arrives.

    def _event(self, event: ServerSentEvent) -> None:
        data = event.data.strip()
        if data == b"[DONE]":
            self._finished(done_seen=True)
        elif event.name == "error":
            raise self._reported_by(event)
        elif data:
            chunk = self._parsed(data)
            self._chunk(chunk)
            if chunk.get("error") or chunk.get("object") == "error":  # vLLM has the fields of the error beside it
                raise self._reported(chunk)

    def _document(self, document: Mapping[str, Any]) -> None:
        if document.get("object") == "error":
            raise self._reported(document)
        if not isinstance(document.get("choices"), list):
            raise ProtocolError(f"the server sent {document!r:.200}, which is no chat completion")
        self._chunk(document)
        self._finished(done_seen=True)

    def _ended(self) -> None:
        self._finished(done_seen=False)

    def _chunk(self, chunk: Mapping[str, Any]) -> None:
        builder = self.builder
        if not builder.response_id:
            builder.response_id = without_surrogates(string(chunk.get("id"))) or None
        if not builder.model:
            builder.model = without_surrogates(string(chunk.get("model")))
        choices = objects(chunk.get("choices"))
        if not self._started and (choices or not chunk.get("error")):
            self._started = True
            self._steps.start()
        if usage := chunk.get("usage"):
            self._count(usage)
        groq = chunk.get("x_groq")
        if isinstance(groq, dict) and not self._usage:
            self._count(groq.get("usage"))
        for choice in choices:
            if choice.get("index") not in (0, None):
                continue
            if usage := choice.get("usage"):
                self._count(usage)
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                self._delta(delta)
            if reason := choice.get("finish_reason"):
                self._reason(string(reason))

    def _reason(self, reason: str) -> None:
        # OpenRouter says it twice. A plain stop is overruled by whatever comes later, and overrules nothing.
        if reason and self.builder.raw_stop_reason in (None, "stop"):
            self.builder.raw_stop_reason = without_surrogates(reason)

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for field in self._compat.thinking_fields:
            if field in delta and (text := _thinking(delta[field])):
                self._say(field, text)
                break
        if "reasoning_details" in delta:
            self._details.extend(objects(delta["reasoning_details"]))
        content = delta.get("content")
        if isinstance(content, str):
            self._say("content", content)
        elif content:
            self._parts(objects(content))
        if "refusal" in delta and (refusal := string(delta["refusal"])):
            self._refusal.append(refusal)
            self._say("content", refusal)
        if delta.get("annotations"):
            self._kept.setdefault("annotations", []).extend(objects(delta["annotations"]))
        if "tool_calls" in delta:
            for call in objects(delta["tool_calls"]):
                self._call(call)

    def _parts(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Content as a list (Mistral)."""
        for part in parts:
            if part.get("type") == "thinking":
                self._say("thinking", _thinking(part.get("thinking")))
            elif isinstance(part.get("text"), str):
                self._say("content", part["text"])
            else:
                self._kept.setdefault("parts", []).append(part)

    def _say(self, field: str, text: str) -> None:
        """Text or thinking goes on; with another kind than before a new block begins."""
        if not text:
            return
        steps, as_text = self._steps, field == "content"
        if self._open is None or (self._open[0] == "content") != as_text:
            self._close()
            self._open = (field, steps.text_start() if as_text else steps.thinking_start())
        if as_text:
            steps.text(self._open[1], text)
        else:
            steps.thinking(self._open[1], text)

    def _close(self) -> None:
        if self._open is not None:
            field, block = self._open
            self._open = None
            if field == "content":
                self._steps.text_end(block)
            else:
                self._steps.thinking_end(block, field)

    def _call(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        index = delta.get("index")
        name = string(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # as an object, not as its text (Ollama's own API, some gateways)
            arguments = json.dumps(arguments)
        arguments = string(arguments)
        call = self._calls.find(index if type(index) is int else None, string(delta.get("id")), name, arguments)
        if not call.name:
            call.name = name
        if arguments:
            call.arguments.append(arguments)
        if call.block is not None:
            self._steps.arguments(call.block, arguments)
        elif call.name:
            self._begin(call)

    def _begin(self, call: _Call) -> None:
        """Tell of a call, once its name is known."""
        self._close()
        call.block = self._steps.call_start(call.id, call.name)
        for arguments in call.arguments:
            self._steps.arguments(call.block, arguments)

    def _count(self, usage: object) -> None:
        """Usage comes at any place and more than once; what a later one leaves out stays."""
        if isinstance(usage, dict) and usage:
            self._usage.update((name, value) for name, value in usage.items() if value is not None)
            self._used(chat_usage(self._usage))

    # How it ends.

    def _finished(self, *, done_seen: bool) -> None:
        raw = self.builder.raw_stop_reason
        if raw is None and not (done_seen and self._started and not self._compat.finish_reason_required):
            if done_seen:
                raise TransportError(
                    "the answer ended without a finish reason, so it may be cut off; if this server never"
                    " sends one, say so with ChatCompat(finish_reason_required=False)"
                )
            raise TransportError("the answer broke off: its body ended without a finish reason")
        meaning = "stop" if raw is None else self._compat.finish_reasons.get(raw)
        if meaning is None:
            raise ProtocolError(
                f"the finish reason {raw!r} is unknown; say what it means in ChatCompat(finish_reasons=...)",
                retryable=False,
            )
        if meaning == "refused":
            raise RefusedError(f"the provider's filter stopped the answer (finish reason {raw!r})")
        if meaning == "error":
            raise ServerError(f"the server failed while it answered (finish reason {raw!r})")
        self._close()
        for call in self._calls.all:
            if call.block is None:  # it never got a name: the loop answers that there is no such tool
                self._begin(call)
            assert call.block is not None
            self._steps.call_end(call.block)
        stop: StopReason = meaning
        if stop != "length":  # several servers say stop although there are calls
            stop = "tool_use" if self._calls.all else "stop"
        self._complete(stop, self._extra())

    def _extra(self) -> Mapping[str, Any]:
        extra: dict[str, Any] = dict(self._kept)
        if self._refusal:
            extra["refusal"] = "".join(self._refusal)
        if self._details:
            extra["reasoningDetails"] = _merged(self._details)
        return extra


def chat_usage(usage: Mapping[str, Any]) -> Usage:
    """Usage of Chat Completions. Its prompt tokens hold those of the cache, ours do not."""
    prompt, output = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    asked, answered = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    # prompt_cache_hit_tokens: DeepSeek, older than the details.
    read = min(prompt, count(asked, "cached_tokens") or count(usage, "prompt_cache_hit_tokens"))
    write = min(prompt - read, count(asked, "cache_write_tokens"))
    told = isinstance(answered, dict) and answered.get("reasoning_tokens") is not None
    reasoning = count(answered, "reasoning_tokens")
    if reasoning and count(usage, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # xAI leaves thinking out of the completion, as its total shows
    return Usage(
        input=prompt - read - write,
        output=output,
        cache_read=read,
        cache_write=write,
        reasoning=reasoning if told else None,
        total_tokens=prompt + output,
    )


def _thinking(value: object) -> str:
    """The words of thinking: a text, or a list of parts with ``text``, ``summary`` or ``thinking``."""
    if not isinstance(value, list):
        return string(value)
    texts = (part.get("text") or part.get("summary") or part.get("thinking") for part in objects(value))
    return "".join(map(string, texts))


def _merged(details: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The deltas of ``reasoning_details`` as whole details, as OpenRouter wants them back."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    pieces: dict[tuple[Any, ...], dict[str, list[str]]] = {}
    for detail in details:
        key = (str(detail.get("index")), str(detail.get("type")))
        whole = merged.setdefault(key, {})
        for name, value in detail.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                pieces.setdefault(key, {}).setdefault(name, []).append(value)
            elif value is not None or name not in whole:
                whole[name] = value
    for key, texts in pieces.items():
        merged[key].update((name, "".join(parts)) for name, parts in texts.items())
    return list(merged.values())
