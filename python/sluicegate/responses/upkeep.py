"""Keeping the store within its bounds: deletes what has expired and, where there is too much, the oldest."""

import time
from collections.abc import Sequence

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.config import StoreConfig
from sluicegate.responses.entry import DELETED, ENDED
from sluicegate.responses.repository import delete_rest
from sluicegate.responses.schema import responses
from sluicegate.storage import Database

# Responses deleted in one transaction: other writers wait no longer than that takes.
_AT_ONCE = 100

# Pages given back to the file system at a time.
_PAGES = 2000


class Upkeep:
    interval = 60.0
    """Seconds."""

    def __init__(self, config: StoreConfig, database: Database) -> None:
        self._max_bytes = config.max_bytes
        self._database = database

    async def tidy(self) -> int:
        """Delete what is too old or too much; how many responses went. Raises `StoreUnavailable`."""
        gone = 0
        while deleted := await self._expire():
            gone += deleted
        while deleted := await self._shrink():
            gone += deleted
        if gone and self._database.path is not None:
            async with self._database.read("vacuum") as connection:
                await connection.exec_driver_sql(f"PRAGMA incremental_vacuum({_PAGES})")
        return gone

    async def _expire(self) -> int:
        query = select(responses.c.id).where(
            responses.c.expires_at < time.time(), responses.c.status.in_((*ENDED, DELETED))
        )
        async with self._database.transaction("expire") as connection:
            return await _delete(connection, query.limit(_AT_ONCE))

    async def _shrink(self) -> int:
        async with self._database.read("size") as connection:
            excess = (await connection.scalar(select(func.sum(responses.c.bytes))) or 0) - self._max_bytes
            if excess <= 0:
                return 0
            oldest = (
                select(responses.c.id, responses.c.bytes)
                .where(responses.c.status.in_(ENDED))
                .order_by(responses.c.expires_at)
                .limit(_AT_ONCE)
            )
            rows = (await connection.execute(oldest)).all()
        chosen: list[str] = []
        for id, size in rows:
            if excess <= 0:
                break
            chosen.append(id)
            excess -= size
        async with self._database.transaction("shrink") as connection:
            return await _delete(connection, select(responses.c.id).where(responses.c.id.in_(chosen)))


async def _delete(connection: AsyncConnection, chosen: Select[str]) -> int:
    """Delete these; not those that somebody else deletes or uses just now."""
    free = chosen.order_by(responses.c.id).with_for_update(skip_locked=True)
    ids: Sequence[str] = (await connection.scalars(free)).all()
    if ids:
        await connection.execute(delete(responses).where(responses.c.id.in_(ids)))
        await delete_rest(connection, ids)
    return len(ids)
