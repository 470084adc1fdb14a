import trio

from trio_agent import Agent
from trio_agent.testing import ScriptedModel


async def serve(stream: trio.SocketStream) -> None:
    """One conversation: a line in, an answer out; each connection has an agent of its own."""
    agent = Agent(ScriptedModel([f"Answer {n}." for n in range(1, 100)]))
    async with stream:
        received = b""
        async for chunk in stream:
            received += chunk
            while b"\n" in received:
                line, _, received = received.partition(b"\n")
                with trio.move_on_after(10) as scope:
                    result = await agent.prompt(line.decode())
                answer = "That took too long." if scope.cancelled_caught else result.text
                await stream.send_all(answer.encode() + b"\n")


async def client(port: int, lines: list[bytes]) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for line in lines:
            await stream.send_all(line + b"\n")
            print(line.decode(), "->", (await stream.receive_some()).decode().strip())


async def main() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        await client(port, [b"Hello", b"Hello again"])
        await client(port, [b"Somebody else"])
        nursery.cancel_scope.cancel(reason="the service ends")


trio.run(main)
