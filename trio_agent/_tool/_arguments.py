"""Coercion and validation of a call's arguments.

Models send arguments that mean the right thing in the wrong JSON type: ``"42"`` for a number, one
value for a list, a list written into a string (public reports B71 to B73). These, and only these,
are mended; then jsonschema-rs judges the result.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, NoReturn, final
from urllib.parse import quote, unquote

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as _ErrorKind

from trio_agent._errors import InvalidArgumentsError, ToolDefinitionError

__all__ = ["Validator"]

_MAX_DEPTH = 128  # levels of nesting; much deeper ones overflow jsonschema-rs's stack and kill the process
_MAX_INT = 2**1023  # jsonschema-rs compares integers that no double holds wrongly, without an error
_MAX_UNIONS = 8  # unions within unions that are looked into: each level multiplies the work
_MAX_TRIALS = 10_000  # branches of unions tried in one call
_MAX_LINES = 100  # faults told; a list of ten thousand wrong items would flood the model's context
_MAX_SHOWN = 80  # characters told of an offending value

_ROOT = "urn:trio-agent:parameters"
_MASK = "\0"  # stands in the messages of jsonschema-rs for the value, which they would quote in full
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0+)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_KINDS = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}
_KINDS |= {list: "array", dict: "object"}
_ANY_KIND = frozenset(_KINDS.values())
_ATOMS = frozenset({NoneType, bool, str})


# ------------------------------------------------------------- plain JSON


class _NotJsonError(Exception):
    """A value is no JSON, or beyond what can be validated. Its path grows while it passes upwards."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str | int] = []


def _plain(value: Any, whole: list[float], depth: int = 0) -> Any:
    """Copy a value as JSON of exactly the types that ``json.loads`` gives.

    Args:
      value: what to copy; tuples count as lists and any mapping as an object.
      whole: gets each float that has no fraction: an integer schema accepts it as it is.
      depth: how many containers are around the value.

    Raises:
      _NotJsonError: the value has no JSON form, is nested too deep or too large.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if not -_MAX_INT < value < _MAX_INT:
            raise _NotJsonError("the integer is too large")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _NotJsonError(f"{value!r} is no JSON number")
        if value.is_integer():
            whole.append(value)
        return float(value)
    if depth >= _MAX_DEPTH:
        raise _NotJsonError(f"it is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, list | tuple):
        items: list[Any] = []
        try:
            for item in value:
                items.append(_plain(item, whole, depth + 1))  # noqa: PERF401 - its length is the path
        except _NotJsonError as error:
            error.path.insert(0, len(items))
            raise
        return items
    if kind is not dict and not isinstance(value, Mapping):
        raise _NotJsonError(f"a Python {kind.__name__} is no JSON value")
    fields = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _NotJsonError("its keys must be strings")
        try:
            fields[key] = _plain(item, whole, depth + 1)
        except _NotJsonError as error:
            error.path.insert(0, key)
            raise
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _embedded(text: str) -> Any:
    """Parse a list or object that was written into a string; None if it is not exactly one.

    As strict as the final parse of a call (B64, B73: what is cut off must never become a part of
    what was meant), and as tolerant of raw control characters within strings (B62).
    """
    try:
        return _plain(json.loads(text, strict=False, parse_constant=_refuse_constant), [])
    except (ValueError, RecursionError, _NotJsonError):
        return None


def _number(text: str, whole: bool) -> int | float | None:
    """Read a number of JSON, an int if it is written as one; None if it is none.

    If it must be whole, ``4.0`` is one too, but not ``1e3``: models do not write that for a count.
    """
    if len(text) > 300 or (_INTEGER if whole else _NUMBER).fullmatch(text) is None:
        return None
    if whole or text.lstrip("-").isdigit():
        return int(text.partition(".")[0])
    number = float(text)
    return number if math.isfinite(number) else None


def _number_text(number: float) -> str:
    """Write a number as JavaScript does, like pi: ``5`` for both 5 and 5.0."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e21:
        return str(int(number))
    return str(number)


