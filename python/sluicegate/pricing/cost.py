"""What a request cost, and how its usage object says so."""

from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Self

from sluicegate.config import CostStyle, picodollars

ZERO = Decimal(0)
# A price has at most 24 digits and a count 20, so sums and products of them fit, and nothing is ever rounded.
EXACT = Context(prec=120)

_MILLION = 1_000_000

# The most that a request is believed to cost, 10,000 USD, in 10**-12 USD.
_MOST = 10_000 * 10**12


class Cost:
    """One request's cost in USD, exact.

    `input` is input that no cache had a part in, so it, `cached_input`, `cache_write`, `output` and `request`
    (of the request itself, whatever its tokens) never overlap, and `total` is their sum. `reasoning` is the
    part of `output` spent on reasoning: shown, not added.
    Raises `ValueError` for an amount that is not finite, since JSON has no way to write it.
    """

    # Whole numbers of 10**-scale USD: every request pays for this arithmetic.
    __slots__ = ("_cache_write", "_cached_input", "_input", "_output", "_reasoning", "_request", "_scale")

    def __init__(
        self,
        *,
        input: Decimal = ZERO,
        cached_input: Decimal = ZERO,
        cache_write: Decimal = ZERO,
        output: Decimal = ZERO,
        reasoning: Decimal = ZERO,
        request: Decimal = ZERO,
    ) -> None:
        amounts = (input, cached_input, cache_write, output, reasoning, request)
        self._scale = scale_of(amounts)
        (
            self._input, self._cached_input, self._cache_write, self._output, self._reasoning, self._request,
        ) = (whole(amount, self._scale) for amount in amounts)  # fmt: skip

    @classmethod
    def scaled(
        cls,
        scale: int,
        input: int,
        cached_input: int,
        cache_write: int,
        output: int,
        reasoning: int,
        request: int,
    ) -> Self:
        """Amounts in whole numbers of 10**-`scale` USD."""
        self = cls.__new__(cls)
        self._scale = scale
        self._input = input
        self._cached_input = cached_input
        self._cache_write = cache_write
        self._output = output
        self._reasoning = reasoning
        self._request = request
        return self

    @property
    def input(self) -> Decimal:
        return self._usd(self._input)

    @property
    def cached_input(self) -> Decimal:
        return self._usd(self._cached_input)

    @property
    def cache_write(self) -> Decimal:
        return self._usd(self._cache_write)

    @property
    def output(self) -> Decimal:
        return self._usd(self._output)

    @property
    def reasoning(self) -> Decimal:
        return self._usd(self._reasoning)

    @property
    def request(self) -> Decimal:
        return self._usd(self._request)

    @property
    def prompt(self) -> Decimal:
        """All input: uncached, read from the cache and written to it."""
        return self._usd(self._prompt())

    @property
    def total(self) -> Decimal:
        return self._usd(self._total())

    def _prompt(self) -> int:
        return self._input + self._cached_input + self._cache_write

    def _total(self) -> int:
        return self._prompt() + self._output + self._request

    def _usd(self, amount: int) -> Decimal:
        return Decimal(amount).scaleb(-self._scale, EXACT)

    def _parts(self) -> tuple[Decimal, ...]:
        return self.input, self.cached_input, self.cache_write, self.output, self.reasoning, self.request

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Cost) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return (
            f"Cost(input={self.input}, cached_input={self.cached_input}, cache_write={self.cache_write}, "
            f"output={self.output}, reasoning={self.reasoning}, request={self.request}, total={self.total})"
        )

    def openrouter(self) -> bytes:
        """The members of OpenRouter's style: see `members`."""
        text, scale = _plain, self._scale
        # Most prices have none, and then the parts are those that readers know.
        request = f',"request_cost":{text(self._request, scale)}' if self._request else ""
        return (
            f'"cost":{text(self._total(), scale)},"cost_details":{{'
            f'"input_cost":{text(self._input, scale)},"cached_input_cost":{text(self._cached_input, scale)},'
            f'"cache_write_cost":{text(self._cache_write, scale)},"output_cost":{text(self._output, scale)},'
            f'"reasoning_cost":{text(self._reasoning, scale)}{request}}}'
        ).encode()

    def cocoon(self) -> bytes:
        """The members of Cocoon's style: see `members`."""
        prompt, completion = _millionths(self._prompt(), self._scale), _millionths(self._output, self._scale)
        total = prompt + completion + _millionths(self._request, self._scale)
        return (
            f'"prompt_total_cost":{prompt},"completion_total_cost":{completion},"total_cost":{total}'.encode()
        )


def scale_of(amounts: Iterable[Decimal | None]) -> int:
    """The smallest scale, 0 or more, at which all `amounts` are whole numbers of 10**-scale.

    Raises `ValueError` for one that is not finite.
    """
    scale = 0
    for amount in amounts:
        if amount is not None:
            exponent = amount.as_tuple().exponent
            if not isinstance(exponent, int):
                raise ValueError("a cost is a finite number")
            scale = max(scale, -exponent)
    return scale


def whole(amount: Decimal, scale: int) -> int:
    """`amount` as a number of 10**-`scale`."""
    return int(amount.scaleb(scale, EXACT))


def members(style: CostStyle, cost: Cost | None) -> bytes | None:
    """The JSON members that a usage object gains, without braces; None where it gains none.

    `openrouter`: USD as plain decimal numbers. `cocoon`: whole numbers of millionths of the currency, prompt,
    completion and the price of the request each rounded half up, the total being their sum.
    A cost that is not known (None) is `null`, never 0.
    """
    if style == "openrouter":
        return b'"cost":null' if cost is None else cost.openrouter()
    if style == "cocoon":
        if cost is None:
            return b'"prompt_total_cost":null,"completion_total_cost":null,"total_cost":null'
        return cost.cocoon()
    return None


def in_picodollars(cost: Cost) -> tuple[int, int, int, int, int, int] | None:
    """All of it, then what uncached input, cached input, what was written to a cache, output, and reasoning
    (which is a part of output) cost, in whole numbers of 10**-12 USD, each rounded half up. A price of the
    request is in the whole only. None where one of them is negative, or above what a request is believed to
    cost.
    """
    total, *parts = (cost.total, cost.input, cost.cached_input, cost.cache_write, cost.output, cost.reasoning)
    first, second, third, fourth, fifth = (picodollars(part) for part in parts)
    amounts = (picodollars(total), first, second, third, fourth, fifth)
    return amounts if all(0 <= amount <= _MOST for amount in amounts) else None


def _plain(amount: int, scale: int) -> str:
    # Exponents are legal JSON, but readers that are not JSON parsers (spreadsheets, SQL) stumble over them.
    if amount == 0:
        return "0"
    if scale == 0:
        return str(amount)
    digits = str(abs(amount)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}".rstrip("0").rstrip(".")
    return text if amount > 0 else f"-{text}"


def _millionths(amount: int, scale: int) -> int:
    unit: int = 10**scale
    size, rest = divmod(abs(amount) * _MILLION, unit)
    if 2 * rest >= unit:
        size += 1
    return size if amount >= 0 else -size
