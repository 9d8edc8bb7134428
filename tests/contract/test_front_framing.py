"""Requests whose bytes could be taken for something else: each has one meaning, or an answer that says no."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.hostile_client import (
    BODY,
    Answer,
    chunked,
    request,
    send_all,
    sized,
    still_serving,
)
from harness.wire_stand import CHAT, MODEL, WireStand, dumps, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

LENGTH = len(BODY)
SIZED = b"content-length: %d" % LENGTH
CHUNKED = b"transfer-encoding: chunked"
CLOSE = b"connection: close"
BACKGROUND = dumps({"model": MODEL, "input": "Hi", "background": True})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway")) as stand:
        stand.upstream.script = Script()
        yield stand


async def answered(wire: WireStand, data: bytes, **options: Any) -> Answer:
    """What the gateway says to `data`, once it has closed the connection; it serves the next client."""
    async with still_serving(wire.gateway):
        return await send_all(wire.address, data, **options)


# === which bytes are the body ===

REFUSED = {
    "two lengths": request(SIZED, b"content-length: 3"),
    "a list of lengths": request(b"content-length: %d, %d" % (LENGTH, LENGTH)),
    "a signed length": request(b"content-length: +%d" % LENGTH),
    "a negative length": request(b"content-length: -1"),
    "a length in hexadecimal": request(b"content-length: 0x1f"),
    "no length at all": request(b"content-length:"),
    "a length beyond 64 bits": request(b"content-length: 99999999999999999999999"),
    "another coding": request(b"transfer-encoding: gzip"),
    "another coding after chunked": request(b"transfer-encoding: chunked, identity", body=chunked()),
    "another coding in a second header": request(CHUNKED, b"transfer-encoding: identity", body=chunked()),
    "a coding that ends in chunked": request(b"transfer-encoding: xchunked", body=chunked()),
    "a quoted coding": request(b'transfer-encoding: "chunked"', body=chunked()),
    "a coding behind a vertical tab": request(b"transfer-encoding: \x0bchunked", body=chunked()),
    "a coding in HTTP/1.0": request(CHUNKED, body=chunked(), line=b"POST /v1/chat/completions HTTP/1.0"),
    "a signed chunk": request(CHUNKED, body=b"+" + chunked()),
    "a negative chunk": request(CHUNKED, body=b"-1\r\n{}\r\n0\r\n\r\n"),
    "a chunk in two notations": request(CHUNKED, body=b"0x" + chunked()),
    "a chunk beyond 64 bits": request(CHUNKED, body=b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n"),
    "a chunk without a size": request(CHUNKED, body=b"\r\n{}\r\n0\r\n\r\n"),
    "chunks that end in a bare LF": request(CHUNKED, body=chunked().replace(b"\r\n", b"\n")),
    "a chunk that is longer than it says": request(CHUNKED, body=b"1" + chunked(b"{}")[1:]),
    "an LF in a chunk's extension": request(CHUNKED, body=b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
    "an endless extension": request(CHUNKED, body=b"2;" + b"a" * 500_000),
    "extensions without an end": request(CHUNKED, body=(b"1;" + b"a" * 1_000 + b"\r\nx\r\n") * 500),
    "endless trailers": request(CHUNKED, body=chunked()[:-2] + b"x-a: b\r\n" * 100_000),
    "a trailer without an end": request(CHUNKED, body=chunked()[:-2] + b"x" * 500_000),
    "a folded header": request(SIZED, b"x-a: b", b" c"),
    "a fold before the first header": request(SIZED, line=b"POST /v1/chat/completions HTTP/1.1\r\n x: y"),
    "a space before the colon": request(b"content-length : %d" % LENGTH),
    "a NUL in a value": request(SIZED, b"x-a: b\0c"),
    "a NUL in a name": request(SIZED, b"x\0a: b"),
    "a CR in a value": request(SIZED, b"x-a: b\rc: d"),
    "a header without a name": request(SIZED, b": b"),
    "no host": request(SIZED, host=None),
    "two hosts": request(SIZED, b"host: gateway"),
    "a host that is none": request(SIZED, host=b"a/b"),
    "a host with a user": request(SIZED, host=b"user@gateway"),
    "two keys": request(SIZED, b"authorization: Bearer a", b"authorization: Bearer b"),
    "a target that is no path": request(SIZED, line=b"POST chat HTTP/1.1"),
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/1.2": request(line=b"GET /healthz HTTP/1.2", body=b""),
    "HTTP/2 without its preface": request(line=b"GET /healthz HTTP/2.0", body=b""),
    "a method that is no token": request(line=b"P(ST /healthz HTTP/1.1", body=b""),
    "all bytes there are": bytes(range(256)) * 8,
}
"""The length of each body is in doubt, or the head's meaning; none of them may be answered by guessing."""


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_in_doubt_is_refused_and_the_connection_closed(wire: WireStand, data: bytes) -> None:
    """A request behind it would begin at a place that is in doubt too: it is not looked at."""
    count = len(wire.upstream.requests)
    answer = await answered(wire, data + sized(CLOSE))
    assert answer.statuses == [400], answer
    assert len(wire.upstream.requests) == count + 1, "the one that came after, on its own connection"


