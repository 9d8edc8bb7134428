"""Stored and background responses of one process: what the gateway calls."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from sqlalchemy.engine import Connection

from sluicegate._core import (
    ResponseNumbering,
    ResponsesRequest,
    find_items,
    first_events,
    item_ids,
    list_items,
    queued_response,
    read_response,
    repeated_items,
    unfold_response,
)
from sluicegate.config import StoreConfig
from sluicegate.offload import offload
from sluicegate.responses.entry import Entry, Page, Run
from sluicegate.responses.errors import (
    Fenced,
    NotFinished,
    NotFound,
    QueueFull,
    StoreBusy,
    TooLong,
)
from sluicegate.responses.following import Following
from sluicegate.responses.job import Execute
from sluicegate.responses.leases import Leases
from sluicegate.responses.loading import Hold, Loading
from sluicegate.responses.place import store_place
from sluicegate.responses.repository import Backlog, Chain, Holders, Repository
from sluicegate.responses.runner import Runner
from sluicegate.responses.schema import bring_up, is_key
from sluicegate.responses.settling import Settling
from sluicegate.responses.upkeep import Upkeep
from sluicegate.responses.writer import Writer
from sluicegate.responses.writes import Append, Begin, Final, LiveReply, Write
from sluicegate.storage import Database, StoreError, StoreUnavailable
from sluicegate.telemetry import Log, StoredMetrics, where

# A live response is kept when it has ended, which its client may learn a moment before another process does.
_MOMENT_SECONDS = 0.5
_LOOK_AGAIN_SECONDS = 0.03
"""For the first time; each next pause is twice as long."""

# How long a lookup waits for what was being kept when it came, where the store is slow.
_KEEPING_SECONDS = 5.0

# A failing store fails with every request: that is said once in this time, and counted each time.
_COMPLAINT_SECONDS = 10.0

_NOT_KEPT = {
    "too_large": "a live reply was larger than responses.max_response_bytes",
    "no_room": "the live replies under way took as many bytes as responses.max_waiting_bytes",
}

_T = TypeVar("_T")


class ResponseStore:
    """Everything is for the event loop's thread. Nothing is opened before it is used."""

    def __init__(
        self,
        config: StoreConfig,
        models: Collection[str],
        metrics: StoredMetrics,
        log: Log,
        *,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        """`owners`: by the names that a store of the first version has for them."""
        self._config = config
        self._metrics = metrics
        self._log = log
        self._complained = -_COMPLAINT_SECONDS
        self._storing: set[asyncio.Task[None]] = set()
        self._owners = owners or {}
        database = self._database = Database(
            store_place(config), lambda connection: bring_up(connection, self._owners)
        )
        database.on_failure = self._failed
        self._repository = Repository(database, config.retention_seconds)
        self._writer = Writer(database, config.retention_seconds, config.max_waiting_bytes)
        self._leases = Leases(database, config.lease_seconds, models)
        self._settling = Settling(self._repository, self._writer, config.max_response_bytes)
        self._runner = Runner(
            config,
            database,
            self._repository,
            self._leases,
            self._writer,
            self._settling,
            Upkeep(config, database, self._evicted),
            self._broke,
        )
        self._loading = Loading(config.max_loaded_bytes)
        self._following = Following(database, self._repository, self._loading, self._runner.runs)
        self._runner.changed = self._following.look
        self._writer.published = self._published
        self._writer.lost = self._lost
        self._started = False
        self._closed = False

    def _bring_up(self, connection: Connection) -> None:
        bring_up(connection, self._owners)

    @property
    def enabled(self) -> bool:
        return self._config.store

    # === life cycle ===

    def start(self, execute: Execute) -> None:
        """Begin to run background responses, by `execute`."""
        if self.enabled and not self._started:
            self._started = True
            self._runner.start(execute)

    def serve(self, models: Iterable[str], owners: Mapping[str, str]) -> None:
        """Run background responses of these models, of a configuration with these owners, from now on."""
        self._owners = owners
        self._leases.models = list(models)
        self._runner.wake()

    async def drain(self, seconds: float) -> None:
        """Take nothing more on; returns when nothing runs any more, soon after `seconds` at the latest."""
        if self._started:
            self._started = False
            await self._runner.drain(seconds)
            await self._following.close()

    async def close(self) -> None:
        """Write what is still waiting, and close the store. Idempotent."""
        await self.drain(0)
        self._closed = True
        if self._storing:
            await asyncio.wait(self._storing, timeout=self._config.lease_seconds)
        await self._following.close()
        await self._writer.close()
        await self._database.close()

    # === making ===

    async def create(
        self,
        *,
        owner: str,
        model: str,
        request_id: str,
        request: ResponsesRequest,
        shown_model: str,
        key_id: str | None = None,
        user_id: str | None = None,
        seconds: float | None = None,
    ) -> tuple[str, bytes]:
        """Take a background response on: its id and its object. Raises `QueueFull` and `StoreUnavailable`.

        `request` is what shall be run; `shown_model` is what replies call the model. `key_id` and `user_id`:
        see `Entry`; `seconds`: how long the client wants to wait for its end.
        """
        # 128 random bits: an id cannot be guessed.
        id = f"resp_{secrets.token_hex(16)}"
        now = time.time()
        row = {
            "id": id,
            "owner": owner,
            "model": model,
            "previous_id": request.previous_response_id,
            "request_id": request_id,
            "created_at": now,
            "key_id": key_id,
            "user_id": user_id,
            "deadline": None if seconds is None else now + seconds,
        }
        made = partial(_begin, row, request, shown_model, self._config)
        beginning = await offload(request.size, made)
        try:
            await self._writer.write(beginning)
        except QueueFull:
            self._metrics.refused("queue_full")
            raise
        except StoreBusy:
            self._metrics.refused("store_busy")
            raise
        except StoreUnavailable:
            self._metrics.refused("store_failed")
            raise
        self._runner.wake()
        return id, beginning.response

    def store_live_reply(
        self, *, owner: str, model: str, request_id: str, request: bytes, reply: bytes, streamed: bool
    ) -> None:
        """Store the response of a live request: `reply` is all that the client was sent.

        Returns at once; the response is written in the background. If that fails, or too much waits to be
        written already, the failure is counted and the response is not stored. The client has its reply.
        """
        # It is written as its events and as its object.
        size = len(request) + 2 * len(reply)
        try:
            self._writer.reserve(size)
        except StoreBusy as error:
            self._failed("keep", error)
            return
        # Rows that are written together have the same columns.
        row = {
            "owner": owner,
            "model": model,
            "request_id": request_id,
            "created_at": time.time(),
            "key_id": None,
            "user_id": None,
            "deadline": None,
        }
        read = offload(size, _live_reply, row, request, reply, streamed)
        task = asyncio.get_running_loop().create_task(self._store_live_reply(request_id, read, size))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    def note_not_kept(self, reason: Literal["too_large", "no_room"]) -> None:
        """There is no copy of a live reply that was to be stored, for that reason."""
        self._failed("keep", StoreError(_NOT_KEPT[reason]))

    async def _store_live_reply(
        self, request_id: str, read: Awaitable[LiveReply | None], reserved: int
    ) -> None:
        try:
            try:
                write = await read
            finally:
                # It is needed no more: what is written has room of its own, and nothing comes in between.
                self._writer.release(reserved)
            if write is None:
                return
            if not write.id or not is_key(write.id):
                self._not_stored(write.id, request_id, "its id is no text, or too long")
                return
            await self._writer.write(write)
        except StoreBusy as error:
            self._failed("keep", error)
        except StoreError:
            return
        except Exception as error:
            self._broke("keep", error)

    # === looking ===

    def hold(self, owner: str) -> Hold:
        """What one request of `owner` loads, until its end: `with store.hold(owner) as hold`.

        What is given `hold` raises `LoadingBusy`, which is a `StoreUnavailable`, where as much is loaded as
        may be. What it returns is to be dropped when the hold ends.
        """
        return self._loading.hold(owner)

    async def response(self, id: str, owner: str, hold: Hold) -> bytes:
        """The Response object as it stands, JSON. Raises `NotFound` and `StoreUnavailable`."""
        sizes = await self._soon(id, lambda: self._repository.sizes(id, owner))
        await hold.take(sizes.response + sizes.events)
        return await self._settling.shown(await self._repository.stored(id, owner))

    async def follow(self, id: str, owner: str, after: int) -> AsyncIterator[bytes]:
        """The events after number `after`, to the end. Raises `NotFound` and `StoreUnavailable`.

        Those of a response that was not streamed are made from its object.
        """
        return self._follow(await self._soon(id, lambda: self._repository.entry(id, owner)), after)

    async def _follow(self, entry: Entry, after: int) -> AsyncIterator[bytes]:
        id, owner = entry.id, entry.owner
        if entry.ended and not entry.background and not await self._repository.has_events(id):
            with self._loading.hold(owner) as hold:
                response = await self.response(id, owner, hold)
                run = await offload(len(response), _unfolded, response)
                del response
                yield await run.after(after)
            return
        async with contextlib.aclosing(self._following.follow(id, owner, after)) as events:
            async for data in events:
                yield data

    async def input_items(self, id: str, owner: str, page: Page, hold: Hold) -> bytes | None:
        """A page of the items that a response was made from, JSON; None where `page.after` is none of them.

        Raises `NotFound` and `StoreUnavailable`.
        """
        sizes = await self._soon(id, lambda: self._repository.sizes(id, owner))
        ids, size = [id], sizes.request
        if sizes.previous_id is not None:
            with contextlib.suppress(NotFound, NotFinished, TooLong):
                earlier = await self._repository.chain(sizes.previous_id, owner)
                ids, size = [*earlier.ids, id], earlier.size + size
        await hold.take(size)
        load = partial(self._repository.turns, ids, owner, asked=id)
        turns = await hold.load(("turns", id), lambda: self._database.undisturbed(load()))
        ascending = page.order == "asc"
        return await offload(size, list_items, turns, ascending, page.after, page.limit)

    async def conversation(self, previous_id: str, owner: str) -> Chain:
        """The turns up to and with that response; they are kept on as if they were new.

        Raises `NotFound`, with the id of what is missing, `NotFinished`, `TooLong` and `StoreUnavailable`.
        """
        chain = await self._soon(previous_id, lambda: self._repository.chain(previous_id, owner))
        with contextlib.suppress(StoreUnavailable):
            await self._repository.touch(chain.ids)
        return chain

    async def context(self, chain: Chain, owner: str, hold: Hold) -> bytes:
        """The items of a conversation, as they are sent to an upstream: JSON with commas in between.

        `hold` has room for `chain.size`. Raises `NotFound`, with the id of what is missing, and
        `StoreUnavailable`.
        """
        return await hold.load(("context", chain.ids[-1]), partial(self._repeated, chain, owner))

    async def _repeated(self, chain: Chain, owner: str) -> bytes:
        turns = await self._database.undisturbed(self._repository.turns(chain.ids, owner))
        if len(turns) < len(chain.ids):
            # Deleted meanwhile.
            raise NotFound(min(set(chain.ids) - {id for id, _, _ in turns}), known=True)
        return await offload(chain.size, repeated_items, turns)

    async def holders(self, item_ids: Iterable[str], owner: str) -> Holders:
        """The responses that have the items which `item_reference`s mean. All are waited for together.

        Raises `TooLong` and `StoreUnavailable`.
        """
        wanted = set(filter(is_key, item_ids))
        found = Holders({}, 0)

        async def look() -> None:
            nonlocal found
            found = await self._repository.holders(wanted, owner)
            if missing := wanted.difference(*found.by_response.values()):
                raise NotFound(min(missing))

        if wanted:
            with contextlib.suppress(NotFound):
                await self._soon(min(wanted), look)
        return found

    async def items(self, holders: Holders, owner: str) -> dict[str, bytes]:
        """The items of `holders`, JSON, by their ids, without those that were deleted meanwhile.

        A hold has room for `holders.size`. Each response is read once. Raises `StoreUnavailable`.
        """
        found: dict[str, bytes] = {}
        for id, ids in holders.by_response.items():
            for turn in await self._repository.turns([id], owner):
                found |= await offload(len(turn[1]) + len(turn[2]), find_items, turn, ids)
        return found

    async def any_item_of_another(self, item_ids: Iterable[str], owner: str) -> str | None:
        """One of these items that somebody else has; None where nobody is known to. Raises
        `StoreUnavailable`.
        """
        wanted = set(filter(is_key, item_ids))
        if not wanted or not self._database.exists:
            return None
        return await self._repository.any_item_of_another(wanted, owner)

    async def _soon(self, id: str, look: Callable[[], Awaitable[_T]]) -> _T:
        """What `look` finds, now or within a moment, or once all is kept that may be it."""
        if not is_key(id):
            raise NotFound(id)
        now = time.monotonic()
        moment, patience = now + _MOMENT_SECONDS, now + _KEEPING_SECONDS
        pause = _LOOK_AGAIN_SECONDS
        storing: set[asyncio.Task[None]] = set()
        while True:
            now = time.monotonic()
            if now < moment:
                # Whoever asks has seen its end: what begins to be kept later is something else.
                storing |= self._storing
            storing = {task for task in storing if not task.done()}
            # Looked at after that: what was kept meanwhile is found now.
            last = now >= (patience if storing else moment)
            try:
                if not self._database.exists and not self._storing:
                    # Nothing has been stored yet: asking would make the file.
                    raise NotFound(id)
                return await look()
            except NotFound:
                if last:
                    raise
            if storing:
                await asyncio.wait(storing, timeout=max(patience - time.monotonic(), 0))
            else:
                await asyncio.sleep(min(pause, max(moment - time.monotonic(), 0)))
                pause = min(2 * pause, _MOMENT_SECONDS / 2)

    async def backlog(self) -> None:
        """Bring the metrics of the queue up to date; after the end they stay as they were."""
        if not self.enabled or self._closed or not self._database.exists:
            return
        with contextlib.suppress(StoreUnavailable):
            found: Backlog = await self._repository.backlog()
            self._metrics.backlog(found.queued, found.running, found.oldest_seconds)

    # === ending ===

    async def cancel(self, id: str, owner: str, hold: Hold) -> tuple[Entry, bytes]:
        """Cancel a background response that has not ended; how it stands then.

        Raises `NotFound` and `StoreUnavailable`.
        """
        sizes = await self._soon(id, lambda: self._repository.sizes(id, owner))
        await hold.take(sizes.response + sizes.events)
        claim = await self._leases.cancel(id, owner)
        if claim is not None:
            self._runner.lose(id)
            stored = await self._repository.stored(id, owner)
            # Fenced: deleted meanwhile, or settled as cancelled by somebody else.
            with contextlib.suppress(Fenced):
                await self._settling.settle(stored, claim, "cancelled")
        stored = await self._repository.stored(id, owner)
        return stored.entry, await self._settling.shown(stored)

    async def delete(self, id: str, owner: str) -> None:
        """Raises `NotFound` and `StoreUnavailable`."""
        await self._soon(id, lambda: self._repository.delete(id, owner))
        self._runner.lose(id)

    # === what happens ===

    def _published(self, write: Write) -> None:
        self._following.published(write.id, write.run, write.final)
        if write.final is not None:
            self._metrics.ended("live" if isinstance(write, LiveReply) else "background", write.final.status)

    def _failed(self, operation: str, error: Exception) -> None:
        self._metrics.failed(operation)
        now = time.monotonic()
        if now - self._complained >= _COMPLAINT_SECONDS:
            self._complained = now
            self._log.warning("response_store_failed", operation=operation, reason=str(error)[:300])

    def _lost(self, write: Write, error: Exception) -> None:
        request_id = None if isinstance(write, Append) else write.row["request_id"]
        self._not_stored(write.id, request_id, str(error) or type(error).__name__)

    def _not_stored(self, id: str, request_id: str | None, reason: str) -> None:
        self._metrics.failed("unstorable")
        self._log.error(
            "response_not_stored", response_id=id[:128], request_id=request_id, reason=reason[:300]
        )

    def _evicted(self, owner: str, count: int, size: int) -> None:
        """Responses of `owner` had to go before their time, since more was kept than may be."""
        self._metrics.evicted(count)
        self._log.warning("responses_evicted", owner=owner, responses=count, bytes=size)

    def _broke(self, operation: str, error: Exception) -> None:
        self._metrics.failed(operation)
        self._log.error("response_store_broke", operation=operation, error=where(error))


def _begin(row: dict[str, Any], request: ResponsesRequest, shown_model: str, config: StoreConfig) -> Begin:
    """What begins a background response. For any thread."""
    id, body = row["id"], request.body
    response = queued_response(request, id, int(row["created_at"]), shown_model)
    run = Run(0, 1, first_events(response))
    return Begin(row, body, response, item_ids((id, body, b"")), run, config.max_queued, config.max_bytes)


def _live_reply(row: dict[str, Any], request: bytes, reply: bytes, streamed: bool) -> LiveReply | None:
    """What stores a live reply; None where it did not come to an end of its own. For any thread."""
    run: Run | None = None
    response = reply
    if streamed:
        numbering = ResponseNumbering(0, None)
        data = numbering.feed(reply)
        if numbering.ending is None:
            return None
        run = Run(0, numbering.following - 1, data)
        _, response = numbering.ending
    read = read_response(response)
    if read is None:
        return None
    id, status = read
    final = Final(status, response, item_ids((id, b"", response)))
    row = {**row, "id": id, "previous_id": ResponsesRequest(request).previous_response_id}
    return LiveReply(row, request, item_ids((id, request, b"")), run, final)


def _unfolded(response: bytes) -> Run:
    """The events of a response that came whole. For any thread."""
    numbering = ResponseNumbering(0, None)
    data = numbering.feed(unfold_response(response))
    return Run(0, numbering.following - 1, data)
