"""Whatever an upstream sends, its response has an end, and the others go on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.stored_stand import (
    OWNER,
    Event,
    Upstream,
    create,
    followed,
    numbers,
    shown,
    sse,
    until,
    upstream_events,
)
from sluicegate.responses import Page, ResponseStore
from sluicegate.responses.entry import Run
from sluicegate.responses.writes import Append

Start = Callable[..., Any]

# What is malformed is noticed before either database sees it.
pytestmark = pytest.mark.parametrize(
    "settings", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)], indirect=True
)

LEASE = 0.4
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
PART = {"type": "output_text", "text": "", "annotations": []}


def event(kind: str, /, **members: Any) -> Event:
    return {"type": f"response.{kind}", "output_index": 0, **members}


ADDED = event("output_item.added", item=MESSAGE)

# Each after an item that is open.
MALFORMED = {
    "an item that is not there": [event("output_item.added")],
    "an item that is text": [event("output_item.added", item="text")],
    "the end of no item": [event("output_item.done", item=None)],
    "an index beyond all": [event("content_part.added", content_index=1_000_000_000, part=PART)],
    "an index that is text": [event("output_text.delta", content_index="0", delta="x")],
    "an item's index beyond all": [event("output_item.added", item=MESSAGE) | {"output_index": 1e300}],
    "text that is a number": [event("output_text.delta", content_index=0, delta=5)],
    "a part that is a list": [event("content_part.done", content_index=0, part=[PART])],
    "a summary's index": [event("reasoning_summary_text.delta", summary_index=10**30, delta="x")],
    "an end without its object": [event("completed")],
    "an output that is an object": [event("completed", response={"output": {}})],
    "an output of numbers": [event("completed", response={"output": [1, 2]})],
    "items without number": [event("output_item.added", item={}) | {"output_index": 0}] * 100_000,
    "an end of items without number": [event("completed", response={"output": [{}] * 100_000})],
}


@pytest.mark.parametrize("events", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_event_is_its_upstreams_failure(
    store: ResponseStore, upstream: Upstream, events: list[Event]
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(ADDED)
    if len(events) > 1:
        body = b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events)
        await play.send({"type": "http.response.body", "body": body, "more_body": True})
    else:
        await play.events(*events)
    found = await until(store, id, "failed")
    await play.left()
    assert found["error"]["code"] == "server_error"
    assert "malformed" in found["error"]["message"]
    assert {item["status"] for item in found["output"] if item} <= {"incomplete"}
    kept = await followed(store, id)
    assert numbers(kept) == list(range(len(kept)))
    assert kept[-1]["type"] == "response.failed"
    assert kept[-1]["response"] == found
    entry, body = await store.cancel(id, OWNER, store.hold(OWNER))
    assert (entry.status, json.loads(body)) == ("failed", found)
    listed = json.loads(await store.input_items(id, OWNER, Page(), store.hold(OWNER)) or b"")
    assert [item["content"][0]["text"] for item in listed["data"]] == ["Say something."]
    # Others are not concerned.
    await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events())
    await play.end()
    await until(store, play.work.entry.id, "completed")


async def test_what_only_comes_out_of_order_is_passed_over(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    stray = event("output_text.delta", content_index=7, delta="lost") | {"output_index": 3}
    await play.events(stray, ADDED, event("output_text.delta", content_index=-1, delta="Hi"))
    found = await shown(store, id)
    assert [item["content"][0]["text"] for item in found["output"]] == ["Hi"]
    _, cancelled = await store.cancel(id, OWNER, store.hold(OWNER))
    assert json.loads(cancelled)["output"][0]["status"] == "incomplete"


async def test_the_work_of_the_dead_is_settled_past_what_is_malformed(start: Start) -> None:
    """As a version that did not check what it kept has left it."""
    dead = await start(None, lease_seconds=LEASE)
    ids = [await create(dead, owner=f"owner {n}") for n in range(4)]
    works = {work.entry.id: work for work in await dead._leases.claim(4)}
    left = [
        MALFORMED[name]
        for name in ("an item that is not there", "an index beyond all", "a part that is a list")
    ]
    for id, events in zip(ids, [*left, [ADDED]], strict=True):
        run = Run(3, 3 + len(events), sse(ADDED, *events))
        await dead._writer.write(Append(works[id].claim, run))
        assert (await shown(dead, id, works[id].entry.owner))["status"] == "in_progress"
    lives = await start(Upstream(), lease_seconds=LEASE)
    for n, id in enumerate(ids):
        found = await until(lives, id, "failed", owner=f"owner {n}")
        assert found["error"]["message"] == "The process that ran this response ended before it did."


async def test_one_that_cannot_be_settled_does_not_keep_the_others_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await start(None, lease_seconds=LEASE)
    ids = [await create(dead) for _ in range(3)]
    for work in await dead._leases.claim(3):
        await dead._writer.write(Append(work.claim, Run(3, 3, sse(ADDED))))
    lives = await start(None, lease_seconds=LEASE)
    settle = lives._settling.settle

    async def broken(stored: Any, *rest: Any) -> None:
        if stored.entry.id == ids[0]:
            raise ZeroDivisionError
        await settle(stored, *rest)

    monkeypatch.setattr(lives._settling, "settle", broken)
    lives.start(Upstream().execute)
    for id in ids[1:]:
        await until(lives, id, "failed")
    assert (await shown(lives, ids[0]))["status"] == "in_progress"
