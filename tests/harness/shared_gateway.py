"""One gateway for many tests, or two on one port: a process takes longer to start than most tests take."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess


@contextlib.asynccontextmanager
async def shared_gateway(
    config: Mapping[str, Any], directory: Path, **environ: str
) -> AsyncIterator[GatewayProcess]:
    """A running gateway. At the end it must stop in time, without having logged an error or a traceback.

    What one test's upstream does wrong is not held against the next one's, unless `config` has `health`.
    """
    config = {"health": {"enabled": False}, **config}
    process = await GatewayProcess.start(config, directory, environ)
    async with _checked(process):
        yield process


@contextlib.asynccontextmanager
async def second_gateway(first: GatewayProcess, directory: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway beside `first`, with its configuration, on its port, over its store of responses.

    `first` must let the port be shared (`reuse_port`). The system spreads new connections over both.
    """
    config = json.loads(first.config_file.read_text())
    assert config["server"]["reuse_port"]
    config["server"]["port"] = int(first.base_url.rpartition(":")[2])
    async with _checked(await GatewayProcess.start(config, directory)) as process:
        assert process.base_url == first.base_url
        yield process


@contextlib.asynccontextmanager
async def _checked(process: GatewayProcess) -> AsyncIterator[GatewayProcess]:
    """Its end is looked at, unless a test has killed it."""
    try:
        yield process
        if process.running:
            assert await process.stop() == 0
    finally:
        await process.kill()
    assert "Traceback" not in process.stderr, process.transcript()
    assert "Exception ignored" not in process.stderr, process.transcript()
    assert not process.find(level="error"), process.transcript()
