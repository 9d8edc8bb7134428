"""One after the other."""

from collections.abc import Sequence
from random import Random

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts


class RoundRobin:
    """Begins anywhere: else all machines that start together would begin with the same one."""

    def __init__(self, random: Random) -> None:
        self._next = random.getrandbits(32)

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        self._next += 1
        return (candidates[self._next % len(candidates)],)
