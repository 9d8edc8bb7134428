"""The one that has less to do, of two taken by chance.

Two choices balance almost as well as looking at all, cost the same for any number, and do not send the
requests of several gateways, each of which knows its own only, to the same deployment (Mitzenmacher, "The
power of two choices in randomized load balancing")."""

from collections.abc import Sequence
from random import Random

from sluicegate.routing.deployment import Deployment
from sluicegate.routing.policy import Facts


class LeastBusy:
    """`by_tokens`: by the estimated tokens of the inputs in flight, else by requests in flight; for its
    weight."""

    def __init__(self, random: Random, *, by_tokens: bool = False) -> None:
        self._random = random.random
        self._by_tokens = by_tokens

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        one, other = two_of(candidates, self._random())
        if self._by_tokens:
            busier = one.load.tokens * other.weight > other.load.tokens * one.weight
        else:
            busier = one.load.streams * other.weight > other.load.streams * one.weight
        return (other, one) if busier else (one, other)


def two_of(candidates: Sequence[Deployment], chance: float) -> tuple[Deployment, Deployment]:
    """Two different ones, by a number from 0 up to 1."""
    count = len(candidates)
    first, second = divmod(int(chance * count * (count - 1)), count - 1)
    return candidates[first], candidates[second + (second >= first)]
