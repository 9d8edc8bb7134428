"""Which upstreams a request may go to, by what they serve."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.asgi import request
from fakes.relay import FakeExchange, FakeRelay
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
        (CHAT, "any", "chats"),
        (RESPONSES, "response", "responds"),
        (RESPONSES, "any", "responds"),
    ],
)
async def test_a_request_goes_where_its_api_is_served(
    gateway: Gateway, relay: FakeRelay, path: str, model: str, upstream: str
) -> None:
    response = await request(gateway, "POST", path, json_body={"model": model})
    assert response.status == 200
    forwarded = relay.exchanges[0].forwarded
    assert forwarded["route"].upstream.name == upstream
    assert forwarded["path"] == path.removeprefix("/v1")


@pytest.mark.parametrize(("path", "model"), [(CHAT, "response"), (RESPONSES, "chat")])
async def test_a_model_that_nobody_serves_at_an_api_is_not_found_there(
    gateway: Gateway, relay: FakeRelay, path: str, model: str
) -> None:
    response = await request(gateway, "POST", path, json_body={"model": model})
    assert response.status == 404
    assert (response.error["code"], response.error["param"]) == ("api_not_served", "model")
    assert path in response.error["message"]
    assert not relay.exchanges
