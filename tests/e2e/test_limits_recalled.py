"""A gateway that is started again, after a stop or a kill, knows what was used of its limits."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from harness.admin_stand import TOKENS, VIEWER, admin_address, admin_client, listed
from harness.gateway_process import GatewayProcess
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

MESSAGES: Any = [{"role": "user", "content": "hello"}]
ANSWER = Script(tokens=3, usage=UsageScript(input_tokens=100, output_tokens=20))


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(ANSWER) as server:
        yield server


def configuration(upstream: ScriptedUpstream, directory: Path) -> dict[str, Any]:
    limits = {
        "requests": {"requests": "3/hour"},
        "tokens": {"tokens": "400/day"},
        "cost": {"cost": "0.0003/month"},
        "person": {"requests": "2/day"},
    }
    keys = [{"name": name, "key": f"sk-{name}", "limits": name} for name in limits if name != "person"]
    return {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"m": "local"},
        "prices": {"m": {"input": "1", "cached_input": "1", "output": "5"}},
        "limits": limits,
        "users": {"header": "x-user-id", "limits": "person"},
        "keys": [*keys, {"name": "free", "key": "sk-free"}],
        "storage": {"directory": str(directory)},
        "ledger": {},
        "admin": {"port": 0, "tokens": TOKENS},
    }


async def ask(gateway: GatewayProcess, name: str, user: str | None = None) -> Any:
    headers = {} if user is None else {"x-user-id": user}
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.base_url}/v1", api_key=f"sk-{name}", max_retries=0, timeout=30
    ) as sdk:
        return await sdk.chat.completions.with_raw_response.create(
            model="m", messages=MESSAGES, max_tokens=20, extra_headers=headers
        )


@pytest.mark.parametrize("ends", ["stopped", "killed"])
async def test_what_was_used_before_counts(upstream: ScriptedUpstream, tmp_path: Path, ends: str) -> None:
    config = configuration(upstream, tmp_path / "storage")
    first = await GatewayProcess.start(config, tmp_path)
    try:
        for _ in range(2):
            await ask(first, "requests")
            await ask(first, "tokens")
            await ask(first, "cost")
        for _ in range(2):
            await ask(first, "free", "ada")
    finally:
        if ends == "killed":
            first.signal(signal.SIGKILL)
            await first.kill()
        else:
            await first.stop()
    second = await GatewayProcess.start(config, tmp_path)
    try:
        async with admin_client(await admin_address(second), VIEWER) as admin:
            [seen] = await listed(admin, "/callers/requests/limits", "after")
        assert (seen["used"], seen["remaining"]) == (2, 1), "also before anybody has asked for anything"
        reply = await ask(second, "requests")
        assert reply.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as requests:
            await ask(second, "requests")
        assert requests.value.code == "limit_exceeded"
        reply = await ask(second, "tokens")
        assert int(reply.headers["x-ratelimit-remaining-tokens"]) < 400 - 240
        with pytest.raises(openai.RateLimitError) as cost:
            await ask(second, "cost")
        assert cost.value.code == "budget_exceeded"
        with pytest.raises(openai.RateLimitError):
            await ask(second, "free", "ada")
        await ask(second, "free", "bob")
    finally:
        await second.stop()


async def test_under_any_server_what_was_used_counts_also_for_a_limit_that_is_added(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configuration(upstream, tmp_path / "storage") | {
        "responses": {"path": str(tmp_path / "responses.db")},
        "server": {"threads": 1, "log": {"level": "error"}},
    }
    limited = {**config, "keys": [*config["keys"][:-1], {**config["keys"][-1], "limits": "requests"}]}

    async def statuses(app: Gateway, name: str, times: int) -> list[int]:
        transport = httpx.ASGITransport(app)
        headers = {"authorization": f"Bearer sk-{name}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=30) as client:
            return [
                (
                    await client.post(
                        "/v1/chat/completions", json={"model": "m", "messages": MESSAGES}, headers=headers
                    )
                ).status_code
                for _ in range(times)
            ]

    async with asyncio.timeout(60):
        first = create_app(load_data(config))
        try:
            assert await statuses(first, "cost", 3) == [200, 200, 429]
            assert await statuses(first, "free", 2) == [200, 200]
            first.reload(load_data(limited))
            assert await statuses(first, "free", 2) == [200, 429]
        finally:
            await first.shutdown()
        second = create_app(load_data(limited))
        try:
            assert await statuses(second, "cost", 1) == [429]
            assert await statuses(second, "free", 1) == [429]
        finally:
            await second.shutdown()
