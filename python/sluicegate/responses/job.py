"""One background response while it runs: an ordinary exchange whose client is the store."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluicegate._core import ResponseNumbering, error_message, item_ids, unfold_response
from sluicegate.errors import LimitExceeded, ParseError
from sluicegate.offload import offload
from sluicegate.responses.entry import PREAMBLE_EVENTS, Run, Work
from sluicegate.responses.errors import Fenced
from sluicegate.responses.writer import Writer
from sluicegate.responses.writes import Append, Final
from sluicegate.storage import StoreUnavailable, Unstorable

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Execute = Callable[[Work, Receive, Send], Awaitable[None]]
"""Runs the exchange of a response as an ASGI application would; what it sends is kept.

Where the store does not wait for its end, the message of the disconnect has a `reason`: `cancelled`,
`interrupted` (the process stops) or `failed` (it cannot be kept).
"""

_ERROR_BODY_BYTES = 1024 * 1024
# What the gateway calls an error of its own.
_ERROR_HEADER = b"x-sluicegate-error"

# No time within which it may wait brings a budget back, or the time that its client has set.
_FINAL = frozenset({"budget_exceeded", "client_timeout"})
_WAITING = frozenset({"limit_exceeded", "keys_unavailable", "loading_busy"})

# Of an upstream's own words about a failure, which the response, its events and each look at it repeat.
_MESSAGE_CHARACTERS = 2000

# A message of this size tells that the upstream is faster than the store's batches; then so much is taken
# before it must wait.
_LARGE_BYTES = 4096
_AHEAD_BYTES = 512 * 1024
_FIRST_RETRY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange came to nothing. `code`: one of those of a Response's error; `again`: another attempt
    may help; `after`: it was not let run, and may be in so many seconds.
    """

    message: str
    code: str = "server_error"
    again: bool = False
    after: float | None = None


