"""Clients' connections: several requests in one write, expectations, halves that close, resets, TLS, many."""

import asyncio
import contextlib
import resource
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from harness import needed
from harness.gateway_process import GatewayProcess
from harness.hostile_client import BODY, STREAM_BODY, address, request, send_all, sized, still_serving
from harness.raw_http2 import NO_ERROR, RawHttp2
from harness.wire_stand import CHAT, WireStand, chunk, event, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script, ScriptedUpstream
from sluicegate.testing import body as body_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = b"authorization: Bearer sk-one"
MIB = 1 << 20
CURL = shutil.which("curl")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway"), {"server": {"http": "auto"}}) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {"keys": [{"name": "one", "key": "sk-one"}]}
    async with wire_stand(tmp_path_factory.mktemp("keyed"), config) as stand:
        yield stand


@pytest.fixture(autouse=True)
def plain(wire: WireStand) -> None:
    wire.upstream.script = Script()


# === several requests in one write ===


async def test_answers_come_in_the_order_of_the_requests(wire: WireStand) -> None:
    """Of those for upstreams, those for the application, and those that are refused."""
    health = request(line=b"GET /healthz HTTP/1.1", body=b"")
    nowhere = request(line=b"GET /nowhere HTTP/1.1", body=b"")
    wrong = sized(body=b"nonsense")
    async with still_serving(wire.gateway), RawConnection(*wire.address) as connection:
        await connection.send(sized() + health + sized() + nowhere + wrong + sized())
        statuses = [(await connection.reply()).status for _ in range(6)]
    assert statuses == [200, 200, 200, 404, 400, 200]


async def test_so_they_do_behind_a_stream(wire: WireStand) -> None:
    wire.upstream.script = Script(tokens=5, pace=0.02)
    async with RawConnection(*wire.address) as connection:
        await connection.send(sized(body=STREAM_BODY) * 3 + request(line=b"GET /healthz HTTP/1.1", body=b""))
        for _ in range(3):
            reply = await connection.reply()
            assert reply.body.endswith(b"data: [DONE]\n\n")
        assert (await connection.reply()).json() == {"status": "ok"}


