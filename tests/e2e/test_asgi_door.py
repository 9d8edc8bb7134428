"""The application under other servers than its own front: everything is served there, too."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest
import uvicorn
from granian.constants import Interfaces
from granian.server.embed import Server

from fakes.exposition import Samples
from harness.responses_stream import check, same_answer
from harness.strict_openai import validate
from raw_http import RawConnection
from sluicegate.config import load_data
from sluicegate.gateway import Gateway, create_app
from sluicegate.pricing import Cost, UsageLike
from sluicegate.testing import Fault, Script, ScriptedUpstream, body
from sluicegate.testing.forms import parts_of

CHAT = {"model": "small", "messages": []}
PATH = "/v1/chat/completions"
START_SECONDS = 20

Serve = Callable[[Gateway, int], "contextlib.AbstractAsyncContextManager[None]"]


@contextlib.asynccontextmanager
async def under_uvicorn(app: Gateway, port: int) -> AsyncIterator[None]:
    settings = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="on", ws="none")
    server = uvicorn.Server(settings)
    task = asyncio.ensure_future(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        async with asyncio.timeout(START_SECONDS):
            await task


@contextlib.asynccontextmanager
async def under_granian(app: Gateway, port: int) -> AsyncIterator[None]:
    server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_enabled=False)
    task = asyncio.ensure_future(server.serve())
    try:
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        async with asyncio.timeout(START_SECONDS):
            await task


@pytest.fixture(params=[under_uvicorn, under_granian], ids=["uvicorn", "granian"])
def serve(request: pytest.FixtureRequest) -> Serve:
    found: Serve = request.param
    return found


@pytest.fixture
async def start(
    serve: Serve, config: dict[str, Any], tmp_path: Any
) -> AsyncIterator[Callable[..., Awaitable[httpx.AsyncClient]]]:
    """`await start(**changes)`: a client of the application, configured with `changes`."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(prices: Any = None, **changes: Any) -> httpx.AsyncClient:
            responses = {"path": str(tmp_path / "responses.db"), **changes.pop("responses", {})}
            app = create_app(load_data({**config, "responses": responses, **changes}), prices=prices)
            port = free_port()
            await stack.enter_async_context(serve(app, port))
            base_url = f"http://127.0.0.1:{port}"
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=base_url, timeout=20))
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(httpx.ConnectError):
                        if (await client.get("/readyz")).status_code == 200:
                            return client
                    await asyncio.sleep(0.01)

        yield started


@pytest.fixture
async def client(start: Callable[..., Awaitable[httpx.AsyncClient]]) -> httpx.AsyncClient:
    return await start()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def samples(
    client: httpx.AsyncClient, condition: Callable[[Samples], bool], seconds: float = 10
) -> Samples:
    """The metrics, as soon as `condition` holds."""
    async with asyncio.timeout(seconds):
        while True:
            scraped = Samples((await client.get("/metrics")).text)
            if condition(scraped):
                return scraped
            await asyncio.sleep(0.02)


# === replies ===


