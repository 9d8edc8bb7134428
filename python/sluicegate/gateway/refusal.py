"""Refusing a request whose body may still be on its way."""

import asyncio

from sluicegate.gateway.asgi import Receive, Send, content_length, respond
from sluicegate.gateway.errors import ErrorReply

# A client that is still sending when it is refused reads the answer only after that. Were its connection
# closed meanwhile, it would see a reset in place of the answer (RFC 9112, section 9.6). These bound what it
# may still send.
DISCARD_BYTES = 64 * 1024 * 1024
DISCARD_SECONDS = 5.0

# Of a body this small all but the head has arrived already: reading it keeps the connection.
SMALL_BODY = 64 * 1024


async def refuse(
    receive: Receive, send: Send, error: ErrorReply, headers: dict[bytes, bytes], request_id: str
) -> None:
    """Answer with `error` a request with `headers`, whose body has not been read."""
    answer = [*error.headers, (b"x-request-id", request_id.encode())]
    declared = content_length(headers)
    if declared is None and b"transfer-encoding" not in headers:
        declared = 0
    if declared is None or declared > SMALL_BODY:
        answer.append((b"connection", b"close"))
    await respond(send, error.status, answer, error.body)
    # A client that asked to be told to continue sends nothing until it is.
    if declared != 0 and b"expect" not in headers:
        await discard_body(receive)


async def discard_body(receive: Receive) -> None:
    """Read on and drop what the client sends, within bounds."""
    size = 0
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while size < DISCARD_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return