async def test_nothing_is_read_behind_a_request_that_closes(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    answer = await send_all(wire.address, sized(b"connection: close") + sized())
    assert answer.statuses == [200]
    assert len(wire.upstream.requests) == count + 1


async def test_many_requests_in_one_write_take_no_more_than_one_at_a_time(wire: WireStand) -> None:
    """The rest waits in the client's socket while the first is under way."""
    wire.upstream.script = Script(head_delay=0.5)
    count = len(wire.upstream.requests)
    async with RawConnection(*wire.address) as connection:
        before = wire.gateway.private_memory
        sending = asyncio.ensure_future(connection.send(sized() * 50_000))
        await wire.upstream.requests.wait(count + 1)
        async with still_serving(wire.gateway):
            wire.upstream.script = Script()
        assert len(wire.upstream.requests) == count + 2
        assert wire.gateway.private_memory - before < 4 * MIB
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


# === Expect: 100-continue ===


async def test_a_client_that_asks_is_told_to_continue(keyed: WireStand) -> None:
    async with RawConnection(*keyed.address) as connection:
        headers = (b"content-length: %d" % len(BODY), b"expect: 100-continue", KEY)
        await connection.send(request(*headers, body=b""))
        assert (await connection.head()).status == 100
        await connection.send(BODY)
        assert (await connection.reply()).status == 200


@pytest.mark.parametrize("key", [(), (b"authorization: Bearer sk-two",)])
async def test_one_that_may_not_call_is_not(keyed: WireStand, key: tuple[bytes, ...]) -> None:
    """And its connection is closed: whether the body follows all the same cannot be known."""
    data = request(b"content-length: 1000", b"expect: 100-continue", *key, body=b"")
    answer = await send_all(keyed.address, data)
    assert answer.statuses == [401], answer


async def test_nor_is_one_whose_body_is_too_large(keyed: WireStand) -> None:
    data = request(b"content-length: 10000000000", b"expect: 100-continue", KEY, body=b"")
    answer = await send_all(keyed.address, data)
    assert answer.statuses == [413], answer


async def test_curl_that_asks_sends_its_body(keyed: WireStand, tmp_path: Path) -> None:
    """And does not where it is refused."""
    if CURL is None:
        needed.lacking(needed.CURL)
    body = tmp_path / "body.json"
    body.write_bytes(BODY[:-1] + b"," + b'"user":"' + b"a" * MIB + b'"}')
    for key, status in (("sk-one", b"200"), ("sk-two", b"401")):
        process = await asyncio.create_subprocess_exec(
            *(CURL, "-sS", "--max-time", "10", "-o", "-", "-w", "\n%{http_code} %{size_upload}"),
            *(
                "-H",
                f"Authorization: Bearer {key}",
                "-H",
                "Expect: 100-continue",
                "--data-binary",
                f"@{body}",
            ),
            keyed.gateway.base_url + CHAT,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        code, sent = output.rpartition(b"\n")[2].split(b" ")
        assert code == status, output
        assert int(sent) == (body.stat().st_size if status == b"200" else 0)


# === ends in the middle ===


@pytest.mark.parametrize("body", [BODY, STREAM_BODY], ids=["document", "stream"])
async def test_a_client_that_closes_its_writing_side_has_left(wire: WireStand, body: bytes) -> None:
    """As for nginx: a client that has gone looks just like that, and its upstream must not go on."""
    wire.upstream.script = Script(head_delay=60.0)
    count = len(wire.upstream.requests)
    request_id = f"half-closed-{len(body)}"
    async with RawConnection(*wire.address) as connection:
        await connection.send(sized(b"x-request-id: " + request_id.encode(), body=body))
        await wire.upstream.requests.wait(count + 1)
        connection.writer.write_eof()
        assert await connection.rest() == b""
    line = await wire.gateway.wait_request(request_id=request_id)
    assert line["result"] == "client_left"
    assert (await wire.upstream.requests[count].ended()).client_left


async def test_so_has_one_that_does_in_the_middle_of_a_stream(wire: WireStand) -> None:
    wire.upstream.script = Script(tokens=10_000, pace=0.02)
    count = len(wire.upstream.requests)
    async with RawConnection(*wire.address) as connection:
        await connection.send(sized(b"x-request-id: half-a-stream", body=STREAM_BODY))
        await connection.head()
        assert await connection.chunk()
        connection.writer.write_eof()
        assert b"[DONE]" not in await connection.rest()
    line = await wire.gateway.wait_request(request_id="half-a-stream")
    assert line["result"] == "client_left"
    assert (await wire.upstream.requests[count].ended()).client_left


BEHIND = {"CRLF": b"\r\n", "byte": b"P", "pipelined": sized(), "large": sized(body=BODY + b" " * 40_000)}
"""What lies behind a request's body when its client leaves."""
LEAVING = 12
"""Clients that leave at once."""


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
@pytest.mark.parametrize("body", [BODY, STREAM_BODY], ids=["document", "stream"])
async def test_one_that_leaves_unread_bytes_behind_has_left(
    wire: WireStand, body: bytes, behind: bytes
) -> None:
    """Whatever it has sent in advance: the upstream writes nothing more by which the end would be noticed."""
    stalled = body_of(event(chunk("a")), "stall") if body == STREAM_BODY else Script(head_delay=600.0)
    wire.upstream.script = stalled
    count = len(wire.upstream.requests)
    ids = [f"behind-{len(body)}-{len(behind)}-{number}" for number in range(LEAVING)]
    async with contextlib.AsyncExitStack() as clients:
        for request_id in ids:
            client = await clients.enter_async_context(RawConnection(*wire.address))
            await client.send(sized(b"x-request-id: " + request_id.encode(), body=body) + behind)
            await wire.upstream.requests.wait(count + 1)
            count += 1
            if body == STREAM_BODY:
                await client.head()
                assert await client.chunk()
    for request_id in ids:
        assert (await wire.gateway.wait_request(request_id=request_id))["result"] == "client_left"
    for record in list(wire.upstream.requests)[count - LEAVING : count]:
        assert (await record.ended()).client_left
    assert len(wire.upstream.requests) == count, "what was sent in advance is not served"


async def test_what_comes_in_two_parts_behind_a_request_is_served_in_order(wire: WireStand) -> None:
    """The first part is with the server, the second with the system, while a reply is waited for."""
    wire.upstream.script = Script(head_delay=0.5)
    count = len(wire.upstream.requests)
    large = BODY[:-1] + b',"user":"' + b"a" * 300_000 + b'"}'
    async with RawConnection(*wire.address) as connection:
        await connection.send(sized() + sized()[:20])
        await wire.upstream.requests.wait(count + 1)
        await connection.send(
            sized()[20:] + sized(body=large) + request(line=b"GET /healthz HTTP/1.1", body=b"")
        )
        wire.upstream.script = Script()
        assert [(await connection.reply()).status for _ in range(4)] == [200] * 4
    assert [len(record.body) for record in list(wire.upstream.requests)[count:]] == [
        len(wire.upstream.requests[count].body),
        len(wire.upstream.requests[count].body),
        len(wire.upstream.requests[count].body) + len(large) - len(BODY),
    ]


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/chat", sized()[:-5], sized(), sized(body=STREAM_BODY), sized() * 3],
    ids=["nothing", "head", "body", "reply", "stream", "pipeline"],
)
async def test_a_reset_ends_that_connection_alone(wire: WireStand, sent: bytes) -> None:
    wire.upstream.script = Script(tokens=100, pace=0.02)
    count = len(wire.upstream.requests)
    async with still_serving(wire.gateway):
        for _ in range(5):
            async with RawConnection(*wire.address) as connection:
                await connection.send(sent)
                if sent.startswith(sized()) or sent.endswith(STREAM_BODY):
                    count += 1
                    await wire.upstream.requests.wait(count)
                reset(connection)
        wire.upstream.script = Script()
    for record in list(wire.upstream.requests)[count - 5 : count]:
        assert (await record.ended()).ended_at is not None


def reset(connection: RawConnection) -> None:
    """Close it with a RST."""
    plain_socket: socket.socket = connection.writer.get_extra_info("socket")
    plain_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.writer.transport.abort()


# === draining ===


async def test_http2_is_told_with_a_goaway_and_ends_what_it_has(tmp_path: Path) -> None:
    async with wire_stand(tmp_path, {"server": {"http": "auto"}}) as stand:
        stand.upstream.script = Script(tokens=20, pace=0.02)
        async with RawHttp2(stand.address) as client:
            number = await client.ask(STREAM_BODY)
            await client.began(number)
            stand.gateway.signal()
            stream = await client.over(number)
            assert stream.data.endswith(b"data: [DONE]\n\n")
            await client.end()
            assert {frame.error_code for frame in client.goaways} == {NO_ERROR}
        assert await stand.gateway.wait() == 0


# === TLS ===


@dataclass(frozen=True)
class Secure:
    """A gateway behind TLS. `context`: how its clients check its certificate."""

    upstream: ScriptedUpstream
    gateway: GatewayProcess
    context: ssl.SSLContext


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(directory / "server.key")
    server.cert_chain_pems[0].write_to_path(directory / "server.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with ScriptedUpstream() as upstream:
        config: dict[str, Any] = {
            "upstreams": {"local": {"base_url": upstream.base_url}},
            "models": {"small": "local"},
            "cost": {"genai_prices": False},
            "server": {
                "http": "auto",
                "tls": {
                    "cert_file": str(directory / "server.pem"),
                    "key_file": str(directory / "server.key"),
                },
                "bounds": {"head_seconds": 0.5},
            },
        }
        process = await GatewayProcess.start(config, directory, verify=context)
        try:
            yield Secure(upstream, process, context)
            assert await process.stop() == 0
        finally:
            await process.kill()
    assert "Traceback" not in process.stderr, process.transcript()


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
NO_TLS = {
    "plain HTTP": sized(),
    "plain HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "garbage": bytes(range(256)) * 100,
    "half a hello": HELLO,
    "a hello of zeros": HELLO + bytes(600),
    "nothing": b"",
}


@pytest.mark.parametrize("data", NO_TLS.values(), ids=NO_TLS.keys())
async def test_what_is_no_tls_is_cut(secure: Secure, data: bytes) -> None:
    """In the time of a head, and with an alert at most."""
    answer = await send_all(address(secure.gateway), data)
    assert b"HTTP" not in answer.data
    assert (await secure.gateway.client.get("/healthz")).status_code == 200


async def test_bounds_hold_behind_tls(secure: Secure) -> None:
    reader, writer = await asyncio.open_connection(*address(secure.gateway), ssl=secure.context)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: gate")
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
    writer.transport.abort()
    assert (await secure.gateway.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
async def test_one_that_leaves_unread_bytes_behind_tls_has_left(secure: Secure, behind: bytes) -> None:
    """Over HTTP/1.1, which is what a client speaks that offers no other protocol."""
    secure.upstream.script = Script(head_delay=600.0)
    count = len(secure.upstream.requests)
    request_id = f"behind-tls-{len(behind)}"
    _, writer = await asyncio.open_connection(*address(secure.gateway), ssl=secure.context)
    writer.write(sized(b"x-request-id: " + request_id.encode()) + behind)
    await secure.upstream.requests.wait(count + 1)
    writer.transport.abort()
    assert (await secure.gateway.wait_request(request_id=request_id))["result"] == "client_left"
    assert (await secure.upstream.requests[count].ended()).client_left


# === very many ===

TOGETHER = 50
"""Connections on which requests are under way at once."""


async def test_idle_connections_cost_little(tmp_path: Path) -> None:
    """10,000, or as many as this machine's bound of open files allows; the next request is served."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, soft // 4, hard // 4)
    async with wire_stand(tmp_path) as stand:
        async with still_serving(stand.gateway):
            before = stand.gateway.private_memory
        sockets: list[socket.socket] = []
        try:
            # Few at once: what is held does not depend on how fast the machine answers.
            while len(sockets) < count:
                group = [socket.create_connection(stand.address, timeout=10) for _ in range(TOGETHER)]
                sockets += group
                for idle in group:
                    idle.sendall(request(line=b"GET /v1/models HTTP/1.1", body=b""))
                for idle in group:
                    assert idle.recv(1) == b"H"
            async with still_serving(stand.gateway):
                held = stand.gateway.private_memory - before
        finally:
            for idle in sockets:
                idle.close()
    assert held / count < 32_000, f"{held / count:.0f} bytes a connection"


def descriptors(gateway: GatewayProcess) -> int:
    return len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))


async def test_connections_that_come_and_go_leave_nothing(wire: WireStand) -> None:
    async with still_serving(wire.gateway):
        before = descriptors(wire.gateway)
    for _ in range(500):
        socket.create_connection(wire.address, timeout=10).close()
    async with still_serving(wire.gateway), asyncio.timeout(10):
        # An upstream's connection may have come into the pool.
        held = descriptors(wire.gateway)
        while held > before + 3:
            await asyncio.sleep(0.01)
            held = descriptors(wire.gateway)
