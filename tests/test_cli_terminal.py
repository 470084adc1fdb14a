"""What a terminal shows, on a small one made of text: what stays, what is drawn anew, at any size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from rich.cells import cell_len

from trio_agent import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    AssistantMessage,
    ImageContent,
    MessageBuilder,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    TextContent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResult,
    TurnEnd,
    TurnStart,
    Usage,
)
from trio_agent.cli._markdown import split_blocks
from trio_agent.cli._terminal import TerminalView

_PIECE = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[([\d;]*)m|(\r)|(\n)|([^\x1b\r\n]+)")


class Paper:
    """A terminal: lines, of which the last ones are on the screen, and a cursor."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.time = 100.0
        self.rows = [""]
        self.at = 0
        self.column = 0
        self.view = TerminalView(size=lambda: (self.columns, self.lines), clock=lambda: self.time)

    def show(self, *events: AgentEvent) -> Paper:
        for event in events:
            self.write(self.view.show(event))
        return self

    def frame(self, seconds: float = 1.0) -> list[str]:
        self.time += seconds
        self.write(self.view.frame(now=True))
        return self.screen

    @property
    def screen(self) -> list[str]:
        rows = [row.rstrip() for row in self.rows[-self.lines :]]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def all(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows)

    def resize(self, columns: int) -> None:
        """What a terminal does that wraps its lines anew; the cursor stands at the beginning of one."""
        self.columns = columns
        assert self.column == 0
        wrapped = [[row[at : at + columns] for at in range(0, max(len(row), 1), columns)] for row in self.rows]
        self.at = sum(map(len, wrapped[: self.at]))
        self.rows = [row for rows in wrapped for row in rows]

    def write(self, data: bytes) -> None:
        for count, letter, _, back, end, text in _PIECE.findall(data.decode()):
            if letter == "A":
                self.at -= int(count or 1)
                assert self.at >= max(0, len(self.rows) - self.lines), "it went above the screen"
            elif letter == "K":
                self.rows[self.at] = self.rows[self.at][: self.column]
            elif letter == "J":
                del self.rows[self.at + 1 :]
                self.rows[self.at] = self.rows[self.at][: self.column]
            elif back:
                self.column = 0
            elif end:
                self.at, self.column = self.at + 1, 0
                if self.at == len(self.rows):
                    self.rows.append("")
            elif text:
                row = self.rows[self.at]
                self.rows[self.at] = row[: self.column].ljust(self.column) + text + row[self.column + len(text) :]
                self.column += len(text)
                assert cell_len(self.rows[self.at].rstrip()) <= self.columns, "a line is too long"


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Paper]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Paper


def start(number: int, **args: object) -> ToolExecutionStart:
    return ToolExecutionStart(f"c{number}", "run_command", args or {"command": f"work {number}"})


def update(number: int, text: str) -> ToolExecutionUpdate:
    return ToolExecutionUpdate(f"c{number}", "run_command", {}, ToolResult(text))


def end(number: int, text: str = "[exit status 0]", *, is_error: bool = False) -> ToolExecutionEnd:
    return ToolExecutionEnd(f"c{number}", "run_command", ToolResult(text), is_error)


def pieces(*texts: str) -> Iterator[AgentEvent]:
    builder = MessageBuilder()
    yield MessageStart(builder.start().partial)
    yield MessageUpdate(builder.text_start())
    for text in texts:
        yield MessageUpdate(builder.text_delta(text))


# ---------------------------------------------------------------- the tools


def test_running_tools_are_a_table_with_time_and_last_line(paper: Callable[..., Paper]) -> None:
    screen = paper().show(start(1), start(2), update(2, "one\ntwo\n")).frame(2.5)
    assert [row[2:].split() for row in screen] == [
        ["run_command", "2.5", "s", "work", "1"],
        ["run_command", "2.5", "s", "work", "2", "two"],
    ]
    assert screen[1].index("two") > 40


def test_a_finished_tool_leaves_the_table_and_its_folded_result_stays(paper: Callable[..., Paper]) -> None:
    page = paper().show(start(1), start(2))
    page.frame(3)
    page.show(end(2, "".join(f"line {n}\n" for n in range(20)) + "[exit status 0]"))
    assert page.screen[:7] == [
        "✓ run_command 3.0 s  work 2",
        "  line 0",
        "  line 1",
        "  line 2",
        "  line 3",
        "  … 16 more lines",
        "  [exit status 0]",
    ]
    assert "work 1" in page.screen[7]
    page.show(end(1, "no such file", is_error=True))
    assert page.screen[7:] == ["✗ run_command 3.0 s  work 1", "  no such file"]


def test_a_result_that_nearly_fits_is_not_folded(paper: Callable[..., Paper]) -> None:
    assert "more" not in paper().show(start(1), end(1, "1\n2\n3\n4\n5\n6")).all
    images = ToolResult((TextContent("x"), ImageContent("AAAA", "image/png")))
    page = paper().show(start(1), ToolExecutionEnd("c1", "look", images, is_error=False))
    assert page.screen[1:] == ["  x", "  [1 image]"]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (40, 10), (40, 3), (20, 2), (8, 1), (300, 100)])
