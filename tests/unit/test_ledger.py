"""Rows, sums and reports of the ledger, on a database of its own."""

import time
import uuid
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyarrow import parquet
from sqlalchemy import func, select

from sluicegate._core import Journal
from sluicegate.config import StorageConfig
from sluicegate.ledger import Period, open_database, report
from sluicegate.ledger.export import to_parquet
from sluicegate.ledger.retention import tidy
from sluicegate.ledger.row import MOST_TOKENS, PICO, result_of, row_of
from sluicegate.ledger.schema import COSTS, TOKENS, attempts, ledger, prices_used, usage_daily, versions
from sluicegate.ledger.shipping import Shipping
from sluicegate.ledger.verify import verify
from sluicegate.pricing import Tariff, charge, charged_by
from sluicegate.pricing.rates import Rates
from sluicegate.storage import Database

UTC = ZoneInfo("UTC")
NOON = 1_795_348_800 * 10**6
"""2026-11-22T12:00:00Z."""


TARIFF = Tariff(
    Rates(input=Decimal("0.1"), output=Decimal("0.4"), per_request=Decimal(1)),
    ((100, Rates(input=Decimal("0.2"), output=Decimal("0.4"))),),
    "prices.m",
)
DESCRIBED = {TARIFF.id: (TARIFF.source, TARIFF.as_json())}


def charged(**fields: Any) -> dict[str, Any]:
    """A record that is charged by `TARIFF`."""
    made = record(**fields, price_id=TARIFF.id)
    return made | dict(zip(COSTS, charge(TARIFF, made) or [None] * len(COSTS), strict=True))


def record(**fields: Any) -> dict[str, Any]:
    """A record of the journal: a request that was served."""
    names = [*ledger.c.keys(), "interrupted", "estimated", "fault_status", "token_events", "tries"]
    made = dict.fromkeys(names)
    made |= {"id": new_id(), "run": 1, "attempts": 1, "started_at": NOON, "status": 200, "model": "m"}
    made |= {"background": False, "streamed": True, "client_left": False, "interrupted": False, "tries": []}
    made |= {"usage_source": "upstream", "input": 10, "output": 5, "cost": 3 * PICO, "upstream": "up"}
    return {**made, **fields}


def new_id(milliseconds: int | None = None) -> str:
    now = int(time.time() * 1000) if milliseconds is None else milliseconds
    return str(uuid.UUID(int=(now << 80) | uuid.uuid4().int >> 48))


@pytest.fixture
async def database(storage: StorageConfig) -> AsyncIterator[Database]:
    made = open_database(storage)
    yield made
    await made.close()


def shipping(database: Database, zone: ZoneInfo = UTC) -> Shipping:
    return Shipping(database, zone, "host:1", "0", lambda row: DESCRIBED.get(row["price_id"]))


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({}, "ok"),
        ({"interrupted": True, "status": None}, "interrupted"),
        ({"client_left": True, "status": 499}, "client_left"),
        ({"client_left": True, "background": True}, "cancelled"),
        ({"fault": "status", "status": 400}, "refused"),
        ({"fault": "status", "status": 429}, "failed"),
        ({"fault": "status", "status": 502}, "failed"),
        ({"fault": "untranslatable", "status": 400}, "refused"),
        ({"fault": "truncated", "status": 200}, "failed"),
        ({"finish_reason": "abort"}, "failed"),
        ({"status": 503}, "failed"),
    ],
)
def test_how_a_request_ended(fields: dict[str, Any], result: str) -> None:
    assert result_of(record(**fields)) == result


def test_a_day_begins_where_the_ledger_is_kept() -> None:
    late = record(started_at=NOON + 11 * 3600 * 10**6 + 1800 * 10**6)
    assert row_of(late, UTC, "", "")["day"] == date(2026, 11, 22)
    assert row_of(late, ZoneInfo("Europe/Berlin"), "", "")["day"] == date(2026, 11, 23)


def test_what_an_upstream_makes_up_is_not_known() -> None:
    row = row_of(record(finish_reason="a\0b", output=MOST_TOKENS + 1, cost=5, price_id="x"), UTC, "", "")
    assert (row["finish_reason"], row["output"], row["cost"], row["input"]) == ("a\ufffdb", None, None, 10)
    assert row["price_id"] is None, "half of what was charged for is not known any more"
    assert row_of(record(cost=2**62), UTC, "", "")["cost"] is None


