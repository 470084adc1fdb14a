import trio

from trio_agent import Agent, ToolCall, tool
from trio_agent.testing import Probe, ScriptedModel, explore, explore_key_interrupts


async def printing(probe: Probe) -> None:
    printers = trio.CapacityLimiter(2)

    @tool(limiter=printers)
    async def print_page(number: int) -> str:
        """Print a page; it takes a second."""
        await trio.sleep(1)
        return f"page {number} is printed"

    def every_printer_is_free() -> None:
        assert printers.borrowed_tokens == 0, f"{printers.borrowed_tokens} printers are still taken"

    probe.check(every_printer_is_free)
    calls = [ToolCall(f"c{number}", "print_page", {"number": number}) for number in (1, 2, 3)]
    agent = probe.watch(Agent(ScriptedModel([calls, "Printed."]), tools=[print_page]))
    await agent.prompt("Print three pages.")


for found in (
    explore(printing, acts=["abort", "cancel", "cancel_tool"]),
    explore(printing, seeds=0, schedules=5, pairs=40, sample=20, modes=["plain", "checkpoints"]),
    explore_key_interrupts(printing, every=50),
):
    found.raise_for_failures()
    print(found)
