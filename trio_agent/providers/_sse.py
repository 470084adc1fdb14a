"""Server-sent events out of bytes, piece by piece; no I/O.

The format is that of the WHATWG (HTML standard, "Server-sent events"): UTF-8, a line ends with LF, CR
or CRLF and with nothing else, so U+2028, U+0085 and others inside the data stay what they are. One
thing departs: at the end of the input an event without its blank line counts, for servers leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from ._errors import ProtocolError

__all__ = ["MAX_EVENT_SIZE", "ServerSentEvent", "ServerSentEventParser"]

MAX_EVENT_SIZE = 64 * 1024 * 1024
"""How large an event may be, in bytes. The largest that vendors send hold whole documents in base64."""

_BOM = b"\xef\xbb\xbf"


@final
@attrs.define  # not frozen: each delta of an answer makes one, which lives for a moment, and that doubles its cost
class ServerSentEvent:
    """One event. ``id`` and ``retry`` are about reconnecting, which no model stream can."""

    name: str
    """What its ``event`` field says; often nothing."""
    data: bytes
    """Its ``data`` fields, joined with LF. A whole event never ends inside a character."""


@final
class ServerSentEventParser:
    """Takes a body in pieces of any size, in time that grows with the number of bytes alone.

    Args:
      max_size: how large one event may be, in bytes.
    """

    __slots__ = ("_after_cr", "_data", "_data_size", "_head", "_line", "_line_size", "_max_size", "_name")

    def __init__(self, *, max_size: int = MAX_EVENT_SIZE) -> None:
        self._max_size = max_size
        self._head: bytes | None = b""  # the first bytes, while they may be a byte order mark
        self._after_cr = False  # a LF that comes now belongs to the CR before it
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._line_size = 0
        self._name = ""
        self._data: list[bytes] = []
        self._data_size = 0

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Take more of the body. What is not iterated over is not read.

        Yields:
          the events that it completes.

        Raises:
          ProtocolError: an event is larger than ``max_size``. Those before it were yielded.
        """
        if self._head is not None:
            self._head += data
            if _BOM.startswith(self._head) and self._head != _BOM:
                return
            data, self._head = self._head.removeprefix(_BOM), None
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF only
        last = data[-1:]
        self._after_cr = last == b"\r"
        rest = b"" if last in b"\r\n" else lines.pop()
        for line in lines:
            if self._line:
                line = b"".join((*self._line, line))
                self._line, self._line_size = [], 0
            if line:
                if len(line) > self._max_size:
                    raise self._too_large()
                field, _, value = line.partition(b":")
                if value[:1] == b" ":
                    value = value[1:]
                if field == b"data":
                    self._data.append(value)
                    self._data_size += len(value) + 1
                    if self._data_size > self._max_size:
                        raise self._too_large()
                elif field == b"event":
                    self._name = value.decode("utf-8", "replace")
                # A line without a name is a comment: keep-alives. id, retry and what nobody knows is ignored.
            elif self._data:
                event = ServerSentEvent(self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._name, self._data, self._data_size = "", [], 0
                yield event
            else:
                self._name = ""
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            if self._line_size > self._max_size:
                raise self._too_large()

    def close(self) -> Iterator[ServerSentEvent]:
        """The body is over.

        Yields:
          the last event, if its blank line is missing.
        """
        yield from self.feed(b"\n\n")

    def _too_large(self) -> ProtocolError:
        return ProtocolError(
            f"an event of the stream is larger than {self._max_size} bytes; it is not read any further", retryable=False
        )
