"""Asks a model over HTTP: the one driver under the APIs of all vendors.

It sends what an encoder makes of the transcript, feeds the response to a decoder, and tries again where that
can help. Only the path, the headers and these two differ from vendor to vendor.
"""

from __future__ import annotations

import inspect
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, final

import attrs
import tenacity
import trio

from trio_agent._errors import UsageError
from trio_agent._messages import AssistantMessage
from trio_agent._stream import ModelRequest, StreamSink, StreamStart

from ._anthropic import AnthropicMessagesDecoder
from ._anthropic_request import AnthropicMessagesEncoder
from ._compat import ChatCompat
from ._decoder import Decoder
from ._errors import ProviderError, redacted
from ._exchange import Client, Exchange, TimeLimits, exchange, library_of, timeout
from ._keys import SECRET_NAME, key_of, secrets_of, without_secrets
from ._model import ApiName, HTTPModel
from ._openai_chat import OpenAIChatDecoder
from ._openai_chat_request import OpenAIChatEncoder
from ._options import checked_options

__all__ = ["HTTPDriver", "OnPayload", "OnResponse", "ProviderResponse"]

_log = logging.getLogger("trio_agent.providers")


@final
@attrs.frozen
class ProviderResponse:
    """What ``on_response`` gets of a response, before its body is read."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str]
    """Its headers, names in lower case, without cookies and keys."""


OnPayload: TypeAlias = Callable[[Any, HTTPModel], "Any | Awaitable[Any]"]
"""``(payload, model)``: sees the body of a request before it is sent, as parsed JSON; what it returns, if not None,
is sent instead (pi's ``onPayload``)."""

OnResponse: TypeAlias = Callable[[ProviderResponse, HTTPModel], "Awaitable[None] | None"]
"""``(response, model)``: sees status and headers of every response (pi's ``onResponse``)."""


class _Encoder(Protocol):
    def body(self, request: ModelRequest) -> bytes: ...


@attrs.frozen
class _Api:
    """What differs from vendor to vendor."""

    path: str
    encoder: Callable[[HTTPModel], _Encoder]
    decoder: Callable[..., Decoder]
    headers: Mapping[str, str] = attrs.field(factory=dict)


_APIS: Mapping[ApiName, _Api] = {
    "openai-chat": _Api("/chat/completions", OpenAIChatEncoder, OpenAIChatDecoder),
    "anthropic-messages": _Api(
        "/v1/messages", AnthropicMessagesEncoder, AnthropicMessagesDecoder, {"anthropic-version": "2023-06-01"}
    ),
}


def url_of(model: HTTPModel) -> str:
    """Where the requests of a model go. A base URL may hold the beginning of the path, or all of it."""
    path = _APIS[model.api].path
    base = model.base_url
    if base.endswith(path):
        return base
    first = "/" + path.split("/")[1]
    return base + (path.removeprefix(first) if first == "/v1" and base.endswith(first) else path)


@final
@attrs.frozen(eq=False)
class HTTPDriver:
    """Sends the requests of models, over the clients of whoever made it. A request ends with everything closed."""

    client_for: Callable[[str], tuple[Client, trio.CapacityLimiter]] = attrs.field(repr=False)
    """Gives, for a URL, the client and what bounds its connections."""
    api_keys: Mapping[str, str] = attrs.field(repr=False, factory=dict)
    limits: TimeLimits = attrs.field(factory=TimeLimits)
    max_retries: int = 2
    max_retry_delay: float | None = 60.0
    on_payload: OnPayload | None = None
    on_response: OnResponse | None = None

    async def stream(self, model: HTTPModel, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        """Ask a model.

        Raises:
          ProviderError: what went wrong; what had arrived was sent to the sink.
          UsageError: an option that is none.
        """
        options = checked_options(request.options)
        key = key_of(model, request.api_key, self.api_keys)
        api = _APIS[model.api]
        own = {name.lower(): value for name, value in {**model.headers, **options.get("headers", {})}.items()}
        secrets = secrets_of(model, key, own)
        body = api.encoder(model).body(request)
        on_payload = options.get("on_payload") or self.on_payload
        if on_payload is not None:
            changed = await _maybe_await(on_payload(without_secrets(secrets, json.loads(body)), model))
            body = body if changed is None else json.dumps(changed).encode()
        headers = {
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
            "user-agent": "trio_agent",
            **api.headers,
            **_key_header(model, key),
            **own,
        }
        asking = _Asking(self, model, request, sink, headers, body, secrets, options.get("on_response"))
        return await _retrying(asking, self.max_retries, self.max_retry_delay)(asking.attempt)


@attrs.define(eq=False)
class _Asking:
    """One request to a model, sent as often as it takes."""

    driver: HTTPDriver
    model: HTTPModel
    request: ModelRequest
    sink: StreamSink
    headers: Mapping[str, str]
    body: bytes
    secrets: tuple[str, ...]
    on_response: OnResponse | None
    begun: bool = False
    """Whether anything of an answer was handed on; from then on there is no other try."""

    # An interrupt between taking a place and noting it would lose the place; it comes at a checkpoint instead.
    @trio.lowlevel.enable_ki_protection
    async def attempt(self) -> AssistantMessage:
        client, limiter = self.driver.client_for(self.model.base_url)
        try:
            request = client.build_request(
                "POST",
                url_of(self.model),
                params=dict(self.model.query) or None,
                headers=dict(self.headers),
                content=self.body,
                timeout=timeout(self.driver.limits),
            )
        except (library_of(client).InvalidURL, UnicodeEncodeError) as error:
            text = redacted(str(error), self.secrets)
            raise UsageError(f"the URL or a header of {self.model.provider}/{self.model.id} is none: {text}") from None
        async with limiter, exchange(client, request, self.driver.limits, self.secrets) as response:
            return await self._answer(response)

    async def _answer(self, response: Exchange) -> AssistantMessage:
        model = self.model
        await self._observe(response)
        decoder = _APIS[model.api].decoder(
            self.request,
            status=response.status,
            headers=response.headers,
            secrets=self.secrets,
            prices=model.prices,
            **({"compat": model.compat} if isinstance(model.compat, ChatCompat) else {}),
        )
        # That an answer begins is told with what it begins with: until then another try is possible.
        start: StreamStart | None = None
        while not decoder.done:
            piece = await response.receive()
            for event in decoder.end() if piece is None else decoder.feed(piece):
                if isinstance(event, StreamStart):
                    start = event
                    continue
                await self._begin(start)
                await self.sink.send(event)
        message = decoder.finish()
        await self._begin(start)
        await response.drain()
        return message

    async def _begin(self, start: StreamStart | None) -> None:
        if not self.begun and start is not None:
            self.begun = True
            await self.sink.send(start)

    async def _observe(self, response: Exchange) -> None:
        on_response = self.on_response or self.driver.on_response
        if on_response is not None:
            shown = {
                name.lower(): redacted(value, self.secrets)
                for name, value in response.headers.items()
                if not SECRET_NAME.search(name)
            }
            await _maybe_await(on_response(ProviderResponse(response.status, shown), self.model))


def _key_header(model: HTTPModel, key: str | None) -> Mapping[str, str]:
    if key is None:
        return {}
    return {model.key_header: f"Bearer {key}" if model.key_header == "authorization" else key}


# ------------------------------------------------------------ other tries


def _retrying(asking: _Asking, max_retries: int, max_delay: float | None) -> tenacity.AsyncRetrying:
    """Tries again what may succeed later, as long as nothing of an answer was handed on (one layer only, B91)."""

    def again(error: BaseException) -> bool:
        if not isinstance(error, ProviderError) or not error.retryable or asking.begun:
            return False
        wanted = error.retry_after
        if wanted is not None and max_delay is not None and wanted > max_delay:
            allowed = f"more than max_retry_delay allows ({max_delay:g} s)"
            error.args = (f"{error}; the provider wants {wanted:g} s before the next try, {allowed}",)
            return False
        return True

    def announce(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        delay = state.next_action.sleep if state.next_action is not None else 0.0
        _log.info("trying again in %.3g s: %s", delay, error)

    return tenacity.AsyncRetrying(
        sleep=trio.sleep,
        stop=tenacity.stop_after_attempt(max_retries + 1),
        retry=tenacity.retry_if_exception(again),
        wait=_wait,
        before_sleep=announce,
        reraise=True,
    )


_back_off = tenacity.wait_exponential(multiplier=0.5, max=8.0)


def _wait(state: tenacity.RetryCallState) -> float:
    """As long as the provider says, else longer from try to try.

    The jitter is a share of the wait: one of a fixed size could make the second wait as short as the first.
    """
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, ProviderError) and error.retry_after is not None:
        return error.retry_after
    return _back_off(state) * random.uniform(1.0, 1.5)  # noqa: S311 - spreads load, hides nothing


@trio.lowlevel.disable_ki_protection
async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
