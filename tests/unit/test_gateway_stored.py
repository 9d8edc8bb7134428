"""Stored, continued and background responses: what is done, decided and recorded."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.asgi import Connection, Response
from fakes.front import FakeExchange, FakeOutcome, FakeUsage, Script
from fakes.gateway import CONFIG, KEY, Harness, Start
from harness.stored_stand import sse, upstream_events
from sluicegate.config import load_data
from sluicegate.responses import Chain, NotFound

RESPONSES = "/v1/responses"
WAIT_SECONDS = 30.0


def response(id: str, text: str) -> dict[str, Any]:
    message = {
        "type": "message", "id": f"msg_{id}", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip
    return {"id": id, "object": "response", "status": "completed", "model": "small", "output": [message]}


def answer(exchange: FakeExchange) -> None:
    """As an upstream of Chat Completions, once translated."""
    id = exchange.forwarded["response_id"]
    exchange.complete(json.dumps(response(id, f"I am {id}.")).encode())


def stream(exchange: FakeExchange) -> None:
    """All events of a response."""
    exchange.start(content_type=b"text/event-stream")
    exchange.send(sse(*upstream_events()) + b"data: [DONE]\n\n")
    exchange.end()
    exchange.finish(FakeOutcome(streamed=True))


@pytest.fixture
def stored(start_gateway: Start, tmp_path: Path) -> Any:
    """`stored(script)`: a gateway with a store."""

    def begin(script: Script = answer, **changes: Any) -> Harness:
        config = {**CONFIG, "responses": {"path": str(tmp_path / "responses.db")}}
        return start_gateway(script, config=config, **changes)

    return begin


class Client:
    def __init__(self, gateway: Harness) -> None:
        self.gateway = gateway

    async def create(self, **members: Any) -> Response:
        body = {"model": "small", "input": "Hello.", **members}
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.gateway.request("POST", RESPONSES, json_body=body, headers=KEY)

    async def call(self, method: str, path: str, headers: dict[str, str] = KEY) -> Response:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.gateway.request(method, RESPONSES + path, headers=headers)

    async def until(self, id: str, status: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while (await self.call("GET", f"/{id}")).json()["status"] != status:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def forwarded_input(exchange: FakeExchange) -> Any:
    return json.loads(exchange.forwarded["request"].body)["input"]


async def runs(gateway: Harness) -> list[dict[str, Any]]:
    return [line for line in await gateway.requests() if line["endpoint"] == "responses"]


# === live replies ===


async def test_a_live_response_is_kept_and_found_by_its_owner_only(stored: Any) -> None:
    client = Client(stored())
    id = (await client.create()).json()["id"]
    found = await client.call("GET", f"/{id}")
    assert found.status == 200
    assert found.json()["output"][0]["content"][0]["text"] == f"I am {id}."
    other = await client.call("GET", f"/{id}", {"authorization": "Bearer sk-other"})
    assert other.status == 404


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {}, True),
        ({}, {"key": "sk-other"}, False),
        ({}, {"name": "renamed"}, True),
        ({"id": "a"}, {"key": "sk-other", "name": "rotated", "id": "a"}, True),
        ({"id": "a"}, {"id": "b"}, False),
        ({"id": "a"}, {}, False),
    ],
)
async def test_responses_belong_to_an_id_or_a_key_and_to_no_name(
    stored: Any, before: dict[str, str], after: dict[str, str], found: bool, background: bool
) -> None:
    key = {"name": "team", "key": "sk-team"}
    first = Client(stored(stream if background else answer, keys=[{**key, **before}]))
    id = (await first.create(background=background)).json()["id"]
    await first.until(id, "completed")
    if background:
        assert [line["caller"] for line in await runs(first.gateway)] == ["team"]
    await first.gateway.lines()
    key |= after
    second = Client(stored(keys=[key]))
    authorization = {"authorization": f"Bearer {key['key']}"}
    for path in (f"/{id}", f"/{id}/input_items"):
        assert (await second.call("GET", path, authorization)).status == (200 if found else 404)
    assert (await second.call("DELETE", f"/{id}", authorization)).status == (200 if found else 404)


async def test_what_shall_not_be_kept_is_not(stored: Any) -> None:
    client = Client(stored())
    id = (await client.create(store=False)).json()["id"]
    assert client.gateway.front.exchanges[0].forwarded["keep"] is None
    assert (await client.call("GET", f"/{id}")).status == 404


async def test_a_live_response_that_is_too_large_is_not_kept_and_counted(stored: Any, tmp_path: Path) -> None:
    responses = {"path": str(tmp_path / "responses.db"), "max_response_bytes": 100}
    client = Client(stored(responses=responses))
    made = await client.create()
    assert made.status == 200
    assert (await client.call("GET", f"/{made.json()['id']}")).status == 404
    samples = await client.gateway.metrics_now()
    assert samples.value("sluicegate_response_store_failures_total", operation="keep") == 1
    [line] = [line for line in await client.gateway.lines() if line["event"] == "response_store_failed"]
    assert "max_response_bytes" in line["reason"]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"input": [{"type": "message", "id": "\ud800", "role": "user", "content": "x"}]}, "input[0].id"),
        ({"input": [{"role": "user", "content": "x"}, {"id": "msg_\0"}]}, "input[1].id"),
        ({"previous_response_id": "resp_\udfff"}, "previous_response_id"),
    ],
)
async def test_an_id_that_cannot_be_stored_is_refused_by_name(
    stored: Any, members: dict[str, Any], param: str, background: bool
) -> None:
    client = Client(stored())
    refused = await client.create(**members, background=background)
    assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_value", param)
    assert not any(exchange.attempts for exchange in client.gateway.front.exchanges)
    [line] = await runs(client.gateway)
    assert (line["status"], line["result"], line["caller"]) == (400, "refused", "team")


async def test_half_a_pair_in_a_text_is_kept_as_it_is(stored: Any) -> None:
    client = Client(stored())
    content = "half \ud83d of a pair"
    item = {"type": "message", "id": "msg_1", "role": "user", "content": content}
    id = (await client.create(input=[item])).json()["id"]
    [listed] = (await client.call("GET", f"/{id}/input_items")).json()["data"]
    assert listed["content"] == [{"type": "input_text", "text": content}]


async def test_a_conversation_goes_on_where_it_was(stored: Any) -> None:
    client = Client(stored())
    first = (await client.create()).json()["id"]
    second = (await client.create(input="And then?", previous_response_id=first)).json()["id"]
    await client.create(input="And last?", previous_response_id=second)
    one, two, three = client.gateway.front.exchanges
    assert one.forwarded["request"] is None, "nothing takes the place of what continues nothing"
    texts = [json.dumps(item) for item in forwarded_input(three)]
    assert len(texts) == 5
    for text, part in zip(
        texts, ("Hello.", f"I am {first}.", "And then?", f"I am {second}.", "And last?"), strict=True
    ):
        assert part in text
    assert len(forwarded_input(two)) == 3


async def test_an_item_that_is_referred_to_is_put_in_place_and_kept(stored: Any) -> None:
    client = Client(stored())
    first = (await client.create()).json()["id"]
    reference = {"type": "item_reference", "id": f"msg_{first}"}
    second = (await client.create(input=[reference, {"role": "user", "content": "Go on."}])).json()["id"]
    sent = forwarded_input(client.gateway.front.exchanges[1])
    assert sent[0]["content"][0]["text"] == f"I am {first}."
    assert (await client.call("DELETE", f"/{first}")).status == 200
    listed = (await client.call("GET", f"/{second}/input_items")).json()["data"]
    assert f"msg_{first}" in [item["id"] for item in listed], "whatever became of where it was from"


async def test_what_continues_nothing_that_is_known_is_refused(stored: Any) -> None:
    client = Client(stored())
    refused = await client.create(previous_response_id="resp_none")
    assert (refused.status, refused.error["code"]) == (400, "previous_response_not_found")
    [line] = await runs(client.gateway)
    assert (line["status"], line["code"], line["model"], line["caller"]) == (
        400, "previous_response_not_found", "small", "team",
    )  # fmt: skip


async def test_an_answer_that_comes_too_late_is_dropped(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = stored()
    gateway.begin()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def conversation(previous: str, owner: str) -> Chain:
        asked.set()
        await go_on.wait()
        raise NotFound(previous)

    monkeypatch.setattr(gateway.app._state.responses, "conversation", conversation)
    body = json.dumps({"model": "small", "input": "x", "previous_response_id": "resp_1"}).encode()
    connection = Connection("POST", RESPONSES, body=body, headers=KEY)
    call = asyncio.ensure_future(gateway.app(connection.scope, connection.receive, connection.send))
    async with asyncio.timeout(WAIT_SECONDS):
        await asked.wait()
        connection.leave()
        await call
    go_on.set()
    [line] = await runs(gateway)
    assert (line["status"], line["result"]) == (499, "client_left")
    assert gateway.front.exchanges[0].attempts == []


async def test_a_store_that_breaks_is_an_error_of_ours(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = stored()

    async def conversation(previous: str, owner: str) -> Chain:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(gateway.app._state.responses, "conversation", conversation)
    refused = await Client(gateway).create(previous_response_id="resp_1")
    assert (refused.status, refused.error["code"]) == (500, "internal")
    lines = await gateway.lines()
    assert "ZeroDivisionError" in json.dumps(lines)
    assert "secret" not in json.dumps(lines)
    assert [line["status"] for line in lines if line["event"] == "request"] == [500]


# === background ===


async def test_a_background_response_has_one_record_that_of_its_run(stored: Any) -> None:
    client = Client(stored(stream))
    created = await client.create(background=True)
    assert created.json()["status"] == "queued"
    id = created.json()["id"]
    await client.until(id, "completed")
    [exchange] = client.gateway.front.exchanges
    assert exchange.tag is not None
    assert exchange.forwarded["response_id"] == id
    assert exchange.forwarded["keep"] is None, "it is kept as it comes"
    assert json.loads(exchange.body)["stream"] is True
    [line] = await runs(client.gateway)
    assert (line["response_id"], line["result"], line["caller"], line["model"]) == (id, "ok", "team", "small")
    assert "client_left" not in line
    [accepted] = [line for line in await client.gateway.lines() if line["event"] == "accepted"]
    assert (accepted["response_id"], accepted["caller"], accepted["model"]) == (id, "team", "small")
    assert accepted["request_id"] == line["request_id"]


async def test_a_background_response_can_be_followed_from_its_creation(stored: Any) -> None:
    client = Client(stored(stream))
    created = await client.create(background=True, stream=True)
    assert created.headers["content-type"].startswith("text/event-stream")
    assert created.body.endswith(b"data: [DONE]\n\n")
    assert b"response.completed" in created.body
    assert len(await runs(client.gateway)) == 1


def hold(exchange: FakeExchange) -> None:
    """Begins, and goes on until its client leaves."""
    exchange.start(content_type=b"text/event-stream")
    exchange.send(sse(*upstream_events()[:4]))
    assert exchange.left.wait(WAIT_SECONDS)
    exchange.finish(
        FakeOutcome(
            streamed=True,
            client_left=True,
            finish_reason=None,
            usage=FakeUsage(input_tokens=0, output_tokens=3),
            estimated=True,
        )
    )


async def test_a_cancelled_one_is_recorded_as_cancelled(stored: Any) -> None:
    client = Client(stored(hold))
    id = (await client.create(background=True)).json()["id"]
    await client.until(id, "in_progress")
    assert (await client.call("POST", f"/{id}/cancel")).json()["status"] == "cancelled"
    [line] = await runs(client.gateway)
    assert (line["result"], line["response_id"], line["output_tokens"]) == ("cancelled", id, 3)
    assert "client_left" not in line
    metrics = await client.gateway.metrics()
    assert metrics.value("sluicegate_client_disconnects_total", model="small") == 0
    counted = {"endpoint": "responses", "result": "cancelled"}
    assert metrics.value("sluicegate_requests_total", **counted) == 1


async def test_one_that_the_process_stops_is_recorded_as_interrupted(stored: Any) -> None:
    client = Client(stored(hold))
    id = (await client.create(background=True)).json()["id"]
    await client.until(id, "in_progress")
    [line] = await runs(client.gateway)
    assert (line["result"], line["response_id"]) == ("interrupted", id)


async def test_one_that_runs_goes_on_with_the_configuration_it_began_with(stored: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def script(exchange: FakeExchange) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)
        stream(exchange)

    gateway = stored(script)
    client = Client(gateway)
    id = (await client.create(background=True)).json()["id"]
    assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
    gateway.app.reload(load_data({**CONFIG, "models": {"other": "local"}}))
    go_on.set()
    await client.until(id, "completed")
    [line] = await runs(gateway)
    assert (line["model"], line["result"]) == ("small", "ok")


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"store": False}, "invalid_value"),
        ({"previous_response_id": "resp_none"}, "previous_response_not_found"),
        ({"model": "none"}, "model_not_found"),
    ],
)
async def test_one_that_is_not_taken_on_is_recorded_as_refused(
    stored: Any, members: dict[str, Any], code: str
) -> None:
    client = Client(stored())
    refused = await client.create(background=True, **members)
    assert refused.error["code"] == code
    assert not client.gateway.front.exchanges
    [line] = await runs(client.gateway)
    assert (line["status"], line["code"], line["result"]) == (refused.status, code, "refused")
    assert line.get("requested_model") == ("none" if code == "model_not_found" else None)


async def test_background_without_a_store_is_refused(start_gateway: Start) -> None:
    refused = await Client(start_gateway()).create(background=True)
    assert (refused.status, refused.error["code"]) == (400, "unsupported_value")


# === what is loaded ===


async def test_a_request_that_continues_and_refers_takes_its_room_at_once(
    stored: Any, tmp_path: Path
) -> None:
    """It waited for itself: what it held for the one was not free for the other."""
    place = {"path": str(tmp_path / "responses.db"), "max_loaded_bytes": 5_000_000}
    client = Client(stored(responses=place, server={"max_body_bytes": 4_000_000}))
    store = client.gateway.app._state.responses
    store._loading.patience = 0.05
    large = (await client.create(input="x" * 1_000_000)).json()["id"]
    reference = {"type": "item_reference", "id": f"msg_{large}"}
    reply = await client.create(previous_response_id=large, input=[reference])
    assert reply.status == 200, reply.body
    assert len(forwarded_input(client.gateway.front.exchanges[1])) == 3
    assert store._loading.room.taken <= 5_000_000


async def test_what_is_loaded_for_one_caller_leaves_room_for_others(stored: Any, tmp_path: Path) -> None:
    waiting: list[FakeExchange] = []

    def first_ones_only(exchange: FakeExchange) -> None:
        if exchange.forwarded["request"] is None:
            answer(exchange)
        else:
            waiting.append(exchange)

    keys = [{"name": "busy", "key": "sk-team"}, {"name": "quiet", "key": "sk-quiet"}]
    place = {"path": str(tmp_path / "responses.db"), "max_loaded_bytes": 5_000_000}
    bounds = {"max_body_bytes": 4_000_000}
    client = Client(stored(first_ones_only, keys=keys, responses=place, server=bounds))
    store = client.gateway.app._state.responses
    store._loading.patience = 0.05
    large = (await client.create(input="x" * 1_000_000)).json()["id"]
    asking = [asyncio.ensure_future(client.create(previous_response_id=large)) for _ in range(5)]
    refused: list[Response] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(refused) + len(waiting) < 5:
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            refused = [each.result() for each in done]
    assert len(waiting) == 1
    assert 2_000_000 <= store._loading.room.taken <= 5_000_000
    for reply in refused:
        assert (reply.status, reply.json()["error"]["code"]) == (503, "loading_busy")
        assert int(dict(reply.headers)["retry-after"]) > 0
    # Another caller is served at once, and the first one again when its request is over.
    body = {"model": "small", "input": "x" * 500_000}
    quiet = {"authorization": "Bearer sk-quiet"}
    other = await client.gateway.request("POST", RESPONSES, json_body=body, headers=quiet)
    items = f"/{other.json()['id']}/input_items"
    assert (await client.call("GET", items, quiet)).status == 200
    answer(waiting[0])
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*asking)
