"""Reading a response's current state, and ending responses that no upstream ended."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from sluicegate._core import ResponseFold, item_ids
from sluicegate.offload import offload
from sluicegate.responses.entry import Claim, Entry, Run, Status
from sluicegate.responses.repository import Repository, Stored
from sluicegate.responses.writer import Writer
from sluicegate.responses.writes import Append, Final

# Folds that are kept for the next look: whoever polls a long response does not fold all of it each time.
_KEPT_FOLDS = 64
_KEPT_BYTES = 64 * 1024**2


class _Kept:
    """The fold of a response, kept for the next look."""

    __slots__ = ("_fold", "following", "held", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by whoever looks: the next one takes in what has come since, and none waits for the fold."""
        self.following = 0
        """The number of the first event that is not in it."""
        self.held = 0
        """Bytes of what it is made of."""
        self._fold: ResponseFold | None = None

    def shown(self, response: bytes, max_bytes: int, runs: Sequence[Run], status: Status) -> bytes:
        """The response with these events, too. For any thread, in turn."""
        fold = self._fold
        if fold is None:
            fold = self._fold = ResponseFold(response, max_bytes)
        for run in runs:
            fold.take(run.data)
        self.following, self.held = fold.following, fold.held
        return fold.response(status)


class Settling:
    """Neither can fail for what an upstream has sent: any events have a fold, and any fold has an end."""

    def __init__(self, repository: Repository, writer: Writer, max_bytes: int) -> None:
        self._repository = repository
        self._writer = writer
        self._max_bytes = max_bytes
        self._folds: OrderedDict[str, _Kept] = OrderedDict()

    async def shown(self, stored: Stored) -> bytes:
        """The Response object as it stands, JSON. Raises `StoreUnavailable`."""
        entry = stored.entry
        if entry.ended:
            self._folds.pop(entry.id, None)
            return stored.response
        return await self._look(entry, stored.response)

    async def _look(self, entry: Entry, response: bytes) -> bytes:
        kept = self._folds.setdefault(entry.id, _Kept())
        self._folds.move_to_end(entry.id)
        async with kept.turn:
            runs = await self._repository.events(entry.id, kept.following - 1)
            size = max(kept.held, len(response)) + _size(runs)
            shown = await offload(size, kept.shown, response, self._max_bytes, runs, entry.status)
        self._forget_old()
        return shown

    def _forget_old(self) -> None:
        while len(self._folds) > 1 and (
            len(self._folds) > _KEPT_FOLDS or sum(kept.held for kept in self._folds.values()) > _KEPT_BYTES
        ):
            self._folds.popitem(last=False)

    async def settle(
        self, stored: Stored, claim: Claim, status: Status, error: tuple[str, str] | None = None
    ) -> None:
        """End a response here, as failed with `error` (its code and message) or, without one, as cancelled,
        with what has been kept of it. Raises `Fenced` and `StoreUnavailable`.
        """
        runs = await self._repository.events(claim.id)
        size = len(stored.response) + _size(runs)
        run, final = await offload(size, self._end, stored.response, runs, status, error)
        await self._writer.write(Append(claim, run, final))

    def _end(
        self, response: bytes, runs: Sequence[Run], status: Status, error: tuple[str, str] | None
    ) -> tuple[Run, Final]:
        """The last events of a response with these, and how it has ended. For any thread."""
        fold = ResponseFold(response, self._max_bytes)
        for run in runs:
            fold.take(run.data)
        data, ended, following = fold.end(error)
        final = Final(status, ended, item_ids(("", b"", ended)), event_bytes=_size(runs) + len(data))
        return Run(fold.following, following - 1, data), final


def _size(runs: Sequence[Run]) -> int:
    return sum(len(run.data) for run in runs)
