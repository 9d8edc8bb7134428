"""Who may call, and how much they may use: callers by their keys, limits, and what is left of them."""

from sluicegate.admission.caller import ANYONE, Caller
from sluicegate.admission.counters import Counters
from sluicegate.admission.estimate import Estimates
from sluicegate.admission.headers import anthropic, openai
from sluicegate.admission.keyring import Keyring, key_digest
from sluicegate.admission.limiter import LONGEST_USER, Admitted, Limiter, Spending, Wish
from sluicegate.admission.limits import Excess, Lease
from sluicegate.admission.standing import Standing, standing
from sluicegate.admission.windows import Moment, begins

__all__ = [
    "ANYONE",
    "LONGEST_USER",
    "Admitted",
    "Caller",
    "Counters",
    "Estimates",
    "Excess",
    "Keyring",
    "Lease",
    "Limiter",
    "Moment",
    "Spending",
    "Standing",
    "Wish",
    "anthropic",
    "begins",
    "key_digest",
    "openai",
    "standing",
]
