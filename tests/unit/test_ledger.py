"""Rows, sums and reports of the ledger, on a database of its own."""

import time
import uuid
from collections.abc import AsyncIterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from pyarrow import parquet
from sqlalchemy import func, select

from sluicegate._core import Journal, JournalRows
from sluicegate.config import LedgerConfig, StorageConfig
from sluicegate.ledger import Ledger, Period, open_database, report
from sluicegate.ledger.export import to_parquet
from sluicegate.ledger.retention import tidy
from sluicegate.ledger.schema import COSTS, PICO, TOKENS, attempts, ledger, prices_used, usage_daily, versions
from sluicegate.ledger.shipping import Shipping
from sluicegate.ledger.verify import verify
from sluicegate.pricing import Tariff, charge, charged_by
from sluicegate.pricing.rates import Rates
from sluicegate.storage import Database, Unstorable
from sluicegate.telemetry import LedgerMetrics, Log

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


def row_of(record: dict[str, Any], zone: ZoneInfo = UTC) -> dict[str, Any]:
    """What the ledger gets of a record."""

    def day(seconds: int) -> date:
        return datetime.fromtimestamp(seconds, zone).date()

    columns, _, [[row]] = JournalRows([record]).dated(day).table(gateway="g", version="v", flags=True)
    return dict(zip(columns, row, strict=True))


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
    assert row_of(record(**fields))["result"] == result


def test_a_day_begins_where_the_ledger_is_kept() -> None:
    late = record(started_at=NOON + 11 * 3600 * 10**6 + 1800 * 10**6)
    assert row_of(late)["day"] == date(2026, 11, 22)
    assert row_of(late, ZoneInfo("Europe/Berlin"))["day"] == date(2026, 11, 23)


def test_the_day_is_asked_once_a_minute() -> None:
    minute = 60 * 10**6
    records = [record(started_at=NOON + at) for at in (minute, 0, 7, minute + 1, 2 * minute - 1)]
    asked: list[int] = []

    def day(seconds: int) -> int:
        asked.append(seconds)
        return seconds

    columns, _, [rows] = JournalRows(records).dated(day).table(gateway="", version="", flags=False)
    first = NOON // 10**6
    assert asked == [first, first + 60]
    at = columns.index("day")
    assert [row[at] - first for row in rows] == [60, 0, 0, 60, 60]


def test_what_an_upstream_makes_up_is_not_known() -> None:
    row = row_of(record(finish_reason="a\0b", output=10**8 + 1, cost=5, price_id="x"))
    assert (row["finish_reason"], row["input"]) == ("a\ufffdb", 10)
    assert not {"output", "cost"} & row.keys()
    assert "price_id" not in row, "half of what was charged for is not known any more"
    assert row_of(record(output=10**8, cost=5))["output"] == 10**8
    assert "cost" not in row_of(record(cost=2**62))


def test_a_price_is_given_to_what_nobody_saw_the_end_of() -> None:
    rows = JournalRows([record(), record(interrupted=True, cost=None), record(interrupted=True)])
    assert rows.unfinished == [1, 2]
    assert rows.record(1)["interrupted"]
    rows.charge(1, "p", (10, 1, 2, 3, 4, 5))
    rows.charge(2, "q", None)
    charged = [[rows.record(index)[name] for name in ("price_id", *COSTS)] for index in (1, 2)]
    assert charged[0] == ["p", 10, 1, 2, 3, 4, 5]
    assert charged[1][:2] == ["q", 3 * PICO]
    rows.charge(1, "p", (2**70, 0, 0, 0, 0, 0))
    assert rows.record(1)["price_id"] is None
    made_up = JournalRows([record(interrupted=True, output=2**60)])
    made_up.charge(0, "p", (10, 1, 2, 3, 4, 5))
    assert (made_up.record(0)["price_id"], made_up.record(0)["cost"]) == (None, None)
    with pytest.raises(IndexError):
        rows.charge(3, "p", None)


def test_only_columns_that_some_row_has_a_value_for_are_written() -> None:
    records = [record(), record(first_token=7, team="t")]
    columns, _, [rows] = JournalRows(records).dated(str).table(gateway="g", version="v", flags=False)
    assert {"first_token", "team", "day", "id"} <= {*columns} <= {*ledger.c.keys()}
    assert not {"code", "cached_input", "response_id"} & {*columns}
    [first, second] = (dict(zip(columns, row, strict=True)) for row in rows)
    assert (first["team"], second["team"], second["first_token"]) == (None, "t", 7)
    assert (first["gateway"], first["version"], first["streamed"]) == ("g", "v", 1)
    full = record(**dict.fromkeys(TOKENS + COSTS, 1))
    full |= {column.name: 2 for column in ledger.c if column.type.python_type is int}
    texts = [column.name for column in ledger.c if column.type.python_type is str]
    full |= {name: name for name in texts if name not in ("id", "result", "usage_source")}
    dated = JournalRows([full]).dated(str)
    columns, _, [[row]] = dated.table(gateway="gateway", version="version", flags=True)
    assert {*columns} == {*ledger.c.keys()}
    written = dict(zip(columns, row, strict=True))
    expected = {**full, "result": "failed", "day": written["day"]}
    assert written == {name: expected[name] for name in columns}


