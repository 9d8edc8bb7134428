"""A client that stops reading stops the reading of its upstream, and what waits for it is bound."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from harness.wire_stand import CHAT, DONE, WireStand, chunk, event, request_body, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script, body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

KIB = 1024
MIB = 1024 * KIB
SLOW = 200
BOUND = 256 * KIB
"""`client_buffer_bytes` by default."""
SMALL_SOCKET = 4 * KIB
"""Of the kernel's buffers, on both sides, so that they are not what is measured."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway"), send_buffer=SMALL_SOCKET) as stand:
        yield stand


def resident(gateway: GatewayProcess) -> int:
    """Bytes of memory that the gateway holds."""
    return gateway.private_memory


class Unread:
    """A client that has asked and reads nothing, until it is told to."""

    def __init__(self, address: tuple[str, int]) -> None:
        asked = request_body(stream=True)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKET)
        self._socket.connect(address)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(asked)}\r\n\r\n"
        self._socket.sendall(head.encode() + asked)
        self._socket.setblocking(False)

    async def read_to_end(self) -> bytes:
        """The reply's bytes, up to the end that a stream has."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
        loop = asyncio.get_running_loop()
        pieces = [b""]
        async with asyncio.timeout(30):
            while not (pieces[-2:] and b"".join(pieces[-2:]).endswith(b"\r\n0\r\n\r\n")):
                piece = await loop.sock_recv(self._socket, 256 * KIB)
                assert piece, "the stream has an end"
                pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def unread(wire: WireStand, count: int, script: Script) -> AsyncIterator[list[Unread]]:
    """`count` clients that read nothing of `script`, once all that can move for them has moved."""
    wire.upstream.script = script
    before = len(wire.upstream.requests)
    clients: list[Unread] = []
    try:
        for number in range(count):
            clients.append(Unread(wire.address))
            if number % 20 == 19:
                await wire.upstream.requests.wait(before + number + 1)
        await wire.upstream.requests.wait(before + count)
        await until_still(wire, before)
        yield clients
    finally:
        for client in clients:
            client.close()


async def until_still(wire: WireStand, first: int) -> None:
    """Until no upstream has sent anything for a while."""
    sent, same = -1, 0
    async with asyncio.timeout(40):
        while same < 5:
            now = sum(record.bytes_sent for record in list(wire.upstream.requests)[first:])
            same = same + 1 if now == sent else 0
            sent = now
            await asyncio.sleep(0.1)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
BLOCK = event(chunk("x" * 400)) * 120
"""About 64 KiB."""
FULL_SPEED = raw(HEAD, *[BLOCK] * 256)
"""16 MiB, and no end that a client would take for one."""


async def test_what_is_held_for_clients_that_never_read_is_bound(wire: WireStand) -> None:
    await wire.stream(Script(tokens=100))
    before = resident(wire.gateway)
    async with unread(wire, SLOW, FULL_SPEED):
        held = resident(wire.gateway) - before
        assert held < SLOW * BOUND, f"{held / SLOW / KIB:.0f} KiB each"
        requests = list(wire.upstream.requests)[-SLOW:]
        assert all(record.ended_at is None for record in requests), "their upstreams wait"


async def test_memory_stays_flat_while_others_stream_at_full_speed(wire: WireStand) -> None:
    """200 clients never read; 200 others get 100 MiB past them."""
    others = SLOW
    async with unread(wire, SLOW, FULL_SPEED):

        async def one_round() -> int:
            wire.upstream.script = body(*[BLOCK] * 4, DONE)
            replies = await asyncio.gather(*(whole_stream(wire) for _ in range(others)))
            assert all(reply.endswith(DONE) for reply in replies)
            return sum(map(len, replies))

        for _ in range(2):
            await one_round()
        before = resident(wire.gateway)
        size = sum([await one_round() for _ in range(2)])
        assert size == 2 * others * len(BLOCK * 4 + DONE)
        grown = resident(wire.gateway) - before
        assert grown < 16 * MIB, f"{grown / MIB:.1f} MiB"


async def whole_stream(wire: WireStand) -> bytes:
    async with RawConnection(*wire.address) as connection:
        await connection.post(CHAT, request_body(stream=True))
        reply = await connection.reply()
        assert (reply.status, reply.ended) == (200, "complete")
        return reply.body


async def test_one_that_reads_at_last_gets_every_byte_once(wire: WireStand) -> None:
    events = [event(chunk(f"{n:06}" + "x" * (n % 1_400))) for n in range(12_000)]
    wire.upstream.script = body(*(b"".join(events[i : i + 50]) for i in range(0, len(events), 50)), DONE)
    count = len(wire.upstream.requests)
    clients = [Unread(wire.address) for _ in range(2)]
    await wire.upstream.requests.wait(count + len(clients))
    await until_still(wire, count)
    assert all(record.ended_at is None for record in list(wire.upstream.requests)[count:])
    for reply in await asyncio.gather(*(client.read_to_end() for client in clients)):
        assert unchunked(reply) == b"".join(events) + DONE
    for client in clients:
        client.close()


def unchunked(reply: bytes) -> bytes:
    _, _, rest = reply.partition(b"\r\n\r\n")
    pieces = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        pieces.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(pieces)


async def test_a_larger_bound_lets_more_come(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is the bound that holds the upstream, and not something else.

    The larger one is beyond what the kernel's own buffer of the gateway's connection grows to (6 MiB).
    """
    taken = 0
    for bound in (BOUND, 32 * BOUND):
        config = {"server": {"client_buffer_bytes": bound}}
        async with (
            wire_stand(tmp_path_factory.mktemp("bound"), config, send_buffer=SMALL_SOCKET) as stand,
            unread(stand, 1, FULL_SPEED),
            asyncio.timeout(30),
        ):
            while bound > BOUND and stand.request.bytes_sent <= taken + 2 * BOUND:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            taken = stand.request.bytes_sent


async def test_a_slow_client_is_not_told_that_its_upstream_stalled(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The gateway itself does not read: that is no silence of the upstream."""
    seconds = 1.5
    config = {"upstreams": {"local": {"deadlines": {"between_tokens": seconds}}}}
    async with wire_stand(tmp_path_factory.mktemp("patient"), config) as stand:
        async with unread(stand, 1, body(*[BLOCK] * 100, DONE)) as [client]:
            await asyncio.sleep(seconds)
            reply = unchunked(await client.read_to_end())
        assert reply.endswith(DONE)
        line = await stand.gateway.wait_request(streamed=True)
        assert line["result"] == "ok", line
        # From before the wait above until after it; none of it is time between tokens.
        blocked = line["client_blocked_seconds"]
        assert blocked >= seconds
        assert line["inter_token_latency"] <= line["longest_gap"]
        # It is told to the microsecond.
        latency = max(line["inter_token_latency"] - 1e-6, 0.0)
        assert latency * (line["events"] - 2) + blocked <= line["duration"]
        metrics = await stand.gateway.metrics()
        assert metrics.value("sluicegate_client_blocked_seconds_sum", upstream="local") == pytest.approx(
            blocked, abs=1e-5
        )
