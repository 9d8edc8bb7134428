"""The writes to the store: events, a live reply, a new background response."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.responses.entry import Claim, Run, Status


@dataclass(frozen=True, slots=True)
class Final:
    """How a response ended: the object that is shown from now on, JSON, and the ids of the items in it."""

    status: Status
    response: bytes
    item_ids: Sequence[str] = ()
    event_bytes: int = 0
    """Of all its events, but for the first two."""


@dataclass(slots=True)
class Append:
    """Events of a background response, and its end where this is the last of them."""

    claim: Claim
    run: Run | None
    final: Final | None = None

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def size(self) -> int:
        """Bytes."""
        return _size(b"", b"" if self.final is None else self.final.response, self.run)


@dataclass(slots=True)
class LiveReply:
    """A response whose reply went to its client live, written as a whole once it has ended."""

    row: dict[str, Any]
    request: bytes
    item_ids: Sequence[str]
    """Of its input."""
    run: Run | None
    final: Final

    @property
    def id(self) -> str:
        id: str = self.row["id"]
        return id

    @property
    def size(self) -> int:
        """Bytes."""
        return _size(self.request, self.final.response, self.run)


@dataclass(slots=True)
class Begin:
    """A background response that is put into the queue, where that has room: `max_queued` responses and
    `max_bytes` may wait in it.
    """

    row: dict[str, Any]
    request: bytes
    response: bytes
    item_ids: Sequence[str]
    """Of its input."""
    run: Run
    max_queued: int
    max_bytes: int
    final: None = None

    @property
    def id(self) -> str:
        id: str = self.row["id"]
        return id

    @property
    def size(self) -> int:
        """Bytes."""
        return _size(self.request, self.response, self.run)


Write = Append | LiveReply | Begin


def _size(request: bytes, response: bytes, run: Run | None) -> int:
    return len(request) + len(response) + (0 if run is None else len(run.data))
