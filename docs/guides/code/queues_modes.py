import trio

from trio_agent import Agent, AgentMessage, UserMessage
from trio_agent.testing import ScriptedModel


def said(messages: list[AgentMessage]) -> list[str]:
    return [message.text for message in messages if isinstance(message, UserMessage)]


async def main() -> None:
    model = ScriptedModel(["Hello.", "Both.", "Last.", "Later."])
    agent = Agent(model, steering_mode="all")
    agent.follow_up("third")
    agent.steer([UserMessage("first"), UserMessage("second")])
    print("next:", said(agent.peek_queued_messages()))
    await agent.prompt("Hi.")
    for request in model.requests:
        print(said(list(request.messages)))
    agent.steer("nobody runs")
    print("waits:", agent.has_queued_messages(), len(agent.steering))
    await agent.resume()  # the transcript ends with an answer: queued messages are taken
    print(said(list(agent.messages))[-1])


trio.run(main)
