"""The errors that trio_agent raises.

::

    TrioAgentError
    ├── UsageError                  the caller broke a rule; nothing was changed
    │   ├── BusyError               (also trio.BusyResourceError) a run is active
    │   ├── ContinueError           resume() has nothing to go on from
    │   ├── QueueFullError          (also trio.WouldBlock) a bounded queue is full
    │   ├── ToolDefinitionError     a tool cannot be made of this function or schema
    │   └── NoStreamFnError         nobody said how the model is reached
    ├── FormatError                 (also ValueError) a document is not what it should be
    ├── InvalidArgumentsError       a model's arguments do not fit the tool's schema
    ├── StreamError                 a stream function broke the stream contract
    └── RunFailedError              asked for by RunResult.raise_for_error()

Errors of providers, of the testing kit and of single tools derive from :class:`TrioAgentError`
in their own packages. Whatever a host's own hook, listener or tool raises is never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio


class TrioAgentError(Exception):
    """The root of all errors that this library defines."""


class UsageError(TrioAgentError):
    """The caller broke a rule of the library. Nothing was changed by the refused call."""


class BusyError(UsageError, trio.BusyResourceError):
    """The call needs an idle agent, but a run is active.

    Use ``steer()`` or ``follow_up()`` to give a running agent more to do, or ``wait_for_idle()``.
    """


class ContinueError(UsageError):
    """``resume()`` or ``run_agent_loop_continue()`` has nothing that a model could answer.

    Attributes:
      tail: ``"empty"`` if the transcript is empty or holds only system messages, ``"assistant"``
        if it ends with an answer and nothing is queued.
    """

    def __init__(self, message: str, tail: str = "empty") -> None:
        super().__init__(message, tail)
        self.tail = tail

    def __str__(self) -> str:
        return str(self.args[0])


class QueueFullError(UsageError, trio.WouldBlock):
    """A bounded queue is full. Nothing was queued; ``await queue.send(...)`` waits for room."""


class ToolDefinitionError(UsageError):
    """A tool cannot be made of this function, or its JSON Schema is not one."""


class NoStreamFnError(UsageError):
    """Neither the agent nor its model names a stream function, and no default was set."""


class FormatError(TrioAgentError, ValueError):
    """A JSON document is not a message, transcript, event or scenario of a known format."""


class InvalidArgumentsError(TrioAgentError):
    """The arguments of a call do not fit the schema of its tool.

    Attributes:
      tool_name: the name of the tool.
      errors: one line for each fault, each beginning with its path (``$.days: ...``).
    """

    def __init__(self, tool_name: str, errors: Sequence[str]) -> None:
        super().__init__(tool_name, tuple(errors))
        self.tool_name = tool_name
        self.errors = tuple(errors)

    def __str__(self) -> str:
        lines = "\n".join(f"- {error}" for error in self.errors)
        return f"The arguments of {self.tool_name!r} do not fit its schema:\n{lines}"


class StreamError(TrioAgentError):
    """A stream function broke the stream contract: no final message, or events out of order."""


class RunFailedError(TrioAgentError):
    """A run did not end well; raised only by ``RunResult.raise_for_error()``.

    Attributes:
      stop_reason: ``"error"`` or ``"aborted"``.
    """

    def __init__(self, message: str, stop_reason: str = "error") -> None:
        super().__init__(message, stop_reason)
        self.stop_reason = stop_reason

    def __str__(self) -> str:
        return str(self.args[0])
