"""The limits of one configuration, bound to the counters of the process."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from sluicegate.admission.caller import Caller
from sluicegate.admission.counters import Counters, Unavailable
from sluicegate.admission.estimate import Estimates
from sluicegate.admission.limits import PICO, Demand, Excess, Lease, Limit, Used
from sluicegate.admission.recalling import Spending, used_by
from sluicegate.admission.windows import CounterKey, Resource, Window
from sluicegate.config import Amounts, Config, LimitSet, Rate

LONGEST_USER = 128
"""Characters of the name of one of the people behind a caller that are looked at."""

_UNITS = {"requests": "requests", "tokens": "tokens", "cost": "USD"}


@dataclass(frozen=True, slots=True)
class Wish:
    """A request that is to be held against limits."""

    caller: Caller
    model: str
    """Its public name; empty for one that no configuration knows: a client may have made it up."""
    user: str | None
    rough_input: int
    """Input tokens, at four bytes a token."""
    output_bound: int | None
    """The client's own."""
    requests: int = 1
    concurrent: int = 1
    runs: bool = True
    """False: it is only taken on, and will run later."""


class Admitted:
    """A request that was let in. For the thread that decides."""

    __slots__ = ("_estimates", "_wish", "demand", "lease")

    def __init__(self, lease: Lease, demand: Demand, wish: Wish, estimates: Estimates) -> None:
        self.lease = lease
        self.demand = demand
        self._wish = wish
        self._estimates = estimates

    def ended(self, input: int | None, output: int | None, cost: str | None, *, failed: bool) -> None:
        """It is over, and has used so many tokens, and USD as plain decimal text; None: not known.

        `failed`: it was answered with a 5xx. Where there was no output then, it counts as nothing.
        """
        demand = self.demand
        if failed and not output:
            self.unused()
            return
        if self._wish.model and self._wish.runs:
            wish = self._wish
            self._estimates.learn(wish.caller.owner, wish.model, wish.rough_input, input, output)
        # As the ledger adds rows up: what nobody has told is nothing, and no estimate takes its place.
        tokens = (input or 0) + (output or 0)
        self.lease.settle(Used(demand.requests, tokens, None if cost is None else in_pico(Decimal(cost))))

    def unused(self) -> None:
        """It did not run: nothing counts."""
        self.lease.settle(Used(0, 0, 0))

    def release(self) -> None:
        """Nothing is known of its end: what was estimated counts. After `ended`, this does nothing."""
        demand = self.demand
        self.lease.settle(Used(demand.requests, demand.input + demand.output, demand.cost))


Price = Callable[[int, int], Decimal | None]
"""What so many tokens of input and output cost, in USD; None: not known."""


