"""How many tries that may well fail again all requests of a model may add, and the pause before the same
deployment is tried again."""

from random import Random

FREE_PER_SECOND = 3
"""Tries after a first one that cost nothing, so that a model with few requests has some."""

_SECONDS = 10
# Whole numbers: what is added is taken away again to the last bit.
_TRY = 1_000_000


class RetryBudget:
    """What one model may spend on tries that may well fail again. For the thread that decides.

    Each request adds `share` of a try, and each further try takes one; what was added or taken longer than
    ten seconds ago is forgotten. As in Finagle (RetryBudget.scala): where everything fails, load grows by
    `share` and not by as many times as each request may be tried.
    """

    __slots__ = ("__weakref__", "_balance", "_per_request", "_second", "_slices", "refused", "retries")

    def __init__(self, share: float) -> None:
        self.retries: dict[str, int] = {}
        """Further tries so far, by what the one before failed with."""
        self.refused = 0
        """Those that there was no budget for."""
        self._per_request = round(share * _TRY)
        self._slices = [0] * _SECONDS
        self._balance = 0
        self._second = 0

    def adopt(self, share: float) -> None:
        """From now on each request adds so much."""
        self._per_request = round(share * _TRY)

    def deposit(self, now: float) -> None:
        """A request has come."""
        second = int(now)
        if second != self._second:
            self._forget(second)
        self._slices[second % _SECONDS] += self._per_request
        self._balance += self._per_request

    def affords(self, now: float) -> bool:
        """Whether there may be a further try."""
        second = int(now)
        if second != self._second:
            self._forget(second)
        return self._balance + FREE_PER_SECOND * _SECONDS * _TRY >= _TRY

    def withdraw(self, now: float, reason: str = "") -> bool:
        """Whether there may be a further try, after one that failed for `reason`; if so, it is paid for."""
        if not self.affords(now):
            self.refused += 1
            return False
        self._slices[self._second % _SECONDS] -= _TRY
        self._balance -= _TRY
        self.count(reason)
        return True

    def count(self, reason: str) -> None:
        """There is a further try, after one that failed for `reason`, which costs nothing."""
        self.retries[reason] = self.retries.get(reason, 0) + 1

    def _forget(self, second: int) -> None:
        slices = self._slices
        for passed in range(self._second + 1, min(second, self._second + _SECONDS) + 1):
            self._balance -= slices[passed % _SECONDS]
            slices[passed % _SECONDS] = 0
        self._second = second


def backoff(
    n: int, stated: float | None, random: Random, shortest: float = 0.1, longest: float = 2.0
) -> float:
    """Seconds before the same deployment is tried for the `n`th time again, counted from 0.

    Anything up to `shortest` doubled `n` times, at most `longest`, so that those who failed together do not
    come back together; not below what the upstream `stated`.
    """
    most = min(longest, shortest * 2.0 ** min(n, 32))
    return max(random.uniform(0.0, most), stated or 0.0)
