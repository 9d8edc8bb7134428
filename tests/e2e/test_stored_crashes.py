"""Workers that are killed at any moment: nothing hangs, and no kept event is lost, doubled or numbered anew.

`SLUICEGATE_CRASHES` says how many are killed, 30 if nothing does.
"""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from harness import store_worker
from harness.responses_stream import check
from harness.stored_stand import OWNER, create, payloads, shown, worker
from sluicegate.config import StoreConfig
from sluicegate.responses import ResponseStore
from sluicegate.responses.entry import ENDED
from sluicegate.storage import StoreUnavailable

CRASHES = int(os.environ.get("SLUICEGATE_CRASHES", "30"))
WORKERS = 2
AT_ONCE = 6
LEASE_SECONDS = 1.0
# A lease, the look for what is abandoned, its second run, several times over on a busy machine.
SETTLED_SECONDS = 40.0

Seen = dict[int, Any]


class Client:
    """Keeps a few responses going, follows each, and remembers all that it was shown."""

    def __init__(self, store: ResponseStore) -> None:
        self.store = store
        self.seen: dict[str, Seen] = {}
        self._following: set[asyncio.Task[None]] = set()

    async def ask(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            id = await create(self.store)
            self.seen[id] = {}
            task = asyncio.ensure_future(self._follow(id))
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    @property
    def waiting(self) -> int:
        return len(self._following)

    async def _follow(self, id: str) -> None:
        seen = self.seen[id]
        async for data in await self.store.follow(id, OWNER, -1):
            for event in payloads(data):
                number = event["sequence_number"]
                assert number == len(seen), f"{id}: event {number} after {len(seen) - 1}"
                seen[number] = event

    async def settled(self) -> None:
        """Every response has ended, and its stream too."""
        async with asyncio.timeout(SETTLED_SECONDS):
            await asyncio.gather(*self._following)


async def check_kept(client: Client) -> dict[str, int]:
    """How many ended how; that what is kept is what was seen, and whole."""
    endings: dict[str, int] = {}
    for id, seen in client.seen.items():
        runs = [data async for data in await client.store.follow(id, OWNER, -1)]
        stream = check(b"".join(runs), done=False)
        assert stream.events == list(seen.values())
        found = await shown(client.store, id)
        assert stream.response == found
        assert found["status"] in ENDED
        endings[found["status"]] = endings.get(found["status"], 0) + 1
    return endings


def check_file(path: Path) -> None:
    """The runs of each response follow each other without gap or overlap, and nobody holds anything."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT response_id, first, last FROM response_events ORDER BY 1, 2")
        following: dict[str, int] = {}
        for id, first, last in rows:
            assert first == following.get(id, 0), f"{id}: a run begins at {first}"
            assert last >= first
            following[id] = last + 1
        held = "SELECT count(*) FROM responses WHERE holder IS NOT NULL OR status IN ('queued','in_progress')"
        assert connection.execute(held).fetchone() == (0,)


@pytest.mark.timeout(60 + 4 * CRASHES)
async def test_workers_that_are_killed_lose_nothing_and_leave_nothing_hanging(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    path = tmp_path / "responses.db"
    config = StoreConfig(path=str(path), lease_seconds=LEASE_SECONDS, concurrency=AT_ONCE)
    workers: list[BaseProcess] = [store_worker.start(config) for _ in range(WORKERS)]
    try:
        async with worker(None, config) as store:
            client = Client(store)
            crashes = 0
            while crashes < CRASHES:
                while client.waiting < AT_ONCE:
                    await client.ask()
                await asyncio.sleep(chance.random() * 0.4)
                # One, or all at once.
                for place in range(WORKERS) if chance.random() < 0.2 else (chance.randrange(WORKERS),):
                    process = workers[place]
                    assert process.is_alive(), f"a worker died by itself, seed {seed}"
                    assert process.pid is not None
                    os.kill(process.pid, signal.SIGKILL)
                    await asyncio.to_thread(process.join)
                    workers[place] = store_worker.start(config)
                    crashes += 1
            await client.settled()
            endings = await check_kept(client)
            assert endings.get("completed", 0) > 0, f"{endings}, seed {seed}"
    finally:
        for process in workers:
            process.kill()
            process.join()
    check_file(path)
