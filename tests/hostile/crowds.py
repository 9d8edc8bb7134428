"""Clients each of which does what a client may, many at once."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any

from hostile.case import KEY, PATIENCE, RESPONSES, Address, Case, Seen, asking, labels, post, talk
from hostile.replies import LAST_CHUNK, ONE_CHUNK, streamed

MIB = 1 << 20
_REFUSED = labels(400, 408, 413, 503)


async def _all(*talks: Coroutine[Any, Any, Seen], right: frozenset[str]) -> Seen:
    """What the first of them saw that is not right, else the first."""
    seen = await asyncio.gather(*talks)
    return next((each for each in seen if each.label not in right), seen[0])


async def _bodies_that_stop(address: Address) -> Seen:
    """A hundred requests, of each of which 16 MiB of 32 come."""
    data = post(body=b"a" * 16 * MIB, length=32 * MIB)
    return await _all(*(talk(address, data) for _ in range(100)), right=_REFUSED | {"cut"})


async def _chunks_that_stop(address: Address) -> Seen:
    """The same without a declared length."""
    piece = b"100000\r\n" + b"a" * MIB + b"\r\n"
    data = post(b"transfer-encoding: chunked", length=b"", body=piece * 16)
    return await _all(*(talk(address, data) for _ in range(60)), right=_REFUSED | {"cut"})


async def _stored_bodies_that_stop(address: Address) -> Seen:
    """The same at a place that the application answers."""
    data = post(body=b"a" * 16 * MIB, length=32 * MIB, path=f"{RESPONSES}/resp_1/cancel")
    return await _all(*(talk(address, data) for _ in range(60)), right=_REFUSED | {"cut", "404"})


async def _large_requests(address: Address) -> Seen:
    """Forty requests of 16 MiB, all of them whole."""
    data = post(body=asking("nothing", more="a" * 16 * MIB))
    return await _all(*(talk(address, data) for _ in range(40)), right=labels(404, 408, 503))


async def _large_translations(address: Address) -> Seen:
    """Sixteen requests of 10 MB each that have to be translated."""
    item = b'{"type":"message","role":"user","content":"a"},'
    body = b'{"model":"bad-chat","input":[' + item * 200_000 + item[:-1] + b"]}"
    data = post(body=body, path=RESPONSES)
    return await _all(*(talk(address, data) for _ in range(16)), right=labels(400, 502, 503, 504))


async def _readers_of_nothing(address: Address) -> Seen:
    """Fifty clients that take nothing of replies of 10 MB."""
    loop = asyncio.get_running_loop()

    async def one() -> Seen:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        try:
            async with asyncio.timeout(PATIENCE):
                await loop.sock_connect(client, address)
                await loop.sock_sendall(client, post(body=asking("bad-chat", stream=True)))
                # Without taking anything.
                while not _closed(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            return Seen(None, "cut")
        except TimeoutError:
            return Seen(None, "hung")
        except OSError:
            return Seen(None, "cut")
        finally:
            client.close()

    return await _all(*(one() for _ in range(50)), right=labels("cut"))


def _closed(client: socket.socket) -> bool:
    """By what the system says of the connection (`TCP_INFO`): the first byte of it is 1 while it is there."""
    return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x01"


async def _wrong_keys(address: Address) -> Seen:
    """Four thousand keys that are not there, a hundred at once on connections that are kept."""

    async def one(first: int) -> Seen:
        data = b"".join(post(body=b"{}", key=f"sk-wrong-{first}-{number}") for number in range(40))
        return await talk(address, data)

    return await _all(*(one(first) for first in range(100)), right=labels(401))


async def _metrics(address: Address) -> Seen:
    """What the application answers, asked for as fast as it goes."""
    asked = f"GET /metrics HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
    models = asked.replace(b"/metrics", b"/v1/models")
    return await _all(*(talk(address, one * 10) for one in [asked, models] * 40), right=labels("served", 503))


async def _half_heads(address: Address) -> Seen:
    """Three hundred requests that stop in their headers, and again as soon as they are cut."""
    head = post(body=b"{}")[:60]
    for _ in range(2):
        seen = await _all(*(talk(address, head) for _ in range(300)), right=labels("cut", 408))
    return seen


async def _leaves_at_once(address: Address) -> Seen:
    """Two thousand requests whose client is gone before they are answered; then one that stays."""

    async def one() -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*address)
            writer.write(post(body=asking(stream=True)))
            await asyncio.sleep(0)
            writer.transport.abort()

    for _ in range(20):
        await asyncio.gather(*(one() for _ in range(100)))
    return await talk(address, post(body=asking(stream=False)))


def _case(name: str, sends: object, expected: frozenset[str], *, meets_upstream: bool = False) -> Case:
    return Case(name, "client", sends, expected, meets_upstream=meets_upstream)  # type: ignore[arg-type]


CROWDS = (
    _case("100 bodies of 32 MiB that stop half-way", _bodies_that_stop, _REFUSED),
    _case("60 bodies without a length that stop after 16 MiB", _chunks_that_stop, _REFUSED),
    _case("60 bodies for the application that stop half-way", _stored_bodies_that_stop, _REFUSED | {"404"}),
    _case("40 requests of 16 MiB", _large_requests, labels(404, 408, 503)),
    _case(
        "16 requests of 10 MB to be translated",
        _large_translations,
        labels(400, 502, 503, 504),
        meets_upstream=True,
    ),
    Case(
        "50 clients that take nothing of 10 MB",
        "upstream",
        lambda: streamed(ONE_CHUNK * 80_000 + LAST_CHUNK),
        labels("cut"),
        asks=_readers_of_nothing,
    ),
    _case("4,000 wrong keys", _wrong_keys, labels(401)),
    _case("800 times the metrics and the models", _metrics, labels("served", 503)),
    _case("600 heads that stop", _half_heads, labels("cut", 408)),
    _case("2,000 clients that leave at once", _leaves_at_once, labels("served")),
)
