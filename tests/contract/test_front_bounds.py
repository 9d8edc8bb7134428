"""The bounds of the client's side, each in a gateway where it is small: what is beyond is answered or cut."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.hostile_client import BODY, STREAM_BODY, request, send_all, sized, still_serving
from harness.wire_stand import CHAT, WireStand, request_body, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD_BYTES = 8_192
URL_BYTES = 512
HEADERS = 20
MANY_HEADERS = 300
BODY_BYTES = 100_000
SOON = 1.0
"""Seconds of the bounds in time: what must meet one waits for it, and what must not has this long."""
TCP_CLOSE = b"\x07"
"""The first byte of what Linux says of a connection that is over (`TCP_INFO`)."""
MIB = 1 << 20


@contextlib.asynccontextmanager
async def bound(
    directory: Any, *, server: dict[str, Any] | None = None, **bounds: Any
) -> AsyncIterator[WireStand]:
    """A stand with these bounds."""
    config = {"server": {**(server or {}), "bounds": bounds}}
    async with wire_stand(directory, config) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sizes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """Bounds of bytes and counts."""
    bounds: dict[str, Any] = {"head_bytes": HEAD_BYTES, "url_bytes": URL_BYTES, "headers": HEADERS}
    server = {"max_body_bytes": BODY_BYTES}
    async with bound(tmp_path_factory.mktemp("sizes"), server=server, **bounds) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def times(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """Bounds of time."""
    bounds: dict[str, Any] = {
        "head_seconds": SOON,
        "body_pause_seconds": SOON,
        "body_bytes_per_second": 10,
        "idle_seconds": 2 * SOON,
        "client_stall_seconds": SOON,
    }
    async with bound(tmp_path_factory.mktemp("times"), **bounds) as stand:
        yield stand


# === bytes and counts ===


@pytest.mark.parametrize("path", [CHAT, "/nowhere"])
@pytest.mark.parametrize("size", [HEAD_BYTES, 70_000, 10 * MIB])
async def test_a_head_beyond_its_bound_is_431(sizes: WireStand, path: str, size: int) -> None:
    line = b"POST %s HTTP/1.1" % path.encode()
    async with still_serving(sizes.gateway):
        answer = await send_all(sizes.address, request(b"x-a: " + b"a" * size, line=line))
    # Who sends more than is read of it may be reset before it has read the answer.
    assert answer.statuses == [431] or (size > MIB and answer.ended == "reset"), answer


async def test_a_head_within_its_bound_is_served(sizes: WireStand) -> None:
    answer = await send_all(sizes.address, sized(b"x-a: " + b"a" * (HEAD_BYTES - 500), b"connection: close"))
    assert answer.statuses == [200]


async def test_more_headers_than_the_bound_are_431(sizes: WireStand) -> None:
    def headers(count: int) -> list[bytes]:
        return [b"x-%d: y" % number for number in range(count)]

    async with still_serving(sizes.gateway):
        # With Host, Content-Length and Connection.
        answer = await send_all(sizes.address, sized(*headers(HEADERS - 3), b"connection: close"))
        assert answer.statuses == [200]
        answer = await send_all(sizes.address, sized(*headers(HEADERS - 2), b"connection: close"))
        assert answer.statuses == [431]
        answer = await send_all(sizes.address, sized(*headers(100_000)))
        assert answer.statuses == [431] or answer.ended == "reset"


@pytest.mark.parametrize("size", [URL_BYTES, 5_000])
async def test_a_url_beyond_its_bound_is_414(sizes: WireStand, size: int) -> None:
    async with still_serving(sizes.gateway):
        line = b"GET /%s HTTP/1.1" % (b"a" * size)
        answer = await send_all(sizes.address, request(line=line, body=b""))
        assert answer.statuses == [414], answer


async def test_a_url_at_its_bound_is_looked_up(sizes: WireStand) -> None:
    line = b"GET /%s HTTP/1.1" % (b"a" * (URL_BYTES - 1))
    answer = await send_all(sizes.address, request(b"connection: close", line=line, body=b""))
    assert answer.statuses == [404], answer


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_beyond_its_bound_is_413_and_no_reset(sizes: WireStand, framing: str) -> None:
    """The client sends 10 MB more before it looks for the answer."""
    body = b'{"model":"' + b"a" * 10_000_000 + b'"}'
    if framing == "length":
        data = request(b"content-length: %d" % len(body), body=body)
    else:
        data = request(b"transfer-encoding: chunked", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    async with still_serving(sizes.gateway), RawConnection(*sizes.address) as connection:
        await connection.send(data)
        reply = await connection.reply()
        assert (reply.status, reply.json()["error"]["code"]) == (413, "request_too_large")


# === time ===


async def test_a_head_that_does_not_end_is_cut(times: WireStand) -> None:
    """However busily its client sends."""
    async with still_serving(times.gateway), RawConnection(*times.address) as connection:
        await connection.send(b"POST / HTTP/1.1\r\nhost: gateway\r\n")
        dripping = asyncio.ensure_future(drip(connection, b"x-a: b\r\n"))
        assert await cut(connection) in (b"", None)
        dripping.cancel()


@pytest.mark.parametrize("first", [b"", b"P", b"PRI * HT"])
async def test_so_is_one_that_has_hardly_begun(times: WireStand, first: bytes) -> None:
    async with still_serving(times.gateway), RawConnection(*times.address) as connection:
        await connection.send(first)
        assert await cut(connection) == b""


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/nowhere"])
@pytest.mark.parametrize("framing", ["content-length: 500", "transfer-encoding: chunked"])
async def test_a_body_that_pauses_is_408(times: WireStand, path: str, framing: str) -> None:
    async with still_serving(times.gateway), RawConnection(*times.address) as connection:
        line = b"POST %s HTTP/1.1" % path.encode()
        await connection.send(request(framing.encode(), line=line, body=b"5\r\n{    \r\n"))
        reply = await connection.reply()
        # What the application answers without its body is answered.
        assert reply.status == 408 or (path == "/nowhere" and reply.status == 404), reply
        if reply.status == 408:
            assert reply.json()["error"]["code"] == "request_timeout"
            assert await cut(connection) == b""


async def test_so_is_one_that_comes_byte_by_byte(times: WireStand) -> None:
    """Each in time, and all of them too slowly."""
    async with still_serving(times.gateway), RawConnection(*times.address) as connection:
        await connection.send(request(b"content-length: 100000", body=b"{"))
        dripping = asyncio.ensure_future(drip(connection, b" ", SOON / 2))
        reply = await connection.reply()
        dripping.cancel()
        assert (reply.status, reply.json()["error"]["code"]) == (408, "request_timeout")


async def test_a_body_that_comes_slowly_and_steadily_is_taken(times: WireStand) -> None:
    pieces = [BODY[at : at + 20] for at in range(0, len(BODY), 20)]
    async with RawConnection(*times.address) as connection:
        await connection.send(request(b"content-length: %d" % len(BODY), body=b""))
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(SOON / 20)
        assert (await connection.reply()).status == 200


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(times: WireStand) -> None:
    async with RawConnection(*times.address) as busy, RawConnection(*times.address) as idle:
        await idle.post(CHAT, BODY)
        assert (await idle.reply()).status == 200
        times.upstream.script = Script(tokens=15, pace=SOON / 5)
        await busy.post(CHAT, STREAM_BODY)
        await busy.head()
        assert await cut(idle) == b""
        while await busy.chunk():
            pass
        times.upstream.script = Script()
        await busy.post(CHAT, BODY)
        assert (await busy.reply()).status == 200


async def test_a_client_that_takes_nothing_is_cut(times: WireStand) -> None:
    """Its upstream is closed, the record says that it left, and the system keeps nothing for it."""
    times.upstream.script = Script(tokens=20_000, chunk_bytes=1_000)
    count = len(times.upstream.requests)
    client = socket.socket()
    try:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(times.address)
        client.sendall(sized(b"x-request-id: takes-nothing", body=STREAM_BODY))
        line = await times.gateway.wait_request(request_id="takes-nothing")
        # Without having taken anything, the client is told: what it did not take is not there any more.
        async with asyncio.timeout(30):
            while client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != TCP_CLOSE:  # noqa: ASYNC110
                await asyncio.sleep(SOON / 10)
    finally:
        client.close()
        times.upstream.script = Script()
    assert line["result"] == "client_left", line
    assert (await times.upstream.requests[count].ended()).client_left
    async with still_serving(times.gateway):
        pass


# === how many ===


async def test_connections_beyond_their_bound_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with bound(tmp_path_factory.mktemp("few"), connections=3) as stand:
        # The harness holds one.
        await stand.gateway.client.aclose()
        stand.gateway._client = None
        async with contextlib.AsyncExitStack() as stack:
            held = [await stack.enter_async_context(RawConnection(*stand.address)) for _ in range(3)]
            for connection in held:
                await connection.post(CHAT, BODY)
                assert (await connection.reply()).status == 200
            waiting = await stack.enter_async_context(RawConnection(*stand.address))
            await waiting.post(CHAT, BODY)
            answer = asyncio.ensure_future(waiting.reply())
            for connection in held:
                await connection.post(CHAT, BODY)
                assert (await connection.reply()).status == 200
            assert not answer.done()
            held[0].writer.close()
            assert (await answer).status == 200


async def test_requests_beyond_their_bound_are_503(tmp_path_factory: pytest.TempPathFactory) -> None:
    """And only those that go to upstreams: whether the gateway lives can still be asked."""
    async with bound(tmp_path_factory.mktemp("busy"), requests=2) as stand:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(stand.connected(Script(head_delay=60.0), stream=True))
            await stand.upstream.requests.wait(2)
            stand.upstream.script = Script()
            exchange = await stand.ask(Script())
            assert exchange.reply.status == 503
            assert exchange.reply.headers["retry-after"] == "1"
            assert exchange.reply.json()["error"]["code"] == "overloaded"
            assert exchange.line["code"] == "overloaded", exchange.line
            assert (await stand.gateway.client.get("/healthz")).status_code == 200
        await stand.gateway.wait_line(2, event="request", result="client_left")
        async with still_serving(stand.gateway):
            pass


# === who may not call ===


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config: dict[str, Any] = {
        "keys": [{"name": "one", "key": "sk-one"}],
        "server": {"bounds": {"body_pause_seconds": SOON, "headers": MANY_HEADERS}},
    }
    async with wire_stand(tmp_path_factory.mktemp("keyed"), config) as stand:
        yield stand


@pytest.mark.parametrize("key", [(), (b"authorization: Bearer sk-two",)])
async def test_a_key_is_checked_before_the_body(keyed: WireStand, key: tuple[bytes, ...]) -> None:
    """The body never comes, and is not waited for."""
    async with RawConnection(*keyed.address) as connection:
        await connection.send(request(b"content-length: 1000000", *key, body=b""))
        reply = await connection.reply()
        assert (reply.status, reply.headers["connection"]) == (401, "close")
    assert not keyed.upstream.requests


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_whoever_is_refused_while_sending_sees_why(keyed: WireStand, framing: str) -> None:
    """And not a reset, though 10 MB more come before it reads."""
    body = b"a" * 10_000_000
    async with RawConnection(*keyed.address) as connection:
        if framing == "length":
            await connection.send(request(b"content-length: %d" % len(body), body=body))
        else:
            chunk = b"%x\r\n%s\r\n" % (len(body), body)
            await connection.send(request(b"transfer-encoding: chunked", body=chunk + b"0\r\n\r\n"))
        assert (await connection.reply()).status == 401


async def test_small_refused_requests_keep_their_connection(keyed: WireStand) -> None:
    async with RawConnection(*keyed.address) as connection:
        for _ in range(3):
            await connection.post(CHAT, BODY)
            assert (await connection.reply()).status == 401
        await connection.post(CHAT, BODY, headers=("authorization: Bearer sk-one",))
        assert (await connection.reply()).status == 200


@pytest.mark.parametrize("name", [b"x-%d", b"accept"], ids=["names", "one name"])
async def test_the_application_takes_as_many_headers_as_the_front(keyed: WireStand, name: bytes) -> None:
    """Though its server takes fewer: the answer is about the key."""
    headers = [name % number if b"%" in name else name for number in range(MANY_HEADERS - 5)]
    lines = [header + b": a" for header in headers]
    for key, status in ((b"sk-one", 200), (b"sk-two", 401)):
        line = b"GET /v1/models HTTP/1.1"
        data = request(b"authorization: Bearer " + key, *lines, b"connection: close", line=line, body=b"")
        assert (await send_all(keyed.address, data)).statuses == [status]


async def test_another_spelling_of_the_path_needs_the_key_as_well(keyed: WireStand) -> None:
    count = len(keyed.upstream.requests)
    for path in (
        "/v1/chat/%63ompletions",
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/responses/",
    ):
        async with RawConnection(*keyed.address) as connection:
            await connection.post(path, request_body())
            assert (await connection.reply()).status in (401, 404, 405), path
    background = json.dumps({"model": "small", "input": "Hi", "background": True}).encode()
    async with RawConnection(*keyed.address) as connection:
        await connection.post("/v1/responses", background)
        assert (await connection.reply()).status == 401
    assert len(keyed.upstream.requests) == count


# === what a test does ===


async def drip(connection: RawConnection, piece: bytes, pace: float = SOON / 20) -> None:
    """Send `piece` again and again, until the connection ends."""
    with contextlib.suppress(ConnectionError):
        while True:
            await connection.send(piece)
            await asyncio.sleep(pace)


async def cut(connection: RawConnection) -> bytes | None:
    """What still comes before the connection ends; `None` where it ends with a reset."""
    try:
        return await connection.rest()
    except ConnectionError:
        return None
