"""Limits of cost that cannot see what some requests cost."""

from collections.abc import Iterator

from sluicegate.admission import Caller
from sluicegate.config import Config
from sluicegate.errors import ConfigurationFault
from sluicegate.pricing import TariffPolicy, policy_for

_MOST_SHOWN = 3


def blind_budgets(config: Config) -> Iterator[ConfigurationFault]:
    """A warning for whoever has a limit of cost and may use models whose price is not known.

    Where a function of the user's own says what requests cost, nobody knows before it is asked.
    """
    policy = policy_for(config)
    if not isinstance(policy, TariffPolicy):
        return
    unpriced = [
        name
        for name, model in config.models.items()
        # What a wildcard matches is known when it is asked for.
        if "*" not in name and any(policy.tariff(name, route.model) is None for route in model.routes)
    ]
    for place, named, caller in _limited(config):
        limits = config.limits[named]
        seen = [
            name
            for name in unpriced
            if caller.may_use(name) and (limits.cost or (name in limits.models and limits.models[name].cost))
        ]
        if seen and limits.unpriced != "refuse":
            more = ", …" if len(seen) > _MOST_SHOWN else ""
            yield ConfigurationFault(
                place,
                "has a limit of cost, which cannot see models without a price: "
                f"{', '.join(seen[:_MOST_SHOWN])}{more}",
                f"add `prices`, or `unpriced: refuse` to `limits.{named}`",
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
