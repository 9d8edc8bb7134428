"""Every endpoint of a running gateway, over real sockets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness import needed
from harness.gateway_process import GatewayProcess, Line
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Fault, Script, ScriptedUpstream, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = {"model": "small", "messages": [{"role": "user", "content": "Say something."}]}
STREAMED = {"model": "streamed", "messages": [], "stream": True}
"""Its model serves one test only, which looks at its metrics."""
MODELS = ["small", "streamed", "pair", "down", "org/large"]


class Stand:
    """One gateway for all tests that can share one."""

    def __init__(self, gateway: GatewayProcess, upstream: ScriptedUpstream, spare: ScriptedUpstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.spare = spare

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return await self.gateway.client.post(path, json=body, **options)

    async def line(self, response: httpx.Response) -> Line:
        """The log line of a request."""
        return await self.gateway.wait_request(request_id=response.headers["x-request-id"])


def configured(upstream: ScriptedUpstream, **changes: Any) -> dict[str, Any]:
    """A gateway in front of `upstream`."""
    return {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"small": "local"},
        "prices": {name: {"input": 1, "cached_input": 0.1, "output": 4} for name in ("small", "streamed")},
        "cost": {"genai_prices": False},
        **changes,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as spare, ScriptedUpstream() as down:
        config = configured(
            upstream,
            upstreams={
                "local": {"base_url": upstream.base_url},
                "failing": {"base_url": upstream.base_url},
                "spare": {"base_url": spare.base_url},
                "down": {"base_url": down.base_url},
            },
            models={
                "small": "local",
                "streamed": "local",
                "pair": ["failing/small", "spare/small"],
                "down": "down",
                "org/large": "local",
            },
        )
        await down.stop()
        async with shared_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway:
            yield Stand(gateway, upstream, spare)


@pytest.fixture
def stand(shared: Stand) -> Stand:
    """The stand with a healthy upstream that has seen nothing."""
    shared.upstream.script = Script()
    shared.upstream.requests.clear()
    return shared


def events(text: str) -> list[Any]:
    """The payloads of a chat stream, without the end mark, which must be there."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(item) for item in data[:-1]]


# === relayed ===


