"""Upstreams that misuse HTTP/2, or a connection that is used again, or the request's way to them."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from harness.raw_http2 import PREFACE
from hostile.case import PROMPT, Address, Case, Seen, asking, exchange, labels, post, talk
from hostile.replies import LAST_CHUNK, ONE_CHUNK, document, streamed

MIB = 1 << 20
_FAILED = labels(502)
_ODD = labels("served", 502)
_LATE = labels(502, 504)
_BROKEN = labels(502, 504, "error in stream", "cut")
_SILENT_SECONDS = 15.0
_MAX_CONCURRENT, _INITIAL_WINDOW = 3, 4
_REFUSED_STREAM, _INTERNAL = 7, 2
_POISON = b"an answer to somebody else"

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# === connections that are used again ===


def _completion(text: bytes) -> bytes:
    message = {"role": "assistant", "content": text.decode()}
    return document(json.dumps({"id": "c", "choices": [{"index": 0, "message": message}]}).encode())


async def _request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
    await reader.readexactly(int(lines.get(b"content-length", b"0")))


def _answers_twice(pause: float) -> Connection:
    """Each request is answered, and then another reply follows that nobody asked for."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await _request(reader)
            right, poison = _completion(b"right"), _completion(_POISON)
            if pause:
                writer.write(right)
                await writer.drain()
                await asyncio.sleep(pause)
                right = b""
            # Without a pause both come together: nothing can be sent between them.
            writer.write(right + poison)
            await writer.drain()

    return run


def _asks_five_times(at_once: int) -> Callable[[Address], Awaitable[Seen]]:
    """Whether any of five times `at_once` requests gets an answer that was not for it.

    No client of HTTP/1.1 can tell a reply that comes after the next request from that request's own: so the
    next ones are sent when what follows a reply has come.
    """

    async def ask(address: Address) -> Seen:
        body = post(body=asking("bad-chat", stream=False))
        for _ in range(5):
            answers = await asyncio.gather(*(exchange(address, body) for _ in range(at_once)))
            if any(_POISON in reply for _, reply in answers):
                return Seen(200, "whole", code="an answer to somebody else", errs=True)
            await asyncio.sleep(0.5)
        return answers[0][0]

    return ask


def _answers_first(reply: bytes) -> Connection:
    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()
        await _request(reader)
        await asyncio.sleep(1)

    return run


async def _takes_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(_SILENT_SECONDS)


async def _answers_unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closing with bytes unread resets the connection."""
    await reader.readuntil(b"\r\n\r\n")
    error = b'{"error":{"message":"too large","type":"invalid_request_error","code":"too_large"}}'
    writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-type: application/json\r\n")
    writer.write(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(error) + error)
    await writer.drain()


async def _closes_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    return


async def _asks_much(address: Address) -> Seen:
    return await talk(address, post(body=asking("bad-chat", more="a" * 20 * MIB)))


async def _two_hundred(address: Address) -> Seen:
    body = post(body=asking("bad-chat"))
    seen = await asyncio.gather(*(talk(address, body) for _ in range(200)))
    return next((each for each in seen if each.label not in ("502", "504")), seen[0])


def _refuses(status: bytes, *headers: bytes, says: bytes = b"Wait.") -> bytes:
    error = b'{"error":{"message":"%s","type":"server_error","code":"refused"}}' % says
    lines = (b"HTTP/1.1 " + status, b"content-type: application/json", *headers)
    return b"\r\n".join([*lines, b"content-length: %d" % len(error), b"", error])


# === HTTP/2 ===


def _http2(*frames: object, repeats: bytes = b"", linger: float = _SILENT_SECONDS) -> Connection:
    """Settings, then `frames` once the request has begun to come, then `repeats` again and again."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PREFACE))
        first, *rest = frames
        writer.write(_bytes(first))
        await reader.read(1)
        # The request's head has come with the settings or behind them.
        await asyncio.sleep(0.1)
        for frame in rest:
            writer.write(_bytes(frame))
        await writer.drain()
        reading = asyncio.ensure_future(_reads(reader))
        try:
            async with asyncio.timeout(linger):
                while repeats:
                    writer.write(repeats)
                    await writer.drain()
                    await asyncio.sleep(0)
                await reading
        except TimeoutError:
            pass
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    return run


