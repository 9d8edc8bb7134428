"""What a hostile case is, and what became of it."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

KEY = "sk-hostile-client-7f3a9c"
RUDE_KEY = "sk-hostile-caller-0d94e1"
"""Of another caller than the honest one."""
UPSTREAM_KEY = "sk-hostile-upstream-51be02"
PROMPT = "PROMPT-a41c77-not-for-the-log"
SECRETS = (KEY, RUDE_KEY, UPSTREAM_KEY, PROMPT)
"""None of these may be in the log."""

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
PATIENCE = 60.0
"""Seconds after which a hostile peer that was neither answered nor cut counts as `hung`."""

NO_BODY = "(no body)"
"""In place of a code: a head that is no HTTP has no request that an error of the API could answer."""

Address = tuple[str, int]
Ended = Literal["whole", "cut", "hung"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client of a case got. `code`: of the first error in the reply's body."""

    status: int | None
    ended: Ended
    code: str | None = None
    errs: bool = False

    @property
    def label(self) -> str:
        """A status, `served` (200 without an error), `error in stream`, `cut` or `hung`."""
        if self.ended == "hung" or self.status is None:
            return self.ended
        if self.status >= 300:
            return str(self.status)
        if self.errs:
            return "error in stream"
        return "served" if self.ended == "whole" else "cut"

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def load(cls, document: dict[str, Any]) -> Self:
        """The other way round."""
        return cls(**document)


ClientRun = Callable[[Address], Awaitable[Seen]]
UpstreamRun = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""What is written once the request has been read."""
ConnectionRun = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""A whole connection, from its beginning."""


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile peer.

    `sends`: the bytes of a client's connection, or a coroutine that has the gateway's address; for an
    upstream the bytes of its whole reply, or a coroutine that writes it. `expected`: the labels
    (`Seen.label`) that are right. `model`, `path`: what the client of a hostile upstream asks for; `asks`:
    what that client does in place of one request. `meets_upstream`: a client's case that asks for such a
    model. `quick`: part of `make test`.
    """

    name: str
    side: Literal["client", "upstream"]
    sends: bytes | Callable[[], bytes] | ClientRun | UpstreamRun | ConnectionRun
    expected: frozenset[str]
    model: str = "bad-chat"
    path: str = CHAT
    stream: bool = True
    asks: ClientRun | None = None
    meets_upstream: bool = False
    quick: bool = False

    @property
    def id(self) -> str:
        """Of its own: clients and upstreams may do the same."""
        return f"{self.side}: {self.name}"


async def talk(address: Address, data: bytes, *, then_leave: bool = False) -> Seen:
    """Send `data` on a connection of its own and take the reply, while the gateway may answer early."""
    seen, _ = await exchange(address, data, then_leave=then_leave)
    return seen


async def exchange(address: Address, data: bytes, *, then_leave: bool = False) -> tuple[Seen, bytes]:
    """The same, and the reply's body as far as it came."""
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        return Seen(None, "cut"), b""

    async def send() -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
            if then_leave:
                writer.write_eof()

    sending = asyncio.ensure_future(send())
    try:
        return await take_body(reader)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def take(reader: asyncio.StreamReader) -> Seen:
    """The first final reply on a connection, up to its end or the connection's."""
    seen, _ = await take_body(reader)
    return seen


async def take_body(reader: asyncio.StreamReader) -> tuple[Seen, bytes]:
    """The same, and the reply's body."""
    received = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            while not _whole(received):
                piece = await reader.read(1 << 18)
                if not piece:
                    return _seen(received, "cut")
                received += piece
    except TimeoutError:
        return _seen(received, "hung")
    except ConnectionError:
        return _seen(received, "cut")
    return _seen(received, "whole")


def _final(received: bytearray) -> tuple[int, dict[bytes, bytes], int] | None:
    """Status and headers of the first reply that is not 1xx, and where its body begins."""
    start = 0
    while (end := received.find(b"\r\n\r\n", start)) >= 0:
        first, *lines = bytes(received[start:end]).split(b"\r\n")
        parts = first.split(b" ")
        if len(parts) < 2 or not parts[1].isdigit():
            return None
        if int(parts[1]) >= 200 or int(parts[1]) == 101:
            headers = dict(line.lower().split(b": ", 1) for line in lines if b": " in line)
            return int(parts[1]), headers, end + 4
        start = end + 4
    return None


def _whole(received: bytearray) -> bool:
    found = _final(received)
    if found is None:
        return False
    _, headers, body = found
    if b"content-length" in headers:
        return len(received) - body >= int(headers[b"content-length"])
    return headers.get(b"transfer-encoding") == b"chunked" and received.endswith(b"\r\n0\r\n\r\n")


def _seen(received: bytearray, ended: Ended) -> tuple[Seen, bytes]:
    found = _final(received)
    if found is None:
        return Seen(None, ended), b""
    status, headers, start = found
    # Another reply may follow.
    end = start + int(headers[b"content-length"]) if b"content-length" in headers else None
    body = bytes(received[start:end])
    if status >= 300:
        return Seen(status, ended, code=_code(body)), body
    errs = any(mark in body for mark in (b'data: {"error"', b'"type":"error"', b'"response.failed"'))
    return Seen(status, ended, errs=errs), body


def _code(body: bytes) -> str | None:
    if not body:
        return NO_BODY
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return None


def post(
    *headers: bytes, body: bytes = b"", path: str = CHAT, length: int | bytes | None = None, key: str = KEY
) -> bytes:
    """A POST with the key. `length`: in place of the right one; empty: none."""
    declared = len(body) if length is None else length
    framing = () if declared == b"" else (b"content-length: " + str(declared).encode(),)
    if isinstance(declared, bytes) and declared:
        framing = (b"content-length: " + declared,)
    lines = (
        f"POST {path} HTTP/1.1".encode(), b"host: gateway", b"authorization: Bearer " + key.encode(),
        *framing, *headers, b"", body,
    )  # fmt: skip
    return b"\r\n".join(lines)


def asking(model: str = "small", path: str = CHAT, **members: Any) -> bytes:
    """A body that asks a model, with the prompt that must not be in the log."""
    content: dict[str, Any] = {"input": PROMPT, "store": False}
    if path == CHAT:
        content = {"messages": [{"role": "user", "content": PROMPT}]}
    return json.dumps({"model": model, **content, **members}).encode()


def labels(*names: object) -> frozenset[str]:
    """What is right for a case."""
    return frozenset(map(str, names))
