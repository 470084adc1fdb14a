import trio

from trio_agent import Agent, AgentTurnContext, AgentTurnDecision, AssistantMessage, RunLimits, ToolCall, Usage, tool
from trio_agent.testing import ScriptedModel

BUDGET = 1000


@tool
def search(word: str) -> str:
    """Search."""
    return f"nothing about {word}"


def within_budget(turn: AgentTurnContext) -> AgentTurnDecision | None:
    answers = [message for message in turn.new_messages if isinstance(message, AssistantMessage)]
    spent = sum(answer.usage.total_tokens for answer in answers)
    return "end" if spent >= BUDGET else None


def turn(number: int) -> AssistantMessage:
    call = ToolCall(f"c{number}", "search", {"word": "x" * number})
    return AssistantMessage([call], stop_reason="tool_use", usage=Usage(total_tokens=400))


async def main() -> None:
    agent = Agent(ScriptedModel([turn(n) for n in range(1, 9)]), tools=[search], finish_turn=within_budget)
    result = await agent.prompt("Search until you find something.")
    print(result.end_reason, result.usage.total_tokens)

    agent.finish_turn = None
    agent.limits = RunLimits(turns=2, seconds=60)
    result = await agent.prompt("Go on.")
    print(result.end_reason, result.usage.total_tokens)


trio.run(main)
