"""Tools: what a model may call, what runs, what comes of it.

``_definition`` holds the classes and the decorator, ``_schema`` makes JSON Schema of a signature,
``_arguments`` coerces and validates what a model sent, and ``_limits`` says whose turn it is to run.
"""

from ._definition import AgentContext as AgentContext
from ._definition import Tool as Tool
from ._definition import ToolCallOutcome as ToolCallOutcome
from ._definition import ToolContext as ToolContext
from ._definition import ToolExecutionMode as ToolExecutionMode
from ._definition import ToolResult as ToolResult
from ._definition import as_tool_result as as_tool_result
from ._definition import tool as tool
