"""Prices: exact, each token billed once, and unknown where a price is missing."""

import decimal
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluicegate.config import Config, PriceConfig, load_data
from sluicegate.pricing import Cost, PriceTable, TariffPolicy, UsageLike, members, policy_for
from sluicegate.pricing.rates import Rates, Tariff


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Token counts as a reply reports them."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_image_tokens: int | None = None


FULL = {
    "input": "0.5",
    "cached_input": "0.1",
    "cache_write": "0.6",
    "cache_write_1h": "1",
    "output": "2",
    "reasoning": "3",
}


def priced(usage: Counts, **price: Any) -> Cost | None:
    table = PriceTable({"tiny": PriceConfig.model_validate(price)})
    return table.price("tiny", "tiny-q4", usage)


def known(usage: Counts, **price: Any) -> Cost:
    cost = priced(usage, **price)
    assert cost is not None
    return cost


# === which token is billed at which price ===


def test_cached_input_is_a_part_of_the_input() -> None:
    usage = Counts(input_tokens=14, cached_input_tokens=3, output_tokens=7, reasoning_tokens=0)
    cost = known(usage, input="1", cached_input="1", output="1")
    millionths = [
        int(part * 1_000_000) for part in (cost.input, cost.cached_input, cost.output, cost.reasoning)
    ]
    assert millionths == [11, 3, 7, 0]
    assert cost.total == Decimal("0.000021")


def test_each_kind_of_token_has_its_price() -> None:
    usage = Counts(
        input_tokens=1000,
        cached_input_tokens=300,
        cache_write_tokens=200,
        cache_write_1h_tokens=50,
        output_tokens=100,
        reasoning_tokens=40,
    )
    cost = known(usage, **FULL)
    assert cost.input == Decimal("0.000250")
    assert cost.cached_input == Decimal("0.000030")
    assert cost.cache_write == Decimal("0.000140")
    assert cost.reasoning == Decimal("0.000120")
    assert cost.output == Decimal("0.000240")
    assert cost.total == Decimal("0.000660")


def test_reasoning_costs_what_output_costs_unless_priced() -> None:
    usage = Counts(input_tokens=0, output_tokens=100, reasoning_tokens=40)
    assert known(usage, input=1, output=2).total == Decimal("0.0002")
    assert known(usage, input=1, output=2).reasoning == Decimal("0.00008")
    assert known(usage, input=1, output=2, reasoning=0).total == Decimal("0.00012")


def test_audio_and_images_cost_what_text_costs_unless_priced() -> None:
    usage = Counts(
        input_tokens=100,
        cached_input_tokens=10,
        input_audio_tokens=20,
        input_image_tokens=30,
        output_tokens=10,
        output_audio_tokens=4,
        output_image_tokens=1,
    )
    plain = known(usage, input=1, cached_input=0, output=1)
    assert (plain.input, plain.output) == (Decimal("0.00009"), Decimal("0.00001"))
    media = known(
        usage,
        input=1,
        cached_input=0,
        output=1,
        input_audio=10,
        input_image=100,
        output_audio=5,
        output_image=50,
    )
    assert media.input == Decimal(40 + 20 * 10 + 30 * 100) / 1_000_000
    assert media.output == Decimal(5 + 4 * 5 + 50) / 1_000_000


# A tier prices the whole request, not only what is above it (litellm#30135, claude-code-hub#869).
@pytest.mark.parametrize(
    ("tokens", "total"),
    [(200_000, "0.2"), (200_001, "0.400002"), (500_000, "1"), (500_001, "1.500003")],
)
def test_a_long_request_is_priced_as_a_whole(tokens: int, total: str) -> None:
    tiers = [{"above": 500_000, "input": 3}, {"above": 200_000, "input": 2}]
    assert known(Counts(input_tokens=tokens), input=1, output=1, tiers=tiers).total == Decimal(total)


def test_a_tier_counts_cached_tokens_and_keeps_what_it_does_not_change() -> None:
    usage = Counts(input_tokens=300, cached_input_tokens=299, output_tokens=10)
    cost = known(usage, input=1, cached_input=1, output=1, tiers=[{"above": 200, "output": 5}])
    assert cost.cached_input == Decimal("0.000299")
    assert cost.output == Decimal("0.00005")


# === one price a token, and coefficients ===


def test_one_price_times_a_coefficient_for_each_kind_of_token() -> None:
    usage = Counts(input_tokens=100, cached_input_tokens=40, output_tokens=30, reasoning_tokens=10)
    coefficients = {"cached_input": "0.1", "output": 4, "reasoning": 8}
    cost = known(usage, price="0.5", coefficients=coefficients)
    millionths = [part * 1_000_000 for part in (cost.input, cost.cached_input, cost.reasoning, cost.output)]
    assert millionths == [30, 2, 40, 80]
    assert known(usage, price="0.5").total == Decimal("0.000065"), "without coefficients all cost the same"


