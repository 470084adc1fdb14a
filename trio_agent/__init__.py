"""The agent loop of pi-agent-core on Trio.

A model streams an answer; its tool calls run side by side in a nursery; the results go back to the
model; users steer it while it works. Every task has a parent that waits for it, every cancellation
a scope that says how far it reaches.

The underscore modules hold one concept each and are layered: an import points only downwards.
``trio_agent.testing``, ``trio_agent.tools`` and ``trio_agent.providers`` stand beside this package
and are imported by themselves.

The library's coroutines are checkpoints unless their docstring says otherwise, and every wait can be
cancelled.
"""

from ._abort import Abort as Abort
from ._agent import Agent as Agent
from ._call import run_tool_call as run_tool_call
from ._errors import BusyError as BusyError
from ._errors import ContinueError as ContinueError
from ._errors import FormatError as FormatError
from ._errors import InvalidArgumentsError as InvalidArgumentsError
from ._errors import NoStreamFnError as NoStreamFnError
from ._errors import QueueFullError as QueueFullError
from ._errors import RunFailedError as RunFailedError
from ._errors import StreamError as StreamError
from ._errors import ToolDefinitionError as ToolDefinitionError
from ._errors import TrioAgentError as TrioAgentError
from ._errors import UsageError as UsageError
from ._events import AgentEnd as AgentEnd
from ._events import AgentEvent as AgentEvent
from ._events import AgentStart as AgentStart
from ._events import EndReason as EndReason
from ._events import EventDecoder as EventDecoder
from ._events import MessageEnd as MessageEnd
from ._events import MessageStart as MessageStart
from ._events import MessageUpdate as MessageUpdate
from ._events import ToolExecutionEnd as ToolExecutionEnd
from ._events import ToolExecutionStart as ToolExecutionStart
from ._events import ToolExecutionUpdate as ToolExecutionUpdate
from ._events import TurnEnd as TurnEnd
from ._events import TurnStart as TurnStart
from ._events import event_to_json as event_to_json
from ._hooks import AfterToolCall as AfterToolCall
from ._hooks import AfterToolCallContext as AfterToolCallContext
from ._hooks import AfterToolCallResult as AfterToolCallResult
from ._hooks import AgentLoopTurnUpdate as AgentLoopTurnUpdate
from ._hooks import AgentRequestUpdate as AgentRequestUpdate
from ._hooks import AgentTurnContext as AgentTurnContext
from ._hooks import AgentTurnDecision as AgentTurnDecision
from ._hooks import BeforeToolCall as BeforeToolCall
from ._hooks import BeforeToolCallContext as BeforeToolCallContext
from ._hooks import BeforeToolCallResult as BeforeToolCallResult
from ._hooks import Emit as Emit
from ._hooks import FinishTurn as FinishTurn
from ._hooks import GetApiKey as GetApiKey
from ._hooks import GetQueuedMessages as GetQueuedMessages
from ._hooks import LoopConfig as LoopConfig
from ._hooks import PrepareNextTurn as PrepareNextTurn
from ._hooks import PrepareRequest as PrepareRequest
from ._hooks import PrepareRequestContext as PrepareRequestContext
from ._hooks import RunLimits as RunLimits
from ._hooks import ToolPreparation as ToolPreparation
from ._hooks import TransformContext as TransformContext
from ._hooks import should_stop_after_turn as should_stop_after_turn
from ._iterate import EventStream as EventStream
from ._iterate import agent_loop as agent_loop
from ._iterate import agent_loop_continue as agent_loop_continue
from ._loop import run_agent_loop as run_agent_loop
from ._loop import run_agent_loop_continue as run_agent_loop_continue
from ._messages import AgentMessage as AgentMessage
from ._messages import AssistantContent as AssistantContent
from ._messages import AssistantMessage as AssistantMessage
from ._messages import Content as Content
from ._messages import CustomMessage as CustomMessage
from ._messages import ErrorKind as ErrorKind
from ._messages import ImageContent as ImageContent
from ._messages import Message as Message
from ._messages import StopReason as StopReason
from ._messages import SystemMessage as SystemMessage
from ._messages import TextContent as TextContent
from ._messages import ThinkingContent as ThinkingContent
from ._messages import ThinkingLevel as ThinkingLevel
from ._messages import ToolCall as ToolCall
from ._messages import ToolDeclaration as ToolDeclaration
from ._messages import ToolResultMessage as ToolResultMessage
from ._messages import Usage as Usage
from ._messages import UserMessage as UserMessage
from ._messages import content_text as content_text
from ._messages import message_from_json as message_from_json
from ._messages import message_to_json as message_to_json
from ._messages import register_message_type as register_message_type
from ._messages import unregister_message_type as unregister_message_type
from ._queues import PendingMessageQueue as PendingMessageQueue
from ._queues import QueueMode as QueueMode
from ._state import AgentState as AgentState
from ._state import RunResult as RunResult
from ._stream import MessageBuilder as MessageBuilder
from ._stream import Model as Model
from ._stream import ModelRequest as ModelRequest
from ._stream import ModelStream as ModelStream
from ._stream import SimpleModel as SimpleModel
from ._stream import StreamEvent as StreamEvent
from ._stream import StreamFn as StreamFn
from ._stream import StreamSink as StreamSink
from ._stream import StreamStart as StreamStart
from ._stream import TextDelta as TextDelta
from ._stream import TextEnd as TextEnd
from ._stream import TextStart as TextStart
from ._stream import ThinkingDelta as ThinkingDelta
from ._stream import ThinkingEnd as ThinkingEnd
from ._stream import ThinkingStart as ThinkingStart
from ._stream import ToolCallDelta as ToolCallDelta
from ._stream import ToolCallEnd as ToolCallEnd
from ._stream import ToolCallStart as ToolCallStart
from ._stream import get_default_stream_fn as get_default_stream_fn
from ._stream import open_stream as open_stream
from ._stream import set_default_stream_fn as set_default_stream_fn
from ._tool import AgentContext as AgentContext
from ._tool import Tool as Tool
from ._tool import ToolCallOutcome as ToolCallOutcome
from ._tool import ToolContext as ToolContext
from ._tool import ToolExecutionMode as ToolExecutionMode
from ._tool import ToolResult as ToolResult
from ._tool import tool as tool
from ._transcript import MessageView as MessageView
from ._transcript import TranscriptContext as TranscriptContext
from ._transcript import collapse_system_messages as collapse_system_messages
from ._transcript import create_initial_system_message as create_initial_system_message
from ._transcript import declare_tool_changes as declare_tool_changes
from ._transcript import default_convert_to_llm as default_convert_to_llm
from ._transcript import get_current_system_message as get_current_system_message
from ._transcript import get_current_system_prompt as get_current_system_prompt
from ._transcript import get_current_tools as get_current_tools
from ._transcript import normalize_context as normalize_context
from ._transcript import repair_call_ids as repair_call_ids
from ._transcript import repair_transcript as repair_transcript
from ._transcript import transcript_from_json as transcript_from_json
from ._transcript import transcript_to_json as transcript_to_json

__version__ = "0.1.0"

# Tracebacks, pickles and the reference show where users find a name, not where it is written.
for _value in list(globals().values()):
    if getattr(_value, "__module__", "").startswith("trio_agent._"):
        _value.__module__ = "trio_agent"
del _value
