"""Makes the pictures of the documentation: ``python docs/diagrams/make.py``, with nothing but this library.

The pictures have colours for a light and for a dark page. The batch is not drawn by hand: an agent runs on a
virtual clock, and what happened is drawn. A test compares the files with what this script makes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio
import trio.testing

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from _svg import Picture  # noqa: E402 - beside this file

from trio_agent import (  # noqa: E402
    Agent,
    AgentEnd,
    AgentEvent,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    tool,
)
from trio_agent.testing import ScriptedModel  # noqa: E402

# ------------------------------------------------------------- the double loop


def loop() -> Picture:
    """The flow of a run without a cut."""
    p = Picture(760, 800, "The double loop of a run")
    left, width, middle = 190, 380, 380

    def step(y: float, lines: list[str], *, fill: str = "box", line: str = "line") -> float:
        height = 18 * len(lines) + 16
        p.labelled(left, y, width, height, lines, fill=fill, line=line)
        return y + height

    def down(y: float, to: float) -> None:
        p.path([(middle, y), (middle, to - 1)])

    p.labelled(left, 16, width, 52, ["`agent_start, turn_start", "the prompts; a look for steering"])
    p.box(60, 92, 640, 608, fill="none", dash=True)
    p.text(76, 114, "outer loop: once more for follow-ups", colour="soft", size=13)
    p.box(110, 128, 540, 506, fill="none", line="blue", dash=True)
    p.text(126, 150, "inner loop: a turn", colour="blue", size=13)
    down(68, 166)
    y = step(166, ["`prepare_next_turn, turn_start", "in every turn but the first"])
    down(y, 238)
    y = step(238, ["take what is pending", "`message_start, message_end", "for each message"])
    down(y, 328)
    y = step(328, ["`prepare_request"])
    down(y, 382)
    y = step(
        382,
        ["the response", "`transform_context, convert_to_llm,", "`get_api_key, then the stream function"],
        fill="blue_fill", line="blue",
    )  # fmt: skip
    down(y, 472)
    y = step(
        472,
        ["the batch: all calls side by side", "`before_tool_call, the tool, after_tool_call"],
        fill="green_fill", line="green",
    )  # fmt: skip
    down(y, 544)
    y = step(544, ["`finish_turn, turn_end"])
    down(y, 598 - 2)
    p.text(middle, 614, "look for steering", anchor="middle")
    # One more turn.
    p.path([(middle - 70, 609), (146, 609), (146, 192), (left - 1, 192)], colour="blue")
    p.text(136, 420, "results or steering", colour="blue", size=13, anchor="middle")
    p.parts[-1] = p.parts[-1].replace("<text ", '<text transform="rotate(-90 136 420)" ')
    # Where the run ends from within.
    p.path([(left + width, 561), (620, 561), (620, 748), (left + width + 1, 748)], colour="red")
    p.text(640, 420, "failed, aborted, decided by finish_turn, a limit", colour="red", size=13, anchor="middle")
    p.parts[-1] = p.parts[-1].replace("<text ", '<text transform="rotate(-90 640 420)" ')
    p.path([(middle, 620), (middle, 648)])
    p.labelled(left, 649, width, 34, ["look for follow-ups"])
    p.path([(left, 666), (84, 666), (84, 192), (left - 1, 192)], colour="amber")
    p.text(76, 420, "follow-ups", colour="amber", size=13, anchor="middle")
    p.parts[-1] = p.parts[-1].replace("<text ", '<text transform="rotate(-90 76 420)" ')
    p.path([(middle, 683), (middle, 729)])
    p.labelled(left, 730, width, 36, ["`agent_end"])
    return p


# --------------------------------------------------------------- who runs where


def tasks() -> Picture:
    """The tasks of a run, the channels between them and the scopes around them."""
    p = Picture(760, 560, "Who runs where")
    p.box(14, 14, 732, 452, fill="none", line="amber", dash=True)
    p.text(30, 36, "a cancel scope of the host: a cancellation reaches all of it", colour="amber", size=13)
    # The run's own task.
    p.box(34, 56, 270, 390)
    p.text(50, 80, "the task that called prompt()", bold=True)
    p.text(50, 100, "the run's own task", colour="soft", size=13)
    p.labelled(54, 118, 230, 70, ["applies each event to the", "state, then tells it to the", "listeners, one by one"])
    p.labelled(54, 204, 230, 52, ["appends messages,", "closes what a cut left open"])
    p.labelled(
        54, 272, 230, 70, ["hooks of the turn,", "each in a scope of the Abort;", "finish_turn in none"], line="red"
    )
    p.labelled(54, 358, 230, 70, ["prepares calls:", "`before_tool_call", "in a scope of the Abort"], line="red")
    # The children.
    p.box(430, 56, 296, 390, fill="none", line="blue")
    p.text(446, 80, "the nursery of the turn", bold=True, colour="blue")
    p.text(446, 100, "outside of the Abort: it waits for all", colour="soft", size=13)
    names = [["the stream function"], ["call c1: the tool"], ["call c2: the tool"]]
    for number, lines in enumerate(names):
        top = 118 + 92 * number
        height = 74
        p.box(446, top, 264, height, fill="none", line="red", dash=True)
        p.text(458, top + 17, "a scope of the Abort", colour="red", size=12)
        p.labelled(458, top + 26, 240, 38, lines)
        p.path([(446, top + 45), (305, top + 45)], colour="green")
    p.labelled(458, 396, 240, 40, ["after_tool_call, in the call's task"])
    p.text(367, 154, "events,", colour="green", size=13, anchor="middle")
    p.text(367, 182, "by a channel", colour="green", size=13, anchor="middle")
    p.text(367, 246, "outcomes,", colour="green", size=13, anchor="middle")
    p.text(367, 274, "updates", colour="green", size=13, anchor="middle")
    # Others.
    p.labelled(34, 496, 270, 46, ["another task: steer(), follow_up()"])
    p.path([(169, 496), (169, 447)], colour="green")
    p.text(180, 484, "the queues", colour="green", size=13)
    p.labelled(430, 496, 296, 46, ["any task: abort(), cancel_tool()"], line="red")
    p.path([(578, 496), (578, 447)], colour="red")
    p.text(566, 484, "cancels the red scopes only", colour="red", size=13, anchor="end")
    return p


# -------------------------------------------------------------- a cancelled batch


@attrs.define
class Lane:
    """What was seen of one call."""

    what: str
    """What the tool does, in words."""
    spans: list[tuple[float, float, str]] = attrs.field(factory=list)
    """From, to, and the colour."""
    told: list[tuple[float, str]] = attrs.field(factory=list)
    """When an event was told, and which."""
    result: str = ""


@attrs.define
class Seen:
    """What was seen of a run."""

    lanes: dict[str, Lane]
    aborted: float = 0.0
    ended: float = 0.0
    record: str = ""
    reason: str = ""


ABORT_AT = 2.0


def cut_batch() -> Seen:
    """Run an agent on a virtual clock, abort it in the middle of a batch, and write down what happens."""
    seen = Seen(
        {
            "c1": Lane("returns after 1 s"),
            "c2": Lane("works for 5 s"),
            "c3": Lane("works for 5 s, cleans up for 0.5 s"),
            "c4": Lane("waits for a free slot"),
        }
    )

    @contextmanager
    def span(call_id: str, colour: str) -> Iterator[None]:
        begun = trio.current_time()
        try:
            yield
        finally:
            seen.lanes[call_id].spans.append((begun, trio.current_time(), colour))

    @tool
    async def work(seconds: float, clean_up: float, ctx: ToolContext) -> str:
        """Work for some time."""
        try:
            with span(ctx.tool_call_id, "blue"):
                await trio.sleep(seconds)
        finally:
            if clean_up:
                with trio.move_on_after(1, shield=True), span(ctx.tool_call_id, "amber"):
                    await trio.sleep(clean_up)
        return "finished"

    def listen(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionStart | ToolExecutionEnd):
            seen.lanes[event.tool_call_id].told.append((trio.current_time(), event.type))
        elif isinstance(event, AgentEnd):
            seen.ended = trio.current_time()

    async def main() -> None:
        times = {"c1": (1, 0), "c2": (5, 0), "c3": (5, 0.5), "c4": (1, 0)}
        calls = [
            ToolCall(name, "work" if name != "c4" else "wait", {"seconds": seconds, "clean_up": clean_up})
            for name, (seconds, clean_up) in times.items()
        ]
        slot = trio.CapacityLimiter(1)
        await slot.acquire()  # somebody else has it, all the time
        wait = attrs.evolve(work, name="wait", limiter=slot)
        agent = Agent(ScriptedModel([calls]), tools=[work, wait])
        agent.subscribe(listen)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.prompt, "Work.")
            await trio.sleep(ABORT_AT)
            seen.aborted = trio.current_time()
            agent.abort("the user pressed Escape")
        for message in agent.messages:
            if isinstance(message, ToolResultMessage):
                text = message.content[0]
                seen.lanes[message.tool_call_id].result = getattr(text, "text", "")
        result = agent.last_result
        assert result is not None
        assert result.message is not None
        seen.record = f"{result.message.stop_reason}: {result.message.error_message}"
        seen.reason = result.end_reason

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return seen


def batch() -> Picture:
    """The cancelled batch, as a timeline."""
    seen = cut_batch()
    p = Picture(760, 486, "A batch of four calls that is aborted after two seconds")
    left, scale, top, row = 60, 240.0, 66, 84

    def at(seconds: float) -> float:
        return left + scale * seconds

    bottom = top + row * len(seen.lanes) + 6
    for tick in range(6):
        x = at(tick / 2)
        p.path([(x, top - 12), (x, bottom)], colour="box", arrow=False)
        p.text(x, top - 20, f"{tick / 2:g} s", colour="soft", size=12, anchor="middle")
    x = at(seen.aborted)
    p.path([(x, top - 14), (x, bottom)], colour="red", arrow=False, dash=True)
    p.text(x, 22, "abort()", colour="red", anchor="middle", bold=True, size=13)
    x = at(seen.ended)
    p.path([(x, top - 14), (x, bottom)], colour="green", arrow=False, dash=True)
    p.text(x, 22, "agent_end", colour="green", anchor="middle", bold=True, size=13)
    for number, (name, lane) in enumerate(seen.lanes.items()):
        y = top + row * number
        p.text(left - 14, y + 22, name, bold=True, anchor="end")
        (begun, _), (over, _) = lane.told
        p.box(at(begun), y + 4, at(over) - at(begun), 28, fill="box", dash=True)
        for start, stop, colour in lane.spans:
            p.box(at(start), y + 4, at(stop) - at(start), 28, fill=f"{colour}_fill", line=colour)
        p.text(at(begun) + 8, y + 23, lane.what, size=13)
        told = "red" if "abort" in lane.result.lower() else "green"
        p.text(left, y + 52, "result: " + lane.result, size=12, colour=told, halo=True)
    y = bottom + 28
    p.text(left, y, f"the record: {seen.record}", size=12, colour="soft")
    y += 26
    x = float(left)
    for colour, text in (
        ("blue", "the tool works"),
        ("amber", "its shielded clean-up"),
        ("", "started, not yet entered"),
    ):
        p.box(x, y - 11, 22, 14, fill=f"{colour}_fill" if colour else "box", line=colour or "line", dash=not colour)
        p.text(x + 30, y, text, size=12, colour="soft")
        x += 46 + 7.2 * len(text)
    return p


PICTURES: dict[str, Callable[[], Picture]] = {"loop": loop, "tasks": tasks, "cancelled_batch": batch}


def make() -> dict[str, str]:
    """All pictures, by the names of their files."""
    return {f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for file, svg in make().items():
        (HERE / file).write_text(svg, encoding="utf-8")
        print(file)
