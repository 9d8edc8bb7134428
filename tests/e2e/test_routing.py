"""Names, tiers, bounds and policies, through a real gateway, by the `openai` package."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import openai
import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Script, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES: Any = [{"role": "user", "content": "Say something."}]
LONG = Script(tokens=10_000, pace=0.02)
BUSY = Script(status=503)


@dataclass(frozen=True)
class Stand:
    upstreams: dict[str, ScriptedUpstream]
    gateway: GatewayProcess
    client: openai.AsyncOpenAI

    async def ask(self, model: str, text: str = "Say something.", **options: Any) -> dict[str, str]:
        """The headers of a reply that say how it came about."""
        raw = await self.client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": text}], **options
        )
        raw.parse()
        return {name: value for name, value in raw.headers.items() if name.startswith("x-sluicegate")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:
        upstreams = {name: await stack.enter_async_context(ScriptedUpstream()) for name in ("a", "b", "c")}
        config: dict[str, Any] = {
            "upstreams": {name: {"base_url": upstream.base_url} for name, upstream in upstreams.items()},
            "models": {
                "tiered": [
                    {"upstream": "a", "model": "big", "max_streams": 1},
                    {"upstream": "b", "model": "small", "tier": 1, "max_streams": 1},
                ],
                "sticky": {"routes": ["a/m", "b/m", "c/m"], "policy": {"affinity": {"header": "x-session"}}},
                "turns": {"routes": ["a/m", "b/m", "c/m"], "policy": "round_robin"},
                "hidden": {"routes": ["a/secret-name"], "reply_model": "public"},
                "org/*": "c/theirs-*",
            },
            "aliases": {"gpt-4o-mini": "tiered", "mini": "hidden"},
            "cost": {"genai_prices": False},
            "access": "open",
        }
        directory = tmp_path_factory.mktemp("gateway")
        gateway = await stack.enter_async_context(shared_gateway(config, directory))
        access: dict[str, Any] = {"base_url": gateway.api_url, "api_key": "any", "max_retries": 0}
        client = await stack.enter_async_context(openai.AsyncOpenAI(**access, timeout=30))
        yield Stand(upstreams, gateway, client)


@pytest.fixture
def stand(made: Stand) -> Stand:
    for upstream in made.upstreams.values():
        upstream.script = Script()
        upstream.requests.clear()
    return made


async def test_a_reply_says_how_it_came_about(stand: Stand) -> None:
    assert await stand.ask("tiered") == {
        "x-sluicegate-deployment": "a/big", "x-sluicegate-attempts": "1", "x-sluicegate-model": "tiered",
    }  # fmt: skip
    stand.upstreams["a"].script = BUSY
    after = await stand.ask("tiered")
    assert (after["x-sluicegate-deployment"], after["x-sluicegate-attempts"]) == ("b/small", "2")
    stand.upstreams["b"].script = BUSY
    with pytest.raises(openai.InternalServerError) as failed:
        await stand.ask("tiered")
    assert failed.value.response.headers["x-sluicegate-attempts"] == "2"
    assert failed.value.response.headers["x-sluicegate-deployment"] == "b/small"


async def test_a_name_that_clients_shall_not_see_is_in_no_header(stand: Stand) -> None:
    raw = await stand.client.chat.completions.with_raw_response.create(model="mini", messages=MESSAGES)
    assert raw.parse().model == "mini"
    assert raw.headers["x-sluicegate-deployment"] == "a"
    assert "secret-name" not in str(raw.headers)


async def test_aliases_and_wildcards_are_names_of_models(stand: Stand) -> None:
    assert (await stand.ask("gpt-4o-mini"))["x-sluicegate-model"] == "tiered"
    assert (await stand.ask("org/llama"))["x-sluicegate-deployment"] == "c/theirs-llama"
    [asked] = stand.upstreams["c"].requests
    assert asked.json()["model"] == "theirs-llama"
    listed = [model.id async for model in stand.client.models.list()]
    assert listed == ["tiered", "sticky", "turns", "hidden", "gpt-4o-mini", "mini"]
    assert (await stand.client.models.retrieve("gpt-4o-mini")).id == "gpt-4o-mini"
    assert (await stand.client.models.retrieve("org/llama")).id == "org/llama"
    with pytest.raises(openai.NotFoundError):
        await stand.ask("org/")
    alias = await stand.gateway.wait_request(requested_model="gpt-4o-mini")
    assert alias["model"] == "tiered"
    wildcard = await stand.gateway.wait_request(requested_model="org/llama", status=200)
    assert wildcard["model"] == "org/*"


async def test_a_full_tier_leaves_the_next_one_and_all_full_is_said_so(stand: Stand) -> None:
    for name in ("a", "b"):
        stand.upstreams[name].script = LONG
    async with AsyncExitStack() as stack:
        deployments = []
        for _ in range(2):
            raw = await stand.client.chat.completions.with_raw_response.create(
                model="tiered", messages=MESSAGES, stream=True
            )
            stream = await stack.enter_async_context(raw.parse())
            await anext(aiter(stream))
            deployments.append(raw.headers["x-sluicegate-deployment"])
        assert deployments == ["a/big", "b/small"]
        with pytest.raises(openai.InternalServerError) as full:
            await stand.ask("tiered")
        assert full.value.status_code == 503
        assert full.value.code == "all_busy"
        assert full.value.response.headers["retry-after"] == "1"
    # The clients have left: their places are free again.
    for name in ("a", "b"):
        stand.upstreams[name].script = Script()
    async with asyncio.timeout(30):
        while True:
            try:
                served = await stand.ask("tiered")
            except openai.InternalServerError:
                await asyncio.sleep(0.05)
                continue
            if served["x-sluicegate-deployment"] == "a/big":
                break


async def test_a_conversation_stays_by_its_beginning_or_by_its_header(stand: Stand) -> None:
    asked: Counter[str] = Counter()
    for number in range(24):
        first = await stand.ask("sticky", f"Question {number}")
        again = await stand.ask("sticky", f"Question {number}")
        assert first["x-sluicegate-deployment"] == again["x-sluicegate-deployment"]
        asked[first["x-sluicegate-deployment"]] += 1
    assert len(asked) == 3
    by_header = {
        (await stand.ask("sticky", f"Question {number}", extra_headers={"X-Session": "s-1"}))[
            "x-sluicegate-deployment"
        ]
        for number in range(12)
    }
    assert len(by_header) == 1


async def test_in_turn_is_one_after_the_other(stand: Stand) -> None:
    asked = [(await stand.ask("turns"))["x-sluicegate-deployment"] for _ in range(6)]
    assert Counter(asked) == {"a/m": 2, "b/m": 2, "c/m": 2}
    assert asked[:3] == asked[3:]
