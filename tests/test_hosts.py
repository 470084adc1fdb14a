"""Hosts that the recorded scenarios lack, explored a little; ``tests/mutation`` explores them more."""

from __future__ import annotations

from typing import Any

import hosts
import pytest

from trio_agent.testing import explore


@pytest.mark.parametrize("host", hosts.HOSTS, ids=lambda host: host.__name__)
def test_every_invariant_holds(host: Any) -> None:
    explore(
        host, sample=6, pairs=2, modes=("plain", "checkpoints", "slow"), invariants=hosts.INVARIANTS
    ).raise_for_failures()


def test_each_host_is_explored_once_and_says_what_it_is() -> None:
    assert len(set(hosts.HOSTS)) == len(hosts.HOSTS)
    assert all(host.__doc__ for host in hosts.HOSTS)
