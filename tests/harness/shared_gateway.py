"""One gateway for many tests: a process takes longer to start than most tests take."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess


@contextlib.asynccontextmanager
async def shared_gateway(
    config: Mapping[str, Any], directory: Path, **environ: str
) -> AsyncIterator[GatewayProcess]:
    """A running gateway. At the end it must stop in time, without having logged an error or a traceback."""
    process = await GatewayProcess.start(config, directory, environ)
    try:
        yield process
        assert await process.stop() == 0
    finally:
        await process.kill()
    assert "Traceback" not in process.stderr, process.transcript()
    assert "Exception ignored" not in process.stderr, process.transcript()
    assert not process.find(level="error"), process.transcript()
