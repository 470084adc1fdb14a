"""Opening models: clients that are made when they are needed and closed with the block."""

from __future__ import annotations

import difflib
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, final
from urllib.parse import urlsplit

import httpx  # noqa: ASYNC127 - the package that was chosen; clients of httpx2 are taken, too
import trio

from trio_agent._errors import UsageError

from ._compat import ChatCompat, MessagesCompat
from ._driver import HTTPDriver, OnPayload, OnResponse
from ._exchange import Client, TimeLimits, library_of
from ._model import HTTPModel
from ._vendors import VENDORS, vendor_at

__all__ = ["Models", "connect", "open_models"]

_CLOSING = 1.0
"""Seconds that closing the idle connections of a host may take."""


class _Clients:
    """One client for each host, made at its first request, with a bound on its requests in front.

    A pool with a bound of its own loses places for good when requests are cancelled while they wait for it
    (httpx 0.28.1, B99), so it has none, and waiting is done before it.
    """

    def __init__(self, given: Client | None, max_connections: int) -> None:
        self._given = given
        self._max_connections = max_connections
        self._hosts: dict[tuple[str, str], tuple[Client, trio.CapacityLimiter]] = {}
        self._closed = False

    def of(self, url: str) -> tuple[Client, trio.CapacityLimiter]:
        if self._closed:
            raise UsageError("the block of open_models() was left, so its models cannot be asked any more")
        parts = urlsplit(url)
        host = parts.scheme, parts.netloc
        if host not in self._hosts:
            client = self._given
            if client is None:
                idle = min(self._max_connections, 20)
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=idle)
                client = httpx.AsyncClient(limits=limits, timeout=None)  # noqa: S113 - each request brings its own
            self._hosts[host] = client, trio.CapacityLimiter(self._max_connections)
        return self._hosts[host]

    async def aclose(self) -> None:
        self._closed = True
        if self._given is None:
            for client, _ in self._hosts.values():
                with trio.move_on_after(_CLOSING, shield=True):
                    await client.aclose()


@final
class Models:
    """Models by name: ``models["anthropic:MODEL"]``, ``models["ollama:MODEL"]``. Made by :func:`open_models`.

    A model is a value: any agent takes it, also in the middle of a session (``agent.model = ...``), and
    ``attrs.evolve(model, prices=...)`` makes another of it.
    """

    def __init__(self, driver: HTTPDriver) -> None:
        self._driver = driver
        self._known: dict[str, HTTPModel] = {}

    def __getitem__(self, name: str) -> HTTPModel:
        """A model of a vendor that is known by name.

        Args:
          name: the vendor, a colon, and the vendor's own name for the model.

        Raises:
          UsageError: there is no such vendor, or no name.
        """
        if name not in self._known:
            vendor_name, _, model = name.partition(":")
            vendor = VENDORS.get(vendor_name)
            if vendor is None or not model:
                raise UsageError(_unknown(name, vendor_name, model))
            self._known[name] = HTTPModel(vendor_name, model, driver=self._driver, **vendor.fields())
        return self._known[name]

    def openai_compatible(self, base_url: str, id: str, **fields: Any) -> HTTPModel:
        """A model of any server that speaks OpenAI's Chat Completions.

        Args:
          base_url: where its API is, mostly ending in ``/v1``.
          id: its name for the model.
          fields: of `HTTPModel`. ``provider`` is by default the known vendor at that address, else the host.
            No key is taken from the environment but that of a known vendor at its own address.
        """
        return self._compatible(base_url, id, ChatCompat(), "authorization", fields)

    def anthropic_compatible(self, base_url: str, id: str, **fields: Any) -> HTTPModel:
        """A model of any server that speaks Anthropic's Messages; as :meth:`openai_compatible`."""
        return self._compatible(base_url, id, MessagesCompat(), "x-api-key", fields)

    def _compatible(
        self, base_url: str, id: str, compat: ChatCompat | MessagesCompat, key_header: str, fields: Mapping[str, Any]
    ) -> HTTPModel:
        found = vendor_at(base_url)
        if found is not None and type(found[1].compat) is type(compat):
            name, vendor = found
            known = {"provider": name, **vendor.fields()}
        else:
            known = {
                "provider": urlsplit(base_url).hostname or base_url,
                "api": "openai-chat" if isinstance(compat, ChatCompat) else "anthropic-messages",
                "compat": compat,
                "key_header": key_header,
                "key_required": False,
            }
        return HTTPModel(**{**known, "id": id, "base_url": base_url, "driver": self._driver, **fields})


