"""The errors of providers, and how they are told from what a server answers.

::

    ProviderError                       (also TrioAgentError) what a provider did instead of answering
    ├── AuthenticationError             the key is missing or wrong
    ├── PermissionDeniedError           the key may not do this, or the account has no credit
    ├── NotFoundError                   no such model or path
    ├── RateLimitError                  too many requests or tokens for now
    ├── OverloadedError                 the server has no room now, or still loads the model
    ├── ServerError                     the server failed
    ├── InvalidRequestError             the request is not what the server takes
    │   └── ContextTooLongError         the transcript does not fit into the model
    ├── RefusedError                    the provider refuses this content
    ├── TransportError                  the connection failed, or the answer ended before its end
    └── ProtocolError                   the answer is not what its API says

Whether the same request may succeed a little later is said by ``retryable``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from trio_agent._errors import TrioAgentError

__all__ = [
    "AuthenticationError",
    "ContextTooLongError",
    "InvalidRequestError",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "ProtocolError",
    "ProviderError",
    "RateLimitError",
    "RefusedError",
    "ServerError",
    "TransportError",
    "error_from_object",
    "error_from_response",
    "redacted",
]


class ProviderError(TrioAgentError):
    """A provider failed to answer, or refused to. Keys never stand in it.

    Attributes:
      kind: what went wrong, in one word that does not change (``"rate_limit"``).
      status: the HTTP status; None where nothing was answered. An error that came inside a stream has
        the status that it names itself, else that of the response.
      request_id: the provider's name for the request, for its support.
      retry_after: how many seconds the provider wants us to wait; None if it does not say.
      provider_text: the provider's own words; ``""`` if it has none.
      retryable: whether the same request may succeed later.
    """

    kind: ClassVar[str] = "provider"
    _retryable: ClassVar[bool] = False
    _summary: ClassVar[str] = "the provider reported an error"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        provider_text: str = "",
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.provider_text = provider_text
        self.retryable = self._retryable if retryable is None else retryable


class AuthenticationError(ProviderError):
    """The key is missing or wrong."""

    kind = "authentication"
    _summary = "the provider did not accept the key; check that it is set and meant for this server"


class PermissionDeniedError(ProviderError):
    """The key may not do this, or the account has no credit left."""

    kind = "permission"
    _summary = "the key may not do this, or the account has no credit left"


class NotFoundError(ProviderError):
    """There is no such model, or no such path on the server."""

    kind = "not_found"
    _summary = "there is no such model or path; check the model's id and the base URL"


class RateLimitError(ProviderError):
    """Too many requests or tokens for now. A quota that is used up for good is not ``retryable``."""

    kind = "rate_limit"
    _retryable = True
    _summary = "a rate limit is reached"


class OverloadedError(ProviderError):
    """The server has no room for the request now, or still loads the model."""

    kind = "overloaded"
    _retryable = True
    _summary = "the server is overloaded or not ready"


class ServerError(ProviderError):
    """The server failed."""

    kind = "server_error"
    _retryable = True
    _summary = "the server failed"


class InvalidRequestError(ProviderError):
    """The request is not what the server takes."""

    kind = "invalid_request"
    _summary = "the server does not take the request"


class ContextTooLongError(InvalidRequestError):
    """The transcript does not fit into the model; shorten it, or take another model."""

    kind = "context_too_long"
    _summary = "the transcript is too long for the model; shorten it or take another model"


class RefusedError(ProviderError):
    """The provider refuses this content, that of the request or that of the answer."""

    kind = "refused"
    _summary = "the provider refuses this content"


class TransportError(ProviderError):
    """The connection failed, or the answer ended before its end. What had arrived by then is kept."""

    kind = "transport"
    _retryable = True
    _summary = "the connection failed"


class ProtocolError(ProviderError):
    """The answer is not what its API says."""

    kind = "protocol"
    _retryable = True
    _summary = "the answer is not what its API says"


# ------------------------------------------------------------- classification

_WORDS: Mapping[str, type[ProviderError]] = {
    # Compared without case, spaces, hyphens and underscores. `code` is looked up before `type`, for OpenAI
    # gives a wrong key the type invalid_request_error. Anthropic: "Errors" of its API documentation;
    # OpenAI: "Error codes"; Azure, Groq, llama.cpp, OpenRouter, vLLM: as seen in recorded answers.
    "authenticationerror": AuthenticationError,
    "invalidapikey": AuthenticationError,
    "unauthorized": AuthenticationError,
    "permissionerror": PermissionDeniedError,
    "permissiondenied": PermissionDeniedError,
    "billingerror": PermissionDeniedError,
    "insufficientquota": RateLimitError,
    "notfounderror": NotFoundError,
    "modelnotfound": NotFoundError,
    "deploymentnotfound": NotFoundError,
    "ratelimiterror": RateLimitError,
    "ratelimitexceeded": RateLimitError,
    "ratelimitreached": RateLimitError,
    "toomanyrequests": RateLimitError,
    "overloadederror": OverloadedError,
    "overloaded": OverloadedError,
    "serveroverloaded": OverloadedError,
    "unavailableerror": OverloadedError,
    "serviceunavailable": OverloadedError,
    "apierror": ServerError,
    "servererror": ServerError,
    "internalerror": ServerError,
    "internalservererror": ServerError,
    "timeouterror": ServerError,
    "contextlengthexceeded": ContextTooLongError,
    "exceedcontextsizeerror": ContextTooLongError,
    "contentfilter": RefusedError,
    "contentpolicyviolation": RefusedError,
    "responsibleaipolicyviolation": RefusedError,
}

_FINAL = frozenset({"insufficientquota"})
"""Words of errors that waiting does not cure, whatever their class says."""

_STATUSES: Mapping[int, type[ProviderError]] = {
    401: AuthenticationError,
    402: PermissionDeniedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    408: ServerError,  # the server waited too long; the official SDKs try again, as for 409
    409: ServerError,
    429: RateLimitError,
    503: OverloadedError,
    529: OverloadedError,  # Anthropic
}

# No server but OpenAI's and llama.cpp's has a code for it.
_TOO_LONG = re.compile(
    r"maximum context length|context (length|window|size)|prompt (is )?too long|input is too long"
    r"|too many (input |prompt )?tokens|tokens > \d+ maximum",
    re.IGNORECASE,
)

_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")

_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|hf|nvapi|csk|fw|pplx|r8)[-_](?=[\w*.-]{0,99}\d)[\w*.-]{8,}|\bAIza[\w-]{20,}|(?<=Bearer )\S{8,}"
)
"""What looks like a key, for texts that quote it when the key itself is not known here."""

_MAX_TEXT = 2000
"""How much of a provider's words is kept, in characters."""


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, secrets: Iterable[str] = (), now: float | None = None
) -> ProviderError:
    """What an HTTP response without success means; for all vendors.

    Args:
      status: its status.
      headers: its headers; upper and lower case are the same.
      body: its body, or the beginning of it; JSON of any vendor, HTML of a proxy, or anything.
      secrets: texts that may not stand in the error, whoever wrote them (the key).
      now: the time, in seconds since the epoch, that a ``Retry-After`` with a date is compared with; by
        default the system's.
    """
    try:
        document = json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        document = _plain(body)
    return error_from_object(document, status=status, headers=headers, secrets=secrets, now=now)


