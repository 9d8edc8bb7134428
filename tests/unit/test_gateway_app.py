"""The endpoints around the relayed ones, and the application's life."""

import asyncio
import json
import threading
from typing import Any

import pytest

from fakes.asgi import Connection
from fakes.front import Died, FakeExchange, FakeOutcome
from fakes.gateway import CHAT, Harness, Start
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app
from sluicegate.gateway.admission import Admission

CONFIG: dict[str, Any] = {
    "keys": [{"name": "team", "key": "sk-team"}],
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local", "org/large model": "local/m"},
    "cost": {"genai_prices": False},
}
KEY = {"authorization": "Bearer sk-team"}


@pytest.fixture
def served(start_gateway: Start) -> Harness:
    return start_gateway(config=CONFIG)


# === models ===


async def test_models_are_listed_as_configured(served: Harness) -> None:
    response = await served.request("GET", "/v1/models", headers=KEY)
    assert response.status == 200
    listing = response.json()
    assert listing["object"] == "list"
    assert [model["id"] for model in listing["data"]] == ["small", "org/large model"]
    for model in listing["data"]:
        assert model["object"] == "model"
        assert isinstance(model["created"], int)
        assert model["owned_by"]


@pytest.mark.parametrize("name", ["small", "org/large model"])
async def test_one_model_is_found_by_its_name_with_slashes(served: Harness, name: str) -> None:
    response = await served.request("GET", f"/v1/models/{name}", headers=KEY)
    assert response.status == 200
    assert response.json()["id"] == name


async def test_an_unknown_model_is_not_found(served: Harness) -> None:
    response = await served.request("GET", "/v1/models/none", headers=KEY)
    assert response.status == 404
    assert response.error["code"] == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/small"])
async def test_models_are_shown_to_clients_with_a_key_only(served: Harness, path: str) -> None:
    response = await served.request("GET", path)
    assert response.status == 401
    assert "small" not in response.body.decode()


# === urls and methods ===


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/models/", "/v1/chat", "/chat/completions", "//healthz"]
)
async def test_an_unknown_url_gets_a_json_error(served: Harness, path: str) -> None:
    response = await served.request("GET", path)
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
async def test_a_wrong_method_gets_the_allowed_ones(
    served: Harness, method: str, path: str, allow: str
) -> None:
    response = await served.request(method, path)
    assert response.status == 405
    assert response.headers["allow"] == allow
    assert response.error["code"] == "method_not_allowed"


async def test_options_tells_the_methods(served: Harness) -> None:
    response = await served.request("OPTIONS", "/v1/chat/completions")
    assert response.status == 204
    assert response.headers == {"allow": "POST, OPTIONS"}


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz", "/metrics"])
async def test_head_is_answered_like_get(served: Harness, path: str) -> None:
    head = await served.request("HEAD", path)
    assert head.status == (await served.request("GET", path)).status == 200


