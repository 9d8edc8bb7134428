"""The price table of the configuration."""

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal

from sluicegate.config import PriceConfig, TierConfig, wildcard_matches
from sluicegate.pricing.cost import Cost
from sluicegate.pricing.policy import TariffPolicy
from sluicegate.pricing.rates import Rates, Tariff, per_token
from sluicegate.pricing.usage import UsageLike

_REQUEST = "per_request"
_KINDS = tuple(field.name for field in fields(Rates) if field.init and field.name != _REQUEST)


class PriceTable:
    """Prices by route (`upstream/model`), then by public name, then by the upstream's name, then by the
    longest wildcard that matches one of these. `otherwise` is asked about models not in it.

    A model in the table is priced by it alone: where it lacks a price that is needed the cost is unknown.
    `otherwise` has tariffs as the table has. A policy without them cannot stand behind a table; it asks one
    itself and prices what that does not know.
    """

    def __init__(self, prices: Mapping[str, PriceConfig], otherwise: TariffPolicy | None = None) -> None:
        self._tariffs = {name: _Dated(price, f"prices.{name}") for name, price in prices.items()}
        wildcards = sorted((name for name in prices if "*" in name), key=len, reverse=True)
        self._wildcards = [(name, self._tariffs[name]) for name in wildcards]
        self._otherwise = otherwise

    def tariff(self, model: str, upstream_model: str, upstream: str = "") -> Tariff | None:
        """See `TariffPolicy.tariff`."""
        known = (
            self._tariffs.get(f"{upstream}/{upstream_model}")
            or self._tariffs.get(model)
            or self._tariffs.get(upstream_model)
            or self._matching(f"{upstream}/{upstream_model}", model, upstream_model)
        )
        if known is not None:
            return known.now()
        return None if self._otherwise is None else self._otherwise.tariff(model, upstream_model, upstream)

    def _matching(self, *names: str) -> "_Dated | None":
        found = (
            dated for pattern, dated in self._wildcards for name in names if wildcard_matches(pattern, name)
        )
        return next(found, None) if self._wildcards else None

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """See `PricePolicy.price`."""
        tariff = self.tariff(model, upstream_model)
        return None if tariff is None else tariff.cost(usage)


class _Dated:
    """The tariffs of one model, each from a time on."""

    __slots__ = ("_since", "_tariffs")

    def __init__(self, price: PriceConfig, source: str) -> None:
        self._tariffs: list[Tariff] = []
        self._since: list[float] = []
        for since, held in price.in_time():
            self._tariffs.append(_tariff(held, source))
            if since is not None:
                self._since.append(since.timestamp())

    def now(self) -> Tariff:
        return self._tariffs[bisect_right(self._since, time.time()) if self._since else 0]


def _tariff(price: PriceConfig, source: str) -> Tariff:
    """The rates of a configured price. A tier keeps what it does not change."""
    tiers = tuple((tier.above, _rates(price, tier)) for tier in reversed(price.tiers))
    return Tariff(_rates(price, None), tiers, source)


def _rates(price: PriceConfig, tier: TierConfig | None) -> Rates:
    def rate(name: str) -> Decimal | None:
        own: Decimal | None = None if tier is None else getattr(tier, name)
        return price.rate(name) if own is None else own

    return Rates(per_request=rate(_REQUEST), **{kind: per_token(rate(kind)) for kind in _KINDS})
