"""Looking at responses as they stand, and ending those that no upstream ended."""

import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from sluicegate.responses import objects
from sluicegate.responses.entry import Claim, Status
from sluicegate.responses.numbering import Run, payloads, tail
from sluicegate.responses.repository import Repository, Stored
from sluicegate.responses.snapshot import Snapshot
from sluicegate.responses.writer import Writer
from sluicegate.responses.writes import Append, Final, item_ids

# Snapshots that are kept for the next look: whoever polls a long response does not fold all of it each time.
_KEPT_SNAPSHOTS = 64


class Settling:
    def __init__(self, repository: Repository, writer: Writer) -> None:
        self._repository = repository
        self._writer = writer
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()

    async def shown(self, stored: Stored) -> bytes:
        """The Response object as it stands, JSON. Raises `StoreUnavailable`."""
        entry = stored.entry
        if entry.ended:
            self._snapshots.pop(entry.id, None)
            return stored.response
        snapshot = await self._snapshot(entry.id, stored.response)
        return objects.dump(snapshot.response(entry.status)).encode()

    async def _snapshot(self, id: str, response: bytes) -> Snapshot:
        snapshot = self._snapshots.get(id)
        if snapshot is None:
            snapshot = self._snapshots[id] = Snapshot(json.loads(response))
        self._snapshots.move_to_end(id)
        while len(self._snapshots) > _KEPT_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        after = snapshot.following - 1
        for run in await self._repository.events(id, after):
            # Somebody else who looks may have been faster.
            data = tail(run, snapshot.following - 1)
            snapshot.take(payloads(data))
        return snapshot

    async def settle(
        self, stored: Stored, claim: Claim, status: Status, error: Mapping[str, Any] | None = None
    ) -> None:
        """End a response here, with what has been kept of it. Raises `Fenced` and `StoreUnavailable`."""
        snapshot = Snapshot(json.loads(stored.response))
        size = 0
        for run in await self._repository.events(claim.id):
            snapshot.take(payloads(run.data))
            size += len(run.data)
        first = snapshot.following
        data, response = snapshot.ending(status, error, time.time())
        final = Final(
            status,
            objects.dump(response).encode(),
            item_ids(response["output"]),
            event_bytes=size + len(data),
        )
        await self._writer.write(Append(claim, Run(first, snapshot.following - 1, data), final))
