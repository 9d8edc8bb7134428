"""What a request costs is one number: in the reply, in the log, in the ledger and for its budget."""

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from harness.gateway_process import GatewayProcess
from harness.ledger_stand import Row, configured, settled
from sluicegate.cli.litellm import translate
from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.verify import verify
from sluicegate.pricing import charged_by
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

USAGE = UsageScript(input_tokens=1000, output_tokens=21)
PICO = 10**12

# A thousandth of a millionth a million tokens is what the ledger can just hold.
PRICES: dict[str, Any] = {
    "plain": {"input": "0.123456", "output": "7.000001"},
    "request": {"input": "0.5", "output": "2", "per_request": "0.000000000001"},
    "coefficients": {"price": "0.000007", "coefficients": {"output": 3}},
    "flat": {"input": 0, "output": 0, "per_request": "0.000001"},
    "nearly": {"input": 0, "output": 0, "per_request": "0.000000999999"},
}
COSTS = {
    "plain": 1000 * 123456 + 21 * 7000001,
    "request": 1000 * 500000 + 21 * 2000000 + 1,
    "coefficients": 1000 * 7 + 21 * 21,
    "flat": 10**6,
    "nearly": 10**6 - 1,
}

OWN = """
from decimal import Decimal

from sluicegate import Cost


def price(model, upstream_model, usage):
    if model == "free":
        return None
    return Cost(input=Decimal(usage.input_tokens) / 3, request=Decimal("0.25"))
"""


