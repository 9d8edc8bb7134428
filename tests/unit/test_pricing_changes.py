"""Prices that hold from a time on."""

from typing import Any

import pytest

from fakes.front import FakeUsage
from sluicegate.config import PriceConfig
from sluicegate.pricing import PriceTable

NOON = 1_795_348_800.0
"""2026-11-22T12:00:00Z."""

PRICE: dict[str, Any] = {
    "input": "1",
    "cached_input": "0.5",
    "output": "4",
    "tiers": [{"above": 100, "input": "2"}],
    "changes": [
        {"since": "2026-11-24T00:00:00+00:00", "output": "16"},
        {"since": "2026-11-23", "output": "8"},
    ],
}


def price_at(moment: float, monkeypatch: pytest.MonkeyPatch, **usage: Any) -> str:
    monkeypatch.setattr("sluicegate.pricing.table.time.time", lambda: moment)
    prices = PriceTable({"m": PriceConfig.model_validate(PRICE)})
    cost = prices.price("m", "theirs", FakeUsage(**usage))
    assert cost is not None
    return f"{cost.total.normalize():f}"


@pytest.mark.parametrize(
    ("hours", "cost"),
    [(0, "0.00005"), (11.9, "0.00005"), (12, "0.00009"), (36, "0.00017"), (1000, "0.00017")],
)
def test_a_change_holds_from_its_time_on(hours: float, cost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = NOON + hours * 3600
    assert price_at(moment, monkeypatch, input_tokens=10, output_tokens=10) == cost


def test_what_a_change_leaves_out_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    later = NOON + 100 * 3600
    used = {"input_tokens": 200, "cached_input_tokens": 100, "output_tokens": 1}
    assert price_at(later, monkeypatch, **used) == "0.000266"


def test_the_same_tariff_is_given_until_it_changes() -> None:
    prices = PriceTable({"m": PriceConfig.model_validate(PRICE)})
    assert prices.tariff("m", "x") is prices.tariff("m", "x")


@pytest.mark.parametrize(("hours", "cost"), [(0, "0.00005"), (12, "0.00009"), (36, "1.000135")])
def test_one_price_and_its_coefficients_change_apart(
    hours: float, cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = {
        "price": 1,
        "coefficients": {"output": 4},
        "changes": [
            {"since": "2026-11-23", "coefficients": {"output": 8}},
            {"since": "2026-11-24", "price": "1.5", "per_request": 1},
        ],
    }
    monkeypatch.setattr("sluicegate.pricing.table.time.time", lambda: NOON + hours * 3600)
    prices = PriceTable({"m": PriceConfig.model_validate(price)})
    found = prices.price("m", "theirs", FakeUsage(input_tokens=10, output_tokens=10))
    assert found is not None
    assert f"{found.total.normalize():f}" == cost


def test_two_changes_at_one_time_are_a_fault() -> None:
    twice = [{"since": "2026-11-23", "input": "1"}, {"since": "2026-11-23T00:00:00Z", "input": "2"}]
    with pytest.raises(ValueError, match="two changes at the same time"):
        PriceConfig.model_validate({"input": "1", "changes": twice})
