"""Prices of models, as a configuration states them."""

from collections.abc import Iterator
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sluicegate.config.callers import Moment
from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.section import Section
from sluicegate.config.values import (
    DECIMALS_PER_MILLION,
    Coefficient,
    Tokens,
    Usd,
    UsdPerMillion,
    has_more_decimals,
)

# More digits than a price and a coefficient have together.
_EXACT = Context(prec=60)
# A cost has at most as many as a price and a count have together.
_WIDE = Context(prec=120)

# What costs the one price where no coefficient says otherwise; the other kinds are parts of these.
_ONCE = ("input", "cached_input", "cache_write", "cache_write_1h", "output")


def picodollars(amount: Decimal) -> int:
    """USD as a whole number of 10**-12 USD, in which the ledger and limits count, rounded half up."""
    return int(amount.scaleb(12, _WIDE).to_integral_value(ROUND_HALF_UP))


class _Rates(Section):
    cached_input: UsdPerMillion | None = Field(
        default=None, description="Input tokens that were read from a cache."
    )
    cache_write: UsdPerMillion | None = Field(
        default=None, description="Input tokens that were written to a cache for 5 minutes."
    )
    cache_write_1h: UsdPerMillion | None = Field(
        default=None, description="Input tokens that were written to a cache for an hour."
    )
    output: UsdPerMillion | None = Field(
        default=None, description="Output tokens; left out for a model that has none (embeddings)."
    )
    reasoning: UsdPerMillion | None = Field(
        default=None, description="Output tokens spent on reasoning; left out: as `output`."
    )
    input_audio: UsdPerMillion | None = Field(
        default=None, description="Input tokens of audio; left out: as `input`."
    )
    input_image: UsdPerMillion | None = Field(
        default=None, description="Input tokens of images; left out: as `input`."
    )
    output_audio: UsdPerMillion | None = Field(
        default=None, description="Output tokens of audio; left out: as `output`."
    )
    output_image: UsdPerMillion | None = Field(
        default=None, description="Output tokens of images; left out: as `output`."
    )
    per_request: Usd | None = Field(
        default=None, description="Each request whose usage is known, beside what its tokens cost."
    )


class CoefficientsConfig(Section):
    """How many times the `price` a token of each kind costs."""

    input: Coefficient | None = Field(default=None, description="Input without a cache; left out: 1.")
    cached_input: Coefficient | None = Field(default=None, description="Read from a cache; left out: 1.")
    cache_write: Coefficient | None = Field(default=None, description="Written to a cache; left out: 1.")
    cache_write_1h: Coefficient | None = Field(default=None, description="For an hour; left out: 1.")
    output: Coefficient | None = Field(default=None, description="Output; left out: 1.")
    reasoning: Coefficient | None = Field(default=None, description="Left out: as `output`.")
    input_audio: Coefficient | None = Field(default=None, description="Left out: as `input`.")
    input_image: Coefficient | None = Field(default=None, description="Left out: as `input`.")
    output_audio: Coefficient | None = Field(default=None, description="Left out: as `output`.")
    output_image: Coefficient | None = Field(default=None, description="Left out: as `output`.")


class TierConfig(_Rates):
    """Long context: prices of a whole request with more input than `above`. What is left out stays."""

    above: Tokens = Field(
        description="A request with more input tokens than this, cached ones included, has these prices."
    )
    input: UsdPerMillion | None = Field(default=None, description="As of the model itself.")


class ChangedPriceConfig(_Rates):
    """Prices that hold from a time on. What is left out stays as it was."""

    since: Moment = Field(description="From when on: 2026-12-01, or 2026-12-01T00:00:00Z.")
    input: UsdPerMillion | None = Field(default=None, description="As it was before.")
    price: UsdPerMillion | None = Field(default=None, description="As it was before.")
    coefficients: CoefficientsConfig | None = Field(default=None, description="Those that change.")
    tiers: tuple[TierConfig, ...] | None = Field(default=None, description="As it was before.")


