"""The price table of the configuration."""

from collections.abc import Mapping
from dataclasses import fields

from sluicegate.config import PriceConfig, TierConfig
from sluicegate.pricing.cost import Cost
from sluicegate.pricing.policy import TariffPolicy, UsageLike
from sluicegate.pricing.rates import Rates, Tariff, per_token

_RATES = tuple(field.name for field in fields(Rates) if field.init)


class PriceTable:
    """Prices by public name, then by the upstream's name; `otherwise` is asked about models not in it.

    A model in the table is priced by it alone: where it lacks a price that is needed the cost is unknown.
    `otherwise` has tariffs as the table has. A policy without them cannot stand behind a table; it asks one
    itself and prices what that does not know.
    """

    def __init__(self, prices: Mapping[str, PriceConfig], otherwise: TariffPolicy | None = None) -> None:
        self._tariffs = {name: _tariff(price) for name, price in prices.items()}
        self._otherwise = otherwise

    def tariff(self, model: str, upstream_model: str) -> Tariff | None:
        """See `TariffPolicy.tariff`."""
        known = self._tariffs.get(model) or self._tariffs.get(upstream_model)
        if known is not None or self._otherwise is None:
            return known
        return self._otherwise.tariff(model, upstream_model)

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """See `PricePolicy.price`."""
        tariff = self.tariff(model, upstream_model)
        return None if tariff is None else tariff.cost(usage)


def _tariff(price: PriceConfig) -> Tariff:
    """The rates of a configured price. A tier keeps what it does not change."""
    tiers = tuple((tier.above, _rates(tier, price)) for tier in reversed(price.tiers))
    return Tariff(_rates(price, price), tiers)


def _rates(tier: PriceConfig | TierConfig, base: PriceConfig) -> Rates:
    def rate(name: str) -> object:
        own = getattr(tier, name)
        return getattr(base, name) if own is None else own

    return Rates(**{name: per_token(rate(name)) for name in _RATES})  # type: ignore[arg-type]
