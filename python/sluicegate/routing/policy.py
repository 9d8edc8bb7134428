"""Which routes of a model a request takes, and in which order."""

from collections.abc import Sequence
from typing import Protocol

from sluicegate._core import Route
from sluicegate.routing.model import Model


class Policy(Protocol):
    """One way to choose. Called once a request, on any thread: it must not block."""

    def order(self, model: Model) -> Sequence[Route]:
        """The routes to try, first to last; at least one."""
        ...