async def test_a_websocket_is_closed(served: Harness) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await served.app({"type": "websocket", "path": "/v1/models"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_an_unforeseen_exception_is_a_plain_500(
    served: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.gateway.app_request.read_body", None)
    response = await served.request("POST", CHAT, headers=KEY)
    assert response.status == 500
    assert response.error == {
        "message": "The gateway failed to answer.", "type": "server_error", "code": "internal", "param": None,
    }  # fmt: skip
    [line] = await served.requests()
    assert (line["status"], line["code"], line["result"]) == (500, "internal", "failed")


# === records ===


@pytest.mark.parametrize(
    ("method", "path", "headers", "endpoint", "status", "result", "code"),
    [
        ("GET", "/v1/models", KEY, "models", 200, "ok", None),
        ("GET", "/v1/models/small", KEY, "models", 200, "ok", None),
        ("GET", "/v1/models/none", KEY, "models", 404, "refused", "model_not_found"),
        ("GET", "/v1/models", {}, "models", 401, "refused", "invalid_api_key"),
        ("GET", "/v1/responses/resp_1", KEY, "get_response", 404, "refused", "response_not_found"),
        ("DELETE", "/v1/responses/resp_1", {}, "delete_response", 401, "refused", "invalid_api_key"),
        ("GET", "/nowhere", KEY, "other", 404, "refused", "unknown_url"),
        ("GET", CHAT, KEY, "other", 405, "refused", "method_not_allowed"),
    ],
)
async def test_every_endpoint_records_each_request_once(
    start_gateway: Start,
    method: str,
    path: str,
    headers: dict[str, str],
    endpoint: str,
    status: int,
    result: str,
    code: str | None,
) -> None:
    served = start_gateway(config=CONFIG | {"responses": {"store": False}})
    response = await served.request(method, path, headers=headers | {"x-request-id": "r-1"})
    assert response.status == status
    assert response.headers["x-request-id"] == "r-1"
    [line] = await served.requests()
    assert (line["request_id"], line["endpoint"], line["status"]) == ("r-1", endpoint, status)
    assert (line["result"], line.get("code")) == (result, code)
    assert line.get("caller") == ("team" if headers and endpoint != "other" else None)
    counted = {"endpoint": endpoint, "status": str(status), "result": result}
    assert (await served.metrics()).value("sluicegate_requests_total", **counted) == 1


async def test_a_path_where_nothing_is_is_in_the_log_bounded_and_escaped(served: Harness) -> None:
    await served.request("GET", '/v1/chat/completion\n"' + "x" * 1000)
    await served.request("GET", "/v1/models")
    wrong, right = await served.requests()
    assert wrong["path"] == '/v1/chat/completion\n"' + "x" * 235
    assert "path" not in right


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz", "/metrics"])
async def test_what_supervisors_ask_is_not_recorded(served: Harness, path: str) -> None:
    assert (await served.request("GET", path)).status == 200
    assert await served.requests() == []


# === who may read metrics ===


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("gateway", False),
    ],
)
async def test_metrics_are_not_shown_to_other_machines_unless_configured(
    start_gateway: Start, host: str, shown: bool
) -> None:
    response = await start_gateway(server={"host": host}).request("GET", "/metrics")
    assert response.status == (200 if shown else 403)
    if not shown:
        assert response.error["code"] == response.headers["x-sluicegate-error"] == "metrics_not_public"
        assert "server.metrics: public" in response.error["message"]
        assert b"small" not in response.body
    public = await start_gateway(server={"host": host, "metrics": "public"}).request("GET", "/metrics")
    assert public.status == 200


@pytest.mark.parametrize(
    ("server", "status"),
    [
        (("127.0.0.1", 80), 200),
        (("::1", 80), 200),
        (("localhost", 80), 200),
        (("/run/sluicegate.sock", None), 200),
        (None, 200),
        (("10.0.0.1", 80), 403),
        (("gateway", 80), 403),
    ],
)
async def test_under_another_server_the_address_counts_that_a_request_came_to(
    served: Harness, server: Any, status: int
) -> None:
    connection = Connection("GET", "/metrics")
    connection.scope["server"] = server
    served.begin()
    await served.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == status


# === life cycle ===


def started_line(lines: list[dict[str, Any]]) -> dict[str, Any]:
    [line] = [line for line in lines if line["event"] == "started"]
    return line


async def test_the_engines_are_made_at_the_start_and_not_before(served: Harness) -> None:
    fronts: list[object] = [served.app.front]
    assert (fronts, served.front.started) == ([None], 0)
    served.begin()
    served.begin()
    fronts = [served.app.front]
    assert (fronts, served.front.started) == ([served.front], 1)
    line = started_line(await served.lines())
    assert (line["models"], line["upstreams"], line["keys"]) == (2, 1, 1)
    assert line["threads"] >= 1
    assert [line["event"] for line in await served.lines()][-1] == "gateway_stopped"


async def test_it_is_decided_where_it_was_asked_to_be(served: Harness) -> None:
    served.app.reload(load_data({**CONFIG, "models": {"small": ["local/m", "local/n"]}}))
    names: list[str] = []

    class Watching:
        def rank(self, facts: Any, candidates: Any) -> Any:
            names.append(threading.current_thread().name)
            return candidates

    served.app._state.models.get("small").group.policy = Watching()  # type: ignore[union-attr]
    await served.request("POST", CHAT, json_body={"model": "small"}, headers=KEY)
    await served.lines()
    deciding = "sluicegate-decisions" if served._thread else threading.main_thread().name
    assert names == [deciding]


async def test_without_a_lifespan_the_first_request_makes_the_engines() -> None:
    served = Harness(config=CONFIG)
    connection = Connection("POST", CHAT, body=b'{"model": "small"}', headers=KEY)
    await served.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 200
    assert served.front.started == 1
    await served.lines()


async def test_not_ready_while_it_drains_yet_healthy(served: Harness) -> None:
    assert (await served.request("GET", "/readyz")).status == 200
    served.app.drain(60)
    served.app.drain(60)
    assert served.front.drained
    assert (await served.request("GET", "/readyz")).status == 503
    assert (await served.request("GET", "/healthz")).status == 200


async def test_not_ready_without_engines() -> None:
    def fail(config: Any) -> Any:
        raise RuntimeError("no thread")

    app = create_app(load_data(CONFIG), engines=fail)
    connection = Connection("GET", "/readyz")
    await app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 503
    await app.shutdown()


async def test_an_engine_that_died_is_told_to_whoever_runs_the_process(served: Harness) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(message: str) -> None:
        loop.call_soon_threadsafe(told.put_nowait, message)

    served.app.on_death = tell
    served.begin()
    served.front.decisions.put(Died("engine 1 panicked"))
    assert await asyncio.wait_for(told.get(), 10) == "engine 1 panicked"
    assert (await served.request("GET", "/readyz")).status == 503
    assert [line["event"] for line in await served.lines() if line["level"] == "error"] == ["died"]


async def test_a_deciding_thread_that_ends_is_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Harness(config=CONFIG, thread=True)
    told = threading.Event()
    served.app.on_death = lambda message: told.set()

    def wait(seconds: float) -> Any:
        raise MemoryError

    monkeypatch.setattr(served.front.decisions, "wait", wait)
    served.begin()
    assert await asyncio.to_thread(told.wait, 10)
    assert (await served.request("GET", "/readyz")).status == 503
    [line] = [line for line in await served.lines() if line["event"] == "died"]
    assert "MemoryError" in line["message"]


async def lifespan(app: Gateway, *kinds: str) -> list[Any]:
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    for kind in kinds:
        inbox.put_nowait({"type": f"lifespan.{kind}"})
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, inbox.get, send)
    return sent


