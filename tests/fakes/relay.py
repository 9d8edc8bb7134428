"""A relay without upstreams: a script plays what the real one would do, on a thread of its own as there."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


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
    param: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


@dataclass
class FakeOutcome:
    status: int = 200
    upstream: str = "local"
    upstream_model: str = "m"
    attempts: int = 1
    streamed: bool = False
    usage: FakeUsage | None = None
    finish_reason: str | None = "stop"
    fault: FakeFault | None = None
    client_left: bool = False
    events: int = 0
    malformed: int = 0
    token_events: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    first_byte: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    longest_gap: float | None = None
    left_out: list[str] = field(default_factory=list)
    duration: float = 0.25
    upstream_request_id: str | None = None


class FakeExchange:
    """What a script plays with; also what `forward` returns."""

    def __init__(self, forwarded: dict[str, Any]) -> None:
        self.forwarded = forwarded
        self.reply = forwarded["reply"]
        self.outcome: FakeOutcome | None = None
        self.left = threading.Event()
        self._callbacks: list[Callable[[FakeOutcome], None]] = []
        self._lock = threading.Lock()

    # === what the gateway calls ===

    def client_left(self) -> None:
        self.left.set()

    def kept(self) -> bytes | None:
        return None

    def on_finish(self, callback: Callable[[FakeOutcome], None]) -> None:
        with self._lock:
            if self.outcome is None:
                self._callbacks.append(callback)
                return
        callback(self.outcome)

    # === what a script calls ===

    def send(self, message: dict[str, Any]) -> bool:
        """Send one ASGI message by way of `defer`, and wait until the server has it."""
        taken = threading.Event()
        result: list[bool] = []

        def resume(ok: bool) -> None:
            result.append(ok)
            taken.set()

        self.reply.defer(message, resume)
        assert taken.wait(10), "defer never resumed"
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.reply.finished()
        return result[0]

    def start(self, status: int = 200, content_type: bytes = b"application/json") -> None:
        self.send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type)]}
        )

    def finish(self, outcome: FakeOutcome) -> None:
        with self._lock:
            self.outcome = outcome
        for callback in self._callbacks:
            callback(outcome)

    def complete(self, body: bytes = b"{}", outcome: FakeOutcome | None = None) -> None:
        """The usual end: the outcome is set before the last frame."""
        self.start()
        self.finish(outcome or FakeOutcome())
        self.send({"type": "http.response.body", "body": body, "more_body": False})


class FakeRelay:
    """Plays `script(exchange)` for each forwarded request."""

    def __init__(self, script: Callable[[FakeExchange], None]) -> None:
        self.script = script
        self.exchanges: list[FakeExchange] = []
        self.closed = threading.Event()
        self._plays: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="fake-relay")

    def forward(
        self,
        request: Any,
        path: str,
        route: Any,
        headers: Any,
        request_id: str,
        reply: Any,
        *,
        response_id: str | None = None,
        keep: int | None = None,
    ) -> FakeExchange:
        if self.closed.is_set():
            raise RuntimeError("the relay is closed")
        exchange = FakeExchange(
            {
                "request": request,
                "path": path,
                "route": route,
                "headers": headers,
                "request_id": request_id,
                "reply": reply,
                "response_id": response_id,
            }
        )
        self.exchanges.append(exchange)
        self._plays.append(self._threads.submit(self.script, exchange))
        return exchange

    @property
    def active(self) -> int:
        return sum(exchange.outcome is None for exchange in self.exchanges)

    def close(self) -> None:
        self.closed.set()
        self._threads.shutdown()

    def check(self) -> None:
        """Raise what went wrong in a script."""
        for play in self._plays:
            play.result(timeout=10)
