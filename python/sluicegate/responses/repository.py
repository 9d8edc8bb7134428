"""Reading what is stored, and deleting."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Select, case, delete, func, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.responses.entry import DELETED, ENDED, Entry, Run
from sluicegate.responses.errors import NotFinished, NotFound, TooLong
from sluicegate.responses.schema import events, is_key, items, payloads, responses
from sluicegate.storage import Database

ENTRY: tuple[Column[Any], ...] = (
    responses.c.id,
    responses.c.owner,
    responses.c.model,
    responses.c.status,
    responses.c.background,
    responses.c.previous_id,
    responses.c.request_id,
    responses.c.created_at,
    responses.c.attempts,
    responses.c.fence,
    responses.c.cancelling,
    responses.c.key_id,
    responses.c.user_id,
    responses.c.deadline,
    responses.c.bytes,
)

# Turns of a conversation. A chain that is longer was not made by people.
MAX_CHAIN = 10_000

# Of all its requests and responses, and of those that have the items that a request refers to: no request may
# be as large as this with what it continues.
MAX_CHAIN_BYTES = 64 * 1024**2
# Variables of one statement are limited.
_MANY = 500

# What an item that is remembered takes beside its id, with its two indexes.
_ROW_BYTES = 200

# Runs of events that one follower reads at a time.
_READ_TOGETHER = 16

_LENGTH = func.length(payloads.c.request) + func.length(payloads.c.response)


Turn = tuple[str, bytes, bytes]
"""A response's id, its request, and its Response object, JSON."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A response as it stands. What it was made from may be large, and is seldom asked for."""

    entry: Entry
    response: bytes


@dataclass(frozen=True, slots=True)
class Chain:
    """The turns of a conversation, oldest first."""

    ids: list[str]
    size: int
    """Bytes of all its requests and responses."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The responses that have some items."""

    by_response: dict[str, list[str]]
    """Ids of items by the id of the response that has them."""
    size: int
    """Bytes of all requests and responses of these."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a response is, in bytes."""

    previous_id: str | None
    request: int
    response: int
    events: int
    """Those that are kept of a response that has not ended; 0 once it has, since they are in it then."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits, over all processes."""

    queued: int
    running: int
    oldest_seconds: float


