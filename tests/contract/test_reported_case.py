"""One usage object, in every form in which a reply can bring it, is billed once and right.

14 prompt tokens of which 3 were cached, and 7 completion tokens, are 11 uncached, 3 cached, 7 completion,
0 reasoning and 21 in all.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    DONE,
    REPORTED,
    REPORTED_MEMBERS,
    Exchange,
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
from sluicegate.testing import Script, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
ANSWER = event(chunk("Hi")) + event(chunk(finish="stop"))
USAGE = event(usage_chunk(REPORTED))
PRETTY = json.dumps(usage_chunk(REPORTED), indent=1).encode()
WRITTEN = dumps({"usage": {"prompt_tokens": 1}}).decode()
STREAM = ANSWER + USAGE + DONE
DOCUMENT = dumps(completion(usage=REPORTED))

COSTS = {
    "input_cost": 0.000011,
    "cached_input_cost": 0.0000003,
    "cache_write_cost": 0,
    "output_cost": 0.000028,
    "reasoning_cost": 0,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


def assert_shown(usage: dict[str, Any]) -> None:
    """The object that the client reads: the upstream's, with our cost, each part told apart by its price."""
    assert usage == {**REPORTED, "cost": 0.0000393, "cost_details": COSTS}


def readable(stream: bytes) -> bytes:
    """The stream for a reader that takes nothing but UTF-8."""
    return stream.replace(b"\xff", b"?")


def last_usage(stream: bytes) -> dict[str, Any]:
    found = []
    for sse in sse_reference.parse(readable(stream)):
        with contextlib.suppress(ValueError):
            payload = json.loads(sse.data)
            found += [payload["usage"]] if payload.get("usage") else []
    assert len(found) == 1
    usage: dict[str, Any] = found[0]
    return usage


STREAMS = {
    "on a chunk of its own": STREAM,
    "on the finish chunk": event(chunk("Hi")) + event(chunk(finish="stop", usage=REPORTED)) + DONE,
    "on a chunk without choices": ANSWER + event({"id": "c", "usage": REPORTED}) + DONE,
    "after null on all others": event(chunk("Hi", usage=None)) + event(chunk(finish="x", usage=None)) + USAGE,
    "before the finish": event(chunk("Hi")) + USAGE + event(chunk(finish="stop")) + DONE,
    "with CRLF": STREAM.replace(b"\n", b"\r\n"),
    "with CR": STREAM.replace(b"\n", b"\r"),
    "without spaces": STREAM.replace(b"data: ", b"data:"),
    "with comments": b": ping\n\n" + ANSWER + b": ping\n\n" + USAGE[:-1] + b": ping\n\n" + DONE,
    "without an end mark": ANSWER + USAGE,
    "without its terminator": ANSWER + USAGE[:-2],
    "without half its terminator": ANSWER + USAGE[:-1],
    "after malformed data": event(b"{broken") + ANSWER + event(b"\xff") + USAGE + DONE,
    "after usage written by the model": event(chunk(WRITTEN)) + STREAM,
    "in pretty JSON": ANSWER + event(json.dumps(usage_chunk(REPORTED)).encode()) + DONE,
    "on several data lines": ANSWER + event(PRETTY.replace(b"\n", b"\ndata: ")) + DONE,
    "in a named event with an id": ANSWER + b"event: usage\nid: 7\n" + USAGE + DONE,
    "after a byte-order mark": b"\xef\xbb\xbf" + STREAM,
}  # fmt: skip


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS.keys())
async def test_in_a_stream(wire: WireStand, sent: bytes) -> None:
    exchange = await wire.ask(body(sent), **ASKED)
    assert_shown(last_usage(exchange.body))
    assert_billed_as_reported(exchange.line)
    assert exchange.line["result"] == "ok"


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS.keys())
async def test_in_a_stream_byte_by_byte_and_cut_within_the_usage(wire: WireStand, sent: bytes) -> None:
    """At each third byte from before the usage to the end of the stream."""
    start = sent.index(b"prompt_tokens", len(sent) // 2 if b"written" in sent else 0) - 20
    cuts: list[list[bytes | float]] = [[sent[:at], 0.002, sent[at:]] for at in range(start, len(sent), 3)]
    bytewise: list[bytes | float] = [sent[at : at + 1] for at in range(len(sent))]
    exchanges = await wire.ask_each([bytewise, *cuts], **ASKED)
    assert len({exchange.body for exchange in exchanges}) == 1
    assert_shown(last_usage(exchanges[0].body))
    for exchange in exchanges:
        assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS.keys())
