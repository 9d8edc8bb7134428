"""The data types of stored responses that the package's modules exchange."""

from dataclasses import dataclass
from typing import Literal

from sluicegate._core import skip_events
from sluicegate.offload import offload

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

ENDED: frozenset[str] = frozenset({"completed", "incomplete", "failed", "cancelled"})

DELETED = "deleted"
"""The status of a tombstone: the response was deleted, and its row is kept so that its id stays known."""

# `response.created`, `response.queued`, `response.in_progress`: what a background response has before output.
PREAMBLE_EVENTS = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A response's row in the store. Times are Unix seconds."""

    id: str
    owner: str
    model: str
    status: Status
    background: bool
    previous_id: str | None
    request_id: str
    created_at: float
    attempts: int
    fence: int
    cancelling: bool
    key_id: str | None
    """Of the key that it was asked for with; None for those of before this was kept."""
    user_id: str | None
    """Who of the people behind the caller asked for it, where a header tells them apart."""
    deadline: float | None
    """When its client does not want it any more; None: the client has not said."""
    bytes: int
    """Of all that is kept of it; of one that has not ended, of what it began with."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a background response, for as long as its fence is the highest."""

    id: str
    fence: int


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed background response, and all that is needed to run it."""

    entry: Entry
    claim: Claim
    request: bytes
    """The client's body."""
    response: bytes
    """The Response object as it was made, JSON."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive events, as they are sent."""

    first: int
    last: int
    data: bytes

    async def after(self, number: int) -> bytes:
        """The events with a number greater than `number`."""
        if number < self.first:
            return self.data
        return await offload(len(self.data), skip_events, self.data, number + 1 - self.first)


@dataclass(frozen=True, slots=True)
class Page:
    """What a client asks of a list."""

    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    limit: int = 20
