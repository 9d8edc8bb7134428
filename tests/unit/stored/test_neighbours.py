"""What one caller sends, or one upstream answers, costs no other caller anything."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Any

import pytest

from harness.stored_stand import (
    MODEL,
    OWNER,
    Upstream,
    create,
    followed,
    items_of,
    shown,
    sse,
    until,
    upstream_events,
)
from sluicegate.responses import NotFound, ResponseStore, StoreBusy
from sluicegate.responses.batch import MAX_WRITES
from sluicegate.storage import StoreUnavailable, Unstorable

WAIT_SECONDS = 10.0

LONE = "\ud800"
BAD_IDS = {"half of a pair": LONE, "NUL": "msg_\0", "long": secrets.token_hex(4000)}


def store_reply(store: ResponseStore, id: str, *, request_id: str = "test", **body: Any) -> None:
    """A live reply has ended."""
    store.store_live_reply(
        owner=OWNER,
        model=MODEL,
        request_id=request_id,
        request=json.dumps({"model": MODEL, "input": "Say something.", **body}).encode(),
        reply=sse(*upstream_events(text="Hello", reply_id=id)),
        streamed=True,
    )


def item(id: str) -> dict[str, Any]:
    return {"type": "message", "id": id, "role": "user", "content": "x"}


def failures(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that fail from now on."""
    found: list[str] = []
    monkeypatch.setattr(store._metrics, "failed", found.append)
    return found


# === what the database does not take ===


@pytest.mark.parametrize("id", BAD_IDS.values(), ids=BAD_IDS)
async def test_an_items_id_that_is_no_key_costs_nobody_a_response(store: ResponseStore, id: str) -> None:
    ids = [f"resp_{n}" for n in range(9)]
    for n, response_id in enumerate(ids):
        store_reply(store, response_id, input=[item(id if n == 4 else f"msg_{n}")])
    for response_id in ids:
        assert (await shown(store, response_id))["status"] == "completed"


