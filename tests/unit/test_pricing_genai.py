"""The genai-prices list: the same numbers as its own calculation gives, found by the upstream's address."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from genai_prices.types import ConditionalPrice, ModelPrice, StartDateConstraint, Tier, TieredPrices

from sluicegate.config import load_data
from sluicegate.pricing import Cost, GenaiPrices, TariffPolicy, UsageLike, policy_for
from sluicegate.pricing.genai import _Listed, _tariff

OPENAI = "https://api.openai.com/v1"
LOCAL = "http://127.0.0.1:8000/v1"
NAMES = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "cache_write_1h_tokens": "cache_write_1h_tokens",
    "output_tokens": "output_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "output_audio_tokens": "output_audio_tokens",
    "input_image_tokens": "input_image_tokens",
    "output_image_tokens": "output_image_tokens",
}


def usage(**counts: int) -> UsageLike:
    return SimpleNamespace(**(dict.fromkeys(NAMES) | counts))


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ("gpt-4o", {"input_tokens": 14, "cached_input_tokens": 3, "output_tokens": 7}),
        ("gpt-4o", {"input_tokens": 14, "output_tokens": 7, "reasoning_tokens": 5}),
        ("gpt-5", {"input_tokens": 300_000, "cached_input_tokens": 1, "output_tokens": 7}),
        ("claude-sonnet-4-5", {"input_tokens": 1000, "cached_input_tokens": 10, "cache_write_tokens": 20}),
        (
            "claude-sonnet-4-5",
            {"input_tokens": 1000, "cache_write_tokens": 20, "cache_write_1h_tokens": 5, "output_tokens": 1},
        ),
        ("claude-sonnet-4-5", {"input_tokens": 200_000, "cached_input_tokens": 100, "output_tokens": 10}),
        ("claude-sonnet-4-5", {"input_tokens": 200_001, "cached_input_tokens": 100, "output_tokens": 10}),
        ("gemini-2.5-pro", {"input_tokens": 200_001, "output_tokens": 10, "reasoning_tokens": 4}),
        ("gemini-2.0-flash", {"input_tokens": 100, "input_audio_tokens": 60, "output_tokens": 1}),
    ],
)
def test_the_cost_is_what_the_list_itself_calculates(model: str, counts: dict[str, int]) -> None:
    expected = calc_price(Usage(**{NAMES[name]: count for name, count in counts.items()}), model)
    cost = GenaiPrices().price("public", model, usage(**counts))
    assert cost is not None
    assert cost.prompt == expected.input_price
    assert cost.output == expected.output_price
    assert cost.total == expected.total_price


@pytest.mark.parametrize("model", ["no-such-model", "gpt-no-such-model-ever"])
def test_a_model_the_list_cannot_price_has_no_cost(model: str) -> None:
    assert GenaiPrices().price("gpt-4o", model, usage(input_tokens=1, output_tokens=1)) is None


def test_a_fee_for_each_request_is_added() -> None:
    tariff = _tariff(ModelPrice(input_mtok=Decimal(1), requests_kcount=Decimal(5)))
    assert tariff is not None
    cost = tariff.cost(usage(input_tokens=3))
    assert cost is not None
    assert (cost.request, cost.total) == (Decimal("0.005"), Decimal("0.005003"))
    expected = calc_price(Usage(input_tokens=100, output_tokens=10), "sonar-pro", provider_id="perplexity")
    found = GenaiPrices({"sonar-pro": ["https://api.perplexity.ai"]}).price(
        "m", "sonar-pro", usage(input_tokens=100, output_tokens=10)
    )
    assert found is not None
    assert found.total == expected.total_price


def test_a_price_is_a_whole_number_of_what_a_ledger_counts_in() -> None:
    tariff = _tariff(ModelPrice(input_mtok=Decimal("0.04166666666666665")))
    assert tariff is not None
    cost = tariff.cost(usage(input_tokens=1_000_000))
    assert cost is not None
    assert cost.total == Decimal("0.041667")


@pytest.mark.parametrize("price", ["-1", "1E+80"])
def test_a_price_that_cannot_be_held_is_not_known(price: str) -> None:
    assert _tariff(ModelPrice(input_mtok=Decimal(price))) is None


def test_the_address_says_which_provider_it_is() -> None:
    counts = usage(input_tokens=1_000_000)
    by_name = GenaiPrices().price("m", "deepseek-chat", counts)
    assert by_name is not None
    assert GenaiPrices({"deepseek-chat": [LOCAL]}).price("m", "deepseek-chat", counts) == by_name
    # OpenAI serves no such model, so its address rules out the price that the name suggests.
    assert GenaiPrices({"deepseek-chat": [OPENAI]}).price("m", "deepseek-chat", counts) is None


def test_two_addresses_that_disagree_give_no_price() -> None:
    counts = usage(input_tokens=1_000_000)
    assert GenaiPrices({"gpt-4o": [OPENAI, LOCAL]}).price("m", "gpt-4o", counts) is not None
    assert GenaiPrices({"deepseek-chat": [LOCAL, OPENAI]}).price("m", "deepseek-chat", counts) is None


class Info:
    """A model of the list with two prices in time."""

    def __init__(self, *prices: ConditionalPrice) -> None:
        self.prices: Any = list(prices)

    def get_prices(self, now: datetime) -> ModelPrice:
        active: list[ModelPrice] = [
            item.prices for item in self.prices if item.constraint is None or item.constraint.active(now)
        ]
        return active[-1]


def test_a_price_that_changes_with_time_is_looked_at_anew() -> None:
    tiered = TieredPrices(base=Decimal(2), tiers=[Tier(start=10, price=Decimal(4))])
    old = ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(1)))
    new = ConditionalPrice(
        StartDateConstraint(datetime.now(UTC).date()), prices=ModelPrice(input_mtok=tiered)
    )
    listed = _Listed(Info(old, new))  # type: ignore[arg-type]
    before = listed._at(datetime(2020, 1, 1, tzinfo=UTC))
    now = listed.tariff()
    assert before is not None
    assert now is not None
    assert before.cost(usage(input_tokens=10)) == Cost(input=Decimal("0.00001"))
    assert now.cost(usage(input_tokens=10)) == Cost(input=Decimal("0.00002"))
    assert now.cost(usage(input_tokens=11)) == Cost(input=Decimal("0.000044"))


def test_the_list_says_what_holds_now() -> None:
    prices = GenaiPrices()
    tariff = prices.tariff("public", "gpt-4o")
    assert tariff is not None
    assert tariff.cost(usage(input_tokens=9)) == prices.price("public", "gpt-4o", usage(input_tokens=9))
    assert prices.tariff("gpt-4o", "no-such-model") is None
    assert isinstance(prices, TariffPolicy)


def configured(**cost: Any) -> Any:
    return load_data(
        {
            "upstreams": {"openai": {"base_url": OPENAI}, "local": {"base_url": LOCAL}},
            "models": {"big": "openai/gpt-4o", "tiny": "local/qwen"},
            "prices": {"tiny": {"input": 1}},
            "cost": cost,
        },
        {},
    )


def test_the_table_comes_first_and_the_list_after_it() -> None:
    policy = policy_for(configured())
    counts = usage(input_tokens=1_000_000)
    big, tiny = policy.price("big", "gpt-4o", counts), policy.price("tiny", "qwen", counts)
    assert big is not None
    assert big.total == calc_price(Usage(input_tokens=1_000_000), "gpt-4o").total_price
    assert tiny is not None
    assert tiny.total == 1
    assert policy.price("other", "unknown", counts) is None


def test_the_list_can_be_left_out() -> None:
    policy = policy_for(configured(genai_prices=False))
    assert policy.price("big", "gpt-4o", usage(input_tokens=1)) is None
    assert policy.price("tiny", "qwen", usage(input_tokens=1)) is not None


def test_the_list_is_not_loaded_where_every_model_has_a_price() -> None:
    code = (
        "import sys; from sluicegate.config import load_data; from sluicegate.pricing import policy_for;"
        "policy_for(load_data({'upstreams': {'a': {'base_url': 'http://h'}}, 'models': {'m': 'a'},"
        "'prices': {'m': {'input': 1}}})); sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
