"""What a server's error means, for both vendors; and that no key ever stands in one."""

from __future__ import annotations

import json
import pickle
from email.utils import formatdate
from typing import Any

import pytest

from trio_agent import ModelRequest, SimpleModel, TrioAgentError, normalize_context
from trio_agent.providers import (
    AuthenticationError,
    ContextTooLongError,
    InvalidRequestError,
    NotFoundError,
    OpenAIChatDecoder,
    OverloadedError,
    PermissionDeniedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    RefusedError,
    ServerError,
    TransportError,
    error_from_object,
    error_from_response,
)


def openai(message: str = "Sorry.", type: str | None = None, code: object = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic(type: str, message: str = "Sorry.") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}}


CASES: list[tuple[int, Any, type[ProviderError], bool]] = [
    (401, openai("Wrong key.", "invalid_request_error", "invalid_api_key"), AuthenticationError, False),
    (401, anthropic("authentication_error"), AuthenticationError, False),
    (401, {"detail": "Invalid key"}, AuthenticationError, False),
    (402, openai("Insufficient Balance"), PermissionDeniedError, False),
    (403, anthropic("permission_error"), PermissionDeniedError, False),
    (404, openai("No such model.", "invalid_request_error", "model_not_found"), NotFoundError, False),
    (404, anthropic("not_found_error"), NotFoundError, False),
    (429, openai("Slow down.", "tokens", "rate_limit_exceeded"), RateLimitError, True),
    (429, openai("Slow down.", None, "RateLimitReached"), RateLimitError, True),
    (429, openai("You have no credit.", "insufficient_quota", "insufficient_quota"), RateLimitError, False),
    (429, anthropic("rate_limit_error"), RateLimitError, True),
    (503, openai("Loading model", "unavailable_error", 503), OverloadedError, True),
    (529, anthropic("overloaded_error"), OverloadedError, True),
    (529, openai("Busy.", "server_error", "overloaded"), OverloadedError, True),
    (500, anthropic("api_error"), ServerError, True),
    (500, openai("Oops."), ServerError, True),
    (504, "", ServerError, True),
    (408, "", ServerError, True),
    (400, openai("Bad field.", "invalid_request_error"), InvalidRequestError, False),
    (400, anthropic("invalid_request_error"), InvalidRequestError, False),
    (413, anthropic("request_too_large"), InvalidRequestError, False),
    (418, "I'm a teapot", InvalidRequestError, False),
    (400, openai("x", "invalid_request_error", "context_length_exceeded"), ContextTooLongError, False),
    (400, openai("This model's maximum context length is 9 tokens."), ContextTooLongError, False),
    (400, openai("9 tokens are more than the context size of 8"), ContextTooLongError, False),
    (400, openai("Prompt too long by 9 tokens"), ContextTooLongError, False),
    (400, anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ContextTooLongError, False),
    (400, openai("The filter was triggered.", None, "content_filter"), RefusedError, False),
    (307, "", ProtocolError, True),
]


@pytest.mark.parametrize(("status", "document", "cls", "retryable"), CASES)
def test_a_response_without_success(status: int, document: Any, cls: type[ProviderError], retryable: bool) -> None:
    body = document if isinstance(document, str) else json.dumps(document)
    error = error_from_response(status, {}, body.encode())
    assert type(error) is cls
    assert (error.status, error.retryable) == (status, retryable)
    assert f"(status {status})" in str(error) or status < 400
    assert error.provider_text in str(error)


@pytest.mark.parametrize(
    ("document", "cls", "status"),
    [
        (anthropic("overloaded_error", "Overloaded"), OverloadedError, 200),
        (openai("The server had an error", "server_error"), ServerError, 200),
        (openai("Provider disconnected", None, 502), ServerError, 502),
        (openai("No tool call", "invalid_request_error", "tool_use_failed"), InvalidRequestError, 200),
        ({"error": {"message": "x", "status_code": 400}}, InvalidRequestError, 400),
        ({"object": "error", "message": "too much", "code": 429}, RateLimitError, 429),
        ({"error": "it broke"}, ServerError, 200),
        ("it broke", ServerError, 200),
        ({"error": {"message": ["odd"]}}, ServerError, 200),
        ({}, ServerError, 200),
        (None, ServerError, 200),
        ([], ServerError, 200),
        ({"error": {"code": True, "type": 5, "metadata": []}}, ServerError, 200),
    ],
)
def test_b81_an_error_inside_a_stream_is_of_the_class_that_it_says(
    document: Any, cls: type[ProviderError], status: int
) -> None:
    error = error_from_object(document, status=200)
    assert type(error) is cls
    assert error.status == status


