"""Known faults L and M: arguments that are partial, malformed, of a wrong type, or of odd characters.

Here they go the whole way: streamed by a model, put together, validated, executed, answered. The
table of what is coerced into what is in ``test_arguments.py``, that of what is JSON in ``test_stream.py``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import trio
from kit import Recorder, agent_of, assert_run, call, calling, story

from trio_agent import (
    Agent,
    AssistantMessage,
    BeforeToolCallContext,
    MessageBuilder,
    MessageUpdate,
    ModelRequest,
    StopReason,
    StreamSink,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    ToolResultMessage,
    event_to_json,
    transcript_from_json,
    transcript_to_json,
)
from trio_agent.testing import ScriptedModel

ANYTHING: dict[str, Any] = {"type": "object"}


class Probe:
    """A tool that keeps the arguments of its calls and answers "ok"."""

    def __init__(self, schema: Mapping[str, Any] = ANYTHING, name: str = "probe", **settings: Any) -> None:
        self.got: list[dict[str, Any]] = []
        self.tool = Tool(name, parameters=schema, execute=self._execute, **settings)

    async def _execute(self, arguments: dict[str, Any], context: ToolContext) -> str:
        await trio.lowlevel.checkpoint()
        self.got.append(arguments)
        return "ok"


def streamed(
    *texts: str | None, stop_reason: StopReason = "tool_use", name: str = "probe", chunk: int = 1, ended: bool = True
) -> Callable[[ModelRequest, StreamSink], Any]:
    """A turn that streams calls c1, c2 ... with these texts as arguments; None streams none at all.

    Args:
      *texts: the text of the arguments of each call.
      stop_reason: of the answer.
      name: of the tool.
      chunk: characters in a delta.
      ended: False forgets to end the calls.
    """

    async def turn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        for number, text in enumerate(texts, 1):
            await sink.send(builder.tool_call_start(f"c{number}", name))
            for at in range(0, len(text or ""), chunk):
                await sink.send(builder.tool_call_delta((text or "")[at : at + chunk]))
            if ended:
                await sink.send(builder.tool_call_end())
        return builder.finish(stop_reason)

    return turn


def results(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def answers(agent: Agent) -> list[AssistantMessage]:
    return [message for message in agent.messages if isinstance(message, AssistantMessage)]


async def ran(agent: Agent, model: ScriptedModel, recorder: Recorder) -> None:
    """A run to its end, with one request behind the batch that was sent every result."""
    outcome = await agent.prompt("Go.")
    assert outcome.stop_reason == "stop"
    model.assert_exhausted()
    assert [m for m in model.requests[-1].messages if isinstance(m, ToolResultMessage)] == results(agent)
    assert_run(recorder)


def as_sent(value: Any) -> str:
    """JSON whose strings hold their control characters raw, as several models write it."""
    text = json.dumps(value, ensure_ascii=False)
    for number in range(0x20):
        escape = json.dumps(chr(number))[1:-1]
        text = text.replace(escape, chr(number))
    return text


# --------------------------------------------------------------------- L

ODD = "".join(map(chr, range(0x20)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": "line 1\nline 2"},
        {"content": "a\tb\rc\r\nd\fe\bf"},
        {"lines": ["one\n", ["two\r\n", {"three": "\t"}]]},
        {"key\nwith\tcontrols": "x"},
        {"all": ODD, "nested": [{ODD: [ODD]}]},
    ],
    ids=["LF", "others", "nested", "key", "all"],
)
async def test_b62_raw_control_characters_in_strings_are_preserved(arguments: dict[str, Any]) -> None:
    text = as_sent(arguments)
    assert "\\" not in text
    probe = Probe()
    agent, model, recorder = agent_of([streamed(text), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == [arguments]
    (asked,) = answers(agent)[0].tool_calls
    assert asked.arguments == arguments
    # The transcript is plain JSON all the same.
    assert transcript_from_json(json.loads(json.dumps(transcript_to_json(agent.messages)))) == agent.messages


async def test_b62_what_is_shown_on_the_way_does_not_vanish_at_a_raw_newline() -> None:
    text = as_sent({"content": "one\ntwo\n"})
    agent, model, recorder = agent_of([streamed(text), "Done."], Probe().tool)
    await ran(agent, model, recorder)
    shown = [
        event.message.tool_calls[0].arguments.get("content", "")
        for event in recorder.events
        if isinstance(event, MessageUpdate) and event.message.tool_calls
    ]
    assert shown == sorted(shown, key=len)
    assert shown[-1] == "one\ntwo\n"
    assert "one\n" in shown


@pytest.mark.parametrize("seed", range(3))
async def test_b62_whatever_stands_in_a_string_it_is_the_same_object_or_an_error(seed: int) -> None:
    rng = random.Random(seed)

    def value(depth: int = 0) -> Any:
        if depth < 2 and rng.random() < 0.4:
            return [value(depth + 1) for _ in range(2)]
        if depth < 2 and rng.random() < 0.4:
            return {value(9): value(depth + 1)}
        return "".join(rng.choices(ODD + 'ab {}[]:,é"\\', k=rng.randrange(6)))

    wanted = [{"a": value(), "b": value()} for _ in range(40)]
    texts = [json.dumps(each) for each in wanted]
    # Raw in a third of all places.
    for index, text in enumerate(texts):
        for number in range(0x20):
            escape = json.dumps(chr(number))[1:-1]
            # An escaped backslash before the letter is no escape of it.
            if rng.random() < 0.3 and "\\\\" not in text:
                texts[index] = text = text.replace(escape, chr(number))
    probe = Probe(execution_mode="sequential")
    agent, model, recorder = agent_of([streamed(*texts, chunk=7), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == wanted


@pytest.mark.parametrize(
    "text",
    [
        "{\"a\": 'x'}",
        '{"a": "x",}',
        '{"a": "x" /* y */}',
        '{\x00"a": "x"}',
        '{"a": x\n}',
        '{"a": "x\n',
        '{"a": "x\\q"}',
        '```\n{"a": "x"}\n```',
    ],
)
async def test_b62_nothing_else_is_lenient(text: str) -> None:
    # Decided for B62: raw control characters within strings are accepted, and that is all.
    probe = Probe()
    agent, model, recorder = agent_of([streamed(text), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == []
    (result,) = results(agent)
    assert (result.is_error, result.error_kind) == (True, "invalid_arguments")
    assert "no valid JSON" in result.text


WRITE = {
    "type": "object",
    "properties": {"content": {"type": "string"}, "mode": {"type": "integer"}},
    "required": ["content"],
}
WHOLE = '{"mode": 12, "content": "é \\u00e9 {\\"x\\": [1]}"}'


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "left open"])
@pytest.mark.parametrize("stop_reason", ["tool_use", "stop"])
async def test_b64_arguments_cut_at_any_character_never_execute(stop_reason: StopReason, ended: bool) -> None:
    for cut in range(len(WHOLE) + 1):
        probe = Probe(WRITE)
        turns = [streamed(WHOLE[:cut], stop_reason=stop_reason, ended=ended), "Done."]
        agent, model, recorder = agent_of(turns, probe.tool)
        await ran(agent, model, recorder)
        (result,) = results(agent)
        if cut == len(WHOLE):
            assert probe.got == [json.loads(WHOLE)]
            assert not result.is_error
            continue
        assert probe.got == []
        assert (result.is_error, result.error_kind) == (True, "invalid_arguments")
        # The partial object stands in what was shown on the way, and nowhere else.
        assert [dict(call.arguments) for message in answers(agent) for call in message.tool_calls] == [{}]
        assert [event.args for event in recorder.events if isinstance(event, ToolExecutionStart)] == [{}]


async def test_b64_the_partial_object_is_seen_in_preview_events_only() -> None:
    probe = Probe(WRITE)
    agent, model, recorder = agent_of([streamed('{"content":"partial ha'), "Done."], probe.tool)
    await ran(agent, model, recorder)
    shown = [event.message.tool_calls for event in recorder.events if isinstance(event, MessageUpdate)]
    assert {"content": "partial ha"} in [calls[0].arguments for calls in shown if calls]
    (asked,) = answers(agent)[0].tool_calls
    assert asked.arguments == {}
    assert asked.raw_arguments == '{"content":"partial ha'
    assert asked.arguments_error is not None
    assert asked.arguments_error in results(agent)[0].text
    assert probe.got == []


async def test_b64_a_cut_off_call_takes_its_good_siblings_with_it_neither_way() -> None:
    probe = Probe(WRITE)
    texts = ['{"content": "a"}', '{"content": "b', '{"content": "c"}']
    agent, model, recorder = agent_of([streamed(*texts), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert sorted(got["content"] for got in probe.got) == ["a", "c"]
    assert story(agent.messages)[2:5] == ["c1 ok 'ok'", "c2 invalid_arguments", "c3 ok 'ok'"]


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "left open"])
async def test_b64_a_stream_that_breaks_off_in_a_call_runs_no_tool(ended: bool) -> None:
    async def breaks_off(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.tool_call_start("c1", "probe"))
        await sink.send(builder.tool_call_delta('{"content": "whole"}'))
        if ended:
            await sink.send(builder.tool_call_end())
        raise ConnectionError("the peer went away")

    probe = Probe(WRITE)
    agent, model, recorder = agent_of([breaks_off, "Done."], probe.tool)
    outcome = await agent.prompt("Go.")
    assert (outcome.stop_reason, type(outcome.exception)) == ("error", ConnectionError)
    assert probe.got == []
    assert len(model.requests) == 1
    assert_run(recorder)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
async def test_b65_an_answer_cut_off_by_the_length_limit_runs_none_of_its_calls(mode: Any) -> None:
    # The arguments are valid JSON and fit the schema; still nobody knows what is missing.
    probe, asked = Probe(), list[str]()

    def before(context: BeforeToolCallContext) -> None:
        asked.append(context.tool_call.id)

    turn = streamed('{"path":"a"}', '{"path":', "", stop_reason="length")
    agent, model, recorder = agent_of([turn, "Done."], probe.tool, tool_execution=mode, before_tool_call=before)
    await ran(agent, model, recorder)
    assert probe.got == []
    assert asked == []
    assert [result.tool_call_id for result in results(agent)] == ["c1", "c2", "c3"]
    for result in results(agent):
        assert (result.is_error, result.error_kind) == (True, "truncated")
        assert "output token limit" in result.text
    # Design 7.5: in a batch of this kind each result message follows its call.
    assert recorder.of("tool_execution", "message_start c") == [
        f"{step} {call_id}"
        for call_id in ("c1", "c2", "c3")
        for step in ("tool_execution_start", "tool_execution_end", "message_start")
    ]


async def test_b65_calls_of_unknown_tools_are_told_of_the_length_limit_too() -> None:
    agent, model, recorder = agent_of([streamed("{}", stop_reason="length", name="nowhere"), "Done."])
    await ran(agent, model, recorder)
    assert [result.error_kind for result in results(agent)] == ["truncated"]


async def test_b65_the_length_limit_without_calls_ends_the_run() -> None:
    agent, model, recorder = agent_of([AssistantMessage((), stop_reason="length"), "Never."])
    outcome = await agent.prompt("Go.")
    assert outcome.stop_reason == "length"
    assert len(model.requests) == 1
    assert_run(recorder)


@pytest.mark.parametrize("text", [None, "", " ", "\n\t \r\n", "{}", " {} "])
async def test_b66_no_arguments_at_all_are_an_empty_object(text: str | None) -> None:
    probe = Probe()
    agent, model, recorder = agent_of([streamed(text), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == [{}]
    assert [result.text for result in results(agent)] == ["ok"]


@pytest.mark.parametrize("text", ["null", "5", '"text"', '"{}"', "[]", "[{}]", "true", "-0.5", "NaN"])
@pytest.mark.parametrize("schema", [ANYTHING, WRITE], ids=["anything", "strict"])
async def test_b66_json_that_is_no_object_is_an_error_result(text: str, schema: dict[str, Any]) -> None:
    probe = Probe(schema)
    agent, model, recorder = agent_of([streamed(text, "{}"), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert {} not in probe.got[:-1]
    assert len(probe.got) == (1 if schema is ANYTHING else 0)
    first = results(agent)[0]
    assert (first.is_error, first.error_kind) == (True, "invalid_arguments")
    assert "JSON" in first.text


@pytest.mark.parametrize("mended", [None, [], "x", 5, [("a", 1)]])
async def test_b66_prepare_arguments_that_gives_no_object_is_an_error_result(mended: Any) -> None:
    probe = Probe(prepare_arguments=lambda raw: mended)
    agent, model, recorder = agent_of([calling("probe"), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == []
    assert [result.is_error for result in results(agent)] == [True]


@pytest.mark.parametrize("deltas", [[], [""], ["", "", ""], [" "]])
async def test_b67_missing_arguments_are_stored_and_sent_as_an_object(deltas: list[str]) -> None:
    async def turn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.tool_call_start("c1", "probe"))
        for delta in deltas:
            await sink.send(builder.tool_call_delta(delta))
        await sink.send(builder.tool_call_end(arguments=None))  # what a provider reads out of a null
        return builder.finish("tool_use")

    probe = Probe()
    agent, model, recorder = agent_of([turn, "Done.", "Again."], probe.tool)
    await agent.prompt("Go.")
    assert probe.got == [{}]
    # Saved, loaded and sent again it is a JSON object, never null and never text.
    document = json.loads(json.dumps(transcript_to_json(agent.messages)))
    ((block,),) = [message["content"] for message in document["messages"] if message.get("stopReason") == "toolUse"]
    assert block["arguments"] == {}
    assert [json.loads(json.dumps(event_to_json(event))) for event in recorder.events]
    agent.messages = transcript_from_json(document)
    await agent.prompt("And?")
    (sent,) = [m for m in model.requests[-1].messages if isinstance(m, AssistantMessage) and m.tool_calls]
    assert sent.tool_calls[0].arguments == {}
    model.assert_exhausted()


async def test_b67_a_null_in_a_message_of_the_stream_functions_own_is_an_error_of_that_call() -> None:
    bad: Any = None

    async def turn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return AssistantMessage((ToolCall("c1", "probe", bad), ToolCall("c2", "probe")), stop_reason="tool_use")

    probe = Probe()
    agent, model, recorder = agent_of([turn, "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == [{}]
    assert story(agent.messages)[2:4] == ["c1 invalid_arguments", "c2 ok 'ok'"]


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("odd", ["\ud800", "\udc00\ud800", "x\udfffy"])
async def test_b69_half_a_surrogate_pair_in_arguments_reaches_the_tool_or_is_refused_and_the_run_goes_on(
    odd: str, escaped: bool
) -> None:
    # It passes where the schema lets it pass. Where the validator has to say something of it, it says it
    # in text that any provider can encode.
    typed = Probe({"type": "object", "properties": {"a": {"type": "string"}}}, execution_mode="sequential")
    picky = Probe({"type": "object", "properties": {"a": {"enum": ["x"]}}, "additionalProperties": False}, "picky")
    values: list[dict[str, Any]] = [{"a": odd}, {"a": odd, "b": [{"c": odd}]}, {odd: 1}]
    texts = [json.dumps(value, ensure_ascii=escaped) for value in values]
    turns = [streamed(*texts), streamed(*texts, name="picky"), "Done."]
    agent, model, recorder = agent_of(turns, typed.tool, picky.tool)
    await ran(agent, model, recorder)
    assert typed.got == values[:2]
    assert picky.got == []
    refused = results(agent)[2:]
    assert len(refused) == 4
    for result in refused:
        assert (result.is_error, result.error_kind) == (True, "invalid_arguments")
        assert "surrogate" in result.text
        result.text.encode()
    assert transcript_from_json(json.loads(json.dumps(transcript_to_json(agent.messages)))) == agent.messages
    for event in recorder.events:
        json.dumps(event_to_json(event)).encode("ascii")


async def test_b69_odd_characters_of_a_model_or_tool_pass_through_the_loop_as_they_are() -> None:
    # What cannot be encoded is the providers' business where they write the body; here nothing is lost.
    odd = "\ud800 \x00 \udfff \uffff"

    async def echo(arguments: dict[str, Any], context: ToolContext) -> Any:
        await context.update(odd)
        return ToolResult(odd + arguments["text"], details={odd: odd}, structured_content=[odd])

    tools = [Tool("echo", execute=echo), Tool("value", execute=lambda arguments, context: {odd: [odd]})]
    turn = [odd, call("c1", "echo", text="\x00"), call("c2", "value")]
    agent, model, recorder = agent_of([turn, "Done."], *tools)
    await ran(agent, model, recorder)
    assert answers(agent)[0].text == odd
    assert [result.text for result in results(agent)] == [odd + "\x00", json.dumps({odd: [odd]}, ensure_ascii=False)]
    assert transcript_from_json(json.loads(json.dumps(transcript_to_json(agent.messages)))) == agent.messages
    for event in recorder.events:
        json.dumps(event_to_json(event)).encode("ascii")


async def test_b69_nul_and_other_characters_that_are_text_reach_the_tool() -> None:
    odd = "\x00\uffff\ufffe\x7f\u2028\U0001f642"
    probe = Probe({"type": "object", "properties": {"a": {"type": "string"}}})
    agent, model, recorder = agent_of([streamed(json.dumps({"a": odd}), as_sent({"a": odd})), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == [{"a": odd}, {"a": odd}]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"path":"a","path":"b"}', {"path": "b"}),
        ('{"path":"a","x":1,"path":"b","path":"c"}', {"path": "c", "x": 1}),
        ('{"path":{"y":1,"y":2},"path":{"z":[{"q":1,"q":3}]}}', {"path": {"z": [{"q": 3}]}}),
        ('{"path":"a","pa\\u0074h":"b"}', {"path": "b"}),
    ],
)
async def test_b70_of_a_repeated_key_the_last_value_counts_in_preview_and_final(
    text: str, arguments: dict[str, Any]
) -> None:
    probe = Probe()
    agent, model, recorder = agent_of([streamed(text, chunk=1), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == [arguments]
    shown = [event.message for event in recorder.events if isinstance(event, MessageUpdate)]
    deltas = [message.tool_calls[0].arguments for message in shown if message.tool_calls]
    # The last two are the delta with the closing brace and the end of the call.
    assert deltas[-2:] == [arguments, arguments]


# --------------------------------------------------------------------- M


def field(schema: Any, *, required: bool = True) -> dict[str, Any]:
    """The schema of arguments with the one field ``v``."""
    return {"type": "object", "properties": {"v": schema}, "required": ["v"] if required else []}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
STRINGS = {"type": "array", "items": STRING}
OBJECT = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
NESTED = {"type": "object", "properties": {"inner": OBJECT}, "required": ["inner"]}
ERROR = "<an error result>"
DROPPED = "<the property is dropped>"


def short(value: object) -> str:
    return repr(value)[:40]


async def check_coercion(schema: dict[str, Any], raw: Any, wanted: Any) -> None:
    """One call with ``v`` given; the raw arguments must stand unchanged everywhere but in tool and hooks."""
    seen: list[dict[str, Any]] = []

    def before(context: BeforeToolCallContext) -> None:
        seen.append(dict(context.args))
        assert context.tool_call.arguments == {"v": raw}

    probe = Probe(schema)
    turn = streamed(json.dumps({"v": raw}), chunk=5)
    agent, model, recorder = agent_of([turn, "Done."], probe.tool, before_tool_call=before)
    await ran(agent, model, recorder)
    (result,) = results(agent)
    if wanted is ERROR:
        assert probe.got == []
        assert (result.is_error, result.error_kind) == (True, "invalid_arguments")
        assert "$.v" in result.text
    else:
        expected = {} if wanted is DROPPED else {"v": wanted}
        assert probe.got == seen == [expected]
        assert json.dumps(probe.got[0]) == json.dumps(expected)  # 1 is not True, 4 is not 4.0
        assert not result.is_error
    (asked,) = answers(agent)[0].tool_calls
    (sent,) = [message for message in model.requests[1].messages if isinstance(message, AssistantMessage)]
    assert sent.tool_calls[0].arguments == asked.arguments == {"v": raw}
    assert [event.args for event in recorder.events if isinstance(event, ToolExecutionStart)] == [{"v": raw}]


@pytest.mark.parametrize(
    ("schema", "raw", "wanted"),
    [
        (STRINGS, '["test"]', ["test"]),
        (STRINGS, ' [ "a", "b" ] ', ["a", "b"]),
        (STRINGS, "[broken", ERROR),
        (STRINGS, '["a"', ERROR),
        (STRINGS, '["a"] and more', ERROR),
        (STRINGS, "[1]", ["1"]),
        (STRINGS, "[[1]]", ERROR),
        (OBJECT, '{"a": 1}', {"a": 1}),
        (STRING, '["test"]', '["test"]'),
        (STRING, "[broken", "[broken"),
        ({"type": ["string", "array"]}, '["test"]', '["test"]'),
        ({"anyOf": [STRING, STRINGS]}, '["test"]', '["test"]'),
        ({"anyOf": [STRINGS, STRING]}, '["test"]', '["test"]'),
        ({"type": "array", "items": OBJECT}, '[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
    ],
    ids=short,
)
async def test_b71_a_list_or_object_written_into_a_string_is_read_where_no_string_may_stand(
    schema: Any, raw: Any, wanted: Any
) -> None:
    await check_coercion(field(schema), raw, wanted)


@pytest.mark.parametrize(
    ("schema", "raw", "required", "wanted"),
    [
        (STRINGS, "", False, DROPPED),
        (STRINGS, "", True, ERROR),
        (STRINGS, "one", True, ["one"]),
        (INTEGER, "42", True, 42),
        (INTEGER, "4.0", True, 4),
        (INTEGER, "4.5", True, ERROR),
        (INTEGER, "abc", True, ERROR),
        (INTEGER, "", False, DROPPED),
        ({"type": "number"}, "4.5", True, 4.5),
        ({"type": "boolean"}, "true", True, True),
        ({"type": "boolean"}, "False", True, False),
        ({"type": "boolean"}, "yes", True, ERROR),
        (INTEGER, None, False, DROPPED),
        (INTEGER, None, True, ERROR),
        ({"type": ["integer", "null"]}, None, False, None),
        (STRING, "", False, ""),
        (STRING, 5, True, "5"),
    ],
    ids=short,
)
async def test_b72_scalars_of_a_wrong_type_are_mended_or_refused_and_the_original_stays(
    schema: Any, raw: Any, required: bool, wanted: Any
) -> None:
    await check_coercion(field(schema, required=required), raw, wanted)


@pytest.mark.parametrize(
    ("schema", "raw", "wanted"),
    [
        (OBJECT, '{"a":1', ERROR),
        (OBJECT, '{"a":1}', {"a": 1}),
        (OBJECT, '{"a":"1"}', {"a": 1}),
        (OBJECT, '{"a":1}}', ERROR),
        (OBJECT, "{}", ERROR),
        (OBJECT, '"{\\"a\\":1}"', ERROR),
        (NESTED, '{"inner": "{\\"a\\": 1}"}', {"inner": {"a": 1}}),
        (NESTED, {"inner": '{"a": 1}'}, {"inner": {"a": 1}}),
        (NESTED, '{"inner": "{\\"a\\": 1"}', ERROR),
        (NESTED, {"inner": '{"a": 1'}, ERROR),
    ],
    ids=short,
)
async def test_b73_an_object_in_a_string_is_whole_or_an_error(schema: Any, raw: Any, wanted: Any) -> None:
    await check_coercion(field(schema), raw, wanted)


async def test_b73_an_object_in_a_string_is_an_error_wherever_it_is_cut() -> None:
    whole = json.dumps({"inner": {"a": 12}})
    cuts: Sequence[str] = [whole[:cut] for cut in range(len(whole))]
    probe = Probe(field(NESTED))
    texts = [json.dumps({"v": cut}) for cut in cuts]
    agent, model, recorder = agent_of([streamed(*texts, chunk=50), "Done."], probe.tool)
    await ran(agent, model, recorder)
    assert probe.got == []
    assert [result.error_kind for result in results(agent)] == ["invalid_arguments"] * len(cuts)
