"""Several processes over one store: none waits in a circle, takes what is another's, or asks all the time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import event, func, select, text, update

from harness.stored_stand import OWNER, Upstream, create, followed, sse, until, upstream_events
from sluicegate.config import StoreConfig
from sluicegate.responses import ResponseStore
from sluicegate.responses.changes import Listener
from sluicegate.responses.entry import Claim, Run
from sluicegate.responses.schema import responses
from sluicegate.responses.writes import Append
from sluicegate.storage import StoreUnavailable

Start = Callable[..., Any]

WAIT_SECONDS = 10.0


def on_server(store: ResponseStore) -> bool:
    return store._database.path is None


# === locks ===


async def append(store: ResponseStore, claims: list[Claim]) -> None:
    made = upstream_events()[2:3]
    runs = [
        Append(claim, Run(3, 3, sse(*({**one, "sequence_number": 3} for one in made)))) for claim in claims
    ]
    await asyncio.gather(*map(store._writer.write, runs))


async def renew(store: ResponseStore, claims: list[Claim]) -> None:
    await store._leases.renew(claims)


async def waits(store: ResponseStore) -> bool:
    """Whether a transaction waits for another's lock."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with store._database.read("test") as connection:
        return bool((await connection.execute(text(query))).scalar())


@pytest.mark.parametrize("step", [append, renew])
async def test_rows_are_locked_in_the_order_of_their_ids(start: Start, step: Any) -> None:
    store = await start(None)
    for _ in range(2):
        await create(store)
    if not on_server(store):
        pytest.skip("SQLite has one writer at a time")
    claims = sorted((work.claim for work in await store._leases.claim(2)), key=lambda claim: claim.id)
    async with store._database.transaction("test") as connection:
        # In the table they lie the other way round.
        for claim in reversed(claims):
            moved = update(responses).where(responses.c.id == claim.id)
            await connection.execute(moved.values(not_before=1.0))
    first, last = (select(responses).where(responses.c.id == claim.id) for claim in claims)
    async with store._database.transaction("test") as connection:
        await connection.execute(first.with_for_update())
        stepping = asyncio.ensure_future(step(store, claims[::-1]))
        async with asyncio.timeout(WAIT_SECONDS):
            while not await waits(store):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await connection.execute(last.with_for_update(nowait=True))
    await asyncio.wait_for(stepping, WAIT_SECONDS)


