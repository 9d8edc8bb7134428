"""By chance, in the ratio of the configured weights."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts


class Weighted:
    """Needs to know nothing of the deployments, so it is fair to those that fail, too."""

    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._of: Sequence[Deployment] = ()
        self._until: list[float] = []
        """What the weights add up to, up to each candidate."""

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        if candidates is not self._of:
            self._until = list(accumulate(deployment.weight for deployment in candidates))
            self._of = candidates
        until = self._until
        # Rounding may make the product as large as the sum.
        place = min(bisect_right(until, self._random() * until[-1]), len(candidates) - 1)
        return (candidates[place],)