class PriceConfig(_Rates):
    """What a model costs, in USD per million tokens. Where a needed price is missing the cost is unknown."""

    input: UsdPerMillion | None = Field(
        default=None,
        description="Input tokens that were neither read from nor written to a cache. Left out only where "
        "there is a `price`.",
    )
    price: UsdPerMillion | None = Field(
        default=None,
        description="One price for all tokens, of whatever kind; times a coefficient where there are "
        "`coefficients`. A kind with a price of its own costs that.",
    )
    coefficients: CoefficientsConfig | None = Field(
        default=None, description="How many times the `price` each kind of token costs; left out: once."
    )
    tiers: tuple[TierConfig, ...] = Field(default=(), description="Prices for long requests.")
    changes: tuple[ChangedPriceConfig, ...] = Field(
        default=(), description="Prices that hold from a time on, each in place of those before it."
    )

    def rate(self, kind: str) -> Decimal | None:
        """What tokens of this kind cost, in USD per million; `per_request`: each request, in USD."""
        own: Decimal | None = getattr(self, kind)
        if own is not None or self.price is None:
            return own
        coefficient: Decimal | None = getattr(self.coefficients, kind, None)
        if coefficient is None:
            return self.price if kind in _ONCE else None
        return _EXACT.multiply(self.price, coefficient)

    def in_time(self) -> Iterator[tuple[datetime | None, "PriceConfig"]]:
        """The prices one after the other, each with the time from which it holds; None for the first."""
        now = self.model_copy(update={"changes": ()})
        yield None, now
        for change in self.changes:
            names = change.model_fields_set - {"since", "tiers", "coefficients"}
            changed = {name: getattr(change, name) for name in names}
            if change.tiers is not None:
                changed["tiers"] = change.tiers
            if change.coefficients is not None:
                known, new = now.coefficients or CoefficientsConfig(), change.coefficients
                given = {name: getattr(new, name) for name in new.model_fields_set}
                changed["coefficients"] = known.model_copy(update=given)
            now = now.model_copy(update=changed)
            yield change.since, now

    @field_validator("changes")
    @classmethod
    def _in_order(cls, changes: tuple[ChangedPriceConfig, ...]) -> tuple[ChangedPriceConfig, ...]:
        if len({change.since for change in changes}) != len(changes):
            raise fault("changes", "has two changes at the same time", "keep one of them")
        return tuple(sorted(changes, key=lambda change: change.since))

    @field_validator("tiers")
    @classmethod
    def _ascending(cls, tiers: tuple[TierConfig, ...]) -> tuple[TierConfig, ...]:
        if len({tier.above for tier in tiers}) != len(tiers):
            raise fault("tiers", "has two tiers above the same number of tokens", "keep one of them")
        return tuple(sorted(tiers, key=lambda tier: tier.above))

    @model_validator(mode="after")
    def _says_enough(self) -> Self:
        raise_all("PriceConfig", self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        for _, price in self.in_time():
            if price.input is None and price.price is None:
                message, hint = "says neither `input` nor `price`", "USD per million tokens"
                yield fault("price", message, hint, lacks=("input", "price", "changes"))
            if price.coefficients is None:
                continue
            at = ("coefficients",) if self.coefficients is not None else ("changes",)
            if price.price is None:
                message, hint = "has `coefficients` and no `price`", "add what they multiply"
                yield fault("price", message, hint, at=at, lacks=("price", "changes"))
                return
            for kind in CoefficientsConfig.model_fields:
                rate = price.rate(kind)
                if rate is not None and has_more_decimals(rate, DECIMALS_PER_MILLION):
                    yield fault(
                        "price",
                        f"has a price times the coefficient of `{kind}` with more than "
                        f"{DECIMALS_PER_MILLION} decimals",
                        "costs are counted in 10⁻¹² USD",
                        at=at,
                        lacks=(),
                    )
