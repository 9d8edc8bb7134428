"""A configuration that changes while streams run: on SIGHUP, and when its file does."""

import asyncio
import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.gateway_process import GatewayProcess, StartGateway
from sluicegate.testing import Script, ScriptedUpstream, body

CHAT = {"model": "small", "messages": []}
STREAM = CHAT | {"stream": True}
LONG = Script(tokens=10_000, pace=0.02)


def config_file(tmp_path: Path) -> Path:
    return tmp_path / "gateway-0" / "gateway.yaml"


def rewrite(tmp_path: Path, config: dict[str, Any], **changes: Any) -> None:
    """As an editor or a deployment does: another file in its place."""
    path = config_file(tmp_path)
    server = json.loads(path.read_text())["server"]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**config, "server": server, **changes}))
    new.replace(path)


async def models(gateway: GatewayProcess) -> list[str]:
    listing = (await gateway.client.get("/v1/models")).json()
    return [model["id"] for model in listing["data"]]


@pytest.mark.parametrize("by", ["signal", "file"])
async def test_new_models_are_served_and_no_stream_is_cut(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path, by: str
) -> None:
    """However long it runs: `drain_seconds` is for the end of the server."""
    watched = {"drain_seconds": 0.2, "reload_on_change": by == "file"}
    upstream.script = LONG
    running = await gateway({**config, "server": watched})
    async with running.client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        lines = response.aiter_lines()
        await anext(lines)
        # The model of the stream itself goes, and its upstream with it.
        elsewhere = {"other": {"base_url": upstream.base_url}}
        rewrite(tmp_path, config, upstreams=elsewhere, models={"new": "other"})
        if by == "signal":
            running.signal(signal.SIGHUP)
        await running.wait_line(event="reloaded")
        assert await models(running) == ["new"]
        assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 404
        upstream.script = Script(tokens=1)
        fresh = await running.client.post("/v1/chat/completions", json=CHAT | {"model": "new"})
        assert fresh.status_code == 200
        async with asyncio.timeout(10):
            for _ in range(100):
                assert "error" not in await anext(lines)
    line = await running.wait_request(streamed=True)
    assert (line["result"], line["upstream"]) == ("client_left", "local")
    assert not running.find(event="draining")


async def test_a_file_with_faults_changes_nothing_until_it_is_right(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway(config)
    running.may_complain = True
    good = config_file(tmp_path).read_text()
    config_file(tmp_path).write_text("models: {}\n")
    line = await running.wait_line(event="reload_failed")
    assert any("upstreams" in fault for fault in line["faults"])
    ready = await running.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "configuration": "stale"})
    samples = await running.metrics()
    assert samples.value("sluicegate_configuration_stale") == 1
    assert samples.value("sluicegate_reloads_total", result="failed") == 1
    assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    config_file(tmp_path).write_text(good)
    rewrite(tmp_path, config, models={"small": "local", "more": "local"})
    await running.wait_line(event="reloaded")
    assert await models(running) == ["small", "more"]
    assert len(running.find(event="reload_failed")) == 1, "said once"
    await running.wait_metrics(lambda samples: samples.value("sluicegate_configuration_stale") == 0)
    hash = hashlib.sha256(config_file(tmp_path).read_bytes()).hexdigest()[:16]
    samples = await running.metrics()
    assert samples.value("sluicegate_configuration_since_seconds", hash=hash) is not None
    assert (await running.client.get("/readyz")).json() == {"status": "ready"}