def _unknown(name: str, vendor: str, id: str) -> str:
    if vendor in VENDORS:
        return f"{name!r} names no model; write {vendor}:MODEL, with the vendor's own name for the model"
    near = difflib.get_close_matches(vendor.lower(), VENDORS, 1)
    remedy = f"did you mean {near[0]}:{id or 'MODEL'}?" if near else f"known are {', '.join(VENDORS)};"
    return f"there is no vendor {vendor!r} (of {name!r}); {remedy} models of other servers: openai_compatible(base_url, id)"


@asynccontextmanager
async def open_models(
    *,
    client: Any = None,
    api_keys: Mapping[str, str] | None = None,
    max_connections: int = 100,
    limits: TimeLimits | None = None,
    max_retries: int = 2,
    max_retry_delay: float | None = 60.0,
    on_payload: OnPayload | None = None,
    on_response: OnResponse | None = None,
) -> AsyncGenerator[Models]:
    """Models over HTTP, for as long as the block lasts.

    Nothing is connected before a model is asked. A request that is cancelled closes its response at once and
    frees its place; nothing of it is left. Leave the block after the runs that use its models.

    Args:
      client: an ``AsyncClient`` of httpx or httpx2 that sends everything, as it is; it is left open. By default
        one of ours for each host.
      api_keys: keys by provider. Those of the agent (``get_api_key``) and of the model go first, the vendors'
        environment variables (``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY`` ...) come last.
      max_connections: how many requests a host gets at the same time; further ones wait for a place.
      limits: how long a server may be silent.
      max_retries: how often a request is sent again that failed before anything of its answer was said, where
        the error says that it may succeed later.
      max_retry_delay: the most seconds that a provider may make us wait before another try; if it wants more
        the request fails at once, and the error says how long. None is no limit.
      on_payload: ``(payload, model)``: sees or replaces the body of every request.
      on_response: ``(response, model)``: sees status and headers of every response.

    Raises:
      UsageError: an argument that cannot be.
    """
    if client is not None:
        library_of(client)
    for name, value, least in (("max_connections", max_connections, 1), ("max_retries", max_retries, 0)):
        if type(value) is not int or value < least:
            raise UsageError(f"{name} is {value!r}, but must be a whole number, at least {least}")
    if max_retry_delay is not None and not 0 <= max_retry_delay < math.inf:
        raise UsageError(f"max_retry_delay is {max_retry_delay!r}, but must be seconds, or None for no limit")
    clients = _Clients(client, max_connections)
    driver = HTTPDriver(
        clients.of,
        api_keys=dict(api_keys or {}),
        limits=TimeLimits() if limits is None else limits,
        max_retries=max_retries,
        max_retry_delay=max_retry_delay,
        on_payload=on_payload,
        on_response=on_response,
    )
    try:
        yield Models(driver)
    finally:
        await clients.aclose()


@asynccontextmanager
async def connect(name: str, *, api_key: str | None = None, **settings: Any) -> AsyncGenerator[HTTPModel]:
    """Open one model, for as long as the block lasts.

    ``async with connect("anthropic:MODEL") as model: ...`` is the short form of :func:`open_models` for one.

    Args:
      name: as for `Models`.
      api_key: its key; by default from the environment.
      settings: as for :func:`open_models`.
    """
    if api_key is not None:
        settings["api_keys"] = {**settings.get("api_keys", {}), name.partition(":")[0]: api_key}
    async with open_models(**settings) as models:
        yield models[name]
