"""The one that has less to do.

Of many, four are taken by chance and compared: that balances almost as well as looking at all, and costs the
same for any number (Mitzenmacher, "The power of two choices in randomized load balancing"). Up to eight are
all looked at: with so few, the best of two is measurably worse (`benches/routing`)."""

from collections.abc import Callable, Sequence
from random import Random

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts

FEW = 8
CHOICES = 4


class LeastBusy:
    """`by_tokens`: by the estimated tokens of the inputs in flight, else by requests in flight; for its
    weight.
    """

    def __init__(self, random: Random, *, by_tokens: bool = False) -> None:
        self._random = random.random
        self._by_tokens = by_tokens

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        by_tokens = self._by_tokens
        best, least = candidates[0], -1.0
        for deployment in some_of(candidates, self._random):
            load = deployment.load
            busy = (load.tokens if by_tokens else load.streams) / deployment.weight
            if busy < least or least < 0.0:
                best, least = deployment, busy
        return (best,)


def some_of(candidates: Sequence[Deployment], random: Callable[[], float]) -> Sequence[Deployment]:
    """Those that are compared; who comes first is chance, so equals are taken in turn."""
    count = len(candidates)
    if count <= FEW:
        first = int(random() * count)
        return (*candidates[first:], *candidates[:first])
    return [candidates[int(random() * count)] for _ in range(CHOICES)]
