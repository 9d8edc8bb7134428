"""What a store of the first version has for owners: names of keys."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from harness.stored_stand import Upstream, create, items_of, shown, until, upstream_events
from sluicegate.config import StoreConfig
from sluicegate.responses import NotFound, ResponseStore
from sluicegate.responses.schema import items, responses, versions
from sluicegate.telemetry import Log, Metrics

OWNERS = {"team": "id:a", "second": "id:a", "other": "key:0123", "id:a": "key:4567"}
ITEM = {"type": "message", "id": "msg_mine", "role": "user", "content": "x"}


@pytest.fixture
async def first_version(start: Callable[..., Any], upstream: Upstream) -> dict[str, str]:
    """A store as the first version left it: the ids of its responses, by owner."""
    store = await start(upstream)
    ids = {}
    for owner in ("", "gone", *OWNERS):
        id = ids[owner] = await create(store, owner=owner, input=[ITEM])
        play = await upstream.play()
        await play.start()
        await play.events(*upstream_events())
        await play.end()
        await until(store, id, "completed", owner=owner)
    async with store._database.transaction("test") as connection:
        await connection.execute(versions.delete().where(versions.c.version > 1))
        for column in ("key_id", "user_id"):
            await connection.execute(text(f"ALTER TABLE responses DROP COLUMN {column}"))
    await store.close()
    return ids


async def test_a_name_is_who_has_it_at_the_migration(
    first_version: dict[str, str], settings: Callable[..., StoreConfig]
) -> None:
    ids = first_version
    log = Log(2, level="error")
    store = ResponseStore(settings(), [], Metrics().stored, log, owners=OWNERS)
    try:
        for name, owner in {"": "", **OWNERS}.items():
            assert (await shown(store, ids[name], owner))["status"] == "completed"
            assert json.loads((await items_of(store, ["msg_mine"], owner))["msg_mine"]) == {
                **ITEM,
                "content": [{"type": "input_text", "text": "x"}],
                "status": "completed",
            }
        for name in ("team", "second", "other", "gone"):
            for id in ids.values():
                with pytest.raises(NotFound):
                    await store._repository.stored(id, name)
        with pytest.raises(NotFound):
            await store._repository.stored(ids["id:a"], "id:a")
    finally:
        await store.close()
    # Whoever gets a name later has nothing of what was there.
    later = ResponseStore(settings(), [], Metrics().stored, log, owners={"gone": "id:new", "team": "id:new"})
    try:
        async with later._database.read("test") as connection:
            for table in (responses, items):
                owners = (await connection.execute(table.select().with_only_columns(table.c.owner))).scalars()
                assert set(owners) == {"", "id:a", "key:0123", "key:4567", "name:gone"}
    finally:
        await later.close()
        log.close()
