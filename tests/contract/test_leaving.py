"""A client that leaves: its upstream is closed at once, and what was counted is billed."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.gateway_process import Line
from harness.wire_stand import DONE, MODEL, REPORTED, WireStand, chunk, event, usage_chunk, wire_stand
from sluicegate.testing import Fault, Script, Step, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = event(chunk("a"))
PROMPTLY = 30.0
"""Seconds: below any deadline that would end the exchange too, and far above what a slow machine takes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {"models": {"pair": [f"local/{MODEL}", f"local/{MODEL}"]}}
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def left_after(wire: WireStand, size: int, *steps: Step, **members: Any) -> Line:
    """The line of a client that left after `size` bytes of a stream that then goes on for ever."""
    members = {"stream": True} | members
    count = len(wire.upstream.requests)
    async with wire.connected(body(*steps, "stall"), **members) as caller:
        if size:
            await caller.connection.head()
            assert len(await caller.read(size)) >= size
        else:
            await wire.upstream.requests.wait(count + 1)
    left_at = time.monotonic()
    record = await wire.request.ended()
    assert record.client_left, "the upstream's connection is closed"
    assert record.ended_at is not None
    assert record.ended_at - left_at < PROMPTLY
    return await caller.line()


async def test_a_stream_is_billed_for_what_was_counted(wire: WireStand) -> None:
    line = await left_after(wire, len(TOKEN) * 5, TOKEN * 5)
    assert (line["result"], line["client_left"], line["status"]) == ("client_left", True, 200)
    assert (line["output_tokens"], line["estimated"]) == (5, True)
    assert line["cost"] == "0.00002"
    assert "fault" not in line


async def test_roles_comments_and_empty_deltas_are_not_counted(wire: WireStand) -> None:
    sent = b": ping\n\n" + event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}) + TOKEN * 2
    line = await left_after(wire, len(sent), sent, b": ping\n\n")
    assert (line["output_tokens"], line["estimated"]) == (2, True)


async def test_reasoning_and_tool_calls_are(wire: WireStand) -> None:
    sent = event({"choices": [{"delta": {"reasoning": "Hm"}}]}) + event(
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}}]}
    )
    line = await left_after(wire, len(sent), sent)
    assert (line["output_tokens"], line["estimated"]) == (2, True)


async def test_nothing_is_estimated_where_nothing_came(wire: WireStand) -> None:
    line = await left_after(wire, 8, b": ping\n\n")
    assert line["result"] == "client_left"
    assert not {"output_tokens", "cost", "estimated"} & line.keys()


async def test_known_usage_is_billed_as_it_is(wire: WireStand) -> None:
    """It left between the usage and the end mark."""
    shown = TOKEN + event(chunk(finish="stop"))
    line = await left_after(wire, len(shown), shown + event(usage_chunk(REPORTED)))
    assert (line["input_tokens"], line["cached_input_tokens"], line["output_tokens"]) == (14, 3, 7)
    assert line["cost"] == "0.0000393"
    assert "estimated" not in line
    assert line["client_left"] is True


async def test_a_running_total_is_billed_as_far_as_it_came(wire: WireStand) -> None:
    def total(count: int) -> dict[str, int]:
        return {"prompt_tokens": 14, "completion_tokens": count, "total_tokens": 14 + count}

    sent = b"".join(event(chunk("a", usage=total(count))) for count in (3, 6, 9))
    line = await left_after(wire, len(sent), sent)
    assert (line["input_tokens"], line["output_tokens"], line["cost"]) == (14, 9, "0.00005")


