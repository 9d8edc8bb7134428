"""A full disk, a file that cannot be written, an upstream that is killed: clear errors, and no other harm."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from harness.gateway_process import GatewayProcess, Line, spawn
from harness.shared_gateway import second_gateway, shared_gateway
from harness.small_disk import ran, small_disk
from sluicegate.testing import Script, ScriptedUpstream

ENDED = ("completed", "failed", "incomplete", "cancelled")
WAIT_SECONDS = 30.0
DISK_BYTES = 6 * 1024 * 1024
LEASE_SECONDS = 1.5


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is small."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def configured(base_url: str, path: Path, **store: Any) -> dict[str, Any]:
    return {
        "server": {"reuse_port": True, "drain_seconds": 2},
        "upstreams": {
            "chat": {"base_url": base_url},
            "responses": {"base_url": base_url, "api": "responses"},
        },
        "models": {"chat": "chat/small", "responses": "responses/small"},
        "cost": {"genai_prices": False},
        "responses": {"path": str(path), "lease_seconds": LEASE_SECONDS, **store},
    }


@contextlib.asynccontextmanager
async def serving(
    config: dict[str, Any], directory: Path
) -> AsyncIterator[tuple[list[GatewayProcess], openai.AsyncOpenAI]]:
    """Two gateways on one port and one store."""
    second = directory / "second"
    second.mkdir(exist_ok=True)
    async with (
        shared_gateway(config, directory) as gateway,
        second_gateway(gateway, second) as other,
        openai.AsyncOpenAI(
            base_url=gateway.api_url, api_key="-", max_retries=0, timeout=WAIT_SECONDS
        ) as client,
    ):
        yield [gateway, other], client


async def either_says(gateways: list[GatewayProcess], **fields: Any) -> Line:
    """The first line with these fields, whoever writes it."""
    waits = [asyncio.ensure_future(gateway.wait_line(**fields)) for gateway in gateways]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def ended(client: openai.AsyncOpenAI, id: str) -> Response:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            response = await client.responses.retrieve(id)
            if response.status in ENDED:
                return response
            await asyncio.sleep(0.05)


async def whole(client: openai.AsyncOpenAI, response: Response) -> None:
    """Its events are all there, and end in what is shown."""
    events: list[Any] = [event async for event in await client.responses.retrieve(response.id, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response == response


async def live_is_unharmed(client: openai.AsyncOpenAI) -> None:
    for model in ("chat", "responses"):
        stream = await client.responses.create(model=model, input="x", stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"
        assert (await client.responses.create(model=model, input="x")).status == "completed"


async def background_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        await client.responses.create(model="chat", input="x", background=True)
    assert (refused.value.status_code, refused.value.code) == (503, "store_unavailable")


async def begun(client: openai.AsyncOpenAI, model: str) -> str:
    """A background response of which some output is kept."""
    response = await client.responses.create(model=model, input="x", background=True)
    async with asyncio.timeout(WAIT_SECONDS):
        async for event in await client.responses.retrieve(response.id, stream=True):
            if event.type == "response.output_text.delta":
                break
    return response.id


def fill(disk: Path) -> Path:
    """Leave not one byte free."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0
    return ballast


@pytest.mark.parametrize("model", ["chat", pytest.param("responses", marks=pytest.mark.nightly)])
async def test_a_disk_that_is_full_for_a_moment_loses_nothing(disk: Path, tmp_path: Path, model: str) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script = Script(tokens=60, pace=0.05)
        config = configured(upstream.base_url, disk / "responses.db", lease_seconds=20)
        async with serving(config, tmp_path) as (gateways, client):
            id = await begun(client, model)
            upstream.script = Script()
            ballast = fill(disk)
            await either_says(gateways, event="response_store_failed")
            await live_is_unharmed(client)
            await background_is_refused(client)
            # Reading needs no room, whichever gateway is asked, and be it the first time.
            async with asyncio.TaskGroup() as looks:
                asked = [looks.create_task(client.responses.retrieve(id)) for _ in range(8)]
            assert {look.result().status for look in asked} == {"in_progress"}
            ballast.unlink()
            found = await ended(client, id)
            assert found.status == "completed"
            await whole(client, found)
            again = await client.responses.create(model=model, input="x", background=True)
            assert (await ended(client, again.id)).status == "completed"


@pytest.mark.parametrize("model", ["chat", pytest.param("responses", marks=pytest.mark.nightly)])
async def test_a_disk_that_stays_full_ends_what_runs_as_failed(
    disk: Path, tmp_path: Path, model: str
) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script = Script(tokens=10_000, pace=0.02)
        config = configured(upstream.base_url, disk / "responses.db")
        async with serving(config, tmp_path) as (_, client):
            id = await begun(client, model)
            ballast = fill(disk)
            # Nobody can be told as long as nothing can be written; with its lease the upstream is left.
            assert (await upstream.requests[-1].ended()).client_left
            upstream.script = Script()
            await live_is_unharmed(client)
            ballast.unlink()
            found = await ended(client, id)
            assert found.status == "failed"
            assert found.error is not None
            await whole(client, found)
            again = await client.responses.create(model=model, input="x", background=True)
            assert (await ended(client, again.id)).status == "completed"
            live = await client.responses.create(model=model, input="x")
            assert (await ended(client, live.id)).output_text == live.output_text


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    path = directory / "responses.db"
    async with ScriptedUpstream() as upstream:
        config = configured(upstream.base_url, path)
        async with serving(config, tmp_path) as (_, client):
            kept = await client.responses.create(model="chat", input="x", background=True)
            await ended(client, kept.id)
        # Permissions do not stop root.
        if not ran("chattr", "+i", str(path)):
            pytest.skip("no file can be made immutable here")
        try:
            async with serving(config, tmp_path) as (gateways, client):
                await live_is_unharmed(client)
                await background_is_refused(client)
                line = await either_says(gateways, event="response_store_failed")
                assert "readonly" in json.dumps(line)
                early = await either_says(gateways, event="response_store_unwritable")
                assert "is not writable" in early["reason"]
        finally:
            ran("chattr", "-i", str(path))
        async with serving(config, tmp_path) as (_, client):
            assert (await client.responses.retrieve(kept.id)).status == "completed"


async def test_an_upstream_that_is_killed(tmp_path: Path) -> None:
    """Really: a process that is gone between two of its writes."""
    process = await spawn("mock", "--port", "0")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            said = (await process.stdout.readline()).decode()
        base_url = said.removeprefix("scripted upstream on ").split()[0]
        async with serving(configured(base_url, tmp_path / "responses.db"), tmp_path) as (_, client):
            mock = {"mock": {"tokens": 100_000, "pace": 0.02}}
            ids = []
            for model in ("chat", "responses"):
                response = await client.responses.create(
                    model=model, input="x", background=True, extra_body=mock
                )
                ids.append(response.id)
            for id in ids:
                async with asyncio.timeout(WAIT_SECONDS):
                    async for event in await client.responses.retrieve(id, stream=True):
                        if event.type == "response.output_text.delta":
                            break
            process.kill()
            for id in ids:
                found = await ended(client, id)
                assert found.status == "failed"
                assert found.error is not None
                assert found.output[-1].status == "incomplete"  # type: ignore[union-attr]
                await whole(client, found)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
