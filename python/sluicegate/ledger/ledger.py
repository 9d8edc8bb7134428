"""The ledger of one process: its journal, and the task that puts what is in it into the database."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

from sluicegate._core import Journal, JournalBatch, JournalRows, __version__
from sluicegate.config import LedgerConfig, StorageConfig
from sluicegate.errors import ConfigurationError
from sluicegate.ledger.place import journal_folder, open_database
from sluicegate.ledger.retention import tidy
from sluicegate.ledger.shipping import DescribePrice, Record, Shipping
from sluicegate.ledger.spent import Calendar, Spent, Whose, spent_by, spent_lately
from sluicegate.storage import Contended, StoreUnavailable, Unstorable, Write
from sluicegate.telemetry import LedgerMetrics, Log, where

BATCH_ROWS = 1024
INTERVAL_SECONDS = 0.25

# After that it is looked at what else there is to do, above all whether requests have room in the journal.
_AT_ONCE_SECONDS = 1.0

# How often it is looked whether another process has died and left something.
_ABANDONED_SECONDS = 10.0
_TIDY_SECONDS = 3600.0
# While the database fails it is asked again after this long.
_PAUSE_SECONDS = 1.0
# A failing database fails with every batch: that is said once in this time.
_COMPLAINT_SECONDS = 10.0
# At the end of the process: what is left after that is found by the next.
_CLOSE_SECONDS = 3.0

Charge = Callable[[Record], tuple[str, Sequence[int] | None] | None]
"""The id of the price, and what a request cost that nobody saw the end of, in the order of `COSTS`. None: no
price is known.
"""


class Ledger:
    """Everything is for the event loop's thread, but for `journal`, which any thread may use once it is
    there.
    """

    def __init__(
        self,
        config: LedgerConfig,
        storage: StorageConfig,
        log: Log,
        metrics: LedgerMetrics,
        charge: Charge,
        price: DescribePrice,
    ) -> None:
        self._config = config
        self._storage = storage
        self._log = log
        self._metrics = metrics
        self._charge_of = charge
        self.drops = config.when_full == "drop"
        """A request for which there is no room is served all the same."""
        self.counted_as: Mapping[str, str] = {}
        """By the id of a key that goes on for another: the id by which limits count what it used."""
        self.journal: Journal | None = None
        self.database = open_database(storage)
        gateway = f"{socket.gethostname()}:{os.getpid()}"
        self._shipping = Shipping(self.database, config.zone, gateway, __version__, price)
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._complained: dict[str, float] = {}
        self._woken = asyncio.Event()
        """There is something to do."""
        self._asked: list[asyncio.Future[None]] = []
        """Those that wait for what had ended when they asked to be in the database."""
        self._was_failing = False
        """The journal could not be written to the disk when it was last tried."""
        self._is_whole = True
        """All that was over when it was last shipped has been shipped then."""

    def start(self) -> None:
        """Make the journal, and begin to ship. Raises `ConfigurationError` where there can be no journal."""
        folder = journal_folder(self._storage)
        try:
            self.journal = Journal(folder, max_bytes=self._config.journal_bytes, sync=self._config.sync)
        except OSError as error:
            reason = f"{folder}: {error.strerror or error}"
            raise ConfigurationError(f"there can be no journal for the ledger: {reason}") from None
        self._task = asyncio.get_running_loop().create_task(self._run(self.journal))

    async def close(self) -> None:
        """Ship what is there, for a while, and stop. For when no request runs any more. Idempotent."""
        task, self._task = self._task, None
        if task is None or self.journal is None:
            return
        self._stopping.set()
        self._woken.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await task
        _tell(self._asked, StoreUnavailable("the ledger is closed"))
        if self.journal.waiting:
            self._log.warning("ledger_behind", rows=self.journal.waiting)
        self.journal.close()
        await self.database.close()

    async def caught_up(self) -> None:
        """Wait until what has ended by now is in the database, and what dead processes had left. Raises
        `StoreUnavailable` where the database fails.
        """
        if self._task is None:
            raise StoreUnavailable("the ledger is closed")
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._woken.set()
        await asked

    async def spent_by(self, begins: Mapping[Calendar, date], whose: Whose) -> list[Spent]:
        """What these have used since these days began. Raises `StoreUnavailable`."""
        return await spent_by(self.database, begins, whose, self.counted_as)

    async def spent_lately(self, whose: Whose, now: float) -> list[Spent]:
        """What these have used in the hour before `now`. Raises `StoreUnavailable`. It looks through all rows
        of that hour.
        """
        return await spent_lately(self.database, whose, now, self.counted_as)

    # === shipping ===

    async def _run(self, journal: Journal) -> None:
        looked = tidied = synced = -_TIDY_SECONDS
        while True:
            stopping = self._stopping.is_set()
            self._woken.clear()
            asked, self._asked = self._asked, []
            try:
                whole = await self._ship(journal)
                if stopping and not journal.waiting:
                    return
                now = time.monotonic()
                if now - looked >= _ABANDONED_SECONDS:
                    await self._recover(journal)
                    looked = now
                if whole:
                    _tell(asked)
                else:
                    self._asked += asked
                if now - tidied >= _TIDY_SECONDS:
                    await tidy(self.database, self._config.keep_days)
                    tidied = now
                pause = 0.0 if journal.waiting >= BATCH_ROWS or stopping else INTERVAL_SECONDS
            except StoreUnavailable as error:
                self._metrics.failed()
                self._complain("ledger_failed", reason=str(error), waiting=journal.waiting)
                _tell(asked, error)
                pause = _PAUSE_SECONDS
            except Exception as error:
                self._metrics.failed()
                self._complain("ledger_failed", reason=where(error), waiting=journal.waiting)
                _tell(asked, StoreUnavailable(where(error)))
                pause = _PAUSE_SECONDS
            self._metrics.waiting(journal.waiting)
            now = time.monotonic()
            await self._prepare(journal, sync=self._config.sync != "never" and now - synced >= 1.0)
            if now - synced >= 1.0:
                synced = now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            if stopping:
                # That did not wait.
                await asyncio.sleep(pause)

    async def _prepare(self, journal: Journal, *, sync: bool) -> None:
        """Have the next segment ready, and what was stored on the disk."""
        try:
            if not await asyncio.to_thread(journal.prepare):
                self._complain("ledger_full", waiting=journal.waiting)
        except OSError as error:
            self._complain("journal_failed", reason=error.strerror or str(error))
        if not sync:
            return
        was_failing = self._was_failing
        try:
            await asyncio.to_thread(journal.sync)
        except OSError as error:
            self.not_synced(error)
        self._was_failing = journal.is_failing
        if was_failing and not self._was_failing:
            self._log.info("journal_synced")

    async def _ship(self, journal: Journal) -> bool:
        """Ship what is over by now, or as much of it as a second is enough for; whether it was all."""
        if not journal.waiting:
            return True
        self._is_whole = False
        try:
            shipping = self.database.write("ledger", partial(self._ship_batches, journal))
            await self.database.undisturbed(shipping)
        except (Contended, Unstorable):
            with _given_back_unless_shipped(journal, journal.take(BATCH_ROWS)) as rows:
                await self._ship_rows(rows)
        return self._is_whole

    def _ship_batches(self, journal: Journal, write: Write) -> None:
        """In a thread where there is a file, while `_run` waits for it; with a server on the event loop."""
        # What ends meanwhile makes a larger batch with what follows it.
        end = time.monotonic() + _AT_ONCE_SECONDS
        for _ in range(0, journal.waiting, BATCH_ROWS):
            if time.monotonic() >= end:
                return
            with _given_back_unless_shipped(journal, journal.take(BATCH_ROWS)) as rows:
                self._charge_unfinished(rows)
                self._shipping.add(rows, write)
                self._metrics.shipped(len(rows))
        self._is_whole = True

    async def _recover(self, journal: Journal) -> None:
        """Ship what dead processes have left."""
        while (segment := await asyncio.to_thread(journal.abandoned)) is not None:
            for first in range(0, len(segment), BATCH_ROWS):
                await self._ship_rows(segment.rows(first, BATCH_ROWS))
            await asyncio.to_thread(segment.finish)
            self._log.info("journal_recovered", rows=len(segment))

    async def _ship_rows(self, rows: JournalRows) -> None:
        """Ship rows of which some may be there, or at fault."""
        self._charge_unfinished(rows)
        parts = [rows]
        while parts:
            part = parts.pop()
            try:
                self._metrics.shipped(await self._shipping.ship(part))
            except Unstorable as error:
                # One of them is at fault: halved until it is alone, it keeps no other from the ledger.
                if len(part) > 1:
                    parts += reversed(part.halves())
                else:
                    self._log.error("ledger_row_refused", reason=str(error), row=_shown(part.record(0)))

    def _charge_unfinished(self, rows: JournalRows) -> None:
        """Give the records of requests that nobody saw the end of their cost."""
        for index in rows.unfinished:
            try:
                charged = self._charge_of(rows.record(index))
            except Exception as error:
                self._complain("price_policy_failed", reason=where(error))
                continue
            if charged is not None:
                rows.charge(index, *charged)

    def _complain(self, event: str, **fields: Any) -> None:
        now = time.monotonic()
        if now - self._complained.get(event, -_COMPLAINT_SECONDS) >= _COMPLAINT_SECONDS:
            self._complained[event] = now
            self._log.error(event, **fields)

    def not_synced(self, error: OSError) -> None:
        """What was stored, or is to be, could not be written to the disk. Any thread."""
        self._was_failing = True
        self._metrics.not_synced()
        self._complain("journal_failed", reason=error.strerror or str(error))

    @property
    def is_not_synced(self) -> bool:
        """The last attempt to write the journal to the disk failed."""
        return self.journal is not None and self.journal.is_failing

    @property
    def needs_sync(self) -> bool:
        """No request is served before its entry is on the disk."""
        return self._config.sync == "always"

    def full(self) -> None:
        """A request found no room. Any thread."""
        self._metrics.no_room()
        self._complain("ledger_full", waiting=0 if self.journal is None else self.journal.waiting)


@contextlib.contextmanager
def _given_back_unless_shipped(journal: Journal, batch: JournalBatch) -> Iterator[JournalRows]:
    try:
        yield batch.rows
    except BaseException:
        journal.give_back(batch)
        raise
    journal.shipped(batch)


def _tell(asked: Iterable["asyncio.Future[None]"], error: StoreUnavailable | None = None) -> None:
    for each in asked:
        if each.done():
            continue  # Whoever asked has given up.
        if error is None:
            each.set_result(None)
        else:
            each.set_exception(error)


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value)[:256] for name, value in row.items() if value not in (None, [])}
