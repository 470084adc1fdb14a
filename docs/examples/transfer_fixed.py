"""The tool of transfer.py, mended: no cut comes between the two halves of a transfer."""

from __future__ import annotations

import trio
from transfer import Bank

from trio_agent import Tool, tool


def transfer_tool(bank: Bank) -> Tool:
    @tool
    async def transfer(source: str, target: str, amount: int) -> str:
        """Move money from one account to another."""
        with trio.move_on_after(5, shield=True):
            await bank.withdraw(source, amount)
            try:
                await bank.deposit(target, amount)
            except ValueError as refusal:
                await bank.deposit(source, amount)
                return f"nothing was moved: {refusal}"
            return f"moved {amount} from {source} to {target}"
        raise TimeoutError("the bank does not answer; somebody must look at both accounts")

    return transfer
