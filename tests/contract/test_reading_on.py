"""A client that leaves where the route drains: its reply is read on, within bounds, for its usage."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.gateway_process import Line
from harness.wire_stand import (
    DONE,
    MODEL,
    REPORTED,
    WireStand,
    assert_billed_as_reported,
    chunk,
    completion,
    dumps,
    event,
    usage_chunk,
    wire_stand,
)
from raw_http import RawConnection
from sluicegate.testing import Record, Script, Step, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = event(chunk("a"))
REST = event(chunk(finish="stop")) + event(usage_chunk(REPORTED)) + DONE
WHILE = 1.0
"""Seconds that an upstream goes on after its client has left: until then the gateway must have noticed."""
FOR_EVER = 3600.0
"""Seconds, as a bound that is not the one under test."""
BYTES = 50_000
DRAIN = {"on_client_leave": "drain"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "server": {"disconnect_drain": {"seconds": FOR_EVER, "bytes": BYTES}, "keepalive_seconds": 0.05},
        "upstreams": {"hasty": {"deadlines": {"between_tokens": 2.0}}},
        "models": {
            "drain": {"routes": [f"local/{MODEL}", f"local/{MODEL}"], **DRAIN},
            "hasty": {"routes": [f"hasty/{MODEL}"], **DRAIN},
            "by-route": [{"upstream": "local", "model": MODEL, **DRAIN}],
            "not-by-route": {
                "routes": [{"upstream": "local", "model": MODEL, "on_client_leave": "cancel"}],
                **DRAIN,
            },
        },
        "prices": {name: {"input": "1", "cached_input": "0.1", "output": "4"} for name in ("drain", "hasty")},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def left(
    wire: WireStand, script: Script, *, after: bytes = b"", model: str = "drain", **members: Any
) -> tuple[Record, Line]:
    """A client that leaves once it has read `after`: what the upstream saw, and its line."""
    count = len(wire.upstream.requests)
    async with wire.connected(script, model=model, **members) as caller:
        record = await wire.upstream.requests.wait(count + 1)
        if after:
            await caller.connection.head()
            data = b""
            while after not in data:
                data += await caller.connection.chunk()
    return await record.ended(), await caller.line()


def assert_read_to_its_end(record: Record, line: Line) -> None:
    assert record.complete
    assert (line["result"], line["client_left"], line["attempts"]) == ("client_left", True, 1)
    assert "fault" not in line


@pytest.mark.parametrize("model", ["drain", "by-route"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked for usage", "did not"])
async def test_a_stream_is_billed_by_its_own_usage(wire: WireStand, model: str, asked: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if asked else {}
    script = body(TOKEN, WHILE, REST)
    record, line = await left(wire, script, after=TOKEN, model=model, stream=True, **options)
    assert_read_to_its_end(record, line)
    assert line["status"] == 200
    assert line["finish_reason"] == "stop"
    assert_billed_as_reported(line)


async def test_so_is_one_whose_client_left_before_the_head(wire: WireStand) -> None:
    script = Script(head_delay=WHILE, body=(TOKEN + REST,))
    record, line = await left(wire, script, stream=True)
    assert_read_to_its_end(record, line)
    assert_billed_as_reported(line)


async def test_so_is_a_document(wire: WireStand) -> None:
    document = dumps(completion(usage=REPORTED))
    for script in (
        body(document[:20], WHILE, document[20:], content_type="application/json"),
        Script(head_delay=WHILE, body=(document,), content_type="application/json"),
        body(TOKEN, WHILE, REST),
    ):
        record, line = await left(wire, script)
        assert_read_to_its_end(record, line)
        assert line["status"] == 499
        assert_billed_as_reported(line)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_so_is_a_response_that_is_made_of_a_chat(wire: WireStand, stream: bool) -> None:
    count = len(wire.upstream.requests)
    wire.upstream.script = body(TOKEN, WHILE, REST)
    request_id = f"response-{stream}"
    async with RawConnection(*wire.address) as connection:
        asked = dumps({"model": "drain", "input": "Say something.", "stream": stream})
        await connection.post("/v1/responses", asked, headers=(f"x-request-id: {request_id}",))
        record = await wire.upstream.requests.wait(count + 1)
        if stream:
            await connection.head()
            assert await connection.chunk()
    line = await wire.gateway.wait_request(request_id=request_id)
    assert_read_to_its_end(await record.ended(), line)
    assert_billed_as_reported(line)


async def test_one_that_reads_slowly_and_leaves_is_read_on_too(wire: WireStand) -> None:
    """The upstream was held up for it; what had come by then is far from all."""
    many = TOKEN * 400_000
    count = len(wire.upstream.requests)
    async with wire.connected(body(many, REST), model="drain", stream=True) as caller:
        record = await wire.upstream.requests.wait(count + 1)
        await caller.connection.head()
        sent = -1
        async with asyncio.timeout(20):
            while record.bytes_sent != sent:  # Until the upstream is held up.
                sent = record.bytes_sent
                await asyncio.sleep(0.1)
    line = await caller.line()
    assert (line["result"], line["estimated"]) == ("client_left", True)
    assert (await record.ended()).client_left, "the bound of bytes ends it"


async def test_a_route_may_say_otherwise(wire: WireStand) -> None:
    record, line = await left(wire, body(TOKEN, "stall"), after=TOKEN, model="not-by-route", stream=True)
    assert record.client_left
    assert (line["output_tokens"], line["estimated"]) == (1, True), "no bound of reading on has ended it"


async def ended_by_a_bound(wire: WireStand, *steps: Step, model: str = "drain") -> Line:
    """The line of a stream whose client left after its first token."""
    record, line = await left(wire, body(TOKEN, *steps), after=TOKEN, model=model, stream=True)
    assert record.client_left, "the upstream is closed"
    assert line["result"] == "client_left"
    assert line["estimated"] is True
    return line


async def test_it_is_bound_in_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    seconds = 0.5
    config = {
        "server": {"disconnect_drain": {"seconds": seconds}},
        "models": {"drain": {"routes": [f"local/{MODEL}"], **DRAIN}},
    }
    async with wire_stand(tmp_path_factory.mktemp("brief"), config) as stand:
        line = await ended_by_a_bound(stand, "stall")
    assert line["duration"] >= seconds
    assert line["output_tokens"] == 1


async def test_it_is_bound_in_bytes(wire: WireStand) -> None:
    tokens: list[Step] = [TOKEN * 100, 0.001]
    line = await ended_by_a_bound(wire, WHILE, *tokens * 100, "stall")
    assert BYTES <= line["bytes_in"] < 10 * BYTES


async def test_the_upstreams_deadlines_run_on(wire: WireStand) -> None:
    pings: list[Step] = [b": ping\n\n", 0.1]
    line = await ended_by_a_bound(wire, *pings * 5, "stall", model="hasty")
    assert line["fault"] == "between_tokens_timeout"


async def test_a_reply_that_fails_then_is_tried_nowhere_else(wire: WireStand) -> None:
    for script, fault in (
        (Script(head_delay=WHILE, status=500), None),
        (body(b": ping\n\n", WHILE, event({"error": {"message": "No."}})), "in_band_error"),
        (body(b": ping\n\n", WHILE, "reset"), "truncated"),
    ):
        count = len(wire.upstream.requests)
        _, line = await left(wire, script, stream=True)
        assert (line["result"], line["attempts"], line.get("fault")) == ("client_left", 1, fault)
        assert len(wire.upstream.requests) == count + 1


async def test_it_is_bound_in_number_and_ends_with_the_gateway(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = {
        "server": {"disconnect_drain": {"replies": 1}, "drain_seconds": 0.5},
        "models": {"drain": {"routes": [f"local/{MODEL}"], **DRAIN}},
    }
    async with wire_stand(tmp_path_factory.mktemp("one"), config) as stand:
        requests = stand.upstream.requests
        async with stand.connected(body(TOKEN, "stall"), model="drain", stream=True) as first:
            await first.connection.head()
            await first.read(len(TOKEN))
        metrics = await stand.gateway.metrics()
        assert metrics.value("sluicegate_active_streams", model="drain") == 1, "it still runs, and is seen"
        record, _ = await left(stand, body(TOKEN, "stall"), after=TOKEN, stream=True)
        assert record.client_left, "there is no place for another"
        assert requests[0].ended_at is None
        stand.gateway.signal()
        line = await first.line()
        assert (line["result"], line["output_tokens"], line["estimated"]) == ("client_left", 1, True)
        assert (await requests[0].ended()).client_left
        assert await stand.gateway.wait(10) == 0
