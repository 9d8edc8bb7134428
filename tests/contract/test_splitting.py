"""Splitting an event stream as the standard says (WHATWG HTML, 9.2.6)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    DONE,
    REPORTED,
    Exchange,
    WireStand,
    assert_billed_as_reported,
    chunk,
    dumps,
    event,
    priced,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
USAGE = dumps(usage_chunk(REPORTED))
SMALL = 4_000
"""Bytes of one event that the second gateway takes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {"server": {"max_event_bytes": SMALL}}
    async with wire_stand(tmp_path_factory.mktemp("narrow"), config) as stand:
        yield stand


# === lines ===

ENDINGS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
async def test_a_line_ends_with_lf_crlf_or_cr(wire: WireStand, ending: bytes) -> None:
    sent = (event(chunk("a")) + event(usage_chunk(REPORTED)) + DONE).replace(b"\n", ending)
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert exchange.line["events"] == 3
    assert_billed_as_reported(exchange.line)


async def test_one_stream_may_use_all_of_them(wire: WireStand) -> None:
    sent = b"data: {}\r\n\ndata: {}\r\r\ndata: {}\n\rdata: " + USAGE + b"\r\ndata:\r\n\r\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert exchange.line["events"] == 5
    assert_billed_as_reported(exchange.line)


async def test_a_cr_and_an_lf_in_two_reads_are_one_ending(wire: WireStand) -> None:
    """As two they would end the event before its second line: two broken halves."""
    first, second = b'data: {"choices":[],\r', b'\ndata: "usage":' + dumps(REPORTED) + b"}\r\n\r\n"
    [exchange] = await wire.ask_each([[first, 0.05, second + DONE]], **ASKED)
    assert exchange.body == priced(first + second + DONE)
    assert "malformed" not in exchange.line
    assert exchange.line["events"] == 2
    assert_billed_as_reported(exchange.line)


async def test_the_late_lf_of_a_hidden_event_is_hidden_with_it(wire: WireStand) -> None:
    shown = event(chunk("a", finish="stop")).replace(b"\n", b"\r\n")
    hidden = event(usage_chunk(REPORTED)).replace(b"\n", b"\r\n")
    [exchange] = await wire.ask_each([[shown + hidden[:-1], 0.05, hidden[-1:] + DONE]], stream=True)
    assert exchange.body == shown + DONE
    assert_billed_as_reported(exchange.line)


async def test_a_blank_line_dispatches(wire: WireStand) -> None:
    """And nothing else does: not a comment, not a field without data, not a long time."""
    steps: list[bytes | float] = [
        b'data: {"choices":[],',
        b"\n: comment\nid: 1\n",
        0.05,
        b'data:"usage":',
        dumps(REPORTED),
        b"}\n",
    ]
    [exchange] = await wire.ask_each([[*steps, 0.05, b"\n", DONE]], **ASKED)
    whole = b"".join(step for step in steps if isinstance(step, bytes)) + b"\n" + DONE
    assert exchange.body == priced(whole)
    assert exchange.line["events"] == 2
    assert_billed_as_reported(exchange.line)


# === the byte-order mark ===


async def test_one_leading_byte_order_mark_is_ignored(wire: WireStand) -> None:
    sent = b"\xef\xbb\xbf" + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert_billed_as_reported(exchange.line)


async def test_a_second_one_is_part_of_the_field_name(wire: WireStand) -> None:
    sent = b"\xef\xbb\xbf\xef\xbb\xbf" + event(usage_chunk(REPORTED)) + event(chunk(finish="stop")) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert "input_tokens" not in exchange.line


async def test_one_within_the_stream_is_too(wire: WireStand) -> None:
    sent = event(chunk(finish="stop")) + b"\xef\xbb\xbf" + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert "input_tokens" not in exchange.line


# === fields ===


@pytest.mark.parametrize("between", [b"", b" ", b"  ", b"\t"], ids=["nothing", "one", "two", "tab"])
async def test_a_space_after_the_colon_is_dropped(wire: WireStand, between: bytes) -> None:
    """One; any other is white space before JSON."""
    sent = b"data:" + between + USAGE + b"\n\ndata:" + between + b"[DONE]\n\n"
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert_billed_as_reported(exchange.line)


async def test_several_data_lines_are_one_payload(wire: WireStand) -> None:
    usage = b'{"prompt_tokens":14,\ndata: "completion_tokens":7,"total_tokens":21,\ndata:'
    usage += b'"prompt_tokens_details":{"cached_tokens":\ndata: 3}\ndata: }'
    sent = b'data: {"choices":[],\ndata:"usage":' + usage + b"\ndata:}\n\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    [payload] = sse_reference.payloads(exchange.body)
    assert payload["usage"].pop("cost") == 0.0000393
    assert payload["usage"].pop("cost_details")["input_cost"] == 0.000011
    assert payload == {"choices": [], "usage": REPORTED}
    assert exchange.line["events"] == 2
    assert_billed_as_reported(exchange.line)
    # Every byte that came is there, in its order.
    left = iter(exchange.body)
    assert all(byte in left for byte in sent)