def test_fifty_tools_never_take_more_than_the_screen(paper: Callable[..., Paper], columns: int, lines: int) -> None:
    page = paper(columns, lines).show(*(start(n) for n in range(50)))
    for _ in range(3):
        screen = page.frame(0.1)
        assert len(page.rows) == len(screen) <= max(lines - 1, 1)
    if lines < 52:
        assert re.search(r"\d+ (more|tools) running|…", screen[-1])
    else:
        assert len(screen) == 50
    for number in range(50):
        page.show(end(number))
    assert page.frame() == page.screen
    assert not re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", page.all)
    assert page.all.count("✓") == 50


@pytest.mark.parametrize("columns", [100, 60, 41, 40, 17])
def test_a_screen_that_gets_narrower_or_wider_is_drawn_anew_without_rests(
    paper: Callable[..., Paper], columns: int
) -> None:
    page = paper(80, 24).show(*pieces("first paragraph\n\nsecond"), start(1), start(2), update(1, "x" * 200))
    page.frame()
    for width in (columns, 80):
        page.resize(width)
        screen = page.frame()
        assert sum(" s " in row for row in screen) == 2
        assert [row for row in screen if "paragraph" in row or "second" in row] == ["first paragraph", "second"]


def test_narrow_screens_show_the_progress_or_else_the_arguments(paper: Callable[..., Paper]) -> None:
    screen = paper(40).show(start(1), start(2), update(2, "half")).frame()
    assert screen[0].endswith("1.0 s work 1")
    assert screen[1].endswith("1.0 s half")


def test_control_codes_of_tools_do_nothing(paper: Callable[..., Paper]) -> None:
    page = paper().show(start(1, command="a\x1b[2J\nb"), update(1, "10%\r55%\x1b]0;title\x07\r99%"))
    (row,) = page.frame()
    assert "a\\x1b[2J b" in row
    assert row.endswith("99%")
    page.show(end(1, "x\n\x1b]0;title\x07\ttab"))
    assert "\\x1b]0;title\\x07" in page.all


def test_long_times_are_said_in_minutes_and_hours(paper: Callable[..., Paper]) -> None:
    page = paper().show(start(1))
    assert "59.9 s" in page.frame(59.94)[0]
    assert "2:05 min" in page.frame(65.5)[0]
    assert "1:02:05 h" in page.frame(3600)[0]


# ----------------------------------------------------------------- the text


def test_text_grows_and_is_printed_block_by_block(paper: Callable[..., Paper]) -> None:
    page = paper()
    told = ""
    for event in pieces("# Head", "ing\n\nSome *te", "xt*.\n\n- a\n", "- b\n\nlast"):
        page.show(event)
        told = "\n".join(page.frame(0.1))
    assert [row.strip() for row in told.splitlines() if row] == ["Heading", "Some text.", "• a", "• b", "last"]
    assert page.all.count("Heading") == 1
    assert "*" not in page.all


SAMPLE = """
# A heading

Some *emphasised* text with `code` and
a second line.
## Another
1. First
   - nested
2. Second

> A quotation.

```python
x = 1

y = 2
```
| a | b |
|---|--:|
| 1 | 2 |

---
Last.
"""


def whole(text: str) -> MessageEnd:
    builder = MessageBuilder()
    builder.text_start()
    builder.text_delta(text)
    return MessageEnd(builder.finish("stop"))


@pytest.mark.parametrize("size", [1, 7, 50])
def test_an_answer_that_came_whole_and_one_in_pieces_look_the_same(paper: Callable[..., Paper], size: int) -> None:
    at_once = paper(60, 40).show(whole(SAMPLE))
    assert "Some emphasised text with code and\na second line.\n\nAnother\n\n 1 First" in at_once.all
    assert "\n\n\n" not in at_once.all
    in_pieces = paper(60, 40)
    for event in pieces(*(SAMPLE[at : at + size] for at in range(0, len(SAMPLE), size))):
        in_pieces.show(event).frame(0.1)
    in_pieces.show(whole(SAMPLE))
    assert in_pieces.all == at_once.all


def test_a_long_unfinished_block_shows_its_end(paper: Callable[..., Paper]) -> None:
    page = paper(80, 10).show(*pieces("```text\n" + "".join(f"row {n}\n" for n in range(10_000))))
    screen = page.frame()
    assert len(screen) <= 9
    assert "row 9999" in screen[-1]
    page.show(start(1), start(2))
    assert len(page.frame()) <= 9


def test_no_control_code_and_no_link_of_a_model_reaches_the_terminal(paper: Callable[..., Paper]) -> None:
    view = paper().view
    text = "a\x1b[2J [here](https://example.org/x) <b>html</b> \udc80\n"
    data = b"".join(map(view.show, [*pieces(text), MessageEnd(AssistantMessage((TextContent(text),)))]))
    assert b"\x1b[2J" not in data
    assert b"\x1b]8" not in data
    assert b"https://example.org/x" in data
    assert b"\\x1b[2J" in data


