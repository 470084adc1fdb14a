from typing import final

import attrs
import trio

from trio_agent import Agent, AssistantMessage, MessageBuilder, ModelRequest, StreamSink, UserMessage


@final
@attrs.frozen
class Parrot:
    """A model that says again what the user said last."""

    provider: str = "home"
    id: str = "parrot"

    async def stream_fn(self, request: ModelRequest, sink: StreamSink) -> AssistantMessage:
        said = [message.text for message in request.messages if isinstance(message, UserMessage)][-1]
        builder = MessageBuilder(request, api="parrot")
        await sink.send(builder.start())
        await sink.send(builder.text_start())
        for word in said.split(" "):
            await trio.sleep(0.1)
            await sink.send(builder.text_delta(f"{word}... "))
        await sink.send(builder.text_delta("krah!"))
        await sink.send(builder.text_end())
        return builder.finish("stop")


async def main() -> None:
    agent = Agent(Parrot())
    async with agent.run("Polly wants a cracker") as run:
        async for text in run.text():
            print(text, end="", flush=True)
    print()


trio.run(main)
