"""Leases: which process works on which background response.

A process that takes one on holds it under a lease, which it renews while it lives, and a fence: a number that
grows each time that somebody takes the response over. All that is written about it names the fence, so a
process that was only slow, and comes back after its work was given to another, writes nothing.

Leases are compared with the clock of whoever looks; processes on several machines need clocks that agree to
well within `lease_seconds`.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, func, or_, select, true, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate._core import in_progress_event
from sluicegate.offload import offload
from sluicegate.responses.changes import tell
from sluicegate.responses.entry import DELETED, PREAMBLE_EVENTS, Claim, Entry, Work
from sluicegate.responses.errors import Fenced, NotFound
from sluicegate.responses.repository import ENTRY
from sluicegate.responses.schema import events, payloads, responses
from sluicegate.storage import Database

# A response that has been begun this often and never came to anything is not begun again: it may be what
# kills the processes.
MAX_ATTEMPTS = 5

# Variables of one statement are limited.
_MANY = 500


def _escaped(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


class Leases:
    """The leases of one process. Raises `StoreUnavailable` from every method."""

    def __init__(self, database: Database, lease_seconds: float, models: Collection[str]) -> None:
        self._database = database
        self._seconds = lease_seconds
        self.models = list(models)
        """Whose responses it takes on; a name with a `*` stands for all that match."""
        self.holder = secrets.token_hex(8)
        """This process, among all that have ever been."""
        self._turns: dict[str, int] = {}
        """When each caller was last served here, in turns."""

    async def any_queued(self) -> bool:
        """Whether there may be something to claim; cheap, and takes no lock."""
        query = select(responses.c.id).where(responses.c.status == "queued").limit(1)
        async with self._database.read("queue") as connection:
            return await connection.scalar(query) is not None

    async def claim(self, room: int) -> list[Work]:
        """Take on at most `room` queued responses: of callers with little under way first, then by age."""
        # Chosen without a lock, which other writers would wait for: what others take meanwhile is left out.
        now = time.time()
        ids = await self._next(room, now)
        if not ids:
            return []
        async with self._database.transaction("claim") as connection:
            return await self._take(connection, ids, now)

    async def _next(self, room: int, now: float) -> list[str]:
        place = func.row_number().over(
            partition_by=responses.c.owner, order_by=(responses.c.queued_at, responses.c.id)
        )
        ready = (
            select(responses.c.id, responses.c.owner, place.label("place"))
            .where(
                responses.c.status == "queued",
                responses.c.not_before <= now,
                self._served(),
            )
            .subquery()
        )
        oldest = select(ready.c.owner, ready.c.id).where(ready.c.place <= room).order_by(ready.c.place)
        counts = select(responses.c.owner, func.count()).where(responses.c.status == "in_progress")
        waiting: dict[str, list[str]] = {}
        async with self._database.read("queue") as connection:
            for owner, id in (await connection.execute(oldest)).all():
                waiting.setdefault(owner, []).append(id)
            if not waiting:
                return []
            rows = (await connection.execute(counts.group_by(responses.c.owner))).all()
        running: dict[str, int] = {row[0]: row[1] for row in rows}
        return fair(waiting, running, room, self._turns)

    def _served(self) -> ColumnElement[bool]:
        names = [name for name in self.models if "*" not in name]
        served = [responses.c.model.in_(names)]
        for before, star, after in (name.partition("*") for name in self.models):
            if star:
                like = f"{_escaped(before)}_%{_escaped(after)}"
                served.append(responses.c.model.like(like, escape="\\"))
        return or_(*served)

    async def _take(self, connection: AsyncConnection, ids: list[str], now: float) -> list[Work]:
        # What is locked is being taken or cancelled by somebody else.
        query = (
            select(*ENTRY, payloads.c.request, payloads.c.response)
            .join(payloads, payloads.c.response_id == responses.c.id)
            .where(responses.c.id.in_(ids), responses.c.status == "queued")
            .order_by(responses.c.id)
            .with_for_update(skip_locked=True, of=responses)
        )
        rows = {row[0]: row for row in (await connection.execute(query)).all()}
        await connection.execute(
            update(responses)
            .where(responses.c.id.in_(list(rows)))
            .values(
                status="in_progress",
                holder=self.holder,
                lease_until=now + self._seconds,
                fence=responses.c.fence + 1,
                attempts=responses.c.attempts + 1,
            )
        )
        works = []
        for id in ids:
            if id in rows:
                *columns, request, made = rows[id]
                entry = Entry(*columns)
                entry = replace(
                    entry, status="in_progress", fence=entry.fence + 1, attempts=entry.attempts + 1
                )
                works.append(Work(entry, Claim(id, entry.fence), request, made))
        await _begin(connection, works)
        await tell(connection, [work.entry.id for work in works])
        return works

    async def renew(self, claims: Sequence[Claim]) -> None:
        """Renew the leases of these, where they still hold."""
        until = time.time() + self._seconds
        for start in range(0, len(claims), _MANY):
            same = tuple_(responses.c.id, responses.c.fence).in_(
                [(claim.id, claim.fence) for claim in claims[start : start + _MANY]]
            )
            query = select(responses.c.id).where(same, responses.c.status == "in_progress")
            async with self._database.transaction("renew") as connection:
                rows = await connection.execute(query.order_by(responses.c.id).with_for_update())
                await connection.execute(
                    update(responses)
                    .where(responses.c.id.in_(rows.scalars().all()))
                    .values(lease_until=until)
                )

    async def held(self) -> set[Claim]:
        """What this process still holds."""
        query = select(responses.c.id, responses.c.fence).where(
            responses.c.holder == self.holder, responses.c.status == "in_progress"
        )
        async with self._database.read("held") as connection:
            return {Claim(id, fence) for id, fence in (await connection.execute(query)).all()}

    async def abandoned(self, queued_before: float, limit: int = 50) -> list[Entry]:
        """Responses whose process is gone, and those that have been queued since before that time."""
        query = select(*ENTRY).where(
            or_(
                (responses.c.status == "in_progress") & (responses.c.lease_until < time.time()),
                (responses.c.status == "queued") & (responses.c.queued_at < queued_before),
            )
        )
        async with self._database.read("abandoned") as connection:
            return [Entry(*row) for row in (await connection.execute(query.limit(limit))).all()]

    async def seize(self, entry: Entry, *, cancelling: bool = False) -> Claim:
        """Take over a response that is as `entry` says, whoever holds it: nobody else writes to it any more.

        The state becomes `in_progress` under a lease of this process, so that it is settled even if this
        process dies before it does that. Raises `Fenced` where somebody else was first.
        """
        async with self._database.transaction("seize") as connection:
            taken = await connection.execute(
                update(responses)
                .where(
                    responses.c.id == entry.id,
                    responses.c.fence == entry.fence,
                    responses.c.status == entry.status,
                )
                .values(
                    status="in_progress",
                    holder=self.holder,
                    lease_until=time.time() + self._seconds,
                    fence=responses.c.fence + 1,
                    cancelling=true() if cancelling else responses.c.cancelling,
                )
            )
            if not taken.rowcount:
                raise Fenced(entry.id)
        return Claim(entry.id, entry.fence + 1)

    async def cancel(self, id: str, owner: str) -> Claim | None:
        """Take over a response to cancel it; None where it has ended already. Raises `NotFound`."""
        query = select(*ENTRY).where(
            responses.c.id == id, responses.c.owner == owner, responses.c.status != DELETED
        )
        while True:
            async with self._database.read("cancel") as connection:
                row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound(id)
            entry = Entry(*row)
            if entry.ended or not entry.background:
                return None
            with contextlib.suppress(Fenced):
                return await self.seize(entry, cancelling=True)

    async def release(self, claims: Sequence[Claim], *, delay: float = 0.0, ran: bool = True) -> None:
        """Put work back into the queue, in its old place, not to be begun for `delay` seconds. `ran`: False
        where it was not let run, which is no attempt.
        """
        async with self._database.transaction("release") as connection:
            for claim in claims:
                await connection.execute(
                    update(responses)
                    .where(responses.c.id == claim.id, responses.c.fence == claim.fence)
                    .values(
                        status="queued",
                        holder=None,
                        lease_until=None,
                        fence=responses.c.fence + 1,
                        not_before=time.time() + delay,
                        attempts=responses.c.attempts if ran else responses.c.attempts - 1,
                    )
                )

    async def has_output(self, id: str) -> bool:
        """Whether output of an upstream has been stored."""
        query = select(func.max(events.c.last)).where(events.c.response_id == id)
        async with self._database.read("read") as connection:
            return (await connection.scalar(query) or 0) >= PREAMBLE_EVENTS


async def _begin(connection: AsyncConnection, works: list[Work]) -> None:
    """Keep the event that says so, of those that have not begun before."""
    ids = [work.entry.id for work in works]
    query = select(events.c.response_id, func.max(events.c.last)).where(events.c.response_id.in_(ids))
    found = (await connection.execute(query.group_by(events.c.response_id))).all()
    waiting = {id for id, last in found if last == PREAMBLE_EVENTS - 2}
    number = PREAMBLE_EVENTS - 1
    rows = [
        {
            "response_id": work.entry.id,
            "first": number,
            "last": number,
            "data": await offload(len(work.response), in_progress_event, work.response, number),
        }
        for work in works
        if work.entry.id in waiting
    ]
    if rows:
        await connection.execute(events.insert(), rows)


def fair(
    waiting: dict[str, list[str]], running: dict[str, int], room: int, turns: dict[str, int]
) -> list[str]:
    """At most `room` of the ids that wait, by owner: next comes who has the least under way.

    Among equals that is who was served longest ago; `turns` remembers it.
    """
    counts = {owner: running.get(owner, 0) for owner in waiting}
    left = {owner: list(reversed(ids)) for owner, ids in waiting.items() if ids}
    chosen: list[str] = []
    turn = max(turns.values(), default=0)
    while left and len(chosen) < room:
        owner = min(left, key=lambda name: (counts[name], turns.get(name, 0)))
        chosen.append(left[owner].pop())
        counts[owner] += 1
        turn += 1
        turns[owner] = turn
        if not left[owner]:
            del left[owner]
    return chosen
