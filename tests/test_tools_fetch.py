"""fetch_url: what it shows, whom it refuses to ask, and that nobody can hold it up. Loopback only."""

from __future__ import annotations

import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
import trio
import trustme

from trio_agent import Tool, ToolCall, ToolResult, run_tool_call
from trio_agent.tools import fetch_url
from trio_agent.tools._network import parse_networks, refusal

LOCAL = ("127.0.0.1",)


async def call(tool: Tool, url: str, **arguments: object) -> ToolResult:
    return (await run_tool_call(ToolCall("c1", tool.name, {"url": url, **arguments}), tools=[tool])).result


class Server:
    """What a test server was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[str] = []
        self.asked = trio.Event()
        self.closed = trio.Event()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


Handler = Callable[[trio.abc.Stream, str], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """A server on 127.0.0.1; the handler gets each connection and the head of its request."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Server(listeners[0].socket.getsockname()[1])

    async def serve(stream: trio.abc.Stream) -> None:
        try:
            if tls is not None:
                stream = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
            head = b""
            while b"\r\n\r\n" not in head:
                data = await stream.receive_some(65536)
                if not data:
                    return
                head += data
            server.requests.append(head.decode())
            server.asked.set()
            await handler(stream, head.split()[1].decode())
            await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            server.closed.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        yield server
        nursery.cancel_scope.cancel(reason="the test is over")


def response(
    body: bytes = b"", content_type: str | None = "text/plain", status: str = "200 OK", **headers: str
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(b"moved", status=status, Location=location)


def answering(answers: dict[str, bytes]) -> Handler:
    async def handler(stream: trio.abc.Stream, path: str) -> None:
        await stream.send_all(answers[path])

    return handler


# ------------------------------------------------------------------ what is shown


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        pytest.param(response(b"hi\r\nyou"), "hi\nyou", id="text"),
        pytest.param(response("é".encode()), "é", id="utf-8 without a word"),
        pytest.param(response("é€".encode("cp1252")), "é€", id="windows-1252 without a word"),
        pytest.param(response("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS"), "日本", id="charset named"),
        pytest.param(
            response("€".encode("cp1252"), "text/plain; charset=iso-8859-1"), "€", id="latin 1 as browsers do"
        ),
        pytest.param(response("é".encode(), "text/plain; charset=zip"), "é", id="charset that is no encoding"),
        pytest.param(response("é".encode(), "text/plain; charset=idna"), "é", id="charset that is slow"),
        pytest.param(response("é".encode(), "text/plain; charset=utf-7"), "é", id="charset of attackers"),
        pytest.param(response(b"\xff\xfeh\0i\0", "text/plain; charset=utf-8"), "hi", id="byte order mark wins"),
        pytest.param(response(b"a\xffb", "text/plain; charset=utf-8"), "a\ufffdb", id="broken utf-8"),
        pytest.param(response(b'{"a": 1}', "application/problem+json"), '{"a": 1}', id="JSON"),
        pytest.param(response(b"", "text/plain"), "[{url} holds no text]", id="empty"),
        pytest.param(response(b"hi", None), "hi", id="no type"),
        pytest.param(response(b"<!DOCTYPE html><p>a<p>b", None), "a\n\nb", id="HTML of no type"),
        pytest.param(response(gzip.compress(b"hi"), Content_Encoding="gzip"), "hi", id="gzip"),
        pytest.param(response(zlib.compress(b"hi"), Content_Encoding="deflate"), "hi", id="deflate"),
        pytest.param(
            response(b"<meta charset='koi8-r'><p>" + "да".encode("koi8-r"), "text/html"), "да", id="charset in the page"
        ),
        pytest.param(
            response(
                b"<html><head><title> A  title</title><script>evil()</script><style>x{}</style></head><body>"
                b"<h1>Head</h1><p>One <b>two</b>\n three &amp; four</p><ul><li>a<li>b</ul>"
                b"<table><tr><td>1</td><td>2</td></tr></table><pre>x\n  y</pre>"
                b"<a href='/there?q=1'>link</a> <a href='javascript:evil()'>no</a> <a href='#x'>here</a>"
                b"<img alt='pic' src=x><noscript>off</noscript></body></html>",
                "text/html",
            ),
            "A title\n\n# Head\n\nOne two three & four\n\n- a\n- b\n\n1 | 2\n\nx\n  y\n\n"
            "[link]({base}/there?q=1) no here[image: pic]",
            id="HTML",
        ),
        pytest.param(
            response(b"no such", status="404 Not Found"), "no such\n[status 404 Not Found]", id="an error with its text"
        ),
    ],
)
async def test_what_is_shown(answer: bytes, shown: str) -> None:
    async with serving(answering({"/p": answer})) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p"))
    expected = shown.replace("{url}", server.url("/p")).replace("{base}", server.url(""))
    assert (result.text, result.is_error) == (expected, "status" in shown)
    assert "\r\nAccept-Encoding: gzip, deflate\r\n" in server.requests[0]


