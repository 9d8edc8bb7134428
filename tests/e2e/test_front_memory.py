"""A stream that is held does not hold its request."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness.gateway_process import GatewayProcess, StartGateway
from raw_http import RawConnection
from sluicegate.testing import Script, ScriptedUpstream

STREAMS = 200
LARGE = 600_000
"""Bytes of one request's body. The bodies are 120 MB, and so is each copy of them."""
TOGETHER = 4
"""Streams that begin at once: what requests take while they are read is not looked at here."""

NOISE = STREAMS * LARGE // 4
"""Bytes: more than what allocators and buffers of connections keep, and far less than one copy of the bodies.

The exact share is measured in benches/load.
"""
SETTLE_SECONDS = 30.0
"""More than the 10 s after which a thread that has nothing to do ends, and gives back what it kept."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("path", "api"),
    [
        pytest.param("/v1/chat/completions", "chat", id="chat-forwarded"),
        pytest.param("/v1/chat/completions", "responses", id="chat-translated", marks=pytest.mark.nightly),
        pytest.param("/v1/responses", "responses", id="responses-forwarded", marks=pytest.mark.nightly),
        pytest.param("/v1/responses", "chat", id="responses-translated"),
    ],
)
async def test_a_held_stream_does_not_hold_its_request(
    gateway: StartGateway, config: dict[str, Any], upstream: ScriptedUpstream, path: str, api: str
) -> None:
    config["upstreams"]["local"]["api"] = api
    running = await gateway(config)
    upstream.script = Script(tokens=2, end_delay=600.0)
    async with _held(running, path, b"x"):
        pass
    async with _held(running, path, b"x"):
        small = running.private_memory
    async with _held(running, path, b"x" * LARGE):
        bound = small + NOISE
        assert await _falls_to(running, bound) <= bound, (small, bound)


async def _falls_to(gateway: GatewayProcess, bound: int) -> int:
    """The memory, as soon as it is not above `bound`: an allocator gives back what it has a little later."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS):
            while gateway.private_memory > bound:
                # Allocators give back when they are used.
                await gateway.client.post("/v1/chat/completions", json={"model": "unknown", "messages": []})
                await asyncio.sleep(0.1)
    return gateway.private_memory


@contextlib.asynccontextmanager
async def _held(gateway: GatewayProcess, path: str, text: bytes) -> AsyncIterator[None]:
    """`STREAMS` streams under way, each with `text` in its request."""
    member = "messages" if path == "/v1/chat/completions" else "input"
    message = {"role": "user", "content": text.decode()}
    asked = json.dumps({"model": "small", member: [message], "stream": True, "store": False}).encode()
    limit = asyncio.Semaphore(TOGETHER)

    async def begin(connection: RawConnection) -> None:
        async with limit:
            await connection.post(path, asked)
            assert (await connection.head()).status == 200
            while b"delta" not in await connection.chunk():
                pass

    async with contextlib.AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(RawConnection(*gateway.address, patience=60))
            for _ in range(STREAMS)
        ]
        async with asyncio.timeout(120):
            await asyncio.gather(*map(begin, connections))
        yield
    await gateway.wait_metrics(lambda samples: not samples.value("sluicegate_active_streams"), seconds=60)
