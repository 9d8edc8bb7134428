"""The one whose first token is likely to come sooner, of two taken by chance.

Likely is the average time of its replies to inputs of that size, times the requests that it would have. It is
a plain average: the largest of late would call a server slow for one long prompt. Dividing by output tokens
would call one slow whose answers are short. Two are compared and not all: averages are late to tell of a
load, so the best of all would be sent too much meanwhile (`benches/routing`)."""

from collections.abc import Sequence
from math import exp
from random import Random

from sluicegate.routing.deployment import DECAY_SECONDS, Average, Clock, Deployment, size_of, tokens_of
from sluicegate.routing.policy import Facts


class Latency:
    """What is not known of a deployment is taken to be as it is with the other, and a sample counts less the
    older it is: so one that was slow is tried again.
    """

    def __init__(self, random: Random, clock: Clock) -> None:
        self._random = random.random
        self._clock = clock

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        count = len(candidates)
        first, second = divmod(int(self._random() * count * (count - 1)), count - 1)
        one, other = candidates[first], candidates[second + (second >= first)]
        size = size_of(tokens_of(facts.size))
        load, other_load = one.load, other.load
        average, other_average = load.first_token[size], other_load.first_token[size]
        if average is not None and other_average is not None:
            now = self._clock()
            time = _faded(average, other_average.value, now) * (load.streams + 1)
            slower = time > _faded(other_average, average.value, now) * (other_load.streams + 1)
        else:
            # Of who has not shown anything yet one request is enough.
            waits, other_waits = (
                average is None and load.streams > 0,
                other_average is None and other_load.streams > 0,
            )
            slower = load.streams > other_load.streams if waits == other_waits else waits
        return (other, one) if slower else (one, other)


def _faded(average: Average, otherwise: float, now: float) -> float:
    return otherwise + (average.value - otherwise) * exp((average.at - now) / DECAY_SECONDS)
