"""HTTP on both sides: encodings, ids, bodies, and the end of the server."""

import asyncio
import contextlib
import gzip
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import brotli
import pytest
import pytest_asyncio
import zstandard

from harness.wire_stand import (
    CHAT,
    COMPLETIONS,
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
    request_body,
    sent_up,
    usage_chunk,
    wire_stand,
)
from raw_http import RawConnection
from sluicegate.testing import Script, body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
STREAM = event(chunk("a")) + event(chunk(finish="stop")) + event(usage_chunk(REPORTED)) + DONE
DOCUMENT = dumps(completion(usage=REPORTED))
LIMIT = 100_000
MIB = 1 << 20
CODINGS = ["gzip", "deflate", "br", "zstd"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {"keyed": {"api_key": "sk-ours"}},
        "models": {"keyed": f"keyed/{MODEL}"},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("narrow"), {"server": {"max_body_bytes": LIMIT}}) as stand:
        yield stand


# === encodings ===


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_upstream_that_compresses_all_the_same_is_decoded(wire: WireStand, coding: Any) -> None:
    stream = await wire.ask(Script(body=(STREAM,), compression=coding), **ASKED)
    assert stream.body == priced(STREAM)
    document = await wire.ask(Script(body=(DOCUMENT,), compression=coding, content_type="application/json"))
    assert document.body == priced(DOCUMENT)
    for exchange in (stream, document):
        assert "content-encoding" not in exchange.reply.headers
        assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("coding", CODINGS)
async def test_it_is_without_waiting_for_more_than_a_flush(wire: WireStand, coding: Any) -> None:
    """Each event comes though the upstream sends nothing after it."""
    events = [event(chunk(f"token {n}")) for n in range(4)]
    for count in range(1, len(events) + 1):
        sent = events[:count]
        async with wire.connected(Script(body=(*sent, "stall"), compression=coding), stream=True) as caller:
            await caller.connection.head()
            whole = b"".join(sent)
            assert await caller.read(len(whole)) == whole


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_error_reply_is_decoded_too(wire: WireStand, coding: Any) -> None:
    error = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded", "param": None}
    exchange = await wire.ask(Script(status=429, error=error, compression=coding))
    assert (exchange.reply.status, exchange.reply.json()) == (429, {"error": error})
    assert "content-encoding" not in exchange.reply.headers


WHOLE = {
    "gzip": gzip.compress(STREAM),
    "x-gzip": gzip.compress(STREAM),
    "GZIP": gzip.compress(STREAM),
    "br": brotli.compress(STREAM),
    "zstd": zstandard.compress(STREAM),
    "identity": STREAM,
}


@pytest.mark.parametrize(("name", "sent"), WHOLE.items(), ids=WHOLE.keys())
async def test_a_coding_is_decoded_wherever_it_is_cut(wire: WireStand, name: str, sent: bytes) -> None:
    script = Script(body=tuple(sent[i : i + 1] for i in range(len(sent))), headers={"content-encoding": name})
    exchange = await wire.ask(script, **ASKED)
    assert exchange.body == priced(STREAM)
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize(
    ("name", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)], ids=["gzip", "zstd"]
)
async def test_several_compressed_members_are_one_stream(wire: WireStand, name: str, compress: Any) -> None:
    """RFC 1952, section 2.2 and RFC 8878, section 3.1; some servers begin a new one for each write."""
    half = len(STREAM) // 2
    for sent in (
        (compress(STREAM[:half]) + compress(STREAM[half:]),),
        (compress(STREAM[:half]), compress(STREAM[half:])),
    ):
        exchange = await wire.ask(Script(body=sent, headers={"content-encoding": name}), **ASKED)
        assert exchange.body == priced(STREAM)
        assert_billed_as_reported(exchange.line)


async def test_a_coding_that_breaks_off_is_a_stream_that_breaks_off(wire: WireStand) -> None:
    sent = brotli.Compressor()
    first = sent.process(event(chunk("a"))) + sent.flush()
    for damaged in ((first,), (first, b"\xff" * 40)):
        exchange = await wire.ask(Script(body=damaged, headers={"content-encoding": "br"}), **ASKED)
        assert exchange.body.startswith(event(chunk("a")) + b'data: {"error":')
        assert exchange.line["fault"] in ("truncated", "decode")
        assert b"[DONE]" not in exchange.body


# === what is in the bodies ===


