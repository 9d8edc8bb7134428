"""What an event's data may be, and what is done with each."""

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

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
ANSWER = event(chunk("a")) + event(chunk(finish="stop"))
USAGE = event(usage_chunk(REPORTED))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


# === [DONE] ===


@pytest.mark.parametrize(
    "mark",
    [
        b"data: [DONE]\n\n",
        b"data:[DONE]\n\n",
        b"data:  [DONE] \n\n",
        b"data: [DONE]\r\n\r\n",
        b"data: [DONE]\r\r",
        b"id: 9\ndata: [DONE]\n\n",
        b"event: done\ndata: [DONE]\n\n",
        b": last\ndata: [DONE]\n\n",
    ],
    ids=repr,
)
async def test_the_end_mark_is_forwarded_verbatim(wire: WireStand, mark: bytes) -> None:
    # Without a finish reason it is the only sign that the stream is whole.
    sent = event(chunk("a")) + mark
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["result"] == "ok"
    assert "malformed" not in exchange.line


async def test_a_second_end_mark_is_forwarded(wire: WireStand) -> None:
    exchange = await wire.ask(body(ANSWER + DONE + DONE), **ASKED)
    assert exchange.body == ANSWER + DONE + DONE


async def test_a_missing_end_mark_is_added_to_a_stream_that_is_whole(wire: WireStand) -> None:
    # transformers sends none, and clients wait for it.
    exchange = await wire.ask(body(ANSWER), **ASKED)
    assert exchange.body == ANSWER + DONE
    failed = ANSWER + event(b'{"error":{"message":"no"}}')
    exchange = await wire.ask(body(failed), **ASKED)
    assert exchange.body == failed


@pytest.mark.parametrize(
    "payload", [b'"[DONE]"', b"[DONE", b"[done]", b"data: [DONE]", b"[DONE] x"], ids=repr
)
async def test_what_looks_like_the_end_mark_is_none(wire: WireStand, payload: bytes) -> None:
    sent = event(chunk("a")) + event(payload)
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body.startswith(sent)
    assert exchange.line["fault"] == "truncated"


async def test_an_end_mark_within_an_answer_ends_nothing(wire: WireStand) -> None:
    sent = event(chunk("data: [DONE]\n\n")) + event(chunk("b")) + event(chunk(finish="stop")) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["events"] == 4


# === JSON ===


async def test_json_without_usage_is_forwarded_verbatim(wire: WireStand) -> None:
    sent = event(b'{"b":1,"a":[ 1.50 , 2e0],"choices":[{"delta":{"content":"\\u0041"}}]}') + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent


EDITED = {
    "first": b'{"usage":USAGE,"choices":[],"id":"c"}',
    "in the middle": b'{"id":"c","usage":USAGE,"choices":[]}',
    "pretty": b'{ "id" : "c" ,\t"choices" : [ ] , "usage" : USAGE }',
    "with numbers and escapes": b'{"n":1.0E+2,"s":"\\u0041\\/","choices":[],"usage":USAGE,"z":-0}',
    "with an escaped name": b'{"choices":[],"us\\u0061ge":USAGE}',
    "with members nobody knows": b'{"choices":[],"usage":USAGE,"timings":{"a":[{}]},"x":null}',
    "with a name twice": b'{"id":"1","id":"2","choices":[],"usage":USAGE}',
    "on the finish chunk": b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":USAGE}',
    "with raw characters": '{"é":"🦦","choices":[],"usage":USAGE}'.encode(),
}


@pytest.mark.parametrize("payload", EDITED.values(), ids=EDITED.keys())
async def test_cost_goes_into_the_usage_and_every_other_byte_stays(wire: WireStand, payload: bytes) -> None:
    before, after = payload.split(b"USAGE")
    usage = dumps(REPORTED)
    exchange = await wire.ask(body(event(before + usage + after) + DONE), **ASKED)
    assert exchange.body == event(before + usage[:-1] + b"," + REPORTED_MEMBERS + b"}" + after) + DONE
    assert_billed_as_reported(exchange.line)


async def test_the_usage_objects_own_bytes_stay(wire: WireStand) -> None:
    usage = (
        b'{ "prompt_tokens" :14, "total_tokens":21 ,"completion_tokens":7,'
        b'"prompt_tokens_details":{ "cached_tokens":3 , "x":[ ] },"queue_time":0.10 }'
    )
    exchange = await wire.ask(body(event(b'{"choices":[],"usage":' + usage + b"}") + DONE), **ASKED)
    edited = usage[:-2] + b"," + REPORTED_MEMBERS + b" }"
    assert exchange.body == event(b'{"choices":[],"usage":' + edited + b"}") + DONE
    assert_billed_as_reported(exchange.line)


