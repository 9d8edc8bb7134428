"""Rust and Python work out one price: the same total and the same members, to the last digit."""

import re
from dataclasses import fields
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate import _core
from sluicegate.config import CostStyle
from sluicegate.pricing import Cost, members
from sluicegate.pricing.rates import Rates, Tariff, per_token

STYLES: tuple[CostStyle, ...] = ("openrouter", "cocoon", "none")
COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "input_image_tokens",
    "output_image_tokens",
)
RATES = tuple(field.name for field in fields(Rates) if field.init)
MOST = 2**64 - 1

Shown = tuple[str | None, bytes | None]


def in_python(cost: Cost | None, style: CostStyle) -> Shown:
    shown = members("openrouter", cost) or b""
    total = re.match(rb'"cost":([0-9.]+|null)', shown)
    assert total is not None
    return None if cost is None else total[1].decode(), members(style, cost)


def in_rust(tariff: Tariff | None, style: CostStyle, usage: dict[str, int]) -> Shown:
    return _core.Pricing(None if tariff is None else tariff.compiled, style).price(**usage)


def like(usage: dict[str, int]) -> Any:
    return SimpleNamespace(**(dict.fromkeys(COUNTS) | usage))


# === what may come ===

# Few of them, so that counts and thresholds meet, and parts claim all of their wholes.
EDGES = (1, 2, 3, 100, 10**12, 2**63, MOST - 1, MOST)
# The configuration allows no higher one.
THRESHOLDS = (1, 2, 3, 100, 10**12)
counts = st.integers(0, MOST) | st.integers(0, 300) | st.sampled_from(EDGES)


@st.composite
def usages(draw: st.DrawFn) -> dict[str, int]:
    missing = draw(st.sets(st.sampled_from(COUNTS), max_size=4))
    return {name: draw(counts) for name in COUNTS if name not in missing}


@st.composite
def amounts(draw: st.DrawFn) -> Decimal:
    """More than every price that the configuration allows: 24 digits on either side of the point, then any
    zeros.
    """
    digits = draw(st.integers(1, 24))
    number = draw(st.integers(0, 10**digits - 1))
    exponent = draw(st.integers(-24, 24 - digits))
    zeros = draw(st.sampled_from([0, 0, 1, 60]))
    sign = "-" if number == 0 and draw(st.booleans()) else ""
    return Decimal(f"{sign}{number}{'0' * zeros}E{exponent - zeros}")


# The first two are paid in halves of a millionth.
common = st.sampled_from(["0.5", "1.5", "0", "1", "20"])


@st.composite
def prices(draw: st.DrawFn) -> dict[str, Any]:
    def rates() -> dict[str, Any]:
        missing = draw(st.sets(st.sampled_from(RATES), max_size=4))
        return {name: draw(common | amounts()) for name in RATES if name not in missing}

    above = draw(st.lists(st.sampled_from(THRESHOLDS), max_size=3, unique=True))
    return {"input": "3", **rates(), "tiers": [{"above": threshold, **rates()} for threshold in above]}


def tariff_of(price: dict[str, Any]) -> Tariff:
    def rates(own: dict[str, Any]) -> Rates:
        given = {name: Decimal(rate) for name, rate in {**price, **own}.items() if name in RATES}
        return Rates(
            **{name: rate if name == "per_request" else per_token(rate) for name, rate in given.items()}
        )

    tiers = sorted(price.get("tiers", ()), key=lambda tier: -int(tier["above"]))
    return Tariff(rates({}), tuple((tier["above"], rates(tier)) for tier in tiers))


# === one price ===

LARGE = dict.fromkeys(RATES, "999999999999999999999999")
FINE = {**LARGE, "cached_input": "0.999999999999999999999999"}


@given(prices(), usages())
@example({"input": "0.5", "output": "2"}, {"input_tokens": 14, "output_tokens": 7})
@example({"input": "0.5", "per_request": "0.0000005"}, {"input_tokens": 1})
@example(FINE, {"input_tokens": MOST, "output_tokens": MOST, "reasoning_tokens": MOST})
@example(FINE, {"input_tokens": MOST, "cached_input_tokens": 1, "output_tokens": 1})
@example({"input": "0E-400", "output": "0.0000005"}, {"input_tokens": 1, "output_tokens": 1})
def test_the_total_and_the_members_are_the_same(price: dict[str, Any], usage: dict[str, int]) -> None:
    tariff = tariff_of(price)
    cost = tariff.cost(like(usage))
    for style in STYLES:
        assert in_rust(tariff, style, usage) == in_python(cost, style)


