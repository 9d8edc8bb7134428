"""What no upstream has told is charged by estimates, in the ledger and in limits alike."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx

from harness.gateway_process import GatewayProcess
from harness.ledger_stand import WAIT_SECONDS, Row, configured, rows, serving, settled, upstream
from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.verify import verify
from sluicegate.pricing import charged_by
from sluicegate.testing import Script, UsageScript

PROMPT = "word " * 160_000
"""Some 200,000 tokens."""
TOKENS = len(PROMPT) // 4
LIMITS = {"most": {"tokens": "250k/day"}}
KEYS = [{"name": name, "key": f"sk-{name}", "limits": "most"} for name in ("ann", "bob", "cid")]
ENDLESS = Script(tokens=100_000, pace=0.01)


def by_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-{name}"}


async def leave(gateway: GatewayProcess, name: str) -> None:
    """Ask for a stream, and leave with its first event."""
    async with httpx.AsyncClient(
        base_url=gateway.base_url, timeout=WAIT_SECONDS, headers=by_key(name)
    ) as client:
        asking = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=asking) as reply:
            assert reply.status_code == 200, await reply.aread()
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    return


async def status(gateway: GatewayProcess, name: str, content: str = PROMPT) -> int:
    asking = {"model": "m", "messages": [{"role": "user", "content": content}]}
    reply = await gateway.client.post("/v1/chat/completions", json=asking, headers=by_key(name))
    return reply.status_code


async def agrees(directory: Path) -> None:
    database = open_database(StorageConfig(directory=str(directory / "state")))
    try:
        assert await verify(database, charged_by) == []
    finally:
        await database.close()


def is_charged(row: Row, result: str) -> None:
    assert (row["result"], row["usage_source"]) == (result, "estimated")
    assert TOKENS <= row["input"] <= TOKENS + 10
    assert row["cost"] == (row["input"] + 4 * row["output"]) * 10**6


async def test_whoever_leaves_pays_for_the_input_on_every_path(tmp_path: Path) -> None:
    more: dict[str, Any] = {"limits": LIMITS, "keys": KEYS}
    async with upstream(tmp_path, ENDLESS) as up:
        config = configured(tmp_path, up.base_url, responses={"path": str(tmp_path / "r.db")}, **more)
        async with serving(config, tmp_path) as gateway:
            await leave(gateway, "ann")
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
            is_charged(row, "client_left")
            assert await status(gateway, "ann") == 429
            # A run in the background has no client that could leave: the store does.
            asking = {"model": "m", "input": PROMPT, "background": True}
            made = await gateway.client.post("/v1/responses", json=asking, headers=by_key("bob"))
            place = f"/v1/responses/{made.json()['id']}"
            await up.requests.wait(2, WAIT_SECONDS)
            cancelled = await gateway.client.post(f"{place}/cancel", headers=by_key("bob"))
            assert cancelled.json()["status"] == "cancelled"
            found = await settled(tmp_path, lambda found: len(found) == 2)
            is_charged(found[1], "cancelled")
            assert await status(gateway, "bob") == 429
            assert gateway.find(event="request", result="client_left", estimated=True) != []
            await agrees(tmp_path)
        # What the ledger says is what the next process counts.
        async with serving(config, tmp_path) as gateway:
            assert [await status(gateway, name) for name in ("ann", "bob")] == [429, 429]


async def test_what_a_dead_process_had_sent_is_charged_when_it_is_found(tmp_path: Path) -> None:
    more: dict[str, Any] = {"limits": LIMITS, "keys": KEYS}
    async with upstream(tmp_path, ENDLESS) as up:
        config = configured(tmp_path, up.base_url, **more)
        gateway = await GatewayProcess.start(config, tmp_path)
        asking = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "stream": True}
        sent = asyncio.ensure_future(
            gateway.client.post("/v1/chat/completions", json=asking, headers=by_key("ann"))
        )
        record = await up.requests.wait(1, WAIT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS):
            while record.events_sent < 3:  # noqa: ASYNC110 - the scripted upstream tells nobody
                await asyncio.sleep(0.01)
        # Before its client is closed: what it saw of that could be the row.
        gateway.signal(signal.SIGKILL)
        await gateway.wait()
        await gateway.kill()
        await asyncio.gather(sent, return_exceptions=True)
        async with serving(config, tmp_path) as gateway:
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
            is_charged(row, "interrupted")
            await agrees(tmp_path)


async def test_counts_that_no_request_has_are_not_believed(tmp_path: Path) -> None:
    usage = UsageScript(input_tokens=10**15)
    more: dict[str, Any] = {"limits": LIMITS, "keys": KEYS}
    async with (
        upstream(tmp_path, Script(tokens=3, usage=usage)) as up,
        serving(configured(tmp_path, up.base_url, **more), tmp_path) as gateway,
    ):
        answered = [await status(gateway, "ann", "x") for _ in range(3)]
        assert answered == [200] * 3, "one lie locks nobody out"
        assert await status(gateway, "bob", "x") == 200
        found = await settled(tmp_path, lambda found: len(found) == 4)
        assert {(row["usage_source"], row["input"], row["output"]) for row in found} == {("estimated", 1, 3)}
        lines = gateway.find(event="request")
        assert all(line["implausible"] and line["estimated"] for line in lines)
        assert len(gateway.find(event="implausible_usage")) == 1
        metrics = await gateway.metrics()
        assert metrics.value("sluicegate_implausible_usage_total") == 4
        assert metrics.value("sluicegate_tokens_total", kind="input") == 4
        asking = {"model": "m", "messages": []}
        reply = await gateway.client.post("/v1/chat/completions", json=asking, headers=by_key("cid"))
        assert json.loads(reply.text)["usage"]["cost"] is None
        await agrees(tmp_path)
    assert len(rows(tmp_path)) == 5
