"""The tables of callers and keys, and how they came to be, version by version.

Times are microseconds since 1970. Rows are never deleted: a caller is disabled and a key is revoked, so that
the ids in the ledger keep their meaning.
"""

import secrets
from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
)
from sqlalchemy.engine import Connection

from sluicegate.storage import MigrationStep, version_table

metadata = MetaData()


def _allowed() -> list[Column[str]]:
    """JSON each, or null: no limits, all models, all endpoints."""
    return [Column(name, Text) for name in ("limits", "models", "endpoints")]


callers = Table(
    "callers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("team", Text),
    *_allowed(),
    Column("disabled", Boolean, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Index("callers_changed", "changed", "id"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("caller_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("last_four", Text, nullable=False),
    *_allowed(),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("replaces", Text),
    Column("counted_as", Text),
    Column("changed", BigInteger, nullable=False),
    Index("keys_of_caller", "caller_id"),
    Index("keys_changed", "changed", "id"),
)
"""`id` is the part of a key that is no secret, and `digest` the SHA-256 of the whole key. `counted_as` is the
first of the keys that this one goes on for; null: itself.
"""

audit = Table(
    "audit",
    metadata,
    # SQLite counts upwards by itself in a column of this one type.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("change", Text, nullable=False),
)
"""Who changed what: `change` is JSON."""

state = Table(
    "callers_state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("store", Text, nullable=False),
)
"""One row. `version` grows by one with every change, and `changed` of the rows that a change touched is that
number. The row is locked until the change is committed, so changes come one after the other. `store` tells
databases apart.
"""

versions = version_table("callers_version", metadata)


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(insert(state).values(id=1, version=0, store=secrets.token_hex(8)))


MIGRATIONS: Sequence[MigrationStep] = (_create,)
