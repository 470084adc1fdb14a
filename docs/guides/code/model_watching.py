from typing import Any

import attrs
import trio
from model_answers import client_of, say

from trio_agent import Agent
from trio_agent.providers import HTTPModel, Prices, ProviderResponse, open_models


def see(payload: Any, model: HTTPModel) -> Any:
    print(f"to {model.id}: {len(payload['messages'])} messages, {sorted(payload)}")
    return {**payload, "seed": 7}  # what is returned is sent; None sends it as it was


def hear(response: ProviderResponse, model: HTTPModel) -> None:
    print(f"from {model.id}: status {response.status}")


async def main() -> None:
    client = client_of(say("Four.", usage=(1200, 40)))
    async with open_models(client=client, on_payload=see, on_response=hear) as models:
        model = models.openai_compatible("http://localhost:8000/v1", "some-model")
        agent = Agent(attrs.evolve(model, prices=Prices(input=2.0, output=8.0)))
        result = await agent.prompt("What is two and two?")
        print(f"{result.text} It cost {result.usage.cost['total']:.5f}.")


trio.run(main)