def test_a_kind_with_a_price_of_its_own_costs_that_and_a_tier_may_say_so() -> None:
    usage = Counts(input_tokens=100, output_tokens=10)
    assert known(usage, price=1, coefficients={"output": 4}, output=7).output == Decimal("0.00007")
    tiers = [{"above": 99, "output": 3}]
    cost = known(usage, price=1, coefficients={"output": 4}, tiers=tiers)
    assert (cost.input, cost.output) == (Decimal("0.0001"), Decimal("0.00003"))


# === a price for the request ===


def test_a_request_has_a_price_beside_its_tokens() -> None:
    usage = Counts(input_tokens=10, output_tokens=5)
    cost = known(usage, input=1, output=2, per_request="0.0001")
    assert (cost.request, cost.total) == (Decimal("0.0001"), Decimal("0.00012"))
    assert known(Counts(input_tokens=0), input=1, per_request=2).total == 2
    assert known(usage, input=1, output=2, per_request=1, tiers=[{"above": 9, "per_request": 3}]).request == 3
    assert priced(Counts(), input=1, per_request=1) is None, "without usage nothing is known"


# === what a configuration may say ===


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ({"input": "0.0000001"}, "more than 6 decimals"),
        ({"input": 1, "output": "1.23456789"}, "more than 6 decimals"),
        ({"input": 1, "per_request": "0.0000000000001"}, "more than 12 decimals"),
        ({"price": "0.000001", "coefficients": {"output": "0.5"}}, "coefficient of `output`"),
        ({"output": 1}, "neither `input` nor `price`"),
        ({"input": 1, "coefficients": {"output": 2}}, "no `price`"),
        (
            {"price": 1, "changes": [{"since": "2026-12-01", "coefficients": {"output": "0.1234567"}}]},
            "`output`",
        ),
    ],
)
def test_a_price_that_no_ledger_can_hold_is_refused(price: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        PriceConfig.model_validate(price)


@pytest.mark.parametrize("input", ["0.000001", "1.250000000", 0.1, "0E-30"])
def test_zeros_at_the_end_are_no_decimals(input: Any) -> None:
    assert PriceConfig.model_validate({"input": input}).input == Decimal(str(input))


# === what is not known ===


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (Counts(input_tokens=10, cached_input_tokens=1), {"input": 1, "output": 1}),
        (Counts(input_tokens=10, cache_write_tokens=1), {"input": 1, "output": 1}),
        (
            Counts(input_tokens=10, cache_write_tokens=1, cache_write_1h_tokens=1),
            {"input": 1, "cache_write": 1},
        ),
        (Counts(input_tokens=10, output_tokens=1), {"input": 1}),
        (Counts(input_tokens=10, output_tokens=1, reasoning_tokens=1), {"input": 1}),
        (Counts(), {"input": 1, "output": 1}),
        (Counts(output_tokens=1), {"input": 1, "output": 1}),
    ],
)
def test_a_missing_price_or_count_makes_the_cost_unknown(usage: Counts, price: dict[str, Any]) -> None:
    assert priced(usage, **price) is None


@pytest.mark.parametrize(
    "usage",
    [
        Counts(input_tokens=10),
        Counts(input_tokens=10, cached_input_tokens=0, cache_write_tokens=0, output_tokens=0),
    ],
)
def test_a_price_that_is_not_needed_may_be_missing(usage: Counts) -> None:
    assert known(usage, input=1).total == Decimal("0.00001")


def test_zero_tokens_cost_zero_which_is_not_unknown() -> None:
    assert known(Counts(input_tokens=0, output_tokens=0), input=1, output=1).total == 0


def test_a_model_without_a_price_has_no_cost() -> None:
    assert PriceTable({}).price("tiny", "tiny", Counts(input_tokens=1)) is None


# === which price ===


class Elsewhere:
    """A policy behind a table."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def tariff(self, model: str, upstream_model: str, upstream: str = "") -> Tariff | None:
        self.asked.append((model, upstream_model))
        return None if upstream_model == "free" else Tariff(Rates(input=Decimal(42)))

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        raise AssertionError("a table asks for tariffs")


class Own:
    """A user's policy, which asks a table first."""

    def __init__(self, table: PriceTable) -> None:
        self.table = table

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        tariff = self.table.tariff(model, upstream_model)
        return Cost(input=Decimal(7)) if tariff is None else tariff.cost(usage)


