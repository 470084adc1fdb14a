"""Values that are made quickly are what attrs would have made."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from typing import Any, final, get_type_hints

import attrs
import pytest
from rich.pretty import pretty_repr

from trio_agent import (
    MessageBuilder,
    MessageEnd,
    MessageStart,
    TextContent,
    TextDelta,
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
    assert inspect.signature(quick.__attrs_init__) == inspect.signature(slow.__init__)
    assert [(each.name, each.kind) for each in inspect.signature(quick).parameters.values()] == [
        (each.name, each.kind) for each in inspect.signature(slow).parameters.values()
    ]


@pytest.mark.parametrize("cls", [*{type(value) for value in MADE}, TextDelta])
def test_the_hints_of_a_class_can_be_read_though_it_is_shown_at_another_path(cls: type) -> None:
    hints = get_type_hints(cls)
    assert [name for name in hints if name not in {"type", "role"}] == [field.name for field in attrs.fields(cls)]


def test_a_value_can_be_referred_to_weakly_and_is_collected_in_a_cycle() -> None:
    details: list[Any] = []
    value = ToolResult(details=details)
    details.append(value)
    alive = weakref.ref(value)
    del value, details
    gc.collect()
    assert alive() is None


def test_what_is_hidden_from_repr_is_hidden_from_rich() -> None:
    builder = MessageBuilder()
    builder.text_start()
    assert pretty_repr(builder.text_delta("a")) == "TextDelta(index=0, delta='a')"


def test_to_be_compared_and_hashed_is_as_attrs_does_it() -> None:
    class Same(str):
        __slots__ = ()

    one = ToolExecutionStart("c1", "read", {"a": 1})
    assert one == ToolExecutionStart("c1", "read", {"a": 1})
    assert one != ToolExecutionStart("c1", "read", {"a": 2})
    assert one != ("c1", "read", {"a": 1})  # type: ignore[comparison-overlap]
    assert hash(MessageStart("a")) == hash(MessageStart(Same("a"))) != hash(MessageEnd("a"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hash(one)  # its arguments cannot be
    match one:
        case ToolExecutionStart(call_id, tool_name=name):
            assert (call_id, name) == ("c1", "read")


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

    @attrs.frozen
    class Converted:
        one: int = attrs.field(converter=int)
        two: int = attrs.field(converter=int)

    with pytest.raises(AssertionError, match="Converted has more than one converter"):
        quickly_made(Converted)
