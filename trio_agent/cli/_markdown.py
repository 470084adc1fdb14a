"""Markdown for a terminal, printed block by block while it comes in."""

from __future__ import annotations

from typing import ClassVar, final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text

__all__ = ["Prose", "split_finished"]

_WIDEST = 120
"""Columns: longer lines are hard to read."""
_parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")


def split_finished(text: str) -> tuple[str, str]:
    """The blocks of a text that nothing can change any more, and the last one, which may still grow."""
    starts = [token.map[0] for token in _parser.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    if len(starts) < 2:
        return "", text
    lines = text.splitlines(keepends=True)
    return "".join(lines[: starts[-1]]), "".join(lines[starts[-1] :])


class _Code(CodeBlock):
    """Code without a coloured box around it: it can be copied, and looks right on any background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True, background_color="default", padding=(0, 2))


class _Heading(Heading):
    """Headings at the left, without the box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        if self.tag == "h2":
            yield Text("")
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
        """Draw it, no wider than is good to read."""
        yield from super().__rich_console__(console, options.update(max_width=min(options.max_width, _WIDEST)))


def _keep_line_ends(token: Token) -> None:
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"
