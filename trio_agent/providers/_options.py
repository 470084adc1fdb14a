"""The options of a request: what ``Agent(options={...})`` may hold for models over HTTP.

The names are pi's in snake_case, and those of the vendors' SDKs.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

from trio_agent._errors import UsageError
from trio_agent._messages import ThinkingLevel

__all__ = ["OPTIONS", "checked_options"]


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _tokens(value: Any) -> bool:
    return type(value) is int and value > 0


def _budgets(value: Any) -> bool:
    levels = get_args(ThinkingLevel)
    return isinstance(value, Mapping) and all(name in levels and _tokens(number) for name, number in value.items())


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, str) for pair in value.items() for item in pair)


def _object(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


OPTIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "cache_retention": (lambda value: value in ("none", "short", "long"), "'none', 'short' or 'long'"),
    "extra_body": (_object, "a mapping with the names of fields"),
    "headers": (_headers, "a mapping of texts to texts"),
    "max_tokens": (_tokens, "a whole number of tokens above 0"),
    "metadata": (_object, "a mapping with the names of fields"),
    "on_payload": (callable, "a function of payload and model"),
    "on_response": (callable, "a function of response and model"),
    "stop": (_texts, "a list of texts"),
    "temperature": (_number, "a number"),
    "thinking_budgets": (_budgets, "a mapping of thinking levels to tokens above 0"),
    "tool_choice": (
        lambda value: isinstance(value, str) and bool(value),
        "'auto', 'none', 'required' or the name of a tool",
    ),
}
"""What may be given, how it is checked, and what it must be."""


def checked_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options without those that are None.

    Raises:
      UsageError: one is unknown, or is not what it must be.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in OPTIONS:
            near = difflib.get_close_matches(str(name), OPTIONS, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(OPTIONS)}"
            raise UsageError(f"there is no option {name!r} for a model over HTTP; {remedy}")
        accepts, wanted = OPTIONS[name]
        if not accepts(value):
            # What a header holds may be a key, and errors are logged.
            shown = f"a {type(value).__name__}" if name == "headers" else f"{value!r:.80}"
            raise UsageError(f"the option {name!r} is {shown}, but must be {wanted}")
    return given
