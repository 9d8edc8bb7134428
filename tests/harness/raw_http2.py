"""An HTTP/2 client that sends frames in any order; `hyperframe` writes its frames, `hpack` its headers."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Self

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from harness.wire_stand import CHAT
from raw_http import RawConnection

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE = 30.0
FRAME_HEAD = 9
NO_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 7, 8, 11


@dataclass
class StreamState:
    """What has come for one request. `reset`: the error code of its RST_STREAM."""

    status: int | None = None
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None


class RawHttp2:
    """One connection. `settings`: the client's, by number. Windows are opened by tests only."""

    def __init__(self, address: tuple[str, int], settings: dict[int, int] | None = None) -> None:
        self._connection = RawConnection(*address)
        self._settings = settings or {}
        self._decoder = Decoder()
        self._next = 1
        self.encoder = Encoder()
        self.streams: dict[int, StreamState] = {}
        self.goaways: list[GoAwayFrame] = []
        self.pongs = 0
        self.closed = False

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        frame = SettingsFrame(0)
        frame.settings = self._settings
        await self.send(PREFACE, frame)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.writer.transport.abort()

    # === sending ===

    async def send(self, *parts: Frame | bytes) -> None:
        """All of it in one write. What the server no longer takes is lost, as `closed` then says."""
        data = b"".join(part if isinstance(part, bytes) else part.serialize() for part in parts)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await self._connection.send(data)

    def head(self, *headers: tuple[str, str], path: str = CHAT, method: str = "POST") -> HeadersFrame:
        """The next request's head, not sent. Flags beside END_HEADERS are the test's."""
        number = self._next
        self._next += 2
        self.streams[number] = StreamState()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "gateway"), (":path", path)]
        frame = HeadersFrame(number)
        frame.data = self.encoder.encode([*pseudo, *headers])
        frame.flags.add("END_HEADERS")
        return frame

    async def ask(
        self, body: bytes = b"", *headers: tuple[str, str], path: str = CHAT, method: str = "POST"
    ) -> int:
        """Send a whole request; the number of its stream."""
        head = self.head(*headers, path=path, method=method)
        if not body:
            head.flags.add("END_STREAM")
            await self.send(head)
            return head.stream_id
        data = DataFrame(head.stream_id)
        data.data = body
        data.flags.add("END_STREAM")
        await self.send(head, data)
        return head.stream_id

    async def cancel(self, number: int) -> None:
        frame = RstStreamFrame(number)
        frame.error_code = CANCEL
        await self.send(frame)

    async def open_window(self, number: int, size: int) -> None:
        """Of a stream; 0: of the connection."""
        frame = WindowUpdateFrame(number)
        frame.window_increment = size
        await self.send(frame)

    # === receiving ===

    async def step(self) -> None:
        """Take one frame. Sets `closed` at the connection's end; raises `TimeoutError` where none comes."""
        reader = self._connection.reader
        try:
            async with asyncio.timeout(PATIENCE):
                frame, length = Frame.parse_frame_header(memoryview(await reader.readexactly(FRAME_HEAD)))
                frame.parse_body(memoryview(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed = True
            return
        stream = self.streams.get(frame.stream_id, StreamState())
        if isinstance(frame, HeadersFrame):
            for name, value in self._decoder.decode(frame.data, raw=True):
                if name == b":status":
                    stream.status = int(value)
        elif isinstance(frame, DataFrame):
            stream.data += frame.data
        elif isinstance(frame, RstStreamFrame):
            # What was sent before the client knew is answered with another.
            stream.reset = frame.error_code if stream.reset is None else stream.reset
        elif isinstance(frame, GoAwayFrame):
            self.goaways.append(frame)
        elif isinstance(frame, PingFrame) and "ACK" in frame.flags:
            self.pongs += 1
        elif isinstance(frame, PingFrame):
            await self._acknowledge(PingFrame(0, frame.opaque_data))
        elif isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            await self._acknowledge(SettingsFrame(0))
        if "END_STREAM" in frame.flags:
            stream.ended = True

    async def _acknowledge(self, frame: Frame) -> None:
        frame.flags.add("ACK")
        await self.send(frame)

    async def over(self, number: int) -> StreamState:
        """A request, once its reply is whole, or it or its connection was cut."""
        while not (self.closed or self.streams[number].over):
            await self.step()
        return self.streams[number]

    async def began(self, number: int) -> StreamState:
        """A request, once the head of its reply is there."""
        while not self.closed and self.streams[number].status is None:
            await self.step()
        return self.streams[number]

    async def end(self) -> None:
        """Take all there is, to the connection's end."""
        while not self.closed:
            await self.step()
