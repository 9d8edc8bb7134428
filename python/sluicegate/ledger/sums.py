"""Sums of rows: made where rows are added, and made again where they are checked."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Insert, Table, case
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.ledger.schema import KEYS, SUMS, TOKENS, usage_daily, usage_users

# A sum that would not fit stays at this: what an upstream makes up must not keep other rows from being added.
_MOST = 2**62

Sums = dict[tuple[Any, ...], dict[str, Any]]


def by_day(rows: Iterable[Mapping[str, Any]]) -> Sums:
    """The rows of `usage_daily` for these rows of the ledger, by their keys."""
    sums: Sums = {}
    for row in rows:
        key = (row["day"], *(row[name] or "" for name in KEYS[1:]))
        line = sums.get(key)
        if line is None:
            line = sums[key] = dict.fromkeys(SUMS, 0)
            line.update(zip(KEYS, key, strict=True))
        line["caller"] = row["caller"]
        result = row["result"]
        used = row["usage_source"] != "none"
        line["requests"] += row["run"] == 1
        line["failed"] += result == "failed"
        line["client_left"] += result == "client_left"
        line["interrupted"] += result == "interrupted"
        line["estimated"] += row["usage_source"] == "estimated"
        line["unpriced"] += used and row["cost"] is None
        for name in (*TOKENS, "cost"):
            line[name] += row[name] or 0
    return sums


def by_user(rows: Iterable[Mapping[str, Any]]) -> Sums:
    """The rows of `usage_users` for these rows of the ledger, by their keys."""
    sums: Sums = {}
    for row in rows:
        if not row["user_id"]:
            continue
        key = (row["day"], row["caller_id"] or "", row["user_id"])
        line = sums.get(key)
        if line is None:
            line = sums[key] = {"requests": 0, "input": 0, "output": 0, "cost": 0}
            line.update(zip(("day", "caller_id", "user_id"), key, strict=True))
        line["requests"] += row["run"] == 1
        for name in ("input", "output", "cost"):
            line[name] += row[name] or 0
    return sums


def insert_into(dialect: str, table: Table) -> Any:
    """An INSERT that may say what to do about rows that are there."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


# Made once: SQLAlchemy keeps with a statement what it takes to find its compiled form again.
@cache
def _adding(dialect: str, table: Table) -> Insert:
    insert = insert_into(dialect, table)
    added = {}
    for column in table.c:
        if not column.primary_key:
            new = insert.excluded[column.name]
            added[column.name] = new
            if column.name != "caller":
                added[column.name] = case((column > _MOST - new, _MOST), else_=column + new)
    statement: Insert = insert.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key], set_=added
    )
    return statement


async def add(connection: AsyncConnection, rows: list[Mapping[str, Any]]) -> None:
    """Add these rows, which are new, to the sums."""
    for table, sums in ((usage_daily, by_day(rows)), (usage_users, by_user(rows))):
        if sums:
            # In one order for all processes: none waits for another in a circle.
            lines = [sums[key] for key in sorted(sums)]
            for line in lines:
                for name, value in line.items():
                    if isinstance(value, int):
                        line[name] = min(value, _MOST)
            await connection.execute(_adding(connection.dialect.name, table), lines)
