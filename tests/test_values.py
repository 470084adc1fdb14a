"""Values that are made quickly are what attrs would have made."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any, final

import attrs
import pytest

from trio_agent import (
    MessageBuilder,
    TextContent,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    ToolResultMessage,
)
from trio_agent._values import quickly_made

MADE = [
    TextContent("text", text_signature="mark"),
    ToolCall("c1", "read", {"path": "x"}),
    ToolResult("text", details=5),
    ToolResultMessage("c1", "read", "text", is_error=True),
    ToolExecutionStart("c1", "read", {}),
    ToolExecutionEnd("c1", "read", ToolResult(), is_error=False),
]


def both() -> tuple[Any, Any]:
    """A class as attrs makes it, and the same made quickly."""

    def base() -> Any:
        @final
        @attrs.frozen
        class Value:
            first: int
            second: tuple[int, ...] = attrs.field(default=(), converter=tuple)
            third: str | None = attrs.field(default=None, kw_only=True)
            fourth: dict[str, int] = attrs.field(factory=dict, kw_only=True, repr=False)

        return Value

    return base(), quickly_made(base())


@pytest.mark.parametrize("value", MADE, ids=lambda value: type(value).__name__)
def test_a_value_is_of_its_class_frozen_and_survives_copies(value: Any) -> None:
    for one in (value, copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), attrs.evolve(value)):
        assert one == value
        assert type(one) is type(value)
        assert repr(one) == repr(value)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(one, attrs.fields(type(one))[0].name, "other")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            delattr(one, attrs.fields(type(one))[0].name)


def test_the_steps_of_an_answer_are_of_their_classes_too() -> None:
    builder = MessageBuilder()
    builder.text_start()
    delta = builder.text_delta("a")
    assert (type(delta).__name__, delta.delta, delta.index, delta.partial.text) == ("TextDelta", "a", 0, "a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        delta.delta = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, [2, 3]), {"third": "x"}), ((), {"first": 1, "fourth": {"a": 1}}), ((1,), {"second": {4: 5}})],
)
def test_arguments_defaults_and_converters_are_those_of_attrs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    slow, quick = both()
    assert attrs.asdict(quick(*args, **kwargs)) == attrs.asdict(slow(*args, **kwargs))
    assert repr(quick(*args, **kwargs)) == repr(slow(*args, **kwargs))


def test_the_signature_is_that_of_attrs() -> None:
    slow, quick = both()
    assert inspect.signature(quick) == inspect.signature(slow)
    assert quick.__init__.__qualname__ == f"{quick.__qualname__}.__init__"


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, (), "x"), {}), ((1,), {"fifth": 1}), ((1, 2), {})])
def test_what_attrs_refuses_is_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for cls in both():
        with pytest.raises(TypeError):
            cls(*args, **kwargs)


def test_a_factory_makes_a_new_object_each_time() -> None:
    _, quick = both()
    assert quick(1).fourth is not quick(1).fourth


def test_a_class_with_a_validator_or_a_computed_field_is_refused() -> None:
    @attrs.frozen
    class Checked:
        number: int = attrs.field(validator=attrs.validators.gt(0))

    @attrs.frozen
    class Computed:
        number: int = attrs.field(init=False, default=0)

    with pytest.raises(AssertionError, match=r"Checked\.number has a validator"):
        quickly_made(Checked)
    with pytest.raises(AssertionError, match=r"Computed\.number is computed"):
        quickly_made(Computed)
