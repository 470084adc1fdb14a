"""A service: prompts come in over TCP, a line each; the answer goes back as a line.
SIGTERM ends it in order.

In order means: no connection is accepted any more; connections that wait for a line
are closed; an agent that works may finish its turn and answer; what still works after
the grace is aborted. Each connection has an agent of its own, so that it is one
conversation.
"""

import signal
from functools import partial

import trio

from trio_agent import Agent, AssistantMessage, MessageBuilder, ModelRequest, SimpleModel, StreamSink, UserMessage

GRACE = 5.0
MAX_LINE = 10_000


async def shout(request: ModelRequest, sink: StreamSink) -> AssistantMessage:
    """Stand in for a model: think for a moment, then repeat the last prompt in capitals."""
    prompts = [message.text for message in request.messages if isinstance(message, UserMessage)]
    builder = MessageBuilder(request)
    await sink.send(builder.start())
    await trio.sleep(0.2)
    await sink.send(builder.text_start())
    await sink.send(builder.text_delta(f"{len(prompts)}. {prompts[-1].upper()}"))
    await sink.send(builder.text_end())
    return builder.finish("stop")


class Service:
    def __init__(self) -> None:
        self.agents: set[Agent] = set()
        self.stopping = False
        self.waiting: set[trio.CancelScope] = set()

    async def connection(self, stream: trio.SocketStream) -> None:
        agent = Agent(SimpleModel("demo", "shout", shout))
        self.agents.add(agent)
        buffer = bytearray()
        try:
            while (line := await self.line(stream, buffer)) is not None:
                result = await agent.prompt(line)
                await stream.send_all(f"{result.text or result.end_reason}\n".encode())
        except trio.BrokenResourceError:
            pass  # the client went away; the others stay
        finally:
            self.agents.discard(agent)

    async def line(self, stream: trio.SocketStream, buffer: bytearray) -> str | None:
        """The next line; None if there is none, it is too long, or the service stops."""
        with trio.CancelScope() as scope:
            self.waiting.add(scope)
            try:
                while not self.stopping and b"\n" not in buffer and len(buffer) < MAX_LINE:
                    if not (data := await stream.receive_some()):
                        return None
                    buffer += data
            finally:
                self.waiting.discard(scope)
        line, newline, rest = buffer.partition(b"\n")
        buffer[:] = rest
        return line.decode(errors="replace") if newline and not self.stopping else None

    async def run(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    serve = partial(trio.serve_tcp, self.connection, 0, host="127.0.0.1", handler_nursery=connections)
                    (listener,) = await accepting.start(serve)
                    print(f"port {listener.socket.getsockname()[1]}", flush=True)
                    await anext(signals)
                    accepting.cancel_scope.cancel(reason="the service stops")
                self.stopping = True
                for scope in self.waiting:
                    scope.cancel(reason="the service stops")
                for agent in self.agents:
                    agent.stop_after_turn()
                with trio.move_on_after(GRACE):
                    for agent in tuple(self.agents):
                        await agent.wait_for_idle()
                for agent in self.agents:
                    agent.abort("the service stops")
                connections.cancel_scope.deadline = trio.current_time() + 1  # for answers that nobody reads
        print("stopped", flush=True)


if __name__ == "__main__":
    trio.run(Service().run)
