"""Callers and keys in a database, SQLite and PostgreSQL: making, changing and ending them, and the audit."""

import asyncio
import hashlib
import json
import re
import stat
import time
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from sluicegate.config import Config, LimitSet, StorageConfig, load_data
from sluicegate.errors import ConfigurationError
from sluicegate.identity import (
    Conflict,
    InvalidFields,
    NoSuchCaller,
    NoSuchKey,
    audited,
    change_caller,
    create_caller,
    create_key,
    find_caller,
    find_key,
    is_key,
    list_callers,
    list_keys,
    open_callers,
    revoke_key,
    rotate_key,
)
from sluicegate.identity.schema import callers, keys, state
from sluicegate.identity.secret import new_key
from sluicegate.storage import Database, Unstorable

ME = "os:ada"


def configured(**more: Any) -> Config:
    data: dict[str, Any] = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local"},
        "limits": {"standard": {"requests": "600/minute"}},
        "teams": {"blue": {}},
        "callers": [{"name": "search", "id": "s-1", "limits": "standard"}],
        "keys": [{"name": "search", "key": "sk-1"}, {"name": "batch", "key": "sk-2"}],
    }
    return load_data(data | more, {})


CONFIG = configured()


@pytest.fixture
async def database(storage: StorageConfig) -> AsyncIterator[Database]:
    made = open_callers(storage)
    yield made
    await made.close()


# === keys themselves ===


def test_a_key_has_the_form_that_scanners_know() -> None:
    made = [new_key() for _ in range(200)]
    for key in made:
        assert re.fullmatch(r"sg-[0-9A-Za-z]{12}-[0-9A-Za-z]{49}", key.text)
        assert key.text[3:15] == key.id
        assert key.text[-4:] == key.last_four
        assert key.digest == hashlib.sha256(key.text.encode()).digest()
        assert is_key(key.text)
    assert len({key.text for key in made}) == len({key.id for key in made}) == 200


def test_the_checksum_is_crc_32_in_62_digits() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for _ in range(50):
        key = new_key().text
        number = 0
        for digit in key[-6:]:
            number = number * 62 + digits.index(digit)
        assert number == zlib.crc32(key[:-6].encode())


@pytest.mark.parametrize("place", range(65))
def test_a_key_with_a_slip_in_it_is_none(place: int) -> None:
    key = new_key().text
    wrong = "a" if key[place] != "a" else "b"
    assert not is_key(key[:place] + wrong + key[place + 1 :])


# === callers ===


async def test_a_caller_has_an_id_that_stays_and_a_name_that_may_change(database: Database) -> None:
    made = await create_caller(database, CONFIG, {"name": "lab", "team": "blue"}, ME)
    assert re.fullmatch(r"cal_[0-9A-Za-z]{16}", made.id)
    assert await find_caller(database, CONFIG, "lab") == made
    changed = await change_caller(database, CONFIG, "lab", {"name": "labs", "models": ["m*"]}, ME)
    assert changed.id == made.id
    assert changed.fields.team == "blue"
    assert await find_caller(database, CONFIG, made.id) == changed
    with pytest.raises(NoSuchCaller):
        await find_caller(database, CONFIG, "lab")


async def test_limits_are_a_name_or_its_own(database: Database) -> None:
    await create_caller(database, CONFIG, {"name": "named", "limits": "standard"}, ME)
    own = {
        "tokens": ["400k/minute", "20M/day"],
        "cost": "0.25/day",
        "concurrent": 3,
        "models": {"m": {"requests": "999999999999999/month"}},
        "reserve": "maximum",
    }
    await create_caller(database, CONFIG, {"name": "own", "limits": own}, ME)
    found = {caller.name: caller.fields.limits for caller in await list_callers(database, CONFIG)}
    assert found == {"search": "standard", "named": "standard", "own": LimitSet.model_validate(own)}
    cleared = await change_caller(database, CONFIG, "own", {"limits": None}, ME)
    assert cleared.fields.limits is None
    assert await find_caller(database, CONFIG, "own") == cleared


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"name": "x", "limits": "gold"}, "no `gold`"),
        ({"name": "x", "team": "red"}, "no `red`"),
        ({"name": "x", "limits": {"requests": "many"}}, "not an amount"),
        ({"name": "x", "models": ["a*b"]}, "not its end"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": "x", "key": "sk-1"}, "key"),
        ({"name": "x", "models": ["m"] * 257}, "models"),
        ({"name": "cal_x"}, "taken for ids"),
    ],
)
async def test_what_is_not_valid_is_said(database: Database, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidFields, match=said):
        await create_caller(database, CONFIG, data, ME)
    assert [caller.name for caller in await list_callers(database, CONFIG)] == ["search"]
    assert await audited(database) == []


