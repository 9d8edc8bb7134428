"""Deleting rows that are older than they are kept. The sums stay."""

import time

from sqlalchemy import delete, select

from sluicegate.ledger.schema import attempts, first_id, ledger
from sluicegate.storage import Database

# Rows deleted in one transaction: other writers wait no longer than that takes.
_AT_ONCE = 1000

_DAY = 24 * 3600


def oldest_kept(days: int, now: float | None = None) -> str:
    """The id before which all rows are too old."""
    return first_id((time.time() if now is None else now) - days * _DAY)


async def tidy(database: Database, days: int) -> int:
    """Delete rows older than `days`; how many went. Raises `StoreUnavailable`."""
    gone, before = 0, oldest_kept(days)
    while True:
        async with database.transaction("retention") as connection:
            old = select(ledger.c.id).where(ledger.c.id < before).order_by(ledger.c.id).limit(_AT_ONCE)
            ids = (await connection.scalars(old)).all()
            if ids:
                await connection.execute(delete(attempts).where(attempts.c.id.in_(ids)))
                await connection.execute(delete(ledger).where(ledger.c.id.in_(ids)))
        gone += len(ids)
        if len(ids) < _AT_ONCE:
            return gone
