"""HTTP/1.1 itself, the endpoints, and what is recorded."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from raw_http import RawConnection, ask
from sluicegate.testing import Script, ScriptedUpstream

BODY = json.dumps({"model": "m", "messages": []}).encode()
CHAT = "/v1/chat/completions"


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(Script(tokens=3)) as upstream:
        yield upstream


@pytest.fixture
async def connection(upstream: ScriptedUpstream) -> AsyncIterator[RawConnection]:
    async with RawConnection(upstream.host, upstream.port) as connection:
        yield connection


async def test_a_connection_serves_many_requests(
    upstream: ScriptedUpstream, connection: RawConnection
) -> None:
    for _ in range(3):
        await connection.post(CHAT, BODY)
        assert (await connection.reply()).ended == "complete"
    assert upstream.connections_made == 1
    assert [(r.number, r.connection, r.reused) for r in upstream.requests] == [
        (1, 1, False),
        (2, 1, True),
        (3, 1, True),
    ]


async def test_requests_may_be_pipelined(connection: RawConnection) -> None:
    await connection.post(CHAT, BODY)
    await connection.post(CHAT, BODY)
    assert [(await connection.reply()).status, (await connection.reply()).status] == [200, 200]


async def test_a_chunked_request_body(upstream: ScriptedUpstream, connection: RawConnection) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: u\r\nTransfer-Encoding: chunked\r\n\r\n"
    for part in (head, b"2", b"\r\n{", b"}", b"\r\n0;x=y\r\ntrailer: 1\r\n", b"\r\n"):
        await connection.send(part)
        await asyncio.sleep(0)
    assert (await connection.reply()).status == 200
    assert upstream.requests[0].body == b"{}"


async def test_a_client_that_expects_continue(connection: RawConnection) -> None:
    await connection.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    )
    assert (await connection.head()).status == 100
    await connection.send(b"{}")
    assert (await connection.reply()).status == 200


async def test_an_old_or_closing_client_gets_a_close(upstream: ScriptedUpstream) -> None:
    for version, headers in (("HTTP/1.0", ()), ("HTTP/1.1", ("Connection: close",))):
        async with RawConnection(upstream.host, upstream.port) as connection:
            await connection.post(CHAT, BODY, headers=headers, version=version)
            assert (await connection.reply()).status == 200
            assert await connection.rest() == b""


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nspace : x\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nz\r\n",
        b"GET / HTTP/1.1\r\n" + b"a" * 300_000,
    ],
)
async def test_what_is_no_request_is_a_400_and_a_close(
    connection: RawConnection, request_bytes: bytes
) -> None:
    await connection.send(request_bytes)
    assert (await connection.reply()).status == 400
    assert await connection.rest() == b""


async def test_a_client_that_leaves_before_its_request_is_whole(upstream: ScriptedUpstream) -> None:
    for part in (b"", b"POST / HT", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
        async with RawConnection(upstream.host, upstream.port) as connection:
            await connection.send(part)
            connection.writer.write_eof()
            assert await connection.rest() == b""
    assert len(upstream.requests) == 0


# === Endpoints ===


async def test_models_and_health(upstream: ScriptedUpstream) -> None:
    async with httpx.AsyncClient(base_url=upstream.base_url) as client:
        listed = (await client.get("/models")).json()
        assert [entry["id"] for entry in listed["data"]] == ["mock-1"]
        assert (await client.get("/models/any/name")).json()["id"] == "any/name"
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.post("/nothing", json={})).status_code == 404
        assert (await client.put("/chat/completions", json={})).status_code == 405
        assert (await client.post("/chat/completions", content=b"{")).status_code == 400
        assert (await client.post("/chat/completions", json=[])).status_code == 400
    assert "/health" not in [record.path for record in upstream.requests]


async def test_completions(upstream: ScriptedUpstream) -> None:
    async with httpx.AsyncClient(base_url=upstream.base_url) as client:
        body = {"model": "m", "prompt": "hi", "n": 2, "logprobs": 1}
        reply = (await client.post("/completions", json=body)).json()
        assert reply["object"] == "text_completion"
        assert [choice["index"] for choice in reply["choices"]] == [0, 1]
        assert reply["choices"][0]["text"] == "A sluice lets"
        assert reply["choices"][0]["logprobs"]["tokens"] == ["A", " sluice", " lets"]
        assert reply["choices"][0]["logprobs"]["text_offset"] == [0, 1, 8]
        assert reply["usage"]["completion_tokens"] == 6
        body |= {"stream": True, "stream_options": {"include_usage": True}, "n": 1}
        text = (await client.post("/completions", json=body)).text
    events = [line[6:] for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(c["choices"][0]["text"] for c in chunks[:-1]) == "A sluice lets"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 15)


async def test_embeddings(upstream: ScriptedUpstream) -> None:
    async with httpx.AsyncClient(base_url=upstream.base_url) as client:
        body = {"model": "m", "input": ["a", "b"], "dimensions": 3}
        reply = (await client.post("/embeddings", json=body)).json()
    assert [len(entry["embedding"]) for entry in reply["data"]] == [3, 3]
    assert reply["data"][0]["embedding"] != reply["data"][1]["embedding"]
    assert reply["usage"] == {"prompt_tokens": 12, "total_tokens": 12}


async def test_messages(upstream: ScriptedUpstream) -> None:
    counts = {"input_tokens": 20, "cached_tokens": 5, "cache_write_tokens": 3}
    body = {
        "model": "m",
        "messages": [],
        "mock": {"usage": counts, "reasoning_tokens": 1, "tool_calls": [{}]},
    }
    async with httpx.AsyncClient(base_url=upstream.base_url) as client:
        whole = (await client.post("/messages", json=body)).json()
        text = (await client.post("/messages", json={**body, "stream": True})).text
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    assert whole["content"][2]["input"] == {"city": "Rome", "unit": "celsius"}
    assert (whole["stop_reason"], whole["usage"]["input_tokens"]) == ("tool_use", 12)
    assert whole["usage"]["cache_read_input_tokens"] == 5
    assert whole["usage"]["cache_creation_input_tokens"] == 3
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    names = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    assert events[0]["message"]["usage"]["output_tokens"] == 1
    assert events[-2]["usage"] == whole["usage"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == whole["content"][1]["text"]
    assert json.loads("".join(d.get("partial_json", "") for d in deltas)) == whole["content"][2]["input"]


async def test_ollama_streams_lines_unless_told_otherwise(upstream: ScriptedUpstream) -> None:
    async with httpx.AsyncClient(base_url=upstream.base_url.removesuffix("/v1")) as client:
        lines = (await client.post("/api/chat", json={"model": "m", "messages": []})).text.splitlines()
        whole = (await client.post("/api/chat", json={"model": "m", "messages": [], "stream": False})).json()
    sent = [json.loads(line) for line in lines]
    assert [line["done"] for line in sent] == [False, False, False, True]
    assert "".join(line["message"]["content"] for line in sent) == whole["message"]["content"]
    assert (sent[-1]["prompt_eval_count"], sent[-1]["eval_count"]) == (12, 3)
    assert whole["done_reason"] == "stop"


async def test_a_reply_in_another_apis_form(upstream: ScriptedUpstream) -> None:
    reply = await ask((upstream.host, upstream.port), {"api": "messages"})
    assert reply.body.startswith(b"event: message_start\n")
    reply = await ask((upstream.host, upstream.port), {"api": "ollama"})
    assert reply.headers["content-type"] == "application/x-ndjson"


# === Scripts and records ===


async def test_queued_scripts_come_first_and_once(upstream: ScriptedUpstream) -> None:
    upstream.enqueue(Script(status=503), Script(text="second"))
    address = upstream.host, upstream.port
    async with httpx.AsyncClient(base_url=upstream.base_url) as client:
        assert (await client.get("/models")).status_code == 200
    assert (await ask(address, stream=False)).status == 503
    replies = [(await ask(address, stream=False)).json() for _ in range(2)]
    assert [reply["choices"][0]["message"]["content"] for reply in replies] == ["second", "A sluice lets"]
    assert upstream.requests[1].script.status == 503


async def test_a_request_is_recorded_as_it_came(
    upstream: ScriptedUpstream, connection: RawConnection
) -> None:
    await connection.post(f"{CHAT}?api-version=1", BODY, headers=("X-One: 1", "x-one: 2"))
    reply = await connection.reply()
    record = await upstream.requests.wait()
    assert record.method == "POST"
    assert record.path == CHAT
    assert record.request.target == f"{CHAT}?api-version=1"
    assert record.headers[-2:] == (("X-One", "1"), ("x-one", "2"))
    assert record.header("X-ONE") == "1"
    assert record.header("absent") is None
    assert record.body == BODY
    assert record.json() == {"model": "m", "messages": []}
    assert (await record.ended()) is record
    assert record.complete
    assert not record.client_left
    assert (record.status, record.events_sent) == (200, 1)
    assert record.bytes_sent > len(reply.body)
    assert record.ended_at is not None
    assert record.ended_at >= record.received_at


async def test_a_client_that_leaves_is_recorded_with_what_was_written(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(tokens=1000, pace=0.01)
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post(CHAT, json.dumps({"stream": True}).encode())
        await connection.head()
        for _ in range(3):
            await connection.chunk()
    record = await upstream.requests[0].ended()
    assert record.client_left
    assert record.client_left_at == record.ended_at
    assert 3 <= record.events_sent < 100
    assert not record.complete


async def test_a_client_that_leaves_before_the_head(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(head_delay=30)
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post(CHAT, BODY)
        await upstream.requests.wait()
    record = await upstream.requests[0].ended()
    assert record.client_left
    assert record.status is None


async def test_a_client_that_does_not_read_stops_the_reply() -> None:
    script = Script(tokens=20_000, chunk_bytes=1000)
    async with ScriptedUpstream(script, send_buffer=4096) as upstream:
        async with RawConnection(upstream.host, upstream.port) as connection:
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await connection.post(CHAT, json.dumps({"stream": True}).encode())
            record = await upstream.requests.wait()
            sent = -1
            while sent != record.bytes_sent:
                sent = record.bytes_sent
                await asyncio.sleep(0.05)
            assert 0 < record.events_sent < 15_000
        assert (await record.ended()).client_left


async def test_waiting_for_requests_has_an_end(upstream: ScriptedUpstream) -> None:
    with pytest.raises(TimeoutError):
        await upstream.requests.wait(1, seconds=0.01)
    waiting = asyncio.create_task(upstream.requests.wait(2))
    for _ in range(2):
        await ask((upstream.host, upstream.port))
    assert (await waiting).number == 2
    upstream.requests.clear()
    assert len(upstream.requests) == 0


async def test_stopping_ends_what_is_under_way() -> None:
    upstream = ScriptedUpstream(Script(head_delay=30))
    await upstream.start()
    async with RawConnection(upstream.host, upstream.port) as connection:
        await connection.post(CHAT, BODY)
        record = await upstream.requests.wait()
        await upstream.stop()
        assert await connection.rest() == b""
    assert not record.complete
    assert not record.client_left
    assert record.ended_at is not None
    await upstream.stop()


async def test_stopping_does_not_wait_for_clients_that_do_not_read() -> None:
    upstream = ScriptedUpstream(Script(tokens=20_000, chunk_bytes=1000), send_buffer=4096)
    await upstream.start()
    async with RawConnection(upstream.host, upstream.port) as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.post(CHAT, json.dumps({"stream": True}).encode())
        record = await upstream.requests.wait()
        assert record.ended_at is None
        async with asyncio.timeout(5):
            await upstream.stop()
        assert upstream.connections_open == 0