@pytest.mark.parametrize("name", ["search", "s-1", "batch", "lab"])
async def test_a_name_is_taken_once(database: Database, name: str) -> None:
    await create_caller(database, CONFIG, {"name": "lab"}, ME)
    other = await create_caller(database, CONFIG, {"name": "other"}, ME)
    with pytest.raises(Conflict):
        await create_caller(database, CONFIG, {"name": name}, ME)
    with pytest.raises(Conflict):
        await change_caller(database, CONFIG, other.id, {"name": name}, ME)


async def test_a_caller_of_the_configuration_is_listed_and_not_changed(database: Database) -> None:
    [caller] = await list_callers(database, CONFIG)
    assert (caller.id, caller.name, caller.source, caller.created) == ("s-1", "search", "configuration", None)
    with pytest.raises(Conflict, match="configuration"):
        await change_caller(database, CONFIG, "search", {"disabled": True}, ME)


async def test_a_name_that_two_have_must_be_an_id(database: Database) -> None:
    made = await create_caller(database, configured(), {"name": "lab"}, ME)
    later = configured(callers=[{"name": "lab", "id": "l-1"}], limits={})
    with pytest.raises(Conflict, match=made.id):
        await find_caller(database, later, "lab")
    assert (await find_caller(database, later, made.id)).source == "database"
    assert (await find_caller(database, later, "l-1")).source == "configuration"


async def test_a_caller_whose_limits_are_gone_can_still_be_disabled(database: Database) -> None:
    await create_caller(database, CONFIG, {"name": "lab", "limits": "standard", "team": "blue"}, ME)
    bare = configured(limits={}, teams={}, callers=[])
    changed = await change_caller(database, bare, "lab", {"disabled": True}, ME)
    assert (changed.fields.disabled, changed.fields.limits) == (True, "standard")
    assert await find_caller(database, bare, "lab") == changed


@pytest.mark.parametrize(
    "more",
    [
        {"callers": [{"name": "a", "id": "cal_1"}]},
        {"callers": [{"name": "cal_1"}]},
        {"callers": [], "keys": [{"name": "a", "key": "sk-1", "id": "cal_1"}]},
    ],
)
def test_the_configuration_may_not_use_such_ids(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="made by the gateway"):
        configured(**more, limits={})


# === keys ===


async def test_a_key_is_told_once_and_only_its_digest_is_kept(database: Database) -> None:
    caller = await create_caller(database, CONFIG, {"name": "lab"}, ME)
    data = {"name": "ci", "models": ["m"], "expires": "2099-01-31"}
    key, text = await create_key(database, CONFIG, "lab", data, ME)
    assert key.caller_id == caller.id
    assert key.digest == hashlib.sha256(text.encode()).digest()
    assert key.fields.expires == datetime(2099, 1, 31, tzinfo=UTC)
    assert await find_key(database, key.id) == key
    assert [found.id for found in await list_keys(database, CONFIG, "lab")] == [key.id]
    secret = text[16:]
    for table in (callers, keys):
        async with database.read("test") as connection:
            rows = (await connection.execute(select(table))).all()
        assert secret not in repr(rows)
    assert secret not in repr(await audited(database)) + repr(key) + json.dumps(key.as_data(time.time()))
    assert repr(key.digest) not in repr(key)


async def test_a_key_may_belong_to_a_caller_of_the_configuration(database: Database) -> None:
    key, _ = await create_key(database, CONFIG, "search", {}, ME)
    assert key.caller_id == "s-1"
    assert await list_keys(database, CONFIG, "s-1") == [key]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"expires": "2001-01-01"}, "over already"),
        ({"expires": "soon"}, "not a day"),
        ({"limits": "gold"}, "no `gold`"),
        ({"name": "x" * 129}, "name"),
        ({"disabled": True}, "disabled"),
    ],
)
async def test_a_key_that_is_not_valid_is_not_made(database: Database, data: Any, said: str) -> None:
    with pytest.raises(InvalidFields, match=said):
        await create_key(database, CONFIG, "search", data, ME)
    assert await list_keys(database, CONFIG) == []


async def test_rotating_makes_a_second_key_and_bounds_the_first(database: Database) -> None:
    data = {"name": "ci", "models": ["m"], "limits": "standard"}
    first, text = await create_key(database, CONFIG, "search", data, ME)
    made, old = await rotate_key(database, first.id, ME, overlap=3600)
    assert made.text != text
    assert made.key.fields == first.fields
    assert (made.key.replaces, made.key.expires) == (first.id, None)
    assert old == await find_key(database, first.id)
    assert old.expires is not None
    assert abs(old.expires / 1e6 - time.time() - 3600) < 60
    assert (old.state(time.time()), old.state(time.time() + 3700)) == ("active", "expired")