@contextlib.asynccontextmanager
async def served(
    directory: Path, environ: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[GatewayProcess]:
    async with ScriptedUpstream(Script(text="some text", usage=USAGE)) as up:
        models = dict.fromkeys((*PRICES, "free"), "up0/small")
        config = configured(directory, up.base_url) | {"models": models, "prices": PRICES} | more
        gateway = await GatewayProcess.start(config, directory, environ=environ)
        try:
            yield gateway
        finally:
            await gateway.stop()


async def test_a_fallback_is_billed_as_the_model_that_has_served(tmp_path: Path) -> None:
    """By a configuration of LiteLLM's, which says what each deployment costs."""
    usage = UsageScript(input_tokens=10_000, output_tokens=100)
    async with (
        ScriptedUpstream(Script(status=500)) as cheap,
        ScriptedUpstream(Script(text="some text", usage=usage)) as dear,
    ):
        deployments = (("small", cheap, 0.5e-6, 4e-6), ("large", dear, 25e-6, 100e-6))
        theirs: dict[str, Any] = {
            "model_list": [
                {
                    "model_name": name,
                    "litellm_params": {
                        "model": f"openai/{name}",
                        "api_base": upstream.base_url,
                        "api_key": "sk-none",
                        "input_cost_per_token": input,
                        "output_cost_per_token": output,
                    },
                }
                for name, upstream, input, output in deployments
            ],
            "litellm_settings": {"fallbacks": [{"small": ["large"]}]},
            "general_settings": {"master_key": "sk-one"},
        }
        config = translate(theirs).data
        config |= {"ledger": {}, "storage": {"directory": str(tmp_path / "state")}}
        gateway = await GatewayProcess.start(config, tmp_path)
        try:
            reply = await ask(gateway, "small", False)
            assert reply.headers["x-sluicegate-attempts"] == "2"
            cost = 10_000 * 25 * 10**6 + 100 * 100 * 10**6
            assert cost_in(reply)[0] * PICO == cost
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
            assert (row["model"], row["upstream_model"], row["cost"]) == ("small", "large", cost)
        finally:
            await gateway.stop()


async def ask(gateway: GatewayProcess, model: str, stream: bool, key: str = "one") -> httpx.Response:
    asking = {
        "model": model,
        "messages": [{"role": "user", "content": "x"}],
        "stream": stream,
        "stream_options": {"include_usage": True},
    }
    return await gateway.client.post(
        "/v1/chat/completions",
        json=asking if stream else asking | {"stream_options": None},
        headers={"x-request-id": f"{model}-{stream}", "authorization": f"Bearer sk-{key}"},
    )


def cost_in(reply: httpx.Response) -> tuple[Decimal, Decimal]:
    """What its usage says that it cost, and the sum of the parts."""
    texts = [line[5:] for line in reply.text.splitlines() if line.startswith("data:")] or [reply.text]
    for text in reversed(texts):
        if '"cost"' in text:
            usage = json.loads(text, parse_float=Decimal)["usage"]
            details = usage["cost_details"]
            parts = [part for name, part in details.items() if name != "reasoning_cost"]
            return Decimal(usage["cost"]), Decimal(sum(parts))
    raise AssertionError(f"no cost in {reply.text}")


def by_request(found: list[Row]) -> dict[str, Row]:
    return {row["request_id"]: row for row in found}


async def test_a_cost_is_the_same_everywhere_to_the_last_digit(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        shown = {}
        for model in PRICES:
            for stream in (False, True):
                reply = await ask(gateway, model, stream)
                assert reply.status_code == 200, reply.text
                total, parts = cost_in(reply)
                assert total == parts
                shown[f"{model}-{stream}"] = total * PICO
        found = by_request(await settled(tmp_path, lambda found: len(found) == len(shown)))
        lines = gateway.find(event="request")
    logged = {line["request_id"]: Decimal(line["cost"]) * PICO for line in lines}
    for model, cost in COSTS.items():
        for stream in (False, True):
            name = f"{model}-{stream}"
            assert shown[name] == logged[name] == found[name]["cost"] == cost, name


async def test_a_later_change_changes_nothing_that_was_charged(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        assert (await ask(gateway, "plain", False)).status_code == 200
        [before] = await settled(tmp_path, lambda found: len(found) == 1)
    dearer = PRICES | {
        "plain": {"input": 100, "output": 100},
        "same": {**PRICES["plain"], "output": "7.0000010"},
    }
    async with served(tmp_path, prices=dearer, models=dict.fromkeys(dearer, "up0/small")) as gateway:
        assert (await ask(gateway, "plain", True)).status_code == 200
        assert (await ask(gateway, "same", True)).status_code == 200
        found = by_request(await settled(tmp_path, lambda found: len(found) == 3))
    assert found["plain-False"] == before
    assert before["price_id"] == found["same-True"]["price_id"] != found["plain-True"]["price_id"]
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as connection:
        used = {
            id: (source, json.loads(rates))
            for id, source, rates, _ in connection.execute("SELECT * FROM prices_used")
        }
    assert used == {
        before["price_id"]: ("prices.plain", {"input": "0.123456", "output": "7.000001"}),
        found["plain-True"]["price_id"]: ("prices.plain", {"input": "100", "output": "100"}),
    }
    database = open_database(StorageConfig(directory=str(tmp_path / "state")))
    try:
        assert await verify(database, charged_by) == []
    finally:
        await database.close()


async def test_a_budget_ends_at_the_very_picodollar(tmp_path: Path) -> None:
    """A budget admits while less than it is used: what is a picodollar below it lets one more pass."""
    more: dict[str, Any] = {
        "limits": {"budget": {"cost": "0.000001/month"}},
        "keys": [{"name": name, "key": f"sk-{name}", "limits": "budget"} for name in ("one", "other")],
    }
    async with served(tmp_path, **more) as gateway:
        assert (await ask(gateway, "flat", False, "one")).status_code == 200
        refused = await ask(gateway, "flat", False, "one")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_exceeded")
        assert (await ask(gateway, "nearly", False, "other")).status_code == 200
        assert (await ask(gateway, "nearly", True, "other")).status_code == 200
        assert (await ask(gateway, "nearly", False, "other")).status_code == 429


async def test_a_function_of_ones_own_says_what_requests_cost(tmp_path: Path) -> None:
    (tmp_path / "own_prices_of_test.py").write_text(OWN)
    own = {"style": "openrouter", "function": "own_prices_of_test:price"}
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    async with served(tmp_path, {"PYTHONPATH": path}, cost=own) as gateway:
        async with asyncio.timeout(60):
            for stream in (False, True):
                total, parts = cost_in(await ask(gateway, "plain", stream))
                assert total == parts == Decimal(1000) / 3 + Decimal("0.25")
                assert '"cost":null' in (await ask(gateway, "free", stream)).text
        found = by_request(await settled(tmp_path, lambda found: len(found) == 4))
    for stream in (False, True):
        row = found[f"plain-{stream}"]
        assert row["cost"] == round((Decimal(1000) / 3 + Decimal("0.25")) * PICO)
        assert found[f"free-{stream}"]["cost"] is None
