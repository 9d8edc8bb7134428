"""One request's attempts: which route is next, and when there is none any more."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sluicegate._core import Fault, Outcome, Route
from sluicegate.routing.model import Model
from sluicegate.routing.policy import Facts, Policy
from sluicegate.routing.verdict import may_succeed_elsewhere


class Attempt(NamedTuple):
    """What to try."""

    route: Route
    last: bool
    """Nothing else could follow, as things stood when this was handed out: nothing need be held back."""
    after: float
    """Seconds to wait first."""


class NoRoute(NamedTuple):
    """There is nothing more to try."""

    fault: Fault | None
    """What the client is told of; None where there was no route at all."""


class Plan:
    """The attempts of one request. For the thread that decides."""

    __slots__ = ("_asked", "_model", "_next", "_policy", "_routes")

    def __init__(
        self, policy: Policy, model: Model, facts: Facts, only: Collection[str] | None = None
    ) -> None:
        """`only`: the upstreams that can be asked; None: all."""
        self._policy = policy
        self._model = model
        routes: Sequence[Route] = policy.order(model, facts)
        if only is not None:
            routes = [route for route in routes if route.upstream.name in only]
        self._routes = routes
        self._next = 0
        self._asked: Fault | None = None

    def next(self, fault: Fault | None = None) -> Attempt | NoRoute:
        """The next attempt, the one before it having failed with `fault`."""
        if fault is not None:
            # An upstream that the request was sent to has more to say than one that it could not be put to.
            if fault.kind != "untranslatable":
                self._asked = fault
            if not may_succeed_elsewhere(fault):
                return NoRoute(self._asked or fault)
        routes, position = self._routes, self._next
        if position >= len(routes):
            return NoRoute(self._asked or fault)
        self._next = position + 1
        return Attempt(routes[position], position + 1 == len(routes), 0.0)

    def ended(self, outcome: Outcome) -> None:
        """The request is over. Once."""
        self._policy.ended(self._model, outcome)