def test_the_public_name_comes_before_the_upstreams() -> None:
    table = PriceTable(
        {"a": PriceConfig.model_validate({"input": 1}), "b": PriceConfig.model_validate({"input": 2})}
    )
    usage = Counts(input_tokens=1_000_000)
    assert [cost and cost.total for cost in (table.price("a", "b", usage), table.price("x", "b", usage))] == [
        1,
        2,
    ]
    assert table.price("x", "y", usage) is None


def test_a_price_of_a_route_comes_before_all_others_and_a_wildcard_after_them() -> None:
    names = ("up/b", "a", "b", "up/*", "*", "up/b-*", "team/*")
    table = PriceTable(
        {name: PriceConfig.model_validate({"input": number}) for number, name in enumerate(names)}
    )

    def source(model: str, upstream_model: str, upstream: str) -> str:
        tariff = table.tariff(model, upstream_model, upstream)
        assert tariff is not None
        return tariff.source.removeprefix("prices.")

    assert source("a", "b", "up") == "up/b"
    assert source("a", "b", "other") == "a"
    assert source("x", "b", "other") == "b"
    assert source("a", "c", "up") == "a", "a name goes before a wildcard"
    assert source("x", "c", "up") == "up/*"
    assert source("x", "b-1", "up") == "up/b-*", "the longest that matches"
    assert source("team/x", "c", "other") == "team/*"
    assert source("x", "c", "other") == "*"


def test_the_table_alone_prices_what_is_in_it() -> None:
    elsewhere = Elsewhere()
    table = PriceTable({"a": PriceConfig.model_validate({"input": 1})}, otherwise=elsewhere)
    usage = Counts(input_tokens=1, output_tokens=1)
    for model, upstream_model in (("a", "b"), ("b", "a")):
        tariff = table.tariff(model, upstream_model)
        assert tariff is not None
        assert tariff.cost(usage) is None
        assert table.price(model, upstream_model, usage) is None
    assert elsewhere.asked == []


def test_what_is_not_in_the_table_is_asked_for_elsewhere() -> None:
    elsewhere = Elsewhere()
    table = PriceTable({"a": PriceConfig.model_validate({"input": 1})}, otherwise=elsewhere)
    assert table.price("b", "c", Counts(input_tokens=1)) == Cost(input=Decimal(42))
    assert table.tariff("b", "c") == Tariff(Rates(input=Decimal(42)))
    assert table.tariff("b", "free") is None
    assert table.price("b", "free", Counts(input_tokens=1)) is None
    assert elsewhere.asked == [("b", "c"), ("b", "c"), ("b", "free"), ("b", "free")]
    assert PriceTable({}).tariff("b", "c") is None


def configured() -> Config:
    return load_data(
        {
            "upstreams": {"mock": {"base_url": "http://127.0.0.1:1/v1"}},
            "models": {"mock-1": "mock"},
            "prices": {"mock-1": {"input": 0.5, "output": 2}},
        }
    )


def test_a_policy_with_tariffs_can_be_told_from_one_without() -> None:
    table = PriceTable({"a": PriceConfig.model_validate({"input": 1})})
    own = Own(table)
    assert isinstance(table, TariffPolicy)
    assert isinstance(policy_for(configured()), TariffPolicy)
    assert not isinstance(own, TariffPolicy)
    assert own.price("a", "a", Counts(input_tokens=2)) == Cost(input=Decimal("0.000002"))
    assert own.price("b", "b", Counts(input_tokens=2)) == Cost(input=Decimal(7))


def test_a_configured_model_has_its_price() -> None:
    policy = policy_for(configured())
    assert policy.price("mock-1", "mock-1", Counts(input_tokens=2, output_tokens=1)) == Cost(
        input=Decimal("0.000001"), output=Decimal("0.000002")
    )


# === properties ===

counts = st.none() | st.integers(0, 2**64 - 1)
usages = st.builds(Counts, **dict.fromkeys(Counts.__dataclass_fields__, counts))
amounts = st.decimals(0, 10**6, places=6, allow_nan=False, allow_infinity=False)
needed = ("input", "output", "cached_input", "cache_write", "cache_write_1h")
optional = ("reasoning", "input_audio", "input_image", "output_audio", "output_image", "per_request")
prices = st.fixed_dictionaries(dict.fromkeys(needed, amounts), optional=dict.fromkeys(optional, amounts))


@given(usages, prices)
def test_the_total_is_the_sum_of_its_parts(usage: Counts, price: dict[str, Decimal]) -> None:
    cost = priced(usage, **price)
    assert (cost is None) == (usage.input_tokens is None)
    if cost is not None:
        parts = [cost.input, cost.cached_input, cost.cache_write, cost.output, cost.request]
        assert Fraction(cost.total) == sum(Fraction(part) for part in parts)
        assert all(part >= 0 for part in parts)
        assert cost.reasoning <= cost.output


