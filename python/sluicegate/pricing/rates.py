"""From token counts to money: which token is billed at which rate."""

from dataclasses import dataclass
from decimal import Decimal

from sluicegate.pricing.cost import EXACT, ZERO, Cost
from sluicegate.pricing.policy import UsageLike

Rate = Decimal | None


def per_token(per_million: Rate) -> Rate:
    """USD per token from USD per million tokens."""
    return None if per_million is None else per_million.scaleb(-6, EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per token. None: not known, and a request that needs it has no known cost.

    Rates for reasoning, audio and images are never needed: such tokens cost what text costs until a rate says
    otherwise.
    """

    input: Rate
    cached_input: Rate = None
    cache_write: Rate = None
    cache_write_1h: Rate = None
    output: Rate = None
    reasoning: Rate = None
    input_audio: Rate = None
    input_image: Rate = None
    output_audio: Rate = None
    output_image: Rate = None

    def cost(self, usage: UsageLike) -> Cost | None:
        """What `usage` costs at these rates.

        Every input token is billed once and every output token once, whatever the report: a part that claims
        more than what is left of its whole is cut to that.
        """
        tokens = usage.input_tokens
        if tokens is None:
            return None
        cached = min(usage.cached_input_tokens or 0, tokens)
        written = min(usage.cache_write_tokens or 0, tokens - cached)
        written_1h = min(usage.cache_write_1h_tokens or 0, written)

        input_cost = _by_medium(
            tokens - cached - written,
            self.input,
            (usage.input_audio_tokens, self.input_audio),
            (usage.input_image_tokens, self.input_image),
        )
        cached_cost = _amount(cached, self.cached_input)
        written_cost = _amount(written - written_1h, self.cache_write)
        written_1h_cost = _amount(written_1h, self.cache_write_1h)

        produced = usage.output_tokens or 0
        reasoning = min(usage.reasoning_tokens or 0, produced)
        reasoning_cost = _amount(reasoning, self.output if self.reasoning is None else self.reasoning)
        output_cost = _by_medium(
            produced - reasoning,
            self.output,
            (usage.output_audio_tokens, self.output_audio),
            (usage.output_image_tokens, self.output_image),
        )
        if (
            input_cost is None
            or cached_cost is None
            or written_cost is None
            or written_1h_cost is None
            or reasoning_cost is None
            or output_cost is None
        ):
            return None
        return Cost(
            input=input_cost,
            cached_input=cached_cost,
            cache_write=EXACT.add(written_cost, written_1h_cost),
            output=EXACT.add(output_cost, reasoning_cost),
            reasoning=reasoning_cost,
        )


@dataclass(frozen=True, slots=True)
class Tariff:
    """A model's rates, and those that replace them for a whole request with more input than a threshold.

    `tiers` are (input tokens, rates), the highest threshold first.
    """

    base: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()

    def cost(self, usage: UsageLike) -> Cost | None:
        """What `usage` costs; None where it is not known."""
        if self.tiers:
            tokens = usage.input_tokens or 0
            for above, rates in self.tiers:
                if tokens > above:
                    return rates.cost(usage)
        return self.base.cost(usage)


def _amount(tokens: int, rate: Rate) -> Rate:
    if tokens == 0:
        return ZERO
    return None if rate is None else EXACT.multiply(rate, tokens)


def _by_medium(tokens: int, text: Rate, *media: tuple[int | None, Rate]) -> Rate:
    total = ZERO
    for count, rate in media:
        if count and rate is not None:
            count = min(count, tokens)
            tokens -= count
            total = EXACT.add(total, EXACT.multiply(rate, count))
    rest = _amount(tokens, text)
    return None if rest is None else EXACT.add(total, rest)
