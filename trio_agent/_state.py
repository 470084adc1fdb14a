"""The state of an agent, as its listeners see it, and what comes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast, final

import attrs

from ._errors import RunFailedError
from ._events import EndReason, MessageEnd, MessageStart, MessageUpdate, ToolExecutionEnd, ToolExecutionStart, TurnEnd
from ._messages import AgentMessage, AssistantMessage, StopReason, ThinkingLevel, ToolResultMessage, Usage
from ._run import Run
from ._stream import Model, StreamEvent
from ._tool import Tool
from ._transcript import MessageView, Replay


@final
@attrs.frozen
class RunResult:
    """What came of a run; ``agent.last_result`` keeps it also where the call raised."""

    new_messages: tuple[AgentMessage, ...]
    """What the run added to the transcript."""
    end_reason: EndReason
    """Why it ended."""
    exception: BaseException | None = None
    """What a model, hook or listener raised, or a key interrupt; None where nothing failed."""

    @property
    def message(self) -> AssistantMessage | None:
        """The last answer, or the record that stands in its place; None if there is none."""
        for message in reversed(self.new_messages):
            if type(message) is AssistantMessage:
                return message
        return None

    @property
    def tool_results(self) -> tuple[ToolResultMessage, ...]:
        """The results of all tool calls of the run, in their order in the transcript."""
        return tuple(message for message in self.new_messages if type(message) is ToolResultMessage)

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.message.text if self.message is not None else ""

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the last answer ended."""
        return self.message.stop_reason if self.message is not None else None

    @property
    def usage(self) -> Usage:
        """What all answers of the run cost; what tools spent themselves stands in their results."""
        total = Usage()
        for message in self.new_messages:
            if type(message) is AssistantMessage:
                total = total + message.usage
        return total

    def raise_for_error(self) -> None:
        """Do nothing if the run ended well.

        Raises:
          Exception: the one of :attr:`exception`, if there was one.
          RunFailedError: the last answer stopped with ``error`` or ``aborted``.
        """
        if self.exception is not None:
            raise self.exception
        message = self.message
        if message is not None and message.stop_reason in ("error", "aborted"):
            text = message.error_message or f"the run stopped: {message.stop_reason}"
            raise RunFailedError(text, message.stop_reason)


@final
class AgentState:
    """A live, read-only view of an agent. A listener sees a state that contains the event it is told."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent  # an Agent, of the module above this one
        self._messages: list[AgentMessage] = []
        self._replay = Replay()
        self._run: Run | None = None
        self._streaming: AgentMessage | StreamEvent | None = None
        self._pending: dict[str, None] = {}
        self._error: str | None = None

    @property
    def model(self) -> Model:
        """The model of the next run."""
        return cast("Model", self._agent.model)

    @property
    def thinking_level(self) -> ThinkingLevel:
        """The thinking level of the next run."""
        return cast("ThinkingLevel", self._agent.thinking_level)

    @property
    def tools(self) -> Sequence[Tool]:
        """What can be executed. Differences from what the transcript declares are announced."""
        return cast("Sequence[Tool]", self._agent.tools)

    @property
    def messages(self) -> Sequence[AgentMessage]:
        """The transcript as it is now."""
        return MessageView(self._messages)

    @property
    def system_prompt(self) -> str:
        """The system prompt, replayed from the system messages of the transcript."""
        return self._replay.system_prompt

    @property
    def is_streaming(self) -> bool:
        """Whether a run is active; true until the listeners of ``agent_end`` are through."""
        return self._run is not None

    @property
    def streaming_message(self) -> AgentMessage | None:
        """The message that has started and not ended; an answer as far as it was told."""
        streaming = self._streaming
        if streaming is None or hasattr(streaming, "role"):
            return streaming
        return streaming.partial

    @property
    def pending_tool_calls(self) -> AbstractSet[str]:
        """The ids of the calls that have started and not ended; a live view."""
        return self._pending.keys()

    @property
    def error_message(self) -> str | None:
        """What the last turn that failed or was aborted said; None once a run starts."""
        return self._error

    @property
    def aborting(self) -> frozenset[str]:
        """The ids of the calls that were cut and have not unwound yet."""
        batch = self._run.record.batch if self._run is not None else None
        if batch is None:
            return frozenset()
        return frozenset(
            call.tool_call.id for call in batch.calls if call.cut is not None and call.entered and not call.over
        )

    # The agent's side.

    def _replace(self, messages: Sequence[AgentMessage]) -> None:
        self._messages = list(messages)
        self._replay = Replay(self._messages)

    def _begin(self, run: Run) -> None:
        self._run = run
        self._streaming = None
        self._error = None

    def _finish(self) -> None:
        self._run = None
        self._streaming = None
        self._pending.clear()

    def _reduce(self, event: Any) -> None:
        kind = type(event)
        if kind is MessageUpdate:
            self._streaming = event.assistant_message_event
        elif kind is ToolExecutionStart:
            self._pending[event.tool_call_id] = None
        elif kind is ToolExecutionEnd:
            self._pending.pop(event.tool_call_id, None)
        elif kind is MessageStart:
            self._streaming = event.message
        elif kind is MessageEnd:
            self._streaming = None
            self._messages.append(event.message)
            self._replay.apply(event.message)
        elif kind is TurnEnd and event.message.error_message is not None:
            self._error = event.message.error_message
