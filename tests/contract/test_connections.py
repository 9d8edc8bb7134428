"""Ways to an upstream: Unix sockets, IPv6, TLS with private authorities, HTTP/2 and its ways to say no."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from harness.http2_upstream import Act, Http2Upstream
from harness.wire_stand import DONE, MODEL, WireStand, chunk, event, request_body, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script, ScriptedUpstream, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = event(chunk("a")) + event(chunk("b", finish="stop")) + DONE


@dataclass(frozen=True)
class Ways:
    """`wire` leads to the upstream by the model's name."""

    wire: WireStand
    http2: Http2Upstream


@contextlib.asynccontextmanager
async def forwarding(upstream: ScriptedUpstream, **listening: Any) -> AsyncIterator[asyncio.Server]:
    """What listens elsewhere, and passes bytes to `upstream` and back."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(upstream.host, upstream.port)
        for task in (
            asyncio.ensure_future(pump(reader, back)),
            asyncio.ensure_future(pump(there, writer)),
        ):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    if "path" in listening:
        server = await asyncio.start_unix_server(connected, **listening)
    else:
        server = await asyncio.start_server(connected, "127.0.0.1", 0, **listening)
    try:
        yield server
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def tls(authority: trustme.CA, name: str, *, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    return context


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ways]:
    directory: Path = tmp_path_factory.mktemp("ways")
    authority, clients = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    ours = clients.issue_cert("gateway")
    ours.private_key_pem.write_to_path(directory / "ours.key")
    ours.cert_chain_pems[0].write_to_path(directory / "ours.pem")
    path = directory / "upstream.sock"
    async with contextlib.AsyncExitStack() as stack:
        behind = await stack.enter_async_context(ScriptedUpstream(body(STREAM)))
        six = await stack.enter_async_context(ScriptedUpstream(body(STREAM), host="::1"))
        http2 = await stack.enter_async_context(Http2Upstream(STREAM))
        await stack.enter_async_context(forwarding(behind, path=path))
        private = await stack.enter_async_context(forwarding(behind, ssl=tls(authority, "127.0.0.1")))
        mutual = await stack.enter_async_context(
            forwarding(behind, ssl=tls(authority, "127.0.0.1", clients=clients))
        )
        trusted = {"ca_file": str(directory / "authority.pem")}
        certificate = {
            "client_cert_file": str(directory / "ours.pem"),
            "client_key_file": str(directory / "ours.key"),
        }
        upstreams: dict[str, Any] = {
            "socket": {"base_url": "http://behind.test/v1", "socket": str(path)},
            "no-socket": {"base_url": "http://behind.test/v1", "socket": str(directory / "none.sock")},
            "six": {"base_url": six.base_url},
            "private": {"base_url": f"https://127.0.0.1:{port_of(private)}/v1", **trusted},
            "unknown": {"base_url": f"https://127.0.0.1:{port_of(private)}/v1"},
            "mutual": {"base_url": f"https://127.0.0.1:{port_of(mutual)}/v1", **trusted, **certificate},
            "nobody": {"base_url": f"https://127.0.0.1:{port_of(mutual)}/v1", **trusted},
            "http2": {"base_url": http2.base_url, "http2": True},
        }
        config = {"upstreams": upstreams, "models": {name: f"{name}/{MODEL}" for name in upstreams}}
        wire = await stack.enter_async_context(wire_stand(directory, config))
        yield Ways(wire, http2)


@pytest.mark.parametrize("model", ["socket", "six", "private", "mutual", "http2"])
async def test_a_stream_comes_this_way(ways: Ways, model: str) -> None:
    for _ in range(3):
        exchange = await ways.wire.stream(Script(), model=model)
        assert exchange.reply.status == 200, exchange.body
        assert exchange.body == STREAM
        assert exchange.line["result"] == "ok"


@pytest.mark.parametrize("model", ["no-socket", "unknown"])
async def test_where_there_is_no_way_it_is_told(ways: Ways, model: str) -> None:
    exchange = await ways.wire.stream(Script(), model=model)
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "connect"
    assert f"'{model}'" in exchange.reply.json()["error"]["message"]


async def test_a_server_that_asks_for_a_certificate_is_not_reached_without(ways: Ways) -> None:
    exchange = await ways.wire.stream(Script(), model="nobody")
    assert exchange.reply.status == 502
    # TLS 1.3 tells a client only when it reads: to us it connected, and was then cut off.
    assert exchange.reply.json()["error"]["code"] in ("connect", "reset")


# === HTTP/2 ===


async def asked(ways: Ways, *acts: Act) -> tuple[int, str, int]:
    """Status, error code and the number of requests that the upstream got."""
    await ways.wire.stream(Script(), model="http2")
    ways.http2.acts[:] = acts
    count = len(ways.http2.requests)
    exchange = await ways.wire.stream(Script(), model="http2")
    code = "" if exchange.reply.status == 200 else exchange.reply.json()["error"]["code"]
    return exchange.reply.status, code, len(ways.http2.requests) - count


async def test_a_request_that_a_goaway_left_out_is_sent_again(ways: Ways) -> None:
    assert await asked(ways, "go_away") == (200, "", 2)
    (first, _), (second, _) = ways.http2.requests[-2:]
    assert first != second, "over another connection"


async def test_so_is_one_that_was_refused(ways: Ways) -> None:
    assert await asked(ways, "refuse") == (200, "", 2)


async def test_neither_is_sent_a_third_time(ways: Ways) -> None:
    assert await asked(ways, "go_away", "go_away") == (502, "reset", 2)
    assert await asked(ways, "refuse", "refuse") == (502, "reset", 2)


async def test_one_that_the_upstream_began_and_gave_up_is_not(ways: Ways) -> None:
    """It may have been processed, and be billed."""
    assert await asked(ways, "reset") == (502, "reset", 1)


async def test_a_connection_that_died_is_replaced(ways: Ways) -> None:
    assert await asked(ways, "close") == (200, "", 2)
    assert await asked(ways, "close", "close") == (502, "reset", 2)


async def test_a_goaway_after_the_head_does_not_repeat_anything(ways: Ways) -> None:
    """Streams that it names go on; those that began before keep their connection."""
    ways.http2.acts[:] = ["flood"]
    asked_for = request_body(model="http2", stream=True)
    async with RawConnection(*ways.wire.address) as connection:
        await connection.post("/v1/chat/completions", asked_for)
        await connection.head()
        assert await connection.chunk()
        assert await asked(ways, "go_away") == (200, "", 2)
        for _ in range(3):
            assert await connection.chunk()


async def test_replies_that_are_not_read_do_not_hold_up_the_others_of_their_connection(ways: Ways) -> None:
    """Each has a small window of its own, and all of them together a large one."""
    held = 10
    ways.http2.acts[:] = ["flood"] * held
    count, sent = len(ways.http2.requests), ways.http2.sent
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(held):
            connection = await stack.enter_async_context(RawConnection(*ways.wire.address))
            await connection.post("/v1/chat/completions", request_body(model="http2", stream=True))
        before = -1
        async with asyncio.timeout(30):
            while ways.http2.sent != before or len(ways.http2.requests) < count + held:
                before = ways.http2.sent
                await asyncio.sleep(0.3)
        assert len({connection for connection, _ in ways.http2.requests[count:]}) == 1
        assert ways.http2.sent > sent
        exchange = await ways.wire.stream(Script(), model="http2")
        assert exchange.body == STREAM