async def test_a_transaction_that_is_given_up_for_another_is_tried_again(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not on_server(store):
        pytest.skip("SQLite has one writer at a time")
    one, other = "resp_a", "resp_b"
    transaction = store._database.transaction
    tries = 0

    @contextlib.asynccontextmanager
    async def deadlocked(operation: str) -> AsyncIterator[Any]:
        nonlocal tries
        tries += 1
        async with transaction(operation) as connection:
            if tries == 1:
                raised = "DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$"
                await connection.exec_driver_sql(raised)
            yield connection

    await create(store)
    monkeypatch.setattr(store._database, "transaction", deadlocked)
    await asyncio.gather(create(store, model=one), create(store, model=other))
    assert tries >= 2


# === claims ===


async def test_what_this_process_recovers_meanwhile_is_not_taken_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await start(None)
    entry = await store._repository.entry(await create(store), OWNER)
    choose = store._leases._next

    async def chosen(*arguments: Any) -> Any:
        ids = await choose(*arguments)
        await store._leases.seize(entry)
        return ids

    monkeypatch.setattr(store._leases, "_next", chosen)
    assert await store._leases.claim(5) == []


async def test_only_what_runs_is_renewed(start: Start, upstream: Upstream) -> None:
    store = await start(None)
    entry = await store._repository.entry(await create(store), OWNER)
    running = await create(store)
    seized = await store._leases.seize(entry)
    [work] = await store._leases.claim(5)
    assert work.entry.id == running
    async with store._database.transaction("test") as connection:
        await connection.execute(update(responses).values(lease_until=1.0))
    await store._leases.renew([work.claim, Claim(entry.id, seized.fence - 1)])
    query = select(responses.c.id).where(responses.c.lease_until > 1.0)
    async with store._database.read("test") as connection:
        assert (await connection.execute(query)).scalars().all() == [running]


async def test_a_run_ends_where_its_own_process_has_taken_it_over(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    play = await upstream.play()
    await store._leases.seize(await store._repository.entry(id, OWNER))
    await play.left()


async def test_many_callers_cost_one_query(start: Start, settings: Callable[..., StoreConfig]) -> None:
    store = await start(None)
    ids = [await create(store, owner=f"caller {n}") for n in range(20)]
    statements: list[str] = []
    for engine in store._database._engines or ():
        event.listen(
            engine.sync_engine,
            "before_cursor_execute",
            lambda connection, cursor, statement, *rest: statements.append(statement),
        )
    works = await store._leases.claim(100)
    assert {work.entry.id for work in works} == set(ids)
    assert {(work.entry.status, work.entry.attempts, work.entry.fence) for work in works} == {
        ("in_progress", 1, 1)
    }
    assert len(statements) < 10, statements


async def test_two_that_choose_the_same_share_it(start: Start) -> None:
    one, other = await start(None), await start(None)
    ids = [await create(one) for _ in range(20)]
    taken = await asyncio.gather(one._leases.claim(20), other._leases.claim(20))
    assert sorted(work.entry.id for works in taken for work in works) == sorted(ids)


# === followers ===


async def played(upstream: Upstream, follower: ResponseStore, id: str) -> list[Any]:
    """All events of a response that `upstream` plays, as somebody sees them who follows from its start on."""
    play = await upstream.play()
    following = asyncio.ensure_future(followed(follower, id))
    await play.start()
    for event_ in upstream_events():
        await play.events(event_)
    await play.end()
    return await following


async def test_another_process_is_told_on_a_server_and_asks_for_a_file(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a follower waits here.
    monkeypatch.setattr("sluicegate.responses.following.NET_SECONDS", 60.0)
    runs, follows = await start(upstream), await start(None)
    for _ in range(2):
        id = await create(runs)
        assert (await played(upstream, follows, id))[-1]["type"] == "response.completed"


async def test_another_process_asks_where_it_cannot_be_told(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(listener: Listener) -> None:
        raise StoreUnavailable("no more connections")

    monkeypatch.setattr("sluicegate.responses.following.NET_SECONDS", 0.05)
    monkeypatch.setattr(Listener, "open", refused)
    runs, follows = await start(upstream), await start(None)
    id = await create(runs)
    assert (await played(upstream, follows, id))[-1]["type"] == "response.completed"


async def test_who_is_cut_off_from_the_server_listens_anew(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.responses.following.NET_SECONDS", 0.2)
    runs, follows = await start(upstream), await start(None)
    id = await create(runs)
    if not on_server(runs):
        pytest.skip("a file tells nobody")
    play = await upstream.play()
    following = asyncio.ensure_future(followed(follows, id))
    listener = follows._following._listener
    async with asyncio.timeout(WAIT_SECONDS):
        while not listener.listens:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with runs._database.read("test") as connection:
            killed = select(func.pg_terminate_backend(text("pid"))).select_from(text("pg_stat_activity"))
            await connection.execute(killed.where(text("query LIKE 'LISTEN%'")))
        while listener.listens:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while not listener.listens:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await play.start()
    await play.events(*upstream_events())
    await play.end()
    assert (await following)[-1]["type"] == "response.completed"


async def test_who_follows_what_runs_here_asks_nobody(
    store: ResponseStore, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    ask = store._following._ask

    async def counted(ids: list[str]) -> None:
        asked.append(ids)
        await ask(ids)

    id = await create(store)
    play = await upstream.play()
    monkeypatch.setattr(store._following, "_ask", counted)
    follows = asyncio.ensure_future(followed(store, id))
    await play.start()
    for event_ in upstream_events()[:-1]:
        await play.events(event_)
    assert asked == []
    assert store._following._pause(0.0) is None
    await play.events(upstream_events()[-1])
    await play.end()
    await until(store, id, "completed")
    assert (await follows)[-1]["type"] == "response.completed"


async def test_the_start_is_shown_at_once_to_who_waits_for_it(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await create(store)
    events = aiter(await store.follow(id, OWNER, -1))
    seen = b""
    async with asyncio.timeout(WAIT_SECONDS):
        while b"response.in_progress" not in seen:
            seen += await anext(events)
    await upstream.play()
    await events.aclose()  # type: ignore[attr-defined]
