"""How much is left of limits, for people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluicegate._core import Lease, Limit
from sluicegate.admission.windows import Resource


@dataclass(frozen=True, slots=True)
class Standing:
    """One limit. Costs are whole numbers of 10⁻¹² USD."""

    name: str
    """For people: `600 requests a minute of the caller search`."""
    resource: Resource
    window: str
    """`minute`, `day`, …; empty: what is under way."""
    limit: int
    used: int
    """What is reserved is part of it."""
    reserved: int
    """By requests under way: what they are expected to use."""
    remaining: int
    reset: float
    """Seconds until nothing of what is counted by now counts."""


def standing(limits: Iterable[Limit], reserved: Mapping[int, int]) -> list[Standing]:
    """How each of `limits` stands now, those of one window once. `reserved`: see `add_reserved`. Where
    several machines share the counters, it is what this one heard last. For the thread that decides.
    """
    found = []
    for place, limit in {id(limit.window): limit for limit in limits}.items():
        window = limit.window
        used = max(0, window.used)
        found.append(
            Standing(
                name=limit.name,
                resource=limit.resource,
                window=limit.key.window,
                limit=limit.amount,
                used=used,
                # A request may have been let in before this window began, and the estimate of a cost is cut.
                reserved=min(reserved.get(place, 0), used),
                remaining=max(0, limit.amount - used),
                reset=window.reset,
            )
        )
    return found


def add_reserved(reserved: dict[int, int], under_way: Iterable[Lease]) -> None:
    """Add what these requests hold of limits to `reserved`, which has a number for the identity of each
    window that is asked about. For the thread that decides.
    """
    for lease in under_way:
        demand = lease.demand
        for limit in lease.limits:
            place = id(limit.window)
            if place in reserved:
                reserved[place] += demand.of(limit)
