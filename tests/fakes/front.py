"""A front without engines or upstreams: a script plays what the real one would do, on a thread of its own.

The events have the names and the methods of the real ones, and nothing of Rust.
"""

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sluicegate._core import Lease, Request, ResponsesRequest
from sluicegate.config import picodollars
from sluicegate.errors import ParseError, RelayClosed
from sluicegate.gateway.endpoints import OF_ANTHROPIC, RELAYED
from sluicegate.telemetry import RequestRecord

Headers = Sequence[tuple[bytes, bytes]]
Whole = tuple[int, Headers, bytes]
InForms = tuple[Whole, Whole]

WAIT_SECONDS = 30.0


@dataclass
class FakeUsage:
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_image_tokens: int | None = None
    upstream_cost: str | None = None


@dataclass
class FakeFault:
    kind: str = "connect"
    upstream: str = "local"
    message: str = "upstream 'local' could not be reached"
    status: int | None = None
    reason: str | None = None
    param: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    spent: bool = False


@dataclass
class FakeOutcome:
    status: int = 200
    upstream: str = "local"
    upstream_model: str = "m"
    attempts: int = 1
    tries: list[tuple[str, str, str | None, int | None, str | None, float, float]] = field(
        default_factory=list
    )
    code: str | None = None
    streamed: bool = False
    usage: FakeUsage | None = None
    finish_reason: str | None = "stop"
    fault: FakeFault | None = None
    client_left: bool = False
    stalled: bool = False
    events: int = 0
    malformed: int = 0
    token_events: int = 0
    estimated: bool = False
    estimated_input: bool = False
    implausible: bool = False
    cost: str | None = None
    priced: bool = True
    bytes_in: int = 0
    bytes_out: int = 0
    first_byte: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    longest_gap: float | None = None
    client_blocked: float = 0.0
    left_out: list[str] = field(default_factory=list)
    duration: float = 0.25
    upstream_request_id: str | None = None

    def attempt_members(self, price: tuple[str | None, bool] | None) -> dict[str, Any]:
        """What a record says of the attempts."""
        if not self.attempts:
            return {}
        usage = self.usage or FakeUsage()
        first, last, gaps = self.first_token, self.last_token, self.token_events - 1
        gap = None if first is None or last is None or gaps < 1 else (last - first) / gaps
        times = (first, gap, self.longest_gap) if self.streamed else (None, None, None)
        cost, priced = price or (self.cost, self.priced)
        return {
            "upstream": self.upstream, "upstream_model": self.upstream_model,
            "upstream_request_id": self.upstream_request_id, "attempts": self.attempts, "tries": self.tries,
            "fault": None if self.fault is None else self.fault.kind, "left_out": self.left_out,
            "finish_reason": self.finish_reason, "events": self.events, "malformed": self.malformed,
            "bytes_in": self.bytes_in, "bytes_out": self.bytes_out, "streamed": self.streamed,
            "time_to_first_token": times[0], "inter_token_latency": times[1], "longest_gap": times[2],
            "client_blocked": self.client_blocked, "input_tokens": usage.input_tokens,
            "cached_input_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens, "implausible": self.implausible,
            "reasoning_tokens": usage.reasoning_tokens, "estimated": self.estimated, "cost": cost,
            "upstream_cost": usage.upstream_cost, "priced": priced,
        }  # fmt: skip


def unforwarded(status: int, **fields: Any) -> FakeOutcome:
    """Of a request that no upstream was asked about."""
    return FakeOutcome(status, "", "", 0, finish_reason=None, **fields)


# === events ===


def _attempt(
    route: Any, pricing: Any, last: bool, trial: bool, after: float, headers: Headers
) -> dict[str, Any]:
    return {
        "route": route, "pricing": pricing, "last": last, "trial": trial, "after": after, "headers": headers,
    }  # fmt: skip


