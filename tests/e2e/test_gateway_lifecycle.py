"""Starting, stopping, draining; signals of every kind; a second gateway beside the first."""

import asyncio
import contextlib
import json
import os
import signal
import stat
import tempfile
from pathlib import Path
from typing import Any

import httpx

from harness.gateway_process import GatewayProcess, StartGateway, spawn
from sluicegate.server.signals import SAME_SIGNAL_SECONDS
from sluicegate.testing import Script, ScriptedUpstream

CHAT = {"model": "small", "messages": []}
PATIENCE = 600.0
"""Seconds within which a signal is an echo of the one before: more than any machine stands still."""
STREAM = CHAT | {"stream": True}


async def streaming(gateway: GatewayProcess, first: "asyncio.Event") -> str:
    """A whole stream's text; `first` is set with its first byte."""
    text = ""
    async with (
        httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=STREAM) as response,
    ):
        async for piece in response.aiter_text():
            text += piece
            first.set()
    return text


async def begin_stream(gateway: GatewayProcess) -> "asyncio.Task[str]":
    first = asyncio.Event()
    task = asyncio.ensure_future(streaming(gateway, first))
    async with asyncio.timeout(10):
        await first.wait()
    return task


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


# === stopping ===


async def test_a_running_stream_ends_whole_before_the_gateway_does(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=30, pace=0.05)
    running = await gateway(config)
    stream = await begin_stream(running)
    running.signal()
    await running.wait_line(event="draining")
    text = await stream
    assert text.endswith("data: [DONE]\n\n")
    assert await running.wait() == 0
    assert running.find(event="request")[0]["result"] == "ok"
    assert running.find(event="stopped")[0]["status"] == 0


async def test_no_new_connection_is_accepted_while_it_drains(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=40, pace=0.05)
    running = await gateway(config)
    stream = await begin_stream(running)
    running.signal()
    await running.wait_line(event="draining")
    async with asyncio.timeout(10):
        while True:
            try:
                async with httpx.AsyncClient(timeout=5) as client:
                    await client.get(running.base_url + "/healthz")
            except httpx.ConnectError:
                break
            except httpx.TransportError:
                continue
    assert not stream.done()
    assert (await stream).endswith("data: [DONE]\n\n")


