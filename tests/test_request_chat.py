"""The bodies of requests to Chat Completions, exactly."""

from __future__ import annotations

import gc
import json
import math
import weakref
from typing import Any

import attrs
import pytest
from encoding import (
    CHAT_PNG,
    EMPTY_SCHEMA,
    LEFT_OUT,
    NO_RESULT,
    PNG,
    answer,
    body,
    call,
    chat_model,
    raw_body,
    result,
    system,
    user,
)

from trio_agent import (
    ImageContent,
    Message,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolDeclaration,
    UsageError,
    transcript_to_json,
)
from trio_agent.providers import ChatCompat, HTTPModel
from trio_agent.providers._encode import Cache, _Ids

HI = {"role": "user", "content": "Hi"}
EMPTY = {"role": "user", "content": "(empty message)"}


def messages(model: HTTPModel, *given: Message) -> Any:
    return body(model, given)["messages"]


def called(id: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [called(each) for each in ids]}


def answering(id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


# ------------------------------------------------------------ a whole body


def test_a_body_without_anything_special() -> None:
    declared = ToolDeclaration("f", "Does it.", {"type": "object", "properties": {"x": {"type": "integer"}}})
    given: list[Message] = [
        system("Be brief.", declared),
        user("Hi"),
        answer("Wait.", call("c1", x=1)),
        result("c1", "ok"),
        answer("Done."),
        user("Ünd?"),
    ]
    assert (
        raw_body(chat_model(), given)
        == (
            '{"model":"m","stream":true,"stream_options":{"include_usage":true},'
            '"tools":[{"type":"function","function":{"name":"f","description":"Does it.",'
            '"parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}],'
            '"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},'
            '{"role":"assistant","content":"Wait.","tool_calls":[{"id":"c1","type":"function",'
            '"function":{"name":"f","arguments":"{\\"x\\":1}"}}]},'
            '{"role":"tool","tool_call_id":"c1","content":"ok"},'
            '{"role":"assistant","content":"Done."},{"role":"user","content":"Ünd?"}]}'
        ).encode()
    )


@pytest.mark.parametrize("given", [[], [answer()], [answer(call("c"), stop="aborted")], [user()], [user(" \n", "")]])
def test_where_nothing_is_said_the_user_says_that_it_is_empty(given: list[Message]) -> None:
    assert messages(chat_model(), *given) == [EMPTY]
    assert messages(chat_model(), system("Be brief."), *given) == [{"role": "system", "content": "Be brief."}, EMPTY]


# ------------------------------------------------------- calls and results


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_b09_answers_that_are_not_whole_keep_their_text_but_no_calls(stop: str) -> None:
    model = chat_model()
    thought = ThinkingContent("Hm", thinking_signature="reasoning_content")
    half = answer(thought, "Let me", call("c"), stop=stop, of=model)
    assert messages(model, user("Hi"), half, result("c", "late"), user("Hi")) == [
        HI,
        {"role": "assistant", "content": "Let me"},
        HI,
    ]


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_b08_a_complete_call_of_an_answer_that_was_cut_is_not_sent(stop: str) -> None:
    assert messages(chat_model(), user("Hi"), answer(call("c"), stop=stop), user("Hi")) == [HI, HI]


def test_calls_that_ended_for_length_are_sent() -> None:
    given: list[Message] = [answer(call("c"), stop="length"), result("c", "truncated", is_error=True)]
    assert messages(chat_model(), *given) == [calling("c"), answering("c", "truncated")]


def test_a_call_that_nothing_answers_gets_a_result() -> None:
    given: list[Message] = [user("Hi"), answer(call("a"), call("b")), result("b", "ok"), user("Hi")]
    assert messages(chat_model(), *given) == [HI, calling("a", "b"), answering("a", NO_RESULT), answering("b"), HI]
    assert messages(chat_model(), answer(call("a"))) == [calling("a"), answering("a", NO_RESULT)]


def test_of_two_results_of_a_call_the_first_counts_and_results_of_no_call_are_left_out() -> None:
    given: list[Message] = [
        result("a", "before its call"),
        answer(call("a")),
        result("x", "of no call"),
        result("a", "ok"),
        result("a", "again"),
        user("Hi"),
        result("a", "and again"),
    ]
    assert messages(chat_model(), *given) == [calling("a"), answering("a"), HI]


def test_what_stands_between_calls_and_results_comes_behind_them() -> None:
    model = chat_model(ChatCompat(system_messages="anywhere"))
    given: list[Message] = [
        user("Hi"),
        answer(call("a"), call("b")),
        user("one"),
        result("b", "2"),
        system("Mind this."),
        result("a", "1"),
        user("two"),
    ]
    assert messages(model, *given) == [
        HI,
        calling("a", "b"),
        answering("a", "1"),
        answering("b", "2"),
        {"role": "user", "content": "one"},
        {"role": "system", "content": "Mind this."},
        {"role": "user", "content": "two"},
    ]


def test_a_result_that_comes_behind_a_later_answer_stands_behind_its_call() -> None:
    given: list[Message] = [
        answer(call("a")),
        answer("Meanwhile"),
        answer(call("b")),
        result("a", "1"),
        result("b", "2"),
    ]
    assert messages(chat_model(), *given) == [
        calling("a"),
        answering("a", "1"),
        {"role": "assistant", "content": "Meanwhile"},
        calling("b"),
        answering("b", "2"),
    ]


def digest(id: str) -> str:
    assert id.startswith("call_")
    assert len(id) == 29
    return id


def test_b88_empty_and_repeated_ids_are_unique_and_results_keep_their_order() -> None:
    given: list[Message] = [answer(call("", x=1), call("", x=2)), result("", "1"), result("", "2")]
    assistant, *results = messages(chat_model(), *given)
    first, second = [digest(each["id"]) for each in assistant["tool_calls"]]
    assert first != second
    assert results == [answering(first, "1"), answering(second, "2")]


def test_b88_the_same_id_in_successive_turns_is_matched_to_the_nearest_answer_before() -> None:
    given: list[Message] = [
        answer(call("c")),
        user("one"),
        answer(call("c")),
        result("c", "of the second"),
        answer(call("c")),
        result("c", "of the third"),
    ]
    sent = messages(chat_model(), *given)
    ids = [each["tool_calls"][0]["id"] for each in sent if each["role"] == "assistant"]
    assert len(set(ids)) == 3
    assert ids[0] == "c"
    assert [each for each in sent if each["role"] == "tool"] == [
        answering("c", NO_RESULT),
        answering(ids[1], "of the second"),
        answering(ids[2], "of the third"),
    ]


def test_b88_a_result_of_a_call_that_is_not_sent_answers_no_earlier_one_of_its_id() -> None:
    given: list[Message] = [answer(call("c")), answer(call("c"), stop="aborted"), result("c", "of the aborted one")]
    assert messages(chat_model(), *given) == [calling("c"), answering("c", NO_RESULT)]


def test_b88_the_same_id_in_a_thousand_turns_costs_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, tries = _Ids._fit, []

    def counted(self: _Ids, original: str, number: int) -> str:
        tries.append(number)
        return fit(self, original, number)

    monkeypatch.setattr(_Ids, "_fit", counted)
    many = [each for number in range(1000) for each in (answer(call("c")), result("c", str(number)))]
    sent = messages(chat_model(), *many)
    ids = [each["tool_calls"][0]["id"] for each in sent[::2]]
    assert len(set(ids)) == 1000
    assert [each["tool_call_id"] for each in sent[1::2]] == ids
    assert [each["content"] for each in sent[1::2]] == [str(number) for number in range(1000)]
    assert len(tries) == 1000


def test_b88_an_id_that_looks_like_one_of_ours_stays_unique() -> None:
    (ours,) = [each["id"] for each in messages(chat_model(), answer(call("")))[0]["tool_calls"]]
    sent = messages(chat_model(), answer(call(ours)), result(ours, "1"), answer(call("")), result("", "2"))
    assert sent[0] == calling(ours)
    assert sent[2] == calling(digest(sent[3]["tool_call_id"]))
    assert sent[3]["tool_call_id"] != ours


@pytest.mark.parametrize("id", ["a|b", "a b", "ü", "x" * 65, "\ud800", "call.1", "a\n"])
def test_ids_that_the_vendor_refuses_are_replaced(id: str) -> None:
    assistant, tool = messages(chat_model(), answer(call(id)), result(id, "ok"))
    wire = digest(assistant["tool_calls"][0]["id"])
    assert tool == answering(wire)


def test_ids_that_the_vendor_takes_stay() -> None:
    for wire in ("x" * 64, "toolu_01-A"):
        assert messages(chat_model(), answer(call(wire)), result(wire, "ok")) == [calling(wire), answering(wire)]


def test_ids_of_one_length_have_that_length() -> None:
    model = chat_model(ChatCompat(call_id_length=9))
    assert messages(model, answer(call("Abc123xyz")))[0] == calling("Abc123xyz")
    for original in ("", "abc", "abc-12345", "Abc123xyzz", "äbc123xyz"):
        (wire,) = [each["id"] for each in messages(model, answer(call(original)))[0]["tool_calls"]]
        assert len(wire) == 9
        assert wire.isascii()
        assert wire.isalnum()


@pytest.mark.parametrize("length", [0, 7, 65, True, 9.0, "9"])
def test_a_length_of_ids_that_cannot_be_is_refused(length: Any) -> None:
    with pytest.raises(UsageError, match=rf"call_id_length is {length!r}, but must be .* 8 to 64"):
        ChatCompat(call_id_length=length)


def test_tool_results_have_the_name_of_the_tool_where_the_server_wants_it() -> None:
    model = chat_model(ChatCompat(tool_result_name=True))
    same = result("a", "1", name="other")
    for name, wire in [("f", "f"), ("my.tool", "my_tool"), ("", "unknown"), ("x" * 70, "x" * 64)]:
        given: list[Message] = [answer(call("a", name), call("b", name)), same]
        assert messages(model, *given) == [
            {"role": "assistant", "content": None, "tool_calls": [called("a", name=wire), called("b", name=wire)]},
            {**answering("a", "1"), "name": wire},
            {**answering("b", NO_RESULT), "name": wire},
        ]


def test_arguments_that_are_no_json_are_sent_as_a_text() -> None:
    broken = ToolCall("c", "f", {"x": 1}, arguments_error="cut", raw_arguments='{"x": 1')
    sent = messages(chat_model(), answer(broken))
    assert json.loads(sent[0]["tool_calls"][0]["function"]["arguments"]) == {"invalid_json": '{"x": 1'}
    without = ToolCall("c", "f", arguments_error="cut")
    sent = messages(chat_model(), answer(without))
    assert json.loads(sent[0]["tool_calls"][0]["function"]["arguments"]) == {"invalid_json": ""}


# ------------------------------------------------------------------- texts


def test_texts_that_say_nothing_are_left_out() -> None:
    given: list[Message] = [
        system(" \n"),
        user("", "Hi", "\t"),
        answer("  "),
        answer("\n", call("c")),
        result("c", " "),
        answer("a", "", "b"),
    ]
    assert messages(chat_model(), *given) == [
        HI,
        calling("c"),
        answering("c", "(no output)"),
        {"role": "assistant", "content": "ab"},
    ]


def test_b69_halves_of_characters_are_joined_or_replaced_wherever_they_stand() -> None:
    bad = "\ud800"
    declared = ToolDeclaration("f", bad, {"type": "object", "properties": {bad: {"enum": [bad]}}})
    given: list[Message] = [
        system(f"{bad}S", declared),
        user(f"U{bad}"),
        answer("\ud83d", "\ude00", ToolCall(bad, bad, {bad: [bad, {"x": bad}]})),
        result(bad, bad),
        user(ImageContent(bad, "image/png")),
    ]
    sent = body(chat_model(), given, temperature=1, stop=[bad], extra_body={"x": bad})
    assert sent["tools"][0]["function"] == {
        "name": "f",
        "description": "\ufffd",
        "parameters": {"type": "object", "properties": {"\ufffd": {"enum": ["\ufffd"]}}},
    }
    assert (sent["stop"], sent["x"]) == (["\ufffd"], "\ufffd")
    first, said, assistant, tool, image = sent["messages"]
    assert (first["content"], said["content"], assistant["content"]) == ("\ufffdS", "U\ufffd", "😀")
    function = assistant["tool_calls"][0]["function"]
    assert function == {"name": "_", "arguments": '{"\ufffd":["\ufffd",{"x":"\ufffd"}]}'}
    assert tool == answering(digest(assistant["tool_calls"][0]["id"]), "\ufffd")
    assert image["content"][0]["image_url"]["url"].endswith("\ufffd")


def test_b69_nul_is_sent_as_it_is() -> None:
    assert messages(chat_model(), user("a\0b")) == [{"role": "user", "content": "a\0b"}]


def test_numbers_that_are_none_are_null() -> None:
    given: list[Message] = [answer(call("c", x=math.nan, y=[math.inf, -math.inf, 1.5]))]
    arguments = messages(chat_model(), *given)[0]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"x":null,"y":[null,null,1.5]}'


