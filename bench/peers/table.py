"""Which peers there are, and what is installed for each. The one place where their versions stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import final

import attrs

HOME = Path(__file__).parent.parent / ".peers"
"""Where environments are made; Git does not look there."""
ROOT = HOME.parent.parent

TRIO = "trio==0.35.0"
"""In every environment, for the floor."""


@final
@attrs.frozen(kw_only=True)
class Peer:
    """A peer: the environment that it needs and the class that drives it."""

    name: str
    title: str
    environment: str | None
    """The folder of its environment; None for the one that runs the suite."""
    requires: tuple[str, ...] = ()
    """What pip installs beside Trio."""
    npm: tuple[str, ...] = ()
    """What npm installs; the peer is a program of Node's then."""
    adapter: str
    """``module:Class`` within this package."""

    @property
    def python(self) -> Path:
        """The interpreter of its process."""
        if self.environment is None or self.npm:
            return Path(sys.executable)
        return HOME / self.environment / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether its environment was made."""
        if self.npm:
            return (HOME / str(self.environment) / "node_modules").is_dir()
        return self.environment is None or self.python.exists()


_PI = ("@earendil-works/pi-agent-core@1.6.0", "@earendil-works/pi-ai@1.6.0")
_LANGGRAPH = ("langgraph==1.2.24", "langchain==1.5.2")

PEERS = (
    Peer(name="trio_agent", title="trio_agent", environment=None, adapter="ours:TrioAgent"),
    Peer(name="trio", title="raw Trio", environment="raw", adapter="raw:RawTrio"),
    Peer(name="asyncio", title="raw asyncio TaskGroup", environment="raw", adapter="raw:RawAsyncio"),
    Peer(name="node", title="raw Node Promise.all", environment="pi", npm=_PI, adapter="pi:RawNode"),
    Peer(name="pi-agent", title="pi-agent-core Agent", environment="pi", npm=_PI, adapter="pi:PiAgent"),
    Peer(name="pi-loop", title="pi-agent-core loop", environment="pi", npm=_PI, adapter="pi:PiLoop"),
    Peer(
        name="pydantic-ai", title="pydantic-ai", environment="pydantic-ai",
        requires=("pydantic-ai-slim==2.68.0",), adapter="on_pydantic_ai:PydanticAI",
    ),
    Peer(
        name="openai-agents", title="openai-agents", environment="openai-agents",
        requires=("openai-agents==0.24.0",), adapter="on_openai_agents:OpenAIAgents",
    ),
    Peer(
        name="langgraph-toolnode", title="langgraph ToolNode", environment="langgraph",
        requires=_LANGGRAPH, adapter="on_langgraph:ToolNodeGraph",
    ),
    Peer(
        name="langchain", title="langchain create_agent", environment="langgraph",
        requires=_LANGGRAPH, adapter="on_langgraph:CreateAgent",
    ),
    Peer(
        name="anthropic", title="anthropic tool_runner", environment="anthropic",
        requires=("anthropic==2.14.0",), adapter="on_anthropic:ToolRunner",
    ),
    Peer(
        name="smolagents", title="smolagents", environment="smolagents",
        requires=("smolagents==1.26.0",), adapter="on_smolagents:SmolAgents",
    ),
)  # fmt: skip
BY_NAME = {peer.name: peer for peer in PEERS}


def choose(names: str) -> list[Peer]:
    """The peers of a comma list, or all but the library itself for ``all``.

    Raises:
      ValueError: there is no such peer.
    """
    if names == "all":
        return [peer for peer in PEERS if peer.name != "trio_agent"]
    chosen = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name not in BY_NAME:
            raise ValueError(f"there is no peer {name!r}; there are {', '.join(BY_NAME)}, and all")
        chosen.append(BY_NAME[name])
    return chosen
