import httpx  # noqa: ASYNC127 - the package that the library is specified with
import trio
from model_answers import client_of, say

from trio_agent import Agent
from trio_agent.providers import ContextTooLongError, ProviderError, open_models


async def main() -> None:
    busy = httpx.Response(429, headers={"retry-after": "2"}, json={"error": {"message": "too many requests"}})
    much = httpx.Response(429, headers={"retry-after": "86400"}, json={"error": {"message": "come back tomorrow"}})
    long = httpx.Response(
        400, json={"error": {"code": "context_length_exceeded", "message": "9001 tokens are too many"}}
    )
    client = client_of(busy, say("Here ", "I am."), much, long)
    async with open_models(client=client) as models:
        agent = Agent(models.openai_compatible("http://localhost:8000/v1", "some-model"))
        for prompt in ("Where are you?", "And now?", "Still there?"):
            before = trio.current_time()
            result = await agent.prompt(prompt)
            print(f"{trio.current_time() - before:.0f} s: {result.text or result.exception}")
            if isinstance(result.exception, ContextTooLongError):
                print("- to be shortened")
            elif isinstance(result.exception, ProviderError):
                print(f"- {result.exception.kind}, retryable: {result.exception.retryable}")


trio.run(main)
