"""A client that sees the bytes: HTTP chunks as they came, and how the connection ended."""

import asyncio
import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Ending = Literal["complete", "eof", "reset"]
TIMEOUT = 60.0
"""Seconds: some replies have 66 MiB, and other tests use the cores as well."""


@dataclass
class RawReply:
    """`chunks`: the HTTP chunks' contents, or the whole body as one. `ended`: how the body did."""

    status: int
    headers: dict[str, str]
    chunks: list[bytes] = field(default_factory=list)
    ended: Ending = "complete"

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """One TCP connection. `patience`: the seconds that any wait on it may take."""

    def __init__(self, host: str, port: int, *, patience: float = TIMEOUT) -> None:
        self._address = host, port
        self._patience = patience

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(
        self, path: str, body: bytes, *, headers: tuple[str, ...] = (), version: str = "HTTP/1.1"
    ) -> None:
        lines = [f"POST {path} {version}", "host: upstream", f"content-length: {len(body)}", *headers]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def head(self) -> RawReply:
        """The response head. Raises EOFError or ConnectionError where none comes."""
        async with asyncio.timeout(self._patience):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            headers[name] = value
        return RawReply(int(first.split(" ")[1]), headers)

    async def chunk(self) -> bytes:
        """The next HTTP chunk; empty: the last."""
        async with asyncio.timeout(self._patience):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def reply(self) -> RawReply:
        """The whole reply, as far as it comes."""
        reply = await self.head()
        try:
            if reply.headers.get("transfer-encoding") == "chunked":
                while chunk := await self.chunk():
                    reply.chunks.append(chunk)
            elif "content-length" in reply.headers:
                async with asyncio.timeout(self._patience):
                    reply.chunks.append(await self.reader.readexactly(int(reply.headers["content-length"])))
            else:
                reply.chunks.append(await self.rest())
        except asyncio.IncompleteReadError as error:
            if reply.headers.get("transfer-encoding") != "chunked":
                reply.chunks.append(error.partial)
            reply.ended = "eof"
        except ConnectionResetError:
            reply.ended = "reset"
        return reply

    async def rest(self) -> bytes:
        """All bytes up to the end of the connection. Raises ConnectionResetError for a RST."""
        async with asyncio.timeout(self._patience):
            return await self.reader.read()


async def ask(
    address: tuple[str, int],
    mock: dict[str, Any] | None = None,
    path: str = "/v1/chat/completions",
    headers: tuple[str, ...] = (),
    **members: Any,
) -> RawReply:
    """One POST on a connection of its own; `members` go into the body (a streamed chat request otherwise)."""
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    body |= members
    if mock is not None:
        body["mock"] = mock
    async with RawConnection(*address) as connection:
        await connection.post(path, json.dumps(body).encode(), headers=headers)
        return await connection.reply()
