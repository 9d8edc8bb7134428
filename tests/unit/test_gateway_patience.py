"""When the gateway begins to look whether a client is still there."""

import asyncio
import time
from typing import Any

import pytest

from fakes.asgi import Connection
from fakes.relay import FakeExchange, FakeOutcome, FakeRelay
from sluicegate.config import load_data
from sluicegate.gateway import create_app, patience
from sluicegate.gateway.threads import Ending

CONFIG: dict[str, Any] = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local"},
    "cost": {"genai_prices": False},
}


async def served(script: Any, **options: Any) -> tuple[Connection, FakeRelay]:
    relay = FakeRelay(script)
    app = create_app(load_data(CONFIG), start_relay=lambda: relay)
    connection = Connection("POST", "/v1/chat/completions", body=b'{"model": "small"}', **options)
    async with asyncio.timeout(10):
        await app(connection.scope, connection.receive, connection.send)
        await app.shutdown()
    relay.check()
    return connection, relay


async def test_a_short_request_never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 60.0)
    connection, _ = await served(FakeExchange.complete)
    assert connection.response.complete
    assert connection.received == 1


async def test_a_long_request_looks() -> None:
    def script(exchange: FakeExchange) -> None:
        exchange.start()
        time.sleep(10 * patience.PATIENCE_SECONDS)
        exchange.finish(FakeOutcome())
        exchange.send({"type": "http.response.body", "body": b"{}", "more_body": False})

    connection, _ = await served(script)
    assert connection.response.complete
    assert connection.received == 2


async def test_a_client_that_left_at_once_is_noticed_a_little_later() -> None:
    def script(exchange: FakeExchange) -> None:
        assert exchange.left.wait(5)
        exchange.finish(FakeOutcome(client_left=True, status=499))

    relay = FakeRelay(script)
    app = create_app(load_data(CONFIG), start_relay=lambda: relay)
    connection = Connection("POST", "/v1/chat/completions", body=b'{"model": "small"}')
    connection.leave()
    async with asyncio.timeout(5):
        await app(connection.scope, connection.receive, connection.send)
    await app.shutdown()
    relay.check()


async def test_a_reply_that_cannot_be_completed_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 60.0)

    def script(exchange: FakeExchange) -> None:
        exchange.start()
        exchange.finish(FakeOutcome())
        exchange.reply.abort()

    connection, _ = await served(script)
    assert not connection.response.complete


async def test_many_requests_share_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_later = loop.call_later

    def counted(delay: float, *arguments: Any, **options: Any) -> Any:
        timers.append(delay)
        return call_later(delay, *arguments, **options)

    class Waiting:
        def __init__(self) -> None:
            self.over = Ending(loop)
            self.looks = asyncio.Event()

        def look(self) -> None:
            self.looks.set()

    watch = patience.Patience()
    monkeypatch.setattr(loop, "call_later", counted)
    replies = [Waiting() for _ in range(100)]
    for reply in replies:
        watch.wait_for(reply, loop)  # type: ignore[arg-type]
    replies[0].over.end()
    async with asyncio.timeout(5):
        await asyncio.gather(*(reply.looks.wait() for reply in replies[1:]))
    assert len(timers) < 10
    assert not watch._waiting
    assert not watch._planned
