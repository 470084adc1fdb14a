"""A stand-in for a server, so that the programs of this page run without one."""

import json

import httpx  # noqa: ASYNC127 - the package that the library is specified with


def say(*texts: str, usage: tuple[int, int] = (0, 0)) -> str:
    """The body of an answer of Chat Completions, as servers stream it."""
    chunks: list[object] = [
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    chunks.append({"choices": [], "usage": counts})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def client_of(*answers: httpx.Response | str) -> httpx.AsyncClient:
    """A client that sends nothing: it gives these answers, one after the other."""
    left = iter(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = next(left)
        return httpx.Response(200, text=answer) if isinstance(answer, str) else answer

    return httpx.AsyncClient(transport=httpx.MockTransport(handle))