@pytest.mark.parametrize("value", [b"x", {1, 2}, object()], ids=["bytes", "set", "object"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"cannot be written as JSON: .*plain JSON"):
        body(chat_model(), [user("Hi")], extra_body={"x": value})
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        body(chat_model(), [answer(call("c", x=value))])


def test_json_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        body(chat_model(), [user("Hi")], extra_body={"x": endless})


# ------------------------------------------------------------------ images


def test_images_of_the_user() -> None:
    assert messages(chat_model(), user("Look", PNG), user(PNG)) == [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, CHAT_PNG]},
        {"role": "user", "content": [CHAT_PNG]},
    ]


@pytest.mark.parametrize(
    ("image", "sees"),
    [(PNG, False), (ImageContent("", "image/png"), True), (ImageContent("PHN2Zy8+", "image/svg+xml"), True)],
    ids=["blind", "empty", "kind"],
)
def test_images_that_the_model_does_not_take_are_left_out(image: ImageContent, sees: bool) -> None:
    model = chat_model(images=sees)
    given: list[Message] = [user("Look", image), answer(call("c")), result("c", image)]
    assert messages(model, *given) == [
        {"role": "user", "content": f"Look\n{LEFT_OUT}"},
        calling("c"),
        answering("c", LEFT_OUT),
    ]


