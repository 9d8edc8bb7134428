"""A disk that takes nothing of the ledger's journal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from harness.faulty_disk import FaultyDisk
from harness.gateway_process import GatewayProcess
from harness.ledger_stand import asked, configured, settled, upstream
from sluicegate.testing import ScriptedUpstream

REQUESTS = 50
ASKING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9},
    "/v1/responses": {"input": "hello"},
}


@contextlib.asynccontextmanager
async def serving_on(
    directory: Path, sync: str
) -> AsyncIterator[tuple[GatewayProcess, FaultyDisk, ScriptedUpstream]]:
    """A gateway with a ledger whose journal is on a disk that can break."""
    disk = FaultyDisk(directory)
    async with upstream(directory) as up:
        config = configured(directory, up.base_url, ledger={"sync": sync})
        gateway = await GatewayProcess.start(config, directory, disk.environ)
        try:
            yield gateway, disk, up
        finally:
            await gateway.stop()


def code(reply: httpx.Response) -> object:
    error = reply.json()["error"]
    return error.get("code") or error["type"]


async def test_with_always_a_request_that_cannot_be_written_down_is_refused(tmp_path: Path) -> None:
    async with serving_on(tmp_path, "always") as (gateway, disk, up):
        assert await asked(gateway, "before") == 200
        disk.break_down()
        for number in range(REQUESTS):
            path, body = list(ASKING.items())[number % len(ASKING)]
            body = {"model": "m", "stream": number % 2 == 0, **body}
            reply = await gateway.client.post(path, json=body)
            assert reply.status_code == 503
            assert code(reply) == ("overloaded_error" if "messages" in path else "ledger_not_synced")
            assert reply.headers["retry-after"] == "5"
        asking = {"model": "m", "input": "hello", "background": True}
        queued = (await gateway.client.post("/v1/responses", json=asking)).json()["id"]
        assert len(up.requests) == 1
        line = await gateway.wait_line(event="journal_failed")
        assert "Input/output error" in line["reason"]
        found = await gateway.metrics()
        assert (found.value("sluicegate_ledger_sync_failures_total") or 0) >= REQUESTS
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "refusing", "ledger": "not_synced"})

        disk.mend()
        await gateway.wait_line(event="journal_synced")
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        assert await asked(gateway, "after") == 200
    found_rows = await settled(tmp_path, lambda rows: len(rows) >= 2)
    ids = {row["request_id"] for row in found_rows if row["response_id"] != queued}
    assert ids == {"before", "after"}


async def test_an_end_that_cannot_be_written_down_is_in_the_ledger_all_the_same(tmp_path: Path) -> None:
    async with serving_on(tmp_path, "always") as (gateway, disk, _):
        asking = {"model": "m", "messages": [], "stream": True, "mock": {"tokens": 20, "pace": 0.05}}
        async with gateway.client.stream("POST", "/v1/chat/completions", json=asking) as reply:
            assert reply.status_code == 200
            disk.break_down()
            text = (await reply.aread()).decode()
        assert text.endswith("data: [DONE]\n\n")
        await gateway.wait_line(event="journal_failed")
        [row] = await settled(tmp_path, lambda rows: len(rows) == 1)
        assert (row["result"], row["usage_source"]) == ("ok", "upstream")


async def test_with_second_it_is_told_of_and_everybody_is_served(tmp_path: Path) -> None:
    async with serving_on(tmp_path, "second") as (gateway, disk, _):
        disk.break_down()
        # As long as one is open, there is something to write.
        asking = {"model": "m", "messages": [], "mock": {"head_delay": 600.0}}
        running = asyncio.ensure_future(gateway.client.post("/v1/chat/completions", json=asking))
        await gateway.wait_line(event="journal_failed")
        await gateway.wait_metrics(lambda found: bool(found.value("sluicegate_ledger_sync_failures_total")))
        assert await asked(gateway, "served") == 200
        disk.mend()
        await gateway.wait_line(event="journal_synced")
        assert (await gateway.client.get("/readyz")).json() == {"status": "ready"}
        running.cancel()
