"""``trio-agent decode``: what a recorded response of a provider says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from trio_agent import AssistantMessage, ThinkingContent, ToolCall, Usage
from trio_agent.providers import AnthropicMessagesDecoder, ChatCompat, OpenAIChatDecoder, ProviderError

from ._exit import ExitCode

__all__ = ["decode"]

_APIS = ("openai-chat", "anthropic-messages")


# click keeps a paragraph that begins with a backspace as it is.
_EXIT_CODES = """\b
Exit codes:
  0    the answer is complete
  1    it ended in an error: `error` says which, the rest what had come
  2    wrong usage, or a FILE that cannot be read
"""


class _FileError(click.ClickException):
    """A file that cannot be decoded; shown as one line."""

    exit_code = ExitCode.USAGE


@click.command(epilog=_EXIT_CODES)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--api", required=True, type=click.Choice(_APIS), help="Which API the response is of.")
@click.option("--cut", metavar="N", type=click.IntRange(min=1), help="Feed it in pieces of N bytes; by default whole.")
@click.option(
    "--no-finish-reason", is_flag=True, help="The server never sends a finish reason: [DONE] alone ends an answer."
)
def decode(file: Path, *, api: str, cut: int | None, no_finish_reason: bool) -> None:
    """Decode a recorded response of a provider and print what it says, as one JSON object.

    FILE holds the body of the response as it came (server-sent events or JSON), or is a JSON object with
    `status` and `body`, and perhaps `headers`; - reads standard input.
    """
    if no_finish_reason and api != "openai-chat":
        raise click.UsageError("--no-finish-reason goes with --api openai-chat.")
    status, headers, body = _recorded(file, _read(file))
    decoder: OpenAIChatDecoder | AnthropicMessagesDecoder
    if api == "openai-chat":
        compat = ChatCompat(finish_reason_required=not no_finish_reason)
        decoder = OpenAIChatDecoder(status=status, headers=headers, compat=compat)
    else:
        decoder = AnthropicMessagesDecoder(status=status, headers=headers)
    for piece in _pieces(body, cut):
        decoder.feed(piece)
        if decoder.done:
            break
    decoder.end()
    error: ProviderError | None = None
    try:
        message = decoder.finish()
    except ProviderError as failure:
        error = failure
        message = decoder.builder.snapshot(stop_reason="error")
    click.echo(json.dumps(_shown(message, error)))
    if error is not None:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise _FileError(f"{file}: {error.strerror}; name a file that holds a recorded response") from error


def _recorded(file: Path, data: bytes) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of what was recorded; of a bare body a success."""
    try:
        document = json.loads(data) if data.lstrip()[:1] == b"{" else None
    except (ValueError, RecursionError):
        document = None  # a body that is broken; the decoder says how
    if not isinstance(document, dict) or "body" not in document:
        return 200, {}, data
    status, headers, body = document.get("status", 200), document.get("headers") or {}, document["body"]
    if not isinstance(body, str) or type(status) is not int or not isinstance(headers, dict):
        raise _FileError(
            f"{file}: 'body' must be a string, 'status' a number and 'headers' an object;"
            " or give the bare body of the response"
        )
    return status, {str(name): str(value) for name, value in headers.items()}, body.encode("utf-8", "replace")


def _pieces(body: bytes, size: int | None) -> Iterator[bytes]:
    step = max(1, len(body)) if size is None else size
    for start in range(0, len(body), step):
        yield body[start : start + step]


def _shown(message: AssistantMessage, error: ProviderError | None) -> dict[str, Any]:
    return {
        "text": message.text,
        "thinking": "".join(block.thinking for block in message.content if type(block) is ThinkingContent),
        "tool_calls": [_call(call) for call in message.tool_calls],
        "stop_reason": message.stop_reason,
        "raw_stop_reason": message.raw_stop_reason,
        "usage": _usage(message.usage),
        "error": error
        and {"kind": error.kind, "message": str(error), "status": error.status, "retryable": error.retryable},
    }


def _call(call: ToolCall) -> dict[str, Any]:
    """A call; arguments that are no JSON object are shown as the text that came."""
    broken = call.arguments_error is not None
    return {"id": call.id, "name": call.name, "arguments": call.raw_arguments if broken else dict(call.arguments)}


def _usage(usage: Usage) -> dict[str, Any] | None:
    if usage == Usage():
        return None  # the server did not say
    names = ("input", "output", "cache_read", "cache_write", "reasoning", "total_tokens")
    return {name: getattr(usage, name) for name in names}