def test_slow_drawing_is_done_less_often(paper: Callable[..., Paper], monkeypatch: pytest.MonkeyPatch) -> None:
    page = paper().show(start(1))
    ticks = iter([0.0, 2.0])
    monkeypatch.setattr("trio_agent.cli._terminal.time.monotonic", lambda: next(ticks))
    page.frame()
    page.time += 5
    assert page.view.frame() == b""


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("\n \n", []),
        ("one", ["one"]),
        ("\n\none\n\ntwo", ["\n\none\n", "two"]),
        ("```\na\n\nb", ["```\na\n\nb"]),
        ("x\n```\na\n\nb\n```\ny", ["x", "```\na\n\nb\n```", "y"]),
        ("- a\n\n- b", ["- a\n\n- b"]),
        ("a\u2028b\n\nc", ["a\u2028b\n", "c"]),
    ],
)
def test_a_text_is_split_into_blocks(text: str, blocks: list[str]) -> None:
    assert split_blocks(text) == blocks


# ------------------------------------------------------ status, summary, end


def test_waiting_and_thinking_are_said_after_a_moment(paper: Callable[..., Paper]) -> None:
    page = paper().show(AgentStart(), TurnStart())
    assert page.frame(0.1) == []
    assert page.frame(1)[0][2:] == "waiting for the model 1.1 s"
    builder = MessageBuilder()
    page.show(MessageUpdate(builder.thinking_start()), MessageUpdate(builder.thinking_delta("hm")))
    assert page.frame(0.5)[0][2:] == "thinking 0.5 s"
    page.show(MessageUpdate(builder.thinking_end()), MessageUpdate(builder.tool_call_start("c", "t")))
    assert page.frame(0.5)[0][2:] == "writing a tool call 0.5 s"
    page.show(TurnEnd(AssistantMessage()))
    assert page.frame(5) == []


def test_the_summary_counts_turns_calls_tokens_and_time(paper: Callable[..., Paper]) -> None:
    usage = Usage(1200, 34, cache_read=300)
    page = paper(100).show(TurnStart(), start(1), end(1, is_error=True), MessageEnd(AssistantMessage(usage=usage)))
    page.time += 61
    page.show(AgentEnd((), "max_turns"))
    assert page.screen[-1] == "1 turn · 1 call (1 failed) · 1,500 tokens in, 34 out · 1:01 min · ended: max turns"


@pytest.mark.parametrize("lines", [3, 4, 6, 24])
def test_text_and_many_tools_share_the_screen(paper: Callable[..., Paper], lines: int) -> None:
    page = paper(60, lines).show(*pieces("one\n\n" + "row  \n" * 50), *(start(n) for n in range(50)))
    for _ in range(3):
        screen = page.frame(0.1)
        assert len(page.rows) - 2 <= lines - 1
        assert "running" in screen[-1]


def test_a_key_that_the_terminal_echoes_does_no_harm(paper: Callable[..., Paper]) -> None:
    page = paper().show(start(1), start(2), update(2, "x" * 100))
    page.frame()
    page.write(b"^C")
    page.show(end(1, "cut"), end(2, "cut"))
    assert page.screen == ["✓ run_command 1.0 s  work 1", "  cut", "✓ run_command 1.0 s  work 2", "  cut"]


def test_closing_takes_the_table_away_and_keeps_the_text(paper: Callable[..., Paper]) -> None:
    page = paper().show(*pieces("half an answer"), start(1))
    page.frame()
    page.write(page.view.close())
    page.write(page.view.close())
    assert page.screen == ["half an answer"]
    assert page.frame() == page.screen


def test_without_colours_there_are_none(paper: Callable[..., Paper], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    page = paper()
    data = page.view.show(start(1)) + page.view.frame(now=True) + page.view.show(end(1, "x", is_error=True))
    assert not re.search(rb"\x1b\[[\d;]*(3|4|9)\dm", data)


def test_a_terminal_that_cannot_move_the_cursor_gets_lines(
    paper: Callable[..., Paper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    view = TerminalView(live=False, size=lambda: (60, 20))
    data = b"".join(map(view.show, [start(1), update(1, "x"), *pieces("one\n\ntwo")])) + view.frame(now=True)
    assert data == b"one\n"  # the paragraph that is complete
    data += view.show(end(1, "y"))
    assert b"\x1b[A" not in data
    assert b"\x1b[J" not in data
    assert b"run_command" in data


def test_a_terminal_without_utf8_gets_other_signs(monkeypatch: pytest.MonkeyPatch, paper: Callable[..., Paper]) -> None:
    class Stream:
        encoding = "ascii"

    monkeypatch.setattr("trio_agent.cli._terminal.sys.stdout", Stream)
    page = paper()
    page.show(start(1), *pieces("- é\n"))
    page.frame()
    page.show(end(1), AgentEnd(()))
    assert "+ run_command" in page.all
    assert "* \\xe9" in page.all
