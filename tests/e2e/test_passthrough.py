"""Paths of the operator's own in a running gateway: the SDK, HTTP/2, reloads, health, and the ledger."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from harness.gateway_process import GatewayProcess, StartGateway
from harness.ledger_stand import settled
from sluicegate.testing import Script, ScriptedUpstream, body, raw

JSON = "application/json"
FILE = {
    "id": "file-1", "object": "file", "bytes": 4, "created_at": 1, "filename": "a.jsonl", "purpose": "batch",
    "status": "processed",
}  # fmt: skip
FILES = {"path": "/v1/files/*", "upstream": "local", "name": "files"}


def document(of: Any, **options: Any) -> Script:
    return body(json.dumps(of).encode(), content_type=JSON, **options)


async def test_the_files_of_the_openai_sdk(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    config["keys"] = [{"name": "team", "key": "sk-team"}]
    running = await gateway({**config, "passthrough": [FILES]})
    content = bytes(range(256)) * 1000
    async with AsyncOpenAI(base_url=running.api_url, api_key="sk-team", max_retries=0) as client:
        upstream.script = document(FILE)
        made = await client.files.create(file=("a.jsonl", content), purpose="batch")
        assert (made.id, made.filename) == ("file-1", "a.jsonl")
        request = upstream.requests[-1].request
        assert (request.method, request.target) == ("POST", "/v1/files")
        assert content in request.body
        assert request.header("authorization") is None, "the upstream has no key"
        assert (await client.files.retrieve("file-1")).bytes == 4
        upstream.script = document({"object": "list", "data": [FILE], "has_more": False})
        assert [file.id async for file in client.files.list(limit=1)] == ["file-1"]
        assert upstream.requests[-1].request.target == "/v1/files?limit=1"
        upstream.script = body(content[:1000], content[1000:], content_type="application/octet-stream")
        assert (await client.files.content("file-1")).content == content
        upstream.script = document({"id": "file-1", "object": "file", "deleted": True})
        assert (await client.files.delete("file-1")).deleted
    assert upstream.requests[-1].request.method == "DELETE"
    lines = [await running.wait_request(number, endpoint="files") for number in range(1, 6)]
    assert {line["result"] for line in lines} == {"ok"}
    assert {line["caller"] for line in lines} == {"team"}


async def test_over_http2(gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]) -> None:
    running = await gateway({**config, "server": {"http": "auto"}, "passthrough": [FILES]})
    upstream.script = body(b"a" * 300_000, content_type="text/plain")
    async with httpx.AsyncClient(base_url=running.base_url, http1=False, http2=True) as client:
        replies = await asyncio.gather(
            *(
                client.request(method, f"/v1/files/{number}")
                for number in range(8)
                for method in ("GET", "PUT")
            )
        )
    assert {(reply.http_version, reply.status_code) for reply in replies} == {("HTTP/2", 200)}
    assert {reply.text for reply in replies} == {"a" * 300_000}


async def reload(running: GatewayProcess, config: dict[str, Any], count: int) -> None:
    server = json.loads(running.config_file.read_text())["server"]
    running.config_file.write_text(json.dumps({**config, "server": server}) + "\n")
    await running.wait_line(count, event="reloaded")


async def test_paths_come_and_go_while_it_runs(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway(config)
    upstream.script = document(FILE)
    assert (await running.client.get("/v1/files/a")).status_code == 404
    await reload(running, {**config, "passthrough": [FILES]}, 1)
    assert (await running.client.get("/v1/files/a")).json() == FILE
    elsewhere = {"path": "/v1/files/*", "model": "json"}
    await reload(running, {**config, "passthrough": [elsewhere]}, 2)
    assert (await running.client.get("/v1/files/a")).status_code == 405
    await reload(running, config, 3)
    assert (await running.client.get("/v1/files/a")).status_code == 404


async def test_an_upstream_that_wants_to_rest_is_left_alone_by_these_paths_only(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "passthrough": [FILES]})
    error = b'{"error":{"message":"slow"}}'
    upstream.script = raw(
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(error), error)
    )
    assert (await running.client.get("/v1/files")).status_code == 429
    upstream.script = Script(tokens=1)
    count = len(upstream.requests)
    reply = await running.client.get("/v1/files")
    assert reply.status_code == 429
    assert reply.json()["error"]["code"] == "all_resting"
    assert "All deployments of the upstream `local` are too busy" in reply.json()["error"]["message"]
    assert int(reply.headers["retry-after"]) > 20
    assert len(upstream.requests) == count
    chat = await running.client.post("/v1/chat/completions", json={"model": "small", "messages": []})
    assert chat.status_code == 200
    metrics = await running.metrics()
    name = "local/(passthrough)"
    assert metrics.value("sluicegate_rests_total", deployment=name, reason="429") == 1
    assert metrics.value("sluicegate_deployment_state", deployment=name, state="resting") == 1
    assert metrics.value("sluicegate_deployment_state", deployment="local/small", state="usable") == 1


async def test_each_request_has_its_row_in_the_ledger(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    config |= {"ledger": {}, "storage": {"directory": str(tmp_path / "state")}, "passthrough": [FILES]}
    running = await gateway(config)
    counted = {"usage": {"prompt_tokens": 14, "completion_tokens": 7}}
    upstream.script = document(counted)
    assert (await running.client.post("/v1/files", content=b"{}")).json() == counted
    [row] = await settled(tmp_path, lambda found: len(found) == 1)
    names = ("endpoint", "model", "upstream", "input", "output", "cost", "status")
    assert [row[name] for name in names] == ["files", "", "local", 14, 7, None, 200]


@pytest.mark.parametrize("path", ["/v1/files/{model}", "/v1/files/%7Bmodel%7D", "/v1/files/a%00b"])
async def test_odd_paths_harm_nobody(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], path: str
) -> None:
    running = await gateway({**config, "passthrough": [FILES]})
    upstream.script = document(FILE)
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    reply = await reader.read()
    writer.close()
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert upstream.requests[-1].request.target == path.replace("{", "%7B").replace("}", "%7D")