# --------------------------------------------------------------- coercion


class _Schema:
    """A schema as coercion looks at it. Shared by all calls of a tool, in whatever thread."""

    __slots__ = ("_judges", "_kinds", "_registry", "root")

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._kinds: dict[int, frozenset[str]] = {}  # by id(): the schema lives as long as this object
        self._judges: dict[str, Any] = {}
        self._registry: Any = None

    def kinds(self, schema: Any) -> frozenset[str]:
        """The JSON types that may pass a schema; ``integer`` always stands beside ``number``."""
        known = self._kinds.get(id(schema))
        if known is None:
            known = self._kinds[id(schema)] = self._find_kinds(schema, frozenset())
        return known

    def _find_kinds(self, schema: Any, around: frozenset[int]) -> frozenset[str]:
        if schema is False:
            return frozenset()
        if not isinstance(schema, dict) or id(schema) in around:
            return _ANY_KIND
        around |= {id(schema)}
        kinds = _types(schema) if "type" in schema else _ANY_KIND
        if (members := _members(schema)) is not None:
            kinds &= _with_integer({_KINDS[type(member)] for member in members})
        if (target := self.target(schema)) is not None:
            kinds &= self._find_kinds(target[0], around)
        for part in _list(schema, "allOf"):
            kinds &= self._find_kinds(part, around)
        for keyword in ("anyOf", "oneOf"):
            if branches := _list(schema, keyword):
                kinds &= frozenset[str]().union(*(self._find_kinds(branch, around) for branch in branches))
        return kinds

    def target(self, schema: dict[str, Any]) -> tuple[Any, str] | None:
        """What a ``$ref`` into the same document refers to, and its JSON pointer."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        pointer = unquote(reference[1:])
        found: Any = self.root
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None  # it goes through an $id of its own, which only the validator follows
        return found, pointer

    def fits(self, value: Any, pointer: str) -> bool:
        """Whether a value is valid for the part of the schema at a JSON pointer."""
        judge = self._judges.get(pointer)
        if judge is None:
            if self._registry is None:
                self._registry = jsonschema_rs.Registry([(_ROOT, self.root)], retriever=_refuse_retrieval)
            part: dict[str, Any] = {"$ref": f"{_ROOT}#{quote(pointer, safe='/~')}"}
            if "$schema" in self.root:
                part["$schema"] = self.root["$schema"]
            judge = jsonschema_rs.validator_for(part, registry=self._registry)
            self._judges[pointer] = judge
        return bool(judge.is_valid(value))


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    """The value of a keyword that holds a list; in older drafts the word may mean nothing."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _types(schema: dict[str, Any]) -> frozenset[str]:
    types = schema.get("type", ())
    return _with_integer({types} if isinstance(types, str) else set(types))


def _members(schema: dict[str, Any]) -> list[Any] | None:
    """The values that ``enum`` or ``const`` allow; None if there is neither."""
    if "const" in schema:
        return [schema["const"]]
    return _list(schema, "enum") if "enum" in schema else None


def _with_integer(kinds: set[str]) -> frozenset[str]:
    return frozenset(kinds | {"integer"} if "number" in kinds else kinds)


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


