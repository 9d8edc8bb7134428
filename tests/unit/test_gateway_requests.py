"""What the gateway does with a request before and after the engines have it."""

import asyncio
import json
from typing import Any

import pytest

from fakes.asgi import Connection
from fakes.front import FakeExchange, FakeFault, FakeOutcome, FakeUsage
from fakes.gateway import CHAT, CONFIG, KEY, Start

# === refused before any upstream ===


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-wrong"}, {"authorization": "sk-team"}])
async def test_a_request_without_a_known_key_is_refused(
    start_gateway: Start, headers: dict[str, str]
) -> None:
    gateway = start_gateway()
    response = await gateway.chat(headers=headers)
    assert response.status == 401
    assert response.error["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert not gateway.front.exchanges
    [line] = await gateway.requests()
    assert line["status"] == 401
    assert "sk-wrong" not in json.dumps(line)


async def test_every_key_works_and_is_named_in_the_log(start_gateway: Start) -> None:
    gateway = start_gateway()
    for key in ("sk-team", "sk-other"):
        assert (await gateway.chat(headers={"authorization": f"bearer {key}"})).status == 200
    assert {line["caller"] for line in await gateway.requests()} == {"team", "other"}


async def test_without_configured_keys_anyone_is_served(start_gateway: Start) -> None:
    gateway = start_gateway(config={name: value for name, value in CONFIG.items() if name != "keys"})
    response = await gateway.chat({"model": "small"}, headers={})
    assert response.status == 200
    assert gateway.front.told_callers[0][0] is None


async def test_a_body_that_is_not_json_is_refused_with_the_place(start_gateway: Start) -> None:
    response = await start_gateway().request("POST", CHAT, body=b'{"model": "small",]', headers=KEY)
    assert response.status == 400
    assert response.error["type"] == "invalid_request_error"
    assert response.error["code"] == "invalid_body"
    assert "byte" in response.error["message"]


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"", b"\xff", b"1"])
async def test_a_body_that_is_no_object_is_refused(start_gateway: Start, body: bytes) -> None:
    response = await start_gateway().request("POST", CHAT, body=body, headers=KEY)
    assert response.status == 400
    assert response.error["message"]


@pytest.mark.parametrize("body", [{"messages": []}, {"model": None}, {"model": 3}, {"model": ""}])
async def test_a_request_without_a_model_is_refused(start_gateway: Start, body: dict[str, Any]) -> None:
    response = await start_gateway().chat(body)
    assert response.status == 400
    assert response.error["param"] == "model"


async def test_an_unknown_model_is_not_found(start_gateway: Start) -> None:
    gateway = start_gateway()
    response = await gateway.chat({"model": "gpt-nothing"})
    assert response.status == 404
    assert response.error["code"] == "model_not_found"
    assert "gpt-nothing" in response.error["message"]
    metrics = await gateway.metrics()
    assert "gpt-nothing" not in metrics.text, "a label that clients can make up is unbounded"
    [line] = await gateway.requests()
    assert line["requested_model"] == "gpt-nothing"


async def test_a_declared_length_over_the_limit_is_refused_unread(start_gateway: Start) -> None:
    gateway = start_gateway()
    connection = Connection("POST", CHAT, body=b"x" * 100_000, headers=KEY | {"expect": "100-continue"})
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert connection.response.headers["connection"] == "close"
    assert connection.received == 0, "a client that waits for 100 Continue must not be made to send"


async def test_an_undeclared_body_is_refused_when_it_grows_too_large(start_gateway: Start) -> None:
    gateway = start_gateway()
    connection = Connection("POST", CHAT, body=[b"x" * 600] * 5, headers=KEY, declare_length=False)
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert connection.response.error["code"] == "request_too_large"


async def test_the_rest_of_a_refused_body_is_read_so_that_the_client_sees_the_answer(
    start_gateway: Start,
) -> None:
    gateway = start_gateway()
    headers = KEY | {"transfer-encoding": "chunked"}
    connection = Connection("POST", CHAT, body=[b"x" * 600] * 5, headers=headers, declare_length=False)
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert connection.response.status == 413
    assert not connection.chunks


