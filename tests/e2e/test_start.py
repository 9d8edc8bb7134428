"""Starting without a file: upstreams of the command line, their models, the banner, and what is forwarded."""

import asyncio
import json
import re
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.admin_stand import API, admin_address, admin_client
from harness.gateway_process import GatewayProcess, StartGateway, StartUpstream, spawn, stop_all
from sluicegate.testing import Script, ScriptedUpstream

Serve = Callable[..., Awaitable[GatewayProcess]]

CHAT: dict[str, Any] = {"model": "mock-1", "messages": [{"role": "user", "content": "Say hello"}]}


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """`await serve(*options)`: `sluicegate serve` with these; returns once it listens."""
    started: list[GatewayProcess] = []

    async def start(*options: str, **environ: str) -> GatewayProcess:
        state = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        process = await spawn("serve", *options, environ={**state, **environ})
        started.append(GatewayProcess(process))
        listening = await started[-1].wait_line(event="listening", seconds=30)
        started[-1].base_url = listening["address"]
        return started[-1]

    yield start
    await stop_all(started)
    for process in started:
        assert "Traceback" not in process.stderr, process.transcript()


async def models(gateway: GatewayProcess) -> list[str]:
    reply = await gateway.client.get("/v1/models")
    return [entry["id"] for entry in reply.json()["data"]]


async def banner(gateway: GatewayProcess) -> str:
    async with asyncio.timeout(10):
        while "-d " not in gateway.stderr:  # noqa: ASYNC110 - a pipe tells nobody of its end
            await asyncio.sleep(0.01)
    return gateway.stderr


async def test_the_models_of_an_upstream_are_found_and_served(
    upstream: ScriptedUpstream, serve: Serve, tmp_path: Path
) -> None:
    gateway = await serve("--upstream", upstream.base_url.removesuffix("/v1"))
    await gateway.wait_line(event="discovered", models=1)
    assert await models(gateway) == ["mock-1"]
    text = await banner(gateway)
    assert f"sluicegate listens on {gateway.base_url}:" in text
    assert "models     mock-1\n" in text
    assert f"local: {upstream.base_url} (1 model)" in text
    assert f"kept for 30 days in {tmp_path / 'sluicegate' / 'responses.db'}" in text
    assert "--no-store" in text
    assert 8080 <= gateway.address[1] <= 8089
    # The line works as it stands.
    command = text[text.index("curl") :].strip().replace("\\\n", " ")
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(20):
        out, _ = await process.communicate()
    assert out.endswith(b"data: [DONE]\n\n")


async def test_any_model_is_forwarded_until_there_is_a_list(
    start_upstream: StartUpstream, serve: Serve
) -> None:
    upstream = await start_upstream(Script(status=500))
    gateway = await serve("--upstream", f"a={upstream.base_url}", "--port", "0")
    await gateway.wait_line(event="discovery_failed", upstream="a")
    upstream.script = Script(text="hello")
    reply = await gateway.client.post("/v1/chat/completions", json={**CHAT, "model": "made-up"})
    assert reply.json()["choices"][0]["message"]["content"] == "hello"
    line = await gateway.wait_request(status=200)
    # No metric's label is a client's word.
    assert line["requested_model"] == "made-up"
    assert "model" not in line
    assert "made-up" not in (await gateway.metrics()).text
    assert (await gateway.client.get("/v1/models/made-up")).status_code == 404
    long = await gateway.client.post("/v1/chat/completions", json={**CHAT, "model": "x" * 257})
    assert (long.status_code, long.headers["x-sluicegate-error"]) == (404, "model_not_found")


