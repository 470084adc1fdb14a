"""ScriptedModel: what its turns become, and how a wrong script is noticed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    SimpleModel,
    StreamSink,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    UserMessage,
    normalize_context,
    open_stream,
    tool,
)
from trio_agent.testing import Block, ScriptedModel, ScriptError, ScriptExhaustedError, ScriptNotExhaustedError


def request_of(text: str = "Hi.", **settings: Any) -> ModelRequest:
    return ModelRequest(SimpleModel("p", "m"), normalize_context([UserMessage(text)]), **settings)


async def ask(model: ScriptedModel, request: ModelRequest | None = None) -> tuple[list[str], AssistantMessage]:
    types: list[str] = []
    async with open_stream(model.stream_fn, request or request_of()) as events:
        async for event in events:
            delta = getattr(event, "delta", None)
            types.append(event.type if delta is None else f"{event.type} {delta}")
    return types, events.result


async def test_a_string_is_streamed_word_by_word() -> None:
    types, message = await ask(ScriptedModel(["  Hello  big\nworld "]))
    assert types == ["start", "text_start", "text_delta   Hello  ", "text_delta big\n", "text_delta world ", "text_end"]
    assert message.content == (TextContent("  Hello  big\nworld "),)
    assert message.stop_reason == "stop"
    assert (message.provider, message.model, message.api) == ("p", "m", "scripted")


async def test_a_string_is_streamed_whole_where_asked_for() -> None:
    types, _ = await ask(ScriptedModel(["Hello world"], whole=True))
    assert types == ["start", "text_start", "text_delta Hello world", "text_end"]


@pytest.mark.parametrize("whole", [True, False])
async def test_an_empty_string_is_a_text_block_without_deltas(whole: bool) -> None:
    types, message = await ask(ScriptedModel([""], whole=whole))
    assert types == ["start", "text_start", "text_end"]
    assert message.content == (TextContent(""),)


async def test_blocks_are_streamed_in_order_and_a_call_sets_the_stop_reason() -> None:
    call = ToolCall("c1", "add", {"a": 1}, thought_signature="T")
    blocks: list[Block] = [ThinkingContent("Hm.", thinking_signature="S"), "Text", call]
    types, message = await ask(ScriptedModel([blocks]))
    assert types == [
        "start",
        "thinking_start",
        "thinking_delta Hm.",
        "thinking_end",
        "text_start",
        "text_delta Text",
        "text_end",
        "toolcall_start",
        'toolcall_delta {"a": 1}',
        "toolcall_end",
    ]
    assert message.content == (blocks[0], TextContent("Text"), call)
    assert message.stop_reason == "tool_use"


async def test_one_call_needs_no_list() -> None:
    _, message = await ask(ScriptedModel([ToolCall("c1", "add")]))
    assert message.tool_calls == (ToolCall("c1", "add"),)
    assert message.stop_reason == "tool_use"


async def test_an_empty_list_is_an_empty_answer() -> None:
    types, message = await ask(ScriptedModel([[]]))
    assert types == ["start"]
    assert message.content == ()
    assert message.stop_reason == "stop"


async def test_broken_arguments_are_streamed_as_they_came() -> None:
    broken = ToolCall("c1", "add", arguments_error="no JSON", raw_arguments='{"a": ')
    _, message = await ask(ScriptedModel([broken]))
    assert message.tool_calls[0].arguments == {}
    assert message.tool_calls[0].arguments_error is not None
    assert message.tool_calls[0].raw_arguments == '{"a": '


async def test_a_message_is_streamed_and_returned_as_it_is() -> None:
    given = AssistantMessage(
        (ThinkingContent("", redacted=True, thinking_signature="x"), TextContent("cut", text_signature="y")),
        stop_reason="length",
        usage=Usage(input=3, output=2),
    )
    types, message = await ask(ScriptedModel([given]))
    assert message is given
    assert types[-2:] == ["text_delta cut", "text_end"]


async def test_an_exception_is_raised() -> None:
    with pytest.raises(OSError, match="no route"):
        await ask(ScriptedModel([OSError("no route")]))


async def test_a_function_of_the_request_answers_plain_or_async() -> None:
    def plain(request: ModelRequest) -> str:
        return f"plain {len(request.messages)}"

    async def later(request: ModelRequest) -> list[ToolCall]:
        await trio.lowlevel.checkpoint()
        return [ToolCall("c1", request.model.id)]

    def failing(request: ModelRequest) -> str:
        raise KeyError(request.model.provider)

    model = ScriptedModel([plain, later, failing, lambda request, word="default": word])
    assert (await ask(model))[1].text == "plain 1"
    assert (await ask(model))[1].tool_calls == (ToolCall("c1", "m"),)
    with pytest.raises(KeyError):
        await ask(model)
    assert (await ask(model))[1].text == "default"
    assert model.errors == []


async def test_a_function_of_request_and_sink_sends_the_events_itself() -> None:
    async def own(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        return builder.finish("length")

    types, message = await ask(ScriptedModel([own]))
    assert types == ["start"]
    assert message.stop_reason == "length"


async def test_a_function_of_request_and_sink_must_return_a_message() -> None:
    async def own(request: ModelRequest, sink: StreamSink) -> str:
        await trio.lowlevel.checkpoint()
        return "text"

    model = ScriptedModel([own])
    with pytest.raises(ScriptError, match=r"turn 1 gave 'text'"):
        await ask(model)
    assert len(model.errors) == 1


@pytest.mark.parametrize("answer", [None, 42, {"text": "x"}, [1], lambda request: "x"])
async def test_a_function_that_gives_no_answer_is_noticed(answer: Any) -> None:
    model = ScriptedModel([lambda request: answer])
    with pytest.raises(ScriptError, match="what the function of turn 1 gave"):
        await ask(model)
    with pytest.raises(ScriptError, match="what the function of turn 1 gave"):
        model.assert_exhausted()


async def test_the_delay_passes_before_each_event(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(["one two"], delay=0.5)
    async with open_stream(model.stream_fn, request_of()) as events:
        times = [trio.current_time() async for _ in events]
    assert times == [0.5, 1.0, 1.5, 2.0, 2.5]


async def test_a_cancelled_turn_counts_as_taken(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(["one", "two"], delay=1)
    with trio.move_on_after(1.5) as scope:
        await ask(model)
    assert scope.cancelled_caught
    assert trio.current_time() == 1.5
    assert model.remaining == ("two",)


async def test_thinking_comes_first_where_the_request_asks_for_it() -> None:
    model = ScriptedModel(["a", "b", [ToolCall("c", "t")], AssistantMessage()], thinking="Let me see.")
    assert (await ask(model))[1].content == (TextContent("a"),)
    thoughtful = request_of(thinking_level="low")
    assert (await ask(model, thoughtful))[1].content == (ThinkingContent("Let me see."), TextContent("b"))
    assert (await ask(model, thoughtful))[1].content[0] == ThinkingContent("Let me see.")
    assert (await ask(model, thoughtful))[1].content == ()


async def test_requests_are_recorded_and_the_script_can_grow() -> None:
    model = ScriptedModel(["a"])
    first = request_of("first")
    await ask(model, first)
    model.assert_exhausted()
    model.extend(["b"])
    assert model.remaining == ("b",)
    await ask(model)
    assert model.requests[0] is first
    assert len(model.requests) == 2
    model.assert_exhausted()


async def test_a_request_beyond_the_script_is_an_error_that_stays() -> None:
    model = ScriptedModel([])
    with pytest.raises(ScriptExhaustedError, match="request 1 finds no turn: the script holds 0") as caught:
        await ask(model)
    assert caught.value.held == 0
    assert model.errors == [caught.value]
    with pytest.raises(ScriptExhaustedError):
        model.assert_exhausted()
    model.extend(["late"])
    assert (await ask(model))[1].text == "late"


def test_turns_that_are_left_are_named() -> None:
    model = ScriptedModel(["a", ToolCall("c9", "add")])
    with pytest.raises(ScriptNotExhaustedError, match="2 of 2 turns") as caught:
        model.assert_exhausted()
    assert caught.value.left == 2
    assert "turn 2: ToolCall(id='c9'" in str(caught.value)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (None, "turn 2 is None"),
        (7, "turn 2 is 7"),
        (b"x", "turn 2 is b'x'"),
        ({"text": "x"}, "turn 2 is {'text': 'x'}"),
        (ValueError, "turn 2 is the class ValueError; give an instance"),
        (["ok", 7], "block 2 of turn 2 is 7"),
        ([["nested"]], r"block 1 of turn 2 is \['nested'\]"),
        (UserMessage("x"), "turn 2 is UserMessage"),
        (ToolCall("c1", "t", {"x": object()}), "the arguments of the call 'c1' in turn 2 are no JSON"),
        (AssistantMessage(stop_reason="pending"), "turn 2 has the stop reason 'pending'"),
    ],
)
def test_a_wrong_turn_is_refused_at_once(turn: Any, text: str) -> None:
    with pytest.raises(ScriptError, match=text):
        ScriptedModel(["fine", turn])
    model = ScriptedModel(["fine"])
    with pytest.raises(ScriptError, match=text):
        model.extend([turn])
    assert model.turns == ["fine"]


@pytest.mark.parametrize("script", ["Hello", ToolCall("c", "t"), AssistantMessage(), 42, len, ValueError("x")])
def test_a_script_that_is_no_list_is_refused(script: Any) -> None:
    with pytest.raises(ScriptError, match="must be a list of turns"):
        ScriptedModel(script)


@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan")])
def test_a_wrong_delay_is_refused(delay: float) -> None:
    with pytest.raises(ScriptError, match="delay is"):
        ScriptedModel([], delay=delay)


@pytest.mark.parametrize("error", [ScriptError("x"), ScriptExhaustedError("x", 3), ScriptNotExhaustedError("x", 2)])
def test_errors_can_be_pickled(error: ScriptError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == "x"
    assert vars(copy) == vars(error)


async def test_an_agent_runs_on_a_script() -> None:
    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        await trio.lowlevel.checkpoint()
        return str(a + b)

    model = ScriptedModel([ToolCall("c1", "add", {"a": 1, "b": 2}), "It is 3."])
    result = await Agent(model, tools=[add]).prompt("What is 1 + 2?")
    assert result.text == "It is 3."
    assert model.requests[1].messages[-1].text == "3"  # type: ignore[union-attr]
    model.assert_exhausted()


async def test_a_run_beyond_the_script_ends_with_an_error() -> None:
    model = ScriptedModel([ToolCall("c1", "nosuch")])
    result = await Agent(model).prompt("Go.")
    assert result.stop_reason == "error"
    assert result.message is not None
    assert "request 2 finds no turn" in (result.message.error_message or "")
    with pytest.raises(ScriptExhaustedError):
        model.assert_exhausted()
