"""Each code example of the README of @earendil-works/pi-agent-core 1.0.3, done with this library.

A :class:`ScriptedModel` stands in for the provider. What stands between ``# example:`` and ``# end`` does
what the example of the README does (own words, own code), and takes no more lines of code than it:

======================  =====  ====
example                 there  here
======================  =====  ====
quick start                20     8
prepare request             3     3
finish turn                 5     5
should stop after turn      4     1
continue a retry            2     2
continue an answer          2     2
agent options              42    32
agent state                10     9
change the prompt           4     1
prompting                   6     4
state management           14    11
session and budgets         7     2
control                     2     2
events                      6     4
steering                   17     9
custom type                 6     5
convert custom types        7     1
tools                      19    10
error handling              6     5
low-level                  20    14
======================  =====  ====

Counted are lines that are neither blank nor only a comment, on both sides.

Not here: the installation (a shell command), MCP and codemode (the README shows no code), and the proxy
(``streamProxy``), whose counterpart belongs to a later issue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio
from kit import Recorder, agent_of, call, calling, sleeper, texts
from trio.testing import MockClock

from trio_agent import (
    Abort,
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    AgentContext,
    AgentEnd,
    AgentMessage,
    AgentRequestUpdate,
    AgentTurnContext,
    AgentTurnDecision,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    ImageContent,
    LoopConfig,
    PrepareRequestContext,
    SystemMessage,
    TextContent,
    Tool,
    ToolContext,
    ToolExecutionUpdate,
    ToolResult,
    ToolResultMessage,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    get_current_system_message,
    should_stop_after_turn,
    tool,
)
from trio_agent.testing import ScriptedModel

IMAGE_DATA = "aGVsbG8="


# ------------------------------------------------------------ quick start


async def test_quick_start(capsys: pytest.CaptureFixture[str]) -> None:
    # example: quick start
    from trio_agent import Agent, MessageUpdate, TextDelta
    from trio_agent.testing import ScriptedModel

    agent = Agent(ScriptedModel(["Hello to you, too!"]), system_prompt="You are a helpful assistant.")

    def show(event: MessageUpdate) -> None:
        if isinstance(event.assistant_message_event, TextDelta):
            print(event.assistant_message_event.delta, end="")

    agent.subscribe(show, MessageUpdate)
    await agent.prompt("Hello!")
    # end
    assert capsys.readouterr().out == "Hello to you, too!"
    assert agent.state.system_prompt == "You are a helpful assistant."


# -------------------------------------------------------- the event flow


async def test_the_events_of_a_prompt_come_as_the_readme_draws_them() -> None:
    agent, _, recorder = agent_of(["Hi there"])
    await agent.prompt("Hello")
    steps = [text for text in recorder.kinds if text != "message_update"]
    assert steps == [
        "agent_start",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
        "message_end assistant",
        "turn_end",
        "agent_end",
    ]
    first = recorder.kinds.index("message_update")
    assert recorder.kinds[first - 1 : first + 2] == ["message_start assistant", "message_update", "message_update"]


async def test_the_events_of_a_prompt_with_a_tool_come_as_the_readme_draws_them() -> None:
    agent, _, recorder = agent_of([calling("read"), "Done."], sleeper("read", updates=["half"]))
    await agent.prompt("Read config.json")
    assert [text for text in recorder.kinds if text != "message_update"] == [
        "agent_start",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
        "message_end assistant",
        "tool_execution_start read",
        "tool_execution_update read",
        "tool_execution_end read",
        "message_start read",
        "message_end read",
        "turn_end",
        "turn_start",
        "message_start assistant",
        "message_end assistant",
        "turn_end",
        "agent_end",
    ]


# ------------------------------------- request preparation, end of a turn


class Session:
    """Where a host keeps its conversation."""

    def __init__(self, *messages: AgentMessage) -> None:
        self.messages = messages
        self.flushed: list[bool] = []

    async def load_model_context(self) -> Sequence[AgentMessage]:
        """What the model shall see."""
        await trio.lowlevel.checkpoint()
        return self.messages

    async def flush(self, abort: Abort) -> None:
        """Write down what there is."""
        await trio.lowlevel.checkpoint()
        self.flushed.append(abort.requested)


async def test_prepare_request() -> None:
    agent, model, _ = agent_of(["Hi."])
    session = Session(UserMessage("canonical"))

    # example: prepare request
    async def prepare_request(request: PrepareRequestContext) -> AgentRequestUpdate:
        return AgentRequestUpdate(AgentContext(await session.load_model_context(), request.context.tools))

    agent.prepare_request = prepare_request
    # end
    await agent.prompt("Hello")
    assert list(model.requests[0].messages) == list(session.messages)
    assert texts(agent.messages) == ["Hello"]


async def test_finish_turn() -> None:
    agent, model, _ = agent_of(["More to say.", "All said.", "Last words.", RuntimeError("down"), "Again."])
    agent.follow_up("never taken")

    def should_end_run(message: AssistantMessage) -> bool:
        return message.text == "Last words."

    def needs_another_response(message: AssistantMessage) -> bool:
        return message.text in ("More to say.", "All said.", "")

    # A decision about an answer that failed or was aborted is ignored (design 5), so it needs no guard.
    # example: finish turn
    def finish_turn(turn: AgentTurnContext) -> AgentTurnDecision | None:
        if should_end_run(turn.message):
            return "end"
        return "continue" if needs_another_response(turn.message) else None

    agent.finish_turn = finish_turn
    # end
    agent.clear_follow_up_queue()
    result = await agent.prompt("Go.")
    assert (result.text, result.end_reason) == ("Last words.", "finish_turn")
    assert len(model.requests) == 3
    assert (await agent.prompt("Go.")).stop_reason == "error"
    assert len(model.requests) == 4


async def test_should_stop_after_turn() -> None:
    seen: list[str] = []

    async def should_stop(turn: AgentTurnContext, abort: Abort) -> bool:
        await trio.lowlevel.checkpoint()
        assert not abort.requested
        seen.append(turn.message.text)
        return turn.message.text == "Enough."

    model = ScriptedModel([RuntimeError("down"), ["More.", call("t")], ["Enough.", call("t")], "Never."])
    # example: should stop after turn
    agent = Agent(model, tools=[sleeper("t")], finish_turn=should_stop_after_turn(should_stop))
    # end
    assert (await agent.prompt("Go.")).stop_reason == "error"
    result = await agent.prompt("Go.")
    assert (result.text, result.end_reason) == ("Enough.", "finish_turn")
    # The predicate of pi 0.73 was not asked about failed turns.
    assert seen == ["More.", "Enough."]
    assert isinstance(agent.messages[-1], ToolResultMessage)


# ------------------------------------------------------- continue and queues


async def test_continue_a_retry() -> None:
    agent, model, _ = agent_of(["Answer.", "And more."], messages=[UserMessage("Unanswered")])
    # example: continue a retry
    agent.follow_up("After the retry")
    await agent.resume()  # the first request answers the tail as it stands
    # end
    assert [texts(request.messages) for request in model.requests] == [
        ["Unanswered"],
        ["Unanswered", "After the retry"],
    ]


async def test_continue_an_answer() -> None:
    agent, model, _ = agent_of(["Answer.", "And more."])
    await agent.prompt("Hello")
    # example: continue an answer
    agent.steer("Continue from here")
    await agent.resume()  # takes the queued message, because the tail is an answer
    # end
    assert texts(model.requests[1].messages) == ["Hello", "Continue from here"]
    model.assert_exhausted()


# ---------------------------------------------------------------- options


async def test_agent_options() -> None:
    seen: list[str] = []

    async def prune(messages: Sequence[AgentMessage], abort: Abort) -> Sequence[AgentMessage]:
        await trio.lowlevel.checkpoint()
        seen.append("transform_context")
        return messages

    async def load_canonical_messages(abort: Abort) -> Sequence[AgentMessage]:
        await trio.lowlevel.checkpoint()
        seen.append("prepare_request")
        return agent.messages

    async def refresh_token(provider: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"key for {provider}"

    def wants_more(turn: AgentTurnContext) -> bool:
        return turn.message.text == "One more."

    audited = Tool("look", execute=lambda args, ctx: ToolResult("seen", details={"a": 1}))
    done, bash = Tool("notify_done", execute=lambda args, ctx: "notified"), Tool("bash", execute=lambda args, ctx: "")
    tools = [audited, done, bash]
    messages: list[AgentMessage] = [UserMessage("Earlier"), AssistantMessage((TextContent("Yes."),))]
    model = ScriptedModel([calling("look", "bash"), "One more.", calling("notify_done", "bash")])

    # example: agent options
    async def prepare_request(request: PrepareRequestContext, abort: Abort) -> AgentRequestUpdate:
        return AgentRequestUpdate(AgentContext(await load_canonical_messages(abort), request.context.tools))

    def before_tool_call(question: BeforeToolCallContext) -> BeforeToolCallResult | None:
        if question.tool_call.name == "bash":
            return BeforeToolCallResult(block=True, reason="bash is disabled", terminate=True)
        return None

    def after_tool_call(told: AfterToolCallContext) -> AfterToolCallResult | None:
        if told.tool_call.name == "notify_done" and not told.is_error:
            return AfterToolCallResult(terminate=True)
        return None if told.is_error else AfterToolCallResult(details={**told.result.details, "audited": True})

    def finish_turn(turn: AgentTurnContext) -> AgentTurnDecision | None:
        return "continue" if wants_more(turn) else None

    agent = Agent(
        model,
        system_prompt="You help.",
        thinking_level="low",
        tools=tools,
        messages=messages,
        convert_to_llm=lambda messages: [m for m in messages if m.role != "notification"],
        transform_context=prune,
        steering_mode="one-at-a-time",
        follow_up_mode="one-at-a-time",
        stream_fn=model.stream_fn,
        session_id="session-123",
        get_api_key=refresh_token,
        tool_execution="parallel",
        before_tool_call=before_tool_call,
        after_tool_call=after_tool_call,
        prepare_request=prepare_request,
        finish_turn=finish_turn,
        options={"thinking_budgets": {"minimal": 128, "low": 512, "medium": 1024, "high": 2048}},
    )
    # end
    result = await agent.prompt("Go.")
    assert result.end_reason == "terminated"
    model.assert_exhausted()
    first = model.requests[0]
    assert (first.session_id, first.api_key, first.thinking_level) == ("session-123", "key for scripted", "low")
    assert first.options["thinking_budgets"]["high"] == 2048
    assert first.context.system_prompt == "You help."
    assert [declared.name for declared in first.context.tools] == ["look", "notify_done", "bash"]
    assert texts(first.messages) == ["Earlier", "Go."]
    assert seen == ["prepare_request", "transform_context"] * 3
    results = {m.tool_call_id: m for m in agent.messages if isinstance(m, ToolResultMessage)}
    assert results["look"].details == {"a": 1, "audited": True}
    assert (results["bash"].text, results["bash"].is_error) == ("bash is disabled", True)


# ------------------------------------------------------------------ state


async def test_agent_state() -> None:
    agent, model, _ = agent_of(["Hi."], sleeper("t"), system_prompt="P")
    await agent.prompt("Hello")
    # example: agent state
    state = agent.state
    assert isinstance(state.model.id, str)
    assert state.thinking_level == "off"
    assert [each.name for each in state.tools] == ["t"]
    assert [message.role for message in state.messages] == ["system", "user", "assistant"]
    assert not state.is_streaming
    assert state.streaming_message is None
    assert not state.pending_tool_calls
    assert state.error_message is None
    # end
    assert state.model is model
    assert state.system_prompt == "P"
    head = get_current_system_message(agent.messages)
    assert head is not None
    assert [declared.name for declared in head.tools_added] == ["t"]
    for name in ("system_prompt", "is_streaming", "messages"):
        with pytest.raises(AttributeError):
            setattr(state, name, None)


async def test_change_the_prompt() -> None:
    agent, model, _ = agent_of(["Hi."], system_prompt="You help.")
    # example: change the prompt
    await agent.prompt([SystemMessage(sections={"skills": "<skills>...</skills>"}), UserMessage("Continue")])
    # end
    assert agent.state.system_prompt == "You help.\n\n<skills>...</skills>"
    assert model.requests[0].context.system_prompt == agent.state.system_prompt


async def test_prompting() -> None:
    agent, model, _ = agent_of(["One.", "Two.", RuntimeError("down"), "Three."])
    # example: prompting
    await agent.prompt("Hello")
    await agent.prompt("What is in this image?", [ImageContent(IMAGE_DATA, "image/jpeg")])
    await agent.prompt(UserMessage("Hello again"))
    # end
    agent.messages = [message for message in agent.messages if getattr(message, "error_message", None) is None]
    # example: prompting
    await agent.resume()
    # end
    model.assert_exhausted()
    assert texts(agent.messages) == ["Hello", "What is in this image?", "Hello again"]
    second = agent.messages[2]
    assert isinstance(second, UserMessage)
    assert second.content == (TextContent("What is in this image?"), ImageContent(IMAGE_DATA, "image/jpeg"))
    assert agent.last_result is not None
    assert agent.last_result.text == "Three."


async def test_state_management() -> None:
    agent, model, _ = agent_of(["One."], system_prompt="P")
    other_model, my_tool = ScriptedModel(["From the other."], id="other"), sleeper("mine")
    new_messages: list[AgentMessage] = [UserMessage("A"), AssistantMessage((TextContent("B"),))]
    message = UserMessage("C")
    agent.steer("steered")
    # example: state management
    agent.model = other_model
    agent.thinking_level = "medium"
    agent.tools = [my_tool]
    agent.tool_execution = "sequential"
    agent.before_tool_call = lambda question: None
    agent.after_tool_call = lambda told: None
    agent.prepare_request = lambda request: None
    agent.finish_turn = lambda turn: None
    agent.messages = [*new_messages, message]  # the list is copied
    next_queued_messages = agent.peek_queued_messages()  # as the modes say; nothing is taken
    agent.reset()
    # end
    assert texts(next_queued_messages) == ["steered"]
    assert not agent.has_queued_messages()
    assert list(agent.messages) == []
    result = await agent.prompt("Hello")
    assert result.text == "From the other."
    assert other_model.requests[0].thinking_level == "medium"
    assert [declared.name for declared in other_model.requests[0].context.tools] == ["mine"]
    assert model.requests == []


async def test_session_and_budgets() -> None:
    agent, model, _ = agent_of(["Hi."])
    # example: session and budgets
    agent.session_id = "session-123"
    agent.options = {"thinking_budgets": {"minimal": 128, "low": 512, "medium": 1024, "high": 2048}}
    # end
    await agent.prompt("Hello")
    assert model.requests[0].session_id == "session-123"
    assert model.requests[0].options["thinking_budgets"]["minimal"] == 128


async def test_control(autojump_clock: MockClock) -> None:
    agent, _, recorder = agent_of([calling("t"), "Never."], sleeper("t", 60))
    done = False

    async def stop() -> None:
        nonlocal done
        await trio.sleep(1)
        # example: control
        agent.abort()
        await agent.wait_for_idle()
        # end
        assert agent.last_result is not None
        assert (agent.last_result.stop_reason, recorder.log.now()) == ("aborted", 1)
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await agent.prompt("Go.")
    assert done


async def test_events(autojump_clock: MockClock) -> None:
    agent, _, _ = agent_of(["One.", "Two."])
    session = Session()

    # example: events
    async def flush(event: AgentEnd, abort: Abort) -> None:
        await session.flush(abort)  # the run is not over before this is

    unsubscribe = agent.subscribe(flush, AgentEnd)
    # end
    await agent.prompt("Hello")
    assert session.flushed == [False]
    # example: events
    unsubscribe()
    # end
    await agent.prompt("Hello")
    assert session.flushed == [False]


# --------------------------------------------------- steering and follow-up


async def test_steering(autojump_clock: MockClock) -> None:
    agent, model, _ = agent_of([calling("a", "b"), "As you like.", "In short."], sleeper("a", 1), sleeper("b", 2))

    async def while_the_tools_run() -> None:
        await trio.sleep(0.5)
        # example: steering
        agent.steering_mode = "one-at-a-time"
        agent.follow_up_mode = "one-at-a-time"
        agent.steer("Stop! Do this instead.")
        agent.follow_up("Also summarize the result.")
        steering_mode, follow_up_mode = agent.steering_mode, agent.follow_up_mode
        # end
        assert (steering_mode, follow_up_mode) == ("one-at-a-time", "one-at-a-time")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(while_the_tools_run)
        await agent.prompt("Go.")
    # All calls of the answer are finished first; then the steered message; the follow-up at the end.
    assert [message.role for message in model.requests[1].messages][-3:] == ["tool_result", "tool_result", "user"]
    assert texts(model.requests[1].messages) == ["Go.", "Stop! Do this instead."]
    assert texts(model.requests[2].messages)[-1] == "Also summarize the result."
    agent.steer("x")
    agent.follow_up("y")
    # example: steering
    agent.clear_steering_queue()
    assert agent.has_queued_messages()
    agent.clear_follow_up_queue()
    agent.clear_all_queues()
    # end
    assert not agent.has_queued_messages()


# ---------------------------------------------------- custom message types


async def test_custom_message_types() -> None:
    # example: custom type
    @attrs.frozen
    class Notification:
        text: str
        role: str = "notification"

    message: AgentMessage = Notification("Info")
    # end
    model = ScriptedModel(["Hi."])
    # example: convert custom types
    agent = Agent(model, convert_to_llm=lambda messages: [m for m in messages if m.role != "notification"])
    # end
    await agent.prompt([message, UserMessage("Hello")])
    assert [each.role for each in model.requests[0].messages] == ["user"]
    assert agent.messages[0] is message


# ------------------------------------------------------------------ tools


async def test_tools(tmp_path: Path) -> None:
    # example: tools
    @tool(label="Read File", execution_mode="sequential")
    async def read_file(path: str, ctx: ToolContext) -> ToolResult:
        """Read a file's contents.

        Args:
          path: where the file is.
        """
        await ctx.update("Reading...")
        content = await trio.Path(path).read_text("utf-8")
        return ToolResult(content, details={"path": path, "size": len(content)})

    # end
    path = tmp_path / "x.txt"
    path.write_text("héllo", "utf-8")
    model = ScriptedModel([call("c", "read_file", path=str(path)), "Done."])
    agent = Agent(model)
    # example: tools
    agent.tools = [read_file]
    # end
    recorder = Recorder(agent)
    await agent.prompt("Read it.")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert (result.text, result.details) == ("héllo", {"path": str(path), "size": 5})
    (update,) = [event for event in recorder.events if isinstance(event, ToolExecutionUpdate)]
    assert update.partial_result.text == "Reading..."
    (declared,) = model.requests[0].context.tools
    assert (declared.name, declared.description) == ("read_file", "Read a file's contents.")
    assert declared.parameters["properties"]["path"] == {"type": "string", "description": "where the file is."}
    assert (read_file.label, read_file.execution_mode) == ("Read File", "sequential")


async def test_error_handling(tmp_path: Path) -> None:
    # example: error handling
    @tool
    async def read_file(path: str) -> str:
        if not await trio.Path(path).exists():
            raise FileNotFoundError(f"File not found: {path}")
        return await trio.Path(path).read_text()

    # end
    agent, model, _ = agent_of([call("c", "read_file", path="/nowhere/x"), "Done."], read_file)
    await agent.prompt("Read it.")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert (result.is_error, result.text) == (True, "File not found: /nowhere/x")
    assert model.requests[1].messages[-1] == result


# -------------------------------------------------------------- low level


async def test_low_level(capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedModel(["Hi."])
    roles = ("system", "user", "assistant", "tool_result")
    # example: low-level
    context = AgentContext([SystemMessage("You are helpful.")], tools=[])
    config = LoopConfig(
        model=model,
        convert_to_llm=lambda messages: [message for message in messages if message.role in roles],
        tool_execution="parallel",
        before_tool_call=lambda question: None,
        after_tool_call=lambda told: None,
    )
    async with agent_loop([UserMessage("Hello")], context, config) as run:
        async for event in run:
            print(event.type)
    # end
    assert capsys.readouterr().out.split()[0] == "agent_start"
    assert [message.role for message in run.result] == ["user", "assistant"]
    assert [message.role for message in context.messages] == ["system"]
    model.extend(["Hi again."])
    context = AgentContext([SystemMessage("You are helpful."), UserMessage("Hello")])
    # example: low-level
    async with agent_loop_continue(context, config) as run:
        async for event in run:
            print(event.type)
    # end
    assert capsys.readouterr().out.split()[-1] == "agent_end"
    assert [message.role for message in run.result] == ["assistant"]
    model.assert_exhausted()


# -------------------------------------------------------------- the table


def counted(source: str) -> dict[str, int]:
    """The lines of code of each marked example of a file."""
    lines: dict[str, int] = {}
    name = ""
    for line in source.splitlines():
        text = line.strip()
        if text.startswith("# example: "):
            assert not name, f"example {name!r} has no end"
            name = text.removeprefix("# example: ")
            lines.setdefault(name, 0)
        elif text == "# end":
            assert name, "an end without an example"
            name = ""
        elif name and text and not text.startswith("#"):
            lines[name] += 1
    assert not name, f"example {name!r} has no end"
    return lines


def test_the_table_says_how_long_the_examples_are() -> None:
    source = Path(__file__).read_text("utf-8")
    table = re.findall(r"^([a-z-][a-z -]+?) {2,}(\d+) +(\d+)$", source, re.MULTILINE)
    assert {name: int(here) for name, _, here in table} == counted(source)
    assert len(table) == 20
    assert [name for name, there, here in table if int(here) > int(there)] == []


def test_lines_are_counted_without_blanks_and_comments() -> None:
    source = "x = 0\n# example: a\n# why\nx = 1\n\nf(\n    x,\n)\n# end\ny = 2\n# example: a\nz = 3\n# end\n"
    assert counted(source) == {"a": 5}
