"""What a gateway knows of the database's callers and keys, and how it learns of changes."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.identity.model import StoredCaller, StoredKey, caller_of, key_of
from sluicegate.identity.schema import callers, keys, state
from sluicegate.storage import Database

# Of one statement: PostgreSQL's protocol counts parameters in 16 bits.
_ROWS_AT_ONCE = 1000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All callers, and all keys that are not revoked. It is never changed."""

    store: str
    """Of which database."""
    version: int
    callers: Mapping[str, StoredCaller] = field(default_factory=dict)
    """By id."""
    keys: Mapping[str, StoredKey] = field(default_factory=dict)
    """By public id."""
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
        query = select(keys).where(keys.c.changed > since)
        if since < 0:
            query = query.where(keys.c.revoked.is_(None))
            known = NOTHING
        changed_callers = (await connection.execute(select(callers).where(callers.c.changed > since))).all()
        changed_keys = (await connection.execute(query)).all()
    unreadable: list[str] = []
    return Snapshot(
        store,
        version,
        _merged(known.callers, changed_callers, caller_of, unreadable),
        _merged(known.keys, changed_keys, lambda row: None if row.revoked else key_of(row), unreadable),
        tuple(unreadable),
    )


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


def _merged(
    known: Mapping[str, _T],
    rows: Iterable[Any],
    made: Callable[[Any], _T | None],
    unreadable: list[str],
) -> Mapping[str, _T]:
    merged = dict(known)
    for row in rows:
        # What cannot be read must not go on as it was.
        merged.pop(row.id, None)
        try:
            found = made(row)
        except (ValueError, TypeError, OverflowError, json.JSONDecodeError, ValidationError):
            unreadable.append(row.id)
            continue
        if found is not None:
            merged[row.id] = found
    return merged
