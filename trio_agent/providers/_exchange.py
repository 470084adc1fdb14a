"""One HTTP request and its response, as a block that leaves nothing open; the only code that waits for a network.

Clients of httpx and of httpx2 are taken. Their responses are chains of asynchronous generators, which must not
be left half-way: Trio would warn, and the connection would stay taken. Iterating in a cancelled scope unwinds
the whole chain and closes the connection (measured with httpx 0.28 and httpx2 2.16).
"""

from __future__ import annotations

import functools
import math
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast, final

import attrs
import trio

from trio_agent._errors import UsageError

from ._errors import TransportError, redacted

__all__ = ["Client", "Exchange", "TimeLimits", "exchange", "library_of"]

Client: TypeAlias = Any
"""A client of httpx, or of httpx2, which need not be installed."""

_CLOSING = 1.0
"""Seconds that closing a connection may take."""

_DRAIN = 0.25
"""Seconds that the rest of a complete answer may take, so that its connection can be used again."""


def _above_zero(instance: object, attribute: attrs.Attribute[float], value: float) -> None:
    if not value > 0:
        raise UsageError(f"the limit {attribute.name} is {value!r}, but must be above 0 seconds; math.inf is no limit")


@final
@attrs.frozen(kw_only=True)
class TimeLimits:
    """How long a server may be silent, in seconds on Trio's clock; ``math.inf`` is no limit.

    Only waiting for the server counts: not the wait for a free connection, and not listeners that are slow.
    Whatever bytes come are a sign of life, so a server that sends keep-alives is not silent (B93).
    """

    connect: float = attrs.field(default=10.0, validator=_above_zero)
    """Until a connection stands."""
    first_event: float = attrs.field(default=300.0, validator=_above_zero)
    """From sending the request, connecting included, until the first bytes of the answer. Models read a long
    transcript for minutes."""
    between_events: float = attrs.field(default=120.0, validator=_above_zero)
    """Between two pieces of the answer."""


