"""Putting rows into the ledger, in batches: one transaction adds rows, their attempts, and their sums.

A row that is there already changes nothing, sums included, so a batch may come any number of times.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, tzinfo
from functools import partial
from typing import Any

from sqlalchemy import select

from sluicegate._core import JournalRows
from sluicegate.ledger.schema import attempts, ledger, prices_used, usage_daily, usage_users
from sluicegate.ledger.statements import adding, inserting
from sluicegate.storage import Contended, Database, Statement, Unstorable, Write

Record = Mapping[str, Any]

DescribePrice = Callable[[Record], tuple[str, str] | None]
"""Where the price is from that a record was charged by, and its rates as JSON; None: not known. The record is
one of `JournalRows.prices`.
"""

# Of a transaction that was given up for another's sake.
_TRIES = 5

# At each step of a statement another thread may take the interpreter, so that a step adds several rows.
# Versions of SQLite before 3.32 take no more values than that.
_VALUES = 999

_ATTEMPTS = tuple(attempts.c.keys())
_PRICES = tuple(prices_used.c.keys())


class Shipping:
    """Puts records into the ledger."""

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
        """Add those that are not there, and say how many they were. On the event loop. Raises
        `StoreUnavailable`, and `Unstorable` where one of them is at fault.
        """
        try:
            return await self._put(rows)
        except Unstorable:
            # Some may be there already: nobody heard how their transaction ended, or whoever did has died.
            rest = rows.without(await self._database.undisturbed(self._known(rows.ids)))
            if len(rest) == len(rows):
                raise
            return await self._put(rest)

    def add(self, rows: JournalRows, write: Write) -> None:
        """Add rows of which none is there. Any thread, one at a time; raises what `write` raises."""
        if len(rows):
            described = self._prices(rows)
            write(self._statements(rows, described))
            self._described |= {id for id, *_ in described}

    async def _put(self, rows: JournalRows) -> int:
        for tries in range(_TRIES, -1, -1):
            try:
                adding = self._database.write("ledger", partial(self.add, rows))
                await self._database.undisturbed(adding)
                break
            except Contended:
                if not tries:
                    raise
        return len(rows)

    async def _known(self, ids: Collection[str]) -> list[str]:
        async with self._database.read("ledger") as connection:
            return list((await connection.scalars(select(ledger.c.id).where(ledger.c.id.in_(ids)))).all())

    def _statements(
        self, rows: JournalRows, described: Sequence[tuple[str, str, str, int]]
    ) -> list[Statement]:
        plain = self._database.path is not None
        # Python's sqlite3 is slow with anything but numbers and texts.
        dated = rows.dated(self._day_as_text if plain else self._day)
        columns, shared, several = dated.table(
            gateway=self._gateway,
            version=self._version,
            flags=not plain,
            values=_VALUES if plain else 0,
        )
        statements: list[Statement] = [
            (
                inserting("ledger", columns, numbered=not plain, shared=shared, rows=lines.together),
                lines,
            )
            for lines in several
        ]
        if tries := rows.attempts():
            statements.append((inserting(attempts.name, _ATTEMPTS, numbered=not plain), tries))
        # In one order for all processes: none waits for another in a circle.
        for table, sums in ((usage_daily, dated.daily()), (usage_users, dated.users())):
            if sums:
                statements.append((adding(table, numbered=not plain), sums))
        if described:
            insert = inserting(prices_used.name, _PRICES, numbered=not plain)
            statements.append((f"{insert} ON CONFLICT DO NOTHING", described))
        return statements

    def _day(self, seconds: int) -> date:
        return datetime.fromtimestamp(seconds, self._zone).date()

    def _day_as_text(self, seconds: int) -> str:
        return self._day(seconds).isoformat()

    def _prices(self, rows: JournalRows) -> list[tuple[str, str, str, int]]:
        """What the prices of `rows` are, as far as nobody has said it, by the columns of `prices_used`."""
        found = []
        # In one order for all processes, as the sums are.
        for id, record in sorted(rows.prices().items()):
            price = None if id in self._described else self._price(record)
            if price is not None:
                found.append((id, *price, record["started_at"]))
        return found