@pytest.mark.parametrize("id", BAD_IDS.values(), ids=BAD_IDS)
async def test_an_upstreams_id_that_is_no_key_costs_only_its_own_response(
    store: ResponseStore, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = failures(store, monkeypatch)
    for response_id in ("resp_1", id, "resp_2"):
        store_reply(store, response_id)
    for response_id in ("resp_1", "resp_2"):
        assert (await shown(store, response_id))["status"] == "completed"
    assert failed == ["unstorable"]
    with pytest.raises(NotFound):
        await shown(store, id)


@pytest.mark.parametrize("id", BAD_IDS.values(), ids=BAD_IDS)
async def test_an_upstreams_item_whose_id_is_no_key_is_kept(
    store: ResponseStore, upstream: Upstream, id: str
) -> None:
    response_id = await create(store)
    play = await upstream.play()
    await play.start()
    events = json.dumps(upstream_events(text="Hello"))
    output = next(event["item"]["id"] for event in json.loads(events) if "item" in event)
    events = events.replace(json.dumps(output), json.dumps(id))
    await play.events(*json.loads(events))
    await play.end()
    found = await until(store, response_id, "completed", "failed")
    assert (found["status"], found["output"][0]["id"]) == ("completed", id)
    assert (await followed(store, response_id))[-1]["response"] == found


@pytest.mark.parametrize("place", [0, 4, 8])
async def test_what_fails_for_its_content_is_lost_alone_and_reported(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    failed = failures(store, monkeypatch)
    ids = [f"resp_{n}" for n in range(9)]
    for n, id in enumerate(ids):
        store_reply(store, id, request_id=LONE if n == place else "test")
    for n, id in enumerate(ids):
        if n != place:
            assert (await shown(store, id))["status"] == "completed"
    with pytest.raises(NotFound):
        await shown(store, ids[place])
    assert failed == ["unstorable"]


async def test_a_request_that_the_store_does_not_take_is_told(store: ResponseStore) -> None:
    refused, taken = await asyncio.gather(create(store, owner=LONE), create(store), return_exceptions=True)
    assert isinstance(refused, Unstorable)
    assert isinstance(taken, str)
    assert (await shown(store, taken))["status"] in ("queued", "in_progress")


async def test_a_batch_is_not_taken_apart_where_the_store_itself_fails(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(store, model="another")
    tries = 0

    def transaction(operation: str) -> contextlib.AbstractAsyncContextManager[Any]:
        nonlocal tries
        tries += 1
        raise StoreUnavailable("down")

    monkeypatch.setattr(store._database, "transaction", transaction)
    made = await asyncio.gather(*(create(store) for _ in range(50)), return_exceptions=True)
    assert {type(error) for error in made} == {StoreUnavailable}
    assert tries < 5


async def test_more_than_a_transaction_takes_is_kept_in_several(store: ResponseStore) -> None:
    many = [create(store, model="another") for _ in range(MAX_WRITES + 1)]
    ids = await asyncio.gather(*many)
    assert (await shown(store, ids[-1]))["status"] == "queued"


@pytest.mark.parametrize("status", ["queued", "in_progress", "made up", 7, None])
async def test_a_live_reply_that_has_not_ended_is_no_background_work(
    store: ResponseStore, upstream: Upstream, status: object
) -> None:
    response = {**upstream_events(reply_id="resp_live")[-1]["response"], "status": status}
    store.store_live_reply(
        owner=OWNER,
        model=MODEL,
        request_id="test",
        request=b'{"model": "small", "input": "x"}',
        reply=json.dumps(response).encode(),
        streamed=False,
    )
    with pytest.raises(NotFound):
        await shown(store, "resp_live")
    await create(store)
    await upstream.play()
    assert upstream.begun == 1


# === what is not there ===


async def test_an_unknown_id_is_refused_while_many_replies_are_being_stored(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    def begin() -> None:
        nonlocal begun
        while len(store._storing) < 3:
            store_reply(store, f"resp_{begun}")
            begun += 1

    async def never_idle() -> None:
        while True:
            begin()
            await asyncio.wait({*store._storing}, return_when=asyncio.FIRST_COMPLETED)

    begin()
    writing = asyncio.ensure_future(never_idle())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(NotFound):
                await store.response("resp_none", OWNER, store.hold(OWNER))
    finally:
        writing.cancel()
        await asyncio.gather(*store._storing, return_exceptions=True)


async def test_an_unknown_id_is_refused_while_the_store_does_not_answer_writes(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.responses.store._KEEPING_SECONDS", 0.6)
    store = await start(None)
    await create(store)
    go_on = asyncio.Event()
    write = store._writer.write

    async def stuck(what: Any) -> None:
        await go_on.wait()
        await write(what)

    monkeypatch.setattr(store._writer, "write", stuck)
    store_reply(store, "resp_slow")
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(NotFound):
            await store.response("resp_none", OWNER, store.hold(OWNER))
    go_on.set()
    assert (await shown(store, "resp_slow"))["status"] == "completed"


async def test_an_id_that_no_store_can_have_is_not_there(store: ResponseStore) -> None:
    await create(store, model="another")
    for id in BAD_IDS.values():
        hold = store.hold(OWNER)
        for looking in (
            store.response(id, OWNER, hold),
            store.conversation(id, OWNER),
            store.cancel(id, OWNER, hold),
            store.delete(id, OWNER),
        ):
            with pytest.raises(NotFound):
                await looking
        assert await items_of(store, [id]) == {}


# === what waits ===


@pytest.fixture
async def stuck(start: Callable[..., Any], upstream: Upstream) -> AsyncIterator[ResponseStore]:
    """A store that writes nothing until its transactions may begin (`store._writer._committing`)."""
    store = await start(upstream, max_waiting_bytes=200_000)
    # Opened before: the first write makes the tables.
    await create(store, model="another")
    await store._writer._committing.acquire()
    yield store
    if store._writer._committing.locked():
        store._writer._committing.release()


async def test_live_replies_past_the_bound_are_not_kept_and_reported(
    stuck: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = failures(stuck, monkeypatch)
    for n in range(10):
        store_reply(stuck, f"resp_{n}", input="x" * 60_000)
        # Each has been read once this is over.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(failed) >= 6
    assert set(failed) == {"keep"}
    assert stuck._writer._bytes <= 200_000
    waiting = len(stuck._storing)
    assert waiting == 10 - len(failed)
    stuck._writer._committing.release()
    for n in range(waiting):
        assert (await shown(stuck, f"resp_{n}"))["status"] == "completed"
    store_reply(stuck, "resp_later", input="x" * 60_000)
    assert (await shown(stuck, "resp_later"))["status"] == "completed"


async def test_new_background_responses_past_the_bound_are_refused(stuck: ResponseStore) -> None:
    asked = [asyncio.ensure_future(create(stuck, model="another", input="x" * 60_000)) for _ in range(10)]
    for refused in islice(asyncio.as_completed(asked, timeout=WAIT_SECONDS), 7):
        with pytest.raises(StoreBusy):
            await refused
    stuck._writer._committing.release()
    made = await asyncio.gather(*asked, return_exceptions=True)
    ids = [one for one in made if isinstance(one, str)]
    assert len(ids) == 3
    for id in ids:
        assert (await shown(stuck, id))["status"] == "queued"


async def test_a_response_that_runs_waits_for_room_and_loses_nothing(
    start: Callable[..., Any], upstream: Upstream
) -> None:
    store = await start(upstream, max_waiting_bytes=100_000)
    ids = [await create(store) for _ in range(4)]
    plays = [await upstream.play() for _ in ids]
    # What a write takes at least leaves no room for two.
    store._writer._max_bytes = 5000
    writer = store._writer
    sending = []
    async with writer._committing:
        for play in plays:
            await play.start()
            sending.append(asyncio.ensure_future(play.events(*upstream_events(text="word " * 2000))))
        async with asyncio.timeout(WAIT_SECONDS):
            while not writer.full:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(writer._waiting) <= 1
    await asyncio.gather(*sending)
    for play in plays:
        await play.end()
    for id in ids:
        await until(store, id, "completed")
    assert writer._bytes == 0
