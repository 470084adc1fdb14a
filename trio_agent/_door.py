"""The one door through which the host's code is entered, and what may come back out of it.

The library's own coroutines are protected from KeyboardInterrupt; what is called through this door
is not (design 7.7). Everything that sorts exceptions by what they mean stands here too.
"""

from __future__ import annotations

import dis
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast, final

import trio

HostCall: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], bool]
"""A function of the host's, its arguments, and whether it is async."""


@trio.lowlevel.disable_ki_protection
async def enter(function: Callable[..., Any], *args: Any) -> Any:
    """Await an async function of the host's, open to KeyboardInterrupt."""
    return await function(*args)


@trio.lowlevel.disable_ki_protection
async def enter_tool(function: Callable[..., Any], arguments: object, context: object) -> Any:
    """Await the body of a tool, open to KeyboardInterrupt."""
    # Without `*args` no tuple stands there as long as the tool runs, for the garbage collector to look at.
    return await function(arguments, context)


@trio.lowlevel.disable_ki_protection
async def enter_each(calls: Iterator[HostCall]) -> None:
    """Call functions of the host's, open to KeyboardInterrupt.

    The door stays open as long as there is somebody to call; one for each call would cost 0.1 microseconds.
    """
    for function, args, is_async in calls:
        if is_async:
            await function(*args)
        elif (value := function(*args)) is not None:
            await awaited(value)


@trio.lowlevel.disable_ki_protection
def enter_plain(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function of the host's, open to KeyboardInterrupt."""
    return function(*args)


@trio.lowlevel.disable_ki_protection
async def enter_awaitable(awaitable: Any) -> Any:
    """Await what a plain function of the host's returned."""
    return await awaitable


async def enter_any(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the host's that may, for all we know, return something to await."""
    return await awaited(enter_plain(function, *args))


async def awaited(value: Any) -> Any:
    """What a plain function of the host's returned, or what comes of it if that is to be awaited."""
    return await enter_awaitable(value) if inspect.isawaitable(value) else value


def got_in(error: BaseException) -> bool:
    """Whether an exception comes from behind the door; False if an interrupt struck in the doorway itself.

    The handler of a signal stands in the traceback like code that was called, so it is the instruction
    at which the door was left that tells.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code not in _DOORWAYS:
        traceback = traceback.tb_next
    return traceback is None or not any(traceback.tb_lasti in part for part in _DOORWAYS[traceback.tb_frame.f_code])


def _doorways(door: Callable[..., Any], *opnames: str) -> list[range]:
    """Where a call is due and not made: behind one instruction and up to another; else from the start of the door."""
    instructions = iter(dis.get_instructions(door))
    offsets = [next(one.offset for one in instructions if one.opname == opname) for opname in opnames]
    if len(offsets) % 2:
        offsets.insert(0, -1)
    return [range(before + 1, entered) for before, entered in zip(offsets[::2], offsets[1::2], strict=True)]


_DOORWAYS = {
    enter.__code__: _doorways(enter, "SEND"),
    enter_tool.__code__: _doorways(enter_tool, "SEND"),
    enter_plain.__code__: _doorways(enter_plain, "CALL_FUNCTION_EX"),
    enter_each.__code__: _doorways(enter_each, "FOR_ITER", "SEND", "JUMP_BACKWARD", "CALL_FUNCTION_EX"),
}
"""The instructions of each door at which the host's code has not been entered."""


def positional_parameters(function: Callable[..., Any]) -> float:
    """How many positional arguments a function takes; infinity if any number, 0 if nobody can say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    count = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return math.inf
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            count += 1
    return count


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling a function gives a coroutine, as far as can be told without calling it."""
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object with an async __call__
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(call)


@final
class Callback:
    """A hook or listener of the host's: plain or async, with or without the Abort behind its arguments."""

    __slots__ = ("function", "is_async", "takes_abort")

    def __init__(self, function: Callable[..., Any], arguments: int) -> None:
        self.function = function
        self.is_async = is_async(function)
        self.takes_abort = positional_parameters(function) > arguments

    async def call(self, *args: Any) -> Any:
        """Call it through the door; the last argument is the Abort."""
        given = args if self.takes_abort else args[:-1]
        return await (enter if self.is_async else enter_any)(self.function, *given)


def host_cancelled() -> bool:
    """Whether a scope around the current task is cancelled, be it that nobody has noticed yet."""
    return trio.current_effective_deadline() == -math.inf


class Parts(NamedTuple):
    """An exception, sorted by what it means."""

    fatal: BaseException | None
    """KeyboardInterrupt, SystemExit and the like: passes on bare, before every other cause."""
    cancelled: BaseException | None
    """Cancelled, alone or in a group: goes on to the scope that it belongs to."""
    failure: Exception | None
    """What is left: a failure of the code that raised it."""

    @classmethod
    def of(cls, error: BaseException) -> Parts:
        """Sort an exception; a group is split, its order kept."""
        if isinstance(error, trio.Cancelled):
            return cls(None, error, None)
        if not isinstance(error, BaseExceptionGroup):
            return cls(None, None, error) if isinstance(error, Exception) else cls(error, None, None)
        cancelled, rest = error.split(trio.Cancelled)
        failure, fatal = rest.split(Exception) if rest is not None else (None, None)
        # Of several of a kind that is passed on, one is enough: it is level-triggered, or ends it all.
        return cls(_leaf(fatal), _leaf(cancelled), failure)


def _leaf(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def failure_of(error: BaseException) -> Exception:
    """The failure in what the host's code raised; whatever is no failure of it is raised on."""
    parts = Parts.of(error)
    other = parts.fatal or parts.cancelled
    if other is not None:
        raise other from None
    return cast("Exception", parts.failure)


def bare(errors: Sequence[BaseException]) -> BaseException:
    """The one to raise of several, most of them out of the group that a nursery of our own made.

    What is neither an Exception nor Cancelled goes before everything, then the first Exception, then
    Cancelled.
    """
    best = errors[0]
    for error in errors:
        if not isinstance(error, Exception | trio.Cancelled):
            return error
        if isinstance(best, trio.Cancelled):
            best = error
    return best
