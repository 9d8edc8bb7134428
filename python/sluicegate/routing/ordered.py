"""Fallback in the order of the configuration: the second route only where the first has failed."""

from collections.abc import Sequence

from sluicegate._core import Outcome, Route
from sluicegate.routing.model import Model
from sluicegate.routing.policy import Facts


class Ordered:
    """The default policy. It does not depend on how earlier requests ended."""

    def order(self, model: Model, facts: Facts) -> Sequence[Route]:
        return model.routes

    def ended(self, model: Model, outcome: Outcome) -> None:
        pass