async def test_the_lifespan_starts_and_closes_the_engines() -> None:
    served = Harness(config=CONFIG)
    sent = await lifespan(served.app, "startup", "shutdown")
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete", "lifespan.shutdown.complete",
    ]  # fmt: skip
    assert served.front.closed.is_set()
    await served.lines()


async def test_a_startup_that_fails_is_told_to_the_server() -> None:
    def fail(config: Any) -> Any:
        raise RuntimeError("no thread")

    [message] = await lifespan(create_app(load_data(CONFIG), engines=fail), "startup")
    assert message["type"] == "lifespan.startup.failed"
    assert "RuntimeError" in message["message"]


async def test_a_reload_changes_models_and_keys_in_one_step(served: Harness) -> None:
    served.begin()
    other = {**CONFIG, "keys": [{"name": "new", "key": "sk-new"}], "models": {"other": "local"}}
    served.app.reload(load_data(other))
    assert len(served.front.told_callers) == 2
    before, after = (told[0] for told in served.front.told_callers)
    assert before != after
    assert (await served.request("GET", "/v1/models", headers=KEY)).status == 401
    new = {"authorization": "Bearer sk-new"}
    listing = (await served.request("GET", "/v1/models", headers=new)).json()
    assert [model["id"] for model in listing["data"]] == ["other"]
    assert (await served.request("POST", CHAT, json_body={"model": "other"}, headers=new)).status == 200
    assert (await served.request("POST", CHAT, json_body={"model": "small"}, headers=new)).status == 404


