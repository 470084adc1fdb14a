"""Text that stays, and below it a region of lines that is drawn again and again."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.theme import Theme

__all__ = ["Screen"]

_ASCII = str.maketrans(
    {"•": "*", "…": "~", "✓": "+", "✗": "x", "·": "-", "─": "-", "━": "-", "│": "|", "▌": "|"}
    | dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*")
)

_SPACES = re.compile(r" +((?:\x1b\[[\d;]*m)*)$")
# rich's own has black behind code, which is ugly where the background is light.
_THEME = Theme({"markdown.code": "cyan"})


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
        self._console = Console(
            file=self._file, force_terminal=True, highlight=False, emoji=False, markup=False, theme=_THEME
        )
        self._live = live
        self._widths: list[int] = []
        """How many columns each line of the region takes; the cursor stands before the last one."""

    def draw(
        self, finished: Sequence[RenderableType], region: Sequence[RenderableType], columns: int, lines: int
    ) -> bytes:
        """Take the region away, print what is finished, draw the new region."""
        above = [line for item in finished for line in _lines(self._render(item, columns))]
        below: list[str] = []
        if self._live:
            # One column less than there is: a full line would make some terminals begin another.
            below = [line for item in region for line in _lines(self._render(item, columns - 1))][: max(lines - 1, 1)]
        if not self._widths:
            out = "".join(f"{line}\n" for line in above) + "\n".join(below)
        else:
            # Line by line over what is there, so that nothing flickers.
            out = self._to_top(columns, lines) + "".join(f"\x1b[K{line}\n" for line in above)
            out += "\n".join(f"\x1b[K{line}" for line in below) + "\x1b[J"
        # Keys that are pressed show up at the cursor: behind a long line they would begin another one.
        out += "\r" if below else ""
        self._widths = [cell_len(Text.from_ansi(line).plain) for line in below]
        return self._encode(out)

    def last_lines(self, item: RenderableType, columns: int, count: int) -> RenderableType:
        """The end of what something looks like."""
        shown = _lines(self._render(item, columns - 1))[-count:]
        return Group(*(Text.from_ansi(line, no_wrap=True) for line in shown))

    def _to_top(self, columns: int, lines: int) -> str:
        """Go to the beginning of the region."""
        # A terminal that got narrower has wrapped the lines; what left the screen cannot be taken back.
        up = min(sum(max(1, -(-width // columns)) for width in self._widths[:-1]), lines - 1)
        return "\r" + (f"\x1b[{up}A" if up > 0 else "")

    def _render(self, item: RenderableType, columns: int) -> str:
        self._console.width = max(columns, 1)
        # In a group, for rich joins texts that stand alone and forgets how each is to be cut.
        self._console.print(Group(item))
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return text

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError:
            return text.translate(_ASCII).encode(self._encoding, "backslashreplace")


def _lines(text: str) -> list[str]:
    """The lines of what rich made; only a newline ends one.

    rich fills them up with spaces, which would be copied, and wrapped when the terminal gets narrower.
    """
    return [_SPACES.sub(r"\1", line) for line in text.removesuffix("\n").split("\n")] if text else []
