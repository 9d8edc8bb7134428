"""Every request is recorded once, in the log and in the metrics, wherever and however it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from raw_http import RawConnection
from sluicegate.testing import Script, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = {"authorization": "Bearer one"}
CHAT = {"model": "small", "messages": []}
PATH = "/v1/chat/completions"
MAX_BODY = 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    config = {
        "keys": [{"name": "somebody", "key": "one"}],
        "server": {
            "max_body_bytes": MAX_BODY,
            "bounds": {"requests": 2, "body_pause_seconds": 0.3},
        },
        "upstreams": {
            "local": {"base_url": upstream.base_url},
            "nobody": {"base_url": "http://127.0.0.1:1/v1"},
        },
        "models": {"small": "local", "unreachable": "nobody"},
        "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
        "cost": {"genai_prices": False},
    }
    async with shared_gateway(config, tmp_path_factory.mktemp("gateway")) as running:
        running.client.headers.update(KEY)
        yield running


async def assert_one_record(gateway: GatewayProcess, reply: httpx.Response, **fields: Any) -> None:
    """One line and one count, of everything that has been asked so far."""
    request_id = reply.headers["x-request-id"]
    await assert_one_record_of(gateway, request_id, status=reply.status_code, **fields)


async def assert_one_record_of(gateway: GatewayProcess, request_id: str, **fields: Any) -> None:
    line = await gateway.wait_request(request_id=request_id)
    assert fields.items() <= line.items(), line
    labels = {name: str(line[name]) for name in ("endpoint", "status", "result")}
    # What is recorded twice is there when another has been recorded after it.
    last = await gateway.client.get("/v1/models", headers={"x-request-id": f"after-{request_id}"})
    assert last.status_code == 200
    await gateway.wait_request(request_id=f"after-{request_id}")
    assert len(gateway.find(event="request", request_id=request_id)) == 1
    lines = gateway.find(event="request")
    samples = await gateway.wait_metrics(lambda s: s.value("sluicegate_requests_total") == len(lines))
    assert samples.value("sluicegate_requests_total", **labels) == len(
        [one for one in lines if all(str(one[name]) == value for name, value in labels.items())]
    )


@pytest.mark.parametrize(
    ("method", "path", "endpoint", "status"),
    [
        ("GET", "/v1/models", "models", 200),
        ("HEAD", "/v1/models", "models", 200),
        ("GET", "/v1/models/small", "models", 200),
        ("GET", "/v1/models/other", "models", 404),
        ("GET", "/v1/responses/resp_0", "get_response", 404),
        ("DELETE", "/v1/responses/resp_0", "delete_response", 404),
        ("POST", "/v1/responses/resp_0/cancel", "cancel_response", 404),
        ("GET", "/v1/responses/resp_0/input_items", "list_input_items", 404),
        ("GET", "/v1/nothing", "other", 404),
        ("GET", PATH, "other", 405),
        ("PUT", "/v1/models", "other", 405),
    ],
)
async def test_what_the_application_answers(
    gateway: GatewayProcess, method: str, path: str, endpoint: str, status: int
) -> None:
    reply = await gateway.client.request(method, path)
    assert reply.status_code == status
    await assert_one_record(gateway, reply, endpoint=endpoint)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_supervisors_ask_is_no_request(gateway: GatewayProcess, path: str) -> None:
    before = len(gateway.find(event="request"))
    assert (await gateway.client.get(path)).status_code == 200
    reply = await gateway.client.get("/v1/models")
    await assert_one_record(gateway, reply, endpoint="models")
    assert len(gateway.find(event="request")) == before + 2


@pytest.mark.parametrize(
    ("path", "members"),
    [
        (PATH, {"messages": []}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/embeddings", {"input": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        (PATH, {"messages": [], "stream": True}),
        ("/v1/responses", {"input": "hi", "stream": True}),
    ],
)
async def test_what_is_forwarded(gateway: GatewayProcess, path: str, members: dict[str, Any]) -> None:
    reply = await gateway.client.post(path, json={"model": "small", **members})
    assert reply.status_code == 200
    endpoint = path.removeprefix("/v1/").replace("/", "_")
    await assert_one_record(gateway, reply, endpoint=endpoint, result="ok", caller="somebody", model="small")


async def test_a_response_that_is_kept_and_read(gateway: GatewayProcess) -> None:
    made = await gateway.client.post("/v1/responses", json={"model": "small", "input": "hi"})
    where = f"/v1/responses/{made.json()['id']}"
    async with asyncio.timeout(10):
        # It is there once its reply has ended and a batch is written; nothing says when.
        while (read := await gateway.client.get(where)).status_code == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert read.status_code == 200
    await assert_one_record(gateway, read, endpoint="get_response")
    deleted = await gateway.client.delete(where)
    assert deleted.status_code == 200
    await assert_one_record(gateway, deleted, endpoint="delete_response")


async def test_a_background_response_has_the_record_of_its_run(gateway: GatewayProcess) -> None:
    asked = {"model": "small", "input": "hi", "background": True}
    begun = await gateway.client.post("/v1/responses", json=asked)
    id = begun.json()["id"]
    await gateway.wait_request(response_id=id)
    await assert_one_record(gateway, begun, response_id=id, result="ok")


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        pytest.param({"authorization": ""}, b"{}", 401, "invalid_api_key", id="no-key"),
        pytest.param({"authorization": "Bearer two"}, b"{}", 401, "invalid_api_key", id="another-key"),
        pytest.param({}, b"{", 400, None, id="no-json"),
        pytest.param({}, b"[]", 400, None, id="no-object"),
        pytest.param({}, b'{"messages": []}', 400, None, id="no-model"),
        pytest.param({}, b'{"model": "other"}', 404, None, id="another-model"),
        pytest.param({}, b" " * (MAX_BODY + 1), 413, "request_too_large", id="too-large"),
    ],
)
@pytest.mark.parametrize("path", [PATH, "/v1/responses"])
async def test_what_is_refused(
    gateway: GatewayProcess, path: str, headers: dict[str, str], body: bytes, status: int, code: str | None
) -> None:
    reply = await gateway.client.post(path, content=body, headers=headers)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]
    line = await gateway.wait_request(request_id=reply.headers["x-request-id"])
    assert line["result"] == "refused"
    assert code is None or line["code"] == code
    assert "upstream" not in line
    await assert_one_record(gateway, reply)


async def test_a_body_that_does_not_come(gateway: GatewayProcess) -> None:
    async with RawConnection(*gateway.address) as connection:
        lines = [
            "host: a",
            "content-length: 100",
            "x-request-id: slow",
            f"authorization: {KEY['authorization']}",
        ]
        await connection.send("\r\n".join([f"POST {PATH} HTTP/1.1", *lines, "", '{"mo']).encode())
        assert (await connection.reply()).status == 408
    await assert_one_record_of(gateway, "slow", status=408, code="request_timeout", result="refused")


async def test_a_client_that_leaves_while_it_sends(gateway: GatewayProcess) -> None:
    async with RawConnection(*gateway.address) as connection:
        lines = [
            "host: a",
            "content-length: 100",
            "x-request-id: gone",
            f"authorization: {KEY['authorization']}",
        ]
        await connection.send("\r\n".join([f"POST {PATH} HTTP/1.1", *lines, "", '{"mo']).encode())
    await assert_one_record_of(gateway, "gone", endpoint="chat_completions")


async def test_too_many_at_once(gateway: GatewayProcess, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(tokens=1_000, pace=0.05)
    async with RawConnection(*gateway.address) as first, RawConnection(*gateway.address) as second:
        for number, connection in enumerate((first, second)):
            headers = (f"authorization: {KEY['authorization']}", f"x-request-id: long-{number}")
            await connection.post(PATH, json.dumps(CHAT | {"stream": True}).encode(), headers=headers)
            assert (await connection.head()).status == 200
        refused = await gateway.client.post(PATH, json=CHAT)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        await assert_one_record(gateway, refused, code="overloaded", result="failed")
    for number in range(2):
        await assert_one_record_of(gateway, f"long-{number}", result="client_left", status=200)
    # Both have made room.
    upstream.script = Script(tokens=1)
    assert (await gateway.client.post(PATH, json=CHAT)).status_code == 200


async def test_an_upstream_that_cannot_be_reached(gateway: GatewayProcess) -> None:
    reply = await gateway.client.post(PATH, json=CHAT | {"model": "unreachable"})
    assert reply.status_code == 502
    await assert_one_record(gateway, reply, fault="connect", result="failed", attempts=1)
