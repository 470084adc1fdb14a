"""The bodies of requests to Anthropic's Messages, exactly."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import attrs
import pytest
from encoding import (
    CLAUDE_PNG,
    EMPTY_SCHEMA,
    LEFT_OUT,
    NO_RESULT,
    PNG,
    answer,
    body,
    call,
    claude,
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
from trio_agent.providers import HTTPModel, MessagesCompat
from trio_agent.providers._encode import Cache

PLAIN = MessagesCompat(cache_control=False)
ANYWHERE = MessagesCompat(cache_control=False, system_messages="anywhere")
BUDGET = MessagesCompat(cache_control=False, thinking="budget")
MARK = {"cache_control": {"type": "ephemeral"}}
SIGNED = ThinkingContent("Hm", thinking_signature="sig")
REDACTED = ThinkingContent("", thinking_signature="hidden", redacted=True)
SIGNED_WIRE = {"type": "thinking", "thinking": "Hm", "signature": "sig"}
REDACTED_WIRE = {"type": "redacted_thinking", "data": "hidden"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(each) if isinstance(each, str) else each for each in blocks]}


def answered(*blocks: Any) -> dict[str, Any]:
    return {**said(*blocks), "role": "assistant"}


def instructed(*texts: str) -> dict[str, Any]:
    return {**said(*texts), "role": "system"}


def called(id: str, input: Any = None, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input or {}}


def answering(id: str, *content: Any, is_error: bool = False) -> dict[str, Any]:
    blocks = [text(each) if isinstance(each, str) else each for each in content]
    block = {"type": "tool_result", "tool_use_id": id, "content": blocks}
    return {**block, "is_error": True} if is_error else block


def unanswered(id: str) -> dict[str, Any]:
    return answering(id, NO_RESULT, is_error=True)


HI = said("Hi")
EMPTY = said("(empty message)")


def messages(*given: Message, model: HTTPModel | None = None) -> Any:
    return body(model or claude(PLAIN), given)["messages"]


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
        raw_body(claude(), given)
        == (
            '{"model":"m","stream":true,"max_tokens":32000,'
            '"tools":[{"name":"f","description":"Does it.",'
            '"input_schema":{"type":"object","properties":{"x":{"type":"integer"}}}}],'
            '"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],'
            '"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},'
            '{"role":"assistant","content":[{"type":"text","text":"Wait."},'
            '{"type":"tool_use","id":"c1","name":"f","input":{"x":1}}]},'
            '{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1",'
            '"content":[{"type":"text","text":"ok"}],"cache_control":{"type":"ephemeral"}}]},'
            '{"role":"assistant","content":[{"type":"text","text":"Done."}]},'
            '{"role":"user","content":[{"type":"text","text":"Ünd?","cache_control":{"type":"ephemeral"}}]}]}'
        ).encode()
    )


@pytest.mark.parametrize("given", [[], [answer()], [answer(call("c"), stop="aborted")], [user()], [user(" \n", "")]])
def test_where_nothing_is_said_the_user_says_that_it_is_empty(given: list[Message]) -> None:
    assert messages(*given) == [EMPTY]
    assert messages(system("Be brief."), *given) == [EMPTY]


# ------------------------------------------------------------------- turns


def test_turns_of_one_role_are_one() -> None:
    given: list[Message] = [user("a"), user("b"), answer("c"), answer(), answer("d"), user("e")]
    assert messages(*given) == [said("a", "b"), answered("c", "d"), said("e")]


def test_where_nothing_is_left_of_an_answer_its_neighbours_are_one_turn() -> None:
    assert messages(user("a"), answer(" "), user("b")) == [said("a", "b")]


def test_the_first_turn_is_the_users() -> None:
    assert messages(answer("Hello")) == [EMPTY, answered("Hello")]
    assert messages(answer(call("c")), result("c", "ok")) == [EMPTY, answered(called("c")), said(answering("c", "ok"))]


def test_no_answer_ends_in_a_space_so_that_any_may_go_on() -> None:
    model = claude(ANYWHERE)
    own_space = answer("Once ", "upon \n", of=model)
    for behind in ([], [answer()], [answer(call("c"), stop="aborted")], [system("Mind this.")]):
        assert messages(user("Hi"), own_space, *behind, model=model) == [HI, answered("Once ", "upon")]
    assert messages(own_space, user("Hi"), model=model)[1] == answered("Once ", "upon")


# ------------------------------------------------------- calls and results


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_b09_answers_that_are_not_whole_keep_texts_and_signed_thinking_but_no_calls(stop: str) -> None:
    model = claude(PLAIN)
    server = [{"before": 0, "block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}}]
    half = answer(ThinkingContent("Hm"), SIGNED, "Let me", call("c"), stop=stop, of=model, serverBlocks=server)
    given: list[Message] = [user("Hi"), half, result("c", "late"), user("Hi")]
    assert messages(*given, model=model) == [HI, answered(SIGNED_WIRE, "Let me"), HI]
    lone = answer(SIGNED, call("c"), stop=stop, of=model)
    assert messages(user("Hi"), lone, user("Hi"), model=model) == [said("Hi", "Hi")]


def test_results_stand_directly_behind_their_calls_and_what_the_user_says_behind_them() -> None:
    given: list[Message] = [
        user("Hi"),
        answer(call("a"), call("b"), call("c")),
        user("one"),
        result("b", "2"),
        result("b", "again"),
        result("x", "of no call"),
        result("a", is_error=True),
        user("two"),
    ]
    assert messages(*given) == [
        HI,
        answered(called("a"), called("b"), called("c")),
        said(
            answering("a", "(no output)", is_error=True), answering("b", "2"), unanswered("c"), text("one"), text("two")
        ),
    ]


def test_a_call_at_the_end_gets_a_result() -> None:
    assert messages(user("Hi"), answer(call("a"))) == [HI, answered(called("a")), said(unanswered("a"))]


def test_b88_ids_are_unique_over_the_request_and_matched_to_the_nearest_answer_before() -> None:
    given: list[Message] = [
        user("Hi"),
        answer(call("c"), call("")),
        answer(call("c"), call("a|b")),
        result("c", "second"),
        result("", "first"),
        result("a|b", "odd"),
    ]
    _, one, first, two, second = messages(*given)
    ids = [block["id"] for block in (*one["content"], *two["content"])]
    assert len(set(ids)) == 4
    assert ids[0] == "c"
    assert all(each.startswith("call_") for each in ids[1:])
    assert first == said(unanswered("c"), answering(ids[1], "first"))
    assert second == said(answering(ids[2], "second"), answering(ids[3], "odd"))


def test_names_that_the_vendor_refuses_are_replaced() -> None:
    given: list[Message] = [user("Hi"), answer(call("a", "my.tool"), call("b", ""), call("c", "x" * 70))]
    names = [block["name"] for block in messages(*given)[1]["content"]]
    assert names == ["my_tool", "unknown", "x" * 64]


def test_arguments_that_are_no_json_are_sent_as_a_text() -> None:
    broken = ToolCall("c", "f", {"x": 1}, arguments_error="cut", raw_arguments='{"x": 1')
    assert messages(answer(broken))[1] == answered(called("c", {"invalid_json": '{"x": 1'}))


# -------------------------------------------------------- texts and images


def test_texts_that_say_nothing_are_left_out() -> None:
    given: list[Message] = [
        system(" \n"),
        user("", "Hi", "\t"),
        answer("\n", call("c")),
        result("c", " "),
        answer("a", "", "b"),
    ]
    sent = body(claude(PLAIN), given)
    assert "system" not in sent
    assert sent["messages"] == [HI, answered(called("c")), said(answering("c", "(no output)")), answered("a", "b")]


def test_b69_halves_of_characters_are_joined_or_replaced_wherever_they_stand() -> None:
    bad = "\ud800"
    model = claude(PLAIN)
    declared = ToolDeclaration("f", bad, {"type": "object", "properties": {bad: {"enum": [bad]}}})
    thought = ThinkingContent(bad, thinking_signature=bad)
    server = [{"before": 1, "block": {"type": "x", "y": bad}}]
    given: list[Message] = [
        system(bad, declared),
        user("\ud83d\ude00", bad),
        answer(thought, ToolCall(bad, bad, {bad: [bad]}), of=model, serverBlocks=server),
        result(bad, bad),
    ]
    sent = body(model, given, stop=[bad], metadata={"user_id": bad})
    assert sent["tools"] == [
        {
            "name": "f",
            "description": "\ufffd",
            "input_schema": {"type": "object", "properties": {"\ufffd": {"enum": ["\ufffd"]}}},
        }
    ]
    assert (sent["system"], sent["stop_sequences"]) == ([text("\ufffd")], ["\ufffd"])
    assert sent["metadata"] == {"user_id": "\ufffd"}
    user_turn, assistant, results = sent["messages"]
    wire = assistant["content"][2]["id"]
    assert user_turn == said("😀", "\ufffd")
    assert assistant == answered(
        {"type": "thinking", "thinking": "\ufffd", "signature": "\ufffd"},
        {"type": "x", "y": "\ufffd"},
        called(wire, {"\ufffd": ["\ufffd"]}, "_"),
    )
    assert results == said(answering(wire, "\ufffd"))


def test_numbers_that_are_none_are_null() -> None:
    assert messages(answer(call("c", x=math.nan, y=[math.inf])))[1] == answered(called("c", {"x": None, "y": [None]}))


def test_images_of_user_and_results() -> None:
    given: list[Message] = [user("Look", PNG), answer(call("c")), result("c", "seen", PNG)]
    assert messages(*given) == [
        said("Look", CLAUDE_PNG),
        answered(called("c")),
        said(answering("c", "seen", CLAUDE_PNG)),
    ]


def test_an_image_in_a_failed_result_is_sent_and_the_failure_said_for_the_api_refuses_both() -> None:
    given: list[Message] = [user("Hi"), answer(call("c")), result("c", PNG, is_error=True)]
    assert messages(*given)[2] == said(answering("c", CLAUDE_PNG, "(the call failed)"))
    blind = claude(PLAIN, images=False)
    assert messages(*given, model=blind)[2] == said(answering("c", LEFT_OUT, is_error=True))


@pytest.mark.parametrize(
    ("image", "sees"),
    [(PNG, False), (ImageContent("", "image/png"), True), (ImageContent("PHN2Zy8+", "image/svg+xml"), True)],
    ids=["blind", "empty", "kind"],
)
def test_images_that_the_model_does_not_take_are_left_out(image: ImageContent, sees: bool) -> None:
    given: list[Message] = [user("Look", image), answer(call("c")), result("c", image)]
    sent = messages(*given, model=claude(PLAIN, images=sees))
    assert sent == [said("Look", LEFT_OUT), answered(called("c")), said(answering("c", LEFT_OUT))]


# ----------------------------------------- thinking and blocks of the server


def test_b89_signed_and_redacted_thinking_of_the_same_model_goes_back() -> None:
    model = claude(PLAIN)
    omitted = ThinkingContent("", thinking_signature="sig2")
    own = answer(SIGNED, REDACTED, omitted, ThinkingContent("unsigned"), "Yes", of=model)
    assert messages(own, model=model)[1] == answered(
        SIGNED_WIRE, REDACTED_WIRE, {"type": "thinking", "thinking": "", "signature": "sig2"}, "Yes"
    )


@pytest.mark.parametrize("change", [{"provider": "q"}, {"api": "openai-chat"}, {"model": "n"}])
def test_b89_thinking_and_server_blocks_of_another_model_are_left_out(change: dict[str, Any]) -> None:
    model = claude(PLAIN)
    own = answer(SIGNED, "Yes", REDACTED, of=model, serverBlocks=[{"before": 0, "block": {"type": "x"}}])
    assert messages(attrs.evolve(own, **change), model=model)[1] == answered("Yes")


def test_b89_no_answer_ends_in_thinking() -> None:
    model = claude(PLAIN)
    given: list[Message] = [user("Hi"), answer("Well", SIGNED, REDACTED, of=model), user("Hi")]
    assert messages(*given, model=model) == [HI, answered("Well"), HI]
    alone: list[Message] = [user("Hi"), answer(SIGNED, " ", of=model), user("Hi")]
    assert messages(*alone, model=model) == [said("Hi", "Hi")]


def test_blocks_of_the_server_go_back_to_their_places() -> None:
    model = claude(PLAIN)
    blocks = [{"type": f"server_{number}", "n": number} for number in range(5)]
    server = [{"before": at, "block": block} for at, block in zip((0, 0, 1, 3, 9), blocks, strict=True)]
    own = answer(SIGNED, "", "Yes", call("c"), of=model, serverBlocks=server)
    assert messages(own, model=model)[1] == answered(
        blocks[0], blocks[1], SIGNED_WIRE, blocks[2], "Yes", blocks[3], called("c"), blocks[4]
    )


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "x",
        5,
        {"before": 0},
        [None],
        [{"before": 0}],
        [{"before": "0", "block": {"type": "x"}}],
        [{"before": 0, "block": "x"}],
        [{"before": 0, "block": {}}],
        [{"before": 0, "block": {"type": "tool_use", "id": "z", "name": "f", "input": {}}}],
        [{"before": 9, "block": {"type": "text"}}],
    ],
)
def test_what_is_no_block_of_the_server_is_left_out(nonsense: Any) -> None:
    model = claude(PLAIN)
    assert messages(answer("Yes", of=model, serverBlocks=nonsense), model=model)[1] == answered("Yes")


@pytest.mark.parametrize(
    ("level", "effort"),
    [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "xhigh"), ("max", "max")],
)
def test_adaptive_thinking_has_an_effort(level: ThinkingLevel, effort: str) -> None:
    plain = body(claude(), [user("Hi")])
    assert not plain.keys() & {"thinking", "output_config"}
    sent = body(claude(), [user("Hi")], level, tool_choice="f", temperature=1)
    assert sent == {**plain, "temperature": 1, "thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    assert body(claude(MessagesCompat(thinking="none")), [user("Hi")], level) == plain


@pytest.mark.parametrize(
    ("level", "options", "budget", "most"),
    [
        ("minimal", {}, 1024, 32_000),
        ("low", {}, 2048, 32_000),
        ("medium", {}, 8192, 32_000),
        ("high", {}, 16_384, 32_000),
        ("xhigh", {}, 32_768, 36_864),
        ("max", {}, 32_768, 36_864),
        ("low", {"thinking_budgets": {"low": 5000, "high": 1}}, 5000, 32_000),
        ("low", {"thinking_budgets": {"low": 5}}, 1024, 32_000),
        ("low", {"max_tokens": 100}, 2048, 6144),
        ("low", {"max_tokens": 50_000}, 2048, 50_000),
    ],
)
def test_thinking_with_a_budget_leaves_room_for_the_answer(
    level: ThinkingLevel, options: dict[str, Any], budget: int, most: int
) -> None:
    sent = body(claude(BUDGET), [user("Hi")], level, **options)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert sent["max_tokens"] == most
    assert "output_config" not in sent


def test_options_that_the_api_refuses_while_the_model_thinks() -> None:
    given: list[Message] = [system("", ToolDeclaration("f")), user("Hi")]
    for compat in (BUDGET, PLAIN):
        with pytest.raises(UsageError, match=r"'temperature' is 0\.5, which .* leave it out, or set thinking_level"):
            body(claude(compat), given, "low", temperature=0.5)
        assert body(claude(compat), given, temperature=0.5)["temperature"] == 0.5
        assert body(claude(compat), given, "low", temperature=1)["temperature"] == 1
    for choice in ("required", "f"):
        with pytest.raises(UsageError, match=f"'tool_choice' is '{choice}', which"):
            body(claude(BUDGET), given, "low", tool_choice=choice)
    assert body(claude(BUDGET), given, "low", tool_choice="none")["tool_choice"] == {"type": "none"}


# --------------------------------------------------------- system messages


def test_system_messages_are_put_together_in_front() -> None:
    given: list[Message] = [
        system("One.", sections={"tone": "Kind."}),
        user("Hi"),
        system("Two.", sections={"tone": None}),
        user("Hi"),
    ]
    sent = body(claude(PLAIN), given)
    assert sent["system"] == [text("One.\n\nTwo.")]
    assert sent["messages"] == [said("Hi", "Hi")]


def test_later_system_messages_stand_behind_the_next_turn_of_the_user() -> None:
    given: list[Message] = [
        system("One."),
        user("a"),
        system("Two.", sections={"tone": "Kind."}),
        user("b"),
        system("Three."),
        answer("A"),
        system("Four."),
        system("", ToolDeclaration("f")),
        answer("B"),
        user("c"),
        answer(" "),
        user("d"),
        answer("C", call("x")),
        system("Five."),
        result("x", "ok"),
        user("e"),
    ]
    sent = body(claude(ANYWHERE), given)
    assert sent["system"] == [text("One.")]
    assert [each["name"] for each in sent["tools"]] == ["f"]
    assert sent["messages"] == [
        said("a", "b"),
        instructed(
            "Two.\n\nInstructions in the section 'tone', in place of any that it had before:\n\nKind.", "Three."
        ),
        answered("A", "B"),
        said("c", "d"),
        instructed("Four."),
        answered("C", called("x")),
        said(answering("x", "ok"), text("e")),
        instructed("Five."),
    ]


def test_instructions_behind_the_last_answer_are_put_in_front() -> None:
    given: list[Message] = [system("One."), user("a"), answer("A"), system("Two."), answer("B"), system("Three.")]
    sent = body(claude(ANYWHERE), given)
    assert sent["system"] == [text("One.\n\nTwo.\n\nThree.")]
    assert sent["messages"] == [said("a"), answered("A", "B")]
    sent = body(claude(ANYWHERE), [answer(" "), system("Two.")])
    assert sent["messages"] == [EMPTY, instructed("Two.")]


# ------------------------------------------------------------------- tools


def test_a_request_has_the_tools_of_now() -> None:
    given: list[Message] = [
        system("", ToolDeclaration("f", "old"), ToolDeclaration("g"), ToolDeclaration("h", parameters={"type": "x"})),
        user("Hi"),
        system("", ToolDeclaration("f", "new"), tools_removed=["f", "g"]),
    ]
    assert body(claude(PLAIN), given)["tools"] == [
        {"name": "h", "input_schema": EMPTY_SCHEMA},
        {"name": "f", "description": "new", "input_schema": EMPTY_SCHEMA},
    ]
    without = body(claude(PLAIN), [*given, system(tools_removed=["f", "h"])], tool_choice="auto")
    assert without.keys() == {"model", "stream", "max_tokens", "messages"}


# ------------------------------------------------------------------- marks


@pytest.mark.parametrize(
    ("retention", "mark"),
    [(None, {"type": "ephemeral"}), ("short", {"type": "ephemeral"}), ("long", {"type": "ephemeral", "ttl": "1h"})],
)
def test_the_ends_of_prompt_and_of_the_last_two_turns_of_the_user_are_marked(retention: Any, mark: Any) -> None:
    given: list[Message] = [
        system("S", ToolDeclaration("f")),
        user("a"),
        answer("A"),
        user("b", PNG),
        answer(call("c")),
        result("c", "ok"),
    ]
    sent = body(claude(), given, cache_retention=retention)
    marked = {"cache_control": mark}
    assert sent["system"] == [{**text("S"), **marked}]
    assert sent["tools"] == [{"name": "f", "input_schema": EMPTY_SCHEMA}]
    assert sent["messages"] == [
        said("a"),
        answered("A"),
        said("b", {**CLAUDE_PNG, **marked}),
        answered(called("c")),
        said({**answering("c", "ok"), **marked}),
    ]


def test_without_a_prompt_the_last_tool_is_marked() -> None:
    given: list[Message] = [system("", ToolDeclaration("f"), ToolDeclaration("g")), user("Hi")]
    sent = body(claude(), given)
    assert sent["tools"] == [
        {"name": "f", "input_schema": EMPTY_SCHEMA},
        {"name": "g", "input_schema": EMPTY_SCHEMA, **MARK},
    ]
    assert sent["messages"] == [said({**text("Hi"), **MARK})]


@pytest.mark.parametrize(("model", "options"), [(claude(), {"cache_retention": "none"}), (claude(PLAIN), {})])
def test_nothing_is_marked_where_nothing_is_to_be_cached(model: HTTPModel, options: Any) -> None:
    for prompt in ("", "S"):
        given: list[Message] = [system(prompt, ToolDeclaration("f")), user("Hi")]
        assert b"cache_control" not in raw_body(model, given, **options)


def test_the_prefix_of_a_conversation_stays_the_same_as_it_goes_on() -> None:
    model = claude(PLAIN)
    given: list[Message] = [system("S"), user("a"), answer(SIGNED, "b ", call("c"), of=model), result("c", "d")]
    given += [answer("e "), user("f")]
    sent = messages(*given, model=model)
    for end in range(2, len(given)):
        assert messages(*given[:end], model=model)[: end - 2] == sent[: end - 2]


# ----------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"stop": ("a", "b")}, {"stop_sequences": ["a", "b"]}),
        ({"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": "f"}, {"tool_choice": {"type": "tool", "name": "f"}}),
        ({"extra_body": {"top_k": 1, "stream": False}}, {"top_k": 1, "stream": False}),
        ({"max_tokens": 5, "extra_body": {"max_tokens": 6}}, {"max_tokens": 6}),
        ({"extra_body": {"messages": []}}, {"messages": []}),
        ({"thinking_budgets": {"low": 5}, "headers": {"a": "b"}, "on_payload": print, "on_response": print}, {}),
    ],
)
def test_options(options: dict[str, Any], wanted: dict[str, Any]) -> None:
    given: list[Message] = [system("", ToolDeclaration("f")), user("Hi")]
    assert body(claude(), given, **options) == {**body(claude(), given), **wanted}


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="'max_tokens' is -1, but must be a whole number of tokens above 0"):
        body(claude(), [user("Hi")], max_tokens=-1)


def test_what_the_model_says_of_its_requests() -> None:
    model = claude(max_tokens=100, extra_body={"service_tier": "auto", "top_k": 1})
    sent = body(model, [user("Hi")], extra_body={"top_k": 2})
    assert (sent["max_tokens"], sent["service_tier"], sent["top_k"]) == (100, "auto", 2)
    assert body(model, [user("Hi")], max_tokens=7)["max_tokens"] == 7


# ------------------------------------------------------------------- cache


def test_a_request_of_a_long_conversation_encodes_only_what_is_new() -> None:
    model = claude()
    given: list[Message] = [system("Be brief.")]
    for number in range(1000):
        given += [user(f"u{number}"), answer(call("c", n=number)), result("c", PNG), answer("done ")]
        before = Cache.of(model).encoded
        if number in (0, 1, 998, 999):
            raw_body(model, given)
            assert Cache.of(model).encoded - before == {0: 4, 1: 4, 998: 997 * 4, 999: 4}[number]
    assert raw_body(model, given) == raw_body(claude(), given)


def test_agents_that_share_a_model_get_their_own_bodies() -> None:
    model = claude()
    shared: list[Message] = [answer("x", call("c")), result("c", "shared")]
    one: list[Message] = [user("one"), *shared]
    two: list[Message] = [user("two"), answer(call("c")), result("c", "before"), *shared, user("more")]
    for _ in range(2):
        for given in (one, two):
            assert raw_body(model, given) == raw_body(claude(), given)


def test_messages_are_not_kept_alive_by_what_was_made_of_them() -> None:
    model = claude()
    given: list[Message] = [user("a"), answer("b", call("c")), result("c", "d"), answer("e")]
    raw_body(model, given)
    alive = [weakref.ref(message) for message in given]
    assert len(Cache.of(model)._made) == 4
    del given
    gc.collect()
    assert [each() for each in alive] == [None] * 4
    assert not Cache.of(model)._made


def test_the_transcript_of_the_host_is_not_changed() -> None:
    model = claude()
    server = [{"before": 0, "block": {"type": "x", "y": ["\ud800"]}}]
    given: list[Message] = [
        system("S", ToolDeclaration("f")),
        user("Hi", PNG),
        answer(SIGNED, call("", x=[math.nan, "\ud800"]), of=model, serverBlocks=server),
        result("", PNG, is_error=True),
        answer("end "),
    ]
    before = repr(transcript_to_json(given))
    raw_body(model, given, "high")
    assert repr(transcript_to_json(given)) == before
