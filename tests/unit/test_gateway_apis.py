"""Where requests go, whatever the upstreams serve: the engines translate."""

import re
from typing import Any

import pytest

from fakes.front import FakeExchange, FakeFault, FakeOutcome
from fakes.gateway import CHAT, Start

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
    start_gateway: Start, path: str, model: str, upstream: str
) -> None:
    gateway = start_gateway(config=CONFIG)
    response = await gateway.request("POST", path, json_body={"model": model})
    assert response.status == 200
    [exchange] = gateway.front.exchanges
    assert exchange.forwarded["route"].upstream.name == upstream
    assert exchange.forwarded["last"] is (model != "any")


async def test_a_response_gets_an_id_of_its_own(start_gateway: Start) -> None:
    gateway = start_gateway(config=CONFIG)
    for _ in range(2):
        await gateway.request("POST", RESPONSES, json_body={"model": "chat"})
    await gateway.request("POST", CHAT, json_body={"model": "chat"})
    first, second, chat = (exchange.forwarded.get("response_id") for exchange in gateway.front.exchanges)
    assert first != second
    assert re.fullmatch("resp_[0-9a-f]{32}", str(first))
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
    start_gateway: Start, faults: tuple[FakeFault, ...], status: int, code: str, result: str
) -> None:
    def script(exchange: FakeExchange) -> None:
        for fault in faults[:-1]:
            assert not isinstance(exchange.failed(fault), tuple)
        answered, headers, body = exchange.failed(faults[-1])
        assert (b"content-type", b"application/json") in headers
        exchange.say(answered, headers, body)
        exchange.finish(FakeOutcome(status=answered, attempts=3, fault=faults[-1], finish_reason=None))

    gateway = start_gateway(script, config=CONFIG)
    response = await gateway.request("POST", RESPONSES, json_body={"model": "any"})
    assert response.status == status
    assert response.error["code"] == code
    if status == 400:
        assert response.error["param"] == "tools[0]"
        assert response.error["message"] == "'tools[0]' can't be used."
        assert response.error["type"] == "invalid_request_error"
    [line] = await gateway.requests()
    assert (line["result"], line["code"], line["attempts"]) == (result, code, 3)
    counted = {"endpoint": "responses", "status": str(status), "result": result}
    assert (await gateway.metrics()).value("sluicegate_requests_total", **counted) is not None