@given(rows=st.integers(1, 80), models=st.integers(1, 3), days=st.integers(1, 2), values=st.integers(0, 400))
def test_what_all_rows_have_is_given_once(rows: int, models: int, days: int, values: int) -> None:
    records = [
        record(model=f"m{number % models}", started_at=NOON + number % days * 86_400_000_000)
        for number in range(rows)
    ]
    dated = JournalRows(records).dated(str)
    columns, _, [each] = dated.table(gateway="g", version="v", flags=False)
    expected = [dict(zip(columns, row, strict=True)) for row in each]
    names, shared, several = dated.table(gateway="g", version="v", flags=False, values=values)
    found = []
    own = len(names) - shared
    for lines in several:
        for cells in lines:
            assert len(cells) == shared + lines.together * own
            assert lines.together == 1 or len(cells) <= values
            for at in range(shared, len(cells), own):
                found.append(dict(zip(names, cells[:shared] + cells[at : at + own], strict=True)))
    assert found == expected
    assert "id" in names[shared:]
    assert ("gateway" in names[:shared]) == (values > 0 and rows > 1)
    if shared:
        assert ("model" in names[:shared]) == (models == 1)
        assert ("day" in names[:shared]) == (days == 1)


async def test_rows_that_come_again_change_nothing(database: Database) -> None:
    ships = shipping(database)
    tries = [("a", "x", "connect", None, 0, 5), ("b", "y", None, 200, 5, 50)]
    records = [record(caller="ann", caller_id="id:ann", user_id="u", tries=tries) for _ in range(3)]
    assert await ships.ship(JournalRows(records)) == 3
    assert await ships.ship(JournalRows(records)) == 0, "nobody heard that they were there"
    new = record(caller="ann", caller_id="id:ann", user_id="u")
    assert await ships.ship(JournalRows([*records[:2], new])) == 1
    for by in ("caller", "user"):
        [line] = await report(database, [by], Period())
        assert (line.sums["requests"], line.sums["input"], line.sums["cost"]) == (4, 40, 12 * PICO)
    async with database.read("test") as connection:
        assert await connection.scalar(select(func.count()).select_from(attempts)) == 6
    assert await verify(database, charged_by) == []


async def test_a_row_that_is_refused_is_said_to_be(database: Database) -> None:
    ships = shipping(database)
    there, new = record(), record()
    await ships.ship(JournalRows([there]))
    with pytest.raises(Unstorable):
        await ships.ship(JournalRows([new, new]))
    with pytest.raises(Unstorable):
        await ships.ship(JournalRows([there, new, new]))
    [line] = await report(database, ["model"], Period())
    assert line.sums["requests"] == 1
    first, second = JournalRows([there, new, new]).halves()
    assert [await ships.ship(rows) for rows in (first, *second.halves())] == [0, 1, 0]
    assert await verify(database, charged_by) == []


