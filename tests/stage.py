"""A run with every place where it can be cut: each place is logged, and one of them holds the run.

The model answers "Let me see." and calls ``fast`` (c1) and ``slow`` (c2); then it says "Done.".
Nothing takes time but ``slow`` (half a second) and the held place, which lasts until second 10, or
until second 2 and then raises.
"""

from __future__ import annotations

from typing import Any

import trio
from kit import Log, Recorder, kind

from trio_agent import (
    Agent,
    AgentEvent,
    AgentTurnContext,
    AssistantMessage,
    MessageBuilder,
    ModelRequest,
    StreamSink,
    Tool,
    ToolContext,
)
from trio_agent.testing import ScriptedModel

CUT = 2.0
"""When the tests cut the run."""
HELD_UNTIL = 10.0
"""When the held place lets go if nothing cuts it."""


class Stage:
    """An agent on which every hook, request, tool and listener passes through :meth:`place`.

    Args:
      hold: the place that holds the run; one of those that ``log`` names, such as
        ``listener turn_end`` or ``before_tool_call c2``. The second time that a place is passed it
        is called ``... again``.
      error: raised by the held place at second 2.
      **settings: of the agent.
    """

    def __init__(self, hold: str = "", error: BaseException | None = None, **settings: Any) -> None:
        self.hold = hold
        self.error = error
        self.log = Log()
        self.reached = False
        self.limiter = trio.CapacityLimiter(1)
        self.model = ScriptedModel([self._first_answer, *[self._last_answer] * 4])
        self.agent = Agent(
            self.model,
            tools=[Tool("fast", execute=self._fast), Tool("slow", execute=self._slow, limiter=self.limiter)],
            transform_context=self._transform_context,
            convert_to_llm=self._convert_to_llm,
            get_api_key=self._get_api_key,
            prepare_request=self._prepare_request,
            prepare_next_turn=self._prepare_next_turn,
            finish_turn=self._finish_turn,
            before_tool_call=self._before_tool_call,
            after_tool_call=self._after_tool_call,
            **settings,
        )
        self.first = Recorder(self.agent)
        self.told: list[AgentEvent] = []
        """What the async listener, which is told second, was told."""
        self.agent.subscribe(self._listen)
        self.last = Recorder(self.agent)
        self.entered: list[str] = []
        """The calls whose tool was entered."""

    async def place(self, name: str) -> None:
        """Log that a place was reached; hold the run if it is the one."""
        if name in self.log.texts:
            name = f"{name} again"
        self.log(name)
        if name == self.hold and not self.reached:
            self.reached = True
            if self.error is not None:
                await trio.sleep(CUT - self.log.now())
                raise self.error
            await trio.sleep(HELD_UNTIL - self.log.now())

    def hold_limiter(self) -> None:
        """Let ``slow`` wait for its limiter: the place ``limiter c2``."""
        self.limiter.acquire_on_behalf_of_nowait(self)
        self.reached = True

    # The model.

    async def _first_answer(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await self.place("stream: first byte")
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        await sink.send(builder.text_delta("Let me "))
        await self.place("stream: mid text")
        await sink.send(builder.text_delta("see."))
        await sink.send(builder.text_end())
        for call_id, name in (("c1", "fast"), ("c2", "slow")):
            await sink.send(builder.tool_call_start(call_id, name))
            await sink.send(builder.tool_call_delta("{}"))
            await sink.send(builder.tool_call_end())
        await self.place("stream: all sent")
        return builder.finish("tool_use")

    async def _last_answer(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        builder = MessageBuilder(request)
        await self.place("stream: second request")
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        await sink.send(builder.text_delta("Done."))
        await sink.send(builder.text_end())
        return builder.finish("stop")

    # The tools.

    async def _fast(self, args: dict[str, Any], ctx: ToolContext) -> str:
        self.entered.append(ctx.tool_call_id)
        await self.place(f"tool {ctx.tool_call_id}")
        return "fast result"

    async def _slow(self, args: dict[str, Any], ctx: ToolContext) -> str:
        self.entered.append(ctx.tool_call_id)
        await trio.sleep(0.5)
        await ctx.update("half")
        await self.place(f"tool {ctx.tool_call_id}")
        return "slow result"

    # The hooks.

    async def _transform_context(self, messages: Any) -> Any:
        await self.place("transform_context")
        return messages

    async def _convert_to_llm(self, messages: Any) -> Any:
        await self.place("convert_to_llm")
        return messages

    async def _get_api_key(self, provider: str) -> str:
        await self.place("get_api_key")
        return "key"

    async def _prepare_request(self, context: Any) -> None:
        await self.place("prepare_request")

    async def _prepare_next_turn(self, turn: AgentTurnContext) -> None:
        await self.place("prepare_next_turn")

    async def _finish_turn(self, turn: AgentTurnContext) -> None:
        await self.place("finish_turn")

    async def _before_tool_call(self, question: Any) -> None:
        await self.place(f"before_tool_call {question.tool_call.id}")

    async def _after_tool_call(self, told: Any) -> None:
        await self.place(f"after_tool_call {told.tool_call.id}")

    # The listener.

    async def _listen(self, event: AgentEvent) -> None:
        self.told.append(event)
        await self.place(f"listener {kind(event)}")

    # What was begun.

    def begun_since(self, seconds: float) -> list[str]:
        """What a cut forbids, and was entered all the same: requests, tools, preparing hooks."""
        closing = ("listener", "after_tool_call", "finish_turn", "stream: mid", "stream: all")
        return [text for text in self.log.since(seconds) if not text.startswith(closing)]

    def closing_hooks_since(self, seconds: float) -> list[str]:
        """The closing hooks that were called."""
        return [text for text in self.log.since(seconds) if text.startswith(("after_tool_call", "finish_turn"))]
