"""JSON Schema from a signature, and the call of a function with what the schema let through.

msgspec knows the types: it writes their schemas, and makes typed values of plain JSON.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, Union, final, get_args, get_origin, get_type_hints

import attrs
import docstring_parser
import msgspec
import msgspec.inspect as mi

from trio_agent._errors import InvalidArgumentsError, ToolDefinitionError

__all__ = ["Described", "describe_function"]

_PLAIN = (str, int, float, bool, None, NoneType, Any, list, dict)
_RAW = "or give Tool(parameters=..., execute=...) a JSON Schema of your own"
_DEFS = "#/$defs/"
_STYLES = (
    docstring_parser.DocstringStyle.GOOGLE,
    docstring_parser.DocstringStyle.REST,
    docstring_parser.DocstringStyle.NUMPYDOC,
)


@final
@attrs.frozen
class Described:
    """What a function says of itself as a tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    execute: Callable[[dict[str, Any], Any], Any]
    """Calls the function with validated arguments and a context; async if the function is."""


@attrs.frozen
class _Parameter:
    name: str
    hint: Any
    default: Any
    positional_only: bool
    is_context: bool

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def describe_function(function: Callable[..., Any], context_type: type, name: str | None = None) -> Described:
    """Read name, description, JSON Schema and types out of a function's signature and docstring.

    Args:
      function: an async or plain function, or a bound method.
      context_type: a parameter of this type, or of this type or None, gets the context of the call
        and is not shown to the model.
      name: of the tool, in place of the function's.

    Raises:
      ToolDefinitionError: it is no such function, or a parameter has no annotation, cannot be named
        by a model (``*args``) or has a type without a JSON Schema.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDefinitionError(
            f"{function!r:.100} is no function; a tool is made of a function or a bound method, so wrap it in one"
        )
    label = f"tool function {function.__qualname__!r}"
    inner: Any = inspect.unwrap(function)
    if any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in (function, inner)):
        raise ToolDefinitionError(f"{label} yields, but a tool returns once; report progress with ToolContext.update()")
    name = name or function.__name__
    if name == "<lambda>":
        raise ToolDefinitionError(f"{label} has no name; give one: tool(name=...)")
    parameters = _read_parameters(function, inner, context_type, label)
    shown = [parameter for parameter in parameters if not parameter.is_context]
    description, texts = _read_docstring(inspect.getdoc(function) or "", {each.name for each in shown})
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    return Described(
        name=name,
        description=description,
        parameters=_build_schema(shown, texts, label),
        execute=_build_execute(name, function, parameters, is_async),
    )


# -------------------------------------------------------------- signature


def _read_parameters(function: Callable[..., Any], inner: Any, context_type: type, label: str) -> list[_Parameter]:
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolDefinitionError(
                f"{label} takes {str(parameter).partition(':')[0]}, but a model must be told each name; "
                f"write the parameters one by one, take one list or dict, {_RAW}"
            )
        if parameter.annotation is parameter.empty:
            remedy = f"write its type, such as {name}: str"
            if name in ("self", "cls"):
                remedy = "make the tool of the bound method: tool(instance.method)"
            raise ToolDefinitionError(f"{label}: parameter {name!r} has no annotation; {remedy}")
        hint = _resolve(parameter.annotation, inner, f"{label}: parameter {name!r}")
        parameters.append(
            _Parameter(
                name,
                hint,
                parameter.default,
                parameter.kind is parameter.POSITIONAL_ONLY,
                _is_context(hint, context_type),
            )
        )
    return parameters


def _resolve(annotation: Any, inner: Any, label: str) -> Any:
    """Evaluate one annotation, so that an error can name its parameter."""

    def probe() -> None: ...

    probe.__annotations__ = {"hint": annotation}
    try:
        return get_type_hints(probe, inner.__globals__, include_extras=True)["hint"]
    except NameError as error:
        raise ToolDefinitionError(
            f"{label} is annotated {annotation!r}, but {error.name!r} is no global name when the tool is made; "
            "define or import it at the top of the module and outside of TYPE_CHECKING, "
            f"do without `from __future__ import annotations` there, {_RAW}"
        ) from error
    except Exception as error:
        raise ToolDefinitionError(f"{label} is annotated {annotation!r}, which is no type: {error}") from error


def _is_context(hint: Any, context_type: type) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is context_type or (
        get_origin(hint) in (Union, UnionType) and set(get_args(hint)) == {context_type, NoneType}
    )


def _read_docstring(text: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description of the tool and those of its parameters."""
    best = docstring_parser.Docstring()
    best.short_description = text
    score = (-1, -1)
    for style in _STYLES:
        try:
            parsed = docstring_parser.parse(text, style)
        except Exception:  # noqa: S112 - what is in no known style is all description
            continue
        found = (sum(each.arg_name in names for each in parsed.params), len(parsed.meta))
        if found > score:
            best, score = parsed, found
    parts = (best.short_description, best.long_description)
    texts = {each.arg_name: " ".join(each.description.split()) for each in best.params if each.description is not None}
    return "\n\n".join(part for part in parts if part), texts


