"""What the gateway does with a request before and after the relay has it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fakes.asgi import Connection, Response, request
from fakes.exposition import Samples
from fakes.relay import FakeExchange, FakeFault, FakeOutcome, FakeRelay, FakeUsage
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app
from sluicegate.telemetry import Log

CONFIG: dict[str, Any] = {
    "server": {"max_body_bytes": 1000},
    "keys": [{"name": "team", "key": "sk-team"}, {"name": "other", "key": "sk-other"}],
    "upstreams": {
        "local": {"base_url": "http://127.0.0.1:1/v1"},
        "spare": {"base_url": "http://127.0.0.1:2/v1", "forward_authorization": True},
    },
    "models": {
        "small": "local/m-small",
        "org/large": ["local/m-large", "spare/m-spare"],
    },
    "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
    "cost": {"genai_prices": False},
}
KEY = {"authorization": "Bearer sk-team"}
CHAT = "/v1/chat/completions"


class Harness:
    """A gateway over a scripted relay, and its log."""

    def __init__(self, relay: FakeRelay, changes: dict[str, Any]) -> None:
        self._read, write = os.pipe()
        self.relay = relay
        self.log = Log(write)
        self.app: Gateway = create_app(
            load_data({**CONFIG, **changes}), log=self.log, start_relay=lambda: relay
        )
        self._write = write

    async def chat(self, body: Any = None, **options: Any) -> Response:
        body = {"model": "small", "messages": []} if body is None else body
        options.setdefault("headers", KEY)
        return await request(self.app, "POST", CHAT, json_body=body, **options)

    async def lines(self) -> list[dict[str, Any]]:
        """All log lines; the gateway is over after this."""
        await self.app.shutdown()
        self.relay.check()
        os.close(self._write)
        with os.fdopen(self._read) as log:
            return [json.loads(line) for line in log]

    async def requests(self) -> list[dict[str, Any]]:
        return [line for line in await self.lines() if line["event"] == "request"]

    async def metrics(self) -> Samples:
        response = await request(self.app, "GET", "/metrics")
        assert response.status == 200
        return Samples(response.body.decode())


Start = Callable[..., Harness]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    harnesses: list[Harness] = []

    def begin(script: Callable[[FakeExchange], None] = FakeExchange.complete, **changes: Any) -> Harness:
        harnesses.append(Harness(FakeRelay(script), changes))
        return harnesses[-1]

    yield begin
    for harness in harnesses:
        await harness.app.shutdown()
        harness.relay.check()


# === refused before any upstream ===


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-wrong"}, {"authorization": "sk-team"}])
async def test_a_request_without_a_known_key_is_refused(start: Start, headers: dict[str, str]) -> None:
    gateway = start()
    response = await gateway.chat(headers=headers)
    assert response.status == 401
    assert response.error["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert not gateway.relay.exchanges
    [line] = await gateway.requests()
    assert line["status"] == 401
    assert "sk-wrong" not in json.dumps(line)


async def test_every_key_works_and_is_named_in_the_log(start: Start) -> None:
    gateway = start()
    for key in ("sk-team", "sk-other"):
        assert (await gateway.chat(headers={"authorization": f"bearer {key}"})).status == 200
    assert [line["key"] for line in await gateway.requests()] == ["team", "other"]


async def test_without_configured_keys_anyone_is_served() -> None:
    relay = FakeRelay(FakeExchange.complete)
    config = {name: value for name, value in CONFIG.items() if name != "keys"}
    app = create_app(load_data(config), start_relay=lambda: relay)
    response = await request(app, "POST", CHAT, json_body={"model": "small"})
    assert response.status == 200
    await app.shutdown()


async def test_a_body_that_is_not_json_is_refused_with_the_place(start: Start) -> None:
    response = await request(start().app, "POST", CHAT, body=b'{"model": "small",]', headers=KEY)
    assert response.status == 400
    assert response.error["type"] == "invalid_request_error"
    assert response.error["code"] == "invalid_body"
    assert "byte" in response.error["message"]


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"", b"\xff", b"1"])
async def test_a_body_that_is_no_object_is_refused(start: Start, body: bytes) -> None:
    response = await request(start().app, "POST", CHAT, body=body, headers=KEY)
    assert response.status == 400
    assert response.error["message"]


@pytest.mark.parametrize("body", [{"messages": []}, {"model": None}, {"model": 3}, {"model": ""}])
async def test_a_request_without_a_model_is_refused(start: Start, body: dict[str, Any]) -> None:
    response = await start().chat(body)
    assert response.status == 400
    assert response.error["param"] == "model"


async def test_an_unknown_model_is_not_found(start: Start) -> None:
    gateway = start()
    response = await gateway.chat({"model": "gpt-nothing"})
    assert response.status == 404
    assert response.error["code"] == "model_not_found"
    assert "gpt-nothing" in response.error["message"]
    metrics = await gateway.metrics()
    assert "gpt-nothing" not in metrics.text, "a label that clients can make up is unbounded"
    [line] = await gateway.requests()
    assert line["requested_model"] == "gpt-nothing"


async def test_a_declared_length_over_the_limit_is_refused_unread(start: Start) -> None:
    gateway = start()
    connection = Connection("POST", CHAT, body=b"x" * 100_000, headers=KEY | {"expect": "100-continue"})
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert connection.response.headers["connection"] == "close"
    assert connection.received == 0, "a client that waits for 100 Continue must not be made to send"


async def test_an_undeclared_body_is_refused_when_it_grows_too_large(start: Start) -> None:
    gateway = start()
    connection = Connection("POST", CHAT, body=[b"x" * 600] * 5, headers=KEY, declare_length=False)
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert connection.response.error["code"] == "request_too_large"


async def test_the_rest_of_a_refused_body_is_read_so_that_the_client_sees_the_answer(start: Start) -> None:
    gateway = start()
    headers = KEY | {"transfer-encoding": "chunked"}
    connection = Connection("POST", CHAT, body=[b"x" * 600] * 5, headers=headers, declare_length=False)
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert not connection.chunks


async def test_a_body_in_pieces_is_put_together(start: Start) -> None:
    gateway = start()
    whole = json.dumps({"model": "small", "messages": []}).encode()
    pieces = [whole[i : i + 1] for i in range(len(whole))]
    response = await request(gateway.app, "POST", CHAT, body=pieces, headers=KEY)
    assert response.status == 200
    assert gateway.relay.exchanges[0].forwarded["request"].size == len(whole)


async def test_a_client_that_leaves_while_it_sends_is_recorded(start: Start) -> None:
    gateway = start()
    headers = KEY | {"content-length": "100"}
    connection = Connection("POST", CHAT, body=b"{", headers=headers, declare_length=False, unfinished=True)
    connection.leave()
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert not connection.response.status
    [line] = await gateway.requests()
    assert (line["status"], line["result"], line["client_left"]) == (499, "client_left", True)


# === handed to the relay ===


async def test_the_relay_gets_the_request_as_it_came(start: Start) -> None:
    gateway = start()
    headers = KEY | {"x-request-id": "abc-1", "traceparent": "00-1-2-01"}
    body = {"model": "small", "stream": True, "unknown": {"kept": 1}}
    assert (await gateway.chat(body, headers=headers)).status == 200
    [exchange] = gateway.relay.exchanges
    forwarded = exchange.forwarded
    assert forwarded["path"] == "/chat/completions"
    assert forwarded["route"].upstream.name == "local"
    assert forwarded["route"].model == "m-small"
    assert forwarded["request_id"] == "abc-1"
    assert (b"traceparent", b"00-1-2-01") in list(forwarded["headers"])
    assert forwarded["request"].stream is True


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/v1/chat/completions", "/chat/completions"),
        ("/v1/completions", "/completions"),
        ("/v1/embeddings", "/embeddings"),
    ],
)
async def test_each_endpoint_has_its_place_at_the_upstream(start: Start, path: str, below: str) -> None:
    gateway = start()
    response = await request(gateway.app, "POST", path, json_body={"model": "small"}, headers=KEY)
    assert response.status == 200
    assert gateway.relay.exchanges[0].forwarded["path"] == below


@pytest.mark.parametrize("given", ["", "x" * 129, "with space", "tab\tinside", "\x7f"])
async def test_a_request_id_unfit_for_headers_and_logs_is_replaced(start: Start, given: str) -> None:
    gateway = start()
    await gateway.chat(headers=KEY | {"x-request-id": given})
    made = gateway.relay.exchanges[0].forwarded["request_id"]
    assert made != given
    assert len(made) == 32


async def test_request_ids_are_not_repeated(start: Start) -> None:
    gateway = start()
    for _ in range(50):
        await gateway.chat()
    assert len({exchange.forwarded["request_id"] for exchange in gateway.relay.exchanges}) == 50


async def test_a_refusal_carries_the_request_id(start: Start) -> None:
    response = await start().chat({"model": "none"}, headers=KEY | {"x-request-id": "abc-2"})
    assert response.headers["x-request-id"] == "abc-2"


# === the outcome ===


async def test_one_line_says_all_about_a_request(start: Start) -> None:
    usage = FakeUsage(input_tokens=1000, cached_input_tokens=400, output_tokens=50, reasoning_tokens=20)
    outcome = FakeOutcome(
        streamed=True, usage=usage, events=60, token_events=11, first_token=0.1, last_token=1.1,
        longest_gap=0.3, duration=1.2, bytes_in=900, bytes_out=1000, upstream_request_id="up-1",
        upstream_model="m-small",
    )  # fmt: skip

    def script(exchange: FakeExchange) -> None:
        assert exchange.reply.price(usage).startswith(b'"cost":0.00084,')
        exchange.complete(b"data: [DONE]\n\n", outcome)

    gateway = start(script)
    await gateway.chat({"model": "small", "stream": True}, headers=KEY | {"x-request-id": "abc-3"})
    metrics = await gateway.metrics()
    [line] = await gateway.requests()
    del line["time"]
    assert line == {
        "level": "info", "event": "request", "request_id": "abc-3", "endpoint": "chat_completions",
        "status": 200, "result": "ok", "duration": 1.2, "key": "team", "model": "small",
        "upstream": "local", "upstream_model": "m-small", "upstream_request_id": "up-1", "attempts": 1,
        "streamed": True, "finish_reason": "stop", "time_to_first_token": 0.1, "inter_token_latency": 0.1,
        "longest_gap": 0.3, "input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 50,
        "reasoning_tokens": 20, "cost": "0.00084", "events": 60, "bytes_in": 900, "bytes_out": 1000,
    }  # fmt: skip
    where = {"model": "small", "upstream": "local"}
    served = {"endpoint": "chat_completions", "status": "200", "result": "ok", **where}
    assert metrics.value("sluicegate_requests_total", **served) == 1
    assert metrics.value("sluicegate_tokens_total", kind="input", **where) == 1000
    assert metrics.value("sluicegate_tokens_total", kind="reasoning", **where) == 20
    assert metrics.value("sluicegate_cost_usd_total", **where) == pytest.approx(0.00084)
    assert metrics.value("sluicegate_time_to_first_token_seconds_count", **where) == 1
    assert metrics.value("sluicegate_inter_token_latency_seconds_sum", **where) == pytest.approx(0.1)
    assert metrics.value("sluicegate_active_streams", model="small") == 0


async def test_a_cost_that_is_not_known_is_null_and_counted(start: Start) -> None:
    usage = FakeUsage(input_tokens=10, output_tokens=5)

    def script(exchange: FakeExchange) -> None:
        assert exchange.reply.price(usage) == b'"cost":null'
        exchange.complete(outcome=FakeOutcome(usage=usage, upstream="local"))

    gateway = start(script)
    for _ in range(2):
        await gateway.chat({"model": "org/large"})
    metrics = await gateway.metrics()
    unpriced = "sluicegate_unpriced_requests_total"
    assert metrics.value(unpriced, model="org/large", upstream="local") == 2
    lines = await gateway.lines()
    assert len([line for line in lines if line["event"] == "unpriced"]) == 1, "said once, counted each time"
    assert all("cost" not in line for line in lines if line["event"] == "request")


async def test_a_price_policy_that_fails_ends_no_reply(start: Start) -> None:
    class Broken:
        def price(self, model: str, upstream_model: str, usage: Any) -> None:
            raise ZeroDivisionError("sk-secret")

    relay = FakeRelay(lambda exchange: None)
    read, write = os.pipe()
    app = create_app(load_data(CONFIG), prices=Broken(), log=Log(write), start_relay=lambda: relay)

    def script(exchange: FakeExchange) -> None:
        assert exchange.reply.price(FakeUsage(input_tokens=1)) == b'"cost":null'
        exchange.complete(outcome=FakeOutcome(usage=FakeUsage(input_tokens=1)))

    relay.script = script
    response = await request(app, "POST", CHAT, json_body={"model": "small"}, headers=KEY)
    assert response.status == 200
    await app.shutdown()
    relay.check()
    os.close(write)
    with os.fdopen(read) as log:
        text = log.read()
    assert "price_policy_failed" in text
    assert "ZeroDivisionError" in text
    assert "sk-secret" not in text


async def test_a_client_that_leaves_stops_the_upstream_and_pays_for_what_was_counted(
    start: Start,
) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        exchange.start(content_type=b"text/event-stream")
        loop.call_soon_threadsafe(began.set)
        assert exchange.left.wait(10), "the relay was never told"
        exchange.finish(
            FakeOutcome(client_left=True, streamed=True, finish_reason=None, events=8, token_events=7)
        )
        exchange.reply.abort()

    gateway = start(script)
    connection = Connection("POST", CHAT, body=b'{"model": "small", "stream": true}', headers=KEY)
    call = asyncio.ensure_future(gateway.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    assert (await gateway.metrics()).value("sluicegate_active_streams", model="small") == 1
    connection.leave()
    await asyncio.wait_for(call, 10)
    [line] = await gateway.requests()
    assert (line["result"], line["client_left"], line["estimated"]) == ("client_left", True, True)
    assert line["output_tokens"] == 7
    assert "input_tokens" not in line
    assert line["cost"] == "0.000028"
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_client_disconnects_total", model="small", upstream="local") == 1
    assert metrics.value("sluicegate_estimated_requests_total", model="small", upstream="local") == 1
    assert metrics.value("sluicegate_active_streams", model="small") == 0


async def test_a_preview_of_usage_is_raised_to_what_was_counted(start: Start) -> None:
    preview = FakeUsage(input_tokens=100, output_tokens=1)
    outcome = FakeOutcome(
        client_left=True, streamed=True, finish_reason=None, events=8, token_events=7, usage=preview
    )
    gateway = start(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat({"model": "small", "stream": True})
    [line] = await gateway.requests()
    assert (line["input_tokens"], line["output_tokens"], line["estimated"]) == (100, 7, True)
    assert line["cost"] == "0.000128"


async def test_a_client_that_leaves_after_the_usage_is_not_estimated(start: Start) -> None:
    usage = FakeUsage(input_tokens=100, output_tokens=3)
    outcome = FakeOutcome(client_left=True, streamed=True, events=8, token_events=7, usage=usage)
    gateway = start(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat({"model": "small", "stream": True})
    [line] = await gateway.requests()
    assert "estimated" not in line
    assert line["output_tokens"] == 3


async def test_zero_tokens_are_not_unknown_tokens(start: Start) -> None:
    usage = FakeUsage(input_tokens=0, output_tokens=0)
    gateway = start(lambda exchange: exchange.complete(outcome=FakeOutcome(usage=usage)))
    await gateway.chat()
    [line] = await gateway.requests()
    assert (line["input_tokens"], line["output_tokens"], line["cost"]) == (0, 0, "0")


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (FakeOutcome(), "ok"),
        (FakeOutcome(finish_reason="abort"), "failed"),
        (FakeOutcome(fault=FakeFault("truncated")), "failed"),
        (FakeOutcome(fault=FakeFault("in_band_error")), "failed"),
        (FakeOutcome(status=502, fault=FakeFault("connect")), "failed"),
        (FakeOutcome(status=429, fault=FakeFault("status", status=429)), "failed"),
        (FakeOutcome(status=400, fault=FakeFault("status", status=400)), "refused"),
        (FakeOutcome(status=502, fault=FakeFault("status", status=401)), "failed"),
    ],
)
async def test_the_result_tells_whose_fault_it_was(start: Start, outcome: FakeOutcome, result: str) -> None:
    gateway = start(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat()
    [line] = await gateway.requests()
    assert line["result"] == result
    assert line["level"] == ("warning" if result == "failed" else "info")


async def test_nothing_of_prompt_reply_or_headers_is_logged(start: Start) -> None:
    gateway = start(lambda exchange: exchange.complete(b'{"content": "REPLY-TEXT"}'))
    body = {"model": "small", "messages": [{"role": "user", "content": "PROMPT-TEXT"}], "user": "PERSON"}
    await gateway.chat(body, headers=KEY | {"cookie": "COOKIE", "x-org": "HEADER"})
    text = json.dumps(await gateway.lines())
    for secret in ("PROMPT-TEXT", "REPLY-TEXT", "PERSON", "COOKIE", "HEADER", "sk-team"):
        assert secret not in text


# === faults and fallback ===


async def test_the_next_route_is_tried_and_the_failed_one_is_counted(start: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        following = exchange.reply.failed(FakeFault("connect"))
        assert (following.upstream.name, following.model) == ("spare", "m-spare")
        exchange.complete(outcome=FakeOutcome(upstream="spare", upstream_model="m-spare", attempts=2))

    gateway = start(script)
    response = await gateway.chat({"model": "org/large"})
    assert response.status == 200
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_faults_total", kind="connect", upstream="local") == 1
    [line] = await gateway.requests()
    assert line["failed_attempts"] == ["local: connect"]
    assert line["result"] == "ok"
    assert "fault" not in line


async def test_a_fault_of_the_last_route_is_counted_once(start: Start) -> None:
    fault = FakeFault("reset")

    def script(exchange: FakeExchange) -> None:
        status, headers, body = exchange.reply.failed(fault)
        exchange.send({"type": "http.response.start", "status": status, "headers": headers})
        exchange.finish(FakeOutcome(status=status, fault=fault))
        exchange.send({"type": "http.response.body", "body": body, "more_body": False})

    gateway = start(script)
    response = await gateway.chat()
    assert response.status == 502
    assert response.error["code"] == "reset"
    assert response.error["type"] == "upstream_error"
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_faults_total", kind="reset", upstream="local") == 1
    [line] = await gateway.requests()
    assert (line["fault"], line["code"], line["attempts"]) == ("reset", "reset", 1)
    assert "failed_attempts" not in line


async def test_a_refusal_of_the_request_itself_is_not_tried_elsewhere(start: Start) -> None:
    error = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    fault = FakeFault("status", status=400, body=error)

    def script(exchange: FakeExchange) -> None:
        status, _, body = exchange.reply.failed(fault)
        assert (status, body) == (400, error)
        exchange.complete(outcome=FakeOutcome(status=400, fault=fault))

    gateway = start(script)
    await gateway.chat({"model": "org/large"})
    gateway.relay.check()


async def test_a_clients_own_credentials_that_fail_are_the_clients_to_hear_of(start: Start) -> None:
    error = b'{"error": {"message": "wrong key"}}'

    def script(exchange: FakeExchange) -> None:
        exchange.reply.failed(FakeFault("connect"))
        status, _, body = exchange.reply.failed(FakeFault("status", "spare", status=401, body=error))
        assert (status, body) == (401, error)
        exchange.complete()

    gateway = start(script)
    await gateway.chat({"model": "org/large"})
    gateway.relay.check()


async def test_a_reply_that_cannot_be_completed_is_cut_off(start: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        exchange.start()
        exchange.send({"type": "http.response.body", "body": b'{"half":', "more_body": True})
        exchange.finish(FakeOutcome(fault=FakeFault("truncated")))
        exchange.reply.abort()

    gateway = start(script)
    response = await asyncio.wait_for(gateway.chat(), 10)
    assert not response.complete
    [line] = await gateway.requests()
    assert (line["fault"], line["result"]) == ("truncated", "failed")


async def test_a_cancelled_task_stays_cancelled_and_tells_the_relay(start: Start) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        loop.call_soon_threadsafe(began.set)
        assert exchange.left.wait(10)
        exchange.finish(FakeOutcome(client_left=True, status=499))

    gateway = start(script)
    call = asyncio.ensure_future(gateway.chat())
    await asyncio.wait_for(began.wait(), 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [line] = await gateway.requests()
    assert line["status"] == 499


async def test_a_send_that_fails_is_reported_to_the_relay(start: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        exchange.start()
        assert exchange.send({"type": "http.response.start", "status": 200, "headers": []}) is False
        exchange.finish(FakeOutcome())
        exchange.send({"type": "http.response.body", "body": b"{}", "more_body": False})

    gateway = start(script)
    assert (await gateway.chat()).complete
    gateway.relay.check()


async def test_a_pending_send_of_the_server_is_awaited_on_the_loop(start: Start) -> None:
    loop = asyncio.get_running_loop()
    pending: asyncio.Future[None] = loop.create_future()

    def script(exchange: FakeExchange) -> None:
        resumed: list[bool] = []
        exchange.reply.defer(pending, resumed.append)
        assert not resumed
        loop.call_soon_threadsafe(pending.set_result, None)
        exchange.complete()
        assert resumed == [True]

    gateway = start(script)
    assert (await gateway.chat()).status == 200
    gateway.relay.check()


async def test_a_relay_that_cannot_take_a_request_is_an_error_of_ours(start: Start) -> None:
    gateway = start()
    gateway.relay.close()
    response = await gateway.chat()
    assert response.status == 500
    assert response.error["code"] == "internal"
    gateway.app.drain(60)
    response = await gateway.chat()
    assert response.status == 503
    assert response.error["code"] == "shutdown"
