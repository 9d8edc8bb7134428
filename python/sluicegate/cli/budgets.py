"""Limits of cost that cannot see what some requests cost."""

from collections.abc import Iterator
from typing import NamedTuple

from sluicegate.admission import Caller
from sluicegate.config import Config, LimitSet, RouteConfig, wildcard_matches
from sluicegate.errors import ConfigurationFault
from sluicegate.pricing import TariffPolicy, policy_for

_MOST_SHOWN = 3


class _Served(NamedTuple):
    """A model that clients may ask for, or a wildcard."""

    name: str
    routes: tuple[RouteConfig, ...]


def blind_budgets(config: Config) -> Iterator[ConfigurationFault]:
    """A warning for whoever has a limit of cost and may use models whose price is not known, or what a
    wildcard matches, or an upstream lists, without a price for all of that.

    Where a function of the user's own says what requests cost, nobody knows before it is asked.
    """
    policy = policy_for(config)
    if not isinstance(policy, TariffPolicy):
        return
    served = [_Served(name, model.routes) for name, model in config.models.items()]
    for name, upstream in config.upstreams.items():
        if upstream.discover is not None:
            route = RouteConfig.model_validate(f"{name}/*")
            served.append(_Served(f"{upstream.discover.prefix}*", (route,)))

    def blind(name: str, of: _Served) -> bool:
        star = name[of.name.find("*") :][: len(name) - len(of.name) + 1] if "*" in of.name else ""
        return any(
            policy.tariff(name, route.model.replace("*", star), route.upstream) is None for route in of.routes
        )

    for place, named, caller in _limited(config):
        limits = config.limits[named]
        if limits.unpriced == "refuse":
            continue
        seen = [
            name
            for each in served
            for name in _used(caller, each.name, config)
            if _is_held(name, limits) and blind(name, each)
        ]
        if seen:
            more = ", …" if len(seen) > _MOST_SHOWN else ""
            yield ConfigurationFault(
                place,
                "has a limit of cost, which cannot see models without a price: "
                f"{', '.join(seen[:_MOST_SHOWN])}{more}",
                f"add `prices` (a name there may be a wildcard), or `unpriced: refuse` to `limits.{named}`",
            )


def _used(caller: Caller, name: str, config: Config) -> Iterator[str]:
    """What `caller` may use of the model or the wildcard `name`: names, and the wildcard itself where what it
    may use is not all named.
    """
    if "*" not in name:
        if caller.may_use(name):
            yield name
        return
    named = {pattern for patterns in caller.models for pattern in patterns if not pattern.endswith("*")}
    if all(any(pattern.endswith("*") for pattern in patterns) for patterns in caller.models):
        before = name.partition("*")[0]
        starts = [[each[:-1] for each in patterns if each.endswith("*")] for patterns in caller.models]
        if all(any(before.startswith(s) or s.startswith(before) for s in each) for each in starts):
            yield name
    for one in sorted(named):
        if one not in config.models and wildcard_matches(name, one) and caller.may_use(one):
            yield one


def _is_held(name: str, limits: LimitSet) -> bool:
    """Whether a limit of cost is on the model, or on what a wildcard matches."""
    return bool(limits.cost) or any(
        each.cost and (model == name or ("*" in name and wildcard_matches(name, model)))
        for model, each in limits.models.items()
    )


def _limited(config: Config) -> Iterator[tuple[str, str, Caller]]:
    """Who has limits: the place, the limits' name, and which models may be used."""
    of_caller = {caller.name: caller.models for caller in config.callers}
    allowed = [(f"callers[{index}]", each.limits, [each.models]) for index, each in enumerate(config.callers)]
    allowed += [
        (f"keys[{index}]", key.limits, [key.models, of_caller.get(key.name)])
        for index, key in enumerate(config.keys)
    ]
    allowed += [(f"teams.{name}", team.limits, []) for name, team in config.teams.items()]
    if config.users is not None:
        allowed.append(("users", config.users.limits, []))
    for place, limits, models in allowed:
        if limits is not None:
            patterns = tuple(each for each in models if each is not None)
            yield place, limits, Caller(None, "", models=patterns)