async def test_a_chat_completion_comes_with_its_cost(stand: Stand) -> None:
    usage = UsageScript(input_tokens=100, cached_tokens=40, output_tokens=5)
    stand.upstream.script = Script(tokens=5, usage=usage)
    response = await stand.post("/v1/chat/completions", CHAT, headers={"x-request-id": "e2e-1"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"] == "e2e-1"
    shown = response.json()["usage"]
    assert shown["prompt_tokens"] == 100
    assert shown["cost"] == 0.000084
    assert stand.upstream.requests[0].path == "/v1/chat/completions"
    assert stand.upstream.requests[0].header("x-request-id") == "e2e-1"
    line = await stand.line(response)
    assert line["cost"] == "0.000084"
    assert (line["input_tokens"], line["cached_input_tokens"], line["output_tokens"]) == (100, 40, 5)
    assert (line["model"], line["upstream"], line["status"], line["result"]) == ("small", "local", 200, "ok")
    assert line["streamed"] is False


async def test_a_chat_stream_comes_whole_and_is_accounted_for(stand: Stand) -> None:
    stand.upstream.script = Script(tokens=20, pace=0.005)
    response = await stand.post("/v1/chat/completions", STREAMED)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    chunks = events(response.text)
    assert all(chunk["choices"] for chunk in chunks), "the usage chunk was not asked for"
    line = await stand.line(response)
    assert line["streamed"] is True
    assert (line["output_tokens"], line["finish_reason"]) == (20, "stop")
    assert 0 < line["time_to_first_token"] < line["duration"]
    # The mean of 19 gaps.
    assert 0.004 < line["inter_token_latency"] <= line["duration"] / 19
    metrics = await stand.gateway.metrics()
    assert metrics.value("sluicegate_requests_total", model="streamed", status="200", result="ok") == 1
    assert metrics.value("sluicegate_tokens_total", model="streamed", kind="output") == 20
    assert metrics.value("sluicegate_time_to_first_token_seconds_count", model="streamed") == 1
    assert metrics.value("sluicegate_inter_token_latency_seconds_count", model="streamed") == 1
    assert metrics.value("sluicegate_active_streams", model="streamed") == 0


async def test_a_stream_shows_its_usage_and_cost_where_asked_for(stand: Stand) -> None:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    response = await stand.post("/v1/chat/completions", body)
    last = events(response.text)[-1]
    assert last["choices"] == []
    assert last["usage"]["cost"] > 0


async def test_completions_are_relayed(stand: Stand) -> None:
    response = await stand.post("/v1/completions", {"model": "small", "prompt": "Once"})
    assert response.status_code == 200
    assert response.json()["object"] == "text_completion"
    assert stand.upstream.requests[0].path == "/v1/completions"
    assert (await stand.line(response))["endpoint"] == "completions"


async def test_embeddings_are_relayed_and_priced(stand: Stand) -> None:
    response = await stand.post("/v1/embeddings", {"model": "small", "input": "Once"})
    assert response.status_code == 200
    assert response.json()["usage"]["cost"] > 0
    assert stand.upstream.requests[0].path == "/v1/embeddings"
    assert (await stand.line(response))["endpoint"] == "embeddings"


async def test_a_second_upstream_serves_where_the_first_fails(stand: Stand) -> None:
    stand.upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    response = await stand.post("/v1/chat/completions", CHAT | {"model": "pair"})
    assert response.status_code == 200
    line = await stand.line(response)
    assert (line["upstream"], line["attempts"]) == ("spare", 2)
    assert line["failed_attempts"] == ["failing: reset"]
    metrics = await stand.gateway.metrics()
    assert metrics.value("sluicegate_faults_total", upstream="failing", kind="reset") == 1


async def test_an_upstream_that_is_down_is_a_502_that_names_it(stand: Stand) -> None:
    response = await stand.post("/v1/chat/completions", CHAT | {"model": "down"})
    assert response.status_code == 502
    error = response.json()["error"]
    assert error["code"] == "connect"
    assert "'down'" in error["message"]
    port = json.loads(stand.gateway.config_file.read_text())["upstreams"]["down"]["base_url"].split(":")[2]
    assert port.removesuffix("/v1") not in error["message"]
    assert response.headers["x-request-id"]
    assert (await stand.line(response))["fault"] == "connect"


async def test_an_upstreams_refusal_is_passed_on(stand: Stand) -> None:
    error = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded", "param": None}
    stand.upstream.script = Script(status=429, error=error, headers={"retry-after": "7"})
    response = await stand.post("/v1/chat/completions", CHAT | {"stream": True})
    assert response.status_code == 429
    assert response.json() == {"error": error}
    assert response.headers["retry-after"] == "7"


async def test_the_gateways_key_goes_up_and_the_clients_does_not(tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        config = configured(
            upstream,
            keys=[{"name": "team", "key": "${CLIENT_KEY}"}],
            upstreams={"local": {"base_url": upstream.base_url, "api_key": "${UPSTREAM_KEY}"}},
        )
        environ = {"CLIENT_KEY": "sk-client", "UPSTREAM_KEY": "sk-upstream"}
        async with shared_gateway(config, tmp_path, **environ) as gateway:
            keyed = Stand(gateway, upstream, upstream)
            headers = {"authorization": "Bearer sk-client"}
            assert (await keyed.post("/v1/chat/completions", CHAT, headers=headers)).status_code == 200
            assert upstream.requests[0].header("authorization") == "Bearer sk-upstream"
            assert (await keyed.post("/v1/chat/completions", CHAT)).status_code == 401
            upstream.script = Script(status=401, error={"message": "Incorrect API key provided: sk-up*****"})
            response = await keyed.post("/v1/chat/completions", CHAT, headers=headers)
            assert response.status_code == 502
            assert response.json()["error"]["code"] == "upstream_authentication"
            await gateway.wait_request(3)
            assert "sk-" not in gateway.transcript()


async def test_a_client_that_leaves_closes_the_upstreams_connection(stand: Stand) -> None:
    stand.upstream.script = Script(tokens=10_000, pace=0.01)
    client = stand.gateway.client
    async with client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as reply:
        seen = 0
        async for line in reply.aiter_lines():
            seen += line.startswith("data: ")
            if seen == 5:  # The first is the role alone.
                break
    record = await stand.upstream.requests[0].ended()
    assert record.client_left
    recorded = await stand.line(reply)
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
    stand: Stand, body: bytes, status: int, code: str
) -> None:
    response = await stand.gateway.client.post("/v1/chat/completions", content=body)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert not len(stand.upstream.requests)
    assert (await stand.line(response))["result"] == "refused"


# === the gateway's own ===


async def test_the_small_endpoints(stand: Stand) -> None:
    client = stand.gateway.client
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}
    listing = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listing["data"]] == MODELS
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


async def test_openais_own_client_is_content(stand: Stand) -> None:
    openai = pytest.importorskip("openai", reason=needed.PACKAGES)
    async with openai.AsyncOpenAI(base_url=stand.gateway.api_url, api_key="none", max_retries=0) as client:
        assert [model.id async for model in await client.models.list()] == MODELS
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
    stand: Stand, tmp_path: Path
) -> None:
    for server, status in (({"host": "0.0.0.0"}, 403), ({"host": "0.0.0.0", "metrics": "public"}, 200)):
        config = configured(stand.upstream, server=server)
        async with shared_gateway(config, tmp_path) as gateway:
            metrics = await gateway.client.get("/metrics")
            assert metrics.status_code == status
            if status == 403:
                assert metrics.json()["error"]["code"] == "metrics_not_public"
