"""Putting rows into the ledger, in batches: one transaction adds rows that are new, their attempts, and their
sums.

A row that is there already changes nothing, sums included, so a batch may come any number of times.
"""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import cache
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.ledger import sums
from sluicegate.ledger.row import Record, Row, attempts_of, row_of
from sluicegate.ledger.schema import attempts, ledger, prices_used
from sluicegate.storage import Contended, Database

DescribePrice = Callable[[Record], tuple[str, str] | None]
"""Where the price is from that a record was charged by, and its rates as JSON; None: not known."""

# Of a transaction that was given up for another's sake.
_TRIES = 5


# Made once: SQLAlchemy keeps with a statement what it takes to find its compiled form again.
@cache
def _adding(dialect: str) -> Any:
    return sums.insert_into(dialect, ledger).on_conflict_do_nothing().returning(ledger.c.id)


class Shipping:
    """Puts records into the ledger. On the event loop's thread."""

    def __init__(
        self, database: Database, zone: tzinfo, gateway: str, version: str, price: DescribePrice
    ) -> None:
        self._database = database
        self._zone = zone
        self._gateway = gateway
        self._version = version
        self._price = price
        self._described: set[str] = set()
        """The prices that are in the database."""

    async def ship(self, records: Sequence[Record]) -> int:
        """How many were new. Raises `StoreUnavailable`, and `Unstorable` where one of them is at fault."""
        if not records:
            return 0
        for _ in range(_TRIES):
            try:
                return await self._database.undisturbed(self._transaction(records))
            except Contended:
                continue
        return await self._database.undisturbed(self._transaction(records))

    async def _transaction(self, records: Sequence[Record]) -> int:
        rows = [row_of(record, self._zone, self._gateway, self._version) for record in records]
        async with self._database.transaction("ledger") as connection:
            added = set((await connection.scalars(_adding(connection.dialect.name), rows)).all())
            if added:
                tries = [
                    attempt for record in records if record["id"] in added for attempt in attempts_of(record)
                ]
                if tries:
                    await connection.execute(insert(attempts), tries)
                await sums.add(connection, [row for row in rows if row["id"] in added])
            described = await self._describe(connection, rows)
        self._described |= described
        return len(added)

    async def _describe(self, connection: AsyncConnection, rows: Sequence[Row]) -> set[str]:
        """Say what the prices of `rows` are, as far as nobody has said it. The ids of those."""
        found: dict[str, Row] = {}
        for row in rows:
            id = row["price_id"]
            if id is not None and id not in self._described and id not in found:
                price = self._price(row)
                if price is not None:
                    source, rates = price
                    found[id] = {
                        "price_id": id,
                        "source": source,
                        "rates": rates,
                        "first_used": row["started_at"],
                    }
        if found:
            adding = sums.insert_into(connection.dialect.name, prices_used).on_conflict_do_nothing()
            # In one order for all processes: none waits for another in a circle.
            await connection.execute(adding, [found[id] for id in sorted(found)])
        return set(found)
