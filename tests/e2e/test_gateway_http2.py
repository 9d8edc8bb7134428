"""Clients over HTTP/2 and TLS: the same replies, leaving and slow reading included."""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import httpx
import pytest
import trustme

from harness import needed
from harness.gateway_process import GatewayProcess, StartGateway, spawn
from sluicegate.testing import Script, ScriptedUpstream

CHAT: dict[str, Any] = {"model": "small", "messages": []}
STREAM = CHAT | {"stream": True}
PATH = "/v1/chat/completions"


def client(gateway: GatewayProcess, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.base_url, timeout=30, **options)


async def whole_stream(client: httpx.AsyncClient) -> str:
    async with client.stream("POST", PATH, json=STREAM) as response:
        assert response.http_version == "HTTP/2"
        assert response.headers["content-type"].startswith("text/event-stream")
        return "".join([piece async for piece in response.aiter_text()])


# === without TLS: prior knowledge ===


async def test_both_versions_on_one_port(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(tokens=20, pace=0.01)
    async with client(running, http1=False, http2=True) as two, client(running) as one:
        texts = await asyncio.gather(*(whole_stream(two) for _ in range(20)))
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert len(set(texts)) == 1
        reply = await two.post(PATH, json=CHAT)
        assert (reply.http_version, reply.status_code) == ("HTTP/2", 200)
        assert reply.json()["usage"]["cost"] > 0
        reply = await one.post(PATH, json=CHAT)
        assert (reply.http_version, reply.status_code) == ("HTTP/1.1", 200)
        missing = await two.post(PATH, json=CHAT | {"model": "none"})
        assert missing.status_code == 404
    await running.wait_metrics(lambda samples: samples.value("sluicegate_requests_total", result="ok") == 22)


@dataclass
class Stream:
    """One request on a connection whose every frame the test decides."""

    connection: "Http2"
    number: int

    async def first_data(self) -> bytes:
        while self.number not in self.connection.data:
            await self.connection.step()
        return self.connection.data[self.number]


class Http2:
    """A client on a raw connection. `window`: of each stream, in bytes."""

    def __init__(self, address: tuple[str, int], window: int = 65_535) -> None:
        self._address = address
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._window = window
        self.data: dict[int, bytes] = {}
        self.reset: dict[int, int] = {}

    async def __aenter__(self) -> "Http2":
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self._h2.initiate_connection()
        await self.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()

    async def ask(self, body: dict[str, Any], request_id: str) -> Stream:
        number = self._h2.get_next_available_stream_id()
        text = json.dumps(body).encode()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "gateway"),
            (":path", PATH),
            ("content-type", "application/json"),
            ("content-length", str(len(text))),
            ("x-request-id", request_id),
        ]
        self._h2.send_headers(number, headers)
        self._h2.send_data(number, text, end_stream=True)
        await self.flush()
        return Stream(self, number)

    async def cancel(self, stream: Stream) -> None:
        self._h2.reset_stream(stream.number, 8)
        await self.flush()

    async def step(self, *, reading: bool = True) -> None:
        """Take what has come. `reading`: and let more come."""
        async with asyncio.timeout(10):
            received = await self._reader.read(65_536)
        assert received, "the gateway closed the connection"
        for event in self._h2.receive_data(received):
            if isinstance(event, h2.events.DataReceived):
                number = event.stream_id
                assert number is not None
                self.data[number] = self.data.get(number, b"") + (event.data or b"")
                if reading and event.flow_controlled_length:
                    self._h2.acknowledge_received_data(event.flow_controlled_length, number)
            elif isinstance(event, h2.events.StreamReset) and event.stream_id is not None:
                self.reset[event.stream_id] = int(event.error_code or 0)
        await self.flush()


def address(gateway: GatewayProcess) -> tuple[str, int]:
    host, _, port = gateway.base_url.partition("://")[2].partition(":")
    return host, int(port)


