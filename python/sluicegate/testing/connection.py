"""One HTTP/1.1 connection, close enough to the socket to break it at any byte."""

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

# A request's head and body; a mock in somebody's test suite must not be what eats the machine's memory.
MAX_HEAD = 256 * 1024
MAX_BODY = 256 * 1024 * 1024
# How long a reset waits for the client's kernel to have taken what was sent before it.
FLUSH_SECONDS = 2.0


class BadRequest(Exception):
    """Bytes that are no HTTP/1.1 request."""


class ConnectionOver(Exception):
    """The connection was ended on purpose: nothing more is to be done on it."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Connection(asyncio.Protocol):
    """One connection of the upstream, numbered from 1.

    `on_made` is called once it stands, `on_left` as soon as the client is seen gone before this side ended
    it, `on_closed` once nothing is left of it.
    """

    def __init__(
        self,
        number: int,
        *,
        on_made: Callable[["Connection"], None],
        on_left: Callable[["Connection"], None],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self.number = number
        self.task: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        self._on_made = on_made
        self._on_left = on_left
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._eof = False
        self._ending = False
        self._arrival = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    # === asyncio.Protocol ===

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrival.set()

    def eof_received(self) -> bool:
        self._gone()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self.closed.set()
        self._on_closed(self)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def _gone(self) -> None:
        if not self._eof:
            self._eof = True
            self._arrival.set()
            self._room.set()
            if not self._ending:
                self._on_left(self)

    # === Reading ===

    @property
    def open(self) -> bool:
        return not self._eof and not self._ending

    async def read_request(self, idle_seconds: float | None = None) -> HttpRequest | None:
        """The next request; None where the client closed, or `idle_seconds` went by without one.

        Raises BadRequest.
        """
        try:
            async with asyncio.timeout(idle_seconds):
                while not self._buffer and not self._eof:
                    await self._more()
        except TimeoutError:
            return None
        if self._eof:
            return None
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequest("the head is too large")
            if not await self._more():
                return None
        head = self._take(end + 4)[:-4].decode("latin-1")
        method, target, version, headers = _parse_head(head)
        fields = {name.lower(): value for name, value in headers}
        if fields.get("expect", "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in fields.get("transfer-encoding", "").lower():
            body = await self._read_chunked()
        else:
            length = fields.get("content-length", "0")
            if not length.isascii() or not length.isdigit() or int(length) > MAX_BODY:
                raise BadRequest("content-length")
            body = await self._exactly(int(length))
        return None if body is None else HttpRequest(method, target, version, headers, body)

    async def _more(self) -> bool:
        """Wait for bytes; False at the end of them."""
        if self._eof:
            return False
        self._arrival.clear()
        await self._arrival.wait()
        return not self._eof

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not await self._more():
                return None
        return self._take(count)

    async def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequest("a line is too long")
            if not await self._more():
                return None
        return self._take(end + 2)[:-2]

    async def _read_chunked(self) -> bytes | None:
        body = bytearray()
        while (line := await self._line()) is not None:
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise BadRequest("a chunk's size") from None
            if size < 0 or len(body) + size > MAX_BODY:
                raise BadRequest("the body is too large")
            if size == 0:
                while (trailer := await self._line()) is not None:
                    if not trailer:
                        return bytes(body)
                return None
            piece = await self._exactly(size + 2)
            if piece is None:
                return None
            body += piece[:-2]
        return None

    # === Writing ===

    async def send(self, data: bytes, wire_bytes: int = 0) -> None:
        """Write, in pieces where asked to, and wait while the client takes nothing."""
        transport = self._transport
        if transport is None or not self.open:
            raise ConnectionOver
        pieces = [data]
        if 0 < wire_bytes < len(data):
            pieces = [data[i : i + wire_bytes] for i in range(0, len(data), wire_bytes)]
        for piece in pieces:
            # Lets the loop send what was written before: uvloop gathers it into one system call else. Not
            # after the last piece: a client that has it may leave, and must be seen to leave afterwards.
            await asyncio.sleep(0)
            await self._room.wait()
            if not self.open:
                raise ConnectionOver
            transport.write(piece)
        await self._room.wait()

    async def flush(self) -> None:
        """Wait until the client's kernel has acknowledged all that was sent, but not for ever."""
        deadline = time.monotonic() + FLUSH_SECONDS
        # The kernel has no event for "all acknowledged": it can only be asked.
        while self._unsent() and self.open and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def _unsent(self) -> int:
        transport = self._transport
        if transport is None:
            return 0
        waiting = struct.pack("i", 0)
        with contextlib.suppress(OSError):
            waiting = fcntl.ioctl(self._socket().fileno(), termios.TIOCOUTQ, waiting)
        return transport.get_write_buffer_size() + int(struct.unpack("i", waiting)[0])

    def close(self) -> None:
        """End the connection with a FIN, after what was written."""
        self._ending = True
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """End the connection at once: with a FIN, or with a RST where the client has not taken all."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()

    async def reset(self) -> None:
        """End the connection with a RST, after what was written has arrived."""
        await self.flush()
        self.abort()

    def abort(self) -> None:
        """End the connection with a RST, at once."""
        self._ending = True
        if self._transport is not None and not self.closed.is_set():
            # A linger time of zero makes close() send a RST in place of a FIN.
            with contextlib.suppress(OSError):
                self._socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _socket(self) -> socket.socket:
        transport = cast(asyncio.Transport, self._transport)
        return cast(socket.socket, transport.get_extra_info("socket"))


def _parse_head(head: str) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    first, *lines = head.split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("the request line")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest("a header")
        headers.append((name, value.strip(" \t")))
    return parts[0], parts[1], parts[2], tuple(headers)
