"""What need not change is not changed, however it was cut into reads."""

import random
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire_stand import (
    DONE,
    REPORTED,
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
from sluicegate.testing import body

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSE = 0.002
"""Seconds between two writes that should be two reads."""

STREAM = (
    b": queued\n\n"
    + event(chunk("한국어 ", system_fingerprint="fp_1"))
    + b"event: message\nid: 7\ndata:" + dumps(chunk("🦦 \\u00e9")) + b"\n\n"
    + event(chunk("", finish="stop"))
    + event(usage_chunk(REPORTED))
    + DONE
)  # fmt: skip
"""Comments, names and characters of more than one byte, and the usage that was reported."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


UNUSUAL = {
    "plain": event(chunk("Hi")) + event(chunk(finish="stop")) + DONE,
    "no space after the colon": b'data:{"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata:[DONE]\n\n',
    "more spaces": b'data:  {"choices":[{"index":0,"delta":{"content":"a"}}]}  \n\ndata: [DONE]  \n\n',
    "CRLF": b'data: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\ndata: [DONE]\r\n\r\n',
    "CR": b'data: {"choices":[{"delta":{"content":"a"}}]}\r\rdata: [DONE]\r\r',
    "mixed line ends": b'data: {"choices":[{"delta":{"content":"a"}}]}\r\n\nid: 1\rdata: [DONE]\n\r\n',
    "comments": b": OPENROUTER PROCESSING\n\n:\n\n" + event(chunk("a")) + b":ping 1\ndata: [DONE]\n\n",
    "fields in any order": b"retry: 10\nid: 1\ndata: {}\nevent: x\nunknown: y\nbare\n\n" + DONE,
    "many blank lines": b"\n\n\n" + event(chunk("a")) + b"\n\n\n" + DONE + b"\n",
    "several data lines": b'data: {"choices":\ndata: [{"delta":\ndata:{"content":"a"}}]}\n\ndata: [DONE]\n\n',
    "a byte-order mark": b"\xef\xbb\xbf" + event(chunk("a")) + DONE,
    "odd JSON": event(b'{ "choices" :[{"delta":{"content":"\\u00e9\\/"},"n":1.0e5,"n":-0}] }') + DONE,
    "raw characters": event(chunk("é 🦦   \x7f")) + DONE,
    "members nobody knows": event(chunk("a", x={"google": {"thought_signature": "s=="}})) + DONE,
    "usage that is null": event(chunk("a", usage=None)) + event(chunk(finish="stop", usage=None)) + DONE,
    "more after the end mark": event(chunk("a")) + DONE + b": bye\n\n" + DONE,
}  # fmt: skip


@pytest.mark.parametrize("sent", UNUSUAL.values(), ids=UNUSUAL.keys())
async def test_a_stream_without_usage_comes_byte_for_byte(wire: WireStand, sent: bytes) -> None:
    """In one write, and in a write for each byte."""
    bytewise = [sent[at : at + 1] for at in range(len(sent))]
    for exchange in await wire.ask_each([[sent], bytewise], stream=True):
        assert exchange.body == sent
        assert exchange.line["result"] == "ok"


@pytest.mark.parametrize(
    "sent",
    [
        dumps(completion()),
        b' \r\n{ "id" : "c", "choices":[ {"message":{"content":"\\u00e9","x":1E400}} ],\t"usage": null }\n ',
        dumps([1, {"a": "b"}]),
        dumps(completion("a")) + b"\n\n" + dumps(completion("b")) + b"\n",
        b"{}[]{}",
    ],
    ids=["completion", "odd", "array", "lines", "back to back"],
)
async def test_documents_without_usage_come_byte_for_byte(wire: WireStand, sent: bytes) -> None:
    exchange = await wire.ask(body(sent, content_type="application/json"))
    assert exchange.body == sent


async def test_a_large_event_comes_byte_for_byte_among_small_ones(wire: WireStand) -> None:
    large = event(chunk("x" * 300_000 + "é" * 200_000))
    sent = event(chunk("a")) + large + event(chunk("b", finish="stop")) + DONE
    exchange = await wire.stream(body(sent))
    assert exchange.body == sent


# === the same whatever the cuts ===


def expected(asked: bool) -> bytes:
    """What a client gets of `STREAM`, with or without having asked for usage."""
    return priced(STREAM) if asked else STREAM.replace(event(usage_chunk(REPORTED)), b"")


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise((0, *cuts, len(data)))]


def paused(parts: Iterable[bytes]) -> list[bytes | float]:
    """The parts with a pause between each two."""
    return [step for part in parts for step in (PAUSE, part)][1:]


def assert_all(exchanges: Iterable[Exchange], body: bytes) -> None:
    for exchange in exchanges:
        assert exchange.body == body
        assert exchange.reply.ended == "complete"
        assert_billed_as_reported(exchange.line)
        assert (exchange.line["events"], exchange.line["result"]) == (5, "ok")


@pytest.mark.parametrize("asked", [True, False], ids=["asked for usage", "did not ask"])
async def test_a_cut_at_any_byte_gives_the_same_bytes_and_the_same_usage(
    wire: WireStand, asked: bool
) -> None:
    cuts = [paused((STREAM[:at], STREAM[at:])) for at in range(1, len(STREAM))]
    exchanges = await wire.ask_each(cuts, stream=True, stream_options={"include_usage": asked})
    assert len(exchanges) == len(STREAM) - 1
    assert_all(exchanges, expected(asked))


@pytest.mark.parametrize("asked", [True, False], ids=["asked for usage", "did not ask"])
async def test_pieces_of_any_size_give_the_same_bytes_and_the_same_usage(
    wire: WireStand, asked: bool
) -> None:
    sizes = [pieces(STREAM, range(size, len(STREAM), size)) for size in (1, 2, 3, 7, 64)]
    exchanges = await wire.ask_each(
        [*sizes, *map(paused, sizes)], stream=True, stream_options={"include_usage": asked}
    )
    assert_all(exchanges, expected(asked))


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked for usage", "did not ask"])
async def test_a_cut_within_a_line_end_changes_nothing(wire: WireStand, asked: bool, ending: bytes) -> None:
    sent = STREAM.replace(b"\n", ending)
    places = [
        at for at in range(1, len(sent)) if sent[at - 1 : at] in b"\r\n" or sent[at : at + 1] in b"\r\n"
    ]
    exchanges = await wire.ask_each(
        [paused((sent[:at], sent[at:])) for at in places],
        stream=True,
        stream_options={"include_usage": asked},
    )
    assert_all(exchanges, expected(asked).replace(b"\n", ending))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_cut_documents_give_the_same_bytes_and_the_same_usage(wire: WireStand, stream: bool) -> None:
    sent = dumps(completion("é🦦", usage=REPORTED))
    cuts = [paused((sent[:at], sent[at:])) for at in range(1, len(sent), 3)]
    exchanges = await wire.ask_each(
        [[sent], [sent[i : i + 1] for i in range(len(sent))], *cuts],
        content_type="application/json",
        stream=stream,
        stream_options={"include_usage": stream},
    )
    assert len({exchange.body for exchange in exchanges}) == 1
    if not stream:
        assert exchanges[0].body == priced(sent)
    for exchange in exchanges:
        assert_billed_as_reported(exchange.line)


async def test_one_large_stream_is_the_same_in_reads_of_any_size(wire: WireStand) -> None:
    """The sizes in which a kernel hands over what came meanwhile."""
    draw = random.Random(7)
    events = [event(chunk("x" * draw.choice((0, 1, 30, 1000, 70_000)))) for _ in range(40)]
    sent = b"".join(events) + event(usage_chunk(REPORTED)) + DONE
    sizes = (1000, 4096, 16_384, 65_536, len(sent))
    scripts = [pieces(sent, range(size, len(sent), size)) for size in sizes]
    exchanges = await wire.ask_each(scripts, stream=True, stream_options={"include_usage": True})
    for exchange in exchanges:
        assert exchange.body == priced(sent)
        assert_billed_as_reported(exchange.line)


PARTS = st.sampled_from(
    [
        b": ping\n\n",
        b":\r\n\r\n",
        event(chunk("a")),
        event(chunk("é🦦")).replace(b"\n", b"\r\n"),
        event(chunk("b")).replace(b"\n", b"\r"),
        b"data: {broken\n\n",
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"\\"usage\\":{}"}}]}\n\n',
        b"id: 1\nevent: x\n\n",
        b"data:\n\n",
        b"data\n\n",
        b"\n",
        b"\r\n",
        b"\r",
    ]
)
END = event(usage_chunk(REPORTED)) + DONE


@settings(max_examples=40, deadline=None)
@given(st.lists(PARTS, max_size=6), st.lists(st.integers(1, 2000), max_size=6), st.booleans())
async def test_any_stream_in_any_pieces(
    wire: WireStand, parts: list[bytes], places: list[int], asked: bool
) -> None:
    # A blank line of its own: what is before must not become part of the usage event.
    before = b": begin\n\n" + b"".join(parts) + b"\n\n"
    sent = before + END
    cuts = sorted({place % len(sent) for place in places} - {0})
    [exchange] = await wire.ask_each(
        [paused(pieces(sent, cuts))], stream=True, stream_options={"include_usage": asked}
    )
    assert exchange.body == before + (priced(END) if asked else DONE)
    assert_billed_as_reported(exchange.line)


# === at once ===


async def test_each_event_comes_when_it_is_sent(wire: WireStand) -> None:
    """Nothing waits for more bytes, a timer or the end."""
    events = [event(chunk(f"{n}")) for n in range(5)]
    steps = [step for part in events for step in (part, 0.05)]
    async with wire.connected(body(*steps, "stall"), stream=True) as caller:
        await caller.connection.head()
        for number, part in enumerate(events, 1):
            assert await caller.read(len(part)) == part
            # The upstream has not yet written the next one.
            assert wire.request.events_sent <= number


async def test_a_comment_comes_when_it_is_sent(wire: WireStand) -> None:
    async with wire.connected(body(b": processing\n\n", "stall"), stream=True) as caller:
        assert (await caller.connection.head()).status == 200
        assert await caller.read(14) == b": processing\n\n"
