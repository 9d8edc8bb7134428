"""Gateways that are killed under load: each request that an upstream has in its own book has a row that
agrees with it.

`SLUICEGATE_LEDGER_CRASHES` says how many are killed, 2 if nothing does.
"""

import asyncio
import contextlib
import os
import random
import sqlite3
from pathlib import Path

import httpx
import pytest

from harness.faulty_disk import FaultyDisk
from harness.gateway_process import GatewayProcess
from harness.ledger_stand import Row, asked, book, configured, rows, settled, sums, upstream
from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.verify import verify
from sluicegate.pricing import charged_by
from sluicegate.testing import Script

CRASHES = int(os.environ.get("SLUICEGATE_LEDGER_CRASHES", "2"))
CLIENTS = 12

# Some end at once, some are under way whenever a gateway is killed.
SCRIPTS = (
    Script(tokens=3),
    Script(tokens=40, pace=0.01),
    Script(tokens=400, pace=0.01),
)


class Load:
    """Clients that ask one after the other, and mind nothing."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self.base_url = ""
        self.served: set[str] = set()
        """The ids of requests of which a client has seen the last event."""
        self.ended: set[str] = set()
        """Those that it has also seen the end of."""

    async def run(self) -> None:
        while True:
            self._count += 1
            name = f"r{self._count}"
            script = self._chance.choice(("short", "middle", "long"))
            leaves = self._chance.random() < 0.2
            try:
                async with httpx.AsyncClient(base_url=self.base_url, timeout=30) as client:
                    await self._ask(client, name, script, leaves)
            except (httpx.HTTPError, OSError):
                await asyncio.sleep(0.02)

    async def _ask(self, client: httpx.AsyncClient, name: str, script: str, leaves: bool) -> None:
        scripts = dict(zip(("short", "middle", "long"), SCRIPTS, strict=True))
        chosen = scripts[script]
        asking = {
            "model": "m",
            "messages": [],
            "stream": True,
            "mock": {"tokens": chosen.tokens, "pace": chosen.pace},
        }
        headers = {"x-request-id": name}
        async with client.stream("POST", "/v1/chat/completions", json=asking, headers=headers) as reply:
            async for line in reply.aiter_lines():
                if leaves and '"content"' in line:
                    return
                if line == "data: [DONE]":
                    self.served.add(name)
        self.ended.add(name)


@pytest.mark.timeout(120 + 20 * CRASHES)
@pytest.mark.parametrize("end", ["killed", "power cut"])
async def test_gateways_that_end_lose_no_row(tmp_path: Path, end: str) -> None:
    """Whether they are killed, or their machine loses power with all that is not on its disk."""
    disk = FaultyDisk(tmp_path) if end == "power cut" else None
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    load = Load(chance)
    async with upstream(tmp_path, Script(tokens=3)) as up:
        config = configured(tmp_path, up.base_url, ledger={"sync": "second" if disk is None else "always"})
        clients: list[asyncio.Task[None]] = []
        try:
            for crash in range(CRASHES):
                gateway = await GatewayProcess.start(config, tmp_path, disk.environ if disk else None)
                load.base_url = gateway.base_url
                if not clients:
                    clients = [asyncio.ensure_future(load.run()) for _ in range(CLIENTS)]
                before = len(up.requests)
                await up.requests.wait(before + CLIENTS, seconds=60)
                await asyncio.sleep(chance.random() * 0.7)
                assert gateway.running, f"it died by itself, seed {seed}, crash {crash}"
                await gateway.kill()
                if disk is not None:
                    disk.lose_power(tmp_path / "state" / "journal")
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        for record in up.requests:
            await record.ended()
        # The last one finds what all of them have left, and ends when all of it is in the ledger.
        async with contextlib.AsyncExitStack() as stack:
            gateway = await GatewayProcess.start(config, tmp_path)
            stack.push_async_callback(gateway.stop)
            assert await asked(gateway, "last") == 200
        found = rows(tmp_path)
        # The end of a reply waits until its entry is closed and on the disk; its last event does not.
        sure = load.served if disk is None else load.ended
        check(found, book(tmp_path / "book.jsonl"), sure, seed)
    assert list((tmp_path / "state" / "journal").iterdir()) == [], "nothing is left of the journals"
    database = open_database(StorageConfig(directory=str(tmp_path / "state")))
    try:
        assert await verify(database, charged_by) == []
    finally:
        await database.close()
    assert sum(line["requests"] for line in sums(tmp_path)) == len(found)


def check(found: list[Row], entries: list[Row], sure: set[str], seed: int) -> None:
    """Row by row, and token by token. `sure`: the requests whose usage the journal must have."""
    by_id = {row["request_id"]: row for row in found}
    assert len(by_id) == len(found), f"a request has two rows, seed {seed}"
    kinds: dict[str, int] = {}
    for entry in entries:
        row = by_id.pop(entry["request_id"], None)
        assert row is not None, f"{entry['request_id']} has no row, seed {seed}"
        kinds[row["result"]] = kinds.get(row["result"], 0) + 1
        if row["usage_source"] == "upstream":
            usage = entry["usage"]
            assert usage is not None, f"{row['request_id']}, seed {seed}"
            told = (usage["prompt_tokens"], usage["completion_tokens"])
            assert (row["input"], row["output"]) == told, f"{row['request_id']}, seed {seed}"
        elif row["usage_source"] == "estimated":
            assert row["output"] <= entry["tokens_sent"], f"{row['request_id']}, seed {seed}"
        if row["usage_source"] != "none":
            assert row["price_id"] is not None, f"{row}, seed {seed}"
            assert row["cost"] == (row["input"] + 4 * row["output"]) * 10**6, f"seed {seed}"
        if entry["request_id"] in sure:
            # The client saw the last event: the journal had the usage before. The end of the upstream's reply
            # comes after that, and the gateway may not have lived to see it.
            assert row["usage_source"] == "upstream", f"{row}, seed {seed}"
            assert row["result"] in ("ok", "interrupted"), f"{row}, seed {seed}"
    # An attempt that was written down, and died before its request could be sent.
    unsent = {row["result"] for row in by_id.values()}
    assert unsent <= {"interrupted", "client_left", "failed"}, f"seed {seed}"
    assert {"ok", "interrupted"} <= kinds.keys(), f"{kinds}, seed {seed}"


async def test_a_crash_between_commit_and_mark_counts_nothing_twice(tmp_path: Path) -> None:
    """What is in the database already comes again from segments that nobody could mark."""
    async with upstream(tmp_path, Script(tokens=3)) as up:
        config = configured(tmp_path, up.base_url)
        first = await GatewayProcess.start(config, tmp_path)
        assert await asked(first, "first") == 200
        await settled(tmp_path, lambda found: len(found) == 1)
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for number in range(5):
                assert await asked(first, f"r{number}") == 200
            segments = (tmp_path / "state" / "journal").glob("*.journal")
            before = {path: path.read_bytes() for path in segments}
            connection.rollback()
        await settled(tmp_path, lambda found: len(found) == 6)
        await first.kill()
        for path, content in before.items():
            path.write_bytes(content)
        second = await GatewayProcess.start(config, tmp_path)
        await second.wait_line(event="journal_recovered", rows=5)
        assert await second.stop() == 0
    assert len(rows(tmp_path)) == 6
    assert [line["requests"] for line in sums(tmp_path)] == [6]
