"""Following a response's events as they are kept, whichever process runs it.

What this process commits reaches its own followers at once, and what it runs it asks nobody about. Of what
another process commits PostgreSQL tells; in case that goes wrong it is asked every `NET_SECONDS`, too. SQLite
tells nobody, and is asked every `POLL_SECONDS`: with the writers' window that makes some 110 ms and a commit
at most. It is one query for all that is followed here and runs elsewhere, or waits, and needs no sockets
between the processes that could be stale after a crash.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

from sqlalchemy import TextClause, select, text

from sluicegate.responses.changes import Listener
from sluicegate.responses.entry import DELETED, ENDED, Run
from sluicegate.responses.errors import NotFound
from sluicegate.responses.loading import Loading
from sluicegate.responses.repository import Repository
from sluicegate.responses.schema import responses
from sluicegate.responses.writes import Final
from sluicegate.storage import Database, StoreUnavailable

POLL_SECONDS = 0.025
NET_SECONDS = 1.0

# How often it is asked whether what is followed is still there: deleting leaves no event.
_EXISTENCE_SECONDS = 0.5

_RETRY_SECONDS = 1.0

# Held for one slow follower; past that it reads the store again when it is ready.
_BACKLOG_BYTES = 1024 * 1024

_MANY = 256

# Read at a time, unless a single run is larger.
_READ_BYTES = 1024 * 1024


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

    def __init__(
        self, database: Database, repository: Repository, loading: Loading, is_local: Callable[[str], bool]
    ) -> None:
        self._database = database
        self._repository = repository
        self._loading = loading
        self._is_local = is_local
        self._feeds: dict[str, set[_Feed]] = {}
        self._positions: dict[str, int] = {}
        """The number of the last event that the poll, or this process, has told followers of."""
        self._poll: asyncio.Task[None] | None = None
        self._listener = None if database.path is not None else Listener(database, self._heard)
        self._listen_again = 0.0
        self._told: set[str] = set()
        self._stirred = asyncio.Event()
        self._closed = False

    async def follow(self, id: str, owner: str, after: int = -1) -> AsyncGenerator[bytes, None]:
        """The events after number `after`, kept ones and then new ones, until the response has ended.

        Ends, too, when it is deleted. Raises `NotFound` and `StoreUnavailable`.
        """
        with self._feed(id) as feed:
            position = after
            alone = self._database.undisturbed
            entry = await alone(self._repository.entry(id, owner))
            while True:
                count, size = await alone(self._repository.next_runs(id, position, _READ_BYTES))
                if count:
                    with self._loading.hold(owner) as hold:
                        await hold.take(size)
                        runs = await alone(self._repository.events(id, position, count))
                        for run in runs:
                            yield await run.after(position)
                            position = run.last
                        runs.clear()
                    if entry.ended:
                        continue
                    self._positions[id] = max(self._positions[id], position)
                elif entry.ended:
                    return
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
            self._poll = asyncio.get_running_loop().create_task(self._watch())
        self._stirred.set()
        try:
            yield feed
        finally:
            self._stirred.set()
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
        self._stirred.set()
        if self._poll is not None:
            await self._poll
        if self._listener is not None:
            await self._listener.close()

    # === what other processes commit ===

    def look(self, id: str) -> None:
        """There is something new of this response, or it begins to run here, or runs here no more."""
        if id in self._feeds:
            self._told.add(id)
            self._stirred.set()

    def _heard(self, ids: Sequence[str]) -> None:
        for id in ids:
            if not self._is_local(id):
                self.look(id)

    async def _watch(self) -> None:
        asked = checked = time.monotonic()
        while self._feeds and not self._closed:
            await self._listen()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), self._pause(asked))
            self._stirred.clear()
            told, self._told = self._told & self._feeds.keys(), set()
            now = time.monotonic()
            try:
                if now - asked >= self._interval:
                    asked = now
                    told |= set(self._elsewhere())
                ids = list(told)
                for start in range(0, len(ids), _MANY):
                    await self._ask(ids[start : start + _MANY])
                if now - checked >= _EXISTENCE_SECONDS:
                    checked = now
                    await self._notice_deleted(ids)
            except StoreUnavailable:
                # Counted where it happened. Whoever waits goes on waiting: the store may come back.
                await asyncio.sleep(_RETRY_SECONDS)

    def _elsewhere(self) -> list[str]:
        return [id for id in self._feeds if not self._is_local(id)]

    @property
    def _interval(self) -> float:
        return POLL_SECONDS if self._listener is None else NET_SECONDS

    def _pause(self, asked: float) -> float | None:
        """How long nothing has to be asked, unless something is told; None: for ever."""
        return max(asked + self._interval - time.monotonic(), 0) if self._elsewhere() else None

    async def _listen(self) -> None:
        """Listen, if there is somebody to listen to; what was told while nobody listened is asked for."""
        now = time.monotonic()
        listener = self._listener
        if listener is None or listener.listens or now < self._listen_again or not self._elsewhere():
            return
        self._listen_again = now + NET_SECONDS
        with contextlib.suppress(StoreUnavailable):
            await listener.open()
            self._told.update(self._elsewhere())
            self._stirred.set()

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

    async def _notice_deleted(self, ids: list[str]) -> None:
        if not ids:
            return
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
                yield await run.after(position), run.last
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