async def test_a_body_in_pieces_is_put_together(start_gateway: Start) -> None:
    gateway = start_gateway()
    whole = json.dumps({"model": "small", "messages": []}).encode()
    pieces = [whole[i : i + 1] for i in range(len(whole))]
    response = await gateway.request("POST", CHAT, body=pieces, headers=KEY)
    assert response.status == 200
    assert gateway.front.exchanges[0].body == whole


async def test_a_client_that_leaves_while_it_sends_is_recorded(start_gateway: Start) -> None:
    gateway = start_gateway()
    headers = KEY | {"content-length": "100"}
    connection = Connection("POST", CHAT, body=b"{", headers=headers, declare_length=False, unfinished=True)
    connection.leave()
    await gateway.app(connection.scope, connection.receive, connection.send)
    assert not connection.response.status
    [line] = await gateway.requests()
    assert (line["status"], line["result"], line["client_left"]) == (499, "client_left", True)


# === handed to the engines ===


async def test_the_engines_get_the_request_as_it_came(start_gateway: Start) -> None:
    gateway = start_gateway()
    headers = KEY | {"x-request-id": "abc-1", "traceparent": "00-1-2-01"}
    body = {"model": "small", "stream": True, "unknown": {"kept": 1}}
    assert (await gateway.chat(body, headers=headers)).status == 200
    [exchange] = gateway.front.exchanges
    assert exchange.endpoint == "chat_completions"
    assert exchange.request_id == "abc-1"
    assert (b"traceparent", b"00-1-2-01") in exchange.headers
    assert json.loads(exchange.body) == body
    forwarded = exchange.forwarded
    assert forwarded["route"].upstream.name == "local"
    assert forwarded["route"].model == "m-small"
    assert forwarded["last"] is True
    assert forwarded["pricing"] is not None, "the engines price by the table"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chat_completions"),
        ("/v1/completions", "completions"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/responses", "responses"),
    ],
)
async def test_each_endpoint_is_forwarded_and_recorded_by_its_name(
    start_gateway: Start, path: str, name: str
) -> None:
    gateway = start_gateway()
    response = await gateway.request("POST", path, json_body={"model": "small"}, headers=KEY)
    assert response.status == 200
    assert gateway.front.exchanges[0].endpoint == name
    [line] = await gateway.requests()
    assert line["endpoint"] == name


@pytest.mark.parametrize("given", ["", "x" * 129, "with space", "tab\tinside", "\x7f"])
async def test_a_request_id_unfit_for_headers_and_logs_is_replaced(start_gateway: Start, given: str) -> None:
    gateway = start_gateway()
    await gateway.chat(headers=KEY | {"x-request-id": given})
    made = gateway.front.exchanges[0].request_id
    assert made != given
    assert len(made) == 32


async def test_request_ids_are_not_repeated(start_gateway: Start) -> None:
    gateway = start_gateway()
    for _ in range(50):
        await gateway.chat()
    assert len({exchange.request_id for exchange in gateway.front.exchanges}) == 50


async def test_a_refusal_carries_the_request_id(start_gateway: Start) -> None:
    response = await start_gateway().chat({"model": "none"}, headers=KEY | {"x-request-id": "abc-2"})
    assert response.headers["x-request-id"] == "abc-2"


# === the outcome ===


