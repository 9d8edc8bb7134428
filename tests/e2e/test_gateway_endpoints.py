"""Every endpoint of a running gateway, over real sockets."""

import json
from typing import Any

import httpx
import pytest

from harness.gateway_process import GatewayProcess, StartGateway, StartUpstream
from sluicegate.testing import Fault, Script, ScriptedUpstream, UsageScript

CHAT = {"model": "small", "messages": [{"role": "user", "content": "Say something."}]}


def events(text: str) -> list[Any]:
    """The payloads of a chat stream, without the end mark, which must be there."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(item) for item in data[:-1]]


async def post(gateway: GatewayProcess, path: str, body: Any, **options: Any) -> httpx.Response:
    return await gateway.client.post(path, json=body, **options)


# === relayed ===


async def test_a_chat_completion_comes_with_its_cost(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=5, usage=UsageScript(input_tokens=100, cached_tokens=40, output_tokens=5))
    running = await gateway(config)
    response = await post(running, "/v1/chat/completions", CHAT, headers={"x-request-id": "e2e-1"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"] == "e2e-1"
    usage = response.json()["usage"]
    assert usage["prompt_tokens"] == 100
    assert usage["cost"] == 0.000084
    assert upstream.requests[0].path == "/v1/chat/completions"
    assert upstream.requests[0].header("x-request-id") == "e2e-1"
    line = await running.wait_request(request_id="e2e-1")
    assert line["cost"] == "0.000084"
    assert (line["input_tokens"], line["cached_input_tokens"], line["output_tokens"]) == (100, 40, 5)
    assert (line["model"], line["upstream"], line["status"], line["result"]) == ("small", "local", 200, "ok")
    assert line["streamed"] is False


async def test_a_chat_stream_comes_whole_and_is_accounted_for(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=20, pace=0.005)
    running = await gateway(config)
    response = await post(running, "/v1/chat/completions", CHAT | {"stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    chunks = events(response.text)
    assert all(chunk["choices"] for chunk in chunks), "the usage chunk was not asked for"
    line = await running.wait_request()
    assert line["streamed"] is True
    assert (line["output_tokens"], line["finish_reason"]) == (20, "stop")
    assert 0 < line["time_to_first_token"] < line["duration"]
    assert 0.004 < line["inter_token_latency"] < 0.5
    metrics = await running.metrics()
    assert metrics.value("sluicegate_requests_total", model="small", status="200", result="ok") == 1
    assert metrics.value("sluicegate_tokens_total", model="small", kind="output") == 20
    assert metrics.value("sluicegate_time_to_first_token_seconds_count", model="small") == 1
    assert metrics.value("sluicegate_inter_token_latency_seconds_count", model="small") == 1
    assert metrics.value("sluicegate_active_streams", model="small") == 0


async def test_a_stream_shows_its_usage_and_cost_where_asked_for(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway(config)
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    response = await post(running, "/v1/chat/completions", body)
    last = events(response.text)[-1]
    assert last["choices"] == []
    assert last["usage"]["cost"] > 0


async def test_completions_are_relayed(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway(config)
    response = await post(running, "/v1/completions", {"model": "small", "prompt": "Once"})
    assert response.status_code == 200
    assert response.json()["object"] == "text_completion"
    assert upstream.requests[0].path == "/v1/completions"
    assert (await running.wait_request())["endpoint"] == "completions"


async def test_embeddings_are_relayed_and_priced(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway(config)
    response = await post(running, "/v1/embeddings", {"model": "small", "input": "Once"})
    assert response.status_code == 200
    assert response.json()["usage"]["cost"] > 0
    assert upstream.requests[0].path == "/v1/embeddings"
    assert (await running.wait_request())["endpoint"] == "embeddings"


async def test_a_second_upstream_serves_where_the_first_fails(
    gateway: StartGateway, upstream: ScriptedUpstream, start_upstream: StartUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    spare = await start_upstream()
    config["upstreams"]["spare"] = {"base_url": spare.base_url}
    config["models"]["small"] = ["local", "spare"]
    running = await gateway(config)
    response = await post(running, "/v1/chat/completions", CHAT)
    assert response.status_code == 200
    line = await running.wait_request()
    assert (line["upstream"], line["attempts"]) == ("spare", 2)
    assert line["failed_attempts"] == ["local: reset"]
    metrics = await running.metrics()
    assert metrics.value("sluicegate_faults_total", upstream="local", kind="reset") == 1


async def test_an_upstream_that_is_down_is_a_502_that_names_it(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    await upstream.stop()
    running = await gateway(config)
    response = await post(running, "/v1/chat/completions", CHAT)
    assert response.status_code == 502
    error = response.json()["error"]
    assert error["code"] == "connect"
    assert "local" in error["message"]
    assert str(upstream.port) not in error["message"]
    assert response.headers["x-request-id"]
    assert (await running.wait_request())["fault"] == "connect"


async def test_an_upstreams_refusal_is_passed_on(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    error = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded", "param": None}
    upstream.script = Script(status=429, error=error, headers={"retry-after": "7"})
    running = await gateway(config)
    response = await post(running, "/v1/chat/completions", CHAT | {"stream": True})
    assert response.status_code == 429
    assert response.json() == {"error": error}
    assert response.headers["retry-after"] == "7"


async def test_the_gateways_key_goes_up_and_the_clients_does_not(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    config["keys"] = [{"name": "team", "key": "${CLIENT_KEY}"}]
    config["upstreams"]["local"]["api_key"] = "${UPSTREAM_KEY}"
    running = await gateway(config, CLIENT_KEY="sk-client", UPSTREAM_KEY="sk-upstream")
    headers = {"authorization": "Bearer sk-client"}
    assert (await post(running, "/v1/chat/completions", CHAT, headers=headers)).status_code == 200
    assert upstream.requests[0].header("authorization") == "Bearer sk-upstream"
    assert (await post(running, "/v1/chat/completions", CHAT)).status_code == 401
    upstream.script = Script(status=401, error={"message": "Incorrect API key provided: sk-up*****"})
    response = await post(running, "/v1/chat/completions", CHAT, headers=headers)
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_authentication"
    await running.wait_request(3)
    assert "sk-" not in running.transcript()


async def test_a_client_that_leaves_closes_the_upstreams_connection(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=10_000, pace=0.01)
    running = await gateway(config)
    async with running.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as reply:
        seen = 0
        async for line in reply.aiter_lines():
            seen += line.startswith("data: ")
            if seen == 5:  # The first is the role alone.
                break
    record = await upstream.requests[0].ended()
    assert record.client_left
    recorded = await running.wait_request()
    assert (recorded["result"], recorded["client_left"], recorded["estimated"]) == ("client_left", True, True)
    assert recorded["output_tokens"] >= 4
    assert float(recorded["cost"]) > 0


# === refused ===


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"model": "small", "messages": [}', 400, "invalid_body"),
        (b'{"model": "small", "stream": "yes"}', 400, "invalid_body"),
        (b"[]", 400, "invalid_body"),
        (b'{"messages": []}', 400, "missing_model"),
        (b'{"model": "nothing"}', 404, "model_not_found"),
    ],
)
async def test_a_bad_request_is_refused_without_asking_an_upstream(
    gateway: StartGateway,
    upstream: ScriptedUpstream,
    config: dict[str, Any],
    body: bytes,
    status: int,
    code: str,
) -> None:
    running = await gateway(config)
    response = await running.client.post("/v1/chat/completions", content=body)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert not len(upstream.requests)
    assert (await running.wait_request())["result"] == "refused"


# === the gateway's own ===


async def test_the_small_endpoints(gateway: StartGateway, config: dict[str, Any]) -> None:
    config["models"]["org/large"] = "local"
    running = await gateway(config)
    client = running.client
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}
    listing = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listing["data"]] == ["small", "org/large"]
    assert (await client.get("/v1/models/org/large")).json()["id"] == "org/large"
    assert (await client.get("/v1/models/org%2Flarge")).json()["id"] == "org/large"
    assert (await client.get("/v1/models/none")).status_code == 404
    head = await client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
    options = await client.options("/v1/chat/completions")
    assert (options.status_code, options.headers["allow"]) == (204, "POST, OPTIONS")
    assert "content-length" not in options.headers
    wrong = await client.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")
    unknown = await client.post("/v1/nothing", json={"a": "x" * 100_000})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")
    metrics = await client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "sluicegate_requests_total" in metrics.text


async def test_openais_own_client_is_content(gateway: StartGateway, config: dict[str, Any]) -> None:
    openai = pytest.importorskip("openai")
    running = await gateway(config)
    async with openai.AsyncOpenAI(base_url=running.api_url, api_key="none", max_retries=0) as client:
        assert [model.id async for model in await client.models.list()] == ["small"]
        reply = await client.chat.completions.create(**CHAT)
        assert reply.choices[0].message.content
        assert reply.usage.model_extra["cost"] > 0
        stream = await client.chat.completions.create(**CHAT, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == reply.choices[0].message.content
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(model="nothing", messages=[])
        assert raised.value.code == "model_not_found"


async def test_metrics_are_shown_to_other_machines_only_where_that_is_said(
    gateway: StartGateway, config: dict[str, Any]
) -> None:
    hidden = await (await gateway({**config, "server": {"host": "0.0.0.0"}})).client.get("/metrics")
    assert (hidden.status_code, hidden.json()["error"]["code"]) == (403, "metrics_not_public")
    public = await gateway({**config, "server": {"host": "0.0.0.0", "metrics": "public"}})
    assert (await public.client.get("/metrics")).status_code == 200