wide = st.builds(
    lambda number, exponent: Decimal(f"{number}E{exponent}"),
    st.integers(0, 10**76),
    st.integers(-80, 10),
)


@given(st.fixed_dictionaries(dict.fromkeys(RATES, st.none() | wide)), usages())
@example({"input": Decimal(10**70)}, {"input_tokens": MOST})
@example({"input": Decimal("1E-77"), "output": Decimal(2)}, {"input_tokens": 1})
def test_what_cannot_be_held_is_refused_or_unknown_and_never_wrong(
    price: dict[str, Decimal | None], usage: dict[str, int]
) -> None:
    rates = Rates(**price)
    cost = rates.cost(like(usage))
    try:
        tariff = Tariff(rates)
    except ValueError as error:
        assert "digits" in str(error)  # noqa: PT017
        return
    for style in STYLES:
        shown = in_rust(tariff, style, usage)
        assert shown in (in_python(cost, style), in_python(None, style))
    assert cost is not None or shown[0] is None


@pytest.mark.parametrize("style", STYLES)
def test_without_a_tariff_every_cost_is_unknown(style: CostStyle) -> None:
    assert in_rust(None, style, {"input_tokens": 1}) == (None, members(style, None))


def test_a_cost_that_does_not_fit_is_unknown() -> None:
    tariff = Tariff(Rates(input=Decimal(10**70)))
    assert in_rust(tariff, "openrouter", {"input_tokens": 4})[0] == "4" + "0" * 70
    assert in_rust(tariff, "openrouter", {"input_tokens": MOST}) == (None, b'"cost":null')


# === as text ===


@given(prices())
@example({"input": "0.10", "per_request": "1E+2"})
def test_rates_are_read_back_from_their_text(price: dict[str, Any]) -> None:
    tariff = tariff_of(price)
    read = Tariff.from_json(tariff.as_json())
    assert (read, read.id, read.as_json()) == (tariff, tariff.id, tariff.as_json())


def test_what_costs_the_same_is_the_same_price() -> None:
    text = '{"input":"0.1","output":"7","per_request":"0.0001","tiers":[{"above":5,"input":"0.2"}]}'
    price = {
        "input": "0.10",
        "output": "7.0",
        "per_request": "0.00010",
        "tiers": [{"above": 5, "input": "0.2"}],
    }
    tariff = tariff_of(price)
    assert Tariff.from_json(text).as_json() == text
    assert Tariff.from_json(text).id != tariff.id, "a tier keeps what it does not change"
    assert tariff_of(price | {"input": "0.1"}).id == tariff.id
    assert tariff_of(price | {"input": "0.11"}).id != tariff.id


# === what is refused ===


@pytest.mark.parametrize("text", ["", "-1", "1e-6", "NaN", "0.", ".5", "0," + "1" * 80, "9" * 90])
def test_a_rate_is_a_plain_decimal_number_that_fits(text: str) -> None:
    unpriced: list[str | None] = [None] * 11
    wrong = [text, *unpriced[1:]]
    with pytest.raises(ValueError, match="a rate "):
        _core.Tariff(wrong, [])
    with pytest.raises(ValueError, match="a rate "):
        _core.Tariff(unpriced, [(1, wrong)])


@pytest.mark.parametrize("number", [0, 10, 12])
def test_there_are_eleven_rates(number: int) -> None:
    with pytest.raises(ValueError, match="11"):
        _core.Tariff(["1"] * number, [])


def test_a_style_has_a_name() -> None:
    with pytest.raises(ValueError, match="style"):
        _core.Pricing(None, "OpenRouter")


def test_a_tariff_is_compiled_once() -> None:
    tariff = Tariff(Rates(input=Decimal(1)))
    assert tariff.compiled is tariff.compiled
    assert tariff == Tariff(Rates(input=Decimal(1)))
