"""Where costs are worked out by a policy of the user's own, and where by the engines."""

import json
from typing import Any

from fakes.front import FakeExchange, FakeOutcome, FakeUsage
from fakes.gateway import CONFIG, Start
from sluicegate.config import load_data
from sluicegate.pricing import PriceTable


class OwnPrices:
    """A policy that can only be asked."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self._table = PriceTable(load_data(CONFIG).prices)
        self.asked: list[Any] = []

    def price(self, model: str, upstream_model: str, usage: Any) -> Any:
        self.asked.append(usage)
        return self._table.price(model, upstream_model, usage)


async def test_a_policy_of_ones_own_is_asked_once_for_each_usage(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=1000, cached_input_tokens=400, output_tokens=50)
    prices = OwnPrices()

    charged: list[list[Any]] = []

    def script(exchange: FakeExchange) -> None:
        charged.append(exchange.charged)
        assert exchange.forwarded["pricing"] is None
        members = exchange.price(usage)
        assert members is not None
        assert members.startswith(b'"cost":0.00084,')
        exchange.complete(outcome=FakeOutcome(usage=usage))

    gateway = start_gateway(script, prices=prices)
    await gateway.chat()
    [line] = await gateway.requests()
    assert line["cost"] == "0.00084"
    assert prices.asked == [usage], "what was spliced is what is recorded"
    [[costs]] = charged
    assert costs[0] == 840 * 10**6 == sum(costs[1:5]), (
        "its entry in the ledger is closed with the same, in 10**-12 USD"
    )


async def test_a_policy_of_ones_own_that_knows_no_price_makes_the_cost_null(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=10, output_tokens=5)

    def script(exchange: FakeExchange) -> None:
        assert exchange.price(usage) == b'"cost":null'
        exchange.complete(outcome=FakeOutcome(usage=usage))

    gateway = start_gateway(script, prices=OwnPrices())
    await gateway.chat({"model": "org/large"})
    [line] = await gateway.requests()
    assert line["unpriced"] is True


async def test_a_policy_of_ones_own_prices_what_was_counted_where_the_usage_never_came(
    start_gateway: Start,
) -> None:
    for input, cost in ((0, "0.000028"), (100, "0.000128")):
        usage = FakeUsage(input_tokens=input, output_tokens=7)
        outcome = FakeOutcome(
            client_left=True, streamed=True, finish_reason=None, usage=usage, estimated=True
        )

        def script(exchange: FakeExchange, outcome: FakeOutcome = outcome) -> None:
            exchange.complete(outcome=outcome)

        gateway = start_gateway(script, prices=OwnPrices())
        await gateway.chat({"model": "small", "stream": True})
        [line] = await gateway.requests()
        assert (line["output_tokens"], line["estimated"], line["cost"]) == (7, True, cost)


async def test_a_price_policy_that_fails_ends_no_reply(start_gateway: Start) -> None:
    class Broken:
        def price(self, model: str, upstream_model: str, usage: Any) -> None:
            raise ZeroDivisionError("sk-secret")

    def script(exchange: FakeExchange) -> None:
        assert exchange.price(FakeUsage(input_tokens=1)) == b'"cost":null'
        exchange.complete(outcome=FakeOutcome(usage=FakeUsage(input_tokens=1)))

    gateway = start_gateway(script, prices=Broken())
    assert (await gateway.chat()).status == 200
    text = json.dumps(await gateway.lines())
    assert "price_policy_failed" in text
    assert "ZeroDivisionError" in text
    assert "sk-secret" not in text


async def test_a_tariff_policy_that_fails_ends_no_request(start_gateway: Start) -> None:
    class Broken(PriceTable):
        def tariff(self, model: str, upstream_model: str, upstream: str = "") -> None:
            raise ZeroDivisionError("sk-secret")

    gateway = start_gateway(prices=Broken({}))
    assert (await gateway.chat()).status == 200
    assert gateway.front.exchanges[0].forwarded["pricing"] is not None, "nobody else is asked"
    text = json.dumps(await gateway.lines())
    assert "price_policy_failed" in text
    assert "sk-secret" not in text


async def test_what_prices_a_route_is_made_once(start_gateway: Start) -> None:
    gateway = start_gateway()
    for _ in range(2):
        await gateway.chat()
    first, second = (exchange.forwarded["pricing"] for exchange in gateway.front.exchanges)
    assert first is second
