"""What a request cost, and how its usage object says so."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal

from sluicegate.config import CostStyle

ZERO = Decimal(0)
# A price has at most 24 digits and a count 20, so sums and products of them fit, and nothing is ever rounded.
EXACT = Context(prec=120)

_UNITS_PER_USD = Decimal(1_000_000)
_WHOLE = Decimal(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One request's cost in USD, exact.

    `input` is input that no cache had a part in, so the four parts never overlap and `total` is their sum.
    `reasoning` is the part of `output` spent on reasoning: shown, not added.
    Raises `ValueError` for an amount that is not finite, since JSON has no way to write it.
    """

    input: Decimal = ZERO
    cached_input: Decimal = ZERO
    cache_write: Decimal = ZERO
    output: Decimal = ZERO
    reasoning: Decimal = ZERO
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        total = EXACT.add(EXACT.add(self.prompt, self.output), ZERO)
        if not (total.is_finite() and self.reasoning.is_finite()):
            raise ValueError("a cost is a finite number")
        object.__setattr__(self, "total", total)

    @property
    def prompt(self) -> Decimal:
        """All input: uncached, read from the cache and written to it."""
        return EXACT.add(EXACT.add(self.input, self.cached_input), self.cache_write)


def members(style: CostStyle, cost: Cost | None) -> bytes | None:
    """The JSON members that a usage object gains, without braces; None where it gains none.

    `openrouter`: USD as plain decimal numbers. `cocoon`: whole numbers of millionths of the currency, prompt
    and completion each rounded half up, the total being the sum of the two as shown.
    A cost that is not known (None) is `null`, never 0.
    """
    if style == "openrouter":
        return b'"cost":null' if cost is None else _openrouter(cost)
    if style == "cocoon":
        return _cocoon(cost)
    return None


def _openrouter(cost: Cost) -> bytes:
    return (
        f'"cost":{_plain(cost.total)},"cost_details":{{"input_cost":{_plain(cost.input)},'
        f'"cached_input_cost":{_plain(cost.cached_input)},"cache_write_cost":{_plain(cost.cache_write)},'
        f'"output_cost":{_plain(cost.output)},"reasoning_cost":{_plain(cost.reasoning)}}}'
    ).encode()


def _cocoon(cost: Cost | None) -> bytes:
    if cost is None:
        return b'"prompt_total_cost":null,"completion_total_cost":null,"total_cost":null'
    prompt, completion = _units(cost.prompt), _units(cost.output)
    total = prompt + completion
    return f'"prompt_total_cost":{prompt},"completion_total_cost":{completion},"total_cost":{total}'.encode()


def _plain(amount: Decimal) -> str:
    # Exponents are legal JSON, but readers that are not JSON parsers (spreadsheets, SQL) stumble over them.
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _units(amount: Decimal) -> int:
    return int(EXACT.multiply(amount, _UNITS_PER_USD).quantize(_WHOLE, ROUND_HALF_UP, EXACT))
