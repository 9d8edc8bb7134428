"""What the upstream sent is told from the first bytes of its body, before its `Content-Type`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import (
    DONE,
    EMBEDDINGS,
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
from sluicegate.testing import body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = event(chunk("Hi", finish="stop")) + event(usage_chunk(REPORTED)) + DONE
ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
CONTENT_TYPES = ["text/event-stream", "text/plain", "application/json", "application/x-ndjson", "x", ""]
JSON_TYPES = ["application/json", "text/event-stream", "text/plain; charset=utf-8", "x", ""]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


# === an event stream ===


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
async def test_a_stream_is_one_under_any_content_type(wire: WireStand, content_type: str) -> None:
    exchange = await wire.ask(body(STREAM, content_type=content_type), **ASKED)
    assert exchange.body == priced(STREAM)
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
async def test_a_stream_is_folded_under_any_content_type(wire: WireStand, content_type: str) -> None:
    exchange = await wire.ask(body(STREAM, content_type=content_type))
    assert exchange.reply.json()["choices"][0]["message"]["content"] == "Hi"
    assert exchange.reply.headers["content-type"] == "application/json"
    assert_billed_as_reported(exchange.line)


async def test_a_stream_is_one_without_a_content_type(wire: WireStand) -> None:
    exchange = await wire.ask(raw(b"HTTP/1.1 200 OK\r\n\r\n" + STREAM), **ASKED)
    assert exchange.body == priced(STREAM)
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    "first",
    [b"data: 1\n\n", b"event: message\n\n", b"id: 1\n\n", b"retry: 100\n\n", b": ping\n\n", b":\n"],
    ids=["data", "event", "id", "retry", "comment", "colon"],
)
async def test_a_stream_begins_with_any_of_its_fields(wire: WireStand, first: bytes) -> None:
    exchange = await wire.ask(body(first + STREAM, content_type="application/json"), **ASKED)
    assert exchange.body == first + priced(STREAM)
    assert_billed_as_reported(exchange.line)


# === documents ===


@pytest.mark.parametrize("content_type", JSON_TYPES)
async def test_a_document_is_one_under_any_content_type(wire: WireStand, content_type: str) -> None:
    document = dumps(completion(usage=REPORTED))
    exchange = await wire.ask(body(document, content_type=content_type))
    assert exchange.body == priced(document)
    assert "event-stream" not in exchange.reply.headers["content-type"]
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("content_type", JSON_TYPES)
async def test_a_document_is_made_a_stream_under_any_content_type(wire: WireStand, content_type: str) -> None:
    exchange = await wire.ask(body(dumps(completion(usage=REPORTED)), content_type=content_type), **ASKED)
    assert exchange.body.startswith(b"data: {")
    assert exchange.body.endswith(DONE)
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    assert_billed_as_reported(exchange.line)


async def test_an_array_is_a_document(wire: WireStand) -> None:
    document = b'[{"usage":{"prompt_tokens":1}}]'
    exchange = await wire.ask(body(document, content_type="text/event-stream"))
    assert exchange.body == document
    assert exchange.reply.headers["content-type"] == "application/json"
    assert "input_tokens" not in exchange.line


@pytest.mark.parametrize(
    "between", [b"", b"\n", b"\r\n\r\n", b" \t"], ids=["nothing", "LF", "CRLF", "blanks"]
)
async def test_each_of_several_documents_is_read(wire: WireStand, between: bytes) -> None:
    first, last = dumps(completion("a")), dumps(completion("b", usage=REPORTED))
    exchange = await wire.ask(body(first + between + last + between, content_type="application/json"))
    assert exchange.body == first + between + priced(last) + between
    assert exchange.line["events"] == 2
    assert_billed_as_reported(exchange.line)


# === neither ===

PAGE = b"<!doctype html>\r\n<html>\n\t<p>Welcome to nginx!</p></html>"
NEITHER: dict[str, tuple[bytes, str]] = {
    "text": (b'hello {"usage":{"prompt_tokens":14}}', 'hello {"usage":{"prompt_tokens":14}}'),
    "a field's first letter": (b"it works\n", "it works"),
    "a field's name in text": (b"error: no such page\n", "error: no such page"),
    "a field's name alone": (b"data", "data"),
    "html": (PAGE + b"\n\ndata: {}\n\n", "<!doctype html> <html> <p>Welcome to nginx!</p></html> data: {}"),
    "a long page": (PAGE * 1000, ""),
    "string": (b'"usage"', '"usage"'),
    "number": (b"42", "42"),
    "null": (b"null", "null"),
    "binary": (b"\x00\x01x\xff\xfe", "x\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    "capital": (b"Data: {}\n\n", "Data: {}"),
    "broken mark": (b"\xef\xbbdata: {}\n\n", "\N{REPLACEMENT CHARACTER}data: {}"),
    "too much white space": (b'{"a":1}'.rjust(100_000), ""),
}


@pytest.mark.parametrize(("sent", "quote"), NEITHER.values(), ids=NEITHER.keys())
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_anything_else_is_a_fault_that_quotes_it(
    wire: WireStand, sent: bytes, quote: str, stream: bool
) -> None:
    exchange = await wire.ask(body(sent, content_type="text/html"), stream=stream)
    assert exchange.reply.status == 502
    error = exchange.reply.json()["error"]
    assert (error["type"], error["code"]) == ("upstream_error", "protocol")
    told = "Upstream 'local' replied with neither JSON nor an event stream: "
    assert error["message"].startswith(told)
    quoted = error["message"].removeprefix(told).removesuffix(".")
    assert quoted == f'"{quote}"' if quote else len(quoted) <= 203
    assert exchange.line["fault"] == "protocol"
    assert "input_tokens" not in exchange.line


@pytest.mark.parametrize(
    ("path", "member"), [(EMBEDDINGS, "input"), ("/v1/completions", "prompt"), ("/v1/responses", "input")]
)
async def test_it_is_one_on_every_endpoint(wire: WireStand, path: str, member: str) -> None:
    asked = dumps({"model": MODEL, member: "x"})
    exchange = await wire.ask(body(PAGE, content_type="text/html"), path=path, body=asked)
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "protocol"


async def test_the_quote_does_not_depend_on_cuts(wire: WireStand) -> None:
    cut = (PAGE[i : i + 1] for i in range(len(PAGE)))
    whole = await wire.ask(body(PAGE, content_type="text/html"))
    exchange = await wire.ask(body(*cut, content_type="text/html"))
    assert exchange.body == whole.body


async def test_what_is_called_an_event_stream_may_begin_with_any_field(wire: WireStand) -> None:
    """llama.cpp sends `error: {…}`."""
    sent = b"model: x\n" + STREAM
    exchange = await wire.ask(body(sent, content_type="Text/Event-Stream; charset=utf-8"), **ASKED)
    assert exchange.body == b"model: x\n" + priced(STREAM)
    assert_billed_as_reported(exchange.line)


# === what came before the deciding byte ===

BEFORE = {
    "LF": b"\n\n",
    "CRLF": b"\r\n",
    "blanks": b" \t ",
    "mark": b"\xef\xbb\xbf",
    "both": b"\n\xef\xbb\xbf\n",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
async def test_what_is_held_back_before_a_document_is_not_dropped(wire: WireStand, before: bytes) -> None:
    document = dumps(completion(usage=REPORTED))
    exchange = await wire.ask(
        body(*(before[i : i + 1] for i in range(len(before))), document, content_type="text/plain")
    )
    assert exchange.body == before + priced(document)
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize(
    "before", [BEFORE[name] for name in ("LF", "CRLF", "mark")], ids=["LF", "CRLF", "mark"]
)
async def test_what_is_held_back_before_a_stream_is_not_dropped(wire: WireStand, before: bytes) -> None:
    steps = (before[i : i + 1] for i in range(len(before)))
    exchange = await wire.ask(body(*steps, STREAM), **ASKED)
    assert exchange.body == before + priced(STREAM)
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("sent", [b"\n", b" \r\n\t", b"\xef\xbb\xbf", b"\xef"], ids=repr)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_white_space_alone_is_a_reply_that_broke_off(
    wire: WireStand, sent: bytes, stream: bool
) -> None:
    """Some send blank lines while a request is queued: if nothing follows, that is no success."""
    exchange = await wire.ask(body(sent), stream=stream)
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "truncated"
    assert exchange.line["fault"] == "truncated"


# === once ===


async def test_a_stream_does_not_become_a_document(wire: WireStand) -> None:
    sent = event(chunk("a")) + dumps(completion(usage=REPORTED)) + b"\n\n" + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert "input_tokens" not in exchange.line


async def test_documents_do_not_become_a_stream(wire: WireStand) -> None:
    sent = dumps(completion()) + b"\n: ping\n\ndata: [DONE]\n\n"
    exchange = await wire.ask(body(sent, content_type="text/event-stream"))
    assert exchange.body == sent
    assert "event-stream" not in exchange.reply.headers["content-type"]


async def test_text_does_not_become_a_stream(wire: WireStand) -> None:
    sent = event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(b"x", b"\n\n" + sent, content_type="text/plain"), **ASKED)
    assert exchange.reply.status == 502
    assert "input_tokens" not in exchange.line
