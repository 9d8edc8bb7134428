"""No token waits for the GIL, or for another request's work."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.faulty_gateway import faulty_gateway
from harness.gateway_process import GatewayProcess
from harness.paced_stream import PacedStream
from harness.starvation import Starvation
from sluicegate.testing import Script, ScriptedUpstream

STREAMS = 50
PACE = 0.1
HELD_SECONDS = 2.0
SHORT = 0.05
"""What a gap may grow by, in seconds, but for what the machine owes: see `Starvation`."""


@pytest.fixture
async def faulty(config: dict[str, Any], tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    process = await faulty_gateway(config, tmp_path)
    try:
        yield process
        assert await process.stop() == 0
    finally:
        await process.kill()


@pytest.mark.alone
async def test_streams_go_on_while_the_gil_is_held(
    faulty: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=300, pace=PACE)
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(PacedStream(faulty)) for _ in range(STREAMS)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(stream.begin() for stream in streams))
        async with Starvation(faulty.pid) as starvation:
            began = time.perf_counter()
            await faulty.tell(f"hold-gil {HELD_SECONDS}")
            await faulty.wait_line(event="holds_gil")
            # What needs Python is the proof that the GIL is held.
            answered = asyncio.ensure_future(faulty.client.get("/v1/models"))
            gaps = await asyncio.gather(*(stream.gaps(answered) for stream in streams))
            assert (await answered).status_code == 200
            assert time.perf_counter() - began > HELD_SECONDS * 0.9
        assert starvation.longest([gap for found in gaps for gap in found]) < PACE + SHORT
    upstream.script = Script(tokens=3)
    reply = await faulty.client.post("/v1/chat/completions", json={"model": "small", "messages": []})
    assert reply.json()["usage"]["cost"] > 0