class _Coercion:
    """The coercion of one call's arguments. Returns new values, and never changes what it is given.

    Each method takes the schema and its JSON pointer. ``alone`` is true if the schema and all unions
    around it leave no other type than this one and null: only then is a value wrapped into a list
    or a number written as text.
    """

    __slots__ = ("_schema", "_trials", "_unions", "tangled")

    def __init__(self, schema: _Schema) -> None:
        self._schema = schema
        self._trials = 0
        self._unions = 0
        self.tangled = False
        """True if unions were nested too deeply to look into all of them."""

    def coerce(self, value: Any, schema: Any, pointer: str, alone: bool = True) -> Any:
        if not isinstance(schema, dict):
            return value
        kinds = self._schema.kinds(schema) - {"null"}
        alone = alone and len(kinds - {"integer"} if "number" in kinds else kinds) == 1
        if "type" in schema and value is not None:
            value = self._convert(value, schema, pointer, alone)
        if (members := _members(schema)) is not None:
            value = _choose_member(value, members)
        if (target := self._schema.target(schema)) is not None:
            value = self.coerce(value, *target, alone)
        for index, part in enumerate(_list(schema, "allOf")):
            value = self.coerce(value, part, f"{pointer}/allOf/{index}", alone)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                value = self._choose(value, _list(schema, keyword), f"{pointer}/{keyword}", alone)
        if isinstance(value, dict):
            return self._fields(value, schema, pointer)
        if isinstance(value, list):
            return self._items(value, schema, pointer)
        return value

    def _convert(self, value: Any, schema: dict[str, Any], pointer: str, alone: bool) -> Any:
        """Give a value the type that the schema names."""
        types = _types(schema)
        kind = _KINDS[type(value)]
        if kind in types:
            return value
        if kind == "number" and value.is_integer() and "integer" in types:
            return int(value)
        if kind == "string":
            found = _read(value, types)
            if found is not None:
                return found
        if kind in ("integer", "number") and "string" in types and alone:
            return _number_text(value)
        if "array" in types and alone:
            return self._wrap(value, schema, pointer)
        return value

    def _wrap(self, value: Any, schema: dict[str, Any], pointer: str) -> Any:
        """Make a list of its only item, if it is one; text that begins like a broken list is not (B71)."""
        items = schema.get("items", True)
        if "prefixItems" in schema or isinstance(items, list) or self._schema.kinds(items) == {"array"}:
            return value
        item = self.coerce(value, items, f"{pointer}/items")
        if isinstance(item, str) and (not item.strip() or item.lstrip()[0] in "[{"):
            return value
        return [item] if items is True or self._schema.fits(item, f"{pointer}/items") else value

    def _choose(self, value: Any, branches: list[Any], pointer: str, alone: bool) -> Any:
        """Coerce to the branch that is meant: the only one, one that fits as it is, the first that can."""
        places = [(branch, f"{pointer}/{index}") for index, branch in enumerate(branches)]
        open_to = [(branch, place) for branch, place in places if self._schema.kinds(branch) - {"null"}]
        if len(open_to) == 1:
            return value if value is None else self.coerce(value, *open_to[0], alone)
        for branch, place in places:
            if self._schema.fits(value, place):
                return self.coerce(value, branch, place, alone)
        if self._unions == _MAX_UNIONS or self._trials >= _MAX_TRIALS:
            self.tangled = True
            return value
        self._unions += 1
        found = value
        for branch, place in open_to:
            self._trials += 1
            candidate = self.coerce(value, branch, place, alone)
            if self._schema.fits(candidate, place):
                found = candidate
                break
        self._unions -= 1
        return found

    def _fields(self, value: dict[str, Any], schema: dict[str, Any], pointer: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = _list(schema, "required")
        # Which keys the patterns leave to additionalProperties is the validator's business.
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        fields = {}
        for key, item in value.items():
            if key in properties:
                part, step = properties[key], key.replace("~", "~0").replace("/", "~1")
                field = self.coerce(item, part, f"{pointer}/properties/{step}")
                if key not in required and self._means_nothing(field, part):
                    continue
                fields[key] = field
            else:
                fields[key] = self.coerce(item, others, f"{pointer}/additionalProperties")
        return fields

    def _means_nothing(self, value: Any, schema: Any) -> bool:
        """Whether an optional property was sent only to say that it is left out (B72)."""
        if value is None:
            return "null" not in self._schema.kinds(schema)
        return value == "" and "string" not in self._schema.kinds(schema)

    def _items(self, value: list[Any], schema: dict[str, Any], pointer: str) -> list[Any]:
        first, word, rest_word = _list(schema, "prefixItems"), "prefixItems", "items"
        if isinstance(schema.get("items"), list):  # drafts before 2020-12
            first, word, rest_word = schema["items"], "items", "additionalItems"
        rest = schema.get(rest_word)
        return [
            self.coerce(item, first[index], f"{pointer}/{word}/{index}")
            if index < len(first)
            else self.coerce(item, rest, f"{pointer}/{rest_word}")
            for index, item in enumerate(value)
        ]


def _read(text: str, types: frozenset[str]) -> Any:
    """Read a string as one of some types; None if it is none of them."""
    text = text.strip()
    if "integer" in types:
        number = _number(text, whole="number" not in types)
        if number is not None:
            return number
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if ("array" in types or "object" in types) and text[:1] in ("[", "{"):
        found = _embedded(text)
        # A single object for a list of objects is left to be wrapped.
        return found if _KINDS[type(found)] in types else None
    return None


def _choose_member(value: Any, members: list[Any]) -> Any:
    """Take the one member of an enumeration that a value of another type means."""
    if any(_same(value, member) for member in members):
        return value
    meant = [member for member in members if _means(value, member)]
    return meant[0] if len(meant) == 1 else value


def _means(value: Any, member: Any) -> bool:
    if isinstance(value, str) and isinstance(member, int | float):
        found = _read(value, frozenset({"boolean"} if isinstance(member, bool) else {"integer", "number"}))
        return found is not None and _same(found, member)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isinstance(member, str) and _number_text(value) == member


# ----------------------------------------------------------------- errors


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _MAX_SHOWN:
        text = f"{text[:_MAX_SHOWN]}..."
    # Half a surrogate pair must not get into a result: no request could carry it (B69).
    return text.encode("utf-8", "backslashreplace").decode()


def _path(steps: list[str | int]) -> str:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _IDENTIFIER.fullmatch(step):
            path += f".{step}"
        else:
            path += f"[{_show(step)}]"
    return path


def _lines(error: Any) -> Iterator[str]:
    """Say what jsonschema-rs found, a line for each fault."""
    path = _path(error.instance_path)
    shown = _show(error.instance)
    branches = getattr(error.kind, "context", ())
    if not branches or not all(branches):  # no union, or one of which too many branches fit
        text = error.message
        if isinstance(error.kind, _ErrorKind.Constant):
            text = f"{text}, not {_MASK}"
        elif isinstance(error.kind, _ErrorKind.FalseSchema):
            text = f"{_MASK} is not allowed"
        yield f"{path}: {text.replace(_MASK, shown)}"
        return
    # A branch that takes the value's type, and finds faults further inside, is what was meant.
    meant = [branch for branch in branches if not any(_at(fault, error) for fault in branch)]
    if len(meant) == 1:
        for fault in meant[0]:
            yield from _lines(fault)
        return
    reasons = []
    for branch in meant or branches:
        fault = branch[0]
        if _at(fault, error):
            reasons.append(fault.message.replace(_MASK, "it"))
        else:
            reasons.extend(_lines(fault))
    yield f"{path}: {shown} fits no alternative ({'; '.join(dict.fromkeys(reasons))})"


def _at(fault: Any, error: Any) -> bool:
    """Whether a branch's fault is that the value itself is of another type or no member."""
    types = _ErrorKind.Type | _ErrorKind.Enum | _ErrorKind.Constant
    return fault.instance_path == error.instance_path and isinstance(fault.kind, types)


# -------------------------------------------------------------- validator


def _refuse_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside of the schema; put it under $defs")


@final
class Validator:
    """Coerces and validates the arguments of one tool; compiled once.

    Coercion follows ``properties``, ``additionalProperties``, ``items``, ``prefixItems``, ``allOf``,
    ``anyOf``, ``oneOf``, ``enum``, ``const`` and ``$ref`` within the schema, and mends:

    - ``"42"``, ``"4.0"`` and 4.0 for an integer, ``"1.5"`` for a number, ``"true"`` for a boolean;
    - a list or object that was written into a string, if it is complete;
    - one value for a list, if it is a valid item and the schema takes no other type;
    - a number for a string, if the schema takes no other type (as pi does);
    - null, or ``""`` where no string is allowed, for an optional property: the property is dropped.

    What is valid as it is stays as it is; only a float such as 4.0 becomes an int where the schema
    says integer. Nothing is fetched: a schema must hold all that it refers to.

    Args:
      tool_name: what errors call the tool.
      schema: the JSON Schema of the arguments; draft 2020-12 unless ``$schema`` says otherwise.

    Raises:
      ToolDefinitionError: the schema is not valid, is not of type ``object``, or refers to what it
        does not hold.
    """

    __slots__ = ("_is_valid", "_iter_errors", "_schema", "tool_name")

    def __init__(self, tool_name: str, schema: Mapping[str, Any]) -> None:
        self.tool_name = tool_name
        if not isinstance(schema, Mapping):
            raise ToolDefinitionError(
                f"tool {tool_name!r}: parameters is {schema!r:.80}, but must be a JSON Schema in a dict"
            )
        if schema.get("type", "object") != "object":
            raise ToolDefinitionError(
                f"tool {tool_name!r}: the type of its parameters is {schema['type']!r:.80}, "
                "but arguments are always an object: say 'object', and put the value into a property"
            )
        fault = f"tool {tool_name!r}: its parameters are no valid JSON Schema"
        try:
            root = _plain(schema, [])
            compiled: Any = jsonschema_rs.validator_for(root, mask=_MASK, retriever=_refuse_retrieval)
        except _NotJsonError as error:
            raise ToolDefinitionError(f"{fault}: {_path(error.path)}: {error}") from None
        except ValueError as error:
            known = isinstance(error, jsonschema_rs.ValidationError)
            text = "; ".join(_lines(error)) if known else error
            raise ToolDefinitionError(f"{fault}: {text}") from error
        self._schema = _Schema(root)
        self._is_valid = compiled.is_valid
        self._iter_errors = compiled.iter_errors

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make valid arguments of raw ones. The raw ones are not changed, nor shared with the result.

        Raises:
          InvalidArgumentsError: they do not fit the schema; it lists every fault (up to 100).
        """
        if type(arguments) is not dict and not isinstance(arguments, Mapping):
            raise InvalidArgumentsError(self.tool_name, [f"$: {arguments!r:.80} is no JSON object"])
        whole: list[float] = []
        try:
            # Flat arguments are the rule; for them a call of _plain() for each would cost the most.
            plain = dict(arguments)
            for key, value in plain.items():
                kind = type(value)
                atom = kind in _ATOMS or (kind is int and -_MAX_INT < value < _MAX_INT)
                if not atom or type(key) is not str:
                    plain = _plain(arguments, whole)
                    break
            if self._is_valid(plain):
                return self._with_integers(plain) if whole else plain
            coercion = _Coercion(self._schema)
            coerced: dict[str, Any] = coercion.coerce(plain, self._schema.root, "")
            if self._is_valid(coerced):
                return coerced
            if coercion.tangled:  # jsonschema-rs would list the faults of every combination of branches
                lines = ["$: the arguments fit none of the alternatives that the schema nests"]
            else:
                lines = [line for error in self._iter_errors(coerced) for line in _lines(error)]
        except _NotJsonError as error:
            lines = [f"{_path(error.path)}: {error}"]
        except RecursionError:
            lines = ["$: the arguments are nested too deeply for the schema"]
        except UnicodeEncodeError as error:
            lines = [f"$: {_show(error.object)} holds half a surrogate pair, which is no text"]
        except ValueError as error:
            lines = [f"$: {error}"]
        if len(lines) > _MAX_LINES:
            lines[_MAX_LINES:] = [f"$: {len(lines) - _MAX_LINES} more faults"]
        raise InvalidArgumentsError(self.tool_name, lines)

    def _with_integers(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Make ints of the floats in valid arguments where the schema says integer, and no more."""
        try:
            coerced: dict[str, Any] = _Coercion(self._schema).coerce(plain, self._schema.root, "")
        except (RecursionError, ValueError):
            return plain
        return coerced if coerced == plain and self._is_valid(coerced) else plain
