"""Processes that end with the call that started them, with all their descendants.

Trio's own ``run_process`` signals only the direct child (known faults B102 and B104). Here each
process leads a session and process group of its own, and the group is ended however the block is
left: SIGTERM, then SIGKILL after a grace. What leaves its group on purpose (``setsid``) is out of reach.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast, final

import attrs
import trio

from trio_agent._errors import TrioAgentError

__all__ = ["Ended", "ProcessLeftError", "run_group"]

_CHUNK = 64 * 1024

_KILL_PATIENCE = 1.0
"""Seconds until a group that SIGKILL did not end is reported (it hangs in the kernel, or is another user's)."""

_DRAIN_LIMIT = 1024 * 1024
"""Bytes read after the end; no pipe of Linux holds more, unless somebody goes on writing."""


class ProcessLeftError(TrioAgentError):
    """Processes of a command could not be ended; the text is meant for the model."""


@final
@attrs.frozen
class Ended:
    """How a process and its group came to their end."""

    returncode: int
    """The exit status; below 0 the number of the signal that killed the process."""
    timed_out: bool
    """Whether the time was up."""
    background: bool
    """Whether the process had ended by itself and left others behind, which were then ended."""


@trio.lowlevel.enable_ki_protection  # or an interrupt by key could come between start and clean-up
async def run_group(
    command: Sequence[str],
    sinks: Sequence[Callable[[bytes], object]],
    *,
    cwd: str,
    env: Mapping[str, str],
    grace: float,
    time_limit: float | None = None,
    kill_now: trio.Event | None = None,
    pass_fds: Sequence[int] = (),
    beside: Callable[[], Awaitable[None]] | None = None,
) -> Ended:
    """Run a process as the leader of a group of its own, and end the group with it.

    Standard input is empty. The group is ended when its leader is over, its time is up, or the
    caller is cut; a cancellation waits for that, up to the grace and a second more, and so does an
    interrupt by key, however many come. The output is read until then, so that nobody is stuck in
    a full pipe while he cleans up.

    Args:
      command: the program and its arguments.
      sinks: what is called with the bytes of standard output and of standard error; if there is
        only one it gets both as they come.
      cwd: the working directory.
      env: the whole environment.
      grace: seconds between SIGTERM and SIGKILL.
      time_limit: seconds that the process may run.
      kill_now: once set, there is no grace.
      pass_fds: descriptors that the process inherits.
      beside: runs beside it and is cancelled with its end.

    Raises:
      OSError: the process cannot be started.
      ProcessLeftError: part of the group is still there after SIGKILL; takes the place of everything
        but KeyboardInterrupt and its like, which pass on bare.
    """
    # No shield around this: its wait for a worker thread must end with a cut, or processes would
    # be started after it. Once the thread starts the process a cancellation has no effect (that is
    # what to_thread.run_sync promises), and no checkpoint follows before the try below.
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if len(sinks) == 1 else subprocess.PIPE,
        cwd=cwd,
        env=env,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    streams = [cast("trio.lowlevel.FdStream", s) for s in (process.stdout, process.stderr) if s is not None]
    limit = trio.CancelScope(relative_deadline=math.inf if time_limit is None else time_limit)
    reading = trio.CancelScope(shield=True)
    gone = background = False

    # All that waits for the group does so in a child. Trio raises interrupts by key in its main task,
    # which a shield does not keep out; if that is ours, it waits for the children at the end of the
    # nursery, where an interrupt is kept until they are through.
    @trio.lowlevel.enable_ki_protection
    async def lead() -> None:
        nonlocal gone, background
        try:
            with limit:
                await process.wait()
                background = _alive(process)
        finally:
            try:
                gone = await _end(process, grace, kill_now)  # noqa: ASYNC102 - each wait in it has shield and deadline
            finally:
                reading.cancel(reason="the processes are over")
                nursery.cancel_scope.cancel(reason="the processes are over")

    @trio.lowlevel.enable_ki_protection
    async def read(stream: trio.lowlevel.FdStream, sink: Callable[[bytes], object]) -> None:
        while data := await stream.receive_some(_CHUNK):
            sink(data)

    @trio.lowlevel.enable_ki_protection
    async def read_all() -> None:
        with reading:
            async with trio.open_nursery() as readers:
                for stream, sink in zip(streams, sinks, strict=True):
                    readers.start_soon(read, stream, sink)

    errors: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lead)
            nursery.start_soon(read_all)
            if beside is not None:
                nursery.start_soon(beside)
        for stream, sink in zip(streams, sinks, strict=True):
            _drain(stream, sink)
    except BaseExceptionGroup as group:
        errors.extend(group.exceptions)
    finally:
        for stream in streams:
            stream.close()
    if not gone:
        errors.insert(
            0,
            ProcessLeftError(
                f"processes of the command could not be ended; the process group {process.pid} is still there"
            ),
        )
    if errors:
        # The first of the gravest: KeyboardInterrupt and its like, then a failure, then Cancelled.
        raise min(errors, key=lambda error: (isinstance(error, trio.Cancelled), isinstance(error, Exception)))
    assert process.returncode is not None
    return Ended(process.returncode, limit.cancelled_caught, background)


async def _end(process: trio.Process, grace: float, kill_now: trio.Event | None) -> bool:
    """End the whole group; whether that worked. Whatever is raised in the grace, SIGKILL is sent."""
    gone = not _alive(process)
    try:
        if not gone:
            _signal(process, signal.SIGTERM)
            # A stopped process sees the SIGTERM only once it goes on.
            _signal(process, signal.SIGCONT)
            gone = await _gone(process, grace, kill_now)
    finally:
        if not gone:
            _signal(process, signal.SIGKILL)
            gone = await _gone(process, _KILL_PATIENCE, None)  # noqa: ASYNC102 - it has shield and deadline
    return gone


async def _gone(process: trio.Process, patience: float, hurry: trio.Event | None) -> bool:
    """Whether the group ends within some seconds, or before an event is set; shielded.

    There is nothing to wait for but the leader, which may be long dead, so this looks again and again.
    """
    pause = 0.001
    with trio.move_on_after(patience, shield=True):
        while _alive(process):
            if hurry is not None and hurry.is_set():
                return False
            await trio.sleep(pause)
            pause = min(2 * pause, 0.05)
        return True
    return not _alive(process)


def _signal(process: trio.Process, number: signal.Signals) -> None:
    # The number of the group cannot mean somebody else's by now: it is taken as long as the group
    # has a member, and it was seen to have one at most one pause ago.
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _alive(process: trio.Process) -> bool:
    """Whether the group has a member that is more than a zombie. Reaps the leader."""
    leader_runs = process.poll() is None
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return leader_runs or not _only_zombies(process.pid)


def _only_zombies(group: int) -> bool:
    """Whether all members are dead but not reaped, as happens in containers without an init."""
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - only names are needed
    except OSError:
        return False
    found = False
    for entry in entries:
        if not entry.isdigit():
            continue
        try:
            line = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue
        # "pid (name) state parent group ...", where the name may hold anything.
        state, _, member_of = line[line.rindex(b")") + 2 :].split()[:3]
        if int(member_of) == group:
            found = True
            if state not in (b"Z", b"X"):
                return False
    return found


def _drain(stream: trio.lowlevel.FdStream, sink: Callable[[bytes], object]) -> None:
    """Take what stands in a pipe, without waiting for more."""
    size = 0
    while size < _DRAIN_LIMIT:
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except OSError:  # mostly BlockingIOError: somebody who left the group holds the other end
            return
        if not data:
            return
        sink(data)
        size += len(data)
