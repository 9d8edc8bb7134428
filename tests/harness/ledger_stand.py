"""A gateway that keeps a ledger, a scripted upstream that keeps a book, and both read."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess
from sluicegate.testing import Script, ScriptedUpstream

WAIT_SECONDS = 60.0

Row = dict[str, Any]


def configured(directory: Path, *base_urls: str, **more: Any) -> dict[str, Any]:
    """A model `m` that the upstreams serve, tried in order, with prices and a ledger."""
    return {
        "upstreams": {f"up{number}": {"base_url": url} for number, url in enumerate(base_urls)},
        "models": {"m": {"routes": [f"up{number}/small" for number in range(len(base_urls))]}},
        "prices": {"m": {"input": "1", "cached_input": "0.5", "output": "4"}},
        "cost": {"genai_prices": False},
        "storage": {"directory": str(directory / "state")},
        "ledger": {},
        **more,
    }


def rows(directory: Path) -> list[Row]:
    """The ledger's rows, oldest first; none where there is no ledger yet."""
    return _read(directory, "SELECT * FROM ledger ORDER BY id")


def attempts(directory: Path) -> list[Row]:
    return _read(directory, "SELECT * FROM ledger_attempts ORDER BY id, n")


def sums(directory: Path) -> list[Row]:
    return _read(directory, "SELECT * FROM usage_daily")


def _read(directory: Path, query: str) -> list[Row]:
    path = directory / "state" / "ledger.db"
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
        connection.row_factory = sqlite3.Row
        with contextlib.suppress(sqlite3.OperationalError):  # Its tables are not there yet.
            return [dict(row) for row in connection.execute(query)]
    return []


async def settled(directory: Path, done: Callable[[list[Row]], bool]) -> list[Row]:
    """The rows, once `done` says that they are all there."""
    found: list[Row] = []
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not done(found := rows(directory)):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimeoutError(f"the ledger still has {json.dumps(found, indent=1)}") from None
    return found


def book(path: Path) -> list[Row]:
    """What the scripted upstream has written down."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.asynccontextmanager
async def upstream(directory: Path, script: Script | None = None) -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(script, book=directory / "book.jsonl") as running:
        yield running


@contextlib.asynccontextmanager
async def serving(config: Mapping[str, Any], directory: Path) -> AsyncIterator[GatewayProcess]:
    gateway = await GatewayProcess.start(config, directory)
    try:
        yield gateway
    finally:
        await gateway.stop()


async def asked(gateway: GatewayProcess, request_id: str, **body: Any) -> int:
    """The status of a chat completion, read to its end."""
    asking = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, **body}
    response = await gateway.client.post(
        "/v1/chat/completions", json=asking, headers={"x-request-id": request_id}
    )
    return response.status_code