async def test_a_preview_says_what_the_input_was(wire: WireStand) -> None:
    preview = event(usage_chunk({"prompt_tokens": 14, "completion_tokens": 1, "total_tokens": 15}))
    line = await left_after(wire, len(TOKEN) * 4, preview + TOKEN * 4)
    assert (line["input_tokens"], line["output_tokens"], line["estimated"]) == (14, 4, True)
    assert line["cost"] == "0.00003"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_one_that_leaves_before_any_reply_is_a_499(wire: WireStand, stream: bool) -> None:
    count = len(wire.upstream.requests)
    silent = Script(faults=(Fault(action="stall", at="before_head"),))
    async with wire.connected(silent, stream=stream) as caller:
        await wire.upstream.requests.wait(count + 1)
    record = await wire.request.ended()
    assert record.client_left
    line = await caller.line()
    assert (line["status"], line["result"]) == (499, "client_left")
    assert not {"cost", "output_tokens"} & line.keys()


async def test_a_document_under_way_is_given_up(wire: WireStand) -> None:
    line = await left_after(wire, 0, b'{"choices":[', stream=False)
    assert (line["status"], line["result"]) == (499, "client_left")


async def test_a_stream_that_is_folded_is_billed_too(wire: WireStand) -> None:
    """The client had nothing, but the upstream worked."""
    count = len(wire.upstream.requests)
    async with wire.connected(body(TOKEN * 6, "stall")) as caller:
        record = await wire.upstream.requests.wait(count + 1)
        async with asyncio.timeout(10):
            while record.events_sent < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        # All that it does with upstreams is one thread's work: when it has done this, it has read the tokens.
        await wire.ask(Script(tokens=1))
    assert (await record.ended()).client_left
    line = await caller.line()
    assert line["result"] == "client_left"
    assert (line["output_tokens"], line["estimated"]) == (6, True)


async def test_one_that_resets_its_connection_has_left_too(wire: WireStand) -> None:
    """No regular end: a client that crashed, or a balancer that gave up."""
    count = len(wire.upstream.requests)
    for sent, script in (
        (TOKEN, body(TOKEN, "stall")),
        (b"", Script(faults=(Fault(action="stall", at="before_head"),))),
    ):
        async with wire.connected(script, stream=True) as caller:
            count += 1
            record = await wire.upstream.requests.wait(count)
            if sent:
                await caller.connection.head()
                await caller.read(len(sent))
            # Closed with a linger time of 0: RST in place of FIN.
            ours: socket.socket = caller.connection.writer.get_extra_info("socket")
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert (await record.ended()).client_left
        line = await caller.line()
        assert (line["result"], line["status"]) == ("client_left", 200 if sent else 499)


async def test_no_other_upstream_is_tried_for_one_that_left(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    async with wire.connected(body(b": ping\n\n", 1.5, "reset"), model="pair", stream=True) as caller:
        await wire.upstream.requests.wait(count + 1)
    line = await caller.line()
    assert (line["result"], line["attempts"]) == ("client_left", 1)
    assert len(wire.upstream.requests) == count + 1


async def test_one_that_leaves_after_the_end_has_not_left(wire: WireStand) -> None:
    sent = TOKEN + event(chunk(finish="stop")) + DONE
    exchange = await wire.stream(body(sent))
    assert "client_left" not in exchange.line
    assert exchange.line["result"] == "ok"


async def test_nothing_runs_on_and_each_is_counted(wire: WireStand) -> None:
    before = await wire.gateway.metrics()
    count = 10
    await asyncio.gather(*(left_unseen(wire) for _ in range(count)))
    name = "sluicegate_client_disconnects_total"

    def gained(metrics: Any) -> float:
        return float(metrics.value(name) or 0) - float(before.value(name) or 0)

    after = await wire.gateway.wait_metrics(lambda metrics: gained(metrics) >= count)
    assert gained(after) == count
    assert after.value("sluicegate_active_streams", model=MODEL) == 0
    estimated = "sluicegate_estimated_requests_total"
    assert (after.value(estimated) or 0) - (before.value(estimated) or 0) == count
    async with asyncio.timeout(10):
        while any(record.ended_at is None for record in wire.upstream.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def left_unseen(wire: WireStand) -> None:
    async with wire.connected(body(TOKEN, "stall"), stream=True) as caller:
        await caller.connection.head()
        await caller.read(len(TOKEN))
    await caller.line()
