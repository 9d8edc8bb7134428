"""Public models, the upstreams that serve them, and in which order they are tried."""

from sluicegate.routing.model import Model
from sluicegate.routing.ordered import Ordered
from sluicegate.routing.plan import Attempt, NoRoute, Plan
from sluicegate.routing.policy import Facts, Policy
from sluicegate.routing.table import ModelTable
from sluicegate.routing.verdict import may_succeed_elsewhere

__all__ = [
    "Attempt",
    "Facts",
    "Model",
    "ModelTable",
    "NoRoute",
    "Ordered",
    "Plan",
    "Policy",
    "may_succeed_elsewhere",
]
