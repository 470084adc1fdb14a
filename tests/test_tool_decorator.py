"""The decorator ``tool``: from a function to a tool that a model can call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, cast

import attrs
import jsonschema_rs
import pytest
import trio

from trio_agent._errors import InvalidArgumentsError, ToolDefinitionError
from trio_agent._messages import ToolDeclaration
from trio_agent._tool import Tool, ToolContext, tool

NO_CONTEXT = cast("ToolContext", None)


@attrs.frozen
class Place:
    name: str
    floor: int = 0


@tool
async def weather(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """Forecast the weather.

    Args:
        city: where
        days: how far ahead
    """
    await trio.lowlevel.checkpoint()
    return f"{city} {days} {unit}"


async def test_a_bare_decorator_makes_a_tool_of_an_async_function() -> None:
    assert isinstance(weather, Tool)
    assert weather.declaration == ToolDeclaration(
        "weather",
        "Forecast the weather.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": "integer", "description": "how far ahead", "default": 3},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    )
    assert weather.is_async
    assert weather.label == "weather"
    arguments = weather.validate({"city": "Ulm", "days": "2", "unit": None})
    assert await weather.execute(arguments, NO_CONTEXT) == "Ulm 2 C"


def test_a_plain_function_makes_a_tool_that_runs_in_a_thread() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    assert not add.is_async
    assert add.in_thread
    assert add.description == ""
    assert add.execute(add.validate({"a": "1", "b": 2.0}), NO_CONTEXT) == 3


def test_the_decorators_settings_are_those_of_the_tool() -> None:
    limiter = trio.CapacityLimiter(1)

    def prepare(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return raw

    @tool(
        name="look_up",
        description="Look it up.",
        label="Look up",
        execution_mode="sequential",
        prepare_arguments=prepare,
        timeout=2.5,
        limiter=limiter,
        in_thread=False,
        abandon_on_cancel=True,
    )
    def function(key: str) -> str:
        """Not this."""
        return key

    assert (function.name, function.description, function.label) == ("look_up", "Look it up.", "Look up")
    assert function.execution_mode == "sequential"
    assert function.prepare_arguments is prepare
    assert (function.timeout, function.limiter) == (2.5, limiter)
    assert (function.in_thread, function.abandon_on_cancel) == (False, True)


def test_a_decorator_with_nothing_in_its_parentheses_reads_the_function() -> None:
    @tool()
    def ping() -> str:
        """Answer."""
        return "pong"

    assert (ping.name, ping.description) == ("ping", "Answer.")


def test_an_empty_description_hides_the_docstring() -> None:
    @tool(description="")
    def secret() -> None:
        """A note for colleagues."""

    assert secret.description == ""


def test_a_lambda_is_a_tool_once_it_has_a_name() -> None:
    one = tool(name="one")(lambda: 1)
    assert one.name == "one"
    with pytest.raises(ToolDefinitionError, match="has no name"):
        tool(lambda: 1)


async def test_the_context_is_filled_in() -> None:
    @tool
    async def where(place: Place, ctx: ToolContext, deep: bool = False) -> Any:
        await trio.lowlevel.checkpoint()
        return place, ctx, deep

    assert list(where.parameters["properties"]) == ["place", "deep"]
    context = cast("ToolContext", object())
    found = await where.execute(where.validate({"place": '{"name": "roof", "floor": "5"}'}), context)
    assert found == (Place("roof", 5), context, False)


def test_errors_name_the_tool_and_not_the_function() -> None:
    @tool(name="clock")
    def function(hour: int) -> None: ...

    with pytest.raises(InvalidArgumentsError) as caught:
        function.validate({"hour": "noon"})
    assert caught.value.tool_name == "clock"


def test_methods_of_one_object_are_tools_that_share_it() -> None:
    class Counter:
        total = 0

        def add(self, number: int) -> int:
            """Add a number."""
            self.total += number
            return self.total

    counter = Counter()
    add = tool(counter.add)
    assert (add.name, add.description) == ("add", "Add a number.")
    assert [add.execute({"number": 2}, NO_CONTEXT) for _ in range(2)] == [2, 4]


@pytest.mark.parametrize("form", [tool, tool()], ids=["bare", "with parentheses"])
def test_a_function_that_makes_no_tool_is_refused_at_the_decorator(form: Any) -> None:
    def function(*names: str) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"takes \*names"):
        form(function)


def test_a_tool_with_a_raw_schema_validates_by_it() -> None:
    raw = Tool(
        "raw",
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        execute=lambda arguments, context: arguments["n"],
    )
    assert raw.execute(raw.validate({"n": "4"}), NO_CONTEXT) == 4
    with pytest.raises(ToolDefinitionError, match="tool 'raw': its parameters are no valid JSON Schema"):
        attrs.evolve(raw, parameters={"properties": 5})


def test_every_schema_that_the_decorator_writes_is_valid_json_schema() -> None:
    @tool
    def function(a: Place, b: list[Place] | None = None, c: dict[str, Literal[1, 2]] | str = "x") -> None: ...

    assert jsonschema_rs.meta.is_valid(dict(function.parameters))
    assert inspect.isfunction(function.execute)


async def test_a_decorated_function_can_be_called_by_itself() -> None:
    @tool
    async def double(n: int) -> int:
        """Double a number."""
        await trio.lowlevel.checkpoint()
        return 2 * n

    assert await double(4) == 8
    raw = Tool("raw", execute=lambda arguments, context: "done")
    with pytest.raises(TypeError, match=r"tool 'raw' was not made of a function; call its execute"):
        raw(1)