async def test_the_lines_around_the_data_stay(wire: WireStand) -> None:
    sent = b": c\nevent: x\nid: 1\ndata:" + dumps(usage_chunk(REPORTED)) + b" \nretry: 5\n\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)


# === not JSON ===

MALFORMED = {
    "cut off": dumps(usage_chunk(REPORTED))[:-2],
    "text": b"hello",
    "a keep-alive as data": b": keepalive",
    "html": b"<html>502 Bad Gateway</html>",
    "not UTF-8": b'{"choices":[{"delta":{"content":"\xff\xfe"}}',
    "single quotes": b"{'usage': {'prompt_tokens': 1}}",
    "a trailing comma": b'{"usage":{"prompt_tokens":1},}',
    "NaN": b'{"usage":{"prompt_tokens":NaN}}',
    "two documents": b'{"a":1}{"usage":{"prompt_tokens":1}}',
    "a control character": b'{"a":"\x01"}',
    "a name without a value": b'{"usage"}',
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_not_json_is_forwarded_and_counted(wire: WireStand, payload: bytes) -> None:
    sent = event(chunk("a")) + event(payload) + event(chunk("b", finish="stop")) + USAGE + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert exchange.line["malformed"] == 1
    assert exchange.line["result"] == "ok"
    assert_billed_as_reported(exchange.line)


async def test_invalid_utf_8_within_a_string_is_forwarded(wire: WireStand) -> None:
    sent = event(b'{"choices":[{"delta":{"content":"\xff\xfe"}}]}') + USAGE + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert "malformed" not in exchange.line
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("payload", [b"null", b"1", b"true", b'"text"', b"[]", b"{}"], ids=repr)
async def test_json_that_is_no_object_is_forwarded(wire: WireStand, payload: bytes) -> None:
    sent = event(payload) + ANSWER + USAGE + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert_billed_as_reported(exchange.line)


async def test_an_event_with_empty_data_is_forwarded(wire: WireStand) -> None:
    sent = b"data:\n\ndata: \n\ndata\n\n" + ANSWER + b"event: keepalive\n\n" + USAGE + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert "malformed" not in exchange.line


async def test_a_malformed_document_is_forwarded(wire: WireStand) -> None:
    sent = b'{"choices":[],"usage":{"prompt_tokens":14,}}'
    exchange = await wire.ask(body(sent, content_type="application/json"))
    assert exchange.body == sent
    assert exchange.reply.ended == "complete"
    assert exchange.line["malformed"] == 1
    assert "input_tokens" not in exchange.line


async def test_a_document_after_a_malformed_one_is_read(wire: WireStand) -> None:
    sent = b'{"a":}\n' + dumps(completion(usage=REPORTED)) + b"\n"
    exchange = await wire.ask(body(sent, content_type="application/x-ndjson"))
    assert exchange.body == priced(sent)
    assert exchange.line["malformed"] == 1
    assert_billed_as_reported(exchange.line)


# === errors ===

ERRORS = {
    "OpenAI": b'{"error":{"message":"Overloaded.","type":"server_error","param":null,"code":"overloaded"}}',
    "with a choice": b'{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502}}',
    "a string": b'{"error":"Overloaded."}',
    "flat": b'{"message":"Overloaded.","type":"server_error","param":null,"code":"overloaded"}',
    "vLLM": b'{"object":"error","message":"Overloaded.","type":"InternalServerError","code":500}',
}


@pytest.mark.parametrize("payload", ERRORS.values(), ids=ERRORS.keys())
async def test_an_error_is_forwarded_verbatim_and_remembered(wire: WireStand, payload: bytes) -> None:
    sent = event(chunk("a")) + event(payload)
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.reply.ended == "complete"
    assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")


@pytest.mark.parametrize(
    "lines", [b"event: error\ndata: gone\n\n", b'error: {"message":"gone"}\n\n'], ids=repr
)
async def test_an_error_in_the_events_name_or_field_is_one(wire: WireStand, lines: bytes) -> None:
    sent = event(chunk("a")) + lines
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["fault"] == "in_band_error"


async def test_what_follows_an_error_is_forwarded(wire: WireStand) -> None:
    sent = event(chunk("a")) + event(ERRORS["OpenAI"]) + USAGE + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)
    assert exchange.line["fault"] == "in_band_error"
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("value", [b"null", b"false", b'""', b"{}"], ids=repr)
async def test_an_error_member_that_says_nothing_is_none(wire: WireStand, value: bytes) -> None:
    sent = (
        event(b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"error":' + value + b"}") + DONE
    )
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["result"] == "ok"


async def test_an_error_that_a_model_writes_is_none(wire: WireStand) -> None:
    sent = event(chunk(ERRORS["OpenAI"].decode())) + event(chunk(finish="stop")) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["result"] == "ok"


# === the end ===

TAILS = {
    "no line end": (b"", b"\n\n"),
    "one LF": (b"\n", b"\n"),
    "one CRLF": (b"\r\n", b"\r\n"),
    "one CR": (b"\r", b"\r"),
    "a field after it": (b"\nid: 1", b"\n\n"),
}


@pytest.mark.parametrize(("tail", "added"), TAILS.values(), ids=TAILS.keys())
@pytest.mark.parametrize("last", [b"data: [DONE]", USAGE[:-2]], ids=["end mark", "usage"])
async def test_an_unfinished_event_gets_its_end(
    wire: WireStand, last: bytes, tail: bytes, added: bytes
) -> None:
    before = ANSWER + USAGE if last.endswith(b"]") else ANSWER
    if tail.startswith(b"\r"):
        ending = tail
        before = before.replace(b"\n", ending)
    exchange = await wire.ask(body(before + last + tail), **ASKED)
    end = b"" if last.endswith(b"]") else DONE
    assert exchange.body == priced(before + last + tail + added) + end
    assert len(sse_reference.parse(exchange.body)) == 4
    assert exchange.line["result"] == "ok"
    assert_billed_as_reported(exchange.line)


async def test_an_unfinished_last_event_that_is_hidden_leaves_nothing(wire: WireStand) -> None:
    exchange = await wire.ask(body(ANSWER + USAGE[:-2]), stream=True)
    assert exchange.body == ANSWER + DONE
    assert_billed_as_reported(exchange.line)


async def test_an_unfinished_comment_is_passed_on(wire: WireStand) -> None:
    exchange = await wire.ask(body(ANSWER + DONE + b": bye"), **ASKED)
    assert exchange.body.startswith(ANSWER + DONE + b": bye")
    assert len(sse_reference.parse(exchange.body)) == 3


async def test_a_stream_with_neither_end_mark_nor_finish_is_truncated(wire: WireStand) -> None:
    sent = event(chunk("a")) + event(chunk("b"))
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body.startswith(sent)
    [error] = sse_reference.parse(exchange.body.removeprefix(sent))
    assert json.loads(error.data)["error"]["code"] == "truncated"
    assert (exchange.line["fault"], exchange.line["result"]) == ("truncated", "failed")


async def test_usage_alone_does_not_make_a_stream_whole(wire: WireStand) -> None:
    sent = event(chunk("a")) + USAGE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body.startswith(priced(sent))
    assert exchange.line["fault"] == "truncated"
    assert exchange.line["output_tokens"] == 7


async def test_a_finish_reason_alone_does(wire: WireStand) -> None:
    exchange = await wire.ask(body(ANSWER), **ASKED)
    assert exchange.body == ANSWER + DONE
    assert exchange.line["result"] == "ok"


@pytest.mark.parametrize("reason", [b"null", b'""'], ids=["null", "empty"])
async def test_a_finish_reason_that_says_nothing_does_not(wire: WireStand, reason: bytes) -> None:
    sent = event(b'{"choices":[{"delta":{"content":"a"},"finish_reason":' + reason + b"}]}")
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.line["fault"] == "truncated"


@pytest.mark.parametrize(
    "sent",
    [dumps(completion(usage=REPORTED))[:-1], b'{"choices":[{"message":{"content":"H', b"{", b"["],
    ids=["but for its last byte", "half", "brace", "bracket"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_half_a_document_is_an_error_reply_and_not_a_success(
    wire: WireStand, sent: bytes, stream: bool
) -> None:
    exchange = await wire.ask(body(sent, content_type="application/json"), stream=stream)
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "truncated"
    assert (exchange.line["fault"], exchange.line["result"]) == ("truncated", "failed")
