"""Connections to addresses that were looked at first.

A name is resolved once, the addresses it has are judged, and the connection goes to one of these
addresses, not to the name: what the name means a moment later (DNS rebinding) plays no part. Name
and port of the URL stay what the server is asked for (``Host``) and what its certificate must say.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any, TypeAlias, cast, final

import httpcore
import httpx  # noqa: ASYNC127 - what the library is specified with
import trio

from trio_agent._errors import TrioAgentError

from ._output import in_short

__all__ = ["CheckedTransport", "FetchError", "parse_networks", "refusal"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks: TypeAlias = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TRY_SECONDS = 5.0
"""How long one address is tried while there are others."""


class FetchError(TrioAgentError):
    """A page cannot be fetched, or must not be; the text is meant for the model."""


def parse_networks(networks: Iterable[str]) -> Networks:
    """Networks from their text, such as ``10.0.0.0/8`` or one address.

    Raises:
      ValueError: one is not a network.
    """
    return tuple(ipaddress.ip_network(network) for network in networks)


def refusal(text: str, allowed: Networks) -> str | None:
    """Why no connection may be made to an address; None if it may."""
    try:
        address: _Address = ipaddress.ip_address(text)
    except ValueError:
        return "is no address"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed):
        return None
    kinds = (
        ("unspecified", address.is_unspecified),
        ("loopback", address.is_loopback),
        ("link-local", address.is_link_local),
        ("multicast", address.is_multicast),
        ("reserved", address.is_reserved and address not in _NAT64),
        ("private", address.is_private or getattr(address, "is_site_local", False)),
        ("not public", not address.is_global and address not in _NAT64),
    )
    for kind, applies in kinds:
        if applies:
            return kind
    for inner in _embedded(address):
        if (why := refusal(str(inner), allowed)) is not None:
            return f"{why} ({inner} inside)"
    return None


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    """The addresses to which a gateway would pass on what is sent to this one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [] if address.sixtofour is None else [address.sixtofour]
    if address.teredo is not None:
        found.extend(address.teredo)
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found


@final
class _CheckedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, allowed: Networks) -> None:
        self._allowed = allowed
        self._backend = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        for address in addresses[:-1]:
            with trio.move_on_after(_TRY_SECONDS):
                try:
                    return await self._connect(address, port)
                except httpcore.ConnectError:
                    continue
        return await self._connect(addresses[-1], port)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise FetchError(f"there is no host {in_short(host)}: {error}") from error
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        refused = {address: refusal(address, self._allowed) for address in addresses}
        good = [address for address in addresses if refused[address] is None]
        if not good:
            reasons = ", ".join(f"{address} is {why}" for address, why in refused.items()) or "it has no address"
            raise FetchError(f"{in_short(host)} is refused: {reasons}")
        return good

    async def _connect(self, address: str, port: int) -> httpcore.AsyncNetworkStream:
        stream = await self._backend.connect_tcp(address, port)
        # What counts is who is at the other end.
        peer = stream.get_extra_info("server_addr")[0]
        if (why := refusal(peer, self._allowed)) is not None:
            await stream.aclose()
            raise FetchError(f"the connection to {address} is refused: {peer} is {why}")
        return stream

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise FetchError("there are no requests over Unix sockets")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


@final
class CheckedTransport(httpx.AsyncBaseTransport):
    """What httpx sends through: a pool whose connections all go to addresses that may be used.

    Environment variables (proxies) are not looked at.
    """

    def __init__(self, ssl_context: ssl.SSLContext, allowed: Networks) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context, network_backend=_CheckedBackend(allowed), max_connections=None
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; errors are httpcore's or a :class:`FetchError`."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        response = await self._pool.handle_async_request(
            httpcore.Request(request.method, url, headers=request.headers.raw, extensions=request.extensions)
        )
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response.stream), extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


@final
class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: object) -> None:
        self._stream = cast("AsyncIterable[bytes]", stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        await cast("Any", self._stream).aclose()
