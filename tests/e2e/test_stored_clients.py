"""The `openai` package and stored responses: two gateways on one store, two kinds of upstreams, kills."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types.responses import Response

from harness import needed
from harness.gateway_process import GatewayProcess
from harness.llama_cpp import NAME, LlamaCppProcess
from harness.shared_gateway import second_gateway, shared_gateway
from harness.strict_openai import validate
from sluicegate.testing import Fault, Script, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = ["chat", "responses"]
"""One upstream under two names: translated, forwarded."""
SLOW = Script(tokens=10, reasoning_tokens=3, pace=0.08)
WAIT_SECONDS = 30.0
RUNNING = ("queued", "in_progress")


@dataclass(frozen=True)
class Stand:
    upstream: ScriptedUpstream
    gateway: GatewayProcess
    client: openai.AsyncOpenAI
    sync_client: openai.OpenAI

    async def begin(self, **options: Any) -> Response:
        return await self.client.responses.create(
            **{"input": "Say something.", "background": True, **options}
        )

    async def ended(self, id: str) -> Response:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                response = await self.client.responses.retrieve(id)
                if response.status not in RUNNING:
                    return response
                await asyncio.sleep(0.02)

    async def events(self, id: str, after: int | None = None) -> list[Any]:
        options: dict[str, Any] = {} if after is None else {"starting_after": after}
        stream = await self.client.responses.retrieve(id, stream=True, **options)
        return [event async for event in stream]


def configured(upstream: ScriptedUpstream, path: Path) -> dict[str, Any]:
    return {
        "server": {"reuse_port": True, "drain_seconds": 2},
        "upstreams": {
            "chat": {"base_url": upstream.base_url},
            "responses": {"base_url": upstream.base_url, "api": "responses"},
        },
        "models": {name: f"{name}/small" for name in MODELS},
        "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
        "cost": {"genai_prices": False},
        "responses": {"path": str(path), "lease_seconds": 1.5},
    }


def second(gateway: GatewayProcess, directory: Path) -> AbstractAsyncContextManager[GatewayProcess]:
    """Another on its port and its store."""
    own = directory / "second"
    own.mkdir()
    return second_gateway(gateway, own)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    directory = tmp_path_factory.mktemp("stored")
    async with ScriptedUpstream() as upstream:
        config = configured(upstream, directory / "responses.db")
        async with shared_gateway(config, directory) as gateway, second(gateway, directory):
            access: dict[str, Any] = {"base_url": gateway.api_url, "api_key": "-", "max_retries": 0}
            async with openai.AsyncOpenAI(**access, timeout=30) as client:
                with openai.OpenAI(**access, timeout=30) as sync_client:
                    yield Stand(upstream, gateway, client, sync_client)


@pytest.fixture
def stand(shared: Stand) -> Stand:
    shared.upstream.script = SLOW
    return shared


@pytest.mark.parametrize("model", MODELS)
async def test_polled_to_the_end(stand: Stand, model: str) -> None:
    response = await stand.begin(model=model, metadata={"a": "b"})
    assert response.status == "queued"
    found = await stand.ended(response.id)
    assert found.status == "completed"
    assert found.output_text
    assert (found.id, found.background, found.metadata) == (response.id, True, {"a": "b"})
    assert found.usage is not None
    assert found.usage.output_tokens > 0
    assert (found.usage.model_extra or {})["cost"] > 0
    validate(found.model_dump(exclude_unset=True))


@pytest.mark.parametrize("model", MODELS)
async def test_a_synchronous_client_does_the_same(stand: Stand, model: str) -> None:
    def poll() -> tuple[Response, list[Any], list[Any]]:
        client = stand.sync_client
        stream = client.responses.create(model=model, input="x", background=True, stream=True)
        events = list(stream)
        id = events[0].response.id
        return client.responses.retrieve(id), events, list(client.responses.retrieve(id, stream=True))

    found, events, again = await asyncio.to_thread(poll)
    assert found.status == "completed"
    assert events == again
    assert events[-1].response == found
    kinds = [event.type for event in events[:3]]
    assert kinds == ["response.created", "response.queued", "response.in_progress"]


@pytest.mark.parametrize("model", MODELS)
async def test_resumed_at_every_number_while_running_and_afterwards(stand: Stand, model: str) -> None:
    response = await stand.begin(model=model)
    running = await asyncio.gather(*(stand.events(response.id, n) for n in range(0, 24, 2)))
    whole = await stand.events(response.id)
    assert [event.sequence_number for event in whole] == list(range(len(whole)))
    for n, tail in zip(range(0, 24, 2), running, strict=True):
        assert tail == whole[n + 1 :]
    for n in range(len(whole)):
        assert await stand.events(response.id, n) == whole[n + 1 :]


@pytest.mark.parametrize("model", MODELS)
async def test_cancelled_twice_and_deleted(stand: Stand, model: str) -> None:
    stand.upstream.script = Script(tokens=1000, pace=0.05)
    response = await stand.begin(model=model)
    stream = await stand.client.responses.retrieve(response.id, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    first = await stand.client.responses.cancel(response.id)
    assert first.status == "cancelled"
    assert first.output[0].status == "incomplete"
    assert await stand.client.responses.cancel(response.id) == first
    assert (await stand.upstream.requests[-1].ended()).client_left
    await stand.client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await stand.client.responses.retrieve(response.id)


@pytest.mark.parametrize("model", MODELS)
async def test_a_conversation(stand: Stand, model: str) -> None:
    stand.upstream.script = Script(text="The first answer.")
    live = await stand.client.responses.create(model=model, input="One.", instructions="Be brief.")
    stand.upstream.script = Script(text="The second answer.")
    second = await stand.begin(model=model, input="Two.", previous_response_id=live.id)
    assert (await stand.ended(second.id)).output_text == "The second answer."
    sent = stand.upstream.requests[-1].json()
    turns = sent["messages"] if model == "chat" else sent["input"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    items = await stand.client.responses.input_items.list(second.id, order="asc")
    assert [item.role async for item in items] == ["user", "assistant", "user"]
    with pytest.raises(openai.BadRequestError, match="not found"):
        await stand.client.responses.create(model="chat", input="x", previous_response_id="resp_none")


async def test_another_processes_client_sees_an_event_while_the_response_runs(stand: Stand) -> None:
    """Who runs it keeps its lease, and nothing more comes: so it is by looking that the other one knows."""
    seen = 6
    stand.upstream.script = Script(tokens=20, pace=0.05, faults=(Fault(action="stall", events=seen),))
    response = await stand.begin(model="chat")
    # At once, so that each has a connection of its own: the system spreads them over both processes.
    streams = await asyncio.gather(*(some_events(stand.client, response.id, seen) for _ in range(8)))
    assert all(events == streams[0] for events in streams)
    assert (await stand.client.responses.retrieve(response.id)).status == "in_progress"
    assert (await stand.client.responses.cancel(response.id)).status == "cancelled"


# === death ===


async def test_a_killed_process_leaves_nothing_hanging(tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script = SLOW
        config = configured(upstream, tmp_path / "responses.db")
        async with (
            shared_gateway(config, tmp_path) as first,
            second(first, tmp_path) as victim,
            openai.AsyncOpenAI(base_url=first.api_url, api_key="-", max_retries=0, timeout=30) as client,
        ):
            stand = Stand(upstream, first, client, None)  # type: ignore[arg-type]
            ids = [(await stand.begin(model=model)).id for model in MODELS * 3]
            await stand.events(ids[0])
            await victim.kill()
            for id in ids:
                found, whole = await answered(stand, id)
                assert found.status in ("completed", "failed")
                assert [event.sequence_number for event in whole] == list(range(len(whole)))
                assert whole[-1].response == found


async def answered(stand: Stand, id: str) -> tuple[Response, list[Any]]:
    """A response that has ended and its events, whatever connections break meanwhile."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                return await stand.ended(id), await stand.events(id)
            except (openai.APIConnectionError, openai.InternalServerError):
                await asyncio.sleep(0.1)


