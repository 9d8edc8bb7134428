"""A real gateway between raw bytes: the upstream sends what a test says, the client reads just what came.

A test module makes a module-scoped fixture of `wire_stand` and runs its tests on the module's event loop.
"""

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess, Line
from harness.shared_gateway import shared_gateway
from raw_http import RawConnection, RawReply
from sluicegate.testing import Record, Script, ScriptedUpstream

MODEL = "small"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"

PRICE: Mapping[str, Any] = {
    "input": "1",
    "cached_input": "0.1",
    "cache_write": "1.25",
    "cache_write_1h": "2",
    "output": "4",
    "reasoning": "6",
}
"""USD per million tokens; no two alike, so that a cost tells which tokens were billed as what."""

TOGETHER = 24
"""Requests at once where a test has many."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Exchange:
    """One request that is over. `line` is the gateway's log line of it."""

    reply: RawReply
    line: Line

    @property
    def body(self) -> bytes:
        return self.reply.body


class WireStand:
    """A gateway, the scripted upstream behind it, and raw clients in front."""

    def __init__(self, upstream: ScriptedUpstream, gateway: GatewayProcess) -> None:
        self.upstream = upstream
        self.gateway = gateway

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.gateway.base_url.removeprefix("http://").partition(":")
        return host, int(port)

    @property
    def request(self) -> Record:
        """The last request that the upstream has seen."""
        return self.upstream.requests[-1]

    async def ask(
        self,
        script: Script,
        *,
        path: str = CHAT,
        headers: tuple[str, ...] = (),
        body: bytes | None = None,
        **members: Any,
    ) -> Exchange:
        """One POST while the upstream follows `script`.

        `members` go into the body of a chat request; `body` is sent in its place.
        """
        self.upstream.script = script
        return await self.post(path, request_body(**members) if body is None else body, headers)

    async def stream(self, script: Script, **options: Any) -> Exchange:
        """`ask` for a stream."""
        return await self.ask(script, stream=True, **options)

    async def ask_each(
        self,
        bodies: Iterable[Iterable[bytes | float]],
        *,
        content_type: str = "text/event-stream",
        **members: Any,
    ) -> list[Exchange]:
        """One request for each body that the upstream shall send, many at once.

        A body's parts are writes, or seconds to wait.
        """
        limit = asyncio.Semaphore(TOGETHER)

        async def ask_one(steps: Iterable[bytes | float]) -> Exchange:
            mock = {"body": [_step(step) for step in steps], "content_type": content_type}
            async with limit:
                return await self.post(CHAT, request_body(mock=mock, **members))

        return await asyncio.gather(*map(ask_one, bodies))

    @contextlib.asynccontextmanager
    async def connected(
        self,
        script: Script,
        *,
        path: str = CHAT,
        headers: tuple[str, ...] = (),
        body: bytes | None = None,
        **members: Any,
    ) -> AsyncIterator["Caller"]:
        """A client that has sent its request, for tests that look at a reply while it comes."""
        sent = request_body(**members) if body is None else body
        self.upstream.script = script
        request_id = _request_id()
        async with RawConnection(*self.address) as connection:
            await connection.post(path, sent, headers=(*headers, f"x-request-id: {request_id}"))
            yield Caller(self.gateway, connection, request_id)

    async def post(self, path: str, body: bytes, headers: tuple[str, ...] = ()) -> Exchange:
        """One POST, whatever the upstream follows."""
        request_id = _request_id()
        async with RawConnection(*self.address) as connection:
            await connection.post(path, body, headers=(*headers, f"x-request-id: {request_id}"))
            reply = await connection.reply()
        return Exchange(reply, await self.gateway.wait_request(request_id=request_id))


@dataclass(frozen=True)
class Caller:
    """A client in the middle of its request."""

    gateway: GatewayProcess
    connection: RawConnection
    request_id: str

    async def line(self) -> Line:
        return await self.gateway.wait_request(request_id=self.request_id)

    async def read(self, size: int) -> bytes:
        """Chunks until there are `size` bytes of the reply's body, or it has ended."""
        data = b""
        while len(data) < size and (chunk := await self.connection.chunk()):
            data += chunk
        return data