def test_images_of_results_follow_the_last_result_in_a_message_of_the_user() -> None:
    given: list[Message] = [
        answer(call("a"), call("b"), call("c")),
        result("a", PNG),
        result("b", "seen", PNG),
        user("Hi"),
    ]
    assert messages(chat_model(), *given) == [
        calling("a", "b", "c"),
        answering("a", "(images follow)"),
        answering("b", "seen\n(images follow)"),
        answering("c", NO_RESULT),
        {
            "role": "user",
            "content": [{"type": "text", "text": "(images of the tool results above)"}, CHAT_PNG, CHAT_PNG],
        },
        HI,
    ]
    assert messages(chat_model(), *given[:2])[-1]["content"][1:] == [CHAT_PNG]


# ---------------------------------------------------------------- thinking


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_b89_thinking_of_the_same_model_goes_back_in_its_field(field: str) -> None:
    model = chat_model()
    thoughts = [ThinkingContent(text, thinking_signature=field) for text in ("Let me", " see.")]
    own = answer(thoughts[0], "Well", thoughts[1], call("c"), of=model)
    broken = answer(thoughts[0], "Cut", stop="aborted", of=model)
    given: list[Message] = [user("Hi"), own, result("c", "ok"), broken, user("Hi")]
    sent = {"role": "assistant", "content": "Well", field: "Let me see.", "tool_calls": [called("c")]}
    assert messages(model, *given) == [HI, sent, answering("c"), {"role": "assistant", "content": "Cut"}, HI]

    off = chat_model(ChatCompat(thinking_replay=False))
    del sent[field]
    assert messages(off, *given)[1] == sent