async def some_events(client: openai.AsyncOpenAI, id: str, count: int) -> list[Any]:
    """The first `count` events of a response that runs, or will."""
    seen: list[Any] = []
    async with asyncio.timeout(WAIT_SECONDS), await client.responses.retrieve(id, stream=True) as stream:
        async for event in stream:
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def test_all_of_it_killed_and_started_again(tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        upstream.script = Script(tokens=200, pace=0.05)
        config = configured(upstream, tmp_path / "responses.db")
        config["responses"]["concurrency"] = 1
        access: dict[str, Any] = {"api_key": "-", "max_retries": 0, "timeout": 30}
        async with (
            shared_gateway(config, tmp_path) as first,
            second(first, tmp_path) as other,
            openai.AsyncOpenAI(base_url=first.api_url, **access) as client,
        ):
            stand = Stand(upstream, first, client, None)  # type: ignore[arg-type]
            ids = [(await stand.begin(model="chat")).id for _ in range(5)]
            # Each process has begun one, and output of both is kept.
            seen, _ = [await some_events(client, id, 10) for id in ids[:2]]
            await asyncio.gather(first.kill(), other.kill())
        upstream.script = Script(tokens=3)
        async with (
            shared_gateway(config, tmp_path) as again,
            openai.AsyncOpenAI(base_url=again.api_url, **access) as client,
        ):
            stand = Stand(upstream, again, client, None)  # type: ignore[arg-type]
            found = [await stand.ended(id) for id in ids]
            # The others were still queued.
            assert sorted(response.status or "" for response in found) == ["completed"] * 3 + ["failed"] * 2
            assert (await stand.events(ids[0]))[: len(seen)] == seen


# === a store that fails ===


async def test_a_store_that_cannot_be_written_leaves_live_replies_alone(tmp_path: Path) -> None:
    async with ScriptedUpstream() as upstream:
        # A directory where the file should be: what a read-only or a full disk does comes out the same way.
        config = configured(upstream, tmp_path)
        async with (
            shared_gateway(config, tmp_path) as gateway,
            openai.AsyncOpenAI(base_url=gateway.api_url, api_key="-", max_retries=0) as client,
        ):
            live = await client.responses.create(model="chat", input="x")
            stream = await client.responses.create(model="responses", input="x", stream=True)
            events = [event async for event in stream]
            assert live.status == "completed"
            assert events[-1].type == "response.completed"
            with pytest.raises(openai.InternalServerError) as refused:
                await client.responses.create(model="chat", input="x", background=True)
            assert (refused.value.status_code, refused.value.code) == (503, "store_unavailable")
            assert await gateway.wait_line(event="response_store_failed")
            failures = "sluicegate_response_store_failures_total"
            await gateway.wait_metrics(lambda found: (found.value(failures) or 0) > 0)


# === a real server ===


@pytest.mark.real
async def test_llama_cpp_in_the_background(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
    pytest.importorskip("gguf", reason=needed.PACKAGES)
    from harness.tiny_model import write_tiny_model

    directory = tmp_path_factory.mktemp("llama")
    model = directory / "tiny.gguf"
    await asyncio.to_thread(write_tiny_model, model)
    server = await asyncio.to_thread(LlamaCppProcess.start, model, directory / "llama.log")
    try:
        config = {
            "server": {"reuse_port": True},
            "upstreams": {"llama": {"base_url": server.base_url, "dialect": "llama.cpp"}},
            "models": {"river": f"llama/{NAME}"},
            "cost": {"genai_prices": False},
        }
        async with (
            shared_gateway(config, directory) as gateway,
            second(gateway, directory),
            openai.AsyncOpenAI(base_url=gateway.api_url, api_key="-", max_retries=0, timeout=30) as client,
        ):
            stand = Stand(None, gateway, client, None)  # type: ignore[arg-type]
            asked = {"model": "river", "input": "Where does it go?", "temperature": 0}
            live = await client.responses.create(**asked)  # type: ignore[call-overload]
            begun = [await stand.begin(**asked) for _ in range(4)]
            for response in begun:
                found = await stand.ended(response.id)
                assert (found.status, found.output_text) == (live.status, live.output_text)
                whole = await stand.events(response.id)
                assert [event.sequence_number for event in whole] == list(range(len(whole)))
                assert await stand.events(response.id, 5) == whole[6:]
    finally:
        await asyncio.to_thread(server.kill)