async def test_a_rotated_key_lasts_as_long_as_the_first_was_made_for(database: Database) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    first, _ = await create_key(database, CONFIG, "search", {"expires": ends}, ME)
    made, old = await rotate_key(database, first.id, ME)
    assert old.expires == first.expires
    assert made.key.expires is not None
    assert first.expires is not None
    assert made.key.expires - made.key.created == first.expires - first.created
    made, _ = await rotate_key(database, made.key.id, ME, expires=datetime(2099, 1, 1, tzinfo=UTC))
    assert made.key.fields.expires == datetime(2099, 1, 1, tzinfo=UTC)


async def test_a_key_that_has_ended_is_not_rotated(database: Database) -> None:
    first, _ = await create_key(database, CONFIG, "search", {}, ME)
    await rotate_key(database, first.id, ME, overlap=0)
    with pytest.raises(Conflict, match="expired"):
        await rotate_key(database, first.id, ME)
    second, _ = await create_key(database, CONFIG, "search", {}, ME)
    revoked = await revoke_key(database, second.id, ME)
    assert revoked.state(time.time()) == "revoked"
    with pytest.raises(Conflict, match="revoked"):
        await rotate_key(database, second.id, ME)
    assert await revoke_key(database, second.id, ME) == revoked
    for id in ("", "x" * 12):
        with pytest.raises(NoSuchKey):
            await revoke_key(database, id, ME)


async def test_each_change_is_in_the_audit(database: Database) -> None:
    before = int(time.time() * 1e6)
    caller = await create_caller(database, CONFIG, {"name": "lab", "models": ["m"]}, ME)
    await change_caller(database, CONFIG, "lab", {"models": None, "disabled": True}, "token:deploy")
    await change_caller(database, CONFIG, "lab", {"disabled": True}, ME)
    key, _ = await create_key(database, CONFIG, "lab", {"name": "ci"}, ME)
    (new, _), _ = await rotate_key(database, key.id, ME)
    await revoke_key(database, key.id, ME)
    await revoke_key(database, key.id, ME)
    found = await audited(database)
    assert [(entry.action, entry.subject, entry.actor) for entry in reversed(found)] == [
        ("caller.create", caller.id, ME),
        ("caller.change", caller.id, "token:deploy"),
        ("key.create", key.id, ME),
        ("key.rotate", key.id, ME),
        ("key.revoke", key.id, ME),
    ]
    assert all(before <= entry.at <= time.time() * 1e6 for entry in found)
    changed = found[3].change
    assert changed == {
        "from": {"models": ["m"], "disabled": False},
        "to": {"models": None, "disabled": True},
    }
    assert found[1].change["new"] == new.id
    assert await audited(database, subject=key.id, limit=1) == found[:1]
    assert await audited(database, subject=key.id, before=found[0].id) == found[1:3]


async def test_changes_that_run_at_once_come_one_after_the_other(database: Database) -> None:
    made = [create_caller(database, CONFIG, {"name": f"c{number % 10}"}, ME) for number in range(20)]
    results = await asyncio.gather(*made, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 10
    async with database.read("test") as connection:
        numbers = (await connection.execute(select(callers.c.changed))).scalars().all()
        version = await connection.scalar(select(state.c.version))
    assert len(set(numbers)) == 10
    assert version == max(numbers) == 10


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    database = open_callers(StorageConfig(directory=str(tmp_path)))
    assert [caller.id for caller in await list_callers(database, CONFIG)] == ["s-1"]
    assert await list_keys(database, CONFIG) == []
    with pytest.raises(NoSuchKey):
        await find_key(database, "x")
    assert not (tmp_path / "callers.db").exists(), "reading makes nothing"
    await create_key(database, CONFIG, "search", {}, ME)
    files = await asyncio.to_thread(lambda: list(tmp_path.glob("callers.db*")))
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    await database.close()


async def test_a_public_id_is_there_once(database: Database) -> None:
    key, _ = await create_key(database, CONFIG, "search", {}, ME)
    async with database.read("test") as connection:
        row = dict((await connection.execute(select(keys))).mappings().one())
        count = await connection.scalar(select(func.count()).select_from(keys))
    assert (row["id"], count) == (key.id, 1)
    for other in ({"digest": b"x" * 32}, {"id": "y" * 12}):
        with pytest.raises(Unstorable):
            async with database.transaction("test") as connection:
                await connection.execute(insert(keys).values({**row, **other}))
