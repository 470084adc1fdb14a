"""An agent that moves money between two accounts. If the second half is refused, its tool puts the money back."""

from __future__ import annotations

import trio

from trio_agent import Agent, Tool, ToolCall, tool
from trio_agent.testing import ScriptedModel


class Bank:
    """Two accounts on a far machine: each order takes a tenth of a second."""

    def __init__(self) -> None:
        self.accounts = {"wages": 900, "rent": 0}

    async def withdraw(self, account: str, amount: int) -> None:
        await trio.sleep(0.1)
        if self.accounts.get(account, 0) < amount:
            raise ValueError(f"{account} does not hold {amount}")
        self.accounts[account] -= amount

    async def deposit(self, account: str, amount: int) -> None:
        await trio.sleep(0.1)
        if account not in self.accounts:
            raise ValueError(f"there is no account {account}")
        self.accounts[account] += amount


def transfer_tool(bank: Bank) -> Tool:
    @tool
    async def transfer(source: str, target: str, amount: int) -> str:
        """Move money from one account to another."""
        await bank.withdraw(source, amount)
        try:
            await bank.deposit(target, amount)
        except ValueError as refusal:
            await bank.deposit(source, amount)
            return f"nothing was moved: {refusal}"
        return f"moved {amount} from {source} to {target}"

    return transfer


def teller(transfer: Tool) -> Agent:
    """An agent whose model pays the rent."""
    pay = ToolCall("c1", "transfer", {"source": "wages", "target": "rent", "amount": 700})
    return Agent(ScriptedModel([["I pay it.", pay], "The rent is paid."]), tools=[transfer])