async def test_going_on_with_the_offsets_gives_the_whole_text() -> None:
    text = "".join(f"line {number} é\n" for number in range(100))
    async with serving(answering({"/p": response(text.encode())})) as server:
        tool = fetch_url(allow_networks=LOCAL, max_shown=301, max_lines=11)
        read, offset = "", 0
        while True:
            result = await call(tool, server.url("/p"), offset=offset)
            assert result.text.count("\n") <= 12
            part, _, note = result.text.rpartition("[characters ")
            read += part or note
            if not part:
                break
            read = read[: int(note.rpartition(" ")[2].rstrip("]"))]
            offset = len(read)
        beyond = await call(tool, server.url("/p"), offset=5000)
    assert read == text
    assert "has only 990 characters of text" in beyond.text


# ------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "not public"),
        ("169.254.169.254", "link-local"),
        ("224.0.0.1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("198.18.0.1", "private"),
        ("::1", "loopback"),
        ("::", "unspecified"),
        ("fe80::1", "link-local"),
        ("fe80::1%lo", "link-local"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::127.0.0.1", "reserved"),
        ("64:ff9b::7f00:1", "loopback (127.0.0.1 inside)"),
        ("64:ff9b::a9fe:a9fe", "link-local (169.254.169.254 inside)"),
        ("2002:7f00:1::", "loopback (127.0.0.1 inside)"),
        ("nonsense", "is no address"),
        ("8.8.8.8", None),
        ("2606:4700::1111", None),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::808:808", None),
    ],
)
def test_addresses(address: str, why: str | None) -> None:
    found = refusal(address, ())
    assert (found is None) == (why is None)
    if why is not None and "reserved" not in why:  # what is reserved is also private
        assert found is not None
        assert why.split()[0] in found


