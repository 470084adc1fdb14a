"""The stream contract: putting an answer together, the sink in front of the listeners, the pull form."""

from __future__ import annotations

import gc
import json
import pickle
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NoReturn, Self

import attrs
import pytest
import trio
from trio.testing import assert_checkpoints, assert_no_checkpoints, wait_all_tasks_blocked

from trio_agent import (
    Agent,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    NoStreamFnError,
    SimpleModel,
    StreamError,
    StreamEvent,
    StreamFn,
    StreamSink,
    TextContent,
    TextDelta,
    ThinkingContent,
    ToolCall,
    Usage,
    UserMessage,
    get_default_stream_fn,
    normalize_context,
    open_stream,
    set_default_stream_fn,
)
from trio_agent._stream import SINK_SIZE, Line

MODEL = SimpleModel("prov", "mod")


def request() -> ModelRequest:
    return ModelRequest(MODEL, normalize_context([UserMessage("Hi")]))


def only_call(message: AssistantMessage) -> ToolCall:
    (call,) = message.tool_calls
    return call


# ---------------------------------------------------------------- builder


def test_an_answer_of_all_kinds_is_put_together() -> None:
    builder = MessageBuilder(request(), api="api")
    events: list[Any] = [
        builder.start(),
        builder.thinking_start(),
        builder.thinking_delta("hm"),
        builder.thinking_end(signature="sig"),
        builder.text_start(),
        builder.text_delta("Hel"),
        builder.text_delta("lo"),
        builder.text_end(signature="ts"),
        builder.tool_call_start("c1", "read"),
        builder.tool_call_delta('{"path":'),
        builder.tool_call_delta('"a"}'),
        builder.tool_call_end(signature="th"),
    ]
    assert [(event.type, getattr(event, "index", None), getattr(event, "delta", None)) for event in events] == [
        ("start", None, None),
        ("thinking_start", 0, None),
        ("thinking_delta", 0, "hm"),
        ("thinking_end", 0, None),
        ("text_start", 1, None),
        ("text_delta", 1, "Hel"),
        ("text_delta", 1, "lo"),
        ("text_end", 1, None),
        ("toolcall_start", 2, None),
        ("toolcall_delta", 2, '{"path":'),
        ("toolcall_delta", 2, '"a"}'),
        ("toolcall_end", 2, None),
    ]
    builder.response_id, builder.raw_stop_reason, builder.usage = "r1", "tool_calls", Usage(1, 2)
    message = builder.finish("tool_use")
    assert message == AssistantMessage(
        (
            ThinkingContent("hm", thinking_signature="sig"),
            TextContent("Hello", text_signature="ts"),
            ToolCall("c1", "read", {"path": "a"}, thought_signature="th"),
        ),
        stop_reason="tool_use",
        usage=Usage(1, 2),
        api="api",
        provider="prov",
        model="mod",
        response_id="r1",
        raw_stop_reason="tool_calls",
        timestamp=message.timestamp,
    )
    assert builder.finish("tool_use").content == message.content


def test_a_partial_message_is_pending_and_grows() -> None:
    builder = MessageBuilder(request())
    assert builder.start().partial.content == ()
    assert builder.text_start().partial.content == (TextContent(""),)
    assert builder.text_delta("Hel").partial.content == (TextContent("Hel"),)
    assert builder.text_delta("lo").partial.content == (TextContent("Hello"),)
    last = builder.text_end(signature="ts").partial
    assert last.content == (TextContent("Hello", text_signature="ts"),)
    assert last.stop_reason == "pending"
    assert (last.provider, last.model) == ("prov", "mod")


def test_a_redacted_thinking_block_is_redacted_from_its_start_and_signed_at_its_end() -> None:
    builder = MessageBuilder()
    assert builder.thinking_start(redacted=True).partial.content == (ThinkingContent("", redacted=True),)
    assert builder.thinking_end(signature="s").partial.content == (
        ThinkingContent("", redacted=True, thinking_signature="s"),
    )


