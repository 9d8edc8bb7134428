"""Reading a response's current state, and ending responses that no upstream ended."""

from collections import OrderedDict

from sluicegate._core import ResponseFold, item_ids
from sluicegate.responses.entry import Claim, Run, Status
from sluicegate.responses.repository import Repository, Stored
from sluicegate.responses.writer import Writer
from sluicegate.responses.writes import Append, Final

# Folds that are kept for the next look: whoever polls a long response does not fold all of it each time.
_KEPT_FOLDS = 64
_KEPT_BYTES = 64 * 1024**2


class Settling:
    """Neither can fail for what an upstream has sent: any events have a fold, and any fold has an end."""

    def __init__(self, repository: Repository, writer: Writer, max_bytes: int) -> None:
        self._repository = repository
        self._writer = writer
        self._max_bytes = max_bytes
        self._folds: OrderedDict[str, ResponseFold] = OrderedDict()

    async def shown(self, stored: Stored) -> bytes:
        """The Response object as it stands, JSON. Raises `StoreUnavailable`."""
        entry = stored.entry
        if entry.ended:
            self._folds.pop(entry.id, None)
            return stored.response
        fold = await self._fold(entry.id, stored.response)
        return fold.response(entry.status)

    async def _fold(self, id: str, response: bytes) -> ResponseFold:
        fold = self._folds.get(id)
        if fold is None:
            fold = self._folds[id] = ResponseFold(response, self._max_bytes)
        self._folds.move_to_end(id)
        # Somebody else who looks may be faster: what was taken is not taken again.
        for run in await self._repository.events(id, fold.following - 1):
            fold.take(run.data)
        while len(self._folds) > 1 and (
            len(self._folds) > _KEPT_FOLDS or sum(kept.held for kept in self._folds.values()) > _KEPT_BYTES
        ):
            self._folds.popitem(last=False)
        return fold

    async def settle(
        self, stored: Stored, claim: Claim, status: Status, error: tuple[str, str] | None = None
    ) -> None:
        """End a response here, as failed with `error` (its code and message) or, without one, as cancelled,
        with what has been kept of it. Raises `Fenced` and `StoreUnavailable`.
        """
        fold = ResponseFold(stored.response, self._max_bytes)
        size = 0
        for run in await self._repository.events(claim.id):
            fold.take(run.data)
            size += len(run.data)
        data, response, following = fold.end(error)
        ids = item_ids(("", b"", response))
        final = Final(status, response, ids, event_bytes=size + len(data))
        await self._writer.write(Append(claim, Run(fold.following, following - 1, data), final))
