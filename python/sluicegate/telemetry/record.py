"""What is known of one request once it is over: the one source of its log line and of its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "failed", "refused", "client_left", "cancelled", "interrupted"]
"""ok: served whole. failed: the upstream's fault or ours, also under 200. refused: the client's fault.

Of a run of a background response also cancelled (it was cancelled or deleted, or another process has it) and
interrupted (this process stops: it may be run again). Neither is client_left, as no client is there.
"""

Try = tuple[str, str, str | None, int | None, str | None, float, float]
"""One attempt: upstream, its name for the model, kind, status and reason of the fault, seconds to its begin,
seconds that it took. The reason is one of the core's `FAULT_REASONS`.
"""


@dataclass(slots=True)
class RequestRecord:
    """One request. Times are seconds; `None` is "not known", never zero. No secret, no prompt."""

    request_id: str
    endpoint: str
    status: int
    result: Result
    duration: float
    key: str | None = None
    model: str = ""
    """The public name, where it is a configured one; a metric label, so nothing a client can make up."""
    requested_model: str | None = None
    """What the client asked for, where that is not configured."""
    upstream: str = ""
    upstream_model: str = ""
    upstream_request_id: str | None = None
    attempts: int = 0
    streamed: bool = False
    code: str | None = None
    """The `code` of the error that the gateway answered with."""
    path: str | None = None
    """What was asked for, where there is no such thing; bounded."""
    fault: str | None = None
    """The kind of the fault that ended the request, also where its status is 200."""
    tries: Sequence[Try] = ()
    """Every attempt, in order."""
    left_out: tuple[str, ...] = ()
    """The parts of the request that the upstream was not told: its answer does not depend on them."""
    finish_reason: str | None = None
    client_left: bool = False
    stalled: bool = False
    """The client took nothing for too long, and was cut; `client_left` is also set."""
    response_id: str | None = None
    """Of a background response, of which this is one run."""
    time_to_first_token: float | None = None
    inter_token_latency: float | None = None
    """Mean gap between events that bore tokens; the upstream's time only, as `longest_gap`."""
    longest_gap: float | None = None
    client_blocked: float = 0.0
    """How long the upstream was not read because the client took nothing: in no gap."""
    events: int = 0
    malformed: int = 0
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """The reply ended before its usage: output tokens are counted from events, input is not known."""
    cost: str | None = None
    """USD, exact: plain decimal text."""
    upstream_cost: str | None = None
    priced: bool = True
    """False: there was usage, and no price for it."""
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def failed_attempts(self) -> list[Try]:
        """The attempts that failed, but for the one whose fault is `fault`."""
        failed = [attempt for attempt in self.tries if attempt[2] is not None]
        if self.last_failed is not None:
            failed.pop()
        return failed

    @property
    def last_failed(self) -> Try | None:
        """The attempt whose fault is `fault`."""
        if self.fault is None or not self.tries or self.tries[-1][2] is None:
            return None
        return self.tries[-1]