async def _reads(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


def _bytes(frame: object) -> bytes:
    return frame if isinstance(frame, bytes) else frame.serialize()  # type: ignore[attr-defined]


def _settings(**values: int) -> SettingsFrame:
    frame = SettingsFrame(0)
    numbers = {"streams": _MAX_CONCURRENT, "window": _INITIAL_WINDOW}
    frame.settings = {numbers[name]: value for name, value in values.items()}
    return frame


def _head(*headers: tuple[str, str], stream: int = 1, flags: tuple[str, ...] = ()) -> HeadersFrame:
    frame = HeadersFrame(stream)
    frame.data = Encoder().encode(list(headers), huffman=False)
    frame.flags.add("END_HEADERS")
    for flag in flags:
        frame.flags.add(flag)
    return frame


def _ok(*more: tuple[str, str]) -> HeadersFrame:
    return _head((":status", "200"), ("content-type", "text/event-stream"), *more)


def _data(data: bytes, stream: int = 1) -> DataFrame:
    frame = DataFrame(stream)
    frame.data = data
    return frame


def _reset(code: int, stream: int = 1) -> RstStreamFrame:
    frame = RstStreamFrame(stream)
    frame.error_code = code
    return frame


def _goaway(last: int) -> GoAwayFrame:
    frame = GoAwayFrame(0)
    frame.last_stream_id = last
    return frame


def _window(increment: int, stream: int = 0) -> WindowUpdateFrame:
    frame = WindowUpdateFrame(stream)
    frame.window_increment = increment
    return frame


def _push() -> PushPromiseFrame:
    frame = PushPromiseFrame(1)
    frame.promised_stream_id = 2
    request = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]
    frame.data = Encoder().encode(request)
    frame.flags.add("END_HEADERS")
    return frame


def _packed() -> bytes:
    """A header that is put into the table once and referred to two thousand times."""
    encoder = Encoder()
    frame = HeadersFrame(1)
    bomb = ("x-bomb", "b" * 3_900)
    frame.data = encoder.encode([(":status", "200"), bomb]) + encoder.encode([bomb] * 2_000)
    frame.flags.add("END_HEADERS")
    return bytes(frame.serialize())


def _padded() -> bytes:
    """A data frame that is padding only: its length and flags by hand (RFC 9113, section 6.1)."""
    return b"\x00\x01\x00" + b"\x00" + b"\x08" + b"\x00\x00\x00\x01" + b"\xff" + bytes(255)


def _case(name: str, sends: object, expected: frozenset[str], *, quick: bool = False) -> Case:
    return Case(f"HTTP/2: {name}", "upstream", sends, expected, model="bad-http2", quick=quick)  # type: ignore[arg-type]


async def _asks_http2_much(address: Address) -> Seen:
    return await talk(address, post(body=asking("bad-http2", more="a" * MIB)))


