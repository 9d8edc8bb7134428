"""Prices of models, as a configuration states them."""

from pydantic import Field, field_validator

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


class PriceConfig(_Rates):
    """What a model costs, in USD per million tokens. Where a needed price is missing the cost is unknown."""

    input: UsdPerMillion = Field(
        description="Input tokens that were neither read from nor written to a cache."
    )
    tiers: tuple[TierConfig, ...] = Field(default=(), description="Prices for long requests.")

    @field_validator("tiers")
    @classmethod
    def _ascending(cls, tiers: tuple[TierConfig, ...]) -> tuple[TierConfig, ...]:
        if len({tier.above for tier in tiers}) != len(tiers):
            raise fault("tiers", "has two tiers above the same number of tokens", "keep one of them")
        return tuple(sorted(tiers, key=lambda tier: tier.above))
