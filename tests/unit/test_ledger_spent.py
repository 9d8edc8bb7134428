"""What was used, as limits count it: by the first of keys that go on for each other."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from sqlalchemy import insert

from sluicegate.config import StorageConfig
from sluicegate.ledger import Whose, open_database
from sluicegate.ledger.schema import first_id, ledger, usage_daily
from sluicegate.ledger.spent import Spent, spent, spent_by
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


@pytest.mark.parametrize("window", ["lately", "day"])
async def test_what_was_used_by_keys_that_replace_each_other_is_the_firsts(
    database: Database, window: str
) -> None:
    found = await spent(database, {"day": TODAY}, NOW, COUNTED_AS, users=False)
    assert by_key(found, window) == {"first": 111, "other": 1000}
    found = await spent(database, {"day": TODAY}, NOW, {}, users=False)
    assert by_key(found, window) == USED


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
        found = await spent(database, {"day": TODAY}, NOW, {}, users=False)
    finally:
        await database.close()
    assert {each.key_id: each.requests for each in found} == {"mostly served": 3, "in the background": 0}
