"""The gateway in front of llama.cpp's server, by way of its chat, its own Responses and its own Messages."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.gateway_process import GatewayProcess
from harness.llama_cpp import NAME, LlamaCppProcess
from harness.shared_gateway import shared_gateway

MODELS = BY_CHAT, BY_RESPONSES, BY_MESSAGES = "by-chat", "by-responses", "by-messages"
MOSTLY_CHAT = (BY_CHAT, *(pytest.param(model, marks=pytest.mark.nightly) for model in MODELS[1:]))
"""`MODELS` for clients that are processes of their own: what differs between models is tested in process."""
"""Names of the one model. The server's Responses and Messages streams break clients: they are repaired."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a client is to send its requests."""

    gateway: GatewayProcess
    model: str

    @property
    def base_url(self) -> str:
        """With `/v1`."""
        return self.gateway.api_url


@contextlib.asynccontextmanager
async def gateway_before_llama_cpp(model: Path, context: int | None = None) -> AsyncIterator[GatewayProcess]:
    """`model` (GGUF) served under the names `MODELS`. Logs go beside it."""
    server = LlamaCppProcess.start(model, model.with_suffix(".log"), context=context)
    try:
        async with shared_gateway(_configuration(server.base_url), model.parent) as gateway:
            yield gateway
    finally:
        server.stop()


def _configuration(base_url: str) -> Mapping[str, Any]:
    return {
        "upstreams": {
            "chat": {"base_url": base_url},
            "responses": {"base_url": base_url, "api": "responses", "repair": True},
            "messages": {"base_url": base_url, "api": "messages", "repair": True},
        },
        "models": {
            BY_CHAT: {"upstream": "chat", "model": NAME},
            BY_RESPONSES: {"upstream": "responses", "model": NAME},
            BY_MESSAGES: {"upstream": "messages", "model": NAME},
        },
        "prices": {model: {"input": 1, "cached_input": 0.1, "output": 4} for model in MODELS},
        "cost": {"genai_prices": False},
    }
