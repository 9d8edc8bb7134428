"""The statements that add rows and sums, in the words of drivers: each is run for many tuples at a time."""

from functools import cache, lru_cache

from sqlalchemy import Table

# A sum that would not fit stays at this: what an upstream makes up must not keep other rows from being added.
_MOST = 2**62

# Which columns a batch has values for depends on its requests, and not on what anybody makes up.
_KEPT = 256


@lru_cache(_KEPT)
def inserting(table: str, columns: tuple[str, ...], *, numbered: bool, shared: int = 0, rows: int = 1) -> str:
    """Add `rows` of these columns. The first `shared` columns have one value for all of them, which comes
    before the rows' own. `numbered`: the driver wants its parameters numbered.
    """
    own = len(columns) - shared
    numbers = range(1, shared + own * rows + 1)
    marks = [f"${number}" if numbered else "?" for number in numbers]
    values = [f"({', '.join(marks[at : at + own])})" for at in range(shared, len(marks), own)]
    source = f"VALUES {', '.join(values)}"
    if shared:
        source = f"SELECT {', '.join(marks[:shared])}, * FROM ({source})"  # noqa: S608
    return f"INSERT INTO {table} ({', '.join(columns)}) {source}"


@cache
def adding(table: Table, *, numbered: bool) -> str:
    """Add lines of all columns to the sums of `table`. `numbered`: as for `inserting`."""
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
    insert = inserting(table.name, tuple(table.c.keys()), numbered=numbered)
    return f"{insert} ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changes)}"
