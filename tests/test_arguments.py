"""Coercion and validation of arguments. jsonschema-rs is the judge of what comes out."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import math
import pickle
import random
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import jsonschema_rs
import pytest

from trio_agent._errors import InvalidArgumentsError, ToolDefinitionError
from trio_agent._tool._arguments import Validator

MISSING = object()
"""The property is dropped."""

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
NULL = {"type": "null"}
STRINGS = {"type": "array", "items": STRING}
INTEGERS = {"type": "array", "items": INTEGER}
POINT = {
    "type": "object",
    "properties": {"a": INTEGER, "inner": {"type": "object", "properties": {"days": INTEGERS}}},
    "required": ["a"],
}


def union(*branches: Any) -> dict[str, Any]:
    return {"anyOf": list(branches)}


def of(schema: Any, *, required: bool = False, definitions: Any = None, **more: Any) -> dict[str, Any]:
    """The schema of an object whose property ``x`` has a schema."""
    whole = {"type": "object", "properties": {"x": schema}, "$defs": definitions or {}, **more}
    return {**whole, "required": ["x"]} if required else whole


def errors(schema: Mapping[str, Any], arguments: Any) -> list[str]:
    with pytest.raises(InvalidArgumentsError) as caught:
        Validator("t", schema)(arguments)
    assert caught.value.tool_name == "t"
    return list(caught.value.errors)


def check(schema: dict[str, Any], value: Any, expected: Any) -> None:
    """Coerce ``{"x": value}``; the input must stay as it was, the output be valid and of the very types."""
    raw = {"x": value}
    before = copy.deepcopy(raw)
    found = Validator("t", schema)(raw)
    assert repr(raw) == repr(before)
    assert jsonschema_rs.is_valid(schema, found)
    wanted = {} if expected is MISSING else {"x": expected}
    assert repr(found) == repr(wanted)


# ------------------------------------------------- what models get wrong


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INTEGER, "42", 42),
        (INTEGER, "-42", -42),
        (INTEGER, "4.0", 4),
        (INTEGER, "-0.0", 0),
        (INTEGER, " 42 ", 42),
        (INTEGER, "\n42\t", 42),
        (INTEGER, "12345678901234567891.0", 12345678901234567891),
        (INTEGER, 4.0, 4),
        (INTEGER, 42, 42),
        (NUMBER, "1.5", 1.5),
        (NUMBER, "42", 42),
        (NUMBER, "1e3", 1000.0),
        (NUMBER, " -2.5E-1 ", -0.25),
        (NUMBER, 4.0, 4.0),
        (NUMBER, 4, 4),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False", False),
        (BOOLEAN, " TRUE ", True),
        (STRING, 5, "5"),
        (STRING, 5.0, "5"),
        (STRING, 1.5, "1.5"),
        (STRING, "", ""),
        (STRING, "42", "42"),
        (STRING, "true", "true"),
    ],
)
def test_b72_a_scalar_in_the_wrong_type_is_read_as_the_type_that_is_asked_for(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    check(of(schema, required=True), value, expected)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INTEGER, "abc"),
        (INTEGER, "4.5"),
        (INTEGER, 4.5),
        (INTEGER, "1e3"),
        (INTEGER, "0x10"),
        (INTEGER, "1,000"),
        (INTEGER, "1_000"),
        (INTEGER, "007"),
        (INTEGER, "+5"),
        (INTEGER, "\u0664\u0662"),  # Arabic digits: int() reads them
        (INTEGER, "9" * 5000),
        (INTEGER, ""),
        (INTEGER, True),
        (INTEGER, "true"),
        (INTEGER, [1]),
        (INTEGER, "[1]"),
        (INTEGER, {"a": 1}),
        (NUMBER, "Infinity"),
        (NUMBER, "NaN"),
        (NUMBER, "nan"),
        (NUMBER, "1e999"),
        (NUMBER, "."),
        (NUMBER, False),
        (BOOLEAN, "yes"),
        (BOOLEAN, "1"),
        (BOOLEAN, 1),
        (BOOLEAN, 0.0),
        (STRING, True),
        (STRING, None),
        (STRING, ["a"]),
        (STRING, {"a": 1}),
        (INTEGER, None),
        (STRINGS, None),
        (STRINGS, ""),
        (STRINGS, "  "),
        (POINT, ""),
        (NULL, "null"),
        (NULL, ""),
    ],
)
def test_b72_what_cannot_be_meant_is_an_error_that_names_path_and_value(schema: dict[str, Any], value: Any) -> None:
    (line,) = errors(of(schema, required=True), {"x": value})
    shown = json.dumps(value, ensure_ascii=False)
    assert line.startswith(f"$.x: {shown[:80]}")
    assert f'is not of type "{schema["type"]}"' in line


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (STRINGS, '["test"]', ["test"]),
        (STRINGS, " [] ", []),
        (STRINGS, '["raw\nnewline"]', ["raw\nnewline"]),  # B62
        (STRINGS, '["a", 5]', ["a", "5"]),
        (INTEGERS, '["1", 2.0, 3]', [1, 2, 3]),
        (STRINGS, "test", ["test"]),
        (STRINGS, "a, b", ["a, b"]),
        (STRINGS, 5, ["5"]),
        (INTEGERS, "5", [5]),
        (INTEGERS, 5, [5]),
        (INTEGERS, 5.0, [5]),
        ({"type": "array"}, "ab", ["ab"]),
        ({"type": "array"}, {"a": 1}, [{"a": 1}]),
        ({"type": "array", "items": POINT}, {"a": "1"}, [{"a": 1}]),
        ({"type": "array", "items": POINT}, '{"a": 1}', [{"a": 1}]),
        ({"type": "array", "items": INTEGERS}, "[[1], 2]", [[1], [2]]),
        (STRING, '["test"]', '["test"]'),
        (STRING, '{"a": 1}', '{"a": 1}'),
        ({"type": ["string", "array"]}, '["test"]', '["test"]'),
        ({"type": ["string", "array"]}, ["test"], ["test"]),
        (union(STRING, STRINGS), '["test"]', '["test"]'),
        (union(STRINGS, STRING), "test", "test"),
        (union(STRINGS, NULL), '["test"]', ["test"]),
        (union(STRINGS, NULL), "test", ["test"]),
        (union(STRINGS, NULL), None, None),
        (union(INTEGERS, INTEGER), "5", 5),
        (union(INTEGERS, INTEGER), "[5]", [5]),
        ({"type": ["array", "null"], "items": STRING}, '["test"]', ["test"]),
    ],
)
def test_b71_a_list_that_was_written_as_text_or_as_its_only_item_is_a_list(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    check(of(schema, required=True), value, expected)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRINGS, "[broken"),
        (STRINGS, '["a"'),
        (STRINGS, '["a",]'),
        (STRINGS, '["a"] and more'),
        (STRINGS, "['a']"),
        (STRINGS, "[draft] a title"),
        (STRINGS, "[NaN]"),
        (STRINGS, '{"a": 1}'),
        (STRINGS, {"a": 1}),
        (STRINGS, True),
        (INTEGERS, "abc"),  # never exploded into letters
        (INTEGERS, "[1e999]"),
        ({"type": "array", "prefixItems": [STRING], "items": False}, "a"),
        ({"type": "array", "items": STRINGS}, "a"),
        ({"type": "array", "items": False}, "a"),
        ({"type": ["array", "integer"], "items": STRING}, "a"),
    ],
)
def test_b71_what_is_neither_a_whole_list_nor_an_item_is_an_error(schema: dict[str, Any], value: Any) -> None:
    assert errors(of(schema, required=True), {"x": value})[0].startswith("$.x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"a":1}', {"a": 1}),
        ('{"a":"1"}', {"a": 1}),
        ({"a": 1, "inner": '{"days":[1]}'}, {"a": 1, "inner": {"days": [1]}}),
        (
            json.dumps({"a": 1, "inner": json.dumps({"days": json.dumps(["1", 2])})}),
            {"a": 1, "inner": {"days": [1, 2]}},
        ),
    ],
)
@pytest.mark.parametrize("schema", [POINT, union(POINT, NULL), {"allOf": [POINT]}])
def test_b73_an_object_that_was_written_as_text_is_read_at_every_level(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    check(of(schema, required=True), value, expected)


def test_b73_an_object_that_was_cut_off_is_an_error_at_every_byte_and_never_a_part_of_it() -> None:
    whole = json.dumps({"a": 1, "inner": {"days": [1, 20]}})
    validator = Validator("t", of(POINT, required=True))
    for end in range(len(whole)):
        with pytest.raises(InvalidArgumentsError):
            validator({"x": whole[:end]})
    assert validator({"x": whole}) == {"x": json.loads(whole)}


def test_b73_an_inner_object_that_was_cut_off_fails_the_whole_call() -> None:
    (line,) = errors(of(POINT), {"x": {"a": 1, "inner": '{"days": [1'}})
    assert line == '$.x.inner: "{\\"days\\": [1" is not of type "object"'


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (STRING, None, MISSING),
        (INTEGER, None, MISSING),
        (POINT, None, MISSING),
        ({"enum": ["a", "b"]}, None, MISSING),
        (union(STRING, NULL), None, None),
        ({"type": ["string", "null"]}, None, None),
        ({"enum": ["a", None]}, None, None),
        ({}, None, None),
        (STRINGS, "", MISSING),
        (INTEGER, "", MISSING),
        (NUMBER, "", MISSING),
        (BOOLEAN, "", MISSING),
        (POINT, "", MISSING),
        (union(INTEGER, NULL), "", MISSING),
        ({"enum": [1, 2]}, "", MISSING),
        (STRING, "", ""),
        (union(STRING, NULL), "", ""),
        ({}, "", ""),
    ],
)
def test_b72_null_or_nothing_for_an_optional_property_leaves_it_out(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    check(of(schema), value, expected)


@pytest.mark.parametrize(
    ("schema", "arguments", "fault"),
    [
        (of(STRING, required=True), {"x": None}, '$.x: null is not of type "string"'),
        (of({"type": "string", "minLength": 1}), {"x": ""}, '$.x: "" is shorter than 1 character'),
        (of({"enum": ["a"]}), {"x": ""}, '$.x: "" is not one of "a"'),
        (of(STRINGS), {"x": ["a", None]}, '$.x[1]: null is not of type "string"'),
        ({"type": "object", "additionalProperties": INTEGER}, {"y": None}, "$.y: null is not of type"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"y": None}, "$: Additional properties"),
    ],
)
def test_b72_null_is_an_error_where_nothing_can_be_left_out(
    schema: dict[str, Any], arguments: dict[str, Any], fault: str
) -> None:
    (line,) = errors(schema, arguments)
    assert line.startswith(fault)


# -------------------------------------------------- the words of a schema


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": [1, "1"]}, "1", "1"),
        ({"enum": [1, 1.0]}, "1", None),
        ({"enum": [1.5]}, "1.5", 1.5),
        ({"enum": ["1", "2"]}, 1, "1"),
        ({"enum": [True]}, "TRUE", True),
        ({"enum": [True, 1]}, 1, 1),
        ({"const": 3}, "3.0", 3),
        ({"const": "a"}, "a", "a"),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        ({"type": "string", "enum": ["5", "6"]}, 5, "5"),
        (union(INTEGER, {"enum": ["auto"]}), "5", 5),
        (union(INTEGER, {"enum": ["auto"]}), "auto", "auto"),
        (union(INTEGER, BOOLEAN), "true", True),
        (union(INTEGER, NULL), "5", 5),
        (union(STRING, NULL), 5, "5"),
        (union(INTEGER, STRING), 4.5, None),
        ({"oneOf": [BOOLEAN, INTEGER]}, "7", 7),
        ({"type": ["integer", "boolean"]}, "true", True),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": ["integer", "string"]}, "7", "7"),
        ({"type": ["integer", "string"]}, 7.0, 7),
        ({"type": ["integer", "number"]}, 7.0, 7.0),
        ({"allOf": [INTEGER, {"minimum": 3}]}, "3", 3),
        ({"$ref": "#/$defs/count"}, "3", 3),
        ({"$ref": "#/$defs/a~1b%20c"}, "3", 3),
        (union({"$ref": "#/$defs/count"}, NULL), "3", 3),
        ({"type": "array", "prefixItems": [INTEGER, BOOLEAN], "items": STRING}, '["1","true",2]', [1, True, "2"]),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": "1"}, {"a": 1}),
        ({"type": "object", "properties": {"a/b~c d": INTEGERS}}, {"a/b~c d": "1"}, {"a/b~c d": [1]}),
        ({"type": "object", "properties": {"\u00e9%": union(INTEGER, BOOLEAN)}}, {"\u00e9%": "1"}, {"\u00e9%": 1}),
        (True, "5", "5"),
        ({}, "5", "5"),
        ({"items": INTEGER}, "5", "5"),
    ],
)
def test_coercion_follows(schema: Any, value: Any, expected: Any) -> None:
    whole = of(schema, required=True, definitions={"count": INTEGER, "a/b c": INTEGER})
    if expected is None:
        assert errors(whole, {"x": value})
    else:
        check(whole, value, expected)


def test_a_recursive_schema_is_followed_to_any_depth() -> None:
    node = {
        "type": "object",
        "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["value"],
    }
    schema = of({"$ref": "#/$defs/node"}, definitions={"node": node})
    check(
        schema,
        {"value": "1", "children": {"value": "2", "children": '[{"value": "3"}]'}},
        {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]},
    )


def test_the_whole_document_may_refer_to_itself() -> None:
    schema = {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#"}}}
    assert Validator("t", schema)({"next": '{"n": "1"}'}) == {"next": {"n": 1}}


def test_tuples_of_an_older_draft_are_followed() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **of({"type": "array", "items": [INTEGER, STRING], "additionalItems": BOOLEAN}, required=True),
    }
    check(schema, ["1", 2, "true"], [1, "2", True])
    assert errors(schema, {"x": "a"})


def test_a_union_takes_the_branch_that_the_rest_of_the_object_belongs_to() -> None:
    circle = {"type": "object", "properties": {"kind": {"const": "circle"}, "r": NUMBER}, "required": ["kind", "r"]}
    square = {"type": "object", "properties": {"kind": {"const": "square"}, "r": STRING}, "required": ["kind", "r"]}
    schema = of(union(circle, square))
    check(schema, {"kind": "square", "r": 5}, {"kind": "square", "r": "5"})
    check(schema, {"kind": "circle", "r": "5"}, {"kind": "circle", "r": 5})
    check(schema, '{"kind": "circle", "r": "5"}', {"kind": "circle", "r": 5})


def test_words_that_mean_nothing_in_a_draft_are_passed_over() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **of({"prefixItems": 5, "type": "array", "items": INTEGER}),
    }
    assert Validator("t", schema)({"x": ["1"]}) == {"x": [1]}


# -------------------------------------------------------- valid arguments


def test_the_result_shares_nothing_with_the_raw_arguments() -> None:
    raw = {"x": {"a": 1, "inner": {"days": [1]}}, "more": [[1], {"k": []}]}
    before = copy.deepcopy(raw)
    found = Validator("t", of(POINT))(raw)
    assert found == raw
    found["x"]["inner"]["days"].append(2)
    found["more"][0].append(2)
    found["more"][1]["k"].append(2)
    assert raw == before


def test_b72_the_raw_arguments_are_never_changed() -> None:
    raw = {"n": "42", "flag": "true", "counts": ["1", 2], "size": "7", "label": None, "note": 5}
    before = copy.deepcopy(raw)
    schema = {
        "type": "object",
        "properties": {
            "n": NUMBER,
            "flag": BOOLEAN,
            "counts": INTEGERS,
            "size": INTEGER,
            "label": STRING,
            "note": STRING,
        },
        "required": ["n", "flag", "counts"],
    }  # the recorded scenario coerced_arguments
    assert Validator("mix", schema)(raw) == {"n": 42, "flag": True, "counts": [1, 2], "size": 7, "note": "5"}
    assert raw == before


def test_a_whole_float_becomes_an_int_only_where_an_integer_is_asked_for() -> None:
    schema = {"type": "object", "properties": {"i": INTEGER, "n": NUMBER, "deep": {"type": "array", "items": INTEGER}}}
    found = Validator("t", schema)({"i": 2.0, "n": 2.0, "deep": [3.0], "free": 4.0})
    assert repr(found) == repr({"i": 2, "n": 2.0, "deep": [3], "free": 4.0})


def test_other_mappings_sequences_and_subclasses_are_taken_as_plain_json() -> None:
    class Color(StrEnum):
        RED = "red"

    class Big(int):
        pass

    found = Validator("t", {"type": "object"})(
        MappingProxyType({"a": MappingProxyType({"b": (1, 2)}), "c": Color.RED, "d": Big(5)})
    )
    assert found == {"a": {"b": [1, 2]}, "c": "red", "d": 5}
    assert type(found["c"]) is str
    assert type(found["d"]) is int


# ------------------------------------------------------------------ errors


def test_all_faults_are_listed_at_once_with_their_paths() -> None:
    schema = {
        "type": "object",
        "properties": {"days": INTEGERS, "a key": INTEGER, "c": {"const": 3}, "n": {"type": "integer", "maximum": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert sorted(errors(schema, {"days": [1, "x", "y"], "a key": "q", "c": 4, "n": "5", "more": 1})) == [
        "$.c: 3 was expected, not 4",
        '$.days[1]: "x" is not of type "integer"',
        '$.days[2]: "y" is not of type "integer"',
        "$.n: 5 is greater than the maximum of 3",
        '$: "city" is a required property',
        "$: Additional properties are not allowed ('more' was unexpected)",
        '$["a key"]: "q" is not of type "integer"',
    ]


@pytest.mark.parametrize(
    ("schema", "value", "lines"),
    [
        (
            union(INTEGER, NULL),
            "x",
            ['$.x: "x" fits no alternative (it is not of type "integer"; it is not of type "null")'],
        ),
        (union(POINT, NULL), {"inner": {"days": ["q"]}}, ["$.x: ", "$.x.inner.days[0]: "]),
        (union(POINT, STRINGS), {"a": "q"}, ['$.x.a: "q" is not of type "integer"']),
        (
            union(POINT, {"type": "object", "required": ["b"]}),
            {"c": 1},
            ['$.x: {"c": 1} fits no alternative ($.x: "a" is a required property; $.x: "b" is a required property)'],
        ),
        ({"oneOf": [INTEGER, NUMBER]}, 5, ["$.x: 5 is valid under more than one"]),
    ],
)
def test_a_union_that_nothing_fits_is_explained(schema: dict[str, Any], value: Any, lines: list[str]) -> None:
    found = errors(of(schema), {"x": value})
    assert len(found) == len(lines)
    for one, beginning in zip(found, lines, strict=True):
        assert one.startswith(beginning)


def test_a_long_value_is_shown_shortened() -> None:
    (line,) = errors(of({"type": "string", "pattern": "^b"}), {"x": "a" * 100_000})
    assert line == f'$.x: "{"a" * 79}... does not match "^b"'


def test_thousands_of_faults_are_counted_and_not_listed() -> None:
    lines = errors(of(INTEGERS), {"x": ["q"] * 5000})
    assert len(lines) == 101
    assert lines[-1] == "$: 4900 more faults"


def test_the_error_names_tool_and_faults_and_survives_pickling() -> None:
    with pytest.raises(InvalidArgumentsError, match=r"'weather' do not fit its schema:\n- \$\.x: ") as caught:
        Validator("weather", of(INTEGER))({"x": "q"})
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.tool_name, again.errors) == ("weather", caught.value.errors)


# --------------------------------------------------------- hostile values


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"x": math.nan}, "$.x: nan is no JSON number"),
        ({"y": [1, {"z": -math.inf}]}, "$.y[1].z: -inf is no JSON number"),
        ({"x": 10**400}, "$.x: the integer is too large"),
        ({"x": -(10**5000)}, "$.x: the integer is too large"),
        ({"y": {1: 2}}, "$.y: its keys must be strings"),
        ({1: 2}, "$: its keys must be strings"),
        ({"y": {1, 2}}, "$.y: a Python set is no JSON value"),
        ({"x": b"1"}, "$.x: a Python bytes is no JSON value"),
        ([1], "$: [1] is no JSON object"),
        ("{}", "$: '{}' is no JSON object"),
        (None, "$: None is no JSON object"),
    ],
)
@pytest.mark.parametrize("schema", [of(INTEGER), of({})], ids=["integer", "anything"])
def test_what_is_no_json_is_refused_even_where_the_schema_says_nothing(
    schema: dict[str, Any], arguments: Any, line: str
) -> None:
    assert errors(schema, arguments) == [line]


def test_integers_of_any_size_that_a_double_can_hold_are_compared_exactly() -> None:
    schema = of({"type": "integer", "maximum": 2**70})
    check(schema, 2**70, 2**70)
    check(schema, str(2**70), 2**70)
    assert errors(schema, {"x": 2**70 + 1})
    assert errors(schema, {"x": 10**300})


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"x": leaf}
    return leaf


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
@pytest.mark.parametrize("leaf", [{}, "q"])
def test_deep_nesting_is_an_error_and_no_crash(depth: int, leaf: Any) -> None:
    schema = of({"$ref": "#"}, additionalProperties={"$ref": "#"})
    arguments = nested(depth, leaf)
    (line,) = errors(schema, arguments)
    assert line.endswith("nested more than 128 levels deep")
    while isinstance(arguments, dict) and arguments:  # or the interpreter's own deallocation recurses
        arguments = arguments.popitem()[1]
    gc.collect()


def test_deep_nesting_within_text_is_an_error_and_no_crash() -> None:
    for depth in (200, 100_000):
        assert errors(of({"type": "array"}), {"x": "[" * depth + "]" * depth})


def test_a_hundred_levels_are_fine() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#"}, "n": INTEGER}}
    assert Validator("t", schema)(nested(100, {"n": 1})) == nested(100, {"n": 1})
    assert Validator("t", schema)(nested(100, {"n": "1"})) == nested(100, {"n": 1})


def test_a_lone_surrogate_passes_where_text_is_not_looked_into_and_fails_else() -> None:
    raw = {"x": "half \ud83d"}
    assert Validator("t", of(STRING))(raw) == raw
    (line,) = errors(of({"type": "string", "pattern": "^h"}), raw)
    assert line == '$: "half \\ud83d" holds half a surrogate pair, which is no text'
    line.encode()
    for line in errors(of(INTEGER, additionalProperties=False), {"\udc00": 1, "x": "\udc00"}):
        line.encode()


def test_nul_and_other_controls_are_text() -> None:
    check(of({"type": "string", "minLength": 2}), "\x00\x1f", "\x00\x1f")
    assert errors(of(INTEGER), {"x": "\x00"}) == ['$.x: "\\u0000" is not of type "integer"']


def test_unions_within_unions_take_no_exponential_time() -> None:
    part = {"$ref": "#/$defs/filter"}
    fields = {"and": part, "k": {"const": "a"}}
    both = union(
        {"type": "object", "properties": fields, "required": ["and", "k"]},
        {"type": "object", "properties": {**fields, "k": {"const": "b"}}, "required": ["and"]},
        INTEGER,
    )
    schema = of(part, definitions={"filter": both})
    validator = Validator("t", schema)
    for depth, fine in ((3, True), (6, True), (60, False)):
        value: Any = "1"
        for _ in range(depth):
            value = {"and": value, "k": "b"}
        if fine:
            assert jsonschema_rs.is_valid(schema, validator({"x": value}))
        else:
            assert errors(schema, {"x": value}) == [
                "$: the arguments fit none of the alternatives that the schema nests"
            ]


@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, INTEGER]}},
        {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_that_goes_round_in_circles_ends(definitions: dict[str, Any]) -> None:
    validator = Validator("t", of({"$ref": "#/$defs/a"}, definitions=definitions))
    for value in (1, "1", None, [], {"x": 1}, [[["1"]]]):
        with contextlib.suppress(InvalidArgumentsError):
            validator({"x": value, "y": 1.0})


# ----------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (5, r"parameters is 5, but must be a JSON Schema in a dict"),
        ({"type": "array"}, r"the type of its parameters is 'array'"),
        ({"type": ["object", "null"]}, r"the type of its parameters is \['object', 'null'\]"),
        (of({"type": "foo"}), r'\$\.properties\.x\.type: "foo"'),
        ({"properties": 5}, r"\$\.properties: 5 is not of type"),
        (of({"type": "string", "pattern": "("}), r"\"\(\" is not a"),
        (of({"$ref": "#/$defs/nowhere"}), r"/\$defs/nowhere"),
        (of({"$ref": "https://example.com/schema"}), r"put it under \$defs"),
        (of({"$ref": "file:///etc/passwd"}), r"put it under \$defs"),
        (of({"$ref": "other.json"}), r"other\.json"),
        ({"$schema": "https://example.com/own"}, r"https://example.com/own"),
        (of({"default": object()}), r"\$\.properties\.x\.default: a Python object is no JSON value"),
        (of({"default": math.nan}), r"\$\.properties\.x\.default: nan is no JSON number"),
        (of(nested(200, {})), r"nested more than 128 levels deep"),
    ],
)
def test_a_schema_that_is_none_is_refused_when_the_tool_is_made(schema: Any, text: str) -> None:
    with pytest.raises(ToolDefinitionError, match=text) as caught:
        Validator("t", schema)
    assert str(caught.value).startswith("tool 't': ")


@pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"type": "object"}, MappingProxyType({"type": "object"})])
def test_a_schema_that_asks_for_nothing_takes_any_object(schema: Any) -> None:
    assert Validator("t", schema)({"x": [1]}) == {"x": [1]}


def test_later_changes_of_the_schema_do_not_reach_the_validator() -> None:
    schema = of(dict(INTEGER))
    validator = Validator("t", schema)
    schema["properties"]["x"]["type"] = "string"
    assert validator({"x": "1"}) == {"x": 1}


def test_a_schema_may_carry_an_id_of_its_own() -> None:
    schema = {"$id": "https://example.com/t.json", **of(union({"$ref": "#/$defs/n"}, BOOLEAN))}
    assert Validator("t", {**schema, "$defs": {"n": INTEGER}})({"x": "1"}) == {"x": 1}


# ------------------------------------------------------------------ random

LEAVES: list[Any] = [
    INTEGER,
    NUMBER,
    STRING,
    BOOLEAN,
    NULL,
    {},
    True,
    False,
    {"enum": [1, "1", True, None, 2.5]},
    {"enum": ["a", "b"]},
    {"const": 0},
    {"type": "integer", "minimum": 2},
    {"type": "string", "minLength": 2},
    {"type": ["integer", "null"]},
    {"type": ["string", "boolean", "array"]},
    {"$ref": "#/$defs/tree"},
    {"$ref": "#/$defs/pair"},
    {"not": STRING},
]
DEFINITIONS = {
    "tree": {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]},
    "pair": {"type": "array", "prefixItems": [INTEGER, BOOLEAN], "items": False},
}
ATOMS: list[Any] = [
    None, True, False, 0, 1, 2, -3, 1.0, 2.5, 1e300, 2**80, "", " ", "a", "1", "1.0", "2.5", "true", "FALSE", "null",
    "[1]", "[1", '{"a": 1}', '{"a": "1", "b": [true]}', '["a", "1"]', "[[1], 2]", "\ud800", "\x00", "nan", "1e999",
]  # fmt: skip


def random_schema(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(LEAVES)
    inner = [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    kind = rng.randrange(6)
    if kind == 0:
        return {"type": "array", "items": inner[0]}
    if kind == 1:
        return {"anyOf": inner}
    if kind == 2:
        return {"oneOf": inner}
    if kind == 3:
        return {"allOf": inner[:2]}
    if kind == 4:
        return {"type": "object", "additionalProperties": inner[0]}
    return {
        "type": "object",
        "properties": dict(zip("abc", inner, strict=False)),
        "required": rng.sample("abc", rng.randint(0, 1)),
        "additionalProperties": rng.choice([True, False]),
    }


def random_value(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(ATOMS)
    if rng.random() < 0.5:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {key: random_value(rng, depth - 1) for key in rng.sample("abcd", rng.randint(0, 3))}


def judge(schema: dict[str, Any], arguments: dict[str, Any]) -> bool:
    try:
        return jsonschema_rs.is_valid(schema, arguments)
    except UnicodeEncodeError:  # a lone surrogate that it would have to look into
        return False


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_out_is_valid_and_what_was_valid_comes_out_equal(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = {"valid": 0, "mended": 0, "refused": 0}
    for _ in range(150):
        properties = {key: random_schema(rng, 3) for key in "abc"}
        required = rng.sample("abc", rng.randint(0, 2))
        schema = {"type": "object", "properties": properties, "required": required, "$defs": DEFINITIONS}
        validator = Validator("t", schema)
        for _ in range(15):
            raw = {key: random_value(rng, 3) for key in rng.sample("abcd", rng.randint(0, 4))}
            before = repr(raw)
            valid = judge(schema, raw)
            lines: tuple[str, ...] = ()
            found: dict[str, Any] = {}
            try:
                found = validator(raw)
            except InvalidArgumentsError as error:
                lines = error.errors
            assert repr(raw) == before
            outcomes["valid" if valid else "refused" if lines else "mended"] += 1
            if lines:
                assert not valid
                assert all(line.startswith("$") and line.encode() for line in lines)
            else:
                assert jsonschema_rs.is_valid(schema, found)
                assert not valid or found == raw
                assert validator(found) == found
    assert min(outcomes.values()) > 10  # the generator reaches every case
