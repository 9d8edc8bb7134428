"""Limits through a real gateway, as the real SDKs of OpenAI and Anthropic see them."""

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = Script(text="four words of text", usage=UsageScript(input_tokens=100, output_tokens=20))
MESSAGES: Any = [{"role": "user", "content": "hello"}]


def key(name: str, limits: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "key": f"sk-{name}"} | ({} if limits is None else {"limits": limits}) | more


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(ANSWER) as server:
        yield server


def configuration(upstream: ScriptedUpstream) -> dict[str, Any]:
    return {
        "upstreams": {
            "local": {"base_url": upstream.base_url},
            "counting": {"base_url": upstream.base_url, "api": "messages"},
        },
        "models": {
            "m": "local",
            "other": "local",
            "llama-8b": "local",
            "claude": "counting",
            "mixed": ["local/m", "local/other"],
        },
        "prices": {"m": {"input": "1", "cached_input": "1", "output": "5"}},
        "limits": {
            "three": {"requests": "3/hour"},
            "tokens": {"tokens": "240/hour"},
            "small": {"tokens": "50/hour"},
            "counting": {"requests": "2/hour", "tokens": "50/hour"},
            "budget": {"cost": "0.0003/month"},
            "priced": {"cost": "1/month", "unpriced": "refuse"},
            "alone": {"concurrent": 1},
            "person": {"requests": "1/hour"},
        },
        "callers": [
            {"name": "narrow", "models": ["llama-*"], "endpoints": ["chat_completions"]},
            {"name": "off", "disabled": True},
        ],
        "keys": [
            key("free"),
            key("three", "three"),
            key("three-of-messages", "three"),
            key("three-of-background", "three"),
            key("three-and-more", "three"),
            key("tokens", "tokens"),
            key("small", "small"),
            key("budget", "budget"),
            key("budget-of-messages", "budget"),
            key("priced", "priced"),
            key("alone", "alone"),
            key("alone-in-background", "alone"),
            key("counting", "counting"),
            key("alone-in-counting", "alone"),
            key("budget-of-background", "budget"),
            key("narrow"),
            key("off"),
            key("old", expires="2020-01-01"),
        ],
        "users": {"header": "X-User-Id", "limits": "person"},
        "responses": {"concurrency": 1},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    process = await GatewayProcess.start(configuration(upstream), tmp_path_factory.mktemp("gateway"))
    try:
        yield process
    finally:
        await process.stop()


def client(gateway: GatewayProcess, name: str, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{gateway.base_url}/v1", api_key=f"sk-{name}", timeout=30, **{"max_retries": 0} | options
    )


async def ask(gateway: GatewayProcess, name: str, model: str = "m", **options: Any) -> Any:
    async with client(gateway, name) as sdk:
        return await sdk.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, **options)


async def refusal(
    gateway: GatewayProcess, name: str, model: str = "m", **options: Any
) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as raised:
        await ask(gateway, name, model, **options)
    return raised.value


async def test_the_limit_of_requests_is_told_to_an_sdk(gateway: GatewayProcess) -> None:
    for left in (2, 1, 0):
        reply = await ask(gateway, "three")
        assert reply.headers["x-ratelimit-limit-requests"] == "3"
        assert reply.headers["x-ratelimit-remaining-requests"] == str(left)
    error = await refusal(gateway, "three")
    assert isinstance(error, openai.RateLimitError)
    assert (error.code, error.type) == ("limit_exceeded", "requests")
    assert "3 requests a hour of this key of `three`" in error.message
    headers = error.response.headers
    assert 3000 < int(headers["retry-after"]) <= 3900
    assert int(headers["retry-after-ms"]) // 1000 <= int(headers["retry-after"])
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-sluicegate-error"] == "limit_exceeded"
    line = await gateway.wait_request(caller="three", status=429)
    assert (line["code"], line["limit"]) == ("limit_exceeded", "3 requests a hour of this key of `three`")
    assert re.search(r"Try again at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\.", error.message)


async def test_tokens_count_when_they_are_known(gateway: GatewayProcess) -> None:
    await ask(gateway, "tokens", max_tokens=30)
    await ask(gateway, "tokens", max_tokens=30)
    error = await refusal(gateway, "tokens", max_tokens=90)
    assert (error.code, error.type) == ("limit_exceeded", "tokens")
    assert "240 are used" in error.message


