"""Requests held against limits, as the gateway does it."""

from sluicegate._core import Excess, Lease
from sluicegate.admission import Answer, Caller, Later, Limiter


def a_millionth(input: int, output: int) -> int:
    """What so many tokens cost, in 10**-12 USD."""
    return (input + output) * 10**6


def hold(
    limiter: Limiter,
    caller: Caller,
    input: int,
    output: int | None,
    *,
    model: str = "m",
    user: str | None = None,
) -> Answer | Later:
    """Hold a request with this rough input, and this bound of its output, against the caller's limits."""
    limits = limiter.limits(caller, model, user)
    demand = limits.demand(input, output, a_millionth)
    assert demand is not None
    return limiter.admit(limits, demand, caller, user)


def held(
    limiter: Limiter,
    caller: Caller,
    input: int,
    output: int | None,
    *,
    model: str = "m",
    user: str | None = None,
) -> Lease | Excess:
    """As `hold`, where the answer is there at once."""
    found: list[Answer] = []
    answer = hold(limiter, caller, input, output, model=model, user=user)
    if isinstance(answer, Later):
        answer.then(found.append)
    else:
        found.append(answer)
    [answer] = found
    assert isinstance(answer, Lease | Excess)
    return answer