@pytest.mark.parametrize("change", [{"provider": "q"}, {"api": "anthropic-messages"}, {"model": "n"}])
def test_b89_thinking_of_another_model_is_left_out(change: dict[str, Any]) -> None:
    model = chat_model()
    thought = ThinkingContent("Hm", thinking_signature="reasoning_content")
    other = attrs.evolve(answer(thought, "Yes", of=model, reasoningDetails=[{"type": "x"}]), **change)
    assert messages(model, other) == [{"role": "assistant", "content": "Yes"}]


def test_b89_thinking_without_a_field_or_of_an_unknown_one_is_left_out() -> None:
    model = chat_model(ChatCompat(thinking_fields=("reasoning",)))
    thoughts = [ThinkingContent("a"), ThinkingContent("b", thinking_signature="sig=="), ThinkingContent("")]
    assert messages(model, answer(*thoughts, "Yes", of=model)) == [{"role": "assistant", "content": "Yes"}]


def test_b89_thinking_alone_is_no_answer() -> None:
    model = chat_model()
    alone = answer(ThinkingContent("Hm", thinking_signature="reasoning"), of=model)
    assert messages(model, user("Hi"), alone, user("Hi")) == [HI, HI]


def test_b89_reasoning_details_go_back_as_they_came() -> None:
    model = chat_model()
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0, "format": None}]
    thought = ThinkingContent("Hm", thinking_signature="reasoning")
    assert messages(model, answer(thought, "Yes", of=model, reasoningDetails=details)) == [
        {"role": "assistant", "content": "Yes", "reasoning": "Hm", "reasoning_details": details}
    ]
    only = ThinkingContent("Hm", thinking_signature="reasoning_details")
    assert messages(model, answer(only, "Yes", of=model, reasoningDetails=details)) == [
        {"role": "assistant", "content": "Yes", "reasoning_details": details}
    ]
    for nonsense in (None, "x", 5, {"a": 1}, ["x"]):
        assert messages(model, answer("Yes", of=model, reasoningDetails=nonsense)) == [
            {"role": "assistant", "content": "Yes"}
        ]


