"""A server of our own making, on loopback or in memory, and clients of httpx and httpx2 that reach it.

The server does what a script says with each connection, byte by byte, so that it can misbehave in every way.
In memory there is no real time, so the clock may be virtual.
"""

from __future__ import annotations

import gc
import json
import ssl
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import attrs
import h11
import httpcore
import httpcore2
import httpx  # noqa: ASYNC127 - what the library is specified with
import httpx2
import trio
import trio.testing

LIBRARIES = (httpx, httpx2)


@attrs.frozen
class Received:
    """A request as the server got it."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """What a script answers a request with; each method writes to the connection at once."""

    def __init__(self, stream: trio.abc.Stream, connection: h11.Connection) -> None:
        self.stream = stream
        self.connection = connection

    async def start(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the head. Without a content-length the body is chunked."""
        given = {"content-type": "text/event-stream", **(headers or {})}
        await self._send(h11.Response(status_code=status, headers=list(given.items())))

    async def write(self, data: bytes | str) -> None:
        await self._send(h11.Data(data.encode() if isinstance(data, str) else data))

    async def finish(self) -> None:
        """End the body properly."""
        await self._send(h11.EndOfMessage())

    async def respond(self, status: int, document: object, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer in JSON."""
        await self.start(status, {"content-type": "application/json", **(headers or {})})
        await self.write(document if isinstance(document, str) else json.dumps(document))
        await self.finish()

    async def events(self, *documents: object) -> None:
        """Server-sent events, each written by itself; a text is sent as it is."""
        for document in documents:
            await self.write(f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n")

    async def _send(self, event: Any) -> None:
        data = self.connection.send(event)
        if data:
            await self.stream.send_all(data)


Script: TypeAlias = Callable[[Received, Reply], Awaitable[None]]


class Server:
    """Answers by a script; counts what is open."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.received: list[Received] = []
        self.connections = 0
        self.open = 0

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until the other side or the script ends it."""
        self.connections += 1
        self.open += 1
        try:
            await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass
        finally:
            self.open -= 1
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        connection = h11.Connection(h11.SERVER)
        while (request := await self._request(stream, connection)) is not None:
            self.received.append(request)
            await self.script(request, Reply(stream, connection))
            if connection.our_state is h11.SEND_BODY or connection.our_state is h11.SEND_RESPONSE:
                return  # the script left its answer unfinished: the connection is dropped
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    async def _request(self, stream: trio.abc.Stream, connection: h11.Connection) -> Received | None:
        head: h11.Request | None = None
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(65536)))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = {name.decode(): value.decode() for name, value in head.headers}
                return Received(head.method.decode(), head.target.decode(), headers, body)
            else:
                return None


@asynccontextmanager
async def serving(script: Script, *, context: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[Server, str], None]:
    """A server on loopback; gives it and its base URL."""
    server = Server(script)

    async def handle(stream: trio.abc.Stream) -> None:
        if context is None:
            await server.handle(stream)
            return
        secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await secure.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.aclose_forcefully(secure)
            return
        await server.handle(secure)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, handle, listeners)  # noqa: ASYNC113 - the sockets listen already
        host = "127.0.0.1" if context is None else "localhost"
        yield server, f"{'http' if context is None else 'https'}://{host}:{port}/v1"
        nursery.cancel_scope.cancel(reason="the test is over")


# ---------------------------------------------------------------- in memory


@contextmanager
def no_warnings() -> Generator[None]:
    """Nothing warns in here, also none of what is thrown away: its warnings come from where nobody raises them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in caught] == []


class _MemoryStream:
    """A stream of httpcore's over one of Trio's."""

    def __init__(self, stream: trio.abc.Stream, core: ModuleType) -> None:
        self._stream = stream
        self._core = core

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._core.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        try:
            await self._stream.send_all(buffer)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._core.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> None:
        return None


class MemoryNetwork:
    """A network in memory: every connection is served by a task of a nursery."""

    def __init__(self, server: Server, nursery: trio.Nursery, library: ModuleType = httpx) -> None:
        self._server = server
        self._nursery = nursery
        self.core = httpcore if library is httpx else httpcore2
        self.library = library
        self.refuse: Exception | None = None
        """Why no connection comes about."""
        self.delay = 0.0
        """Seconds that a connection takes to come about."""

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **_: Any) -> _MemoryStream:  # noqa: ASYNC109 - httpcore's signature
        try:
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await trio.sleep(self.delay)
        except trio.TooSlowError as error:
            raise self.core.ConnectTimeout(str(error)) from error
        if self.refuse is not None:
            try:
                raise self.refuse
            except Exception as error:
                raise self.core.ConnectError(str(error)) from error
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._server.handle, theirs)
        return _MemoryStream(ours, self.core)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def client(self, **settings: Any) -> Any:
        """A client whose connections are in memory; ``pool_of`` gives their pool."""
        settings.setdefault("timeout", None)
        transport = self.library.AsyncHTTPTransport(verify=False)  # contexts cost 20 ms
        transport._pool = self.core.AsyncConnectionPool(network_backend=self, max_connections=None)
        return self.library.AsyncClient(transport=transport, **settings)


def pool_of(client: Any) -> Any:
    """The pool of connections of a client."""
    return client._transport._pool


@asynccontextmanager
async def in_memory(
    script: Script, library: ModuleType = httpx, **settings: Any
) -> AsyncGenerator[tuple[Server, MemoryNetwork, Any], None]:
    """A server in memory, its network, and a client that reaches it."""
    async with trio.open_nursery() as nursery:
        server = Server(script)
        network = MemoryNetwork(server, nursery, library)
        async with network.client(**settings) as client:
            yield server, network, client
        nursery.cancel_scope.cancel(reason="the test is over")


# ------------------------------------------------------------------- scripts


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of Chat Completions."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return {"id": "r1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def chat_answer(text: str = "Hello.") -> Iterable[object]:
    """The events of a whole answer, word by word."""
    words = [text[at : at + 4] for at in range(0, len(text), 4)]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
    return [
        chunk({"role": "assistant"}),
        *(chunk({"content": word}) for word in words),
        chunk({}, "stop"),
        usage,
        "[DONE]",
    ]


def chat_call(id: str, name: str, arguments: object) -> Iterable[object]:
    """The events of an answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": id, "type": "function", "function": function}
    return [chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), "[DONE]"]


async def answer(request: Received, reply: Reply) -> None:
    """A script that says hello to everybody."""
    await reply.start()
    await reply.events(*chat_answer())
    await reply.finish()
