"""How things get from a child task to the run's own."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar, final

import trio

_T = TypeVar("_T")

SINK_SIZE = 32
"""Events that a stream function may be ahead of the listeners before ``send`` waits."""


@final
class Line(Generic[_T]):
    """What children have handed over and the run's task has not yet told, and whoever waits to hand over more.

    It behaves as a memory channel of Trio's with one receiver does. A channel costs 0.6 microseconds more
    for each item, as it goes through four Python calls on either side.
    """

    __slots__ = ("_came", "_ended", "_senders", "items", "room")

    def __init__(self, room: float = SINK_SIZE) -> None:
        self.items: deque[_T] = deque()
        self.room = room
        """How many may stand in the line; none once it has ended."""
        self._senders: OrderedDict[trio.lowlevel.Task, _T] = OrderedDict()
        self._came = trio.Event()
        self._ended = False

    def append(self, item: _T) -> None:
        """Append an item to a line that has no bound and no end."""
        if not self.items:  # else whoever waits has been woken already
            self._came.set()
        self.items.append(item)

    async def put(self, item: _T) -> None:
        """Append an item where more than that may have to be done: somebody waits, on either side."""
        if len(self.items) >= self.room and not self._ended:
            await trio.lowlevel.checkpoint_if_cancelled()
        if self._ended:
            raise trio.ClosedResourceError
        if len(self.items) < self.room:
            self.items.append(item)
            self._came.set()
            return
        task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._senders[task]
            return trio.lowlevel.Abort.SUCCEEDED

        self._senders[task] = item
        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._senders.pop(task, None) is not None:
            raise trio.ClosedResourceError

    def take(self) -> _T:
        """The next item; there must be one. The first of those who wait to send gets its place."""
        item = self.items.popleft()
        if self._senders and not self._ended:
            task, waiting = self._senders.popitem(last=False)
            self.items.append(waiting)
            trio.lowlevel.reschedule(task)
        return item

    async def wait(self) -> bool:
        """Wait for an item; False if none will come. A cancellation changes nothing.

        Always a checkpoint; at the end, where there is nothing to wait for, only if cancelled.
        """
        while self.items or not self._ended:
            if not self.items and self._came.is_set():
                self._came = trio.Event()
            await self._came.wait()
            if self.items:
                return True
        await trio.lowlevel.checkpoint_if_cancelled()
        return False

    def end(self) -> None:
        """Let no more be sent; those who wait to send are refused, too. What stands in the line can be taken."""
        self._ended, self.room = True, 0
        for task in self._senders:
            trio.lowlevel.reschedule(task)
        self._came.set()
