"""Keeping the store within its bounds: deletes what has expired and, where there is too much, the oldest of
those callers who keep the most.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from sqlalchemy import Select, case, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.config import StoreConfig
from sluicegate.responses.entry import DELETED, ENDED
from sluicegate.responses.repository import delete_rest
from sluicegate.responses.schema import responses
from sluicegate.storage import Database

# Of those that a caller has deleted, whose items were theirs is remembered.
_OVER = (*ENDED, DELETED)

# Responses deleted in one transaction: other writers wait no longer than that takes.
_AT_ONCE = 100

# Responses of one caller that are looked at together: to find the oldest, all of its are.
_LOOKED_AT = 10_000

# Pages given back to the file system at a time.
_PAGES = 2000


class Upkeep:
    interval = 60.0
    """Seconds."""

    def __init__(
        self, config: StoreConfig, database: Database, evicted: Callable[[str, int, int], None]
    ) -> None:
        """`evicted` is told whose responses went before their time, how many, and their bytes."""
        self._max_bytes = config.max_bytes
        self._database = database
        self._evicted = evicted

    async def tidy(self) -> int:
        """Delete what is too old or too much; how many responses went. Raises `StoreUnavailable`."""
        gone = 0
        while deleted := await self._expire():
            gone += deleted
        gone += await self._shrink()
        if gone and self._database.path is not None:
            async with self._database.read("vacuum") as connection:
                await connection.exec_driver_sql(f"PRAGMA incremental_vacuum({_PAGES})")
        return gone

    async def _expire(self) -> int:
        query = select(responses.c.id).where(
            responses.c.expires_at < time.time(), responses.c.status.in_(_OVER)
        )
        async with self._database.transaction("expire") as connection:
            return len(await _delete(connection, query.limit(_AT_ONCE)))

    async def _shrink(self) -> int:
        """Keep to the bound of all that is kept: who has more than an equal share of it loses the oldest."""
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        try:
            while excess := await self._excess():
                before = counts.total()
                for owner, size in excess.items():
                    async for gone in self._take_from(owner, size):
                        counts[owner] += len(gone)
                        sizes[owner] += sum(gone)
                if counts.total() == before:
                    # Somebody else deletes them just now.
                    break
        finally:
            for owner, count in counts.items():
                self._evicted(owner, count, sizes[owner])
        return counts.total()

    async def _excess(self) -> dict[str, int]:
        """By owner, how many bytes of what is over are above its share."""
        ended = case((responses.c.status.in_(_OVER), responses.c.bytes), else_=0)
        query = select(responses.c.owner, func.sum(responses.c.bytes), func.sum(ended))
        async with self._database.read("size") as connection:
            rows = (await connection.execute(query.group_by(responses.c.owner))).all()
        # Sums of PostgreSQL are no integers.
        kept = {owner: int(size) for owner, size, _ in rows}
        level = share(kept.values(), self._max_bytes)
        above = {owner: min(kept[owner] - level, int(size)) for owner, _, size in rows}
        return {owner: excess for owner, excess in above.items() if excess > 0}

    async def _take_from(self, owner: str, excess: int) -> AsyncIterator[list[int]]:
        """Delete the oldest of a caller until `excess` bytes are gone, or as many as are looked at together.

        Gives the sizes of those that went, transaction by transaction.
        """
        oldest = (
            select(responses.c.id, responses.c.bytes)
            .where(responses.c.owner == owner, responses.c.status.in_(_OVER))
            .order_by(responses.c.expires_at)
            .limit(_LOOKED_AT)
        )
        async with self._database.read("size") as connection:
            rows = (await connection.execute(oldest)).all()
        chosen: dict[str, int] = {}
        for id, size in rows:
            if excess <= 0:
                break
            chosen[id] = size
            excess -= size
        ids = list(chosen)
        for start in range(0, len(ids), _AT_ONCE):
            some = select(responses.c.id).where(responses.c.id.in_(ids[start : start + _AT_ONCE]))
            async with self._database.transaction("shrink") as connection:
                gone = await _delete(connection, some)
            yield [chosen[id] for id in gone]


def share(kept: Iterable[int], most: int) -> int:
    """The bytes that each may keep so that all together keep at most `most`: who keeps less leaves the rest
    to the others.
    """
    left = most
    sizes = sorted(kept)
    for place, size in enumerate(sizes):
        equal = left // (len(sizes) - place)
        if size > equal:
            return equal
        left -= size
    return most


async def _delete(connection: AsyncConnection, chosen: Select[str]) -> Sequence[str]:
    """Delete these, and say which; not those that somebody else deletes or uses just now."""
    free = chosen.order_by(responses.c.id).with_for_update(skip_locked=True)
    ids: Sequence[str] = (await connection.scalars(free)).all()
    if ids:
        await connection.execute(delete(responses).where(responses.c.id.in_(ids)))
        await delete_rest(connection, ids)
    return ids
