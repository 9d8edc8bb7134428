"""Workers that die, are slow, or stop: nothing hangs, nothing is lost, doubled or numbered anew."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from harness.stored_stand import (
    OWNER,
    Upstream,
    create,
    followed,
    numbers,
    payloads,
    shown,
    sse,
    until,
    upstream_events,
)
from sluicegate.responses import ResponseStore
from sluicegate.responses.entry import Claim, Run
from sluicegate.responses.errors import Fenced
from sluicegate.responses.leases import MAX_ATTEMPTS, fair
from sluicegate.responses.schema import responses
from sluicegate.responses.writes import Append

Start = Callable[..., Any]

LEASE = 0.4


async def claimed(store: ResponseStore, id: str) -> Claim:
    """Take a response on, as a worker does that then dies."""
    (work,) = await store._leases.claim(1)
    assert work.entry.id == id
    return work.claim


async def dead_with_output(store: ResponseStore, count: int = 6) -> tuple[str, Claim]:
    """A response with events of an upstream's, whose worker is gone."""
    id = await create(store)
    claim = await claimed(store, id)
    events = upstream_events(tokens=4)[2:count]
    await store._writer.write(Append(claim, Run(3, 2 + len(events), sse(*renumbered(events)))))
    return id, claim


def renumbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events, 3)]


async def test_interrupted_work_with_output_fails_when_its_lease_is_over(start: Start) -> None:
    dead = await start(None, lease_seconds=LEASE)
    id, _ = await dead_with_output(dead)
    before = await followed_so_far(dead, id)
    lives = await start(Upstream(), lease_seconds=LEASE)
    found = await until(lives, id, "failed")
    assert found["error"]["message"] == "The process that ran this response ended before it did."
    kept = await followed(lives, id)
    assert kept[: len(before)] == before
    assert numbers(kept) == list(range(len(kept)))
    assert kept[-1]["response"] == found
    assert found["output"][0]["status"] == "incomplete"


async def followed_so_far(store: ResponseStore, id: str) -> list[dict[str, Any]]:
    return [event for run in await store._repository.events(id) for event in payloads(run.data)]


async def test_interrupted_work_without_output_is_run_again(start: Start, upstream: Upstream) -> None:
    dead = await start(None, lease_seconds=LEASE)
    id = await create(dead)
    await claimed(dead, id)
    await start(upstream, lease_seconds=LEASE)
    play = await upstream.play()
    assert play.work.entry.attempts == 2
    await play.start()
    await play.events(*upstream_events(tokens=2))
    await play.end()
    await until(dead, id, "completed")
    kept = await followed(dead, id)
    assert numbers(kept) == list(range(len(kept)))
    assert [event["type"] for event in kept].count("response.in_progress") == 1


async def test_interrupted_work_fails_where_that_is_configured(start: Start, upstream: Upstream) -> None:
    dead = await start(None, lease_seconds=LEASE)
    id = await create(dead)
    await claimed(dead, id)
    lives = await start(upstream, lease_seconds=LEASE, rerun_interrupted=False)
    await until(lives, id, "failed")
    assert upstream.begun == 0


async def test_what_kills_its_workers_is_not_run_for_ever(start: Start) -> None:
    dead = await start(None, lease_seconds=0.01)
    id = await create(dead)
    for _ in range(MAX_ATTEMPTS):
        await claimed(dead, id)
        async with asyncio.timeout(10):
            while (await shown(dead, id))["status"] == "in_progress":
                await dead._runner.recover()
    assert (await shown(dead, id))["status"] == "failed"


async def test_a_worker_that_was_only_slow_writes_nothing_any_more(start: Start) -> None:
    slow = await start(None, lease_seconds=LEASE)
    id, claim = await dead_with_output(slow)
    lives = await start(Upstream(), lease_seconds=LEASE)
    await until(lives, id, "failed")
    kept = await followed(lives, id)
    with pytest.raises(Fenced):
        await slow._writer.write(Append(claim, Run(len(kept), len(kept), b"data: {}\n\n")))
    assert await followed(lives, id) == kept


