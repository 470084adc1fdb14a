import os
import signal
from collections.abc import AsyncIterator

import trio

from trio_agent import Agent, ToolCall, ToolExecutionUpdate, ToolResultMessage
from trio_agent.testing import ScriptedModel
from trio_agent.tools import run_command

call = ToolCall("c1", "run_command", {"command": "echo $$; exec sleep 1000"})
agent = Agent(ScriptedModel([call]), tools=[run_command(".")])
groups: list[int] = []


async def cancel_at(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for number in signals:
        print("received", signal.Signals(number).name)
        scope.cancel(reason=signal.Signals(number).name)


def terminate(event: ToolExecutionUpdate) -> None:
    """Do what a service manager does, as soon as the command has told its process group."""
    groups.append(int(event.partial_result.text))
    os.kill(os.getpid(), signal.SIGTERM)


async def main() -> None:
    agent.subscribe(terminate, ToolExecutionUpdate)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_at, signals, nursery.cancel_scope)
            await agent.prompt("Wait for a while.")
            nursery.cancel_scope.cancel(reason="the prompt is over")
    for message in agent.messages:
        if isinstance(message, ToolResultMessage):
            print(message.text)
    try:
        os.killpg(groups[0], 0)
    except ProcessLookupError:
        print("the group is gone")


trio.run(main)
