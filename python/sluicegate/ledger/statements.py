"""The statements that add rows and sums, in the words of drivers: each is run for many tuples at a time."""

from collections.abc import Sequence
from functools import cache, lru_cache

from sqlalchemy import Table

# A sum that would not fit stays at this: what an upstream makes up must not keep other rows from being added.
_MOST = 2**62

# Which columns a batch has values for depends on its requests, and not on what anybody makes up.
_KEPT = 256


@lru_cache(_KEPT)
def inserting(dialect: str, table: str, columns: Sequence[str]) -> str:
    """Add rows of these columns."""
    numbers = range(1, len(columns) + 1)
    marks = [f"${number}" if dialect == "postgresql" else "?" for number in numbers]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(marks)})"  # noqa: S608


@cache
def adding(dialect: str, table: Table) -> str:
    """Add lines of all columns to the sums of `table`."""
    changes = []
    for column in table.c:
        name = column.name
        if name == "caller":
            changes.append("caller = excluded.caller")
        elif not column.primary_key:
            sum, more = f"{table.name}.{name}", f"excluded.{name}"
            changes.append(
                f"{name} = CASE WHEN {sum} > {_MOST} - {more} THEN {_MOST} ELSE {sum} + {more} END"
            )
    keys = ", ".join(column.name for column in table.primary_key)
    insert = inserting(dialect, table.name, tuple(table.c.keys()))
    return f"{insert} ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changes)}"
