"""Tools: what a model may call, what runs, what comes of it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, final, overload

import attrs
import msgspec
import trio

from trio_agent._door import is_async
from trio_agent._errors import ToolDefinitionError
from trio_agent._messages import (
    AgentMessage,
    AssistantMessage,
    Content,
    ErrorKind,
    TextContent,
    ToolCall,
    ToolDeclaration,
    Usage,
    as_content,
    content_text,
)
from trio_agent._values import quickly_made

from ._arguments import Validator
from ._schema import describe_function

ToolExecutionMode: TypeAlias = Literal["parallel", "sequential"]
"""Whether the calls of one message run side by side or one after the other."""


@final
@quickly_made
@attrs.frozen
class ToolResult:
    """What a tool answers, or, in an update, what it has so far."""

    content: tuple[Content, ...] = attrs.field(default=(), converter=as_content)
    """What the model sees; a string is taken as one block of text."""
    details: Any = attrs.field(default=None, kw_only=True)
    """Plain JSON for logs and user interfaces; no model sees it."""
    structured_content: Any = attrs.field(default=None, kw_only=True)
    """The result as plain JSON, for programs that call the tool; no model sees it."""
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    """What the tool itself spent on models."""
    is_error: bool = attrs.field(default=False, kw_only=True)
    """True reports a failure without raising; details and structured content are kept."""
    terminate: bool = attrs.field(default=False, kw_only=True)
    """A hint that no request need follow; it counts only if every result of the batch gives it."""
    error_kind: ErrorKind | None = attrs.field(default=None, kw_only=True)
    """Which of the library's own errors this is; None for what the tool said itself."""

    @property
    def text(self) -> str:
        """All text blocks, joined with newlines."""
        return content_text(self.content)


def as_tool_result(value: object) -> ToolResult:
    """Make a result of what a tool function returned.

    A :class:`ToolResult` is taken as it is and a string as text. Any other value that can be
    written as JSON (attrs classes, dataclasses and msgspec structs among them) becomes text and
    ``structured_content``; None is an empty result.

    Raises:
      TypeError: the value cannot be written as JSON.
    """
    if type(value) is ToolResult:
        return value
    if isinstance(value, str):
        return ToolResult((TextContent(value),))
    if value is None:
        return ToolResult()
    try:
        # msgspec would sort the fields of an attrs class.
        known: Any = attrs.asdict(cast("Any", value)) if attrs.has(type(value)) else value
        plain = msgspec.to_builtins(known, str_keys=True)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a tool returned {value!r:.80}, which cannot be written as JSON ({error}); "
            "return a string, a ToolResult or plain JSON"
        ) from error
    return ToolResult((TextContent(text),), structured_content=plain)


@final
@attrs.frozen
class ToolCallOutcome:
    """What came of one call, after its hooks ran."""

    tool_call: ToolCall
    result: ToolResult
    is_error: bool


@final
class ToolContext:
    """What a tool may know of, and do in, the call that it runs in.

    A parameter of this type is filled in by the library and not shown to the model. It is worth
    something only while the call runs: afterwards updates are ignored.
    """

    __slots__ = ("_call", "_caller", "_nested")

    def __init__(self, caller: Any, call: Any) -> None:  # a Caller and its Call, of modules above this one
        self._caller = caller
        self._call = call
        self._nested = 0

    @property
    def tool_call_id(self) -> str:
        """The id of the call, as in the transcript."""
        return self.tool_call.id

    @property
    def tool_call(self) -> ToolCall:
        """The call as the model made it, with its raw arguments."""
        call: ToolCall = self._call.tool_call
        return call

    @property
    def assistant_message(self) -> AssistantMessage:
        """The answer that asked for the call."""
        message: AssistantMessage = self._caller.assistant_message
        return message

    @property
    def context(self) -> AgentContext:
        """The messages and tools of the run when the call was prepared."""
        context: AgentContext = self._call.context
        return context

    async def update(self, partial: ToolResult | str) -> None:
        """Report progress: listeners get a ``tool_execution_update``.

        Hands over at once and without a checkpoint if the update before has been told; else it
        waits until it has, so that a tool which is faster than the listeners is slowed down.
        After the call's end it does nothing. A cancellation while it waits drops this update.

        Args:
          partial: what there is so far; a string is taken as text.
        """
        await self._caller.update(self._call, as_tool_result(partial))

    def update_from_thread(self, partial: ToolResult | str) -> None:
        """What :meth:`update` does, for a tool function that runs in a worker thread.

        Blocks the thread until the update is handed over. After the call's end it does nothing.

        Raises:
          trio.Cancelled: the call was cut while the thread waited.
        """
        self._caller.update_from_thread(self._call, as_tool_result(partial))

    async def run_tool_call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, id: str | None = None
    ) -> ToolCallOutcome:
        """Run another tool of the run, with the run's two tool hooks; see :func:`run_tool_call`.

        Args:
          name: the name of the tool.
          arguments: what a model would send.
          id: the id of the inner call; by default this call's id, a slash and a number.
        """
        self._nested += 1
        inner = ToolCall(id or f"{self.tool_call_id}/{self._nested}", name, dict(arguments or {}))
        outcome: ToolCallOutcome = await self._caller.run_nested(self._call, inner)
        return outcome


