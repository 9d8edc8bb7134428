"""Who may call, and how much they may use: callers by their keys, limits, and what is left of them."""

from sluicegate.admission.caller import ANYONE, Caller
from sluicegate.admission.counters import Counters, Unavailable
from sluicegate.admission.estimate import Estimates
from sluicegate.admission.headers import anthropic, openai
from sluicegate.admission.keyring import Keyring, key_digest
from sluicegate.admission.limiter import LONGEST_USER, Admitted, Limiter, Wish
from sluicegate.admission.limits import Changes, Excess, Lease
from sluicegate.admission.recalling import Spending, used_by
from sluicegate.admission.shared import MOST, SESSIONS, SETTLE, TAKE, Ask, Place, SharedCounters, Total
from sluicegate.admission.standing import Standing, standing
from sluicegate.admission.windows import Calendar, CounterKey, Moment, begins

__all__ = [
    "ANYONE",
    "LONGEST_USER",
    "MOST",
    "SESSIONS",
    "SETTLE",
    "TAKE",
    "Admitted",
    "Ask",
    "Calendar",
    "Caller",
    "Changes",
    "CounterKey",
    "Counters",
    "Estimates",
    "Excess",
    "Keyring",
    "Lease",
    "Limiter",
    "Moment",
    "Place",
    "SharedCounters",
    "Spending",
    "Standing",
    "Total",
    "Unavailable",
    "Wish",
    "anthropic",
    "begins",
    "key_digest",
    "openai",
    "standing",
    "used_by",
]
