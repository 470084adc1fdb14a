"""Fetching pages."""

from __future__ import annotations

import codecs
import re
import ssl
import zlib
from collections.abc import Iterable
from typing import Annotated, Any, final

import attrs
import httpcore
import httpx  # noqa: ASYNC127 - what the library is specified with
import trio
from msgspec import Meta

from trio_agent._tool import Tool, ToolResult, tool

from ._html import html_text
from ._network import CheckedTransport, FetchError, Networks, parse_networks
from ._output import in_short

__all__ = ["fetch_url"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOOK = 1024
_MAX_URL = 8000
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml|toml|javascript|ecmascript)"
    r"|application/(x-(ndjson|yaml|javascript|sh|toml)|json-seq|ndjson|sql|graphql|rtf|x-www-form-urlencoded)"
    r"|image/svg\+xml|message/.*"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,500}?charset|\?xml\b[^>]{0,200}?encoding)\s{0,9}=\s{0,9}["']?([\w.:-]{1,40})""", re.IGNORECASE
)
# What browsers know. Python has codecs beside these that are no encodings of text, or slow on purpose.
_ENCODINGS = re.compile(
    r"utf-8|utf-16(-le|-be)?|iso8859-\d+|cp(125\d|866|874|932|949)|koi8-[ru]|mac-(roman|cyrillic)"
    r"|gbk|gb2312|gb18030|big5|euc_jp|iso2022_jp|shift_jis|euc_kr"
)


@final
@attrs.frozen
class _Limits:
    allowed: Networks
    max_bytes: int
    max_shown: int
    max_lines: int
    max_redirects: int
    user_agent: str


@final
@attrs.frozen
class _Page:
    url: str
    status: int
    reason: str
    kind: str
    charset: str | None
    body: bytes
    cut: bool
    redirects: int


def fetch_url(
    *,
    name: str = "fetch_url",
    time_limit: float = 30.0,
    max_bytes: int = 2_000_000,
    max_shown: int = 50_000,
    max_lines: int = 2000,
    max_redirects: int = 5,
    allow_networks: Iterable[str] = (),
    user_agent: str = "trio_agent",
    ssl_context: ssl.SSLContext | None = None,
) -> Tool:
    """Make a tool that fetches a page over HTTP and shows its text.

    Only ``http`` and ``https``. An address that is private, loopback, link-local, multicast,
    reserved or otherwise not public is refused (IPv4, IPv6, and one inside of the other), unless
    the host allows it. What is judged is the address that the connection goes to, at the first
    request and at each redirect, so that names which change their meaning do not help. A redirect from
    ``https`` to ``http`` is refused, as is a URL with a password in it. Proxies and other settings
    in environment variables are not used.

    HTML is shown as text with links; other text as it is; anything else is an error result that
    says what it is, and its body is not read. A status of 400 and above is an error result
    with the text that came. A cancellation closes the connection; the server may have answered
    the request nevertheless. The name is looked up in a thread of Trio's that a cancellation abandons.

    Args:
      name: what the model calls the tool.
      time_limit: seconds that a call may take, with all its redirects.
      max_bytes: bytes of the page, uncompressed, that are read; of a longer one the beginning is shown.
      max_shown: bytes of text that one call shows at most; the result says where to go on.
      max_lines: lines of text that one call shows at most.
      max_redirects: redirects that are followed.
      allow_networks: networks that may be connected to although they are not public, such as
        ``"127.0.0.0/8"``.
      user_agent: what the tool calls itself.
      ssl_context: how certificates are verified; by default against those that certifi ships.

    Raises:
      ValueError: an entry of ``allow_networks`` is no network.
    """
    limits = _Limits(parse_networks(allow_networks), max_bytes, max_shown, max_lines, max_redirects, user_agent)
    contexts = [] if ssl_context is None else [ssl_context]

    @tool(
        name=name,
        description=(
            "Fetch a page by its http or https URL and show its text. Only text is shown, and only hosts on the "
            f"public internet are asked. At most {max_shown:,} bytes are shown; the result says with which offset "
            f"to go on. It may take {time_limit:g} seconds."
        ),
    )
    async def fetch(
        url: Annotated[str, Meta(description="the URL")],
        offset: Annotated[int, Meta(ge=0, description="characters of the text to pass over")] = 0,
    ) -> ToolResult:
        if not contexts:  # reads files, for 20 ms, once
            contexts.append(await trio.to_thread.run_sync(_default_context))
        with trio.move_on_after(time_limit):
            page = await _fetch(url, contexts[0], limits)
            text = await trio.to_thread.run_sync(_text, page)
            return _result(page, text, offset, limits)
        raise FetchError(f"{in_short(url)} took longer than {time_limit:g} seconds")

    return fetch


