"""Connections in the system's queue when the gateway is told to stop: they are answered, not reset."""

import asyncio
import contextlib
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from harness.gateway_process import GatewayProcess
from harness.hostile_client import sized
from harness.raw_http2 import RawHttp2
from harness.wire_stand import request_body
from sluicegate.testing import Script, ScriptedUpstream

PLACES = 10
"""Connections that the gateway serves at once."""
CLIENTS = 50
LONG = 600
"""Seconds: no test here may take as long."""
PATIENCE = 60


@dataclass(frozen=True)
class Reply:
    """`status`: 0: closed without a reply; -1: reset. `head`: in lower case."""

    status: int
    head: bytes = b""
    body: bytes = b""


@contextlib.asynccontextmanager
async def full_gateway(
    config: dict[str, Any], directory: Path, context: ssl.SSLContext | None = None, **server: Any
) -> AsyncIterator[GatewayProcess]:
    """A gateway with few places. `context`: how its clients check its certificate."""
    bounds = {"connections": PLACES, **server.pop("bounds", {})}
    server = {"threads": 2, "drain_seconds": PATIENCE, **server, "bounds": bounds}
    verify = True if context is None else context
    gateway = await GatewayProcess.start({**config, "server": server}, directory, verify=verify)
    try:
        # Else its connection takes a place.
        await gateway.close_client()
        yield gateway
    finally:
        await gateway.kill()
    assert "Traceback" not in gateway.stderr, gateway.transcript()
    assert not gateway.find(level="error"), gateway.transcript()


@contextlib.contextmanager
def connected(gateway: GatewayProcess, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, each accepted by the system at least."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(gateway.address)) for _ in range(count)]


async def ask(client: socket.socket, sent: bytes = b"", context: ssl.SSLContext | None = None) -> Reply:
    """All that comes to a client that sends `sent` and then only reads."""
    async with asyncio.timeout(PATIENCE):
        try:
            name = None if context is None else "127.0.0.1"
            reader, writer = await asyncio.open_connection(
                sock=client.dup(), ssl=context, server_hostname=name
            )
        except ConnectionError:
            return Reply(-1)
        try:
            writer.write(sent)
            received = await reader.read()
        except ConnectionError:
            return Reply(-1)
        finally:
            writer.transport.abort()
    head, _, body = received.partition(b"\r\n\r\n")
    return Reply(int(head.split(b" ", 2)[1]) if head else 0, head.lower(), body)


def asking(
    clients: list[socket.socket], context: ssl.SSLContext | None = None
) -> "list[asyncio.Task[Reply]]":
    return [asyncio.create_task(ask(client, sized(), context)) for client in clients]


def tls(directory: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """`server.tls`, and how clients check it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(directory / "server.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "server.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    files = {"cert_file": str(directory / "server.pem"), "key_file": str(directory / "server.key")}
    return files, context


@pytest.mark.parametrize("kind", ["http1", "auto", "tls"])
async def test_all_that_wait_are_answered(
    upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    """Those that are served keep their connections until the drain ends them; the others come after them."""
    server: dict[str, Any] = {"http": "auto" if kind == "tls" else kind}
    context = None
    if kind == "tls":
        server["tls"], context = tls(tmp_path)
    upstream.script = Script(head_delay=0.2)
    async with full_gateway(config, tmp_path, context, **server) as gateway:
        with connected(gateway, CLIENTS) as clients:
            asked = asking(clients, context)
            await upstream.requests.wait(PLACES // 2)
            gateway.signal()
            replies = await asyncio.gather(*asked)
        assert [reply.status for reply in replies] == [200] * CLIENTS
        assert sum(b"\r\nconnection: close" in reply.head for reply in replies) >= CLIENTS - PLACES
        assert await gateway.wait() == 0
        assert len(gateway.find(event="request", result="ok")) == CLIENTS


async def test_so_is_a_client_over_http2(
    upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    upstream.script = Script(head_delay=0.2)
    async with full_gateway(config, tmp_path, http="auto") as gateway:
        with connected(gateway, PLACES) as clients:
            asked = asking(clients)
            await upstream.requests.wait(PLACES // 2)
            async with RawHttp2(gateway.address) as client:
                number = await client.ask(request_body())
                gateway.signal()
                assert (await client.over(number)).status == 200
            assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
        assert await gateway.wait() == 0


async def test_what_says_nothing_is_closed_soon(
    upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    """Without a place of its own; and what begins a head and does not end it has the time of a head."""
    upstream.script = Script(head_delay=0.2)
    server: dict[str, Any] = {"drain_seconds": LONG, "http": "auto"}
    async with full_gateway(config, tmp_path, **server, bounds={"head_seconds": 0.5}) as gateway:
        with connected(gateway, CLIENTS) as clients:
            asked = asking(clients[:PLACES])
            await upstream.requests.wait(PLACES // 2)
            silent = [asyncio.create_task(ask(client)) for client in clients[PLACES:-PLACES]]
            slow = [asyncio.create_task(ask(client, b"POST /v1/ch")) for client in clients[-PLACES:]]
            gateway.signal()
            assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
            assert {reply.status for reply in await asyncio.gather(*silent)} == {0}
            assert not {reply.status for reply in await asyncio.gather(*slow)} & {200}
        assert await gateway.wait() == 0


async def test_what_is_not_served_by_the_deadline_is_told(
    upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    upstream.script = Script(head_delay=LONG)
    async with full_gateway(config, tmp_path, drain_seconds=0.5) as gateway:
        with connected(gateway, CLIENTS) as clients:
            asked = asking(clients)
            await upstream.requests.wait(PLACES // 2)
            gateway.signal()
            replies = await asyncio.gather(*asked)
        assert [reply.status for reply in replies] == [503] * CLIENTS
        assert {json.loads(reply.body)["error"]["code"] for reply in replies} == {"shutdown"}
        assert await gateway.wait() == 0
        assert len(gateway.find(event="request", status=503)) == CLIENTS


async def test_nobody_is_forgotten_whom_no_thread_has_accepted_yet(
    upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    """The gateway finds the signal and the connections at once, and serves nobody by then."""
    async with full_gateway(config, tmp_path, http="auto", bounds={"connections": 1000}) as gateway:
        gateway.signal(signal.SIGSTOP)
        with connected(gateway, CLIENTS) as clients:
            for client in clients:
                client.sendall(sized())
            gateway.signal()
            gateway.signal(signal.SIGCONT)
            replies = await asyncio.gather(*(ask(client) for client in clients))
        assert [reply.status for reply in replies] == [200] * CLIENTS
        assert await gateway.wait() == 0
