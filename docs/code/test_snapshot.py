from collections.abc import Callable

import pytest

from trio_agent.testing import RecordedAgent, assert_trace


@pytest.mark.trio
async def test_a_greeting(recorded_agent: Callable[..., RecordedAgent]) -> None:
    recorded = recorded_agent(["Hello."])
    await recorded.agent.prompt("Hi.")
    assert_trace(recorded.recorder, "to be filled in", times=False)
