"""A client on a plain socket that sends whatever bytes it is told to, and reads what comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from harness.gateway_process import GatewayProcess
from harness.wire_stand import CHAT, MODEL, request_body
from raw_http import RawConnection

BODY = request_body()
STREAM_BODY = request_body(stream=True)
TIMEOUT = 30.0

Ending = Literal["closed", "reset"]


def address(gateway: GatewayProcess) -> tuple[str, int]:
    """Where it listens."""
    host, _, port = gateway.base_url.partition("://")[2].partition(":")
    return host, int(port)


def request(
    *headers: bytes,
    body: bytes = BODY,
    line: bytes = b"POST %s HTTP/1.1" % CHAT.encode(),
    host: bytes | None = b"gateway",
) -> bytes:
    """A request's bytes. Its framing is the test's: no header is added but Host."""
    hosts = () if host is None else (b"host: " + host,)
    return b"\r\n".join([line, *hosts, *headers, b"", body])


def sized(*headers: bytes, body: bytes = BODY) -> bytes:
    """A request for a chat completion with a right Content-Length."""
    return request(b"content-length: %d" % len(body), *headers, body=body)


def chunked(body: bytes = BODY) -> bytes:
    """`body` as one chunk, and the end."""
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


@dataclass(frozen=True)
class Answer:
    """All that came until the server closed the connection."""

    data: bytes
    ended: Ending

    @property
    def statuses(self) -> list[int]:
        """Of each reply on the connection, in order. No body of these tests has such a line in it."""
        lines = [line for line in self.data.split(b"\r\n") if line.startswith(b"HTTP/1.")]
        return [int(line.split(b" ")[1]) for line in lines]


async def send_all(address: tuple[str, int], data: bytes, *, then_leave: bool = False) -> Answer:
    """Send `data`, and read until the server closes. `then_leave`: the writing side is closed after it.

    Raises `TimeoutError` where the server keeps the connection.
    """
    async with RawConnection(*address) as connection:
        sending = asyncio.ensure_future(_send(connection, data, then_leave))
        received = bytearray()
        ended: Ending = "closed"
        try:
            async with asyncio.timeout(TIMEOUT):
                while piece := await connection.reader.read(65_536):
                    received += piece
        except (ConnectionResetError, BrokenPipeError):
            ended = "reset"
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return Answer(bytes(received), ended)


async def _send(connection: RawConnection, data: bytes, then_leave: bool) -> None:
    # A server that has seen enough closes.
    with contextlib.suppress(ConnectionError):
        await connection.send(data)
        if then_leave:
            connection.writer.write_eof()


@contextlib.asynccontextmanager
async def still_serving(gateway: GatewayProcess) -> AsyncIterator[None]:
    """After what is done inside, the gateway serves the next client."""
    yield
    assert gateway.running
    async with RawConnection(*address(gateway)) as connection:
        await connection.post(CHAT, BODY)
        reply = await connection.reply()
    assert reply.status == 200, reply.body
    assert reply.json()["model"] == MODEL
