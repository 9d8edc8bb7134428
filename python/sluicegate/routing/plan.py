"""One request's attempts: which deployment is next, and when there is none any more."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from sluicegate._core import Fault, Outcome, Route
from sluicegate.routing.deployment import Deployment, tokens_of
from sluicegate.routing.model import Model, lowest_tier
from sluicegate.routing.policy import Facts
from sluicegate.routing.verdict import may_succeed_elsewhere

Why = Literal["failed", "none", "full"]


class Attempt(NamedTuple):
    """What to try."""

    route: Route
    last: bool
    """Nothing else could follow, as things stand now that this is handed out: nothing need be held back."""
    after: float
    """Seconds to wait first."""
    deployment: Deployment


class NoRoute(NamedTuple):
    """There is nothing more to try."""

    fault: Fault | None
    """What the client is told of; None where nothing was tried."""
    why: Why = "failed"
    """Without a fault: `none`: there is no deployment at all; `full`: each has as many streams as it may
    have."""


class Plan:
    """The attempts of one request. For the thread that decides.

    A deployment has the request in flight from the moment that it is handed out until the next attempt, or
    the request's end, whatever ends it: `ended` must be called."""

    __slots__ = ("_asked", "_deployment", "_facts", "_model", "_only", "_tokens", "_tried")

    def __init__(self, model: Model, facts: Facts, only: Collection[str] | None = None) -> None:
        """`only`: the upstreams that can be asked; None: all."""
        self._model = model
        self._facts = facts
        self._only = only
        self._tokens = tokens_of(facts.size)
        self._tried: list[Deployment] = []
        self._deployment: Deployment | None = None
        """That has the request in flight."""
        self._asked: Fault | None = None

    def next(self, fault: Fault | None = None) -> Attempt | NoRoute:
        """The next attempt, the one before it having failed with `fault`."""
        group = self._model.group
        tried = self._tried
        now = group.fleet.clock()
        if fault is not None:
            self._give_back()
            # An upstream that the request was sent to has more to say than one that it could not be put to.
            if fault.kind != "untranslatable":
                self._asked = fault
            if not may_succeed_elsewhere(fault):
                return NoRoute(self._asked or fault)
        usable = group.usable(now)
        if tried or self._only is not None:
            usable = self._left(usable)
            candidates = lowest_tier(usable)
        else:
            candidates = group.ready(now)
        if not candidates:
            return self._none(fault)
        chosen = candidates[0]
        if len(candidates) > 1:
            try:
                chosen = group.policy.rank(self._facts, candidates)[0]
            except Exception as error:  # It may be the user's own: its faults must not end a request.
                group.complain(group.name, error)
        tried.append(chosen)
        route = chosen.route(self._model.asked, self._model.star)
        self._take(chosen)
        return Attempt(route, len(usable) == 1, 0.0, chosen)

    def ended(self, outcome: Outcome) -> None:
        """The request is over. Once."""
        deployment = self._deployment
        if deployment is None:
            return
        self._give_back()
        first_token = outcome.first_token
        if first_token is None or not outcome.streamed or outcome.fault is not None:
            return
        if outcome.attempts > 1:
            first_token -= outcome.tries[-1][5]
        deployment.load.served(self._tokens, first_token, self._model.group.fleet.clock())

    def _take(self, deployment: Deployment) -> None:
        load = deployment.load
        load.streams += 1
        load.tokens += self._tokens
        if load.streams in load.bounds:
            self._model.group.fleet.changes += 1
        self._deployment = deployment

    def _give_back(self) -> None:
        deployment, self._deployment = self._deployment, None
        if deployment is None:
            return
        load = deployment.load
        if load.streams in load.bounds:
            self._model.group.fleet.changes += 1
        load.streams -= 1
        load.tokens -= self._tokens

    def _left(self, usable: Sequence[Deployment]) -> tuple[Deployment, ...]:
        only, tried = self._only, self._tried
        return tuple(
            deployment
            for deployment in usable
            if deployment not in tried and (only is None or deployment.upstream in only)
        )

    def _none(self, fault: Fault | None) -> NoRoute:
        told = self._asked or fault
        if told is not None:
            return NoRoute(told)
        return NoRoute(None, "full" if self._left(self._model.deployments) else "none")
