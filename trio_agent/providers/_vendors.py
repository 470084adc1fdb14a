"""Who offers models over HTTP: where, with which key, and how they depart from the API they speak.

No models are listed: a list would be wrong tomorrow. What stands here are facts of the vendors' documentation
and of recorded answers; a server that is not here is reached with ``openai_compatible``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, final
from urllib.parse import urlsplit

import attrs

from ._compat import ChatCompat, MessagesCompat
from ._model import ApiName

__all__ = ["VENDORS", "Vendor", "vendor_at"]


@final
@attrs.frozen(kw_only=True)
class Vendor:
    """What all models of a vendor have in common."""

    base_url: str
    key_variable: str | None = None
    """The environment variable that holds the key; None where no key is needed."""
    key_header: Literal["authorization", "x-api-key", "api-key"] = "authorization"
    compat: ChatCompat | MessagesCompat = attrs.field(factory=ChatCompat)

    @property
    def api(self) -> ApiName:
        """The wire format."""
        return "openai-chat" if isinstance(self.compat, ChatCompat) else "anthropic-messages"

    def fields(self) -> dict[str, Any]:
        """What an `HTTPModel` is made of, but its names."""
        return {
            "api": self.api,
            "base_url": self.base_url,
            "compat": self.compat,
            "key_variable": self.key_variable,
            "key_required": self.key_variable is not None,
            "key_header": self.key_header,
        }


_TYPE_OF_THINKING = ChatCompat(thinking="thinking")

VENDORS: Mapping[str, Vendor] = {
    "anthropic": Vendor(
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        key_header="x-api-key",
        compat=MessagesCompat(),
    ),
    "openai": Vendor(
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        compat=ChatCompat(max_tokens_field="max_completion_tokens", system_messages="anywhere"),
    ),
    # On the own machine, at the ports that they have by default.
    "ollama": Vendor(base_url="http://127.0.0.1:11434/v1"),
    "llamacpp": Vendor(base_url="http://127.0.0.1:8080/v1", compat=ChatCompat(thinking="chat_template")),
    "lmstudio": Vendor(base_url="http://127.0.0.1:1234/v1"),
    "vllm": Vendor(base_url="http://127.0.0.1:8000/v1", compat=ChatCompat(thinking="chat_template")),
    # Compatible ones.
    "cerebras": Vendor(base_url="https://api.cerebras.ai/v1", key_variable="CEREBRAS_API_KEY"),
    "deepseek": Vendor(
        base_url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY", compat=_TYPE_OF_THINKING
    ),
    "fireworks": Vendor(base_url="https://api.fireworks.ai/inference/v1", key_variable="FIREWORKS_API_KEY"),
    "groq": Vendor(
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        compat=ChatCompat(thinking_replay=False, max_tokens_field="max_completion_tokens"),
    ),
    "huggingface": Vendor(base_url="https://router.huggingface.co/v1", key_variable="HF_TOKEN"),
    "mistral": Vendor(
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        # It sends usage unasked, and takes ids of one length only.
        compat=ChatCompat(thinking="none", stream_usage=False, call_id_length=9, tool_result_name=True),
    ),
    "moonshot": Vendor(
        base_url="https://api.moonshot.ai/v1", key_variable="MOONSHOT_API_KEY", compat=_TYPE_OF_THINKING
    ),
    "openrouter": Vendor(
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        compat=ChatCompat(thinking="reasoning"),
    ),
    "together": Vendor(base_url="https://api.together.xyz/v1", key_variable="TOGETHER_API_KEY"),
    "xai": Vendor(base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY"),
    "zai": Vendor(base_url="https://api.z.ai/api/paas/v4", key_variable="ZAI_API_KEY", compat=_TYPE_OF_THINKING),
}


def vendor_at(base_url: str) -> tuple[str, Vendor] | None:
    """The vendor whose address a base URL is: same scheme, host and port."""
    wanted = urlsplit(base_url)[:2]
    for name, vendor in VENDORS.items():
        if urlsplit(vendor.base_url)[:2] == wanted:
            return name, vendor
    return None