def _default_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


async def _fetch(url: str, context: ssl.SSLContext, limits: _Limits) -> _Page:
    headers = {"User-Agent": limits.user_agent, "Accept": "text/html, text/*;q=0.9, */*;q=0.5"}
    headers["Accept-Encoding"] = "gzip, deflate"
    transport = CheckedTransport(context, limits.allowed)
    here = _parse(url)
    try:
        async with httpx.AsyncClient(
            transport=transport,
            headers=headers,
            timeout=None,  # noqa: S113 - the caller's scope is the limit
            trust_env=False,
        ) as client:
            for redirects in range(limits.max_redirects + 1):
                async with client.stream("GET", here) as response:
                    if response.status_code not in _REDIRECTS or "location" not in response.headers:
                        return await _read(response, limits.max_bytes, redirects)
                    here = _next(here, response.headers["location"])
    except (httpx.HTTPError, httpx.InvalidURL, *_CORE_ERRORS) as error:
        raise FetchError(f"{in_short(str(here))} cannot be fetched: {in_short(_said(error))}") from error
    raise FetchError(f"{in_short(url)} leads to more than {limits.max_redirects} redirects")


_CORE_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol)


def _said(error: BaseException) -> str:
    """The first word in a chain of causes: httpcore's own errors of TLS are empty."""
    cause: BaseException | None = error
    while cause is not None:
        if str(cause):
            return str(cause)
        cause = cause.__cause__ or cause.__context__  # httpcore's pool raises "from None"
    return type(error).__name__


def _parse(text: str) -> httpx.URL:
    if len(text) > _MAX_URL:
        raise FetchError(f"a URL may have {_MAX_URL:,} characters; this one has {len(text):,}")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchError(f"{in_short(text)} is no URL: {error}") from error
    return _check(url)


def _next(here: httpx.URL, location: str) -> httpx.URL:
    try:
        url = here.join(location)
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchError(
            f"{in_short(str(here))} redirects to {in_short(location)}, which is no URL: {error}"
        ) from error
    if here.scheme == "https" and url.scheme == "http":
        raise FetchError(f"{in_short(str(here))} redirects from https to http, to {in_short(str(url))}")
    return _check(url, f" ({in_short(str(here))} redirects there)")


def _check(url: httpx.URL, why: str = "") -> httpx.URL:
    if url.scheme not in ("http", "https"):
        raise FetchError(f"only http and https URLs are fetched, not {in_short(str(url))}{why}")
    if not url.host:
        raise FetchError(f"{in_short(str(url))} names no host{why}")
    if url.userinfo:
        raise FetchError(f"a URL with a user or password in it is not fetched{why}")
    return url


