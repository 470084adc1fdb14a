"""A model that is reached over HTTP, as a value that any agent takes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, final
from urllib.parse import urlsplit

import attrs

from trio_agent._errors import UsageError
from trio_agent._messages import AssistantMessage, Usage

from ._compat import ChatCompat, MessagesCompat

if TYPE_CHECKING:
    from trio_agent._stream import ModelRequest, StreamFn, StreamSink

__all__ = ["ApiName", "Driver", "HTTPModel", "Prices"]

ApiName: TypeAlias = Literal["openai-chat", "anthropic-messages"]
"""The wire formats that are known."""

_PER = 1_000_000


class Driver(Protocol):
    """Who sends the requests of a model."""

    async def stream(self, model: HTTPModel, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Ask a model."""
        ...


@final
@attrs.frozen
class Prices:
    """What a model costs, for a million tokens of each kind, in any currency."""

    input: float
    """Of the request, not served by a cache."""
    output: float
    """Of the answer, thinking included."""
    cache_read: float = 0.0
    """Of the request, served by a cache."""
    cache_write: float = 0.0
    """Of the request, put into a cache."""

    def priced(self, usage: Usage) -> Usage:
        """The usage with its cost (pi's ``calculateCost``)."""
        cost = {
            "input": usage.input * self.input / _PER,
            "output": usage.output * self.output / _PER,
            "cacheRead": usage.cache_read * self.cache_read / _PER,
            "cacheWrite": usage.cache_write * self.cache_write / _PER,
        }
        return attrs.evolve(usage, cost={**cost, "total": sum(cost.values())})


def _base_url(value: str) -> str:
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise UsageError(f"the base URL is {value!r} ({error}); it must be like 'https://host/v1'") from error
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"the base URL is {value!r}; it must be like 'https://host/v1'")
    if parts.query or parts.fragment:
        raise UsageError(f"the base URL is {value!r}; what follows its path belongs into query={{...}}")
    return value.rstrip("/")


def _tokens(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"{attribute.name} is {value!r}, but must be a whole number of tokens above 0")


@final
@attrs.frozen(eq=False)
class HTTPModel:
    """A model over HTTP. :func:`open_models` makes them; ``attrs.evolve(model, prices=...)`` changes one.

    Two are the same model to a transcript (whose thinking is sent back) if provider, id and API are.
    """

    provider: str
    """Who runs it; what ``get_api_key`` is asked with."""
    id: str
    """The provider's name for it."""
    api: ApiName = attrs.field(kw_only=True)
    """The wire format."""
    base_url: str = attrs.field(kw_only=True, converter=_base_url)
    """Where its API is, as the vendor's own SDK takes it."""
    compat: ChatCompat | MessagesCompat = attrs.field(kw_only=True)
    """How its server departs from the API."""
    max_tokens: int | None = attrs.field(kw_only=True, default=None, validator=_tokens)
    """How long an answer may be, thinking included. By default the server's own limit, or 32,000 where the API
    demands a number (Anthropic)."""
    images: bool = attrs.field(kw_only=True, default=True)
    """Whether it can see images; if not it is told that there was one."""
    prices: Prices | None = attrs.field(kw_only=True, default=None)
    """What it costs; usage then has a ``cost``."""
    api_key: str | None = attrs.field(kw_only=True, default=None, repr=False)
    """Its key, where the agent gives none."""
    key_variable: str | None = attrs.field(kw_only=True, default=None)
    """The environment variable that holds its key, where nothing else gives one."""
    key_required: bool = attrs.field(kw_only=True, default=True)
    """False for servers that take requests without a key."""
    key_header: Literal["authorization", "x-api-key", "api-key"] = attrs.field(kw_only=True, default="authorization")
    """The header for the key; in ``authorization`` it stands behind ``Bearer``."""
    headers: Mapping[str, str] = attrs.field(kw_only=True, factory=dict, repr=False)
    """Further headers of its requests."""
    query: Mapping[str, str] = attrs.field(kw_only=True, factory=dict)
    """Parameters of its URL (Azure: ``api-version``)."""
    extra_body: Mapping[str, Any] = attrs.field(kw_only=True, factory=dict)
    """Further fields of the bodies of its requests; they win over ours."""
    driver: Driver | None = attrs.field(kw_only=True, default=None, repr=False)
    """Who sends its requests."""
    cache: dict[str, Any] = attrs.field(init=False, factory=dict, repr=False)
    """What was made of its transcripts so far; nothing to touch."""

    @compat.validator
    def _check_compat(self, attribute: object, value: object) -> None:
        wanted = ChatCompat if self.api == "openai-chat" else MessagesCompat
        if type(value) is not wanted:
            raise UsageError(f"compat is {value!r:.80}, but a model of {self.api} takes a {wanted.__name__}")

    @property
    def stream_fn(self) -> StreamFn | None:
        """Sends requests through the driver."""
        return None if self.driver is None else functools.partial(self.driver.stream, self)
