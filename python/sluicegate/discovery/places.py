"""Where inference servers usually are: ports of this machine, and providers with their keys' variables."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

LOCAL_SERVERS: Mapping[int, str] = {
    11434: "Ollama",
    8000: "vLLM",
    8080: "llama.cpp",
    30000: "SGLang",
    1234: "LM Studio",
}
"""By the port that each listens on where nobody says otherwise."""


class Provider(NamedTuple):
    """A hosted API. `variable` is the environment variable that its own clients take the key from."""

    name: str
    base_url: str
    variable: str
    api: str = "chat"


PROVIDERS = (
    Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "both"),
    Provider("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "messages"),
    Provider("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    Provider("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    Provider("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    Provider("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    Provider("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    Provider("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    Provider("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
)


def key_variable(base_url: str) -> str | None:
    """The variable that usually holds the key for this server; None where it is not known."""
    host = urlsplit(base_url).hostname
    for provider in PROVIDERS:
        if urlsplit(provider.base_url).hostname == host:
            return provider.variable
    return None
