"""The stream contract: what a model is asked, what it pushes, and how its answer is put together.

A stream function pushes events into a sink and returns the final message. It fails by raising;
a cancellation passes through it. No iterator outlives its consumer.
"""

from ._answer import MessageBuilder as MessageBuilder
from ._answer import StreamEvent as StreamEvent
from ._answer import StreamStart as StreamStart
from ._answer import TextDelta as TextDelta
from ._answer import TextEnd as TextEnd
from ._answer import TextStart as TextStart
from ._answer import ThinkingDelta as ThinkingDelta
from ._answer import ThinkingEnd as ThinkingEnd
from ._answer import ThinkingStart as ThinkingStart
from ._answer import ToolCallDelta as ToolCallDelta
from ._answer import ToolCallEnd as ToolCallEnd
from ._answer import ToolCallStart as ToolCallStart
from ._answer import parse_arguments as parse_arguments
from ._answer import parse_partial_arguments as parse_partial_arguments
from ._line import SINK_SIZE as SINK_SIZE
from ._line import Line as Line
from ._request import Model as Model
from ._request import ModelRequest as ModelRequest
from ._request import SimpleModel as SimpleModel
from ._sink import ModelStream as ModelStream
from ._sink import StreamFn as StreamFn
from ._sink import StreamSink as StreamSink
from ._sink import checked_answer as checked_answer
from ._sink import get_default_stream_fn as get_default_stream_fn
from ._sink import open_stream as open_stream
from ._sink import resolve_stream_fn as resolve_stream_fn
from ._sink import set_default_stream_fn as set_default_stream_fn
