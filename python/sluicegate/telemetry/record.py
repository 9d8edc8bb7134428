"""What is known of one request once it is over: the one source of its log line and of its metrics."""

from typing import Literal

from sluicegate._core import RequestRecord

Result = Literal["ok", "failed", "refused", "client_left", "cancelled", "interrupted"]
"""ok: served whole. failed: the upstream's fault or ours, also under 200. refused: the client's fault.

Of a run of a background response also cancelled (it was cancelled or deleted, or another process has it) and
interrupted (this process stops: it may be run again). Neither is client_left, as no client is there.
"""

Try = tuple[str, str, str | None, int | None, str | None, float, float]
"""One attempt: upstream, its name for the model, kind, status and reason of the fault, seconds to its begin,
seconds that it took. The reason is one of the core's `FAULT_REASONS`.
"""

__all__ = ["RequestRecord", "Result", "Try"]
