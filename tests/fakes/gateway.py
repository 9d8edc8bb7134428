"""A gateway over a scripted front, and its log."""

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from fakes.asgi import Response, request
from fakes.exposition import Samples
from fakes.front import FakeExchange, FakeFront, Script
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app
from sluicegate.telemetry import Log

CONFIG: dict[str, Any] = {
    "server": {"max_body_bytes": 1000},
    "keys": [{"name": "team", "key": "sk-team"}, {"name": "other", "key": "sk-other"}],
    "upstreams": {
        "local": {"base_url": "http://127.0.0.1:1/v1"},
        "spare": {"base_url": "http://127.0.0.1:2/v1"},
    },
    "models": {
        "small": "local/m-small",
        "org/large": ["local/m-large", "spare/m-spare"],
    },
    "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
    "cost": {"genai_prices": False},
    "responses": {"store": False},
}
KEY = {"authorization": "Bearer sk-team"}
CHAT = "/v1/chat/completions"


class Harness:
    """`thread`: it is decided on a thread of its own. Starts with the first request, or with `begin`."""

    def __init__(
        self,
        script: Script = FakeExchange.complete,
        *,
        thread: bool = False,
        config: dict[str, Any] | None = None,
        prices: Any = None,
        policy: Any = None,
        **changes: Any,
    ) -> None:
        self._read, self._write = os.pipe()
        self._thread = thread
        self._lines: list[dict[str, Any]] | None = None
        self._log = Log(self._write)
        self.front = FakeFront(script)
        self.app: Gateway = create_app(
            load_data({**(CONFIG if config is None else config), **changes}),
            log=self._log,
            prices=prices,
            policy=policy,
            engines=self.front.start,
        )

    def begin(self) -> None:
        self.app.start(deciding_thread=self._thread)

    async def request(self, method: str, path: str, **options: Any) -> Response:
        self.begin()
        return await request(self.app, method, path, **options)

    async def chat(self, body: Any = None, **options: Any) -> Response:
        body = {"model": "small", "messages": []} if body is None else body
        options.setdefault("headers", KEY)
        return await self.request("POST", CHAT, json_body=body, **options)

    async def metrics_now(self) -> Samples:
        response = await self.request("GET", "/metrics")
        assert response.status == 200
        return Samples(response.body.decode())

    async def metrics(self) -> Samples:
        """Once all is recorded; the gateway is over after this."""
        await self.lines()
        return await self.metrics_now()

    async def lines(self) -> list[dict[str, Any]]:
        """All log lines; the gateway is over after this."""
        if self._lines is None:
            await self.app.shutdown()
            self.front.check()
            self.front.dispose()
            await asyncio.to_thread(self._log.close)
            os.close(self._write)
            with os.fdopen(self._read) as log:
                self._lines = [json.loads(line) for line in log]
        return self._lines

    async def requests(self) -> list[dict[str, Any]]:
        return [line for line in await self.lines() if line["event"] == "request"]


Start = Callable[..., Harness]