def test_b89_thinking_that_came_in_the_content_goes_back_in_the_content() -> None:
    model = chat_model()
    thought = ThinkingContent("Hm", thinking_signature="thinking")
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    assert messages(model, answer(thought, "Yes", of=model), answer(thought, call("c"), of=model))[:2] == [
        {"role": "assistant", "content": [part, {"type": "text", "text": "Yes"}]},
        {"role": "assistant", "content": [part], "tool_calls": [called("c")]},
    ]


@pytest.mark.parametrize(
    ("thinking", "level", "levels", "wanted"),
    [
        ("reasoning_effort", "high", {}, {"reasoning_effort": "high"}),
        ("reasoning_effort", "max", {"max": "xhigh"}, {"reasoning_effort": "xhigh"}),
        ("reasoning_effort", "off", {}, {}),
        ("reasoning_effort", "off", {"off": "none"}, {"reasoning_effort": "none"}),
        ("reasoning", "low", {}, {"reasoning": {"effort": "low"}}),
        ("reasoning", "off", {"off": "none"}, {"reasoning": {"effort": "none"}}),
        ("thinking", "low", {}, {"thinking": {"type": "enabled"}}),
        ("thinking", "off", {}, {}),
        ("thinking", "off", {"off": ""}, {"thinking": {"type": "disabled"}}),
        ("enable_thinking", "minimal", {}, {"enable_thinking": True}),
        ("enable_thinking", "off", {"off": ""}, {"enable_thinking": False}),
        ("chat_template", "medium", {}, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("chat_template", "off", {"off": ""}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("none", "high", {}, {}),
        ("none", "off", {"off": ""}, {}),
    ],
)
def test_a_thinking_level_is_asked_for_as_the_server_wants_it(
    thinking: Any, level: ThinkingLevel, levels: Any, wanted: Any
) -> None:
    model = chat_model(ChatCompat(thinking=thinking, thinking_levels=levels, stream_usage=False))
    assert body(model, [user("Hi")], level) == {"model": "m", "stream": True, "messages": [HI], **wanted}


# --------------------------------------------------------- system messages


def test_system_messages_are_put_together_in_front() -> None:
    given: list[Message] = [
        system("One.", sections={"tone": "Kind."}),
        user("Hi"),
        system("Two.", sections={"tone": "Stern.", "more": "x"}),
        user("Hi"),
        system(sections={"more": None}),
    ]
    prompt = {"role": "system", "content": "One.\n\nTwo.\n\nStern."}
    assert messages(chat_model(), *given) == [prompt, HI, HI]


def test_later_system_messages_stay_in_place_where_the_server_takes_them() -> None:
    model = chat_model(ChatCompat(system_messages="anywhere", system_role="developer"))
    given: list[Message] = [
        system("One."),
        system("And.", sections={"tone": "Kind."}),
        user("Hi"),
        system("Two.", sections={"tone": "Stern.", "more": None}),
        system("", ToolDeclaration("f")),
        system(" "),
        user("Hi"),
    ]
    sent = body(model, given)
    assert sent["messages"] == [
        {"role": "developer", "content": "One.\n\nAnd.\n\nKind."},
        HI,
        {
            "role": "developer",
            "content": "Two.\n\nInstructions in the section 'tone', in place of any that it had before:\n\nStern.\n\n"
            "The instructions in the section 'more' no longer hold.",
        },
        HI,
    ]
    assert [each["function"]["name"] for each in sent["tools"]] == ["f"]


def test_instructions_alone_ask_for_nothing() -> None:
    model = chat_model(ChatCompat(system_messages="anywhere"))
    given: list[Message] = [system("One."), answer(), system("Two.")]
    assert [each["role"] for each in messages(model, *given)] == ["system", "system", "user"]


# ------------------------------------------------------------------- tools


def test_a_request_has_the_tools_of_now() -> None:
    old, new = ToolDeclaration("f", "old"), ToolDeclaration("f", "new")
    given: list[Message] = [
        system("", old, ToolDeclaration("g"), ToolDeclaration("h")),
        user("Hi"),
        system("", new, tools_removed=["f", "h"]),
    ]
    assert body(chat_model(), given)["tools"] == [
        {"type": "function", "function": {"name": "g", "parameters": EMPTY_SCHEMA}},
        {"type": "function", "function": {"name": "f", "description": "new", "parameters": EMPTY_SCHEMA}},
    ]
    without = body(chat_model(), [*given, system(tools_removed=["f", "g"])], tool_choice="auto")
    assert without.keys() == {"model", "stream", "stream_options", "messages"}


@pytest.mark.parametrize(
    ("parameters", "wire"),
    [
        ({}, EMPTY_SCHEMA),
        ({"type": "object"}, EMPTY_SCHEMA),
        ({"properties": {"x": {}}}, {"type": "object", "properties": {"x": {}}}),
        ({"$defs": {}, "type": "object"}, {**EMPTY_SCHEMA, "$defs": {}}),
    ],
)
def test_schemas_have_what_the_vendor_demands(parameters: Any, wire: Any) -> None:
    sent = body(chat_model(), [system("", ToolDeclaration("f", parameters=parameters))])
    assert sent["tools"][0]["function"]["parameters"] == wire


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("parameters", "strict"),
    [
        (closed(), True),
        (closed(x=TEXT, y={"enum": ["a"]}), True),
        (closed(x={"type": ["string", "null"]}, properties=TEXT), True),
        (closed(x={"type": "array", "items": closed(y=TEXT)}), True),
        (closed(x={"anyOf": [TEXT, closed(y=TEXT)]}), True),
        ({**closed(x={"$ref": "#/$defs/y"}), "$defs": {"y": closed(z=TEXT)}}, True),
        ({}, False),
        ({"type": "object", "properties": {"x": TEXT}, "required": ["x"]}, False),
        ({**closed(x=TEXT), "additionalProperties": TEXT}, False),
        ({**closed(x=TEXT), "required": []}, False),
        (closed(x={}), False),
        (closed(x=True), False),
        (closed(x={"type": ["object", "null"]}), False),
        (closed(x={"type": "array", "items": {"type": "object"}}), False),
        (closed(x={"anyOf": [TEXT, {"type": "object"}]}), False),
        (closed(x={"type": "string", "not": {"enum": ["a"]}}), False),
        (closed(x={"oneOf": [TEXT], "type": "string"}), False),
        ({**closed(x={"$ref": "#/$defs/y"}), "$defs": {"y": {"type": "object"}}}, False),
    ],
)
def test_tools_are_strict_where_their_schema_allows_it(parameters: Any, strict: bool) -> None:
    given: list[Message] = [system("", ToolDeclaration("f", parameters=parameters))]
    sent = body(chat_model(ChatCompat(strict_tools=True)), given)
    assert sent["tools"][0]["function"]["strict"] is strict
    assert "strict" not in body(chat_model(), given)["tools"][0]["function"]


# ----------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"stop": ("a", "b")}, {"stop": ["a", "b"]}),
        ({"metadata": {"user": "u"}}, {"metadata": {"user": "u"}}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ({"extra_body": {"seed": 1, "stream": False}}, {"seed": 1, "stream": False}),
        ({"temperature": 1, "extra_body": {"temperature": 2}}, {"temperature": 2}),
        ({"extra_body": {"messages": []}}, {"messages": []}),
        # What others read, and what is not given.
        ({"cache_retention": "long", "thinking_budgets": {"low": 5}, "headers": {"a": "b"}}, {}),
        ({"on_payload": print, "on_response": print, "temperature": None}, {}),
    ],
)
def test_options(options: dict[str, Any], wanted: dict[str, Any]) -> None:
    given: list[Message] = [system("", ToolDeclaration("f")), user("Hi")]
    assert body(chat_model(), given, **options) == {**body(chat_model(), given), **wanted}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temprature": 1}, "no option 'temprature' .*; did you mean 'temperature'\\?"),
        ({"zzz": 1}, "no option 'zzz' .*; known are cache_retention, "),
        ({"cache_retention": "forever"}, "'cache_retention' is 'forever', but must be 'none', 'short' or 'long'"),
        ({"cache_retention": ["none"]}, "'cache_retention' is \\['none'\\]"),
        ({"extra_body": [1]}, "'extra_body' is \\[1\\], but must be a mapping"),
        ({"extra_body": {1: 2}}, "'extra_body' is \\{1: 2\\}"),
        ({"headers": {"a": 1}}, "'headers' is a dict, but must be a mapping of texts to texts"),
        ({"max_tokens": 0}, "'max_tokens' is 0, but must be a whole number of tokens above 0"),
        ({"max_tokens": True}, "'max_tokens' is True"),
        ({"max_tokens": 1.5}, "'max_tokens' is 1.5"),
        ({"metadata": "u"}, "'metadata' is 'u', but must be a mapping"),
        ({"on_payload": 1}, "'on_payload' is 1, but must be a function of payload and model"),
        ({"on_response": 1}, "'on_response' is 1, but must be a function of response and model"),
        ({"stop": "a"}, "'stop' is 'a', but must be a list of texts"),
        ({"stop": [1]}, "'stop' is \\[1\\]"),
        ({"temperature": "1"}, "'temperature' is '1', but must be a number"),
        ({"temperature": math.nan}, "'temperature' is nan"),
        ({"temperature": True}, "'temperature' is True"),
        ({"thinking_budgets": 5}, "'thinking_budgets' is 5, but must be a mapping of thinking levels"),
        ({"thinking_budgets": {"lots": 5}}, "'thinking_budgets' is \\{'lots': 5\\}"),
        ({"thinking_budgets": {"low": 0}}, "'thinking_budgets' is \\{'low': 0\\}"),
        ({"tool_choice": ""}, "'tool_choice' is '', but must be 'auto', 'none', 'required' or the name of a tool"),
        ({"tool_choice": {"name": "f"}}, "'tool_choice' is \\{"),
    ],
)
def test_wrong_options_are_refused_by_name_value_and_remedy(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        body(chat_model(), [user("Hi")], **options)


def test_what_the_model_says_of_its_requests() -> None:
    compat = ChatCompat(max_tokens_field="max_completion_tokens", stream_usage=False)
    model = chat_model(compat, max_tokens=100, extra_body={"seed": 1, "store": False})
    assert body(model, [user("Hi")]) == {
        "model": "m",
        "stream": True,
        "max_completion_tokens": 100,
        "seed": 1,
        "store": False,
        "messages": [HI],
    }
    sent = body(model, [user("Hi")], max_tokens=7, extra_body={"seed": 2})
    assert (sent["max_completion_tokens"], sent["seed"], sent["store"]) == (7, 2, False)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://h", "it must be like"),
        ("h/v1", "it must be like"),
        ("http://[::1", "Invalid IPv6"),
        ("http://h/v1?api-version=1", "query="),
        ("http://h/v1#x", "query="),
    ],
)
def test_a_base_url_that_is_none_is_refused(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        HTTPModel("p", "m", api="openai-chat", base_url=url, compat=ChatCompat())


# ------------------------------------------------------------------- cache


def encoded(model: HTTPModel) -> int:
    return Cache.of(model).encoded


def test_a_request_of_a_long_conversation_encodes_only_what_is_new() -> None:
    model = chat_model()
    given: list[Message] = [system("Be brief.")]
    for number in range(1000):
        given += [user(f"u{number}"), answer(call("c", n=number)), result("c", PNG), answer("done")]
        before = encoded(model)
        if number in (0, 1, 998, 999):
            raw_body(model, given)
            assert encoded(model) - before == {0: 4, 1: 4, 998: 997 * 4, 999: 4}[number]
    assert raw_body(model, given) == raw_body(chat_model(), given)


def test_agents_that_share_a_model_get_their_own_bodies() -> None:
    model = chat_model(ChatCompat(tool_result_name=True))
    shared: list[Message] = [answer(call("c")), result("c", "shared")]
    one: list[Message] = [user("one"), *shared]
    two: list[Message] = [user("two"), answer(call("c")), result("c", "before"), *shared]
    three: list[Message] = [answer(call("c", "g")), shared[1]]
    for _ in range(2):
        for given in (one, two, three):
            assert raw_body(model, given) == raw_body(chat_model(ChatCompat(tool_result_name=True)), given)


def test_a_model_that_was_changed_does_not_send_what_was_made_for_the_old_one() -> None:
    model = chat_model()
    given: list[Message] = [user(PNG)]
    assert messages(model, *given) == [{"role": "user", "content": [CHAT_PNG]}]
    assert messages(attrs.evolve(model, images=False), *given) == [{"role": "user", "content": LEFT_OUT}]


def test_messages_are_not_kept_alive_by_what_was_made_of_them() -> None:
    model = chat_model()
    given: list[Message] = [user("a"), answer("b", call("c")), result("c", "d"), answer("e")]
    raw_body(model, given)
    alive = [weakref.ref(message) for message in given]
    assert len(Cache.of(model)._made) == 4
    del given
    gc.collect()
    assert [each() for each in alive] == [None] * 4
    assert not Cache.of(model)._made


def test_the_transcript_of_the_host_is_not_changed() -> None:
    model = chat_model()
    given: list[Message] = [
        system("S", ToolDeclaration("f")),
        user("Hi", PNG),
        answer(ThinkingContent("x", thinking_signature="reasoning"), call("", x=[math.nan, "\ud800"]), of=model),
        result("", PNG),
        system(sections={"a": None}, tools_removed=["f"]),
    ]
    before = repr(transcript_to_json(given))
    copy = list(given)
    raw_body(model, given, "high")
    assert repr(transcript_to_json(given)) == before
    assert all(one is other for one, other in zip(given, copy, strict=True))
