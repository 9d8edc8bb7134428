"""Running background responses: so many at once in each process, from a queue that all share."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sluicegate.config import StoreConfig
from sluicegate.responses.entry import Claim, Entry, Status, Work
from sluicegate.responses.errors import Fenced, NotFound
from sluicegate.responses.job import Execute, Failure, Job
from sluicegate.responses.leases import MAX_ATTEMPTS, Leases
from sluicegate.responses.repository import Repository, Stored
from sluicegate.responses.settling import Settling
from sluicegate.responses.upkeep import Upkeep
from sluicegate.responses.writer import Writer
from sluicegate.storage import Database, StoreError, Unstorable

# How often it is asked whether another process left something in the queue. What is created here is begun
# here at once, where there is room.
QUEUE_POLL_SECONDS = 0.5

# How soon a cancellation through another process is noticed.
HELD_POLL_SECONDS = 0.1

# Renewals that may fail before a lease is lost.
_RENEWALS = 3

_RETRY_SECONDS = 1.0

INTERRUPTED = Failure("The process that ran this response ended before it did.")
OVERDUE = Failure("The response waited too long to be run.")


class Runner:
    """The background responses of one process. Everything is for the event loop's thread."""

    def __init__(
        self,
        config: StoreConfig,
        database: Database,
        repository: Repository,
        leases: Leases,
        writer: Writer,
        settling: Settling,
        upkeep: Upkeep,
        report: Callable[[str, Exception], None],
    ) -> None:
        self._config = config
        self._database = database
        self._repository = repository
        self._leases = leases
        self._writer = writer
        self._settling = settling
        self._upkeep = upkeep
        self._report = report
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._stopping = False
        self._stopped = asyncio.Event()
        self.changed: Callable[[str], None] = lambda id: None
        """Called with each response that begins to run here, or runs here no more."""

    @property
    def running(self) -> int:
        return len(self._jobs)

    def runs(self, id: str) -> bool:
        """Whether this process runs that response."""
        return id in self._jobs

    def start(self, execute: Execute) -> None:
        """Begin to take work on."""
        lease = self._config.lease_seconds / _RENEWALS
        self._loops = [
            self._forever("queue", partial(self._dispatch, execute), 0.0),
            self._forever("held", self._notice_lost, HELD_POLL_SECONDS),
            self._forever("renew", self._renew, lease),
            self._forever("recover", self.recover, lease),
            self._forever("upkeep", self._tidy, self._upkeep.interval),
        ]

    def wake(self) -> None:
        """There is something new in the queue."""
        self._wake.set()

    def lose(self, id: str) -> None:
        """A response was cancelled or deleted: stop what runs for it."""
        job = self._jobs.get(id)
        if job is not None:
            job.lose()

    async def drain(self, seconds: float) -> None:
        """Take nothing more on; what still runs after `seconds` is put back into the queue, or fails."""
        self._stopping = True
        self._wake.set()
        deadline = time.monotonic() + seconds
        while self._jobs and time.monotonic() < deadline:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), deadline - time.monotonic())
        for job in list(self._jobs.values()):
            job.interrupt()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._config.lease_seconds)
        # Nothing is cancelled in the middle of a statement: its connection would be lost.
        self._stopped.set()
        await asyncio.gather(*self._loops, *self._tasks, return_exceptions=True)

    def _forever(
        self, name: str, step: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> asyncio.Task[None]:
        async def repeat() -> None:
            while not self._stopped.is_set():
                pause = seconds
                try:
                    await step()
                except StoreError:
                    # Reported where it happened.
                    pause += _RETRY_SECONDS
                except Exception as error:
                    self._report(name, error)
                    pause += _RETRY_SECONDS
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause)

        return asyncio.get_running_loop().create_task(repeat())

    # === the queue ===

    async def _dispatch(self, execute: Execute) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), QUEUE_POLL_SECONDS)
        if self._stopping:
            await self._stopped.wait()
            return
        self._wake.clear()
        room = self._config.concurrency - len(self._jobs)
        if room <= 0 or not self._database.exists or not await self._leases.any_queued():
            return
        works = await self._leases.claim(room)
        for work in works:
            self._begin(work, execute)
        if works:
            # Others may have taken some of what was chosen: there may be more.
            self._wake.set()

    def _begin(self, work: Work, execute: Execute) -> None:
        job = Job(
            work,
            self._writer,
            max_bytes=self._config.max_response_bytes,
            patience=self._config.lease_seconds,
        )
        self._jobs[work.entry.id] = job
        self.changed(work.entry.id)
        task = asyncio.get_running_loop().create_task(self._run(job, execute))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: Job, execute: Execute) -> None:
        id = job.work.entry.id
        try:
            try:
                await job.run(execute)
            except StoreError:
                return
            except Exception as error:
                self._report("run", error)
                job.failure = Failure("The gateway failed to run the response.")
            if job.failure is not None and not job.lost:
                await self._fail(job, job.failure)
        except StoreError:
            return
        finally:
            if self._jobs.get(id) is job:
                del self._jobs[id]
                self.changed(id)
            self._idle.set()
            self._wake.set()

    async def _fail(self, job: Job, failure: Failure) -> None:
        work = job.work
        if failure.after is not None:
            await self._leases.release([work.claim], delay=failure.after, ran=False)
            return
        attempts = work.entry.attempts
        allowed = (
            MAX_ATTEMPTS - 1 if job.interrupted and self._config.rerun_interrupted else self._config.retries
        )
        if failure.again and not job.has_output and attempts <= allowed:
            delay = 0.0 if job.interrupted else min(2.0 ** (attempts - 1), 60.0)
            await self._leases.release([work.claim], delay=delay)
            return
        stored = await self._repository.stored(work.entry.id, work.entry.owner)
        await self._settling.settle(stored, work.claim, "failed", (failure.code, failure.message))

    # === leases ===

    async def _renew(self) -> None:
        if self._jobs:
            await self._leases.renew([job.work.claim for job in self._jobs.values()])

    async def _notice_lost(self) -> None:
        if not self._jobs:
            return
        jobs = list(self._jobs.values())
        held = await self._leases.held()
        for job in jobs:
            # One whose end has just been kept is not held any more, and has not lost anything.
            if job.work.claim not in held and not job.ending:
                job.lose()

    # === what others left behind ===

    async def recover(self) -> None:
        """Settle, or put back into the queue, what nobody works on any more."""
        if not self._database.exists:
            return
        now = time.time()
        for entry in await self._leases.abandoned(now - self._config.queue_seconds):
            try:
                await self._recover(entry)
            except (Fenced, NotFound, Unstorable):
                continue
            except StoreError:
                raise
            except Exception as error:
                # Whatever is wrong with this one, the others need not wait for it.
                self._report("recover", error)

    async def _recover(self, entry: Entry) -> None:
        claim = await self._leases.seize(entry)
        if entry.status == "queued":
            await self._settle(entry, claim, "failed", OVERDUE)
        elif entry.cancelling:
            await self._settle(entry, claim, "cancelled", None)
        elif (
            self._config.rerun_interrupted
            and entry.attempts < MAX_ATTEMPTS
            and not await self._leases.has_output(entry.id)
        ):
            await self._leases.release([claim])
            self._wake.set()
        else:
            await self._settle(entry, claim, "failed", INTERRUPTED)

    async def _settle(self, entry: Entry, claim: Claim, status: Status, failure: Failure | None) -> None:
        stored: Stored = await self._repository.stored(entry.id, entry.owner)
        error = None if failure is None else (failure.code, failure.message)
        await self._settling.settle(stored, claim, status, error)

    async def _tidy(self) -> None:
        if self._database.exists:
            await self._upkeep.tidy()
