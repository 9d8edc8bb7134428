"""What is kept, for how long, and what happens where it cannot be."""

import asyncio
import gc
import json
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.stored_stand import (
    MODEL,
    OWNER,
    WAIT_SECONDS,
    Upstream,
    context_of,
    create,
    followed,
    items_of,
    numbers,
    shown,
    sse,
    until,
    upstream_events,
    worker,
)
from sluicegate.config import StoreConfig
from sluicegate.responses import NotFinished, NotFound, Page, ResponseStore, TooLong
from sluicegate.responses.repository import Turn
from sluicegate.responses.schema import MIGRATIONS
from sluicegate.responses.upkeep import Upkeep, share
from sluicegate.responses.writes import Append, Begin
from sluicegate.storage import StoreUnavailable

Start = Callable[..., Any]


def store_reply(
    store: ResponseStore,
    id: str,
    *,
    streamed: bool = True,
    text: str = "Hello",
    owner: str = OWNER,
    **body: Any,
) -> None:
    """A live reply has ended."""
    events = upstream_events(text=text, reply_id=id)
    reply = sse(*events) + b"data: [DONE]\n\n" if streamed else json.dumps(events[-1]["response"]).encode()
    request = {"model": MODEL, "input": "Say something.", **body}
    store.store_live_reply(
        owner=owner,
        model=MODEL,
        request_id="test",
        request=json.dumps(request).encode(),
        reply=reply,
        streamed=streamed,
    )


async def run(store: ResponseStore, upstream: Upstream, **body: Any) -> str:
    """A background response that has completed."""
    id = await create(store, **body)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(text=f"answer to {id}", reply_id=f"{id}-upstream"))
    await play.end()
    await until(store, id, "completed")
    return id


# === live replies ===


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_live_reply_is_there_when_it_has_ended(store: ResponseStore, streamed: bool) -> None:
    store_reply(store, "resp_live", streamed=streamed)
    events = upstream_events(text="Hello", reply_id="resp_live")
    assert await shown(store, "resp_live") == events[-1]["response"]
    kept = await followed(store, "resp_live")
    assert numbers(kept) == list(range(len(kept)))
    assert kept[-1]["response"] == events[-1]["response"]
    if streamed:
        assert kept == events
    for n in range(-1, len(kept)):
        assert await followed(store, "resp_live", n) == kept[n + 1 :]


async def test_a_live_reply_is_found_through_another_worker_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.responses.store._MOMENT_SECONDS", 10)
    one, other = await start(None), await start(None)
    await create(other)
    looking = asyncio.ensure_future(shown(other, "resp_live"))
    store_reply(one, "resp_live")
    assert (await looking)["id"] == "resp_live"


async def test_a_live_reply_without_an_end_is_not_kept(store: ResponseStore) -> None:
    events = upstream_events(reply_id="resp_cut")[:-1]
    store.store_live_reply(
        owner=OWNER, model=MODEL, request_id="t", request=b'{"input":"x"}', reply=sse(*events), streamed=True
    )
    with pytest.raises(NotFound):
        await shown(store, "resp_cut")


async def test_cancelling_a_live_reply_changes_nothing(store: ResponseStore) -> None:
    store_reply(store, "resp_live")
    entry, _ = await store.cancel("resp_live", OWNER, store.hold(OWNER))
    assert (entry.background, entry.status) == (False, "completed")


# === conversations ===


async def test_a_chain_is_its_items_in_order(store: ResponseStore, upstream: Upstream) -> None:
    first = await run(store, upstream, input="one", instructions="Not inherited.")
    store_reply(store, "resp_second", previous_response_id=first, input=[{"role": "user", "content": "two"}])
    await shown(store, "resp_second")
    third = await run(store, upstream, previous_response_id="resp_second", input="three")
    context = json.loads(b"[%s]" % await context_of(store, third, OWNER))
    assert [item.get("content") if item.get("role") == "user" else item["type"] for item in context] == [
        "one",
        "message",
        "two",
        "message",
        "three",
        "message",
    ]
    assert context[1]["content"][0]["text"] == f"answer to {first}"
    assert "Not inherited." not in json.dumps(context)


