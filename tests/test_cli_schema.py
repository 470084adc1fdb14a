"""The JSON Schema of events: the kept file is the generated one, and what really is printed fits it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest

import trio_agent
from trio_agent import (
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    FormatError,
    ImageContent,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    StreamEvent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolDeclaration,
    ToolExecutionEnd,
    ToolResult,
    ToolResultMessage,
    TurnEnd,
    Usage,
    UserMessage,
    event_to_json,
    register_message_type,
    unregister_message_type,
)
from trio_agent.cli._schema import event_schema
from trio_agent.testing import Scenario, run_scenario

ROOT = Path(trio_agent.__file__).parents[1]
KEPT = ROOT / "docs" / "events.schema.json"
SCENARIOS = sorted((ROOT / "tests" / "conformance" / "scenarios").glob("*.json"))


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema_rs.meta.validate(event_schema())
    return jsonschema_rs.validator_for(event_schema())


def faults(validator: Any, data: Any) -> list[str]:
    return [f"{list(error.instance_path)}: {error.message:.200}" for error in validator.iter_errors(data)]


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(cwd / "none")}
    command = [sys.executable, "-W", "error", "-m", "trio_agent", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, cwd=cwd, check=False)


def test_the_kept_file_is_what_the_command_prints(tmp_path: Path) -> None:
    done = program("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    remedy = "make it anew with: trio-agent schema > docs/events.schema.json"
    assert KEPT.read_text() == done.stdout, remedy


def test_every_event_and_stream_event_is_described() -> None:
    schema = event_schema()
    assert [each["$ref"].rsplit("/")[-1] for each in schema["oneOf"]] == [cls.__name__ for cls in get_args(AgentEvent)]
    for cls in get_args(AgentEvent) + get_args(StreamEvent):
        described = schema["$defs"][cls.__name__]
        assert described["properties"]["type"] == {"const": cls.type}
        assert described["additionalProperties"] is False
        assert "`" not in described["description"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("read hello.txt; nonsense; read missing; run 'echo x; exit 3'",),
        ("--timeout", "0.3", "--system", "hello.txt", "run 'echo begun; sleep 60'"),
        ("--max-turns", "1", "--sequential", "read hello.txt; search o"),
        ("--tools", "", "hello"),
        ("--tools", "odd:tools", "fails; odd; image"),
    ],
    ids=["results and errors", "timeout", "max turns", "no tools", "tools of one's own"],
)
@pytest.mark.slow
def test_real_runs_print_lines_that_fit(tmp_path: Path, validator: Any, arguments: tuple[str, ...]) -> None:
    """Slow: real processes, one of which is ended by a real time limit."""
    (tmp_path / "hello.txt").write_text("hello\nworld\n")
    (tmp_path / "odd.py").write_text(
        "from trio_agent import *\n"
        "def fails(args, ctx): raise ValueError('no')\n"
        "def odd(args, ctx): return ToolResult('x', details={'a': float('nan'), 'b': object()}, usage=Usage(1, 2),"
        " structured_content=[1], terminate=True)\n"
        "def image(args, ctx): return ToolResult([ImageContent('AAAA', 'image/png')])\n"
        "tools = [Tool(f.__name__, execute=f) for f in (fails, odd, image)]\n"
    )
    done = program("run", "--json", *arguments, cwd=tmp_path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["type"] == "agent_end"
    assert [fault for line in lines for fault in faults(validator, line)] == []


def test_the_events_of_all_recorded_scenarios_fit(validator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    original = trio_agent.Agent.__attrs_post_init__

    def tell(event: AgentEvent) -> None:
        try:
            told.append(json.loads(json.dumps(event_to_json(event))))
        except FormatError:  # of a host's own message that was never registered
            pass

    def listen(self: trio_agent.Agent) -> None:
        original(self)
        self.subscribe(tell)

    monkeypatch.setattr(trio_agent.Agent, "__attrs_post_init__", listen)
    for path in SCENARIOS[::3]:
        run_scenario(Scenario.load(path), seed=1)
    assert [fault for data in told for fault in faults(validator, data)] == []
    assert {data["type"] for data in told} == {cls.type for cls in get_args(AgentEvent)}


def all_of_an_answer() -> Iterator[AgentEvent]:
    builder = MessageBuilder(api="x")
    yield MessageStart(builder.start().partial)
    builder.response_id, builder.usage = "r1", Usage(1, 2, reasoning=1, total_tokens=3, cost={"total": 0.5})
    yield MessageUpdate(builder.thinking_start(redacted=True))
    yield MessageUpdate(builder.thinking_delta("hm"))
    yield MessageUpdate(builder.thinking_end(signature="s"))
    yield MessageUpdate(builder.text_start())
    yield MessageUpdate(builder.text_delta("hi"))
    yield MessageUpdate(builder.text_end(signature="s"))
    builder.raw_stop_reason = "tool_calls"
    for arguments in ('{"a": 1}', '{"a": '):
        yield MessageUpdate(builder.tool_call_start("c", "t"))
        yield MessageUpdate(builder.tool_call_delta(arguments))
        yield MessageUpdate(builder.tool_call_end())
    yield MessageEnd(builder.finish("tool_use"))


class Note:
    role = "note"


EVERY_MESSAGE = (
    SystemMessage(
        "be good",
        sections={"a": "b", "c": None},
        tools_added=[ToolDeclaration("t", "d", {"type": "object"})],
        tools_removed=["u"],
        extra={"new": 1},
    ),
    UserMessage((TextContent("x", text_signature="s", extra={"y": 1}), ImageContent("AAAA", "image/png"))),
    AssistantMessage(
        (ThinkingContent("t", redacted=True), TextContent("x"), ToolCall("c", "t", arguments_error="no")),
        stop_reason="error",
        error_message="no",
        error_kind="failed",
        thinking_level="high",
        response_id="r",
    ),
    ToolResultMessage("c", "t", "text", details={"a": 1}, is_error=True, error_kind="timeout", usage=Usage(1)),
    Note(),
)


def test_every_field_that_can_be_written_is_described(validator: Any) -> None:
    register_message_type(Note, "note", to_json=lambda note: {"text": "x"}, from_json=lambda data: Note())
    try:
        result = ToolResult("x", details=1, structured_content={}, usage=Usage(1), is_error=True, terminate=True)
        events = [
            *all_of_an_answer(),
            *(event for message in EVERY_MESSAGE for event in (MessageStart(message), MessageEnd(message))),
            ToolExecutionEnd("c", "t", result, is_error=True),
            TurnEnd(AssistantMessage(), (ToolResultMessage("c", "t"),)),
            AgentEnd(EVERY_MESSAGE, "max_turns"),
        ]
        assert [fault for event in events for fault in faults(validator, event_to_json(event))] == []
    finally:
        unregister_message_type("note")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"type": "agent_begin"},
        {"type": "turn_start", "more": 1},
        {"type": "message_end"},
        {"type": "message_end", "message": {"role": "user", "content": "text", "timestamp": 1}},
        {"type": "message_end", "message": {"role": "assistant", "content": []}},
        {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0}},
        {"type": "message_update", "assistantMessageEvent": {"type": "toolcall_start", "contentIndex": 0}},
        {"type": "tool_execution_start", "toolCallId": "c", "toolName": "t", "args": []},
        {"type": "tool_execution_end", "toolCallId": "c", "toolName": "t", "result": {"content": []}},
        {"type": "agent_end", "messages": [], "endReason": "bored"},
    ],
)
def test_what_is_no_event_does_not_fit(validator: Any, data: Any) -> None:
    assert not validator.is_valid(data)
