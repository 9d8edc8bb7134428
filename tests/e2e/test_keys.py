"""Callers and keys of a database while gateways run: made, changed, rotated, revoked."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.gateway_process import GatewayProcess
from harness.keys_stand import ME, WAIT_SECONDS, ask, configured, operated, running, until, upstream
from harness.ledger_stand import settled
from sluicegate.identity import change_caller, create_caller, create_key, revoke_key, rotate_key
from sluicegate.testing import Script, ScriptedUpstream

UNKNOWN = (401, "invalid_api_key")
EXPIRED = (401, "expired_api_key")
SERVED = (200, None)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as one:
        yield one


async def test_a_key_works_soon_after_it_was_made_and_not_after_it_was_revoked(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path)
    async with running(config, tmp_path) as gateway, operated(config) as (database, known):
        assert await ask(gateway, "sk-of-the-file") == SERVED
        assert not (tmp_path / "state" / "callers.db").exists(), "a gateway makes no database by itself"
        caller = await create_caller(database, known, {"name": "lab"}, ME)
        key, text = await create_key(database, known, "lab", {}, ME)
        second, of_search = await create_key(database, known, "search", {}, ME)
        for made in (text, of_search):
            await until(gateway, made, SERVED)
        # One that was refused just before the key was known may be logged under its name as well.
        await gateway.wait_request(caller="lab", status=200)
        await revoke_key(database, key.id, ME)
        await until(gateway, text, UNKNOWN)
        assert await ask(gateway, of_search) == SERVED
        await change_caller(database, known, caller.id, {"disabled": True}, ME)
        third, text = await create_key(database, known, "lab", {}, ME)
        await until(gateway, text, (403, "caller_disabled"))
        await change_caller(database, known, caller.id, {"disabled": False}, ME)
        await until(gateway, text, SERVED)
        assert await ask(gateway, "sk-of-the-file") == SERVED
        metrics = await gateway.metrics()
        assert metrics.value("sluicegate_stored_keys") == len({second.id, third.id})
        assert metrics.value("sluicegate_stored_callers") == 1
        assert metrics.value("sluicegate_keys_database_up") == 1
        assert gateway.find(level="error") == []


async def test_keys_that_were_there_before_the_start_are_known_to_the_first_request(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path)
    del config["keys"]
    async with operated(config) as (database, known):
        _, text = await create_key(database, known, "search", {}, ME)
    async with running(config, tmp_path) as gateway:
        assert await ask(gateway, text) == SERVED
        assert await ask(gateway, "sk-of-the-file") == UNKNOWN


async def test_both_keys_work_while_one_takes_the_others_place(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path)
    async with running(config, tmp_path) as gateway, operated(config) as (database, known):
        first, old = await create_key(database, known, "search", {"models": ["m"]}, ME)
        await until(gateway, old, SERVED)
        (second, new), _ = await rotate_key(database, first.id, ME, overlap=3600)
        await until(gateway, new, SERVED)
        assert await ask(gateway, old) == SERVED
        assert await ask(gateway, new, model="other") == (403, "model_not_allowed")
        (_, newest), _ = await rotate_key(database, second.id, ME, overlap=0)
        await until(gateway, newest, SERVED)
        await until(gateway, new, EXPIRED)
        assert await ask(gateway, old) == SERVED


async def test_a_stream_that_is_under_way_goes_on_when_its_key_is_revoked(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with upstream() as server:
        config = configured(server, tmp_path)
        server.script = Script(tokens=40, pace=0.1)
        async with running(config, tmp_path) as gateway, operated(config) as (database, known):
            key, text = await create_key(database, known, "search", {}, ME)
            server.enqueue(Script(tokens=1))
            await until(gateway, text, SERVED)

            async def stream() -> bytes:
                asking = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
                headers = {"authorization": f"Bearer {text}"}
                parts = []
                async with gateway.client.stream(
                    "POST", "/v1/chat/completions", json=asking, headers=headers
                ) as reply:
                    async for part in reply.aiter_bytes():
                        gate.set()
                        parts.append(part)
                return b"".join(parts)

            task = asyncio.create_task(stream())
            async with asyncio.timeout(WAIT_SECONDS):
                await gate.wait()
            await revoke_key(database, key.id, ME)
            await until(gateway, text, UNKNOWN)
            assert b"[DONE]" in await task


async def test_limits_of_the_database_hold_and_what_was_used_counts_on(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = {**configured(server, tmp_path), "ledger": {}}
    async with operated(config) as (database, known):
        caller = await create_caller(database, known, {"name": "lab", "limits": "standard"}, ME)
        key, text = await create_key(database, known, "lab", {}, ME)
        async with running(config, tmp_path) as gateway:
            assert [await ask(gateway, text) for _ in range(3)] == [SERVED] * 3
            assert await ask(gateway, text) == (429, "limit_exceeded")
            await change_caller(database, known, "lab", {"limits": {"requests": "5/day"}, "name": "x"}, ME)
            await until(gateway, text, SERVED)
            _, other = await create_key(database, known, caller.id, {}, ME)
            await until(gateway, other, SERVED)
            assert await ask(gateway, other) == (429, "limit_exceeded")
            rows = await settled(tmp_path, lambda found: len(found) == 5)
            assert {row["caller_id"] for row in rows} == {f"id:{caller.id}"}
            assert [row["caller"] for row in rows] == ["lab"] * 3 + ["x"] * 2
            assert {row["key_id"] for row in rows[:4]} == {key.id}
        # Another process counts what the ledger has.
        async with running(config, tmp_path) as again:
            assert await ask(again, text) == (429, "limit_exceeded")


async def test_a_key_goes_on_with_what_those_before_it_have_used_also_after_a_restart(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path) | {"ledger": {}}
    over = (429, "limit_exceeded")
    async with operated(config) as (database, known):
        first, old = await create_key(database, known, "search", {"limits": {"requests": "3/day"}}, ME)
        async with running(config, tmp_path) as gateway:
            assert await ask(gateway, old) == SERVED
            (second, new), _ = await rotate_key(database, first.id, ME)
            await until(gateway, new, SERVED)
            assert await ask(gateway, old) == SERVED
            for text in (new, old):
                assert await ask(gateway, text) == over
        (_, newest), _ = await rotate_key(database, second.id, ME)
        await revoke_key(database, second.id, ME)
        async with running(config, tmp_path) as gateway:
            assert await ask(gateway, new) == UNKNOWN
            for text in (newest, old):
                assert await ask(gateway, text) == over
            assert await ask(gateway, "sk-of-the-file") == SERVED


async def test_limits_that_the_configuration_loses_stop_who_has_them(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path)
    async with operated(config) as (database, known):
        await create_caller(database, known, {"name": "lab", "limits": "standard"}, ME)
        _, text = await create_key(database, known, "lab", {}, ME)
    async with running({**config, "limits": {}}, tmp_path) as gateway:
        assert await ask(gateway, text) == (403, "caller_disabled")
        assert (await gateway.wait_line(event="limits_missing"))["names"] == ["limits standard"]


async def stored(gateway: GatewayProcess, key: str, id: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    if id:
        return await gateway.client.get(f"/v1/responses/{id}", headers=headers)
    asking = {"model": "m", "input": "x", "store": True}
    return await gateway.client.post("/v1/responses", json=asking, headers=headers)


async def test_stored_responses_belong_to_the_caller_whatever_key_and_name_it_has(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config = configured(server, tmp_path)
    async with running(config, tmp_path) as gateway, operated(config) as (database, known):
        caller = await create_caller(database, known, {"name": "lab"}, ME)
        first, text = await create_key(database, known, "lab", {}, ME)
        await until(gateway, text, SERVED)
        id = (await stored(gateway, text)).json()["id"]
        await change_caller(database, known, "lab", {"name": "old"}, ME)
        # Whoever has the name now is somebody else.
        await create_caller(database, known, {"name": "lab"}, ME)
        _, others = await create_key(database, known, "lab", {}, ME)
        (_, new), _ = await rotate_key(database, first.id, ME, overlap=0)
        for made in (others, new):
            await until(gateway, made, SERVED)

        async def found(key: str) -> int:
            return (await stored(gateway, key, id)).status_code

        # It is stored a moment after it has ended.
        async with asyncio.timeout(WAIT_SECONDS):
            while await found(new) != 200:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        assert await found(others) == 404
        assert await found("sk-of-the-file") == 404
        with closing(sqlite3.connect(tmp_path / "responses.db")) as file:
            assert file.execute("SELECT DISTINCT owner FROM responses").fetchall() == [(f"id:{caller.id}",)]


async def test_a_gateway_that_is_open_looks_at_no_keys_until_it_wants_some(
    server: ScriptedUpstream, tmp_path: Path
) -> None:
    config: dict[str, Any] = configured(server, tmp_path)
    for name in ("keys", "callers", "limits"):
        del config[name]
    closed = {**config, "access": "keys"}
    async with operated(closed) as (database, known):
        await create_caller(database, known, {"name": "lab"}, ME)
        _, text = await create_key(database, known, "lab", {}, ME)
    async with running({**config, "access": "open"}, tmp_path) as gateway:
        assert await ask(gateway, "anything") == SERVED
        assert gateway.find(event="keys_changed") == []
        changed = gateway.config_file.read_text().replace('"access": "open"', '"access": "keys"')
        gateway.config_file.write_text(changed)
        await until(gateway, "anything", UNKNOWN)
        await until(gateway, text, SERVED)
