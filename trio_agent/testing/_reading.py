"""Reading JSON documents strictly: every value is checked, and every error names file, place and value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from trio_agent import FormatError

_T = TypeVar("_T")

Read: TypeAlias = Callable[[Any, str], _T]
"""Makes something of a JSON value; the string is its place, for errors."""

_REQUIRED: Any = object()


def refuse(where: str, value: Any, wanted: str) -> NoReturn:
    """Raise the error that names a place, its value and what it must be."""
    text = json.dumps(value)
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise FormatError(f"{where} is {shown}, but must be {wanted}")


def string(value: Any, where: str) -> str:
    """Read a string."""
    if not isinstance(value, str):
        refuse(where, value, "a string")
    return value


def boolean(value: Any, where: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        refuse(where, value, "true or false")
    return value


def true(value: Any, where: str) -> bool:
    """Read true."""
    if value is not True:
        refuse(where, value, "true")
    return True


def json_object(value: Any, where: str) -> dict[str, Any]:
    """Read any object."""
    if not isinstance(value, dict):
        refuse(where, value, "an object")
    return value


def anything(value: Any, where: str) -> Any:
    """Read any value."""
    return value


def count(value: Any, where: str) -> int:
    """Read a whole number from 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        refuse(where, value, "a whole number from 1")
    return value


def amount(value: Any, where: str) -> int:
    """Read a whole number from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        refuse(where, value, "a whole number from 0")
    return value


def milliseconds(value: Any, where: str) -> float:
    """Read milliseconds; gives seconds."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= 1e12
        or not math.isfinite(value)
    ):
        refuse(where, value, "a number of milliseconds from 0 to 1e12")
    return value / 1000


def one_of(*choices: str) -> Read[Any]:
    """Read one of some strings."""

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in choices:
            refuse(where, value, "one of " + ", ".join(choices))
        return value

    return read


def array(read_one: Read[_T]) -> Read[tuple[_T, ...]]:
    """Read a list, its elements one by one."""

    def read(value: Any, where: str) -> tuple[_T, ...]:
        if not isinstance(value, list):
            refuse(where, value, "an array")
        return tuple(read_one(item, f"{where}[{index}]") for index, item in enumerate(value))

    return read


def mapping(read_one: Read[_T]) -> Read[dict[str, _T]]:
    """Read an object of values of one kind."""

    def read(value: Any, where: str) -> dict[str, _T]:
        return {key: read_one(item, f"{where}.{key}") for key, item in json_object(value, where).items()}

    return read


def or_null(read_one: Read[_T]) -> Read[_T | None]:
    """Read null, or what another reader reads."""
    return lambda value, where: None if value is None else read_one(value, where)


class Keys:
    """An object that is read key by key; what nobody asked for is an error."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        self.value = json_object(value, where)
        self._asked: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def take(self, key: str, read: Read[_T], default: Any = _REQUIRED) -> _T:
        """Read one key.

        Args:
          key: the key.
          read: what reads its value.
          default: in place of a value that is not there; without one the key is required.
        """
        self._asked[key] = None
        if key in self.value:
            # The whole document's place is the name of its file, with a colon.
            gap = " " if self.where.endswith(":") else "."
            return read(self.value[key], f"{self.where}{gap}{key}")
        if default is _REQUIRED:
            raise FormatError(f"{self.where} lacks the key {key!r}")
        value: _T = default
        return value

    def only(self, names: Sequence[str]) -> str:
        """Which of some keys is there; exactly one must be."""
        found = [name for name in names if name in self.value]
        if len(found) != 1:
            refuse(self.where, self.value, "an object with exactly one of the keys " + ", ".join(names))
        return found[0]

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.value:
            if key not in self._asked:
                known = ", ".join(self._asked)
                raise FormatError(f"{self.where} has the key {key!r}, but known here are: {known}")


def load_json(path: str | Path) -> Any:
    """Read a JSON file strictly.

    Raises:
      FormatError: it is no JSON; the text names file and place.
      OSError: the file cannot be read.
    """

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(Path(path).read_bytes(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the file is no JSON: {error}") from error