async def test_rows_that_come_again_change_nothing(database: Database) -> None:
    ships = shipping(database)
    records = [record(caller="ann", caller_id="id:ann") for _ in range(3)]
    assert await ships.ship(records) == 3
    assert await ships.ship([*records, record(caller="ann", caller_id="id:ann")]) == 1
    [line] = await report(database, ["caller"], Period())
    assert line.group == {"caller": "ann"}
    assert (line.sums["requests"], line.sums["input"], line.sums["cost"]) == (4, 40, 12 * PICO)
    assert await verify(database, charged_by) == []


async def test_rows_cost_what_their_price_says(database: Database) -> None:
    rows = [charged(input=101, output=3), charged(cached_input=4)]
    assert rows[1]["cost"] is None, "there is no price for cached input"
    assert rows[0]["cost"] == (101 * 2 * PICO + 3 * 4 * PICO) // 10, (
        "a tier, which has no price of the request"
    )
    await shipping(database).ship([*rows, record(output=10), charged(started_at=NOON + 5)])
    async with database.read("test") as connection:
        [price] = (await connection.execute(select(prices_used))).all()
    assert tuple(price) == (TARIFF.id, "prices.m", TARIFF.as_json(), NOON)
    assert await verify(database, charged_by) == []
    async with database.transaction("test") as connection:
        dearer = ledger.update().where(ledger.c.id == rows[0]["id"])
        await connection.execute(dearer.values(cost_output=ledger.c.cost_output + 1))
    [wrong] = await verify(database, charged_by)
    said = f"price {TARIFF.id}: 1 rows do not cost what it says, the first is {rows[0]['id']}"
    assert wrong == f"ledger: 2026-11-22, {said}"


async def test_a_price_that_nobody_knows_is_said(database: Database) -> None:
    """As of a process that died, whose configuration is no longer there."""
    await shipping(database).ship([record(price_id="gone"), charged()])
    [wrong] = await verify(database, charged_by)
    assert "price gone: 1 rows name it, and prices_used has none" in wrong


async def test_a_ledger_of_before_the_prices_gains_their_table(tmp_path: Path) -> None:
    config = StorageConfig(directory=str(tmp_path))
    before = open_database(config)
    await shipping(before).ship([record()])
    async with before.transaction("test") as connection:
        await connection.run_sync(prices_used.drop)
        await connection.execute(versions.delete().where(versions.c.version > 1))
    await before.close()
    now = open_database(config)
    try:
        assert await shipping(now).ship([charged()]) == 1
        assert await verify(now, charged_by) == []
        async with now.read("test") as connection:
            assert len((await connection.execute(select(prices_used))).all()) == 1
    finally:
        await now.close()


async def test_a_ledger_of_before_has_the_index_of_responses_made_again(tmp_path: Path) -> None:
    config = StorageConfig(directory=str(tmp_path))
    before = open_database(config)
    async with before.transaction("test") as connection:
        await connection.exec_driver_sql("DROP INDEX ledger_response")
        await connection.exec_driver_sql("CREATE INDEX ledger_response ON ledger (response_id)")
        await connection.execute(versions.delete().where(versions.c.version > 2))
    await before.close()
    now = open_database(config)
    try:
        async with now.read("test") as connection:
            sql = "SELECT sql FROM sqlite_master WHERE name = 'ledger_response'"
            made = (await connection.exec_driver_sql(sql)).scalar_one()
    finally:
        await now.close()
    assert made.endswith("WHERE response_id IS NOT NULL")


async def test_a_second_run_counts_its_tokens_and_no_request(database: Database) -> None:
    await shipping(database).ship([record(), record(run=2)])
    [line] = await report(database, ["model"], Period())
    assert (line.sums["requests"], line.sums["output"]) == (1, 10)


async def test_several_attempts_are_kept(database: Database) -> None:
    tries = [("a", "x", "connect", None, 0, 5), ("b", "y", None, 200, 5, 50)]
    await shipping(database).ship([record(tries=tries), record()])
    async with database.read("test") as connection:
        found = (await connection.execute(select(attempts).order_by(attempts.c.n))).all()
    assert [(row.n, row.upstream, row.fault, row.started_at) for row in found] == [
        (1, "a", "connect", NOON),
        (2, "b", None, NOON + 5),
    ]


