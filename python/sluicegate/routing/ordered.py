"""Fallback in the order of the configuration: the second deployment only where the first cannot serve."""

from collections.abc import Sequence

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts


class Ordered:
    """The default policy. It depends on nothing."""

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        return candidates