@contextlib.asynccontextmanager
async def wire_stand(
    directory: Path, config: Mapping[str, Any] | None = None, *, send_buffer: int | None = None
) -> AsyncIterator[WireStand]:
    """A stand with one upstream, `local`, that serves `small` at `PRICE`.

    `config` adds to the configuration. An upstream in it without a `base_url` is the same scripted one under
    another name, with settings of its own. `send_buffer`: the scripted upstream's.
    """
    added = config or {}
    async with ScriptedUpstream(send_buffer=send_buffer) as upstream:
        upstreams = {
            name: {"base_url": upstream.base_url, **settings}
            for name, settings in {"local": {}, **added.get("upstreams", {})}.items()
        }
        whole = {
            **added,
            "upstreams": upstreams,
            "models": {MODEL: "local", **added.get("models", {})},
            "prices": {MODEL: PRICE, **added.get("prices", {})},
            "cost": {"genai_prices": False, **added.get("cost", {})},
        }
        async with shared_gateway(whole, directory) as gateway:
            yield WireStand(upstream, gateway)


def sent_up(wire: WireStand) -> dict[str, list[str]]:
    """The headers that the upstream got, by lower-case name."""
    headers: dict[str, list[str]] = {}
    for name, value in wire.request.headers:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def request_body(*, model: str = MODEL, **members: Any) -> bytes:
    """A chat request's body."""
    asked = {"model": model, "messages": [{"role": "user", "content": "Say something."}]}
    return json.dumps(asked | members).encode()


def _request_id() -> str:
    return f"wire-{next(_numbers)}"


def _step(step: bytes | float) -> Any:
    return {"base64": base64.b64encode(step).decode()} if isinstance(step, bytes) else step


# === what upstreams send ===

DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """JSON as most servers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(payload: Any) -> bytes:
    """One event with `payload`: JSON, or bytes as they are."""
    return b"data: " + (payload if isinstance(payload, bytes) else dumps(payload)) + b"\n\n"


def chunk(content: str | None = None, *, finish: str | None = None, **members: Any) -> dict[str, Any]:
    """A chat chunk with one choice. `members` are the chunk's own (`usage`)."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **members}


def usage_chunk(usage: Any, **members: Any) -> dict[str, Any]:
    """A chunk with usage and no choices."""
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage, **members}


def completion(content: str = "Hello", **members: Any) -> dict[str, Any]:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **members}


# === the usage that a user reported as billed wrongly elsewhere ===

REPORTED = {
    "prompt_tokens": 14,
    "completion_tokens": 7,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 3},
}
"""14 prompt tokens of which 3 were cached: 11 at the full price, and not 14."""

REPORTED_MEMBERS = (
    b'"cost":0.0000393,"cost_details":{"input_cost":0.000011,"cached_input_cost":0.0000003,'
    b'"cache_write_cost":0,"output_cost":0.000028,"reasoning_cost":0}'
)
"""What its usage object gains at `PRICE`: 11 at 1, 3 at 0.1 and 7 at 4 USD per million tokens."""


def priced(text: bytes, usage: Any = REPORTED, members: bytes = REPORTED_MEMBERS) -> bytes:
    """`text` with `members` at the end of each `usage` in it, as `dumps` writes that."""
    plain = dumps(usage)
    assert plain in text
    return text.replace(plain, plain[:-1] + b"," + members + b"}")


def assert_billed_as_reported(line: Line) -> None:
    """11 uncached, 3 cached, 7 completion, no reasoning, 21 in all."""
    assert line["input_tokens"] - line["cached_input_tokens"] == 11, line
    assert line["cached_input_tokens"] == 3
    assert line["output_tokens"] == 7
    assert line.get("reasoning_tokens", 0) == 0
    assert line["input_tokens"] + line["output_tokens"] == 21
    assert line["cost"] == "0.0000393"
    assert "estimated" not in line
