"""What a tool shows of more than anybody wants to read: the first and the last of it."""

from __future__ import annotations

import codecs
from typing import final

__all__ = ["HeadTail", "decode_cut", "in_short", "printable"]


@final
class HeadTail:
    """Keeps the first and the last bytes of a stream, however much goes through it."""

    __slots__ = ("_head", "_head_size", "_tail", "_tail_size", "total")

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes that went through."""

    def add(self, data: bytes) -> None:
        """Take what came next."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Twice the size before it is cut, so that a byte is moved once on average.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: -self._tail_size]

    @property
    def left_out(self) -> int:
        """Bytes that :meth:`text` will not show (a few more go where a line or character is cut)."""
        return max(0, self.total - len(self._head) - min(len(self._tail), self._tail_size))

    def text(self) -> str:
        """What was kept, as text; a line in brackets says how much is missing between."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head = bytes(self._head)
        tail = bytes(self._tail[-self._tail_size :])
        # At the ends of lines, if that costs less than half of what is kept.
        if (cut := head.rfind(b"\n") + 1) > len(head) // 2:
            head = head[:cut]
        if 0 < (cut := tail.find(b"\n") + 1) < len(tail) // 2:
            tail = tail[cut:]
        before = decode_cut(head)
        skipped = 0
        while skipped < min(3, len(tail)) and tail[skipped] & 0xC0 == 0x80:
            skipped += 1
        after = tail[skipped:].decode("utf-8", "replace")
        missing = self.total - len(head) - len(tail) + skipped
        newline = "" if before.endswith("\n") or not before else "\n"
        return f"{before}{newline}[... {missing:,} bytes left out ...]\n{after}"

    def last(self, limit: int) -> str:
        """The last bytes, as text."""
        joined = bytes(self._tail[-limit:])
        if len(joined) < limit and self.total <= len(self._head) + len(self._tail):
            joined = bytes(self._head[-(limit - len(joined)) :]) + joined
        return joined.decode("utf-8", "replace")


def decode_cut(data: bytes, errors: str = "replace") -> str:
    """Text of bytes that may end in the middle of a character, which is then dropped."""
    return codecs.getincrementaldecoder("utf-8")(errors).decode(data)


def printable(name: str) -> str:
    """A file name or other short text in a form that cannot be taken for more than one line."""
    text = name.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_short(name: str, limit: int = 200) -> str:
    """What an error text says of a name that a model made up, which may be of any length."""
    text = printable(name) or "''"
    return text if len(text) <= limit else text[: limit - 3] + "..."
