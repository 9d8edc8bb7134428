"""Gateways whose callers and keys are in a database, and the commands of an operator on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from harness.gateway_process import GatewayProcess
from sluicegate.config import Config, StorageConfig, load_data
from sluicegate.identity import open_callers
from sluicegate.storage import Database
from sluicegate.testing import Script, ScriptedUpstream

WAIT_SECONDS = 60.0
ME = "os:test"


def configured(upstream: ScriptedUpstream, directory: Path, url: str | None = None) -> dict[str, Any]:
    storage = {"directory": str(directory / "state")} | ({} if url is None else {"database": url})
    return {
        "upstreams": {"local": {"base_url": upstream.base_url, "api_key": "upstream-secret-1"}},
        "models": {"m": "local", "other": "local"},
        "prices": {"m": {"input": "1", "cached_input": "1", "output": "5"}},
        "cost": {"genai_prices": False},
        "limits": {"standard": {"requests": "3/day"}},
        "callers": [{"name": "search", "id": "s-1"}],
        "keys": [{"name": "search", "key": "sk-of-the-file"}],
        "access": "keys",
        "storage": storage,
    }


@contextlib.asynccontextmanager
async def running(config: dict[str, Any], directory: Path) -> AsyncIterator[GatewayProcess]:
    await asyncio.to_thread(directory.mkdir, exist_ok=True)
    gateway = await GatewayProcess.start(config, directory)
    try:
        yield gateway
    finally:
        await gateway.stop()


@contextlib.asynccontextmanager
async def operated(config: dict[str, Any]) -> AsyncIterator[tuple[Database, Config]]:
    """The database that gateways with `config` look at, and their configuration."""
    storage = config["storage"]
    url = storage.get("database")
    place = StorageConfig(directory=storage["directory"], database=None if url is None else SecretStr(url))
    database = open_callers(place)
    try:
        yield database, load_data(config)
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def upstream(script: Script | None = None) -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(script or Script(tokens=3)) as server:
        yield server


async def ask(gateway: GatewayProcess, key: str, **body: Any) -> tuple[int, str | None]:
    """The status of a chat completion, and the code of its error."""
    asking = {"model": "m", "messages": [{"role": "user", "content": "x"}], **body}
    headers = {"authorization": f"Bearer {key}"}
    reply = await gateway.client.post("/v1/chat/completions", json=asking, headers=headers)
    return reply.status_code, None if reply.status_code == 200 else reply.json()["error"]["code"]


async def until(gateway: GatewayProcess, key: str, wanted: tuple[int, str | None]) -> None:
    """Ask until the gateway answers like this."""
    found: tuple[int, str | None] = (0, None)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while (found := await ask(gateway, key)) != wanted:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimeoutError(f"{found} in place of {wanted}\n{gateway.transcript()}") from None
