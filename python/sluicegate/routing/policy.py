"""Which routes of a model a request takes, and in which order."""

from collections.abc import Sequence
from typing import Protocol

from sluicegate._core import Outcome, Route
from sluicegate.routing.model import Model


class Policy(Protocol):
    """One way to choose. Called on the thread that decides, one request at a time: it must not block."""

    def order(self, model: Model) -> Sequence[Route]:
        """The routes to try, first to last; at least one. Asked once a request."""
        ...

    def ended(self, model: Model, outcome: Outcome) -> None:
        """How a request that was given an order has ended. Once a request."""
        ...