@pytest.mark.parametrize(
    "coding", [b"gzip, chunked", b"chunked, chunked", b"identity\r\ntransfer-encoding: chunked"]
)
async def test_a_coding_beside_chunked_is_not_implemented(wire: WireStand, coding: bytes) -> None:
    """RFC 9112, section 6.1."""
    answer = await answered(wire, request(b"transfer-encoding: " + coding, body=chunked()))
    assert answer.statuses == [501], answer


async def test_a_tunnel_is_not_opened(wire: WireStand) -> None:
    answer = await answered(wire, request(line=b"CONNECT gateway:443 HTTP/1.1", body=b""))
    assert answer.statuses == [501], answer


@pytest.mark.parametrize("first", ["length", "coding"])
async def test_with_both_framings_the_chunks_count_and_nothing_after_them(
    wire: WireStand, first: str
) -> None:
    """RFC 9112, section 6.1: the connection is closed, for somebody before us may have counted the length."""
    headers = [b"content-length: 3", CHUNKED]
    if first == "coding":
        headers.reverse()
    count = len(wire.upstream.requests)
    answer = await answered(wire, request(*headers, body=chunked()) + sized(CLOSE))
    assert answer.statuses == [200], answer
    assert wire.upstream.requests[count].json()["model"] == MODEL
    assert len(wire.upstream.requests) == count + 2


ACCEPTED = {
    "a length said twice": request(SIZED, SIZED, CLOSE),
    "chunks": request(CHUNKED, CLOSE, body=chunked()),
    "chunks of one byte": request(
        CHUNKED, CLOSE, body=b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    ),
    "a short extension": request(CHUNKED, CLOSE, body=chunked().replace(b"\r\n", b";a=b\r\n", 1)),
    "trailers": request(CHUNKED, CLOSE, body=chunked()[:-2] + b"content-length: 3\r\nx-a: b\r\n\r\n"),
    "lines that end in LF": request(SIZED, CLOSE, body=b"").replace(b"\r\n", b"\n") + BODY,
    "empty lines before it": b"\r\n\r\n" + sized(CLOSE),
    "a whole URL": request(SIZED, CLOSE, line=b"POST http://gateway/v1/chat/completions HTTP/1.1"),
    "a whole URL of another host": request(SIZED, CLOSE, line=b"POST http://b/v1/chat/completions HTTP/1.1"),
    "HTTP/1.0": request(SIZED, line=b"POST /v1/chat/completions HTTP/1.0", host=None),
    "an expectation of its own": sized(b"expect: patience", CLOSE),
    "bytes beyond ASCII in a value": sized(b"x-a: \xff\xfe", CLOSE),
}
"""Odd, and allowed: a line may end in LF alone (RFC 9112, section 2.2), a target be a URL (section 3.2.2)."""


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_what_is_merely_odd_is_served(wire: WireStand, data: bytes) -> None:
    count = len(wire.upstream.requests)
    answer = await answered(wire, data)
    assert answer.statuses == [200], answer
    assert wire.upstream.requests[count].json()["model"] == MODEL


