"""What was used, as limits count it: by the first of keys that go on for each other."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from sqlalchemy import insert

from sluicegate.config import StorageConfig
from sluicegate.ledger import Whose, open_database
from sluicegate.ledger.schema import first_id, ledger, usage_daily, usage_users
from sluicegate.ledger.spent import Spent, spent_by, spent_lately
from sluicegate.storage import Database

NOW = 1_795_348_800.0
TODAY = date(2026, 11, 22)
COUNTED_AS = {"second": "first", "third": "first"}
USED = {"first": 1, "second": 10, "third": 100, "other": 1000}
"""Tokens, by key."""


def sums(key: str, tokens: int) -> dict[str, Any]:
    names = [column.name for column in usage_daily.c if not column.primary_key and column.name != "caller"]
    row = {**dict.fromkeys(names, 0), "caller": "ann", "requests": 1, "input": tokens}
    return row | {"day": TODAY, "caller_id": "ann", "key_id": key, "team": "", "model": "m"}


def row(number: int, key: str, tokens: int) -> dict[str, Any]:
    made = {"id": f"{first_id(NOW)[:-1]}{number}", "run": 1, "background": False, "streamed": False}
    made |= {"started_at": int(NOW * 1e6), "day": TODAY, "client_left": False, "result": "ok"}
    made |= {"usage_source": "upstream", "caller_id": "ann", "key_id": key, "model": "m", "input": tokens}
    return made | {"attempts": 1, "gateway": "here", "version": "1", "status": 200}


@pytest.fixture
async def database(storage: StorageConfig) -> AsyncIterator[Database]:
    made = open_database(storage)
    keys = {column.name: "" for column in usage_daily.primary_key}
    async with made.transaction("fill") as connection:
        await connection.execute(insert(usage_daily), [{**keys, **sums(*each)} for each in USED.items()])
        await connection.execute(insert(ledger), [row(n, *each) for n, each in enumerate(USED.items())])
    yield made
    await made.close()


def by_key(found: list[Spent], window: str) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for each in found:
        if each.window == window:
            tokens[each.key_id] = tokens.get(each.key_id, 0) + each.tokens
    return tokens


async def test_what_was_used_by_keys_that_replace_each_other_is_the_firsts(database: Database) -> None:
    whose = Whose(callers={"ann"})
    found = await spent_by(database, {"day": TODAY}, whose, COUNTED_AS)
    assert by_key(found, "day") == {"first": 111, "other": 1000}
    found = await spent_by(database, {"day": TODAY}, whose, {})
    assert by_key(found, "day") == USED


async def test_of_the_last_hour_only_what_is_asked_for_is_told(database: Database) -> None:
    found = await spent_lately(database, Whose(keys={"first"}), NOW + 60, COUNTED_AS)
    assert by_key(found, "lately") == {"first": 111}
    found = await spent_lately(database, Whose(callers={"ann"}), NOW + 60, {})
    assert by_key(found, "lately") == USED
    assert await spent_lately(database, Whose(callers={"bob"}), NOW + 60, {}) == []
    assert await spent_lately(database, Whose(users={("ann", "")}), NOW + 60, {}) != []
    assert await spent_lately(database, Whose(callers={"ann"}), NOW + 3700, {}) == []


async def test_the_sums_of_users_are_found_by_name(storage: StorageConfig) -> None:
    lines = [
        {"day": date(2026, 11, day), "caller_id": caller, "user_id": user}
        | {"requests": 1, "input": 1, "output": 0, "cost": 0}
        for day in (1, 21, 22)
        for caller in ("ann", "")
        for user in ("ada", "bob")
    ]
    database = open_database(storage)
    try:
        async with database.transaction("fill") as connection:
            await connection.execute(insert(usage_users), lines)
        begins: Any = {"day": TODAY, "month": date(2026, 11, 1)}
        found = await spent_by(database, begins, Whose(users={("ann", "ada"), ("", "bob")}), {})
    finally:
        await database.close()
    assert {(each.window, each.caller_id, each.user_id): each.tokens for each in found} == {
        ("day", "ann", "ada"): 1,
        ("day", "", "bob"): 1,
        ("month", "ann", "ada"): 3,
        ("month", "", "bob"): 3,
    }


async def test_the_sums_of_a_key_are_asked_for_with_those_of_the_keys_that_went_on_for_it(
    database: Database,
) -> None:
    found = await spent_by(database, {"day": TODAY}, Whose(keys={"first"}), COUNTED_AS)
    assert by_key(found, "day") == {"first": 111}


async def test_what_failed_counts_as_no_request_of_a_day(storage: StorageConfig) -> None:
    keys = {column.name: "" for column in usage_daily.primary_key}
    lines = [
        {**keys, **sums("mostly served", 1), "requests": 5, "failed": 2},
        # One request, of which three runs have failed.
        {**keys, **sums("in the background", 1), "failed": 3},
    ]
    database = open_database(storage)
    try:
        async with database.transaction("fill") as connection:
            await connection.execute(insert(usage_daily), lines)
        found = await spent_by(database, {"day": TODAY}, Whose(callers={"ann"}), {})
    finally:
        await database.close()
    assert {each.key_id: each.requests for each in found} == {"mostly served": 3, "in the background": 0}