async def test_a_stream_that_is_cancelled_frees_its_upstream(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    """And it alone: the others of the connection go on."""
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(tokens=2_000, pace=0.02)
    async with Http2(address(running)) as connection:
        leaving = await connection.ask(STREAM, "leaving")
        staying = await connection.ask(STREAM, "staying")
        await leaving.first_data()
        await staying.first_data()
        await connection.cancel(leaving)
        line = await running.wait_request(request_id="leaving")
        assert line["result"] == "client_left"
        size = len(connection.data[staying.number])
        while len(connection.data[staying.number]) < size + 1_000:
            await connection.step()
    line = await running.wait_request(request_id="staying")
    assert line["result"] == "client_left"
    for record in upstream.requests:
        assert (await record.ended()).client_left


async def test_silent_streams_of_a_connection_that_ends_are_all_noticed(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(head_delay=60.0)
    count = 5
    async with Http2(address(running)) as connection:
        for number in range(count):
            await connection.ask(STREAM, f"silent-{number}")
        await upstream.requests.wait(count)
    for number in range(count):
        assert (await running.wait_request(request_id=f"silent-{number}"))["result"] == "client_left"
    for record in upstream.requests:
        assert (await record.ended()).client_left


async def test_a_silent_stream_that_is_cancelled_frees_its_upstream(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(head_delay=60.0)
    async with Http2(address(running)) as connection:
        stream = await connection.ask(STREAM, "silent")
        record = await upstream.requests.wait()
        await connection.cancel(stream)
        line = await running.wait_request(request_id="silent")
    assert line["result"] == "client_left"
    assert (await record.ended()).client_left


async def test_a_stream_that_is_not_read_holds_its_upstream_and_no_other(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(tokens=4_000, chunk_bytes=4_000)
    async with Http2(address(running)) as connection:
        held = await connection.ask(STREAM, "held")
        record = await upstream.requests.wait()
        while len(connection.data.get(held.number, b"")) < 65_535:
            await connection.step(reading=False)
        sent = -1
        async with asyncio.timeout(30):
            while record.bytes_sent != sent:
                sent = record.bytes_sent
                await asyncio.sleep(0.3)
        assert record.ended_at is None
        assert sent < 12_000_000
        async with client(running) as other:
            reply = await other.post(PATH, json=CHAT | {"mock": {"tokens": 1, "chunk_bytes": 0}})
            assert reply.status_code == 200
    assert (await record.ended()).client_left


async def test_a_stream_ends_whole_before_the_gateway_does(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    """Told with a GOAWAY and a PING, which the `h2` package takes for an error: another client."""
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in await output(curl, "--version"):
        needed.lacking(needed.CURL)
    running = await gateway({**config, "server": {"http": "auto"}})
    upstream.script = Script(tokens=40, pace=0.05)
    options = ("-sSN", "--http2-prior-knowledge", "--max-time", "30", "--json", json.dumps(STREAM))
    stream = asyncio.ensure_future(output(curl, *options, running.base_url + PATH))
    await upstream.requests.wait()
    running.signal()
    await running.wait_line(event="draining")
    assert not stream.done()
    assert (await stream).endswith(b"data: [DONE]\n\n")
    assert await running.wait() == 0
    assert running.find(event="request")[0]["result"] == "ok"


async def output(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    data, _ = await process.communicate()
    return data


# === TLS ===


@dataclass(frozen=True)
class Certificates:
    directory: Path
    authority: trustme.CA

    @property
    def tls(self) -> dict[str, str]:
        return {
            "cert_file": str(self.directory / "server.pem"),
            "key_file": str(self.directory / "server.key"),
        }

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(tmp_path / "server.key")
    for number, blob in enumerate(server.cert_chain_pems):
        blob.write_to_path(tmp_path / "server.pem", append=number > 0)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    return Certificates(tmp_path, authority)


@pytest.fixture
async def secure(
    upstream: ScriptedUpstream, config: dict[str, Any], certificates: Certificates, tmp_path: Path
) -> AsyncIterator[GatewayProcess]:
    server = {"http": "auto", "tls": certificates.tls}
    process = await GatewayProcess.start(
        {**config, "server": server}, tmp_path, verify=certificates.trusting()
    )
    try:
        yield process
        assert await process.stop() == 0
    finally:
        await process.kill()
    assert "Traceback" not in process.stderr, process.transcript()


async def test_tls_with_either_version(
    secure: GatewayProcess, upstream: ScriptedUpstream, certificates: Certificates
) -> None:
    assert secure.base_url.startswith("https://")
    upstream.script = Script(tokens=20, pace=0.01)
    async with client(secure, http2=True, verify=certificates.trusting()) as two:
        assert (await whole_stream(two)).endswith("data: [DONE]\n\n")
    async with client(secure, verify=certificates.trusting()) as one:
        reply = await one.post(PATH, json=STREAM)
        assert reply.http_version == "HTTP/1.1"
        assert reply.text.endswith("data: [DONE]\n\n")
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        async with client(secure) as stranger:
            await stranger.get("/healthz")


async def test_a_key_that_is_not_the_certificates_is_told_before_it_serves(
    config: dict[str, Any], certificates: Certificates, tmp_path: Path
) -> None:
    other = trustme.CA().issue_cert("127.0.0.1")
    other.private_key_pem.write_to_path(tmp_path / "server.key")
    path = tmp_path / "gateway.yaml"
    server = {"port": 0, "log": {"format": "json"}, "tls": certificates.tls}
    path.write_text(json.dumps({**config, "server": server}))
    process = GatewayProcess(await spawn("serve", "--config", str(path)))
    try:
        assert await process.wait(20) == 1
        [line] = process.find(event="configuration")
        assert "server.tls" in json.dumps(line)
        assert "Traceback" not in process.stderr
    finally:
        await process.kill()