async def test_sums_stay_at_their_bound(database: Database) -> None:
    ships = shipping(database)
    await ships.ship([record()])
    async with database.transaction("test") as connection:
        await connection.execute(usage_daily.update().values(output=2**62 - 2))
    await ships.ship([record()])
    [line] = await report(database, ["model"], Period())
    assert (line.sums["output"], line.sums["input"]) == (2**62, 20)
    [wrong] = await verify(database, charged_by)
    assert "output" in wrong


async def test_reports_by_day_caller_and_user(database: Database) -> None:
    day = 24 * 3600 * 10**6
    await shipping(database).ship(
        [
            record(caller="ann", caller_id="id:a", user_id="u1"),
            record(caller="ann", caller_id="id:a", user_id="u2", started_at=NOON + day, cost=9 * PICO),
            record(caller="bob", caller_id="id:b", started_at=NOON + day, client_left=True, cost=None),
        ]
    )
    lines = await report(database, ["day"], Period())
    assert [(line.group["day"], line.sums["requests"]) for line in lines] == [
        ("2026-11-22", 1),
        ("2026-11-23", 2),
    ]
    lines = await report(database, ["user"], Period(), caller="id:a")
    assert [(line.group["user"], line.sums["cost"]) for line in lines] == [("u2", 9 * PICO), ("u1", 3 * PICO)]
    [line] = await report(database, ["caller"], Period(first=date(2026, 11, 23)), caller="bob")
    assert (line.sums["client_left"], line.sums["unpriced"]) == (1, 1)
    assert await report(database, ["caller"], Period(last=date(2026, 11, 21))) == []
    with pytest.raises(ValueError, match="by day, caller and user only"):
        await report(database, ["user", "model"], Period())


async def test_old_rows_go_and_their_sums_stay(database: Database) -> None:
    old = int(time.time() * 1000) - 10 * 24 * 3600 * 1000
    records = [record(id=new_id(old + number)) for number in range(1001)]
    await shipping(database).ship([*records, record()])
    assert await tidy(database, 9) == 1001
    assert await tidy(database, 9) == 0
    async with database.read("test") as connection:
        assert await connection.scalar(select(func.count()).select_from(ledger)) == 1
    [line] = await report(database, ["model"], Period())
    assert line.sums["requests"] == 1002


async def test_a_file_of_parquet_has_every_column_of_every_row(database: Database, tmp_path: Path) -> None:
    day = 24 * 3600 * 10**6
    records = [charged(caller="ann"), record(run=2, background=True), record(started_at=NOON + 3 * day)]
    await shipping(database).ship(records)
    path = tmp_path / "rows.parquet"
    assert await to_parquet(database, Period(), path) == 3
    async with database.read("test") as connection:
        rows = (await connection.execute(select(ledger).order_by(ledger.c.id))).mappings().all()
    read = parquet.read_table(path)
    assert read.to_pylist() == [dict(row) for row in rows]
    kinds = {
        "id": "string",
        "day": "date32[day]",
        "cost": "int64",
        "background": "bool",
        "started_at": "int64",
    }
    assert {name: str(read.schema.field(name).type) for name in kinds} == kinds
    assert await to_parquet(database, Period(first=date(2026, 11, 24)), path) == 1
    assert parquet.read_table(path).column("started_at").to_pylist() == [NOON + 3 * day]
    assert await to_parquet(database, Period(last=date(2001, 1, 1)), path) == 0
    assert parquet.read_table(path).schema == read.schema


def test_the_journal_names_what_the_ledger_keeps(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", max_bytes=0, sync="never")
    assert (journal.waiting, journal.opened, bool(journal.take(9))) == (0, 0, False)
    assert journal.abandoned() is None
    journal.close()
    assert journal.bytes == 0
    assert {*TOKENS, *COSTS} <= set(ledger.c.keys())
    with pytest.raises(ValueError, match="never, second or always"):
        Journal(tmp_path / "journal", max_bytes=0, sync="now and then")
