"""Faults of upstreams, of clients and of our own: what is tried next, what is told, what is recorded."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.asgi import Connection
from fakes.front import Ended, FakeExchange, FakeFault, FakeOutcome, unforwarded
from fakes.gateway import CHAT, KEY, Start
from sluicegate.gateway.asgi import Message
from sluicegate.routing import Deployment, Facts


async def test_the_next_route_is_tried_and_the_failed_one_is_counted(start_gateway: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        following = exchange.failed(FakeFault("connect"))
        assert (following.upstream.name, following.model) == ("spare", "m-spare")
        exchange.complete(outcome=FakeOutcome(upstream="spare", upstream_model="m-spare", attempts=2))

    gateway = start_gateway(script)
    response = await gateway.chat({"model": "org/large"})
    assert response.status == 200
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_faults_total", kind="connect", upstream="local") == 1
    [line] = await gateway.requests()
    assert line["failed_attempts"] == ["local: connect"]
    assert [(attempt["upstream"], attempt.get("fault")) for attempt in line["tries"]] == [
        ("local", "connect"), ("spare", None),
    ]  # fmt: skip
    assert line["result"] == "ok"
    assert "fault" not in line
    first, second = gateway.front.exchanges[0].attempts
    assert (first["last"], second["last"]) == (False, True)


async def test_a_fault_of_the_last_route_is_counted_once(start_gateway: Start) -> None:
    fault = FakeFault("reset")

    def script(exchange: FakeExchange) -> None:
        status, headers, body = exchange.failed(fault)
        exchange.say(status, headers, body)
        exchange.finish(FakeOutcome(status=status, fault=fault))

    gateway = start_gateway(script)
    response = await gateway.chat()
    assert response.status == 502
    assert response.error["code"] == "reset"
    assert response.error["type"] == "upstream_error"
    metrics = await gateway.metrics()
    assert metrics.value("sluicegate_faults_total", kind="reset", upstream="local") == 1
    [line] = await gateway.requests()
    assert (line["fault"], line["code"], line["attempts"]) == ("reset", "reset", 1)
    assert "failed_attempts" not in line
    assert "tries" not in line


async def test_a_refusal_of_the_request_itself_is_not_tried_elsewhere(start_gateway: Start) -> None:
    error = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    fault = FakeFault("status", status=400, body=error)

    def script(exchange: FakeExchange) -> None:
        status, _, body = exchange.failed(fault)
        assert (status, body) == (400, error)
        exchange.complete(outcome=FakeOutcome(status=400, fault=fault))

    gateway = start_gateway(script)
    await gateway.chat({"model": "org/large"})
    await gateway.lines()


async def test_a_clients_own_credentials_that_fail_are_the_clients_to_hear_of(start_gateway: Start) -> None:
    error = b'{"error": {"message": "wrong key"}}'

    def script(exchange: FakeExchange) -> None:
        status, _, body = exchange.failed(FakeFault("status", "spare", status=401, body=error))
        assert (status, body) == (401, error)
        exchange.complete()

    upstreams = {"spare": {"base_url": "http://127.0.0.1:2/v1", "forward_authorization": True}}
    gateway = start_gateway(script, upstreams=upstreams, models={"theirs": "spare/m"}, prices={})
    await gateway.chat({"model": "theirs"})
    await gateway.lines()


async def test_a_reply_that_cannot_be_completed_is_cut_off(start_gateway: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        exchange.start()
        exchange.send(b'{"half":')
        exchange.finish(FakeOutcome(fault=FakeFault("truncated")))
        exchange.abort()

    gateway = start_gateway(script)
    response = await asyncio.wait_for(gateway.chat(), 10)
    assert response.body == b'{"half":'
    assert not response.complete
    [line] = await gateway.requests()
    assert (line["fault"], line["result"]) == ("truncated", "failed")


async def test_a_cancelled_task_stays_cancelled_and_tells_the_engines(start_gateway: Start) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(exchange: FakeExchange) -> None:
        loop.call_soon_threadsafe(began.set)
        assert exchange.left.wait(10)
        exchange.finish(FakeOutcome(client_left=True, status=499))

    gateway = start_gateway(script)
    call = asyncio.ensure_future(gateway.chat())
    await asyncio.wait_for(began.wait(), 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [line] = await gateway.requests()
    assert line["status"] == 499


async def test_a_client_whose_server_takes_nothing_any_more_is_gone(start_gateway: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        exchange.start()
        exchange.send(b"{")
        assert exchange.left.wait(10)
        exchange.finish(FakeOutcome(client_left=True))

    gateway = start_gateway(script)
    gateway.begin()
    connection = Connection("POST", CHAT, body=b'{"model": "small"}', headers=KEY)

    async def send(message: Message) -> None:
        raise OSError("the connection is closed")

    async with asyncio.timeout(10):
        await gateway.app(connection.scope, connection.receive, send)
    [line] = await gateway.requests()
    assert line["result"] == "client_left"


async def test_a_slow_client_gets_in_one_piece_what_has_come_meanwhile(start_gateway: Start) -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()
    collected = threading.Event()
    pieces: list[bytes] = []

    def script(exchange: FakeExchange) -> None:
        exchange.start()
        exchange.send(b"1")
        assert collected.wait(10)
        for piece in (b"2", b"3"):
            exchange.send(piece)
        exchange.end()
        exchange.finish(FakeOutcome())
        loop.call_soon_threadsafe(go_on.set)

    gateway = start_gateway(script)
    gateway.begin()
    connection = Connection("POST", CHAT, body=b'{"model": "small"}', headers=KEY)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            pieces.append(message["body"])
            collected.set()
            await go_on.wait()
        await connection.send(message)

    async with asyncio.timeout(10):
        await gateway.app(connection.scope, connection.receive, send)
    assert pieces == [b"1", b"23"]
    assert connection.response.complete


async def test_engines_that_take_no_request_are_an_error_of_ours(start_gateway: Start) -> None:
    gateway = start_gateway()
    gateway.begin()
    gateway.front.close()
    response = await gateway.chat()
    assert response.status == 500
    assert response.error["code"] == "internal"
    gateway.app.drain(60)
    response = await gateway.chat()
    assert response.status == 503
    assert response.error["code"] == "shutdown"
    assert [line["status"] for line in await gateway.requests()] == [500, 503]


async def test_what_the_front_refuses_by_itself_is_recorded(start_gateway: Start) -> None:
    gateway = start_gateway()
    gateway.begin()
    digest = hashlib.sha256(b"sk-team").digest()
    outcome = unforwarded(413, code="request_too_large")
    gateway.front.decisions.put(Ended(99, None, "chat_completions", "r-1", digest, None, outcome))
    outcome = unforwarded(401, code="invalid_api_key")
    gateway.front.decisions.put(Ended(100, None, "", "r-2", b"?" * 32, "small", outcome))
    first, second = await gateway.requests()
    assert (first["request_id"], first["caller"], first["code"]) == ("r-1", "team", "request_too_large")
    assert (first["result"], first["endpoint"]) == ("refused", "chat_completions")
    assert (second["status"], second["code"], second["endpoint"]) == (401, "invalid_api_key", "other")
    assert second.keys().isdisjoint({"key", "model", "requested_model"})


async def test_a_client_that_takes_nothing_is_recorded_as_stalled(start_gateway: Start) -> None:
    outcome = FakeOutcome(client_left=True, stalled=True, streamed=True)
    gateway = start_gateway(lambda exchange: exchange.complete(outcome=outcome))
    await gateway.chat({"model": "small", "stream": True})
    [line] = await gateway.requests()
    assert (line["result"], line["client_left"], line["stalled"]) == ("client_left", True, True)


# === policies of the user's own ===


class Backwards:
    """The last deployment first."""

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        return candidates[::-1]


async def test_a_policy_of_ones_own_says_which_is_next(start_gateway: Start) -> None:
    def script(exchange: FakeExchange) -> None:
        assert exchange.forwarded["route"].upstream.name == "spare"
        assert exchange.forwarded["last"] is False
        assert exchange.failed(FakeFault("connect", "spare")).upstream.name == "local"
        assert exchange.attempts[1]["last"] is True, "as it turned out, not by the configuration"
        exchange.complete(outcome=FakeOutcome(upstream="local", attempts=2))

    gateway = start_gateway(script, policy=Backwards())
    assert (await gateway.chat({"model": "org/large"})).status == 200


class Broken:
    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        raise ZeroDivisionError("secret")


class Nobody:
    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        return []


@pytest.mark.parametrize("policy", [Broken(), Nobody()])
async def test_without_a_policys_answer_the_configurations_order_holds(
    start_gateway: Start, policy: Any
) -> None:
    served: list[str] = []

    def script(exchange: FakeExchange) -> None:
        served.append(exchange.forwarded["route"].upstream.name)
        exchange.complete()

    gateway = start_gateway(script, policy=policy)
    for _ in range(2):
        assert (await gateway.chat({"model": "org/large"})).status == 200
    lines = await gateway.lines()
    assert served == ["local", "local"]
    [failed] = [line for line in lines if line["event"] == "policy_failed"]
    assert failed["model"] == "org/large"
    assert "secret" not in json.dumps(lines)
