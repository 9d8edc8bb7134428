"""The little of ASGI that the gateway speaks itself (ASGI 3.0, HTTP 2.3)."""

import os
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

_SANE_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class ClientDisconnected(Exception):
    """The client left while it was still sending."""


class BodyTooLarge(Exception):
    """The request's body is larger than allowed."""


def request_id_of(headers: dict[bytes, bytes]) -> str:
    """The client's `x-request-id` where it is fit for headers and logs, else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _SANE_REQUEST_ID.fullmatch(given) is not None:
        return given.decode("ascii")
    return os.urandom(16).hex()


def new_response_id() -> str:
    """The id of a response; nobody can guess one."""
    return f"resp_{os.urandom(16).hex()}"


def content_length(headers: dict[bytes, bytes]) -> int | None:
    """The declared size of the body in bytes; None where the client declares none."""
    value = headers.get(b"content-length")
    if value is None or not value.isdigit():
        return None
    # Python reads no number of thousands of digits; one of twenty is larger than any limit.
    return int(value.lstrip(b"0")[:20] or b"0")


async def read_body(receive: Receive, declared: int | None, limit: int) -> bytes:
    """The request's body, of at most `limit` bytes.

    Returns once the `declared` bytes are there, without waiting for the server to say that nothing follows.
    Raises `BodyTooLarge` as soon as that is certain, and `ClientDisconnected`.
    """
    if declared is not None and declared > limit:
        raise BodyTooLarge
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge
        if not message.get("more_body", False) or size == declared:
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole response."""
    # RFC 9110, section 8.6: no length in a 204.
    pairs = [*headers] if status == 204 else [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
