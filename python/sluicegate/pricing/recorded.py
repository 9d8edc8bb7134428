"""What token counts cost, as a ledger has both."""

from collections.abc import Callable, Mapping
from typing import Any

from sluicegate.pricing.cost import in_picodollars
from sluicegate.pricing.rates import Tariff

Costs = tuple[int, int, int, int, int, int]
"""10**-12 USD, as `in_picodollars` orders them."""


class _Counts:
    """The token counts of a row, or of a record of the journal, as price policies ask for them."""

    __slots__ = ("_row",)

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def __getattr__(self, name: str) -> int | None:
        count: int | None = self._row[name.removesuffix("_tokens")]
        return count


def charged_by(rates: str) -> Callable[[Mapping[str, Any]], Costs | None]:
    """How rates as `Tariff.as_json` writes them charge a row."""
    tariff = Tariff.from_json(rates)
    return lambda row: charge(tariff, row)


def charge(tariff: Tariff, row: Mapping[str, Any]) -> Costs | None:
    """What the tokens of `row` cost; None where that is not known."""
    cost = tariff.cost(_Counts(row))
    return None if cost is None else in_picodollars(cost)
