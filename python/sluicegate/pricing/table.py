"""The price table of the configuration."""

import time
from bisect import bisect_right
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
        self._tariffs = {name: _Dated(price) for name, price in prices.items()}
        self._otherwise = otherwise

    def tariff(self, model: str, upstream_model: str) -> Tariff | None:
        """See `TariffPolicy.tariff`."""
        known = self._tariffs.get(model) or self._tariffs.get(upstream_model)
        if known is not None:
            return known.now()
        return None if self._otherwise is None else self._otherwise.tariff(model, upstream_model)

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """See `PricePolicy.price`."""
        tariff = self.tariff(model, upstream_model)
        return None if tariff is None else tariff.cost(usage)


class _Dated:
    """The tariffs of one model, each from a time on."""

    __slots__ = ("_since", "_tariffs")

    def __init__(self, price: PriceConfig) -> None:
        self._tariffs = [_tariff(price)]
        self._since: list[float] = []
        for change in price.changes:
            changed = change.model_dump(include=change.model_fields_set - {"since", "tiers"})
            tiers = price.tiers if change.tiers is None else change.tiers
            price = price.model_copy(update={**changed, "tiers": tiers})
            self._tariffs.append(_tariff(price))
            self._since.append(change.since.timestamp())

    def now(self) -> Tariff:
        return self._tariffs[bisect_right(self._since, time.time()) if self._since else 0]


def _tariff(price: PriceConfig) -> Tariff:
    """The rates of a configured price. A tier keeps what it does not change."""
    tiers = tuple((tier.above, _rates(tier, price)) for tier in reversed(price.tiers))
    return Tariff(_rates(price, price), tiers)


def _rates(tier: PriceConfig | TierConfig, base: PriceConfig) -> Rates:
    def rate(name: str) -> object:
        own = getattr(tier, name)
        return getattr(base, name) if own is None else own

    return Rates(**{name: per_token(rate(name)) for name in _RATES})  # type: ignore[arg-type]