async def test_members_that_nobody_knows_pass_in_requests(wire: WireStand) -> None:
    sent = (
        b'{ "model" : "small","messages":[{"role":"assistant","reasoning_details":[{"signature":"s=="}],'
        b'"tool_calls":[{"extra_content":{"google":{"thought_signature":"\\u0041+/="}}}]}],'
        b'"temperature":1.0,"seed":12345678901234567890,"x":1E400,"y":-0,"n":null, "kwargs":{"a":[]} }'
    )
    await wire.ask(Script(tokens=1), body=sent)
    assert wire.request.body == sent


async def test_they_pass_in_replies(wire: WireStand) -> None:
    document = dumps(completion(extra_content={"google": {"s": "=="}}, x=1.5))[:-1] + b',"y":1E400 }'
    exchange = await wire.ask(body(document, content_type="application/json"))
    assert exchange.body == document
    stream = event(chunk("a", x={"y": [1.0]}, provider="p")) + event(chunk(finish="stop")) + DONE
    assert (await wire.stream(body(stream))).body == stream


async def test_the_upstreams_name_for_the_model_is_the_only_change(wire: WireStand) -> None:
    sent = b'{"model":"keyed", "messages":[{"content":"model: keyed"}],"x":{"model":"keyed"}}'
    await wire.ask(Script(tokens=1), body=sent)
    assert wire.request.body == sent.replace(b'{"model":"keyed", ', b'{"model":"small", ')


# === ids ===


async def test_a_clients_request_id_is_passed_on_and_given_back(wire: WireStand) -> None:
    async with RawConnection(*wire.address) as connection:
        await connection.post(CHAT, request_body(), headers=("x-request-id: req.A-1/e",))
        reply = await connection.reply()
    assert reply.headers["x-request-id"] == "req.A-1/e"
    assert sent_up(wire)["x-request-id"] == ["req.A-1/e"]
    assert (await wire.gateway.wait_request(request_id="req.A-1/e"))["status"] == 200


@pytest.mark.parametrize(
    "given", [None, "with space", "x" * 129, "\xe9", ""], ids=["none", "space", "long", "é", "empty"]
)
async def test_one_is_made_where_there_is_none_fit_for_headers_and_logs(
    wire: WireStand, given: str | None
) -> None:
    wire.upstream.script = Script(tokens=1)
    async with RawConnection(*wire.address) as connection:
        await connection.post(
            CHAT, request_body(), headers=() if given is None else (f"x-request-id: {given}",)
        )
        reply = await connection.reply()
    made = reply.headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    assert sent_up(wire)["x-request-id"] == [made]
    line = await wire.gateway.wait_request(request_id=made)
    assert line["upstream_request_id"].startswith("req_mock"), "the upstream's own is in the log"


async def test_an_error_reply_has_it_too(wire: WireStand) -> None:
    exchange = await wire.ask(Script(status=500))
    assert exchange.reply.headers["x-request-id"] == exchange.line["request_id"]
    exchange = await wire.ask(Script(), body=b"{")
    assert exchange.reply.headers["x-request-id"] == exchange.line["request_id"]


async def test_a_trace_is_passed_on(wire: WireStand) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = (f"traceparent: {parent}", "tracestate: a=1,b=2", "baggage: k=v")
    await wire.stream(Script(tokens=1), headers=sent)
    headers = sent_up(wire)
    assert headers["traceparent"] == [parent]
    assert headers["tracestate"] == ["a=1,b=2"]
    assert headers["baggage"] == ["k=v"]


async def test_one_is_made_where_there_is_none(wire: WireStand) -> None:
    """Its id is the request's, so that logs and traces are found by one number."""
    exchange = await wire.stream(Script(tokens=1))
    [parent] = sent_up(wire)["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", parent), parent
    async with RawConnection(*wire.address) as connection:
        await connection.post(CHAT, request_body())
        reply = await connection.reply()
    [parent] = sent_up(wire)["traceparent"]
    assert parent.split("-")[1] == reply.headers["x-request-id"] != exchange.line["request_id"]


# === large bodies ===


async def test_a_body_over_the_limit_is_a_413_before_it_is_read(narrow: WireStand) -> None:
    count = len(narrow.upstream.requests)
    async with RawConnection(*narrow.address) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {LIMIT + 1}\r\n\r\n"
        await connection.send(head.encode())
        reply = await connection.reply()
    assert reply.status == 413
    assert reply.json()["error"]["code"] == "request_too_large"
    assert str(LIMIT) in reply.json()["error"]["message"]
    assert len(narrow.upstream.requests) == count