# ----------------------------------------------------------------- schema


def _build_schema(parameters: Sequence[_Parameter], texts: Mapping[str, str], label: str) -> dict[str, Any]:
    for parameter in parameters:
        _check_type(parameter, label)
    hints = [parameter.hint for parameter in parameters]
    schemas, components = msgspec.json.schema_components(hints, schema_hook=_schema_hook, ref_template=_DEFS + "{name}")
    tidy = _Tidy(schemas, components)
    properties = {}
    for parameter, schema in zip(parameters, schemas, strict=True):
        entry = tidy(schema)
        if parameter.name in texts and "description" not in schema:
            entry["description"] = texts[parameter.name]
        if not parameter.required and (default := _plain_default(parameter)) is not msgspec.UNSET:
            entry["default"] = default
        properties[parameter.name] = entry
    built: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [parameter.name for parameter in parameters if parameter.required]:
        built["required"] = required
    built["additionalProperties"] = False
    if shared := tidy.shared():
        built["$defs"] = shared
    return built


def _check_type(parameter: _Parameter, label: str) -> None:
    """Refuse a type without a schema, and classes that msgspec would fill otherwise than they expect."""
    where = f"{label}: parameter {parameter.name!r}"
    try:
        msgspec.json.schema_components([parameter.hint], schema_hook=_schema_hook)
        classes = [*_classes(mi.type_info(parameter.hint))]
    except Exception as error:
        reason = str(error).split(":\n")[0].replace("\n", " ")
        raise ToolDefinitionError(
            f"{where} has the type {parameter.hint!r}, of which no JSON Schema can be made ({reason}); "
            f"use a type that msgspec knows, {_RAW}"
        ) from error
    for cls in classes:
        for name, fault in _odd_fields(cls):
            raise ToolDefinitionError(
                f"{where}: the field {name!r} of {cls.__qualname__} {fault}, which a model's JSON would get "
                f"around; use a class without such fields, {_RAW}"
            )


def _classes(info: mi.Type) -> Iterator[type]:
    """All dataclasses and attrs classes within a type, however deep."""
    seen: set[int] = set()
    parts: list[Any] = [info]
    while parts:
        part = parts.pop()
        if id(part) in seen or not isinstance(part, mi.Type | mi.Field):
            continue
        seen.add(id(part))
        if isinstance(part, mi.DataclassType):
            yield get_origin(part.cls) or part.cls
        for name in part.__struct_fields__:
            value = getattr(part, name)
            parts.extend(value if isinstance(value, tuple) else [value])


def _odd_fields(cls: type) -> Iterator[tuple[str, str]]:
    """The fields that msgspec sets by name without asking ``__init__``: not what their class means."""
    if attrs.has(cls):
        for field in attrs.fields(cls):
            if not field.init:
                yield field.name, "is no argument of __init__"
            elif field.alias != field.name:
                yield field.name, f"is called {field.alias!r} in __init__"
            elif field.converter is not None:
                yield field.name, "has a converter"
    else:
        for field in dataclasses.fields(cls):
            if not field.init:
                yield field.name, "is no argument of __init__"


