"""What holds a request against its limits, all of them or none, and gives back what it did not use.

A refusal counts nothing. What is reserved at the beginning is settled at the end: with what was really used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sluicegate.admission.windows import CounterKey, Moment, Resource, Window

PICO = 10**12
"""Costs are counted in whole numbers of 10⁻¹² USD."""


class Limit(NamedTuple):
    """One limit of one subject, bound to its counter."""

    resource: Resource
    amount: int
    window: Window
    key: CounterKey
    """What `window` counts."""
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

    def of(self, resource: Resource) -> int:
        """What it takes of a limit."""
        if resource == "tokens":
            return self.input + self.output
        if resource == "requests":
            return self.requests
        return self.cost if resource == "cost" else self.concurrent


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


class Held(NamedTuple):
    """What a request holds of one limit."""

    limit: Limit
    place: int
    """Where it was counted, as its window has it."""
    amount: int


Changes = Sequence[Held]
"""What is to be added where, or, below zero, taken away."""


class Lease:
    """What one request holds of its limits. It is settled once; later calls do nothing."""

    __slots__ = ("_held", "_now", "_tell", "_times", "clock", "limits")

    def __init__(
        self,
        limits: Sequence[Limit],
        held: Changes,
        clock: Moment,
        *,
        times: int = 1,
        now: Callable[[], Moment] = Moment.now,
        tell: Callable[[Changes], None] | None = None,
    ) -> None:
        """`times`: how often the windows count each amount. `tell`: who else is to hear what is settled."""
        self.limits = limits
        self.clock = clock
        """When it was admitted."""
        self._held: Changes | None = held
        self._times = times
        self._now = now
        self._tell = tell

    def settle(self, used: Used) -> None:
        """The request is over, and has used this."""
        held, self._held = self._held, None
        if held is None:
            return
        now = self._now()
        changes = []
        for limit, place, amount in held:
            resource, window = limit.resource, limit.window
            really = 0
            if resource == "tokens":
                really = used.tokens
            elif resource == "requests":
                really = used.requests
            elif resource == "cost":
                really = used.cost or 0
            more = really - amount
            if more:
                window.advance(now)
                times = 1 if resource == "concurrent" else self._times
                changes.append(Held(limit, window.correct(place, more * times), more))
        if self._tell is not None and changes:
            self._tell(changes)


def admit(limits: Sequence[Limit], demand: Demand, clock: Moment, times: int = 1) -> Changes | Excess:
    """All of the limits let `demand` in, or the one that does so last refuses it, and nothing is counted.

    `times`: as if so many such requests had come at once.
    """
    over = []
    for limit in limits:
        limit.window.advance(clock)
        used = limit.window.used
        if not _fits(limit, used, demand, times):
            over.append((limit, used))
    return refused(limits, over, demand, clock) if over else take(limits, demand, times)


def _fits(limit: Limit, used: int, demand: Demand, times: int) -> bool:
    resource, most = limit.resource, limit.amount
    if resource == "cost":
        return used < most
    amount = demand.of(resource)
    if resource == "concurrent":
        # The window counts what runs here once, however many others there are.
        used *= times
    if used + times * amount <= most:
        return True
    # What the output may be is a guess: it refuses nobody who is alone in the window.
    return used <= 0 and (demand.input if resource == "tokens" else amount) <= most


def take(limits: Sequence[Limit], demand: Demand, times: int = 1) -> Changes:
    """Count `demand` in every window."""
    held = []
    for limit in limits:
        resource, most, window, _, _ = limit
        amount = demand.of(resource)
        if resource == "cost":
            amount = min(amount, max(0, most - window.used) // times)
        counted = amount if resource == "concurrent" else times * amount
        held.append(Held(limit, window.add(counted), amount))
    return held


def refused(
    limits: Sequence[Limit], over: Sequence[tuple[Limit, int]], demand: Demand, clock: Moment
) -> Excess:
    """Of the limits that refuse (`over`, each with what is used of it), the one that does so longest."""
    worst: Excess | None = None
    for limit, used in over:
        resource, most, window, _, _ = limit
        never, wanted = False, 1
        if resource == "tokens":
            never, wanted = demand.input > most, min(demand.of(resource), most)
        excess = Excess(limit, window.wait(wanted, most, clock), never, used, limits, clock)
        if worst is None or (excess.never, excess.wait) > (worst.never, worst.wait):
            worst = excess
    if worst is None:
        raise ValueError("no limit refuses")
    return worst
