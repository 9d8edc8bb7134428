"""Clients that misuse HTTP/1.1: heads, framing, time, and numbers of connections."""

import asyncio
import contextlib
import os
import socket

from hostile.case import PATIENCE, PROMPT, Address, Case, Seen, asking, labels, post, take, talk

MIB = 1 << 20
_BODY = asking(stream=False)
_BEGUN = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n"
_CHUNKED = b"transfer-encoding: chunked"
_CUT = labels("cut")
_BAD = labels(400, "cut")


def drips(head: bytes, piece: bytes, pace: float) -> object:
    """Sends `piece` again and again after `head`."""

    async def run(address: Address) -> Seen:
        reader, writer = await asyncio.open_connection(*address)

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                writer.write(head)
                while True:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pace)

        dripping = asyncio.ensure_future(drip())
        try:
            return await take(reader)
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            writer.transport.abort()

    return run


async def _leaves_early(address: Address) -> Seen:
    return await talk(address, post(body=_BODY, length=len(_BODY) + 100), then_leave=True)


async def _many_silent(address: Address) -> Seen:
    """Three hundred connections that say nothing; all are cut."""
    seen = await asyncio.gather(*(talk(address, b"") for _ in range(300)))
    return next((each for each in seen if each.label != "cut"), seen[0])


async def _many_at_once(address: Address) -> Seen:
    """Three hundred requests at once, each on a connection of its own."""
    seen = await asyncio.gather(*(talk(address, post(body=asking("nothing"))) for _ in range(300)))
    return next((each for each in seen if each.label != "404"), seen[0])


async def _leaves_streams(address: Address) -> Seen:
    """Two hundred streams, each left after its first bytes; then one that stays."""

    async def one() -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(post(body=asking(stream=True)))
                async with asyncio.timeout(PATIENCE):
                    await reader.read(200)
            finally:
                writer.transport.abort()

    for _ in range(4):
        await asyncio.gather(*(one() for _ in range(50)))
    return await talk(address, post(body=_BODY))


