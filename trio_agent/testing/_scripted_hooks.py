"""The hooks that a scenario scripts, in the forms in which the library calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, final

from trio_agent import (
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentLoopTurnUpdate,
    AgentMessage,
    AgentRequestUpdate,
    AgentTurnContext,
    AgentTurnDecision,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    Message,
    PrepareRequestContext,
    SystemMessage,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    content_text,
    default_convert_to_llm,
)

from ._scenario_parts import Effect, Rule
from ._trace import Entry, plain, result_shape, tags, turn_shape

__all__ = ["ScriptedHooks"]


@final
class ScriptedHooks:
    """Hooks that record each call and do what the first rule that matches it says.

    Args:
      rules: the rules of each hook, by its name.
      tools: the tools of the scenario by key.
      record: called with the entry of each call.
      act: does what the rule does before it answers.
    """

    def __init__(
        self,
        rules: Mapping[str, Sequence[Rule]],
        tools: Mapping[str, Tool],
        record: Callable[[Entry], None],
        act: Callable[[Effect], Awaitable[None]],
    ) -> None:
        self._rules = rules
        self._tools = tools
        self._record = record
        self._act = act
        self._calls = dict.fromkeys(rules, 0)

    def installed(self) -> dict[str, Callable[..., Any]]:
        """The hooks that the scenario has, by name."""
        return {name: getattr(self, name) for name in self._rules}

    def _rule(self, name: str, call: ToolCall | None = None) -> Rule:
        """Count a call of a hook and find the rule that applies; an empty one if none does."""
        self._calls[name] += 1
        for rule in self._rules[name]:
            if (
                (rule.nth is None or rule.nth == self._calls[name])
                and (rule.tool is None or (call is not None and rule.tool == call.name))
                and (rule.id is None or (call is not None and rule.id == call.id))
            ):
                return rule
        return Rule()

    async def _apply(self, name: str, rule: Rule, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        self._record({"hook": name, **entry})
        await self._act(rule.effect)
        return rule.values

    async def before_tool_call(self, context: BeforeToolCallContext) -> BeforeToolCallResult | None:
        call = context.tool_call
        entry: Entry = {"id": call.id, "name": call.name, "arguments": plain(context.args)}
        if "/" not in call.id:
            entry["context"] = tags(context.context.messages)
        values = await self._apply("before_tool_call", self._rule("before_tool_call", call), entry)
        return BeforeToolCallResult(**values) if values else None

    async def after_tool_call(self, context: AfterToolCallContext) -> AfterToolCallResult | None:
        call = context.tool_call
        entry = {"id": call.id, "name": call.name, "arguments": plain(context.args)}
        entry.update(result_shape(context.result, context.is_error))
        values = dict(await self._apply("after_tool_call", self._rule("after_tool_call", call), entry))
        for key, field in (("text", "content"), ("structured", "structured_content")):
            if key in values:
                values[field] = values.pop(key)
        return AfterToolCallResult(**values) if values else None

    def _turn_entry(self, turn: AgentTurnContext) -> Entry:
        return {
            **turn_shape(turn.message, turn.tool_results),
            "context": tags(turn.context.messages),
            "new_messages": tags(turn.new_messages),
        }

    async def finish_turn(self, turn: AgentTurnContext) -> AgentTurnDecision | None:
        values = await self._apply("finish_turn", self._rule("finish_turn"), self._turn_entry(turn))
        decision: AgentTurnDecision | None = values.get("action")
        return decision

    async def prepare_next_turn(self, turn: AgentTurnContext) -> AgentLoopTurnUpdate | None:
        rule = self._rule("prepare_next_turn")
        values = await self._apply("prepare_next_turn", rule, self._turn_entry(turn))
        if not values:
            return None
        return AgentLoopTurnUpdate(
            self._new_context(values, turn.context),
            values.get("append", ()),
            values.get("model"),
            values.get("thinking_level"),
        )

    async def prepare_request(self, request: PrepareRequestContext) -> AgentRequestUpdate | None:
        entry = {
            "context": tags(request.context.messages),
            "model": f"{request.model.provider}/{request.model.id}",
            "thinking_level": request.thinking_level,
        }
        values = await self._apply("prepare_request", self._rule("prepare_request"), entry)
        if not values:
            return None
        return AgentRequestUpdate(
            self._new_context(values, request.context), values.get("model"), values.get("thinking_level")
        )

    def _new_context(self, values: Mapping[str, Any], context: AgentContext) -> AgentContext | None:
        if not values.keys() & {"drop_roles", "keep_last", "append_context", "context_tools"}:
            return None
        tools = context.tools
        if "context_tools" in values:
            tools = [self._tools[key] for key in values["context_tools"]]
        return AgentContext(_changed(values, context.messages), tools)

    async def transform_context(self, messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        entry = {"context": tags(messages)}
        values = await self._apply("transform_context", self._rule("transform_context"), entry)
        return _changed(values, messages) if values else messages

    async def convert_to_llm(self, messages: Sequence[AgentMessage]) -> Sequence[Message]:
        entry = {"context": tags(messages)}
        values = await self._apply("convert_to_llm", self._rule("convert_to_llm"), entry)
        return default_convert_to_llm(_changed(values, messages))

    async def get_api_key(self, provider: str) -> str | None:
        values = await self._apply("get_api_key", self._rule("get_api_key"), {"provider": provider})
        key: str | None = values.get("key")
        return key

    async def get_steering_messages(self) -> Sequence[AgentMessage]:
        return await self._queued("get_steering_messages")

    async def get_follow_up_messages(self) -> Sequence[AgentMessage]:
        return await self._queued("get_follow_up_messages")

    async def _queued(self, name: str) -> Sequence[AgentMessage]:
        rule = self._rule(name)
        messages: Sequence[AgentMessage] = rule.values.get("messages", ())
        await self._apply(name, rule, {"returned": len(messages)})
        return list(messages)


def _changed(values: Mapping[str, Any], messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Make the new message list that the context keys of a rule ask for."""
    drop, as_user = values.get("drop_roles", ()), values.get("as_user", ())
    kept = [message for message in messages if message.role not in drop]
    if "keep_last" in values:
        others = sum(not isinstance(message, SystemMessage) for message in kept)
        surplus = max(0, others - values["keep_last"])
        pruned: list[AgentMessage] = []
        for message in kept:
            if isinstance(message, SystemMessage):
                pruned.append(message)
            elif surplus:
                surplus -= 1
            else:
                pruned.append(message)
        kept = pruned
    changed = [UserMessage(_text(message)) if message.role in as_user else message for message in kept]
    return [*changed, *values.get("append_context", ())]


def _text(message: AgentMessage) -> str:
    if isinstance(message, SystemMessage):
        return message.content
    if isinstance(message, UserMessage | AssistantMessage | ToolResultMessage):
        return content_text(message.content)
    return str(getattr(message, "text", ""))
