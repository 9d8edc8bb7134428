"""What is known of one request once it is over: the one source of its log line and of its metrics."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Result = Literal["ok", "failed", "refused", "client_left"]
"""ok: served whole. failed: the upstream's fault or ours, also under 200. refused: the client's fault."""


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
    fault: str | None = None
    """The kind of the fault that ended the request, also where its status is 200."""
    failed_attempts: tuple[tuple[str, str], ...] = ()
    """(upstream, fault kind) of the attempts before the last one."""
    left_out: tuple[str, ...] = ()
    """The parts of the request that the upstream was not told: its answer does not depend on them."""
    finish_reason: str | None = None
    client_left: bool = False
    time_to_first_token: float | None = None
    inter_token_latency: float | None = None
    """Mean gap between events that bore tokens."""
    longest_gap: float | None = None
    events: int = 0
    malformed: int = 0
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """The reply ended before its usage: output tokens are counted from events, input is not known."""
    cost: Decimal | None = None
    """USD."""
    upstream_cost: str | None = None
    priced: bool = True
    """False: there was usage, and no price for it."""
    bytes_in: int = 0
    bytes_out: int = 0