class _Response(Protocol):
    """What of a response is used; the same in both libraries."""

    status_code: int
    headers: Mapping[str, str]

    def aiter_bytes(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


def library_of(client: Client) -> ModuleType:
    """The library that a client is of: httpx or httpx2.

    Raises:
      UsageError: it is no asynchronous client of either.
    """
    for cls in type(client).__mro__:
        name = cls.__module__.partition(".")[0]
        if name in ("httpx", "httpx2") and cls.__name__ == "AsyncClient":
            return sys.modules[name]
    raise UsageError(f"client is {client!r:.80}, but must be an AsyncClient of httpx or httpx2")


@final
class Exchange:
    """A response that is being read. Made by :func:`exchange`."""

    def __init__(
        self,
        library: ModuleType,
        response: _Response,
        limits: TimeLimits,
        first_deadline: float,
        secrets: Iterable[str],
    ) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._library = library
        self._response = response
        self._pieces = response.aiter_bytes()
        self._limits = limits
        self._first_deadline = first_deadline
        self._begun = False
        self._secrets = secrets

    async def receive(self) -> bytes | None:
        """The next piece of the body; None at its end.

        Raises:
          TransportError: the connection broke, or the server was silent for too long.
        """
        name, deadline = "first_event", self._first_deadline
        if self._begun:
            name, deadline = "between_events", trio.current_time() + self._limits.between_events
        try:
            with trio.fail_at(deadline):
                piece = await anext(self._pieces, None)
        except trio.TooSlowError:
            raise silent(name, self._limits) from None
        except (self._library.HTTPError, self._library.StreamError) as error:
            raise _failed("the connection broke while the server answered", error, self._secrets) from error
        self._begun = True
        return piece

    async def drain(self) -> None:
        """Read what is left of a complete answer, for a short time, so that the connection can be used again."""
        with trio.move_on_after(_DRAIN):
            try:
                async for _ in self._pieces:
                    pass
            except (self._library.HTTPError, self._library.StreamError):
                pass  # the answer is complete; only the connection is lost

    async def aclose(self) -> None:
        """Close the response at once. Its connection goes back to the pool if the body was read to its end."""
        with trio.CancelScope(shield=True) as unwinding:
            unwinding.cancel(reason="the response is left")
            try:
                async for _ in self._pieces:
                    pass
            except (self._library.HTTPError, self._library.StreamError):
                pass
        with trio.move_on_after(_CLOSING, shield=True):
            await self._response.aclose()


class _Connecting:
    """Closes what a cancelled request leaves of a connection that was coming about.

    Both libraries lose the socket where they are cancelled during the TLS handshake (``start_tls`` closes it on
    ``Exception`` alone) or right behind it (the connection stands in the pool as new, and nobody takes it any
    more; httpcore 1.0.9, httpcore2 2.16.2). Their tracing says which one it is.
    """

    def __init__(self, others: Callable[[str, Any], Awaitable[None]] | None) -> None:
        self._others = others
        self._stream: Any = None

    async def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """What the request does; called by the library."""
        if name.endswith(("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")):
            self._stream = info["return_value"]
        elif name.startswith(("http11.", "http2.")):
            self._stream = None  # the library closes it from here on
        if self._others is not None:
            await self._others(name, info)

    async def aclose(self) -> None:
        """Close it, if there is one."""
        if self._stream is not None:
            with trio.move_on_after(_CLOSING, shield=True):
                await self._stream.aclose()


class _Body:
    """The body of a request. That of the libraries is an asynchronous generator, which a cancelled request abandons."""

    def __init__(self, data: bytes) -> None:
        self._left = [data]

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        if self._left:
            return self._left.pop()
        raise StopAsyncIteration


@functools.cache
def _body_class(library: ModuleType) -> type[_Body]:
    """Both libraries ask for a class of their own."""
    return type("Body", (_Body, library.AsyncByteStream), {})


@asynccontextmanager
async def exchange(
    client: Client, request: Any, limits: TimeLimits, secrets: Iterable[str]
) -> AsyncGenerator[Exchange]:
    """Send a request; the block has its response, and leaves nothing of it open, however it is left.

    Args:
      client: sends it.
      request: what ``client.build_request()`` gave.
      limits: how long the server may be silent.
      secrets: texts that may not stand in an error.

    Raises:
      TransportError: no connection, no answer in time, or no HTTP.
    """
    library = library_of(client)
    request.stream = _body_class(library)(request.content)
    deadline = trio.current_time() + limits.first_event
    connecting = _Connecting(request.extensions.get("trace"))
    request.extensions["trace"] = connecting.trace
    response: Any = None
    try:
        with trio.fail_at(deadline):
            response = await client.send(request, stream=True, follow_redirects=False)
    except trio.TooSlowError:
        raise silent("first_event", limits) from None
    except library.ConnectTimeout as error:
        raise silent("connect", limits) from error
    except library.ConnectError as error:
        untrusted = _is_untrusted(error)
        raise _failed("no connection", error, secrets, retryable=not untrusted) from error
    except library.UnsupportedProtocol as error:
        raise _failed("the request cannot be sent", error, secrets, retryable=False) from error
    except library.HTTPError as error:
        raise _failed("the connection broke before the server answered", error, secrets) from error
    finally:
        if response is None:
            await connecting.aclose()
    found = Exchange(library, cast("_Response", response), limits, deadline, secrets)
    try:
        yield found
    finally:
        await found.aclose()


def silent(name: str, limits: TimeLimits) -> TransportError:
    """The error for a limit that has passed."""
    did = {
        "connect": "no connection came about within",
        "first_event": "the server did not begin to answer within",
        "between_events": "the server fell silent in the middle of its answer for",
    }[name]
    return TransportError(f"{did} {getattr(limits, name):g} s; TimeLimits({name}=...) sets the limit")


def _failed(what: str, error: Exception, secrets: Iterable[str], *, retryable: bool = True) -> TransportError:
    text = redacted(str(error) or type(error).__name__, secrets)
    return TransportError(f"{what}: {text}", retryable=retryable)


def _is_untrusted(error: BaseException | None) -> bool:
    """Whether a connection failed because of the server's certificate, which waiting does not mend."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def timeout(limits: TimeLimits) -> tuple[float | None, None, None, None]:
    """The time limits that the client itself keeps: that of connecting. Ours keep the others."""
    return (None if math.isinf(limits.connect) else limits.connect, None, None, None)