async def test_every_thread_takes_it_at_once(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    """Once it is logged, no connection is served by what was before."""
    keys = [{"name": "team", "key": "sk-team"}]
    running = await gateway({**config, "server": {"threads": 3}})
    assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    rewrite(tmp_path, config, keys=keys)
    await running.wait_line(event="reloaded")
    for _ in range(20):
        async with httpx.AsyncClient(base_url=running.base_url) as client:
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 401
    assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 401
    assert len(running.find(event="reloaded")) == 1


async def test_a_key_that_is_taken_out_is_refused(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    keys = [{"name": "one", "key": "sk-one"}, {"name": "two", "key": "sk-two"}]
    running = await gateway({**config, "keys": keys})
    rewrite(tmp_path, config, keys=keys[1:])
    await running.wait_line(event="reloaded")
    for key, status in (("sk-one", 401), ("sk-two", 200)):
        headers = {"authorization": f"Bearer {key}"}
        reply = await running.client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert reply.status_code == status


async def test_a_request_costs_what_it_cost_when_it_came(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway(config)
    reply = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],'
    usage = b'"usage":{"prompt_tokens":1000000,"completion_tokens":0}}'
    upstream.script = body(reply, 5.0, usage, content_type="application/json")
    asked = asyncio.ensure_future(running.client.post("/v1/chat/completions", json=CHAT))
    await upstream.requests.wait()
    rewrite(tmp_path, config, prices={"small": {"input": 9, "output": 9}})
    await running.wait_line(event="reloaded")
    assert not asked.done()
    assert (await asked).json()["usage"]["cost"] == 1
    again = await running.client.post("/v1/chat/completions", json=CHAT)
    assert again.json()["usage"]["cost"] == 9


async def test_the_pool_of_an_upstream_that_stays_is_kept(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway(config)
    await running.client.post("/v1/chat/completions", json=CHAT)
    rewrite(tmp_path, config, models={"small": "local", "more": "local"})
    await running.wait_line(event="reloaded")
    await running.client.post("/v1/chat/completions", json=CHAT)
    assert upstream.connections_made == 1


async def test_what_needs_a_restart_is_told_and_the_rest_applies(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway(config)
    path = config_file(tmp_path)
    whole = json.loads(path.read_text())
    whole["server"]["threads"] = 3
    whole["responses"]["concurrency"] = 3
    whole["models"] = {"new": "local"}
    path.write_text(json.dumps(whole))
    for section in ("server", "responses"):
        await running.wait_line(event="needs_restart", section=section)
    await running.wait_line(event="reloaded")
    assert await models(running) == ["new"]
    whole["models"] = {"newer": "local"}
    path.write_text(json.dumps(whole))
    await running.wait_line(2, event="reloaded")
    assert len(running.find(event="needs_restart")) == 2, "each is said once"


# === a file that is being written ===

KEYED = """\
server: {{host: 127.0.0.1, port: 0, log: {{format: json}}}}
upstreams:
  local:
    base_url: {base_url}
models:
  small: local
cost: {{genai_prices: false}}
responses: {{path: {store}}}
keys:
  - name: team
    key: sk-abcdefgh
"""


@pytest.mark.parametrize("until", ["server:", "models", "keys:", "  - name", "abcd", "efgh\n"])
async def test_a_file_that_is_being_written_lets_nobody_in(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path, until: str
) -> None:
    running = await gateway({**config, "keys": [{"name": "team", "key": "sk-abcdefgh"}]})
    running.may_complain = True
    path = config_file(tmp_path)
    whole = KEYED.format(base_url=upstream.base_url, store=tmp_path / "gateway-0" / "responses.db")
    path.write_text(whole[: whole.rindex(until)])
    running.signal(signal.SIGHUP)
    await running.wait_line(event="reload_failed")
    for token in ("", "sk-", "sk-abcd"):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        reply = await running.client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert reply.status_code == 401
    path.write_text(whole)
    await running.wait_line(event="reloaded")
    headers = {"authorization": "Bearer sk-abcdefgh"}
    reply = await running.client.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert reply.status_code == 200


async def test_a_gateway_is_opened_by_word_only(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway({**config, "keys": [{"name": "team", "key": "sk-team"}]})
    running.may_complain = True
    rewrite(tmp_path, config)
    line = await running.wait_line(event="reload_failed")
    assert any("access: open" in fault for fault in line["faults"])
    assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 401
    rewrite(tmp_path, config, access="open")
    await running.wait_line(event="reloaded")
    assert (await running.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