async def test_so_is_one_whose_length_is_not_declared(narrow: WireStand) -> None:
    async with RawConnection(*narrow.address) as connection:
        await connection.send(
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(3):
            await connection.send(b"C350\r\n" + b"x" * 50_000 + b"\r\n")
        reply = await connection.reply()
    assert reply.status == 413


async def test_one_of_just_the_limit_passes(narrow: WireStand) -> None:
    sent = request_body()[:-1] + b',"x":"'
    sent += b"x" * (LIMIT - len(sent) - 2) + b'"}'
    assert len(sent) == LIMIT
    exchange = await narrow.ask(Script(tokens=1), body=sent)
    assert exchange.reply.status == 200
    assert narrow.request.body == sent


async def test_by_default_32_mib_pass_and_100_mib_do_not(wire: WireStand) -> None:
    """Image turns have 9 to 12 MiB."""
    sent = request_body()[:-1] + b',"x":"' + b"x" * (32 * MIB) + b'"}'
    exchange = await wire.ask(Script(tokens=1), body=sent)
    assert exchange.reply.status == 200
    assert wire.request.body == sent
    count = len(wire.upstream.requests)
    async with RawConnection(*wire.address) as connection:
        sending = asyncio.ensure_future(send_much(connection, 100 * MIB))
        reply = await connection.reply()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert reply.status == 413
    assert reply.json()["error"]["code"] == "request_too_large"
    assert len(wire.upstream.requests) == count


async def send_much(connection: RawConnection, size: int) -> None:
    await connection.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionError):
        for _ in range(size // MIB):
            await connection.send(b"x" * MIB)


# === connections ===


async def test_a_client_may_use_its_connection_again(wire: WireStand) -> None:
    wire.upstream.script = body(STREAM)
    async with RawConnection(*wire.address) as connection:
        for members in (ASKED, {}, ASKED):
            await connection.post(CHAT, request_body(**members))
            reply = await connection.reply()
            assert (reply.status, reply.ended) == (200, "complete")
            assert reply.body == priced(STREAM) if members else reply.json()["usage"]["cost"] == 0.0000393


async def test_a_client_of_http_1_0_gets_its_stream_until_the_connection_ends(wire: WireStand) -> None:
    wire.upstream.script = body(STREAM)
    async with RawConnection(*wire.address) as connection:
        await connection.post(CHAT, request_body(**ASKED), version="HTTP/1.0")
        reply = await connection.reply()
    assert "transfer-encoding" not in reply.headers
    assert reply.body == priced(STREAM)


ODD_HTTP = {
    "early hints": b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + STREAM,
    "trailers": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    + b"%x\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(STREAM), STREAM),
    "chunk extensions": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"%x;a=b\r\n%b\r\n0;c\r\n\r\n" % (len(STREAM), STREAM),
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + STREAM,
    "no reason": b"HTTP/1.1 200 \r\n\r\n" + STREAM,
    "status 201": b"HTTP/1.1 201 Created\r\n\r\n" + STREAM,
}  # fmt: skip


@pytest.mark.parametrize("sent", ODD_HTTP.values(), ids=ODD_HTTP.keys())
async def test_an_upstream_may_speak_http_oddly(wire: WireStand, sent: bytes) -> None:
    exchange = await wire.ask(raw(sent), **ASKED)
    assert exchange.body == priced(STREAM)
    assert exchange.reply.status == (201 if b"201" in sent[:20] else 200)
    assert_billed_as_reported(exchange.line)


# === the end of the server ===


async def test_sigterm_lets_running_streams_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with wire_stand(tmp_path_factory.mktemp("ending")) as stand:
        events = [event(chunk(f"{n}")) for n in range(20)]
        steps = [step for part in events for step in (part, 0.05)]
        whole = b"".join(events) + DONE
        async with stand.connected(body(*steps, DONE), stream=True) as caller:
            await caller.connection.head()
            first = await caller.read(len(events[0]))
            stand.gateway.signal()
            await stand.gateway.wait_line(event="draining")
            assert await refused(stand)
            assert first + await caller.read(len(whole) - len(first)) == whole
            assert await caller.connection.chunk() == b"", "the reply has its regular end"
        assert await stand.gateway.wait(10) == 0
        line = await caller.line()
        assert line["result"] == "ok"


async def refused(stand: WireStand) -> bool:
    """Whether new connections come to be refused, in time."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            async with RawConnection(*stand.address) as connection:
                await connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                await connection.head()
        except ConnectionRefusedError:
            return True
        except (OSError, EOFError):
            continue
    return False


async def test_completions_are_forwarded_to_their_own_path(wire: WireStand) -> None:
    exchange = await wire.ask(Script(tokens=1), path=COMPLETIONS, body=dumps({"model": MODEL, "prompt": "x"}))
    assert wire.request.path == "/v1/completions"
    assert json.loads(exchange.body)["object"] == "text_completion"
    assert exchange.line["endpoint"] == "completions"
