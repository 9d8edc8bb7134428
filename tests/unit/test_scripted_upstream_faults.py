"""What goes wrong goes wrong exactly where the script says."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from raw_http import RawConnection, RawReply, ask
from sluicegate.testing import Fault, Script, ScriptedUpstream
from sse_reference import parse, payloads

BODY = json.dumps({"model": "m", "messages": [], "stream": True}).encode()
LOOPS: list[Any] = [asyncio.new_event_loop]
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS.append(uvloop.new_event_loop)


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(Script(tokens=5)) as upstream:
        yield upstream


async def fail(
    upstream: ScriptedUpstream, /, members: dict[str, Any] | None = None, **fault: Any
) -> RawReply:
    return await ask((upstream.host, upstream.port), {"faults": [fault]}, **(members or {}))


# === Before the body ===


@pytest.mark.parametrize(("action", "error"), [("close", asyncio.IncompleteReadError), ("reset", OSError)])
async def test_before_the_head(upstream: ScriptedUpstream, action: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await fail(upstream, action=action, at="before_head")
    record = await upstream.requests[0].ended()
    assert (record.status, record.bytes_sent) == (None, 0)
    assert not record.complete
    assert not record.client_left


async def test_within_the_head(upstream: ScriptedUpstream) -> None:
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await fail(upstream, action="close", at="in_head")
    assert caught.value.partial.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not caught.value.partial.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(("action", "ended"), [("close", "eof"), ("reset", "reset")])
@pytest.mark.parametrize("members", [{}, {"stream": False}], ids=["stream", "document"])
async def test_after_the_head(
    upstream: ScriptedUpstream, action: str, ended: str, members: dict[str, Any]
) -> None:
    reply = await fail(upstream, members, action=action, at="after_head")
    assert (reply.status, reply.body, reply.ended) == (200, b"", ended)


@pytest.mark.parametrize("action", ["close", "reset"])
async def test_as_the_connection_is_accepted(action: Any) -> None:
    script = Script(faults=(Fault(action=action, at="accept"),))
    async with ScriptedUpstream(script) as upstream:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask((upstream.host, upstream.port))
        assert len(upstream.requests) == 0


async def test_a_stopped_upstream_refuses_and_can_come_back(upstream: ScriptedUpstream) -> None:
    await upstream.stop()
    with pytest.raises(ConnectionRefusedError):
        await ask((upstream.host, upstream.port))
    await upstream.start()
    assert (await ask((upstream.host, upstream.port))).status == 200


# === Within the body ===


@pytest.mark.parametrize(("action", "ended"), [("close", "eof"), ("reset", "reset")])
@pytest.mark.parametrize("events", [0, 1, 3, 8])
async def test_after_some_events(upstream: ScriptedUpstream, action: str, ended: str, events: int) -> None:
    reply = await fail(upstream, action=action, events=events)
    assert (len(reply.chunks), reply.ended) == (events, ended)
    assert len(parse(reply.body)) == events
    record = await upstream.requests[0].ended()
    assert record.events_sent == events
    assert not record.complete


@pytest.mark.parametrize(("action", "ended"), [("close", "eof"), ("reset", "reset")])
async def test_within_an_event(upstream: ScriptedUpstream, action: str, ended: str) -> None:
    reply = await fail(upstream, action=action, at="mid_event", events=2)
    assert reply.ended == ended
    *whole, half = reply.chunks
    assert len(whole) == 2
    assert half.startswith(b"data: {")
    assert b"\n" not in half
    assert (await upstream.requests[0].ended()).events_sent == 2


async def test_within_a_document(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, {"stream": False}, action="close", at="mid_event", events=0)
    assert reply.ended == "eof"
    assert len(reply.body) == int(reply.headers["content-length"]) // 2


async def test_a_write_ends_where_a_fault_is(upstream: ScriptedUpstream) -> None:
    mock = {"framing": {"events_per_write": 100}, "faults": [{"action": "close", "events": 3}]}
    reply = await ask((upstream.host, upstream.port), mock)
    assert len(parse(reply.body)) == 3
    mock["faults"] = [{"action": "close", "at": "mid_event", "events": 3}]
    reply = await ask((upstream.host, upstream.port), mock)
    assert len(parse(reply.body)) == 3
    assert len(reply.chunks) == 2


async def test_a_reply_that_is_too_short_has_no_fault(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, action="reset", events=100)
    assert reply.ended == "complete"
    assert (await upstream.requests[0].ended()).complete


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
def test_a_reset_is_a_reset_on_every_loop_and_loses_nothing(loop: Any) -> None:
    async def lose() -> None:
        # Enough to fill several buffers: what was sent before the RST arrives all the same.
        script = Script(tokens=50, chunk_bytes=20_000, faults=(Fault(action="reset", events=40),))
        async with ScriptedUpstream(script) as upstream:
            reply = await ask((upstream.host, upstream.port))
        assert (len(reply.chunks), reply.ended) == (40, "reset")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(lose())


# === Stalls ===


@pytest.mark.parametrize("place", ["before_head", "in_head", "after_head", "events", "mid_event"])
async def test_a_stall_delays_and_then_the_reply_goes_on(upstream: ScriptedUpstream, place: str) -> None:
    before = time.monotonic()
    reply = await fail(upstream, action="stall", at=place, events=2, seconds=0.15)
    assert time.monotonic() - before >= 0.15
    assert reply.ended == "complete"
    assert len(parse(reply.body)) == 8


async def test_an_endless_stall_is_silent_until_the_client_leaves(upstream: ScriptedUpstream) -> None:
    mock = {"faults": [{"action": "stall", "events": 2}], "framing": {"keepalive_every_seconds": 0.02}}
    body = json.dumps({"model": "m", "messages": [], "stream": True, "mock": mock}).encode()
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post("/v1/chat/completions", body)
        await connection.head()
        await connection.chunk()
        await connection.chunk()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.reader.read(1)
    record = await upstream.requests[0].ended()
    assert record.client_left
    assert (record.events_sent, record.keepalives_sent) == (2, 0)


async def test_keepalives_may_go_on_in_a_stall(upstream: ScriptedUpstream) -> None:
    mock = {
        "faults": [{"action": "stall", "events": 2, "seconds": 0.2, "keepalives": True}],
        "framing": {"keepalive_every_seconds": 0.05},
    }
    reply = await ask((upstream.host, upstream.port), mock)
    assert 1 <= sum(chunk.startswith(b":") for chunk in reply.chunks) <= 3
    assert [chunk[:1] for chunk in reply.chunks[:3]] == [b"d", b"d", b":"]


async def test_a_stall_on_accept_reads_late() -> None:
    script = Script(faults=(Fault(action="stall", at="accept", seconds=0.1),))
    async with ScriptedUpstream(script) as upstream:
        before = time.monotonic()
        await ask((upstream.host, upstream.port))
        assert time.monotonic() - before >= 0.1


# === Time ===


async def test_delays_and_pace() -> None:
    script = Script(tokens=3, head_delay=0.05, first_token_delay=0.1, pace=0.04, end_delay=0.07)
    async with (
        ScriptedUpstream(script) as upstream,
        RawConnection(upstream.host, upstream.port) as connection,
    ):
        times = [time.monotonic()]
        await connection.post("/v1/chat/completions", BODY)
        await connection.head()
        times.append(time.monotonic())
        while await connection.chunk():
            times.append(time.monotonic())
    # head, role, three tokens, finish, [DONE]
    waits = [after - before for before, after in pairwise(times)]
    for waited, expected in zip(waits, [0.05, 0, 0.1, 0.04, 0.04, 0.07, 0], strict=True):
        assert waited >= expected - 0.002
    assert sum(waits) < 2


# === Events that should not be there ===


async def test_an_error_event_ends_the_stream(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, action="error", events=3)
    *before, error = parse(reply.body)
    assert len(before) == 3
    assert error.json() == {
        "error": {"message": "The server had an error.", "type": "server_error", "param": None, "code": None}
    }
    assert reply.ended == "complete"


async def test_an_error_of_ones_own(upstream: ScriptedUpstream) -> None:
    assert parse((await fail(upstream, action="error", error="bad")).body)[-1].json() == {"error": "bad"}
    error = {"message": "m", "code": 502}
    reply = await fail(upstream, action="error", error=error, style="event", done=True)
    event, done = parse(reply.body)[-2:]
    assert (event.name, event.json(), done.data) == ("error", {"error": error}, "[DONE]")


async def test_an_error_in_a_field_of_that_name(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, action="error", error={"code": 500}, style="field", events=1)
    assert reply.chunks[-1] == b'error: {"code":500}\n\n'


async def test_a_malformed_event_in_between(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, action="malformed", events=3)
    events = parse(reply.body)
    with pytest.raises(json.JSONDecodeError):
        events[3].json()
    assert len(events) == 9
    assert events[4].json()["choices"]


async def test_an_oversized_event_in_between(upstream: ScriptedUpstream) -> None:
    reply = await fail(upstream, action="oversized", events=3, bytes=3_000_000)
    assert len(payloads(reply.body)[3]["choices"][0]["delta"]["content"]) == 3_000_000
    assert len(parse(reply.body)) == 9


# === Error replies ===


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529, 599])
async def test_an_error_reply(upstream: ScriptedUpstream, status: int) -> None:
    reply = await ask((upstream.host, upstream.port), {"status": status, "headers": {"Retry-After": "7"}})
    assert reply.status == status
    assert reply.headers["retry-after"] == "7"
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
    assert reply.json()["error"]["message"]


async def test_an_error_reply_of_ones_own(upstream: ScriptedUpstream) -> None:
    reply = await ask((upstream.host, upstream.port), {"status": 400, "error": {"message": "no", "code": 7}})
    assert reply.json() == {"error": {"message": "no", "code": 7}}


# === Connections ===


async def test_a_fault_only_for_reused_connections(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(faults=(Fault(action="close", at="before_head", on_reused=True),))
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post("/v1/chat/completions", BODY)
        assert (await connection.reply()).status == 200
        await connection.post("/v1/chat/completions", BODY)
        assert await connection.rest() == b""
    assert (await ask((upstream.host, upstream.port))).status == 200


async def test_idle_connections_are_closed() -> None:
    async with (
        ScriptedUpstream(idle_seconds=0.1) as upstream,
        RawConnection(upstream.host, upstream.port) as connection,
    ):
        await connection.post("/v1/chat/completions", BODY)
        assert (await connection.reply()).ended == "complete"
        before = time.monotonic()
        assert await connection.rest() == b""
        assert time.monotonic() - before >= 0.09
        assert upstream.connections_open == 0


async def test_a_connection_that_is_not_kept(upstream: ScriptedUpstream) -> None:
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post("/v1/chat/completions", json.dumps({"mock": {"keep_alive": False}}).encode())
        assert (await connection.reply()).headers["connection"] == "close"
        assert await connection.rest() == b""