async def _read(response: httpx.Response, max_bytes: int, redirects: int) -> _Page:
    content_type = response.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind and not _TEXT.fullmatch(kind) and kind not in _HTML:
        size = response.headers.get("content-length", "")
        size = f", {int(size):,} bytes" if size.isascii() and size.isdigit() and len(size) < 20 else ""
        raise FetchError(f"{in_short(str(response.url))} is {in_short(kind, 80)}{size}; only text is shown")
    inflate = _inflater(response)
    body = bytearray()
    came = 0
    cut = False
    broken: zlib.error | None = None
    # Leaving the loop would abandon the generators below it, one per layer; the cancelled scope
    # unwinds them, and httpcore then closes the connection.
    with trio.CancelScope() as scope:
        async for data in response.aiter_raw():
            if cut or broken:
                continue
            came += len(data)
            try:
                body += data if inflate is None else inflate.decompress(data, max_bytes + 1 - len(body))
            except zlib.error as error:
                broken = error
                scope.cancel(reason="what comes cannot be read")
            if len(body) > max_bytes or came > max_bytes:
                cut = True
                scope.cancel(reason="enough of the page was read")
    if broken is not None:
        raise FetchError(f"{in_short(str(response.url))} is compressed badly: {broken}") from broken
    if not kind and b"\0" in body[:_LOOK] and not body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise FetchError(f"{in_short(str(response.url))} is binary data of no stated type; only text is shown")
    return _Page(
        str(response.url),
        response.status_code,
        response.reason_phrase,
        kind or ("text/html" if body[:_LOOK].lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")) else ""),
        response.charset_encoding,
        bytes(body[:max_bytes]),
        cut,
        redirects,
    )


def _inflater(response: httpx.Response) -> Any:
    # Not httpx's own: it makes a gigabyte of a megabyte before anybody can say stop.
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(32 + zlib.MAX_WBITS)
    raise FetchError(
        f"{in_short(str(response.url))} is compressed with {in_short(coding, 40)}, which was not asked for"
    )


def _text(page: _Page) -> str:
    text = _decode(page)
    return html_text(text, page.url) if page.kind in _HTML else text.replace("\r\n", "\n")


def _decode(page: _Page) -> str:
    for mark, encoding in _MARKS:
        if page.body.startswith(mark):
            return page.body[len(mark) :].decode(encoding, "replace")
    named = _encoding(page.charset)
    if named is None and (page.kind in _HTML or page.kind.endswith("xml")):
        declared = _DECLARED.search(page.body[:_LOOK])
        named = None if declared is None else _encoding(declared[1].decode("ascii", "replace"))
        if named is not None and named.startswith("utf-16"):
            named = "utf-8"  # as browsers do: it could not have been read so far
    if named is not None:
        return page.body.decode(named, "replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(page.body, final=not page.cut)
    except UnicodeDecodeError:
        return page.body.decode("cp1252", "replace")


def _encoding(label: str | None) -> str | None:
    try:
        found = codecs.lookup(label or "").name
    except (LookupError, ValueError):
        return None
    if found in ("ascii", "iso8859-1"):
        return "cp1252"  # as browsers do
    return found if _ENCODINGS.fullmatch(found) else None


def _result(page: _Page, text: str, offset: int, limits: _Limits) -> ToolResult:
    if offset and offset >= len(text):
        raise FetchError(f"{in_short(page.url)} has only {len(text):,} characters of text; offset is {offset:,}")
    room = limits.max_shown
    shown = text[offset : offset + room].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    end = _nth(shown, "\n", limits.max_lines)
    shown = shown[:end]
    notes = []
    if offset + len(shown) < len(text):
        to = offset + len(shown)
        notes.append(f"[characters {offset:,} to {to:,} of {len(text):,} are shown; go on with offset {to}]")
    elif not text:
        notes.append(f"[{in_short(page.url)} holds no text]")
    if page.cut:
        notes.append(f"[only the first {limits.max_bytes:,} bytes of the page were read]")
    if page.redirects:
        notes.append(f"[redirected to {in_short(page.url)}]")
    failed = page.status >= 400
    if failed:
        notes.append(f"[status {page.status} {in_short(page.reason, 80)}]")
    newline = "\n" if shown and notes and not shown.endswith("\n") else ""
    return ToolResult(
        shown + newline + "\n".join(notes),
        details={
            "url": page.url,
            "status": page.status,
            "content_type": page.kind,
            "bytes": len(page.body),
            "cut": page.cut,
            "redirects": page.redirects,
        },
        is_error=failed,
    )


def _nth(text: str, what: str, count: int) -> int:
    """Where the n-th of something ends; the length of the text if there are fewer."""
    at = 0
    for _ in range(count):
        found = text.find(what, at)
        if found < 0:
            return len(text)
        at = found + 1
    return at
