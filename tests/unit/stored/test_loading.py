"""What is loaded of stored responses: within a bound, shared by callers, and no more of it than is needed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stored_stand import MODEL, OWNER, Upstream, context_of, create, sse, upstream_events
from harness.tree import ROOT
from sluicegate._core import LoadRoom, ResponsesRequest
from sluicegate.responses import Hold, LoadingBusy, Page, ResponseStore
from sluicegate.responses.loading import Loading

Start = Callable[..., Any]

LARGE = 1_000_000


def store_reply(store: ResponseStore, id: str, owner: str, size: int) -> None:
    store.store_live_reply(
        owner=owner,
        model=MODEL,
        request_id="test",
        request=b'{"model":"%b","input":"%b"}' % (MODEL.encode(), b"x" * size),
        reply=sse(*upstream_events(reply_id=id)),
        streamed=True,
    )


async def test_a_caller_with_many_requests_leaves_room_to_others() -> None:
    loading = Loading(100_000, patience=0.05)
    shares = [await loading.take("busy", 30_000) for _ in range(2)]
    for _ in range(3):
        with pytest.raises(LoadingBusy):
            await loading.take("busy", 30_000)
    assert loading.room.taken == 60_000
    other = await loading.take("quiet", 40_000)
    for share in (*shares, other):
        share.release()
    assert loading.room.taken == 0
    assert loading._turns == {}


def test_a_request_has_its_share_for_as_long_as_it_is_there() -> None:
    room = LoadRoom(100_000)
    share = room.take("a", 50_000)
    assert share is not None
    asked = ResponsesRequest(b'{"model":"m","input":"Hi","previous_response_id":"resp_1"}')
    changed = asked.with_input_prefix(b'{"role":"user","content":"x"}', share)
    share.release()
    share.release()
    assert room.taken == 2 * len(changed.body), "it, and what an upstream is sent of it"
    del changed
    assert room.taken == 0
    half = room.take("a", 50_000)
    assert room.take("a", 1) is None, "who has half of it gets no more"
    del half
    alone = room.take("a", 1_000_000)
    assert alone is not None, "what is larger than the room is alone in it"
    assert room.take("b", 1) is None


async def test_whoever_waits_goes_on_when_room_is_given_back() -> None:
    loading = Loading(100_000, patience=30)
    first = await loading.take("busy", 100_000)
    waiting = [asyncio.ensure_future(loading.take("busy", 40_000)) for _ in range(2)]
    other = asyncio.ensure_future(loading.take("quiet", 40_000))
    await asyncio.sleep(0)
    first.release()
    async with asyncio.timeout(30):
        shares = [await waiting[0], await other]
    assert not waiting[1].done()
    shares[0].release()
    async with asyncio.timeout(30):
        (await waiting[1]).release()


async def test_what_is_small_is_not_counted() -> None:
    loading = Loading(1, patience=0.01)
    with loading.hold("one") as hold:
        await hold.take(16 * 1024)
        assert loading.room.taken == 0
        await hold.take(10**9)
        with pytest.raises(LoadingBusy):
            await loading.hold("two").take(20_000)
    assert loading.room.taken == 0


async def test_requests_at_the_same_time_share_what_is_loaded() -> None:
    loading = Loading(10**9)
    loads = 0
    go_on = asyncio.Event()

    async def work() -> bytes:
        nonlocal loads
        loads += 1
        await go_on.wait()
        return bytes(100)

    holds = [loading.hold(owner) for owner in ("a", "a", "a", "b")]
    found = [asyncio.ensure_future(hold.load("key", work)) for hold in holds]
    await asyncio.sleep(0)
    found[0].cancel()
    go_on.set()
    first, second, third = await asyncio.gather(*found[1:])
    assert first is second
    assert third is not first, "another caller has its own"
    assert loads == 2
    for hold in holds:
        hold.release()
    assert loading._loaded == {}


async def test_requests_that_continue_something_large_are_loaded_within_the_bound(start: Start) -> None:
    store = await start(None, max_loaded_bytes=8 * LARGE)
    store._loading.patience = 0.2
    store_reply(store, "resp_large", "busy", LARGE)
    store_reply(store, "resp_small", "quiet", 10)
    store_reply(store, "resp_other", "quiet", LARGE)
    chain = await store.conversation("resp_large", "busy")
    holds = [store.hold("busy") for _ in range(10)]

    async def load(hold: Hold) -> bytes:
        await hold.take(chain.size)
        items: bytes = await store.context(chain, "busy", hold)
        return items

    found = await asyncio.gather(*map(load, holds), return_exceptions=True)
    loaded = [each for each in found if isinstance(each, bytes)]
    assert len(loaded) == 1, "two of them take more than they leave to others"
    assert [type(each) for each in found if each not in loaded] == [LoadingBusy] * 9
    assert store._loading.room.taken <= 8 * LARGE
    for id in ("resp_small", "resp_other"):
        assert await context_of(store, id, "quiet")
    for hold in holds:
        hold.release()
    assert store._loading.room.taken == 0
    assert len(await context_of(store, "resp_large", "busy")) >= LARGE


async def test_no_payload_is_read_that_is_not_asked_for(start: Start, upstream: Upstream) -> None:
    store = await start(None)
    id = await create(store, input="x" * LARGE, owner=OWNER)
    stored = await store._repository.stored(id, OWNER)
    assert len(stored.response) < LARGE / 10, "a response without what it was made from"
    store_reply(store, "resp_large", OWNER, LARGE)
    with store.hold(OWNER) as hold:
        assert len(await store.response("resp_large", OWNER, hold)) < LARGE / 10
        assert store._loading.room.taken < LARGE / 10
    with store.hold(OWNER) as hold:
        page = await store.input_items("resp_large", OWNER, Page(limit=1), hold)
        assert page is not None
        assert len(page) > LARGE
        assert 3 * LARGE <= store._loading.room.taken < 4 * LARGE
    assert store._loading.room.taken == 0


async def test_what_still_runs_is_loaded_within_the_bound(start: Start, upstream: Upstream) -> None:
    """Its first events repeat what the client asked for, twice."""
    store = await start(upstream, max_loaded_bytes=8 * LARGE)
    store._loading.patience = 0.05
    id = await create(store, instructions="x" * LARGE)
    play = await upstream.play()
    await play.start()
    slow = await store.follow(id, OWNER, -1)
    assert len(await anext(slow)) > 2 * LARGE
    assert 6 * LARGE < store._loading.room.taken < 7 * LARGE
    with pytest.raises(LoadingBusy):
        await anext(await store.follow(id, OWNER, -1))
    await slow.aclose()
    assert store._loading.room.taken == 0
    with store.hold(OWNER) as hold:
        await store.response(id, OWNER, hold)
        assert store._loading.room.taken > 9 * LARGE, "the object, and its events"
    with store.hold(OWNER) as hold:
        await store.cancel(id, OWNER, hold)
        assert store._loading.room.taken > 9 * LARGE
    assert store._loading.room.taken == 0


def test_what_is_loaded_takes_no_more_than_it_is_counted_as(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.loading_peak", str(tmp_path)],
        # Blocks that are freed go back at once: what is measured is what is used.
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "MALLOC_MMAP_THRESHOLD_": "65536"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert found["peak"] > 2 * found["stored"], "as it is stored, and as what is made of it"
    assert found["peak"] <= found["taken"] + 4_000_000, found


async def test_events_are_read_some_at_a_time(start: Start) -> None:
    store = await start(None)
    store_reply(store, "resp_a", OWNER, 10)
    together = [data async for data in await store.follow("resp_a", OWNER, -1)]
    async with store._database.transaction("test") as connection:
        # The same events, in as many rows as there are events.
        row = "SELECT first, last, data FROM response_events WHERE response_id = 'resp_a'"
        [(first, last, data)] = (await connection.exec_driver_sql(row)).all()
        events = bytes(data).split(b"\n\n")[:-1]
        assert len(events) == last - first + 1 > 5
        await connection.exec_driver_sql("DELETE FROM response_events")
        for number, event in enumerate(events, first):
            text = (event + b"\n\n").hex()
            blob = f"X'{text}'" if connection.dialect.name == "sqlite" else f"'\\x{text}'"
            await connection.exec_driver_sql(
                f"INSERT INTO response_events VALUES ('resp_a', {number}, {number}, {blob})"
            )
    apart = [data async for data in await store.follow("resp_a", OWNER, -1)]
    assert len(apart) == len(events)
    assert b"".join(apart) == b"".join(together)