async def test_what_runs_during_a_reload_goes_on_with_what_it_began_with(start_gateway: Start) -> None:
    loop = asyncio.get_running_loop()
    began = asyncio.Event()
    reloaded = threading.Event()

    def script(exchange: FakeExchange) -> None:
        loop.call_soon_threadsafe(began.set)
        assert reloaded.wait(10)
        exchange.complete()

    served = start_gateway(script, config=CONFIG)
    call = asyncio.ensure_future(served.request("POST", CHAT, json_body={"model": "small"}, headers=KEY))
    await asyncio.wait_for(began.wait(), 10)
    served.app.reload(
        load_data({**CONFIG, "keys": [{"name": "new", "key": "sk-new"}], "models": {"other": "local"}})
    )
    reloaded.set()
    assert (await call).status == 200
    [line] = await served.requests()
    assert (line["caller"], line["model"]) == ("team", "small")


async def test_what_runs_past_the_drain_deadline_is_ended_and_recorded(start_gateway: Start) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        exchange.start(content_type=b"text/event-stream")
        loop.call_soon_threadsafe(began.set)
        assert exchange.front.closed.wait(10)
        exchange.end()
        exchange.finish(FakeOutcome(streamed=True))

    served = start_gateway(script, config=CONFIG)
    served.begin()
    connection = Connection("POST", CHAT, body=json.dumps({"model": "small"}).encode(), headers=KEY)
    call = asyncio.ensure_future(served.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    served.app.drain(0.01)
    await asyncio.wait_for(call, 10)
    assert [line["status"] for line in await served.requests()] == [200]


async def test_shutdown_waits_for_the_records_of_clients_that_left(start_gateway: Start) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        loop.call_soon_threadsafe(began.set)
        assert exchange.front.closed.wait(10)
        exchange.finish(FakeOutcome(client_left=True, status=499))

    served = start_gateway(script, config=CONFIG)
    served.begin()
    connection = Connection("POST", CHAT, body=json.dumps({"model": "small"}).encode(), headers=KEY)
    call = asyncio.ensure_future(served.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    connection.leave()
    await asyncio.wait_for(call, 10)
    assert served.app._decider.open == 1
    await served.app.shutdown()
    assert served.app._decider.open == 0
    assert [line["status"] for line in await served.requests()] == [499]


async def test_a_posted_step_that_raises_ends_nothing(start_gateway: Start) -> None:
    gateway = start_gateway()
    died: list[str] = []
    gateway.app.on_death = died.append
    gateway.begin()
    decider = gateway.app._decider

    def broken() -> None:
        raise ZeroDivisionError("secret-of-a-step")

    decider.post(broken)
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            await decider.ask(broken)
        assert await decider.ask(lambda: 7) == 7
    assert (await gateway.chat()).status == 200
    assert died == []
    [line] = [line for line in await gateway.lines() if line["event"] == "unhandled"]
    assert line["at"] == "posted"
    assert "secret-of-a-step" not in str(line)


async def test_limits_of_very_many_keys_are_looked_at_a_few_at_a_time(
    start_gateway: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 300
    own = {"requests": "5/day"}
    keys = [{"name": "team", "key": f"sk-{place}", "limits": "own"} for place in range(number)]
    callers = [{"name": "team", "limits": "shared"}]
    gateway = start_gateway(
        config={**CONFIG, "keys": keys, "callers": callers, "limits": {"own": own, "shared": own}}
    )
    gateway.begin()
    looked: list[int] = []
    limits = Admission.limits

    def counted(*arguments: Any) -> Any:
        looked[-1] += 1
        return limits(*arguments)

    monkeypatch.setattr(Admission, "limits", counted)
    decider = gateway.app._decider
    posted = decider.post

    def post(step: Any) -> None:
        def run() -> None:
            looked.append(0)
            step()

        posted(run)

    monkeypatch.setattr(type(decider), "post", lambda self, step: post(step))
    places, first = [], ""
    while page := (await gateway.app.standings("team", None, first, 101)):
        places += page[:100]
        if len(page) <= 100:
            break
        first = page[-1][0]
    assert len({place for place, _ in places}) == len(places) == number + 1
    assert all(len(several) == 1 for _, several in places)
    assert max(looked) <= 10
