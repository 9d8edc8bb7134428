"""Following the database's callers and keys while a gateway runs."""

import asyncio
import contextlib
from collections.abc import Callable

from sluicegate.config import StorageConfig
from sluicegate.identity.place import open_callers, open_copy
from sluicegate.identity.snapshot import NOTHING, Snapshot, copy, newer
from sluicegate.storage import Database, StoreUnavailable
from sluicegate.telemetry import KeyMetrics, Log, where

POLL_SECONDS = 1.0
# A server that says nothing for so long is away.
LOST_SECONDS = 5.0
# All rows, the first time.
_COPY_SECONDS = 30.0
# At the end of the process: an answer of the database that is still awaited.
_CLOSE_SECONDS = 3.0


Adopt = Callable[[Snapshot], None]


class Following:
    """Looks for changes each second.

    Where the database is away, what is known goes on; a gateway that knows nothing yet takes the copy that
    each change leaves in the storage directory. A SQLite database needs none. For the event loop's thread.
    """

    def __init__(
        self,
        storage: StorageConfig,
        log: Log,
        metrics: KeyMetrics,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self.database = open_callers(storage)
        """Also for whoever changes something."""
        self._copy: Database | None = open_copy(storage)
        self.known: Snapshot | None = None if self.database.exists else NOTHING
        """None: nothing could be read so far."""
        self._lost = False
        self._copied: tuple[str, int] = ("", -1)
        self._copy_failed = False
        self._looked = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, wanted: Callable[[], bool], adopt: Adopt) -> None:
        """Begin to look, while `wanted()`; each new snapshot is given to `adopt`."""
        self._task = asyncio.get_running_loop().create_task(self._run(wanted, adopt))

    async def looked(self) -> None:
        """Once it has looked for the first time, whether it found anything or not."""
        if self._task is not None:
            await self._looked.wait()

    async def stop(self) -> None:
        """End. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await task
        await self.database.close()
        if self._copy is not None:
            await self._copy.close()

    async def _run(self, wanted: Callable[[], bool], adopt: Adopt) -> None:
        while not self._stopping.is_set():
            if wanted():
                await self._look(adopt)
            self._looked.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._stopping.wait()

    async def _look(self, adopt: Adopt) -> None:
        try:
            found = await self._newer()
            self._take(found, adopt)
            if self._lost:
                self._lost = False
                self._log.info("keys_found_again", version=found.version)
            self._metrics.reachable(True)
        except (StoreUnavailable, TimeoutError) as error:
            await self._without(str(error) or where(error), adopt)
        except Exception as error:
            await self._without(where(error), adopt)
        else:
            await self._keep_copy(found)

    async def _newer(self) -> Snapshot:
        known = self.known or NOTHING
        if self.database.path is not None:
            # A statement that is given up costs SQLite its thread, and a file answers.
            return await newer(self.database, known)
        async with asyncio.timeout(LOST_SECONDS):
            return await newer(self.database, known)

    def _take(self, found: Snapshot, adopt: Adopt) -> None:
        if found is self.known:
            return
        for id in found.unreadable:
            self._log.error("key_unreadable", id=id)
        adopt(found)
        self.known = found
        self._metrics.known(len(found.callers), len(found.keys))
        if found is not NOTHING:
            self._log.info(
                "keys_changed", version=found.version, callers=len(found.callers), keys=len(found.keys)
            )

    async def _without(self, reason: str, adopt: Adopt) -> None:
        """The database is away: what is known goes on, or else what it was when it was there last."""
        self._metrics.reachable(False)
        if not self._lost:
            self._lost = True
            self._log.error("keys_lost", reason=reason)
        if self.known is None and self._copy is not None and self._copy.exists:
            try:
                found = await newer(self._copy, NOTHING)
                self._take(found, adopt)
            except Exception as error:
                self._log.error("keys_copy_failed", reason=where(error))
            else:
                self._log.warning("keys_of_copy", version=found.version)

    async def _keep_copy(self, found: Snapshot) -> None:
        if self._copy is None or (found.store, found.version) == self._copied:
            return
        try:
            await copy(self.database, self._copy, _COPY_SECONDS)
        except (StoreUnavailable, TimeoutError) as error:
            if not self._copy_failed:
                self._copy_failed = True
                self._log.error("keys_copy_failed", reason=str(error) or where(error))
        else:
            self._copy_failed = False
            self._copied = found.store, found.version
            self._log.info("keys_copied", version=found.version)