async def test_a_chain_names_what_is_missing_deleted_or_running(
    store: ResponseStore, upstream: Upstream
) -> None:
    first = await run(store, upstream)
    second = await run(store, upstream, previous_response_id=first)
    running = await create(store, previous_response_id=second)
    with pytest.raises(NotFinished) as unfinished:
        await context_of(store, running, OWNER)
    assert unfinished.value.id == running
    await store.delete(first, OWNER)
    for id in (first, second):
        with pytest.raises(NotFound) as missing:
            await context_of(store, id, OWNER)
        assert missing.value.id == first


async def test_an_item_is_found_by_its_id(store: ResponseStore, upstream: Upstream) -> None:
    id = await run(
        store, upstream, input=[{"role": "user", "content": "x", "type": "message", "id": "msg_mine"}]
    )
    output = (await shown(store, id))["output"][0]
    found = await items_of(store, [output["id"], "msg_none", "msg_mine", "msg_mine", "\0"])
    assert found.keys() == {output["id"], "msg_mine"}
    assert json.loads(found[output["id"]]) == output
    assert json.loads(found["msg_mine"])["role"] == "user"
    assert await items_of(store, [output["id"]], "other") == {}
    await store.delete(id, OWNER)
    assert await items_of(store, [output["id"]]) == {}


async def test_an_item_is_its_owners_when_the_response_has_been_deleted(
    store: ResponseStore, upstream: Upstream
) -> None:
    """An upstream may still have it, and knows all callers by one account."""
    item = {"role": "user", "content": "x", "type": "message", "id": "msg_mine"}
    id = await run(store, upstream, input=[item])
    answer = (await shown(store, id))["output"][0]["id"]
    await store.delete(id, OWNER)
    for item_id in ("msg_mine", answer):
        assert await store.any_item_of_another([item_id], "other") == item_id
        assert await store.any_item_of_another([item_id], OWNER) is None
    await run(store, upstream, input=[{**item, "content": "again"}])
    assert json.loads((await items_of(store, ["msg_mine"]))["msg_mine"])["content"][0]["text"] == "again"


async def test_what_is_remembered_of_deleted_items_counts_and_goes(
    start: Start, settings: Callable[..., StoreConfig]
) -> None:
    """Or a caller that deletes what it makes would fill the disk with ids."""
    store = await start(None)
    items = [{"role": "user", "content": "x", "id": f"msg_{n}{'x' * 500}"} for n in range(50)]
    store_reply(store, "resp_1", input=items)
    await shown(store, "resp_1")
    await store.delete("resp_1", OWNER)
    kept = f"msg_7{'x' * 500}"
    assert await store.any_item_of_another([kept], "other") == kept
    assert await Upkeep(settings(max_bytes=60_000), store._database, nobody).tidy() == 0
    assert await Upkeep(settings(max_bytes=20_000), store._database, nobody).tidy() == 1
    assert await store.any_item_of_another([kept], "other") is None


