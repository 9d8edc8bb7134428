"""The prices that requests were charged by, as the ledger asks for them."""

from collections.abc import Mapping
from typing import Any

from sluicegate.gateway.prices import Prices
from sluicegate.pricing import Tariff, charge


class KnownPrices:
    """The prices that requests were given since the start, for the ledger. Any thread."""

    __slots__ = ("_tariffs",)

    def __init__(self) -> None:
        self._tariffs: dict[str, Tariff] = {}

    def note(self, tariff: Tariff) -> None:
        """A request may be charged by this."""
        self._tariffs[tariff.id] = tariff

    def charge(self, prices: Prices, record: Mapping[str, Any]) -> tuple[str, tuple[int, ...] | None] | None:
        """By which price, and how much, a request costs that nobody saw the end of: by what holds now, in the
        order of the ledger's columns. None where there is no price, or only a policy of the user's own knows,
        which another thread may ask.
        """
        if record["usage_source"] == "none":
            return None
        tariff = _tariff(prices, record)
        return None if tariff is None else (tariff.id, charge(tariff, record))

    def describe(self, prices: Prices, record: Mapping[str, Any]) -> tuple[str, str] | None:
        """Where the price is from that a request was charged by, and its rates as JSON; None: not known."""
        id = record["price_id"]
        tariff = self._tariffs.get(id)
        if tariff is None:
            # Of an earlier process: most often its prices still hold.
            tariff = _tariff(prices, record)
        return None if tariff is None or tariff.id != id else (tariff.source, tariff.as_json())


def _tariff(prices: Prices, record: Mapping[str, Any]) -> Tariff | None:
    return prices.tariff(record["model"] or "", record["upstream_model"] or "", record["upstream"] or "")
