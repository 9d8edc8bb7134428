"""Where requests go, whatever the upstreams serve: the relay translates."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.asgi import request
from fakes.exposition import Samples
from fakes.relay import FakeExchange, FakeFault, FakeOutcome, FakeRelay
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
CONFIG: dict[str, Any] = {
    "upstreams": {
        "chats": {"base_url": "http://127.0.0.1:1/v1"},
        "responds": {"base_url": "http://127.0.0.1:2/v1", "api": "responses"},
        "both": {"base_url": "http://127.0.0.1:3/v1", "api": "both"},
    },
    "models": {"chat": "chats", "response": "responds", "any": ["chats", "responds", "both"]},
    "cost": {"genai_prices": False},
    "responses": {"store": False},
}


@pytest.fixture
def relay() -> FakeRelay:
    return FakeRelay(FakeExchange.complete)


@pytest.fixture
async def gateway(relay: FakeRelay) -> AsyncIterator[Gateway]:
    app = create_app(load_data(CONFIG), start_relay=lambda: relay)
    yield app
    await app.shutdown()
    relay.check()


@pytest.mark.parametrize(
    ("path", "model", "upstream"),
    [
        (CHAT, "chat", "chats"),
        (CHAT, "response", "responds"),
        (CHAT, "any", "chats"),
        (RESPONSES, "chat", "chats"),
        (RESPONSES, "response", "responds"),
        (RESPONSES, "any", "chats"),
    ],
)
async def test_a_request_goes_to_the_first_route(
    gateway: Gateway, relay: FakeRelay, path: str, model: str, upstream: str
) -> None:
    response = await request(gateway, "POST", path, json_body={"model": model})
    assert response.status == 200
    forwarded = relay.exchanges[0].forwarded
    assert forwarded["route"].upstream.name == upstream
    assert forwarded["path"] == path.removeprefix("/v1")


async def test_a_response_gets_an_id_of_its_own(gateway: Gateway, relay: FakeRelay) -> None:
    for _ in range(2):
        await request(gateway, "POST", RESPONSES, json_body={"model": "chat"})
    await request(gateway, "POST", CHAT, json_body={"model": "chat"})
    first, second, chat = (exchange.forwarded["response_id"] for exchange in relay.exchanges)
    assert first != second
    assert re.fullmatch("resp_[0-9a-f]{32}", first)
    assert chat is None


# === requests that not every upstream can be asked ===


BEYOND = FakeFault("untranslatable", "chats", "'tools[0]' can't be used.", param="tools[0]")
BUSY = FakeFault("status", "responds", "busy", status=503, body=b'{"error":{"code":"busy"}}')


@pytest.mark.parametrize(
    ("faults", "status", "code", "result"),
    [
        ((BEYOND, BEYOND, BEYOND), 400, "untranslatable", "refused"),
        ((BEYOND, BUSY, BEYOND), 503, "busy", "failed"),
        ((BUSY, BEYOND, BEYOND), 503, "busy", "failed"),
        ((BEYOND, BEYOND, BUSY), 503, "busy", "failed"),
    ],
)
async def test_the_error_is_of_an_upstream_that_was_asked(
    gateway: Gateway, relay: FakeRelay, faults: tuple[FakeFault, ...], status: int, code: str, result: str
) -> None:
    def script(exchange: FakeExchange) -> None:
        for fault in faults[:-1]:
            assert not isinstance(exchange.reply.failed(fault), tuple)
        answered, headers, body = exchange.reply.failed(faults[-1])
        outcome = FakeOutcome(status=answered, attempts=3, fault=faults[-1], finish_reason=None)
        assert (b"content-type", b"application/json") in headers
        exchange.start(answered)
        exchange.finish(outcome)
        exchange.send({"type": "http.response.body", "body": body, "more_body": False})

    relay.script = script
    response = await request(gateway, "POST", RESPONSES, json_body={"model": "any"})
    assert response.status == status
    assert response.error["code"] == code
    if status == 400:
        assert response.error["param"] == "tools[0]"
        assert response.error["message"] == "'tools[0]' can't be used."
        assert response.error["type"] == "invalid_request_error"
    metrics = Samples((await request(gateway, "GET", "/metrics")).body.decode())
    counted = {"endpoint": "responses", "status": str(status), "result": result}
    assert metrics.value("sluicegate_requests_total", **counted) is not None
