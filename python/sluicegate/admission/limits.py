"""What holds a request against its limits, all of them or none, and gives back what it did not use.

A refusal counts nothing. What is reserved at the beginning is settled at the end: with what was really used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sluicegate.admission.counters import Resource
from sluicegate.admission.windows import Moment, Window

PICO = 10**12
"""Costs are counted in whole numbers of 10⁻¹² USD."""


class Limit(NamedTuple):
    """One limit of one subject, bound to its counter."""

    resource: Resource
    amount: int
    window: Window
    unit: str
    """`minute`, `day`, …; empty: what is under way."""
    name: str
    """For people: `600 requests a minute of the caller search`."""


class Demand(NamedTuple):
    """What a request will use, as far as can be told before it runs."""

    requests: int
    concurrent: int
    input: int
    """Tokens."""
    output: int
    """Tokens."""
    cost: int


class Used(NamedTuple):
    """What a request has used."""

    requests: int
    tokens: int
    cost: int | None
    """None: not known, and then nothing is counted."""


@dataclass(frozen=True, slots=True)
class Excess:
    """The limit that refuses a request."""

    limit: Limit
    wait: float
    """Seconds until the request would be admitted, if nothing else came."""
    never: bool
    """It is larger than the limit itself."""
    used: int
    limits: Sequence[Limit]
    """All that the request was held against."""
    clock: Moment


class Lease:
    """What one request holds of its limits. It is settled once; later calls do nothing."""

    __slots__ = ("_held", "clock", "limits")

    def __init__(self, limits: Sequence[Limit], held: list[tuple[Limit, int, int]], clock: Moment) -> None:
        self.limits = limits
        self.clock = clock
        """When it was admitted."""
        self._held: list[tuple[Limit, int, int]] | None = held

    def settle(self, used: Used) -> None:
        """The request is over, and has used this."""
        held, self._held = self._held, None
        if held is None:
            return
        now = Moment.now()
        for limit, place, amount in held:
            resource, window = limit.resource, limit.window
            if resource == "concurrent":
                window.correct(place, -amount)
                continue
            if resource == "tokens":
                really = used.tokens
            elif resource == "requests":
                really = used.requests
            else:
                really = used.cost or 0
            if really != amount:
                window.advance(now)
                window.correct(place, really - amount)


def admit(limits: Sequence[Limit], demand: Demand, clock: Moment) -> Lease | Excess:
    """All of the limits let `demand` in, or the one that does so last refuses it, and nothing is counted."""
    worst: Excess | None = None
    tokens = demand.input + demand.output
    for limit in limits:
        resource, most, window, _, _ = limit
        window.advance(clock)
        used = window.used
        never, wanted = False, 1
        if resource == "tokens":
            # What the output may be is a guess: it refuses nobody who is alone in the window.
            if used + tokens <= most or (used <= 0 and demand.input <= most):
                continue
            never, wanted = demand.input > most, tokens if tokens <= most else most
        elif resource == "cost":
            if used < most:
                continue
        elif resource == "requests":
            if used + demand.requests <= most:
                continue
        elif used + demand.concurrent <= most:
            continue
        excess = Excess(limit, window.wait(wanted, most, clock), never, used, limits, clock)
        if worst is None or (excess.never, excess.wait) > (worst.never, worst.wait):
            worst = excess
    if worst is not None:
        return worst
    held = []
    for limit in limits:
        resource, most, window, _, _ = limit
        if resource == "tokens":
            amount = tokens
        elif resource == "requests":
            amount = demand.requests
        elif resource == "cost":
            amount = min(demand.cost, most - window.used)
        else:
            amount = demand.concurrent
        held.append((limit, window.add(amount), amount))
    return Lease(limits, held, clock)
