"""The limits of one configuration, bound to the counters of the process."""

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache

from sluicegate._core import Demand, Estimates, Lease, Limit, Limits, Window
from sluicegate.admission.caller import Caller
from sluicegate.admission.counters import Answer, Counters, Later
from sluicegate.admission.recalling import holds_for
from sluicegate.admission.windows import CounterKey, Resource, user_subject
from sluicegate.config import Amounts, Config, LimitSet, Rate, alias_target, picodollars

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
        self._bound: dict[tuple[str, str, str, tuple[str, ...]], Limits] = {}
        sets = [*config.limits.values(), *own]
        named = {name for limits in sets for name in limits.models}
        self._stands_for = {
            name: (alias_target(name, config.aliases) if name in config.aliases else None) or name
            for name in named
        }
        """By the names of models in limits: an alias stands for its model, however that is asked for."""
        self._names = {*self._stands_for.values()}
        self._patterns = sorted(name for name in self._names if "*" in name)
        self.user_header = None if config.users is None else config.users.header.lower()
        """The header that tells users apart."""
        self.is_idle = not sets
        """Nobody has a limit."""
        self.wants_input = any(
            amounts.tokens or amounts.cost for limits in sets for amounts in (limits, *limits.models.values())
        )
        """Whether anything depends on how many tokens an input has."""

    def limits(self, caller: Caller, model: str, user: str | None, name: str | None = None) -> Limits:
        """What requests of `caller`, and of its `user`, to a model are held against. `model`: as the
        configuration has it, empty for one that it does not know, since a client may have made it up.
        `name`: its public name, where that is another: what a wildcard matches.
        """
        names = self._limited(model if name is None else name)
        if user and self._users is not None:
            return self._limits_with_user(self._users, caller, model, user, names)
        return self._limits_of_caller(caller, model, names)

    def _limits_of_caller(self, caller: Caller, model: str, names: tuple[str, ...]) -> Limits:
        place = caller.owner, caller.key_id, model, names
        bound = self._bound.get(place)
        if bound is None:
            window = self.counters.window
            limits = [
                limit
                for subject, who, limits in caller.limits
                for limit in self._bind(limits, subject, who, names, window)
            ]
            bound = self._bound[place] = self._limits(caller, model, limits)
        return bound

    def admit(self, limits: Limits, demand: Demand, caller: Caller, user: str | None) -> Answer | Later:
        """Hold `demand` against `limits`, which are those of `caller` and of its `user`."""
        counters = self.counters
        answer = counters.admit(limits, demand)
        if not user or self._users is None:
            return answer
        owner, subject = caller.owner, user_subject(caller.owner, user)

        def keep(answer: Answer) -> None:
            if isinstance(answer, Lease):
                counters.keep(owner, subject)

        if isinstance(answer, Later):
            return answer.looked_at(keep)
        keep(answer)
        return answer

    def _limited(self, model: str) -> tuple[str, ...]:
        """The names in limits that hold for `model`: never one that a client has made up."""
        if not self._names:
            return ()
        names = (name for name in self._patterns if name != model and holds_for(name, model))
        return (model, *names) if model in self._names else (*names,)

    def _limits_with_user(
        self, users: LimitSet, caller: Caller, model: str, name: str, names: tuple[str, ...]
    ) -> Limits:
        owner, subject = caller.owner, user_subject(caller.owner, name)
        counters = self.counters
        user = counters.user(owner, subject)
        if user.limits_of != self._number or len(user.limits) > _MOST_BOUND:
            user.limits_of = self._number
            user.limits.clear()
        place = caller.key_id, model, names
        bound = user.limits.get(place)
        if bound is None:

            def window(key: CounterKey) -> Window:
                return counters.user_window(owner, subject, key)

            own = self._bind(users, subject, "this user", names, window)
            limits = [*self._limits_of_caller(caller, model, names), *own]
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

    def limits_of(self, callers: Iterable[Caller]) -> list[Limit]:
        """All limits of these callers, but for those of their users. What several share comes as often."""
        return [
            limit
            for caller in callers
            for subject, who, limits in caller.limits
            for limit in self._bind(limits, subject, who, None, self.counters.window)
        ]

    def limits_of_user(self, owner: str, name: str) -> list[Limit]:
        """All limits of one of the people behind this owner."""
        users = self._users
        if users is None:
            return []
        subject = user_subject(owner, name)

        def window(key: CounterKey) -> Window:
            return self.counters.user_window(owner, subject, key)

        return [*self._bind(users, subject, f"the user `{name}`", None, window)]

    def _bind(
        self,
        limits: LimitSet,
        subject: str,
        who: str,
        names: tuple[str, ...] | None,
        window: Callable[[CounterKey], Window],
    ) -> Iterable[Limit]:
        """`names`: those whose limits by model hold; None: all."""
        yield from _amounts(limits, subject, who, "", window)
        for name, own in limits.models.items():
            model = self._stands_for.get(name, name)
            if names is None or model in names:
                yield from _amounts(own, subject, f"{who} for `{name}`", model, window)


@lru_cache(maxsize=256)
def _one_text(text: str) -> str:
    """The same object for the same text: the limits of very many users have the same names."""
    return text


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
