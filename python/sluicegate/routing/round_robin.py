"""One after the other."""

from collections.abc import Sequence
from random import Random

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts


class RoundRobin:
    """Begins anywhere: else all machines that start together would begin with the same one."""

    def __init__(self, random: Random) -> None:
        self._next = random.getrandbits(32)
        self._instead = 0

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        self._next += 1
        return (candidates[self._next % len(candidates)],)

    def rank_again(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        # Were the turn of the next request taken for this one, it would go to the one that has just failed.
        self._instead += 1
        return (candidates[self._instead % len(candidates)],)
