"""The agent loop of pi-agent-core on Trio.

A model streams an answer; its tool calls run side by side in a nursery; the results go back to the
model; users steer it while it works. Every task has a parent that waits for it, every cancellation
a scope that says how far it reaches.

The underscore modules hold one concept each and are layered: an import points only downwards.

::

    _agent, _state, _iterate      an Agent: its state, its queues and listeners, its events to iterate over
    _loop                         the double loop; no state of its own
    _response, _batch, _call      one response; the calls of one message; one call
    _run, _closing, _open         one run: who tells, what is missing to close it, what is open
    _queues, _abort, _hooks       the queues; the soft cancel; settings, and what each hook gets and answers
    _wire/                        messages, transcripts and events as JSON
    _events                       what a run tells
    _stream/, _tool/              the contract of models; tools, their schemas and arguments
    _transcript, _messages        what is said, and how prompt and tools are read out of it
    _errors, _door                the error tree; how the host's code is entered and its exceptions sorted

``trio_agent.providers``, ``trio_agent.testing``, ``trio_agent.tools`` and ``trio_agent.cli`` stand above
all of these and are imported by themselves.

The library's coroutines are checkpoints unless their docstring says otherwise, and every wait can be
cancelled.
"""

# One name a line would hide which module holds what.
# fmt: off
# isort: off
from ._abort import Abort as Abort
from ._agent import Agent as Agent
from ._call import run_tool_call as run_tool_call
from ._errors import (
    BusyError as BusyError, ContinueError as ContinueError, FormatError as FormatError,
    InvalidArgumentsError as InvalidArgumentsError, NoStreamFnError as NoStreamFnError,
    QueueFullError as QueueFullError, RunFailedError as RunFailedError, StreamError as StreamError,
    ToolDefinitionError as ToolDefinitionError, TrioAgentError as TrioAgentError, UsageError as UsageError,
)
from ._events import (
    AgentEnd as AgentEnd, AgentEvent as AgentEvent, AgentStart as AgentStart, EndReason as EndReason,
    MessageEnd as MessageEnd, MessageStart as MessageStart, MessageUpdate as MessageUpdate,
    ToolExecutionEnd as ToolExecutionEnd, ToolExecutionStart as ToolExecutionStart,
    ToolExecutionUpdate as ToolExecutionUpdate, TurnEnd as TurnEnd, TurnStart as TurnStart,
)
from ._hooks import (
    AfterToolCall as AfterToolCall, AfterToolCallContext as AfterToolCallContext,
    AfterToolCallResult as AfterToolCallResult, AgentLoopTurnUpdate as AgentLoopTurnUpdate,
    AgentRequestUpdate as AgentRequestUpdate, AgentTurnContext as AgentTurnContext,
    AgentTurnDecision as AgentTurnDecision, BeforeToolCall as BeforeToolCall,
    BeforeToolCallContext as BeforeToolCallContext, BeforeToolCallResult as BeforeToolCallResult,
    ConvertToLlm as ConvertToLlm, Emit as Emit, FinishTurn as FinishTurn, GetApiKey as GetApiKey,
    GetQueuedMessages as GetQueuedMessages, LoopConfig as LoopConfig, PrepareNextTurn as PrepareNextTurn,
    PrepareRequest as PrepareRequest, PrepareRequestContext as PrepareRequestContext, RunLimits as RunLimits,
    ToolPreparation as ToolPreparation, TransformContext as TransformContext,
    should_stop_after_turn as should_stop_after_turn,
)
from ._iterate import EventStream as EventStream, agent_loop as agent_loop, agent_loop_continue as agent_loop_continue
from ._loop import run_agent_loop as run_agent_loop, run_agent_loop_continue as run_agent_loop_continue
from ._messages import (
    AgentMessage as AgentMessage, AssistantContent as AssistantContent, AssistantMessage as AssistantMessage,
    Content as Content, CustomMessage as CustomMessage, ErrorKind as ErrorKind, ImageContent as ImageContent,
    Message as Message, StopReason as StopReason, SystemMessage as SystemMessage, TextContent as TextContent,
    ThinkingContent as ThinkingContent, ThinkingLevel as ThinkingLevel, ToolCall as ToolCall,
    ToolDeclaration as ToolDeclaration, ToolResultMessage as ToolResultMessage, Usage as Usage,
    UserMessage as UserMessage, content_text as content_text,
)
from ._queues import PendingMessageQueue as PendingMessageQueue, QueueMode as QueueMode
from ._state import AgentState as AgentState, RunResult as RunResult
from ._stream import (
    MessageBuilder as MessageBuilder, Model as Model, ModelRequest as ModelRequest, ModelStream as ModelStream,
    SimpleModel as SimpleModel, StreamEvent as StreamEvent, StreamFn as StreamFn, StreamSink as StreamSink,
    StreamStart as StreamStart, TextDelta as TextDelta, TextEnd as TextEnd, TextStart as TextStart,
    ThinkingDelta as ThinkingDelta, ThinkingEnd as ThinkingEnd, ThinkingStart as ThinkingStart,
    ToolCallDelta as ToolCallDelta, ToolCallEnd as ToolCallEnd, ToolCallStart as ToolCallStart,
    get_default_stream_fn as get_default_stream_fn, open_stream as open_stream,
    set_default_stream_fn as set_default_stream_fn,
)
from ._tool import (
    AgentContext as AgentContext, Tool as Tool, ToolCallOutcome as ToolCallOutcome, ToolContext as ToolContext,
    ToolExecutionMode as ToolExecutionMode, ToolResult as ToolResult, tool as tool,
)
from ._transcript import (
    MessageView as MessageView, TranscriptContext as TranscriptContext,
    collapse_system_messages as collapse_system_messages,
    create_initial_system_message as create_initial_system_message, declare_tool_changes as declare_tool_changes,
    default_convert_to_llm as default_convert_to_llm, get_current_system_message as get_current_system_message,
    get_current_system_prompt as get_current_system_prompt, get_current_tools as get_current_tools,
    normalize_context as normalize_context, repair_call_ids as repair_call_ids,
    repair_transcript as repair_transcript,
)
from ._wire import (
    EventDecoder as EventDecoder, event_to_json as event_to_json, message_from_json as message_from_json,
    message_to_json as message_to_json, register_message_type as register_message_type,
    transcript_from_json as transcript_from_json, transcript_to_json as transcript_to_json,
    unregister_message_type as unregister_message_type,
)
# isort: on
# fmt: on

__version__ = "0.1.0"

# Tracebacks, pickles and the reference show where users find a name, not where it is written.
for _value in list(globals().values()):
    if getattr(_value, "__module__", "").startswith("trio_agent._"):
        _value.__module__ = "trio_agent"
del _value
