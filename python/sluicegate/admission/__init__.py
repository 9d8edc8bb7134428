"""Who may call, and how much they may use: callers by their keys, limits, and what is left of them."""

from sluicegate.admission.caller import ANYONE, Caller, Gone, Holder
from sluicegate.admission.counters import Answer, Counters, Later
from sluicegate.admission.keyring import Keyring, Steps, key_digest
from sluicegate.admission.limiter import LONGEST_USER, Limiter
from sluicegate.admission.recalling import Spending, used_by
from sluicegate.admission.seeding import Recalled
from sluicegate.admission.shared import (
    MOST,
    SESSIONS,
    SETTLE,
    TAKE,
    Ask,
    Changes,
    Place,
    SharedCounters,
    Total,
)
from sluicegate.admission.standing import Standing, add_reserved, standing
from sluicegate.admission.windows import Calendar, CounterKey, begins, owner_and_user

__all__ = [
    "ANYONE",
    "LONGEST_USER",
    "MOST",
    "SESSIONS",
    "SETTLE",
    "TAKE",
    "Answer",
    "Ask",
    "Calendar",
    "Caller",
    "Changes",
    "CounterKey",
    "Counters",
    "Gone",
    "Holder",
    "Keyring",
    "Later",
    "Limiter",
    "Place",
    "Recalled",
    "SharedCounters",
    "Spending",
    "Standing",
    "Steps",
    "Total",
    "add_reserved",
    "begins",
    "key_digest",
    "owner_and_user",
    "standing",
    "used_by",
]
