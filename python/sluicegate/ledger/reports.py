"""What was used, by caller, model, day and so on: of the sums by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Table, func, select

from sluicegate.ledger.schema import PICO, SUMS, usage_daily, usage_users
from sluicegate.storage import Database

GROUPS = {
    "day": "day",
    "caller": "caller_id",
    "key": "key_id",
    "team": "team",
    "user": "user_id",
    "model": "model",
    "upstream": "upstream",
}
"""What a report may be grouped by, and the column that says so."""

_OF_USERS = frozenset({"day", "caller", "user"})


@dataclass(frozen=True, slots=True)
class Period:
    """Days, both included; None: without an end."""

    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report: what it is about, and its sums. `cost` is in 10**-12 USD; of people, and of keys
    that nobody has, the group is empty text.
    """

    group: dict[str, str]
    sums: dict[str, int]

    @property
    def usd(self) -> Decimal:
        return Decimal(self.sums["cost"]) / PICO

    def as_data(self) -> dict[str, Any]:
        """For JSON: the cost in USD, as plain decimal text."""
        plain = f"{self.usd:f}"
        cost = plain.rstrip("0").rstrip(".") if "." in plain else plain
        return {**self.group, **self.sums, "cost": cost}


class TooManyLines(ValueError):
    """There are more groups than were wanted."""


async def report(
    database: Database,
    by: Sequence[str],
    period: Period,
    caller: str | None = None,
    *,
    most: int | None = None,
) -> list[Line]:
    """A line for each group, the dearest first, but by day the days in their order. `caller`: of this one
    alone, by its id or its name. Raises `StoreUnavailable`, `ValueError` for groups that cannot be told
    apart, and `TooManyLines` where there are more than `most`.
    """
    table: Table = usage_daily
    if "user" in by:
        if not _OF_USERS.issuperset(by):
            raise ValueError("what people use is summed by day, caller and user only")
        table = usage_users
    columns = [table.c[GROUPS[name]] for name in by]
    sums = [name for name in SUMS if name in table.c]
    # A caller is shown by the name that it had last.
    shown = [func.max(table.c.caller).label("caller")] if "caller" in by and "caller" in table.c else []
    query = select(*columns, *(func.sum(table.c[name]).label(f"sum_{name}") for name in sums), *shown)
    if period.first is not None:
        query = query.where(table.c.day >= period.first)
    if period.last is not None:
        query = query.where(table.c.day <= period.last)
    if caller is not None:
        query = query.where(of_caller(table, caller))
    query = query.group_by(*columns)
    if most is not None:
        query = query.limit(most + 1)
    async with database.read("usage") as connection:
        found = (await connection.execute(query)).all()
    if most is not None and len(found) > most:
        raise TooManyLines(f"there are more than {most} groups")
    lines = [_line(by, sums, row, bool(shown)) for row in found]
    lines.sort(key=lambda line: tuple(line.group.values()))
    if "day" not in by:
        lines.sort(key=lambda line: (-line.sums["cost"], -line.sums["requests"]))
    return [line for line in lines if any(line.sums.values())]


def of_caller(table: Table, caller: str) -> ColumnElement[bool]:
    """Of this caller alone, by its id or its name."""
    # Ids that people give are kept with a mark, beside those that are made of keys.
    same = table.c.caller_id.in_((caller, f"id:{caller}"))
    return same | (table.c.caller == caller) if "caller" in table.c else same


def _line(by: Sequence[str], sums: Sequence[str], row: Any, named: bool) -> Line:
    group = {name: str(row[place] or "") for place, name in enumerate(by)}
    if named and row.caller:
        group["caller"] = row.caller
    # PostgreSQL's sums are of a decimal type.
    return Line(group, {name: int(getattr(row, f"sum_{name}") or 0) for name in sums})