class Arrived:
    def __init__(self, exchange: "FakeExchange") -> None:
        self._exchange = exchange
        self.ticket = exchange.ticket
        self.tag = exchange.tag
        self.endpoint = exchange.endpoint
        self.upstream: str | None = None
        self.anthropic = exchange.endpoint in OF_ANTHROPIC
        self.request_id = exchange.request_id
        self.key = exchange.key
        self.size = len(exchange.body)
        self.max_output_tokens = None
        self.user = None
        self.affinity: int | None = None
        self.input_tokens_estimate = 7 if exchange.endpoint == "count_tokens" else None
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers}
        wanted = exchange.front.told_facts[-1]["headers"] if exchange.front.told_facts else []
        self.headers = {name: given[name] for name in wanted if name in given}
        self.request: Any = None
        self.error: ParseError | None = None
        try:
            kind = ResponsesRequest if exchange.endpoint == "responses" else Request
            self.request = kind(exchange.body)
        except ParseError as error:
            self.error = error
        self.model = None if self.request is None else self.request.model
        self.stream = self.request is not None and self.request.stream

    def forward(self, route: Any, *told: Any, **options: Any) -> bool:
        *attempt, lease, entry, estimate = told
        kept = {"lease": lease, "entry": entry, "estimated_input": estimate}
        return self._exchange.forward(_attempt(route, *attempt) | kept | options)

    def reply(self, status: int, headers: Headers, body: bytes) -> bool:
        return self._exchange.answered(status, headers, body)

    def affinity_of(self, request: Any) -> int | None:
        return self.affinity


class Failed:
    def __init__(self, exchange: "FakeExchange", fault: FakeFault, attempts: int) -> None:
        self.ticket = exchange.ticket
        self.fault = fault
        self.attempts = attempts
        self.answers: Future[Any] = Future()
        self._exchange = exchange

    def attempt(self, *told: Any) -> bool:
        attempt = _attempt(*told)
        self._exchange.attempts.append(attempt)
        self.answers.set_result(attempt["route"])
        return True

    def reply(self, status: int, headers: Headers, body: bytes) -> bool:
        self.answers.set_result((status, headers, body))
        return True


class PriceAsked:
    def __init__(self, ticket: int, usage: FakeUsage) -> None:
        self.ticket = ticket
        self.usage = usage
        self.answers: Future[bytes | None] = Future()

    def answer(self, members: bytes | None) -> bool:
        self.answers.set_result(members)
        return True


@dataclass
class Ended:
    ticket: int
    tag: int | None
    endpoint: str
    request_id: str
    key: bytes | None
    model: str | None
    outcome: FakeOutcome
    kept: bytes | None = None
    request: Any = None
    not_kept: str | None = None
    charged: list[Any] = field(default_factory=list)
    """What its entry in the ledger was told that it cost."""

    def settle(self, lease: Lease) -> None:
        outcome = self.outcome
        if not outcome.attempts:
            lease.unused()
            return
        usage = outcome.usage or FakeUsage()
        cost = None if outcome.cost is None else picodollars(Decimal(outcome.cost))
        if self.charged and self.charged[-1] is not None:
            cost = self.charged[-1][0]
        told = {"failed": outcome.status >= 500, "estimated_input": outcome.estimated_input}
        lease.ended(usage.input_tokens, usage.output_tokens, cost, **told)

    def charge(self, costs: tuple[int, ...] | None) -> None:
        self.charged.append(costs)

    def record(
        self,
        result: str,
        *,
        code: str | None = None,
        limit: str | None = None,
        response_id: str | None = None,
        price: tuple[str | None, bool] | None = None,
        **names: Any,
    ) -> RequestRecord:
        outcome = self.outcome
        return RequestRecord(
            self.request_id,
            self.endpoint or "other",
            outcome.status,
            result,
            outcome.duration,
            code=code or outcome.code,
            limit=limit,
            response_id=response_id,
            client_left=outcome.client_left and response_id is None,
            stalled=outcome.stalled,
            **names,
            **outcome.attempt_members(price),
        )


@dataclass
class Died:
    message: str


# === the queue ===


