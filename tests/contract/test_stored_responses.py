"""Stored and background responses through two real gateways on one store, as clients see them."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fakes.exposition import Samples
from harness.responses_stream import check
from harness.shared_gateway import second_gateway
from harness.strict_openai import validate
from harness.wire_stand import MODEL, WireStand, wire_stand
from sluicegate.testing import Fault, Script, body
from sse_reference import parse

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESPONSES = "/v1/responses"
ALICE = {"authorization": "Bearer alice-key"}
BOB = {"authorization": "Bearer bob-key"}
WAIT_SECONDS = 20.0

# Slow enough to be looked at on the way.
SLOW = Script(tokens=12, pace=0.08)
ENDED = ("completed", "incomplete", "failed", "cancelled")


class Client:
    """One caller. Each request has a connection of its own, and so either gateway may get it."""

    def __init__(self, stand: WireStand, headers: dict[str, str]) -> None:
        self.stand = stand
        self._base = stand.gateway.base_url
        self._headers = headers

    async def call(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._base, headers=self._headers, timeout=30) as client:
            return await client.request(method, RESPONSES + path, **options)

    async def create(self, **members: Any) -> dict[str, Any]:
        body = {"model": MODEL, "input": "Say something.", **members}
        reply = await self.call("POST", json=body)
        assert reply.status_code == 200, reply.text
        found = reply.json()
        assert isinstance(found, dict)
        return found

    async def begin(self, **members: Any) -> str:
        """A background response; its id."""
        found = await self.create(background=True, **members)
        assert found["status"] == "queued"
        id: str = found["id"]
        return id

    async def get(self, id: str) -> dict[str, Any]:
        reply = await self.call("GET", f"/{id}")
        assert reply.status_code == 200, reply.text
        found = reply.json()
        validate(found)
        assert isinstance(found, dict)
        return found

    async def until(self, id: str, *statuses: str, having_output: bool = False) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = await self.get(id)
                if found["status"] in statuses and (found["output"] or not having_output):
                    return found
                assert found["status"] not in ENDED, found
                await asyncio.sleep(0.02)

    async def events(self, id: str, after: int | None = None) -> list[dict[str, Any]]:
        query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
        reply = await self.call("GET", f"/{id}", params=query)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        if after is None:
            return check(reply.content).events
        *events, done = parse(reply.content)
        assert done.data == "[DONE]"
        return [event.json() for event in events]

    @contextlib.asynccontextmanager
    async def streaming(self, method: str, path: str = "", **options: Any) -> AsyncIterator[httpx.Response]:
        async with (
            httpx.AsyncClient(base_url=self._base, headers=self._headers, timeout=30) as client,
            client.stream(method, RESPONSES + path, **options) as reply,
        ):
            yield reply


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "server": {"reuse_port": True},
        "upstreams": {"local": {"api": "responses"}, "chat": {}},
        "models": {"chat": {"upstream": "chat", "model": MODEL}},
        "keys": [{"name": "alice", "key": "alice-key"}, {"name": "bob", "key": "bob-key"}],
        "responses": {"lease_seconds": 2},
    }
    async with (
        wire_stand(Path(tmp_path_factory.mktemp("stored")), config) as stand,
        second_gateway(stand.gateway, Path(tmp_path_factory.mktemp("second"))),
    ):
        yield stand


@pytest.fixture
def alice(stand: WireStand) -> Client:
    stand.upstream.script = Script()
    return Client(stand, ALICE)


@pytest.fixture
def bob(stand: WireStand) -> Client:
    return Client(stand, BOB)


# === background ===


@pytest.mark.parametrize("stream", [False, None])
async def test_a_background_response_completes_without_its_client(alice: Client, stream: bool | None) -> None:
    alice.stand.upstream.script = SLOW
    id = await alice.begin(stream=stream, metadata={"a": "b"})
    seen = [await alice.until(id, "in_progress")]
    async with asyncio.timeout(WAIT_SECONDS):
        while seen[-1]["status"] == "in_progress":
            seen.append(await alice.get(id))
    texts = ["".join(p["text"] for i in s["output"] for p in i["content"]) for s in seen]
    assert all(late.startswith(early) for early, late in itertools.pairwise(texts))
    assert len(set(texts)) > 3
    found = seen[-1]
    assert (found["status"], found["background"], found["metadata"]) == ("completed", True, {"a": "b"})
    assert found["usage"]["cost"] > 0
    assert found["completed_at"] is not None
    assert (await alice.events(id))[-1]["response"] == found
    request = alice.stand.request.body
    assert request is not None


async def test_background_with_stream_streams_the_events_that_are_kept(alice: Client) -> None:
    # Reported elsewhere as "Unexpected response type": chunks came where a terminal reply was expected.
    alice.stand.upstream.script = SLOW
    reply = await alice.call("POST", json={"model": MODEL, "input": "x", "background": True, "stream": True})
    streamed = check(reply.content)
    assert streamed.types[:3] == ["created", "queued", "in_progress"]
    assert streamed.response["status"] == "completed"
    id = streamed.response["id"]
    assert await alice.get(id) == streamed.response
    assert await alice.events(id) == streamed.events


async def test_a_client_that_leaves_stops_nothing(alice: Client) -> None:
    alice.stand.upstream.script = SLOW
    body = {"model": MODEL, "input": "x", "background": True, "stream": True}
    async with alice.streaming("POST", json=body) as reply:
        async for chunk in reply.aiter_bytes():
            id = parse(chunk)[0].json()["response"]["id"]
            break
    found = await alice.until(id, "completed")
    assert len(await alice.events(id)) > 12
    assert found["output"][0]["status"] == "completed"


async def test_a_stream_resumed_at_every_number_is_the_tail_of_the_whole(alice: Client) -> None:
    alice.stand.upstream.script = SLOW
    id = await alice.begin()
    running = [asyncio.ensure_future(alice.events(id, n)) for n in range(20)]
    found = await asyncio.gather(*running)
    whole = await alice.events(id)
    for n, tail in enumerate(found):
        assert tail == whole[n + 1 :]
    for n in range(len(whole)):
        assert await alice.events(id, n) == whole[n + 1 :]


async def test_cancelling_stops_the_upstream(alice: Client) -> None:
    alice.stand.upstream.script = Script(tokens=1000, pace=0.05)
    id = await alice.begin()
    await alice.until(id, "in_progress")
    following = asyncio.ensure_future(alice.events(id))
    await alice.until(id, "in_progress", having_output=True)
    first = await alice.call("POST", f"/{id}/cancel")
    second = await alice.call("POST", f"/{id}/cancel")
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == await alice.get(id)
    validate(first.json())
    assert first.json()["status"] == "cancelled"
    assert (await following)[-1]["response"] == first.json()
    assert (await alice.stand.request.ended()).client_left


async def test_what_is_deleted_is_gone(alice: Client) -> None:
    id = await alice.begin()
    await alice.until(id, "completed")
    reply = await alice.call("DELETE", f"/{id}")
    assert reply.json() == {"id": id, "object": "response", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        gone = await alice.call(method, f"/{id}{path}")
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "response_not_found"


@pytest.mark.parametrize(
    "script",
    [
        Script(status=500, error="Out of memory."),
        Script(faults=(Fault(action="reset", events=5),)),
    ],
    ids=["refused", "broken off"],
)
async def test_an_upstream_that_fails_fails_the_response(alice: Client, script: Script) -> None:
    alice.stand.upstream.script = script
    id = await alice.begin()
    found = await alice.until(id, "failed")
    assert found["error"]["message"]
    assert (await alice.events(id))[-1]["response"] == found


async def test_background_cannot_be_without_store(alice: Client) -> None:
    body = {"model": MODEL, "input": "x", "background": True, "store": False}
    reply = await alice.call("POST", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "background"


async def test_only_the_caller_sees_its_responses(alice: Client, bob: Client) -> None:
    id = await alice.begin()
    await alice.until(id, "completed")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        assert (await bob.call(method, f"/{id}{path}")).status_code == 404
    body = {"model": MODEL, "input": "x", "previous_response_id": id}
    assert (await bob.call("POST", json=body)).status_code == 400
    nobody = Client(alice.stand, {})
    assert (await nobody.call("GET", f"/{id}")).status_code == 401
    await alice.get(id)


# === live replies ===


@pytest.mark.parametrize("stream", [True, False])
async def test_a_live_reply_is_kept(alice: Client, stream: bool) -> None:
    alice.stand.upstream.script = Script(text=f"Kept: {stream}", reply_id=f"resp_live_{stream}")
    reply = await alice.call("POST", json={"model": MODEL, "input": "x", "stream": stream})
    said = check(reply.content).response if stream else reply.json()
    assert await alice.get(said["id"]) == said
    assert (await alice.events(said["id"]))[-1]["response"] == said
    cancelled = await alice.call("POST", f"/{said['id']}/cancel")
    assert cancelled.status_code == 400


async def test_what_shall_not_be_stored_is_not(alice: Client) -> None:
    alice.stand.upstream.script = Script(reply_id="resp_unkept")
    said = await alice.create(store=False)
    assert (await alice.call("GET", f"/{said['id']}")).status_code == 404


# === conversations ===


def asked(stand: WireStand) -> Any:
    """The input that the upstream was given last."""
    return json.loads(stand.request.body)["input"]


async def test_a_conversation_goes_on_through_live_and_background_responses(alice: Client) -> None:
    stand = alice.stand
    stand.upstream.script = Script(text="first answer", reply_id="resp_turn_1")
    first = await alice.create(input="one", instructions="Only here.")
    stand.upstream.script = Script(text="second answer")
    second = await alice.begin(input="two", previous_response_id=first["id"])
    found = await alice.until(second, "completed")
    assert found["previous_response_id"] == first["id"]
    assert [item.get("role", item["type"]) for item in asked(stand)] == ["user", "assistant", "user"]
    stand.upstream.script = Script(text="third answer", reply_id="resp_turn_3")
    await alice.create(input="three", previous_response_id=second)
    said = asked(stand)
    assert [item.get("role", item["type"]) for item in said] == ["user", "assistant"] * 2 + ["user"]
    assert said[1]["content"][0]["text"] == "first answer"
    assert json.loads(stand.request.body).get("instructions") is None
    listed = (await alice.call("GET", "/resp_turn_3/input_items", params={"order": "asc"})).json()
    assert len(listed["data"]) == 5


async def test_what_cannot_be_continued_is_said(alice: Client) -> None:
    async def refused(previous: str, model: str = MODEL) -> Any:
        body = {"model": model, "input": "x", "previous_response_id": previous}
        reply = await alice.call("POST", json=body)
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert error["param"] == "previous_response_id"
        return error["code"]

    alice.stand.upstream.script = SLOW
    running = await alice.begin()
    assert await refused(running) == "previous_response_not_finished"
    await alice.until(running, "completed")
    await alice.call("DELETE", f"/{running}")
    assert await refused(running) == "previous_response_not_found"


async def test_a_conversation_that_only_the_upstream_knows_is_left_to_it(alice: Client) -> None:
    await alice.create(previous_response_id="resp_of_the_upstream")
    assert json.loads(alice.stand.request.body)["previous_response_id"] == "resp_of_the_upstream"


async def test_a_reference_to_an_item_is_resolved(alice: Client) -> None:
    id = await alice.begin(input="one")
    item = (await alice.until(id, "completed"))["output"][0]
    await alice.create(input=[{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "x"}])
    assert asked(alice.stand)[0] == item


# === what it was made from ===


async def test_input_items_are_paged_as_openais(alice: Client) -> None:
    id = await alice.begin(input=[{"role": "user", "content": str(n)} for n in range(25)])

    async def page(**query: Any) -> Any:
        reply = await alice.call("GET", f"/{id}/input_items", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    newest = await page()
    assert (len(newest["data"]), newest["has_more"], newest["object"]) == (20, True, "list")
    assert newest["data"][0]["content"] == [{"type": "input_text", "text": "24"}]
    rest = await page(after=newest["last_id"])
    assert ([item["content"][0]["text"] for item in rest["data"]], rest["has_more"]) == (list("43210"), False)
    assert (await page(order="asc", limit=1))["first_id"] == rest["last_id"]
    for query in ({"limit": "0"}, {"limit": "101"}, {"order": "up"}, {"after": "msg_none"}, {"limit": "x"}):
        reply = await alice.call("GET", f"/{id}/input_items", params=query)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] in query


async def test_metrics_count_what_has_ended(alice: Client) -> None:
    id = await alice.begin()
    await alice.until(id, "completed")
    kept = {"kind": "background", "status": "completed"}
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            # A new connection each time: one of the two gateways has run it.
            async with httpx.AsyncClient(base_url=alice.stand.gateway.base_url) as client:
                samples = Samples((await client.get("/metrics")).text)
            if samples.value("sluicegate_stored_responses_total", **kept):
                break
            await asyncio.sleep(0.05)
    assert samples.value("sluicegate_background_queued") is not None


@pytest.mark.parametrize("query", ["starting_after=-1", "starting_after=x", "starting_after=1.5"])
async def test_a_number_that_is_none_is_refused(alice: Client, query: str) -> None:
    id = await alice.begin()
    reply = await alice.call("GET", f"/{id}?stream=true&{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "starting_after")


# === upstreams that send what nobody can read ===


def _said(kind: str, /, **members: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps({"type": f"response.{kind}", **members}).encode()


@pytest.mark.parametrize(
    "malformed",
    [
        _said("output_item.added", output_index=0),
        _said("content_part.added", output_index=0, content_index=1_000_000_000, part={"type": "refusal"}),
        _said("output_text.delta", output_index=0, content_index=0, delta={"text": "x"}),
        _said("completed", response={"id": "resp_theirs", "output": [{}] * 100_000}),
    ],
    ids=["no item", "an absurd index", "a wrong type", "items without number"],
)
async def test_malformed_events_of_an_upstream_fail_its_response(
    stand: WireStand, alice: Client, malformed: bytes
) -> None:
    named = _said("created", response={"id": "resp_theirs", "object": "response", "output": []})
    stand.upstream.script = body(named, malformed, 30.0)
    id = await alice.begin()
    async with asyncio.timeout(WAIT_SECONDS):
        events = await alice.events(id, after=1)
    stand.upstream.script = Script()
    assert [event["sequence_number"] for event in events] == list(range(2, len(events) + 2))
    found = events[-1]["response"]
    assert (found["id"], found["status"]) == (id, "failed")
    assert "malformed" in found["error"]["message"]
    for method, path in (("GET", ""), ("POST", "/cancel")):
        reply = await alice.call(method, f"/{id}{path}")
        assert (reply.status_code, reply.json()) == (200, found)
    listed = await alice.call("GET", f"/{id}/input_items")
    assert [item["role"] for item in listed.json()["data"]] == ["user"]
    assert (await alice.until(await alice.begin(), "completed"))["output"]
