"""Clients that misuse HTTP/2."""

import asyncio
from collections.abc import Awaitable, Callable

from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from harness.raw_http2 import CANCEL, PREFACE, RawHttp2
from hostile.case import KEY, PATIENCE, Address, Case, Seen, asking, labels

_AUTHORIZED = ("authorization", f"Bearer {KEY}")
_BODY = asking(stream=True)
_INITIAL_WINDOW = 4


def _floods(data: Callable[[RawHttp2], bytes], times: int = 400) -> Callable[[Address], Awaitable[Seen]]:
    """Sends what `data` makes so many times over, and then asks whether the connection still serves."""

    async def run(address: Address) -> Seen:
        async with RawHttp2(address) as client:
            piece = data(client)

            async def flood() -> None:
                for _ in range(times):
                    await client.send(piece)

            flooding = asyncio.ensure_future(flood())
            try:
                async with asyncio.timeout(PATIENCE):
                    number = None
                    while not client.closed:
                        if flooding.done() and number is None:
                            number = await client.ask(asking("nothing"), _AUTHORIZED)
                        if number is not None and client.streams[number].over:
                            return Seen(client.streams[number].status, "whole", code="model_not_found")
                        await client.step()
            except TimeoutError:
                return Seen(None, "hung")
            finally:
                flooding.cancel()
                await asyncio.gather(flooding, return_exceptions=True)
        return Seen(None, "cut")

    return run


def _resets(client: RawHttp2) -> bytes:
    parts = []
    for _ in range(2_000):
        head = client.head(_AUTHORIZED)
        head.flags.add("END_STREAM")
        reset = RstStreamFrame(head.stream_id)
        reset.error_code = CANCEL
        parts += [head.serialize(), reset.serialize()]
    return b"".join(parts)


def _settings(_: RawHttp2) -> bytes:
    frame = SettingsFrame(0)
    frame.settings = {_INITIAL_WINDOW: 65_535}
    return bytes(frame.serialize()) * 1_000


def _pings(_: RawHttp2) -> bytes:
    return bytes(PingFrame(0, b"12345678").serialize()) * 1_000


def _priorities(_: RawHttp2) -> bytes:
    return bytes(PriorityFrame(101, 0, 10).serialize()) * 1_000


def _endless_head(client: RawHttp2) -> bytes:
    head = client.head(_AUTHORIZED)
    head.flags.discard("END_HEADERS")
    frame = ContinuationFrame(head.stream_id)
    return bytes(head.serialize()) + bytes(frame.serialize()) * 10_000


def _packed_head(client: RawHttp2) -> bytes:
    bomb = ("x-bomb", "b" * 3_900)
    client.head(bomb)
    return bytes(client.head(*[bomb] * 2_000).serialize())


def _empty_data(client: RawHttp2) -> bytes:
    return bytes(client.head(_AUTHORIZED).serialize()) + bytes(DataFrame(1).serialize()) * 10_000


def _data_on_no_stream(_: RawHttp2) -> bytes:
    # hyperframe refuses to write it: length 1, type 0 (DATA), no flags, stream 0.
    return b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x"


def _wide_window(_: RawHttp2) -> bytes:
    frame = WindowUpdateFrame(0)
    frame.window_increment = 2**31 - 1
    return bytes(frame.serialize()) * 2


def _no_window(_: RawHttp2) -> bytes:
    # hyperframe refuses to write an increment of 0.
    return b"\x00\x00\x04\x08\x00\x00\x00\x00\x00" + bytes(4)


def _large_frame(_: RawHttp2) -> bytes:
    return b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100_000)


def _noise(_: RawHttp2) -> bytes:
    return b"\x01\x02\x03\x04" * 20_000


async def _closed_window(address: Address) -> Seen:
    """A hundred streams of which no byte is ever taken."""
    async with RawHttp2(address, {_INITIAL_WINDOW: 0}) as client:
        numbers = [await client.ask(_BODY, _AUTHORIZED) for _ in range(100)]
        try:
            async with asyncio.timeout(PATIENCE):
                while not client.closed and not all(client.streams[number].over for number in numbers):
                    await client.step()
        except TimeoutError:
            return Seen(None, "hung")
    return Seen(None, "cut")


async def _half_a_preface(address: Address) -> Seen:
    """Or a whole one, and nothing after it."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(PREFACE)
        async with asyncio.timeout(PATIENCE):
            while await reader.read(65_536):
                pass
        return Seen(None, "cut")
    except TimeoutError:
        return Seen(None, "hung")
    except ConnectionError:
        return Seen(None, "cut")
    finally:
        writer.transport.abort()


def _case(
    name: str, sends: Callable[[Address], Awaitable[Seen]], expected: frozenset[str], *, quick: bool = False
) -> Case:
    return Case(f"HTTP/2: {name}", "client", sends, expected, quick=quick)


_CUT = labels("cut")
_BORNE = labels("cut", 404)
"""Cut, or borne and served."""

FRAMES = (
    _case("requests taken back at once", _floods(_resets, 1), _CUT, quick=True),
    _case("settings flood", _floods(_settings), _BORNE),
    _case("ping flood", _floods(_pings), _BORNE),
    _case("priority flood", _floods(_priorities), _BORNE),
    _case("head that never ends", _floods(_endless_head, 1), _CUT, quick=True),
    _case("head that grows when unpacked", _floods(_packed_head, 20), _BORNE),
    _case("empty data without end", _floods(_empty_data, 1), _BORNE),
    _case("data on stream 0", _floods(_data_on_no_stream, 1), _CUT),
    _case("window beyond 2^31", _floods(_wide_window, 1), _CUT),
    _case("window that grows by 0", _floods(_no_window, 1), _CUT),
    _case("frame of 16 MiB", _floods(_large_frame, 1), _CUT),
    _case("noise after the preface", _floods(_noise, 1), _CUT),
    _case("100 streams that are never read", _closed_window, _CUT),
    _case("preface and nothing else", _half_a_preface, _CUT),
)
