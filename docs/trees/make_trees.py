"""Makes the trees of docs/cancellation.md: ``python docs/trees/make_trees.py``, with nothing but this library.

Nothing of a tree is typed. Each is what a TraceRecorder saw of a scene: an agent runs on a virtual clock, something
cuts it, and the scene's own marks (``*``) say when. The page holds a tree between ``<!-- tree: NAME -->`` and
``<!-- end -->``; a test compares the page with what this script makes.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import attrs
import trio
import trio.testing

HERE = Path(__file__).parent
PAGE = HERE.parent / "cancellation.md"
sys.path.insert(0, str(HERE.parent.parent))

from trio_agent import (  # noqa: E402 - the source beside this folder comes first
    Agent,
    AgentEvent,
    AgentMessage,
    AssistantMessage,
    ModelRequest,
    StreamEvent,
    StreamSink,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    tool,
)
from trio_agent.testing import ScriptedModel, TraceRecorder, seeded_scheduler  # noqa: E402
from trio_agent.testing import Turn as ScriptedTurn  # noqa: E402

CUT = 2.0
"""Seconds after which the cause comes, in most scenes."""

READ = ToolCall("c1", "read", {"file": "notes"})
UPLOAD = ToolCall("c2", "upload", {"file": "notes"})
MAIL = ToolCall("c3", "mail", {"to": "Ann"})


@attrs.define
class Scene:
    """An agent with three tools: one returns, one cleans up when it is cut, one waits for its limiter."""

    recorder: TraceRecorder = attrs.field(factory=TraceRecorder)
    busy: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    """Somebody else has it until second 6."""

    def tools(self) -> list[Tool]:
        mark = self.recorder.mark

        @tool
        async def read(file: str) -> str:
            """Read a file; it takes a second."""
            await trio.sleep(1)
            return "three lines"

        @tool
        async def upload(file: str, ctx: ToolContext) -> str:
            """Upload a file; it takes four seconds, and its clean-up half a second."""
            await ctx.update("a third of it")
            try:
                await trio.sleep(4)
            except trio.Cancelled:
                mark("upload is cut; it takes back what it sent, under a shield")
                with trio.move_on_after(2, shield=True):
                    await trio.sleep(0.5)
                mark("upload has cleaned up")
                raise
            return "uploaded"

        @tool(limiter=self.busy)
        async def mail(to: str) -> str:
            """Send a mail; it takes a second."""
            await trio.sleep(1)
            return "sent"

        return [read, upload, mail]

    def agent(self, *turns: ScriptedTurn, tools: Sequence[Tool] | None = None, delay: float = 0) -> Agent:
        """Make the agent and have it recorded."""
        script = turns or (["I do all three.", READ, UPLOAD, MAIL], "All is done.")
        agent = Agent(ScriptedModel(script, delay=delay), tools=self.tools() if tools is None else tools)
        agent.subscribe(self.recorder)
        return agent

    async def others(self) -> None:
        """What else goes on in the program."""
        async with self.busy:
            await trio.sleep(6)

    async def prompt(self, agent: Agent, text: str = "Do it.") -> None:
        """Prompt, and mark how the call ends."""
        try:
            result = await agent.prompt(text)
        except BaseException as error:
            self.recorder.mark(f"prompt() raised {type(error).__name__}")
            raise
        self.recorder.mark(f"prompt() returned; end_reason {result.end_reason!r}")

    async def at_the_cut(self, act: Callable[[], object], text: str) -> None:
        """Do something in second 2."""
        await trio.sleep(CUT)
        self.recorder.mark(text)
        act()


# ------------------------------------------------------------------ the scenes


async def abort(scene: Scene) -> None:
    """The soft cut: the run closes and ``prompt()`` returns."""
    agent = scene.agent()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.at_the_cut, lambda: agent.abort("enough"), 'agent.abort("enough")')
        await scene.prompt(agent)


async def abort_answer(scene: Scene) -> None:
    """An abort while the model speaks."""
    agent = scene.agent(["I begin with the notes.", READ], delay=0.35)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.at_the_cut, lambda: agent.abort("enough"), 'agent.abort("enough")')
        await scene.prompt(agent)


async def deadline(scene: Scene) -> None:
    """A deadline of the host, and an async listener that has to be told within the grace."""
    agent = scene.agent()

    async def save(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd) and event.tool_call_id == "c3":
            scene.recorder.mark("a listener saves what came of c3; it takes 0.25 s of the grace")
            await trio.sleep(0.25)

    agent.subscribe(save)
    with trio.move_on_after(CUT) as scope:
        await scene.prompt(agent)
    if scope.cancelled_caught:
        scene.recorder.mark("the host goes on behind its scope")


async def grace(scene: Scene) -> None:
    """The grace runs out, because an async listener needs a quarter of a second for each event."""
    agent = scene.agent([READ], "It has three lines.")
    agent.closing_grace = 0.6
    told = 0

    async def slow(event: AgentEvent) -> None:
        nonlocal told
        try:
            await trio.sleep(0.25)
        except trio.Cancelled:
            scene.recorder.mark(f"the grace is over: the slow listener is cut, at {event.type}")
            raise
        told += 1

    agent.subscribe(slow)
    with trio.move_on_after(3):
        await scene.prompt(agent)
    scene.recorder.mark(f"events: {len(scene.recorder.events)}; the slow listener saw the first {told} through")


async def ctrl_c(scene: Scene) -> None:
    """SIGINT, while the main task is in ``prompt()``."""
    agent = scene.agent()

    async def press() -> None:
        await trio.sleep(CUT)
        scene.recorder.mark("Ctrl-C")
        signal.raise_signal(signal.SIGINT)

    trio.lowlevel.spawn_system_task(press)
    try:
        await scene.prompt(agent)
    except KeyboardInterrupt:
        pass


async def cancel_tool(scene: Scene) -> None:
    """One call is cut; its siblings and the run go on."""
    agent = scene.agent()

    def cut() -> None:
        agent.cancel_tool("c2", "it is too big")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.at_the_cut, cut, 'agent.cancel_tool("c2", "it is too big")')
        await scene.prompt(agent)


async def timeout(scene: Scene) -> None:
    """A tool's own limit of time."""
    agent = scene.agent(tools=[attrs.evolve(each, timeout=1.5) for each in scene.tools()])
    await scene.prompt(agent)


