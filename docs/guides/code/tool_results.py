import attrs
import trio

from trio_agent import ImageContent, TextContent, ToolCall, ToolResult, run_tool_call, tool


@attrs.frozen
class Seat:
    """A seat in a train."""

    wagon: int
    number: int


@tool
def reserve() -> Seat:
    """Reserve a seat."""
    return Seat(7, 42)


@tool
def photograph() -> ToolResult:
    """Take a picture."""
    return ToolResult(
        (TextContent("the station"), ImageContent("aGVsbG8=", "image/png")), details={"camera": "north"}, terminate=True
    )


@tool
def look_up(name: str) -> ToolResult:
    """Look something up, and fail with details."""
    return ToolResult(f"no entry for {name}", is_error=True, details={"searched": 3})


@tool
def broken() -> str:
    """Raise."""
    raise ConnectionError("the exchange does not answer")


async def main() -> None:
    tools = [reserve, photograph, look_up, broken]
    for call in (
        ToolCall("c1", "reserve"),
        ToolCall("c2", "photograph"),
        ToolCall("c3", "look_up", {"name": "Atlantis"}),
        ToolCall("c4", "broken"),
        ToolCall("c5", "look_up", {"nme": "Rome"}),
        ToolCall("c6", "lookup"),
    ):
        outcome = await run_tool_call(call, tools=tools)
        result = outcome.result
        print(call.id, result.is_error, result.error_kind, result.text, result.structured_content, result.details)


trio.run(main)