async def test_one_line_says_all_about_a_request(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=1000, cached_input_tokens=400, output_tokens=50, reasoning_tokens=20)
    outcome = FakeOutcome(
        streamed=True, usage=usage, events=60, token_events=11, first_token=0.1, last_token=1.1,
        longest_gap=0.3, duration=1.2, bytes_in=900, bytes_out=1000, upstream_request_id="up-1",
        upstream_model="m-small", cost="0.00084",
    )  # fmt: skip
    gateway = start_gateway(lambda exchange: exchange.complete(b"data: [DONE]\n\n", outcome))
    await gateway.chat({"model": "small", "stream": True}, headers=KEY | {"x-request-id": "abc-3"})
    [line] = await gateway.requests()
    metrics = await gateway.metrics()
    del line["time"]
    assert len(line.pop("key_id")) == 32, "what stands for a key of the configuration"
    assert line == {
        "level": "info", "event": "request", "request_id": "abc-3", "endpoint": "chat_completions",
        "status": 200, "result": "ok", "duration": 1.2, "caller": "team", "model": "small",
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


async def test_an_unknown_cost_is_counted_and_logged_once(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=10, output_tokens=5)
    outcome = FakeOutcome(usage=usage, upstream="local", priced=False)
    gateway = start_gateway(lambda exchange: exchange.complete(outcome=outcome))
    for _ in range(2):
        await gateway.chat({"model": "org/large"})
    lines = await gateway.lines()
    unpriced = "sluicegate_unpriced_requests_total"
    assert (await gateway.metrics()).value(unpriced, model="org/large", upstream="local") == 2
    assert len([line for line in lines if line["event"] == "unpriced"]) == 1, "said once, counted each time"
    requests = [line for line in lines if line["event"] == "request"]
    assert all(line["unpriced"] and "cost" not in line for line in requests)


async def test_a_client_that_leaves_stops_the_upstream_and_pays_for_what_was_counted(
    start_gateway: Start,
) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        exchange.start(content_type=b"text/event-stream")
        loop.call_soon_threadsafe(began.set)
        assert exchange.left.wait(10), "the engines were never told"
        exchange.finish(
            FakeOutcome(
                client_left=True,
                streamed=True,
                finish_reason=None,
                events=8,
                token_events=7,
                estimated=True,
                usage=FakeUsage(input_tokens=0, output_tokens=7),
                cost="0.000028",
            )
        )
        exchange.abort()

    gateway = start_gateway(script)
    connection = Connection("POST", CHAT, body=b'{"model": "small", "stream": true}', headers=KEY)
    call = asyncio.ensure_future(gateway.app(connection.scope, connection.receive, connection.send))
    await asyncio.wait_for(began.wait(), 10)
    assert (await gateway.metrics_now()).value("sluicegate_active_streams", model="small") == 1
    connection.leave()
    await asyncio.wait_for(call, 10)
    [line] = await gateway.requests()
    assert (line["result"], line["client_left"], line["estimated"]) == ("client_left", True, True)
    assert line["output_tokens"] == 7
    assert line["cost"] == "0.000028"
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_client_disconnects_total", model="small", upstream="local") == 1
    assert metrics.value("sluicegate_estimated_requests_total", model="small", upstream="local") == 1
    assert metrics.value("sluicegate_active_streams", model="small") == 0


async def test_a_client_that_leaves_after_the_usage_is_not_estimated(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=100, output_tokens=3)
    outcome = FakeOutcome(client_left=True, streamed=True, events=8, token_events=7, usage=usage)
    gateway = start_gateway(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat({"model": "small", "stream": True})
    [line] = await gateway.requests()
    assert "estimated" not in line
    assert line["output_tokens"] == 3


async def test_zero_tokens_are_not_unknown_tokens(start_gateway: Start) -> None:
    usage = FakeUsage(input_tokens=0, output_tokens=0)
    gateway = start_gateway(lambda exchange: exchange.complete(outcome=FakeOutcome(usage=usage, cost="0")))
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
async def test_the_result_tells_whose_fault_it_was(
    start_gateway: Start, outcome: FakeOutcome, result: str
) -> None:
    gateway = start_gateway(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat()
    [line] = await gateway.requests()
    assert line["result"] == result
    assert line["level"] == ("warning" if result == "failed" else "info")


async def test_nothing_of_prompt_reply_or_headers_is_logged(start_gateway: Start) -> None:
    gateway = start_gateway(lambda exchange: exchange.complete(b'{"content": "REPLY-TEXT"}'))
    body = {"model": "small", "messages": [{"role": "user", "content": "PROMPT-TEXT"}], "user": "PERSON"}
    await gateway.chat(body, headers=KEY | {"cookie": "COOKIE", "x-org": "HEADER"})
    text = json.dumps(await gateway.lines())
    for secret in ("PROMPT-TEXT", "REPLY-TEXT", "PERSON", "COOKIE", "HEADER", "sk-team"):
        assert secret not in text
