"""Checking that rows cost what their prices say, and that the sums by day are those of their rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from sqlalchemy import Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.ledger.schema import COSTS, KEYS, SUMS, TOKENS, ledger, prices_used, usage_daily, usage_users
from sluicegate.storage import Database

# Rows read at a time.
_AT_ONCE = 5000

_Sums = dict[tuple[Any, ...], dict[str, Any]]

Charge = Callable[[Mapping[str, Any]], Sequence[int] | None]
"""What the tokens of a row cost, in the order of `COSTS`; None where that is not known."""


async def verify(database: Database, price: Callable[[str], Charge]) -> list[str]:
    """What does not agree, in words; nothing where all does. `price`: how rates, as `prices_used` has them,
    charge a row. Raises `StoreUnavailable`.

    The oldest day may have lost rows by age, so it is left out, as are the days before it. Each day is looked
    at in one transaction: a gateway may go on writing.
    """
    async with database.read("verify") as connection:
        first, last = (await connection.execute(select(func.min(ledger.c.day), func.max(ledger.c.day)))).one()
        kept = (await connection.execute(select(func.min(usage_daily.c.day)))).scalar()
    if first is None:
        return []
    async with database.read("verify") as connection:
        found = await connection.execute(select(prices_used.c.price_id, prices_used.c.rates))
        charges = {id: price(rates) for id, rates in found}
    # Rows of the oldest day that has any may be gone already, unless nothing is older than that.
    day = first if kept == first else first + timedelta(days=1)
    wrong: list[str] = []
    while day <= last:
        async with database.transaction("verify") as connection:
            wrong += await _verify_day(connection, day, charges)
        day += timedelta(days=1)
    return wrong


async def _verify_day(connection: AsyncConnection, day: date, charges: Mapping[str, Charge]) -> list[str]:
    rows: list[Any] = []
    before = ""
    wrong: list[str] = []
    dear = _Mischarged(charges)
    found: list[tuple[Table, _Sums]] = [(usage_daily, {}), (usage_users, {})]
    while True:
        query = select(ledger).where(ledger.c.day == day, ledger.c.id > before).order_by(ledger.c.id)
        rows = list((await connection.execute(query.limit(_AT_ONCE))).mappings())
        dear.look_at(rows)
        _merge(found[0][1], _by_day(rows))
        _merge(found[1][1], _by_user(rows))
        if len(rows) < _AT_ONCE:
            break
        before = rows[-1]["id"]
    wrong += dear.said(day)
    for table, made in found:
        keys = [column.name for column in table.primary_key]
        kept: _Sums = {
            tuple(line[name] for name in keys): dict(line)
            for line in (await connection.execute(select(table).where(table.c.day == day))).mappings()
        }
        for key in _ordered({*kept, *made}):
            names = [column.name for column in table.c if column.name not in keys and column.name != "caller"]
            for name in names:
                said, true = kept.get(key, {}).get(name, 0), made.get(key, {}).get(name, 0)
                if said != true:
                    about = ", ".join(str(part) for part in key if part)
                    wrong.append(f"{table.name}: {about}: {name} is {said}, its rows have {true}")
    return wrong


class _Mischarged:
    """Rows of a day that do not cost what their price says."""

    def __init__(self, charges: Mapping[str, Charge]) -> None:
        self._charges = charges
        self._wrong: dict[str, list[str]] = {}

    def look_at(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            id = row["price_id"]
            if id is None:
                continue
            charge = self._charges.get(id)
            costs = None if charge is None else charge(row)
            if charge is None or tuple(row[name] for name in COSTS) != tuple(costs or (None,) * len(COSTS)):
                self._wrong.setdefault(id, []).append(row["id"])

    def said(self, day: date) -> Iterator[str]:
        for id, rows in sorted(self._wrong.items()):
            said = "do not cost what it says" if id in self._charges else "name it, and prices_used has none"
            yield f"ledger: {day}, price {id}: {len(rows)} rows {said}, the first is {rows[0]}"


# The core adds up what is shipped. Here it is done again: a check by the same code would check nothing.


def _by_day(rows: Iterable[Mapping[str, Any]]) -> _Sums:
    """The rows of `usage_daily` for these rows of the ledger, by their keys."""
    sums: _Sums = {}
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


def _by_user(rows: Iterable[Mapping[str, Any]]) -> _Sums:
    """The rows of `usage_users` for these rows of the ledger, by their keys."""
    sums: _Sums = {}
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


def _ordered(keys: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(keys, key=str)


def _merge(into: _Sums, more: _Sums) -> None:
    for key, line in more.items():
        known = into.setdefault(key, line)
        if known is not line:
            for name, value in line.items():
                if isinstance(value, int):
                    known[name] += value
