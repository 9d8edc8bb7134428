"""A real gateway in front of a scripted upstream."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.gateway_process import GatewayProcess, StartGateway, StartUpstream, stop_all
from harness.postgres import postgres_server as postgres_server
from harness.postgres import postgres_url as postgres_url
from sluicegate.testing import Script, ScriptedUpstream


@pytest.fixture
async def start_upstream() -> AsyncIterator[StartUpstream]:
    """`await start_upstream(script, **options)`: as many scripted upstreams as a test needs."""
    upstreams: list[ScriptedUpstream] = []

    async def start(script: Script | None = None, **options: Any) -> ScriptedUpstream:
        upstream = ScriptedUpstream(script, **options)
        await upstream.start()
        upstreams.append(upstream)
        return upstream

    yield start
    for upstream in upstreams:
        await upstream.stop()


@pytest.fixture
async def upstream(start_upstream: StartUpstream) -> ScriptedUpstream:
    """One healthy scripted upstream; a test changes its `script`, or enqueues some."""
    return await start_upstream()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[StartGateway]:
    """`await gateway(config, **environ)`: as many gateways as a test needs, each in processes of its own.

    `config` is shaped as a configuration file; the address and the log's format are set for it. At the end
    each is told to stop, must do so in time, and must not have logged an error or written a traceback.
    """
    started: list[GatewayProcess] = []

    async def start(config: dict[str, Any], **environ: str) -> GatewayProcess:
        directory = tmp_path / f"gateway-{len(started)}"
        directory.mkdir()
        started.append(await GatewayProcess.start(config, directory, environ))
        return started[-1]

    yield start
    await stop_all(started)
    for process in started:
        if not process.may_complain:
            assert "Traceback" not in process.stderr, process.transcript()
            assert "Exception ignored" not in process.stderr, process.transcript()
            assert not process.find(level="error"), process.transcript()


@pytest.fixture
def config(upstream: ScriptedUpstream) -> dict[str, Any]:
    """The plain configuration: `upstream` as `local`, serving the model `small`, with a price and no keys."""
    return {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"small": "local"},
        "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
        "cost": {"genai_prices": False},
    }
