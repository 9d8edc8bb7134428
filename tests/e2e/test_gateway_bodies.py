"""Request bodies over real sockets: large, slow, refused half-way, cut off."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from harness.wire_stand import WireStand, wire_stand
from sluicegate.testing import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 1_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


@pytest.fixture
def stand(shared: WireStand) -> WireStand:
    """The stand with a healthy upstream that has seen nothing."""
    shared.upstream.script = Script()
    shared.upstream.requests.clear()
    return shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """One that takes bodies of up to `LIMIT` bytes."""
    config = {"server": {"max_body_bytes": LIMIT}}
    async with wire_stand(tmp_path_factory.mktemp("narrow"), config) as stand:
        yield stand


class RawClient:
    """A client that says exactly what a test wants to be said."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, gateway: GatewayProcess) -> "RawClient":
        host, _, port = gateway.base_url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, seconds: float = 10.0) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(seconds):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = text.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers

    async def body(self, headers: dict[str, str]) -> Any:
        return json.loads(await self.reader.readexactly(int(headers["content-length"])))

    async def closed(self, seconds: float = 10.0) -> bytes:
        """What comes until the connection ends."""
        async with asyncio.timeout(seconds):
            return await self.reader.read(-1)

    def close(self) -> None:
        self.writer.close()


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST /v1/chat/completions HTTP/1.1", "host: gateway", *lines, "", "")).encode()


async def test_a_large_body_within_the_limit_arrives_whole(stand: WireStand) -> None:
    content = "x" * 10_000_000
    body = {"model": "small", "messages": [{"role": "user", "content": content}]}
    response = await stand.gateway.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200
    assert stand.upstream.requests[0].json()["messages"][0]["content"] == content


async def test_a_client_that_sends_too_much_reads_the_refusal(narrow: WireStand) -> None:
    # All of it is written before the answer is read, as most clients do.
    response = await narrow.gateway.client.post("/v1/chat/completions", content=b"x" * (20 * LIMIT))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    line = await narrow.gateway.wait_request(request_id=response.headers["x-request-id"])
    assert line["status"] == 413


async def test_a_chunked_body_is_refused_once_it_is_too_large(narrow: WireStand) -> None:
    client = await RawClient.connect(narrow.gateway)
    await client.send(head("transfer-encoding: chunked"))
    for _ in range(20):
        await client.send(b"186A0\r\n" + b"x" * 100_000 + b"\r\n")
    status, headers = await client.head()
    assert status == 413
    assert headers["connection"] == "close"
    client.close()


async def test_a_client_that_waits_to_continue_is_refused_before_it_sends(narrow: WireStand) -> None:
    client = await RawClient.connect(narrow.gateway)
    await client.send(head(f"content-length: {LIMIT + 1}", "expect: 100-continue"))
    status, headers = await client.head()
    assert status == 413
    await client.body(headers)
    assert await client.closed() == b""
    client.close()


async def test_a_client_that_waits_to_continue_is_told_to(stand: WireStand) -> None:
    client = await RawClient.connect(stand.gateway)
    body = b'{"model": "small", "messages": []}'
    await client.send(head(f"content-length: {len(body)}", "expect: 100-continue"))
    assert (await client.head())[0] == 100
    await client.send(body)
    assert (await client.head())[0] == 200
    client.close()


async def test_a_refused_client_without_a_key_keeps_its_connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = {"keys": [{"name": "team", "key": "sk-team"}]}
    async with wire_stand(tmp_path_factory.mktemp("keyed"), config) as keyed:
        client = await RawClient.connect(keyed.gateway)
        body = b'{"model": "small", "messages": []}'
        for authorization, expected in (("Bearer wrong", 401), ("Bearer sk-team", 200)):
            await client.send(head(f"content-length: {len(body)}", f"authorization: {authorization}") + body)
            status, headers = await client.head()
            assert status == expected
            await client.body(headers)
        client.close()


async def test_a_body_that_trickles_in_is_waited_for(stand: WireStand) -> None:
    client = await RawClient.connect(stand.gateway)
    body = b'{"model": "small", "messages": []}'
    await client.send(head(f"content-length: {len(body)}"))
    for i in range(len(body)):
        await client.send(body[i : i + 1])
        await asyncio.sleep(0.002)
    status, headers = await client.head()
    assert status == 200
    await client.body(headers)
    assert json.loads(stand.upstream.requests[0].body)["model"] == "small"
    client.close()


async def test_a_client_that_leaves_while_it_sends_is_recorded(stand: WireStand) -> None:
    client = await RawClient.connect(stand.gateway)
    await client.send(head("content-length: 1000", "x-request-id: leaves-early") + b'{"model"')
    client.close()
    line = await stand.gateway.wait_request(request_id="leaves-early")
    assert (line["status"], line["result"]) == (499, "client_left")
    assert not len(stand.upstream.requests)


async def test_two_requests_in_one_connection_are_answered_in_turn(stand: WireStand) -> None:
    stand.upstream.enqueue(Script(model="first", head_delay=0.1), Script(model="second"))
    client = await RawClient.connect(stand.gateway)
    body = b'{"model": "small", "messages": []}'
    await client.send((head(f"content-length: {len(body)}") + body) * 2)
    for name in ("first", "second"):
        status, headers = await client.head()
        assert status == 200
        assert (await client.body(headers))["model"] == name
    client.close()