async def _never_reads(address: Address) -> Seen:
    """Sends requests for as long as they are taken, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(client, address)
        async with asyncio.timeout(PATIENCE):
            while True:
                await loop.sock_sendall(client, post(body=_BODY, key="wrong") * 20)
    except TimeoutError:
        return Seen(None, "hung")
    except OSError:
        return Seen(None, "cut")
    finally:
        client.close()


async def _after_another_key(address: Address) -> Seen:
    """Ten megabytes for a key that is unknown."""
    return await talk(address, post(body=b"a" * 10 * MIB, key="sk-unknown"))


def _case(name: str, sends: object, expected: frozenset[str], *, quick: bool = False) -> Case:
    return Case(name, "client", sends, expected, quick=quick)  # type: ignore[arg-type]


CLIENTS = (
    # === time ===
    _case("head, a line at a time without end", drips(_BEGUN, b"x-a: b\r\n", 0.1), _CUT, quick=True),
    _case("head, byte by byte", drips(b"", b"P", 0.1), labels("cut", 400)),
    _case("connection that says nothing", b"", _CUT),
    _case("half a method", b"PO", _CUT),
    _case("body that never comes", post(length=500), labels(408)),
    _case("body byte by byte", drips(post(length=100_000), b" ", 0.2), labels(408)),
    _case("chunks byte by byte", drips(post(_CHUNKED, length=b""), b"1\r\n \r\n", 0.2), labels(408)),
    _case(
        "expects to be told to continue, sends nothing",
        post(b"expect: 100-continue", length=500),
        labels(408),
    ),
    # === framing ===
    _case("two lengths", post(b"content-length: 3", body=_BODY), _BAD, quick=True),
    _case("length and chunks", post(_CHUNKED, body=_BODY), _BAD, quick=True),
    _case(
        "transfer coding of its own", post(b"transfer-encoding: gzip, chunked", length=b""), labels(400, 501)
    ),
    _case("chunked twice", post(b"transfer-encoding: chunked, chunked", length=b""), labels(400, 501)),
    _case("chunked is not last", post(b"transfer-encoding: chunked, gzip", length=b""), labels(400, 501)),
    _case("length below zero", post(body=_BODY, length=-1), _BAD),
    _case("length with a plus", post(body=_BODY, length=b"+10"), _BAD),
    _case("length of forty digits", post(body=_BODY, length=10**40), labels(400, 413, "cut")),
    _case("length shorter than the body", post(body=_BODY, length=10), labels(400)),
    _case("length longer than the body", _leaves_early, labels(400, 408, "cut")),
    _case(
        "chunk extension without end",
        drips(post(_CHUNKED, length=b"", body=b"5;"), b"a" * 65_536, 0),
        _BAD,
        quick=True,
    ),
    _case(
        "chunk size without end",
        drips(post(_CHUNKED, length=b""), b"0" * 65_536, 0),
        labels(400, 408, "cut"),
    ),
    _case(
        "chunk of 2^64-1 bytes",
        post(_CHUNKED, length=b"", body=b"ffffffffffffffff\r\n{"),
        labels(400, 408, 413, "cut"),
    ),
    _case("chunk of more than 2^64 bytes", post(_CHUNKED, length=b"", body=b"fffffffffffffffff\r\n{"), _BAD),
    _case("chunk size that is no number", post(_CHUNKED, length=b"", body=b"xyz\r\n{"), _BAD),
    _case(
        "trailers without end",
        drips(post(_CHUNKED, length=b"", body=b"1\r\n{\r\n0\r\n"), b"x-a: b\r\n" * 1000, 0),
        labels(400, 431, "cut"),
    ),
    _case(
        "200,000 chunks of a byte",
        post(_CHUNKED, length=b"", body=b"1\r\n \r\n" * 200_000 + b"0\r\n\r\n"),
        labels(400),
    ),
    # === heads ===
    _case("header folded over two lines", post(b"x-a: b\r\n c", body=_BODY), _BAD),
    _case("NUL in a header", post(b"x-a: \0", body=_BODY), _BAD),
    _case("space before the colon", post(b"x-a : b", body=_BODY), _BAD),
    _case("header without a name", post(b": b", body=_BODY), _BAD),
    _case("lines that end with CR only", post(body=_BODY).replace(b"\r\n", b"\r"), _BAD),
    _case(
        "lines that end with LF only", post(body=_BODY).replace(b"\r\n", b"\n"), labels("served", 400, "cut")
    ),
    _case("head of 10 MiB", post(b"x-a: " + b"a" * 10 * MIB, body=_BODY), labels(431, "cut"), quick=True),
    _case("100,000 headers", post(*[b"x-%d: y" % n for n in range(100_000)], body=_BODY), labels(431, "cut")),
    _case("URL of 100 kB", post(body=_BODY, path="/" + "a" * 100_000), labels(414, 431)),
    _case("two hosts", post(b"host: another", body=_BODY), _BAD),
    _case("no host", post(body=_BODY).replace(b"host: gateway\r\n", b""), labels(400)),
    _case("CONNECT", b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n", labels(400, 404, 405, 501)),
    _case("HTTP/0.9", b"GET /\r\n\r\n", _BAD),
    _case("HTTP/3.0", post(body=_BODY).replace(b"HTTP/1.1", b"HTTP/3.0"), labels(400, 505, "cut")),
    _case("TLS on the plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(509), _BAD),
    _case("a megabyte of noise", lambda: b"\x01" + os.urandom(MIB), _BAD),
    _case(
        "upgrade to a WebSocket",
        post(b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13", body=_BODY),
        labels("served", 400),
    ),
    _case(
        "upgrade to HTTP/2",
        post(b"connection: upgrade, http2-settings", b"upgrade: h2c", body=_BODY),
        labels("served", 400),
    ),
    _case("path that climbs", post(body=_BODY, path="/v1/../../etc/passwd"), labels(400, 404)),
    _case("NUL in the path", post(body=_BODY, path="/v1/responses/%00/cancel"), labels(400, 404)),
    # === keys and numbers ===
    _case("10 MiB for an unknown key", _after_another_key, labels(401), quick=True),
    _case("key of 12 kB", post(body=_BODY, key="k" * 12_000), labels(401)),
    _case(
        "prompt in a header and in the path",
        post(f"x-request-id: {PROMPT[:3]}".encode(), body=_BODY),
        labels("served"),
    ),
    _case("300 connections that say nothing", _many_silent, _CUT),
    _case("300 requests at once", _many_at_once, labels(404)),
    _case("200 streams left in their middle", _leaves_streams, labels("served")),
    _case("client that never reads", _never_reads, _CUT),
    _case("2,000 requests before the first answer", post(body=_BODY) * 2_000, labels("served")),
)