class Limiter:
    """For the thread that decides."""

    def __init__(
        self, config: Config, counters: Counters, estimates: Estimates, own: Iterable[LimitSet] = ()
    ) -> None:
        """`own`: limits of callers that are not among the configuration's."""
        self._counters = counters
        self._estimates = estimates
        self._users = None if config.users is None else config.limits[config.users.limits]
        self._bound: dict[tuple[str, str, str], tuple[Limit, ...]] = {}
        sets = [*config.limits.values(), *own]
        self.user_header = None if config.users is None else config.users.header.lower()
        """The header that tells users apart."""
        self.is_idle = not sets
        """Nobody has a limit."""
        self.wants_input = any(
            amounts.tokens or amounts.cost for limits in sets for amounts in (limits, *limits.models.values())
        )
        """Whether anything depends on how many tokens an input has."""

    def admit(
        self, wish: Wish, price: Price, then: Callable[[Admitted | Excess | Unavailable | None], None]
    ) -> None:
        """Let it in or not: `then` is called with the answer, now or later. None: it has no limits."""
        caller = wish.caller
        limits = self._limits(wish)
        if not limits:
            then(None)
            return
        estimates, output, cost = self._estimates, 0, 0
        input = 0
        if wish.runs:
            strict = any(each.reserve == "maximum" for _, _, each in caller.limits)
            bound = wish.output_bound
            input = estimates.input(wish.model, wish.rough_input)
            output = estimates.output(caller.owner, wish.model, bound)
            if strict and bound is not None:
                output = bound
            if any(limit.resource == "cost" for limit in limits):
                likely = price(input, output)
                cost = 0 if likely is None else in_pico(likely)
        demand = Demand(wish.requests, wish.concurrent, input, output, cost)

        def answered(found: Lease | Excess | Unavailable) -> None:
            then(Admitted(found, demand, wish, estimates) if isinstance(found, Lease) else found)

        self._counters.admit(limits, demand, answered)

    @property
    def limits_users(self) -> bool:
        return self._users is not None

    def limits_of(self, callers: Iterable[Caller]) -> list[Limit]:
        """All limits of these callers, but for those of their users. What several share comes as often."""
        found: list[Limit] = []
        for caller in callers:
            models = {name for _, _, limits in caller.limits for name in limits.models}
            for model in ("", *sorted(models)):
                found += self._limits(Wish(caller, model, None, 0, None))
        return found

    def recall(self, callers: Iterable[Caller], spent: Iterable[Spending]) -> None:
        """Count what other processes have used, those before this one among them."""
        self.limits_of(callers)
        clock = self._counters.now()
        sums: dict[tuple[int, int], tuple[Window, int]] = {}
        for each in spent:
            for window, amount in self._windows_of(each):
                window.advance(clock)
                place = window.recall(each.at, clock)
                if place is not None:
                    at = id(window), place
                    sums[at] = window, amount + sums.get(at, (window, 0))[1]
        for (_, place), (window, amount) in sums.items():
            window.raise_to(place, amount)

    def _windows_of(self, spent: Spending) -> Iterable[tuple[Window, int]]:
        for key, amount in used_by(spent):
            if key.subject.startswith("user:"):
                if self._limits_user(key.resource, key.model, key.window):
                    yield self._counters.user_window(key.subject, key), amount
            else:
                window = self._counters.known(key)
                if window is not None:
                    yield window, amount

    def _limits_user(self, resource: Resource, model: str, unit: str) -> bool:
        limits: Amounts | None = self._users if not model else self._users and self._users.models.get(model)
        rates: tuple[Rate, ...] = () if limits is None else getattr(limits, resource)
        return any(rate.window == unit for rate in rates)

    def refuses_unpriced(self, caller: Caller) -> bool:
        """Whether a limit of its cost lets no request pass whose price is not known."""
        sets = [limits for _, _, limits in caller.limits]
        if self._users is not None:
            sets.append(self._users)
        return any(limits.unpriced == "refuse" for limits in sets)

    def _limits(self, wish: Wish) -> tuple[Limit, ...]:
        caller, model = wish.caller, wish.model
        place = caller.owner, caller.key_id, model
        bound = self._bound.get(place)
        if bound is None:
            counters = self._counters
            bound = self._bound[place] = tuple(
                limit
                for subject, who, limits in caller.limits
                for limit in _bind(limits, subject, who, model, counters.window)
            )
        user = wish.user
        if self._users is None or not user:
            return bound
        subject = f"user:{caller.owner}:{user}"
        counters = self._counters
        own = _bind(self._users, subject, "this user", model, lambda key: counters.user_window(subject, key))
        return (*bound, *own)


def in_pico(amount: Decimal) -> int:
    """USD as a whole number of 10⁻¹² USD."""
    # As the ledger rounds: the two agree.
    return int((amount * PICO).to_integral_value(ROUND_HALF_UP))


def _bind(
    limits: LimitSet, subject: str, who: str, model: str, window: Callable[[CounterKey], Window]
) -> Iterable[Limit]:
    yield from _amounts(limits, subject, who, "", window)
    own = limits.models.get(model)
    if own is not None:
        yield from _amounts(own, subject, f"{who} for `{model}`", model, window)


def _amounts(
    amounts: Amounts, subject: str, who: str, model: str, window: Callable[[CounterKey], Window]
) -> Iterable[Limit]:
    rates: tuple[tuple[Resource, tuple[Rate, ...]], ...] = (
        ("requests", amounts.requests),
        ("tokens", amounts.tokens),
        ("cost", amounts.cost),
    )
    for resource, several in rates:
        for rate in several:
            amount = in_pico(rate.amount) if resource == "cost" else int(rate.amount)
            key = CounterKey(subject, resource, model, rate.window)
            name = f"{rate.amount:f} {_UNITS[resource]} a {rate.window} of {who}"
            yield Limit(resource, amount, window(key), key, name)
    if amounts.concurrent is not None:
        key = CounterKey(subject, "concurrent", model, "")
        name = f"{amounts.concurrent} requests at once of {who}"
        yield Limit("concurrent", amounts.concurrent, window(key), key, name)