class Repository:
    """One response at a time. Raises `StoreUnavailable` from every method."""

    def __init__(self, database: Database, retention_seconds: float) -> None:
        self._database = database
        self._retention = retention_seconds

    async def entry(self, id: str, owner: str) -> Entry:
        """Raises `NotFound`."""
        async with self._database.read("read") as connection:
            found = (await connection.execute(select(*ENTRY).where(*_visible(id, owner)))).one_or_none()
        if found is None:
            raise NotFound(id)
        return Entry(*found)

    async def stored(self, id: str, owner: str) -> Stored:
        """Raises `NotFound`."""
        query = select(*ENTRY, payloads.c.response).join(payloads, payloads.c.response_id == responses.c.id)
        async with self._database.read("read") as connection:
            found = (await connection.execute(query.where(*_visible(id, owner)))).one_or_none()
        if found is None:
            raise NotFound(id)
        *columns, response = found
        return Stored(Entry(*columns), response)

    async def sizes(self, id: str, owner: str) -> Sizes:
        """Raises `NotFound`."""
        lengths = func.length(payloads.c.request), func.length(payloads.c.response)
        of_events = (
            select(func.coalesce(func.sum(func.length(events.c.data)), 0))
            .where(events.c.response_id == responses.c.id)
            .scalar_subquery()
        )
        unfolded = case((responses.c.status.in_(ENDED), 0), else_=of_events)
        query = select(responses.c.previous_id, *lengths, unfolded).join(
            payloads, payloads.c.response_id == responses.c.id
        )
        async with self._database.read("read") as connection:
            found = (await connection.execute(query.where(*_visible(id, owner)))).one_or_none()
        if found is None:
            raise NotFound(id)
        previous_id, request, response, in_events = found
        # Sums of PostgreSQL are no integers.
        return Sizes(previous_id, request, response, int(in_events))

    async def turns(self, ids: Sequence[str], owner: str, *, asked: str | None = None) -> list[Turn]:
        """These responses of a caller, in their order; those that are gone meanwhile are left out. Of `asked`
        only the request.
        """
        found: dict[str, Turn] = {}
        shown = case((payloads.c.response_id == asked, b""), else_=payloads.c.response)
        query = select(payloads.c.response_id, payloads.c.request, shown).join(
            responses, payloads.c.response_id == responses.c.id
        )
        query = query.where(responses.c.owner == owner, responses.c.status != DELETED)
        async with self._database.read("read") as connection:
            for start in range(0, len(ids), _MANY):
                some = query.where(payloads.c.response_id.in_(ids[start : start + _MANY]))
                for id, request, response in (await connection.execute(some)).all():
                    found[id] = id, request, response
        return [found[id] for id in ids if id in found]

    async def events(self, id: str, after: int = -1, most: int | None = None) -> list[Run]:
        """Runs with events after number `after`, in their order; the first may begin before it. At most
        `most` of them.
        """
        async with self._database.read("read") as connection:
            return await runs(connection, id, after, most)

    async def next_runs(self, id: str, after: int, most_bytes: int) -> tuple[int, int]:
        """How many of the runs with events after number `after` are read together, and their bytes: one, if
        there is any, and more as long as they are no larger than `most_bytes`.
        """
        query = _runs(func.length(events.c.data), id=id, after=after, most=_READ_TOGETHER)
        async with self._database.read("read") as connection:
            sizes = (await connection.scalars(query)).all()
        count = together = 0
        for size in sizes:
            if count and together + size > most_bytes:
                break
            count, together = count + 1, together + size
        return count, together

    async def has_events(self, id: str) -> bool:
        """Whether any event of it is kept."""
        query = select(events.c.first).where(events.c.response_id == id).limit(1)
        async with self._database.read("read") as connection:
            return (await connection.execute(query)).first() is not None

    async def delete(self, id: str, owner: str) -> None:
        """Raises `NotFound`. Whoever runs it finds its fence gone, and stops.

        That there was one, and whose its items were, is remembered until it would have expired: an upstream
        may have them, too.
        """
        remembered = (
            select(func.coalesce(func.sum(func.length(items.c.item_id) + _ROW_BYTES), 0))
            .where(items.c.response_id == id)
            .scalar_subquery()
        )
        async with self._database.transaction("delete") as connection:
            gone = await connection.execute(
                update(responses)
                .where(*_visible(id, owner))
                .values(status=DELETED, holder=None, fence=responses.c.fence + 1, bytes=remembered)
            )
            if not gone.rowcount:
                raise NotFound(id)
            await delete_contents(connection, [id])

    async def chain(self, id: str, owner: str) -> Chain:
        """The response and those that it continues.

        Raises `NotFound` with the id that is missing, `NotFinished`, and `TooLong`.
        """
        ancestors = (
            select(responses.c.id, responses.c.previous_id, literal(0).label("depth"))
            .where(*_visible(id, owner))
            .cte("chain", recursive=True)
        )
        ancestors = ancestors.union_all(
            select(responses.c.id, responses.c.previous_id, ancestors.c.depth + 1).where(
                responses.c.id == ancestors.c.previous_id,
                responses.c.owner == owner,
                responses.c.status != DELETED,
                ancestors.c.depth < MAX_CHAIN,
            )
        )
        query = (
            select(responses.c.id, responses.c.previous_id, responses.c.status, _LENGTH)
            .join(ancestors, ancestors.c.id == responses.c.id)
            .join(payloads, payloads.c.response_id == responses.c.id)
            .order_by(ancestors.c.depth.desc())
        )
        async with self._database.read("read") as connection:
            rows = (await connection.execute(query)).all()
            known = rows or await connection.scalar(select(responses.c.id).where(responses.c.id == id))
        if not rows:
            raise NotFound(id, known=known is not None)
        size = sum(row[-1] for row in rows)
        if size > MAX_CHAIN_BYTES:
            raise TooLong
        _, previous, _, _ = rows[0]
        # A link that is not ours leads to the upstream's own store: that is for the upstream to follow.
        if previous is not None:
            raise NotFound(previous)
        last, _, status, _ = rows[-1]
        if status not in ENDED:
            raise NotFinished(last, status)
        return Chain([row[0] for row in rows], size)

    async def touch(self, ids: Sequence[str]) -> None:
        """Let the retention of these begin anew."""
        async with self._database.transaction("touch") as connection:
            until = time.time() + self._retention
            query = select(responses.c.id).where(responses.c.id.in_(ids)).order_by(responses.c.id)
            # What somebody else holds is being used, too.
            free = (await connection.execute(query.with_for_update(skip_locked=True))).scalars().all()
            await connection.execute(
                update(responses).where(responses.c.id.in_(free)).values(expires_at=until)
            )

    async def holders(self, item_ids: Collection[str], owner: str) -> Holders:
        """The responses that have these input or output items; items that none has are left out.

        Raises `TooLong` where these responses are too large to be looked through.
        """
        query = (
            select(items.c.item_id, items.c.response_id)
            .join(responses, responses.c.id == items.c.response_id)
            .where(items.c.owner == owner, items.c.item_id.in_(item_ids), responses.c.status != DELETED)
        )
        found: dict[str, list[str]] = {}
        async with self._database.read("read") as connection:
            for item_id, id in await connection.execute(query):
                found.setdefault(id, []).append(item_id)
            size = select(func.sum(_LENGTH)).where(payloads.c.response_id.in_(found))
            # Sums of PostgreSQL are no integers.
            together = int(await connection.scalar(size) or 0)
        if together > MAX_CHAIN_BYTES:
            raise TooLong
        return Holders(found, together)

    async def any_item_of_another(self, item_ids: Collection[str], owner: str) -> str | None:
        """One of these items that another owner has, if any."""
        query = select(items.c.item_id).where(items.c.item_id.in_(item_ids), items.c.owner != owner).limit(1)
        async with self._database.read("read") as connection:
            found: str | None = await connection.scalar(query)
        return found

    async def backlog(self) -> Backlog:
        query = (
            select(responses.c.status, func.count(), func.min(responses.c.queued_at))
            .where(responses.c.status.in_(("queued", "in_progress")))
            .group_by(responses.c.status)
        )
        async with self._database.read("read") as connection:
            rows = {row[0]: row for row in (await connection.execute(query)).all()}
        waiting, running = rows.get("queued"), rows.get("in_progress")
        oldest = 0.0 if waiting is None else max(time.time() - waiting[2], 0.0)
        return Backlog(0 if waiting is None else waiting[1], 0 if running is None else running[1], oldest)


