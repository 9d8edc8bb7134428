"""The one whose first token is likely to come sooner, of three taken by chance.

Likely is the average time of its replies to inputs of that size, times the requests that it would have. It is
a plain average: the largest of late would call a server slow for one long prompt. Dividing by output tokens
would call one slow whose answers are short. Three are compared and not all: averages are late to tell of a
load, so the best of all would be sent too much meanwhile, and the better of two is measurably worse
(`benches/routing`)."""

from collections.abc import Sequence
from math import exp
from random import Random

from sluicegate.routing.deployment import DECAY_SECONDS, Average, Clock, Deployment, size_of, tokens_of
from sluicegate.routing.policy import Facts

CHOICES = 3


class Latency:
    """What is not known of a deployment is taken to be as it is with the other, and a sample counts less the
    older it is: so one that was slow is tried again.
    """

    def __init__(self, random: Random, clock: Clock) -> None:
        self._random = random.random
        self._clock = clock

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        size = size_of(tokens_of(facts.size))
        now = self._clock()
        best, *others = self._some_of(candidates)
        for other in others:
            if _is_slower(best, other, size, now):
                best = other
        return (best,)

    def _some_of(self, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        """Three of them, each another one; all, where there are no more. Who comes first is chance."""
        random, count = self._random, len(candidates)
        first = int(random() * count)
        if count <= CHOICES:
            return (*candidates[first:], *candidates[:first])
        second = int(random() * (count - 1))
        second += second >= first
        third = int(random() * (count - 2))
        third += third >= min(first, second)
        third += third >= max(first, second)
        return candidates[first], candidates[second], candidates[third]


def _is_slower(one: Deployment, other: Deployment, size: int, now: float) -> bool:
    load, other_load = one.load, other.load
    average, other_average = load.first_token[size], other_load.first_token[size]
    if average is not None and other_average is not None:
        time = _faded(average, other_average.value, now) * (load.streams + 1)
        return time > _faded(other_average, average.value, now) * (other_load.streams + 1)
    # Of who has not shown anything yet one request is enough.
    waits = average is None and load.streams > 0
    other_waits = other_average is None and other_load.streams > 0
    return load.streams > other_load.streams if waits == other_waits else waits


def _faded(average: Average, otherwise: float, now: float) -> float:
    return otherwise + (average.value - otherwise) * exp((average.at - now) / DECAY_SECONDS)