def test_allowed_networks_also_allow_mapped_addresses() -> None:
    allowed = parse_networks(["10.0.0.0/8", "::1"])
    assert [refusal(a, allowed) for a in ("10.9.9.9", "::ffff:10.9.9.9", "::1")] == [None] * 3
    assert refusal("127.0.0.1", allowed) == "loopback"
    with pytest.raises(ValueError, match="nonsense"):
        fetch_url(allow_networks=["nonsense"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("file:///etc/passwd", "only http and https URLs are fetched", id="file"),
        pytest.param("ftp://127.0.0.1/x", "only http and https", id="ftp"),
        pytest.param("gopher://127.0.0.1:{port}/x", "only http and https", id="gopher"),
        pytest.param("javascript:alert(1)", "only http and https", id="javascript"),
        pytest.param("data:text/plain,hi", "only http and https", id="data"),
        pytest.param("/etc/passwd", "only http and https", id="a path"),
        pytest.param("", "only http and https", id="nothing"),
        pytest.param("http://", "names no host", id="no host"),
        pytest.param("http://user:pw@127.0.0.1:{port}/", "with a user or password", id="password"),
        pytest.param("http://127.0.0.1:{port}/", "127.0.0.1 is loopback", id="loopback"),
        pytest.param("http://localhost:{port}/", "is loopback", id="localhost"),
        pytest.param("http://2130706433:{port}/", "127.0.0.1 is loopback", id="decimal"),
        pytest.param("http://0x7f000001:{port}/", "127.0.0.1 is loopback", id="hexadecimal"),
        pytest.param("http://127.1:{port}/", "127.0.0.1 is loopback", id="short"),
        pytest.param("http://0177.0.0.1:{port}/", "is no URL", id="octal"),
        pytest.param("http://0:{port}/", "0.0.0.0 is unspecified", id="zero"),
        pytest.param("http://[::1]:{port}/", "::1 is loopback", id="IPv6"),
        pytest.param("http://[::ffff:127.0.0.1]:{port}/", "is loopback", id="IPv4 in IPv6"),
        pytest.param("http://169.254.169.254/latest/meta-data/", "is link-local", id="cloud metadata"),
        pytest.param("http://127.0.0.1:99999/", "", id="no such port"),
        pytest.param("http://a" + "b" * 9000, "a URL may have 8,000 characters", id="long"),
        pytest.param("http://" + "b" * 70 + ".invalid/", "", id="long label"),
        pytest.param("http://exa mple/", "", id="blank"),
        pytest.param("http://127.0.0.1\r\nX: y/", "", id="line end"),
    ],
)
async def test_urls_that_are_refused_reach_nobody(url: str, message: str) -> None:
    async with serving(answering({})) as server:
        result = await call(fetch_url(), url.replace("{port}", str(server.port)))
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert result.is_error
    assert message in result.text
    assert len(result.text) < 700
    assert server.requests == []


