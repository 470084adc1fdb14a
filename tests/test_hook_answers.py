"""A hook that answers what its contract does not know fails the run in order, with a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from invariants import assert_idle, assert_works_again
from kit import call, calling

from trio_agent import Agent, Tool, UsageError
from trio_agent.testing import ScriptedModel

WRONG: dict[str, Callable[[Any], Any]] = {
    "transform_context": lambda messages: None,
    "convert_to_llm": lambda messages: 5,
    "get_api_key": lambda provider: b"key",
    "prepare_request": lambda request: {"model": "other"},
    "finish_turn": lambda turn: "stop",
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_answer_fails_the_run_and_names_hook_and_value(name: str, autojump_clock: object) -> None:
    model = ScriptedModel(["Hello."])
    hooks: dict[str, Any] = {name: WRONG[name]}
    agent = Agent(model, **hooks)
    result = await agent.prompt("Go.")
    assert result.end_reason == "error"
    assert isinstance(result.exception, UsageError)
    assert name in str(result.exception)
    assert repr(WRONG[name](None)) in str(result.exception)
    assert_idle(agent)
    setattr(agent, name, None)
    await assert_works_again(agent, model)


async def test_a_wrong_answer_of_prepare_next_turn_fails_the_second_turn(autojump_clock: object) -> None:
    tool = Tool("c1", execute=lambda args, ctx: "done", in_thread=False)
    hooks: dict[str, Any] = {"prepare_next_turn": lambda turn: ["more"]}
    agent = Agent(ScriptedModel([calling(call("c1")), "Done."]), tools=[tool], **hooks)
    result = await agent.prompt("Go.")
    assert result.end_reason == "error"
    assert "prepare_next_turn answered ['more']" in str(result.exception)
    assert_idle(agent)


@pytest.mark.parametrize("name", ["before_tool_call", "after_tool_call"])
async def test_a_wrong_answer_of_a_tool_hook_is_an_error_of_its_call_alone(name: str, autojump_clock: object) -> None:
    tool = Tool("c1", execute=lambda args, ctx: "done", in_thread=False)
    hooks: dict[str, Any] = {name: lambda context: "yes"}
    agent = Agent(ScriptedModel([calling(call("c1")), "Done."]), tools=[tool], **hooks)
    result = await agent.prompt("Go.")
    assert result.end_reason == "done"
    (answer,) = [message for message in result.new_messages if message.role == "tool_result"]
    assert getattr(answer, "is_error", False)
    assert f"{name} answered 'yes'" in getattr(answer, "text", "")