def error_from_object(
    document: Any,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    now: float | None = None,
) -> ProviderError:
    """What an error object means: a whole body, or one inside a stream whose status was 200.

    Args:
      document: the parsed JSON: ``{"error": {...}}`` of any vendor, ``{"detail": ...}``, or a text.
      status: that of the response. Inside a stream it says nothing, so the object's own is taken.
      headers: those of the response.
      secrets: texts that may not stand in the error.
      now: as of :func:`error_from_response`.
    """
    known = {name.lower(): value for name, value in (headers or {}).items()}
    outer = document if isinstance(document, dict) else {}
    inner = outer.get("error") or outer
    error = inner if isinstance(inner, dict) else {}
    text = _text(error, inner, outer) if outer else str(document or "")
    words = [_word(error.get("code")), _word(error.get("type")), _word(_metadata(error).get("error_type"))]
    if status is None or status < 400:
        own = next((code for key in ("status_code", "status", "code") if (code := _number(error.get(key)))), None)
        status = own if own is not None else status
    cls = _classify(words, status, text)
    if len(text) > 4 * _MAX_TEXT:  # a key that is cut would not be found: cut between words
        text = "".join(text[: 4 * _MAX_TEXT].rsplit(None, 1)[:1])
    text = redacted(text, secrets)[:_MAX_TEXT]
    said = known.get("x-should-retry", "").lower()  # both vendors' SDKs obey it
    retryable = {"true": True, "false": False}.get(said)
    if retryable is None and not _FINAL.isdisjoint(words):
        retryable = False
    shown = "" if status is None or 200 <= status < 300 else f" (status {status})"
    request_id = next((known[name] for name in _REQUEST_ID_HEADERS if known.get(name)), outer.get("request_id"))
    return cls(
        f"{cls._summary}{shown}" + (f": {text}" if text else ""),
        status=status,
        request_id=request_id if isinstance(request_id, str) else None,
        retry_after=_retry_after(known, time.time() if now is None else now),
        provider_text=text,
        retryable=retryable,
    )