async def test_a_stream_past_the_drain_deadline_is_told_so_and_recorded(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=5_000, pace=0.02)
    running = await gateway({**config, "server": {"drain_seconds": 0.5}})
    stream = await begin_stream(running)
    assert await running.stop() == 0
    text = await stream
    last = [line for line in text.splitlines() if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutdown"
    line = running.find(event="request")[0]
    assert (line["fault"], line["result"]) == ("shutdown", "failed")
    assert running.find(event="drain_deadline")


async def test_a_second_signal_ends_it_at_once(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=5_000, pace=0.02)
    running = await gateway(config)
    stream = await begin_stream(running)
    running.signal()
    await running.wait_line(event="draining")
    await asyncio.sleep(0.6)  # Closer together they count as one.
    running.signal(signal.SIGINT)
    assert await running.wait() == 128 + signal.SIGINT
    await asyncio.gather(stream, return_exceptions=True)


async def test_a_signal_to_the_whole_group_is_one_order(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    """Ctrl-C in a terminal, `timeout`, a supervisor: the process gets it twice."""
    upstream.script = Script(tokens=40, pace=0.05)
    running = await gateway(config)
    stream = await begin_stream(running)
    running.signal(signal.SIGINT)
    os.killpg(running.pid, signal.SIGINT)
    await running.wait_line(event="draining")
    assert (await stream).endswith("data: [DONE]\n\n")
    assert await running.wait() == 0


async def test_signals_that_come_at_once_are_one_order(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    """A SIGTERM and the group's SIGINT are there before the process has looked at either."""
    upstream.script = Script(tokens=40, pace=0.05)
    running = await gateway(config)
    stream = await begin_stream(running)
    running.signal(signal.SIGSTOP)
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)
    running.signal(signal.SIGCONT)
    await running.wait_line(event="draining")
    assert (await stream).endswith("data: [DONE]\n\n")
    assert await running.wait() == 0
    assert len(running.find(event="draining")) == 1


async def test_an_echo_of_the_order_does_not_disturb_the_end(config: dict[str, Any], tmp_path: Path) -> None:
    """With nothing to wait for the process is about to be gone when the second one comes."""
    launcher = ("harness.patient_launcher", str(PATIENCE))
    running = await GatewayProcess.start(config, tmp_path, launcher=launcher)
    try:
        running.signal(signal.SIGTERM)
        await running.wait_line(event="draining")
        running.signal(signal.SIGINT)
        assert await running.wait() == 0
        assert "Traceback" not in running.stderr, running.transcript()
    finally:
        await running.kill()


async def test_idle_connections_do_not_delay_the_end(gateway: StartGateway, config: dict[str, Any]) -> None:
    running = await gateway(config)
    async with httpx.AsyncClient(base_url=running.base_url) as client:
        assert (await client.get("/healthz")).status_code == 200
        running.signal()
        assert await running.wait() == 0


async def test_probes_are_told_that_it_drains(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    """By a refused connection, or by 503 on one that is still open; what runs is not disturbed."""
    upstream.script = Script(tokens=40, pace=0.05)
    running = await gateway(config)
    async with httpx.AsyncClient(base_url=running.base_url) as probe:
        assert (await probe.get("/readyz")).status_code == 200
        stream = await begin_stream(running)
        running.signal()
        await running.wait_line(event="draining")
        with contextlib.suppress(httpx.TransportError):
            assert (await probe.get("/readyz")).status_code == 503
    assert (await stream).endswith("data: [DONE]\n\n")
    assert await running.wait() == 0


async def test_a_gateway_that_leaves_is_not_ready_and_serves_on(
    gateway: StartGateway, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"drain_delay_seconds": 600}})
    running.signal()
    await running.wait_line(event="leaving")
    # Over a new connection.
    async with httpx.AsyncClient(base_url=running.base_url, timeout=30) as client:
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert not running.find(event="draining")
    await asyncio.sleep(SAME_SIGNAL_SECONDS)
    running.signal()
    assert await running.wait() == 128 + signal.SIGTERM


async def test_nothing_is_left_behind(gateway: StartGateway, config: dict[str, Any], tmp_path: Path) -> None:
    base = tmp_path / "tmp"
    base.mkdir()
    running = await gateway(config, TMPDIR=str(base))
    [directory] = base.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert await running.stop() == 0
    assert list(base.iterdir()) == []


def inside(directory: str) -> list[Path]:
    return list(Path(directory).iterdir())


async def test_nothing_is_left_behind_by_an_end_at_once(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    upstream.script = Script(tokens=5_000, pace=0.02)
    # A short path: there is a Unix socket below it.
    with tempfile.TemporaryDirectory(prefix="sluicegate-") as base:
        running = await gateway(config, TMPDIR=base)
        stream = await begin_stream(running)
        running.signal()
        await running.wait_line(event="draining")
        await asyncio.sleep(0.6)  # Closer together they count as one.
        running.signal()
        assert await running.wait() == 128 + signal.SIGTERM
        assert inside(base) == []
    await asyncio.gather(stream, return_exceptions=True)


# === starting ===


async def test_no_secret_is_on_a_command_line(gateway: StartGateway, config: dict[str, Any]) -> None:
    config["keys"] = [{"name": "team", "key": "sk-on-no-command-line"}]
    running = await gateway(config)
    assert "sk-on-no" not in command_line(running.pid)


async def test_a_port_in_use_is_told_and_ends_with_1(
    gateway: StartGateway, config: dict[str, Any], tmp_path: Path
) -> None:
    running = await gateway(config)
    port = int(running.base_url.rpartition(":")[2])
    path = tmp_path / "second.yaml"
    path.write_text(json.dumps({**config, "server": {"port": port, "log": {"format": "json"}}}))
    second = GatewayProcess(await spawn("serve", "--config", str(path)))
    try:
        assert await second.wait(20) == 1
        assert second.find(event="cannot_listen")[0]["port"] == port
    finally:
        await second.kill()
    assert (await running.client.get("/readyz")).status_code == 200


async def test_an_upstream_that_cannot_be_used_is_told_before_it_serves(
    config: dict[str, Any], tmp_path: Path
) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("not a certificate")
    config["upstreams"]["local"] |= {"base_url": "https://127.0.0.1:1/v1", "ca_file": str(broken)}
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps({**config, "server": {"port": 0, "log": {"format": "json"}}}))
    process = GatewayProcess(await spawn("serve", "--config", str(path)))
    try:
        assert await process.wait(20) == 1
        assert "local" in json.dumps(process.find(event="configuration"))
        assert not process.find(event="listening")
    finally:
        await process.kill()


# === two gateways ===


async def test_one_gateway_takes_over_from_another(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any], tmp_path: Path
) -> None:
    """An upgrade: both listen for a moment, and no stream is cut."""
    shared = {**config, "server": {"reuse_port": True, "threads": 2}}
    upstream.script = Script(tokens=60, pace=0.05)
    old = await gateway(shared)
    stream = await begin_stream(old)
    port = int(old.base_url.rpartition(":")[2])
    new = await gateway({**shared, "server": shared["server"] | {"port": port}})
    assert new.base_url == old.base_url
    old.signal()
    await old.wait_line(event="draining")
    upstream.script = Script()
    for _ in range(20):
        async with httpx.AsyncClient(base_url=new.base_url) as client:
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert (await stream).endswith("data: [DONE]\n\n")
    assert await old.wait() == 0
    await new.wait_request(20, status=200)


# === threads ===


async def test_every_thread_serves_and_is_counted(
    gateway: StartGateway, upstream: ScriptedUpstream, config: dict[str, Any]
) -> None:
    running = await gateway({**config, "server": {"threads": 3}})
    assert running.find(event="listening")[0]["threads"] == 3
    count = 40
    for _ in range(count):
        async with httpx.AsyncClient(base_url=running.base_url) as client:
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    name = "sluicegate_requests_total"
    await running.wait_metrics(lambda metrics: metrics.value(name, model="small") == count)
