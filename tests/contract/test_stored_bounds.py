"""Live replies that are kept have a bound together: past it a reply goes to its client all the same."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fakes.exposition import Samples
from harness.wire_stand import MODEL, WireStand, wire_stand
from sluicegate.testing import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESPONSES = "/v1/responses"
FAILURES = "sluicegate_response_store_failures_total"
WAITING_BYTES = 400_000
LARGE = "x" * WAITING_BYTES


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    directory = tmp_path_factory.mktemp("bounds")
    config = {
        "upstreams": {"local": {"api": "responses"}},
        "responses": {"path": str(Path(directory) / "responses.db"), "max_waiting_bytes": WAITING_BYTES},
    }
    async with wire_stand(directory, config) as stand:
        yield stand


async def ask(stand: WireStand, text: str, **members: Any) -> tuple[str, bytes]:
    """A live stream: its id, and all of it."""
    stand.upstream.script = Script(text=text)
    async with httpx.AsyncClient(base_url=stand.gateway.base_url, timeout=30) as client:
        body = {"model": MODEL, "input": "Say something.", "stream": True, **members}
        reply = await client.post(RESPONSES, json=body)
    assert reply.status_code == 200, reply.text
    first = reply.text.partition("\ndata: ")[2].partition("\n\n")[0]
    return json.loads(first)["response"]["id"], reply.content


async def status(stand: WireStand, id: str) -> int:
    async with httpx.AsyncClient(base_url=stand.gateway.base_url, timeout=30) as client:
        return (await client.get(f"{RESPONSES}/{id}")).status_code


async def failures(stand: WireStand) -> float:
    async with httpx.AsyncClient(base_url=stand.gateway.base_url, timeout=30) as client:
        return Samples((await client.get("/metrics")).text).value(FAILURES, operation="keep") or 0.0


@pytest.mark.parametrize(
    ("text", "members"),
    [(LARGE, {}), ("Hello.", {"instructions": LARGE})],
    ids=["a large reply", "a large request"],
)
async def test_what_has_no_room_is_not_kept_and_counted(
    stand: WireStand, text: str, members: dict[str, Any]
) -> None:
    before = await failures(stand)
    id, reply = await ask(stand, text, **members)
    assert text.encode() in reply
    assert b"response.completed" in reply
    assert await status(stand, id) == 404
    assert await failures(stand) == before + 1
    # What it took is given back.
    id, _ = await ask(stand, "Hello.")
    assert await status(stand, id) == 200
