"""Upstreams that send a byte at a time, or nothing but keep-alives: each event leaves when it is whole."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

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
    priced,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Framing, Script, Step, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
TOKEN = event(chunk("a"))
REST = event(chunk(finish="stop")) + event(usage_chunk(REPORTED)) + DONE
PACE = 0.002
"""Seconds between two bytes; a second would show no more."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {"firm": {"deadlines": {"between_tokens": 1.0, "first_token": 1.0}}},
        "models": {"firm": f"firm/{MODEL}"},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


def byte_by_byte(data: bytes) -> list[Step]:
    return [step for i in range(len(data)) for step in (data[i : i + 1], PACE)]


async def test_a_stream_byte_by_byte_is_the_same_stream(wire: WireStand) -> None:
    exchange = await wire.ask(body(*byte_by_byte(TOKEN + REST)), **ASKED)
    assert exchange.body == priced(TOKEN + REST)
    assert_billed_as_reported(exchange.line)


async def test_so_is_one_that_is_compressed(wire: WireStand) -> None:
    for coding in ("gzip", "zstd"):
        script = Script(body=(TOKEN, *byte_by_byte(event(chunk("b"))), REST), compression=coding)
        exchange = await wire.ask(script, **ASKED)
        assert exchange.body == TOKEN + event(chunk("b")) + priced(REST)
        assert_billed_as_reported(exchange.line)


async def test_so_is_a_document(wire: WireStand) -> None:
    document = dumps(completion(usage=REPORTED))
    exchange = await wire.ask(body(*byte_by_byte(document), content_type="application/json"))
    assert exchange.body == priced(document)
    assert_billed_as_reported(exchange.line)


async def test_an_event_leaves_with_its_last_byte(wire: WireStand) -> None:
    """And not with the first of the next, which may be long in coming."""
    async with wire.connected(body(*byte_by_byte(TOKEN), "stall"), stream=True) as caller:
        await caller.connection.head()
        assert await caller.read(len(TOKEN)) == TOKEN


async def test_a_byte_now_and_then_is_no_token(wire: WireStand) -> None:
    """A stall within an event, but for bytes that never make it whole."""
    comment = b": and so on and so on for ever"
    for sent in (b"", TOKEN):
        steps = byte_by_byte(comment * 3) + [step for _ in range(40) for step in (b".", 0.05)]
        exchange = await wire.stream(body(sent, *steps), model="firm")
        kind = "between_tokens_timeout" if sent else "first_token_timeout"
        assert exchange.line["fault"] == kind


async def test_keep_alives_for_ever_end_with_the_deadline(wire: WireStand) -> None:
    script = Script(first_token_delay=30.0, framing=Framing(keepalive_every_seconds=0.02))
    exchange = await wire.stream(script, model="firm")
    assert b": keep-alive" in exchange.body, "they are passed on"
    assert exchange.line["fault"] == "first_token_timeout"
    assert (await wire.request.ended()).client_left, "the upstream's connection is closed"
