"""What a reply costs: exact, billed once, shown in the configured style, and null where it is not known."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import (
    CHAT,
    DONE,
    MODEL,
    REPORTED,
    REPORTED_MEMBERS,
    Exchange,
    WireStand,
    assert_billed_as_reported,
    chunk,
    completion,
    dumps,
    event,
    priced,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
ANSWER = event(chunk("Hi")) + event(chunk(finish="stop"))
TIERED = {
    "input": "1",
    "cached_input": "0.1",
    "output": "4",
    "tiers": [{"above": 1000, "input": "2", "output": "8"}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    names = ("tiered", "unpriced", "input-only", "dear", "renamed")
    config = {
        "upstreams": {"ticks": {"dialect": "xai"}},
        "models": {name: f"local/{name}-there" for name in names} | {"xai": f"ticks/{MODEL}"},
        "prices": {
            "tiered": TIERED,
            "input-only": {"input": "1"},
            "dear": {"input": "123456789.123456", "output": "0.000001"},
            "renamed-there": {"input": "3", "output": "3"},
        },
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cocoon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {"cost": {"style": "cocoon"}, "models": {"unpriced": "local"}}
    async with wire_stand(tmp_path_factory.mktemp("cocoon"), config) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("plain"), {"cost": {"style": "none"}}) as stand:
        yield stand


async def document_of(wire: WireStand, usage: Any, **members: Any) -> Exchange:
    """A whole completion with `usage`."""
    sent = body(dumps(completion(usage=usage)), content_type="application/json")
    return await wire.ask(sent, **members)


def shown(exchange: Exchange) -> dict[str, Any]:
    """The usage object, every number as it is written."""
    usage: dict[str, Any] = json.loads(exchange.body, parse_float=Decimal, parse_int=Decimal)["usage"]
    return usage


def usage_of(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    } | details


# === exact, and each token once ===


async def test_the_default_style_shows_the_cost_and_its_parts(wire: WireStand) -> None:
    exchange = await wire.ask(body(ANSWER + event(usage_chunk(REPORTED)) + DONE), **ASKED)
    assert exchange.body == ANSWER + priced(event(usage_chunk(REPORTED))) + DONE
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (usage_of(1, 0), "0.000001"),
        (usage_of(3, 0, prompt_tokens_details={"cached_tokens": 3}), "0.0000003"),
        (usage_of(0, 1), "0.000004"),
        (usage_of(14, 7), "0.000042"),
        (usage_of(1_000_000, 0), "1"),
        (usage_of(99_999_999, 99_999_999), "499.999995"),
        (usage_of(0, 0), "0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_cost_is_exact(wire: WireStand, usage: dict[str, Any], cost: str) -> None:
    exchange = await document_of(wire, usage)
    assert shown(exchange)["cost"] == Decimal(cost)
    assert b'"cost":' + cost.encode() + b"," in exchange.body
    assert exchange.line["cost"] == cost


async def test_a_count_that_no_request_has_has_no_cost(wire: WireStand) -> None:
    exchange = await document_of(wire, usage_of(100_000_001, 7))
    assert shown(exchange)["cost"] is None


async def test_no_digit_is_lost_whatever_the_price(wire: WireStand) -> None:
    exchange = await document_of(wire, usage_of(7, 3), model="dear")
    assert exchange.line["cost"] == "864.197523864195"
    assert shown(exchange)["cost"] == Decimal("864.197523864195")


async def test_the_parts_add_up(wire: WireStand) -> None:
    usage = usage_of(
        1003,
        37,
        prompt_tokens_details={"cached_tokens": 101, "cache_write_tokens": 29},
        completion_tokens_details={"reasoning_tokens": 11},
    )
    exchange = await document_of(wire, usage)
    details = shown(exchange)["cost_details"]
    assert details == {
        "input_cost": Decimal("0.000873"),  # 1003 - 101 - 29 at 1
        "cached_input_cost": Decimal("0.0000101"),
        "cache_write_cost": Decimal("0.00003625"),
        "output_cost": Decimal("0.00017"),  # 26 at 4 and 11 at 6
        "reasoning_cost": Decimal("0.000066"),
    }
    parts = ("input_cost", "cached_input_cost", "cache_write_cost", "output_cost")
    assert sum(details[part] for part in parts) == shown(exchange)["cost"] == Decimal(exchange.line["cost"])


async def test_a_part_larger_than_its_whole_is_not_billed_beyond_it(wire: WireStand) -> None:
    usage = usage_of(10, 5, completion_tokens_details={"reasoning_tokens": 5})
    exchange = await document_of(wire, usage)
    assert exchange.line["cost"] == "0.00004"  # 10 at 1, 5 at 6 and none at 4


async def test_writes_for_an_hour_cost_more_than_those_for_five_minutes(wire: WireStand) -> None:
    def usage(five_minutes: int, hour: int) -> dict[str, Any]:
        return {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_creation_input_tokens": five_minutes + hour,
            "cache_creation": {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": hour},
        }

    costs = [
        (await document_of(wire, usage(*parts))).line["cost"] for parts in ((1000, 0), (0, 1000), (400, 600))
    ]
    assert costs == ["0.00125", "0.002", "0.0017"]


@pytest.mark.parametrize(
    ("tokens", "cost"), [(1000, "0.0014"), (1001, "0.002802")], ids=["at the threshold", "above it"]
)
async def test_a_long_context_tier_prices_the_whole_request(wire: WireStand, tokens: int, cost: str) -> None:
    exchange = await document_of(wire, usage_of(tokens, 100), model="tiered")
    assert exchange.line["cost"] == cost


async def test_cached_tokens_count_for_the_tier(wire: WireStand) -> None:
    usage = usage_of(1001, 0, prompt_tokens_details={"cached_tokens": 1000})
    exchange = await document_of(wire, usage, model="tiered")
    assert exchange.line["cost"] == "0.000102"  # 1 at 2, 1000 at 0.1


async def test_the_price_of_the_upstreams_model_is_found(wire: WireStand) -> None:
    exchange = await document_of(wire, usage_of(1, 1), model="renamed")
    assert exchange.line["cost"] == "0.000006"
    assert wire.request.json()["model"] == "renamed-there"


# === not known ===


async def test_a_model_without_a_price_has_no_cost(wire: WireStand) -> None:
    before = await wire.gateway.metrics()
    exchange = await document_of(wire, REPORTED, model="unpriced")
    assert exchange.body == priced(dumps(completion(usage=REPORTED)), members=b'"cost":null')
    assert exchange.reply.status == 200
    assert "cost" not in exchange.line
    assert exchange.line["unpriced"] is True
    assert exchange.line["result"] == "ok"
    said = await wire.gateway.wait_line(event="unpriced", model="unpriced")
    assert (said["level"], said["upstream_model"]) == ("warning", "unpriced-there")

    def unpriced(metrics: Any) -> float:
        return float(metrics.value("sluicegate_unpriced_requests_total", model="unpriced") or 0)

    after = await wire.gateway.wait_metrics(lambda metrics: unpriced(metrics) > unpriced(before))
    assert unpriced(after) == unpriced(before) + 1


async def test_the_stream_of_one_goes_on(wire: WireStand) -> None:
    sent = event(chunk("a", finish="stop")) + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(sent), model="unpriced", **ASKED)
    assert exchange.body == priced(sent, members=b'"cost":null')


async def test_a_missing_price_is_not_a_price_of_zero(wire: WireStand) -> None:
    known = await document_of(wire, usage_of(5, 0), model="input-only")
    assert known.line["cost"] == "0.000005"
    for usage in (usage_of(5, 1), usage_of(5, 0, prompt_tokens_details={"cached_tokens": 1})):
        exchange = await document_of(wire, usage, model="input-only")
        assert shown(exchange)["cost"] is None
        assert "cost" not in exchange.line
        assert exchange.line["unpriced"] is True


async def test_usage_without_input_has_no_cost(wire: WireStand) -> None:
    exchange = await document_of(wire, {"completion_tokens": 7})
    assert shown(exchange)["cost"] is None
    assert "cost" not in exchange.line


# === the upstream's own cost ===


@pytest.mark.parametrize("cost", [b"0.00042", b"1.5e-7", b"0", b"12"], ids=bytes.decode)
async def test_the_upstreams_own_cost_is_kept_beside_ours(wire: WireStand, cost: bytes) -> None:
    usage = dumps(REPORTED)[:-1] + b',"cost":' + cost + b',"is_byok":false}'
    exchange = await wire.ask(body(ANSWER + event(b'{"choices":[],"usage":' + usage + b"}") + DONE), **ASKED)
    renamed = usage.replace(b'"cost":', b'"upstream_cost":')[:-1] + b"," + REPORTED_MEMBERS + b"}"
    assert exchange.body == ANSWER + event(b'{"choices":[],"usage":' + renamed + b"}") + DONE
    assert exchange.line["upstream_cost"] == cost.decode()
    assert_billed_as_reported(exchange.line)


async def test_its_details_are_kept_as_well(wire: WireStand) -> None:
    details = {"upstream_inference_cost": 0.1}
    exchange = await document_of(wire, {**REPORTED, "cost": 0.1, "cost_details": details})
    assert shown(exchange)["upstream_cost"] == Decimal("0.1")
    assert shown(exchange)["upstream_cost_details"] == {"upstream_inference_cost": Decimal("0.1")}
    assert shown(exchange)["cost"] == Decimal("0.0000393")


async def test_a_cost_in_another_unit_is_kept_under_its_own_name(wire: WireStand) -> None:
    usage = {**REPORTED, "cost_in_usd_ticks": 1234567}
    exchange = await document_of(wire, usage, model="xai")
    assert exchange.body == priced(dumps(completion(usage=usage)), usage)
    assert exchange.line["upstream_cost"] == "1234567"
    assert_billed_as_reported(exchange.line)


async def test_a_gateway_behind_a_gateway_keeps_both(wire: WireStand) -> None:
    once = await document_of(wire, REPORTED)
    twice = await wire.ask(body(once.body, content_type="application/json"))
    assert shown(twice)["upstream_cost"] == Decimal("0.0000393")
    assert shown(twice)["cost"] == Decimal("0.0000393")
    assert twice.body.count(b'"cost":') == 1
    assert_billed_as_reported(twice.line)


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
async def test_each_cost_has_a_name_of_its_own_for_clients_of_each_api(wire: WireStand, path: str) -> None:
    upstreams = completion(usage={**REPORTED, "cost": 0.5}, cost=0.25)
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    if path == "/v1/responses":
        asked = {"model": MODEL, "input": "Hi", "store": False}
    script = body(dumps(upstreams), content_type="application/json")
    exchange = await wire.ask(script, path=path, body=dumps(asked))
    document = json.loads(exchange.body, object_pairs_hook=each_once)
    usage = document["usage"]
    assert (usage["cost"], usage["upstream_cost"]) == (0.0000393, 0.5)
    # llms-py writes what it charged beside the usage: nothing is made of that in another API.
    assert document.get("cost") == (0.25 if path == CHAT else None)


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(names) == len({*names}), f"a name twice: {names}"
    return dict(pairs)


async def test_the_upstreams_cost_is_not_ours_where_we_know_none(wire: WireStand) -> None:
    exchange = await document_of(wire, {**REPORTED, "cost": 0.5}, model="unpriced")
    assert shown(exchange)["cost"] is None
    assert shown(exchange)["upstream_cost"] == Decimal("0.5")
    assert "cost" not in exchange.line
    assert exchange.line["upstream_cost"] == "0.5"


# === the other styles ===


async def test_the_cocoon_style_shows_whole_numbers(cocoon: WireStand) -> None:
    sent = ANSWER + event(usage_chunk(REPORTED)) + DONE
    exchange = await cocoon.ask(body(sent), **ASKED)
    # 11.3 and 28 millionths.
    members = b'"prompt_total_cost":11,"completion_total_cost":28,"total_cost":39'
    assert exchange.body == priced(sent, members=members)
    assert_billed_as_reported(exchange.line)


async def test_its_total_is_the_sum_of_what_it_shows(cocoon: WireStand) -> None:
    usage = usage_of(15, 0, prompt_tokens_details={"cached_tokens": 15})
    exchange = await document_of(cocoon, usage)
    assert (shown(exchange)["prompt_total_cost"], shown(exchange)["total_cost"]) == (2, 2)  # 1.5, half up


async def test_its_unknown_costs_are_null(cocoon: WireStand) -> None:
    exchange = await document_of(cocoon, REPORTED, model="unpriced")
    members = b'"prompt_total_cost":null,"completion_total_cost":null,"total_cost":null'
    assert exchange.body == priced(dumps(completion(usage=REPORTED)), members=members)


async def test_its_names_do_not_hide_the_upstreams(cocoon: WireStand) -> None:
    exchange = await document_of(cocoon, {**REPORTED, "total_cost": 7, "cost": 0.5})
    assert shown(exchange)["upstream_total_cost"] == 7
    assert shown(exchange)["total_cost"] == 39
    assert shown(exchange)["cost"] == Decimal("0.5")


@pytest.mark.parametrize(
    "usage", [REPORTED, {**REPORTED, "cost": 0.5}], ids=["plain", "with a cost of its own"]
)
async def test_the_style_none_adds_nothing(plain: WireStand, usage: dict[str, Any]) -> None:
    sent = ANSWER + event(usage_chunk(usage)) + DONE
    exchange = await plain.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert_billed_as_reported(exchange.line)
    document = await document_of(plain, usage)
    assert document.body == dumps(completion(usage=usage))
    assert_billed_as_reported(document.line)


# === what is priced ===


async def test_a_running_total_is_not_priced_and_the_last_one_is(wire: WireStand) -> None:
    running = event(chunk("a", usage=usage_of(14, 1))) + event(chunk("b", usage=usage_of(14, 2)))
    sent = running + event(chunk(finish="stop", usage=REPORTED)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == priced(sent)


async def test_embeddings_have_a_cost(wire: WireStand) -> None:
    document = dumps({"object": "list", "data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}})
    exchange = await wire.ask(
        body(document, content_type="application/json"),
        path="/v1/embeddings",
        body=dumps({"model": "input-only", "input": "x"}),
    )
    assert shown(exchange)["cost"] == Decimal("0.000008")
    assert exchange.line["cost"] == "0.000008"
