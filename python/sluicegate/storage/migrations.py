"""How the tables of one part came to be, version by version. A table of each part says which it has."""

from collections.abc import Callable, Sequence

from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select
from sqlalchemy.engine import Connection

from sluicegate.storage.errors import StoreTooNew

MigrationStep = Callable[[Connection], None]


def version_table(name: str, metadata: MetaData) -> Table:
    """The table that has a part's versions."""
    return Table(name, metadata, Column("version", Integer, primary_key=True, autoincrement=False))


def migrate(connection: Connection, versions: Table, steps: Sequence[MigrationStep]) -> None:
    """Bring a part to this version, in the caller's transaction. Raises `StoreTooNew`.

    Entry n of `steps` makes version n + 1 of version n. What was released is never edited.
    """
    versions.create(connection, checkfirst=True)
    found = connection.scalar(select(func.max(versions.c.version))) or 0
    if found > len(steps):
        raise StoreTooNew(found, len(steps))
    for number, step in enumerate(steps[found:], found + 1):
        step(connection)
        connection.execute(insert(versions).values(version=number))
