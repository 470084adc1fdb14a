"""Text that stays, and below it a region of lines that is drawn again and again."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

__all__ = ["Screen"]

_ASCII = str.maketrans(
    {"•": "*", "…": "~", "✓": "+", "✗": "x", "·": "-", "─": "-", "━": "-", "│": "|", "▌": "|"}
    | dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*")
)


@final
class Screen:
    """Makes the bytes that draw; remembers what must be taken away before the next drawing.

    rich draws into a string, for it must not write to a terminal that may be gone or not be read.

    Args:
      encoding: the terminal's.
      live: False never moves the cursor.
    """

    def __init__(self, encoding: str | None, *, live: bool) -> None:
        self._encoding = encoding or "utf-8"
        self._file = io.StringIO()
        self._console = Console(file=self._file, force_terminal=True, highlight=False, emoji=False, markup=False)
        self._live = live
        self._widths: list[int] = []
        """How many columns each line of the region takes; the cursor stands behind the last one."""

    def draw(self, finished: Sequence[RenderableType], region: Sequence[RenderableType], columns: int, lines: int) -> bytes:
        """Take the region away, print what is finished, draw the new region."""
        out = self._erase(columns, lines) + "".join(self._render(item, columns) for item in finished)
        if self._live:
            # One column less than there is: a full line would make some terminals begin another.
            below = "".join(self._render(item, max(columns - 1, 1)) for item in region).splitlines()[: max(lines - 1, 1)]
            self._widths = [cell_len(Text.from_ansi(line).plain) for line in below]
            out += "\n".join(below)
        return self._encode(out)

    def last_lines(self, item: RenderableType, columns: int, count: int) -> RenderableType:
        """The end of what something looks like."""
        return Group(*(Text.from_ansi(line, no_wrap=True) for line in self._render(item, columns - 1).splitlines()[-count:]))

    def _erase(self, columns: int, lines: int) -> str:
        if not self._widths:
            return ""
        # A terminal that got narrower has wrapped the lines; what left the screen cannot be taken back.
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        up = min(rows, lines) - 1
        self._widths = []
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _render(self, item: RenderableType, columns: int) -> str:
        self._console.width = max(columns, 1)
        self._console.print(item, crop=True, overflow="fold")
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return text

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError:
            return text.translate(_ASCII).encode(self._encoding, "backslashreplace")