@given(usages, st.decimals(0, 10**6, places=6))
def test_no_token_is_billed_twice_whatever_is_reported(usage: Counts, one: Decimal) -> None:
    cost = priced(usage, **dict.fromkeys((*needed, *optional[:-1]), one))
    if cost is not None:
        billed = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        assert Fraction(cost.total) == billed * Fraction(one) / 1_000_000


@given(st.integers(0, 2**64 - 1), st.decimals(0, 10**12, places=6))
def test_nothing_is_rounded(tokens: int, one: Decimal) -> None:
    with decimal.localcontext(decimal.Context(prec=3)):
        cost = known(Counts(input_tokens=tokens), input=one)
    assert Fraction(cost.total) == tokens * Fraction(one) / 1_000_000


@given(usages, prices)
def test_the_members_are_exact_json_without_exponents(usage: Counts, price: dict[str, Decimal]) -> None:
    cost = priced(usage, **price)
    raw = members("openrouter", cost)
    assert raw is not None
    numbers = re.findall(rb":([^,{}]+)", raw)
    assert numbers
    assert all(re.fullmatch(rb"null|[0-9]+(\.[0-9]+)?", number) for number in numbers)
    shown = json.loads(b"{" + raw + b"}", parse_float=Decimal, parse_int=Decimal)
    if cost is None:
        assert shown == {"cost": None}
        return
    assert shown == {
        "cost": cost.total,
        "cost_details": {
            "input_cost": cost.input,
            "cached_input_cost": cost.cached_input,
            "cache_write_cost": cost.cache_write,
            "output_cost": cost.output,
            "reasoning_cost": cost.reasoning,
            **({"request_cost": cost.request} if cost.request else {}),
        },
    }


@given(usages, prices)
def test_cocoon_shows_whole_numbers_that_add_up(usage: Counts, price: dict[str, Decimal]) -> None:
    cost = priced(usage, **price)
    raw = members("cocoon", cost)
    assert raw is not None
    shown = json.loads(b"{" + raw + b"}")
    if cost is None:
        assert set(shown.values()) == {None}
        return
    prompt, completion = shown["prompt_total_cost"], shown["completion_total_cost"]
    request = shown["total_cost"] - prompt - completion
    for rounded, part in ((prompt, cost.prompt), (completion, cost.output), (request, cost.request)):
        assert Fraction(-1, 2) < rounded - Fraction(part) * 1_000_000 <= Fraction(1, 2)


# === how it is shown ===


def test_openrouter_members() -> None:
    usage = Counts(input_tokens=14, cached_input_tokens=3, output_tokens=7, reasoning_tokens=2)
    assert members("openrouter", known(usage, input="0.5", cached_input="0.1", output="2")) == (
        b'"cost":0.0000198,"cost_details":{"input_cost":0.0000055,"cached_input_cost":0.0000003,'
        b'"cache_write_cost":0,"output_cost":0.000014,"reasoning_cost":0.000004}'
    )


def test_large_and_tiny_amounts_have_no_exponent() -> None:
    assert members("openrouter", Cost(input=Decimal("1E+3"))) == members(
        "openrouter", Cost(input=Decimal(1000))
    )
    tiny = members("openrouter", Cost(output=Decimal("1E-12")))
    assert tiny is not None
    assert tiny.startswith(b'"cost":0.000000000001,')


@pytest.mark.parametrize(
    ("prompt", "completion", "shown"),
    [
        ("0.0000105", "0.0000015", (11, 2, 13)),
        ("0.00001049", "0.0000014", (10, 1, 11)),
        ("0.000014", "0.000007", (14, 7, 21)),
        ("0", "0", (0, 0, 0)),
    ],
)
def test_cocoon_rounds_each_part_half_up(prompt: str, completion: str, shown: tuple[int, int, int]) -> None:
    raw = members("cocoon", Cost(input=Decimal(prompt), output=Decimal(completion)))
    assert raw == b'"prompt_total_cost":%d,"completion_total_cost":%d,"total_cost":%d' % shown


def test_an_unknown_cost_is_null_and_never_zero() -> None:
    assert members("openrouter", None) == b'"cost":null'
    assert (
        members("cocoon", None) == b'"prompt_total_cost":null,"completion_total_cost":null,"total_cost":null'
    )


def test_the_style_none_adds_nothing() -> None:
    assert members("none", Cost(input=Decimal(1))) is None
    assert members("none", None) is None


@pytest.mark.parametrize("amount", ["NaN", "Infinity"])
def test_a_cost_is_finite(amount: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        Cost(input=Decimal(amount))
    with pytest.raises(ValueError, match="finite"):
        Cost(reasoning=Decimal(amount))