async def test_in_a_stream_of_which_the_client_sees_no_usage(wire: WireStand, sent: bytes) -> None:
    exchange = await wire.ask(body(sent), stream=True)
    for sse in sse_reference.parse(readable(exchange.body)):
        if "prompt_tokens_details" in sse.data:
            assert sse.json()["choices"], "a client that did not ask indexes choices[0]"
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS.keys())
async def test_in_a_stream_that_is_folded(wire: WireStand, sent: bytes) -> None:
    exchange = await wire.ask(body(sent))
    assert_shown(exchange.reply.json()["usage"])
    assert_billed_as_reported(exchange.line)


TYPES = ["application/json", "text/event-stream", "text/plain", "application/x-ndjson"]


@pytest.mark.parametrize("content_type", TYPES)
async def test_under_any_content_type(wire: WireStand, content_type: str) -> None:
    stream = await wire.ask(body(STREAM, content_type=content_type), **ASKED)
    assert stream.body == ANSWER + priced(USAGE) + DONE
    assert_billed_as_reported(stream.line)
    document = await wire.ask(body(DOCUMENT, content_type=content_type))
    assert document.body == priced(DOCUMENT)
    assert_billed_as_reported(document.line)


DOCUMENTS = {
    "one": DOCUMENT,
    "pretty": json.dumps(completion(usage=REPORTED), indent=2).encode(),
    "after white space": b" \r\n\t" + DOCUMENT,
    "lines": dumps({"status": "queued"}) + b"\n" + DOCUMENT + b"\n",
    "back to back": dumps(completion("a")) + DOCUMENT,
    "the same twice": DOCUMENT + b"\n" + DOCUMENT,
    "chunks as lines": dumps(chunk("Hi")) + b"\n" + dumps(chunk(finish="stop", usage=REPORTED)) + b"\n",
    "after a malformed one": b'{"a":}' + DOCUMENT,
    "usage first": dumps({"usage": REPORTED, "choices": []}),
}


@pytest.mark.parametrize("sent", DOCUMENTS.values(), ids=DOCUMENTS.keys())
async def test_in_documents_whole_and_byte_by_byte(wire: WireStand, sent: bytes) -> None:
    bytewise = [sent[at : at + 1] for at in range(len(sent))]
    for exchange in await wire.ask_each([[sent], bytewise], content_type="application/json"):
        assert exchange.body.count(REPORTED_MEMBERS) == sent.count(b"cached_tokens")
        assert exchange.body.replace(b"," + REPORTED_MEMBERS, b"") == sent
        assert_billed_as_reported(exchange.line)


async def test_in_a_document_that_is_unfolded(wire: WireStand) -> None:
    shown = await wire.ask(body(DOCUMENT, content_type="application/json"), **ASKED)
    assert_shown(last_usage(shown.body))
    assert_billed_as_reported(shown.line)
    hidden = await wire.ask(body(DOCUMENT, content_type="application/json"), stream=True)
    assert b"prompt_tokens" not in hidden.body
    assert_billed_as_reported(hidden.line)


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
async def test_in_a_compressed_stream(wire: WireStand, compression: Any) -> None:
    exchange = await wire.ask(Script(body=(STREAM,), compression=compression), **ASKED)
    assert exchange.body == ANSWER + priced(USAGE) + DONE
    assert_billed_as_reported(exchange.line)


async def test_in_the_metrics(wire: WireStand) -> None:
    """Counted once each, however often the usage came."""
    before = await wire.gateway.metrics()
    exchange: Exchange = await wire.ask(body(ANSWER + USAGE * 3 + DONE), **ASKED)
    assert_billed_as_reported(exchange.line)
    name = "sluicegate_tokens_total"
    expected = {"input": 14, "cached_input": 3, "output": 7}

    def gained(kind: str, metrics: Any) -> float:
        return float(metrics.value(name, kind=kind) or 0) - float(before.value(name, kind=kind) or 0)

    after = await wire.gateway.wait_metrics(lambda metrics: gained("input", metrics) > 0)
    assert {kind: gained(kind, after) for kind in expected} == expected
    cost = "sluicegate_cost_usd_total"
    assert (after.value(cost) or 0) - (before.value(cost) or 0) == pytest.approx(0.0000393)
