"""Looking at rows of the ledger: pages that are bounded by what is looked at, and callers by id or name."""

from collections.abc import AsyncIterator
from datetime import UTC, date
from typing import Any

import pytest

from sluicegate._core import JournalRows
from sluicegate.config import StorageConfig
from sluicegate.ledger import Period, TooManyLines, newest, open_database, report, row_with
from sluicegate.ledger.shipping import Shipping
from sluicegate.storage import Database


def record(number: int, *, failed: bool = False, caller: str = "search") -> dict[str, Any]:
    """The record of one request, with as much as a row needs."""
    return {
        "id": f"00000000-0000-7000-8000-{number:012}",
        "run": 1,
        "background": False,
        "streamed": True,
        "started_at": 1_790_000_000_000_000 + number,
        "caller_id": f"id:{caller}-id",
        "caller": caller,
        "key_id": "k",
        "model": f"m{number % 3}",
        "upstream": "a",
        "upstream_model": "a",
        "interrupted": False,
        "client_left": False,
        "status": 500 if failed else 200,
        "fault": "truncated" if failed else None,
        "finish_reason": None,
        "attempts": 2 if failed else 1,
        "usage_source": "upstream",
        "input": 10,
        "output": 5,
        "tries": [("a", "a", "connect", None, 0, 5), ("a", "a", "truncated", 200, 5, 9)] if failed else [],
    }


@pytest.fixture
async def database(storage: StorageConfig) -> AsyncIterator[Database]:
    made = open_database(storage)
    await _fill(made)
    yield made
    await made.close()


async def _fill(made: Database) -> None:
    shipping = Shipping(made, UTC, "gateway", "1", lambda record: None)
    callers = {50: "rare"}
    rows = [
        record(number, failed=number in (5, 60), caller=callers.get(number, "search"))
        for number in range(100)
    ]
    await shipping.ship(JournalRows(rows))
    await shipping.ship(JournalRows([record(number, caller="other") for number in range(100, 110)]))


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["id"][-12:]) for row in rows]


async def test_rows_come_newest_first_page_by_page(database: Database) -> None:
    rows, before = await newest(database, 60)
    assert numbers(rows) == [*range(109, 49, -1)]
    rest, end = await newest(database, 60, before=before)
    assert (numbers(rest), end) == ([*range(49, -1, -1)], None)
    assert await newest(database, 110) == (rows + rest, None)


@pytest.mark.parametrize("caller", ["search", "search-id", "id:search-id"])
async def test_rows_of_one_caller(database: Database, caller: str) -> None:
    rows, before = await newest(database, 2, caller=caller)
    assert numbers(rows) == [99, 98]
    assert before == rows[-1]["id"]
    assert await newest(database, 2, caller="nobody") == ([], None)


@pytest.mark.parametrize(
    ("wanted", "expected"), [({"result": "failed"}, [60, 5]), ({"caller": "rare"}, [50])]
)
async def test_no_page_looks_at_more_than_its_share(
    database: Database, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str], expected: list[int]
) -> None:
    monkeypatch.setattr("sluicegate.ledger.rows.LOOKED_AT", 20)
    found: list[dict[str, Any]] = []
    before: str | None = None
    pages = 0
    while pages == 0 or before is not None:
        rows, before = await newest(database, 10, before=before, **wanted)
        found += rows
        pages += 1
    assert (numbers(found), pages) == (expected, 6)


async def test_one_row_with_its_attempts(database: Database) -> None:
    row = await row_with(database, record(5)["id"])
    assert row is not None
    assert (row["result"], row["day"], len(row["tries"])) == ("failed", "2026-09-21", 2)
    assert [tried["fault"] for tried in row["tries"]] == ["connect", "truncated"]
    assert await row_with(database, record(999)["id"]) is None


async def test_a_report_may_be_too_long(database: Database) -> None:
    everything = Period(date(2020, 1, 1))
    assert len(await report(database, ["model"], everything, most=3)) == 3
    with pytest.raises(TooManyLines):
        await report(database, ["model"], everything, most=2)
    [line] = await report(database, ["caller"], everything, "other-id")
    assert (line.group, line.sums["requests"]) == ({"caller": "other"}, 10)