async def test_a_row_that_the_database_refuses_keeps_no_other_out(
    storage: StorageConfig, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = record()
    await shipping(database).ship(JournalRows([there]))
    async with database.transaction("test") as connection:
        refusing = "ALTER TABLE ledger ADD CHECK (model <> 'bad')"
        if database.path is not None:
            refusing = (
                "CREATE TRIGGER refusing BEFORE INSERT ON ledger WHEN NEW.model = 'bad' "
                "BEGIN SELECT RAISE(ABORT, 'bad'); END"
            )
        await connection.exec_driver_sql(refusing)
    log, registry = Log(), CollectorRegistry()
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(log, "error", lambda event, **fields: said.append((event, fields)))
    kept = Ledger(
        LedgerConfig(),
        storage,
        log,
        LedgerMetrics(registry),
        lambda record: (TARIFF.id, charge(TARIFF, record)),
        lambda record: DESCRIBED.get(record["price_id"]),
    )
    cut = record(interrupted=True, cost=None, tries=[("a", "x", None, 200, 0, 5)])
    bad = record(model="bad", tries=[("a", "x", None, 200, 0, 5)])
    await kept._ship_rows(JournalRows([record(), there, bad, cut, record()]))
    await kept.database.close()
    [(event, fields)] = said
    assert (event, fields["row"]["id"], fields["row"]["model"]) == ("ledger_row_refused", bad["id"], "bad")
    assert "cached_input" not in fields["row"], "what is not known is not shown"
    assert registry.get_sample_value("sluicegate_ledger_rows_total") == 3
    [line] = await report(database, ["model"], Period())
    assert (line.sums["requests"], line.sums["interrupted"]) == (4, 1)
    async with database.read("test") as connection:
        assert (await connection.scalars(select(attempts.c.id))).all() == [cut["id"]]
        cost = await connection.scalar(select(ledger.c.cost).where(ledger.c.id == cut["id"]))
    assert cost == 4 * PICO, "one, ten tokens at 0.1 and five at 0.4"
    assert await verify(database, charged_by) == []


async def test_rows_cost_what_their_price_says(database: Database) -> None:
    rows = [charged(input=101, output=3), charged(cached_input=4)]
    assert rows[1]["cost"] is None, "there is no price for cached input"
    assert rows[0]["cost"] == (101 * 2 * PICO + 3 * 4 * PICO) // 10, (
        "a tier, which has no price of the request"
    )
    await shipping(database).ship(JournalRows([*rows, record(output=10), charged(started_at=NOON + 5)]))
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
    await shipping(database).ship(JournalRows([record(price_id="gone"), charged()]))
    [wrong] = await verify(database, charged_by)
    assert "price gone: 1 rows name it, and prices_used has none" in wrong


async def test_a_ledger_of_before_the_prices_gains_their_table(tmp_path: Path) -> None:
    config = StorageConfig(directory=str(tmp_path))
    before = open_database(config)
    await shipping(before).ship(JournalRows([record()]))
    async with before.transaction("test") as connection:
        await connection.run_sync(prices_used.drop)
        await connection.execute(versions.delete().where(versions.c.version > 1))
    await before.close()
    now = open_database(config)
    try:
        assert await shipping(now).ship(JournalRows([charged()])) == 1
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
    await shipping(database).ship(JournalRows([record(), record(run=2)]))
    [line] = await report(database, ["model"], Period())
    assert (line.sums["requests"], line.sums["output"]) == (1, 10)


async def test_several_attempts_are_kept(database: Database) -> None:
    tries = [("a", "x", "connect", None, 0, 5), ("b", "y", None, 200, 5, 50)]
    await shipping(database).ship(JournalRows([record(tries=tries), record()]))
    async with database.read("test") as connection:
        found = (await connection.execute(select(attempts).order_by(attempts.c.n))).all()
    assert [(row.n, row.upstream, row.fault, row.started_at) for row in found] == [
        (1, "a", "connect", NOON),
        (2, "b", None, NOON + 5),
    ]


async def test_sums_stay_at_their_bound(database: Database) -> None:
    ships = shipping(database)
    await ships.ship(JournalRows([record()]))
    async with database.transaction("test") as connection:
        await connection.execute(usage_daily.update().values(output=2**62 - 2))
    await ships.ship(JournalRows([record()]))
    [line] = await report(database, ["model"], Period())
    assert (line.sums["output"], line.sums["input"]) == (2**62, 20)
    [wrong] = await verify(database, charged_by)
    assert "output" in wrong


async def test_reports_by_day_caller_and_user(database: Database) -> None:
    day = 24 * 3600 * 10**6
    rows = JournalRows(
        [
            record(caller="ann", caller_id="id:a", user_id="u1"),
            record(caller="ann", caller_id="id:a", user_id="u2", started_at=NOON + day, cost=9 * PICO),
            record(caller="bob", caller_id="id:b", started_at=NOON + day, client_left=True, cost=None),
        ]
    )
    await shipping(database).ship(rows)
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
    await shipping(database).ship(JournalRows([*records, record()]))
    assert await tidy(database, 9) == 1001
    assert await tidy(database, 9) == 0
    async with database.read("test") as connection:
        assert await connection.scalar(select(func.count()).select_from(ledger)) == 1
    [line] = await report(database, ["model"], Period())
    assert line.sums["requests"] == 1002


async def test_a_file_of_parquet_has_every_column_of_every_row(database: Database, tmp_path: Path) -> None:
    day = 24 * 3600 * 10**6
    records = [charged(caller="ann"), record(run=2, background=True), record(started_at=NOON + 3 * day)]
    await shipping(database).ship(JournalRows(records))
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
    assert (journal.waiting, journal.opened, len(journal.take(9).rows)) == (0, 0, 0)
    assert journal.abandoned() is None
    journal.close()
    assert journal.bytes == 0
    assert {*TOKENS, *COSTS} <= set(ledger.c.keys())
    with pytest.raises(ValueError, match="never, second or always"):
        Journal(tmp_path / "journal", max_bytes=0, sync="now and then")
