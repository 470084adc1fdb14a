"""What a model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs

from trio_agent._messages import Message, ThinkingLevel
from trio_agent._transcript import TranscriptContext

if TYPE_CHECKING:
    from ._sink import StreamFn


class Model(Protocol):
    """What an agent is given as its model: a name, and perhaps a way to reach it."""

    @property
    def provider(self) -> str:
        """Who runs the model; what ``get_api_key`` is asked with."""
        ...

    @property
    def id(self) -> str:
        """The provider's name for the model."""
        ...

    @property
    def stream_fn(self) -> StreamFn | None:
        """How the model is reached; None leaves it to the agent or the default."""
        ...


@final
@attrs.frozen
class SimpleModel:
    """A model that is a name, and perhaps a stream function."""

    provider: str
    id: str
    stream_fn: StreamFn | None = None


@final
@attrs.frozen
class ModelRequest:
    """One request to a model."""

    model: Model
    context: TranscriptContext
    """The normalised transcript; prompt and tools are in its system messages."""
    thinking_level: ThinkingLevel = "off"
    api_key: str | None = attrs.field(default=None, repr=False)
    session_id: str | None = None
    """For providers that cache by session."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """What only the stream function reads (``thinking_budgets``, ``on_payload`` ...)."""

    @property
    def messages(self) -> Sequence[Message]:
        """The messages: a read-only view that does not change during the request."""
        return self.context.messages
