"""Explores the agent of transfer.py with the tool of transfer_fixed.py."""

from __future__ import annotations

import pytest
from transfer import Bank, teller
from transfer_fixed import transfer_tool

from trio_agent.testing import Probe


@pytest.mark.explore
async def test_money_is_moved_and_never_lost(probe: Probe) -> None:
    bank = Bank()

    def no_money_is_lost() -> None:
        total = sum(bank.accounts.values())
        assert total == 900, f"the accounts hold {bank.accounts}"

    probe.check(no_money_is_lost)
    agent = probe.watch(teller(transfer_tool(bank)))
    await agent.prompt("Pay the rent.")
    if not probe.acted:
        assert bank.accounts == {"wages": 200, "rent": 700}
