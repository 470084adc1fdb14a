"""A tiny writer of SVG: boxes, lines and text, in colours that follow a light or dark page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "page": "#ffffff", "text": "#1f2328", "soft": "#59636e", "line": "#59636e", "box": "#f3f5f8",
        "blue": "#0a58ca", "blue_fill": "#dbe8fd", "green": "#1a7f37", "green_fill": "#d3f3dc",
        "red": "#b3261e", "red_fill": "#fbdcd9", "amber": "#8a5a00", "amber_fill": "#fdecc8",
    },
    "dark": {
        "page": "#131416", "text": "#e3e6ea", "soft": "#a2abb6", "line": "#8b949e", "box": "#1f242b",
        "blue": "#7fb2ff", "blue_fill": "#16305a", "green": "#67d488", "green_fill": "#12402a",
        "red": "#ff9a91", "red_fill": "#571d1a", "amber": "#f0c36d", "amber_fill": "#4a3508",
    },
}  # fmt: skip
"""The page's colour is that of furo's background, so that a picture has no edge."""


class Picture:
    """What is drawn, from back to front."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self.parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str = "box", line: str = "line", dash: bool = False
    ) -> None:
        """A rectangle; ``fill`` and ``line`` are names of colours, or "none"."""
        dashes = ' stroke-dasharray="6 4"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" stroke-width="1.4"{dashes} '
            f'class="{_classes(fill, line)}"/>'
        )

    def text(
        self, x: float, y: float, text: str, *, colour: str = "text", size: int = 14, anchor: Anchor = "start",
        bold: bool = False, mono: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """One line of text; ``y`` is its base line. A halo keeps lines behind it from it."""
        weight = ' font-weight="600"' if bold else ""
        names = " ".join([f"f-{colour}", *(["m"] if mono else []), *(["halo"] if halo else [])])
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{names}" '
            f'text-anchor="{anchor}"{weight}>{escape(text, quote=False)}</text>'
        )

    def labelled(
        self, x: float, y: float, w: float, h: float, lines: list[str], *, fill: str = "box", line: str = "line"
    ) -> None:
        """A box with lines of text in its middle; a line that begins with a backtick is code."""
        self.box(x, y, w, h, fill=fill, line=line)
        first = y + h / 2 + 5 - 9 * (len(lines) - 1)
        for number, text in enumerate(lines):
            code = text.startswith("`")
            self.text(
                x + w / 2, first + 18 * number, text.strip("`"), anchor="middle", mono=code, size=13 if code else 14
            )

    def path(
        self, points: list[tuple[float, float]], *, colour: str = "line", arrow: bool = True, dash: bool = False
    ) -> None:
        """Straight lines through points, with an arrow at the end."""
        drawn = " ".join(f"{x:g},{y:g}" for x, y in points)
        end = f' marker-end="url(#{colour})"' if arrow else ""
        dashes = ' stroke-dasharray="5 4"' if dash else ""
        self.parts.append(
            f'<polyline points="{drawn}" class="{_classes("none", colour)}" stroke-width="1.6"{end}{dashes}/>'
        )

    def svg(self) -> str:
        """The whole of it."""
        width, height = self.size
        markers = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,1 L10,5 L0,9 z" class="f-{name}"/></marker>'
            for name in ("line", "blue", "green", "red", "amber")
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">\n<title>{escape(self.title)}</title>\n'
            "<style>text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}"
            ".m{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}\n"
            f"{_colours('light')}\n@media (prefers-color-scheme:dark){{{_colours('dark')}}}</style>\n"
            f'<defs>{markers}</defs>\n<rect width="{width}" height="{height}" class="f-page"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def _classes(fill: str, line: str) -> str:
    return " ".join(f"{kind}-{name}" for kind, name in (("f", fill), ("s", line)))


def _colours(theme: str) -> str:
    """The rules of a theme: ``f-NAME`` fills, ``s-NAME`` strokes."""
    named = {**THEMES[theme], "none": "none"}
    rules = [f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in named.items()]
    halo = f".halo{{stroke:{named['page']};stroke-width:5px;paint-order:stroke}}"
    return "".join([*rules, halo])
