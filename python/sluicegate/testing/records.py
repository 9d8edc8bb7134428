"""What a scripted upstream has seen: each request, and how its reply went. Safe to read from any thread."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sluicegate.testing.connection import HttpRequest
from sluicegate.testing.script import Script

# Tests that wait without a bound hang; the waits here always have one.
WAIT_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class Record:
    """One request. Times are `time.monotonic()` seconds.

    `connection` counts the upstream's connections from 1, `reused` tells whether this one had served a
    request before. `events_sent` counts the events (with data) written so far, a document is one;
    `bytes_sent` all bytes of the reply, head included. A write counts once the transport has taken it: what
    the client has read may be less, by what the kernel's buffers hold.
    """

    number: int
    """Counted from 1."""
    connection: int
    reused: bool
    request: HttpRequest
    script: Script
    received_at: float = field(default_factory=time.monotonic)
    status: int | None = None
    """None until the head was written."""
    events_sent: int = 0
    keepalives_sent: int = 0
    bytes_sent: int = 0
    complete: bool = False
    """Whether the reply was written to its end, as scripted."""
    ended_at: float | None = None
    """When the reply was complete, a fault ended it, or the client left."""
    client_left_at: float | None = None
    """When the client was seen to close its connection before the reply was complete; None: it was not."""
    _ended: "Future[None]" = field(default_factory=Future, repr=False)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        return self.request.target.partition("?")[0]

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """As they came, in their order."""
        return self.request.headers

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        return self.request.header(name)

    @property
    def body(self) -> bytes:
        return self.request.body

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        return json.loads(self.body)

    @property
    def client_left(self) -> bool:
        return self.client_left_at is not None

    async def ended(self, seconds: float = WAIT_SECONDS) -> "Record":
        """Wait until the exchange is over, however it ended; the record itself. Raises TimeoutError."""
        await _wait(self._ended, seconds)
        return self

    def wait_ended(self, seconds: float = WAIT_SECONDS) -> "Record":
        """`ended` for code without an event loop."""
        self._ended.result(seconds)
        return self

    def end(self, *, complete: bool = False, client_left: bool = False) -> None:
        """The exchange is over. Only the first call counts."""
        if self.ended_at is None:
            self.ended_at = time.monotonic()
            self.complete = complete
            self.client_left_at = self.ended_at if client_left else None
            self._ended.set_result(None)


class Records:
    """All requests so far, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._waiting: list[tuple[int, Future[None]]] = []

    def add(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)
            ready = [future for count, future in self._waiting if count <= len(self._records)]
            self._waiting = [pair for pair in self._waiting if pair[0] > len(self._records)]
        for future in ready:
            future.set_result(None)

    def clear(self) -> None:
        """Forget them. Waits count from here."""
        with self._lock:
            self._records.clear()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._records))

    def __getitem__(self, index: int) -> Record:
        return self._records[index]

    async def wait(self, count: int = 1, seconds: float = WAIT_SECONDS) -> Record:
        """Wait until there are `count` requests; the last of those. Raises TimeoutError."""
        await _wait(self._reached(count), seconds)
        return self._records[count - 1]

    def wait_sync(self, count: int = 1, seconds: float = WAIT_SECONDS) -> Record:
        """`wait` for code without an event loop."""
        self._reached(count).result(seconds)
        return self._records[count - 1]

    def _reached(self, count: int) -> "Future[None]":
        future: Future[None] = Future()
        with self._lock:
            if len(self._records) < count:
                self._waiting.append((count, future))
                return future
        future.set_result(None)
        return future


async def _wait(future: "Future[None]", seconds: float) -> None:
    # Shielded: a wait that is given up must not cancel the future that others wait for.
    async with asyncio.timeout(seconds):
        await asyncio.shield(asyncio.wrap_future(future))
