"""The text of a page.

lxml parses: it is linear in the size of a page also where elements are nested a hundred thousand
deep (lexbor needed minutes for that, html.parser gives no recovery), and tells its events without
building a tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import final
from urllib.parse import urljoin

import trio
from lxml import etree  # type: ignore[import-untyped]  # it ships no types

__all__ = ["html_text"]

_CHUNK = 64 * 1024
_SPACE = re.compile(r"[ \t\r\n\f\v]+")
_LINES = re.compile(r"\n{3,}")

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "select", "head"})
_PARAGRAPHS = frozenset({"p", "ul", "ol", "dl", "table", "pre", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr"})
_LINE_ENDS = frozenset(
    {"div", "section", "article", "header", "footer", "nav", "main", "aside", "li", "dt", "dd", "tr", "br", "form"}
    | {"figure", "figcaption", "address", "fieldset", "option", "caption", "body", "details", "summary"}
)


def html_text(html: str, base: str) -> str:
    """What a reader would see, with links, headings and list items in the manner of Markdown.

    Blocks; for worker threads. A cut of the caller ends it.

    Args:
      html: the page.
      base: its address, for links.
    """
    target = _Text(base)
    # As bytes of a known encoding, or the page's own word about it would be believed.
    parser = etree.HTMLParser(target=target, encoding="utf-8", no_network=True, recover=True)
    data = html.replace("\0", "").encode("utf-8", "replace")
    for start in range(0, len(data), _CHUNK):
        trio.from_thread.check_cancelled()
        parser.feed(data[start : start + _CHUNK])
    try:
        parser.close()
    except etree.XMLSyntaxError:  # nothing but white space
        pass
    return target.text()


@final
class _Text:
    """What the parser tells."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._pieces: list[str] = []
        self._last = "\n"
        self._title: list[str] = []
        self._in_title = False
        self._hidden = 0
        self._pre = 0
        self._links: list[str | None] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag in _HIDDEN:
            self._hidden += 1
        if self._hidden:
            return
        self._break(tag)
        if tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._add("- ")
        elif tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._add("#" * int(tag[1]) + " ")
        elif tag in ("td", "th") and self._last not in ("\n", ""):
            self._add(" | ")
        elif tag == "img" and attributes.get("alt"):
            self.data(f"[image: {attributes['alt']}]")
        elif tag == "a":
            address = self._address(attributes.get("href"))
            self._links.append(address)
            if address is not None:
                self._add("[")

    def end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
            return
        if self._hidden:
            return
        if tag == "a" and self._links and (address := self._links.pop()) is not None:
            self._add(f"]({address})")
        elif tag == "pre":
            self._pre = max(0, self._pre - 1)
        self._break(tag)

    def data(self, text: str) -> None:
        if self._in_title:
            self._title.append(text)
        elif not self._hidden:
            if not self._pre:
                text = _SPACE.sub(" ", text)
                if self._last in (" ", "\n"):
                    text = text.removeprefix(" ")
            self._add(text)

    def comment(self, text: str) -> None:
        """Not shown."""

    def close(self) -> None:
        """The page is over."""

    def text(self) -> str:
        """All of it."""
        title = _SPACE.sub(" ", "".join(self._title)).strip()
        body = "\n".join(line.rstrip() for line in "".join(self._pieces).split("\n"))
        body = _LINES.sub("\n\n", body).strip("\n")
        return "\n\n".join(part for part in (title, body) if part)

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._last = text[-1]

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._add("\n\n")
        elif tag in _LINE_ENDS and (self._last != "\n" or tag == "br"):
            self._add("\n")

    def _address(self, href: str | None) -> str | None:
        if not href or href.startswith("#"):
            return None
        try:
            address = urljoin(self._base, href.strip())
        except ValueError:
            return None
        return address if address.startswith(("http://", "https://")) and len(address) < 2000 else None