class Job:
    """The store's side of an exchange: `receive`, and a `send` that returns when what it was given is kept.

    Until then the relay collects what arrives, and past its bound reads no more: a slow disk slows the
    upstream, and nothing else.
    """

    _numbering: ResponseNumbering
    """Made when it runs. A thread may be in it: what others want to know is noted here after each step."""

    def __init__(self, work: Work, writer: Writer, *, max_bytes: int, patience: float) -> None:
        self.work = work
        self.lost = False
        """The response was cancelled, deleted or taken over: nothing more is written."""
        self.interrupted = False
        """The process stops."""
        self.done = False
        """Its end is committed."""
        self.failure: Failure | None = None
        self.ending = False
        """Its last event has come."""
        self._writer = writer
        self._max_bytes = max_bytes
        self._patience = patience
        self._stopped = asyncio.Event()
        self._following = PREAMBLE_EVENTS
        self._unread_bytes = 0
        """Of an event that is not whole: it is read all at once when it is."""
        self._stored_bytes = 0
        self._waiting: list[Run] = []
        self._waiting_bytes = 0
        self._unstorable = False
        """Events are missing: none may follow."""
        self._committing: asyncio.Task[None] | None = None
        self._status = 0
        self._streamed = False
        self._body = bytearray()
        self._code = b""
        """Of the gateway's own refusal."""
        self._retry_after = b""

    @property
    def has_output(self) -> bool:
        return self._following > PREAMBLE_EVENTS

    # === what others tell it ===

    def lose(self) -> None:
        """The response was cancelled, deleted or taken over. Idempotent."""
        self.lost = True
        self._stopped.set()

    def interrupt(self) -> None:
        """The process stops: end the exchange. Idempotent."""
        self.interrupted = True
        self._stopped.set()

    # === its run ===

    async def run(self, execute: Execute) -> None:
        """Returns once the exchange is over: with the response ended (`done`), `lost`, or a `failure`."""
        own = self.work.response
        made = partial(ResponseNumbering, PREAMBLE_EVENTS, own, max_event_bytes=self._max_bytes)
        self._numbering = await offload(len(own), made)
        await execute(self.work, self.receive, self.send)
        await self._all_committed()
        if self.done or self.lost or self.failure is not None:
            return
        if not self._streamed and self._status == 200:
            await self._take_document()
        if not (self.done or self.lost or self.failure):
            self.failure = self._why()

    async def receive(self) -> Message:
        await self._stopped.wait()
        return {"type": "http.disconnect", "reason": self._reason}

    @property
    def _reason(self) -> str | None:
        """Why the exchange is left before the end of the response; None: the end has come."""
        if self.lost:
            return "cancelled"
        if self.interrupted:
            return "interrupted"
        return None if self.failure is None else "failed"

    async def send(self, message: Message) -> None:
        try:
            await self._take(message)
        finally:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # As of any server's client: after the reply it is gone.
                self._stopped.set()

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = {name.lower(): value for name, value in reversed([*message["headers"]])}
            kind = headers.get(b"content-type", b"")
            self._streamed = self._status == 200 and b"text/event-stream" in kind
            self._code = headers.get(_ERROR_HEADER, b"")
            self._retry_after = headers.get(b"retry-after", b"")
            return
        if self.done or self.lost or self.failure is not None:
            return  # What comes after the end is read and dropped.
        body = message.get("body", b"")
        if not self._streamed:
            self._body += body[: max(self._bound - len(self._body), 0)]
            return
        # What comes behind the last event is nothing to the response.
        if not self.ending:
            try:
                await self._number(len(body), partial(self._numbering.feed, body))
                if not message.get("more_body", False):
                    await self._number(0, self._numbering.finish)
            except LimitExceeded:
                self._too_large()
        # A large message is one of several that wait: they are kept together.
        ahead = len(body) >= _LARGE_BYTES and self._waiting_bytes < _AHEAD_BYTES
        if not (ahead and message.get("more_body", False)):
            await self._all_committed()

    @property
    def _bound(self) -> int:
        return self._max_bytes if self._status == 200 else _ERROR_BODY_BYTES

    async def _take_document(self) -> None:
        """An upstream that was asked for a stream answered with the object."""
        body = bytes(self._body)
        try:
            await self._number(len(body), lambda: self._numbering.feed(unfold_response(body)))
        except ParseError:
            return
        await self._all_committed()

    async def _number(self, size: int, step: Callable[[], bytes]) -> None:
        """Have the events kept that `step` makes of `size` more bytes. Raises `EventTooLarge`."""
        self._unread_bytes += size
        data = await offload(self._unread_bytes, step)
        numbering, first = self._numbering, self._following
        self._following, self.ending = numbering.following, numbering.has_ended
        if data:
            self._unread_bytes = 0
            self._put(Run(first, self._following - 1, data))
        if numbering.malformed and self.failure is None:
            self.failure = Failure(self._reported() or "", again=True)
            self._stopped.set()

    def _put(self, run: Run) -> None:
        """Store these events, at once or together with those that follow."""
        self._stored_bytes += len(run.data)
        if self._stored_bytes > self._max_bytes and not self.ending:
            self._too_large()
            return
        self._waiting.append(run)
        self._waiting_bytes += len(run.data)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.get_running_loop().create_task(self._commit_waiting())

    async def _all_committed(self) -> None:
        """Returns when all events that were put are committed, or the response is lost."""
        if self._committing is not None:
            await asyncio.shield(self._committing)

    async def _commit_waiting(self) -> None:
        while self._waiting:
            runs, self._waiting, self._waiting_bytes = self._waiting, [], 0
            run = Run(runs[0].first, runs[-1].last, b"".join(run.data for run in runs))
            # Nothing is put behind the last event, which is one of these then.
            final = await offload(self._stored_bytes, self._final) if self.ending else None
            await self._write(Append(self.work.claim, run, final))
            if self.lost or self._unstorable:
                return
            self.done = final is not None

    def _final(self) -> Final | None:
        """How it has ended. For any thread."""
        ending = self._numbering.ending
        if ending is None:
            return None
        status, response = ending
        return Final(status, response, item_ids(("", b"", response)), self._stored_bytes)

    async def _write(self, write: Append) -> None:
        """Write, trying again for a while where the store fails: a disk that is full may have room again."""
        give_up = time.monotonic() + self._patience
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                await self._writer.write(write)
                return
            except Fenced:
                self.lose()
                return
            except Unstorable:
                self._unstorable = True
                self.failure = Failure("The upstream sent what cannot be kept.")
                self._stopped.set()
                return
            except StoreUnavailable:
                if self.lost or self.interrupted or time.monotonic() + pause > give_up:
                    # Nothing can be said about it now. Its lease runs out, and then somebody settles it.
                    self.lose()
                    return
            await asyncio.sleep(pause)
            pause *= 2

    def _too_large(self) -> None:
        self.failure = Failure(
            f"The response is larger than the {self._max_bytes} bytes that are kept of one."
        )
        self._stopped.set()

    def _reported(self) -> str | None:
        """What is wrong with its events, or what an `error` event said."""
        error = self._numbering.error
        return None if error is None else error[:_MESSAGE_CHARACTERS]

    def _why(self) -> Failure:
        """The failure of an exchange that ended without the end of its response."""
        if self.interrupted:
            return Failure("The gateway was stopped while it ran.", again=True)
        reported = self._reported()
        if reported is not None:
            own = self._numbering.error_code
            if own is not None and own in _FINAL:
                return Failure(reported, own)
            return Failure(reported, again=True)
        if self._status not in (0, 200):
            limited = self._status == 429
            # What an upstream refuses has no such code.
            own = self._code.decode("latin-1")
            said = error_message(bytes(self._body)) or f"The request was answered with status {self._status}."
            said = said[:_MESSAGE_CHARACTERS]
            code = "rate_limit_exceeded" if limited else own or "server_error"
            if own in _FINAL:
                return Failure(said, code)
            if own in _WAITING:
                later = self._retry_after
                return Failure(said, code, after=float(later) if later.isdigit() else None)
            return Failure(said, code, again=limited or self._status >= 500)
        return Failure("The upstream's reply ended before the response did.", again=True)