def test_all_are_one_tree_with_kinds_of_their_own() -> None:
    classes = {cls for _, _, cls, _ in CASES} | {TransportError}
    assert all(issubclass(cls, ProviderError) for cls in classes)
    assert issubclass(ProviderError, TrioAgentError)
    assert issubclass(ContextTooLongError, InvalidRequestError)
    assert len({cls.kind for cls in classes}) == len(classes)


def test_an_error_pickles_with_all_that_it_knows() -> None:
    error = error_from_response(429, {"Retry-After": "3", "X-Request-Id": "r1"}, json.dumps(openai("Slow.")).encode())
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is RateLimitError
    assert vars(other) == vars(error)
    assert str(other) == str(error) == "a rate limit is reached (status 429): Slow."
    assert (other.status, other.request_id, other.retry_after, other.provider_text) == (429, "r1", 3.0, "Slow.")


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "277403"}, 277403.0),
        ({"RETRY-AFTER": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": formatdate(NOW + 40, usegmt=True)}, 40.0),
        ({"retry-after": formatdate(NOW - 40, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_b91_how_long_the_provider_wants_us_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert error_from_response(429, headers, b"", now=NOW).retry_after == seconds


@pytest.mark.parametrize("name", ["x-request-id", "Request-Id", "apim-request-id"])
def test_the_request_id_is_in_a_header_or_in_the_body(name: str) -> None:
    assert error_from_response(500, {name: "r1"}, b"").request_id == "r1"
    assert error_from_response(500, {}, b'{"request_id": "r2", "error": {}}').request_id == "r2"
    assert error_from_response(500, {}, b'{"request_id": 5}').request_id is None


def test_the_server_may_say_whether_to_try_again() -> None:
    assert not error_from_response(500, {"X-Should-Retry": "false"}, b"").retryable
    assert error_from_response(400, {"x-should-retry": "true"}, b"").retryable


def test_html_of_a_proxy_is_shown_by_its_title() -> None:
    page = b"<html><head><title>502 Bad\nGateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
    error = error_from_response(502, {"content-type": "text/html"}, page)
    assert type(error) is ServerError
    assert error.provider_text == "502 Bad Gateway"
    assert error_from_response(502, {}, b"<b>Bad</b> luck").provider_text == "Bad luck"


def test_the_words_of_the_provider_behind_a_gateway_are_told() -> None:
    document = {"error": {"code": 429, "message": "Upstream failed", "metadata": {"raw": "busy upstream"}}}
    assert error_from_object(document).provider_text == "Upstream failed: busy upstream"


KEYS = ["sk-proj-abcDEF0123456789", "gsk_0123456789abcdef", "AIza" + "b" * 35, "sk-ant-api03-abcdefgh", "my own secret"]


@pytest.mark.parametrize("key", KEYS)
def test_no_key_stands_in_an_error(key: str) -> None:
    text = f"The key {key} is wrong. Authorization: Bearer {key}"
    error = error_from_response(401, {}, json.dumps(openai(text)).encode(), secrets=[key])
    whole = f"{error} {error!r} {vars(error)} {error.args}"
    assert key not in whole
    assert "[key]" in error.provider_text
    if key != "my own secret":  # what looks like one is found, too
        assert key not in repr(vars(error_from_object(openai(text))))


def test_a_decoder_knows_the_key_of_its_request() -> None:
    context = normalize_context([])
    request = ModelRequest(SimpleModel("p", "m"), context, api_key="my own secret")
    for status, body in (
        (401, b"the key my own secret is wrong"),
        (200, b'data: {"error": "my own secret is wrong"}'),
        (200, b"data: my own secret\n\n"),
        (200, b'data: {"choices": {"my own secret": 1}}'),
    ):
        decoder = OpenAIChatDecoder(request, status=status)
        decoder.feed(body)
        decoder.end()
        assert decoder.error is not None
        assert "my own secret" not in f"{decoder.error!r} {vars(decoder.error)}"
        assert decoder.builder.model == "m"


def test_words_that_only_begin_like_a_key_stay() -> None:
    assert error_from_object(openai("no tool key_value_store")).provider_text == "no tool key_value_store"


def test_long_words_are_cut_and_halves_of_characters_replaced() -> None:
    error = error_from_response(500, {}, json.dumps(openai("\ud83d" + "x" * 5000)).encode())
    assert len(error.provider_text) == 2000
    assert str(error).encode()


def test_a_key_at_the_place_where_words_are_cut_is_not_shown() -> None:
    secret = "my-own-secret"
    for shift in range(20):
        text = f"{secret} " * 400 + "x" * shift + f" {secret}" * 400
        assert "my-own" not in str(error_from_object(openai(text), secrets=[secret]))


def test_the_body_of_an_error_is_read_no_further_than_it_is_shown() -> None:
    decoder = OpenAIChatDecoder(status=500)
    for _ in range(100):
        decoder.feed(b"x" * 100_000)
        if decoder.done:
            break
    assert decoder.done
    with pytest.raises(ServerError):
        decoder.finish()
