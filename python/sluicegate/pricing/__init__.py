"""Prices: what a request's tokens cost. Exact, in decimals; what is not known is never called zero."""

from sluicegate.config import Config, load_own
from sluicegate.pricing.cost import Cost, in_picodollars, members
from sluicegate.pricing.genai import GenaiPrices
from sluicegate.pricing.policy import OwnPrices, PricePolicy, TariffPolicy
from sluicegate.pricing.rates import Tariff
from sluicegate.pricing.recorded import charge, charged_by
from sluicegate.pricing.table import PriceTable
from sluicegate.pricing.usage import UsageLike

__all__ = [
    "Cost",
    "GenaiPrices",
    "PricePolicy",
    "PriceTable",
    "Tariff",
    "TariffPolicy",
    "UsageLike",
    "charge",
    "charged_by",
    "in_picodollars",
    "members",
    "policy_for",
]


def policy_for(config: Config) -> PricePolicy:
    """The policy a configuration asks for: a function of the user's own, or its table, then, if it says so,
    the genai-prices list.

    The list is read here where a configured model needs it, so call this before traffic starts.
    """
    if config.cost.function is not None:
        return OwnPrices(load_own(config.cost.function))
    if not config.cost.genai_prices:
        return PriceTable(config.prices)
    base_urls: dict[str, list[str]] = {}
    for name, model in config.models.items():
        # What a wildcard matches is known when it is asked for.
        for route in () if "*" in name else model.routes:
            if not {name, route.model, f"{route.upstream}/{route.model}"} & config.prices.keys():
                base_urls.setdefault(route.model, []).append(config.upstreams[route.upstream].base_url)
    listed = GenaiPrices(base_urls)
    listed.prepare(base_urls)
    return PriceTable(config.prices, otherwise=listed)