async def test_a_server_that_comes_later_is_found(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gateway = await serve("--upstream", f"http://127.0.0.1:{port}", "--port", "0")
    await gateway.wait_line(event="discovery_failed", reason="refused the connection")
    assert "refused the connection: it is asked again every 5 s" in await banner(gateway)
    async with ScriptedUpstream(port=port, models=("late",)):
        await gateway.wait_line(event="discovered", models=1, seconds=20)
        assert await models(gateway) == ["late"]


async def test_two_upstreams_with_the_same_model(start_upstream: StartUpstream, serve: Serve) -> None:
    a = await start_upstream(models=("x", "y"))
    b = await start_upstream(models=("y", "z"))
    gateway = await serve(
        *("--upstream", f"a={a.base_url}", "--upstream", f"b={b.base_url}", "--key-env", "B_KEY"),
        *("--port", "0", "--no-store"),
        B_KEY="sekrit",
    )
    await gateway.wait_line(2, event="discovered")
    assert "are not kept" in await banner(gateway)
    assert await models(gateway) == ["x", "y", "b/y", "z"]
    reply = await gateway.client.post("/v1/chat/completions", json={**CHAT, "model": "b/y"})
    assert reply.status_code == 200
    assert [json.loads(record.body)["model"] for record in b.requests if record.method == "POST"] == ["y"]
    assert all(record.header("authorization") == "Bearer sekrit" for record in b.requests)
    assert all(record.header("authorization") is None for record in a.requests)
    assert "sekrit" not in gateway.transcript()


async def test_a_port_that_is_taken(serve: Serve, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "gate.yaml"
        server = {"port": taken.getsockname()[1], "log": {"format": "json"}}
        upstreams = {"a": {"base_url": upstream.base_url, "discover": True}}
        file.write_text(json.dumps({"server": server, "upstreams": upstreams}))
        process = GatewayProcess(await spawn("serve", str(file)))
        line = await process.wait_line(event="cannot_listen", seconds=30)
        assert await process.wait() == 1
    assert line["port"] == server["port"]
    assert re.fullmatch(r".+ \(pid \d+\)", line["holder"])


async def test_a_reload_keeps_what_was_found(
    gateway: StartGateway, start_upstream: StartUpstream, config: dict[str, Any]
) -> None:
    upstream = await start_upstream(models=("x", "small"))
    found = {"base_url": upstream.base_url, "discover": {"exclude": ["y*"]}}
    config["upstreams"]["found"] = found
    process = await gateway(config)
    await process.wait_line(event="discovered", upstream="found")
    # A configured model wins over one that was found.
    assert await models(process) == ["small", "x"]
    upstreams = {**config["upstreams"], "other": {"base_url": upstream.base_url}}
    config_text = json.loads(process.config_file.read_text())
    config_text |= {"upstreams": upstreams, "models": {"small": "local", "other": "other/x"}}
    process.config_file.write_text(json.dumps(config_text))
    await process.wait_line(event="reloaded")
    assert await models(process) == ["small", "other", "x"]
    assert len(process.find(event="discovered")) == 1


async def test_an_error_names_its_code_in_a_header(gateway: StartGateway, config: dict[str, Any]) -> None:
    process = await gateway({**config, "keys": [{"name": "a", "key": "sekrit"}]})
    async with httpx.AsyncClient(base_url=process.base_url) as client:
        for path, code in (("/v1/chat/completions", "invalid_api_key"), ("/nothing", "unknown_url")):
            reply = await client.post(path, json=CHAT)
            assert reply.headers["x-sluicegate-error"] == code == reply.json()["error"]["code"]
        long = await client.get("/" + "x" * 9000)
        assert long.headers["x-sluicegate-error"] == "url_too_long"


async def test_all_parts_start_from_nothing(upstream: ScriptedUpstream, tmp_path: Path, serve: Serve) -> None:
    """Other tests fork gateways from a process that has imported everything: here nothing is imported yet."""
    config = {
        "server": {"host": "127.0.0.1", "port": 0, "log": {"format": "json"}},
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"m": "local"},
        "prices": {"m": {"input": 1, "output": 4}},
        "limits": {"some": {"requests": "100/day", "cost": "1/day"}},
        "keys": [{"name": "one", "key": "sk-one", "limits": "some"}],
        "storage": {"directory": str(tmp_path / "state")},
        "ledger": {},
        "admin": {"port": 0, "tokens": [{"name": "root", "token": "t" * 32, "role": "operate"}]},
    }
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(config))
    gateway = await serve("--config", str(file))
    address = await admin_address(gateway)
    headers = {"authorization": "Bearer sk-one"}
    asking = {"model": "m", "input": "hello", "store": True}
    reply = await gateway.client.post("/v1/responses", json=asking, headers=headers)
    assert reply.status_code == 200
    again = {**asking, "previous_response_id": reply.json()["id"], "background": True}
    reply = await gateway.client.post("/v1/responses", json=again, headers=headers)
    assert reply.status_code == 200
    async with admin_client(address, "t" * 32) as admin:
        assert (await admin.get(f"{API}/deployments")).status_code == 200
