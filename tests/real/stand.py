"""The gateway in front of one real server, over each API that the server has."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from harness.gateway_process import GatewayProcess, Line
from harness.shared_gateway import shared_gateway
from real.server import Api, Running, Server

INPUT, CACHED_INPUT, OUTPUT = Decimal(3), Decimal("0.3"), Decimal(15)
"""USD per million tokens."""
SECONDS = 90.0
"""For one reply: of whole ones nothing comes before the end."""

PATHS: dict[Api, str] = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


@dataclass(frozen=True, slots=True)
class RealStand:
    """The server twice: as it is, and through a gateway, where the models are called as its APIs."""

    running: Running
    gateway: GatewayProcess
    direct: httpx.AsyncClient
    proxied: httpx.AsyncClient
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic

    @property
    def server(self) -> Server:
        return self.running.server

    async def both(self, api: Api, **members: Any) -> tuple[httpx.Response, httpx.Response]:
        """The two replies to one request: the server's own, and the gateway's."""
        # Whatever part of a prompt the server has read before is cached: let that be all of it, for both.
        for _ in range(2):
            theirs = await self.direct.post(PATHS[api], json={**members, "model": self.running.model})
        return theirs, await self.proxied.post(PATHS[api], json={**members, "model": api})

    async def line(self, reply: httpx.Response) -> Line:
        """The log line of a reply."""
        return await self.gateway.wait_request(request_id=reply.headers["x-request-id"])


@contextlib.asynccontextmanager
async def real_stand(running: Running, directory: Path) -> AsyncIterator[RealStand]:
    """The gateway's own files are written to `directory`."""
    apis = running.server.apis
    price = {"input": str(INPUT), "cached_input": str(CACHED_INPUT), "output": str(OUTPUT)}
    config = {
        "upstreams": {
            api: {"base_url": running.base_url, "api": api, **running.server.settings} for api in apis
        },
        "models": {api: {"upstream": api, "model": running.model} for api in apis},
        "prices": dict.fromkeys(apis, price),
        "cost": {"genai_prices": False},
    }
    async with (
        shared_gateway(config, directory) as gateway,
        httpx.AsyncClient(base_url=running.base_url, timeout=SECONDS) as direct,
        httpx.AsyncClient(base_url=gateway.api_url, timeout=SECONDS) as proxied,
        openai.AsyncOpenAI(base_url=gateway.api_url, api_key="none", max_retries=0, timeout=SECONDS) as first,
        anthropic.AsyncAnthropic(
            base_url=gateway.base_url, api_key="none", max_retries=0, timeout=SECONDS
        ) as second,
    ):
        yield RealStand(running, gateway, direct, proxied, first, second)
