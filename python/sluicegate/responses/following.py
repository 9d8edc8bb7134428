"""Following a response's events as they are kept, whichever process runs it.

What this process commits reaches its own followers at once. What another process commits is found by asking
the store every `POLL_SECONDS`, in one query for all that is followed here, and only while something is: with
the writers' window that makes some 110 ms and a commit at most, whether the processes share a file or a
server, and needs no sockets between them that could be stale after a crash.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from sqlalchemy import TextClause, select, text

from sluicegate.responses.database import Database
from sluicegate.responses.entry import DELETED, ENDED
from sluicegate.responses.errors import NotFound, StoreUnavailable
from sluicegate.responses.numbering import Run, tail
from sluicegate.responses.repository import Repository
from sluicegate.responses.schema import responses
from sluicegate.responses.writes import Final

POLL_SECONDS = 0.025

# Every so many polls it is asked whether what is followed is still there: deleting leaves no event.
_EXISTENCE_POLLS = 20

# Held for one slow follower; past that it reads the store again when it is ready.
_BACKLOG_BYTES = 1024 * 1024

_MANY = 256


class _Feed:
    """What is committed while a follower is busy."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self.ended = False

    def put(self, run: Run) -> None:
        self._bytes += len(run.data)
        if self._bytes > _BACKLOG_BYTES:
            # The next one leaves a gap then, and the follower fills it from the store.
            self._runs.clear()
            self._bytes = 0
        else:
            self._runs.append(run)
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def take(self) -> Iterator[Run]:
        while self._runs:
            run = self._runs.popleft()
            self._bytes -= len(run.data)
            yield run


class Following:
    """The followers of one process. `is_local` tells whether this process runs a response itself."""

    def __init__(self, database: Database, repository: Repository, is_local: Callable[[str], bool]) -> None:
        self._database = database
        self._repository = repository
        self._is_local = is_local
        self._feeds: dict[str, set[_Feed]] = {}
        self._positions: dict[str, int] = {}
        """The number of the last event that the poll, or this process, has told followers of."""
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    async def follow(self, id: str, owner: str, after: int = -1) -> AsyncIterator[bytes]:
        """The events after number `after`, kept ones and then new ones, until the response has ended.

        Ends, too, when it is deleted. Raises `NotFound` and `StoreUnavailable`.
        """
        with self._feed(id) as feed:
            position = after
            alone = self._database.undisturbed
            entry = await alone(self._repository.entry(id, owner))
            while True:
                runs = await alone(self._repository.events(id, position))
                for run in runs:
                    yield tail(run, position)
                    position = run.last
                if entry.ended:
                    return
                if runs:
                    self._positions[id] = max(self._positions[id], position)
                else:
                    async for data, last in _until_gap(feed, position):
                        yield data
                        position = last
                if self._closed:
                    raise StoreUnavailable("the gateway stops")
                # Its state is looked at before its events: none can be missing where it had ended.
                try:
                    entry = await alone(self._repository.entry(id, owner))
                except NotFound:
                    return

    @contextlib.contextmanager
    def _feed(self, id: str) -> Iterator[_Feed]:
        feed = _Feed()
        self._feeds.setdefault(id, set()).add(feed)
        self._positions.setdefault(id, -1)
        if self._poll is None or self._poll.done():
            self._poll = asyncio.get_running_loop().create_task(self._poll_others())
        try:
            yield feed
        finally:
            feeds = self._feeds[id]
            feeds.discard(feed)
            if not feeds:
                del self._feeds[id]
                self._positions.pop(id, None)

    def published(self, id: str, run: Run | None, final: Final | None) -> None:
        """This process has committed these events."""
        feeds = self._feeds.get(id)
        if feeds is None:
            return
        if run is not None:
            self._positions[id] = max(self._positions.get(id, -1), run.last)
            for feed in feeds:
                feed.put(run)
        if final is not None:
            self._end(id)

    def _end(self, id: str) -> None:
        for feed in self._feeds.get(id, ()):
            feed.end()

    async def close(self) -> None:
        """Stop asking. Whoever still follows is told that the store is unavailable. Idempotent."""
        self._closed = True
        for id in self._feeds:
            self._end(id)
        if self._poll is not None:
            await self._poll

    # === what other processes commit ===

    async def _poll_others(self) -> None:
        polls = 0
        while self._feeds and not self._closed:
            await asyncio.sleep(POLL_SECONDS)
            polls += 1
            ids = [id for id in self._feeds if not self._is_local(id)]
            try:
                for start in range(0, len(ids), _MANY):
                    await self._ask(ids[start : start + _MANY])
                if polls % _EXISTENCE_POLLS == 0:
                    await self._notice_deleted()
            except StoreUnavailable:
                # Counted where it happened. Whoever waits goes on waiting: the store may come back.
                await asyncio.sleep(1)

    async def _ask(self, ids: list[str]) -> None:
        size = 1
        while size < len(ids):
            size *= 2
        values: dict[str, object] = {}
        for place in range(size):
            id = ids[place] if place < len(ids) else ""
            values[f"i{place}"], values[f"a{place}"] = id, self._positions.get(id, -1)
        async with self._database.read("follow") as connection:
            rows = (await connection.execute(_news(size), values)).all()
        for id, first, last, data, status in rows:
            if last > self._positions.get(id, -1):
                self._positions[id] = last
                for feed in self._feeds.get(id, ()):
                    feed.put(Run(first, last, data))
            if status in ENDED:
                self._end(id)

    async def _notice_deleted(self) -> None:
        ids = list(self._feeds)
        async with self._database.read("follow") as connection:
            there = set(
                (
                    await connection.execute(
                        select(responses.c.id).where(responses.c.id.in_(ids), responses.c.status != DELETED)
                    )
                ).scalars()
            )
        for id in ids:
            if id not in there:
                self._end(id)


async def _until_gap(feed: _Feed, position: int) -> AsyncIterator[tuple[bytes, int]]:
    """The events after `position` as they come, and the number of each last; until some are missing, or none
    follow.
    """
    while not feed.ended:
        await feed.wait()
        for run in feed.take():
            if run.first > position + 1:
                return
            if run.last > position:
                yield tail(run, position), run.last
                position = run.last


def _news(size: int) -> TextClause:
    """The events after each of `size` positions, and whether that response has ended.

    `CROSS JOIN` keeps SQLite from reading all events to find the few that are asked for.
    """
    pairs = ", ".join(f"(CAST(:i{n} AS TEXT), CAST(:a{n} AS BIGINT))" for n in range(size))
    return text(
        f"WITH followed(id, after) AS (VALUES {pairs}) "  # noqa: S608
        "SELECT e.response_id, e.first, e.last, e.data, r.status FROM followed "
        "CROSS JOIN response_events e JOIN responses r ON r.id = e.response_id "
        "WHERE e.response_id = followed.id AND e.first > followed.after "
        "ORDER BY e.response_id, e.first"
    )
