"""Public models, the deployments that serve them, and which of them is next."""

from sluicegate.routing.deployment import Deployment, Fleet, Load
from sluicegate.routing.health import Breaker, Health, State
from sluicegate.routing.model import Group, Model
from sluicegate.routing.ordered import Ordered
from sluicegate.routing.overview import Seen, deployments_of, load_of, look_at
from sluicegate.routing.plan import Attempt, NoRoute, Plan
from sluicegate.routing.policy import Facts, Policy
from sluicegate.routing.table import ModelTable
from sluicegate.routing.verdict import may_succeed_elsewhere

__all__ = [
    "Attempt",
    "Breaker",
    "Deployment",
    "Facts",
    "Fleet",
    "Group",
    "Health",
    "Load",
    "Model",
    "ModelTable",
    "NoRoute",
    "Ordered",
    "Plan",
    "Policy",
    "Seen",
    "State",
    "deployments_of",
    "load_of",
    "look_at",
    "may_succeed_elsewhere",
]
