"""A public model, and the deployments that serve it."""

import math
from collections.abc import Callable, Sequence

from sluicegate.config import RetryConfig
from sluicegate.routing.deployment import Deployment, Fleet
from sluicegate.routing.policy import Policy, ranking_again

Complain = Callable[[str, Exception], None]
"""Told of a model whose policy has raised. It must not raise."""


PLAIN = RetryConfig()
MOST_ATTEMPTS = 32
"""Of one request: the relay makes no more."""
WARM_UP_STEP = 1.0
"""Seconds after which a weight that grows is looked at again."""


def silent(model: str, error: Exception) -> None:
    """Nobody is told."""


class Group:
    """The deployments that serve one model of the configuration, and how they are chosen among."""

    __slots__ = (
        "_changes",
        "_ready",
        "_until",
        "_usable",
        "_warmed",
        "attempts",
        "budget",
        "complain",
        "deployments",
        "fleet",
        "name",
        "pauses",
        "policy",
        "rank_again",
    )

    def __init__(
        self,
        name: str,
        deployments: Sequence[Deployment],
        policy: Policy,
        fleet: Fleet,
        complain: Complain = silent,
        *,
        retry: RetryConfig = PLAIN,
        listed: bool = True,
    ) -> None:
        """`listed`: False where the name is the client's own."""
        self.name = name
        """Of the configuration: a wildcard has its `*`."""
        self.deployments = tuple(sorted(deployments, key=lambda deployment: deployment.tier))
        """By tier, then as configured."""
        self.policy = policy
        self.rank_again = ranking_again(policy)
        self.fleet = fleet
        self.complain = complain
        self.attempts = retry.attempts or min(len(self.deployments), MOST_ATTEMPTS)
        """How many a request has, at most."""
        self.budget = fleet.budget(name if listed else "", retry.budget)
        self.pauses = retry.backoff
        """Before the same deployment is tried again: the first one at most, and the longest."""
        self._usable: tuple[Deployment, ...] = ()
        self._ready: tuple[Deployment, ...] = ()
        self._warmed = False
        """The weights were not whole when it was looked last."""
        self._changes = -1
        self._until = -math.inf

    def usable(self, now: float) -> tuple[Deployment, ...]:
        """The deployments that may be handed a request, in their order; the very object while they are the
        same, and have the same weights."""
        if self._changes != self.fleet.changes or now >= self._until:
            self._look(now)
        return self._usable

    def ready(self, now: float) -> tuple[Deployment, ...]:
        """Those of the lowest tier that has any; the very object while they are the same."""
        if self._changes != self.fleet.changes or now >= self._until:
            self._look(now)
        return self._ready

    def _look(self, now: float) -> None:
        # It is looked through again only where one of them has changed, since there may be hundreds.
        until, usable = math.inf, []
        for deployment in self.deployments:
            state = deployment.usable(now)
            until = min(until, state.until)
            if state.yes:
                usable.append(deployment)
        warms_up = False
        for deployment in usable:
            health = deployment.load.health
            if health.warms_up:
                warms_up = True
                until = min(until, now + WARM_UP_STEP)
            deployment.weight = deployment.full_weight * health.weight(now)
        self._changes = self.fleet.changes
        self._until = until
        if warms_up or self._warmed or usable != [*self._usable]:
            self._warmed = warms_up
            self._usable = tuple(usable)
            self._ready = lowest_tier(self._usable)


def lowest_tier(deployments: tuple[Deployment, ...]) -> tuple[Deployment, ...]:
    """Of deployments in the order of their tiers those of the first one."""
    if not deployments or deployments[-1].tier == deployments[0].tier:
        return deployments
    tier = deployments[0].tier
    return tuple(deployment for deployment in deployments if deployment.tier == tier)


class Model:
    """A model as a client asks for it."""

    __slots__ = ("asked", "group", "listed", "name", "star", "upstream")

    def __init__(
        self,
        name: str,
        group: Group,
        *,
        asked: str | None = None,
        star: str = "",
        listed: bool = True,
        upstream: str = "",
    ) -> None:
        self.name = name
        """The public name, which prices and stored responses go by: of an alias what it stands for, of a
        wildcard what the client asked for."""
        self.group = group
        self.asked = name if asked is None else asked
        """The name that the client used."""
        self.star = star
        """What a wildcard's `*` stands for."""
        self.listed = listed
        """False: nobody has said that there is such a model. Its name is the client's, and no metric's
        label."""
        self.upstream = upstream
        """It is no model, but stands for this upstream, for requests that name none: it has no name."""

    @property
    def described(self) -> str:
        """What a client asked for, for a sentence."""
        return f"the upstream `{self.upstream}`" if self.upstream else f"the model `{self.asked[:256]}`"

    @property
    def label(self) -> str:
        """For metrics: never what a client made up."""
        return self.group.name if self.listed else ""

    @property
    def shown(self) -> str:
        """What a reply's `model` is before anybody has replied."""
        first = self.group.deployments[0]
        return first.model.replace("*", self.star) if first.shows_upstream_model else self.asked

    @property
    def own_account(self) -> bool:
        """Its upstreams are asked with the gateway's own credentials, if any, and not with the client's."""
        return all(deployment.own_account for deployment in self.group.deployments)

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        return self.group.deployments
