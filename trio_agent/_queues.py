"""The queues of messages that wait for a run to take them, over memory channels.

The inbox is a channel; behind it stands a short head. Previewing and draining move messages from
the inbox into the head, and messages that a cut run gives back return to its front. The bound is
the channel's: what stands in the head does not count.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, cast, final

import trio

from ._errors import QueueFullError
from ._hooks import check_choice
from ._messages import AgentMessage, UserMessage

QueueMode: TypeAlias = Literal["all", "one-at-a-time"]
"""How much a drain takes: everything, or the oldest message."""


def as_messages(messages: str | AgentMessage | Iterable[str | AgentMessage]) -> list[AgentMessage]:
    """Make messages of what a caller may give for them: a text, a message, or several of either."""
    several = [messages] if isinstance(messages, str) or hasattr(messages, "role") else messages
    result: list[AgentMessage] = []
    for message in cast("Iterable[str | AgentMessage]", several):
        if not isinstance(message, str) and not hasattr(message, "role"):
            raise TypeError(f"{message!r:.80} is no message: give a string, a message or several of them")
        result.append(UserMessage(message) if isinstance(message, str) else message)
    return result


@final
class PendingMessageQueue:
    """Messages that wait to be taken: ``agent.steering`` and ``agent.follow_ups``.

    A message is in here until its ``message_start``: what a run has drained but not yet taken is
    kept aside and comes back to the front if the run is cut.
    """

    __slots__ = ("_handed", "_head", "_mode", "_receive", "_send")

    def __init__(self, mode: QueueMode = "one-at-a-time", capacity: float = math.inf) -> None:
        self.mode = mode
        self._send, self._receive = trio.open_memory_channel[AgentMessage](capacity)
        self._head: deque[AgentMessage] = deque()
        self._handed: list[AgentMessage] = []

    @property
    def mode(self) -> QueueMode:
        """How much the next drain takes."""
        return self._mode

    @mode.setter
    def mode(self, mode: QueueMode) -> None:
        check_choice("the mode of a queue", mode, ("all", "one-at-a-time"))
        self._mode = mode

    # Putting in.

    @trio.lowlevel.enable_ki_protection
    def put(self, messages: Sequence[AgentMessage]) -> None:
        """Queue messages at the end, all or none; never blocks.

        Raises:
          QueueFullError: there is no room for all of them.
        """
        statistics = self._receive.statistics()
        room = statistics.max_buffer_size - statistics.current_buffer_used
        if statistics.tasks_waiting_send or len(messages) > room:
            raise QueueFullError(
                f"the queue holds {statistics.current_buffer_used} of {statistics.max_buffer_size} messages, "
                f"no room for {len(messages)} more; wait with `await queue.send(message)` or make it larger"
            )
        for message in messages:
            self._send.send_nowait(message)

    def put_front(self, messages: Sequence[AgentMessage]) -> None:
        """Queue messages ahead of all others; always accepted."""
        self._head.extendleft(reversed(messages))

    async def send(self, message: str | AgentMessage) -> None:
        """Queue one message at the end and wait for room. Always a checkpoint.

        Cancelled while waiting, nothing is queued. Not from a listener or hook of the run that
        takes the messages: it would wait for itself.
        """
        (one,) = as_messages(message)
        await self._send.send(one)

    def clone_sender(self) -> trio.MemorySendChannel[AgentMessage]:
        """A sending end of the inbox, to be handed to another task. Closing it closes nothing else."""
        return self._send.clone()

    # Looking.

    def peek(self) -> list[AgentMessage]:
        """What the next drain would take; nothing is taken."""
        self._fill()
        return list(self._head) if self._mode == "all" else list(self._head)[:1]

    def __len__(self) -> int:
        """How many messages wait, those included that a run has drained but not yet taken."""
        statistics = self._receive.statistics()
        waiting = statistics.current_buffer_used + statistics.tasks_waiting_send
        return len(self._handed) + len(self._head) + waiting

    # Taking out: for the run that consumes the queue. It is what the loop calls a
    # GetQueuedMessages, and may be given to run_agent_loop() as it is.

    @trio.lowlevel.enable_ki_protection
    def drain(self) -> list[AgentMessage]:
        """Hand out what the mode says; kept aside until :meth:`taken` or :meth:`put_back`."""
        drained = self.peek()
        self._handed.extend(self._head.popleft() for _ in drained)
        return drained

    __call__ = drain

    def taken(self, message: AgentMessage) -> None:
        """A message that was handed out stands in the transcript now."""
        for index, handed in enumerate(self._handed):
            if handed is message:
                del self._handed[index]
                return

    def put_back(self, messages: Sequence[AgentMessage] = ()) -> None:
        """Return to the front what was handed out and not taken; what was cleared since stays away."""
        self.put_front(self._handed)
        self._handed.clear()

    @trio.lowlevel.enable_ki_protection
    def clear(self) -> None:
        """Drop everything, also what a run has drained but not yet taken, should it be cut."""
        self._fill()
        self._head.clear()
        self._handed.clear()

    @trio.lowlevel.enable_ki_protection
    def _fill(self) -> None:
        while True:
            try:
                self._head.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                return