PrepareArguments: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Mends raw arguments before they are validated."""


def _empty_object() -> Mapping[str, Any]:
    return {"type": "object", "properties": {}}


@final
@attrs.frozen(eq=False)
class Tool:
    """A tool: its declaration, and what runs when a model calls it.

    Most tools are made by the decorator :func:`tool`. This form takes any JSON Schema.

    Raises:
      ToolDefinitionError: the name is empty or the schema is none.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=_empty_object)
    """The JSON Schema of the arguments; its type is ``object``."""
    execute: Callable[[dict[str, Any], ToolContext], Any] = attrs.field(kw_only=True)
    """Called with the validated arguments and the context; async, or plain and then run in a thread.

    An exception becomes an error result of this call alone.
    """
    label: str = attrs.field(default="", kw_only=True)
    """What a user interface calls the tool; by default its name."""
    execution_mode: ToolExecutionMode | None = attrs.field(default=None, kw_only=True)
    """``sequential`` makes every batch that calls this tool run one call after the other."""
    prepare_arguments: PrepareArguments | None = attrs.field(default=None, kw_only=True)
    """Mends raw arguments before they are validated; an exception is an error result."""
    output_schema: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True)
    """The JSON Schema of ``structured_content``, for programs that call the tool."""
    timeout: float | None = attrs.field(default=None, kw_only=True)
    """Seconds that a call may take once it holds its limiters; then it alone gets an error result."""
    limiter: trio.CapacityLimiter | None = attrs.field(default=None, kw_only=True)
    """Held while a call runs; may be shared by tools and agents."""
    in_thread: bool = attrs.field(default=True, kw_only=True)
    """False runs a plain function in Trio's own thread, for libraries that are bound to one."""
    abandon_on_cancel: bool = attrs.field(default=False, kw_only=True)
    """True lets a cut leave the worker thread of a plain function behind; the result says so."""
    function: Callable[..., Any] | None = attrs.field(default=None, kw_only=True, repr=False)
    """What :func:`tool` decorated; calling the tool calls it, so that it can be tested by itself."""
    declaration: ToolDeclaration = attrs.field(init=False, repr=False)
    """What the model is told."""
    is_async: bool = attrs.field(init=False, repr=False)
    """Whether ``execute`` is an async function."""
    validate: Validator = attrs.field(init=False, repr=False)
    """Coerces and validates raw arguments; compiled once."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ToolDefinitionError(f"a tool needs a name, not {self.name!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ToolDefinitionError(f"tool {self.name!r}: timeout is {self.timeout!r}, but must be above 0")
        if self.execution_mode not in (None, "parallel", "sequential"):
            raise ToolDefinitionError(
                f"tool {self.name!r}: execution_mode is {self.execution_mode!r}, "
                "but must be 'parallel', 'sequential' or None"
            )
        put = object.__setattr__  # the computed fields of a frozen class
        put(self, "label", self.label or self.name)
        put(self, "declaration", ToolDeclaration(self.name, self.description, self.parameters))
        put(self, "is_async", is_async(self.execute) or is_async(inspect.unwrap(self.execute)))
        put(self, "validate", Validator(self.name, self.parameters))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function itself: no validation, no hooks, no time limit.

        Raises:
          TypeError: the tool was not made by :func:`tool`; call its ``execute``.
        """
        if self.function is None:
            raise TypeError(f"tool {self.name!r} was not made of a function; call its execute(arguments, context)")
        return self.function(*args, **kwargs)


@final
@attrs.frozen
class AgentContext:
    """What a run works on: the messages that the model sees, and the tools that it may call."""

    messages: Sequence[AgentMessage] = ()
    tools: Sequence[Tool] = ()


# -------------------------------------------------------------- decorator


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    label: str = "",
    execution_mode: ToolExecutionMode | None = None,
    prepare_arguments: PrepareArguments | None = None,
    timeout: float | None = None,
    limiter: trio.CapacityLimiter | None = None,
    in_thread: bool = True,
    abandon_on_cancel: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a :class:`Tool` of an async or plain function.

    Name, description, parameters and their descriptions come from the function's name, signature
    and docstring (Google or Sphinx style). ``Annotated[..., msgspec.Meta(...)]`` adds constraints;
    defaults make a parameter optional; ``Literal``, enums, optionals, lists, nested attrs classes
    and dataclasses are understood. A parameter annotated with :class:`ToolContext` is filled in
    and not shown to the model. A plain function runs in a worker thread.

    Args:
      function: the function, where the decorator is used without parentheses.
      name: in place of the function's name.
      description: in place of the docstring's.
      **settings: as in :class:`Tool`.

    Raises:
      ToolDefinitionError: a parameter has no annotation, or one that has no JSON Schema.
    """

    def make(function: Callable[..., Any]) -> Tool:
        described = describe_function(function, ToolContext, name)
        return Tool(
            described.name,
            described.description if description is None else description,
            described.parameters,
            execute=described.execute,
            function=function,
            **settings,
        )

    return make if function is None else make(function)