async def test_what_was_written_is_not_kept_until_the_next_write(
    store: ResponseStore, upstream: Upstream
) -> None:
    id = await run(store, upstream)
    await until(store, id, "completed")
    async with asyncio.timeout(WAIT_SECONDS):
        while any(isinstance(one, Append | Begin) and one.id == id for one in gc.get_objects()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_items_are_looked_for_together(
    store: ResponseStore, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each response that has some is read once, and what is missing is waited for once."""
    ids = []
    for turn in range(2):
        items = [{"role": "user", "content": "x", "id": f"msg_{turn}_{n}"} for n in range(50)]
        ids.append(await run(store, upstream, input=[{**item, "type": "message"} for item in items]))
    read = Counter[str]()
    turns = store._repository.turns

    async def counted(ids: list[str], owner: str) -> list[Turn]:
        read.update(ids)
        return await turns(ids, owner)

    monkeypatch.setattr(store._repository, "turns", counted)
    wanted = [f"msg_{turn}_{n}" for turn in range(2) for n in range(500)]
    async with asyncio.timeout(WAIT_SECONDS):
        found = await items_of(store, wanted)
    assert found.keys() == {f"msg_{turn}_{n}" for turn in range(2) for n in range(50)}
    assert read == Counter(ids)


async def test_items_of_responses_that_are_too_large_are_refused(
    store: ResponseStore, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.responses.repository.MAX_CHAIN_BYTES", 10_000)
    item = {"role": "user", "content": "x" * 6_000, "type": "message"}
    for n in range(2):
        await run(store, upstream, input=[{**item, "id": f"msg_{n}"}])
    assert (await items_of(store, ["msg_0"])).keys() == {"msg_0"}
    with pytest.raises(TooLong):
        await items_of(store, ["msg_0", "msg_1"])


async def test_input_items_are_listed_in_pages(store: ResponseStore) -> None:
    id = await create(store, input=[{"role": "user", "content": str(n)} for n in range(5)])

    async def page(**asked: Any) -> Any:
        found = await store.input_items(id, OWNER, Page(**asked), store.hold(OWNER))
        return None if found is None else json.loads(found)

    whole = await page(order="asc", limit=100)
    assert [item["content"][0]["text"] for item in whole["data"]] == ["0", "1", "2", "3", "4"]
    assert len({item["id"] for item in whole["data"]}) == 5
    assert (await page())["data"] == whole["data"][::-1]
    first = await page(order="asc", limit=2)
    assert (first["has_more"], first["last_id"]) == (True, whole["data"][1]["id"])
    rest = await page(order="asc", after=first["last_id"], limit=3)
    assert (rest["data"], rest["has_more"]) == (whole["data"][2:], False)
    assert await page(after="msg_none") is None


# === bounds ===


async def test_what_has_expired_goes(start: Start, settings: Callable[..., StoreConfig]) -> None:
    store = await start(None)
    store_reply(store, "resp_old")
    running = await create(store)
    storing = set(store._storing)
    await asyncio.gather(*storing)
    async with store._database.transaction("test") as connection:
        await connection.exec_driver_sql("UPDATE responses SET expires_at = 1")
    assert await Upkeep(settings(), store._database, nobody).tidy() == 1
    with pytest.raises(NotFound):
        await shown(store, "resp_old")
    assert (await shown(store, running))["status"] == "queued"
    for table in ("response_events", "response_payloads", "response_items"):
        async with store._database.read("test") as connection:
            rows = await connection.exec_driver_sql(f"SELECT response_id FROM {table}")
            assert set(rows.scalars()) <= {running}


async def test_past_the_size_the_oldest_go(start: Start, settings: Callable[..., StoreConfig]) -> None:
    store = await start(None)
    for n in range(4):
        store_reply(store, f"resp_{n}", text="word " * 200)
        await shown(store, f"resp_{n}")
    async with store._database.read("test") as connection:
        size = (await connection.exec_driver_sql("SELECT sum(bytes) FROM responses")).scalar()
    assert size is not None
    assert await Upkeep(settings(max_bytes=int(size) // 2), store._database, nobody).tidy() == 2
    for n in (0, 1):
        with pytest.raises(NotFound):
            await shown(store, f"resp_{n}")
    assert (await shown(store, "resp_3"))["status"] == "completed"


def nobody(owner: str, count: int, size: int) -> None:
    """Whose responses go is nobody's business here."""


async def test_past_the_size_who_keeps_the_most_loses_the_oldest(
    start: Start, settings: Callable[..., StoreConfig]
) -> None:
    store = await start(None)
    ids = [("resp_quiet", "quiet"), *((f"resp_{n}", "busy") for n in range(9)), ("resp_other", "other")]
    for id, owner in ids:
        store_reply(store, id, owner=owner, text="word " * 200)
        await shown(store, id, owner)
    async with store._database.read("test") as connection:
        size = (await connection.exec_driver_sql("SELECT sum(bytes) FROM responses")).scalar()
    assert size is not None
    evicted: list[tuple[str, int, int]] = []
    each = int(size) // len(ids)
    upkeep = Upkeep(
        settings(max_bytes=5 * each + each // 2), store._database, lambda *told: evicted.append(told)
    )
    assert await upkeep.tidy() == 6
    [(owner, count, bytes)] = evicted
    assert (owner, count) == ("busy", 6)
    assert 5 * each < bytes < 7 * each
    for n in range(6):
        with pytest.raises(NotFound):
            await shown(store, f"resp_{n}", "busy")
    for id, owner in (("resp_quiet", "quiet"), ("resp_other", "other"), ("resp_8", "busy")):
        assert (await shown(store, id, owner))["status"] == "completed"
    assert await upkeep.tidy() == 0


async def test_what_all_keep_is_summed_up_once_for_all_that_lose_some(
    start: Start, settings: Callable[..., StoreConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum goes through all that is kept: once for each owner made it slower than what comes."""
    store = await start(None)
    owners = [f"owner-{n}" for n in range(12)]
    for owner in owners:
        for n in range(3):
            store_reply(store, f"resp_{owner}_{n}", owner=owner, text="word " * 200)
    for owner in owners:
        await shown(store, f"resp_{owner}_2", owner)
    async with store._database.read("test") as connection:
        size = (await connection.exec_driver_sql("SELECT sum(bytes) FROM responses")).scalar()
    assert size is not None
    sums = 0
    excess = Upkeep._excess

    async def counted(self: Upkeep) -> dict[str, int]:
        nonlocal sums
        sums += 1
        return await excess(self)

    monkeypatch.setattr(Upkeep, "_excess", counted)
    assert await Upkeep(settings(max_bytes=int(size) // 2), store._database, nobody).tidy() == 24
    assert sums == 2


@pytest.mark.parametrize(
    ("kept", "most", "found"),
    [
        ([], 10, 10),
        ([5], 10, 10),
        ([50], 10, 10),
        ([2, 50], 10, 8),
        ([4, 4, 50], 12, 4),
        ([6, 6, 50], 12, 4),
        ([1, 1, 50, 60], 12, 5),
    ],
)
def test_shares_of_what_is_kept(kept: list[int], most: int, found: int) -> None:
    assert share(kept, most) == found


# === the file ===


async def test_nothing_is_made_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "responses.db"
    async with worker(Upstream(), StoreConfig(path=str(path))) as store:
        with pytest.raises(NotFound):
            await store.response("resp_x", OWNER, store.hold(OWNER))
        assert not path.parent.exists()
        await create(store)
        assert path.exists()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_what_is_kept_is_there_after_a_restart(
    settings: Callable[..., StoreConfig], upstream: Upstream
) -> None:
    async with worker(upstream, settings()) as store:
        id = await run(store, upstream)
        before = await followed(store, id)
    async with worker(None, settings()) as store:
        assert await followed(store, id) == before
        assert (await shown(store, id))["status"] == "completed"


async def test_a_store_of_a_later_version_is_left_alone(settings: Callable[..., StoreConfig]) -> None:
    async with worker(None, settings()) as store:
        await create(store)
        async with store._database.transaction("test") as connection:
            newer = len(MIGRATIONS) + 1
            await connection.exec_driver_sql(f"INSERT INTO response_store_version VALUES ({newer})")
    async with worker(None, settings()) as store:
        with pytest.raises(StoreUnavailable, match=f"has version {len(MIGRATIONS) + 1}"):
            await create(store)


@pytest.mark.parametrize("content", [b"this is not a database " * 100, None])
async def test_a_file_that_is_no_database_is_said(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "responses.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    async with worker(None, StoreConfig(path=str(path))) as store:
        with pytest.raises(StoreUnavailable):
            await create(store)
        store_reply(store, "resp_live")


async def test_a_full_store_refuses_and_recovers(tmp_path: Path, upstream: Upstream) -> None:
    path = tmp_path / "responses.db"
    async with worker(upstream, StoreConfig(path=str(path))) as store:
        id = await create(store)
        play = await upstream.play()
        async with store._database.transaction("test") as connection:
            pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
            await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreUnavailable, match="full"):
            await create(store, input="x" * 100_000)
        await play.start()
        writing = asyncio.ensure_future(play.events(*upstream_events(tokens=300)))
        failed = asyncio.Event()
        store._database.on_failure = lambda operation, error: failed.set()
        await asyncio.wait_for(failed.wait(), 10)
        async with store._database.transaction("test") as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count=1000000")
        await writing
        await play.end()
        assert (await until(store, id, "completed", "failed"))["status"] == "completed"
        kept = await followed(store, id)
        assert numbers(kept) == list(range(len(kept)))
