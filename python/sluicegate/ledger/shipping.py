"""Putting rows into the ledger, in batches: one transaction adds rows that are new, their attempts, and their
sums.

A row that is there already changes nothing, sums included, so a batch may come any number of times.
"""

from collections.abc import Sequence
from datetime import tzinfo

from sqlalchemy import insert

from sluicegate.ledger import sums
from sluicegate.ledger.row import Record, attempts_of, row_of
from sluicegate.ledger.schema import attempts, ledger
from sluicegate.storage import Contended, Database

# Of a transaction that was given up for another's sake.
_TRIES = 5


class Shipping:
    """Puts records into the ledger. On the event loop's thread."""

    def __init__(self, database: Database, zone: tzinfo, gateway: str, version: str) -> None:
        self._database = database
        self._zone = zone
        self._gateway = gateway
        self._version = version

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
            adding = sums.insert_into(connection, ledger).on_conflict_do_nothing().returning(ledger.c.id)
            added = set((await connection.scalars(adding, rows)).all())
            if added:
                tries = [
                    attempt for record in records if record["id"] in added for attempt in attempts_of(record)
                ]
                if tries:
                    await connection.execute(insert(attempts), tries)
                await sums.add(connection, [row for row in rows if row["id"] in added])
        return len(added)
