"""What a function says of itself as a tool, and how it is called with what the schema let through."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import attrs
import jsonschema_rs
import msgspec
import pytest
import trio
from msgspec import Meta

from trio_agent._errors import InvalidArgumentsError, ToolDefinitionError
from trio_agent._tool._arguments import Validator
from trio_agent._tool._schema import Described, describe_function

if TYPE_CHECKING:
    from fractions import Fraction


class Context:
    """Stands for ToolContext."""


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    TWO = "two"


@attrs.frozen
class Point:
    x: int
    y: Annotated[float, Meta(ge=0)] = 0.0


@attrs.frozen
class Line:
    start: Point
    end: Point
    color: Color = Color.RED


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


class Options(TypedDict, total=False):
    title: str
    size: int


class Pair(NamedTuple):
    left: int
    right: str


class Shape(msgspec.Struct, tag_field="kind", tag="shape"):
    sides: int


class Disc(msgspec.Struct, tag_field="kind", tag="disc"):
    radius: float


T = TypeVar("T")


@attrs.frozen
class Box(Generic[T]):
    content: T


UserId = NewType("UserId", int)


def describe(function: Callable[..., Any], **more: Any) -> Described:
    return describe_function(function, Context, **more)


def of_type(hint: Any, default: Any = inspect.Parameter.empty) -> Described:
    """A tool function with a parameter ``x`` of a type, that returns what it got."""

    def echo(x): ...  # type: ignore[no-untyped-def]

    echo.__annotations__ = {"x": hint}
    if default is not inspect.Parameter.empty:
        echo.__defaults__ = (default,)
    # The body is set apart, so that the annotation may be any object.
    echo.__code__ = (lambda x: x).__code__.replace(co_name="echo")
    return describe(echo)


# ----------------------------------------------------------------- schema


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", None], {"type": ["null", "string"], "enum": [None, "a"]}),  # noqa: PYI061 - it is the case
        (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        (dict[str, Literal["a"]], {"type": "object", "additionalProperties": {"type": "string", "enum": ["a"]}}),
        (int | Literal["auto"], {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["auto"]}]}),
        (Color, {"type": "string", "enum": ["blue", "red"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (UserId, {"type": "integer"}),
        (Path, {"type": "string"}),
        (date, {"type": "string", "format": "date"}),
        (Annotated[datetime, Meta(tz=True)], {"type": "string", "format": "date-time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Annotated[int, Meta(ge=1, le=3)], {"type": "integer", "minimum": 1, "maximum": 3}),
        (Annotated[str, Meta(pattern="^a")], {"type": "string", "pattern": "^a"}),
        (Annotated[int, "a note of somebody else's"], {"type": "integer"}),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number", "minimum": 0, "default": 0.0}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Options,
            {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "title": {"type": "string"}},
                "required": [],
                "additionalProperties": False,
            },
        ),
        (
            Pair,
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (
            Box[int],
            {
                "type": "object",
                "properties": {"content": {"type": "integer"}},
                "required": ["content"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_the_schema_of_a_parameter_of_type(hint: Any, schema: dict[str, Any]) -> None:
    parameters = of_type(hint).parameters
    assert parameters == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    Validator("t", parameters)


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def ping() -> str:
        return "pong"

    assert describe(ping).parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert describe(ping).execute({}, Context()) == "pong"


def test_what_is_shared_or_recursive_stands_under_defs_and_the_rest_in_place() -> None:
    def draw(line: Line, tree: Node | None = None) -> None: ...

    parameters = describe(draw).parameters
    assert set(parameters["$defs"]) == {"Point", "Node"}
    assert parameters["properties"]["line"]["properties"] == {
        "start": {"$ref": "#/$defs/Point"},
        "end": {"$ref": "#/$defs/Point"},
        "color": {"type": "string", "enum": ["blue", "red"], "default": "red"},
    }
    assert parameters["properties"]["tree"]["anyOf"][0] == {"$ref": "#/$defs/Node"}
    assert "title" not in str(parameters)


def test_classes_of_one_name_are_kept_apart() -> None:
    def make(kind: type) -> Any:
        return attrs.make_class("Same", {"field": attrs.field(type=kind)})

    one, other = make(int), make(str)
    described = of_type(tuple.__class_getitem__((one, one, other, other)))
    validator = Validator("t", described.parameters)
    good = {"x": [{"field": 1}, {"field": 2}, {"field": "a"}, {"field": "b"}]}
    assert validator(good) == good
    with pytest.raises(InvalidArgumentsError, match=r"x\[0\]\.field"):
        validator({"x": [{"field": "a"}, {"field": 2}, {"field": "a"}, {"field": "b"}]})


def test_tagged_structs_may_stand_in_a_union() -> None:
    described = of_type(Shape | Disc)
    assert "discriminator" not in str(described.parameters)
    arguments = Validator("t", described.parameters)({"x": '{"kind": "disc", "radius": "2"}'})
    assert described.execute(arguments, None) == Disc(2)


def test_a_property_may_be_called_title_or_like_a_word_of_json_schema() -> None:
    def write(title: str, properties: int, items: int = 3, default: str = "d") -> str:
        return f"{title} {properties} {items} {default}"

    described = describe(write)
    assert list(described.parameters["properties"]) == ["title", "properties", "items", "default"]
    assert described.execute({"title": "t", "properties": 1}, None) == "t 1 3 d"


@pytest.mark.parametrize(
    ("hint", "default", "written"),
    [
        (int, 3, 3),
        (str | None, None, None),
        (list[int], [], []),
        (tuple[int, ...], (1, 2), [1, 2]),
        (Color, Color.BLUE, "blue"),
        (Point, Point(1), {"x": 1, "y": 0.0}),
        (Path, Path("a/b"), "a/b"),
        (datetime, datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00Z"),
    ],
)
def test_a_default_is_written_as_json(hint: Any, default: Any, written: Any) -> None:
    described = of_type(hint, default)
    assert described.parameters["properties"]["x"]["default"] == written
    assert "required" not in described.parameters
    assert described.execute({}, None) is default


@pytest.mark.parametrize(
    ("hint", "default"), [(int, None), (float, math.nan), (Any, object()), (str, 3), (Point, "nowhere")]
)
def test_a_default_without_a_json_form_is_only_the_functions_business(hint: Any, default: Any) -> None:
    described = of_type(hint, default)
    assert "default" not in described.parameters["properties"]["x"]
    assert "required" not in described.parameters
    assert described.execute({}, None) is default


# -------------------------------------------------------------- docstrings


def google(city: str, days: int = 1, *, ctx: Context) -> None:
    """Ask for the weather.

    Knows Europe.

    Steps:
        one: two

    Args:
        city: the name
            of the city
        days (int, optional): how many: at most 5
        ctx: hidden

    Returns:
        A text.

    Raises:
        ValueError: never.
    """


def sphinx(city: str, days: int = 1) -> None:
    """Ask for the weather.

    Knows Europe.

    :param city: the name
        of the city
    :param int days: how many: at most 5
    :returns: a text
    """


def numpy(city: str, days: int = 1) -> None:
    """Ask for the weather.

    Knows Europe.

    Parameters
    ----------
    city : str
        the name
        of the city
    days : int, optional
        how many: at most 5

    Returns
    -------
    str
    """


@pytest.mark.parametrize("function", [google, sphinx, numpy])
def test_descriptions_come_from_docstrings(function: Callable[..., Any]) -> None:
    described = describe(function)
    assert described.name == function.__name__
    assert described.description.startswith("Ask for the weather.\n\nKnows Europe.")
    assert "the name" not in described.description
    assert "eturns" not in described.description
    texts = {name: part["description"] for name, part in described.parameters["properties"].items()}
    assert texts == {"city": "the name of the city", "days": "how many: at most 5"}


def test_other_sections_stay_in_the_description() -> None:
    assert describe(google).description == "Ask for the weather.\n\nKnows Europe.\n\nSteps:\n    one: two"


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("", ""),
        ("Only this: no more.", "Only this: no more."),
        ("Two\nlines.", "Two\n\nlines."),
        ("Args:\n  nothing here", "Args:\n\nnothing here"),
        (":param", ":param"),
        ("x\n\n:param a b c d: e", "x\n\n:param a b c d: e"),
    ],
)
def test_a_docstring_in_no_style_is_all_description(text: str | None, description: str) -> None:
    def function(a: int) -> None: ...

    function.__doc__ = text
    described = describe(function)
    assert described.description == description
    assert described.parameters["properties"] == {"a": {"type": "integer"}}


def test_a_description_in_the_annotation_comes_before_the_docstring() -> None:
    def function(a: Annotated[int, Meta(description="annotated")]) -> None:
        """Do it.

        Args:
            a: documented
        """

    assert describe(function).parameters["properties"]["a"]["description"] == "annotated"


def test_a_parameters_own_text_wins_over_that_of_its_class() -> None:
    @dataclasses.dataclass
    class Place:
        """Any place."""

        name: str

    def go(to: Annotated[Place, Meta(description="where to")], from_: int = 0) -> None: ...

    go.__annotations__["to"] = Annotated[Place, Meta(description="where to")]
    assert describe(go).parameters["properties"]["to"]["description"] == "where to"
    assert of_type(Place).parameters["properties"]["x"]["description"] == "Any place."


# -------------------------------------------------------------------- call


@pytest.mark.parametrize(
    ("hint", "raw", "value"),
    [
        (str, "a", "a"),
        (list[str], '["a"]', ["a"]),
        (dict[str, list[int]], {"a": "1"}, {"a": [1]}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (tuple[int, str], ["1", 2], (1, "2")),
        (set[int], [1, 2], {1, 2}),
        (Literal["a", "b"], "a", "a"),
        (UserId, "3", 3),
        (Annotated[int, Meta(ge=1)], "3", 3),
        (Color, "red", Color.RED),
        (Color | None, None, None),
        (list[Color], "blue", [Color.BLUE]),
        (Level, "2", Level.HIGH),
        (Point, {"x": "1"}, Point(1)),
        (list[Point], {"x": 1.0}, [Point(1)]),
        (Point | None, '{"x": 1, "y": "2.5"}', Point(1, 2.5)),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Node, {"value": 1, "children": [{"value": "2"}]}, Node(1, [Node(2)])),
        (Options, {"size": "3"}, {"size": 3}),
        (Pair, ["1", "b"], Pair(1, "b")),
        (Box[int], {"content": "1"}, Box(1)),
        (Path, "/a/b", Path("/a/b")),
        (list[Path], ["a"], [Path("a")]),
        (datetime, "2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (date, "2024-01-02", date(2024, 1, 2)),
        (Decimal, "1.10", Decimal("1.10")),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID(int=0x12345678123456781234567812345678)),
        (bytes, "YQ==", b"a"),
        (float, 1, 1),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_the_function_gets_values_of_its_types(hint: Any, raw: Any, value: Any) -> None:
    described = of_type(hint)
    arguments = Validator("t", described.parameters)({"x": raw})
    assert jsonschema_rs.is_valid(described.parameters, arguments)
    before = repr(arguments)
    found = described.execute(arguments, None)
    assert found == value
    assert type(found) is type(value)
    assert repr(arguments) == before


@pytest.mark.parametrize(
    ("hint", "raw", "line"),
    [
        (datetime, "tomorrow", "$.x: Invalid RFC3339 encoded datetime"),
        (list[date], ["2024-01-01", "x"], "$.x[1]: Invalid RFC3339 encoded date"),
        (bytes, "?", "$.x: Invalid base64 encoded string"),
    ],
)
def test_what_only_the_type_can_refuse_is_an_arguments_error(hint: Any, raw: Any, line: str) -> None:
    described = of_type(hint)
    arguments = Validator("t", described.parameters)({"x": raw})
    with pytest.raises(InvalidArgumentsError) as caught:
        described.execute(arguments, None)
    assert caught.value.tool_name == "echo"
    assert caught.value.errors == (line,)


def test_an_attrs_validator_that_refuses_is_an_arguments_error() -> None:
    @attrs.frozen
    class Even:
        number: int = attrs.field()

        @number.validator
        def _check(self, _: Any, value: int) -> None:
            if value % 2:
                raise ValueError(f"{value} is odd")

    described = of_type(list[Even])
    assert described.execute({"x": [{"number": 2}]}, None) == [Even(2)]
    with pytest.raises(InvalidArgumentsError, match=r"\$\.x\[0\]: 3 is odd"):
        described.execute({"x": [{"number": 3}]}, None)


def test_the_functions_own_defaults_are_used_for_what_is_left_out() -> None:
    mark = Point(9)

    def function(a: int, b: Point = mark, c: int | None = None) -> Any:
        return a, b, c

    execute = describe(function).execute
    assert execute({"a": 1}, None) == (1, mark, None)
    assert execute({"a": 1}, None)[1] is mark
    assert execute({"a": 1, "b": {"x": 2}, "c": 3}, None) == (1, Point(2), 3)


def test_errors_of_the_function_itself_pass_as_they_are() -> None:
    def function(a: Color) -> None:
        raise msgspec.ValidationError("mine")

    with pytest.raises(msgspec.ValidationError, match="mine"):
        describe(function).execute({"a": "red"}, None)


def plain_context(a: int, ctx: Context) -> Any:
    return a, ctx


def optional_context(a: int, ctx: Context | None = None) -> Any:
    return a, ctx


def annotated_context(a: int, ctx: Annotated[Context, "filled in"]) -> Any:
    return a, ctx


def context_first(ctx: Context, /, a: int) -> Any:
    return a, ctx


def typed_beside_context(a: Level, *, ctx: Context) -> Any:
    return a, ctx


@pytest.mark.parametrize(
    "function", [plain_context, optional_context, annotated_context, context_first, typed_beside_context]
)
def test_the_context_is_filled_in_and_hidden_from_the_model(function: Callable[..., Any]) -> None:
    described = describe(function)
    assert list(described.parameters["properties"]) == ["a"]
    context = Context()
    arguments = {"a": 1}
    assert described.execute(arguments, context) == (1, context)
    assert arguments == {"a": 1}


def test_a_model_cannot_pass_a_context_of_its_own() -> None:
    described = describe(plain_context)
    with pytest.raises(InvalidArgumentsError, match="ctx"):
        Validator("t", described.parameters)({"a": 1, "ctx": {}})
    context = Context()
    assert described.execute({"a": 1, "ctx": "smuggled by a hook"}, context) == (1, context)


def test_positional_only_parameters_are_passed_by_position() -> None:
    def function(a: int, b: int = 2, c: Color = Color.RED, /, d: int = 4) -> Any:
        return a, b, c, d

    execute = describe(function).execute
    assert execute({"a": 1}, None) == (1, 2, Color.RED, 4)
    assert execute({"a": 1, "c": "blue", "d": 5}, None) == (1, 2, Color.BLUE, 5)


class Store:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def put(self, number: int) -> str:
        """Put a number."""
        self.seen.append(number)
        return "done"

    async def get(self, index: int, ctx: Context) -> int:
        await trio.lowlevel.checkpoint()
        return self.seen[index]

    @classmethod
    def make(cls, number: int) -> str:
        return f"{cls.__name__} {number}"

    @staticmethod
    def double(number: int) -> int:
        return 2 * number


def test_bound_methods_are_tools() -> None:
    store = Store()
    described = describe(store.put)
    assert (described.name, described.description) == ("put", "Put a number.")
    assert described.execute({"number": 3}, None) == "done"
    assert store.seen == [3]
    assert describe(Store.make).execute({"number": 3}, None) == "Store 3"
    assert describe(Store.double).execute({"number": 3}, None) == 6


async def test_execute_is_async_exactly_if_the_function_is() -> None:
    async def waits(a: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + 1

    async def waits_typed(a: Point) -> Point:
        await trio.lowlevel.checkpoint()
        return a

    @functools.wraps(waits)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return waits(*args, **kwargs)

    def computes(a: int) -> int:
        return a + 1

    @functools.wraps(computes)
    async def made_async(*args: Any, **kwargs: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return computes(*args, **kwargs)

    for function, raw, value in (
        (waits, 1, 2),
        (waits_typed, {"x": 1}, Point(1)),
        (decorated, 1, 2),
        (made_async, 1, 2),
    ):
        described = describe(function)
        assert inspect.iscoroutinefunction(described.execute)
        assert await described.execute({"a": raw}, None) == value
    assert inspect.iscoroutinefunction(describe(Store().get).execute)
    assert not inspect.iscoroutinefunction(describe(computes).execute)
    assert describe(computes).execute({"a": 1}, None) == 2


def test_a_decorated_function_shows_what_it_wraps() -> None:
    def inner(a: Color, ctx: Context) -> Any:
        """Do it."""
        return a

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return "outer", inner(*args, **kwargs)

    described = describe(outer)
    assert (described.name, described.description) == ("inner", "Do it.")
    assert described.execute({"a": "red"}, Context()) == ("outer", Color.RED)


def test_the_call_goes_through_the_validator_and_back() -> None:
    def function(city: str, days: Annotated[int, Meta(ge=1)] = 3, where: Point | None = None) -> Any:
        return city, days, where

    described = describe(function)
    validator = Validator("function", described.parameters)
    assert described.execute(validator({"city": 5, "days": "2", "where": None}), None) == ("5", 2, None)
    assert described.execute(validator({"city": "a", "days": "", "where": '{"x": "1"}'}), None) == ("a", 3, Point(1))
    with pytest.raises(InvalidArgumentsError) as caught:
        validator({"days": 0, "where": {"x": "q", "z": 1}})
    assert len(caught.value.errors) == 4


# ----------------------------------------------------------------- refusals


class Callable1:
    def __call__(self, a: int) -> int:
        return a


class Own:
    pass


@attrs.frozen
class Private:
    _x: int


@attrs.frozen
class Alias:
    x: int = attrs.field(alias="y")


@attrs.frozen
class NotInit:
    x: int = attrs.field(init=False, default=1)


@attrs.frozen
class Converter:
    x: tuple[int, ...] = attrs.field(converter=tuple)


@dataclasses.dataclass
class NotInitEither:
    x: int = dataclasses.field(init=False, default=1)


@attrs.frozen
class Outer:
    inner: list[Private]


def generator(a: int) -> Iterator[int]:
    yield a


async def async_generator(a: int) -> AsyncIterator[int]:
    await trio.lowlevel.checkpoint()
    yield a


def unannotated(a, b: int) -> None: ...  # type: ignore[no-untyped-def]
def var_positional(a: int, *rest: str) -> None: ...
def var_keyword(a: int, **rest: str) -> None: ...
def for_type_checkers_only(a: int, b: Fraction) -> None: ...
def misspelt(a: int, b: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_type(a: int, b: int) -> None: ...


no_type.__annotations__["b"] = "1 +"


def local_type() -> Callable[..., Any]:
    @attrs.frozen
    class Local:
        x: int

    def function(a: int, b: Local) -> None: ...

    return function


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (async_generator, r"'async_generator' yields, but a tool returns once; .*ToolContext\.update"),
        (generator, r"'generator' yields, but a tool returns once"),
        (unannotated, r"'unannotated': parameter 'a' has no annotation; write its type, such as a: str"),
        (Store.put, r"'Store\.put': parameter 'self' has no annotation; .*tool\(instance\.method\)"),
        (var_positional, r"'var_positional' takes \*rest, .* take one list or dict, or give Tool\(parameters="),
        (var_keyword, r"'var_keyword' takes \*\*rest, .* or give Tool\(parameters="),
        (for_type_checkers_only, r"parameter 'b' is annotated 'Fraction'.*outside of TYPE_CHECKING"),
        (misspelt, r"parameter 'b' is annotated 'Nowhere', but 'Nowhere' is no global name"),
        (no_type, r"parameter 'b' is annotated '1 \+', which is no type"),
        (local_type(), r"'local_type\.<locals>\.function': parameter 'b' is annotated 'Local'.*top of the module"),
        (lambda: 1, r"<lambda>' has no name; give one: tool\(name=\.\.\.\)"),
        (functools.partial(google, "a"), r"functools\.partial.* is no function; .*wrap it in one"),
        (Callable1(), r"Callable1 object .* is no function"),
        (Own, r"Own'> is no function"),
        (print, r"<built-in function print> is no function"),
        (staticmethod(google), r"is no function"),
        ("text", r"'text' is no function"),
    ],
)
def test_a_function_that_makes_no_tool_is_refused_with_the_remedy(function: Any, text: str) -> None:
    with pytest.raises(ToolDefinitionError, match=text):
        describe(function)


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Own, r"Own'>, of which no JSON Schema can be made"),
        (object, r"of which no JSON Schema can be made"),
        (Iterable[str], r"of which no JSON Schema can be made"),
        (list[Own], r"of which no JSON Schema can be made"),
        (Context | int, r"of which no JSON Schema can be made"),
        (Mixed, r"Enums must contain either all str or all int values"),
        (Point | Node, r"may not contain more than one dataclass or attrs type"),
        (Point | Options, r"may not contain more than one dict-like type"),
        (Color | str, r"may not contain more than one str-like type"),
        (Private, r"the field '_x' of Private is called 'x' in __init__"),
        (Alias, r"the field 'x' of Alias is called 'y' in __init__"),
        (NotInit, r"the field 'x' of NotInit is no argument of __init__"),
        (Converter, r"the field 'x' of Converter has a converter"),
        (NotInitEither, r"the field 'x' of NotInitEither is no argument of __init__"),
        (dict[str, Outer | None], r"the field '_x' of Private"),
        (Box[Private], r"the field '_x' of Private"),
        (5, r"has the type 5"),
    ],
)
def test_a_type_without_a_faithful_schema_is_refused_with_parameter_and_remedy(hint: Any, text: str) -> None:
    with pytest.raises(ToolDefinitionError, match=text) as caught:
        of_type(hint)
    assert "parameter 'x'" in str(caught.value)
    assert "or give Tool(parameters=..., execute=...) a JSON Schema of your own" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_return_annotation_that_cannot_be_resolved_does_no_harm() -> None:
    def function(a: int) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return a

    assert describe(function).execute({"a": 1}, None) == 1


def test_a_name_of_its_own_is_used_for_tool_and_errors() -> None:
    described = describe(lambda: 1, name="one")
    assert (described.name, described.execute({}, None)) == ("one", 1)

    def function(when: datetime) -> None: ...

    with pytest.raises(InvalidArgumentsError, match="'clock'"):
        describe(function, name="clock").execute({"when": "now"}, None)