async def test_a_document_and_a_stream_come_whole(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=50)
    reply = await client.post(PATH, json=CHAT)
    assert reply.json()["usage"]["cost"] > 0
    assert reply.headers["x-request-id"]
    stream = await client.post(PATH, json=CHAT | {"stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.count("data: ") > 50
    assert stream.text.endswith("data: [DONE]\n\n")
    found = await samples(client, lambda s: s.value("sluicegate_requests_total") == 2)
    assert found.value("sluicegate_requests_total", endpoint="chat_completions", result="ok") == 2


async def test_a_reply_that_is_large_comes_whole(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=50, chunk_bytes=100_000)
    reply = await client.post(PATH, json=CHAT)
    [choice] = reply.json()["choices"]
    assert len(choice["message"]["content"]) == 50 * 100_000


async def test_audio_comes_and_goes(client: httpx.AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(tokens=4)
    asked = {"model": "small", "input": "Hi", "voice": "alloy"}
    said = await client.post("/v1/audio/speech", json=asked)
    assert (said.status_code, len(said.content)) == (200, 4 * 1024)
    audio = bytes(range(256)) * 4096
    heard = await client.post(
        "/v1/audio/transcriptions", data={"model": "small"}, files={"file": ("a.wav", audio, "audio/wav")}
    )
    assert heard.json()["text"] == "A sluice lets water"
    got = parts_of(upstream.requests[-1].request)
    assert got is not None
    assert [(part.name, part.content) for part in got] == [("model", b"small"), ("file", audio)]
    wrong = await client.post("/v1/audio/transcriptions", data={"model": "small"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_body")


async def test_events_come_as_they_are_made(client: httpx.AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(tokens=2, pace=30.0)
    async with asyncio.timeout(10), client.stream("POST", PATH, json=CHAT | {"stream": True}) as reply:
        async for line in reply.aiter_lines():
            if "content" in line:
                break


async def test_a_response_comes_whole_and_as_events(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=20, reasoning_tokens=3)
    asked = {"model": "small", "input": "hi", "store": False}
    whole = (await client.post("/v1/responses", json=asked)).json()
    validate(whole)
    stream = await client.post("/v1/responses", json=asked | {"stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    same_answer(check(stream.content, complete=True).response, whole)
    assert whole["usage"]["cost"] > 0


@pytest.mark.parametrize("background", [False, True], ids=["live", "background"])
async def test_a_response_is_kept_and_continued(
    client: httpx.AsyncClient, upstream: ScriptedUpstream, background: bool
) -> None:
    upstream.script = Script(tokens=5)
    asked = {"model": "small", "input": "hi", "background": background}
    begun = (await client.post("/v1/responses", json=asked)).json()
    where = f"/v1/responses/{begun['id']}"
    async with asyncio.timeout(10):
        while True:
            kept = await client.get(where)
            if kept.status_code == 200 and kept.json()["status"] == "completed":
                break
            await asyncio.sleep(0.02)
    validate(kept.json())
    items = (await client.get(f"{where}/input_items")).json()
    assert items["data"][0]["content"][0]["text"] == "hi"
    follows = {"model": "small", "input": "and?", "previous_response_id": begun["id"]}
    assert (await client.post("/v1/responses", json=follows)).status_code == 200
    said = [message["role"] for message in json.loads(upstream.requests[-1].request.body)["messages"]]
    assert said == ["user", "assistant", "user"]
    assert (await client.delete(where)).status_code == 200
    assert (await client.get(where)).status_code == 404


async def test_a_background_response_is_followed_as_events(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=10)
    asked = {"model": "small", "input": "hi", "background": True, "stream": True}
    stream = await client.post("/v1/responses", json=asked)
    assert check(stream.content, complete=True).response["status"] == "completed"


# === clients ===


async def test_a_client_that_leaves_ends_the_upstream(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=1_000, pace=0.01)
    async with client.stream("POST", PATH, json=CHAT | {"stream": True}) as reply:
        async for _ in reply.aiter_lines():
            break
    assert (await upstream.requests[0].ended()).client_left
    found = await samples(client, lambda s: bool(s.value("sluicegate_requests_total")))
    assert found.value("sluicegate_requests_total", result="client_left") == 1
    assert not found.value("sluicegate_active_streams")


async def test_a_client_that_does_not_read_stops_its_upstream(
    start: Callable[..., Awaitable[httpx.AsyncClient]], upstream: ScriptedUpstream
) -> None:
    client = await start(server={"client_buffer_bytes": 256 * 1024})
    upstream.script = Script(tokens=800, chunk_bytes=50_000)
    body = json.dumps(CHAT | {"stream": True}).encode()
    async with RawConnection("127.0.0.1", client.base_url.port or 0) as connection:
        await connection.post(PATH, body)
        await connection.head()
        sent, same = -1, 0
        async with asyncio.timeout(20):
            # Stopped: nothing more for a while, long before the 40 MB are out.
            while same < 10:
                now = upstream.requests[0].bytes_sent
                same = same + 1 if now == sent else 0
                sent = now
                await asyncio.sleep(0.05)
        assert sent < 25_000_000
        reading = 0
        while (chunk := await connection.chunk()) and reading < sent:
            reading += len(chunk)
    assert (await upstream.requests[0].ended()).client_left


# === errors ===


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        pytest.param({}, b"{}", 401, "invalid_api_key", id="no-key"),
        pytest.param({"authorization": "Bearer other"}, b"{}", 401, "invalid_api_key", id="unknown-key"),
        pytest.param({"authorization": "Bearer one"}, b"{", 400, None, id="no-json"),
        pytest.param({"authorization": "Bearer one"}, b'{"model": "x"}', 404, None, id="no-model"),
        pytest.param({"authorization": "Bearer one"}, b"x" * 5_000, 413, "request_too_large", id="too-large"),
    ],
)
async def test_a_request_that_cannot_be_served_is_told_why(
    start: Callable[..., Awaitable[httpx.AsyncClient]],
    headers: dict[str, str],
    body: bytes,
    status: int,
    code: str | None,
) -> None:
    client = await start(keys=[{"name": "somebody", "key": "one"}], server={"max_body_bytes": 4_000})
    reply = await client.post(PATH, content=body, headers=headers)
    assert reply.status_code == status
    assert code is None or reply.json()["error"]["code"] == code
    assert reply.headers["x-request-id"]
    found = await samples(client, lambda s: bool(s.value("sluicegate_requests_total")))
    assert found.value("sluicegate_requests_total", result="refused", status=str(status)) == 1


async def test_a_document_that_breaks_off_is_no_regular_end(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    reply = await client.post(PATH, json=CHAT)
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "reset"


async def test_a_stream_that_breaks_off_ends_with_an_error(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=5, faults=(Fault(action="reset", events=3),))
    stream = await client.post(PATH, json=CHAT | {"stream": True})
    assert stream.status_code == 200
    assert '"code":"truncated"' in stream.text.replace(" ", "")


# === a user's own prices ===


class _Flat:
    """A cent for each request, and none where there are a hundred tokens."""

    def price(self, model: str, upstream_model: str, usage: UsageLike) -> Cost | None:
        if (usage.output_tokens or 0) >= 100:
            raise LookupError("nobody knows")
        return Cost(output=Decimal("0.01") * (usage.output_tokens or 0))


async def test_a_users_own_prices_hold(
    start: Callable[..., Awaitable[httpx.AsyncClient]], upstream: ScriptedUpstream
) -> None:
    client = await start(prices=_Flat())
    upstream.script = Script(tokens=7)
    reply = await client.post(PATH, json=CHAT)
    used = reply.json()["usage"]
    assert used["cost"] == pytest.approx(0.01 * used["completion_tokens"])
    asked = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    stream = await client.post(PATH, json=asked)
    last = json.loads(stream.text.split("data: ")[-2])
    assert last["usage"]["cost"] == used["cost"]


async def test_prices_that_fail_end_no_reply(
    start: Callable[..., Awaitable[httpx.AsyncClient]], upstream: ScriptedUpstream
) -> None:
    client = await start(prices=_Flat())
    upstream.script = Script(tokens=150)
    asked = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    stream = await client.post(PATH, json=asked)
    assert stream.text.endswith("data: [DONE]\n\n")
    last = json.loads(stream.text.split("data: ")[-2])
    assert last["usage"]["completion_tokens"] >= 150
    assert last["usage"].get("cost") is None
    found = await samples(client, lambda s: bool(s.value("sluicegate_requests_total")))
    assert found.value("sluicegate_requests_total", result="ok") == 1
    assert found.value("sluicegate_unpriced_requests_total") == 1


async def test_an_estimate_is_priced_by_a_users_own_prices(
    start: Callable[..., Awaitable[httpx.AsyncClient]], upstream: ScriptedUpstream
) -> None:
    client = await start(prices=_Flat())
    upstream.script = Script(tokens=9, faults=(Fault(action="reset", events=5),))
    stream = await client.post(PATH, json=CHAT | {"stream": True})
    assert stream.status_code == 200
    found = await samples(client, lambda s: bool(s.value("sluicegate_requests_total")))
    assert found.value("sluicegate_estimated_requests_total") == 1
    spent = found.value("sluicegate_cost_usd_total")
    tokens = found.value("sluicegate_tokens_total", kind="output")
    assert tokens
    assert spent == pytest.approx(0.01 * tokens)


# === paths of the operator's own ===


async def test_a_path_of_the_operators_own_is_forwarded(
    start: Callable[..., Awaitable[httpx.AsyncClient]], upstream: ScriptedUpstream
) -> None:
    files = {"path": "/v1/files/*", "upstream": "local", "methods": ["PUT", "DELETE"]}
    engines = {"path": "/v1/engines/{model}/embeddings", "model": "path"}
    client = await start(passthrough=[files, engines])
    upstream.script = body(b'{"a": 1.50}', content_type="application/json", status=201)
    reply = await client.put("/v1/files/a%20b?x=1", content=b"\x00any")
    assert (reply.status_code, reply.content) == (201, b'{"a": 1.50}')
    request = upstream.requests[-1].request
    assert (request.method, request.target, request.body) == ("PUT", "/v1/files/a%20b?x=1", b"\x00any")
    reply = await client.post("/v1/engines/small/embeddings", content=b"{}")
    assert reply.status_code == 201
    assert upstream.requests[-1].request.target == "/v1/engines/small/embeddings"
    refused = await client.get("/v1/files/a")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "PUT, DELETE, OPTIONS"
