"""Two gateways on one PostgreSQL, and what becomes of keys while it is away."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import postgres
from harness.gateway_process import GatewayProcess
from harness.keys_stand import ME, ask, configured, operated, running, until, upstream
from sluicegate.identity import change_caller, create_caller, create_key, revoke_key
from sluicegate.testing import ScriptedUpstream

UNKNOWN = (401, "invalid_api_key")
SERVED = (200, None)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as one:
        yield one


async def lost(gateway: GatewayProcess, count: int = 1) -> None:
    await gateway.wait_line(count, event="keys_lost")
    await gateway.wait_metrics(lambda samples: samples.value("sluicegate_keys_database_up") == 0)


async def test_two_machines_know_of_each_change(
    server: ScriptedUpstream, tmp_path: Path, postgres_url: str
) -> None:
    one, two = (configured(server, tmp_path / name, postgres_url) for name in ("one", "two"))
    async with (
        running(one, tmp_path / "one") as first,
        running(two, tmp_path / "two") as second,
        operated(one) as (database, known),
    ):
        await create_caller(database, known, {"name": "lab"}, ME)
        key, text = await create_key(database, known, "lab", {}, ME)
        for gateway in (first, second):
            await until(gateway, text, SERVED)
        await change_caller(database, known, "lab", {"models": ["other"]}, ME)
        for gateway in (first, second):
            await until(gateway, text, (403, "model_not_allowed"))
        await revoke_key(database, key.id, ME)
        for gateway in (first, second):
            await until(gateway, text, UNKNOWN)


async def test_known_keys_go_on_without_the_database(
    server: ScriptedUpstream, tmp_path: Path, postgres_server: str, postgres_url: str
) -> None:
    config = configured(server, tmp_path, postgres_url)
    async with running(config, tmp_path) as gateway:
        async with operated(config) as (database, known):
            key, text = await create_key(database, known, "search", {}, ME)
            await until(gateway, text, SERVED)
            await postgres.allow(postgres_server, postgres_url, connections=False)
            await lost(gateway)
            assert await ask(gateway, text) == SERVED
            assert await ask(gateway, "sk-of-the-file") == SERVED
            assert await ask(gateway, "sk-of-nobody") == UNKNOWN
            assert len(gateway.find(event="keys_lost")) == 1
            await postgres.allow(postgres_server, postgres_url, connections=True)
        await gateway.wait_line(event="keys_found_again")
        async with operated(config) as (database, _):
            await revoke_key(database, key.id, ME)
        await until(gateway, text, UNKNOWN)
        await gateway.wait_metrics(lambda samples: samples.value("sluicegate_keys_database_up") == 1)


async def test_a_start_without_the_database_has_the_keys_of_the_copy(
    server: ScriptedUpstream, tmp_path: Path, postgres_server: str, postgres_url: str
) -> None:
    config = configured(server, tmp_path, postgres_url)
    async with operated(config) as (database, known):
        await create_caller(database, known, {"name": "lab"}, ME)
        key, text = await create_key(database, known, "lab", {}, ME)
        ended, gone = await create_key(database, known, "lab", {}, ME)
        async with running(config, tmp_path) as gateway:
            assert await ask(gateway, gone) == SERVED
            await revoke_key(database, ended.id, ME)
            await until(gateway, gone, UNKNOWN)
            await gateway.wait_line(event="keys_copied", version=4)
    await postgres.allow(postgres_server, postgres_url, connections=False)
    async with running(config, tmp_path) as gateway:
        assert gateway.find(event="keys_of_copy")
        assert await ask(gateway, text) == SERVED
        assert await ask(gateway, gone) == UNKNOWN
        assert await ask(gateway, "sk-of-nobody") == UNKNOWN
        await postgres.allow(postgres_server, postgres_url, connections=True)
        async with operated(config) as (database, _):
            await revoke_key(database, key.id, ME)
        await until(gateway, text, UNKNOWN)
        assert await ask(gateway, "sk-of-the-file") == SERVED
    [copy] = (tmp_path / "state").glob("callers-copy-*.db")
    assert copy.stat().st_mode & 0o777 == 0o600


async def test_a_start_with_neither_database_nor_copy_tells_nobody_that_a_key_is_wrong(
    server: ScriptedUpstream, tmp_path: Path, postgres_server: str, postgres_url: str
) -> None:
    config: dict[str, Any] = configured(server, tmp_path, postgres_url)
    async with operated(config) as (database, known):
        _, text = await create_key(database, known, "search", {}, ME)
    await postgres.allow(postgres_server, postgres_url, connections=False)
    async with running(config, tmp_path) as gateway:
        assert await ask(gateway, "sk-of-the-file") == SERVED
        assert await ask(gateway, text) == (503, "keys_unavailable")
        assert await ask(gateway, "sk-of-nobody") == (503, "keys_unavailable")
        missing = await gateway.client.post("/v1/chat/completions", json={})
        assert missing.status_code == 401
        await postgres.allow(postgres_server, postgres_url, connections=True)
        await until(gateway, text, SERVED)
        assert await ask(gateway, "sk-of-nobody") == UNKNOWN


async def test_a_server_that_is_killed_and_comes_back(server: ScriptedUpstream, tmp_path: Path) -> None:
    with postgres.killable() as own:
        config = configured(server, tmp_path, own.url)
        async with running(config, tmp_path) as gateway:
            async with operated(config) as (database, known):
                key, text = await create_key(database, known, "search", {}, ME)
            await until(gateway, text, SERVED)
            own.kill()
            await lost(gateway)
            assert await ask(gateway, text) == SERVED
            own.start()
            await gateway.wait_line(event="keys_found_again")
            async with operated(config) as (database, _):
                await revoke_key(database, key.id, ME)
            await until(gateway, text, UNKNOWN)
