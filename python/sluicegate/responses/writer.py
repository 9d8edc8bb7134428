"""Writing events as they come: many responses' in one transaction.

A write returns once it is committed, and only then is anybody shown what it wrote: what a client has seen is
kept. The first write after a pause goes at once, the next ones together, `WINDOW_SECONDS` after the last
began: an upstream that sends 50 events a second costs a dozen rows, whatever their number, and the relay
collects what arrives meanwhile.

What waits, and what is being written, is bounded in bytes. Past the bound a response that runs here waits
until there is room, which slows its upstream; a live reply, which nothing may slow, is not kept, and a new
background response is not taken on.

What the database refuses for its content is found by halving the batch, so that it costs its own response and
none of the others.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sluicegate.responses.batch import MAX_WRITES, Batch
from sluicegate.responses.errors import StoreBusy
from sluicegate.responses.writes import Append, Write
from sluicegate.storage import Contended, Database, StoreError, StoreUnavailable, Unstorable

WINDOW_SECONDS = 0.08

# Of a transaction that was given up for another's sake, before it is taken apart.
_TRIES = 3

# What a write takes beside the bytes in it.
_WRITE_BYTES = 4096


@dataclass(slots=True)
class _Waiting:
    write: Write
    size: int
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, error: Exception | None = None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Writer:
    """The writes of one process.

    `published` is called with each, once it is committed; `lost` with each that the database does not take,
    and why.
    """

    def __init__(self, database: Database, retention_seconds: float, max_bytes: int) -> None:
        self._database = database
        self._retention = retention_seconds
        self._max_bytes = max_bytes
        self._bytes = 0
        """Of what waits, of what is being written, and of live replies that are being read for it."""
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held by the first of those that wait for room."""
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._committing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.published: Callable[[Write], None] = lambda write: None
        self.lost: Callable[[Write, Exception], None] = lambda write, error: None

    async def write(self, write: Write) -> None:
        """Returns once it is committed.

        Raises `Fenced`, `QueueFull`, `StoreBusy` where too much waits already, `Unstorable` where the
        database refuses what is in it, and otherwise `StoreUnavailable`.
        """
        waiting = _Waiting(write, write.size + _WRITE_BYTES)
        if isinstance(write, Append):
            await self._room(waiting.size)
            self._bytes += waiting.size
        else:
            self.reserve(waiting.size)
        self._waiting.append(waiting)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        await waiting.done

    def reserve(self, size: int) -> None:
        """Take room for what will be written once it has been read. Raises `StoreBusy`."""
        if self.full or not self._fits(size):
            raise StoreBusy
        self._bytes += size

    def release(self, size: int) -> None:
        """Give room that was reserved back."""
        self._bytes -= size
        self._freed.set()

    @property
    def full(self) -> bool:
        """Whether somebody waits for room already."""
        return self._turn.locked()

    def _fits(self, size: int) -> bool:
        # One that is larger than the bound goes alone: how large a response may be is bounded elsewhere.
        return self._bytes == 0 or self._bytes + size <= self._max_bytes

    async def _room(self, size: int) -> None:
        # In the order in which they came: a large one would wait for ever behind small ones.
        async with self._turn:
            while not self._fits(size):
                self._freed.clear()
                await self._freed.wait()

    def _end(self, waiting: _Waiting, error: Exception | None = None) -> None:
        self.release(waiting.size)
        waiting.end(error)

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
            batch, self._waiting = self._waiting[:MAX_WRITES], self._waiting[MAX_WRITES:]
            if not self._waiting:
                self._wake.clear()
            began = time.monotonic()
            async with self._committing:
                await self._commit(batch)
            # Until the next write comes nothing holds what was in these.
            del batch
            took = time.monotonic() - began
            # Where the disk is slower than that, at least half of the time is left to others.
            following = began + max(WINDOW_SECONDS, 2 * took)

    async def _commit(self, batch: list[_Waiting]) -> None:
        """Write what can be written of it, in at most two transactions for each write."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                refused = await self._transaction([waiting.write for waiting in part])
            except Exception as error:
                if isinstance(error, StoreUnavailable) and not isinstance(error, Unstorable | Contended):
                    # The store itself fails: so would all the others.
                    for waiting in (*part, *(waiting for rest in parts for waiting in rest)):
                        self._end(waiting, error)
                    return
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                else:
                    self._lose(part[0], error)
                continue
            for waiting in part:
                reason = refused.get(id(waiting.write))
                if reason is None:
                    self.published(waiting.write)
                self._end(waiting, reason)

    async def _transaction(self, writes: Sequence[Write]) -> dict[int, StoreError]:
        for attempt in range(1, _TRIES + 1):
            try:
                async with self._database.transaction("write") as connection:
                    return await Batch(writes, self._retention).apply(connection)
            except Contended:
                if attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _lose(self, waiting: _Waiting, error: Exception) -> None:
        self.lost(waiting.write, error)
        self._end(waiting, error if isinstance(error, StoreError) else Unstorable(type(error).__name__))
