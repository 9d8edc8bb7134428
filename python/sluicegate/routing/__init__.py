"""Public models, the upstreams that serve them, and in which order they are tried."""

from sluicegate.routing.model import Model
from sluicegate.routing.ordered import Ordered
from sluicegate.routing.policy import Policy
from sluicegate.routing.retry import may_succeed_elsewhere
from sluicegate.routing.table import ModelTable

__all__ = ["Model", "ModelTable", "Ordered", "Policy", "may_succeed_elsewhere"]
