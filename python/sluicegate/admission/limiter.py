"""The limits of one configuration, bound to the counters of the process."""

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache

from sluicegate._core import Estimates, Limit, Limits, Window
from sluicegate.admission.caller import Caller
from sluicegate.admission.counters import Counters
from sluicegate.admission.recalling import Spending, used_by
from sluicegate.admission.windows import CounterKey, Resource
from sluicegate.config import Amounts, Config, LimitSet, Rate, picodollars

LONGEST_USER = 128
"""Characters of the name of one of the people behind a caller that are looked at."""

# Of one user, by keys and models.
_MOST_BOUND = 64

_UNITS = {"requests": "requests", "tokens": "tokens", "cost": "USD"}

_numbers = itertools.count(1)


class Limiter:
    """For the thread that decides."""

    def __init__(
        self, config: Config, counters: Counters, estimates: Estimates, own: Iterable[LimitSet] = ()
    ) -> None:
        """`own`: limits of callers that are not among the configuration's."""
        self.counters = counters
        self._estimates = estimates
        self._number = next(_numbers)
        self._users = None if config.users is None else config.limits[config.users.limits]
        self._bound: dict[tuple[str, str, str], Limits] = {}
        sets = [*config.limits.values(), *own]
        self.user_header = None if config.users is None else config.users.header.lower()
        """The header that tells users apart."""
        self.is_idle = not sets
        """Nobody has a limit."""
        self.wants_input = any(
            amounts.tokens or amounts.cost for limits in sets for amounts in (limits, *limits.models.values())
        )
        """Whether anything depends on how many tokens an input has."""

    def limits(self, caller: Caller, model: str, user: str | None) -> Limits:
        """What requests of `caller`, and of its `user`, to `model` are held against. `model`: its public
        name; empty for one that no configuration knows, since a client may have made it up.
        """
        if user and self._users is not None:
            return self._limits_with_user(self._users, caller, model, user)
        place = caller.owner, caller.key_id, model
        bound = self._bound.get(place)
        if bound is None:
            window = self.counters.window
            limits = [
                limit
                for subject, who, limits in caller.limits
                for limit in _bind(limits, subject, who, model, window)
            ]
            bound = self._bound[place] = self._limits(caller, model, limits)
        return bound

    def _limits_with_user(self, users: LimitSet, caller: Caller, model: str, name: str) -> Limits:
        subject = f"user:{caller.owner}:{name}"
        counters = self.counters
        user = counters.user(subject)
        if user.limits_of != self._number or len(user.limits) > _MOST_BOUND:
            user.limits_of = self._number
            user.limits.clear()
        place = caller.key_id, model
        bound = user.limits.get(place)
        if bound is None:
            own = _bind(users, subject, "this user", model, lambda key: counters.user_window(subject, key))
            limits = [*self.limits(caller, model, None), *own]
            bound = user.limits[place] = self._limits(caller, model, limits)
        return bound

    def _limits(self, caller: Caller, model: str, limits: list[Limit]) -> Limits:
        sets = [each for _, _, each in caller.limits]
        return Limits(
            limits,
            self.counters.clock,
            self._estimates,
            caller=caller.owner,
            model=model,
            by_maximum=any(each.reserve == "maximum" for each in sets),
            # Also where the request names no user.
            refuses_unpriced=any(
                each.unpriced == "refuse" for each in (*sets, *([] if self._users is None else [self._users]))
            ),
        )

    @property
    def limits_users(self) -> bool:
        return self._users is not None

    def limits_of(self, callers: Iterable[Caller]) -> list[Limit]:
        """All limits of these callers, but for those of their users. What several share comes as often."""
        found: list[Limit] = []
        for caller in callers:
            models = {name for _, _, limits in caller.limits for name in limits.models}
            for model in ("", *sorted(models)):
                found += self.limits(caller, model, None)
        return found

    def limits_of_user(self, owner: str, name: str) -> list[Limit]:
        """All limits of one of the people behind this owner. What several models share comes as often."""
        users = self._users
        if users is None:
            return []
        subject = f"user:{owner}:{name}"
        windows = self.counters.windows_of(subject)

        def window(key: CounterKey) -> Window:
            known = windows.get(key)
            if known is None:
                known = windows[key] = Window(self.counters.clock, key.window)
            return known

        who = f"the user `{name}`"
        return [
            limit
            for model in ("", *sorted(users.models))
            for limit in _bind(users, subject, who, model, window)
        ]

    def recall(self, callers: Iterable[Caller], spent: Iterable[Spending]) -> None:
        """Count what other processes have used, those before this one among them."""
        self.limits_of(callers)
        sums: dict[tuple[int, int], tuple[Window, int]] = {}
        for each in spent:
            for window, amount in self._windows_of(each):
                place = window.recall(each.at)
                if place is not None:
                    at = id(window), place
                    sums[at] = window, amount + sums.get(at, (window, 0))[1]
        for (_, place), (window, amount) in sums.items():
            window.raise_to(place, amount)

    def _windows_of(self, spent: Spending) -> Iterable[tuple[Window, int]]:
        for key, amount in used_by(spent):
            if key.subject.startswith("user:"):
                if self._limits_user(key.resource, key.model, key.window):
                    yield self.counters.user_window(key.subject, key), amount
            else:
                window = self.counters.known(key)
                if window is not None:
                    yield window, amount

    def _limits_user(self, resource: Resource, model: str, unit: str) -> bool:
        limits: Amounts | None = self._users if not model else self._users and self._users.models.get(model)
        rates: tuple[Rate, ...] = () if limits is None else getattr(limits, resource)
        return any(rate.window == unit for rate in rates)


@lru_cache(maxsize=256)
def _one_text(text: str) -> str:
    """The same object for the same text: the limits of very many users have the same names."""
    return text


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
            amount = picodollars(rate.amount) if resource == "cost" else int(rate.amount)
            key = CounterKey(subject, resource, model, rate.window)
            name = _one_text(f"{rate.amount:f} {_UNITS[resource]} a {rate.window} of {who}")
            yield Limit(resource, amount, window(key), key, name)
    if amounts.concurrent is not None:
        key = CounterKey(subject, "concurrent", model, "")
        name = _one_text(f"{amounts.concurrent} requests at once of {who}")
        yield Limit("concurrent", amounts.concurrent, window(key), key, name)
