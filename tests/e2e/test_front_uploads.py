"""An upload of any size takes little memory."""

import hashlib
from typing import Any

import pytest

from harness.gateway_process import StartGateway
from raw_http import RawConnection
from sluicegate.testing import ScriptedUpstream, body

MIB = 1 << 20
SIZE = 100 * MIB
NOISE = 24 * MIB
"""What allocators and buffers of connections keep, and far less than the upload."""
BOUNDARY = "b0undary"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/files"])
async def test_a_large_upload_takes_little_memory(
    gateway: StartGateway, config: dict[str, Any], upstream: ScriptedUpstream, path: str
) -> None:
    config["server"] = {"max_body_bytes": 2 * SIZE}
    config["passthrough"] = [{"path": "/v1/files", "upstream": "local"}]
    running = await gateway(config)
    upstream.script = body(b'{"text":""}', content_type="application/json")
    before = running.private_memory
    most, sent = 0, hashlib.sha256()
    head, end = _frame("model", "small")
    piece = bytes(range(256)) * (MIB // 256)
    async with RawConnection(*running.address, patience=120) as connection:
        size = len(head) + SIZE + len(end)
        lines = (
            f"POST {path} HTTP/1.1",
            "host: a",
            f"content-type: multipart/form-data; boundary={BOUNDARY}",
            f"content-length: {size}",
        )
        await connection.send("\r\n".join([*lines, "", ""]).encode() + head)
        sent.update(head)
        for _ in range(SIZE // MIB):
            await connection.send(piece)
            sent.update(piece)
            most = max(most, running.private_memory)
        await connection.send(end)
        sent.update(end)
        reply = await connection.reply()
    assert reply.status == 200, reply.body
    assert hashlib.sha256(upstream.requests[-1].body).digest() == sent.digest()
    assert most - before <= NOISE, (before, most)


def _frame(name: str, value: str) -> tuple[bytes, bytes]:
    """A form with this field and a file: what is before the file's content, and what is behind it."""
    field = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return (field + file).encode(), f"\r\n--{BOUNDARY}--\r\n".encode()
