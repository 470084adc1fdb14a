"""anthropic's ``tool_runner`` over a transport in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import httpx2
from anthropic import AsyncAnthropic, beta_async_tool

from bench.crew import Crew

from .adapter import Entry, Script
from .on_asyncio import AsyncioAdapter, Handle, ToolFunction, now


def _message(content: list[Any], stop: str | None) -> dict[str, Any]:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def _answer(turn: int, step: int | str) -> dict[str, Any]:
    if isinstance(step, str):
        return _message([{"type": "text", "text": step}], "end_turn")
    calls = [{"type": "tool_use", "id": f"c{turn}-{i}", "name": "work", "input": {"i": i}} for i in range(step)]
    return _message(calls, "tool_use")


def _client(handler: Callable[[Any], Any]) -> Any:
    transport = httpx2.MockTransport(handler)
    return AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport), max_retries=0)


def _stream(start: dict[str, Any], deltas: Sequence[dict[str, Any]], stop: str) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _message([], None)},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def entries(messages: Any) -> list[Entry]:
    """Messages of its requests, and of a runner's conversation."""
    found: list[Entry] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            found.append(Entry("user" if message["role"] == "user" else "text"))
            continue
        for item in content:
            block = item if isinstance(item, dict) else item.model_dump()
            match block["type"]:
                case "tool_use":
                    found.append(Entry("call", block["id"]))
                case "tool_result":
                    found.append(Entry("result", block["tool_use_id"], json.dumps(block.get("content"))))
                case _:
                    found.append(Entry("user" if message["role"] == "user" else "text"))
    return found


class _Handle(Handle):
    client: Any = None
    runner: Any = None
    sent: bytes = b""


class ToolRunner(AsyncioAdapter):
    """``client.beta.messages.tool_runner``: tools run one after the other."""

    version = version("anthropic")
    note = "tool_runner over a transport in memory: its JSON and HTTP layers are part of it; tools run one by one"
    sequential = True
    threads = False

    def build(self, script: Script, tool: ToolFunction, crew: Crew, stamps: list[float] | None = None) -> Any:
        bodies = iter([json.dumps(_answer(turn, step)).encode() for turn, step in enumerate(script)])
        handle = _Handle()

        async def handler(request: Any) -> Any:  # noqa: ASYNC124 - a contract
            crew.requests += 1
            handle.sent = request.content
            if stamps is not None:
                stamps.append(now())
            return httpx2.Response(200, content=next(bodies), headers={"content-type": "application/json"})

        handle.client = _client(handler)
        handle.agent = beta_async_tool(tool, name="work", description="Works.")
        return handle

    async def run(self, handle: Any, prompt: str = "go") -> None:
        await self._ask(handle, [{"role": "user", "content": prompt}])

    async def _ask(self, handle: Any, messages: list[Any]) -> None:
        handle.runner = handle.client.beta.messages.tool_runner(
            model="scripted", max_tokens=10, tools=[handle.agent], messages=messages
        )
        await handle.runner.until_done()

    async def history(self, handle: Any) -> list[Entry] | None:
        return entries(self._conversation(handle))

    def _conversation(self, handle: Any) -> list[Any]:
        # A private attribute: the runner shows its conversation to nobody.
        return list(handle.runner._thread.messages)

    async def again(self, handle: Any) -> None:
        await self._ask(handle, [*self._conversation(handle), {"role": "user", "content": "again"}])
        handle.seen = entries(json.loads(handle.sent)["messages"])

    async def stream_text(self, n: int, on_delta: Callable[[], None]) -> None:
        delta = {"type": "text_delta", "text": "word "}
        await self._watch([_stream({"type": "text", "text": ""}, [delta] * n, "end_turn")], "text", on_delta)

    async def stream_arguments(self, parts: Sequence[str], on_delta: Callable[[], None]) -> None:
        start = {"type": "tool_use", "id": "c0-0", "name": "work", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        last = _stream({"type": "text", "text": ""}, [{"type": "text_delta", "text": "done"}], "end_turn")
        await self._watch([_stream(start, deltas, "tool_use"), last], "input_json", on_delta)

    async def _watch(self, bodies: list[bytes], kind: str, on_delta: Callable[[], None]) -> None:
        ready = iter(bodies)

        async def handler(request: Any) -> Any:  # noqa: ASYNC124 - a contract
            return httpx2.Response(200, content=next(ready), headers={"content-type": "text/event-stream"})

        async def work(n: int, items: list[Any]) -> str:  # noqa: ASYNC124 - a contract
            """Works."""
            return "ok"

        runner = _client(handler).beta.messages.tool_runner(
            model="scripted", max_tokens=10, tools=[beta_async_tool(work)],
            messages=[{"role": "user", "content": "go"}], stream=True,
        )  # fmt: skip
        async for stream in runner:
            async for event in stream:
                if event.type == kind:
                    on_delta()
