"""Upstreams that misuse HTTP and event streams."""

import asyncio
import gzip

from hostile.case import Case, labels

MIB = 1 << 20
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: "
_STREAM = _OK + b"text/event-stream\r\n"
_JSON = _OK + b"application/json\r\n"
_END = b"\r\n"
ONE_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'  # noqa: E501
LAST_CHUNK = ONE_CHUNK.replace(b"null", b'"stop"') + b"data: [DONE]\n\n"
_FAILED = labels(502)
_BROKEN = labels(502, "error in stream", "cut")
_LARGE = _BROKEN | {"504"}
"""On a busy machine so much may take longer than a deadline."""
_BORNE = labels("served", 502, "error in stream", "cut")


def streamed(data: bytes, *headers: bytes) -> bytes:
    """A reply with these bytes as its event stream, up to the connection's end."""
    return _STREAM + b"".join(header + b"\r\n" for header in headers) + _END + data


def document(data: bytes, *headers: bytes) -> bytes:
    """A reply with these bytes as its JSON."""
    declared = b"content-length: %d\r\n" % len(data)
    return _JSON + declared + b"".join(header + b"\r\n" for header in headers) + _END + data


def _chunked(data: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return _STREAM + b"transfer-encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(data), data) + end


def _endless(first: bytes, piece: bytes, *, pace: float = 0.0, most: int = 400) -> object:
    """Writes `first` and then `piece` again and again, at most so many times."""

    async def run(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        for _ in range(most):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pace)

    return run


def _then_silent(data: bytes) -> object:
    async def run(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(15)

    return run


async def _resets(writer: asyncio.StreamWriter) -> None:
    writer.write(_STREAM + b"transfer-encoding: chunked\r\n\r\n40\r\n" + ONE_CHUNK[:20])
    await writer.drain()
    writer.transport.abort()


def _case(
    name: str,
    sends: object,
    expected: frozenset[str],
    *,
    model: str = "bad-chat",
    stream: bool = True,
    quick: bool = False,
) -> Case:
    return Case(name, "upstream", sends, expected, model=model, stream=stream, quick=quick)  # type: ignore[arg-type]


_ZSTD_WINDOW = b"\x28\xb5\x2f\xfd\x00\xd8" + b"\x01\x00\x00" + b"\x00" * 64
"""A frame whose window descriptor asks for 2^37 bytes (RFC 8878, section 3.1.1.1.2)."""
_H2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_H2_HEAD = b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x88"
_H2_MORE = b"\x00\x00\x00\x09\x00\x00\x00\x00\x01"

REPLIES = (
    # === HTTP ===
    _case("headers without end", _endless(_STREAM, b"x-a: b\r\n" * 1000), _FAILED, quick=True),
    _case("header of 10 MiB", _endless(_STREAM + b"x-a: ", b"a" * MIB, most=10), _FAILED),
    _case("status line without end", _endless(b"HTTP/1.1 200 ", b"O" * 65_536), _FAILED),
    _case(
        "1xx without end",
        _endless(b"", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" * 500),
        labels(502, 504),
        quick=True,
    ),
    _case(
        "switches protocols",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + ONE_CHUNK,
        _FAILED,
    ),
    _case("two lengths", _JSON + b"content-length: 2\r\ncontent-length: 30\r\n\r\n{}", _FAILED),
    _case(
        "length and chunks",
        _STREAM + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        _BROKEN,
    ),
    _case("length longer than the body", streamed(ONE_CHUNK, b"content-length: 100000"), _BROKEN, quick=True),
    _case("length shorter than the body", streamed(ONE_CHUNK + LAST_CHUNK, b"content-length: 100"), _BROKEN),
    _case("length below zero", streamed(ONE_CHUNK, b"content-length: -1"), _FAILED),
    _case(
        "chunk extension without end",
        _endless(_STREAM + b"transfer-encoding: chunked\r\n\r\n5;", b"a" * 65_536),
        _BROKEN,
        quick=True,
    ),
    _case(
        "chunk of 2^64-1 bytes",
        _STREAM + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n" + ONE_CHUNK,
        _BROKEN,
    ),
    _case(
        "chunk size that is no number",
        _STREAM + b"transfer-encoding: chunked\r\n\r\nxyz\r\n" + ONE_CHUNK,
        _BROKEN,
    ),
    _case(
        "chunks of a byte",
        _STREAM
        + b"transfer-encoding: chunked\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in ONE_CHUNK * 500 + LAST_CHUNK)
        + b"0\r\n\r\n",
        labels("served"),
    ),
    _case(
        "trailers without end",
        _endless(_chunked(ONE_CHUNK + LAST_CHUNK, b"0\r\n"), b"x-a: b\r\n" * 1000),
        _BORNE,
    ),
    _case("status 999", b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n", _FAILED),
    _case("status 000", b"HTTP/1.1 000 What\r\ncontent-length: 0\r\n\r\n", _FAILED),
    _case(
        "redirect",
        b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
        _FAILED,
    ),
    _case("204 with nothing", b"HTTP/1.1 204 No Content\r\n\r\n", _FAILED),
    _case("no HTTP", b"SSH-2.0-OpenSSH_9.7\r\n", _FAILED),
    _case("web page", _OK + b"text/html\r\ncontent-length: 13\r\n\r\n<html></html>", _FAILED, quick=True),
    _case("reset in a chunk", _resets, _BROKEN),
    _case(
        "HTTP/2: head that never ends",
        _endless(_H2_SETTINGS + _H2_HEAD, _H2_MORE * 10_000),
        _FAILED,
        model="bad-http2",
    ),
    _case(
        "HTTP/2: settings flood",
        _endless(_H2_SETTINGS, _H2_SETTINGS * 1_000),
        labels(502, 504),
        model="bad-http2",
    ),
    _case("HTTP/2: no HTTP/2", b"HTTP/1.1 200 OK\r\n\r\n", _FAILED, model="bad-http2"),
    # === time ===
    _case("says nothing", _then_silent(b""), labels(504)),
    _case("head byte by byte", _endless(b"HTTP/1.1 200 OK\r\n", b"x", pace=0.1), labels(504)),
    _case("head and nothing more", _then_silent(streamed(b"")), labels(504)),
    _case("stops in the middle of an event", _then_silent(streamed(ONE_CHUNK + ONE_CHUNK[:30])), _BROKEN),
    _case(
        "comments and no token",
        _endless(streamed(b""), b": wait\n\n", pace=0.05),
        labels(504, "error in stream"),
    ),
    _case("event byte by byte", _endless(streamed(b"data: "), b"1", pace=0.05), labels(504, 502)),
    # === compression ===
    _case(
        "gzip bomb, a document",
        lambda: document(gzip.compress(bytes(400 * MIB), 9), b"content-encoding: gzip"),
        _LARGE,
        stream=False,
    ),
    _case(
        "gzip bomb, a stream",
        lambda: streamed(gzip.compress(bytes(400 * MIB), 9), b"content-encoding: gzip"),
        _LARGE,
        quick=True,
    ),
    _case(
        "gzip in gzip",
        document(gzip.compress(gzip.compress(bytes(MIB))), b"content-encoding: gzip, gzip"),
        _FAILED,
        stream=False,
    ),
    _case("gzip that is none", document(b"{}" * 10, b"content-encoding: gzip"), _FAILED, stream=False),
    _case("gzip cut off", streamed(gzip.compress(ONE_CHUNK * 50)[:60], b"content-encoding: gzip"), _BROKEN),
    _case(
        "zstd with a window of 2^37 bytes",
        document(_ZSTD_WINDOW, b"content-encoding: zstd"),
        _FAILED,
        stream=False,
    ),
    _case("coding that nobody knows", document(b"{}", b"content-encoding: x-mine"), _FAILED, stream=False),
    # === event streams ===
    _case(
        "a million comments",
        lambda: streamed(ONE_CHUNK + b":\n" * MIB + LAST_CHUNK),
        labels("served"),
        quick=True,
    ),
    _case("a million empty lines", lambda: streamed(ONE_CHUNK + b"\n" * MIB + LAST_CHUNK), labels("served")),
    _case(
        "event of 17 MiB",
        lambda: streamed(ONE_CHUNK + b"data: " + b"a" * 17 * MIB + b"\n\n" + LAST_CHUNK),
        _LARGE,
        quick=True,
    ),
    _case("line of 17 MiB that never ends", lambda: streamed(b":" + b"a" * 17 * MIB), _LARGE),
    _case(
        "event of a million lines",
        lambda: streamed(ONE_CHUNK + b"data: 1\n" * MIB + b"\n" + LAST_CHUNK),
        _BORNE,
    ),
    _case(
        "lines that end with CR only",
        streamed((ONE_CHUNK * 3 + LAST_CHUNK).replace(b"\n", b"\r")),
        labels("served"),
    ),
    _case(
        "lines that end in all three ways",
        streamed(
            ONE_CHUNK + ONE_CHUNK.replace(b"\n", b"\r\n") + ONE_CHUNK.replace(b"\n", b"\r") + LAST_CHUNK
        ),
        labels("served"),
    ),
    _case("BOM before the stream", streamed(b"\xef\xbb\xbf" + ONE_CHUNK + LAST_CHUNK), labels("served")),
    _case("BOM before each event", streamed((b"\xef\xbb\xbf" + ONE_CHUNK) * 1000 + LAST_CHUNK), _BORNE),
    _case("wrong UTF-8 in an event", streamed(ONE_CHUNK.replace(b'"a"', b'"\xff\xfe"') + LAST_CHUNK), _BORNE),
    _case("NUL in an event", streamed(ONE_CHUNK.replace(b'"a"', b'"\0"') + LAST_CHUNK), _BORNE),
    _case("ends twice, and goes on", streamed((ONE_CHUNK + LAST_CHUNK) * 500), labels("served")),
    _case("stream without an end", streamed(ONE_CHUNK * 3), _BROKEN),
    _case("stream of nothing", streamed(b""), _FAILED),
)
