"""Putting rows into the ledger, in batches: one transaction adds rows, their attempts, and their sums.

A row that is there already changes nothing, sums included, so a batch may come any number of times.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, tzinfo
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate._core import JournalRows
from sluicegate.ledger.schema import attempts, ledger, prices_used, usage_daily, usage_users
from sluicegate.ledger.statements import adding, inserting
from sluicegate.storage import Contended, Database, Unstorable

Record = Mapping[str, Any]

DescribePrice = Callable[[Record], tuple[str, str] | None]
"""Where the price is from that a record was charged by, and its rates as JSON; None: not known. The record is
one of `JournalRows.prices`.
"""

# Of a transaction that was given up for another's sake.
_TRIES = 5

_ATTEMPTS = tuple(attempts.c.keys())


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

    async def ship(self, rows: JournalRows) -> int:
        """How many were new. Raises `StoreUnavailable`, and `Unstorable` where one of them is at fault."""
        try:
            return await self._put(rows)
        except Unstorable:
            # Some may be there already: nobody heard how their transaction ended, or whoever did has died.
            rest = rows.without(await self._database.undisturbed(self._known(rows.ids)))
            if len(rest) == len(rows):
                raise
            return await self._put(rest)

    async def _put(self, rows: JournalRows) -> int:
        """Add rows of which none is there."""
        if not len(rows):
            return 0
        for _ in range(_TRIES):
            try:
                await self._database.undisturbed(self._transaction(rows))
                return len(rows)
            except Contended:
                continue
        await self._database.undisturbed(self._transaction(rows))
        return len(rows)

    async def _known(self, ids: Collection[str]) -> list[str]:
        async with self._database.read("ledger") as connection:
            return list((await connection.scalars(select(ledger.c.id).where(ledger.c.id.in_(ids)))).all())

    async def _transaction(self, rows: JournalRows) -> None:
        # Drivers get what they take as it is: Python's sqlite3 is slow with anything but numbers and texts.
        plain = self._database.path is not None
        day = self._day_as_text if plain else self._day
        columns, lines = rows.table(day, gateway=self._gateway, version=self._version, flags=not plain)
        tries = rows.attempts()
        sums = (usage_daily, rows.daily(day)), (usage_users, rows.users(day))
        async with self._database.transaction("ledger") as connection:
            dialect = connection.dialect.name
            await connection.exec_driver_sql(inserting(dialect, "ledger", tuple(columns)), lines)
            if tries:
                await connection.exec_driver_sql(inserting(dialect, attempts.name, _ATTEMPTS), tries)
            # In one order for all processes: none waits for another in a circle.
            for table, added in sums:
                if added:
                    await connection.exec_driver_sql(adding(dialect, table), added)
            described = await self._describe(connection, rows)
        self._described |= described

    def _day(self, seconds: int) -> date:
        return datetime.fromtimestamp(seconds, self._zone).date()

    def _day_as_text(self, seconds: int) -> str:
        return self._day(seconds).isoformat()

    async def _describe(self, connection: AsyncConnection, rows: JournalRows) -> set[str]:
        """Say what the prices of `rows` are, as far as nobody has said it. The ids of those."""
        found: dict[str, dict[str, Any]] = {}
        for id, record in rows.prices().items():
            if id not in self._described:
                price = self._price(record)
                if price is not None:
                    source, rates = price
                    found[id] = {
                        "price_id": id,
                        "source": source,
                        "rates": rates,
                        "first_used": record["started_at"],
                    }
        if found:
            insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            # In one order for all processes: none waits for another in a circle.
            lines = [found[id] for id in sorted(found)]
            await connection.execute(insert(prices_used).on_conflict_do_nothing(), lines)
        return set(found)
