"""The endpoints around the relayed ones, and the application's life."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.asgi import Connection, request
from fakes.relay import FakeExchange, FakeOutcome, FakeRelay
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app

CONFIG: dict[str, Any] = {
    "keys": [{"name": "team", "key": "sk-team"}],
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local", "org/large model": "local/m"},
    "cost": {"genai_prices": False},
}
KEY = {"authorization": "Bearer sk-team"}


class Served:
    def __init__(self, script: Any = FakeExchange.complete) -> None:
        self.relay = FakeRelay(script)
        self.started = 0
        self.app: Gateway = create_app(load_data(CONFIG), start_relay=self._start)

    def _start(self) -> Any:
        self.started += 1
        return self.relay


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    yield served
    await served.app.shutdown()


# === models ===


async def test_models_are_listed_as_configured(served: Served) -> None:
    response = await request(served.app, "GET", "/v1/models", headers=KEY)
    assert response.status == 200
    listing = response.json()
    assert listing["object"] == "list"
    assert [model["id"] for model in listing["data"]] == ["small", "org/large model"]
    for model in listing["data"]:
        assert model["object"] == "model"
        assert isinstance(model["created"], int)
        assert model["owned_by"]


@pytest.mark.parametrize("name", ["small", "org/large model"])
async def test_one_model_is_found_by_its_name_with_slashes(served: Served, name: str) -> None:
    response = await request(served.app, "GET", f"/v1/models/{name}", headers=KEY)
    assert response.status == 200
    assert response.json()["id"] == name


async def test_an_unknown_model_is_not_found(served: Served) -> None:
    response = await request(served.app, "GET", "/v1/models/none", headers=KEY)
    assert response.status == 404
    assert response.error["code"] == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/small"])
async def test_models_are_shown_to_clients_with_a_key_only(served: Served, path: str) -> None:
    response = await request(served.app, "GET", path)
    assert response.status == 401
    assert "small" not in response.body.decode()


# === urls and methods ===


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/models/", "/v1/chat", "/chat/completions", "//healthz"]
)
async def test_an_unknown_url_is_told_in_json(served: Served, path: str) -> None:
    response = await request(served.app, "GET", path)
    assert response.status == 404
    assert response.headers["content-type"] == "application/json"
    assert response.error["code"] == "unknown_url"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST, OPTIONS"),
        ("DELETE", "/v1/embeddings", "POST, OPTIONS"),
        ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/models/small", "GET, HEAD, OPTIONS"),
        ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    served: Served, method: str, path: str, allow: str
) -> None:
    response = await request(served.app, method, path)
    assert response.status == 405
    assert response.headers["allow"] == allow
    assert response.error["code"] == "method_not_allowed"


async def test_options_tells_the_methods(served: Served) -> None:
    response = await request(served.app, "OPTIONS", "/v1/chat/completions")
    assert response.status == 204
    assert response.headers == {"allow": "POST, OPTIONS"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_head_is_answered_like_get(served: Served, path: str) -> None:
    head = await request(served.app, "HEAD", path)
    assert head.status == (await request(served.app, "GET", path)).status == 200


async def test_a_websocket_is_closed(served: Served) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await served.app({"type": "websocket", "path": "/v1/models"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_what_nobody_foresaw_is_a_plain_500(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.gateway.relayed.read_body", None)
    response = await request(served.app, "POST", "/v1/chat/completions", headers=KEY)
    assert response.status == 500
    assert response.error == {
        "message": "The gateway failed to answer.", "type": "server_error", "code": "internal", "param": None,
    }  # fmt: skip


# === life cycle ===


async def test_the_relay_is_made_on_startup_and_not_before(served: Served) -> None:
    assert served.started == 0
    served.app.startup()
    assert served.started == 1
    await request(served.app, "GET", "/readyz")
    assert served.started == 1


async def test_without_a_lifespan_the_first_request_makes_the_relay(served: Served) -> None:
    response = await request(
        served.app, "POST", "/v1/chat/completions", json_body={"model": "small"}, headers=KEY
    )
    assert response.status == 200
    assert served.started == 1


async def test_not_ready_while_it_drains_yet_healthy(served: Served) -> None:
    assert (await request(served.app, "GET", "/readyz")).status == 200
    served.app.drain(60)
    served.app.drain(60)
    assert (await request(served.app, "GET", "/readyz")).status == 503
    assert (await request(served.app, "GET", "/healthz")).status == 200


async def test_not_ready_without_a_relay() -> None:
    def fail() -> Any:
        raise RuntimeError("no thread")

    app = create_app(load_data(CONFIG), start_relay=fail)
    assert (await request(app, "GET", "/readyz")).status == 503
    await app.shutdown()


async def lifespan(app: Gateway, *kinds: str) -> list[Any]:
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    for kind in kinds:
        inbox.put_nowait({"type": f"lifespan.{kind}"})
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, inbox.get, send)
    return sent


async def test_the_lifespan_starts_and_closes_the_relay(served: Served) -> None:
    sent = await lifespan(served.app, "startup", "shutdown")
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete", "lifespan.shutdown.complete",
    ]  # fmt: skip
    assert served.relay.closed.is_set()


async def test_a_startup_that_fails_is_told_to_the_server() -> None:
    def fail() -> Any:
        raise RuntimeError("no thread")

    [message] = await lifespan(create_app(load_data(CONFIG), start_relay=fail), "startup")
    assert message["type"] == "lifespan.startup.failed"
    assert "RuntimeError" in message["message"]


async def test_what_runs_past_the_drain_deadline_is_ended_and_recorded() -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    served: Served

    def script(exchange: FakeExchange) -> None:
        exchange.start(content_type=b"text/event-stream")
        loop.call_soon_threadsafe(began.set)
        assert served.relay.closed.wait(10)
        exchange.finish(FakeOutcome(streamed=True))
        exchange.send({"type": "http.response.body", "body": b"", "more_body": False})

    served = Served(script)
    connection = Connection(
        "POST", "/v1/chat/completions", body=json.dumps({"model": "small"}).encode(), headers=KEY
    )
    call = asyncio.ensure_future(served.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    served.app.drain(0.01)
    await asyncio.wait_for(call, 10)
    served.relay.check()
    await served.app.shutdown()


async def test_shutdown_waits_for_the_records_of_clients_that_left() -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    served: Served

    def script(exchange: FakeExchange) -> None:
        loop.call_soon_threadsafe(began.set)
        assert served.relay.closed.wait(10)
        exchange.finish(FakeOutcome(client_left=True, status=499))

    served = Served(script)
    connection = Connection(
        "POST", "/v1/chat/completions", body=json.dumps({"model": "small"}).encode(), headers=KEY
    )
    call = asyncio.ensure_future(served.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    connection.leave()
    await asyncio.wait_for(call, 10)
    assert served.app._state.open == 1
    await served.app.shutdown()
    assert served.app._state.open == 0
