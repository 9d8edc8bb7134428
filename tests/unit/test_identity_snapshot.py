"""What a gateway knows of the database: changes since it looked last, and the copy for a start without it."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from sluicegate.config import Config, StorageConfig, load_data
from sluicegate.identity import (
    NOTHING,
    change_caller,
    create_caller,
    create_key,
    open_callers,
    revoke_key,
    rotate_key,
)
from sluicegate.identity.place import open_copy
from sluicegate.identity.schema import callers, keys, state
from sluicegate.identity.snapshot import Snapshot, copy, newer
from sluicegate.storage import Database

ME = "os:ada"
CONFIG: Config = load_data(
    {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local"},
        "callers": [{"name": "search"}],
        "access": "keys",
    },
    {},
)


@pytest.fixture
async def database(storage: StorageConfig) -> AsyncIterator[Database]:
    made = open_callers(storage)
    yield made
    await made.close()


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Database]:
    url = SecretStr("postgresql://user:secret@db.example:5432/gateway")
    found = open_copy(StorageConfig(directory=str(tmp_path / "machine"), database=url))
    assert found is not None
    yield found
    await found.close()


def told(found: Snapshot) -> tuple[dict[str, str], dict[str, float | None]]:
    """The callers' names and the keys' ends, by their ids. All of them are known by their digests, too."""
    assert {key.id: key for key in found.digests.values()} == dict(found.keys)
    assert all(key.digest == digest for digest, key in found.digests.items())
    counts = Counter(caller.terms for caller in found.callers.values())
    counts.update(key.terms for key in found.keys.values())
    assert counts == dict(found.terms)
    names = {id: caller.name for id, caller in found.callers.items()}
    return names, {id: key.expires for id, key in found.keys.items()}


async def test_only_what_has_changed_is_read_again(database: Database) -> None:
    lab = await create_caller(database, CONFIG, {"name": "lab"}, ME)
    first, _ = await create_key(database, CONFIG, "lab", {"name": "a"}, ME)
    second, _ = await create_key(database, CONFIG, "search", {"name": "b"}, ME)
    known = await newer(database, NOTHING)
    assert told(known) == ({lab.id: "lab"}, {first.id: None, second.id: None})
    assert await newer(database, known) is known
    await revoke_key(database, first.id, ME)
    await change_caller(database, CONFIG, "lab", {"name": "labs"}, ME)
    (third, _), old = await rotate_key(database, second.id, ME)
    found = await newer(database, known)
    assert found.version == known.version + 3
    assert old.expires is not None
    assert told(found) == ({lab.id: "labs"}, {second.id: old.expires / 1e6, third.id: None})
    assert told(known) == ({lab.id: "lab"}, {first.id: None, second.id: None}), "it is never changed"
    assert await newer(database, NOTHING) == found


async def test_very_many_are_read_a_page_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.identity.snapshot._ROWS_READ", 2)
    made = [(await create_key(database, CONFIG, "search", {}, ME)).key.id for _ in range(5)]
    async with database.transaction("in one change") as connection:
        await connection.execute(update(keys).where(keys.c.id.in_(made[1:])).values(changed=3))
    assert (await newer(database, NOTHING)).keys.keys() == {*made}


async def test_keys_of_which_the_same_is_said_share_it(database: Database) -> None:
    limits = {"requests": "5/minute"}
    for fields in ({}, {}, {"limits": limits}, {"limits": limits}):
        await create_key(database, CONFIG, "search", fields, ME)
    found = await newer(database, NOTHING)
    assert sorted(found.terms.values()) == [2, 2]


async def test_a_key_goes_on_for_the_first_of_those_that_it_replaces(database: Database) -> None:
    first, _ = await create_key(database, CONFIG, "search", {}, ME)
    (second, _), _ = await rotate_key(database, first.id, ME)
    (third, _), _ = await rotate_key(database, second.id, ME)
    known = await newer(database, NOTHING)
    assert {key.counted_as for key in known.keys.values()} == {first.id}
    assert known.counted_as == {second.id: first.id, third.id: first.id}
    await revoke_key(database, second.id, ME)
    for found in (await newer(database, known), await newer(database, NOTHING)):
        assert found.keys.keys() == {first.id, third.id}
        assert found.counted_as == {second.id: first.id, third.id: first.id}, "what it used counts on"


async def test_a_database_of_an_earlier_time_is_read_anew(database: Database) -> None:
    first, _ = await create_key(database, CONFIG, "search", {}, ME)
    await create_key(database, CONFIG, "search", {}, ME)
    known = await newer(database, NOTHING)
    async with database.transaction("restore") as connection:
        await connection.execute(update(state).values(version=1))
        await connection.execute(keys.delete().where(keys.c.id != first.id))
    assert told(await newer(database, known)) == ({}, {first.id: None})
    async with database.transaction("another") as connection:
        await connection.execute(update(state).values(store="another", version=99))
        await connection.execute(keys.delete())
    assert told(await newer(database, known)) == ({}, {})


@pytest.mark.parametrize(
    ("table", "values"),
    [
        (keys, {"models": "[1"}),
        (keys, {"limits": '{"requests": "many"}'}),
        (keys, {"expires": 2**62}),
        (callers, {"limits": "[]"}),
        (callers, {"models": "7"}),
    ],
)
async def test_a_row_that_cannot_be_read_ends_and_harms_no_other(
    database: Database, table: Any, values: dict[str, Any]
) -> None:
    made = {}
    for name in ("a", "b"):
        caller = await create_caller(database, CONFIG, {"name": name}, ME)
        key, _ = await create_key(database, CONFIG, name, {}, ME)
        made[name] = {callers: caller.id, keys: key.id}
    known = await newer(database, NOTHING)
    wrong = made["a"][table]
    async with database.transaction("by hand") as connection:
        await connection.execute(update(table).where(table.c.id == wrong).values(**values, changed=99))
        await connection.execute(update(state).values(version=99))
    found = await newer(database, known)
    assert found.unreadable == (wrong,)
    rows = found.keys if table is keys else found.callers
    assert wrong not in rows
    assert made["b"][table] in rows


async def test_a_copy_is_what_the_database_is(database: Database, target: Database) -> None:
    one = await create_caller(database, CONFIG, {"name": "one", "limits": {"cost": "1/day"}}, ME)
    await create_caller(database, CONFIG, {"name": "two"}, ME)
    first, text = await create_key(database, CONFIG, "one", {"models": ["m"], "expires": "2099-01-01"}, ME)
    second, _ = await create_key(database, CONFIG, "two", {}, ME)
    await copy(database, target, 30)
    assert await newer(target, NOTHING) == await newer(database, NOTHING)
    # Names change hands: none may be in the way of another.
    await change_caller(database, CONFIG, "two", {"name": "three"}, ME)
    await change_caller(database, CONFIG, "one", {"name": "two"}, ME)
    await create_caller(database, CONFIG, {"name": "one"}, ME)
    await revoke_key(database, second.id, ME)
    await copy(database, target, 30)
    found = await newer(target, NOTHING)
    assert found == await newer(database, NOTHING)
    assert set(found.keys) == {first.id}
    assert found.callers[one.id].name == "two"
    assert target.path is not None
    assert target.path.stat().st_mode & 0o777 == 0o600
    assert text.encode() not in target.path.read_bytes()


async def test_the_copy_of_another_database_is_replaced(database: Database, target: Database) -> None:
    await create_key(database, CONFIG, "search", {}, ME)
    await copy(database, target, 30)
    async with database.transaction("another") as connection:
        await connection.execute(keys.delete())
        await connection.execute(update(state).values(store="another", version=50))
    await copy(database, target, 30)
    assert await newer(target, NOTHING) == await newer(database, NOTHING)


def test_a_copy_belongs_to_one_server_and_its_name_has_no_password(tmp_path: Path) -> None:
    def name(url: str) -> str:
        found = open_copy(StorageConfig(directory=str(tmp_path), database=SecretStr(url)))
        assert found is not None
        assert found.path is not None
        return found.path.name

    one = name("postgresql://user:secret@db.example:5432/gateway")
    assert name("postgresql://other:changed@db.example:5432/gateway") == one
    assert len({one, name("postgresql://db.example/x"), name("postgresql://db2.example:5432/gateway")}) == 3
    assert "secret" not in one
    assert open_copy(StorageConfig(directory=str(tmp_path))) is None


async def test_many_keys_are_followed_at_the_cost_of_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_callers(StorageConfig(directory=str(tmp_path)))
    key, _ = await create_key(database, CONFIG, "search", {}, ME)
    async with database.transaction("many") as connection:
        row = dict((await connection.execute(keys.select())).mappings().one())
        rows = [{**row, "id": f"{n:012}", "digest": n.to_bytes(32, "big")} for n in range(20_000)]
        await connection.execute(keys.insert(), rows)
    known = await newer(database, NOTHING)
    assert len(known.keys) == 20_001
    await revoke_key(database, key.id, ME)
    read: list[str] = []
    monkeypatch.setattr("sluicegate.identity.snapshot.key_known", lambda row: read.append(row.id))
    (made, _), _ = await rotate_key(database, f"{7:012}", ME)
    found = await newer(database, known)
    assert sorted(read) == sorted([made.id, f"{7:012}"])
    assert len(found.keys) == 19_999
    await database.close()
