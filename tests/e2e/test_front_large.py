"""Large requests and large replies do not delay other streams."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness.gateway_process import GatewayProcess, StartGateway
from harness.paced_stream import PacedStream
from harness.starvation import Starvation
from raw_http import RawConnection
from sluicegate.testing import Script, ScriptedUpstream

MIB = 1024 * 1024
LARGE = 32 * MIB
TOGETHER = 8
PACE = 0.05
# What is large takes seconds of work: a stream that waits for it waits much longer.
SHORT = 0.3
"""What a gap may grow by, in seconds, but for what the machine owes: see `Starvation`."""

READ = 256 * 1024


class Bulk:
    """An upstream for large texts: what it is sent is dropped, what it answers is always the same."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self.bytes_read = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            left = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            while left:
                data = await reader.read(min(left, READ))
                left -= len(data)
                self.bytes_read += len(data)
            about = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d" % len(
                self._reply
            )
            writer.write(b"HTTP/1.1 200 OK\r\n" + about + b"\r\n\r\n")
            await write(writer, self._reply)
        writer.close()


@contextlib.asynccontextmanager
async def bulk(reply: bytes) -> AsyncIterator[Bulk]:
    upstream = Bulk(reply)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    async with server:
        yield upstream


async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """In parts, so that the loop of the tests has its turns."""
    view = memoryview(data)
    for start in range(0, len(view), READ):
        writer.write(view[start : start + READ])
        await writer.drain()
        await asyncio.sleep(0)


def completion(content: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return json.dumps(whole).encode()


@pytest.mark.alone
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("asked", "answered"),
    [pytest.param(LARGE, 1, id="requests"), pytest.param(1, LARGE // 4, id="replies")],
)
async def test_a_stream_goes_on_beside_large_texts(
    gateway: StartGateway, config: dict[str, Any], upstream: ScriptedUpstream, asked: int, answered: int
) -> None:
    # With what JSON has to escape: it is decoded and spelled anew where it is translated.
    text, said = '\\"' * (asked // 4), '\\"' * (answered // 4)
    async with bulk(completion(said)) as other:
        base_url = f"http://127.0.0.1:{other.port}/v1"
        config["upstreams"]["bulk"] = {"base_url": base_url, "api": "chat"}
        config["models"]["large"] = "bulk"
        config["server"] = {"max_body_bytes": 64 * MIB, "max_reply_bytes": 64 * MIB}
        running = await gateway(config)
        upstream.script = Script(tokens=2_500, pace=PACE)
        body = json.dumps({"model": "large", "input": text, "store": False}).encode()
        async with PacedStream(running) as stream:
            await stream.begin()
            async with Starvation(running.pid) as starvation:
                large = asyncio.gather(*(_ask(running, body) for _ in range(TOGETHER)))
                gaps = await stream.gaps(large)
                sizes = await large
        assert min(sizes) > answered
        assert other.bytes_read > TOGETHER * (asked // 2)
        assert starvation.longest(gaps) < PACE + SHORT


async def _ask(gateway: GatewayProcess, body: bytes) -> int:
    """One request for a response; the bytes of its reply."""
    async with RawConnection(*gateway.address, patience=120) as connection:
        about = f"host: a\r\ncontent-length: {len(body)}"
        await connection.send(f"POST /v1/responses HTTP/1.1\r\n{about}\r\n\r\n".encode())
        await write(connection.writer, body)
        reply = await connection.reply()
    assert reply.status == 200, reply.body[:500]
    return len(reply.body)
