"""Prices of models, as a configuration states them."""

from pydantic import Field, field_validator

from sluicegate.config.callers import Moment
from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.values import Tokens, UsdPerMillion


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
    tiers: tuple[TierConfig, ...] | None = Field(default=None, description="As it was before.")


class PriceConfig(_Rates):
    """What a model costs, in USD per million tokens. Where a needed price is missing the cost is unknown."""

    input: UsdPerMillion = Field(
        description="Input tokens that were neither read from nor written to a cache."
    )
    tiers: tuple[TierConfig, ...] = Field(default=(), description="Prices for long requests.")
    changes: tuple[ChangedPriceConfig, ...] = Field(
        default=(), description="Prices that hold from a time on, each in place of those before it."
    )

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
