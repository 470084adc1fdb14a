"""Scenario files: a scripted model, scripted tools and hooks, a host that acts at given times, and a trace.

The format is that of the conformance scenarios (``FORMAT.md``). A file is read and checked as a whole
before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import attrs

from ._reading import Keys, array, boolean, load_json, one_of, string
from ._scenario_parts import Action, ListenerScript, ModelTurn, Rule, Settings, ToolScript
from ._scenario_reader import Reader
from ._trace import Trace

__all__ = ["Scenario"]


@final
@attrs.frozen
class Scenario:
    """One scenario: everything that its file says."""

    name: str
    level: Literal["agent", "loop"]
    """Whether an Agent plays it or the loop that is called directly."""
    group: str = ""
    """A heading to sort scenarios under."""
    about: str = ""
    """The statement that the scenario pins."""
    overlap: bool = False
    """True where the reference tells events of several tools at once."""
    settings: Settings = attrs.field(factory=Settings, repr=False)
    tools: Mapping[str, ToolScript] = attrs.field(factory=dict, repr=False)
    model: tuple[ModelTurn, ...] = attrs.field(default=(), repr=False)
    hooks: Mapping[str, tuple[Rule, ...]] = attrs.field(factory=dict, repr=False)
    listeners: tuple[ListenerScript, ...] = attrs.field(default=(), repr=False)
    host: tuple[Action, ...] = attrs.field(default=(), repr=False)
    expect: Trace | None = attrs.field(default=None, repr=False)
    """What is expected: that of the newest reference for which the file has an expectation."""

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """Read a scenario file.

        Raises:
          FormatError: the file is broken; the text names file, place and value.
          OSError: the file cannot be read.
        """
        return cls.from_json(load_json(path), f"{path}:")

    @classmethod
    def from_json(cls, data: Any, where: str = "the scenario:") -> Scenario:
        """Make a scenario of the JSON object that a file holds.

        Args:
          data: the object.
          where: what errors call the document.

        Raises:
          FormatError: the object is no scenario; the text names the place and the value.
        """
        keys = Keys(data, where)
        name = keys.take("name", string)
        reader = Reader(keys.take("level", one_of("agent", "loop")))
        # Messages refer to tools, and what tools do holds messages: so the declarations come first.
        keys.take("tools", reader.declare, None)
        expect = keys.take("expect", Trace.from_json, None)
        scenario = cls(
            name,
            reader.level,
            group=keys.take("group", string, ""),
            about=keys.take("about", string, ""),
            overlap=keys.take("overlap", boolean, False),
            settings=keys.take("agent", reader.settings, Settings()),
            tools=keys.take("tools", reader.tools, {}),
            model=keys.take("model", array(reader.turn)),
            hooks=keys.take("hooks", reader.hooks, {}),
            listeners=keys.take("hooks", reader.listeners, ()),
            host=keys.take("host", reader.host),
            expect=keys.take("expect_1_6", Trace.from_json, expect),
        )
        keys.done()
        return scenario