async def interrupt(scene: Scene) -> None:
    """The work is cut, and the run goes on with a message."""
    agent = scene.agent(["I do all three.", READ, UPLOAD, MAIL], "Then not.", "I hurry.")

    def cut() -> None:
        agent.steer("Hurry.")
        agent.interrupt("No mail.")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.at_the_cut, cut, 'agent.steer("Hurry."); agent.interrupt("No mail.")')
        await scene.prompt(agent)


async def listener(scene: Scene) -> None:
    """An exception of a listener: a fault of the program."""
    agent = scene.agent()

    def count(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd) and event.tool_call_id == "c1":
            scene.recorder.mark("the next listener raises KeyError('c1')")
            raise KeyError("c1")

    agent.subscribe(count)
    try:
        await scene.prompt(agent)
    except KeyError:
        pass


async def hook(scene: Scene) -> None:
    """An exception of a hook of the turn."""
    agent = scene.agent([READ], "All is done.")
    asked = 0

    def prune(messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        nonlocal asked
        asked += 1
        if asked == 2:
            scene.recorder.mark("transform_context raises ValueError")
            raise ValueError("nothing left to prune")
        return messages

    agent.transform_context = prune
    await scene.prompt(agent)


async def model(scene: Scene) -> None:
    """An exception of the stream function, in the middle of its answer."""

    async def breaks_off(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        class Line:
            async def send(self, event: StreamEvent) -> None:
                if event.type == "toolcall_end":
                    scene.recorder.mark("the model raises ConnectionError")
                    raise ConnectionError("the line is down")
                await sink.send(event)

        answer = ScriptedModel([["I do all three.", READ]], delay=0.25)
        return await answer.stream_fn(request, cast("StreamSink", Line()))

    agent = scene.agent()
    agent.stream_fn = breaks_off
    await scene.prompt(agent)


async def leave(scene: Scene) -> None:
    """The block of ``agent.run()`` is left early."""
    agent = scene.agent()
    async with agent.run("Do it.") as run:
        async for event in run:
            if isinstance(event, ToolExecutionEnd):
                scene.recorder.mark(f"break, at the end of {event.tool_call_id}")
                break
    scene.recorder.mark("the block is left")


async def nested(scene: Scene) -> None:
    """An agent inside a tool: to it the abort of the outer run is a cancellation."""
    inner = scene.agent([UPLOAD])

    @tool
    async def delegate() -> str:
        """Let another agent do it."""
        return (await inner.prompt("Upload the notes.")).text

    outer = scene.agent([ToolCall("d1", "delegate")], tools=[delegate])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.at_the_cut, lambda: outer.abort("enough"), 'outer.abort("enough")')
        await scene.prompt(outer)


SCENES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    scene.__name__: scene
    for scene in (
        abort, abort_answer, deadline, ctrl_c, cancel_tool, timeout, interrupt, listener, hook, model, leave, nested, grace
    )
}  # fmt: skip


def play(name: str, seed: int = 0) -> str:
    """Run one scene and draw what was recorded.

    Args:
      name: of :data:`SCENES`.
      seed: the order in which Trio runs tasks; the trees are the same for all.
    """
    scene = Scene()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.others)
            await trio.testing.wait_all_tasks_blocked()
            await SCENES[name](scene)
            nursery.cancel_scope.cancel(reason="the scene is over")

    # A failing hook is logged; and a shell starts background jobs with SIGINT ignored.
    log = logging.getLogger("trio_agent")
    disabled, log.disabled = log.disabled, True
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with seeded_scheduler(seed):
            trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        signal.signal(signal.SIGINT, handler)
        log.disabled = disabled
    return scene.recorder.tree(width=96)


_PLACE = re.compile(r"(?<=<!-- tree: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def filled(page: str, trees: dict[str, str]) -> str:
    """Put the trees where the page has their names."""
    return _PLACE.sub(lambda found: f"{found[1]}{found[2]}```text\n{trees[found[1]]}\n```\n", page)


def make(seed: int = 0) -> dict[str, str]:
    """All trees, by the names of their scenes."""
    return {name: play(name, seed) for name in SCENES}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), make()), encoding="utf-8")
    print(PAGE.name)
