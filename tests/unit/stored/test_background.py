"""A background response from its creation to its end, whatever upstream, client and other workers do."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.stored_stand import (
    HEAD,
    OWNER,
    Play,
    Upstream,
    context_of,
    create,
    followed,
    numbers,
    shown,
    sse,
    until,
    upstream_events,
)
from sluicegate.responses import NotFound, QueueFull, ResponseStore

Start = Callable[..., Any]


async def play_all(play: Play, events: list[dict[str, Any]]) -> None:
    await play.start()
    await play.events(*events)
    await play.end()


async def test_a_response_is_queued_then_in_progress_then_completed(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store, metadata={"a": "b"})
    play = await upstream.play()
    before = await shown(store, id)
    assert (before["id"], before["background"], before["status"]) == (id, True, "in_progress")
    assert before["metadata"] == {"a": "b"}
    assert before["output"] == []
    events = upstream_events(tokens=4)
    await play_all(play, events)
    after = await until(store, id, "completed")
    assert after["id"] == id
    assert after["output"] == events[-1]["response"]["output"]
    assert after["usage"] == events[-1]["response"]["usage"]
    assert (after["background"], after["store"]) == (True, True)
    assert after["completed_at"] is not None
    assert after["created_at"] == before["created_at"]


async def test_the_kept_events_are_the_gateways_first_ones_and_the_upstreams(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    events = upstream_events(reasoning_tokens=3, tokens=4)
    await play_all(await upstream.play(), events)
    await until(store, id, "completed")
    kept = await followed(store, id)
    assert [event["type"] for event in kept[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert [event["response"]["status"] for event in kept[:3]] == ["queued", "queued", "in_progress"]
    assert numbers(kept) == list(range(len(kept)))
    plain = [{**event, "sequence_number": 0} for event in kept[3:-1]]
    assert plain == [{**event, "sequence_number": 0} for event in events[2:-1]]
    assert {event["response"]["id"] for event in kept if "response" in event} == {id}
    assert kept[-1]["response"] == await shown(store, id)


async def test_a_look_in_the_middle_shows_the_items_so_far(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    events = upstream_events(reasoning_tokens=2, tokens=3)
    play = await upstream.play()
    await play.start()
    for event in events[2:-1]:
        await play.events(event)
        found = await shown(store, id)
        assert found["status"] == "in_progress"
        if event["type"] == "response.output_text.delta":
            text = "".join(
                one["delta"]
                for one in events[: events.index(event) + 1]
                if one["type"] == "response.output_text.delta"
            )
            message = found["output"][-1]
            assert message["status"] == "in_progress"
            assert message["content"][0]["text"] == text
        elif event["type"] == "response.output_item.done":
            assert found["output"][event["output_index"]] == event["item"]
    await play.end()
    # The upstream never said how it ended.
    assert (await until(store, id, "failed"))["output"] == found["output"]


@pytest.mark.parametrize("cut", [1, 7, 64, 1000])
async def test_events_may_be_cut_anywhere(store: ResponseStore, upstream: Upstream, cut: int) -> None:
    id = await create(store)
    events = upstream_events(tokens=3, text="Grüße an alle 日本")
    play = await upstream.play()
    await play.start()
    text = sse(*events)
    for start in range(0, len(text), max(cut, len(text) // 12)):
        end = start + max(cut, len(text) // 12)
        await play.send({"type": "http.response.body", "body": text[start:end], "more_body": True})
    await play.end()
    await until(store, id, "completed")
    kept = await followed(store, id)
    assert numbers(kept) == list(range(len(events) + 1))


async def test_a_resumed_stream_is_the_tail_of_the_whole_at_every_number(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    events = upstream_events(tokens=5)
    play = await upstream.play()
    await play.start()
    half = len(events) // 2
    await play.events(*events[:half])
    after = range(-1, len(events) + 3)
    running = [asyncio.ensure_future(followed(store, id, n)) for n in after]
    for event in events[half:]:
        await play.events(event)
    await play.end()
    whole = await followed(store, id)
    assert numbers(whole) == list(range(len(events) + 1))
    for n, tail in zip(after, await asyncio.gather(*running), strict=True):
        assert tail == whole[n + 1 :]
        assert await followed(store, id, n) == whole[n + 1 :]


async def test_chunks_that_come_where_a_terminal_reply_was_expected_are_drained(
    store: ResponseStore, upstream: Upstream
) -> None:
    # Reported elsewhere: `background` with `stream` ended in "Unexpected response type".
    id = await create(store, stream=True)
    events = upstream_events(tokens=4)
    play = await upstream.play()
    await play.start()
    await play.events(*events)
    await play.events(*events[2:])
    await play.end(sse(*events[4:6]) + b"data: [DONE]\n\n")
    assert (await until(store, id, "completed", "failed"))["status"] == "completed"
    assert numbers(await followed(store, id)) == list(range(len(events) + 1))


async def test_a_document_where_a_stream_was_asked_for_is_unfolded(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store, stream=True)
    whole = upstream_events(tokens=4, reasoning_tokens=2)[-1]["response"]
    play = await upstream.play()
    await play.send({**HEAD, "headers": [(b"content-type", b"application/json")]})
    await play.end(json.dumps(whole).encode())
    found = await until(store, id, "completed", "failed")
    assert (found["status"], found["output"]) == ("completed", whole["output"])
    kept = await followed(store, id)
    assert numbers(kept) == list(range(len(kept)))
    deltas = [event["delta"] for event in kept if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == whole["output"][-1]["content"][0]["text"]


async def test_a_channel_that_closes_early_fails_with_the_reason_and_closed_items(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    events = upstream_events(tokens=4)
    cut = [event["type"] for event in events].index("response.output_text.delta") + 2
    play = await upstream.play()
    await play.start()
    await play.events(*events[:cut])
    play.break_off()
    found = await until(store, id, "failed")
    assert found["error"] == {
        "code": "server_error",
        "message": "The upstream's reply ended before the response did.",
    }
    assert found["output"][0]["status"] == "incomplete"
    kept = await followed(store, id)
    assert [event["type"] for event in kept[-5:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "error",
        "response.failed",
    ]
    assert kept[-5]["text"] == found["output"][0]["content"][0]["text"]
    assert numbers(kept) == list(range(len(kept)))
    assert kept[-1]["response"] == found


@pytest.mark.parametrize(
    ("status", "code"), [(429, "rate_limit_exceeded"), (502, "server_error"), (400, "server_error")]
)
async def test_an_error_reply_is_the_failures_reason(
    store: ResponseStore, upstream: Upstream, status: int, code: str
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.send({**HEAD, "status": status, "headers": [(b"content-type", b"application/json")]})
    await play.end(json.dumps({"error": {"message": "No.", "code": "x"}}).encode())
    found = await until(store, id, "failed")
    assert found["error"] == {"code": code, "message": "No."}


async def test_an_upstreams_own_failure_is_kept(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    failed = {
        "id": "resp_x",
        "object": "response",
        "status": "failed",
        "error": {"code": "server_error", "message": "Out of memory."},
        "output": [],
    }
    play = await upstream.play()
    await play.start()
    await play.events(
        {
            "type": "error",
            "sequence_number": 2,
            "code": "server_error",
            "message": "Out of memory.",
            "param": None,
        },
        {"type": "response.failed", "sequence_number": 3, "response": failed},
    )
    await play.end()
    found = await until(store, id, "failed")
    assert found["id"] == id
    assert found["error"]["message"] == "Out of memory."
    assert [event["type"] for event in (await followed(store, id))[3:]] == ["error", "response.failed"]


async def test_a_failure_before_output_is_tried_again_where_that_is_configured(
    start: Start, upstream: Upstream
) -> None:
    store = await start(upstream, retries=1)
    id = await create(store)
    first = await upstream.play()
    first.break_off()
    second = await upstream.play()
    assert second.work.entry.attempts == 2
    await play_all(second, upstream_events(tokens=2))
    await until(store, id, "completed")
    kept = await followed(store, id)
    assert numbers(kept) == list(range(len(kept)))
    assert [event["type"] for event in kept].count("response.in_progress") == 1


async def test_a_failure_after_output_is_not_tried_again(start: Start, upstream: Upstream) -> None:
    store = await start(upstream, retries=5)
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(tokens=2)[:4])
    play.break_off()
    await until(store, id, "failed")
    assert upstream.begun == 1


async def test_costs_and_numbers_stay_as_they_are_written(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    events = upstream_events(tokens=1)
    text = sse(*events).replace(b'"total_tokens":', b'"cost":0.0000393,"total_tokens":')
    play = await upstream.play()
    await play.start()
    await play.send({"type": "http.response.body", "body": text, "more_body": True})
    await play.end()
    await until(store, id, "completed")
    assert b'"cost":0.0000393,' in await store.response(id, OWNER, store.hold(OWNER))


async def test_a_response_that_grows_too_large_fails(start: Start, upstream: Upstream) -> None:
    store = await start(upstream, max_response_bytes=5000)
    id = await create(store)
    play = await upstream.play()
    await play.start()
    for event in upstream_events(tokens=200)[:-1]:
        await play.events(event)
    await play.left()
    assert "larger than the 5000 bytes" in (await until(store, id, "failed"))["error"]["message"]


# === cancelling, deleting ===


async def test_cancelling_stops_the_upstream_and_is_idempotent(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(tokens=4)[:6])
    following = asyncio.ensure_future(followed(store, id))
    entry, body = await store.cancel(id, OWNER, store.hold(OWNER))
    await play.left()
    assert entry.status == "cancelled"
    found = json.loads(body)
    assert (found["status"], found["error"]) == ("cancelled", None)
    assert found["output"][0]["status"] == "incomplete"
    assert (await store.cancel(id, OWNER, store.hold(OWNER)))[1] == body
    kept = await following
    assert numbers(kept) == list(range(len(kept)))
    assert kept[-1]["type"] == "response.incomplete"
    assert kept[-1]["response"] == found


async def test_what_the_upstream_still_says_after_a_cancellation_is_not_kept(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    events = upstream_events(tokens=4)
    play = await upstream.play()
    await play.start()
    await play.events(*events[:6])
    _, body = await store.cancel(id, OWNER, store.hold(OWNER))
    kept = await followed(store, id)
    await play.events(*events[6:])
    assert await store.response(id, OWNER, store.hold(OWNER)) == body
    assert await followed(store, id) == kept


async def test_cancelling_what_is_queued(start: Start) -> None:
    store = await start(None)
    id = await create(store)
    assert (await store.cancel(id, OWNER, store.hold(OWNER)))[0].status == "cancelled"
    assert [event["type"] for event in await followed(store, id)] == [
        "response.created",
        "response.queued",
        "response.incomplete",
    ]


async def test_cancelling_what_has_ended_changes_nothing(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    await play_all(await upstream.play(), upstream_events(tokens=2))
    await until(store, id, "completed")
    entry, body = await store.cancel(id, OWNER, store.hold(OWNER))
    assert entry.status == "completed"
    assert body == await store.response(id, OWNER, store.hold(OWNER))


async def test_deleting_what_runs_stops_it_and_its_followers(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(tokens=4)[:6])
    stream = await store.follow(id, OWNER, -1)
    await anext(stream)
    await store.delete(id, OWNER)
    await play.left()
    async with asyncio.timeout(10):
        async for _ in stream:
            pass
    with pytest.raises(NotFound):
        await store.response(id, OWNER, store.hold(OWNER))
    with pytest.raises(NotFound):
        await store.delete(id, OWNER)


# === several workers ===


async def test_another_worker_sees_follows_and_cancels(start: Start, upstream: Upstream) -> None:
    runs, looks = await start(upstream), await start(None)
    id = await create(runs)
    play = await upstream.play()
    await play.start()
    events = upstream_events(tokens=4)
    await play.events(*events[:6])
    assert (await shown(looks, id))["output"] == (await shown(runs, id))["output"]
    following = asyncio.ensure_future(followed(looks, id))
    await play.events(*events[6:8])
    assert (await looks.cancel(id, OWNER, looks.hold(OWNER)))[0].status == "cancelled"
    await play.left()
    assert await following == await followed(runs, id)


async def test_what_one_worker_takes_on_another_may_run(start: Start, upstream: Upstream) -> None:
    takes = await start(None)
    id = await create(takes)
    assert (await shown(takes, id))["status"] == "queued"
    await start(upstream)
    await play_all(await upstream.play(), upstream_events(tokens=2))
    await until(takes, id, "completed")


async def test_only_its_owner_sees_a_response(store: ResponseStore, upstream: Upstream) -> None:
    id = await create(store)
    await upstream.play()
    attempts: list[Callable[[], Any]] = [
        lambda: store.response(id, "other", store.hold("other")),
        lambda: store.cancel(id, "other", store.hold("other")),
        lambda: store.delete(id, "other"),
        lambda: context_of(store, id, "other"),
        lambda: followed(store, id, owner="other"),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt()
    assert (await shown(store, id))["status"] == "in_progress"


# === the queue ===


async def test_no_more_run_at_once_than_configured(start: Start, upstream: Upstream) -> None:
    store = await start(upstream, concurrency=2)
    ids = [await create(store) for _ in range(3)]
    first, second = await upstream.play(), await upstream.play()
    assert [(await shown(store, id))["status"] for id in ids] == ["in_progress", "in_progress", "queued"]
    assert {first.work.entry.id, second.work.entry.id} == set(ids[:2])
    await play_all(first, upstream_events(tokens=1))
    third = await upstream.play()
    assert third.work.entry.id == ids[2]


async def test_a_caller_with_a_long_queue_does_not_hold_up_another(start: Start, upstream: Upstream) -> None:
    store = await start(upstream, concurrency=1)
    running = await create(store, owner="busy")
    play = await upstream.play()
    waiting = [await create(store, owner="busy") for _ in range(3)]
    late = await create(store, owner="quiet")
    order = []
    for _ in range(4):
        await play_all(play, upstream_events(tokens=1))
        play = await upstream.play()
        order.append(play.work.entry.id)
    assert running not in order
    assert order.index(late) <= 1
    assert [id for id in order if id != late] == waiting


async def test_a_queue_that_is_full_takes_no_more(start: Start) -> None:
    store = await start(None, max_queued=8)
    for owner in ("busy", "busy", "busy", "busy", "other", "other", "third"):
        await create(store, owner=owner)
    await create(store, owner="late")
    with pytest.raises(QueueFull):
        await create(store, owner="later")


async def test_no_caller_has_more_in_the_queue_than_it_leaves_to_others(start: Start) -> None:
    here, there = await start(None, max_queued=20), await start(None, max_queued=20)
    taken = [await filled(store, owner="busy") for store in (here, there)]
    assert taken == [10, 0], "half of it, through however many processes"
    # As many further callers fill it one after the other: who comes late has room all the same.
    for number in range(3):
        await filled(here, owner=f"busy-{number}")
    await create(there, owner="quiet")


async def filled(store: ResponseStore, **members: Any) -> int:
    """How many responses are taken on until one is refused."""
    for taken in range(100):
        try:
            await create(store, **members)
        except QueueFull:
            return taken
    raise AssertionError("the queue has no end")


async def test_the_bytes_that_wait_in_the_queue_are_shared_as_well(start: Start) -> None:
    store = await start(None, max_bytes=100_000)
    assert await filled(store, owner="busy", input="x" * 20_000) == 2
    await create(store, owner="quiet", input="x" * 20_000)
    await create(store, owner="large", input="x" * 200_000)


async def test_only_models_that_are_served_are_run_and_a_wildcard_serves_what_it_matches(
    start: Start,
) -> None:
    store = await start(None)
    store.serve(["plain", "org/*-x_y", "a%/*"], {})
    names = ["plain", "other", "org/1-x_y", "org/1-xzy", "org/-x_y", "a%/b", "ab/b"]
    ids = {await create(store, model=name, owner=f"{OWNER}-{name}"): name for name in names}
    claimed = {ids[work.entry.id] for work in await store._leases.claim(len(names))}
    assert claimed == {"plain", "org/1-x_y", "a%/b"}