class _Tidy:
    """Makes schemas of msgspec's what models read most easily.

    What is used once stands where it is used; only shared and recursive classes stay under ``$defs``.
    Enumerations say their type, classes take no unknown fields, and the titles of classes are dropped.
    """

    def __init__(self, schemas: Sequence[dict[str, Any]], components: dict[str, Any]) -> None:
        uses = Counter(_references([*schemas, components]))
        self._components = {_DEFS + name: component for name, component in components.items()}
        self._single = {reference for reference, count in uses.items() if count == 1}

    def __call__(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A tidy copy of a schema."""
        reference = schema.get("$ref")
        if reference in self._single:
            there = {key: value for key, value in self._components[reference].items() if key != "title"}
            schema = {**there, **{key: value for key, value in schema.items() if key != "$ref"}}
        tidy = {key: value for key, value in schema.items() if key != "discriminator"}  # OpenAPI's
        for key in ("items", "additionalProperties", "propertyNames"):
            if isinstance(tidy.get(key), dict):
                tidy[key] = self(tidy[key])
        for key in ("anyOf", "prefixItems"):
            if key in tidy:
                tidy[key] = [self(part) for part in tidy[key]]
        if "properties" in tidy:
            tidy["properties"] = {name: self(part) for name, part in tidy["properties"].items()}
            tidy.setdefault("additionalProperties", False)
        if "enum" in tidy and "type" not in tidy:
            names = {str: "string", bool: "boolean", int: "integer", NoneType: "null"}
            types = [*dict.fromkeys(names[type(member)] for member in tidy["enum"])]
            tidy = {"type": types[0] if len(types) == 1 else types, **tidy}
        return tidy

    def shared(self) -> dict[str, Any]:
        """What has to stand under ``$defs``."""
        return {
            reference.removeprefix(_DEFS): self({key: value for key, value in part.items() if key != "title"})
            for reference, part in self._components.items()
            if reference not in self._single
        }


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(reference := part.get("$ref"), str):
            yield reference
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _schema_hook(cls: type) -> dict[str, Any]:
    if issubclass(cls, PurePath):
        return {"type": "string"}
    raise NotImplementedError


def _plain_default(parameter: _Parameter) -> Any:
    """A default as JSON; UNSET if it has no JSON form, or is a mere mark such as None for an int."""
    try:
        plain = msgspec.to_builtins(parameter.default, str_keys=True, enc_hook=_write_other)
        plain = json.loads(json.dumps(plain, allow_nan=False))
        msgspec.convert(plain, parameter.hint, str_keys=True, dec_hook=_read_other)
    except Exception:
        return msgspec.UNSET
    return plain


# ------------------------------------------------------------------- call


def _build_execute(
    tool_name: str, function: Callable[..., Any], parameters: Sequence[_Parameter], is_async: bool
) -> Callable[[dict[str, Any], Any], Any]:
    """Make what a tool executes. Everything that can be decided beforehand is decided here."""
    contexts = [each.name for each in parameters if each.is_context]
    positional = [(each.name, () if each.required else (each.default,)) for each in parameters if each.positional_only]
    typed = [each for each in parameters if not each.is_context and not _is_plain(each.hint)]
    names = [each.name for each in typed]
    # One struct for all: msgspec compiles a struct once, but a bare list[Point] at every call.
    fields = [(each.name, each.hint, msgspec.UNSET) for each in typed]
    shape = msgspec.defstruct("Arguments", fields) if fields else None

    def call(arguments: dict[str, Any], context: Any) -> Any:
        if shape is not None:
            arguments = arguments.copy()
            try:
                values = msgspec.convert(arguments, shape, str_keys=True, dec_hook=_read_other)
            except msgspec.ValidationError as error:
                text, _, path = str(error).partition(" - at `")
                raise InvalidArgumentsError(tool_name, [f"{path.rstrip('`') or '$'}: {text}"]) from error
            for name in names:
                if name in arguments:
                    arguments[name] = getattr(values, name)
        if contexts:
            arguments = arguments.copy()
            for name in contexts:
                arguments[name] = context
        if positional:
            arguments = arguments.copy()
            first = [arguments.pop(name, *default) for name, default in positional]
            return function(*first, **arguments)
        return function(**arguments)

    if not is_async:
        return call

    async def call_async(arguments: dict[str, Any], context: Any) -> Any:
        return await call(arguments, context)

    return call_async


def _is_plain(hint: Any) -> bool:
    """Whether values of a type are the JSON that the validator lets through, so that none is converted."""
    if hint in _PLAIN:
        return True
    if isinstance(hint, NewType):
        return _is_plain(hint.__supertype__)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_plain(parts[0])
    if origin is dict:
        return parts[0] is str and _is_plain(parts[1])
    return origin is Literal or (origin in (list, Union, UnionType) and all(map(_is_plain, parts)))


def _read_other(cls: type, value: Any) -> Any:
    if issubclass(cls, PurePath) and isinstance(value, str):
        return cls(value)
    raise NotImplementedError


def _write_other(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError
