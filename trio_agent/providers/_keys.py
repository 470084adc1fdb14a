"""Keys: where they come from, and that nothing shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ._errors import AuthenticationError
from ._model import HTTPModel

__all__ = ["SECRET_NAME", "key_of", "secrets_of", "without_secrets"]

_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")
SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
"""Names of headers and of parameters whose value is a secret."""


def key_of(model: HTTPModel, given: str | None, keys: Mapping[str, str]) -> str | None:
    """The key for a request: the agent's, the model's, that of ``open_models``, or the environment's.

    Raises:
      AuthenticationError: there is none, or it is none; sent nothing.
    """
    key = given or model.api_key or keys.get(model.provider)
    if not key and model.key_variable is not None:
        key = os.environ.get(model.key_variable)
    key = (key or "").strip()  # a variable that was read from a file ends in a newline
    if not key:
        if not model.key_required:
            return None
        named = f"set {model.key_variable}, or " if model.key_variable else ""
        raise AuthenticationError(
            f"there is no key for {model.provider!r}: {named}give one to open_models(api_keys=...)"
            " or to the agent with get_api_key"
        )
    if not _HEADER_VALUE.fullmatch(key):
        raise AuthenticationError(
            f"the key for {model.provider!r} has characters in it that no key has (spaces, control or non-ASCII"
            " characters); check how it was copied"
        )
    return key


def secrets_of(model: HTTPModel, key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What no error, log or observer may show."""
    password = urlsplit(model.base_url).password
    found = [key, *(value for name, value in headers.items() if SECRET_NAME.search(name))]
    found += [password, unquote(password)] if password else []
    found += [value for name, value in model.query.items() if SECRET_NAME.search(name)]
    return tuple(each for each in found if each)


def without_secrets(secrets: Iterable[str], value: Any) -> Any:
    """A copy of parsed JSON in which the secrets are replaced."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "[key]")
        return value
    if isinstance(value, list):
        return [without_secrets(secrets, item) for item in value]
    if isinstance(value, dict):
        return {name: without_secrets(secrets, item) for name, item in value.items()}
    return value
