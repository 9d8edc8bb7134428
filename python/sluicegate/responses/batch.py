"""One transaction with the writes of many responses.

Rows that are there already are locked in the order of their ids, as everybody does who locks more than one,
and the index of items is written in its own order: transactions of several processes wait for each other
then, and never in a circle.
"""

import time
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.responses.changes import tell
from sluicegate.responses.entry import DELETED, Claim
from sluicegate.responses.errors import Fenced, QueueFull
from sluicegate.responses.repository import index_items
from sluicegate.responses.schema import events, payloads, responses
from sluicegate.responses.writes import Append, Begin, Final, LiveReply, Write
from sluicegate.storage import StoreError

MAX_WRITES = 500
"""In one transaction: the variables of a statement are limited."""


class Batch:
    """At most `MAX_WRITES` writes. A response that has ended is stored for `retention` seconds from now."""

    def __init__(self, writes: Sequence[Write], retention: float) -> None:
        self._writes = writes
        self._now = time.time()
        self._expires = self._now + retention
        self._owners: dict[Claim, str] = {}

    async def apply(self, connection: AsyncConnection) -> dict[int, StoreError]:
        """Why some were not written, by their `id()`: `Fenced` and `QueueFull`."""
        refused: dict[int, StoreError] = {}
        begun = await self._room(connection, refused)
        live = await self._new(connection)
        appends = [write for write in self._writes if isinstance(write, Append)]
        await self._lock(connection, [write.claim for write in appends])
        for write in appends:
            if write.claim not in self._owners:
                refused[id(write)] = Fenced(write.id)
        appends = [write for write in appends if write.claim in self._owners]
        present: list[Write] = [*appends, *live, *begun]
        rows = [
            {"response_id": write.id, "first": run.first, "last": run.last, "data": run.data}
            for write in present
            if (run := write.run) is not None
        ]
        if rows:
            await connection.execute(insert(events), rows)
        finals = [(write.claim, write.final) for write in appends if write.final is not None]
        if finals:
            await self._end(connection, finals)
        if live or begun:
            await self._insert(connection, live, begun)
        await index_items(
            connection,
            [(self._owners[claim], claim.id, final.item_ids) for claim, final in finals]
            + [(reply.row["owner"], reply.id, [*reply.item_ids, *reply.final.item_ids]) for reply in live]
            + [(begin.row["owner"], begin.id, begin.item_ids) for begin in begun],
        )
        await tell(connection, [write.id for write in appends])
        return refused

    async def _room(self, connection: AsyncConnection, refused: dict[int, StoreError]) -> list[Begin]:
        """Those that the queue has room for: no caller may have more in it than is left free, in number and
        in bytes. So there is room for whoever comes next, however many fill it.
        """
        writes = [write for write in self._writes if isinstance(write, Begin)]
        if not writes:
            return []
        query = select(responses.c.owner, func.count(), func.sum(responses.c.bytes)).where(
            responses.c.status == "queued"
        )
        rows = (await connection.execute(query.group_by(responses.c.owner))).all()
        # Sums of PostgreSQL are no integers.
        waiting = {owner: (number, int(size)) for owner, number, size in rows}
        all_number = sum(number for number, _ in waiting.values())
        all_size = sum(size for _, size in waiting.values())
        taken = []
        for write in writes:
            owner = write.row["owner"]
            number, size = waiting.get(owner, (0, 0))
            left = write.max_queued - all_number, write.max_bytes - all_size
            # The first of a caller may be as large as it likes.
            if number < left[0] and (not number or size + write.size <= left[1]):
                waiting[owner] = number + 1, size + write.size
                all_number, all_size = all_number + 1, all_size + write.size
                taken.append(write)
            else:
                refused[id(write)] = QueueFull()
        return taken

    async def _new(self, connection: AsyncConnection) -> list[LiveReply]:
        """Those whose id is not taken: an upstream that numbers its responses anew may send one twice."""
        by_id = {write.id: write for write in self._writes if isinstance(write, LiveReply)}
        if not by_id:
            return []
        same = responses.c.id.in_(list(by_id))
        found = select(responses.c.id, responses.c.status).where(same).order_by(responses.c.id)
        deleted = []
        for id, status in (await connection.execute(found.with_for_update())).all():
            if status == DELETED:
                deleted.append(id)
            else:
                del by_id[id]
        if deleted:
            await connection.execute(delete(responses).where(responses.c.id.in_(deleted)))
        return list(by_id.values())

    async def _lock(self, connection: AsyncConnection, claims: Sequence[Claim]) -> None:
        """Find the owners of claims that hold; they hold until the transaction ends."""
        if not claims:
            return
        query = select(responses.c.id, responses.c.fence, responses.c.owner).where(
            responses.c.id.in_([claim.id for claim in claims]), responses.c.status == "in_progress"
        )
        rows = await connection.execute(query.order_by(responses.c.id).with_for_update())
        self._owners = {Claim(id, fence): owner for id, fence, owner in rows.all()}

    async def _end(self, connection: AsyncConnection, finals: list[tuple[Claim, Final]]) -> None:
        ended = (
            update(responses)
            .where(responses.c.id == bindparam("of"))
            .values(
                status=bindparam("ended"),
                completed_at=self._now,
                expires_at=self._expires,
                holder=None,
                lease_until=None,
                bytes=responses.c.bytes + bindparam("grown"),
            )
        )
        await connection.execute(
            ended,
            [
                {"of": claim.id, "ended": final.status, "grown": len(final.response) + final.event_bytes}
                for claim, final in finals
            ],
        )
        shown = (
            update(payloads).where(payloads.c.response_id == bindparam("of")).values(response=bindparam("to"))
        )
        await connection.execute(shown, [{"of": claim.id, "to": final.response} for claim, final in finals])

    async def _insert(self, connection: AsyncConnection, live: list[LiveReply], begun: list[Begin]) -> None:
        rows = [
            {
                **write.row,
                "status": write.final.status,
                "background": False,
                "completed_at": self._now,
                "queued_at": None,
                "expires_at": self._expires,
                "bytes": write.size,
            }
            for write in live
        ] + [
            {
                **write.row,
                "status": "queued",
                "background": True,
                "completed_at": None,
                "queued_at": self._now,
                "expires_at": self._expires,
                "bytes": write.size,
            }
            for write in begun
        ]
        await connection.execute(insert(responses), sorted(rows, key=lambda row: str(row["id"])))
        texts = [(write.id, write.request, write.final.response) for write in live]
        texts += [(write.id, write.request, write.response) for write in begun]
        await connection.execute(
            insert(payloads),
            [{"response_id": id, "request": request, "response": shown} for id, request, shown in texts],
        )
