import hashlib
import time

import trio

from trio_agent import ToolCall, ToolContext, ToolResult, run_tool_call, tool


@tool
def digest(rounds: int, ctx: ToolContext) -> str:
    """Hash something many times. A plain function: it runs in a worker thread."""
    value = b"start"
    for number in range(1, rounds + 1):
        value = hashlib.sha256(value).digest()
        if number % 1000 == 0:
            trio.from_thread.check_cancelled()  # raises trio.Cancelled if the call was cut
            ctx.update_from_thread(f"{number} rounds")
    return value.hex()[:8]


@tool(abandon_on_cancel=True, timeout=0.2)
def stubborn() -> None:
    """Block, and look at nothing."""
    time.sleep(1)


def report(partial: ToolResult) -> None:
    print("update:", partial.text)


async def main() -> None:
    outcome = await run_tool_call(ToolCall("c1", "digest", {"rounds": 2000}), tools=[digest], on_update=report)
    print(outcome.result.text)
    outcome = await run_tool_call(ToolCall("c2", "stubborn"), tools=[stubborn])
    print(outcome.result.error_kind, "-", outcome.result.text)


trio.run(main)
