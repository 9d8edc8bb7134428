"""The application under another server: nothing may lean on granian but speed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from harness.responses_stream import check, same_answer
from harness.strict_openai import validate
from sluicegate.config import load_data
from sluicegate.gateway import create_app
from sluicegate.testing import Fault, Script, ScriptedUpstream

CHAT = {"model": "small", "messages": []}


@pytest.fixture
async def client(config: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    # Nothing is kept: there is no place for it but the user's own.
    app = create_app(load_data({**config, "responses": {"store": False}}))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on", ws="none"))
    task = asyncio.ensure_future(server.serve())
    async with asyncio.timeout(20):
        while not server.started:
            assert not task.done(), "uvicorn did not start"
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client
    server.should_exit = True
    async with asyncio.timeout(20):
        await task


async def test_a_document_and_a_stream_come_whole(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=50)
    reply = await client.post("/v1/chat/completions", json=CHAT)
    assert reply.json()["usage"]["cost"] > 0
    stream = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.count("data: ") > 50
    assert stream.text.endswith("data: [DONE]\n\n")


async def test_events_come_as_they_are_made(client: httpx.AsyncClient, upstream: ScriptedUpstream) -> None:
    upstream.script = Script(tokens=2, pace=30.0)
    async with (
        asyncio.timeout(10),
        client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as r,
    ):
        async for line in r.aiter_lines():
            if "content" in line:
                break


async def test_a_client_that_leaves_ends_the_upstream(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(tokens=10_000, pace=0.01)
    async with client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for _ in response.aiter_lines():
            break
    assert (await upstream.requests[0].ended()).client_left


async def test_a_document_that_breaks_off_is_no_regular_end(
    client: httpx.AsyncClient, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    reply = await client.post("/v1/chat/completions", json=CHAT)
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "reset"


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
