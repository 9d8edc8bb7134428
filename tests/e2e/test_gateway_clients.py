"""Clients that are slow, many, or gone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.gateway_process import GatewayProcess, StartGateway
from sluicegate.testing import Script, ScriptedUpstream

CHAT = {"model": "small", "messages": []}
STREAM = CHAT | {"stream": True}
SMALL = CHAT | {"mock": {"tokens": 1, "chunk_bytes": 0}}


def resident_bytes(gateway: GatewayProcess) -> int:
    """Of the process."""
    pages = int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1])
    return pages * 4096


async def raw_request(
    gateway: GatewayProcess, body: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request on a connection whose reply nobody reads yet."""
    host, _, port = gateway.base_url.removeprefix("http://").partition(":")
    # A small buffer of our own: what is not read stays with the gateway.
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)
    await writer.drain()
    return reader, writer


async def test_a_client_that_does_not_read_holds_its_upstream_and_no_memory(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    megabytes = 60
    upstream.script = Script(tokens=megabytes * 10, chunk_bytes=100_000)
    running = await gateway(config)
    await running.client.post("/v1/chat/completions", json=SMALL)
    before = resident_bytes(running)
    _, writer = await raw_request(running, STREAM)
    record = await upstream.requests.wait(2)
    sent = -1
    async with asyncio.timeout(30):
        while record.bytes_sent != sent:  # Until the upstream is held up.
            sent = record.bytes_sent
            await asyncio.sleep(0.5)
    assert sent < 30_000_000
    assert resident_bytes(running) - before < 30_000_000
    # Others are served meanwhile.
    other = await running.client.post(
        "/v1/chat/completions", json=CHAT | {"mock": {"tokens": 1, "chunk_bytes": 0}}
    )
    assert other.status_code == 200
    writer.close()
    assert (await record.ended()).client_left
    line = await running.wait_request(streamed=True)
    assert line["client_left"] is True


async def test_a_client_that_reads_late_gets_every_byte(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=300, chunk_bytes=10_000)
    running = await gateway(config)
    async with running.client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        await asyncio.sleep(0.5)
        size = 0
        text = ""
        async for piece in response.aiter_text():
            size += len(piece)
            text = (text + piece)[-100:]
    assert size > 300 * 10_000
    assert text.endswith("data: [DONE]\n\n")
    assert (await running.wait_request())["result"] == "ok"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_first_byte_frees_the_upstream(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], stream: bool
) -> None:
    upstream.script = Script(head_delay=60.0)
    running = await gateway(config)
    _, writer = await raw_request(running, CHAT | {"stream": stream})
    record = await upstream.requests.wait()
    writer.close()
    assert (await record.ended(5)).client_left
    line = await running.wait_request()
    assert (line["status"], line["result"]) == (499, "client_left")
    assert "cost" not in line


async def test_a_client_that_leaves_as_soon_as_it_has_asked_is_noticed(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(head_delay=60.0)
    running = await gateway(config)
    _, writer = await raw_request(running, CHAT)
    writer.close()
    line = await running.wait_request()
    assert line["client_left"] is True
    assert all([(await record.ended(5)).client_left for record in upstream.requests])


async def test_clients_that_leave_while_they_ask_are_all_recorded(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(head_delay=60.0)
    running = await gateway(config)
    count = 100
    # The connection's end arrives together with the request: hyper drops some of them before it polls them.
    await asyncio.gather(*(ask_and_leave(running) for _ in range(count)))
    await running.wait_request(count, client_left=True)


async def ask_and_leave(gateway: GatewayProcess) -> None:
    _, writer = await raw_request(gateway, CHAT)
    writer.close()


async def test_many_streams_at_once_come_whole(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    count = 200
    upstream.script = Script(tokens=20, pace=0.05)
    running = await gateway(config)
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=running.base_url, limits=limits, timeout=40) as client:
        replies = asyncio.gather(*(client.post("/v1/chat/completions", json=STREAM) for _ in range(count)))
        await upstream.requests.wait(count, 30)
        assert ((await running.metrics()).value("sluicegate_active_streams", model="small") or 0) > count / 2
        for reply in await replies:
            assert reply.text.endswith("data: [DONE]\n\n")
            assert reply.text.count('"content"') >= 20
    metrics = await running.wait_metrics(
        lambda samples: samples.value("sluicegate_requests_total", result="ok") == count
    )
    assert metrics.value("sluicegate_tokens_total", kind="output") == 20 * count
    assert metrics.value("sluicegate_active_streams", model="small") == 0


async def test_clients_that_all_leave_leave_nothing_behind(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    count = 100
    upstream.script = Script(tokens=2_000, pace=0.02)
    running = await gateway(config)
    writers = [(await raw_request(running, STREAM))[1] for _ in range(count)]
    await upstream.requests.wait(count, 20)
    async with asyncio.timeout(20):
        while not all(record.bytes_sent for record in upstream.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    for writer in writers:
        writer.transport.abort()
    for record in upstream.requests:
        assert (await record.ended(20)).client_left
    await running.wait_request(count, client_left=True)
    metrics = await running.metrics()
    assert metrics.value("sluicegate_client_disconnects_total", model="small") == count
    assert metrics.value("sluicegate_active_streams", model="small") == 0
    assert upstream.connections_open == 0
