"""Looking at single rows of the ledger: the newest first, a page at a time."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.ledger.reports import of_caller
from sluicegate.ledger.schema import attempts, ledger, usage_daily
from sluicegate.storage import Database

LOOKED_AT = 500_000
"""Rows that are looked at for one page, so that a caller or a result that hardly ever comes costs no more
than others: some 0.1 s where they are in memory.
"""

# Ids that one name has had.
_MOST_IDS = 100


async def newest(
    database: Database,
    limit: int,
    *,
    caller: str | None = None,
    result: str | None = None,
    before: str | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """Rows, newest first, of this caller (an id or a name) and this result alone, with ids below `before`;
    and the `before` of the next page, None after the last. A page may have fewer rows than `limit`, even
    none, and not be the last. Raises `StoreUnavailable`.
    """
    async with database.read("rows") as connection:
        ids = select(ledger.c.id).order_by(ledger.c.id.desc())
        query = select(ledger).order_by(ledger.c.id.desc()).limit(limit + 1)
        if before is not None:
            ids, query = ids.where(ledger.c.id < before), query.where(ledger.c.id < before)
        floor = None
        if caller is not None or result is not None:
            floor = (await connection.execute(ids.offset(LOOKED_AT - 1).limit(1))).scalar()
        if floor is not None:
            query = query.where(ledger.c.id >= floor)
        if caller is not None:
            query = query.where(ledger.c.caller_id.in_(await _ids_of(connection, caller)))
        if result is not None:
            query = query.where(ledger.c.result == result)
        rows = [_as_data(row) for row in (await connection.execute(query)).mappings()]
    if len(rows) > limit:
        return rows[:limit], str(rows[limit - 1]["id"])
    return rows, floor


async def row_with(database: Database, id: str) -> dict[str, Any] | None:
    """The row with this id, and its attempts under `tries`; None where there is none. Raises
    `StoreUnavailable`.
    """
    async with database.read("row") as connection:
        found = (await connection.execute(select(ledger).where(ledger.c.id == id))).mappings().first()
        if found is None:
            return None
        query = select(attempts).where(attempts.c.id == id).order_by(attempts.c.n)
        tries = (await connection.execute(query)).mappings().all()
    return {**_as_data(found), "tries": [{**tried} for tried in tries]}


async def _ids_of(connection: AsyncConnection, caller: str) -> Sequence[str]:
    """The ids under which a caller's rows are."""
    query = select(usage_daily.c.caller_id).where(of_caller(usage_daily, caller)).distinct().limit(_MOST_IDS)
    return (await connection.scalars(query)).all()


def _as_data(row: Any) -> dict[str, Any]:
    return {**row, "day": row["day"].isoformat()}
