"""Gateways over scripted fronts, and databases of both kinds."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fakes.gateway import Harness, Start
from harness import postgres
from harness.postgres import postgres_server as postgres_server
from sluicegate.config import StorageConfig


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageConfig]:
    """Where there is an empty database: whatever is promised is promised on both kinds."""
    if request.param == "sqlite":
        yield StorageConfig(directory=str(tmp_path))
        return
    with postgres.database(request.getfixturevalue("postgres_server")) as url:
        yield StorageConfig(directory=str(tmp_path), database=SecretStr(url))


@pytest.fixture(params=[True, False], ids=["thread", "loop"])
async def start_gateway(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """`start_gateway(script, **changes of the configuration)`, wherever it is decided. See `Harness`."""
    harnesses: list[Harness] = []

    def begin(*arguments: Any, **options: Any) -> Harness:
        harnesses.append(Harness(*arguments, thread=request.param, **options))
        return harnesses[-1]

    yield begin
    for harness in harnesses:
        await harness.lines()
