from typing import Any

import trio

from trio_agent import Tool, ToolCall, ToolContext, run_tool_call


def execute(args: dict[str, Any], ctx: ToolContext) -> str:
    return f"{args['city']}: {args['days']} days"


forecast = Tool(
    "forecast",
    "Forecast the weather.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 14}},
        "required": ["city", "days"],
    },
    execute=execute,
    prepare_arguments=lambda raw: {"days": 1, **raw},
)


async def main() -> None:
    for arguments in ({"city": "Rome"}, {"city": "Rome", "days": "3"}, {"city": "Rome", "days": 30}):
        outcome = await run_tool_call(ToolCall("c1", "forecast", arguments), tools=[forecast])
        print("error" if outcome.is_error else "ok", outcome.result.text)


trio.run(main)
