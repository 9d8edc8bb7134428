"""What becomes of the process, and of its clients, when a part of it fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.faulty_gateway import faulty_gateway
from harness.gateway_process import GatewayProcess
from sluicegate.testing import Script, ScriptedUpstream

CHAT = {"model": "small", "messages": []}
PATIENCE = 0.5

StartFaulty = Callable[..., Awaitable[GatewayProcess]]


@pytest.fixture
async def faulty(config: dict[str, Any], tmp_path: Path) -> AsyncIterator[StartFaulty]:
    started: list[GatewayProcess] = []

    async def start(patience: float = 15.0) -> GatewayProcess:
        started.append(await faulty_gateway(config, tmp_path, patience=patience))
        return started[-1]

    yield start
    for process in started:
        await process.kill()


async def test_an_engine_that_dies_ends_the_process(faulty: StartFaulty) -> None:
    gateway = await faulty()
    await gateway.tell("end-engine")
    # Its next look at its sockets fails; whether this is answered before that does not matter.
    await _ask_for_nothing(gateway)
    died = await gateway.wait_line(event="died")
    assert died["level"] == "error"
    assert died["message"] == "engine 1 ended"
    assert await gateway.wait(30) == 1


async def test_the_thread_that_decides_ends_the_process(faulty: StartFaulty) -> None:
    gateway = await faulty()
    await gateway.tell("end-deciding")
    died = await gateway.wait_line(event="died")
    assert died["level"] == "error"
    assert died["message"].startswith("the thread that decides ended")
    assert await gateway.wait(30) == 1


async def test_a_decision_that_comes_late_is_a_503(faulty: StartFaulty, upstream: ScriptedUpstream) -> None:
    gateway = await faulty(PATIENCE)
    upstream.script = Script(tokens=3)
    await gateway.tell(f"decide-late {PATIENCE * 4}")
    await gateway.wait_line(event="decides_late")
    late = await gateway.client.post("/v1/chat/completions", json=CHAT)
    assert late.status_code == 503
    assert late.json()["error"]["code"] == "undecided"
    assert late.headers["retry-after"]
    line = await gateway.wait_request(request_id=late.headers["x-request-id"])
    assert (line["status"], line["code"], line["result"]) == (503, "undecided", "failed")
    # The answer comes by now, to nobody: it starts nothing.
    served = await gateway.client.post("/v1/chat/completions", json=CHAT)
    assert served.status_code == 200
    await gateway.wait_request(request_id=served.headers["x-request-id"])
    assert len(upstream.requests) == 1
    assert len(gateway.find(event="request")) == 2
    samples = await gateway.metrics()
    assert samples.value("sluicegate_requests_total") == 2
    assert await gateway.stop() == 0


async def _ask_for_nothing(gateway: GatewayProcess) -> None:
    for _ in range(3):
        try:
            await asyncio.wait_for(gateway.client.get("/healthz"), 2)
        except (httpx.TransportError, TimeoutError):
            return


async def test_what_nobody_waits_for_is_dropped_and_counts_while_nothing_is_decided(
    config: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Clients leave while the thread that decides stands still: as long as the ends of their requests wait
    to be taken, others are refused.
    """
    most = 20
    config = {**config, "server": {**config.get("server", {}), "bounds": {"requests": most}}}
    gateway = await faulty_gateway(config, tmp_path)
    try:
        await gateway.tell("decide-late 8")
        await gateway.wait_line(event="decides_late")
        async with httpx.AsyncClient(base_url=gateway.base_url, timeout=2.0) as client:
            asking = (client.post("/v1/chat/completions", json=CHAT) for _ in range(most))
            left = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(error, httpx.TimeoutException) for error in left)
        refused = await gateway.client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        await gateway.wait_request(most, status=499)
        await gateway.wait_request(status=503)
        served = await gateway.client.post("/v1/chat/completions", json=CHAT)
        assert served.status_code == 200
    finally:
        await gateway.kill()
    assert len(upstream.requests) == 1
