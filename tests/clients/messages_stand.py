"""The gateway in front of the scripted upstream, over each API that it may have, for clients of Messages."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from sluicegate.testing import ScriptedUpstream

KEY = "sk-client"
APIS = ("messages", "chat", "responses")
"""What the upstream has; the models are called so."""


@dataclass(frozen=True, slots=True)
class MessagesStand:
    gateway: GatewayProcess
    upstream: ScriptedUpstream

    @property
    def base_url(self) -> str:
        """Without `/v1`, as Anthropic's clients want it."""
        return self.gateway.base_url


@contextlib.asynccontextmanager
async def messages_stand(directory: Path) -> AsyncIterator[MessagesStand]:
    async with ScriptedUpstream() as upstream:
        config = {
            "keys": [{"name": "client", "key": KEY}],
            "upstreams": {api: {"base_url": upstream.base_url, "api": api} for api in APIS},
            "models": {api: f"{api}/small" for api in APIS},
            "prices": {api: {"input": 1, "cached_input": 0.1, "output": 4} for api in APIS},
            "cost": {"genai_prices": False},
        }
        async with shared_gateway(config, directory) as gateway:
            yield MessagesStand(gateway, upstream)
