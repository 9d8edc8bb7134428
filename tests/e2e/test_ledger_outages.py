"""Without a database, on a full disk, with a full journal: what is served, and what is kept."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from harness import postgres
from harness.gateway_process import GatewayProcess
from harness.ledger_stand import WAIT_SECONDS, asked, configured, rows, serving, settled, upstream
from harness.small_disk import small_disk
from sluicegate.testing import Script

SEGMENT = 8 * 1024 * 1024


async def count(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM ledger"))
    finally:
        await connection.close()


async def until(url: str, wanted: int) -> None:
    found = -1
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while found != wanted:
                with contextlib.suppress(asyncpg.UndefinedTableError):
                    found = await count(url)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimeoutError(f"{found} rows in place of {wanted}") from None


async def test_postgresql_that_goes_away_costs_no_row(postgres_server: str, tmp_path: Path) -> None:
    with postgres.database(postgres_server) as url:
        async with upstream(tmp_path, Script(tokens=3)) as up:
            config = configured(tmp_path, up.base_url)
            config["storage"]["database"] = url
            async with serving(config, tmp_path) as gateway:
                for number in range(5):
                    assert await asked(gateway, f"a{number}") == 200
                await until(url, 5)
                await postgres.allow(postgres_server, url, connections=False)
                for number in range(70):
                    assert await asked(gateway, f"b{number}") == 200
                await gateway.wait_line(event="ledger_failed")
                metrics = await gateway.metrics()
                assert (metrics.value("sluicegate_ledger_failures_total") or 0) >= 1
                assert (metrics.value("sluicegate_ledger_waiting") or 0) > 0
                await postgres.allow(postgres_server, url, connections=True)
                await until(url, 75)
                await postgres.allow(postgres_server, url, connections=False)
                for number in range(5):
                    assert await asked(gateway, f"c{number}") == 200
                # Killed while it cannot ship: the next one does.
                await gateway.kill()
            await postgres.allow(postgres_server, url, connections=True)
            # Two machines, as it were: each has its own journal, and one database.
            other = {**config, "storage": {"directory": str(tmp_path / "other"), "database": url}}
            async with serving(config, tmp_path) as again:
                (tmp_path / "beside").mkdir()
                async with serving(other, tmp_path / "beside") as beside:
                    await asyncio.gather(
                        *(asked(gateway, "d") for gateway in (again, beside) for _ in range(10))
                    )
                    await until(url, 100)
        connection = await asyncpg.connect(url)
        try:
            total = "SELECT sum(requests), sum(output), sum(cost) FROM usage_daily"
            summed = await connection.fetchrow(total)
            added = await connection.fetchrow("SELECT count(*), sum(output), sum(cost) FROM ledger")
        finally:
            await connection.close()
        assert tuple(summed) == tuple(added) == (100, 300, 100 * (12 + 4 * 3) * 10**6)


@contextlib.contextmanager
def occupied(directory: Path) -> Iterator[None]:
    """A journal that is as full as it may be, with what a process that lives has there."""
    folder = directory / "state" / "journal"
    folder.mkdir(parents=True, mode=0o700)
    descriptors = []
    for number in range(2):
        descriptor = os.open(folder / f"0{number}.journal", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        descriptors.append(descriptor)
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


async def test_a_full_journal_refuses_requests_until_there_is_room(tmp_path: Path) -> None:
    async with upstream(tmp_path) as up:
        config = configured(tmp_path, up.base_url)
        config["ledger"] = {"journal_bytes": 2 * SEGMENT}
        with occupied(tmp_path):
            gateway = await GatewayProcess.start(config, tmp_path)
            reply = await gateway.client.post("/v1/chat/completions", json={"model": "m", "messages": []})
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "ledger_full")
            assert reply.headers["retry-after"] == "5"
            await gateway.wait_line(event="ledger_full")
            assert len(up.requests) == 0
        try:
            # Whoever had that room is gone: what it left is looked at, and deleted.
            await gateway.wait_line(event="journal_recovered", count=2)
            async with asyncio.timeout(WAIT_SECONDS):
                while await asked(gateway, "served") != 200:  # noqa: ASYNC110 - another process makes room
                    await asyncio.sleep(0.1)
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
            assert row["request_id"] == "served"
        finally:
            await gateway.stop()


async def test_a_full_journal_drops_rows_where_it_is_told_to(tmp_path: Path) -> None:
    async with upstream(tmp_path) as up:
        config = configured(tmp_path, up.base_url)
        config["ledger"] = {"journal_bytes": 2 * SEGMENT, "when_full": "drop"}
        with occupied(tmp_path):
            async with serving(config, tmp_path) as gateway:
                assert await asked(gateway, "served") == 200
                await gateway.wait_line(event="ledger_full")
        assert rows(tmp_path) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a journal and little else."""
    with small_disk(tmp_path / "state", 3 * SEGMENT) as place:
        yield place


async def test_a_full_disk_costs_no_row(disk: Path, tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=3)) as up:
        config: dict[str, Any] = configured(tmp_path, up.base_url)
        async with serving(config, tmp_path) as gateway:
            assert await asked(gateway, "before") == 200
            await settled(tmp_path, lambda found: len(found) == 1)
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for number in range(70):
                assert await asked(gateway, f"r{number}") == 200, "its journal has its room already"
            await gateway.wait_line(event="ledger_failed")
            ballast.unlink()
            found = await settled(tmp_path, lambda found: len(found) == 71)
    assert len({row["request_id"] for row in found}) == 71


async def test_a_gateway_that_can_have_no_journal_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    config = configured(tmp_path, "http://127.0.0.1:9/v1")
    with pytest.raises(AssertionError, match="there can be no journal"):
        await GatewayProcess.start(config, tmp_path)
