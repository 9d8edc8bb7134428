"""Writing events as they come: many responses' in one transaction.

A write returns once it is committed, and only then is anybody shown what it wrote: what a client has seen is
kept. The first write after a pause goes at once, the next ones together, `WINDOW_SECONDS` after the last
began: an upstream that sends 50 events a second costs a dozen rows, whatever their number, and the relay
collects what arrives meanwhile.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.responses.database import Database
from sluicegate.responses.entry import DELETED, Claim, Status
from sluicegate.responses.errors import Fenced, QueueFull, StoreError
from sluicegate.responses.numbering import Run
from sluicegate.responses.repository import index_items
from sluicegate.responses.schema import events, payloads, responses

WINDOW_SECONDS = 0.08

# Variables of one statement are limited.
_MANY = 500


@dataclass(frozen=True, slots=True)
class Final:
    """How a response ended: the object that is shown from now on, JSON, and the items in it."""

    status: Status
    response: bytes
    output: Sequence[dict[str, Any]] = ()
    event_bytes: int = 0
    """Of all its events, but for the first two."""


@dataclass(slots=True)
class Append:
    """Events of a background response, and its end where this is the last of them."""

    claim: Claim
    run: Run | None
    final: Final | None = None

    @property
    def id(self) -> str:
        return self.claim.id


@dataclass(slots=True)
class Keep:
    """A response that was made while its client listened, whole."""

    row: dict[str, Any]
    request: bytes
    input: Sequence[dict[str, Any]]
    run: Run | None
    final: Final

    @property
    def id(self) -> str:
        id: str = self.row["id"]
        return id


@dataclass(slots=True)
class Begin:
    """A background response that is taken on, unless `max_queued` wait already."""

    row: dict[str, Any]
    request: bytes
    response: bytes
    input: Sequence[dict[str, Any]]
    run: Run
    max_queued: int
    final: None = None

    @property
    def id(self) -> str:
        id: str = self.row["id"]
        return id


Write = Append | Keep | Begin


@dataclass(slots=True)
class _Waiting:
    write: Write
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Writer:
    """The writes of one process. `published` is called with each, once it is committed."""

    def __init__(self, database: Database, retention_seconds: float) -> None:
        self._database = database
        self._retention = retention_seconds
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._committing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.published: Callable[[Write], None] = lambda write: None

    async def write(self, write: Write) -> None:
        """Returns once it is committed. Raises `Fenced`, `QueueFull` and `StoreUnavailable`."""
        waiting = _Waiting(write)
        self._waiting.append(waiting)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        await waiting.done

    async def close(self) -> None:
        """Write what waits, and stop."""
        if self._task is not None and not self._task.done():
            await asyncio.gather(*(waiting.done for waiting in self._waiting), return_exceptions=True)
            await self._committing.acquire()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        following = 0.0
        while True:
            await self._wake.wait()
            await asyncio.sleep(max(following - time.monotonic(), 0))
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            began = time.monotonic()
            async with self._committing:
                await self._commit(batch)
            took = time.monotonic() - began
            # Where the disk is slower than that, at least half of the time is left to others.
            following = began + max(WINDOW_SECONDS, 2 * took)

    async def _commit(self, batch: list[_Waiting]) -> None:
        try:
            async with self._database.transaction("write") as connection:
                refused = await self._apply(connection, [waiting.write for waiting in batch])
        except Exception as error:
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_exception(error)
            return
        for waiting in batch:
            write = waiting.write
            if (reason := refused.get(id(write))) is not None:
                if not waiting.done.done():
                    waiting.done.set_exception(reason)
                continue
            self.published(write)
            if not waiting.done.done():
                waiting.done.set_result(None)

    async def _apply(self, connection: AsyncConnection, writes: list[Write]) -> dict[int, StoreError]:
        """Those that were refused, by `id`."""
        refused: dict[int, StoreError] = {}
        begun = await self._room(connection, [write for write in writes if isinstance(write, Begin)], refused)
        kept = await self._new(connection, [write for write in writes if isinstance(write, Keep)])
        appends = [write for write in writes if isinstance(write, Append)]
        owners = await _valid(connection, [write.claim for write in appends])
        for write in appends:
            if write.claim not in owners:
                refused[id(write)] = Fenced(write.id)
        appends = [write for write in appends if write.claim in owners]
        present: list[Write] = [*appends, *kept, *begun]
        runs = [(write.id, write.run) for write in present if write.run is not None]
        rows = [
            {"response_id": id, "first": run.first, "last": run.last, "data": run.data} for id, run in runs
        ]
        if rows:
            await connection.execute(insert(events), rows)
        finals = [(write.claim, write.final) for write in appends if write.final is not None]
        if finals:
            await self._end(connection, finals, owners)
        if kept or begun:
            await self._insert(connection, kept, begun)
        return refused

    async def _room(
        self, connection: AsyncConnection, writes: list[Begin], refused: dict[int, StoreError]
    ) -> list[Begin]:
        """Those that the queue has room for."""
        if not writes:
            return []
        query = select(func.count()).select_from(responses).where(responses.c.status == "queued")
        waiting = await connection.scalar(query) or 0
        taken = []
        for write in writes:
            if waiting < write.max_queued:
                waiting += 1
                taken.append(write)
            else:
                refused[id(write)] = QueueFull()
        return taken

    async def _end(
        self, connection: AsyncConnection, finals: list[tuple[Claim, Final]], owners: dict[Claim, str]
    ) -> None:
        now = time.time()
        ended = (
            update(responses)
            .where(responses.c.id == bindparam("of"))
            .values(
                status=bindparam("ended"),
                completed_at=now,
                expires_at=now + self._retention,
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
        for claim, final in finals:
            await index_items(connection, owners[claim], claim.id, final.output)

    async def _new(self, connection: AsyncConnection, writes: list[Keep]) -> list[Keep]:
        """Those whose id is not taken: an upstream that numbers its responses anew may send one twice."""
        by_id = {write.id: write for write in writes}
        if not by_id:
            return []
        query = select(responses.c.id).where(responses.c.id.in_(list(by_id)))
        gone = (responses.c.id.in_(list(by_id)), responses.c.status == DELETED)
        await connection.execute(delete(responses).where(*gone))
        for id in (await connection.execute(query)).scalars():
            del by_id[id]
        return list(by_id.values())

    async def _insert(self, connection: AsyncConnection, kept: list[Keep], begun: list[Begin]) -> None:
        now = time.time()
        rows = [
            {
                **write.row,
                "status": write.final.status,
                "background": False,
                "completed_at": now,
                "queued_at": None,
                "expires_at": now + self._retention,
                "bytes": _size(write.request, write.final.response, write.run),
            }
            for write in kept
        ] + [
            {
                **write.row,
                "status": "queued",
                "background": True,
                "completed_at": None,
                "queued_at": now,
                "expires_at": now + self._retention,
                "bytes": _size(write.request, write.response, write.run),
            }
            for write in begun
        ]
        await connection.execute(insert(responses), rows)
        texts = [(write.id, write.request, write.final.response) for write in kept]
        texts += [(write.id, write.request, write.response) for write in begun]
        await connection.execute(
            insert(payloads),
            [{"response_id": id, "request": request, "response": shown} for id, request, shown in texts],
        )
        for write in kept:
            found = [*write.input, *write.final.output]
            await index_items(connection, write.row["owner"], write.id, found)
        for taken in begun:
            await index_items(connection, taken.row["owner"], taken.id, taken.input)


def _size(request: bytes, response: bytes, run: Run | None) -> int:
    return len(request) + len(response) + (0 if run is None else len(run.data))


async def _valid(connection: AsyncConnection, claims: Sequence[Claim]) -> dict[Claim, str]:
    """The claims that hold, with the owner of each; they hold until the transaction ends."""
    found: dict[Claim, str] = {}
    columns = select(responses.c.id, responses.c.fence, responses.c.owner)
    ids = [claim.id for claim in claims]
    for start in range(0, len(ids), _MANY):
        query = columns.where(
            responses.c.id.in_(ids[start : start + _MANY]), responses.c.status == "in_progress"
        )
        for id, fence, owner in (await connection.execute(query.with_for_update())).all():
            found[Claim(id, fence)] = owner
    return found
