"""Markdown for a terminal, printed block by block while it comes in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax

__all__ = ["Prose", "split_blocks"]

_WIDEST = 120
"""Columns: longer lines are hard to read."""
_parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")


def split_blocks(text: str) -> list[str]:
    """The blocks of a text: paragraphs, lists, code and so on. Only the last one may still grow."""
    starts = [token.map[0] for token in _parser.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    lines = text.split("\n")
    ends = [*starts[1:], len(lines)]
    # What stands before the first block is blank, or defines links.
    return ["\n".join(lines[start:end]) for start, end in zip([0, *starts[1:]], ends, strict=True)] if starts else []


class _Code(CodeBlock):
    """Code without a coloured box around it: it can be copied, and looks right on any background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, background_color="default", padding=(0, 2)
        )


class _Heading(Heading):
    """Headings at the left, without the box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


@final
class Prose(Markdown):
    """Markdown as a model writes it: its line ends count, links show where they lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
        for token in self.parsed:
            _keep_line_ends(token)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it, no wider than is good to read, without blank lines around it."""
        narrow = options.update(max_width=min(options.max_width, _WIDEST), height=None)
        kept = list(Segment.split_lines(self._segments(console, narrow)))
        while kept and _is_blank(kept[-1]):
            kept.pop()
        while kept and _is_blank(kept[0]):
            del kept[0]
        for line in kept:
            yield from line
            yield Segment.line()

    def _segments(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for part in super().__rich_console__(console, options):
            yield from [part] if isinstance(part, Segment) else console.render(part, options)


def _is_blank(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)


def _keep_line_ends(token: Token) -> None:
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"
