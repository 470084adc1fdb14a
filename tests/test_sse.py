"""Server-sent events: whatever ends a line, whatever is in it, and wherever the bytes are cut."""

from __future__ import annotations

import random
import time

import pytest

from trio_agent.providers import ProtocolError
from trio_agent.providers._sse import ServerSentEvent, ServerSentEventParser


def parse(*pieces: bytes, max_size: int = 1 << 20) -> list[tuple[str, str]]:
    parser = ServerSentEventParser(max_size=max_size)
    events: list[ServerSentEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.close()
    return [(event.name, event.data.decode("utf-8")) for event in events]


def bytewise(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


STREAM = 'event: a\ndata: {"x": "Grüße 東京 🎉"}\n\n: ping\n\ndata:one\ndata: two\n\ndata\n\nevent: b\ndata:  three\n\n'
EVENTS = [("a", '{"x": "Grüße 東京 🎉"}'), ("", "one\ntwo"), ("", ""), ("b", " three")]


def test_b74_every_place_to_cut_gives_the_same_events() -> None:
    body = STREAM.encode()
    assert parse(body) == parse(*bytewise(body)) == EVENTS
    for at in range(len(body) + 1):
        assert parse(body[:at], body[at:]) == EVENTS
    for seed in range(50):
        cuts = sorted(random.Random(seed).choices(range(len(body) + 1), k=6))
        pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        assert parse(*pieces) == EVENTS


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1e"])
def test_b75_only_cr_and_lf_end_a_line(separator: str) -> None:
    body = f"data: x{separator}y\n\n".encode()
    assert parse(body) == parse(*bytewise(body)) == [("", f"x{separator}y")]


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
def test_b77_line_endings_and_a_byte_order_mark(ending: str, mark: bytes) -> None:
    body = mark + STREAM.replace("\n", ending).encode()
    assert parse(body) == parse(*bytewise(body)) == EVENTS


def test_b77_an_event_that_ends_in_cr_is_told_at_once() -> None:
    parser = ServerSentEventParser()
    assert [event.data for event in parser.feed(b"data: a\r\r")] == [b"a"]
    assert list(parser.feed(b"\n")) == []  # it belonged to the CR
    assert [event.data for event in parser.feed(b"data: b\r\n\r")] == [b"b"]


def test_b77_only_the_first_byte_order_mark_is_none_of_the_text() -> None:
    assert parse(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [("", "a")]
    assert parse(b"\xef\xbb") == []


@pytest.mark.parametrize(
    "line", [":", ": ping", ":ping", "field-only", "retry: 10", "id: 3", "unknown: 5", "data-x: 4", " data: 9"]
)
def test_b78_comments_and_other_fields_are_ignored(line: str) -> None:
    for body in (f"{line}\ndata: a\n{line}\n\n", f"{line}\n\ndata: a\n\n{line}\n\n"):
        assert parse(body.encode()) == parse(*bytewise(body.encode())) == [("", "a")]


def test_b79_a_thousand_events_in_one_piece_and_one_in_three() -> None:
    body = b"".join(b"data: %d\n\n" % number for number in range(1000))
    assert parse(body) == [("", str(number)) for number in range(1000)]
    assert parse(b"da", b"ta: on", b"e\n\n") == [("", "one")]


@pytest.mark.parametrize("end", ["", "\n", "\r", "\n\n"])
def test_the_last_event_needs_no_blank_line(end: str) -> None:
    assert parse(f"data: a\n\nevent: z\ndata: b{end}".encode()) == [("", "a"), ("z", "b")]


def test_a_name_without_data_is_no_event_and_is_forgotten() -> None:
    assert parse(b"event: a\n\ndata: b\n\n") == [("", "b")]


@pytest.mark.parametrize("body", [b"data: " + b"x" * 101, b"data: " + b"x" * 60 + b"\ndata: " + b"y" * 60, b":" * 101])
@pytest.mark.parametrize("whole", [True, False])
def test_an_event_that_is_too_large_is_an_error_behind_those_before_it(body: bytes, whole: bool) -> None:
    parser = ServerSentEventParser(max_size=100)
    body = b"data: a\n\n" + body + b"\n\n"
    seen: list[bytes] = []

    def read() -> None:
        for piece in [body] if whole else bytewise(body):
            seen.extend(event.data for event in parser.feed(piece))

    with pytest.raises(ProtocolError, match="larger than 100 bytes") as caught:
        read()
    assert seen == [b"a"]
    assert not caught.value.retryable


def test_an_event_of_the_largest_size_is_none() -> None:
    assert parse(b"data: " + b"x" * 94 + b"\n\n", max_size=100) == [("", "x" * 94)]


@pytest.mark.slow  # computes for real: a cost that grows with the square would take minutes
@pytest.mark.parametrize("line", [b"x" * 300_000, b"x" * 300_000 + b"\n\n", b"\n" * 300_000, b"data: a\n" * 40_000])
def test_time_grows_with_the_bytes_however_they_are_cut(line: bytes) -> None:
    started = time.process_time()
    parse(*bytewise(b"data: " + line))
    assert time.process_time() - started < 5
