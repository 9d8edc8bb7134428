"""HTTP/2 against clients that misuse it: each is stopped, alone, and the next is served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from harness.hostile_client import BODY, STREAM_BODY, still_serving
from harness.raw_http2 import CANCEL, ENHANCE_YOUR_CALM, NO_ERROR, PREFACE, REFUSED_STREAM, RawHttp2
from harness.wire_stand import WireStand, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD_BYTES = 8_192
STREAMS = 5
RESETS = 20
SOON = 1.0
MIB = 1 << 20
INITIAL_WINDOW = 4
"""The number of the setting SETTINGS_INITIAL_WINDOW_SIZE."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    bounds = {
        "head_bytes": HEAD_BYTES,
        "headers": 20,
        "url_bytes": 512,
        "http2_streams": STREAMS,
        "http2_resets": RESETS,
        "client_stall_seconds": SOON,
    }
    config = {"server": {"http": "auto", "bounds": bounds}}
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


@pytest.fixture(autouse=True)
def plain(wire: WireStand) -> None:
    wire.upstream.script = Script()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brief(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """One that waits for little."""
    bounds = {"head_seconds": SOON, "idle_seconds": 2 * SOON, "body_pause_seconds": SOON}
    async with wire_stand(
        tmp_path_factory.mktemp("brief"), {"server": {"http": "auto", "bounds": bounds}}
    ) as stand:
        yield stand


# === heads ===


async def test_a_request_and_the_next(wire: WireStand) -> None:
    async with RawHttp2(wire.address) as client:
        for _ in range(3):
            stream = await client.over(await client.ask(BODY))
            assert (stream.status, stream.ended) == (200, True)


async def test_a_head_beyond_its_bound_is_431(wire: WireStand) -> None:
    """Or its stream is reset, where the head did not get so far; the connection's other requests go on."""
    async with RawHttp2(wire.address) as client:
        stream = await client.over(await client.ask(b"", ("x-a", "a" * (HEAD_BYTES + 100))))
        assert stream.status == 431, stream
        stream = await client.over(await client.ask(b"", *((f"x-{n}", "y") for n in range(30))))
        assert stream.status == 431, stream
        stream = await client.over(await client.ask(b"", path="/" + "a" * 512, method="GET"))
        assert stream.status == 414, stream
        stream = await client.over(await client.ask(BODY))
        assert stream.status == 200


async def test_a_head_that_grows_when_it_is_unpacked_is_refused(wire: WireStand) -> None:
    """4 kB in the table of HPACK, named two thousand times by one byte each."""
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        bomb = ("x-bomb", "b" * 3_900)
        await client.over(await client.ask(b"", bomb))
        before = wire.gateway.private_memory
        for _ in range(20):
            stream = await client.over(await client.ask(b"", *[bomb] * 2_000))
            assert client.closed or stream.reset is not None or stream.status == 431, stream
            if client.closed:
                break
        assert wire.gateway.private_memory - before < 8 * MIB


@pytest.mark.parametrize("piece", [b"", b"\0\x03x-a\x7f\x81\x07" + b"a" * 256], ids=["empty", "full"])
async def test_a_head_that_never_ends_is_cut(wire: WireStand, piece: bytes) -> None:
    """CONTINUATION frames without END_HEADERS: not read without a bound, empty or not."""
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        head = client.head()
        head.flags.discard("END_HEADERS")
        await client.send(head)
        frame = ContinuationFrame(head.stream_id)
        frame.data = piece
        flooding = asyncio.ensure_future(flood(client, frame.serialize() * 1_000))
        await client.end()
        flooding.cancel()
    assert client.closed


@pytest.mark.parametrize(
    "headers",
    [
        (("host", "another"),),
        (("connection", "close"),),
        (("transfer-encoding", "chunked"),),
        (("X-Upper", "a"),),
        (("content-length", "5"), ("content-length", "6")),
        (("authorization", "Bearer a"), ("authorization", "Bearer b")),
    ],
)
async def test_a_head_that_http2_forbids_is_refused(
    wire: WireStand, headers: tuple[tuple[str, str], ...]
) -> None:
    count = len(wire.upstream.requests)
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        stream = await client.over(await client.ask(BODY, *headers))
        assert stream.status == 400 or stream.reset is not None or client.closed, stream
    assert len(wire.upstream.requests) == count + 1


@pytest.mark.parametrize("declared", [1, 10_000])
async def test_a_body_that_is_not_as_long_as_it_says_is_refused(wire: WireStand, declared: int) -> None:
    """RFC 9113, section 8.1.1."""
    count = len(wire.upstream.requests)
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        stream = await client.over(await client.ask(BODY, ("content-length", str(declared))))
        assert stream.status == 400 or stream.reset is not None, stream
    assert len(wire.upstream.requests) == count + 1


# === floods ===


async def test_requests_that_are_taken_back_at_once_end_the_connection(wire: WireStand) -> None:
    """Each would be work for the gateway, and none counts as open (CVE-2023-44487)."""
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        parts = []
        for _ in range(50 * RESETS):
            head = client.head()
            head.flags.add("END_STREAM")
            reset = RstStreamFrame(head.stream_id)
            reset.error_code = CANCEL
            parts += [head.serialize(), reset.serialize()]
        await client.send(*parts)
        await client.end()
        # Who has not read that by the time the connection closes is reset.
        assert {frame.error_code for frame in client.goaways} <= {ENHANCE_YOUR_CALM}
        assert not any(stream.status for stream in client.streams.values())


async def test_requests_that_are_taken_back_one_after_the_other_are_bound(wire: WireStand) -> None:
    """Each has reached its upstream before; so many and no more do. What is under way goes on to its end."""
    count = len(wire.upstream.requests)
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        wire.upstream.script = Script(tokens=300, pace=SOON)
        kept = await client.ask(STREAM_BODY)
        await client.began(kept)
        for _ in range(4 * RESETS):
            number = await client.ask(STREAM_BODY)
            while not (client.goaways or client.closed or client.streams[number].status):
                await client.step()
            if client.goaways or client.closed:
                break
            await client.cancel(number)
        wire.upstream.script = Script()
        assert [frame.error_code for frame in client.goaways[:1]] == [NO_ERROR]
        assert not client.streams[kept].over
        before = len(client.streams[kept].data)
        while len(client.streams[kept].data) == before:
            await client.step()
        assert RESETS < len(wire.upstream.requests) - count <= RESETS + 5


async def test_as_many_as_are_answered_may_be_taken_back(wire: WireStand) -> None:
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        for _ in range(2 * RESETS):
            wire.upstream.script = Script(tokens=300, pace=SOON)
            number = await client.ask(STREAM_BODY)
            await client.began(number)
            await client.cancel(number)
            wire.upstream.script = Script()
            assert (await client.over(await client.ask(BODY))).status == 200
        assert not client.goaways


async def test_more_requests_than_allowed_at_once_are_refused(wire: WireStand) -> None:
    """The ones before them go on."""
    wire.upstream.script = Script(tokens=10, pace=0.02)
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        # Once the settings have been exchanged.
        await client.over(await client.ask(BODY))
        numbers = [await client.ask(STREAM_BODY) for _ in range(2 * STREAMS)]
        streams = [await client.over(number) for number in numbers]
        served = [stream for stream in streams if stream.ended]
        refused = [stream.reset for stream in streams if stream.reset is not None]
        assert len(served) >= STREAMS
        assert set(refused) == {REFUSED_STREAM}, streams
        wire.upstream.script = Script()


@pytest.mark.parametrize("kind", ["ping", "settings", "priority", "empty data"])
async def test_frames_that_ask_for_nothing_take_nothing(wire: WireStand, kind: str) -> None:
    """Their client does not read what they are answered with: what waits for it is bound."""
    frames: dict[str, Frame] = {
        "ping": PingFrame(0, b"12345678"),
        "settings": SettingsFrame(0),
        "priority": PriorityFrame(1),
    }
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        if kind == "empty data":
            head = client.head()
            await client.send(head)
            frame: Frame = DataFrame(head.stream_id)
        else:
            frame = frames[kind]
        piece = frame.serialize() * 2_000
        before = wire.gateway.private_memory
        flooding = asyncio.ensure_future(flood(client, piece, count=100))
        async with still_serving(wire.gateway):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(flooding)
        assert wire.gateway.private_memory - before < 8 * MIB
        flooding.cancel()


async def test_garbage_after_the_preface_ends_the_connection(wire: WireStand) -> None:
    async with still_serving(wire.gateway), RawHttp2(wire.address) as client:
        await client.send(bytes(range(256)) * 100)
        await client.end()
    async with still_serving(wire.gateway), RawConnection(*wire.address) as raw:
        await raw.send(PREFACE + b"\xff" * 1_000)
        with contextlib.suppress(ConnectionError):
            await raw.rest()


# === windows ===


async def test_a_stream_whose_window_stays_closed_is_cut_alone(wire: WireStand) -> None:
    """The connection's other goes on, the upstream is closed, and the record says that the client left."""
    wire.upstream.script = Script(tokens=40, pace=SOON / 20, chunk_bytes=100)
    async with still_serving(wire.gateway), RawHttp2(wire.address, {INITIAL_WINDOW: 0}) as client:
        count = len(wire.upstream.requests)
        closed = await client.ask(STREAM_BODY, ("x-request-id", "closed-window"))
        opened = await client.ask(STREAM_BODY, ("x-request-id", "open-window"))
        await client.open_window(opened, MIB)
        stream = await client.over(closed)
        assert (stream.status, stream.reset, bytes(stream.data)) == (200, CANCEL, b"")
        assert not client.streams[opened].over
        assert (await client.over(opened)).data.endswith(b"data: [DONE]\n\n")
        wire.upstream.script = Script()
        assert not client.goaways
    line = await wire.gateway.wait_request(request_id="closed-window")
    assert line["result"] == "client_left", line
    assert (await wire.gateway.wait_request(request_id="open-window"))["result"] == "ok"
    records = [await record.ended() for record in list(wire.upstream.requests)[count : count + 2]]
    assert sorted(record.client_left for record in records) == [False, True]


@pytest.mark.parametrize(("path", "method"), [("/v1/models", "GET"), ("/v1/chat/completions", "POST")])
async def test_so_is_one_whose_reply_is_small(wire: WireStand, path: str, method: str) -> None:
    """An answer of the application, and an error of ours."""
    async with still_serving(wire.gateway), RawHttp2(wire.address, {INITIAL_WINDOW: 0}) as client:
        number = await client.ask(b"" if method == "GET" else b"nonsense", path=path, method=method)
        stream = await client.over(number)
        assert (stream.reset, bytes(stream.data)) == (CANCEL, b"")


async def test_one_whose_window_opens_late_is_served(wire: WireStand) -> None:
    wire.upstream.script = Script(tokens=5)
    async with RawHttp2(wire.address, {INITIAL_WINDOW: 0}) as client:
        number = await client.ask(STREAM_BODY)
        await client.began(number)
        await client.open_window(number, MIB)
        assert (await client.over(number)).data.endswith(b"data: [DONE]\n\n")


# === time ===


async def test_an_idle_connection_is_told_to_go_and_kept_until_then(brief: WireStand) -> None:
    """Frames that are no request keep it no longer, and cut it no sooner."""
    async with still_serving(brief.gateway), RawHttp2(brief.address) as client:
        began = asyncio.get_running_loop().time()
        assert (await client.over(await client.ask(BODY))).status == 200
        pinging = asyncio.ensure_future(ping(client, SOON / 10))
        await client.end()
        pinging.cancel()
        assert client.goaways[0].error_code == NO_ERROR
        assert asyncio.get_running_loop().time() - began >= 2 * SOON


@pytest.mark.parametrize("sent", [b"PRI * HT", PREFACE, PREFACE[:-3]])
async def test_one_that_never_gets_to_a_request_is_closed(brief: WireStand, sent: bytes) -> None:
    async with still_serving(brief.gateway), RawConnection(*brief.address) as raw:
        await raw.send(sent)
        with contextlib.suppress(ConnectionError):
            await raw.rest()


async def test_a_body_that_pauses_is_408_and_the_others_go_on(brief: WireStand) -> None:
    brief.upstream.script = Script(tokens=10, pace=SOON / 5)
    async with RawHttp2(brief.address) as client:
        head = client.head(("content-length", "500"))
        await client.send(head)
        other = await client.ask(STREAM_BODY)
        stream = await client.over(head.stream_id)
        assert stream.status == 408
        assert (await client.over(other)).data.endswith(b"data: [DONE]\n\n")
    brief.upstream.script = Script()


async def test_a_refused_request_is_answered_and_the_rest_of_its_body_not_read(wire: WireStand) -> None:
    """RFC 9113, section 8.1: RST_STREAM with NO_ERROR, behind the whole reply; the connection goes on."""
    async with RawHttp2(wire.address) as client:
        head = client.head(("content-length", str(100 * MIB)), ("host", "another"))
        data = DataFrame(head.stream_id)
        data.data = b"a" * 16_000
        await client.send(head, data)
        stream = await client.over(head.stream_id)
        while stream.reset is None and not client.closed:
            await client.step()
        assert (stream.status, stream.ended, stream.reset) == (400, True, NO_ERROR)
        assert b"malformed_request" in stream.data
        assert (await client.over(await client.ask(BODY))).status == 200


async def flood(client: RawHttp2, piece: bytes, *, count: int = 10_000) -> None:
    for _ in range(count):
        await client.send(piece)
        await asyncio.sleep(0)


async def ping(client: RawHttp2, pace: float) -> None:
    while not client.closed:
        await client.send(PingFrame(0, b"12345678"))
        await asyncio.sleep(pace)