async def test_data_lines_join_with_a_line_feed(wire: WireStand) -> None:
    """`14` and `0` on two lines are not 140, and a string may not hold the line feed."""
    sent = (
        b'data: {"choices":[],"usage":{"prompt_tokens":14\ndata: 0}}\n\n' + event(chunk(finish="stop")) + DONE
    )
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["malformed"] == 1
    assert "input_tokens" not in exchange.line


async def test_a_line_without_a_colon_is_a_field_without_a_value(wire: WireStand) -> None:
    sent = b"data\ndata: " + USAGE + b"\ndata\n\n" + b"data\n\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert "malformed" not in exchange.line
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("field", [b"Data", b"DATA", b"data ", b" data", b"dat", b"dataa", b"usage", b"\xff"])
async def test_unknown_fields_are_ignored(wire: WireStand, field: bytes) -> None:
    """Also those that look like one of the four."""
    sent = event(chunk("a")) + field + b": " + USAGE + b"\n\n" + event(chunk(finish="stop")) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["events"] == 3
    assert "input_tokens" not in exchange.line


@pytest.mark.parametrize(
    "line", [b"id: a\x00b", b"id", b"retry: soon", b"retry: 10", b"event", b"event: usage", b": c", b":"]
)
async def test_the_other_fields_do_not_touch_the_data(wire: WireStand, line: bytes) -> None:
    sent = line + b"\ndata: " + USAGE + b"\n" + line + b"\n\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
async def test_comments_are_forwarded_and_not_read(wire: WireStand, ending: bytes) -> None:
    comments = b": " + USAGE + b"\n\n:data: " + USAGE + b"\n\n:data: [DONE]\n\n"
    sent = (comments + event(chunk("a", finish="stop")) + b": bye\n\n").replace(b"\n", ending)
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent + DONE
    assert exchange.line["events"] == 1
    assert "input_tokens" not in exchange.line


# === the bound on one event ===


def assert_ended_as_too_large(exchange: Exchange, before: bytes) -> None:
    assert exchange.body.startswith(before + b'data: {"error":')
    [error] = sse_reference.payloads(exchange.body.removeprefix(before))
    assert error["error"].pop("message")
    assert error == {"error": {"type": "upstream_error", "code": "too_large", "param": None}}
    assert b"[DONE]" not in exchange.body
    assert exchange.reply.ended == "complete"
    assert (exchange.line["fault"], exchange.line["result"]) == ("too_large", "failed")


async def test_an_event_over_the_bound_ends_the_stream_with_an_error(narrow: WireStand) -> None:
    before = event(chunk("a"))
    exchange = await narrow.stream(body(before, b"data: " + b"x" * SMALL, "stall"))
    assert_ended_as_too_large(exchange, before)
    assert (await narrow.request.ended()).client_left


async def test_it_does_in_many_small_lines_and_reads(narrow: WireStand) -> None:
    before = event(chunk("a"))
    exchange = await narrow.stream(body(before, *([b"data: xxxxxxxx\n"] * (SMALL // 10)), "stall"))
    assert_ended_as_too_large(exchange, before)


async def test_it_does_where_the_event_is_a_comment(narrow: WireStand) -> None:
    before = event(chunk("a"))
    exchange = await narrow.stream(body(before, b": " + b"x" * SMALL, "stall"))
    assert_ended_as_too_large(exchange, before)


async def test_before_any_output_it_is_an_error_reply(narrow: WireStand) -> None:
    exchange = await narrow.stream(body(b"data: " + b"x" * SMALL, "stall"))
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "too_large"
    assert "local" in exchange.reply.json()["error"]["message"]


async def test_an_event_within_the_bound_passes(narrow: WireStand) -> None:
    overhead = len(event(chunk("")))
    sent = event(chunk("x" * (SMALL - overhead), finish=None)) + event(chunk(finish="stop")) + DONE
    assert sent.index(b"\n\n") + 2 == SMALL
    exchange = await narrow.stream(body(sent))
    assert exchange.body == sent


async def test_the_bound_is_for_one_event_and_not_for_the_stream(narrow: WireStand) -> None:
    sent = event(chunk("x" * 100)) * 400 + DONE
    exchange = await narrow.stream(body(sent))
    assert exchange.body == sent


async def test_by_default_an_event_of_15_mib_passes_and_one_of_17_does_not(wire: WireStand) -> None:
    before = event(chunk("a"))
    large = event(chunk("x" * (15 << 20)))
    exchange = await wire.stream(body(before, large, DONE))
    assert exchange.body == before + large + DONE
    exchange = await wire.stream(body(before, b"data: " + b"x" * (17 << 20), "stall"))
    assert_ended_as_too_large(exchange, before)
