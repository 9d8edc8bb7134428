"""What requests cost: by tariffs that the engines are given, or by a policy that is asked for each usage."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from sluicegate import _core
from sluicegate._core import Pricing, Route
from sluicegate.config import CostStyle, wildcard_matches
from sluicegate.gateway.notices import Notices
from sluicegate.pricing import Cost, PricePolicy, Tariff, TariffPolicy, UsageLike, in_picodollars, members
from sluicegate.routing import Model
from sluicegate.telemetry import where

# What a wildcard matches is a client's to choose.
_MOST_MADE = 10_000


class Likely:
    """The usage of a request that has not run yet."""

    __slots__ = ("input_tokens", "output_tokens")

    def __init__(self, input: int, output: int) -> None:
        self.input_tokens = input
        self.output_tokens = output

    cached_input_tokens = cache_write_tokens = cache_write_1h_tokens = reasoning_tokens = None
    input_audio_tokens = output_audio_tokens = input_image_tokens = output_image_tokens = None


def _first_of_known(asked: Sequence[Callable[[int, int], int | None]], input: int, output: int) -> int | None:
    """What the first says; None where any does not know."""
    amounts = [each(input, output) for each in asked]
    return None if None in amounts else amounts[0]


class Prices:
    """The prices of one configuration. For the thread that decides. Never raises."""

    __slots__ = (
        "_made", "_named", "_none", "_note", "_notices", "_patterns", "_policy", "_style", "_tariffs",
        "_unknown",
    )  # fmt: skip

    def __init__(
        self,
        policy: PricePolicy,
        style: CostStyle,
        notices: Notices,
        note: Callable[[Tariff], None] = lambda tariff: None,
        named: Collection[str] = (),
    ) -> None:
        """`named`: the models that the configuration has prices of, which hold also while no upstream has
        listed them.
        """
        self._policy = policy
        self._style = style
        self._notices = notices
        self._note = note
        self._named = frozenset(named)
        self._patterns = [name for name in named if "*" in name]
        self._tariffs = policy if isinstance(policy, TariffPolicy) else None
        self._made: dict[tuple[str, str, str], tuple[Tariff | None, Pricing]] = {}
        self._unknown = _core.Pricing(None, style)
        # What names no model has no price, and its reply goes on as it came.
        self._none = _core.Pricing(None, "none")

    @property
    def by_tariff(self) -> bool:
        """Whether the engines work costs out; else they ask."""
        return self._tariffs is not None

    def pricing(self, model: Model, route: Route) -> Pricing | None:
        """For the engines: how replies of `route`, which serves `model`, are priced now; None: they ask."""
        if model.upstream:
            return self._none
        if self._tariffs is None:
            return None
        names = (model.name, route.model, route.upstream.name)
        if not model.listed and not self._is_named(*names):
            # A client's own words, which other lists of prices are not asked for.
            return self._unknown
        tariff = self.tariff(*names)
        # A tariff may be another one at another time of the day.
        known = self._made.get(names)
        if known is None or known[0] is not tariff:
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            if tariff is None:
                known = self._made[names] = None, self._unknown
            else:
                self._note(tariff)
                known = self._made[names] = tariff, _core.Pricing(tariff.compiled, self._style, tariff.id)
        return known[1]

    def _is_named(self, model: str, upstream_model: str, upstream: str) -> bool:
        names = (f"{upstream}/{upstream_model}", model, upstream_model)
        return not self._named.isdisjoint(names) or any(
            wildcard_matches(pattern, name) for pattern in self._patterns for name in names
        )

    def tariff(self, model: str, upstream_model: str, upstream: str) -> Tariff | None:
        """The prices that hold now; None where there are none, or only a policy of the user's own knows."""
        if self._tariffs is None:
            return None
        try:
            return self._tariffs.tariff(model, upstream_model, upstream)
        except Exception as error:  # A policy may be the user's own: its faults must not end a request.
            self._failed(model, error)
            return None

    def cost(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        """What `usage` costs; None where that is not known, or no amount that is believed."""
        try:
            cost = self._policy.price(model, upstream_model, usage)
            # What the ledger and limits do not take, nobody is shown.
            return None if cost is None or in_picodollars(cost) is None else cost
        except Exception as error:
            self._failed(model, error)
            return None

    def likely(self, model: Model, *, by_any: bool = False) -> Pricing | Callable[[int, int], int | None]:
        """What tokens cost by the model's first deployment: the prices, or, where only a policy of the user's
        own knows, what says how much so many of input and output would, in 10**-12 USD; None: not known.

        `by_any`: it is not known where any deployment of the model has no price, since each may serve it.
        """
        deployments = model.deployments if by_any else model.deployments[:1]
        found = []
        for deployment in deployments:
            route = deployment.route(model.asked, model.star)
            pricing = self.pricing(model, route)
            if pricing is self._unknown:
                return pricing
            found.append(pricing or partial(self._likely, model.name, route.model))
        asked = [each for each in found if not isinstance(each, Pricing)]
        return partial(_first_of_known, asked) if len(asked) > 1 else found[0]

    def _likely(self, model: str, upstream_model: str, input: int, output: int) -> int | None:
        cost = self.cost(model, upstream_model, Likely(input, output))
        amounts = None if cost is None else in_picodollars(cost)
        return None if amounts is None else amounts[0]

    def members(self, cost: Cost | None) -> bytes | None:
        """The members that show `cost` in the usage object."""
        return members(self._style, cost)

    def _failed(self, model: str, error: Exception) -> None:
        self._notices.warn_once("price_policy_failed", model=model, error=where(error))