async def test_a_request_above_its_limit_is_not_tried_again(gateway: GatewayProcess) -> None:
    seen = 0

    async def count(response: httpx.Response) -> None:
        nonlocal seen
        seen += 1

    async with (
        httpx.AsyncClient(event_hooks={"response": [count]}, timeout=30) as http,
        client(gateway, "small", max_retries=3, http_client=http) as sdk,
    ):
        with pytest.raises(openai.RateLimitError) as raised:
            await sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "many words " * 100}]
            )
    assert seen == 1
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert "larger than the limit" in raised.value.message


async def test_a_budget_ends_by_what_was_charged(gateway: GatewayProcess) -> None:
    for _ in range(2):
        await ask(gateway, "budget", max_tokens=5)
    error = await refusal(gateway, "budget", max_tokens=5)
    assert (error.code, error.type) == ("budget_exceeded", "insufficient_quota")
    assert error.response.headers["x-should-retry"] == "false"


async def test_a_model_without_price_is_refused_where_limits_say_so(gateway: GatewayProcess) -> None:
    await ask(gateway, "priced")
    for model in ("other", "mixed"):
        error = await refusal(gateway, "priced", model)
        assert (error.status_code, error.code) == (403, "model_unpriced"), "each of its routes may serve it"


async def test_requests_under_way_are_counted_until_they_end(
    gateway: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    async with client(gateway, "alone") as sdk:
        upstream.script = Script(tokens=2000, pace=0.05)
        try:
            stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            await anext(aiter(stream))
        finally:
            upstream.script = ANSWER
        error = await refusal(gateway, "alone")
        assert error.code == "limit_exceeded"
        await stream.close()
        # The client has left: its place is free as soon as the gateway has noticed.
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(openai.RateLimitError):
                    await ask(gateway, "alone")
                    break
                await asyncio.sleep(0.01)


async def count(gateway: GatewayProcess, name: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as http:
        return await http.post(
            f"{gateway.base_url}/v1/messages/count_tokens",
            json={"model": "claude", "messages": MESSAGES},
            headers={"x-api-key": f"sk-{name}"},
        )


async def test_counting_tokens_at_an_upstream_is_a_request_without_tokens(gateway: GatewayProcess) -> None:
    for left in ("1", "0"):
        reply = await count(gateway, "counting")
        assert (reply.status_code, reply.json()) == (200, {"input_tokens": 100})
        assert reply.headers["anthropic-ratelimit-requests-remaining"] == left
        assert reply.headers["anthropic-ratelimit-tokens-remaining"] == "50"
    reply = await count(gateway, "counting")
    assert (reply.status_code, reply.json()["error"]["type"]) == (429, "rate_limit_error")


async def test_counting_tokens_at_an_upstream_is_under_way_until_it_ends(
    gateway: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    seen = len(upstream.requests)
    upstream.script = Script(head_delay=2.0)
    try:
        first = asyncio.create_task(count(gateway, "alone-in-counting"))
        async with asyncio.timeout(20):
            while len(upstream.requests) == seen:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.01)
        assert (await count(gateway, "alone-in-counting")).status_code == 429
        assert (await first).status_code == 200
    finally:
        upstream.script = ANSWER
    assert (await count(gateway, "alone-in-counting")).status_code == 200


async def test_users_have_limits_of_their_own(gateway: GatewayProcess, upstream: ScriptedUpstream) -> None:
    await ask(gateway, "free", extra_headers={"x-user-id": "ada"})
    error = await refusal(gateway, "free", extra_headers={"x-user-id": "ada"})
    assert "this user" in error.message
    await ask(gateway, "free", extra_headers={"x-user-id": "bob"})
    sent = [name.lower() for record in upstream.requests for name, _ in record.request.headers]
    assert "x-user-id" not in sent


async def test_anthropics_sdk_is_told_in_its_own_words(gateway: GatewayProcess) -> None:
    async def create(name: str) -> Any:
        async with anthropic.AsyncAnthropic(
            base_url=gateway.base_url, api_key=f"sk-{name}", max_retries=0, timeout=30
        ) as sdk:
            return await sdk.messages.with_raw_response.create(model="m", max_tokens=5, messages=MESSAGES)

    for left in (2, 1, 0):
        reply = await create("three-of-messages")
        assert reply.headers["anthropic-ratelimit-requests-remaining"] == str(left)
        assert "x-ratelimit-limit-requests" not in reply.headers
    with pytest.raises(anthropic.RateLimitError) as raised:
        await create("three-of-messages")
    assert raised.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert raised.value.response.headers["anthropic-ratelimit-requests-limit"] == "3"
    for _ in range(2):
        await create("budget-of-messages")
    with pytest.raises(anthropic.APIStatusError) as spent:
        await create("budget-of-messages")
    assert spent.value.status_code == 402
    assert spent.value.body["error"]["type"] == "billing_error"  # type: ignore[index]


async def test_a_background_response_counts_when_it_is_taken_on(gateway: GatewayProcess) -> None:
    async with client(gateway, "three-of-background") as sdk:
        for _ in range(3):
            await sdk.responses.create(model="m", input="hello", background=True)
        with pytest.raises(openai.RateLimitError) as raised:
            await sdk.responses.create(model="m", input="hello", background=True)
    assert raised.value.code == "limit_exceeded"


async def test_what_a_caller_may_not_use_it_does_not_see(gateway: GatewayProcess) -> None:
    await ask(gateway, "narrow", "llama-8b")
    assert (await refusal(gateway, "narrow", "m")).code == "model_not_allowed"
    async with client(gateway, "narrow") as sdk:
        assert [model.id async for model in sdk.models.list()] == ["llama-8b"]
        with pytest.raises(openai.PermissionDeniedError) as raised:
            await sdk.embeddings.create(model="llama-8b", input="x")
    assert raised.value.code == "endpoint_not_allowed"
    assert (await refusal(gateway, "off")).code == "caller_disabled"
    expired = await refusal(gateway, "old")
    assert (expired.status_code, expired.code) == (401, "expired_api_key")


async def run_of(sdk: openai.AsyncOpenAI) -> Any:
    return await sdk.responses.create(model="m", input="hello", background=True)


async def ended(sdk: openai.AsyncOpenAI, id: str) -> Any:
    async with asyncio.timeout(60):
        while (response := await sdk.responses.retrieve(id)).status in ("queued", "in_progress"):  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(0.05)
    return response


async def test_a_background_run_above_a_limit_waits_for_its_time(
    gateway: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    async with client(gateway, "alone-in-background") as sdk:
        upstream.script = Script(tokens=2000, pace=0.05)
        try:
            stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            await anext(aiter(stream))
        finally:
            upstream.script = ANSWER
        waiting = await run_of(sdk)
        refused = await gateway.wait_line(event="request", response_id=waiting.id, status=429)
        assert refused["code"] == "limit_exceeded"
        async with asyncio.timeout(30):
            while (await sdk.responses.retrieve(waiting.id)).status != "queued":  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.05)
        await stream.close()
        response = await ended(sdk, waiting.id)
    assert (response.status, response.error) == ("completed", None)
    assert response.usage.output_tokens == 20


async def test_a_background_run_above_its_budget_fails(
    gateway: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    """It was within it when it was taken on, and others have used it up by its turn."""
    async with client(gateway, "free") as other, client(gateway, "budget-of-background") as sdk:
        upstream.script = Script(tokens=2000, pace=0.05)
        try:
            # One runs at a time here.
            before = await run_of(other)
            await gateway.wait_line(event="accepted", response_id=before.id)
            while (await other.responses.retrieve(before.id)).status != "in_progress":  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.05)
        finally:
            upstream.script = ANSWER
        responses = [await run_of(sdk) for _ in range(3)]
        await other.responses.cancel(before.id)
        first, second, third = [await ended(sdk, response.id) for response in responses]
    assert (first.status, second.status) == ("completed", "completed")
    # OpenAI's types have a closed list of codes, and this is the nearest.
    assert (third.status, third.error.code) == ("failed", "rate_limit_exceeded")
    assert "used up the budget" in third.error.message
    await gateway.wait_line(event="request", response_id=third.id, code="budget_exceeded", status=429)


async def test_a_change_of_the_file_keeps_what_was_used(
    gateway: GatewayProcess, upstream: ScriptedUpstream
) -> None:
    for _ in range(3):
        await ask(gateway, "three-and-more")
    config = configuration(upstream)
    config["limits"]["three"] = {"requests": "4/hour"}
    gateway.config_file.write_text(json.dumps(config) + "\n")
    gateway.signal(signal.SIGHUP)
    await gateway.wait_line(event="reloaded")
    reply = await ask(gateway, "three-and-more")
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    await refusal(gateway, "three-and-more")
