"""A conversation stays with the deployment that has its beginning in its cache, within bounds of load.

The order of the deployments for a conversation is its weighted rendezvous hash: there is no state, all
machines agree, and a deployment that is lost moves only its own conversations. The first in that order whose
streams are below the bound takes the request ("Consistent Hashing with Bounded Loads", Mirrokni and others,
2016)."""

from collections.abc import Sequence
from math import ceil
from random import Random

from sluicegate._core import Rendezvous, affinity_of_key
from sluicegate.routing.deployment import Deployment
from sluicegate.routing.least_busy import LeastBusy
from sluicegate.routing.policy import Facts

# The order is worked out as far as it is likely to be needed.
_FIRST = 3


class Affinity:
    """`header`: the client's, in lower case, that names the conversation; without one it is `Facts.affinity`.
    A request of no conversation goes to who has less to do.
    """

    def __init__(self, random: Random, *, header: str | None = None, load_factor: float = 1.75) -> None:
        self._header = header
        self._load_factor = load_factor
        self._otherwise = LeastBusy(random)
        self._of: Sequence[Deployment] = ()
        self._order = Rendezvous([], [])
        self._shares: list[float] = []
        """Of all streams that there are, what each may have."""

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        key = self._key(facts)
        if key is None:
            return self._otherwise.rank(facts, candidates)
        if candidates is not self._of:
            self._adopt(candidates)
        streams = [deployment.load.streams for deployment in candidates]
        total = sum(streams) + 1
        shares = self._shares
        for first in (_FIRST, len(candidates)):
            for place in self._order.ranked(key, first):
                if streams[place] < ceil(shares[place] * total):
                    return (candidates[place],)
        # Rounding: some bound is always above its deployment's streams.
        return candidates

    def _key(self, facts: Facts) -> int | None:
        if self._header is not None:
            value = facts.headers.get(self._header)
            if value:
                return affinity_of_key(value.encode("latin-1", "replace"))
        return facts.affinity

    def _adopt(self, candidates: Sequence[Deployment]) -> None:
        weights = [deployment.full_weight for deployment in candidates]
        self._order = Rendezvous([deployment.name for deployment in candidates], weights)
        total = sum(weights)
        self._shares = [self._load_factor * weight / total for weight in weights]
        self._of = candidates
