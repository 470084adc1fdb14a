import json

import trio

from trio_agent import Agent, AgentTurnContext, AgentTurnDecision, AssistantMessage
from trio_agent.testing import ScriptedModel


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def main() -> None:
    model = ScriptedModel(
        ["Sure! Here is it.", '{"city": "Rome"}', ConnectionError("line is down"), '{"city": "Oslo"}']
    )
    agent = Agent(model)

    def ask_again(turn: AgentTurnContext) -> AgentTurnDecision | None:
        if turn.message.stop_reason != "stop" or is_json(turn.message.text):
            return None
        agent.steer("Answer with JSON and nothing else.")
        return "continue"

    agent.finish_turn = ask_again
    print((await agent.prompt("Where is the Colosseum?")).text)

    # A request that failed ends the run. The host drops the failed answer and goes on.
    result = await agent.prompt("And the opera house?")
    for _ in range(3):
        if result.stop_reason != "error":
            break
        print("failed:", result.exception)
        agent.messages = agent.messages[:-1]
        await trio.sleep(0.1)
        result = await agent.resume()
    print(result.text)
    print([message.stop_reason for message in agent.messages if isinstance(message, AssistantMessage)])


trio.run(main)