PEERS = (
    # === connections that are used again ===
    Case(
        "a second reply that nobody asked for",
        "upstream",
        _answers_twice(0.0),
        labels("served", 502),
        asks=_asks_five_times(4),
        quick=True,
    ),
    Case(
        "a second reply a moment later",
        "upstream",
        _answers_twice(0.01),
        labels("served", 502),
        # Of several at once one may be sent late, on a connection whose second reply has not come yet.
        asks=_asks_five_times(1),
    ),
    Case("a reply before the request", "upstream", _answers_first(streamed(ONE_CHUNK)), _BROKEN),
    Case(
        "half a reply before the request", "upstream", _answers_first(b"HTTP/1.1 200 OK\r\nx-a:"), _BROKEN
    ),
    Case("takes nothing of 20 MiB", "upstream", _takes_nothing, _LATE, asks=_asks_much),
    Case("answers 20 MiB unread", "upstream", _answers_unread, labels(413, 502), asks=_asks_much),
    Case("closes each connection at once", "upstream", _closes_at_once, _FAILED),
    Case("answers none of 200 requests", "upstream", _takes_nothing, _LATE, asks=_two_hundred),
    Case(
        "wait of 400 digits",
        "upstream",
        _refuses(b"429 Wait", b"retry-after: " + b"9" * 400),
        labels(429, 502),
    ),
    Case("wait below zero", "upstream", _refuses(b"429 Wait", b"retry-after: -1"), labels(429)),
    Case("wait that is no number", "upstream", _refuses(b"503 Wait", b"retry-after: nan"), labels(502, 503)),
    Case(
        "wait until the year 9999",
        "upstream",
        _refuses(b"429 Wait", b"retry-after: Fri, 31 Dec 9999 23:59:59 GMT"),
        labels(429),
    ),
    Case(
        "headers of bytes that are no text",
        "upstream",
        streamed(ONE_CHUNK + LAST_CHUNK, b"x-a: \xff\xfe", b"set-cookie: \x80"),
        labels("served"),
    ),
    Case(
        "names the framing as headers of its connection",
        "upstream",
        streamed(
            ONE_CHUNK + LAST_CHUNK,
            b"connection: close, content-type, x-request-id",
            b"keep-alive: timeout=99999999999999999999",
        ),
        labels("served", 502),
    ),
    Case(
        "content type of 12 kB",
        "upstream",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; a=" + b"b" * 12_000 + b"\r\n\r\n" + ONE_CHUNK,
        _BROKEN,
    ),
    Case("a part of the content", "upstream", b"HTTP/1.1 206 Part\r\ncontent-length: 2\r\n\r\n{}", _ODD),
    Case("not modified", "upstream", b"HTTP/1.1 304 Same\r\netag: a\r\n\r\n", _FAILED),
    Case(
        "an error that repeats the prompt",
        "upstream",
        _refuses(b"500 Error", says=b"Not understood: " + PROMPT.encode()),
        labels(500, 502, "cut"),
    ),
    # === HTTP/2 ===
    _case("never sends its settings", _takes_nothing, _LATE),
    _case("allows no streams", _http2(_settings(streams=0)), _LATE),
    _case("refuses the first stream", _http2(_settings(), _reset(_REFUSED_STREAM)), _LATE),
    _case("goes away at once", _http2(_settings(), _goaway(0)), _LATE),
    _case("goes away without end", _http2(_settings(), repeats=_goaway(1).serialize() * 100), _LATE),
    Case(
        "HTTP/2: takes nothing of 1 MiB",
        "upstream",
        _http2(_settings(window=0)),
        _LATE,
        model="bad-http2",
        asks=_asks_http2_much,
    ),
    _case(
        "breaks off in the reply",
        _http2(_settings(), _ok(), _data(ONE_CHUNK), _reset(_INTERNAL)),
        _BROKEN,
    ),
    _case("data before the head", _http2(_settings(), _data(ONE_CHUNK)), _LATE),
    _case("data on a stream of its own", _http2(_settings(), _data(ONE_CHUNK, stream=2)), _LATE),
    _case("head on a stream of its own", _http2(_settings(), _head((":status", "200"), stream=2)), _LATE),
    _case("pushes", _http2(_settings(), _push()), _LATE),
    _case("pings without end", _http2(_settings(), repeats=PingFrame(0, bytes(8)).serialize() * 100), _LATE),
    _case("window beyond 2^31", _http2(_settings(), _window(2**31 - 1), _window(2**31 - 1)), _FAILED),
    _case("window of the stream beyond 2^31", _http2(_settings(), _window(2**31 - 1, 1)), _LATE),
    _case("head without a status", _http2(_settings(), _head(("content-type", "a"))), _LATE),
    _case("status of letters", _http2(_settings(), _head((":status", "abc"))), _LATE),
    _case("status 99999", _http2(_settings(), _head((":status", "99999"))), _LATE),
    _case(
        "head that grows when unpacked",
        _http2(_settings(), _packed()),
        _LATE,
        quick=True,
    ),
    _case(
        "length shorter than the body",
        _http2(_settings(), _ok(("content-length", "5")), _data(ONE_CHUNK)),
        _BROKEN,
    ),
    _case(
        "pseudo-header behind the body",
        _http2(
            _settings(), _ok(), _data(ONE_CHUNK), _head((":status", "200"), flags=("END_STREAM",))
        ),
        _BROKEN,
    ),
    _case(
        "1xx without end",
        _http2(_settings(), repeats=_head((":status", "103"), ("link", "a" * 100)).serialize() * 100),
        _LATE,
    ),
    _case(
        "empty data without end",
        _http2(_settings(), _ok(), repeats=_data(b"").serialize() * 100),
        _BROKEN,
    ),
    _case("padding without end", _http2(_settings(), _ok(), repeats=_padded() * 100), _BROKEN),
)  # fmt: skip
