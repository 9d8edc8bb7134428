"""The one whose first token is likely to come sooner, of two taken by chance.

Likely is the average time of its replies to inputs of that size, times the requests that it would have. It is
a plain average: the largest of late would call a server slow for one long prompt. Dividing by output tokens
would call one slow whose answers are short."""

from collections.abc import Sequence
from math import exp
from random import Random

from sluicegate.routing.deployment import DECAY_SECONDS, Average, Clock, Deployment, size_of, tokens_of
from sluicegate.routing.least_busy import two_of
from sluicegate.routing.policy import Facts


class Latency:
    """What is not known of a deployment is taken to be as it is with the other, and a sample counts less the
    older it is: so one that was slow is tried again.
    """

    def __init__(self, random: Random, clock: Clock) -> None:
        self._random = random.random
        self._clock = clock

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        one, other = two_of(candidates, self._random())
        size = size_of(tokens_of(facts.size))
        load, other_load = one.load, other.load
        average, other_average = load.first_token[size], other_load.first_token[size]
        if average is None or other_average is None:
            # Of who has not shown anything yet one request is enough.
            unknown, others = (
                (average is None and load.streams),
                (other_average is None and other_load.streams),
            )
            if bool(unknown) != bool(others):
                return (other, one) if unknown else (one, other)
            slower = load.streams > other_load.streams
        else:
            now = self._clock()
            time, other_time = (
                _faded(average, other_average.value, now),
                _faded(other_average, average.value, now),
            )
            slower = time * (load.streams + 1) > other_time * (other_load.streams + 1)
        return (other, one) if slower else (one, other)


def _faded(average: Average, otherwise: float, now: float) -> float:
    return otherwise + (average.value - otherwise) * exp((average.at - now) / DECAY_SECONDS)
