"""Prices from the genai-prices list, which others keep up to date."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from sluicegate.pricing.cost import EXACT, Cost
from sluicegate.pricing.rates import Rate, Rates, Tariff, per_token
from sluicegate.pricing.usage import UsageLike

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

# What a tariff here reads. Where the list leaves a price out the wider one holds, as it does in the list
# itself: a provider without a price for cached input bills it as input.
_WIDER = {
    "cached_input": ("cache_read_mtok", "input_mtok"),
    "cache_write": ("cache_write_mtok", "input_mtok"),
    "cache_write_1h": ("cache_write_1h_mtok", "cache_write_mtok", "input_mtok"),
    "input": ("input_mtok",),
    "output": ("output_mtok",),
    "reasoning": ("output_reasoning_mtok",),
    "input_audio": ("input_audio_mtok",),
    "input_image": ("input_image_mtok",),
    "output_audio": ("output_audio_mtok",),
    "output_image": ("output_image_mtok",),
}
# Part of the list is converted from prices per token, with the noise of binary fractions behind it; a ledger
# holds six decimals a million tokens exactly.
_EXACT = Decimal("0.000001")

_MOST_NAMES = 10_000
"""Models that are looked up; others have no price."""


class GenaiPrices:
    """A price policy over the genai-prices package, which is imported when it is first needed.

    `base_urls` gives, for an upstream's model name, where it is served: a provider is told by its address
    first, and by the model's name where the address says nothing. A name that is priced differently at two
    addresses has no price.
    """

    def __init__(self, base_urls: Mapping[str, Collection[str]] | None = None) -> None:
        self._base_urls = dict(base_urls or {})
        self._listed: dict[str, _Listed | None] = {}

    def prepare(self, upstream_models: Iterable[str]) -> None:
        """Look the models up now: the first look-up reads the list, which takes tenths of a second."""
        for name in upstream_models:
            self._find(name)

    def tariff(self, model: str, upstream_model: str, upstream: str = "") -> Tariff | None:
        """See `TariffPolicy.tariff`.

        Only the upstream's name counts: a public name may stand for any model.
        """
        listed = self._find(upstream_model)
        return None if listed is None else listed.tariff()

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """See `PricePolicy.price`."""
        tariff = self.tariff(model, upstream_model)
        return None if tariff is None else tariff.cost(usage)

    def _find(self, name: str) -> "_Listed | None":
        try:
            return self._listed[name]
        except KeyError:
            # A look-up takes a millisecond, and what a wildcard matches is a client's to choose.
            if len(self._listed) >= _MOST_NAMES:
                return None
            found = self._listed[name] = _look_up(name, self._base_urls.get(name, ()))
            return found


class _Listed:
    """One model of the list. Its price may depend on the date or the time of day."""

    def __init__(self, info: "ModelInfo") -> None:
        self._info = info
        self._tariffs: dict[int, Tariff | None] = {}
        self._changes = isinstance(info.prices, list)
        self._fixed = None if self._changes else self._at(datetime.now(UTC))

    def tariff(self) -> Tariff | None:
        """What holds now."""
        return self._at(datetime.now(UTC)) if self._changes else self._fixed

    def _at(self, now: datetime) -> Tariff | None:
        price = self._info.get_prices(now)
        # The prices live as long as the model that is held here, so their identity is theirs alone.
        key = id(price)
        if key not in self._tariffs:
            self._tariffs[key] = _tariff(price)
        return self._tariffs[key]

    def all(self) -> list[Tariff | None]:
        """Every tariff it can have."""
        prices = self._info.prices
        return [_tariff(item.prices) for item in prices] if isinstance(prices, list) else [_tariff(prices)]


def _look_up(name: str, base_urls: Collection[str]) -> _Listed | None:
    found = [_listed(name, url) for url in base_urls] or [_listed(name, None)]
    first = found[0]
    if first is None or any(other is None or other.all() != first.all() for other in found[1:]):
        return None
    return first


# A configuration is made anew whenever an upstream lists other models, and a look-up takes a millisecond.
@lru_cache(maxsize=8192)
def _listed(name: str, base_url: str | None) -> _Listed | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    try:
        provider = None if base_url is None else snapshot.find_provider(None, None, base_url)
    except LookupError:
        provider = None
    try:
        _, info = snapshot.find_provider_model(name, provider, None, None)
    except LookupError:
        return None
    return _Listed(info)


def _tariff(price: "ModelPrice") -> Tariff | None:
    listed = {key: value for key, value in vars(price).items() if value is not None}
    if not listed:
        return None
    starts = {
        tier.start for value in listed.values() if not isinstance(value, Decimal) for tier in value.tiers
    }
    tiers = tuple((start, _rates(listed, start)) for start in sorted(starts, reverse=True))
    try:
        return Tariff(_rates(listed, None), tiers, "genai-prices")
    except ValueError:
        # Nobody here has written the list: a price in it that no tariff can hold is as good as none.
        return None


def _rates(listed: Mapping[str, object], start: int | None) -> Rates:
    per_thousand = _rate(listed, ("requests_kcount",), start)
    return Rates(
        per_request=None if per_thousand is None else per_thousand.scaleb(-3, EXACT),
        **{name: per_token(_rounded(_rate(listed, keys, start))) for name, keys in _WIDER.items()},
    )


def _rounded(rate: Rate) -> Rate:
    return None if rate is None else rate.quantize(_EXACT, ROUND_HALF_UP, EXACT)


def _rate(listed: Mapping[str, object], keys: tuple[str, ...], start: int | None) -> Rate:
    from genai_prices.types import TieredPrices

    price = next((listed[key] for key in keys if key in listed), None)
    if isinstance(price, TieredPrices):
        reached = [tier.price for tier in price.tiers if start is not None and tier.start <= start]
        return reached[-1] if reached else price.base
    return price if isinstance(price, Decimal) else None