class Twin:
    """A message put together the plain way, with a full copy at each step: what the builder is judged by."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []

    def content(self) -> tuple[Any, ...]:
        made: list[Any] = []
        for block in self.blocks:
            signature = block["signature"]
            if block["kind"] == "text":
                made.append(TextContent(block["text"], text_signature=signature))
            elif block["kind"] == "thinking":
                made.append(ThinkingContent(block["text"], thinking_signature=signature))
            else:
                arguments = json.loads(block["text"]) if block["ended"] else {"so far": block["text"]}
                made.append(ToolCall("c", "t", arguments, thought_signature=signature))
        return tuple(made)


def random_answer(rng: random.Random, builder: MessageBuilder) -> list[tuple[StreamEvent, tuple[Any, ...]]]:
    """Overlapping blocks, grown and ended in any order; each event with the content at that moment."""
    twin, told = Twin(), list[tuple[StreamEvent, tuple[Any, ...]]]()
    for _ in range(rng.randrange(40)):
        still_open = [index for index, block in enumerate(twin.blocks) if not block["ended"]]
        if not still_open or rng.random() < 0.2:
            kind = rng.choice(["text", "thinking", "toolcall"])
            twin.blocks.append({"kind": kind, "text": "", "signature": None, "ended": False})
            if kind == "toolcall":
                event: StreamEvent = builder.tool_call_start("c", "t")
            else:
                event = builder.text_start() if kind == "text" else builder.thinking_start()
        else:
            index = rng.choice(still_open)
            block = twin.blocks[index]
            named = None if index == len(twin.blocks) - 1 and rng.random() < 0.5 else index
            step = "tool_call" if block["kind"] == "toolcall" else block["kind"]
            if rng.random() < 0.7 and block["kind"] != "toolcall":
                delta = rng.choice(["", "a", "bc"])
                block["text"] += delta
                event = getattr(builder, f"{step}_delta")(delta, named)
            elif block["kind"] == "toolcall" and block["text"] != "{}":
                block["text"] += "{" if not block["text"] else "}"
                event = builder.tool_call_delta(block["text"][-1], named)
            else:
                block["ended"], block["signature"] = True, rng.choice([None, "s"])
                event = getattr(builder, f"{step}_end")(named, signature=block["signature"])
        told.append((event, twin.content()))
    return told


@pytest.mark.parametrize("seed", range(10))
def test_a_partial_message_asked_for_at_any_later_time_is_the_message_at_its_event(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        builder = MessageBuilder(partial_arguments=lambda text: {"so far": text})
        told = random_answer(rng, builder)
        for event, content in rng.choices(told, k=2 * len(told)) if told else []:
            assert event.partial.content == content
        for event, content in [*told, *reversed(told)]:
            assert event.partial.content == content
        if told:
            assert builder.snapshot().content == told[-1][1]
            assert builder.snapshot(0).content == ()


def test_a_partial_message_asked_for_later_is_the_same_message(monkeypatch: pytest.MonkeyPatch) -> None:
    # Design 4: asked later, an event still gives the message as it was; its timestamp is part of it.
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    builder = MessageBuilder(request())
    events = [builder.start(), builder.text_start(), builder.text_delta("a")]
    then = [event.partial for event in events]
    clock[0] = 2000.0
    assert [event.partial for event in events] == then
    assert {builder.finish("stop").timestamp, *(message.timestamp for message in then)} == {1_000_000}


def test_usage_and_ids_are_those_known_when_a_snapshot_is_asked_for() -> None:
    builder = MessageBuilder()
    event = builder.start()
    builder.usage = Usage(7)
    builder.response_id = "r"
    assert (event.partial.usage, event.partial.response_id) == (Usage(7), "r")


def test_a_snapshot_can_carry_why_it_is_the_last_one() -> None:
    builder = MessageBuilder(request())
    builder.text_start()
    event = builder.text_delta("Hel")
    builder.text_delta("lo")
    message = builder.snapshot(event.position, "aborted", error_message="cut", error_kind="aborted")
    assert (message.text, message.stop_reason, message.error_message, message.error_kind) == (
        "Hel",
        "aborted",
        "cut",
        "aborted",
    )


@pytest.mark.parametrize(
    "step",
    [
        lambda builder: builder.text_delta("x", 9),
        lambda builder: builder.text_delta("x", -1),
        lambda builder: builder.text_delta("x", 1),  # a thinking block
        lambda builder: builder.text_delta("x"),  # the last block is a call
        lambda builder: builder.thinking_delta("x", 0),
        lambda builder: builder.tool_call_delta("x", 0),
        lambda builder: builder.text_end(1),
        lambda builder: builder.thinking_end(0),
        lambda builder: builder.tool_call_end(0),
        lambda builder: builder.tool_call_end(0, arguments={}),
        lambda builder: builder.text_delta("x", 3),  # ended
        lambda builder: builder.text_end(3),  # ended
    ],
)
def test_a_step_on_no_open_block_of_its_kind_is_refused_and_changes_nothing(step: Callable[[Any], object]) -> None:
    builder = MessageBuilder(partial_arguments=lambda text: {"so far": text})
    builder.text_start()
    builder.thinking_start()
    builder.tool_call_start("c1", "t")
    builder.text_start()
    builder.text_end()
    builder.tool_call_start("c2", "t")
    before = builder.snapshot().content
    with pytest.raises(StreamError, match=r"no open (text|thinking|toolcall) block -?\d; begin it with its _start"):
        step(builder)
    assert builder.snapshot().content == before
    builder.text_delta("still works", 0)
    assert builder.snapshot().content[0] == TextContent("still works")


def test_a_step_on_an_empty_answer_is_refused() -> None:
    builder = MessageBuilder()
    with pytest.raises(StreamError):
        builder.text_delta("x")
    with pytest.raises(StreamError):
        builder.thinking_end()
    with pytest.raises(StreamError):
        builder.tool_call_delta("{}", 0)
    assert builder.snapshot().content == ()


# -------------------------------------------------------------- arguments


def ended_call(text: str, *, chunk: int = 3) -> ToolCall:
    builder = MessageBuilder()
    builder.tool_call_start("c", "t")
    for at in range(0, len(text), chunk):
        builder.tool_call_delta(text[at : at + chunk])
    builder.tool_call_end()
    call = only_call(builder.finish("tool_use"))
    assert only_call(builder.snapshot()) == call
    return call


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", {}),
        ("", {}),
        (" \n\t\r", {}),
        (' {"a": [1, 2.5, null, true, "x"]} \n', {"a": [1, 2.5, None, True, "x"]}),
        ('{"a": {"b": {"c": "\\u00e9\\n"}}}', {"a": {"b": {"c": "é\n"}}}),
        ('{"": ""}', {"": ""}),
        ('{"n": -0, "f": -0.0, "e": 1E5, "big": 123456789012345678901234567890}', None),
        ('{"a": "\U0001f642 \u2028 \x7f"}', {"a": "\U0001f642 \u2028 \x7f"}),
    ],
)
def test_finished_arguments_are_a_json_object(text: str, arguments: dict[str, Any] | None) -> None:
    call = ended_call(text)
    assert call.arguments == (json.loads(text) if arguments is None else arguments)
    assert call.arguments_error is None
    assert call.raw_arguments is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": "x',
        '{"a": 1} {"a": 2}',
        '{"a": 1}}',
        '{"a": 1} and more',
        '{"a": 1,}',
        "{'a': 1}",
        "{a: 1}",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 01}',
        '{"a": .5}',
        '{"a": 5.}',
        '{"a": +1}',
        '{"a": 0x10}',
        '{"a": True}',
        '{"a": "\\x41"}',
        '{"a": "\\u12"}',
        '{"a": /* why */ 1}',
        '\ufeff{"a": 1}',
        '```json\n{"a": 1}\n```',
        "\x00",
        '{"a":' + "9" * 5000 + "}",
        '{"a":' * 5000,
        "[" * 100_000,
        "null",
        "5",
        '"{}"',
        "[]",
        "[{}]",
        "true",
        "undefined",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_is_no_strict_json_object_carries_an_error_and_its_text(text: str) -> None:
    call = ended_call(text, chunk=997)
    assert call.arguments == {}
    assert call.arguments_error is not None
    assert len(call.arguments_error) < 300
    assert call.raw_arguments == text
    json.dumps(call.arguments_error, ensure_ascii=False).encode()


def test_a_call_that_its_stream_function_never_ended_carries_an_error() -> None:
    # Design 4: arguments that end as something that is no strict JSON object never execute, and the
    # partial parse is for looking. Known fault B64: the display parser was used as the final parser.
    builder = MessageBuilder()
    builder.tool_call_start("c", "write")
    event = builder.tool_call_delta('{"content":"partial ha')
    assert only_call(event.partial).arguments == {"content": "partial ha"}
    call = only_call(builder.finish("tool_use"))
    assert call.arguments == {}
    assert call.arguments_error is not None
    assert call.raw_arguments == '{"content":"partial ha'


def test_arguments_that_come_whole_are_taken_as_they_are() -> None:
    builder = MessageBuilder()
    builder.tool_call_start("c", "t")
    builder.tool_call_delta('{"broken')
    event = builder.tool_call_end(arguments={"a": 1})
    assert only_call(event.partial) == only_call(builder.finish("tool_use")) == ToolCall("c", "t", {"a": 1})


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", {}),
        ("  ", {}),
        ("{", {}),
        ('{"a', {}),
        ('{"a":', {}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": 1', {"a": 1}),
        ('{"a": 12.', {}),
        ('{"a": tr', {}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": {"b": "c', {"a": {"b": "c"}}),
        ('{"a": 1} garbage', {"a": 1}),
        ('{"a": 1, "a": 2', {"a": 2}),
        ("[1", {}),
        ('"x', {}),
        ("no JSON", {}),
        ('{"a":' * 5000, {}),
        # Raw control characters are accepted at the end (B62), so they are seen on the way too.
        ('{"a": "x\ny', {"a": "x\ny"}),
        ('{"a": "x\t\x00", "b": ["\r\n', {"a": "x\t\x00", "b": ["\r\n"]}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_unfinished_arguments_show_what_there_is(text: str, seen: dict[str, Any]) -> None:
    builder = MessageBuilder()
    builder.tool_call_start("c", "t")
    call = only_call(builder.tool_call_delta(text).partial)
    assert call.arguments == seen
    assert call.arguments_error is None


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_streamed_the_looks_never_raise_and_a_prefix_never_passes_for_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        fields: dict[str, Any] = {
            rng.choice("abc"): rng.choice([1, 2.5, None, 'é\ud800\n\\"', ["x", {}], {"y": []}]) for _ in range(3)
        }
        text = json.dumps(fields, ensure_ascii=rng.random() < 0.5)
        for cut in range(len(text) + 1):
            builder = MessageBuilder()
            builder.tool_call_start("c", "t")
            assert isinstance(only_call(builder.tool_call_delta(text[:cut]).partial).arguments, dict)
            builder.tool_call_end()
            call = only_call(builder.finish("tool_use"))
            if cut in (0, len(text)):
                assert (call.arguments, call.arguments_error) == (fields if cut else {}, None)
            else:
                assert call.arguments_error is not None
                assert call.arguments == {}
    for _ in range(300):
        garbage = "".join(rng.choices('{}[]",:\\u0123aeE+-. \n\x00\ud800é', k=rng.randrange(30)))
        builder = MessageBuilder()
        builder.tool_call_start("c", "t")
        assert isinstance(only_call(builder.tool_call_delta(garbage).partial).arguments, dict)
        builder.tool_call_end()
        assert isinstance(only_call(builder.finish("tool_use")).arguments, dict)


def test_a_custom_look_at_unfinished_arguments_is_not_asked_about_finished_ones() -> None:
    asked: list[str] = []

    def look(text: str) -> dict[str, Any]:
        asked.append(text)
        return {"seen": text}

    builder = MessageBuilder(partial_arguments=look)
    builder.tool_call_start("c", "t")
    assert only_call(builder.tool_call_delta("{").partial).arguments == {"seen": "{"}
    builder.tool_call_delta("}")
    assert only_call(builder.tool_call_end().partial).arguments == {}
    assert asked == ["{"]


# ------------------------------------------------------------------- cost


class Piece(str):
    """A delta that counts how often its text is looked at."""

    __slots__ = ("looks",)

    looks: int

    def __new__(cls, text: str) -> Self:
        piece = super().__new__(cls, text)
        piece.looks = 0
        return piece

    def _look(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.looks += 1
        raise AssertionError("a delta's text was looked at, though nobody asked for a snapshot")

    __add__ = __radd__ = __len__ = __iter__ = __getitem__ = encode = join = strip = __str__ = _look


def calls_made(function: Callable[[], object]) -> int:
    """How many functions are called, a measure of work that is the same every time."""
    count = 0

    def profile(frame: Any, event: str, arg: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


KINDS = ["text", "thinking", "tool_call"]


def begun(kind: str, blocks: int = 1) -> MessageBuilder:
    def parse(text: str) -> NoReturn:
        raise AssertionError("arguments were parsed, though nobody asked for a snapshot")

    builder = MessageBuilder(partial_arguments=parse)
    for _ in range(blocks):
        if kind == "tool_call":
            builder.tool_call_start("c", "t")
        else:
            getattr(builder, f"{kind}_start")()
    return builder


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_looks_at_no_text_and_parses_nothing(kind: str) -> None:
    builder = begun(kind)
    pieces = [Piece(f"piece {number}") for number in range(100)]
    events = [getattr(builder, f"{kind}_delta")(piece) for piece in pieces]
    assert sum(piece.looks for piece in pieces) == 0
    assert [event.delta for event in events] == pieces


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_costs_the_same_at_the_end_of_a_long_answer_as_at_its_beginning(kind: str) -> None:
    costs = []
    for length, blocks in ((0, 1), (10, 1), (20_000, 1), (0, 3_000)):
        builder = begun(kind, blocks)
        delta = getattr(builder, f"{kind}_delta")
        for _ in range(length):
            delta("x")
        costs.append(calls_made(lambda delta=delta: delta("x")))  # type: ignore[misc]
    assert len(set(costs)) == 1
    assert 0 < costs[0] < 20


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_an_event_does_not_grow_with_the_answer(kind: str) -> None:
    builder = begun(kind)
    delta = getattr(builder, f"{kind}_delta")
    text = "0123456789"
    events = [delta(text)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        events.extend(delta(text) for _ in range(20_000))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An event that held the text so far would need 100,000 bytes on average.
    assert (after - before) / 20_000 < 400


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_behind_a_million_characters_allocates_no_more_than_the_first(kind: str) -> None:
    builder = begun(kind)
    delta = getattr(builder, f"{kind}_delta")
    for _ in range(10):
        delta("x" * 100_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        delta("x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 5_000


def test_asking_for_each_partial_in_order_never_starts_over() -> None:
    # A terminal that shows the answer so far asks at every event.
    def cost_of_last(length: int) -> int:
        builder = MessageBuilder()
        builder.text_start()
        for _ in range(length):
            assert builder.text_delta("x").partial.content
        event = builder.text_delta("x")
        return calls_made(lambda: event.partial)

    assert cost_of_last(10) == cost_of_last(2_000)


# ------------------------------------------------------------------- sink


async def test_sending_is_no_checkpoint_while_there_is_room() -> None:
    line: Line[StreamEvent] = Line(3)
    sink, builder = StreamSink(line), MessageBuilder()
    builder.text_start()
    for _ in range(2):
        for _ in range(3):
            with assert_no_checkpoints():
                await sink.send(builder.text_delta("x"))
        for _ in range(3):
            line.take()


async def test_sending_into_a_full_sink_waits_until_there_is_room(autojump_clock: trio.testing.MockClock) -> None:
    line: Line[StreamEvent] = Line(1)
    sink, builder = StreamSink(line), MessageBuilder()
    builder.text_start()
    events: list[StreamEvent] = [builder.text_delta(str(number)) for number in range(3)]

    async def read() -> None:
        await trio.sleep(1)
        assert await line.wait()
        got.append(line.take())

    got: list[StreamEvent] = []
    start = trio.current_time()
    await sink.send(events[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        with assert_checkpoints():
            await sink.send(events[1])
        assert trio.current_time() == start + 1
    with trio.move_on_after(1) as scope:
        await sink.send(events[2])
    assert scope.cancelled_caught
    # What was cancelled while it waited is not sent; what was accepted is in order.
    got.append(line.take())
    assert got == events[:2]
    assert not line.items


async def test_sending_with_room_succeeds_even_in_a_cancelled_scope() -> None:
    # No checkpoint means no cancellation: what a stream function has goes out before it unwinds.
    line: Line[StreamEvent] = Line(1)
    event = MessageBuilder().start()
    with trio.CancelScope() as scope:
        scope.cancel(reason="test")
        await StreamSink(line).send(event)
    assert not scope.cancelled_caught
    assert line.take() is event


async def test_a_full_sink_in_a_cancelled_scope_takes_nothing() -> None:
    line: Line[StreamEvent] = Line(1)
    sink, event = StreamSink(line), MessageBuilder().start()
    await sink.send(event)
    with trio.CancelScope() as scope:
        scope.cancel(reason="test")
        await sink.send(MessageBuilder().start())
    assert scope.cancelled_caught
    assert list(line.items) == [event]


async def test_several_tasks_that_wait_for_room_get_it_in_their_order() -> None:
    line: Line[StreamEvent] = Line(2)
    sink, builder = StreamSink(line), MessageBuilder()
    builder.text_start()
    events: list[StreamEvent] = [builder.text_delta(str(number)) for number in range(6)]
    got: list[StreamEvent] = []
    async with trio.open_nursery() as nursery:
        for event in events:
            nursery.start_soon(sink.send, event)
            await wait_all_tasks_blocked()
        assert list(line.items) == events[:2]
        for _ in events:
            # Who comes later does not overtake those who wait: the line is full as long as one does.
            assert len(line.items) == min(2, len(events) - len(got))
            got.append(line.take())
    assert got == events


async def test_nothing_can_be_sent_once_the_stream_function_is_through() -> None:
    line: Line[StreamEvent] = Line(1)
    sink, event = StreamSink(line), MessageBuilder().start()
    await sink.send(event)
    waited = []

    async def wait_for_room() -> None:
        try:
            await sink.send(event)
        except trio.ClosedResourceError as error:
            waited.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_room)
        await wait_all_tasks_blocked()
        line.end()
        # What stands in the line can be taken; what was refused does not get its place.
        assert await line.wait()
        assert line.take() is event
    assert len(waited) == 1
    assert not line.items
    with trio.CancelScope() as scope:
        scope.cancel(reason="test")
        await line.wait()
    assert scope.cancelled_caught
    for _ in range(2):
        # Nobody else has a turn meanwhile: that would be a step more of the run for each answer.
        others: list[bool] = []
        trio.lowlevel.current_trio_token().run_sync_soon(others.append, True)
        assert not await line.wait()
        assert not others
        with pytest.raises(trio.ClosedResourceError):
            await sink.send(event)


async def test_waiting_for_an_event_is_a_checkpoint_and_takes_nothing_when_it_is_cut() -> None:
    line: Line[StreamEvent] = Line(SINK_SIZE)
    event = MessageBuilder().start()
    await StreamSink(line).send(event)
    with trio.CancelScope() as scope:
        scope.cancel(reason="test")
        await line.wait()
    assert scope.cancelled_caught
    with assert_checkpoints():
        assert await line.wait()
    assert line.take() is event
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.wait)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="test")
    await StreamSink(line).send(event)
    assert await line.wait()


async def test_each_who_waits_for_an_event_wakes(autojump_clock: trio.testing.MockClock) -> None:
    line: Line[StreamEvent] = Line(SINK_SIZE)
    event = MessageBuilder().start()
    got: list[StreamEvent] = []

    async def read() -> None:
        while await line.wait():
            got.append(line.take())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
        for _ in range(3):
            await wait_all_tasks_blocked()
            await StreamSink(line).send(event)
        await wait_all_tasks_blocked()
        line.end()
    assert got == [event] * 3


# ------------------------------------------------------------ open_stream


async def hello(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
    builder = MessageBuilder(request)
    await sink.send(builder.start())
    await sink.send(builder.text_start())
    for piece in ("Hel", "lo"):
        await trio.sleep(1)
        await sink.send(builder.text_delta(piece))
    await sink.send(builder.text_end())
    return builder.finish("stop")


class Endless:
    """A stream function that never stops by itself; says how it came to its end."""

    def __init__(self, cleanup: float = 0.0) -> None:
        self.cleanup = cleanup
        self.sent = 0
        self.ended_by: BaseException | None = None
        self.ended_at: float | None = None

    async def __call__(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        try:
            while True:
                await sink.send(builder.text_delta("x"))
                self.sent += 1
        except BaseException as error:
            self.ended_by = error
            with trio.CancelScope(shield=True):
                await trio.sleep(self.cleanup)
            self.ended_at = trio.current_time()
            raise


async def read(
    stream_fn: StreamFn, each: Callable[[StreamEvent], object] = lambda event: None, pause: float = 0.0
) -> AssistantMessage:
    """Read an answer to its end; what comes out of the block passes on."""
    async with open_stream(stream_fn, request()) as events:
        async for event in events:
            each(event)
            await trio.sleep(pause)
    return events.result


async def test_the_events_come_as_they_are_sent_and_the_result_stands_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start = trio.current_time()
    seen: list[tuple[float, str]] = []
    async with open_stream(hello, request()) as events:
        async for event in events:
            seen.append((trio.current_time() - start, event.type))
            with pytest.raises(StreamError, match="iterate to its end first"):
                _ = events.result
    assert seen == [(0, "start"), (0, "text_start"), (1, "text_delta"), (2, "text_delta"), (2, "text_end")]
    assert events.result.text == "Hello"
    assert events.result.stop_reason == "stop"


async def test_iterating_beyond_the_end_ends_again() -> None:
    async def at_once(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return MessageBuilder(request).finish("stop")

    async with open_stream(at_once, request()) as events:
        assert [event async for event in events] == []
        assert [event async for event in events] == []
        assert events.result.content == ()


async def leave_by_break(events: Any) -> None:
    async for _ in events:
        break


async def leave_by_return(events: Any) -> None:
    async for _ in events:
        return


async def leave_at_once(events: Any) -> None:
    pass


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_return, leave_at_once])
@pytest.mark.parametrize("settled", [True, False])
async def test_leaving_early_cancels_the_stream_function_and_waits_for_it(
    leave: Callable[[Any], Any], settled: bool, autojump_clock: trio.testing.MockClock
) -> None:
    start = trio.current_time()
    endless = Endless(cleanup=2)
    async with open_stream(endless, request()) as events:
        await leave(events)
        if settled:
            await wait_all_tasks_blocked()
    if settled:
        assert endless.ended_at == trio.current_time() == start + 2
    with pytest.raises(StreamError):
        _ = events.result
    gc.collect()


async def test_a_stream_function_that_waits_for_room_is_cancelled_and_not_failed() -> None:
    # Known fault B119, and design 4 (a cancellation just passes through it): the channel must not
    # break under a stream function, which might take that for a failure and try again.
    endless = Endless()
    async with open_stream(endless, request()) as events:
        async for _ in events:
            await wait_all_tasks_blocked()
            break
    assert endless.sent == SINK_SIZE - 1  # start was read, text_start stands in the sink with the deltas
    assert isinstance(endless.ended_by, trio.Cancelled)


async def test_what_the_block_raises_comes_out_bare(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    endless = Endless(cleanup=1)
    error = ValueError("mine")

    def fail(event: StreamEvent) -> None:
        raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await read(endless, fail)
    assert caught.value is error
    assert endless.ended_at == start + 1


async def test_a_group_that_the_block_raises_is_not_unwrapped() -> None:
    group = ExceptionGroup("mine", [ValueError("one")])

    def fail(event: StreamEvent) -> None:
        raise group

    with pytest.RaisesGroup(ValueError) as caught:
        await read(Endless(), fail)
    assert caught.value is group


async def test_what_the_stream_function_raises_comes_out_of_the_iteration_bare_behind_its_events() -> None:
    error = RuntimeError("down")

    async def failing(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        raise error

    seen: list[StreamEvent] = []
    with pytest.raises(RuntimeError, match="down") as caught:
        await read(failing, seen.append)
    assert caught.value is error
    assert [event.type for event in seen] == ["start", "text_start"]


async def down(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
    await sink.send(MessageBuilder(request).start())
    raise RuntimeError("down")


async def test_a_failure_can_be_handled_within_the_block_and_stays_a_failure() -> None:
    reached = False
    async with open_stream(down, request()) as events:
        await anext(events)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="down"):
                await anext(events)
        with pytest.raises(StreamError):
            _ = events.result
        reached = True
    assert reached


async def test_a_failure_that_nobody_reads_is_not_raised() -> None:
    async with open_stream(down, request()):
        await wait_all_tasks_blocked()
    async with open_stream(down, request()) as events:
        assert (await anext(events)).type == "start"


async def test_the_blocks_own_exception_comes_before_the_stream_functions() -> None:
    def fail(event: StreamEvent) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await read(down, fail)


async def test_a_stream_function_without_a_final_message_breaks_the_contract() -> None:
    async def silent(request: ModelRequest, sink: StreamSink) -> Any:
        await sink.send(MessageBuilder(request).start())

    # Whether the end of the iteration or the result says it: it is said, and says what is wrong.
    with pytest.raises(StreamError, match="must return the final AssistantMessage"):
        await read(silent)


async def test_a_hosts_cancellation_passes_through_bare_once_the_stream_function_is_through(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start = trio.current_time()
    endless = Endless(cleanup=2)
    raised: list[BaseException] = []
    with trio.move_on_after(1) as scope:
        try:
            await read(endless, pause=0.4)
        except BaseException as error:
            raised.append(error)
            raise
    assert scope.cancelled_caught
    assert [type(error) for error in raised] == [trio.Cancelled]
    assert isinstance(endless.ended_by, trio.Cancelled)
    assert trio.current_time() == start + 3


async def test_what_the_block_raises_while_the_host_cancels_is_not_lost() -> None:
    # Design 7.6: an error that comes while a cancellation unwinds is raised instead of it; the
    # cancellation is level-triggered and not lost by that.
    async def read_and_fail(scope: trio.CancelScope) -> None:
        async with open_stream(Endless(), request()) as events:
            await anext(events)
            scope.cancel(reason="test")
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("clean-up failed")

    with trio.CancelScope() as scope, pytest.raises(ValueError, match="clean-up failed"):
        await read_and_fail(scope)
    assert not scope.cancelled_caught


async def test_a_key_interrupt_in_the_block_comes_out_bare() -> None:
    endless = Endless()

    def interrupt(event: StreamEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await read(endless, interrupt)
    assert isinstance(endless.ended_by, trio.Cancelled)


async def test_a_key_interrupt_in_the_stream_function_comes_out_bare() -> None:
    async def interrupted(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await wait_all_tasks_blocked()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await read(interrupted)


async def test_a_key_interrupt_comes_before_what_the_block_raised() -> None:
    # Design 7.6: what is neither an Exception nor Cancelled passes on before every other cause.
    async def interrupted(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        await sink.send(MessageBuilder(request).start())
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    def fail(event: StreamEvent) -> None:
        raise ValueError("mine")

    with pytest.raises(KeyboardInterrupt):
        await read(interrupted, fail)


async def test_a_slow_reader_holds_the_stream_function_back() -> None:
    endless = Endless()
    async with open_stream(endless, request()) as events:
        for read in range(1, 40):
            await anext(events)
            await wait_all_tasks_blocked()
            assert endless.sent + 2 == read + SINK_SIZE


async def test_two_streams_may_be_open_and_closed_in_any_order() -> None:
    # Known fault B24: each stands in its own block, so the order of opening binds nothing but blocks.
    first, second = open_stream(hello, request()), open_stream(Endless(), request())
    async with second as endless_events:
        async with first as events:
            assert (await anext(events)).type == "start"
            assert (await anext(endless_events)).type == "start"
        assert (await anext(endless_events)).type == "text_start"


# ------------------------------------------------- which stream function


@pytest.fixture
def no_default() -> Iterator[None]:
    before = get_default_stream_fn()
    set_default_stream_fn(None)
    yield
    set_default_stream_fn(before)


def saying(text: str) -> StreamFn:
    async def stream_fn(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        await sink.send(builder.text_delta(text))
        return builder.finish("stop")

    return stream_fn


@pytest.mark.usefixtures("no_default")
@pytest.mark.parametrize(
    ("agents", "models", "default", "heard"),
    [
        ("agent", "model", "default", "agent"),
        (None, "model", "default", "model"),
        (None, None, "default", "default"),
        ("agent", None, None, "agent"),
    ],
)
async def test_the_agents_stream_function_comes_before_the_models_before_the_default(
    agents: str | None, models: str | None, default: str | None, heard: str
) -> None:
    set_default_stream_fn(None if default is None else saying(default))
    model = SimpleModel("p", "m", None if models is None else saying(models))
    agent = Agent(model, stream_fn=None if agents is None else saying(agents))
    assert (await agent.prompt("Hi")).text == heard


@pytest.mark.usefixtures("no_default")
async def test_the_default_is_read_at_the_request_and_can_be_forgotten() -> None:
    agent = Agent(MODEL)
    stream_fn = saying("late")
    set_default_stream_fn(stream_fn)
    assert get_default_stream_fn() is stream_fn
    assert (await agent.prompt("Hi")).text == "late"
    set_default_stream_fn(None)
    assert get_default_stream_fn() is None
    with pytest.raises(NoStreamFnError, match=r"prov/mod.*stream_fn=.*set_default_stream_fn\(\)"):
        await agent.prompt("Hi")
    # The agent is idle and of use again.
    assert not agent.state.is_streaming
    set_default_stream_fn(stream_fn)
    assert (await agent.prompt("Hi")).text == "late"


# ---------------------------------------------------------------- values


def test_a_request_hides_its_key_and_is_a_value() -> None:
    one = attrs.evolve(request(), api_key="secret")
    assert "secret" not in repr(one)
    assert one.messages is one.context.messages
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.api_key = "other"  # type: ignore[misc]


def test_events_are_told_apart_by_identity() -> None:
    builder = MessageBuilder()
    builder.text_start()
    one, two = builder.text_delta("x"), builder.text_delta("x")
    assert one == one  # noqa: PLR0124
    assert one != two
    assert len({one, two}) == 2
    assert "x" in repr(one)
    assert isinstance(one, TextDelta)


def test_an_event_pickles_with_the_answer_as_it_was() -> None:
    builder = MessageBuilder(request())
    events = [builder.start(), builder.text_start(), builder.text_delta("Hel"), builder.text_delta("lo")]
    others = pickle.loads(pickle.dumps(events))
    assert [event.partial.content for event in others] == [event.partial.content for event in events]
    assert all(one.position < other.position for one, other in pairwise(others[1:]))
