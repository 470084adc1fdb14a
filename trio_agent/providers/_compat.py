"""How a server departs from the vendor whose API it speaks: data on the model, for both directions.

What is read and sent by default is what every server of the API takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, final

import attrs

from trio_agent._errors import UsageError
from trio_agent._messages import ThinkingLevel

__all__ = ["ChatCompat", "ChatThinking", "FinishMeaning", "MessagesCompat", "SystemMessages"]

FinishMeaning: TypeAlias = Literal["stop", "length", "tool_use", "refused", "error"]
"""What a finish reason means: ``refused`` raises `RefusedError`, ``error`` raises `ServerError`."""

ChatThinking: TypeAlias = Literal[
    "reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template", "none"
]
"""How a server of Chat Completions is told to think.

``reasoning_effort``: ``{"reasoning_effort": "high"}`` (OpenAI, Groq, xAI, Ollama); ``reasoning``:
``{"reasoning": {"effort": "high"}}`` (OpenRouter); ``thinking``: ``{"thinking": {"type": "enabled"}}`` (DeepSeek,
Z.ai, Moonshot); ``enable_thinking``: ``{"enable_thinking": true}`` (Qwen); ``chat_template``:
``{"chat_template_kwargs": {"enable_thinking": true}}`` (vLLM, SGLang, llama.cpp); ``none``: nothing is sent.
"""

SystemMessages: TypeAlias = Literal["first", "anywhere"]
"""Where a server takes system messages: only in front, so that later ones are put together with the first,
or where they stand in the transcript."""

_FINISH_REASONS: Mapping[str, FinishMeaning] = {
    "stop": "stop",
    "eos": "stop",  # text-generation-inference
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "model_context_window_exceeded": "length",  # Z.ai
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refused",
    "sensitive": "refused",  # Z.ai
    "error": "error",  # OpenRouter, Mistral
    "network_error": "error",  # Z.ai
    "insufficient_system_resource": "error",  # DeepSeek
    "abort": "error",  # vLLM, SGLang
}


def _finish_reasons(own: Mapping[str, FinishMeaning]) -> Mapping[str, FinishMeaning]:
    return {**_FINISH_REASONS, **own}


def _call_id_length(instance: object, attribute: object, value: int | None) -> None:
    # Shorter ones could not tell all calls of a transcript apart; longer ones no vendor takes.
    if value is not None and (type(value) is not int or not 8 <= value <= 64):
        raise UsageError(f"call_id_length is {value!r}, but must be a whole number from 8 to 64, or None")


@final
@attrs.frozen(kw_only=True)
class ChatCompat:
    """How a server departs from OpenAI's Chat Completions."""

    finish_reason_required: bool = True
    """False for servers that never send a finish reason: then ``[DONE]`` alone ends an answer. A body
    that ends without either is an error all the same, for it may have been cut (B82)."""
    finish_reasons: Mapping[str, FinishMeaning] = attrs.field(factory=dict, converter=_finish_reasons)
    """What its finish reasons mean; those given are added to what is known. One that is unknown is an error."""
    thinking_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details")
    """Where thinking may stand in a delta; of several that say something the first counts, for OpenRouter
    says the same twice. ``thinking_signature`` of the block is the name of the field, so that it can be
    sent back as it came (B89)."""
    thinking_replay: bool = True
    """Whether thinking of the same model is sent back in the field that it came in. Several servers demand
    it where there are tool calls, some refuse the field (B89)."""
    thinking: ChatThinking = "reasoning_effort"
    """How a thinking level is asked for. Nothing is sent where none is asked for (``off``), unless
    ``thinking_levels`` has a word for that."""
    thinking_levels: Mapping[ThinkingLevel, str] = attrs.field(factory=dict)
    """The server's words for thinking levels, where they are others than ours."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the limit of an answer, which is only sent where there is one."""
    system_role: Literal["system", "developer"] = "system"
    """The role of system messages."""
    system_messages: SystemMessages = "first"
    """Where it takes system messages."""
    stream_usage: bool = True
    """Whether usage is asked for with ``stream_options``; False for servers that refuse the field."""
    strict_tools: bool = False
    """Whether tools whose schema allows it (every object closed, every property required) are declared
    ``strict``."""
    call_id_length: int | None = attrs.field(default=None, validator=_call_id_length)
    """How many letters and digits an id of a tool call has, where the server demands one length (Mistral: 9)."""
    tool_result_name: bool = False
    """Whether tool results are sent with the name of the tool."""


@final
@attrs.frozen(kw_only=True)
class MessagesCompat:
    """How a server or model departs from Anthropic's Messages of today."""

    thinking: Literal["adaptive", "budget", "none"] = "adaptive"
    """How a thinking level is asked for: with an effort, the model deciding how much it thinks, or, by older
    models, with a budget of tokens. ``none`` sends nothing."""
    system_messages: SystemMessages = "first"
    """Where it takes system messages."""
    cache_control: bool = True
    """Whether the ends of the stable prefixes are marked for the server's cache."""
