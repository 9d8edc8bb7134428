"""What the gateway asks of a price policy. Anything with this shape may take its place."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sluicegate.pricing.cost import Cost
from sluicegate.pricing.rates import Tariff
from sluicegate.pricing.usage import UsageLike


class PricePolicy(Protocol):
    """Prices requests."""

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """The cost of one request, or None where it is not known.

        `model` is the public name, `upstream_model` the upstream's own. Called once for each usage object, on
        the thread that decides: it must be quick, and must not block or touch an event loop.
        """


class OwnPrices:
    """A price policy that is one function, which is asked as `PricePolicy.price` is."""

    def __init__(self, function: Callable[[str, str, UsageLike], Cost | None]) -> None:
        self._function = function

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """See `PricePolicy.price`."""
        return self._function(model, upstream_model, usage)


@runtime_checkable
class TariffPolicy(PricePolicy, Protocol):
    """A policy whose prices are known before there is any usage: they are worked out in Rust, and `price` is
    not called for each usage object.
    """

    def tariff(self, model: str, upstream_model: str, upstream: str = "") -> Tariff | None:
        """What holds now, or None where every cost is unknown. `price` says what this says of the usage.

        `upstream` is the name of the one that serves the request; empty: it is not known. Called once for
        each route that a request takes: it must be quick, and must not block.
        """
