"""The offline model: what it takes for an instruction, and that it says nothing but the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from trio_agent import (
    Agent,
    AssistantMessage,
    ImageContent,
    Message,
    ModelRequest,
    TextDelta,
    Tool,
    ToolCall,
    ToolContext,
    ToolDeclaration,
    ToolResult,
    ToolResultMessage,
    UserMessage,
    normalize_context,
    open_stream,
    tool,
)
from trio_agent.cli._instructions import NotUnderstoodError, split, to_call
from trio_agent.cli._offline import offline_model


def declaration(name: str, *parameters: str) -> ToolDeclaration:
    return ToolDeclaration(name, "", {"type": "object", "properties": {key: {} for key in parameters}})


TOOLS = (
    declaration("read_file", "path", "offset", "limit"),
    declaration("search_text", "text", "path", "regex", "ignore_case"),
    declaration("run_command", "command"),
    declaration("add", "a", "b"),
)
PI_TOOLS = (
    declaration("read", "path", "offset", "limit"),
    declaration("bash", "command"),
    declaration("grep", "pattern", "path"),
)


def calls(text: str, tools: Sequence[ToolDeclaration] = TOOLS) -> list[Any]:
    by_name = {tool.name: tool for tool in tools}
    found: list[Any] = []
    for instruction in split(text):
        try:
            found.append(to_call(instruction, by_name))
        except NotUnderstoodError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("read a.txt", "read_file", {"path": "a.txt"}),
        ("read a.txt 3-7", "read_file", {"path": "a.txt", "offset": 3, "limit": 5}),
        ("read a.txt 3-", "read_file", {"path": "a.txt", "offset": 3}),
        ("read a.txt 3", "read_file", {"path": "a.txt", "offset": 3, "limit": 1}),
        ("read 7", "read_file", {"path": "7"}),
        ('read "a b.txt" 1-2', "read_file", {"path": "a b.txt", "offset": 1, "limit": 2}),
        ("read 'a;b'", "read_file", {"path": "a;b"}),
        ('search "async def" in trio_agent', "search_text", {"text": "async def", "path": "trio_agent"}),
        ("search async def in trio_agent", "search_text", {"text": "async def", "path": "trio_agent"}),
        ("search needle", "search_text", {"text": "needle", "path": "."}),
        ('search "in" in in', "search_text", {"text": "in", "path": "in"}),
        ('search "a\\.b"', "search_text", {"text": "a\\.b", "path": "."}),
        ('run "sleep 3"', "run_command", {"command": "sleep 3"}),
        ("run ls -l | wc", "run_command", {"command": "ls -l | wc"}),
        ('run echo "a;b"', "run_command", {"command": 'echo "a;b"'}),
        ('run "echo \\"x; y\\""', "run_command", {"command": 'echo "x; y"'}),
        ('run "a\nb"', "run_command", {"command": "a\nb"}),
        ("run 'echo \"$x\"'", "run_command", {"command": 'echo "$x"'}),
        ("run echo don't", "run_command", {"command": "echo don't"}),
        ("add a=1 b=2.5", "add", {"a": 1, "b": 2.5}),
        ("add a=\"1\" b='x y'", "add", {"a": "1", "b": "x y"}),
        ("add a=true b=null", "add", {"a": True, "b": None}),
        ("add a=[1,2] b=word", "add", {"a": [1, 2], "b": "word"}),
        ('add {"a": "x;y", "b": {"c": 1}}', "add", {"a": "x;y", "b": {"c": 1}}),
        ("add", "add", {}),
        ("search_text text=x regex=true", "search_text", {"text": "x", "regex": True}),
    ],
)
def test_an_instruction_becomes_a_call(text: str, name: str, arguments: dict[str, Any]) -> None:
    assert calls(text) == [(name, arguments)]


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("read a.txt 3", "read", {"path": "a.txt", "offset": 3, "limit": 1}),
        ("read path=a.txt", "read", {"path": "a.txt"}),
        ("run ls", "bash", {"command": "ls"}),
        ("search x in y", "grep", {"pattern": "x", "path": "y"}),
    ],
)
def test_verbs_use_whatever_tools_there_are(text: str, name: str, arguments: dict[str, Any]) -> None:
    assert calls(text, PI_TOOLS) == [(name, arguments)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("make me happy", "'make' is neither a word that I know nor one of my tools"),
        ('run "sleep', "a quote is not closed"),
        ("run 'sleep 3", "a quote is not closed"),
        ("read", "write it as read PATH [FROM-TO]"),
        ("read two words", "write it as read PATH [FROM-TO], with quotes around a path that has spaces"),
        ("add 1 2", "write its arguments as key=value; '1' is none"),
        ('add {"a": }', "its arguments are no JSON"),
    ],
)
def test_what_is_no_instruction_gets_a_reason(text: str, why: str) -> None:
    (reason,) = calls(text)
    assert reason.startswith(why)


def test_without_a_tool_the_reason_names_those_there_are() -> None:
    assert calls("run ls", [declaration("add")]) == ["I have no tool for it (I have add)"]
    assert calls("run ls", []) == ["I have no tool for it (I have none)"]
    assert calls("read x 3-4", [declaration("read", "path")]) == ["the tool read takes no offset"]


def test_instructions_end_at_semicolons_and_lines_outside_of_quotes() -> None:
    text = " read a ;; run \"x; y\"\n\nsearch 'p;\nq' in b; don't panic; "
    assert [found.source for found in split(text)] == ["read a", 'run "x; y"', "search 'p;\nq' in b", "don't panic"]


# ------------------------------------------------------------------ answers


async def answer(*messages: Message, tools: Sequence[ToolDeclaration] = TOOLS) -> AssistantMessage:
    model = offline_model(word_delay=0, lines=3)
    assert model.stream_fn is not None
    request = ModelRequest(model, normalize_context(messages, tools=tools))
    async with open_stream(model.stream_fn, request) as events:
        told = [event async for event in events]
    said = "".join(event.delta for event in told if type(event) is TextDelta)
    assert said == events.result.text
    return events.result


async def test_all_instructions_go_into_one_batch() -> None:
    result = await answer(UserMessage('read a; search "b" in c'), UserMessage("run d"))
    assert [(call.id, call.name) for call in result.tool_calls] == [
        ("call_1", "read_file"),
        ("call_2", "search_text"),
        ("call_3", "run_command"),
    ]
    assert result.stop_reason == "tool_use"
    assert result.text == 'I make 3 calls: read a; search "b" in c; run d.'


async def test_what_it_cannot_do_is_said_beside_what_it_does() -> None:
    result = await answer(UserMessage("dance; read a"))
    assert len(result.tool_calls) == 1
    assert result.text.startswith("I did nothing about 'dance': 'dance' is neither")


async def test_without_any_instruction_it_says_what_it_understands() -> None:
    for text in ("", "how are you?"):
        result = await answer(UserMessage(text))
        assert (result.stop_reason, result.tool_calls) == ("stop", ())
        assert "I parse instructions and do not think." in result.text
        assert 'run "COMMAND"' in result.text
        assert "read_file or search_text or run_command or add" in result.text
    assert "nothing: I was given no tools" in (await answer(UserMessage("read x"), tools=())).text
    assert "I cannot see images; 1 came." in (await answer(UserMessage((ImageContent("AAAA", "image/png"),)))).text


ASKED = AssistantMessage(
    (ToolCall("c1", "run_command", {"command": "x"}), ToolCall("c2", "read_file", {"path": "é"})),
    stop_reason="tool_use",
)


async def test_results_are_reported_as_they_are() -> None:
    result = await answer(
        UserMessage("run x; read é"),
        ASKED,
        ToolResultMessage(
            "c1", "run_command", "1\n2\n3\n4\n5\n6\n[... 7 bytes left out ...]\n[exit status 3]", is_error=True
        ),
        ToolResultMessage("c2", "read_file", "only\nthese\nfour\nlines"),
    )
    assert result.stop_reason == "stop"
    assert result.text.splitlines() == [
        "2 results:",
        '- run_command(command="x"): error',
        "    1",
        "    2",
        "    3",
        "    ... 3 more lines",
        "    [... 7 bytes left out ...]",
        "    [exit status 3]",
        '- read_file(path="é"): ok',
        "    only",
        "    these",
        "    four",
        "    lines",
    ]


async def test_a_call_without_a_result_is_not_made_up() -> None:
    result = await answer(ASKED, ToolResultMessage("c2", "read_file", (ImageContent("AAAA", "image/png"),)))
    assert result.text.splitlines() == [
        "1 result:",
        '- run_command(command="x"): no result',
        '- read_file(path="é"): ok',
        "    1 image",
    ]


async def test_steering_after_a_batch_is_reported_and_carried_out_in_one_answer() -> None:
    result = await answer(
        UserMessage("run x"), ASKED, ToolResultMessage("c1", "run_command", "done"), UserMessage("read b")
    )
    assert result.text.startswith("1 result:\n")
    assert result.text.endswith("I make 1 call: read b.")
    assert [(call.id, call.arguments) for call in result.tool_calls] == [("call_3", {"path": "b"})]


async def test_after_an_aborted_batch_only_new_messages_count() -> None:
    result = await answer(
        UserMessage("run x; read é"),
        ASKED,
        ToolResultMessage("c1", "run_command", "Operation aborted", is_error=True),
        ToolResultMessage("c2", "read_file", "Operation aborted", is_error=True),
        AssistantMessage((), stop_reason="aborted", error_message="Operation aborted"),
        UserMessage("read b"),
    )
    assert result.text == "I make 1 call: read b."
    assert [call.arguments for call in result.tool_calls] == [{"path": "b"}]


async def test_the_same_messages_get_the_same_answer() -> None:
    one, other = [await answer(UserMessage("read a; what?")) for _ in range(2)]
    assert one.content == other.content


async def test_words_come_one_after_the_other_but_never_for_long(autojump_clock: trio.abc.Clock) -> None:
    model = offline_model(word_delay=0.01)
    assert model.stream_fn is not None
    for text, at_most in (("x", 0.2), ("word " * 1000, 0.11)):
        start = trio.current_time()
        request = ModelRequest(model, normalize_context([UserMessage(text)]))
        async with open_stream(model.stream_fn, request) as events:
            count = len([event async for event in events])
        assert count > 5
        assert 0 < trio.current_time() - start <= at_most


async def test_with_an_agent_and_tools_of_its_own(autojump_clock: trio.abc.Clock) -> None:
    @tool
    async def wait(seconds: float, ctx: ToolContext) -> str:
        """Wait."""
        await trio.sleep(seconds)
        return f"waited {seconds}"

    agent = Agent(offline_model(), tools=[wait])
    start = trio.current_time()
    result = await agent.prompt('wait seconds=5.5; wait seconds="7.5"; wait seconds=soon')
    assert 7.5 <= trio.current_time() - start < 8
    lines = result.text.splitlines()
    assert lines[:5] == [
        "3 results:",
        "- wait(seconds=5.5): ok",
        "    waited 5.5",
        '- wait(seconds="7.5"): ok',
        "    waited 7.5",
    ]
    assert lines[5] == '- wait(seconds="soon"): error'


async def test_tools_that_come_and_go_are_noticed() -> None:
    def make(name: str) -> Tool:
        return Tool(name, execute=lambda args, ctx: ToolResult(name))

    agent = Agent(offline_model(word_delay=0), tools=[make("one")])
    await agent.prompt("one; two")
    agent.tools = [make("two")]
    result = await agent.prompt("one; two")
    assert "I did nothing about 'one'" in agent.state.messages[-3].text  # type: ignore[union-attr]
    assert result.text == "1 result:\n- two(): ok\n    two"