class FakeDecisions:
    """Events in order, for a thread or an event loop."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._woken = False
        self._changed = threading.Condition()
        self._read, self._write = os.pipe()

    def put(self, event: Any) -> None:
        with self._changed:
            if not self._events:
                os.write(self._write, b"x")
            self._events.append(event)
            self._changed.notify_all()

    def wait(self, seconds: float) -> list[Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._woken, seconds)
            self._woken = False
        return self.take()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def fileno(self) -> int:
        return self._read

    def take(self) -> list[Any]:
        with self._changed:
            if self._events:
                os.read(self._read, 1)
            events, self._events = self._events, []
            return events

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


# === exchanges ===


class FakeExchange:
    """What a script plays with, and what `submit` returns."""

    def __init__(
        self,
        front: "FakeFront",
        ticket: int,
        endpoint: str,
        headers: Headers,
        body: bytes,
        request_id: str,
        tag: int | None,
    ) -> None:
        self.front = front
        self.ticket = ticket
        self.tag = tag
        self.endpoint = endpoint
        self.headers = list(headers)
        self.body = body
        self.request_id = request_id
        self.query: str | None = None
        self.left = threading.Event()
        self.attempts: list[dict[str, Any]] = []
        """What each attempt was told."""
        self.outcome: FakeOutcome | None = None
        self._tried: list[FakeFault] = []
        self._lock = threading.Lock()
        self._decided = False
        self._head: tuple[int, Headers] | None = None
        self._waiting = b""
        self._sent = b""
        self._ended = self._aborted = False
        self.charged: list[Any] = []
        given = dict(headers)
        scheme, _, token = given.get(b"authorization", b"").partition(b" ")
        key = token if scheme.lower() == b"bearer" else given.get(b"x-api-key")
        self.key = None if key is None else hashlib.sha256(key).digest()

    @property
    def forwarded(self) -> dict[str, Any]:
        """What the first attempt was told."""
        return self.attempts[0]

    # === what the gateway calls, by way of an event or not ===

    def forward(self, options: dict[str, Any]) -> bool:
        if not self._decide():
            return False
        self.attempts.append({"request": None, "response_id": None, "keep": None, **options})
        self.front.play(self)
        return True

    def answered(self, status: int, headers: Headers, body: bytes) -> bool:
        if not self._decide():
            return False
        self.say(status, [*headers, (b"x-request-id", self.request_id.encode())], body)
        self._end(unforwarded(status))
        return True

    def take(self) -> tuple[tuple[int, Headers] | None, bytes, bool, bool]:
        with self._lock:
            taken = self._head, self._waiting, self._ended, self._aborted
            self._head, self._waiting = None, b""
        return taken

    def leave(self) -> None:
        if self._ended or self._aborted:
            return
        self.left.set()
        if self._decide():
            self._end(unforwarded(499, client_left=True))

    # === what a script calls ===

    def failed(self, fault: FakeFault) -> Any:
        """The attempt failed: the next route, or the whole error reply."""
        self._tried.append(fault)
        event = Failed(self, fault, len(self._tried))
        self.front.decisions.put(event)
        return event.answers.result(WAIT_SECONDS)

    def price(self, usage: FakeUsage) -> bytes | None:
        event = PriceAsked(self.ticket, usage)
        self.front.decisions.put(event)
        return event.answers.result(WAIT_SECONDS)

    def start(self, status: int = 200, content_type: bytes = b"application/json") -> None:
        self.put_head(status, [(b"content-type", content_type)])

    def put_head(self, status: int, headers: Headers) -> None:
        with self._lock:
            self._head = status, list(headers)
        self.front.readied(self.ticket)

    def send(self, body: bytes) -> None:
        with self._lock:
            self._waiting += body
            self._sent += body
        self.front.readied(self.ticket)

    def say(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole reply."""
        self.put_head(status, headers)
        self.send(body)
        self.end()

    def end(self) -> None:
        """The reply is whole."""
        with self._lock:
            self._ended = True
        self.front.readied(self.ticket)

    def abort(self) -> None:
        """It stays incomplete."""
        with self._lock:
            self._aborted = True
        self.front.readied(self.ticket)

    def finish(self, outcome: FakeOutcome) -> None:
        """It is over, and known to be."""
        if not outcome.tries:
            tried = [
                (fault.upstream, "m", fault.kind, fault.status, fault.reason, 0.0, 0.1)
                for fault in self._tried
            ]
            if len(tried) < outcome.attempts:
                fault = outcome.fault
                why = (None, None, None) if fault is None else (fault.kind, fault.status, fault.reason)
                tried.append((outcome.upstream, outcome.upstream_model, *why, 0.1, 0.2))
            outcome.tries = tried  # type: ignore[assignment]
        self._end(outcome)

    def complete(self, body: bytes = b"{}", outcome: FakeOutcome | None = None) -> None:
        """The usual end."""
        self.start()
        self.send(body)
        self.end()
        self.finish(outcome or FakeOutcome())

    def _decide(self) -> bool:
        with self._lock:
            first, self._decided = not self._decided, True
        return first

    def _end(self, outcome: FakeOutcome) -> None:
        self.outcome = outcome
        keep = self.attempts[0].get("keep") if self.attempts else None
        fits = keep is not None and len(self._sent) <= keep and not outcome.client_left
        event = Arrived(self)
        self.front.decisions.put(
            Ended(
                self.ticket,
                self.tag,
                self.endpoint,
                self.request_id,
                self.key,
                event.model,
                outcome,
                self._sent if fits else None,
                event.request if keep is not None else None,
                "too_large" if keep is not None and len(self._sent) > keep else None,
                self.charged,
            )
        )


