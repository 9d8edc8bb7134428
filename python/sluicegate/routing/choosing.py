"""From the name of a policy in the configuration to the policy."""

from random import Random
from typing import Any

from sluicegate.config import PolicyConfig
from sluicegate.routing.affinity import Affinity
from sluicegate.routing.deployment import Clock
from sluicegate.routing.latency import Latency
from sluicegate.routing.least_busy import LeastBusy
from sluicegate.routing.ordered import Ordered
from sluicegate.routing.policy import Policy
from sluicegate.routing.round_robin import RoundRobin
from sluicegate.routing.weighted import Weighted


def make_policy(config: PolicyConfig, clock: Clock, random: Random) -> Policy:
    """What `config` names, freshly made. Raises whatever a user's own class raises."""
    if config.own is not None:
        own: Any = config.own.load()
        return own(**config.own.options)  # type: ignore[no-any-return]
    if config.weighted is not None:
        return Weighted(random)
    if config.round_robin is not None:
        return RoundRobin(random)
    if config.least_busy is not None:
        return LeastBusy(random, by_tokens=config.least_busy.by == "tokens")
    if config.latency is not None:
        return Latency(random, clock)
    if config.affinity is not None:
        header = config.affinity.header
        return Affinity(
            random,
            header=None if header is None else header.lower(),
            load_factor=config.affinity.load_factor,
        )
    return Ordered()
