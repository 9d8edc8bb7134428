"""Which faults another upstream may not have.

Only asked while nothing has reached the client, so a second attempt can never repeat output.
"""

from typing import Protocol

# 401, 402 and 403 are about the gateway's own account there, 404 about a model that this upstream lacks, 409
# and 425 about its state, 408 and 429 about its load. Any other 4xx is about the request itself.
_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 425, 429})

# Not: `total_timeout` (the client's time is used up), `too_large` (another's reply would be, too), `shutdown`
# and `internal` (ours).
_KINDS = frozenset(
    {
        "connect",
        "connect_timeout",
        "reset",
        "protocol",
        "first_byte_timeout",
        "first_token_timeout",
        "between_tokens_timeout",
        "empty",
        "truncated",
        "in_band_error",
        "decode",
        "untranslatable",
    }
)


class Failure(Protocol):
    """What of a `_core.Fault` decides."""

    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> int | None: ...


def may_succeed_elsewhere(fault: Failure) -> bool:
    """Whether the next route is worth a try."""
    if fault.kind == "status":
        return fault.status is not None and (fault.status >= 500 or fault.status in _STATUSES)
    return fault.kind in _KINDS