Script = Callable[[FakeExchange], None]


class FakeFront:
    """Plays `script(exchange)` for each request that is forwarded."""

    def __init__(self, script: Script = FakeExchange.complete) -> None:
        self.script = script
        self.decisions = FakeDecisions()
        self.exchanges: list[FakeExchange] = []
        self.told_callers: list[tuple[bytes | None, InForms, InForms]] = []
        self.told_facts: list[dict[str, Any]] = []
        self.told_passthrough: list[list[Any]] = []
        self.drained = False
        self.closed = threading.Event()
        self.started = 0
        self.connections = 0
        self._tickets = itertools.count(1)
        self._ready: list[int] = []
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()
        self._plays: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="fake-engine")

    def start(self, config: Any) -> Any:
        """In place of `sluicegate.gateway.engines.start_engines`."""
        self.started += 1
        return self.decisions, self

    def callers(self, digests: bytes | None, missing: InForms, unknown: InForms) -> None:
        self.told_callers.append((digests, missing, unknown))

    def facts(self, **wanted: Any) -> None:
        self.told_facts.append(wanted)

    def passthrough(self, paths: list[Any]) -> None:
        self.told_passthrough.append(paths)

    def passthrough_methods(self, path: str) -> list[tuple[str, str]]:
        return []

    def submit(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: bytes,
        request_id: str,
        *,
        query: str | None = None,
        tag: int | None = None,
    ) -> FakeExchange:
        if self.closed.is_set():
            raise RelayClosed("closed")
        endpoint = RELAYED[path]
        exchange = FakeExchange(self, next(self._tickets), endpoint, headers, body, request_id, tag)
        exchange.query = query
        self.exchanges.append(exchange)
        self.decisions.put(Arrived(exchange))
        return exchange

    def fileno(self) -> int:
        return self._read

    def ready(self) -> list[int]:
        with self._lock:
            if self._ready:
                os.read(self._read, 1)
            ready, self._ready = self._ready, []
        return ready

    def readied(self, ticket: int) -> None:
        with self._lock:
            if not self._ready:
                os.write(self._write, b"x")
            if ticket not in self._ready:
                self._ready.append(ticket)

    def drain(self) -> None:
        self.drained = True

    @property
    def active(self) -> int:
        return sum(exchange.outcome is None for exchange in self.exchanges)

    def close(self) -> None:
        self.closed.set()
        for exchange in self.exchanges:
            if exchange._decide():
                exchange.abort()
                exchange._end(unforwarded(503, code="shutdown"))
        self._threads.shutdown()

    def play(self, exchange: FakeExchange) -> None:
        self._plays.append(self._threads.submit(self.script, exchange))

    def check(self) -> None:
        """Raise what went wrong in a script; the front is over after this."""
        for play in self._plays:
            play.result(timeout=WAIT_SECONDS)

    def dispose(self) -> None:
        """Once nothing uses it any more."""
        self.decisions.close()
        os.close(self._read)
        os.close(self._write)
