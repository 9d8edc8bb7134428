"""Giving the ledger's rows away: as CSV, or as Parquet where pyarrow is installed."""

import csv
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO, Any

from sqlalchemy import select

from sluicegate.ledger.reports import Period
from sluicegate.ledger.schema import ledger
from sluicegate.storage import Database

COLUMNS = tuple(ledger.c.keys())

# Rows in memory at a time.
_AT_ONCE = 5000


async def rows(database: Database, period: Period) -> AsyncIterator[Sequence[Any]]:
    """Batches of rows, oldest first, each row in the order of `COLUMNS`. Raises `StoreUnavailable`."""
    before = ""
    while True:
        query = select(ledger).where(ledger.c.id > before).order_by(ledger.c.id).limit(_AT_ONCE)
        if period.first is not None:
            query = query.where(ledger.c.day >= period.first)
        if period.last is not None:
            query = query.where(ledger.c.day <= period.last)
        async with database.read("export") as connection:
            found = [tuple(row) for row in (await connection.execute(query)).all()]
        if found:
            yield found
            before = found[-1][0]
        if len(found) < _AT_ONCE:
            return


async def to_csv(database: Database, period: Period, file: IO[str]) -> int:
    """Write a line for each row, after one with the names; how many. What is not known is empty."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    count = 0
    async for batch in rows(database, period):
        writer.writerows(batch)
        count += len(batch)
    return count


async def to_parquet(database: Database, period: Period, path: Path) -> int:
    """Write a file of Parquet; how many rows. Raises `ImportError` without pyarrow."""
    import pyarrow
    from pyarrow import parquet

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    fields = [(column.name, kinds.get(column.type.python_type, pyarrow.date32())) for column in ledger.c]
    schema = pyarrow.schema(fields)
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        async for batch in rows(database, period):
            columns = list(zip(*batch, strict=True))
            arrays = [pyarrow.array(column, kind) for column, (_, kind) in zip(columns, fields, strict=True)]
            writer.write_table(pyarrow.table(arrays, schema=schema))
            count += len(batch)
    return count