async def test_nothing_of_a_trailer_goes_on(wire: WireStand) -> None:
    trailing = chunked()[:-2] + b"authorization: Bearer x\r\nx-trailer: y\r\n\r\n"
    count = len(wire.upstream.requests)
    await answered(wire, request(CHUNKED, CLOSE, body=trailing))
    names = {name.lower() for name, _ in wire.upstream.requests[count].headers}
    assert not names & {"authorization", "x-trailer", "transfer-encoding"}


# === a body that ends too soon ===

PATHS = {
    "chat": (CHAT, BODY),
    "unknown": ("/nowhere", b"hello"),
    "models": ("/v1/models", b"hello"),
    "cancel": ("/v1/responses/resp_1/cancel", b"hello"),
    "background": ("/v1/responses", BACKGROUND),
}


@pytest.mark.parametrize("framing", ["length", "chunk", "no last chunk"])
@pytest.mark.parametrize(("path", "body"), PATHS.values(), ids=PATHS.keys())
async def test_a_body_that_ends_too_soon_is_the_clients_fault(
    wire: WireStand, path: str, body: bytes, framing: str
) -> None:
    line = b"POST %s HTTP/1.1" % path.encode()
    data = {
        "length": request(b"content-length: %d" % (len(body) + 1), line=line, body=body),
        "chunk": request(CHUNKED, line=line, body=b"%x\r\n%s" % (len(body) + 1, body)),
        "no last chunk": request(CHUNKED, line=line, body=b"%x\r\n%s\r\n" % (len(body), body)),
    }[framing]
    answer = await answered(wire, data, then_leave=True)
    # The application may have answered before it has come to the body's end.
    assert answer.statuses in ([400], [404], [405], []), answer


@pytest.mark.parametrize("path", ["/nowhere", "/v1/responses"])
async def test_a_body_that_is_badly_framed_is_too_wherever_it_goes(wire: WireStand, path: str) -> None:
    line = b"POST %s HTTP/1.1" % path.encode()
    answer = await answered(wire, request(CHUNKED, line=line, body=b"+5\r\nhello\r\n0\r\n\r\n"))
    assert answer.statuses == [400], answer


async def test_a_head_that_ends_too_soon_is_not_answered(wire: WireStand) -> None:
    answer = await answered(wire, b"POST / HTTP/1.1\r\nhost: gat", then_leave=True)
    assert answer.statuses in ([400], []), answer


# === what reaches the application ===


async def test_what_concerns_one_connection_is_not_passed_on(wire: WireStand) -> None:
    """A header that `Connection` names is dropped, and what asks for another protocol is ignored."""
    for upgrade in (b"websocket", b"h2c"):
        headers = (
            b"connection: upgrade, close, http2-settings",
            b"upgrade: " + upgrade,
            b"http2-settings: AAMA",
        )
        data = request(*headers, line=b"GET /healthz HTTP/1.1", body=b"")
        answer = await answered(wire, data)
        assert answer.statuses == [200], answer


@pytest.mark.parametrize("path", ["/v1/chat/%63ompletions", "//v1/chat/completions", "/v1/chat/completions/"])
async def test_another_spelling_of_a_path_is_no_way_around(wire: WireStand, path: str) -> None:
    """Either it is the endpoint, or it is unknown."""
    line = b"POST %s HTTP/1.1" % path.encode()
    answer = await answered(wire, request(SIZED, CLOSE, line=line))
    assert answer.statuses in ([200], [404], [405]), answer


async def test_replies_have_one_framing(wire: WireStand) -> None:
    for _ in range(2):
        async with RawConnection(*wire.address) as connection:
            await connection.send(request(SIZED, line=b"POST /nowhere HTTP/1.1"))
            head = await connection.head()
        assert ("content-length" in head.headers) != ("transfer-encoding" in head.headers)
