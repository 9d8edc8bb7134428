"""From token counts to money: which token is billed at which rate."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from hashlib import sha256
from typing import Self

from sluicegate import _core
from sluicegate.pricing.cost import EXACT, Cost, scale_of, whole
from sluicegate.pricing.usage import UsageLike

Rate = Decimal | None

_MOST_TOKENS = 2**64 - 1


def per_token(per_million: Rate) -> Rate:
    """USD per token from USD per million tokens."""
    return None if per_million is None else per_million.scaleb(-6, EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per token, and `per_request`: USD for the request itself. None: not known, and a request that needs
    it has no known cost.

    Rates for reasoning, audio and images are never needed: such tokens cost what text costs until a rate says
    otherwise; nor is one for the request.
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
    per_request: Rate = None

    _scale: int = field(init=False, repr=False, compare=False)
    _whole: "tuple[int | None, ...]" = field(init=False, repr=False, compare=False)
    """`all()` in whole numbers of 10**-scale."""

    def __post_init__(self) -> None:
        rates = self.all()
        scale = scale_of(rates)
        object.__setattr__(self, "_scale", scale)
        exact = tuple(None if rate is None else whole(rate, scale) for rate in rates)
        object.__setattr__(self, "_whole", exact)

    def all(self) -> tuple[Rate, ...]:
        """Every rate, in the order of the fields."""
        return (
            self.input, self.cached_input, self.cache_write, self.cache_write_1h, self.output, self.reasoning,
            self.input_audio, self.input_image, self.output_audio, self.output_image, self.per_request,
        )  # fmt: skip

    def cost(self, usage: UsageLike) -> Cost | None:
        """What `usage` costs at these rates.

        Every input token is billed once and every output token once, whatever the report: a part that claims
        more than what is left of its whole is cut to that.
        """
        tokens = usage.input_tokens
        if tokens is None:
            return None
        (
            input_rate, cached_rate, write_rate, write_1h_rate, output_rate, reasoning_rate,
            input_audio, input_image, output_audio, output_image, per_request,
        ) = self._whole  # fmt: skip
        cached = min(usage.cached_input_tokens or 0, tokens)
        written = min(usage.cache_write_tokens or 0, tokens - cached)
        written_1h = min(usage.cache_write_1h_tokens or 0, written) if written else 0

        audio, image = usage.input_audio_tokens, usage.input_image_tokens
        input_cost = _by_medium(tokens - cached - written, input_rate, audio, input_audio, image, input_image)
        cached_cost = _amount(cached, cached_rate)
        written_cost = _amount(written - written_1h, write_rate)
        written_1h_cost = _amount(written_1h, write_1h_rate)

        produced = usage.output_tokens or 0
        reasoning = min(usage.reasoning_tokens or 0, produced)
        reasoning_cost = _amount(reasoning, output_rate if reasoning_rate is None else reasoning_rate)
        audio, image = usage.output_audio_tokens, usage.output_image_tokens
        output_cost = _by_medium(produced - reasoning, output_rate, audio, output_audio, image, output_image)
        if (
            input_cost is None
            or cached_cost is None
            or written_cost is None
            or written_1h_cost is None
            or reasoning_cost is None
            or output_cost is None
        ):
            return None
        return Cost.scaled(
            self._scale,
            input_cost,
            cached_cost,
            written_cost + written_1h_cost,
            output_cost + reasoning_cost,
            reasoning_cost,
            per_request or 0,
        )


_REQUEST = "per_request"
_NAMES = tuple(field.name for field in fields(Rates) if field.init)


@dataclass(frozen=True, slots=True)
class Tariff:
    """A model's rates, and those that replace them for a whole request with more input than a threshold.

    `tiers` are (input tokens, rates), the highest threshold first. Raises `ValueError` for rates that are
    negative or have more digits than `_core.Tariff` can hold; those the configuration allows fit.
    """

    base: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()
    source: str = field(default="own", compare=False)
    """Where it is from: `prices.NAME` of a configuration, `genai-prices`."""
    id: str = field(init=False, repr=False, compare=False)
    """Made of the rates: what costs the same has the same one, wherever it is from."""
    compiled: _core.Tariff = field(init=False, repr=False, compare=False)
    """The same, for the thread that moves bytes: it gives the same cost to the last digit."""

    def __post_init__(self) -> None:
        # A request's tokens are counted in 64 bits: a threshold beyond them is never passed, nor is the last.
        tiers = [(min(above, _MOST_TOKENS), _texts(rates)) for above, rates in self.tiers]
        object.__setattr__(self, "compiled", _core.Tariff(_texts(self.base), tiers))
        object.__setattr__(self, "id", sha256(self.as_json().encode()).hexdigest()[:16])

    def as_json(self) -> str:
        """The rates as text: USD per million tokens, and `per_request`; what is not known is left out."""
        tiers = [{"above": above, **_shown(rates)} for above, rates in self.tiers]
        return json.dumps({**_shown(self.base), **({"tiers": tiers} if tiers else {})}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `as_json` has written."""
        base = json.loads(text)
        tiers = base.pop("tiers", [])
        return cls(_read(base), tuple((tier.pop("above"), _read(tier)) for tier in tiers))

    def cost(self, usage: UsageLike) -> Cost | None:
        """What `usage` costs; None where it is not known."""
        if self.tiers:
            tokens = usage.input_tokens or 0
            for above, rates in self.tiers:
                if tokens > above:
                    return rates.cost(usage)
        return self.base.cost(usage)


def _shown(rates: Rates) -> dict[str, str]:
    """The rates that are known, each spelled in one way."""
    shown = {}
    for name, rate in zip(_NAMES, rates.all(), strict=True):
        if rate is not None:
            amount = rate if name == _REQUEST else rate.scaleb(6, EXACT)
            text = f"{amount:zf}"
            shown[name] = text.rstrip("0").rstrip(".") if "." in text else text
    return shown


def _read(shown: Mapping[str, str]) -> Rates:
    rates = {name: Decimal(text) for name, text in shown.items()}
    return Rates(
        input=per_token(rates.pop("input", None)),
        **{name: rate if name == _REQUEST else per_token(rate) for name, rate in rates.items()},
    )


def _texts(rates: Rates) -> list[str | None]:
    return [None if rate is None else f"{rate:zf}" for rate in rates.all()]


def _amount(tokens: int, rate: int | None) -> int | None:
    if tokens == 0:
        return 0
    return None if rate is None else rate * tokens


def _by_medium(
    tokens: int,
    text: int | None,
    audio_tokens: int | None,
    audio: int | None,
    image_tokens: int | None,
    image: int | None,
) -> int | None:
    if not audio_tokens and not image_tokens:
        return _amount(tokens, text)
    total = 0
    for count, rate in ((audio_tokens, audio), (image_tokens, image)):
        if count and rate is not None:
            count = min(count, tokens)
            tokens -= count
            total += rate * count
    rest = _amount(tokens, text)
    return None if rest is None else total + rest