def _classify(words: Iterable[str], status: int | None, text: str) -> type[ProviderError]:
    bad = status is not None and status >= 400
    if (not bad or status in (400, 413, 422)) and _TOO_LONG.search(text):
        return ContextTooLongError
    for word in words:
        if word in _WORDS:
            return _WORDS[word]
    if status is not None and bad:
        return _STATUSES.get(status, InvalidRequestError if status < 500 else ServerError)
    if status is not None and 300 <= status < 400:
        return ProtocolError
    # Inside a stream: the request was taken, so an error of unknown name is the server's.
    return InvalidRequestError if any(word.startswith("invalidrequest") for word in words) else ServerError


def _word(value: object) -> str:
    return re.sub(r"[\s_-]", "", value).lower() if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    """An HTTP status of a failure, as number or digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:4])
    return value if type(value) is int and 400 <= value <= 599 else None


def _metadata(error: Mapping[str, Any]) -> Mapping[str, Any]:
    found = error.get("metadata")
    return found if isinstance(found, dict) else {}


def _text(error: Mapping[str, Any], inner: object, outer: Mapping[str, Any]) -> str:
    """The words of an error; OpenRouter puts those of the provider behind it into ``metadata``."""
    found = error.get("message") or outer.get("message") or outer.get("detail") or inner or ""
    text = found if isinstance(found, str) else json.dumps(found)
    raw = _metadata(error).get("raw")
    return f"{text}: {raw}" if isinstance(raw, str) and raw and raw not in text else text


def _plain(body: bytes) -> str:
    """The words of a body that is no JSON; of HTML those of its title, if it has one."""
    text = body[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    title = re.search(r"<title>([^<]*)", text, re.IGNORECASE)
    return " ".join((title[1] if title else re.sub(r"<[^<>]*>", " ", text)).split())


def redacted(text: str, secrets: Iterable[str]) -> str:
    """A text without keys, those that are known and what looks like one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "[key]")
    return _KEY.sub("[key]", text).encode("utf-8", "replace").decode("utf-8")


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds; from ``retry-after-ms`` (OpenAI), else ``Retry-After`` in seconds or as a date (RFC 9110)."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII):
            return float(text) / unit
    try:
        then = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, then.timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