async def test_a_lease_is_renewed_while_its_worker_lives(start: Start, upstream: Upstream) -> None:
    runs = await start(upstream, lease_seconds=5)
    id = await create(runs)
    play = await upstream.play()

    async def until_when() -> float:
        query = select(responses.c.lease_until).where(responses.c.id == id)
        async with runs._database.read("test") as connection:
            return float(await connection.scalar(query) or 0)

    first = await until_when()
    async with asyncio.timeout(10):
        while True:
            now = await until_when()
            if now != first:
                break
            await asyncio.sleep(0.05)
    assert now > first
    await (await start(None))._runner.recover()
    await play.start()
    await play.events(*upstream_events(tokens=2))
    await play.end()
    assert (await until(runs, id, "completed", "failed"))["status"] == "completed"


async def test_a_cancellation_whose_worker_died_is_carried_out(start: Start) -> None:
    dead = await start(None, lease_seconds=LEASE)
    id, _ = await dead_with_output(dead)
    entry = await dead._repository.entry(id, OWNER)
    await dead._leases.seize(entry, cancelling=True)
    lives = await start(Upstream(), lease_seconds=LEASE)
    assert (await until(lives, id, "cancelled", "failed"))["status"] == "cancelled"


async def test_two_that_settle_the_same_response_do_it_once(start: Start) -> None:
    dead = await start(None, lease_seconds=0.01)
    id, _ = await dead_with_output(dead)
    one, other = await start(None, lease_seconds=5), await start(None, lease_seconds=5)
    await asyncio.gather(one._runner.recover(), other._runner.recover())
    kept = await followed(one, id)
    assert [event["type"] for event in kept].count("response.failed") == 1
    assert numbers(kept) == list(range(len(kept)))


async def test_what_waits_too_long_fails(start: Start) -> None:
    takes = await start(None)
    id = await create(takes, model="nobody-has-this")
    lives = await start(Upstream(), queue_seconds=0.05, lease_seconds=LEASE)
    found = await until(lives, id, "failed")
    assert found["error"]["message"] == "The response waited too long to be run."


async def test_work_is_given_back_when_a_worker_stops_before_output(start: Start, upstream: Upstream) -> None:
    stops = await start(upstream)
    id = await create(stops)
    await upstream.play()
    await stops.drain(0)
    assert (await shown(stops, id))["status"] == "queued"
    await start(upstream)
    assert (await upstream.play()).work.entry.id == id


async def test_a_worker_that_stops_waits_for_what_it_runs(start: Start, upstream: Upstream) -> None:
    stops = await start(upstream)
    id = await create(stops)
    play = await upstream.play()
    draining = asyncio.ensure_future(stops.drain(10))
    await play.start()
    await play.events(*upstream_events(tokens=2))
    await play.end()
    await draining
    assert (await shown(stops, id))["status"] == "completed"


async def test_work_with_output_fails_when_its_worker_stops(start: Start, upstream: Upstream) -> None:
    stops = await start(upstream)
    id = await create(stops)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(tokens=4)[:6])
    await stops.drain(0)
    assert (await shown(stops, id))["error"]["message"] == "The gateway was stopped while it ran."


def test_the_next_is_of_the_caller_with_the_least_under_way() -> None:
    waiting = {"a": ["a1", "a2", "a3"], "b": ["b1"], "c": ["c1", "c2"]}
    assert fair(waiting, {"a": 2, "b": 1}, 4, {}) == ["c1", "b1", "c2", "a1"]
    turns: dict[str, int] = {}
    assert fair(waiting, {}, 1, turns) != fair(waiting, {}, 1, turns)
    assert fair(waiting, {}, 99, {}) != []
    assert sorted(fair(waiting, {}, 99, {})) == ["a1", "a2", "a3", "b1", "c1", "c2"]