class Resolver(trio.abc.HostnameResolver):
    """Names that mean what a test says, another thing at each question."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *rest: int) -> Any:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kinds = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [
            (kinds[ip_address(each).version], socket.SOCK_STREAM, 6, "", (each, port, 0, 0)[: ip_address(each).version])
            for each in answer
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_a_name_that_changes_its_meaning_is_asked_once() -> None:
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])
    trio.socket.set_custom_hostname_resolver(resolver)
    async with serving(answering({"/p": response(b"hi")})) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p", "rebind.example"))
    assert (result.text, len(resolver.asked)) == ("hi", 1)
    assert f"\r\nHost: rebind.example:{server.port}\r\n" in server.requests[0]


async def test_a_name_that_means_something_else_at_the_redirect_is_refused() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(["127.0.0.1"], ["10.0.0.1", "fd00::1"]))
    async with serving(answering({"/p": redirect("/q")})) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p", "rebind.example"))
    assert result.text == "rebind.example is refused: 10.0.0.1 is private, fd00::1 is private"
    assert len(server.requests) == 1


async def test_addresses_that_may_not_be_used_are_passed_over() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(["10.0.0.1", "127.0.0.1"]))
    async with serving(answering({"/p": response(b"hi")})) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p", "both.example"))
    assert result.text == "hi"


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(["127.0.0.7", "127.0.0.1"]))
    async with serving(answering({"/p": response(b"hi")})) as server:
        result = await call(fetch_url(allow_networks=["127.0.0.0/8"]), server.url("/p", "two.example"))
    assert result.text == "hi"


async def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(answering({"/p": response(b"hi")})) as server:
        assert (await call(fetch_url(allow_networks=LOCAL), server.url("/p"))).text == "hi"


# ------------------------------------------------------------------ redirects


@pytest.mark.parametrize(
    ("location", "message"),
    [
        pytest.param("file:///etc/passwd", "only http and https URLs are fetched", id="file"),
        pytest.param("ftp://127.0.0.1/", "only http and https", id="ftp"),
        pytest.param("data:text/html,hi", "cannot be fetched", id="data"),
        pytest.param("http://127.0.0.2:{port}/q", "127.0.0.2 is loopback", id="another address"),
        pytest.param("//127.0.0.2:{port}/q", "127.0.0.2 is loopback", id="without a scheme"),
        pytest.param("http://[::1]:{port}/q", "::1 is loopback", id="IPv6"),
        pytest.param("http://169.254.169.254/", "is link-local", id="cloud metadata"),
        pytest.param("http://u:p@127.0.0.1:{port}/q", "user or password", id="password"),
        pytest.param("http://[::1/q", "cannot be fetched", id="broken"),
        pytest.param("http://" + "x" * 60_000, "", id="long"),
        pytest.param("/p", "leads to more than 5 redirects", id="to itself"),
    ],
)
async def test_redirects_that_are_refused(location: str, message: str) -> None:
    answers: dict[str, bytes] = {}
    async with serving(answering(answers)) as server:
        answers["/p"] = redirect(location.replace("{port}", str(server.port)))
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p"))
    assert result.is_error
    assert message in result.text
    assert len(result.text) < 1000
    assert all(" /p " in request for request in server.requests)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temp", "308 Perm"])
async def test_redirects_that_are_followed(status: str) -> None:
    answers = {"/p": redirect("q?x=1", status), "/q?x=1": response(b"there")}
    async with serving(answering(answers)) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p"))
    assert result.text == f"there\n[redirected to {server.url('/q?x=1')}]"


async def test_a_redirect_without_a_place_is_a_page() -> None:
    async with serving(answering({"/p": response(b"choose", status="300 Many")})) as server:
        assert (await call(fetch_url(allow_networks=LOCAL), server.url("/p"))).text == "choose"


# ------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def contexts(authority: trustme.CA, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    client, server = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(client)
    authority.issue_cert(name).configure_cert(server)
    return client, server


async def test_the_certificate_is_that_of_the_name_although_an_address_is_connected_to(authority: trustme.CA) -> None:
    client, tls = contexts(authority, "good.example")
    names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    trio.socket.set_custom_hostname_resolver(Resolver(["127.0.0.1"]))
    async with serving(answering({"/p": response(b"hi")}), tls=tls) as server:
        tool = fetch_url(allow_networks=LOCAL, ssl_context=client)
        good = await call(tool, server.url("/p", "good.example", "https"))
        bad = await call(tool, server.url("/p", "bad.example", "https"))
    assert (good.text, names) == ("hi", ["good.example", "bad.example"])
    assert bad.is_error
    assert "bad.example" in bad.text
    assert len(server.requests) == 1


async def test_https_does_not_lead_to_http(authority: trustme.CA) -> None:
    client, tls = contexts(authority, "127.0.0.1")
    async with serving(answering({"/p": redirect("http://127.0.0.1:9/")}), tls=tls) as server:
        result = await call(fetch_url(allow_networks=LOCAL, ssl_context=client), server.url("/p", "127.0.0.1", "https"))
    assert "redirects from https to http" in result.text


async def test_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    _, tls = contexts(authority, "127.0.0.1")
    async with serving(answering({}), tls=tls) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p", "127.0.0.1", "https"))
    assert result.is_error
    assert "certificate" in result.text


# ------------------------------------------------------------------ what came is hostile


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(response(b"x" * 12, "image/png"), "is image/png, 12 bytes; only text is shown", id="image"),
        pytest.param(response(b"x", "application/octet-stream"), "is application/octet-stream", id="octets"),
        pytest.param(response(b"a\0b", None), "is binary data of no stated type", id="binary of no type"),
        pytest.param(response(b"x", "x" * 5000), "xxx...", id="long type"),
        pytest.param(response(b"x", Content_Encoding="br"), "is compressed with br", id="brotli"),
        pytest.param(response(b"no gzip", Content_Encoding="gzip"), "is compressed badly", id="broken gzip"),
        pytest.param(b"", "cannot be fetched", id="nothing at all"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "cannot be fetched", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "cannot be fetched", id="cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "cannot be fetched", id="bad length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000, "cannot be fetched", id="endless header"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cannot be fetched", id="bad chunks"
        ),
    ],
)
async def test_answers_that_are_refused(answer: bytes, message: str) -> None:
    async with serving(answering({"/p": answer})) as server:
        result = await call(fetch_url(allow_networks=LOCAL), server.url("/p"))
    assert result.is_error
    assert message in result.text
    assert len(result.text) < 700


async def forever(stream: trio.abc.Stream, path: str) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        await stream.send_all(b"x" * 65536)


async def bomb(stream: trio.abc.Stream, path: str) -> None:
    data = gzip.compress(bytes(100_000_000), 9)
    await stream.send_all(response(data, "text/html", Content_Encoding="gzip"))


@pytest.mark.parametrize("handler", [forever, bomb])
async def test_of_an_endless_page_the_beginning_is_read(handler: Handler) -> None:
    async with serving(handler) as server:
        result = await call(fetch_url(allow_networks=LOCAL, max_bytes=100_000, max_shown=50), server.url())
        await server.closed.wait()
    assert not result.is_error
    assert "[only the first 100,000 bytes of the page were read]" in result.text
    assert result.details["bytes"] == 100_000


async def silent(stream: trio.abc.Stream, path: str) -> None:
    await trio.sleep_forever()


async def drops(stream: trio.abc.Stream, path: str) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nx")
    await trio.sleep_forever()


async def half_a_head(stream: trio.abc.Stream, path: str) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-")
    await trio.sleep_forever()


async def round_and_round(stream: trio.abc.Stream, path: str) -> None:
    await stream.send_all(redirect("/slow") if path == "/" else b"HTTP/1.1 100 Continue\r\n\r\n")
    await trio.sleep_forever()


SLOW = [silent, drops, half_a_head, round_and_round]


@pytest.mark.slow
@pytest.mark.parametrize("handler", SLOW)
async def test_a_server_that_goes_silent_is_left_when_the_time_is_up(handler: Handler) -> None:
    """Slow: real sockets do not go by the mock clock, so a limit of 0.2 s passes for real."""
    async with serving(handler) as server:
        start = trio.current_time()
        result = await call(fetch_url(allow_networks=LOCAL, time_limit=0.2), server.url())
        assert trio.current_time() - start < 1
    assert (result.is_error, result.text) == (True, f"{server.url()} took longer than 0.2 seconds")


@pytest.mark.parametrize("handler", [*SLOW, forever])
async def test_a_cancellation_closes_the_connection(handler: Handler) -> None:
    async with serving(handler) as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, fetch_url(allow_networks=LOCAL, max_bytes=10**9), server.url())
            await server.asked.wait()
            nursery.cancel_scope.cancel(reason="the test cuts")
        if handler in SLOW:
            # The server does not look; that the other end is closed shows in the table of the kernel.
            assert not [line for line in established(server.port) if line]
        else:
            await server.closed.wait()


def established(port: int) -> list[str]:
    """Connections of clients to a port, as the kernel knows them."""
    with open("/proc/net/tcp", encoding="ascii") as table:  # noqa: PTH123 - no regular file
        rows = [line.split() for line in table][1:]
    return [row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("<div>" * 100_000 + "x", id="deep"),
        pytest.param("<a href=x>" * 20_000 + "x", id="links in links"),
        pytest.param("<table><tr><td>" * 20_000 + "x", id="tables in tables"),
        pytest.param("<!--" * 100_000 + "--><p>x", id="comments"),
        pytest.param("x<p " + "a=b " * 100_000 + ">", id="attributes"),
        pytest.param("<pre>" + " " * 1_000_000 + "x", id="blanks"),
        pytest.param("x&" * 200_000, id="half entities"),
        pytest.param("<meta " * 150_000 + ">x", id="half tags"),
        pytest.param("</p>" * 200_000 + "x", id="ends without beginnings"),
        pytest.param("<title>x", id="title without an end"),
        pytest.param("\0<\0p\0>x\0", id="NULs"),
    ],
)
async def test_pages_made_to_hold_up_a_parser(page: str) -> None:
    async with serving(answering({"/p": response(page.encode(), "text/html")})) as server:
        with trio.fail_after(5):
            result = await call(fetch_url(allow_networks=LOCAL, max_shown=10**7), server.url("/p"))
    assert not result.is_error