def _visible(id: str, owner: str) -> tuple[Any, Any, Any]:
    return responses.c.id == id, responses.c.owner == owner, responses.c.status != DELETED


async def runs(connection: AsyncConnection, id: str, after: int = -1, most: int | None = None) -> list[Run]:
    query = _runs(events.c.first, events.c.last, events.c.data, id=id, after=after, most=most)
    return [Run(*row) for row in (await connection.execute(query)).all()]


def _runs(*columns: Any, id: str, after: int, most: int | None) -> Select[Any]:
    query = select(*columns).where(events.c.response_id == id, events.c.last > after)
    return query.order_by(events.c.first).limit(most)


async def index_items(connection: AsyncConnection, found: Sequence[tuple[str, str, Sequence[str]]]) -> None:
    """Let `item_reference`s find the items of these: owner, response, the ids of its items.

    An item that is sent again belongs to its first response that has not been deleted. One whose id is no
    text that the index takes, which only an upstream can send, is found by nobody.
    """
    holders: dict[tuple[str, str], str] = {}
    for owner, id, item_ids in found:
        for item_id in filter(is_key, item_ids):
            holders.setdefault((owner, item_id), id)
    rows = [
        {"owner": owner, "item_id": item_id, "response_id": holders[owner, item_id]}
        for owner, item_id in sorted(holders)
    ]
    if rows:
        add = sqlite.insert(items) if connection.dialect.name == "sqlite" else postgresql.insert(items)
        gone = select(responses.c.id).where(
            responses.c.id == items.c.response_id, responses.c.status == DELETED
        )
        await connection.execute(
            add.on_conflict_do_update(
                index_elements=[items.c.owner, items.c.item_id],
                set_={"response_id": add.excluded.response_id},
                where=gone.exists(),
            ),
            rows,
        )


async def delete_contents(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete what responses said and were made from. Whose they and their items were stays known."""
    await connection.execute(delete(events).where(events.c.response_id.in_(ids)))
    await connection.execute(delete(payloads).where(payloads.c.response_id.in_(ids)))


async def delete_rest(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete all that belongs to responses whose rows are gone."""
    await delete_contents(connection, ids)
    await connection.execute(delete(items).where(items.c.response_id.in_(ids)))
