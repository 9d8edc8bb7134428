"""What a gateway knows of the database's callers and keys, and how it learns of changes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import Table, and_, delete, insert, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.identity.known import KnownCaller, KnownKey, Terms, caller_known, key_known
from sluicegate.identity.model import MICRO
from sluicegate.identity.schema import callers, keys, state
from sluicegate.storage import Database

# Of one statement: PostgreSQL's protocol counts parameters in 16 bits.
_ROWS_AT_ONCE = 1000
# Read in one go.
_ROWS_READ = 500
# No limit counts what was used longer ago.
_COUNTED_SECONDS = 32 * 24 * 3600

_Known = TypeVar("_Known", KnownCaller, KnownKey)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All callers, and all keys that are not revoked. It is never changed."""

    store: str
    """Of which database."""
    version: int
    callers: Mapping[str, KnownCaller] = field(default_factory=dict)
    """By id."""
    keys: Mapping[str, KnownKey] = field(default_factory=dict)
    """By public id."""
    digests: Mapping[bytes, KnownKey] = field(default_factory=dict)
    """By SHA-256."""
    terms: Mapping[Terms, int] = field(default_factory=dict)
    """What is said of any of them, and of how many."""
    counted_as: Mapping[str, str] = field(default_factory=dict)
    """By the id of a key that goes on for another, be it revoked meanwhile: the id by which it is counted."""
    unreadable: tuple[str, ...] = ()
    """The ids of rows that are not as this program writes them. They are left out."""


NOTHING = Snapshot("", -1)
"""Of a database that nobody has made."""


async def newer(database: Database, known: Snapshot) -> Snapshot:
    """What the database has now; `known` itself where nothing has changed. Raises `StoreUnavailable`."""
    if not database.exists:
        return NOTHING
    async with database.read("changes of keys") as connection:
        store, version = await _state(connection)
        if (store, version) == (known.store, known.version):
            return known
        # Read before the rows are: what changes between the two is read again the next time.
        since = known.version if store == known.store and version > known.version else -1
        which = []
        if since < 0:
            lately = int((time.time() - _COUNTED_SECONDS) * MICRO)
            counts = and_(keys.c.counted_as.is_not(None), keys.c.revoked > lately)
            which = [or_(keys.c.revoked.is_(None), counts)]
            known = NOTHING
        made = _Making(known)
        async for rows in _read(connection, callers, since):
            made.take_callers(rows)
        async for rows in _read(connection, keys, since, *which):
            made.take_keys(rows)
    return made.snapshot(store, version)


class _Making:
    """A snapshot, of the one before it and of the rows that have changed."""

    def __init__(self, known: Snapshot) -> None:
        self._callers, self._keys = dict(known.callers), dict(known.keys)
        self._digests, self._terms = dict(known.digests), dict(known.terms)
        self._counted_as = dict(known.counted_as)
        self._unreadable: list[str] = []

    def take_callers(self, rows: Iterable[Any]) -> None:
        for row in rows:
            self._replace(self._callers, row.id, self._made(caller_known, row))

    def take_keys(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row.counted_as is not None:
                self._counted_as[row.id] = row.counted_as
            new = None if row.revoked else self._made(key_known, row)
            old = self._replace(self._keys, row.id, new)
            if old is not None:
                del self._digests[old.digest]
            if new is not None:
                self._digests[new.digest] = new

    def snapshot(self, store: str, version: int) -> Snapshot:
        return Snapshot(
            store,
            version,
            self._callers,
            self._keys,
            self._digests,
            self._terms,
            self._counted_as,
            tuple(self._unreadable),
        )

    def _made(self, make: Callable[[Any], _Known], row: Any) -> _Known | None:
        try:
            return make(row)
        except (ValueError, TypeError, OverflowError, json.JSONDecodeError, ValidationError):
            self._unreadable.append(row.id)
            return None

    def _replace(self, known: dict[str, _Known], id: str, new: _Known | None) -> _Known | None:
        """What was there before. Where there is nothing new, it must not go on as it was."""
        old = known.pop(id, None)
        if old is not None:
            left = self._terms[old.terms] - 1
            if left:
                self._terms[old.terms] = left
            else:
                del self._terms[old.terms]
        if new is not None:
            known[id] = new
            self._terms[new.terms] = self._terms.get(new.terms, 0) + 1
        return old


async def _read(
    connection: AsyncConnection, table: Table, since: int, *which: Any
) -> AsyncIterator[Sequence[Any]]:
    """What has changed since, a page at a time, so that nobody waits for all of it."""
    place = tuple_(table.c.changed, table.c.id)
    query = select(table).where(*which).order_by(table.c.changed, table.c.id).limit(_ROWS_READ)
    after = since + 1, ""
    while rows := (await connection.execute(query.where(place > after))).all():
        yield rows
        after = rows[-1].changed, rows[-1].id


async def copy(source: Database, target: Database, seconds: float) -> None:
    """Make `target` what `source` is, without the audit. Raises `StoreUnavailable`, and `TimeoutError` where
    `source` does not answer within `seconds`.
    """
    async with target.read("state of the copy") as connection:
        had = await _state(connection)
    async with asyncio.timeout(seconds), source.read("copy of keys") as connection:
        store, version = await _state(connection)
        anew = store != had[0] or version < had[1]
        if (store, version) == had:
            return
        since = -1 if anew else had[1]
        found = {}
        for table in (callers, keys):
            rows = await connection.execute(select(table).where(table.c.changed > since))
            found[table] = [dict(row) for row in rows.mappings()]
    async with target.transaction("copy of keys") as connection:
        for table, lines in found.items():
            if anew:
                await connection.execute(delete(table))
            for first in range(0, len(lines), _ROWS_AT_ONCE):
                some = lines[first : first + _ROWS_AT_ONCE]
                await connection.execute(delete(table).where(table.c.id.in_([line["id"] for line in some])))
            if lines:
                await connection.execute(insert(table), lines)
        await connection.execute(update(state).values(store=store, version=version))


async def _state(connection: AsyncConnection) -> tuple[str, int]:
    row = (await connection.execute(select(state.c.store, state.c.version))).one()
    return row.store, row.version
